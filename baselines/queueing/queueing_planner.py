"""Plan by queueing theory: the cheapest configurations, in sufficient number."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetgym import FleetgymError, Plan, Snapshot, Static
from fleetgym.planning import Wrapped, whole_at_least

from ..agents import RollingAgent
from ..rates import keeps_slos, placeable
from .placing_kernels import (
    LEAST_FRACTION,
    Problem,
    cheapest_place,
    fits,
    needed,
    price,
)


class QueueingPlanner:
    """Chen et al., inference-fleet-sim (2026): pools sized by M/G/c queues, on the columns of an instance.

    **Adapter.** The method takes a demand and a catalogue, and buys the fewest GPUs of the cheapest type whose queue
    keeps the P99 SLO under a utilisation cap. Here each configuration in use is a pool, with ``replicas`` times
    ``max_concurrency``
    slots and the mixture of what is sent to it. A workload goes, whole, to the configuration that keeps its SLOs and
    raises the cost least; pools have as many replicas as the queue's miss share, the utilisation cap, compute and
    memory ask for. Length thresholds need no adapter: a context limit is what compatibility says. Where availability,
    budget or an exclusive slot leave too little room, a workload is split over its next cheapest configurations, and
    what no money can serve, or costs more to serve than not, stays unserved. The workloads that cost most when unserved
    come first; then each is placed again, given the others, as long as that saves money.

    Parameters
    ----------
    miss_share : float
        Largest share of a pool's requests that may come after their TTFT SLO.
    utilization : float
        Largest busy share of a pool's slots.
    candidates : int
        Configurations looked at per workload, cheapest per request first, beside those in use.
    rounds : int
        Passes over the workloads after the first.

    Raises
    ------
    FleetgymError
        For a share or a utilisation outside (0, 1).

    Examples
    --------
    >>> import fleetgym
    >>> view = fleetgym.View(fleetgym.load_instance("fleet-v0/toy/two-pools"))
    >>> QueueingPlanner().plan(view.snapshot()).status
    'feasible'
    """

    def __init__(
        self, *, miss_share: float = 0.01, utilization: float = 0.85, candidates: int = 16, rounds: int = 2
    ):
        for name, value in (("miss_share", miss_share), ("utilization", utilization)):
            if not 0.0 < value < 1.0:
                raise FleetgymError(f"{name} is {value}; expected above 0 and below 1")
        whole_at_least(1, candidates=candidates)
        whole_at_least(0, rounds=rounds)
        self.miss_share, self.utilization = miss_share, utilization
        self.candidates, self.rounds = candidates, rounds

    def prepare(self, snapshot: Snapshot) -> None:
        """Compile the kernels before the first decision, by planning once."""
        self.plan(snapshot)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the fleet for the snapshot's window.

        Returns
        -------
        Plan
            ``diagnostics``: ``x`` (I, C) fractions, ``unserved`` (I,).
        """
        placing = _Placing(snapshot, self)
        order = np.argsort(-snapshot.unserved_usd, kind="stable")
        present = [int(i) for i in order if snapshot.rate_rps[i] > 0.0]
        for i in present:
            placing.place(i)
        for _ in range(self.rounds):
            if not sum(placing.improve(i) for i in present):
                break
        unserved = np.where(snapshot.rate_rps > 0.0, 1.0 - placing.x.sum(axis=1), 0.0)
        return Plan(
            fleet=placing.replicas.copy(),
            eligible=placing.x > 0.0,
            objective_usd=placing.usd(),
            status="feasible" if placing.replicas.any() else "empty",
            diagnostics={"x": placing.x.copy(), "unserved": np.clip(unserved, 0.0, 1.0)},
        )


class _Placing:
    """Fractions and replicas while workloads are placed; every state obeys availability, budget and slots."""

    def __init__(self, snapshot: Snapshot, rules: QueueingPlanner):
        self.snapshot, self.rules = snapshot, rules
        count_i, count_c = snapshot.compatible.shape
        self.x = np.zeros((count_i, count_c))
        self.replicas = np.zeros(count_c, dtype=np.int64)
        self.good = keeps_slos(snapshot, placeable(snapshot))
        with np.errstate(invalid="ignore"):
            per_request = snapshot.busy_seconds() * snapshot.hold_usd
        self.rank = np.argsort(np.where(self.good, per_request, np.inf), axis=1, kind="stable")
        self.problem = _packed(snapshot, rules)

    def options(self, i: int) -> np.ndarray:
        """Return all configurations for workload i: the cheapest per request, those in use, then the others."""
        ranked = [int(c) for c in self.rank[i] if self.good[i, c]]
        used = [c for c in ranked if self.replicas[c] > 0]
        return np.array(list(dict.fromkeys(ranked[: self.rules.candidates] + used + ranked)), dtype=np.int64)

    def place(self, i: int) -> None:
        """Place what is left of workload i: whole where that fits, else piece by piece."""
        options = self.options(i)
        for _ in range(options.size):
            left = 1.0 - float(self.x[i].sum())
            if left < LEAST_FRACTION:
                return
            size = self.rules.candidates + int((self.replicas > 0).sum())
            usd, c, fraction, replicas = cheapest_place(
                self.problem, self.x, self.replicas, i, options, size, left
            )
            if c < 0 or usd > fraction * float(self.snapshot.unserved_usd[i]):
                return
            self.x[i, c] += fraction
            self.replicas[c] = replicas

    def improve(self, i: int) -> bool:
        """Place workload i anew, given the others; keep the new places if that saves money."""
        before = (self.x.copy(), self.replicas.copy(), self.usd())
        if self.remove(i):
            self.place(i)
            if self.usd() < before[2] * (1.0 - 1e-9):
                return True
        self.x, self.replicas = before[0], before[1]
        return False

    def remove(self, i: int) -> bool:
        """Take workload i from its pools; False where the others, burstier without it, need more than there is."""
        for c in map(int, np.flatnonzero(self.x[i])):
            self.x[i, c] = 0.0
            replicas = needed(self.problem, self.x, c, -1, 0.0)
            if replicas < 0 or (
                replicas > self.replicas[c] and not fits(self.problem, self.replicas, c, replicas)
            ):
                return False
            self.replicas[c] = replicas
        return True

    def usd(self) -> float:
        """Return the planner's cost of the window: rent, start-up fees, routes, and what is not served."""
        snapshot = self.snapshot
        pools = sum(price(self.problem, c, self.replicas[c]) for c in np.flatnonzero(self.replicas))
        unserved = np.where(snapshot.rate_rps > 0.0, np.maximum(0.0, 1.0 - self.x.sum(axis=1)), 0.0)
        return pools + float(
            (self.x * np.where(self.x > 0.0, snapshot.route_usd, 0.0)).sum()
            + unserved @ snapshot.unserved_usd
        )


def _packed(snapshot: Snapshot, rules: QueueingPlanner) -> Problem:
    """Return the window's problem as the kernels take it."""
    instance = snapshot.instance
    group = np.full(instance.num_configurations, -1, dtype=np.int64)
    for s, (slot, members) in enumerate(zip(instance.slots, instance.slot_members, strict=True)):
        if slot.exclusive:
            group[list(members)] = s
    busy = rules.utilization * snapshot.max_concurrency

    def array(values: Any, dtype: type = float) -> np.ndarray:
        return np.ascontiguousarray(values, dtype=dtype)

    return Problem(
        rate_rps=array(snapshot.rate_rps),
        arrival_cv2=array([w.arrival_cv2 for w in instance.workloads]),
        work_tflop=array(snapshot.work_tflop),
        kv_gb_s=array(snapshot.kv_gb_s),
        service_s=array(snapshot.service_s),
        service_cv2=array(instance.performance.service_cv2),
        punctual=array(1.0 - snapshot.own_late),
        slack_s=array(snapshot.slack_s),
        route_usd=array(snapshot.route_usd),
        limits=array(np.column_stack([snapshot.compute_tflops, snapshot.kv_capacity_gb, busy])),
        servers=array(snapshot.max_concurrency, np.int64),
        max_replicas=array(snapshot.max_replicas, np.int64),
        hold_usd=array(snapshot.hold_usd),
        startup_usd=array(snapshot.startup_usd),
        fleet=array(snapshot.fleet, np.int64),
        gpu_use=array(snapshot.gpu_use, np.int64),
        available_gpus=array(snapshot.available_gpus, np.int64),
        group=group,
        budget_usd=float(snapshot.budget_usd),
        miss_share=float(rules.miss_share),
    )


queueing = Wrapped("The smallest fleet by queueing theory, planned once.", Static, QueueingPlanner)


queueing_rolling = RollingAgent(
    "The smallest fleet by queueing theory, planned again and again.", QueueingPlanner
)
