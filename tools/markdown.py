"""Write Markdown tables, and replace what a tool wrote in a Markdown file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fleetgym.files.errors import printable

BEGIN, END = "<!-- written by a tool: begin -->", "<!-- written by a tool: end -->"


def table(head: Sequence[str], rows: Sequence[Sequence[object]], text_columns: int = 1) -> str:
    """Return a table whose first columns are text and whose others are numbers, set to the right.

    Examples
    --------
    >>> print(table(["agent", "score"], [["`gh`", 1.5]]), end="")
    | agent | score |
    | --- | ---: |
    | `gh` | 1.5 |
    """
    marks = ["---" if k < text_columns else "---:" for k in range(len(head))]
    lines = [head, marks, *rows]
    return "".join("| " + " | ".join(map(_cell, line)) + " |\n" for line in lines)


def _cell(value: object) -> str:
    """Return a cell that cannot end itself, or its line; a bar that is escaped already stays so."""
    return re.sub(r"(?<!\\)\|", r"\|", printable(str(value), keep="\xa0"))


def between_marks(page: str, written: str) -> str:
    """Return a page with what is between its two marks replaced; what stands around them was written by hand.

    Raises
    ------
    ValueError
        If the page lacks a mark.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no part between {BEGIN!r} and {END!r}")
    return f"{before}{BEGIN}\n{written.strip()}\n{END}{after}"


def rewrite(path: Path, written: str) -> str:
    """Return the page of a file with a new part between its marks."""
    return between_marks(path.read_text(encoding="utf-8"), written)
