"""Compute what is missing, then write docs/reproduce-jiang.md: ``python -m fleetgym.papers.jiang``.

Finished cells are kept in results/reproduce_jiang.jsonl, one JSON object a line, so a run that was stopped goes on.
"""

from __future__ import annotations

from pathlib import Path

from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.files.finished_cells import keep, read
from fleetgym.runtime.programs import program

from . import measurements as cells
from .jiang_page import page

ROOT = Path(__file__).resolve().parent.parent.parent


def smoke(folder: Path) -> None:
    """Compute one cell, and write the page elsewhere."""
    main(["--only", "table6", "--cells", str(folder / "cells.jsonl"), "--out", str(folder / "page.md")])


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    parser = program(
        __doc__,
        writes="docs/reproduce-jiang.md and results/reproduce_jiang.jsonl.",
        takes="Some CPU hours; a few minutes with --quick.",
        smoke=smoke,
    )
    parser.add_argument("--quick", action="store_true", help="availability 1 only (a few minutes)")
    parser.add_argument("--only", default="", help="cells whose name begins so, such as 'speed 1'")
    parser.add_argument("--cells", type=Path, default=ROOT / "results" / "reproduce_jiang.jsonl")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "reproduce-jiang.md")
    parser.add_argument("--page-only", action="store_true", help="write the page from the finished cells")
    options = parser.parse_args(argv)
    done = read(options.cells)
    wanted = [name for name in cells.names(options.quick) if name.startswith(options.only)]
    missing = [] if options.page_only else [name for name in wanted if name not in done]
    for number, name in enumerate(missing, start=1):
        print(f"{number}/{len(missing)}  {name}", flush=True)
        done[name] = cells.compute(name)
        keep(options.cells, name, done[name])
    older = options.out.read_text(encoding="utf-8") if options.out.is_file() else ""
    text, kept = page(done, older)
    write_atomically(options.out, text.encode())
    for heading in kept:
        print(f"kept as it was, cells are missing: {heading.removeprefix('## ')}")
    print(f"wrote {options.out}")


if __name__ == "__main__":
    run_program(main)
