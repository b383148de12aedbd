"""Play TokenScale: nodes for the tokens that arrive over the tokens that a node gets through, and a reserve for bursts.

Source: Lai et al., "TokenScale: timely and accurate autoscaling for disaggregated LLM serving with token velocity"
(arXiv 2512.03416). A node's *velocity* is the most tokens per second that it gets through: a prompt node's follows from
its computing, a token node's from how fast its memory gets free. For each kind, the nodes wanted are arriving tokens
over velocity, by classes of prompt and output length. That is known before queues form. Some token nodes, the
*convertible decoders*, also process prompts while a burst lasts and others start.
Adapted:

- Prompt and token nodes come as split replicas. So a replica gets through what the slower of its kinds does, and which
  ratio of nodes is added is chosen anew in each window: the one that serves the model's present lengths cheapest.
- Velocities are those of the instance's resources: computing for prompts; KV memory and requests at once for tokens.
  Deadlines are kept at these. Workloads are the classes. The network between nodes is never the slowest.
- Convertible decoders are replicas of both phases. A share of demand stays with them, where the
  model has such. The share is assumed: the rules were read in summaries of the paper.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import View
from fleetgym.planning import at_least

from .services import Room, Services, safe_shares, supply

#: Ids of configurations that have separate nodes for prompts and tokens.
SPLIT = ":split"


class TokenScale:
    """Replicas by token velocity, with convertible decoders.

    Parameters
    ----------
    convertible : float
        Share of demand that replicas of both phases hold in reserve.

    Raises
    ------
    FleetgymError
        For a share below 0.
    """

    def __init__(self, convertible: float = 0.1):
        at_least(0, convertible=convertible)
        self.convertible = convertible

    def reset(self, view: View, *, seed: int) -> None:
        """Find the models and their replicas of both phases."""
        self.view, self.services = view, Services(view.instance)
        self.is_both = np.array([SPLIT not in c.id for c in view.instance.configurations])

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        view, services = self.view, self.services
        snapshot = view.snapshot()
        loads = services.loads(snapshot, safe_shares(snapshot, view.fleet))
        orders = services.orders(snapshot, loads)
        room = Room(snapshot, services.own(view.fleet))
        wanted = 1.0 + self.convertible
        for order, load in zip(orders, loads, strict=True):
            surplus = supply(room.fleet, load) - wanted
            both, split = order[self.is_both[order]], order[~self.is_both[order]]
            room.shrink(split[::-1], load, surplus)
            spare = supply(np.where(self.is_both, room.fleet, 0), load) - self.convertible
            room.shrink(both[::-1], load, min(supply(room.fleet, load) - wanted, spare))
        for order, load in zip(orders, loads, strict=True):
            reserve = supply(np.where(self.is_both, room.fleet, 0), load)
            room.grow(order[self.is_both[order]], load, self.convertible - reserve)
            room.grow(order, load, wanted - supply(room.fleet, load))
        return view.fleet_to_action(room.fleet)
