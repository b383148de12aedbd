"""Implement the subcommands `leaderboard` and `report`."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
from pathlib import Path

from fleetgym.cli.options import BOARD, AddVerb, add_relative
from fleetgym.cli.output import note
from fleetgym.files.errors import FleetgymError


def add(verb: AddVerb) -> None:
    """Declare the subcommands; `verb(name, text, examples)` makes a parser."""
    p = verb(
        "leaderboard",
        "build the leaderboard's page from verified records",
        "  fleetgym leaderboard\n  fleetgym leaderboard --release bks-2026-11 --out site\n"
        "  fleetgym leaderboard --freeze fleet-v0",
    )
    p.add_argument("board", nargs="?", default=BOARD, metavar="FOLDER", help=f"(default: {BOARD})")
    p.add_argument(
        "--out", metavar="FOLDER", help="folder of the site (default: site in the leaderboard's folder)"
    )
    p.add_argument(
        "--release", metavar="BKS", help="best-known set to score against (default: the newest frozen one)"
    )
    p.add_argument(
        "--freeze",
        metavar="SET",
        help="first freeze the present best-known costs of this set, such as fleet-v0",
    )
    p.add_argument(
        "--date", default=f"{datetime.date.today():%Y-%m-%d}", help="date of the freeze (default: today)"
    )
    p = verb(
        "report",
        "draw a results file: one HTML page with pictures for a paper",
        "  fleetgym report results/night.jsonl --out night.html\n"
        "  fleetgym report results/night.jsonl --files figures --against margin",
    )
    p.add_argument("results", help="results file of a complete run")
    p.add_argument("--out", metavar="FILE", help="the page (default: the results file's name, .html)")
    p.add_argument(
        "--files",
        metavar="FOLDER",
        help="write every picture as SVG and PDF, its numbers as CSV and the tables as LaTeX here too",
    )
    p.add_argument("--against", metavar="NAME", help="say why the other agents cost more than this one")
    add_relative(p)


def leaderboard(arguments: argparse.Namespace) -> int:
    """Build the leaderboard's page."""
    from fleetgym.leaderboard.registers import freeze
    from fleetgym.leaderboard.site import build_site
    from fleetgym.leaderboard.standings import misnamed, unverified

    board = arguments.board
    if arguments.freeze:
        freeze(board, arguments.freeze, arguments.date)
    made = build_site(board, arguments.out, arguments.release)
    for name in unverified(board):
        folder, records = Path(board, "submissions", name), Path(board, "verified")
        note(f"{name} has no row, since it has no record: fleetgym verify {folder} --out {records}")
    for name in misnamed(board):
        folder = Path(board, "submissions", name)
        note(f"{folder} has no row: a submission's name is like 2026-12-01-mine")
    return _told(made, arguments.json)


def report(arguments: argparse.Namespace) -> int:
    """Draw a results file."""
    from fleetgym.leaderboard import report as drawing
    from fleetgym.leaderboard.pdf import has_pdf
    from fleetgym.leaderboard.submission import DECLARATION

    stem = arguments.results.removesuffix(".gz").removesuffix(".jsonl")
    folder = Path(os.path.abspath(stem)).parent
    if (folder / DECLARATION).is_file():  # a submission, which holds no other files
        stem = folder.name
    out = arguments.out or f"{stem}.html"
    if os.path.exists(out) and os.path.samefile(out, arguments.results):
        raise FleetgymError(f"--out {out} is the results file itself; name the page, such as {stem}.html")
    made = drawing.report(
        arguments.results,
        out,
        relative_to=arguments.relative_to,
        files=arguments.files,
        against=arguments.against,
    )
    if arguments.files and not has_pdf():
        print("no PDF files: pip install 'fleetgym[report]' brings what draws them", file=sys.stderr)
    return _told(made, arguments.json)


def _told(path: Path, as_json: bool) -> int:
    print(json.dumps({"page": str(path)}) if as_json else f"{path}: open it in a browser")
    return 0
