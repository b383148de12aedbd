"""Find the fastest or the cheapest fleet by one exact mixed-integer program, instead of a search.

In Jiang's (3) the assignment x is divided by the count y and multiplied by the makespan T. With theta = 1/T and
z = x f / (h T), the share of the time that replicas of c spend on w, both products go:

    max theta   s.t.  sum_c h_cw z_cw = f_w theta      (2)
                      sum_w z_cw <= y_c                (3), and (4) with it
                      sum_c o_c y_c <= B,  sum_c d_nc y_c <= a_n,  y whole    (5) to (7)

which is equivalent, and linear.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from fleetgym.planning import LinearProgram

from .problem import MakespanPlan, MakespanProblem, longest_s, plan_of, shortest_s
from .program import Columns, Limits, fleet_rows, solve_or_none, within
from .search import minimal_makespan_by_search

#: Room for the relaxation's round-off, in units of theta.
ROUND_OFF = 1e-7


def minimal_makespan(problem: MakespanProblem, limits: Limits | None = None) -> MakespanPlan:
    """Return the fastest fleet: the exact program, from the fleet that the knapsack search finds.

    Before branching, counts are bounded by the reduced costs of the relaxation: whatever cannot beat the first
    fleet is out. That shrinks the program to a fraction and loses nothing.

    Parameters
    ----------
    problem : MakespanProblem
        W workloads, C configurations.
    limits : Limits, optional
        When to stop.

    Returns
    -------
    MakespanPlan
        With a proven `bound_s`. An empty fleet with an infinite makespan if nothing serves every workload.

    Examples
    --------
    >>> from fleetgym.baselines.jiang.problem import MakespanProblem
    >>> problem = MakespanProblem(
    ...     requests=np.array([80.0, 20.0]),
    ...     rate_rps=np.array([[1.0, 2.4], [1.2, 1.5]]),
    ...     gpu_use=np.array([[1, 0], [0, 2]]),
    ...     price_usd_per_h=np.array([4.0, 4.0]),
    ...     available_gpus=np.array([2, 2]),
    ...     budget_usd_per_h=8.0,
    ... )
    >>> plan = minimal_makespan(problem)
    >>> plan.replicas.tolist(), round(plan.makespan_s, 6)
    ([1, 1], 28.431373)
    """
    limits = limits or Limits()
    unit_s, slowest_s = shortest_s(problem), longest_s(problem)
    if unit_s == 0.0 or not np.isfinite(slowest_s):
        return plan_of(problem, np.zeros(problem.price_usd_per_h.size, dtype=np.int64))
    first = minimal_makespan_by_search(problem, check="knapsack", tolerance_s=1e-3 * unit_s)
    if np.isfinite(first.makespan_s):
        unit_s = first.makespan_s
    program, parts, speed = _fastest(problem, unit_s)
    upper = _reachable(problem, program, parts, first, unit_s)
    answer = program.solve(limits.options, upper=upper, start=_start(problem, parts, speed, first, unit_s))
    bound_s = unit_s / -answer.bound if answer.bound < 0 else 0.0
    best = first
    if answer.values is not None:
        found = plan_of(problem, np.round(answer.values[parts.count]).astype(np.int64))
        best = min(first, found, key=lambda plan: plan.makespan_s)
    return dataclasses.replace(best, bound_s=min(bound_s, best.makespan_s), nodes=answer.nodes)


def _fastest(problem: MakespanProblem, unit_s: float) -> tuple[LinearProgram, Columns, np.ndarray]:
    """Return the program in theta, whose unit is 1 / unit_s, and the index of theta."""
    program = LinearProgram()
    speed = program.columns(np.array([-1.0]), np.inf)
    parts = fleet_rows(program, problem, np.zeros(problem.price_usd_per_h.size))
    present = np.flatnonzero(problem.requests > 0)
    place = np.full(problem.requests.size, -1)
    place[present] = np.arange(present.size)
    done = problem.rate_rps[parts.row, parts.column] * unit_s / problem.requests[parts.row]
    program.rows(
        present.size,
        [(place[parts.row], parts.time, done), (np.arange(present.size), speed, -1.0)],
        low=0.0,
        high=0.0,
    )
    return program, parts, speed


def _reachable(
    problem: MakespanProblem, program: LinearProgram, parts: Columns, first: MakespanPlan, unit_s: float
) -> np.ndarray | None:
    """Return upper bounds of all columns, in which counts cannot exceed what may still beat the first plan."""
    relaxed = program.solve({}, relax=True) if np.isfinite(first.makespan_s) else None
    if relaxed is None or relaxed.status != "optimal" or relaxed.reduced is None:
        return None
    upper = np.full(program.num_columns, np.inf)
    room = -unit_s / first.makespan_s - relaxed.objective + ROUND_OFF
    reduced = np.maximum(relaxed.reduced[parts.count], 1e-12)
    upper[parts.count] = np.clip(np.floor(room / reduced), 0.0, problem.most)
    return upper


def _start(
    problem: MakespanProblem, parts: Columns, speed: np.ndarray, first: MakespanPlan, unit_s: float
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the first plan as a full solution of the program."""
    if not np.isfinite(first.makespan_s):
        return None
    time = first.assignment[parts.row, parts.column] * problem.requests[parts.row]
    time = time / problem.rate_rps[parts.row, parts.column] / first.makespan_s
    index = np.concatenate([speed, parts.time, parts.count])
    return index, np.concatenate([[unit_s / first.makespan_s], time, first.replicas])


def cheapest(
    problem: MakespanProblem, deadline_s: float, limits: Limits | None = None
) -> MakespanPlan | None:
    """Return the cheapest fleet that is done by a deadline: the least budget whose makespan fits.

    The makespan falls as the budget rises, so a bisection of the budget (`cheapest_by_search`) ends
    here too; with T fixed the price is linear, and one program finds it.

    Parameters
    ----------
    problem : MakespanProblem
        Its budget is a cap.
    deadline_s : float
        Longest makespan allowed, seconds.
    limits : Limits, optional
        When to stop.

    Returns
    -------
    MakespanPlan or None
        None if no fleet within availability and budget makes it.
    """
    scale = max(float(problem.price_usd_per_h.max(initial=0.0)), 1e-12)
    program, parts = within(problem, deadline_s, problem.price_usd_per_h / scale)
    answer = solve_or_none(program, (limits or Limits()).options) if parts.row.size else None
    if answer is None or answer.values is None:
        return None
    return plan_of(problem, np.round(answer.values[parts.count]).astype(np.int64), nodes=answer.nodes)


def cheapest_by_search(
    problem: MakespanProblem,
    deadline_s: float,
    *,
    tolerance: float = 1e-3,
    solve: Callable[[MakespanProblem], MakespanPlan] = minimal_makespan,
) -> MakespanPlan | None:
    """Return the fleet of the least budget whose makespan fits a deadline, by bisection of the budget.

    Every step finds the fastest fleet of a budget. `cheapest` is one program that finds the same; this is the
    definition.

    Parameters
    ----------
    problem : MakespanProblem
        Its budget is a cap.
    deadline_s : float
        Longest makespan allowed, seconds.
    tolerance : float
        Stop when the budget is known to this share of its cap.
    solve : callable
        Finds the fastest fleet.

    Returns
    -------
    MakespanPlan or None
        None if the cap is not enough.
    """
    high = min(problem.budget_usd_per_h, float(problem.price_usd_per_h @ problem.most))
    best = solve(problem.replace(budget_usd_per_h=high))
    if best.makespan_s > deadline_s:
        return None
    low, checks = 0.0, 1
    step = tolerance * float(problem.price_usd_per_h @ best.replicas)
    while high - low > step:
        budget = 0.5 * (low + high)
        plan = solve(problem.replace(budget_usd_per_h=budget))
        checks += 1
        if plan.makespan_s <= deadline_s:
            best, high = plan, min(budget, float(problem.price_usd_per_h @ plan.replicas))
        else:
            low = budget
    return dataclasses.replace(best, checks=checks)
