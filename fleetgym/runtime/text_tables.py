"""Align rows of numbers as text."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence

from fleetgym.files.errors import printable

NOTHING = "-"
_NARROWEST = 20  # column of text


def align(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a table; the first `left` columns are flush left, the others flush right.

    A table that is wider than the terminal goes on below itself: each part repeats the first column. If all columns are
    flush left, the last one is text, whose lines are broken.

    Examples
    --------
    >>> print(align(["who", "usd"], [["a", "10.5"], ["bcd", "2.0"]]))
    who   usd
    ---  ----
    a    10.5
    bcd   2.0
    """
    head, *rows = [[printable(cell) for cell in line] for line in [head, *rows]]
    widths = [max(len(row[k]) for row in [head, *rows]) for k in range(len(head))]
    limit, rest = terminal_width(), sum(widths[:-1]) + 2 * (len(head) - 1)
    if left >= len(head) and rest + widths[-1] > limit:
        widths[-1] = max(_NARROWEST, limit - rest)
        rows = [line for row in rows for line in _broken(row, widths[-1])]
    flush = [str.ljust if k < left else str.rjust for k in range(len(head))]
    table = [head, ["-" * width for width in widths], *rows]
    return "\n\n".join(
        "\n".join("  ".join(flush[k](line[k], widths[k]) for k in part).rstrip() for line in table)
        for part in _parts(widths, limit)
    )


def terminal_width() -> int:
    """Return how many characters a line of the terminal holds; a file or a pipe has no limit."""
    is_terminal = sys.__stdout__ is not None and sys.__stdout__.isatty()
    return shutil.get_terminal_size().columns if is_terminal else sys.maxsize


def _parts(widths: Sequence[int], limit: int) -> list[list[int]]:
    """Return the columns of each part of a table that is no wider than the limit, if that is possible."""
    parts = [[0]]
    for k in range(1, len(widths)):
        part = parts[-1]
        if len(part) > 1 and sum(widths[j] + 2 for j in part) + widths[k] > limit:
            parts.append([0])
        parts[-1].append(k)
    return parts


def _broken(row: Sequence[str], width: int) -> list[list[str]]:
    """Return a row whose last cell goes on below itself."""
    *others, text = row
    lines = textwrap.wrap(text, width) or [""]
    return [[*others, lines[0]], *([*[""] * len(others), line] for line in lines[1:])]


def align_columns(columns: Sequence[tuple[str, Iterable[str]]], left: int = 1, prose: bool = False) -> str:
    """Return a table of columns, each a head and its cells; the last one is prose if that is asked for, flush left.

    Examples
    --------
    >>> print(align_columns([("who", ["a", "bcd"]), ("usd", ["10.5", "2.0"]), ("why", ["bread", ""])], prose=True))
    who   usd  why
    ---  ----  ---
    a    10.5  bread
    bcd   2.0
    """
    *others, (head, cells) = columns if prose else [*columns, ("", ())]
    table = align([name for name, _ in others], list(zip(*(c for _, c in others), strict=True)), left)
    if not prose:
        return table
    last = [head, "-" * len(head), *cells]
    return "\n".join(f"{a}  {b}".rstrip() for a, b in zip(table.split("\n"), last, strict=True))


def number(value: float | None, digits: int = 1) -> str:
    """Return a number with thousands separated, or a dash for None; what rounds to zero has no sign.

    Examples
    --------
    >>> number(1234.56), number(-0.01), number(None)
    ('1,234.6', '0.0', '-')
    """
    return NOTHING if value is None else f"{value:z,.{digits}f}"


def share(value: float | None) -> str:
    """Return a share in percent.

    Examples
    --------
    >>> share(0.0123)
    '1.23'
    """
    return NOTHING if value is None else f"{100.0 * value:.2f}"
