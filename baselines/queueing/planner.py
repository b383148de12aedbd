"""Queueing-based sizing as a planner: a snapshot in; the cheapest configurations, in sufficient number, out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from baselines.agents import rolling, rolls
from baselines.rates import keeps_slos, placeable
from fleetgym.agents import Rolling, Static
from fleetgym.arguments import passes_on, whole_at_least
from fleetgym.envs.makespan import busy_seconds
from fleetgym.errors import FleetgymError
from fleetgym.kernels.queueing import chance_to_wait
from fleetgym.planning import Plan, Snapshot

#: A fraction of a workload below this is not worth a route.
_LEAST_FRACTION = 1e-3
_BISECTIONS = 8


class QueueingPlanner:
    """Chen et al., inference-fleet-sim (2026): pools sized by M/G/c queues, on the columns of an instance.

    **Adapter.** The method takes a demand and a catalogue, and buys the fewest GPUs of the cheapest type whose queue
    keeps the P99 SLO under a utilisation cap. Here each configuration in use is a pool, with ``replicas`` times
    ``max_concurrency``
    slots and the mixture of what is sent to it. A workload goes, whole, to the configuration that keeps its SLOs and
    raises the cost least; pools have as many replicas as the queue's miss share, the utilisation cap, compute and
    memory ask for. Length thresholds need no adapter: a context limit is what compatibility says. Where availability,
    budget or an exclusive slot leave too little room, a workload is split over its next cheapest configurations, and
    what no money can serve, or is dearer to serve than not, stays unserved. The workloads that cost most when unserved
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

        Parameters
        ----------
        snapshot : Snapshot
            The window's problem; money in USD per window.

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
        instance = snapshot.instance
        count_i, count_c = snapshot.compatible.shape
        self.x = np.zeros((count_i, count_c))
        self.replicas = np.zeros(count_c, dtype=np.int64)
        self.good = keeps_slos(snapshot, placeable(snapshot))
        ttft = np.array([[math.inf if w.ttft_slo_s is None else w.ttft_slo_s] for w in instance.workloads])
        self.slack_s = ttft - snapshot.prefill_s
        self.arrival_cv2 = np.array([w.arrival_cv2 for w in instance.workloads])
        with np.errstate(invalid="ignore"):
            per_request = busy_seconds(snapshot) * snapshot.hold_usd
        self.rank = np.argsort(np.where(self.good, per_request, np.inf), axis=1, kind="stable")
        self.group = np.full(count_c, -1)
        for s, (slot, members) in enumerate(zip(instance.slots, instance.slot_members, strict=True)):
            if slot.exclusive:
                self.group[list(members)] = s

    # -- what a pool needs ----------------------------------------------------------------------------------

    def needed(self, c: int, x: np.ndarray) -> int | None:
        """Return the replicas of configuration c for fractions x (I,), or None where its most are too few."""
        snapshot, rules = self.snapshot, self.rules
        rate = snapshot.rate_rps * x
        total = rate.sum()
        if total <= 0.0:
            return 0
        least = 1.0
        for per_request, capacity in (
            (snapshot.work_tflop[:, c], snapshot.compute_tflops[c]),
            (snapshot.kv_gb_s[:, c], snapshot.kv_capacity_gb[c]),
            (snapshot.service_s[:, c], rules.utilization * snapshot.max_concurrency[c]),
        ):
            load = float(rate @ per_request)
            if load > 0.0:
                least = max(least, load / capacity if capacity > 0.0 else math.inf)
        most = int(snapshot.max_replicas[c])
        if least > most * (1.0 + 1e-12):
            return None
        low, high = math.ceil(least * (1.0 - 1e-12)) - 1, most
        if self.miss(c, rate, low + 1) <= rules.miss_share:
            return low + 1
        if self.miss(c, rate, most) > rules.miss_share:
            return None
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.miss(c, rate, middle) <= rules.miss_share else (middle, high)
        return high

    def miss(self, c: int, rate: np.ndarray, replicas: int) -> float:
        """Return the share of late requests of a pool; those whose prefill alone is late are late at any size."""
        snapshot, here = self.snapshot, rate > 0.0
        share, service = rate[here] / rate.sum(), snapshot.service_s[here, c]
        mean, servers = float(share @ service), int(replicas * snapshot.max_concurrency[c])
        if mean <= 0.0:
            return 0.0
        offered = rate.sum() * mean
        if offered >= servers:
            return 1.0
        cv2 = snapshot.instance.performance.service_cv2[here, c]
        arrival_cv2 = float(share @ self.arrival_cv2[here])
        spread = float(share @ ((1.0 + cv2) * service**2)) / mean**2 - 1.0 + arrival_cv2
        slack = self.slack_s[here, c]
        if spread <= 0.0:
            return 0.0
        decay = 2.0 * (servers - offered) / (mean * spread)
        late = np.where((slack > 0.0) & np.isfinite(slack), np.exp(-decay * np.maximum(slack, 0.0)), 0.0)
        return float(share @ late) * chance_to_wait(servers, offered, arrival_cv2, 0.0)

    # -- what fits ------------------------------------------------------------------------------------------

    def fits(self, c: int, replicas: int) -> bool:
        """Tell whether configuration c may have so many replicas beside the others."""
        snapshot = self.snapshot
        fleet = self.replicas.copy()
        fleet[c] = replicas
        if self.group[c] >= 0 and fleet[self.group == self.group[c]].sum() > 1:
            return False
        if np.any(snapshot.gpu_use @ fleet > snapshot.available_gpus):
            return False
        return bool(fleet @ snapshot.hold_usd <= snapshot.budget_usd * (1.0 + 1e-12))

    def price(self, c: int, replicas: int) -> float:
        """Return the rent and start-up fees of a pool."""
        snapshot = self.snapshot
        grants = max(0, replicas - int(snapshot.fleet[c]))
        return replicas * snapshot.hold_usd[c] + grants * snapshot.startup_usd[c]

    def added_usd(self, i: int, c: int, fraction: float) -> tuple[float, int] | None:
        """Return what placing a fraction of workload i on c costs, and the replicas then; None if it does not fit."""
        x = self.x[:, c].copy()
        x[i] += fraction
        replicas = self.needed(c, x)
        if replicas is None or (replicas > self.replicas[c] and not self.fits(c, replicas)):
            return None
        replicas = max(replicas, int(self.replicas[c]))
        usd = self.price(c, replicas) - self.price(c, int(self.replicas[c]))
        return usd + fraction * float(self.snapshot.route_usd[i, c]), replicas

    def options(self, i: int) -> list[int]:
        """Return all configurations for workload i: the cheapest per request, those in use, then the others."""
        ranked = [int(c) for c in self.rank[i] if self.good[i, c]]
        used = [c for c in ranked if self.replicas[c] > 0]
        return list(dict.fromkeys(ranked[: self.rules.candidates] + used + ranked))

    # -- moves ----------------------------------------------------------------------------------------------

    def place(self, i: int) -> None:
        """Place what is left of workload i: whole where that fits, else piece by piece."""
        options = self.options(i)
        for _ in range(len(options)):
            left = 1.0 - float(self.x[i].sum())
            if left < _LEAST_FRACTION:
                return
            chosen = self._cheapest_place(i, options, left)
            if chosen is None or chosen[0] > chosen[3] * float(self.snapshot.unserved_usd[i]):
                return
            _, _, c, fraction, replicas = chosen
            self.x[i, c] += fraction
            self.replicas[c] = replicas

    def _cheapest_place(
        self, i: int, options: list[int], left: float
    ) -> tuple[float, int, int, float, int] | None:
        """Return cost, rank, configuration, fraction and replicas of the cheapest place for what is left, or a part.

        The options are looked at in batches; a later batch only where nothing in those before fits.
        """
        size = self.rules.candidates + int((self.replicas > 0).sum())
        for begin in range(0, len(options), size):
            batch = options[begin : begin + size]
            whole = [
                (f[0], k, c, left, f[1]) for k, c in enumerate(batch) if (f := self.added_usd(i, c, left))
            ]
            chosen = min(whole) if whole else self._largest_piece(i, batch, left)
            if chosen is not None:
                return chosen
        return None

    def _largest_piece(
        self, i: int, options: list[int], left: float
    ) -> tuple[float, int, int, float, int] | None:
        """Return the piece of workload i with the least cost per fraction, among the largest that fit each option."""
        pieces = []
        for k, c in enumerate(options):
            low, high, best = 0.0, left, None
            for _ in range(_BISECTIONS):
                middle = 0.5 * (low + high)
                found = self.added_usd(i, c, middle)
                low, high = (middle, high) if found else (low, middle)
                best = (found[0], k, c, middle, found[1]) if found else best
            if best is not None and best[3] >= _LEAST_FRACTION:
                pieces.append(best)
        return min(pieces, key=lambda piece: (piece[0] / piece[3], piece[1]), default=None)

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
            replicas = self.needed(c, self.x[:, c])
            if replicas is None or (replicas > self.replicas[c] and not self.fits(c, replicas)):
                return False
            self.replicas[c] = replicas
        return True

    def usd(self) -> float:
        """Return the planner's cost of the window: rent, start-up fees, routes, and what is not served."""
        snapshot = self.snapshot
        pools = sum(self.price(int(c), int(self.replicas[c])) for c in np.flatnonzero(self.replicas))
        unserved = np.where(snapshot.rate_rps > 0.0, np.maximum(0.0, 1.0 - self.x.sum(axis=1)), 0.0)
        return pools + float(
            (self.x * np.where(self.x > 0.0, snapshot.route_usd, 0.0)).sum()
            + unserved @ snapshot.unserved_usd
        )


@passes_on(QueueingPlanner)
def queueing(*, margin: float = 0.0, **rules: Any) -> Static:
    """The smallest fleet by queueing theory, planned once."""
    return Static(QueueingPlanner(**rules), margin)


@rolls(QueueingPlanner)
def queueing_rolling(**arguments: Any) -> Rolling:
    """The smallest fleet by queueing theory, planned again and again."""
    return rolling(QueueingPlanner, arguments)
