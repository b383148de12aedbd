"""Set up a process: solvers, threads, environment variables, places, entry points, and the programs' options."""
