"""Train the policy with PPO on generated instances, from the command line.

Training goes in rounds; each has new instances and starts from the checkpoint that the last one left, so that
it can be stopped at any time and goes on with the same call. `docs/ppo.md` lists the calls that made the
weights that ship.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from fleetgym import FleetgymError
from fleetgym.cli import COUNT, POSITIVE_SHARE, SEED, of, program, run_program


def smoke(folder: Path) -> None:
    """Train a small network on one instance for a few windows."""
    few = {"instances": 1, "episodes": 2, "updates": 1, "hidden": 8}
    main(["--folder", str(folder), *(f"--{name}={value}" for name, value in few.items())])


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    result = program(
        __doc__,
        writes="checkpoint.pt, weights.npz and curve.jsonl in the folder of --folder.",
        takes="About a CPU minute for a round, see docs/ppo.md.",
        smoke=smoke,
    )
    result.add_argument(
        "--folder", default="results/ppo", help="checkpoint, weights and curve (default: %(default)s)"
    )
    result.add_argument(
        "--rounds", type=of(COUNT), default=1, help="each with new instances (default: %(default)s)"
    )
    result.add_argument(
        "--updates", type=of(COUNT), default=24, help="of a round, 48 windows each (default: %(default)s)"
    )
    result.add_argument(
        "--families",
        nargs="+",
        default=["ou-s", "drop-s", "trace-m", "budget-s", "tail-s", "multi-s"],
        help="families of `fleetgym.families.generate` with their sizes",
    )
    result.add_argument(
        "--instances", type=of(COUNT), default=12, help="played in turn (default: %(default)s)"
    )
    result.add_argument(
        "--episodes", type=of(COUNT), default=12, help="of each, side by side (default: %(default)s)"
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
    run_program(main)
