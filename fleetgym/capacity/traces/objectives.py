"""Read service level objectives, given as words, as a file or as objects: one `Slo` per workload.

A name may end in the percentile that is meant, as in ``ttft.p95``. Times have units; a number without one is seconds.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetgym.capacity.traces.small_csv import SMALL_FILE_BYTES, amount, csv_rows
from fleetgym.capacity.traces.source import fail
from fleetgym.families.demand import WINDOW_S
from fleetgym.files.documents import parse_json, read_text
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError, suggestion
from fleetgym.files.quantities import PERCENTILE
from fleetgym.files.schema import Number
from fleetgym.model.facts import WITH_PERCENTILES, Slo

#: What may be given; `Slo` has the percentile of a name in a field of its own.
_KINDS: dict[str, Number] = {
    field.name: field.metadata["kind"]
    for field in dataclasses.fields(Slo)
    if not field.name.endswith("_percentile")
}

#: Seconds above which a number without a unit is more likely to be meant in milliseconds.
_USUAL_S = {"ttft": 60.0, "tpot": 1.0, "e2e": 600.0, "delay": 600.0}
_DEFERRED_S = 3600.0  # a whole request that may take longer may wait, too
_UNITS_S = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "sec": 1.0,
    "second": 1.0,
    "minute": 60.0,
    "hr": 3600.0,
    "hour": 3600.0,
    "day": 86400.0,
}

#: Objectives that people have and the model cannot express, and what comes nearest.
_NOT_EXPRESSED = {
    **dict.fromkeys(
        ("itl", "tbt", "inter_token_latency", "time_between_tokens"),
        "the model has no single gaps between tokens, only their mean over a request: give tpot",
    ),
    **dict.fromkeys(
        ("throughput", "tps", "tokens_per_s", "tokens_per_second", "output_speed"),
        "the model bounds times, not rates: give tpot, the seconds per token of a request",
    ),
    **dict.fromkeys(
        ("goodput", "rps", "qps", "availability", "success_rate", "uptime"),
        "demand is what the trace has, and what is not served in time costs unserved_usd or late_usd: give these",
    ),
    **dict.fromkeys(
        ("deadline", "completion_window", "complete_by", "finish_by", "turnaround", "batch_window"),
        "a deadline is of deferred work, and a plan serves or drops a request within minutes: import that work apart, "
        "spread over the hours in which it may run (its mean rate)",
    ),
    "queue": "waiting is a part of ttft and of e2e: give one of them",
}
_MEAN_FIRST_TOKEN = "the model has the share of late first tokens, not their mean: give ttft, or ttft.p50"
_MEAN_ONLY = "it bounds a mean, and the model has no percentile of it"


def parse_slo(text: str) -> Slo:
    """Read SLOs such as ``ttft.p95=500ms,tpot=50ms,e2e=20s,error=5%``.

    Examples
    --------
    >>> parse_slo("ttft=1.5,error=0.03").ttft
    1.5
    >>> parse_slo("ttft.p95=500ms").ttft_percentile
    95.0
    """
    return _slo(_values(text))


def _values(text: str) -> dict[str, str]:
    """Return names and numbers of SLOs given as words."""
    values: dict[str, str] = {}
    for part in text.split(","):
        name, equals, number = part.partition("=")
        if not equals:
            raise FleetgymError(f"cannot read the SLO {part!r}; expected name=number, as in ttft=2,delay=20")
        name = name.strip(" ")
        if name in values:
            raise FleetgymError(f"the SLO {name} is given twice")
        values[name] = number.strip(" ")
    return values


def _slo(values: Mapping[str, Any]) -> Slo:
    return _checked(Slo, _fields(values))


def _checked(make: Callable[..., Slo], fields: Mapping[str, Any]) -> Slo:
    try:
        return make(**fields)
    except DataError as error:
        raise FleetgymError(f"the SLO {error.path.removeprefix('Slo.')}: {error.message}") from None


def _fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is given, by the names of the fields of `Slo`."""
    found: dict[str, Any] = {}
    given: dict[str, str] = {}
    for written, value in values.items():
        name, percentile = _name(written)
        if name in given:
            raise FleetgymError(
                f"the SLO {name} is given twice, as {given[name]} and {written}: the model has one bound on it"
            )
        given[name] = written
        found[name] = _amount(name, written, value)
        if percentile is not None:
            found[f"{name}_percentile"] = percentile
    return found


def _name(written: str) -> tuple[str, float | None]:
    """Return an SLO's name, and the percentile that is meant.

    Examples
    --------
    >>> _name("ttft.p99.9"), _name("tpot.mean"), _name("error")
    (('ttft', 99.9), ('tpot', None), ('error', None))
    """
    found = re.fullmatch(
        r"(\w+?)(?:[._](?:p(\d+(?:\.\d+)?)|(mean|avg|median)))?", written, re.ASCII | re.IGNORECASE
    )
    name, digits, word = (found[1].lower(), found[2], found[3]) if found else (written, None, None)
    if name in _NOT_EXPRESSED:
        raise FleetgymError(f"the SLO {written} cannot be expressed: {_NOT_EXPRESSED[name]}")
    if name not in _KINDS:
        raise FleetgymError(f"unknown SLO {written!r}{suggestion(name, _KINDS)}")
    if word and word.lower() == "median":
        digits = "50"
    elif word and name == "ttft":
        raise FleetgymError(f"the SLO {written} cannot be expressed: {_MEAN_FIRST_TOKEN}")
    if digits is None:
        return name, None
    if name not in WITH_PERCENTILES:
        raise FleetgymError(
            f"the SLO {written} cannot be expressed: {_MEAN_ONLY}"
            + ("; give e2e with a percentile" if name == "delay" else "")
        )
    return name, amount(f"the percentile of {written}", digits, PERCENTILE)


def _amount(name: str, written: str, value: Any) -> Any:
    """Return a number in the unit of the model; raise where it is likely to be in another."""
    text = value.strip(" \t") if isinstance(value, str) else value
    if isinstance(text, str) and _KINDS[name].unit == "s":
        for unit, seconds in _UNITS_S.items():
            plural = "s?" if len(unit) > 2 else ""
            if found := re.fullmatch(rf"([0-9.eE+-]+) *{unit}{plural}", text, re.ASCII):
                return amount(written, seconds * amount(written, found[1], Number(0.0, 1e13)), _KINDS[name])
    if isinstance(text, str) and name == "error" and text.endswith("%"):
        return amount(
            written, amount(written, text[:-1].rstrip(" "), Number(0.0, 100.0)) / 100.0, _KINDS[name]
        )
    number = amount(written, text, _KINDS[name].or_null(False))
    if number > _USUAL_S.get(name, number):
        raise FleetgymError(
            f"{written}={number:g} is {number:g} seconds, more than the usual {_USUAL_S[name]:g}; write "
            f"{written}={number:g}s if seconds are meant, or {written}={number:g}ms"
        )
    return number


def without_words(slo: str | Slo | Mapping[str, Slo] | None) -> str | Slo | Mapping[str, Slo] | None:
    """Return SLOs given as words as an object, and anything else, such as the name of a file, as it is."""
    return parse_slo(slo) if isinstance(slo, str) and "=" in slo and not Path(slo).is_file() else slo


def slos_for(slo: str | Slo | Mapping[str, Slo] | None, names: Sequence[str]) -> tuple[Slo, ...]:
    """Return one SLO per workload.

    Parameters
    ----------
    slo : str, Slo or mapping, optional
        ``"ttft=2,delay=20"`` for all; the name of a file (CSV with a column ``workload`` and columns named
        as in words, or JSON of the same by workload), where ``*`` stands for all that are not named;
        an `Slo`, or one by workload.
    names : sequence of str
        Ids of the workloads.

    Returns
    -------
    tuple of Slo

    Raises
    ------
    DataError
        With file and place of what is wrong.
    FleetgymError
        For words that are no SLO, or workloads that are not there.
    """
    slo = without_words(slo)
    if slo is None or isinstance(slo, Slo):
        return (slo or Slo(),) * len(names)
    if isinstance(slo, str):
        slo = _read_slos(slo, names)
    for name in slo:
        if name != "*" and name not in names:
            raise UnknownNameError("workload", name, names)
    return tuple(slo.get(name, slo.get("*", Slo())) for name in names)


def states_error(slo: str | Slo | Mapping[str, Slo] | None, names: Sequence[str]) -> tuple[bool, ...]:
    """Return, for each workload, whether words or a file state its error; an object always does."""
    if not isinstance(slo, str):
        return (slo is not None,) * len(names)
    if without_words(slo) is not slo:
        return ("error" in slo,) * len(names)
    stated = {name: "error" in values for _, name, values in _rows(slo)}
    return tuple(stated.get(name, stated.get("*", False)) for name in names)


def restated(slos: Sequence[Slo], slo: str, names: Sequence[str]) -> tuple[Slo, ...]:
    """Return SLOs of which some objectives are given anew; the others stay.

    Parameters
    ----------
    slos : sequence of Slo
        What was promised, by workload.
    slo : str
        Words or the name of a file, as `slos_for` takes them.
    names : sequence of str
        Ids of the workloads.

    Raises
    ------
    FleetgymError
        As `slos_for`.

    Examples
    --------
    >>> restated([Slo(ttft=1.0, ttft_percentile=95.0, error=0.03)], "ttft=2", ["chat"])[0].words
    'ttft=2s,error=0.03'
    """
    slos_for(slo, names)  # names and numbers are checked
    is_file = "=" not in slo or Path(slo).is_file()
    given = {name: values for _, name, values in _rows(slo)} if is_file else {"*": _values(slo)}
    found = []
    for old, name in zip(slos, names, strict=True):
        fields = _fields(given.get(name, given.get("*", {})))
        plain = {f"{f}_percentile": None for f in WITH_PERCENTILES if f in fields}
        found.append(_checked(functools.partial(dataclasses.replace, old), {**plain, **fields}))
    return tuple(found)


def _read_slos(path: str, names: Sequence[str]) -> dict[str, Slo]:
    found: dict[str, Slo] = {}
    for place, name, values in _rows(path):
        try:
            if name != "*" and name not in names:
                raise UnknownNameError("workload", name, ["*", *names])
            if name in found:
                raise FleetgymError(f"the workload {name!r} is listed twice")
            found[name] = _slo(values)
        except FleetgymError as error:
            fail(path, place, str(error))
    return found


def _rows(path: str) -> Iterator[tuple[int | str, str, Mapping[str, Any]]]:
    """Yield place, workload and objectives of each row of a CSV, or entry of a JSON file."""
    if path.endswith((".json", ".json.gz")):
        try:
            data = parse_json(read_text(path, SMALL_FILE_BYTES))
        except DataError as error:
            raise error.in_file(path) from None
        if not isinstance(data, dict) or not all(isinstance(value, dict) for value in data.values()):
            fail(path, "$", 'expected {"workload": {"ttft": 2, "delay": 20}, ...}')
        yield from ((f"$.{name}", name, values) for name, values in data.items())
        return
    for line, row in csv_rows(path, ("workload", *_KINDS), required=("workload",), check=_name):
        yield line, row.pop("workload"), {key: value for key, value in row.items() if value}


def check_deferred(slos: Sequence[Slo], names: Sequence[str]) -> None:
    """Refuse a deadline after the window of its request: a plan serves or drops within a window."""
    for name, slo in zip(names, slos, strict=True):
        most_s = {"ttft": WINDOW_S, "tpot": WINDOW_S, "e2e": _DEFERRED_S, "delay": _DEFERRED_S}
        for what, most in most_s.items():
            if (getattr(slo, what) or 0.0) > most:
                raise FleetgymError(
                    f"{what}={getattr(slo, what):g}s of workload {name!r} is deferred work: a plan serves or drops a "
                    f"request within its window of {WINDOW_S:g} s, and does not defer. Import it apart, spread over "
                    f"the hours in which it may run (its mean rate), with a ttft of at most {WINDOW_S:g}s; or leave it "
                    "out"
                )


def slo_words(slos: Sequence[Slo], names: Sequence[str]) -> str:
    """Return the objectives of all workloads as text.

    Examples
    --------
    >>> slo_words([Slo(ttft=1), Slo(ttft=1)], ["chat", "code"])
    'as given, or by default: ttft=1s,error=0.05 of every workload'
    """
    words = [slo.words for slo in slos]
    if len(set(words)) == 1:
        parts = [f"{words[0]} of every workload"]
    else:
        parts = [f"{word} of {name}" for word, name in zip(words, names, strict=True)]
    return "as given, or by default: " + "; ".join(parts)
