"""Run `fleetgym calibrate`: measure the machine, and store and print its speed."""

from __future__ import annotations

import argparse

from fleetgym.cli.options import add_number
from fleetgym.files.quantities import ROUNDS


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the subcommand's options."""
    add_number(parser, "--rounds", ROUNDS, 5, "repetitions of the workload, 1 to 1000")
    parser.add_argument(
        "--show",
        action="store_true",
        help="show the stored speed, and the machine's present difference from it",
    )


def run(arguments: argparse.Namespace) -> int:
    """Measure, or show; the exit code is 1 if the machine has drifted beyond the bound, or nothing is kept."""
    from fleetgym.cli.output import tell
    from fleetgym.evaluation.isolation.calibration import (
        MAX_DRIFT,
        calibrate,
        calibration_path,
        drift,
        read_calibration,
    )
    from fleetgym.files.errors import FleetgymError
    from fleetgym.files.schema import to_jsonable
    from fleetgym.runtime.text_tables import align, number

    kept = read_calibration() if arguments.show else calibrate(arguments.rounds)
    if kept is None:
        raise FleetgymError("this machine has not been calibrated; run `fleetgym calibrate`")
    now = drift(kept.speed) if arguments.show else 0.0
    rows = [[name, number(1e3 * seconds, 0)] for name, seconds in vars(kept.cpu_s).items()]
    lines = [
        f"{kept.machine}, Python {kept.python}, {kept.date}",
        align(["part", "CPU ms"], rows),
        f"one CPU second here is {kept.speed:.3f} reference CPU seconds; rounds within {kept.spread:.0%}",
        *([f"now {now:+.0%}; an official run is marked beyond {MAX_DRIFT:.0%}"] if arguments.show else []),
        f"kept in {calibration_path()}",
    ]
    facts = {**to_jsonable(kept), "file": str(calibration_path())}
    tell(arguments, facts | ({"drift": now} if arguments.show else {}), "\n".join(lines))
    return 0 if abs(now) <= MAX_DRIFT else 1
