"""Hold the version of fleetgym; results files and submissions name it."""

__version__ = "0.1.0"
