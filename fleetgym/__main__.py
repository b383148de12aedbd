"""Run the command line as ``python -m fleetgym``."""

import sys

from fleetgym.cli.parser import main

if __name__ == "__main__":
    sys.exit(main())
