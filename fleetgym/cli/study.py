"""Answer a planning question, a study: print its table or JSON, and draw its picture.

Studies are functions of keyword arguments, found by the entry points of the group ``fleetgym.studies``; ours lie
in `fleetgym.capacity.studies`, and a package of a user's can add its own.
"""

from __future__ import annotations

import argparse
import inspect
import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from fleetgym.agents.arguments import MOST, at_least, is_number
from fleetgym.agents.registry import load_target, split_arguments, summary
from fleetgym.cli.output import tell
from fleetgym.cli.pictures import check_picture, save_picture
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.runtime.entry_points import named_entries
from fleetgym.runtime.text_tables import NOTHING, align

GROUP = "fleetgym.studies"


class Answer(Protocol):
    """What a study returns."""

    title: str
    rows: Sequence[Mapping[str, Any]]  # plain values: numbers, words, lists of them, None
    draw: Callable[[], Any]  # a matplotlib Figure


def run(arguments: argparse.Namespace) -> int:
    """List the studies, or answer one."""
    if arguments.study is None:
        print(_list(arguments.json))
        return 0
    name, settings = split_arguments(arguments.study.strip())
    check_picture(arguments.plot)
    if arguments.instance is not None:
        settings = _of_instance(name, arguments.instance, settings)
    answer = ask(name, settings)
    if arguments.plot is not None:
        save_picture(answer.draw(), arguments.plot)
    rows = [{key: _plain(value) for key, value in row.items()} for row in answer.rows]
    note = getattr(answer, "note", "")
    tell(
        arguments,
        {"study": name, "title": answer.title, "rows": rows, **({"note": note} if note else {})},
        f"{answer.title}\n\n{table(rows)}" + (f"\n\n{textwrap.fill(note, 80)}" if note else ""),
    )
    return 0


def ask(name: str, settings: Mapping[str, Any]) -> Answer:
    """Return the answer of a study.

    Raises
    ------
    UnknownNameError
        For an unknown study or setting.
    FleetgymError
        Where the settings make no sense.
    """
    study = _study(name)
    known = inspect.signature(study).parameters
    for setting in settings:
        if setting not in known:
            raise UnknownNameError(f"setting of the study {name}", setting, known)
    for setting, value in settings.items():
        _check_numbers(setting, value)
    try:
        answer: Answer = study(**settings)
    except (TypeError, ValueError, IndexError) as error:
        if isinstance(error, FleetgymError):
            raise
        raise FleetgymError(f"cannot study {name} with these settings: {error}") from error
    return answer


def _check_numbers(setting: str, value: Any) -> None:
    """Refuse numbers that no study is about, in lists as well."""
    if isinstance(value, (list, tuple)):
        for part in value:
            _check_numbers(setting, part)
    elif is_number(value):
        at_least(-MOST, **{setting: value})


def _of_instance(name: str, path: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that an instance tells, and those that were given, which go before them."""
    from fleetgym.capacity.traces.studied import study_settings

    settings = inspect.signature(_study(name)).parameters
    if "workload" not in settings:
        raise FleetgymError(
            f"the study {name} is about no traffic, so --instance has no effect; leave it out"
        )
    if "pools" in settings and "pools" not in given:
        raise FleetgymError(
            f"an instance does not tell the pools of the study {name}: give them, as in "
            f"\"{name}(pools=[('H100@{path}', 2, 4096), ('H100@{path}', 4, 65536)])\""
        )
    return {key: value for key, value in study_settings(path).items() if key in settings} | dict(given)


def _study(name: str) -> Callable[..., Answer]:
    known = named_entries(GROUP, "study")
    if name not in known:
        raise UnknownNameError("study", name, known)
    return load_target(known[name].target)


def _list(as_json: bool) -> str:
    """Return the studies, what each answers, and its settings with their defaults."""
    entries = named_entries(GROUP, "study")
    studies = {name: _study(name) for name in entries}
    answers = {name: summary(entry.target) for name, entry in entries.items()}
    if as_json:
        facts = {name: {"answers": answers[name], "settings": _defaults(s)} for name, s in studies.items()}
        return json.dumps(facts, indent=2, default=str)
    parts = []
    for name, study in studies.items():
        settings = ", ".join(f"{key}={value!r}" for key, value in _defaults(study).items())
        parts.append(f"{name}\n  {answers[name]}\n  settings: {settings}")
    return "\n".join(parts)


def _defaults(study: Callable[..., Answer]) -> dict[str, Any]:
    return {name: setting.default for name, setting in inspect.signature(study).parameters.items()}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as text, a column per key.

    Examples
    --------
    >>> print(table([{"gpu": "A10G", "replicas": [1, 4], "usd_per_h": 5.05}, {"gpu": "H100", "replicas": None}]))
    gpu   replicas  usd_per_h
    ----  --------  ---------
    A10G     1 + 4       5.05
    H100         -          -
    """
    keys = list(dict.fromkeys(key for row in rows for key in row))
    return align(keys, [[_cell(row.get(key)) for key in keys] for row in rows])


def _plain(value: Any) -> Any:
    """Return a value that JSON has: None for what is not finite."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value


def _cell(value: Any) -> str:
    if value is None:
        return NOTHING
    if isinstance(value, (list, tuple)):
        return " + ".join(map(_cell, value)) or NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
