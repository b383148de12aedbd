"""Write the pages of the papers, or play their evaluations: ``python -m fleetgym.papers pages``.

``pages`` writes docs/reproduce-*.md from the committed cells in docs/data. ``run PAPER`` plays the cells that are
missing in results/PAPER.jsonl. When all of them are there, it writes docs/data/PAPER/cells.jsonl and the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetgym.cli.process import run_program
from fleetgym.runtime.programs import program

from . import harness


def smoke(folder: Path) -> None:
    """Write one page elsewhere, and play one cell."""
    (folder / "data").symlink_to(harness.DOCS / "data")
    main(["pages", "--docs", str(folder)])
    paper, kept = "inference_fleet_sim", str(folder / "cells.jsonl")
    main(["run", paper, "--quick", "--only", "table-3", "--kept", kept, "--docs", str(folder)])


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = program(
        __doc__,
        writes="docs/reproduce-*.md; with run also docs/data/PAPER/cells.jsonl and results/PAPER.jsonl.",
        takes="Pages: seconds. A run: 1 CPU minute (inference_fleet_sim), 8 (jiang), 80 (fastllm), under 60 (coral).",
        smoke=smoke,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    pages = commands.add_parser("pages", help="write pages from the committed cells")
    pages.add_argument(
        "papers", nargs="*", metavar="PAPER", help=f"of {', '.join(harness.PAGES)} (default: all)"
    )
    play = commands.add_parser("run", help="play the cells of a paper that are missing")
    play.add_argument("paper", choices=list(harness.PAGES))
    play.add_argument("--quick", action="store_true", help="a small version, into results/quick")
    play.add_argument("--only", default="", metavar="PREFIX", help="cells whose names begin so")
    play.add_argument("--kept", type=Path, help="file of finished cells (default: results/PAPER.jsonl)")
    for each in (pages, play):
        each.add_argument("--docs", type=Path, help="folder of pages and data (default: docs)")
    options = parser.parse_args(argv)
    if options.command == "pages":
        if unknown := set(options.papers) - set(harness.PAGES):
            parser.error(f"unknown paper {sorted(unknown)[0]!r}; known are {', '.join(harness.PAGES)}")
        for paper in options.papers or harness.PAGES:
            print(f"wrote {harness.write_page(paper, options.docs or harness.DOCS)}")
        return
    results = harness.ROOT / "results" / ("quick" if options.quick else "")
    missing = harness.run(
        options.paper,
        quick=options.quick,
        only=options.only,
        kept=options.kept or results / f"{options.paper}.jsonl",
        docs=options.docs or (results / "docs" if options.quick else harness.DOCS),
    )
    if missing:
        print(f"{len(missing)} cells are missing, so page and committed cells stay as they are")


if __name__ == "__main__":
    run_program(main)
