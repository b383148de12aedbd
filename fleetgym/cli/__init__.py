"""Run the command line: `parser` reads the arguments, and each subcommand calls one public function.

Programs of your own may use `program` and `run_program`, the types of numbers `COUNT`, `SEED` and `POSITIVE_SHARE`, and
`of`, which counts things in words.
"""

from fleetgym.cli.parser import main as main
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.files.quantities import COUNT, POSITIVE_SHARE, SEED
from fleetgym.runtime.programs import program

__all__ = ["COUNT", "POSITIVE_SHARE", "SEED", "main", "of", "program", "run_program"]
