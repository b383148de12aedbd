"""Improve an allocation by large-neighbourhood search: a few demands at a time are solved anew.

Availability is all that ties the demands together. With the replicas of all others held, the rest is a small problem
of the same kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from .problem import Allocation, CoveringProblem, Running, evaluate

_ROWS = 3  # demands solved anew together
_UNSERVED_WEIGHT = 10.0  # how much likelier than others demands are taken that are not served in full


def improve(
    problem: CoveringProblem,
    start: Allocation,
    templates: np.ndarray,
    solve: Callable[[CoveringProblem], Allocation],
    attempts: int,
) -> Allocation:
    """Return the best allocation found.

    Parameters
    ----------
    problem : CoveringProblem
        The epoch.
    start : Allocation
        To begin with.
    templates : (N,) bool array
        Which new replicas may be of.
    solve : callable
        Of the parts.
    attempts : int
        Parts to solve; which ones is drawn from a fixed seed.

    Returns
    -------
    Allocation
        Costs at most as much as `start`.
    """
    random = np.random.default_rng(0)
    rows = np.flatnonzero(problem.demand_rps > 0.0)
    best = start
    for _ in range(attempts):
        weight = np.where(best.unserved[rows] > 0.0, _UNSERVED_WEIGHT, 1.0)
        chosen = random.choice(rows, size=min(_ROWS, rows.size), replace=False, p=weight / weight.sum())
        part, template = _part(problem, best, templates, chosen)
        found = solve(part)
        held = ~np.isin(problem.row[best.template], chosen)
        candidate = evaluate(
            problem,
            np.concatenate([best.template[held], template[found.template]]),
            np.concatenate([best.region[held], found.region]),
            np.concatenate([best.count[held], found.count]),
        )
        if candidate.objective_usd_per_h(problem) < best.objective_usd_per_h(problem):
            best = candidate
    return best


def _part(
    problem: CoveringProblem, best: Allocation, templates: np.ndarray, rows: np.ndarray
) -> tuple[CoveringProblem, np.ndarray]:
    """Return the problem of some demands with the others' replicas held, and its templates in the whole one."""
    free = np.isin(problem.row, rows)
    held = ~free[best.template]
    available = problem.available.astype(float)
    use = problem.use[best.template[held]] * best.count[held][:, None]
    np.subtract.at(available, best.region[held], use)
    ran = free[problem.running.template]
    usable = templates & free
    usable[best.template[~held]] = True
    usable[problem.running.template[ran]] = True
    chosen = np.flatnonzero(usable)
    part = dataclasses.replace(
        problem,
        use=problem.use[chosen],
        throughput_rps=problem.throughput_rps[chosen],
        row=problem.row[chosen],
        available=np.maximum(available, 0.0),
        demand_rps=np.where(np.isin(np.arange(problem.demand_rps.size), rows), problem.demand_rps, 0.0),
        running=Running(
            np.searchsorted(chosen, problem.running.template[ran]),
            problem.running.region[ran],
            problem.running.count[ran],
        ),
    )
    return part, chosen
