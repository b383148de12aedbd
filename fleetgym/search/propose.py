"""Propose better best-known costs from a file with actions, each replayed."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Sequence

import numpy as np

from fleetgym.evaluation.results import Results, read_results
from fleetgym.files.documents import read_json
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.model.library import Task, find_entry, load_instance, task_name
from fleetgym.scoring.best_known import (
    ACTIONS_FORMAT,
    BestKnown,
    BestKnownSet,
    best_known_path,
    offer,
    parse_actions,
    read_best_known,
    verified_cost_usd,
)


@dataclasses.dataclass(frozen=True, eq=False)
class Candidate:
    """One episode that somebody proposes."""

    instance: str
    scenario: int
    actions: np.ndarray  # (windows, slots)
    method: str  # who or what found it
    claimed_usd: float  # what the file says that it costs; nobody believes it

    @property
    def task(self) -> str:
        """The task's name."""
        return task_name(self.instance, self.scenario)


@dataclasses.dataclass(frozen=True, eq=False)
class Proposal:
    """What became of a candidate."""

    candidate: Candidate
    cost_usd: float  # as played here; an improvement's by the reference evaluator too
    known: BestKnown | None
    better: BestKnown | None  # None: no improvement

    def to_dict(self) -> dict[str, object]:
        """Return plain values."""
        return {
            "task": self.candidate.task,
            "method": self.candidate.method,
            "cost_usd": self.cost_usd,
            "known_usd": None if self.known is None else self.known.value_usd,
            "better": None if self.better is None else dataclasses.asdict(self.better),
        }


def read_candidates(path: str | os.PathLike[str]) -> list[Candidate]:
    """Return the episodes of a results file, or the one of an actions file.

    Raises
    ------
    DataError
        If the file is neither, or its actions do not fit their instance.
    FileNotFoundError
        If there is no such file.
    """
    try:
        if str(path).endswith((".jsonl", ".jsonl.gz")):
            return candidates_of(read_results(path, allow_incomplete=True))
        data = read_json(path)
        if not isinstance(data, dict) or data.get("format") != ACTIONS_FORMAT:
            raise DataError(f"expected an actions file ({ACTIONS_FORMAT}) or a results file (.jsonl)", "$")
        try:
            instance, scenario, actions, claimed_usd = parse_actions(data)
        except UnknownNameError as error:
            raise DataError(str(error), "$.instance") from None
    except DataError as error:
        raise error if error.source else error.in_file(path) from None
    return [Candidate(instance, scenario, actions, "submitted actions", claimed_usd)]


def candidates_of(results: Results) -> list[Candidate]:
    """Return the episodes of a run that did not fail.

    Raises
    ------
    DataError
        If an instance has changed since.
    UnknownNameError
        If an instance is not a stored one.
    """
    found = []
    for episode in results.episodes:
        if episode.failure is not None:
            continue
        find_entry(episode.instance)
        if (
            load_instance(episode.instance).content_hash
            != results.header.instances[episode.instance].content_hash
        ):
            raise DataError(
                f"{episode.instance} has changed since this run", "$[0].instances", results.source
            )
        actions = results.actions(episode)
        found.append(Candidate(episode.instance, episode.scenario, actions, episode.agent, episode.cost_usd))
    return found


def propose(candidates: Iterable[Candidate], date: str) -> list[Proposal]:
    """Play candidates and compare them with the best-known costs; the reference evaluator confirms what is cheaper.

    Parameters
    ----------
    candidates : iterable of Candidate
        Of one task, a later one has to beat the earlier ones too.
    date : str
        Written into better values, YYYY-MM-DD.

    Returns
    -------
    list of Proposal
        One per candidate, in order.

    Raises
    ------
    FleetgymError
        If a candidate beats a proven optimum: then one of the two is wrong.
    """
    sets: dict[str, BestKnownSet | None] = {}
    best: dict[str, BestKnown | None] = {}
    found = []
    for candidate in candidates:
        suite = candidate.instance.partition("/")[0]
        if suite not in sets:
            path = best_known_path(suite)
            sets[suite] = read_best_known(path) if path.is_file() else None
        known_set = sets[suite]
        first = None if known_set is None else known_set.tasks.get(candidate.task)
        known = best.get(candidate.task, first)
        task = {"instance": candidate.instance, "scenario": candidate.scenario, "actions": candidate.actions}
        better = offer(known, **task, method=candidate.method, date=date, by_reference=True)  # type: ignore[arg-type]
        cost = better.value_usd if better is not None else verified_cost_usd(**task)  # type: ignore[arg-type]
        best[candidate.task] = better or known
        found.append(Proposal(candidate, cost, known, better))
    return found


@dataclasses.dataclass(frozen=True)
class Standing:
    """What is known of one task."""

    task: str
    known: BestKnown

    @property
    def gap(self) -> float | None:
        """How far the value is above the bound, relative to the bound; None without a bound above 0."""
        bound = self.known.value_usd if self.known.proven else self.known.bound_usd
        return None if not bound else self.known.value_usd / bound - 1.0

    def to_dict(self) -> dict[str, object]:
        """Return plain values."""
        return {"task": self.task, **dataclasses.asdict(self.known), "gap": self.gap}


def standings(tasks: Sequence[Task]) -> list[Standing]:
    """Return what is known of stored tasks.

    Raises
    ------
    FleetgymError
        If nothing is.
    """
    known: dict[str, BestKnown] = {}
    paths = sorted({best_known_path(name) for name, _ in tasks})
    for path in paths:
        known |= read_best_known(path).tasks if path.is_file() else {}
    named = [task_name(*task) for task in tasks]
    found = [Standing(name, known[name]) for name in named if name in known]
    if not found:
        raise FleetgymError(f"{', '.join(map(str, paths))}: there are no best-known costs of these tasks")
    return found
