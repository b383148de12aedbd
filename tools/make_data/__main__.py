"""Make the hardware tables that ship in ``fleetgym/data`` from a folder of derived public tables.

    python -m tools.make_data FOLDER

Run it when a source changes; nothing reads the folder at run time. The output is the same bytes for the same input.
`fleetgym/data/SOURCES.md` states source, commit, licence and unit of every number. The demand tables are frozen, and
made by an earlier commit (`SOURCES-demand.md`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fleetgym.cli.process import run_program
from fleetgym.runtime.programs import program
from tools.make_data import catalog

DATA = Path(__file__).resolve().parents[2] / "fleetgym" / "data"


def smoke(folder: Path) -> None:
    """Make the tables of made-up ones."""
    catalog.make_up(folder)
    main([str(folder), "--out", str(folder / "data")])


def main(argv: Sequence[str] | None = None) -> None:
    """Make every table."""
    parser = program(__doc__, writes="Tables in fleetgym/data.", takes="Seconds.", smoke=smoke)
    parser.add_argument(
        "folder", type=Path, help="folder with gpu_specs.csv, tokens_summary.csv and the others"
    )
    parser.add_argument(
        "--out", type=Path, default=DATA, help="folder of the tables (default: fleetgym/data)"
    )
    arguments = parser.parse_args(argv)
    catalog.write_tables(arguments.folder, arguments.out)


if __name__ == "__main__":
    run_program(main)
