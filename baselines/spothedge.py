"""Play SpotHedge, the policy of SkyServe: spot replicas over zones with spares, and on-demand replicas meanwhile.

Source: Mao et al., "SkyServe: Serving AI Models across Regions and Clouds with Spot Instances", EuroSys 2025
(arXiv:2411.01438), section 3, with the delays of SkyPilot's documentation. The number N of replicas follows the load,
up after 300 s and down after 1,200 s. On spot, N and some more are wanted. A new one goes to the cheapest active zone
where the service has none, else to the cheapest active zone. A zone that takes or denies a replica is not active until
one of its replicas is ready; with fewer than two active zones all become active. On demand
run a base number, and as many as ready spot replicas fall short of N; they go when these are ready. Adapted:

- A service is a model of `fleetgym.baselines.services`. A zone is a spot pool, or several that a replica takes GPUs of
  at once; the service has one configuration in each, the cheapest.
- Zones have GPUs of different types. Replicas count by the requests that they can serve, in units of a replica in the
  cheapest zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import View
from fleetgym.planning import positive_share, whole_at_least

from .services import TINY, Room, Services


class SpotHedge:
    """SkyServe's SpotHedge: over-provisioned spot replicas, spread over zones, with a fallback on demand.

    Parameters
    ----------
    overprovision : int
        Spot replicas of a service beyond those that its load asks for.
    base : int
        Replicas of a service that run on demand at all times.
    target : float
        Share of a replica's compute, KV memory and queue servers that a request rate is set by, in (0, 1].
    up_windows, down_windows : int
        Windows in a row that ask for more or fewer replicas before N follows.

    Raises
    ------
    FleetgymError
        For a number out of range.
    """

    def __init__(
        self,
        overprovision: int = 1,
        base: int = 0,
        target: float = 0.8,
        up_windows: int = 1,
        down_windows: int = 4,
    ):
        whole_at_least(0, overprovision=overprovision, base=base)
        whole_at_least(1, up_windows=up_windows, down_windows=down_windows)
        positive_share(target=target)
        self.overprovision, self.base, self.target = overprovision, base, target
        self.up_windows, self.down_windows = up_windows, down_windows

    def reset(self, view: View, *, seed: int) -> None:
        """Find the zones, all of them active."""
        self.view, instance = view, view.instance
        self.services = Services(instance)
        uses = np.array(instance.gpu_use) > 0  # (G, C)
        on_spot = np.array([p.market == "spot" for p in instance.pools])
        self.is_spot = ~np.any(uses & ~on_spot[:, None], axis=0)
        self.is_on_demand = ~np.any(uses & on_spot[:, None], axis=0)
        self.zone = [tuple(np.flatnonzero(column)) for column in uses.T]
        count = len(self.services.workloads)
        self.replicas = np.zeros(count)  # N of each service; 0 before the first window
        self.above, self.below = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
        self.is_active: list[dict[tuple[int, ...], bool]] = [{} for _ in range(count)]
        self.running = view.running

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        view, snapshot = self.view, self.view.snapshot()
        loads = self.services.loads(snapshot, self.target)
        orders = self.services.orders(snapshot, loads)
        failed = (np.asarray(info["lost"]) > 0) | (np.asarray(info["denied"]) > 0)
        started = view.running > self.running
        self.running = view.running
        room = Room(snapshot, np.where(self.is_spot, self.services.own(view.fleet), 0))
        for s, (order, load) in enumerate(zip(orders, loads, strict=True)):
            zones = self._zones(order)
            self._judge(s, zones, failed, started)
            by_zone = [c for c in zones.values() if self.is_spot[c]]
            on_demand = [int(c) for c in order if self.is_on_demand[c]]
            kind = (by_zone or on_demand or [int(c) for c in order])[:1]
            if not kind or load[kind[0]] <= 0:  # nobody asks
                for c in order:
                    room.remove(int(c), int(room.fleet[c]))
                continue
            unit = 1.0 / load[kind[0]]  # the share of the demand that a replica in the cheapest zone serves
            wanted = self._follow(s, np.ceil(1.0 / unit - TINY))
            self._place(room, s, zones, load, (wanted + self.overprovision) * unit)
            ready = sum(min(view.running[c], room.fleet[c]) / load[c] for c in order if self.is_spot[c])
            room.grow(on_demand, load, self.base * unit + max(0.0, wanted * unit - ready))
        return view.fleet_to_action(room.fleet)

    def _zones(self, order: np.ndarray) -> dict[tuple[int, ...], int]:
        """Return the cheapest configuration of each spot zone, the cheapest zone first."""
        found: dict[tuple[int, ...], int] = {}
        for c in order:
            if self.is_spot[c]:
                found.setdefault(self.zone[c], int(c))
        return found

    def _judge(
        self, s: int, zones: dict[tuple[int, ...], int], failed: np.ndarray, started: np.ndarray
    ) -> None:
        """Note which zones of a service are active."""
        active, variants = self.is_active[s], self.services.variants[s]
        for zone in zones:
            here = variants & np.array([z == zone for z in self.zone])
            was = active.get(zone, True)
            active[zone] = not np.any(failed & here) and (was or bool(np.any(started & here)))
        if sum(active[zone] for zone in zones) < 2:
            active.update(dict.fromkeys(zones, True))

    def _follow(self, s: int, load: float) -> float:
        """Return N, which follows the load's replicas after a delay."""
        now = self.replicas[s]
        self.above[s] = self.above[s] + 1 if load > now else 0
        self.below[s] = self.below[s] + 1 if load < now else 0
        if now == 0 or self.above[s] >= self.up_windows or self.below[s] >= self.down_windows:
            self.replicas[s], self.above[s], self.below[s] = load, 0, 0
        return float(self.replicas[s])

    def _place(
        self, room: Room, s: int, zones: dict[tuple[int, ...], int], load: np.ndarray, share: float
    ) -> None:
        """Let spot replicas serve a share of the demand: new ones by zones; the most expensive go first."""
        spot = [
            int(c) for c in np.flatnonzero(self.services.variants[s] & self.is_spot) if np.isfinite(load[c])
        ]
        missing = share - sum(room.fleet[c] / load[c] for c in spot)
        if missing < 0:
            by_cost = sorted(spot, key=lambda c: -load[c] * room.snapshot.hold_usd[c])
            room.shrink(by_cost, load, -missing)
        active = {zone: c for zone, c in zones.items() if self.is_active[s][zone]}
        unused = [
            c for zone, c in active.items() if not any(room.fleet[k] for k in spot if self.zone[k] == zone)
        ]
        for c in unused:
            if missing > TINY:
                missing -= room.add(c, 1) / load[c]
        room.grow(list(active.values()), load, missing)
