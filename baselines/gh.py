"""Plan by GH, the greedy heuristic of FastLLM, in a single pass.

Source: Cheng and Nguyen, "Fast Heterogeneous Serving: Scalable Mixed-Scale LLM Allocation for
SLO-Constrained Inference", arXiv:2604.07472, section 3 and Algorithm 1.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from fleetgym import Plan, Snapshot

from .greedy_packing import Layout, Rules, solve
from .orderings import check_ordering
from .orderings import ordering as make_order


@dataclasses.dataclass(kw_only=True, eq=False)
class GreedyHeuristic(Rules):
    """Algorithm 1: cover every workload cheaply, then place workloads one after the other.

    A candidate is a workload and a slot. An exclusive slot is the paper's (model, tier) pair: M1 (6) takes
    the option with the fewest GPUs that keeps the delay SLO (of two with equally many, the one with more
    tensor parallelism), M3 (9) replaces an active option by a larger one. A counted slot is outside
    the paper; there the smallest option is the fewest replicas, and one replica more is the upgrade.

    Where the paper is silent:

    - an option must also have room for the load: compute (5g), KV memory (5f) by Little's law, and queue
      servers at their safe utilisation. If none has room for all, the option that takes most is used for
      that much, and the rest is ranked again: the effective coverage (8) includes capacity;
    - SLOs are elastic by default, because they are so in the environment: a hard one that is missed by 1 %
      leaves a workload without any service. ``slo="per-route"`` is the algorithm as printed;
    - phase 1 passes over an activation that would exceed its share of the budget;
    - M3 checks again the SLOs of workloads that are already routed to the slot;
    - in (7) storage and delay count for the share placed, which is all of it unless coverage is partial.

    Limits on pools, on the budget (5c, rent and model storage of the fleet) and on storage (5h) hold
    throughout; what fits nowhere stays unserved. Fees for starting replicas do not enter, as in the paper.

    Parameters
    ----------
    ordering : str or sequence of int
        Order of phase 2: one of `fleetgym.baselines.orderings.ORDERINGS`, or a permutation of the workloads.
    m1, m2, m3, slo, coverage_budget_share, storage_usd_per_h
        See `fleetgym.baselines.greedy_packing.Rules`.

    Raises
    ------
    FleetgymError
        For an unknown ordering or rule.

    Examples
    --------
    >>> GreedyHeuristic(slo="per-route").slo
    'per-route'
    """

    ordering: str | Sequence[int] = "rate-desc"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ordering(self.ordering)
        self._layout: Layout | None = None

    def prepare(self, snapshot: Snapshot) -> None:
        """Load or compile the kernels before the first decision, by planning once."""
        self.plan(snapshot)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the fleet and routes for the snapshot's window.

        Returns
        -------
        Plan
            ``diagnostics`` has the routing ``x`` (I, C) and the share ``unserved`` (I,).
        """
        if self._layout is None or self._layout.instance is not snapshot.instance:
            self._layout = Layout.of(snapshot.instance)
        order = make_order(snapshot, self.ordering)
        return solve(snapshot, self._layout, self, order[None, :], passes=-1, patience=1)
