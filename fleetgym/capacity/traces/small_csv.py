"""A small CSV file with known columns in, its rows with their lines out; strict about everything."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Sequence
from typing import Any

from fleetgym.capacity.traces.source import fail, separator_hint
from fleetgym.files.documents import read_text
from fleetgym.files.errors import DataError, suggestion

SMALL_FILE_BYTES = 2**20


def csv_rows(
    path: str | os.PathLike[str], known: Sequence[str], required: Sequence[str]
) -> list[tuple[int, dict[str, str]]]:
    """Return the rows of a small CSV file with a header, each with its line."""
    try:
        text = read_text(path, SMALL_FILE_BYTES).removeprefix("\ufeff")
    except DataError as error:
        raise error.in_file(path) from None
    reader = csv.reader(text.splitlines(), strict=True)
    rows: list[tuple[int, list[str]]] = []
    try:
        rows.extend((reader.line_num, [field.strip() for field in row]) for row in reader if row)
    except csv.Error as error:
        fail(path, reader.line_num, f"not a row of CSV ({error})")
    if not rows:
        fail(path, 1, f"the file is empty; expected the header {','.join(known)}")
    (_, head), body = rows[0], rows[1:]
    for name in head:
        if name not in known:
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


def amount(name: str, text: Any, most: float = math.inf, *, or_zero: bool = False) -> float:
    """Return a finite number above 0, or from 0; raise ValueError with the name of what it should have been."""
    try:
        value = math.nan if isinstance(text, bool) else float(text)
    except (TypeError, ValueError):
        value = math.nan
    if not (math.isfinite(value) and (value > 0.0 or (or_zero and value == 0.0)) and value <= most):
        least = "of at least 0" if or_zero else "above 0"
        and_most = "" if most == math.inf else f" and at most {most:g}"
        raise ValueError(f"expected a number {least}{and_most} for {name}, got {text!r}")
    return value
