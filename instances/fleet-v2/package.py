"""fleet-v2 as a package: `FOLDER` is where fleetgym finds the set, through an entry point of ``fleetgym.suites``."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parent
