"""Agents and a suite in, a table of scores out, with reference_rows that are no agents among the rows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from fleetgym.evaluation.jobs import play_actions, stored_scenario
from fleetgym.evaluation.results import Results
from fleetgym.evaluation.results_format import EpisodeResult
from fleetgym.evaluation.run import evaluate, make_jobs
from fleetgym.files.errors import FleetgymError
from fleetgym.model.actions import ActionSpace
from fleetgym.model.library import load_instance, task_name
from fleetgym.scoring.best_known import (
    BestKnownSet,
    actions_folder,
    actions_path,
    load_best_known,
    read_actions,
)
from fleetgym.scoring.score import ScoreTable, score


def compare(
    agents: str | list[str],
    suite: str | list[str] = "fleet-v0/dev",
    *,
    relative_to: str = "best-known",
    best_known: BestKnownSet | None = None,
    **options: Any,
) -> tuple[Results, ScoreTable]:
    """Evaluate agents and score them.

    Parameters
    ----------
    agents, suite
        As for `evaluate`.
    relative_to, best_known
        As for `score`.
    **options
        As for `evaluate`.

    Returns
    -------
    results : Results
    table : ScoreTable
        With the reference_rows ``nominal-static`` (the nominal fleet all day) and, in a checkout, ``clairvoyant``: see
        `clairvoyant_actions`.

    Examples
    --------
    >>> _, table = compare("gh", "fleet-v0/toy/two-pools", relative_to="best-in-run")
    >>> [row.agent for row in table.rows if row.is_reference]
    ['nominal-static']
    """
    known = None
    if isinstance(options.get("scenarios"), Iterable):  # which may be iterated only once
        options["scenarios"] = list(options["scenarios"])
    if relative_to == "best-known":
        known = best_known_of(agents, suite, options.get("scenarios"), given=best_known)
    results = evaluate(agents, suite, **options)
    extra = reference_rows(results, known)
    return results, score(results, known, relative_to=relative_to, extra=extra)


def best_known_of(
    agents: str | list[str],
    suite: str | list[str],
    scenarios: Iterable[int] | None = None,
    *,
    given: BestKnownSet | None = None,
) -> BestKnownSet:
    """Return the best-known costs of a run's tasks: what lacks one is found before hours are spent on playing.

    Parameters
    ----------
    agents, suite, scenarios
        As for `evaluate`.
    given : BestKnownSet, optional
        Where they are; by default in the sets that come with the suites.

    Returns
    -------
    BestKnownSet

    Raises
    ------
    FleetgymError
        If a task has no best-known cost.

    Examples
    --------
    >>> round(best_known_of("gh", "fleet-v0/toy/two-pools").tasks["fleet-v0/toy/two-pools#0"].value_usd, 3)
    14.0
    """
    jobs = make_jobs(agents, suite, scenarios)
    known = given or load_best_known(job.instance for job in jobs)
    for name, k in dict.fromkeys((job.instance, job.scenario) for job in jobs):
        known.find(name, k, load_instance(name).content_hash)
    return known


def is_known(run: Results) -> bool:
    """Return whether every task has a best-known cost."""
    try:
        known = load_best_known(run.header.instances)
    except FleetgymError:
        return False
    return all(task_name(*episode.task) in known.tasks for episode in run.episodes)


def reference_rows(results: Results, known: BestKnownSet | None = None) -> list[EpisodeResult]:
    """Return the episodes of the reference_rows on the tasks of a run.

    Parameters
    ----------
    results : Results
        Names the tasks.
    known : BestKnownSet, optional
        With it, the clairvoyant is played if its actions are known on all tasks.

    Returns
    -------
    list of EpisodeResult
    """
    tasks = list(dict.fromkeys(e.task for e in results.episodes))
    rows = [play_actions(name, k, nominal_actions(name), "nominal-static") for name, k in tasks]
    if known is None:
        return rows
    best = [
        clairvoyant_actions(name, k, known.find(name, k, _hash(results, name)).proven) for name, k in tasks
    ]
    for (name, k), actions in zip(tasks, best, strict=True):
        if actions is None:
            return rows[: len(tasks)]
        rows.append(play_actions(name, k, actions, "clairvoyant"))
    return rows


def clairvoyant_actions(instance: str, scenario: int, proven: bool) -> np.ndarray | None:
    """Return the best actions known for a scenario that is known in advance, int64 (windows, slots).

    Of a toy, whose optimum is proven, they are the dynamic program's. Elsewhere they are the stored actions of
    the best-known cost: found with the whole future in sight, not proven optimal, and therefore an upper bound on what
    clairvoyance can reach. They lie outside the package; None where they are not at hand.
    """
    if proven and load_instance(instance).family == "toy":
        return optimal_actions(instance, scenario)
    folder = actions_folder()
    if folder is None or not actions_path(folder, instance, scenario).is_file():
        return None
    return read_actions(folder, instance, scenario)


def _hash(results: Results, instance: str) -> str:
    return results.header.instances[instance].content_hash


def nominal_actions(instance: str) -> np.ndarray:
    """Return the actions that keep the nominal fleet, int64 (windows, slots)."""
    problem = load_instance(instance)
    action = ActionSpace(problem).from_fleet(problem.nominal_fleet)
    return np.tile(action, (problem.num_windows, 1))


def optimal_actions(instance: str, scenario: int) -> np.ndarray:
    """Return the cheapest actions for a scenario that is known in advance, int64 (windows, slots); toys only."""
    from fleetgym.bounds.exact import optimal_fleets

    found = optimal_fleets(load_instance(instance), stored_scenario(instance, scenario))
    return np.array(found.actions, dtype=np.int64)
