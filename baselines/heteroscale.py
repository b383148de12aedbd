"""Play HeteroScale: prompt and token nodes scale together, in proportion to the tokens that are decoded.

Source: Li et al., "Taming the chaos: coordinated autoscaling for heterogeneous and disaggregated LLM inference"
(arXiv 2508.19559). Of eight signals that were studied in production, decoded tokens per second follow load best. So
the nodes wanted are those tokens over the tokens that a node should decode. Both kinds of nodes keep their ratio,
which experiments have found. Nothing moves while the wanted number is within a tolerance of the present one. Latency
is a second signal: where it breaks its limit, all grow by a fixed share.
Adapted:

- A group of prompt and token nodes with its ratio is a split replica; where a model has none, any replica. The ratio is
  that of the replica which serves nominal demand cheapest, and stays. Pools without room pass on to the next one.
- Tokens that a replica should decode are those at which it keeps deadlines at nominal lengths, times `target`.
- Requests that miss their deadline stand for latency. Tolerances are assumed: the rules were read in
  summaries of the paper.
- Its scheduler places nodes near each other in the network. A replica here is already such a group.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import View
from fleetgym.planning import above, at_least, positive_share, whole_at_least

from .services import TINY, Room, Services, safe_shares, supply


class HeteroScale:
    """Replicas in proportion to the tokens decoded.

    Parameters
    ----------
    target : float
        Share of the tokens that a replica may decode, in (0, 1].
    tolerance : float
        Relative distance from the wanted number within which nothing moves.
    late : float
        Share of a model's requests that may miss their deadline before it grows.
    growth : float
        By which share it grows then.
    calm_windows : int
        Windows after growth in which nothing shrinks.

    Raises
    ------
    FleetgymError
        For a number out of range.
    """

    def __init__(
        self,
        target: float = 0.85,
        tolerance: float = 0.1,
        late: float = 0.05,
        growth: float = 0.2,
        calm_windows: int = 1,
    ):
        positive_share(target=target)
        at_least(0, tolerance=tolerance, late=late)
        above(0, growth=growth)
        whole_at_least(0, calm_windows=calm_windows)
        self.target, self.tolerance, self.late = target, tolerance, late
        self.growth, self.calm_windows = growth, calm_windows

    def reset(self, view: View, *, seed: int) -> None:
        """Find each model's ratio, and what its replicas decode."""
        self.view, self.services = view, Services(view.instance)
        workloads, snapshot = view.instance.workloads, View(view.instance).snapshot()  # of nominal demand
        loads = self.services.loads(snapshot, safe_shares(snapshot, view.fleet))
        self.orders = self.services.orders(snapshot, loads)
        self.output_tokens = np.array([w.output_tokens for w in workloads])
        nominal = self._decoded(self.output_tokens * [w.rate_rps for w in workloads])
        #: Replicas of each configuration for a token per second of its model, (services, C).
        self.replicas = loads / nominal[:, None] / self.target
        self.calm = np.zeros(len(self.orders), dtype=np.int64)

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        view, services = self.view, self.services
        snapshot, rates, scale = view.snapshot(), view.conditions.rate_rps, view.conditions.output_scale
        loads = self.replicas * self._decoded(self.output_tokens * scale * rates)[:, None]
        missed = np.asarray(info["miss_share"])
        room = Room(snapshot, services.own(view.fleet))
        growing: list[tuple[int, float]] = []
        for s, numbers in enumerate(services.workloads):
            held = supply(room.fleet, loads[s])  # the present number over the wanted one
            late = float(missed[numbers] @ rates[numbers]) > self.late * float(rates[numbers].sum())
            self.calm[s] -= 1
            if late and 0.0 < held < np.inf and view.window > 0:
                growing.append((s, max(1.0 - held, self.growth * held)))
            elif held * (1.0 + self.tolerance) < 1.0:
                growing.append((s, 1.0 - held))
            elif held * (1.0 - self.tolerance) > 1.0 and self.calm[s] < 0:
                room.shrink(self.orders[s][::-1], loads[s], held - 1.0)
        for s, share in growing:
            self.calm[s] = self.calm_windows
            room.grow(self.orders[s], loads[s], share)
        return view.fleet_to_action(room.fleet)

    def _decoded(self, tokens_per_s: np.ndarray) -> np.ndarray:
        """Return the tokens per second of each service, (services,), from those of workloads; none is some."""
        return np.array([max(TINY, tokens_per_s[numbers].sum()) for numbers in self.services.workloads])
