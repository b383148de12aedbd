"""Render pages and tables from the templates of this package: Jinja escapes every text that is put into them."""

from __future__ import annotations

import base64
import dataclasses
import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
from markupsafe import Markup, escape

from fleetgym.files.errors import printable

DASH = "–"


@dataclasses.dataclass(frozen=True)
class Column:
    """One column: its head, what it shows of a row, and what it is sorted by.

    Attributes
    ----------
    head : str
    show : callable
        Returns text or a number; for the kinds ``agent``, ``about``, ``links`` and ``shift`` a tuple of parts.
    sort : callable, optional
        Returns the key of a row, None if it is unknown. Without it, the text is the key.
    kind : str
        How the template ``table.html`` shows a cell: ``name``, ``text``, ``wrap``, ``code`` and others.
    hint : str, optional
        Shown when the pointer rests on the head.
    bar : callable, optional
        Returns a picture beside the text.
    """

    head: str
    show: Callable[[Any], Any]
    sort: Callable[[Any], float | str | None] | None = None
    kind: str = ""
    hint: str | None = None
    bar: Callable[[Any], Markup | None] | None = None

    def key(self, row: Any) -> float | str | None:
        """Return what a row is sorted by, empty if that is unknown; None if its text is the key."""
        if self.sort is None:
            return None
        found = self.sort(row)
        return "" if found is None else found


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


def anchor(heading: str) -> str:
    """Return the name by which a heading is linked to.

    Examples
    --------
    >>> anchor("fleet-v1/dev: certified costs")
    'fleet-v1-dev-certified-costs'
    """
    return re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")


def escaped(value: object) -> Markup:
    """Return a value as markup; text is escaped, and so are characters that would hide or reorder text.

    Examples
    --------
    >>> print(escaped("<b> & 'c'"))
    &lt;b&gt; &amp; &#39;c&#39;
    """
    if isinstance(value, Markup):
        return value
    return escape("" if value is None else printable(str(value), keep="\n\t\xa0"))


@functools.cache
def environment() -> jinja2.Environment:
    """Return the templates; whatever is not markup is escaped."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("fleetgym.leaderboard"),
        autoescape=True,
        finalize=escaped,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    found.filters |= {"anchor": anchor, "number": number}
    return found


def render(template: str, **values: object) -> Markup:
    """Return what a template makes of values."""
    return Markup(environment().get_template(template).render(values))


def render_page(template: str, **values: object) -> str:
    """Return a whole document that needs nothing from outside and may run nothing but its own script.

    The content security policy names style and script by their hashes: no other script, style, frame, form or request
    can come to life, whatever the page's text says.
    """
    style, script = (environment().get_template(f"page.{kind}").render() for kind in ("css", "js"))
    hashes = {"script_hash": _hash(script), "style_hash": _hash(style)}
    return render(template, style=Markup(style), script=Markup(script), **hashes, **values)


def _hash(text: str) -> Markup:
    return Markup(f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'")


def html_table(
    columns: Sequence[Column],
    rows: Sequence[Any],
    data: Callable[[Any], Mapping[str, str]] | None = None,
    empty: str = "nothing here yet",
    *,
    label: str | None = None,
    banded: Callable[[Any], object] | None = None,
) -> Markup:
    """Return a table in a box that scrolls sideways, and a note that replaces its rows when all are hidden.

    Parameters
    ----------
    columns : sequence of Column
    rows : sequence
    data : callable, optional
        Returns ``data-...`` attributes of a row, by which it is filtered.
    empty : str
        The note.
    label : str, optional
        Name of the table for screen readers.
    banded : callable, optional
        Returns what rows of one band have in common; every other band is shaded.
    """
    bands = list(dict.fromkeys(banded(row) for row in rows)) if banded else []
    lines = [
        (
            {
                "class": "band" if banded and bands.index(banded(row)) % 2 else None,
                **{f"data-{name}": printable(text) for name, text in (data(row) if data else {}).items()},
            },
            [(column, column.show(row), column.key(row)) for column in columns],
            row,
        )
        for row in rows
    ]
    return render(
        "table.html", columns=columns, lines=lines, filtered=data is not None, empty=empty, label=label
    )


def markdown_table(columns: Sequence[Column], rows: Sequence[Any]) -> str:
    """Return a table as Markdown; what would be markup there is escaped."""
    lines = [
        [column.head for column in columns],
        ["---:" if c.kind in ("", "shift") else "---" for c in columns],
    ]
    lines += [[_plain(column.show(row)) for column in columns] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _plain(value: object) -> str:
    text = " ".join(part for part in value if part) if isinstance(value, tuple) else str(value)
    text = printable(text)
    for mark in "\\`*_{}[]<>!|~":
        text = text.replace(mark, f"\\{mark}")
    for link in ("://", "."):  # what looks like an address is not to become a link
        text = re.sub(rf"(?i)(https?|ftp|www){re.escape(link)}", rf"\1\\{link}", text)
    return text.replace("&", "&amp;").replace("\\<", "&lt;").replace("\\>", "&gt;")
