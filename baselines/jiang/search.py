"""Run the published binary search on the makespan, with both of its feasibility checks.

Jiang et al., ICML 2025, appendix F and algorithm 1. The check is a mixed-integer program with T fixed, or a
knapsack-like approximation, which the paper mentions and does not define; ours is `fleetgym.baselines.jiang.knapsack`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fleetgym import FleetgymError
from fleetgym.planning import one_of

from .knapsack import knapsack_check
from .problem import MakespanPlan, MakespanProblem, longest_s, plan_of, shortest_s
from .program import Limits, solve_or_none, within

#: A check takes a problem, a makespan in seconds and limits, and returns a fleet that achieves it, or None.
Check = Callable[[MakespanProblem, float, Limits], "np.ndarray | None"]


def milp_check(problem: MakespanProblem, makespan_s: float, limits: Limits) -> np.ndarray | None:
    """Return a fleet that is done within a makespan, or None if there is none: Jiang's (2) to (7) with T fixed.

    Any fleet will do, so there is no objective. The coupling (4), x <= y, follows from (3) once T is fixed, and is
    left out, which makes the check faster.
    """
    program, parts = within(problem, makespan_s, np.zeros(problem.price_usd_per_h.size))
    answer = solve_or_none(program, limits.options) if parts.row.size else None
    if answer is None or answer.values is None:
        return None
    return np.round(answer.values[parts.count]).astype(np.int64)


CHECKS: dict[str, Check] = {"milp": milp_check, "knapsack": knapsack_check}


def minimal_makespan_by_search(
    problem: MakespanProblem,
    *,
    tolerance_s: float = 1.0,
    check: str = "milp",
    limits: Limits | None = None,
) -> MakespanPlan:
    """Return the fleet that the published binary search ends with.

    Parameters
    ----------
    problem : MakespanProblem
        W workloads, C configurations.
    tolerance_s : float
        Stop when lower and upper bound are this close (the paper's tau, "e.g. one second").
    check : {"milp", "knapsack"}
        Feasibility check.
    limits : Limits, optional
        Of each check.

    Returns
    -------
    MakespanPlan
        With the number of `checks`; `bound_s` is the search's lower end, and proven only with ``check="milp"``. An
        empty fleet if even the upper bound is called infeasible.
    """
    one_of(CHECKS, check=check)
    if not tolerance_s > 0:
        raise FleetgymError(f"tolerance_s is {tolerance_s}; expected above 0")
    limits, feasible = limits or Limits(), CHECKS[check]
    low_s, high_s = shortest_s(problem), longest_s(problem)
    best = feasible(problem, high_s, limits) if np.isfinite(high_s) else None
    checks = 1
    if best is None:
        return plan_of(problem, np.zeros(problem.price_usd_per_h.size, dtype=np.int64), checks=checks)
    while high_s - low_s > tolerance_s:
        middle_s = 0.5 * (low_s + high_s)
        found = feasible(problem, middle_s, limits)
        checks += 1
        if found is None:
            low_s = middle_s
        else:
            best, high_s = found, middle_s
    return plan_of(problem, best, bound_s=low_s if check == "milp" else 0.0, checks=checks)
