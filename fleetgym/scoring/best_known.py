"""Load, check and improve best-known costs.

A task is written ``instance#scenario``. The values travel with the instances, in ``<set>/best_known.json``; the
actions that achieve them lie outside the package, so that no agent's process has them.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fleetgym.evaluation.changes import Changes, decode_actions, encode_actions
from fleetgym.files.documents import canonical_hash, read_json, write_atomically, write_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.quantities import COST_USD, POSITIVE_COST_USD
from fleetgym.files.schema import (
    DAY,
    SHA256,
    Choice,
    Flag,
    Integer,
    MapOf,
    Nested,
    Text,
    read_object,
    spec,
    to_jsonable,
)
from fleetgym.model.library import TASK_NAME, find_entry, is_path, load_instance, task_name
from fleetgym.model.sets import folder_of
from fleetgym.runtime.places import checkout

BEST_KNOWN_FORMAT = "fleetgym-best-known-1"
ACTIONS_FORMAT = "fleetgym-actions-1"

#: What a set of best-known values is called: bks-YYYY-MM and perhaps more.
SET_NAME = Text(r"\Abks-\d{4}-\d{2}[a-z0-9.-]{0,60}\Z")

#: Two computations of one cost may differ by this much, relative.
TOLERANCE = 1e-9


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestKnown:
    """The cheapest episode ever verified for one task."""

    instance_hash: str = spec(SHA256, doc="content hash of the instance it was found on")
    value_usd: float = spec(POSITIVE_COST_USD)
    bound_usd: float | None = spec(COST_USD.or_null(), doc="no actions cost less; null: unknown")
    method: str = spec(Text(), doc="what found the actions")
    date: str = spec(DAY)
    proven: bool = spec(Flag(), doc="whether no actions cost less than value_usd")
    sha256: str = spec(
        Text(r"\A([0-9a-f]{64})?\Z"),
        "",
        doc="of the set's name, the task and all the above; older files have none",
    )

    def checksum(self, name: str, task: str) -> str:
        """Return the correct `sha256` in the set of this name."""
        return canonical_hash([name, task, without_sum(self)])


def without_sum(best: BestKnown) -> dict[str, Any]:
    """Return a value as JSON, without its checksum."""
    return {key: value for key, value in to_jsonable(best).items() if key != "sha256"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class BestKnownSet:
    """Best-known values of a suite under one name, which is printed beside every score."""

    format: str = spec(Choice((BEST_KNOWN_FORMAT,)))
    name: str = spec(SET_NAME, doc="bks-YYYY-MM")
    tasks: Mapping[str, BestKnown] = spec(MapOf(Nested(BestKnown)))

    def find(self, instance: str, scenario: int, instance_hash: str) -> BestKnown:
        """Return the value of a task.

        Raises
        ------
        FleetgymError
            If there is none, or the instance has changed since it was found.
        """
        found = self.tasks.get(task_name(instance, scenario))
        if found is None:
            raise FleetgymError(
                f"{self.name} has no best-known cost of {task_name(instance, scenario)}; "
                "`fleetgym best-known search` finds one; or score relative to the best in this run"
            )
        if found.instance_hash != instance_hash:
            raise FleetgymError(
                f"{instance} is not the one that {self.name} was made for; play it again, or update the best-known "
                "costs"
            )
        return found


def is_same_cost(cost_usd: float, reference_usd: float) -> bool:
    """Return whether a cost is what the reference evaluator computes, up to how processors round sums.

    Examples
    --------
    >>> is_same_cost(100.0, 100.0 + 1e-8), is_same_cost(100.0, 100.001)
    (True, False)
    """
    return abs(cost_usd - reference_usd) <= TOLERANCE * max(1.0, reference_usd)


def best_known_path(suite: str) -> Path:
    """Return the path of the best-known values of a suite such as ``fleet-v0`` or ``fleet-v0/dev``."""
    return folder_of(suite) / suite.partition("/")[0] / "best_known.json"


def read_best_known(path: str | os.PathLike[str]) -> BestKnownSet:
    """Read a file of best-known values.

    Raises
    ------
    DataError
        With file and JSON path of what is wrong.
    FileNotFoundError
        If there is no such file.
    """
    try:
        found = read_object(BestKnownSet, read_json(path))
        for name, best in found.tasks.items():
            TASK_NAME.read(name, "$.tasks")
            _check(best, f"$.tasks[{name!r}]")
        if any(best.sha256 for best in found.tasks.values()):
            _check_sums(found)
        return found
    except DataError as error:
        raise error.in_file(path) from None


def _check_sums(found: BestKnownSet) -> None:
    for task, best in found.tasks.items():
        if best.sha256 != best.checksum(found.name, task):
            raise DataError(
                "changed since it was written: its checksum is another; `fleetgym best-known search` finds it anew",
                f"$.tasks[{task!r}]",
            )


def _check(best: BestKnown, path: str) -> None:
    if best.bound_usd is not None and best.bound_usd > best.value_usd * (1.0 + TOLERANCE):
        raise DataError(f"a bound cannot exceed the value, {best.value_usd!r}", f"{path}.bound_usd")
    if best.proven and (best.bound_usd is None or best.bound_usd < best.value_usd * (1.0 - TOLERANCE)):
        raise DataError("a proven value is its own bound", f"{path}.proven")


def load_best_known(instances: Iterable[str]) -> BestKnownSet:
    """Return the best-known values of the suites that hold these instances.

    Raises
    ------
    FleetgymError
        If a suite, or a file of one's own, has none.
    """
    suites = sorted({name if is_path(name) else name.partition("/")[0] for name in instances})
    sets = []
    for suite in suites:
        path = best_known_path(suite)
        if is_path(suite) or not path.is_file():
            raise FleetgymError(
                f"there are no best-known costs for {suite}; score relative to the best in this run "
                "(relative_to='best-in-run', --relative-to best-in-run)"
            )
        sets.append(read_best_known(path))
    if not sets:
        raise FleetgymError("there is nothing to score")
    tasks = {task: best for found in sets for task, best in found.tasks.items()}
    name = " and ".join(dict.fromkeys(found.name for found in sets))
    return BestKnownSet(format=BEST_KNOWN_FORMAT, name=name, tasks=tasks)


def write_best_known(path: str | os.PathLike[str], best: BestKnownSet) -> None:
    """Write a file of best-known values and their checksums, one a line so that changes can be reviewed."""
    tasks = {
        task: dataclasses.replace(known, sha256=known.checksum(best.name, task))
        for task, known in best.tasks.items()
    }
    best = dataclasses.replace(best, tasks=tasks)
    text = json.dumps(to_jsonable(best), indent=1, sort_keys=True, allow_nan=False)
    write_atomically(path, text.encode() + b"\n")


# -- actions


@dataclasses.dataclass(frozen=True, kw_only=True)
class _ActionFile:
    format: str = spec(Choice((ACTIONS_FORMAT,)))
    instance: str = spec(Text())
    instance_hash: str = spec(SHA256)
    scenario: int = spec(Integer())
    value_usd: float = spec(POSITIVE_COST_USD)
    actions: tuple[tuple[int, int, int], ...] = spec(Changes(), doc="as in a results file")


def actions_folder() -> Path | None:
    """Return the checkout's folder of best-known actions; None in an installed package."""
    root = checkout()
    folder = None if root is None else root / "leaderboard" / "best_known"
    return folder if folder is not None and folder.is_dir() else None


def actions_path(folder: str | os.PathLike[str], instance: str, scenario: int) -> Path:
    """Return the path of a task's actions below a folder."""
    return Path(folder) / f"{instance}.{scenario}.json.gz"


def write_actions(
    folder: str | os.PathLike[str], instance: str, scenario: int, best: BestKnown, actions: np.ndarray
) -> None:
    """Store the actions that achieve a best-known value."""
    data: dict[str, Any] = {
        "format": ACTIONS_FORMAT,
        "instance": instance,
        "instance_hash": best.instance_hash,
        "scenario": scenario,
        "value_usd": best.value_usd,
        "actions": encode_actions(actions),
    }
    write_json(actions_path(folder, instance, scenario), data)


def read_actions(folder: str | os.PathLike[str], instance: str, scenario: int) -> np.ndarray:
    """Return stored actions, int64 (windows, slots), checked against the instance.

    Raises
    ------
    DataError
        If the file is malformed or was made for another version of the instance.
    FileNotFoundError
        If there is none.
    """
    path = actions_path(folder, instance, scenario)
    try:
        named, number, actions, _ = parse_actions(read_json(path))
        if (named, number) != (instance, scenario):
            expected = task_name(instance, scenario)
            raise DataError(f"holds {task_name(named, number)}, not {expected}", "$.instance")
        return actions
    except DataError as error:
        raise error.in_file(path) from None


def parse_actions(data: Any) -> tuple[str, int, np.ndarray, float]:
    """Return instance, scenario, actions, int64 (windows, slots), and claimed USD of an actions file that was read.

    Raises
    ------
    DataError
        If it is malformed or was made for another version of the instance.
    UnknownNameError
        If there is no such instance.
    """
    from fleetgym.model.actions import ActionSpace

    stored = read_object(_ActionFile, data)
    count = find_entry(stored.instance).scenarios
    if not 0 <= stored.scenario < count:
        raise DataError(f"expected a stored scenario, 0 to {count - 1}, got {stored.scenario}", "$.scenario")
    problem = load_instance(stored.instance)
    if stored.instance_hash != problem.content_hash:
        raise DataError("made for another version of the instance", "$.instance_hash")
    options = ActionSpace(problem).nvec.tolist()
    actions = decode_actions(stored.actions, problem.num_windows, options)
    return stored.instance, stored.scenario, actions, stored.value_usd


# -- improvement


def offer(
    known: BestKnown | None,
    *,
    instance: str,
    scenario: int,
    actions: np.ndarray,
    method: str,
    date: str,
    proven: bool = False,
    by_reference: bool = False,
) -> BestKnown | None:
    """Return a better best-known value if these actions achieve one; None if they do not.

    Parameters
    ----------
    known : BestKnown or None
        The present value.
    instance, scenario
        The task.
    actions : ndarray of int, shape (windows, slots)
        Played here: no claimed cost is trusted.
    method, date : str
        Written into the value.
    proven : bool
        Whether the actions are known to be optimal.
    by_reference : bool
        If they are cheaper, play them with the reference implementation too; both must agree.

    Raises
    ------
    FleetgymError
        If the actions beat a proven optimum or a lower bound, are said to be optimal and cost more than what is
        known, or the two implementations disagree.
    """
    problem = load_instance(instance)
    if known is not None and known.instance_hash != problem.content_hash:
        known = None
    cost_usd = verified_cost_usd(instance, scenario, actions)
    if known is not None:
        _check_possible(task_name(instance, scenario), cost_usd, known, proven)
        if cost_usd >= known.value_usd * (1.0 - TOLERANCE) and not (proven and not known.proven):
            return None
    if by_reference:
        cost_usd = verified_cost_usd(instance, scenario, actions, by_reference=True)
    bound = None if known is None else known.bound_usd
    return BestKnown(
        instance_hash=problem.content_hash,
        value_usd=cost_usd,
        bound_usd=cost_usd if proven else bound,
        method=method,
        date=date,
        proven=proven,
    )


def _check_possible(task: str, cost_usd: float, known: BestKnown, proven: bool) -> None:
    """Raise if a cost contradicts what is proven, or its own proof what is known."""
    if proven and cost_usd > known.value_usd * (1.0 + TOLERANCE):
        raise FleetgymError(
            f"{task} is said to cost at least {cost_usd!r}, but {known.value_usd!r} was achieved"
        )
    if known.bound_usd is not None and cost_usd < known.bound_usd * (1.0 - TOLERANCE):
        what = "the proven optimum" if known.proven else "the lower bound"
        raise FleetgymError(f"{task} costs {cost_usd!r}, less than {what} {known.bound_usd!r}")


def verified_cost_usd(
    instance: str, scenario: int, actions: np.ndarray, *, by_reference: bool = False
) -> float:
    """Play actions and return their cost; with `by_reference`, the reference implementation must agree.

    Raises
    ------
    FleetgymError
        If an action is not valid, or the implementations differ by more than 1e-9 relative.
    """
    from fleetgym.evaluation.jobs import play_actions, stored_scenario

    episode = play_actions(instance, scenario, actions)
    if episode.failure is not None:
        raise FleetgymError(f"{task_name(instance, scenario)}: {episode.failure.message}")
    if by_reference:
        from fleetgym.reference import replay

        steps = replay(
            load_instance(instance), stored_scenario(instance, scenario), np.asarray(actions).tolist()
        )
        replayed = sum(step["cost"] for step in steps)
        if not is_same_cost(episode.cost_usd, replayed):
            task = task_name(instance, scenario)
            raise FleetgymError(
                f"{task}: the reference evaluator says {replayed!r} USD, the fast path {episode.cost_usd!r}"
            )
    return episode.cost_usd
