"""Compute what is missing, then write docs/reproduce-jiang.md: ``python -m fleetgym.papers.jiang [--quick]``.

Finished cells are kept in results/reproduce_jiang.jsonl, one JSON object a line, so a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fleetgym.files.documents import write_atomically
from fleetgym.files.finished_cells import keep, read

from . import measurements as cells
from .jiang_page import page

ROOT = Path(__file__).resolve().parent.parent.parent


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m fleetgym.papers.jiang", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="availability 1 only (a few minutes)")
    parser.add_argument("--cells", type=Path, default=ROOT / "results" / "reproduce_jiang.jsonl")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "reproduce-jiang.md")
    parser.add_argument("--page-only", action="store_true", help="write the page from the finished cells")
    options = parser.parse_args()
    done, wanted = read(options.cells), cells.names(options.quick)
    missing = [] if options.page_only else [name for name in wanted if name not in done]
    for number, name in enumerate(missing, start=1):
        print(f"{number}/{len(missing)}  {name}", flush=True)
        done[name] = cells.compute(name)
        keep(options.cells, name, done[name])
    write_atomically(options.out, page(done).encode())
    print(f"wrote {options.out}")


if __name__ == "__main__":
    main()
