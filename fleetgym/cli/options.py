"""Declare the options that several subcommands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from fleetgym.cli.words import of
from fleetgym.files import quantities as q
from fleetgym.files.schema import Integer, Number

#: Makes the parser of a subcommand from its name, a sentence and examples.
AddVerb = Callable[..., argparse.ArgumentParser]

AGENT_HELP = (
    "a name from `fleetgym list agents`, module:Class or file.py:Class; with arguments: 'gh(margin=0.2)'"
)
#: Where a checkout keeps its leaderboard.
BOARD = "leaderboard"


def add_json(parser: argparse.ArgumentParser, **options: Any) -> None:
    """Declare ``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON for machines", **options)


def add_number(
    parser: argparse.ArgumentParser,
    name: str,
    kind: Integer | Number,
    default: float,
    text: str,
    metavar: str | None = None,
) -> None:
    """Declare a number with a default, which the help text gives at its end."""
    shown = f"{text} (default: {default:g})"
    parser.add_argument(name, type=of(kind), default=default, metavar=metavar, help=shown)


def add_seed(parser: argparse.ArgumentParser, what: str) -> None:
    """Declare ``--seed`` with its purpose."""
    add_number(parser, "--seed", q.SEED, 0, what)


def add_workers(parser: argparse.ArgumentParser, what: str = "processes") -> None:
    """Declare ``--workers``."""
    add_number(parser, "--workers", q.WORKERS, 1, what)


def add_scenario(parser: argparse.ArgumentParser) -> None:
    """Declare ``--scenario``, one day of an instance."""
    add_number(parser, "--scenario", q.NUMBER, 0, "number of a stored scenario")


def add_plot(parser: argparse.ArgumentParser, what: str = "draw a picture") -> None:
    """Declare ``--plot``."""
    parser.add_argument("--plot", metavar="FILE.png", help=f"{what} (needs matplotlib)")


def add_relative(parser: argparse.ArgumentParser, default: str | None = "best-known", more: str = "") -> None:
    """Declare ``--relative-to``, what scores compare with."""
    parser.add_argument(
        "--relative-to",
        choices=("best-known", "best-in-run"),
        default=default,
        help=f"best-in-run for tasks without a best-known cost{more}",
    )


def add_board(parser: argparse.ArgumentParser) -> None:
    """Declare ``--board``, the folder of a leaderboard."""
    parser.add_argument("--board", default=BOARD, metavar="FOLDER", help=f"(default: {BOARD})")


def add_own_files(parser: argparse.ArgumentParser) -> None:
    """Declare the files of one's own models, GPUs and measurements."""
    parser.add_argument(
        "--model-file",
        action="append",
        metavar="[NAME=]FILE",
        help="config.json of a model of your own, as published with its weights; may be repeated",
    )
    parser.add_argument(
        "--gpu-file",
        action="append",
        metavar="FILE",
        help="GPUs of your own: CSV or JSON of name, memory_gb, bandwidth_gb_per_s, fp16_tflops, usd_per_gpu_h, ..",
    )
    parser.add_argument(
        "--profile",
        action="append",
        metavar="FILE",
        help="CSV of measured runs: model, gpu, precision, lengths, concurrency, requests_per_s or latencies",
    )
