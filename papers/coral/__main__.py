"""Compute what is missing, then write docs/reproduce-coral.md: ``python -m fleetgym.papers.coral``.

Finished cells are kept in results/reproduce_coral.jsonl, one JSON object a line, so a run that was stopped goes on.
"""

from __future__ import annotations

from pathlib import Path

from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.files.documents import write_atomically
from fleetgym.files.finished_cells import keep, read
from fleetgym.files.quantities import COUNT
from fleetgym.runtime.programs import program

from . import measurements as cells
from .coral_page import page

ROOT = Path(__file__).resolve().parent.parent.parent


def smoke(folder: Path) -> None:
    """Compute one cell, and write the page elsewhere."""
    files = ["--cells", str(folder / "cells.jsonl"), "--libraries", str(folder / "libraries")]
    main(["--seeds", "1", "--only", "rule 2", *files, "--out", str(folder / "page.md")])


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    parser = program(
        __doc__,
        writes="docs/reproduce-coral.md and files in results/.",
        takes="Some CPU hours; seconds with --page-only.",
        smoke=smoke,
    )
    parser.add_argument(
        "--seeds", type=of(COUNT), default=10, help="of demand and availability (default: %(default)s)"
    )
    parser.add_argument(
        "--only", default="", help="cells whose name begins so, such as 'seed extended scarce'"
    )
    parser.add_argument("--cells", type=Path, default=ROOT / "results" / "reproduce_coral.jsonl")
    parser.add_argument("--libraries", type=Path, default=ROOT / "results" / "coral_libraries")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "reproduce-coral.md")
    parser.add_argument(
        "--page-only", action="store_true", help="write the page from the finished cells; other sections stay"
    )
    options = parser.parse_args(argv)
    done = read(options.cells)
    wanted = [name for name in cells.names(options.seeds) if name.startswith(options.only)]
    missing = [] if options.page_only else [name for name in wanted if name not in done]
    for number, name in enumerate(missing, start=1):
        print(f"{number}/{len(missing)}  {name}", flush=True)
        done[name] = cells.compute(name, options.libraries)
        keep(options.cells, name, done[name])
    older = options.out.read_text(encoding="utf-8") if options.out.is_file() else ""
    measured = ROOT / "docs" / "calibration.md"
    text, kept = page(done, older, measured.read_text(encoding="utf-8") if measured.is_file() else "")
    write_atomically(options.out, text.encode())
    for heading in kept:
        print(f"kept as it was, cells are missing: {heading.removeprefix('## ')}")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    run_program(main)
