"""List the bounds and units of every number that a file may hold, from the declarations of the fields.

The site shows these tables on docs/inputs.md.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

from fleetgym.capacity.traces.objectives import Slo
from fleetgym.capacity.traces.prices import Offer
from fleetgym.cli.process import run_program
from fleetgym.evaluation.isolation.calibration import Calibration
from fleetgym.evaluation.isolation.rules import Rules
from fleetgym.evaluation.results_format import EpisodeResult, Timing
from fleetgym.files.schema import Array, Integer, Kind, ListOf, MapOf, Nested, Number
from fleetgym.leaderboard.registers import Machine, Season
from fleetgym.leaderboard.submission import Submission
from fleetgym.model.instance import Instance
from fleetgym.model.processes import PROCESSES
from fleetgym.model.scenario import ScenarioFile
from fleetgym.runtime.programs import program
from fleetgym.scoring.best_known import BestKnownSet
from tools.markdown import table

#: What each file holds, under the name of its table.
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
    """Print the tables."""
    program(__doc__, writes="Nothing.", takes="A second.", smoke=smoke).parse_args(argv)
    print(tables())
    return 0


def smoke(_: Path) -> int:
    """Print the tables."""
    return main([])


def tables() -> str:
    """Return a table of numbers for each kind of file, and one of the parameters of random processes.

    Fields of a file that have the same bounds and the same description share a row.
    """
    parts = []
    for name, cls in FILES.items():
        alike: dict[tuple[str, str], list[str]] = {}
        for path, words, doc in numbers(cls):
            alike.setdefault((words, doc), []).append(f"`{path}`")
        rows = [[", ".join(paths), words, doc] for (words, doc), paths in alike.items()]
        parts.append(f"## {name}\n\n" + table(["field", "number", "what it is"], rows, 3))
    names: dict[tuple[str, tuple[str, ...], str, str], list[str]] = {}
    for part, parameters in PROCESSES.items():
        kinds: dict[tuple[str, str, str], list[str]] = {}
        for kind, of in parameters.items():
            for name, parameter in of.items():
                kinds.setdefault((name, parameter.kind.words(), parameter.per), []).append(f"`{kind}`")
        for (name, words, per), having in kinds.items():
            names.setdefault((part, tuple(having), words, per), []).append(f"`{name}`")
    rows = [
        [f"`{part}`", ", ".join(having), ", ".join(of), words, per]
        for (part, having, words, per), of in names.items()
    ]
    head = ["field of `dynamics`", "kinds", "parameters", "number", "one, or one per"]
    return "\n".join([*parts, "## Random processes\n\n" + table(head, rows, 5)])


def numbers(cls: type, path: str = "") -> Iterator[tuple[str, str, str]]:
    """Yield path, bounds and meaning of every number of a dataclass, in order."""
    for field in dataclasses.fields(cls):
        if "kind" in field.metadata:
            where = f"{path}.{field.name}".removeprefix(".")
            yield from _of_kind(field.metadata["kind"], where, field.metadata["doc"])


def _of_kind(kind: Kind, path: str, doc: str) -> Iterator[tuple[str, str, str]]:
    sections = [name for name, cls in FILES.items() if isinstance(kind, Nested) and kind.cls is cls]
    if sections:
        yield path, f"see {sections[0]}", ""
    elif isinstance(kind, Nested):
        yield from numbers(kind.cls, path)
    elif isinstance(kind, (ListOf, Array, MapOf)):
        yield from _of_kind(kind.item, f"{path}[]", doc)
    elif isinstance(kind, (Number, Integer)):
        whole = "whole, " if isinstance(kind, Integer) else ""
        yield path, f"{whole}{kind.words()}{', or null' if kind.nullable else ''}", doc.replace("|", "\\|")


if __name__ == "__main__":
    run_program(main)
