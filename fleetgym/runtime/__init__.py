"""How a process is set up: solver, threads, environment variables, places, entry points, and the programs' options."""
