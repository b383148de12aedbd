"""Scale each slot to a target utilisation with a cool-down, as most operators do today.

The rule is that of Kubernetes' horizontal pod autoscaler: replicas = ceil(load / (target x capacity)), up at
once, down only after a stabilisation period. It sees the last window's demand and forecasts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import Snapshot, View
from fleetgym.planning import positive_share, whole_at_least

from .services import TINY, priority, slo_penalty_usd


class AutoscaleAgent:
    """Scales each workload's cheapest configuration to a target utilisation.

    Each workload, the most expensive to lose first, goes to the compatible configuration that serves
    it within its SLOs at the least cost per request, or where none does, with the least penalty. When
    a pool, the budget or the configuration's own limit runs out, the rest spills to the next cheapest. An
    exclusive slot serves everybody with the option that was chosen first. Replicas that may not go yet keep
    their GPUs and serve; only growth looks for room.

    Parameters
    ----------
    target_utilization : float
        Share of compute, KV memory and queue servers to plan for, in (0, 1].
    cooldown_windows : int
        Windows in a row that a slot must be too large before it shrinks.

    Raises
    ------
    FleetgymError
        For values outside these ranges.
    """

    def __init__(self, target_utilization: float = 0.6, cooldown_windows: int = 6):
        positive_share(target_utilization=target_utilization)
        whole_at_least(0, cooldown_windows=cooldown_windows)
        self.target_utilization = target_utilization
        self.cooldown_windows = cooldown_windows

    def reset(self, view: View, *, seed: int) -> None:
        """Forget the last episode.

        Parameters
        ----------
        view : View
            The instance, what was seen last, and the fleet.
        seed : int
            Not used.
        """
        self._view = view
        self._members = [np.array(members) for members in view.instance.slot_members]
        self._exclusive = [slot.exclusive for slot in view.instance.slots]
        self._too_large = np.zeros(len(self._members), dtype=np.int64)  # windows in a row

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        snapshot = self._view.snapshot()
        demand = Demand(snapshot, self.target_utilization)
        kept = self._kept(snapshot, demand.fleet(np.zeros_like(snapshot.fleet)))
        return self._view.fleet_to_action(demand.fleet(kept))

    def _kept(self, snapshot: Snapshot, wanted: np.ndarray) -> np.ndarray:
        """Return the replicas (C,) that stay for now: all but those of slots that were too large for long."""
        gpus = snapshot.gpu_use.sum(axis=0)
        kept = np.array(snapshot.fleet, dtype=np.int64)
        for s, members in enumerate(self._members):
            shrinks = gpus[members] @ wanted[members] < gpus[members] @ kept[members]
            self._too_large[s] = self._too_large[s] + 1 if shrinks else 0
            if self._too_large[s] > self.cooldown_windows or (not shrinks and self._exclusive[s]):
                kept[members] = 0
        for members in reversed(self._members):  # after a drop not all of them can stay
            if fits(snapshot, kept):
                break
            kept[members] = 0
        return kept


def fits(snapshot: Snapshot, fleet: np.ndarray) -> bool:
    """Check that pools and budget allow a fleet (C,)."""
    gpus = snapshot.gpu_use @ fleet
    return bool(np.all(gpus <= snapshot.available_gpus) and fleet @ snapshot.hold_usd <= snapshot.budget_usd)


class Demand:
    """What a window's demand asks for at a target utilisation."""

    def __init__(self, snapshot: Snapshot, target_utilization: float):
        self.snapshot = snapshot
        #: Replicas that each workload asks for of each configuration, by resource: (3, I, C).
        self.replicas = snapshot.replicas_needed(target_utilization)
        self.penalty_usd = slo_penalty_usd(snapshot)
        self.slot_of = np.empty(snapshot.hold_usd.size, dtype=np.int64)
        for s, members in enumerate(snapshot.instance.slot_members):
            self.slot_of[list(members)] = s
        self.exclusive = [slot.exclusive for slot in snapshot.instance.slots]
        #: Workloads in the order in which they are placed, each with its configurations, the best first.
        self.rankings = [
            (int(i), self._ranking(int(i))) for i in priority(snapshot.instance) if snapshot.rate_rps[i] > 0
        ]

    def fleet(self, kept: np.ndarray) -> np.ndarray:
        """Return the replicas wanted, int64 (C,), where replicas `kept` (C,) stay anyway."""
        snapshot = self.snapshot
        self.used = np.zeros((3, kept.size))  # replicas that are in use
        self.count = kept.copy()
        self.gpus_left = snapshot.available_gpus - snapshot.gpu_use @ kept
        self.usd_left = snapshot.budget_usd - float(kept @ snapshot.hold_usd)
        #: Configuration of each slot in use; matters for exclusive ones.
        self.chosen = {int(self.slot_of[c]): int(c) for c in np.flatnonzero(kept)}
        for i, ranking in self.rankings:
            self._assign(i, ranking)
        return self.count

    def _assign(self, i: int, ranking: np.ndarray) -> None:
        """Spread workload i over configurations, the cheapest first, until all of it is placed."""
        left = 1.0
        for c in ranking[self._may_serve()[ranking]]:
            if left <= TINY:
                break
            slot = int(self.slot_of[c])
            if self.exclusive[slot] and self.chosen.get(slot, c) != c:
                continue
            share = self._take(i, int(c), left)
            if share > 0.0 and self.exclusive[slot]:
                self.chosen[slot] = int(c)
            left -= share

    def _may_serve(self) -> np.ndarray:
        """Return which configurations (C,) run, or could have a first replica: all others have nothing to give."""
        s = self.snapshot
        fits = np.all(s.gpu_use <= self.gpus_left[:, None], axis=0) & (s.hold_usd <= self.usd_left)
        return fits | (self.count > 0)

    def _ranking(self, i: int) -> np.ndarray:
        """Return the configurations that can serve workload i, by SLO penalty, then cost per request."""
        s, penalty = self.snapshot, self.penalty_usd[i]
        need = self.replicas[:, i].max(axis=0)
        with np.errstate(invalid="ignore"):
            cost = need * s.hold_usd + s.route_usd[i] + penalty
        order = np.lexsort((cost, penalty > 0))
        # A penalty above that of not serving is worse than nothing.
        usable = s.compatible[i] & np.isfinite(need) & (penalty < s.unserved_usd[i])
        return order[usable[order]]

    def _take(self, i: int, c: int, share: float) -> float:
        """Add replicas of c for a share of workload i, as many as can be had; return the share that fits."""
        need = self.replicas[:, i, c]
        wanted = int(np.ceil((self.used[:, c] + share * need).max() - TINY))
        self._grow(c, max(0, wanted - int(self.count[c])))
        room = self.count[c] - self.used[:, c]
        loaded = need > 0.0
        if loaded.any():
            share = min(share, max(0.0, float((room[loaded] / need[loaded]).min())))
        elif self.count[c] == 0:
            self._grow(c, 1)
            share *= float(self.count[c])
        self.used[:, c] += share * need
        return share

    def _grow(self, c: int, extra: int) -> None:
        """Add up to `extra` replicas of c within its own limit, its pools and the budget."""
        s = self.snapshot
        extra = min(extra, int(s.max_replicas[c] - self.count[c]))
        if extra == 0:
            return
        uses = s.gpu_use[:, c] > 0
        extra = min(extra, int((self.gpus_left[uses] // s.gpu_use[uses, c]).min()))
        if s.hold_usd[c] > 0.0 and np.isfinite(self.usd_left):
            extra = min(extra, int(self.usd_left // s.hold_usd[c]))
        self.count[c] += extra
        self.gpus_left -= extra * s.gpu_use[:, c]
        self.usd_left -= extra * s.hold_usd[c]


autoscale = AutoscaleAgent
