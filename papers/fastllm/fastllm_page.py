"""Write docs/reproduce-fastllm.md, its figures and its table of measured values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetgym.files.documents import write_atomically
from fleetgym.files.markdown import rows, sections, table, with_kept_sections

from . import result_tables as tables
from .claims import all_claims
from .measures import Measures, MissingCell
from .plots import write_figures
from .store import Batch

_TEMPLATE = Path(__file__).with_name("template.md")

CLAIMS = "## The paper's claims"
#: The experiment that a section cannot do without.
_NEEDS = {
    "## How far AGH is from the optimum": "optimum",
    "### What the plans leave unserved": "optimum",
    "## Figure 2 (a)-(c): two-stage evaluation under stress": "stress",
    "## Table 2: budgets and penalties": "budgets",
    "## Figure 2 (d)-(f): sensitivity": "sensitivity",
    "## Table 3: ablation": "ablation",
    "## Table 4: rolling horizon": "rolling",
    "## Table 5: run time": "runtime",
}

#: Policies of Table 4 as the paper has them, and what an operator could do.
_AS_PRINTED = ("DM-24h", "GH-24h", "GH-5min", "AGH-24h", "AGH-5min", "DM-1h", "DM-5min")
_REPLANNED = ("GH-5min", "AGH-5min", "DM-1h", "DM-5min")
_FAIR = (
    *("DM-24h", "GH-24h", "AGH-24h"),
    *(f"{policy}, sees last" for policy in _REPLANNED),
    *(f"{policy}, sees last, minds start-up" for policy in _REPLANNED),
)
_PAIRS = (
    ("AGH-5min", "AGH-24h"),
    ("AGH-5min", "DM-24h"),
    ("GH-5min", "GH-24h"),
    ("AGH-24h", "DM-24h"),
    ("DM-1h", "AGH-5min"),
    ("DM-5min", "AGH-5min"),
)

#: What the template's double brackets may name.
_TABLES: Mapping[str, Callable[[Measures], str]] = {
    "first stage": tables.first_stage,
    "stress frozen": lambda m: tables.stress(m, "frozen"),
    "stress deployed": lambda m: tables.stress(m, "deployed"),
    "stress changes": tables.stress_changes,
    "second-stage modes": tables.second_stage_modes,
    "budgets": tables.budgets,
    "budget gaps": tables.budget_gaps,
    "tight budgets": tables.tight_budgets,
    "sensitivity": tables.sensitivity,
    "ablation": tables.ablation,
    "rolling frozen": lambda m: tables.rolling(m, "frozen", "cost", _AS_PRINTED),
    "rolling deployed": lambda m: tables.rolling(m, "deployed", "cost", _AS_PRINTED),
    "rolling frozen with start-up": lambda m: tables.rolling(m, "frozen", "with start-up", _AS_PRINTED),
    "rolling deployed with start-up": lambda m: tables.rolling(m, "deployed", "with start-up", _AS_PRINTED),
    "rolling fair": lambda m: tables.rolling(m, "deployed", "with start-up", _FAIR),
    "rolling gaps": lambda m: tables.rolling_gaps(m, _PAIRS),
    "optimum": tables.optimum,
    "unserved": tables.unserved,
    "rolling changes": lambda m: tables.rolling_changes(m, _REPLANNED),
    "runtime": tables.runtime,
}


def write_page(docs: Path, cells: Mapping[str, Sequence[Any]], batches: Sequence[Batch]) -> list[str]:
    """Write page, figures and measured values below `docs`, and return what was kept of an older page.

    Where cells are missing, sections, claims and values of the page that is there stay as they are. Without such a
    page, the missing cells are named.
    """
    missing = [b.name for b in batches if len(cells[b.name]) < len(b.keys)]
    unfinished = {b.experiment for b in batches if b.name in missing}
    path, csv = docs / "reproduce-fastllm.md", docs / "data" / "fastllm" / "measured.csv"
    older = path.read_text(encoding="utf-8") if missing and path.is_file() else ""
    if older:  # half an experiment does not replace a whole one
        cells = {b.name: cells[b.name] for b in batches if b.experiment not in unfinished}
    m = Measures(cells)
    figures = write_figures(docs / "images", m)

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name == "unfinished":
            text = f"**Unfinished:** {'; '.join(missing)}. The tables show what is there."
            return text if missing and not older else ""
        if name == "claims":
            return _claims(m, rows(sections(older).get(CLAIMS, "")))
        if name.startswith("figure "):
            file, caption = name.removeprefix("figure ").split(": ")
            return f"![{caption}](images/{file})" if file in figures else ""
        return _table(m, name)

    page = re.sub(r"\[\[(.+?)\]\]", fill, _TEMPLATE.read_text(encoding="utf-8"))
    page = re.sub(r"\n{3,}", "\n\n", page)
    kept: list[str] = []
    if older:
        there = sections(older)
        stays = [heading for heading, needs in _NEEDS.items() if needs in unfinished and heading in there]
        page = "".join(text for heading, text in sections(page).items() if heading not in stays)
        page, kept = with_kept_sections(page, older)
    write_atomically(path, page.encode())
    write_atomically(
        csv, _csv(m, csv.read_text(encoding="utf-8") if older and csv.is_file() else "").encode()
    )
    return kept


def _table(m: Measures, name: str) -> str:
    try:
        return _TABLES[name](m)
    except MissingCell as missing:
        return f"*Not computed yet: {missing}.*"


def _claims(m: Measures, older: Sequence[Sequence[str]]) -> str:
    """Return the table of claims; those whose cells are missing stay as they are on an older page, in its order."""
    judged = {(c.where, c.text): [c.where, c.text, c.evidence, f"**{c.verdict}**"] for c in all_claims(m)}
    kept = {(row[0], row[1]): list(row) for row in older}
    order = [*kept, *(key for key in judged if key not in kept)]
    lines = [judged.get(key, kept.get(key, [])) for key in order]
    return table(["where", "claim", "measured", "verdict"], lines, text_columns=4).rstrip("\n")


def _csv(m: Measures, older: str) -> str:
    """Return every estimate of the page, one a line; beside those of an older table that are missing."""
    kept = {tuple(line.split(";")[:2]): line for line in older.splitlines()[1:]}
    new = {
        (cell, kind): f"{cell};{kind};{e.mean:.6g};{e.low:.6g};{e.high:.6g};{e.n}"
        for (cell, kind), e in m.ledger.items()
    }
    found = {**kept, **new}
    return "\n".join(["cell;measure;mean;low;high;n", *(found[key] for key in sorted(found))]) + "\n"
