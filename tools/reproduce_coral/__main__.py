"""Run Coral's evaluation and write ``docs/reproduce-coral.md``.

``python -m tools.reproduce_coral run core default --seeds 10 --out FILE`` appends records as JSON lines;
``sensitivity`` sweeps (N_max, rho); ``page FILE...`` writes the page.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tools.reproduce_coral.evaluation import CASES, load_templates, play
from tools.reproduce_coral.page import write_page
from tools.reproduce_coral.sensitivity import sweep
from tools.reproduce_coral.setup import CORE, EXTENDED

SETUPS = {"core": CORE, "extended": EXTENDED}
PAGE = Path(__file__).parents[2] / "docs" / "reproduce-coral.md"


def _run(arguments: argparse.Namespace) -> None:
    setup = SETUPS[arguments.setup]
    found, facts = load_templates(setup, arguments.libraries)
    with open(arguments.out, "a", encoding="utf-8") as file:
        file.write(json.dumps({"setup": setup.name, "library": facts}) + "\n")
        for seed in range(arguments.first, arguments.first + arguments.seeds):
            for record in play(setup, arguments.case, seed, found):
                file.write(json.dumps(record) + "\n")
            file.flush()


def _sensitivity(arguments: argparse.Namespace) -> None:
    with open(arguments.out, "a", encoding="utf-8") as file:
        for record in sweep():
            file.write(json.dumps({"sensitivity": record}) + "\n")
            file.flush()


def _page(arguments: argparse.Namespace) -> None:
    records = [json.loads(line) for path in arguments.files for line in path.read_text().splitlines()]
    write_page(records, arguments.page)


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    run = verbs.add_parser("run")
    run.add_argument("setup", choices=SETUPS)
    run.add_argument("case", choices=CASES)
    run.add_argument("--seeds", type=int, default=10)
    run.add_argument("--first", type=int, default=0)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--libraries", type=Path, help="folder in which libraries are kept")
    run.set_defaults(verb=_run)
    sensitivity = verbs.add_parser("sensitivity")
    sensitivity.add_argument("--out", type=Path, required=True)
    sensitivity.set_defaults(verb=_sensitivity)
    page = verbs.add_parser("page")
    page.add_argument("files", type=Path, nargs="+")
    page.add_argument("--page", type=Path, default=PAGE)
    page.set_defaults(verb=_page)
    arguments = parser.parse_args()
    arguments.verb(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
