"""Collect the reference agents and planners: one package or file per published method, on the public API alone."""
