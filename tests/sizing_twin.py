"""The packer in plain Python, from a planner's snapshot: what `fleetgym.agents.sizing` computes in a kernel."""

from __future__ import annotations

import math

import numpy as np

from fleetgym.model.planning import Snapshot


class SlowSizer:
    """One window's problem; workloads and configurations by number, money in USD of the window."""

    def __init__(
        self,
        snapshot: Snapshot,
        *,
        risk: float,
        rent_factor: float,
        payback_windows: float,
        budget_usd: float,
    ):
        instance = snapshot.instance
        self.snapshot, self.risk = snapshot, risk
        self.workloads, self.configurations = (
            range(instance.num_workloads),
            range(instance.num_configurations),
        )
        self.slot = {}
        for slot, members in zip(instance.slots, instance.slot_members, strict=True):
            for c in members if slot.exclusive else ():
                self.slot[c] = [other for other in members if other != c]
        self.rent = [rent_factor * usd for usd in snapshot.hold_usd]
        self.entry = []
        for c, configuration in enumerate(instance.configurations):
            wait = configuration.startup_windows if snapshot.window > 0 else 0
            start = snapshot.startup_usd[c] + wait * snapshot.hold_usd[c]
            self.entry.append(rent_factor * (snapshot.hold_usd[c] + start / payback_windows))
        self.limit = {"budget": budget_usd, **dict(enumerate(snapshot.available_gpus.tolist()))}
        self.route = [[self._route_usd(i, c) for c in self.configurations] for i in self.workloads]
        self.price = [
            min(self.rent[c] * self.replicas(i, c) + self.route[i][c] for c in self.usable(i))
            if self.usable(i)
            else math.inf
            for i in self.workloads
        ]

    def _route_usd(self, i: int, c: int) -> float:
        workload = self.snapshot.instance.workloads[i]
        late = max(0.0, self.snapshot.delay_s[i, c] / workload.mean_delay_slo_s - 1.0)
        wrong = max(0.0, self.snapshot.error[i, c] / workload.error_slo - 1.0)
        return float(self.snapshot.route_usd[i, c] + self.snapshot.unserved_usd[i] * (late + wrong))

    def servers(self, c: int, replicas: int) -> float:
        """Return how many queue servers of so many replicas may be busy."""
        if replicas == 0:
            return 0.0
        segments = self.snapshot.segments
        safe = segments.safe_utilization[segments.offsets[c] + replicas - 1]
        utilization = (1.0 - self.risk) * safe + self.risk * 0.95
        return float(utilization * replicas * self.snapshot.max_concurrency[c])

    def room(self, c: int, number: int) -> list[float]:
        """Return the capacity that replica `number` adds: compute, KV memory, queue servers."""
        more = self.servers(c, number) - self.servers(c, number - 1)
        return [float(self.snapshot.compute_tflops[c]), float(self.snapshot.kv_capacity_gb[c]), more]

    def load(self, i: int, c: int) -> list[float]:
        """Return what the whole workload takes of the same."""
        s = self.snapshot
        return [float(s.rate_rps[i] * plane[i, c]) for plane in (s.work_tflop, s.kv_gb_s, s.service_s)]

    def replicas(self, i: int, c: int) -> float:
        """Return how many first replicas the workload takes."""
        pairs = zip(self.load(i, c), self.room(c, 1), strict=True)
        return max((load / room if room > 0 else math.inf for load, room in pairs if load > 0), default=0.0)

    def usable(self, i: int) -> list[int]:
        """Return the configurations that can serve the workload."""
        return [
            c
            for c in self.configurations
            if self.snapshot.compatible[i, c] and self.replicas(i, c) < math.inf
        ]

    def order(self, c: int) -> list[int]:
        """Return the workloads that a replica of c serves, the one first that saves most for its share of a replica."""
        gain = {}
        for i in self.workloads:
            if c in self.usable(i) and self.snapshot.unserved_usd[i] > self.route[i][c]:
                replicas = self.replicas(i, c)
                gain[i] = (self.price[i] - self.route[i][c]) / replicas if replicas > 0 else math.inf
        return sorted(gain, key=lambda i: -gain[i])

    def served(self, c: int, number: int, need: list[float], paid: list[float]) -> tuple[dict, dict]:
        """Return the shares that replica `number` of c serves, of what nobody serves, and of what is paid more for.

        `paid` is the mean cost of a workload's served shares, times their sum; both lists are of one length.
        """
        left, shares = self.room(c, number), ({}, {})
        for part, most in zip(shares, (need, self.taken(need)), strict=True):
            for i in self.order(c):
                usd = self.snapshot.unserved_usd[i]
                if part is shares[1]:
                    usd = paid[i] / most[i] if most[i] > 0 else 0.0
                load = self.load(i, c)
                fits = [room / each for room, each in zip(left, load, strict=True) if each > 0]
                share = min([most[i], *fits])
                if share > 1e-12 and usd > self.route[i][c]:
                    part[i] = share
                    left = [room - share * each for room, each in zip(left, load, strict=True)]
        return shares

    def taken(self, need: list[float]) -> list[float]:
        """Return what is served, given what is not."""
        return [all_of_it - open_ for all_of_it, open_ in zip(self.margin, need, strict=True)]

    def serve(self, c: int, number: int, need: list[float], paid: list[float]) -> None:
        """Let replica `number` of c serve."""
        new, cheaper = self.served(c, number, need, paid)
        before = self.taken(need)
        for i, x in cheaper.items():
            paid[i] -= x * (paid[i] / before[i] - self.route[i][c])
        for i, x in new.items():
            need[i] -= x
            paid[i] += x * self.route[i][c]

    def fits(self, fleet: list[int], c: int) -> bool:
        """Return whether one more replica of c is within budget, pools and slot."""
        more = [n + (k == c) for k, n in enumerate(fleet)]
        held = {"budget": sum(n * usd for n, usd in zip(more, self.snapshot.hold_usd, strict=True))}
        held |= dict(enumerate((self.snapshot.gpu_use @ more).tolist()))
        alone = all(fleet[other] == 0 for other in self.slot.get(c, ()))
        return alone and all(held[what] <= self.limit[what] * (1 + 1e-12) for what in held)

    def grow(
        self, fleet: list[int], most: list[int], rent: list[float], need: list[float], paid: list[float]
    ) -> None:
        """Add replicas until none is worth its rent, the cheapest for what it serves first."""
        while True:
            ratio = {}
            for c in self.configurations:
                if fleet[c] >= most[c] or not self.fits(fleet, c):
                    continue
                new, cheaper = self.served(c, fleet[c] + 1, need, paid)
                route = sum(x * self.route[i][c] for i, x in new.items())
                worth = sum(x * self.snapshot.unserved_usd[i] for i, x in new.items()) - route
                taken = self.taken(need)
                worth += sum(x * (paid[i] / taken[i] - self.route[i][c]) for i, x in cheaper.items())
                if worth > rent[c]:
                    price = sum(x * self.price[i] for i, x in new.items())
                    ratio[c] = price / (rent[c] + route) if rent[c] + route > 0 else math.inf
            if not ratio:
                return
            best = max(ratio, key=lambda c: ratio[c])
            fleet[best] += 1
            self.serve(best, fleet[best], need, paid)

    def target(self, lower: np.ndarray, upper: np.ndarray) -> list[int]:
        """Return the fleet to hold."""
        fleet, nothing = [0 for _ in self.configurations], [0.0 for _ in self.workloads]
        self.margin = upper.tolist()
        self.grow(fleet, self.snapshot.fleet.tolist(), self.rent, upper.tolist(), nothing.copy())
        self.margin = lower.tolist()
        need, paid = lower.tolist(), nothing.copy()
        for c in self.configurations:
            for number in range(1, fleet[c] + 1):
                self.serve(c, number, need, paid)
        self.grow(fleet, self.snapshot.max_replicas.tolist(), self.entry, need, paid)
        return fleet
