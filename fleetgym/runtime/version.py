"""Hold the version of fleetgym; results files and submissions name it."""

__version__ = "1.0.0"
