"""Read small CSV files with known columns strictly, each row with its line."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from typing import Any

from fleetgym.capacity.traces.source import StrPath, fail, separator_hint
from fleetgym.files.documents import read_text
from fleetgym.files.errors import DataError, FleetgymError, suggestion
from fleetgym.files.schema import Integer, Number, from_text

SMALL_FILE_BYTES = 2**20


def csv_rows(
    path: StrPath,
    known: Sequence[str],
    required: Sequence[str],
    check: Callable[[str], object] | None = None,
) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a small CSV file with a header, each with its line.

    `check` raises `FleetgymError` for a column that is not among the known ones; without it none is accepted.
    """
    text = read_text(path, SMALL_FILE_BYTES).removeprefix("\ufeff")
    reader = csv.reader(text.splitlines(), strict=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        rows.extend((reader.line_num, [field.strip(" \t") for field in row]) for row in reader if row)
    except csv.Error as error:
        fail(path, reader.line_num, f"not a row of CSV ({error})")
    if not rows:
        fail(path, 1, f"the file is empty; expected the header {','.join(known)}")
    (_, head), body = rows[0], rows[1:]
    for name in head:
        if name not in known and check is not None and not separator_hint(head):
            try:
                check(name)
            except FleetgymError as error:
                fail(path, 1, str(error))
        elif name not in known:
            fail(path, 1, f"unknown column {name!r}{separator_hint(head) or suggestion(name, known)}")
        if head.count(name) > 1:
            fail(path, 1, f"the column {name!r} stands there twice")
    for name in required:
        if name not in head:
            fail(path, 1, f"no column {name!r}; expected the header {','.join(known)}")
    if not body:
        fail(path, 2, "there is no row after the header")
    for line, row in body:
        if len(row) != len(head):
            fail(path, line, f"expected {len(head)} fields as in the header, got {len(row)}")
    return [(line, dict(zip(head, row, strict=True))) for line, row in body]


def amount(name: str, value: Any, kind: Integer | Number) -> Any:
    """Return a number of a kind, written as text or not; raise `FleetgymError` with the name of what it should be."""
    try:
        if isinstance(kind, Integer):
            return kind.or_null(False).read(whole(value), name)
        return (kind.parse if isinstance(value, str) else kind.read)(value, name)
    except DataError as error:
        raise FleetgymError(f"{name}: {error.message}") from None


def whole(value: Any) -> Any:
    """Return a whole number that a table writes as 16.0, because another cell of its column is empty, as 16.

    Examples
    --------
    >>> whole("16.0"), whole(16.0), whole("16.5"), whole("many")
    (16, 16, 16.5, 'many')
    """
    found = from_text(value) if isinstance(value, str) else value
    return int(found) if isinstance(found, float) and found.is_integer() else found
