"""The header of a trace in; which column holds what, and how time is written, out."""

from __future__ import annotations

import csv
import dataclasses
import os
import re

from fleetgym.capacity.traces.source import fail, separator_hint

#: What the columns may be called; capitals, spaces, dots, dashes and underscores do not matter.
COLUMN_NAMES = {
    "time": ("timestamp", "time", "arrival_time", "arrival", "arrived_at"),
    "input": ("context_tokens", "input_tokens", "prompt_tokens", "request_tokens", "num_prefill_tokens"),
    "output": (
        "generated_tokens",
        "output_tokens",
        "completion_tokens",
        "response_tokens",
        "num_decode_tokens",
    ),
    "label": ("workload", "class", "label", "model"),
}


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where the columns are."""

    width: int
    time: int
    input: int
    output: int
    label: int | None
    label_name: str | None


def _plain(name: str) -> str:
    return re.sub(r"[\s._-]", "", name).lower()


_MEANINGS = {_plain(name): kind for kind, names in COLUMN_NAMES.items() for name in names}


def expected_header() -> str:
    """Return what a header should be, for messages."""
    return (
        "expected a header such as TIMESTAMP,ContextTokens,GeneratedTokens or "
        "time,input_tokens,output_tokens[,workload]"
    )


def read_header(path: str | os.PathLike[str], head: str) -> Layout:
    """Return the layout that a header tells."""
    names = _fields(head)
    where: dict[str, int] = {}
    rank: dict[str, int] = {}
    for k, name in enumerate(names):
        kind = _MEANINGS.get(_plain(name))
        if kind is None:
            continue
        order = [_plain(n) for n in COLUMN_NAMES[kind]].index(_plain(name))
        if kind in where and kind != "label":
            fail(path, 1, f"two columns hold the {kind}: {names[where[kind]]!r} and {name!r}")
        if kind not in where or order < rank[kind]:
            where[kind], rank[kind] = k, order
    for kind in ("time", "input", "output"):
        if kind not in where:
            unit = "arrival time" if kind == "time" else f"{kind} tokens"
            known = ", ".join(COLUMN_NAMES[kind])
            found = ", ".join(repr(name) for name in names[:12])
            fail(
                path,
                1,
                f"no column holds the {unit} (it may be called {known}) among {found}"
                f"{separator_hint(names)}; {expected_header()}",
            )
    label = where.get("label")
    return Layout(
        width=len(names),
        time=where["time"],
        input=where["input"],
        output=where["output"],
        label=label,
        label_name=None if label is None else names[label].strip(),
    )


def _fields(line: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r")]), [])
    except csv.Error:
        return []


def is_clock(body: str, column: int) -> bool:
    """Return whether the first row's time is a date rather than a number; what is neither counts as a date."""
    first = _fields(body.partition("\n")[0])
    try:
        float(first[column] if column < len(first) else "")
    except ValueError:
        return True
    return False
