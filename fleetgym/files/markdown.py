"""Write Markdown tables, and replace sections of Markdown files."""

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


def sections(page: str) -> dict[str, str]:
    r"""Return a page's parts by heading, of level two or three; the part before the first has the name ``""``.

    Examples
    --------
    >>> sections("# Page\n\n## One\n\ntext\n")
    {'': '# Page\n\n', '## One': '## One\n\ntext\n'}
    """
    parts = re.split(r"(?m)^(?=###? )", page)
    return {"" if k == 0 else part.partition("\n")[0]: part for k, part in enumerate(parts)}


def with_kept_sections(written: str, kept: str) -> tuple[str, list[str]]:
    r"""Return a page with the sections, in their places, that only an older page has; and their headings.

    Examples
    --------
    >>> with_kept_sections("# New\n\n## Two\n", "# Old\n\n## One\n\n## Two\n")
    ('# New\n\n## One\n\n## Two\n', ['## One'])
    """
    new, old = sections(written), sections(kept)
    order, added = list(new), [name for name in old if name not in new]
    names = list(old)
    for name in added:
        before = next((n for n in reversed(names[: names.index(name)]) if n in order), None)
        order.insert(order.index(before) + 1 if before is not None else len(order), name)
    parts = [(new.get(name) or old[name]).rstrip("\n") + "\n" for name in order]
    return "\n".join(parts), added


def rows(section: str) -> list[list[str]]:
    """Return the cells of all tables in a text, without their heads.

    Examples
    --------
    >>> rows(table(["agent", "score"], [["gh", 1.5]]))
    [['gh', '1.5']]
    """
    found: list[list[str]] = []
    lines = section.splitlines()
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if line.startswith("| ") and not line.startswith("| ---") and not following.startswith("| ---"):
            found.append([cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]])
    return found


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
