"""Compute what is missing and write docs/reproduce-fleet-sim.md: ``python -m fleetgym.papers.inference_fleet_sim``.

Finished cells are kept in results/reproduce_fleet_sim.jsonl (``--quick``: another file), one JSON object a line, so
a run that was stopped goes on. ``--quick`` simulates less; its page is not for keeping.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.files.finished_cells import keep, read
from fleetgym.runtime.programs import program

from . import figures, settings
from . import measurements as cells
from .fleet_sim_page import page

ROOT = Path(__file__).resolve().parent.parent.parent


def smoke(folder: Path) -> None:
    """Compute one table with hardly any simulation, and write the page elsewhere."""
    files = ["--cells", str(folder / "cells.jsonl"), "--out", str(folder / "page.md")]
    main(["--quick", "--only", "table-3", *files])


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line."""
    parser = program(
        __doc__,
        writes="docs/reproduce-fleet-sim.md, pictures beside it, and its cells in results/.",
        takes="A CPU minute.",
        smoke=smoke,
    )
    parser.add_argument(
        "--quick", action="store_true", help="10 seeds of 4,000 requests instead of 20 of 30,000"
    )
    parser.add_argument("--only", default="", help="cells whose name begins so, such as 'table-1'")
    parser.add_argument("--cells", type=Path, help="file of finished cells")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "reproduce-fleet-sim.md")
    parser.add_argument("--page-only", action="store_true", help="write the page from the finished cells")
    options = parser.parse_args(argv)
    effort = settings.QUICK if options.quick else settings.FULL
    path = options.cells or ROOT / "results" / f"reproduce_fleet_sim{'_quick' * options.quick}.jsonl"
    done = read(path)
    wanted = [name for name in cells.CELLS if name.startswith(options.only)]
    missing = [] if options.page_only else [name for name in wanted if name not in done]
    for number, name in enumerate(missing, start=1):
        print(f"{number}/{len(missing)}  {name}", flush=True)
        # Through JSON and back, so that a resumed run writes the same page.
        numbers = json.loads(json.dumps(cells.CELLS[name](effort), allow_nan=False))
        keep(path, name, numbers)
        done[name] = numbers
    images = figures.write(options.out.parent / "images", done)
    write_atomically(options.out, page(done, images).encode())
    print(f"wrote {options.out}")


if __name__ == "__main__":
    run_program(main)
