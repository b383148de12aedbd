"""Play Knative's autoscaler: replicas follow the requests in flight, with a panic mode for bursts.

Source: Knative Serving, *Autoscaling* and *KPA-specific configuration*
(https://knative.dev/docs/serving/autoscaling/): replicas = ceil(concurrency / (target x limit)), concurrency being a
mean over a stable window of 60 s. Where the mean of a panic window of 6 s asks for twice the replicas that are ready,
that mean counts, and nothing shrinks until a stable window has passed without. KEDA's rule for a concurrency metric
(https://keda.sh/docs/) is the same without the panic. Adapted:

- A revision is a model of `fleetgym.baselines.services`; its limit is what the configuration's queue servers and KV
  memory hold. It is scaled on its cheapest configuration, and on the next one where pools or the budget have no room.
- Demand is known by windows, of which the shortest here is longer than Knative's two. So the panic mean is the last
  window's, the stable one that of `stable_windows`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import View
from fleetgym.planning import at_least, positive_share, whole_at_least

from .services import Room, Services, supply


class Knative:
    """Knative's autoscaler: replicas for a share of the requests that they may have in flight.

    Parameters
    ----------
    target : float
        Share of a replica's queue servers and KV memory to plan for, in (0, 1].
    stable_windows : int
        Windows that concurrency is averaged over; so long a panic lasts after its last reason.
    panic_threshold : float
        Ratio of replicas needed in the last window to ready ones at which a panic begins.
    delay_windows : int
        Windows before, in one of which a replica was wanted that stays.

    Raises
    ------
    FleetgymError
        For a number out of range.
    """

    def __init__(
        self,
        target: float = 0.7,
        stable_windows: int = 1,
        panic_threshold: float = 2.0,
        delay_windows: int = 0,
    ):
        positive_share(target=target)
        whole_at_least(1, stable_windows=stable_windows)
        whole_at_least(0, delay_windows=delay_windows)
        at_least(1, panic_threshold=panic_threshold)
        self.target, self.stable_windows = target, stable_windows
        self.panic_threshold, self.delay_windows = panic_threshold, delay_windows

    def reset(self, view: View, *, seed: int) -> None:
        """Forget the last episode."""
        self.view, self.services = view, Services(view.instance)
        self.rates: deque[np.ndarray] = deque(maxlen=self.stable_windows)
        self.wanted: deque[np.ndarray] = deque(maxlen=self.delay_windows)
        self.calm = np.full(
            len(self.services.workloads), self.stable_windows
        )  # windows since a reason to panic
        #: Requests in flight are all that counts: compute limits no replica.
        self.shares = np.array([np.inf, self.target, self.target]).reshape(3, 1, 1)

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        view, services = self.view, self.services
        last = view.snapshot()
        self.rates.append(last.rate_rps)
        loads = services.loads(view.snapshot(rate_rps=np.mean(self.rates, axis=0)), self.shares)
        burst = services.loads(last, self.shares)
        orders = services.orders(last, loads)
        recent = np.max(self.wanted, axis=0) if self.wanted else np.zeros_like(view.fleet)
        kept = np.minimum(view.fleet, recent)
        for s, variants in enumerate(services.variants):
            ready = supply(view.running, burst[s])
            self.calm[s] = 0 if ready * self.panic_threshold <= 1.0 else self.calm[s] + 1
            if self.calm[s] < self.stable_windows and ready > 0:
                kept[variants], loads[s] = view.fleet[variants], burst[s]
        room, wanted = Room(last, kept), Room(last, np.zeros_like(kept))
        for order, load in zip(orders, loads, strict=True):
            wanted.grow(order, load, 1.0)
            room.grow(order, load, 1.0 - supply(room.fleet, load))
        self.wanted.append(wanted.fleet)
        return view.fleet_to_action(room.fleet)
