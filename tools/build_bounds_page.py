"""Write docs/inputs.md: the bounds and units of every number that a file may hold, from the declarations of the fields.

python -m tools.build_bounds_page [--out FILE]
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from fleetgym.capacity.traces.objectives import Slo
from fleetgym.capacity.traces.prices import Offer
from fleetgym.cli.process import run_program
from fleetgym.evaluation.isolation.calibration import Calibration
from fleetgym.evaluation.isolation.rules import Rules
from fleetgym.evaluation.results_format import EpisodeResult, Timing
from fleetgym.files.markdown import rewrite, table
from fleetgym.files.schema import Array, Integer, Kind, ListOf, MapOf, Nested, Number
from fleetgym.leaderboard.registers import Machine, Season
from fleetgym.leaderboard.submission import Submission
from fleetgym.model.instance import Instance
from fleetgym.model.processes import PROCESSES
from fleetgym.model.scenario import ScenarioFile
from fleetgym.runtime.programs import program
from fleetgym.scoring.best_known import BestKnownSet

PAGE = Path("docs/inputs.md")

#: What each file holds, under the name that the page gives it.
FILES: dict[str, type] = {
    "Instance": Instance,
    "Scenarios": ScenarioFile,
    "Price list": Offer,
    "SLOs": Slo,
    "Results: an episode": EpisodeResult,
    "Timings: of an episode": Timing,
    "Rules of an official run": Rules,
    "Calibration": Calibration,
    "Best-known set": BestKnownSet,
    "Submission": Submission,
    "Season": Season,
    "Machine": Machine,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Write the page."""
    parser = program(__doc__, writes="docs/inputs.md, between its marks.", takes="A second.", smoke=smoke)
    parser.add_argument("--out", type=Path, default=PAGE, help="the page (default: docs/inputs.md)")
    out = parser.parse_args(argv).out
    out.write_text(rewrite(PAGE, tables()), encoding="utf-8")
    return 0


def smoke(folder: Path) -> int:
    """Write a copy of the page."""
    (folder / "inputs.md").write_text(rewrite(PAGE, tables()), encoding="utf-8")
    return 0


def tables() -> str:
    """Return a table of numbers for each kind of file, and one of the parameters of random processes."""
    parts = []
    for name, cls in FILES.items():
        rows = [[f"`{path}`", words, doc] for path, words, doc in numbers(cls)]
        parts.append(f"## {name}\n\n" + table(["field", "number", "what it is"], rows, 3))
    rows = [
        [f"`{part}`", f"`{kind}`", ", ".join(f"`{name}`" for name, _ in alike), words, per]
        for part, kinds in PROCESSES.items()
        for kind, parameters in kinds.items()
        for (words, per), alike in itertools.groupby(
            parameters.items(), lambda pair: (pair[1].kind.words(), pair[1].per)
        )
    ]
    head = ["field of `dynamics`", "kind", "parameters", "number", "one, or one per"]
    return "\n".join([*parts, "## Random processes\n\n" + table(head, rows, 5)])


def numbers(cls: type, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield path, bounds and meaning of every number of a dataclass, in order."""
    for field in dataclasses.fields(cls):
        if "kind" in field.metadata:
            where = f"{path}.{field.name}".removeprefix(".")
            yield from _of_kind(field.metadata["kind"], where, field.metadata["doc"])


def _of_kind(kind: Kind, path: str, doc: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(kind, Nested):
        yield from numbers(kind.cls, path)
    elif isinstance(kind, (ListOf, Array, MapOf)):
        yield from _of_kind(kind.item, f"{path}[]", doc)
    elif isinstance(kind, (Number, Integer)):
        whole = "whole, " if isinstance(kind, Integer) else ""
        yield path, f"{whole}{kind.words()}{', or null' if kind.nullable else ''}", doc.replace("|", "\\|")


if __name__ == "__main__":
    run_program(main)
