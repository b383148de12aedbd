"""Compare agents on a suite: play them, and score them beside reference rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fleetgym.evaluation.isolation.preflight import preflight
from fleetgym.evaluation.jobs import Job, play_actions, stored_scenario
from fleetgym.evaluation.results import Results
from fleetgym.evaluation.results_format import EpisodeResult
from fleetgym.evaluation.run import make_jobs, play_jobs
from fleetgym.files.errors import FleetgymError
from fleetgym.model.actions import ActionSpace
from fleetgym.model.library import load_instance, task_name
from fleetgym.model.suites import full_suite
from fleetgym.scoring.best_known import (
    BestKnownSet,
    actions_folder,
    actions_path,
    load_best_known,
    read_actions,
)
from fleetgym.scoring.score import ScoreTable, score


def compare(
    agents: Any,
    suite: str | list[str] = "fleet-v0/dev",
    *,
    relative_to: str = "best-known",
    best_known: BestKnownSet | None = None,
    scenarios: Iterable[int] | None = None,
    seed: int = 0,
    **options: Any,
) -> tuple[Results, ScoreTable]:
    """Evaluate agents and score them.

    Parameters
    ----------
    agents, suite
        As for `evaluate`.
    relative_to, best_known
        As for `score`.
    scenarios, seed, **options
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
    suite = full_suite(suite)
    jobs = make_jobs(agents, suite, scenarios, seed)
    known = best_known_of(jobs, best_known) if relative_to == "best-known" else None
    if options.get("official") is None:
        preflight(dict.fromkeys(job.agent for job in jobs))
    return compare_jobs(jobs, suite, known, relative_to=relative_to, **options)


def compare_jobs(
    jobs: Sequence[Job],
    suite: str | Sequence[str],
    best_known: BestKnownSet | None,
    *,
    relative_to: str = "best-known",
    **options: Any,
) -> tuple[Results, ScoreTable]:
    """Play jobs as `play_jobs` does, and score them as `compare` does."""
    results = play_jobs(jobs, suite, **options)
    extra = reference_rows(results, best_known)
    return results, score(results, best_known, relative_to=relative_to, extra=extra)


def best_known_of(jobs: Sequence[Job], given: BestKnownSet | None = None) -> BestKnownSet:
    """Return the best-known costs of a run's tasks, so that a missing one is found before the run.

    Parameters
    ----------
    jobs : sequence of Job
        See `make_jobs`.
    given : BestKnownSet, optional
        By default the sets of the suites.

    Returns
    -------
    BestKnownSet

    Raises
    ------
    FleetgymError
        If a task has no best-known cost.

    Examples
    --------
    >>> jobs = make_jobs("gh", "fleet-v0/toy/two-pools")
    >>> round(best_known_of(jobs).tasks["fleet-v0/toy/two-pools#0"].value_usd, 3)
    14.0
    """
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
    clairvoyance can reach. They are outside the package; None where they are not available.
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
