"""Play llm-d's workload variant autoscaler: tokens in demand against tokens that the variants of a model hold.

Source: llm-d, *Workload Variant Autoscaling*, the saturation analyzer
(https://llm-d.ai/docs/architecture/advanced/autoscaling/workload-variant-autoscaling, defaults of version 0.9). The
capacity of a replica is the smaller of its KV memory, filled to a threshold, and what it computes. Where demand exceeds
a share of the supply, replicas of the cheapest variant that has free GPUs are added; replicas that start count. Where
demand is below a lower share, replicas of the most expensive variant go. Each needs to last for 240 s. Adapted:

- Variants are the configurations of a model, see `fleetgym.baselines.services`. How cheap one is, is rent per request.
- What a replica computes includes the queue servers: they are its batch.
- The shortest window is longer than 240 s, so one is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import FleetgymError, View
from fleetgym.planning import positive_share, whole_at_least

from .services import Room, Services, supply


class LlmD:
    """llm-d's variant autoscaler: demand is held between two shares of the supply.

    Parameters
    ----------
    up, down : float
        Replicas are added where demand exceeds the share `up` of the supply, and go where it is
        below `down`; in (0, 1].
    kv : float
        Share of KV memory that may be filled, in (0, 1].
    stable_windows : int
        Windows in a row that ask for a change before it is made.

    Raises
    ------
    FleetgymError
        For a number out of range, or `down` above `up`.
    """

    def __init__(self, up: float = 0.85, down: float = 0.7, kv: float = 0.8, stable_windows: int = 1):
        positive_share(up=up, down=down, kv=kv)
        whole_at_least(1, stable_windows=stable_windows)
        if down > up:
            raise FleetgymError(f"down is {down!r}; expected at most up, which is {up!r}")
        self.up, self.down, self.kv, self.stable_windows = up, down, kv, stable_windows

    def reset(self, view: View, *, seed: int) -> None:
        """Forget the last episode."""
        self.view, self.services = view, Services(view.instance)
        self.shares = np.array([1.0, self.kv, 1.0]).reshape(3, 1, 1)
        self.short = np.zeros(len(self.services.workloads), dtype=np.int64)  # windows in a row
        self.spare = np.zeros_like(self.short)

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        view, services = self.view, self.services
        snapshot = view.snapshot()
        loads = services.loads(snapshot, self.shares)
        room = Room(snapshot, services.own(view.fleet))
        orders = services.orders(snapshot, loads)
        for s, (order, load) in enumerate(zip(orders, loads, strict=True)):
            held = supply(room.fleet, load)
            self.spare[s] = self.spare[s] + 1 if held > 1.0 / self.down else 0
            self.short[s] = self.short[s] + 1 if held < 1.0 / self.up else 0
            if self.spare[s] >= self.stable_windows:
                self.spare[s] = 0
                room.shrink(order[::-1], load, min(held - 1.0 / self.down, held))
        for s, (order, load) in enumerate(zip(orders, loads, strict=True)):
            if self.short[s] >= self.stable_windows:
                self.short[s] = 0
                room.grow(order, load, 1.0 / self.up - supply(room.fleet, load))
        return view.fleet_to_action(room.fleet)
