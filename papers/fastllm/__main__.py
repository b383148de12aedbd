"""Regenerate docs/reproduce-fastllm.md: compute the cells that are missing, then write page, plots and tables."""

from __future__ import annotations

from pathlib import Path

from fleetgym.cli.process import run_program
from fleetgym.runtime.programs import program

from .batches import full, quick
from .fastllm_page import write_page
from .store import Store


def smoke(folder: Path) -> None:
    """Compute the small cells of one experiment, and write the page elsewhere."""
    main(["--quick", "--only", "runtime GH", "--out", str(folder)])


def main(arguments: list[str] | None = None) -> None:
    """Read the call, compute, write."""
    parser = program(
        __doc__,
        writes="docs/reproduce-fastllm.md, pictures and tables beside it, and its cells in results/fastllm.",
        takes="80 CPU minutes; a minute with --quick.",
        smoke=smoke,
    )
    parser.add_argument("--out", type=Path, default=Path("results/fastllm"), help="folder of finished cells")
    parser.add_argument(
        "--docs", type=Path, help="folder of the page (default: docs; with --quick: OUT/docs)"
    )
    parser.add_argument(
        "--quick", action="store_true", help="a few small cells, to see that everything works"
    )
    parser.add_argument(
        "--page-only", action="store_true", help="compute nothing; what is missing stays as it is on the page"
    )
    parser.add_argument("--only", default="", help="compute the batches whose names begin with this")
    call = parser.parse_args(arguments)
    store, batches = Store(call.out), quick() if call.quick else full()
    for batch in batches:
        if not call.page_only and batch.name.startswith(call.only):
            store.run(batch)
    docs = call.docs or (call.out / "docs" if call.quick else Path("docs"))
    kept = write_page(docs, {batch.name: store.finished(batch) for batch in batches}, batches)
    for heading in kept:
        print(f"kept as it was, cells are missing: {heading.removeprefix('## ')}")


if __name__ == "__main__":
    run_program(main)
