"""How a process is set up: the solver, the threads of the linear algebra, environment variables."""
