"""Plan by the MILP: the cheapest fleet that was found, and a proven lower bound.

Source of the problem: Cheng and Nguyen, "Fast Heterogeneous Serving: Scalable Mixed-Scale LLM Allocation for
SLO-Constrained Inference", arXiv:2604.07472, section 2.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable

import numpy as np

from fleetgym import Plan, Snapshot
from fleetgym.planning import at_least, one_of

from ..agh import AdaptiveGreedyHeuristic
from .problem import Modes, PlacementProblem, make_problem
from .routing import Solution, best_routing, is_feasible, nothing
from .search import PROVEN, ROUND_OFF, Limits, Result, solve_mccormick, solve_tight

FORMULATIONS = ("tight", "mccormick")


@dataclasses.dataclass(kw_only=True, eq=False)
class MilpPlanner(Modes):
    """FastLLM's P_DM, solved to proof or until a limit.

    Parameters
    ----------
    formulation : str
        ``"tight"``: the fast way. ``"mccormick"``: the paper's program as printed, handed to HiGHS; the oracle.
    time_limit_s : float, optional
        Limit by the `clock`. Without one, the same snapshot gives the same plan.
    node_limit : int, optional
        Most branch-and-bound nodes of the last search. None: no limit.
    gap : float
        Stop when cost and bound differ by at most this share of the cost.
    threads : int
        Threads of HiGHS. Keep the number the same within a process.
    clock : callable
        Returns seconds; `time.process_time` counts CPU time.
    allowed : ndarray of bool, shape (C,), optional
        Configurations that may be used; None: all.
    slo, kv, late, storage, storage_usd_per_h, switch_weight
        Which problem is solved: see `fleetgym.baselines.milp.problem.Modes`.

    Raises
    ------
    FleetgymError
        For an unknown formulation or mode, a negative limit, or no thread.
    """

    formulation: str = "tight"
    time_limit_s: float | None = None
    node_limit: int | None = None
    gap: float = 0.0
    threads: int = 1
    clock: Callable[[], float] = time.perf_counter
    allowed: np.ndarray | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of(FORMULATIONS, formulation=self.formulation)
        at_least(0, time_limit_s=self.time_limit_s, node_limit=self.node_limit, gap=self.gap)
        at_least(1, threads=self.threads)
        self._greedy = AdaptiveGreedyHeuristic(
            slo=self.slo, storage_usd_per_h=self.storage_usd_per_h, allowed=self.allowed
        )

    def prepare(self, snapshot: Snapshot) -> None:
        """Import HiGHS and load or compile AGH's kernels before the first decision."""
        import highspy  # noqa: F401

        self._greedy.prepare(snapshot)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the cheapest fleet found for the snapshot's window.

        Returns
        -------
        Plan
            `objective_usd` is computed from the plan's routing. `bound_usd` is a lower bound on the optimum of the
            stated problem; with ``late="omit"`` it also holds for every fleet in the environment's window. It is
            the larger of Lagrange's bound at the root, which is plain arithmetic and needs no solver to be
            right, and HiGHS's bound less a millionth of it. The latter is as good as branch and bound in
            doubles is, with tolerances of 1e-9 on rows scaled to one and money in hundredths of the first cost.
            ``diagnostics``: the routing ``x`` (I, C), the share ``unserved`` (I,), ``gap`` (relative), ``nodes``,
            ``seconds``, and ``incumbents``, pairs of seconds and USD.
        """
        limits = Limits.starting_now(
            self.clock, time_s=self.time_limit_s, nodes=self.node_limit, gap=self.gap, threads=self.threads
        )
        problem = make_problem(snapshot, self, self.allowed)
        start = self._start(snapshot, problem)
        if problem.columns.size == 0:
            result = Result(start, start.cost_usd, 0)
        elif self.formulation == "tight":
            result = solve_tight(problem, start, limits)
        else:
            result = solve_mccormick(problem, start, limits)
        return _as_plan(problem, result, limits)

    def _start(self, snapshot: Snapshot, problem: PlacementProblem) -> Solution:
        """Return the best of AGH's fleet, the running one, and none."""
        found = [nothing(problem)]
        if problem.columns.size:
            for fleet in (self._greedy.plan(snapshot).fleet, snapshot.fleet):
                replicas = np.minimum(fleet[problem.columns], problem.max_replicas)
                if replicas.any() and is_feasible(problem, replicas):
                    found.append(best_routing(problem, replicas))
        return min(found, key=lambda solution: solution.cost_usd)


def _as_plan(problem: PlacementProblem, result: Result, limits: Limits) -> Plan:
    best = result.best
    bound_usd = min(result.bound_usd, best.cost_usd * (1.0 - ROUND_OFF))
    gap = (best.cost_usd - bound_usd) / best.cost_usd if best.cost_usd > 0 else 0.0
    proven = gap <= max(limits.gap, PROVEN)
    shares = problem.shares_of(best.routing)
    unserved = np.zeros(problem.shape[0])
    unserved[problem.workloads] = best.unserved
    return Plan(
        fleet=problem.fleet_of(best.replicas),
        eligible=shares > 0.0,
        objective_usd=best.cost_usd,
        bound_usd=bound_usd,
        status="optimal" if proven else "feasible" if best.replicas.any() else "empty",
        diagnostics={
            "x": shares,
            "unserved": unserved,
            "gap": gap,
            "nodes": result.nodes,
            "seconds": limits.elapsed_s(),
            "incumbents": tuple(limits.incumbents),
        },
    )
