"""The names of a trace's columns in; which column holds what, and in which unit times are, out."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping, Sequence

from fleetgym.capacity.traces.source import fail, separator_hint
from fleetgym.files.errors import FleetgymError, UnknownNameError

#: What the columns may be called; capitals, spaces, dots, dashes and underscores do not matter. Dots are the
#: steps into nested JSON. A name of a time may end in its unit, as in ``arrival_ms``.
COLUMN_NAMES = {
    "time": (
        "timestamp",
        "time",
        "arrival_time",
        "arrival",
        "arrived_at",
        "start_time",
        "request_time",
        "created_at",
        "created",
        "datetime",
        "ts",
    ),
    "input": (
        "context_tokens",
        "input_tokens",
        "prompt_tokens",
        "request_tokens",
        "num_prefill_tokens",
        "input_length",
        "input_len",
        "prompt_len",
        "num_prompt_tokens",
        "usage.prompt_tokens",
        "usage.input_tokens",
        "gen_ai.usage.input_tokens",
        "attributes.gen_ai.usage.input_tokens",
    ),
    "output": (
        "generated_tokens",
        "output_tokens",
        "completion_tokens",
        "response_tokens",
        "num_decode_tokens",
        "output_length",
        "output_len",
        "num_output_tokens",
        "usage.completion_tokens",
        "usage.output_tokens",
        "gen_ai.usage.output_tokens",
        "attributes.gen_ai.usage.output_tokens",
    ),
    "label": ("workload", "class", "label"),
    "model": ("model", "model_name", "gen_ai.request.model", "attributes.gen_ai.request.model"),
    "count": ("num_requests", "num_model_requests", "request_count", "n_requests", "requests"),
    "status": ("status", "status_code", "state"),
    "error": ("error", "error_message"),
    "cached": (
        "cached_tokens",
        "cached_input_tokens",
        "cache_read_input_tokens",
        "usage.cache_read_input_tokens",
        "input_cached_tokens",
        "prompt_tokens_details.cached_tokens",
        "usage.prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
        "usage.input_tokens_details.cached_tokens",
        "prompt_cache_hit_tokens",
        "usage.prompt_cache_hit_tokens",
        "num_cached_tokens",
        "gen_ai.usage.cache_read.input_tokens",
        "attributes.gen_ai.usage.cache_read.input_tokens",
    ),
    "created": ("cache_creation_input_tokens", "usage.cache_creation_input_tokens"),
    "hashes": ("hash_ids",),
}
_NEEDED = ("time", "input", "output")
_SEVERAL = ("label", "model", "status", "error", "cached", "created")  # the first of the names is taken

#: Nanoseconds of the units that a time may be in.
UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_UNIT_WORDS = {
    **{unit: unit for unit in UNITS},
    "sec": "s",
    "seconds": "s",
    "millis": "ms",
    "milliseconds": "ms",
    "unixnano": "ns",
    "unixms": "ms",
    "nanos": "ns",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
    """A layout of a known program, told by the names of its columns."""

    name: str
    marks: tuple[str, ...]  # columns that all must be there
    columns: Mapping[str, str] = dataclasses.field(default_factory=dict)  # beside the usual names
    unit: str | None = None  # of times that are numbers
    ordered: bool = True  # by time


#: What is not listed here is read by the names of its columns alone.
FORMATS = (
    Format(name="Azure LLM inference trace", marks=("TIMESTAMP", "ContextTokens", "GeneratedTokens")),
    Format(
        name="BurstGPT",
        marks=("Timestamp", "Request tokens", "Response tokens", "Log Type"),
        columns={"label": "", "model": "Model"},
        unit="s",
    ),
    Format(
        name="Mooncake trace",
        marks=("timestamp", "input_length", "output_length", "hash_ids"),
        unit="ms",
    ),
    Format(
        name="LiteLLM spend logs",
        marks=("startTime", "prompt_tokens", "completion_tokens", "call_type"),
        columns={"time": "startTime", "model": "model", "label": ""},
        ordered=False,
    ),
    Format(
        name="vLLM or SGLang bench result",
        marks=("input_lens", "output_lens", "start_times"),
        columns={
            "time": "start_times",
            "input": "input_lens",
            "output": "output_lens",
            "error": "errors",
            "model": "model_id",
        },
        unit="s",
        ordered=False,
    ),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the columns are."""

    names: tuple[str, ...]
    columns: Mapping[str, int]  # roles, as in `COLUMN_NAMES`, to numbers of columns
    unit: str | None  # of times that are numbers, where names tell it
    ordered: bool
    format: str | None  # of a known program

    @property
    def has_rest(self) -> bool:
        """Whether input tokens leave out what was read from a cache, or written into it, as in Anthropic's usage."""
        cached = [_plain(self.name(role)) for role in ("cached", "created") if role in self.columns]
        return (
            bool(cached)
            and cached[0].removeprefix("usage").startswith("cache")
            and _plain(self.name("input")).removeprefix("usage") == "inputtokens"
        )

    def name(self, role: str) -> str:
        """Return how the file calls the column of a role."""
        return self.names[self.columns[role]].strip()


def _plain(name: str) -> str:
    return re.sub(r"[\s._-]", "", name).lower()


def _unit_of(name: str) -> tuple[str, str | None]:
    """Return a name without the unit at its end, and the unit.

    Examples
    --------
    >>> _unit_of("arrival_ms"), _unit_of("startTimeUnixNano"), _unit_of("timestamps")
    (('arrival', 'ms'), ('startTime', 'ns'), ('timestamps', None))
    """
    for word, unit in _UNIT_WORDS.items():
        found = re.fullmatch(rf"(.+?)[\s._-]+{word}", name.strip(), re.IGNORECASE)
        if word == "unixnano" and found is None:
            found = re.fullmatch(r"(.+?)(?:UnixNano|_unix_nano)", name.strip())
        if found:
            return found[1], unit
    return name, None


_MEANINGS = {_plain(name): role for role, names in COLUMN_NAMES.items() for name in names}


def expected_header() -> str:
    """Return what a header should be, for messages."""
    return (
        "expected a header such as TIMESTAMP,ContextTokens,GeneratedTokens or "
        "time,input_tokens,output_tokens[,workload]; or name the columns with "
        "--columns time=NAME,input=NAME,output=NAME[,label=NAME]"
    )


def parse_columns(text: str) -> dict[str, str]:
    """Read which columns hold what.

    Examples
    --------
    >>> parse_columns("time=startTime,label=team")
    {'time': 'startTime', 'label': 'team'}
    """
    found: dict[str, str] = {}
    for part in text.split(","):
        role, equals, name = (piece.strip() for piece in part.partition("="))
        if not equals or not name:
            raise FleetgymError(
                f"cannot read the column {part!r}; expected what=name, as in time=startTime,input=prompt_tokens"
            )
        if role not in COLUMN_NAMES:
            raise UnknownNameError("meaning of a column", role, COLUMN_NAMES)
        if role in found:
            raise FleetgymError(f"the column of the {role} is given twice")
        found[role] = name
    return found


def read_layout(
    path: str | os.PathLike[str], names: Sequence[str], chosen: Mapping[str, str] | None = None
) -> Layout:
    """Return the layout that the names of the columns tell, and the user's choice.

    Parameters
    ----------
    path : path-like
        The file, for messages.
    names : sequence of str
        As in the file.
    chosen : mapping, optional
        Names of columns by role; they go before everything else.

    Returns
    -------
    Layout

    Raises
    ------
    DataError
        If a column is missing, or two may be meant.
    """
    plain = [_plain(name) for name in names]
    known = next((f for f in FORMATS if all(_plain(mark) in plain for mark in f.marks)), None)
    where = _by_name(path, names, set(chosen or {}) | set(known.columns if known else {}))
    given = {**(known.columns if known else {}), **(chosen or {})}
    for role, name in given.items():
        if name in names:
            where[role] = list(names).index(name)
        elif _plain(name) in plain:
            where[role] = plain.index(_plain(name))
        elif role in (chosen or {}):
            fail(path, 1, f"no column {name!r} among {_listed(names)}")
    for role in _NEEDED:
        if role not in where:
            what = "arrival time" if role == "time" else f"{role} tokens"
            usual = ", ".join(COLUMN_NAMES[role][:5])
            fail(
                path,
                1,
                f"no column holds the {what} (it may be called {usual}) among {_listed(names)}"
                f"{separator_hint(names)}; {expected_header()}",
            )
    unit = known.unit if known and "time" not in (chosen or {}) else _unit_of(names[where["time"]])[1]
    return Layout(
        names=tuple(names),
        columns=where,
        unit=unit,
        ordered=known is None or known.ordered,
        format=known.name if known else None,
    )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(repr(name) for name in names[:12]) + (", ..." if len(names) > 12 else "")


def _by_name(path: str | os.PathLike[str], names: Sequence[str], chosen: set[str]) -> dict[str, int]:
    """Return the columns whose names are usual; for roles that are not chosen otherwise, each must be alone."""
    where: dict[str, int] = {}
    rank: dict[str, int] = {}
    for k, name in enumerate(names):
        role = _MEANINGS.get(_plain(name)) or _time_in_unit(name)
        if role is None or role in chosen:
            continue
        usual = [_plain(n) for n in COLUMN_NAMES[role]]
        order = usual.index(_plain(name)) if _plain(name) in usual else len(usual)
        if role in where and role not in _SEVERAL:
            fail(
                path,
                1,
                f"two columns hold the {role}: {names[where[role]]!r} and {name!r}; say which, as in --columns "
                f"{role}={name.strip()}",
            )
        if role not in where or order < rank[role]:
            where[role], rank[role] = k, order
    return where


def _time_in_unit(name: str) -> str | None:
    """Return the role of a time whose name ends in its unit."""
    base, unit = _unit_of(name)
    return "time" if unit and _MEANINGS.get(_plain(base)) == "time" else None
