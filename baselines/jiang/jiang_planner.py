"""Adapt Jiang's method as a planner: the fastest fleet, or the cheapest that is fast enough."""

from __future__ import annotations

import numpy as np

from fleetgym import Plan, Snapshot
from fleetgym.planning import at_least, one_of, positive_share

from ..agents import RollingAgent
from ..rates import safe_utilization, serving_seconds
from .exact import cheapest, cheapest_by_search, minimal_makespan
from .problem import MakespanPlan, MakespanProblem
from .program import Limits, cheapest_with_unserved
from .search import minimal_makespan_by_search

OBJECTIVES = ("budget", "makespan")
SEARCHES = ("exact", "binary", "knapsack")


class JiangPlanner:
    """Jiang et al., "Demystifying Cost-Efficiency in LLM Serving over Heterogeneous GPUs", ICML 2025.

    **Adapter.** The method serves a batch as fast as a budget allows; the environment charges for every dollar
    rented. So, in `FleetAlloc-v0` (``objective="budget"``), the window's expected requests are the batch, and the plan
    is the fleet of the *cheapest budget whose makespan fits the window*, at the utilisation that its queues stand:
    each configuration may be busy for its safe utilisation (section 3 of the model page) as planned. Only routes
    that keep the workload's SLOs by themselves count, unless it has none. Where availability or budget are too
    small for all requests, the unserved ones cost what the instance says, and the sum is minimal. ``"makespan"`` is
    the published problem: the fastest fleet within the snapshot's budget, no SLOs.

    Parameters
    ----------
    objective : {"budget", "makespan"}
        What is minimal.
    search : {"exact", "binary", "knapsack"}
        One exact program; or the published searches: on the makespan with an integer or a knapsack check, and for
        ``objective="budget"`` by bisection of the budget.
    utilization : float, optional
        Share of a window in which a replica may be busy; None: the safe one of each configuration.
    gap, nodes : float, int
        Limits of every integer program: same snapshot, same plan.

    Raises
    ------
    FleetgymError
        For an unknown objective or search, or a utilisation outside (0, 1], or a negative limit.
    """

    def __init__(
        self,
        *,
        objective: str = "budget",
        search: str = "exact",
        utilization: float | None = None,
        gap: float = 0.02,
        nodes: int = 20,
    ):
        one_of(OBJECTIVES, objective=objective)
        one_of(SEARCHES, search=search)
        positive_share(utilization=utilization)
        at_least(0, gap=gap, nodes=nodes)
        self.objective, self.search, self.utilization = objective, search, utilization
        self.limits = Limits(gap, nodes, heuristics=True)

    def prepare(self, snapshot: Snapshot) -> None:
        """Import HiGHS before the first decision."""
        import highspy  # noqa: F401

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the fleet for the snapshot's window.

        Returns
        -------
        Plan
            ``diagnostics``: ``makespan_s`` (busy seconds, at full servers), ``bound_s``, ``assignment`` (I, C).
        """
        if self.objective == "makespan":
            found = self._fastest(problem_of(snapshot, snapshot.busy_seconds()))
        else:
            found = self._cheapest_enough(snapshot)
        return Plan(
            fleet=found.replicas,
            eligible=found.assignment > 0.0,
            status="feasible" if found.replicas.any() else "empty",
            diagnostics={
                "makespan_s": found.makespan_s,
                "bound_s": found.bound_s,
                "assignment": found.assignment,
                "nodes": found.nodes,
            },
        )

    def _fastest(self, problem: MakespanProblem) -> MakespanPlan:
        if self.search == "exact":
            return minimal_makespan(problem, self.limits)
        check = "milp" if self.search == "binary" else "knapsack"
        return minimal_makespan_by_search(problem, check=check, limits=self.limits)

    def _cheapest_enough(self, snapshot: Snapshot) -> MakespanPlan:
        """Plan twice: safe utilisation grows with the number of replicas, which the first plan tells."""
        busy_s = serving_seconds(snapshot)
        if self.utilization is not None:
            return self._within_window(snapshot, busy_s / self.utilization)
        first = self._within_window(snapshot, busy_s / safe_utilization(snapshot, snapshot.max_replicas))
        return self._within_window(snapshot, busy_s / safe_utilization(snapshot, first.replicas))

    def _within_window(self, snapshot: Snapshot, busy_s: np.ndarray) -> MakespanPlan:
        problem = problem_of(snapshot, busy_s)
        window_s = snapshot.instance.window_s
        if self.search == "exact":
            found = cheapest(problem, window_s, self.limits)
        else:
            found = cheapest_by_search(problem, window_s, solve=self._fastest)
        return (
            cheapest_with_unserved(problem, window_s, snapshot.unserved_usd, self.limits)
            if found is None
            else found
        )


def problem_of(snapshot: Snapshot, busy_s: np.ndarray) -> MakespanProblem:
    """Return Jiang's problem for a window; prices and budget are USD per window.

    Parameters
    ----------
    snapshot : Snapshot
        Fleet limits, requests and prices.
    busy_s : (I, C) ndarray
        Seconds of one replica per request; inf where it cannot serve the workload.
    """
    with np.errstate(divide="ignore"):
        rate = 1.0 / np.maximum(busy_s, 1e-12)
    return MakespanProblem(
        requests=snapshot.requests,
        rate_rps=np.where(np.isfinite(busy_s), rate, 0.0),
        gpu_use=snapshot.gpu_use,
        price_usd_per_h=snapshot.hold_usd,
        available_gpus=snapshot.available_gpus,
        budget_usd_per_h=snapshot.budget_usd,
        max_replicas=snapshot.max_replicas,
        groups=snapshot.instance.exclusive_groups,
    )


jiang = RollingAgent(
    "Jiang et al., least makespan within a budget, planning again and again; start-up is penalised as by `Rolling`.",
    JiangPlanner,
)
