"""Play the throughput scaling of NVIDIA Dynamo's planner alone: replicas for the load predicted, and nothing else.

Source: NVIDIA Dynamo 1.6.1, ``dynamo.planner.core.throughput_scaling``. Each interval it divides the requests that
Kalman's filter predicts for the next one by what a replica serves while its latencies hold, and rounds up. There is
no reserve for queues, no look beyond the next interval, and no rule by load. ``examples/nvidia_planner.py`` plays
NVIDIA's own classes; `fleetgym.baselines.dynamo` adds what it takes to keep deadlines where replicas start slowly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import View

from .dynamo import Dynamo
from .services import Room


class DynamoPlanner(Dynamo):
    """NVIDIA Dynamo's throughput scaling: the predicted load over a replica's rate, one interval ahead.

    Parameters
    ----------
    forecaster : str
        Name of a forecaster.

    Raises
    ------
    UnknownNameError
        If there is no such forecaster.
    """

    def __init__(self, forecaster: str = "kalman"):
        super().__init__(forecaster, most_changes=0)

    def reset(self, view: View, *, seed: int) -> None:
        """Study the history; look one interval ahead, whatever starting takes."""
        super().reset(view, seed=seed)
        self.ahead = 1

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        view, services = self.view, self.services
        if view.window > 0 or view.instance.lead == 0:
            self.forecaster.update(np.asarray(info["rate_rps"], dtype=float))
        snapshot = view.snapshot(rate_rps=self.forecaster.predict(self.ahead))
        loads = services.loads(snapshot)
        room = Room(snapshot, np.zeros(len(view.instance.configurations), dtype=np.int64))
        for order, load in zip(services.orders(snapshot, loads), loads, strict=True):
            room.grow(order, load, 1.0)
        return view.fleet_to_action(room.fleet)
