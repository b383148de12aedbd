"""Align rows of numbers as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fleetgym.files.errors import printable

NOTHING = "-"


def align(head: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Return a table; the first `left` columns are flush left, the others flush right.

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
    lines = [head, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


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
