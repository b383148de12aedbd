"""Train the policy with MaskablePPO: generated instances in; a checkpoint, weights and a learning curve out.

Training goes in rounds; each has new instances and starts from the checkpoint that the last one left, so that
it can be stopped at any time and goes on with the same call. `docs/ppo.md` lists the calls that made the
weights that ship.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fleetgym import FleetgymError
from fleetgym.cli.words import of
from fleetgym.files.quantities import COUNT, NUMBER, POSITIVE_SHARE, SEED
from fleetgym.runtime.programs import program


def smoke(folder: Path) -> None:
    """Train a small network on one instance for a few windows."""
    main(["--folder", str(folder), "--instances", "1", "--steps", "96", "--hidden", "8"])


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    result = program(
        __doc__,
        writes="checkpoint.pt, weights.npz and curve.jsonl in the folder of --folder.",
        takes="About three CPU minutes for a round of 100,000 windows.",
        smoke=smoke,
    )
    result.add_argument(
        "--folder", default="results/ppo", help="checkpoint, weights and curve (default: %(default)s)"
    )
    result.add_argument(
        "--rounds", type=of(COUNT), default=1, help="each with new instances (default: %(default)s)"
    )
    result.add_argument(
        "--steps", type=of(NUMBER), default=100_000, help="windows per round (default: %(default)s)"
    )
    result.add_argument(
        "--families", nargs="+", default=["ou", "drop"], help="of `fleetgym.families.generate`"
    )
    result.add_argument("--size", default="s")
    result.add_argument(
        "--instances", type=of(COUNT), default=24, help="played side by side (default: %(default)s)"
    )
    result.add_argument("--learning-rate", type=of(POSITIVE_SHARE), default=1e-3)
    result.add_argument("--hidden", type=of(COUNT), default=32)
    result.add_argument("--seed", type=of(SEED), default=0)
    return result


def main(argv: Sequence[str] | None = None) -> None:
    """Train some rounds."""
    arguments = parser().parse_args(argv)
    try:
        from .training import train
    except ImportError as error:
        raise SystemExit(f"error: {error}; training needs pip install 'fleetgym[rl]'") from None
    try:
        for _ in range(arguments.rounds):
            train(arguments)
    except FleetgymError as error:
        raise SystemExit(f"error: {error}") from None


if __name__ == "__main__":
    main()
