"""Build Jiang's mixed-integer programs, row by row."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from fleetgym.planning import Answer, LinearProgram

from .problem import MakespanPlan, MakespanProblem, plan_of

#: HiGHS without the heuristics that solve programs within the program, and without restarts: here a start is at
#: hand, and they take most of the time (4.7 CPU seconds against 0.5 on trace 2 at 60 USD/h).
PLAIN: dict[str, float | bool] = {
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
    "mip_heuristic_effort": 0.0,
    "mip_allow_restart": False,
    "primal_feasibility_tolerance": 1e-7,
    "dual_feasibility_tolerance": 1e-7,
    "mip_feasibility_tolerance": 1e-7,
}


@dataclasses.dataclass(frozen=True)
class Limits:
    """When to stop, a relative gap between fleet and bound or a number of nodes; and whether HiGHS tries harder.

    With `heuristics`, HiGHS keeps those that `PLAIN` switches off: worth it where nodes run out, as with two models.
    """

    gap: float = 1e-4
    nodes: int = 100_000
    heuristics: bool = False

    @property
    def options(self) -> dict[str, float | bool]:
        """The options of HiGHS."""
        plain = {k: v for k, v in PLAIN.items() if not (self.heuristics and k.startswith("mip_heuristic"))}
        return {**plain, "mip_rel_gap": self.gap, "mip_max_nodes": self.nodes}


@dataclasses.dataclass(frozen=True)
class Columns:
    """Indices of the variables of a program over the pairs that can be served."""

    row: np.ndarray  # workload of each pair
    column: np.ndarray  # configuration of each pair
    time: np.ndarray  # z of each pair
    count: np.ndarray  # y of each configuration


def fleet_rows(program: LinearProgram, problem: MakespanProblem, cost: np.ndarray) -> Columns:
    """Add time shares z and counts y (at `cost` each), with the rows (3) to (7)."""
    present = problem.requests > 0
    row, column = np.nonzero((problem.rate_rps > 0) & present[:, None] & (problem.most > 0))
    time = program.columns(np.zeros(row.size), np.inf)
    count = program.columns(cost, problem.most, whole=True)
    program.rows(count.size, [(column, time, 1.0), (np.arange(count.size), count, -1.0)], high=0.0)
    pool, used = np.nonzero(problem.gpu_use)
    program.rows(
        problem.available_gpus.size,
        [(pool, count[used], problem.gpu_use[pool, used])],
        high=problem.available_gpus,
    )
    if np.isfinite(problem.budget_usd_per_h):
        priced = np.flatnonzero(problem.price_usd_per_h)
        program.rows(1, [(0, count[priced], problem.price_usd_per_h[priced])], high=problem.budget_usd_per_h)
    for group in problem.groups:
        program.rows(1, [(0, count[list(group)], 1.0)], high=1.0)
    return Columns(row, column, time, count)


def within(
    problem: MakespanProblem, deadline_s: float, cost: np.ndarray, unserved: np.ndarray | None = None
) -> tuple[LinearProgram, Columns]:
    """Return the program of the fleets that are done by a deadline: theta is fixed.

    Parameters
    ----------
    problem : MakespanProblem
        W workloads, C configurations.
    deadline_s : float
        Longest makespan, seconds.
    cost : (C,) ndarray
        Of one replica.
    unserved : (W,) ndarray, optional
        Cost of leaving a workload unserved; None: everything is served.
    """
    program = LinearProgram()
    parts = fleet_rows(program, problem, cost)
    present = np.flatnonzero(problem.requests > 0)
    place = np.full(problem.requests.size, -1)
    place[present] = np.arange(present.size)
    done = problem.rate_rps[parts.row, parts.column] * deadline_s / problem.requests[parts.row]
    entries = [(place[parts.row], parts.time, done)]
    if unserved is not None:
        entries.append((np.arange(present.size), program.columns(unserved[present], 1.0), 1.0))
    program.rows(present.size, entries, low=1.0)
    return program, parts


def solve_or_none(program: LinearProgram, options: Mapping[str, float | bool]) -> Answer | None:
    """Return HiGHS's answer, or None if the program is infeasible."""
    try:
        return program.solve(options)
    except RuntimeError:
        return None


def cheapest_with_unserved(
    problem: MakespanProblem, deadline_s: float, unserved_usd: np.ndarray, limits: Limits
) -> MakespanPlan:
    """Return the fleet of least price plus unserved share times its cost, for where no fleet serves all.

    Parameters
    ----------
    problem : MakespanProblem
        W workloads, C configurations; prices in the unit of `unserved_usd`.
    deadline_s : float
        Longest makespan, seconds.
    unserved_usd : (W,) ndarray
        Cost of serving none of a workload.
    limits : Limits
        When to stop.

    Returns
    -------
    MakespanPlan
        Its makespan is inf where a workload is not served at all.
    """
    scale = max(float(unserved_usd.max(initial=0.0)), 1e-12)
    program, parts = within(problem, deadline_s, problem.price_usd_per_h / scale, unserved_usd / scale)
    answer = program.solve(limits.options)
    fleet = np.zeros(problem.price_usd_per_h.size, dtype=np.int64)
    if answer.values is not None:
        fleet = np.round(answer.values[parts.count]).astype(np.int64)
    return plan_of(problem, fleet, nodes=answer.nodes)
