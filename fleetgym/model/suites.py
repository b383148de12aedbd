"""Find the tasks that a user means by a suite, an instance or a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from fleetgym.model.library import (
    Task,
    entries,
    is_path,
    list_instances,
    list_tasks,
    load_scenarios,
    refuse_other_file,
    suites,
)
from fleetgym.model.sets import unknown

DEFAULT_SUITE = "fleet-v0/dev"


def full_suite(suite: str | Sequence[str]) -> str | list[str]:
    """Return suites by their full names: a split alone means that of the default suite's set.

    Examples
    --------
    >>> full_suite("toy"), full_suite(["fleet-v0/dev"])
    ('fleet-v0/toy', ['fleet-v0/dev'])
    """
    if isinstance(suite, Iterable) and not isinstance(suite, (str, os.PathLike)):
        return [str(full_suite(part)) for part in suite]
    if is_path(suite):
        return str(suite)
    name = str(suite).strip("/")
    full = f"{DEFAULT_SUITE.partition('/')[0]}/{name}"
    return full if full in suites() else name


def tasks_of(part: str) -> list[Task]:
    """Return the tasks that a suite (see `full_suite`), the id of an instance, or a path stands for.

    Examples
    --------
    >>> tasks_of("fleet-v0/toy/two-pools")
    [('fleet-v0/toy/two-pools', 0)]
    """
    if is_path(part):
        return [(str(part), number) for number in range(len(load_scenarios(part)))]
    if part in entries():
        return [(part, number) for number in range(entries()[part].scenarios)]
    refuse_other_file(part)
    if part.strip("/").count("/") > 1:
        raise unknown("instance", part, list_instances())
    return list_tasks(str(full_suite(part)))


def instances_of(part: str) -> list[str]:
    """Return the instances of `tasks_of`, each once.

    Examples
    --------
    >>> instances_of("fleet-v0/toy/two-pools")
    ['fleet-v0/toy/two-pools']
    """
    if is_path(part):
        return [str(part)]
    return list(dict.fromkeys(instance for instance, _ in tasks_of(part)))
