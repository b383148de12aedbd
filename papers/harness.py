"""Play the cells of a paper's evaluation, and write its page from the cells that are committed.

A paper is a package with three parts:

- `measurements`: ``names(quick)`` lists the cells, and ``compute(name, quick)`` returns the numbers of one.
- `summary`: ``summarise(cells)`` returns what is committed of a whole run, and ``view(cells)`` returns what the
  page needs of that: the cells themselves, the verdicts that follow from them, functions that format.
- ``page.md.j2``: the page as a Jinja2 template. All of its prose stands there.

`run` keeps every finished cell in ``results/<paper>.jsonl``, so that a run which was stopped goes on. Once all cells
are there it writes ``docs/data/<paper>/cells.jsonl`` and the page.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from datetime import date
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

import jinja2

from fleetgym.files.documents import write_atomically
from fleetgym.files.errors import FleetgymError
from fleetgym.files.finished_cells import keep, read

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
#: The pages by the paper's package.
PAGES = {
    "fastllm": "reproduce-fastllm.md",
    "coral": "reproduce-coral.md",
    "jiang": "reproduce-jiang.md",
    "inference_fleet_sim": "reproduce-fleet-sim.md",
}
#: The verdicts on a claim; a reason may follow after a colon.
HOLDS, PART, FAILS, OPEN = "holds", "in part", "does not hold", "undecided"

Cells = Mapping[str, Any]


def _part(paper: str, name: str) -> ModuleType:
    return importlib.import_module(f"fleetgym.papers.{paper}.{name}")


def committed(paper: str, docs: Path = DOCS) -> Path:
    """Return the file of a paper's committed cells."""
    return docs / "data" / paper / "cells.jsonl"


def fixed(value: float | None, spec: str) -> str:
    """Format a number as Python does, with a space before a percent sign; a dash where there is none.

    Examples
    --------
    >>> fixed(-0.163, "+.0%"), fixed(1234.5, ",.1f"), fixed(None, ".2f")
    ('-16 %', '1,234.5', '–')
    """
    return "–" if value is None else format(value, spec).replace("%", " %")


def render(paper: str, cells: Cells) -> str:
    """Return a paper's page from its committed cells."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["fixed"] = fixed
    return environment.get_template(f"{paper}/page.md.j2").render(_part(paper, "summary").view(cells))


def write_page(paper: str, docs: Path = DOCS) -> Path:
    """Write a paper's page from the cells that are committed below a folder of documents.

    Raises
    ------
    FleetgymError
        If there are no such cells: an installed package has none.
    """
    source, page = committed(paper, docs), docs / PAGES[paper]
    if not source.is_file():
        raise FleetgymError(f"{source} is missing: pages are written in a checkout of the repository")
    write_atomically(page, render(paper, read(source)).encode())
    return page


def run(paper: str, *, quick: bool, only: str, kept: Path, docs: Path) -> list[str]:
    """Play the cells that are missing; if none is missing then, write committed cells and page.

    Parameters
    ----------
    paper : str
        One of `PAGES`.
    quick : bool
        Whether to play the small version of the evaluation.
    only : str
        Play the cells whose names begin with this.
    kept : Path
        File of finished cells.
    docs : Path
        Folder that gets page and cells.

    Returns
    -------
    list of str
        The cells that are still missing.
    """
    measurements = _part(paper, "measurements")
    names, done = measurements.names(quick), read(kept)
    due = [name for name in names if name not in done and name.startswith(only)]
    for number, name in enumerate(due, start=1):
        print(f"{number}/{len(due)}  {name}", flush=True)
        # Through JSON and back, so that a resumed run writes the same page.
        done[name] = json.loads(json.dumps(measurements.compute(name, quick), allow_nan=False))
        keep(kept, name, done[name])
    missing = [name for name in names if name not in done]
    if not missing:
        found = _part(paper, "summary").summarise({name: done[name] for name in names})
        played = f"played by fleetgym {version('fleetgym')} on {date.today():%d %B %Y}"
        found = {"source": played + ", a small version" * quick, **found}
        lines = [json.dumps({"name": name, "numbers": numbers}) + "\n" for name, numbers in found.items()]
        committed(paper, docs).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(committed(paper, docs), "".join(lines).encode())
        print(f"wrote {write_page(paper, docs)}")
    return missing
