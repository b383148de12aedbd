"""Play NVIDIA Dynamo's planner: replicas for the predicted load that keep latencies, and a load-based rule above them.

Source: NVIDIA Dynamo, *Planner Design*
(https://docs.nvidia.com/dynamo/latest/design-docs/component-design/planner-design). Throughput-based scaling predicts
requests and lengths of the next interval (constant, ARIMA, Kalman or Prophet). It divides them by what a profiled
replica does while time to first token and between tokens hold. That is the least of what load-based scaling may set:
one replica more while the engines are above their target, one less while the others could take over with some slack.
The GPU budget comes last. Adapted:

- An engine is a model of `fleetgym.baselines.services` in its cheapest configuration, and in the next one where pools
  have no room. Prefill and decode share replicas.
- A replica's profile is its compute, its KV memory, and its queue servers at their safe utilisation, at which hardly
  any request is late.
- The correction factor, observed latency over that of the profile, is in the delays that the last window had.
- Load-based scaling looks every few seconds, so that a window has room for several of its changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import View
from fleetgym.planning import make_forecaster, positive_share, whole_at_least

from .services import TINY, Room, Services, safe_shares, supply


class Dynamo:
    """NVIDIA Dynamo's planner: a prediction is the floor, the load seen last moves replicas above it.

    Parameters
    ----------
    forecaster : str
        Name of a forecaster.
    every : int
        Windows between two predictions.
    sensitivity : float
        A replica goes if the others would have at most this share of the load that they may have, in (0, 1].
    most_changes : int
        Replicas of a model that come or go by load in a window at most.

    Raises
    ------
    UnknownNameError
        If there is no such forecaster.
    FleetgymError
        For a number out of range.
    """

    def __init__(
        self, forecaster: str = "kalman", every: int = 1, sensitivity: float = 0.8, most_changes: int = 8
    ):
        whole_at_least(1, every=every)
        whole_at_least(0, most_changes=most_changes)
        positive_share(sensitivity=sensitivity)
        self.forecaster = make_forecaster(forecaster)
        self.every, self.sensitivity, self.most_changes = every, sensitivity, most_changes

    def reset(self, view: View, *, seed: int) -> None:
        """Study the history."""
        self.view, instance = view, view.instance
        self.services = Services(instance)
        self.forecaster.reset(instance)
        wait = max(c.startup_windows for c in instance.configurations)
        self.ahead = instance.lead + wait  # what starts now serves then
        self.floor_rps = view.conditions.rate_rps

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        view, services = self.view, self.services
        if view.window > 0 or view.instance.lead == 0:
            self.forecaster.update(np.asarray(info["rate_rps"], dtype=float))
        if self.ahead and view.window % self.every == 0:
            self.floor_rps = self.forecaster.predict(self.ahead)
        snapshot = view.snapshot()
        shares = safe_shares(snapshot, view.fleet)
        seen = services.loads(snapshot, shares)
        floor = services.loads(view.snapshot(rate_rps=self.floor_rps), shares) if self.ahead else seen
        orders = services.orders(snapshot, floor)
        room = Room(snapshot, services.own(view.fleet))
        for order, load, least in zip(orders, seen, floor, strict=True):
            self._scale_down(room, order[::-1], load, least)
        for order, load, least in zip(orders, seen, floor, strict=True):
            for _ in range(self.most_changes):
                if supply(room.fleet, load) >= 1.0 or not any(room.add(int(c), 1) for c in order):
                    break
            room.grow(order, least, 1.0 - supply(room.fleet, least))
        return view.fleet_to_action(room.fleet)

    def _scale_down(self, room: Room, order: np.ndarray, load: np.ndarray, least: np.ndarray) -> None:
        """Remove replicas, the most expensive first, while the others have slack for the load, and the floor stays."""
        changes = self.most_changes
        for c in order:
            spare = float(changes)
            for part, kept in ((load, 1.0 / self.sensitivity), (least, 1.0)):
                if part[c] > 0:  # a part without demand asks for nothing
                    spare = min(spare, (supply(room.fleet, part) - kept) * part[c] + TINY)
            changes -= room.remove(int(c), int(max(0.0, spare)))
