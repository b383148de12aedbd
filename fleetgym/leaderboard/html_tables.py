"""Columns and rows in, a sortable HTML table or a Markdown table out."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fleetgym.files.errors import printable
from fleetgym.leaderboard.markup import Markup, join, tag

DASH = "–"


@dataclasses.dataclass(frozen=True)
class Column:
    """One column: its head, what it shows of a row, and what it is sorted by."""

    head: str
    show: Callable[[Any], object]
    sort: Callable[[Any], float | str | None] | None = None
    kind: str = ""  # of the cell: name, text, score, wrap
    hint: str | None = None


def number(value: float | None, digits: int = 1) -> str:
    """Return a number with thousands separated.

    Examples
    --------
    >>> number(1234.56), number(-0.01), number(None)
    ('1,234.6', '0.0', '–')
    """
    return DASH if value is None else f"{value:z,.{digits}f}"


def interval(bounds: tuple[float, float] | None, digits: int = 1) -> str:
    """Return an interval."""
    return DASH if bounds is None else f"{number(bounds[0], digits)} to {number(bounds[1], digits)}"


def html_table(
    columns: Sequence[Column],
    rows: Sequence[Any],
    data: Callable[[Any], Mapping[str, str]] | None = None,
    empty: str = "nothing here yet",
    *,
    label: str | None = None,
    banded: Callable[[Any], object] | None = None,
) -> Markup:
    """Return a table in a box that scrolls sideways, and a note that stands in for its rows when all are hidden.

    Rows begin with their name, if there is a column of that kind: a reader that speaks says it before each cell.

    Parameters
    ----------
    columns : sequence of Column
    rows : sequence
    data : callable, optional
        Returns ``data-...`` attributes of a row, by which it is filtered.
    empty : str
        The note.
    label : str, optional
        What the table is called, for readers that do not see the heading above it.
    banded : callable, optional
        Returns what rows of one band have in common; every other band is shaded.
    """
    head = tag("tr", *(_head(column) for column in columns))
    bands = list(dict.fromkeys(banded(row) for row in rows)) if banded else []
    body = [
        tag(
            "tr",
            *(_cell(column, row) for column in columns),
            class_="band" if banded and bands.index(banded(row)) % 2 else None,
            **_attributes(data(row) if data else {}),
        )
        for row in rows
    ]
    kind = "sortable filtered" if data else "sortable"
    table = tag("table", tag("thead", head), tag("tbody", *body), class_=kind)
    note = tag("p", empty, class_="faint", role="status", hidden="" if rows else None)
    role = "region" if label else None
    return join(tag("div", table, class_="scroll", tabindex="0", role=role, aria_label=label), note)


def _head(column: Column) -> Markup:
    kind = column.kind if column.kind in ("name", "text") else "text" if column.kind == "wrap" else None
    return tag("th", tag("button", column.head, type="button"), class_=kind, title=column.hint, scope="col")


def _cell(column: Column, row: Any) -> Markup:
    key = column.sort(row) if column.sort else None
    shown = "" if column.sort and key is None else key
    kind = f"{column.kind} text" if column.kind == "wrap" else column.kind
    if column.kind == "name":
        return tag("th", column.show(row), class_=kind, data_value=shown, scope="row")
    return tag("td", column.show(row), class_=kind or None, data_value=shown)


def _attributes(data: Mapping[str, str]) -> dict[str, str]:
    return {f"data_{name}": value for name, value in data.items()}


def markdown_table(columns: Sequence[Column], rows: Sequence[Any]) -> str:
    """Return a table as Markdown; what would be markup there is escaped."""
    lines = [[column.head for column in columns], ["---" if c.kind else "---:" for c in columns]]
    lines += [[_plain(column.show(row)) for column in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _plain(value: object) -> str:
    text = printable(str(value))
    for mark in "\\`*_{}[]<>!|~":
        text = text.replace(mark, f"\\{mark}")
    for link in ("://", "."):  # what looks like an address is not to become a link
        text = re.sub(rf"(?i)(https?|ftp|www){re.escape(link)}", rf"\1\\{link}", text)
    return text.replace("&", "&amp;").replace("\\<", "&lt;").replace("\\>", "&gt;")
