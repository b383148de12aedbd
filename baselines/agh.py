"""Plan by AGH, the adaptive greedy heuristic of FastLLM: many starts of GH, each improved by local search.

Source: Cheng and Nguyen, "Fast Heterogeneous Serving: Scalable Mixed-Scale LLM Allocation for
SLO-Constrained Inference", arXiv:2604.07472, section 3.3, Algorithm 2 and Remark 1.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym import Plan, Snapshot
from fleetgym.planning import at_least, whole_at_least

from .greedy_packing import Layout, Rules, solve
from .orderings import ORDERINGS, ordering


def adaptive_starts(num_candidates: int) -> int:
    """Return the number of random starts R for N = workloads x slots candidates (Remark 1).

    Examples
    --------
    >>> [adaptive_starts(n) for n in (500, 501, 2001, 5001)]
    [20, 10, 5, 3]
    """
    for bound, starts in ((5000, 3), (2000, 5), (500, 10)):
        if num_candidates > bound:
            return starts
    return 20


@dataclasses.dataclass(kw_only=True, eq=False)
class AdaptiveGreedyHeuristic(Rules):
    """Algorithm 2: GH from eight sorted and R random orders, relocation, consolidation; the best is kept.

    GH's own order is the first of the eight, so the result never costs more than GH's. Construction
    and its reading of the paper are those of `fleetgym.baselines.gh.GreedyHeuristic`. Where the paper is silent:

    - *relocate* takes a workload's whole share off a slot, shrinks or closes that slot, and moves the share
      to the place that M2 ranks first; the move stays if the objective falls;
    - *consolidate* drops unused slots, shrinks oversized ones, then tries to close each active slot,
      the least utilised first, by placing its workloads on other active ones; it stays closed if the
      objective falls, also where some of its demand is left unserved;
    - workloads that lack service are offered what this freed, where serving them pays.

    Parameters
    ----------
    random_starts : int, optional
        R; None: by the size of the problem, see `adaptive_starts`.
    passes : int
        Rounds of relocation, L in the paper.
    patience : int
        Orders in a row without an improvement, after which the search stops.
    seed : int
        Random seed of the orders. The same seed gives the same plan.
    allowed : ndarray of bool, shape (C,), optional
        Configurations that may be used; None: all.
    m1, m2, m3, slo, coverage_budget_share, storage_usd_per_h
        See `fleetgym.baselines.greedy_packing.Rules`.

    Raises
    ------
    FleetgymError
        For a negative number, no patience, or an unknown rule.
    """

    random_starts: int | None = None
    passes: int = 3
    patience: int = 5
    seed: int = 0
    allowed: np.ndarray | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(0, random_starts=self.random_starts)
        whole_at_least(0, passes=self.passes, seed=self.seed)
        whole_at_least(1, patience=self.patience)
        self._layout: Layout | None = None

    def prepare(self, snapshot: Snapshot) -> None:
        """Load or compile the kernels before the first decision, by planning once."""
        self.plan(snapshot)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the best fleet and routes found for the snapshot's window.

        Returns
        -------
        Plan
            ``diagnostics`` has the routing ``x`` (I, C), the share ``unserved`` (I,) and ``starts``, the
            number of orders tried.
        """
        if self._layout is None or self._layout.instance is not snapshot.instance:
            self._layout = Layout.of(snapshot.instance, self.allowed)
        orders = self._orders(snapshot)
        return solve(snapshot, self._layout, self, orders, self.passes, self.patience)

    def _orders(self, snapshot: Snapshot) -> np.ndarray:
        """Return the orders to start from, (8 + R, I)."""
        workloads = snapshot.rate_rps.size
        count = self.random_starts
        if count is None:
            count = adaptive_starts(workloads * len(snapshot.instance.slots))
        unsorted = np.tile(np.arange(workloads), (count, 1))
        shuffled = np.random.default_rng(self.seed).permuted(unsorted, axis=1)
        return np.vstack([ordering(snapshot, name) for name in ORDERINGS] + [shuffled])
