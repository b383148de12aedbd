"""Cells in; docs/reproduce-fastllm.md, its figures and its table of measured values out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetgym.files.documents import write_atomically
from fleetgym.files.markdown import table

from . import result_tables as tables
from .claims import all_claims
from .measures import Measures, MissingCell
from .plots import write_figures
from .store import Batch

_TEMPLATE = Path(__file__).with_name("template.md")

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
    "rolling changes": lambda m: tables.rolling_changes(m, _REPLANNED),
    "runtime": tables.runtime,
}


def write_page(docs: Path, cells: Mapping[str, Sequence[Any]], batches: Sequence[Batch]) -> None:
    """Write page, figures and measured values below `docs`; what is not computed yet is left out and named."""
    m = Measures(cells)
    figures = write_figures(docs / "images", m)
    missing = [b.name for b in batches if len(cells[b.name]) < len(b.keys)]

    def fill(found: re.Match[str]) -> str:
        name = found[1]
        if name == "unfinished":
            return f"**Unfinished:** {'; '.join(missing)}. The tables show what is there." if missing else ""
        if name == "claims":
            return _claims(m)
        if name.startswith("figure "):
            file, caption = name.removeprefix("figure ").split(": ")
            return f"![{caption}](images/{file})" if file in figures else ""
        return _table(m, name)

    page = re.sub(r"\[\[(.+?)\]\]", fill, _TEMPLATE.read_text(encoding="utf-8"))
    page = re.sub(r"\n{3,}", "\n\n", page)
    write_atomically(docs / "reproduce-fastllm.md", page.encode())
    write_atomically(docs / "data" / "fastllm" / "measured.csv", _csv(m).encode())


def _table(m: Measures, name: str) -> str:
    try:
        return _TABLES[name](m)
    except MissingCell as missing:
        return f"*Not computed yet: {missing}.*"


def _claims(m: Measures) -> str:
    rows = [[c.where, c.text, c.evidence, f"**{c.verdict}**"] for c in all_claims(m)]
    return table(["where", "claim", "measured", "verdict"], rows, text_columns=4).rstrip("\n")


def _csv(m: Measures) -> str:
    """Return every estimate of the page, one a line."""
    lines = ["cell;measure;mean;low;high;n"]
    for (cell, kind), e in sorted(m.ledger.items()):
        lines.append(f"{cell};{kind};{e.mean:.6g};{e.low:.6g};{e.high:.6g};{e.n}")
    return "\n".join(lines) + "\n"
