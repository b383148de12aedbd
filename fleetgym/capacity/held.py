"""Compute the costs and SLO violations of static fleets on generated days."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgym.agents.view import View
from fleetgym.kernels.rollouts import hold_fleet
from fleetgym.kernels.window import new_memory
from fleetgym.model.conditions import Conditions
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.window import COST_TERMS, window_model

#: Columns of a day: the cost terms in USD, then the shares of the requests that are missed and unserved, and from
#: MISSED_OF on the share of each workload that is missed.
MISSED, UNSERVED, MISSED_OF = len(COST_TERMS), len(COST_TERMS) + 1, len(COST_TERMS) + 2


class HeldFleets:
    """Plays fleets that are held over one row of generated days, and remembers what it played.

    All fleets see equal days. Each day begins with the same fleet running, and ends after the instance's last window.

    Parameters
    ----------
    instance : Instance
        The problem.
    stream : sequence of int
        Day k is drawn from the generator ``[*stream, k]``.
    running : ndarray of int, shape (C,), optional
        What runs when a day begins. By default the fleet that is held, so nothing has to start.

    Examples
    --------
    >>> import fleetgym
    >>> held = HeldFleets(fleetgym.load_instance("fleet-v0/toy/drop"), [0])
    >>> held.days((2, 0), 3).shape
    (3, 11)
    """

    def __init__(self, instance: Instance, stream: Sequence[int], running: np.ndarray | None = None):
        self.instance, self._stream, self._running = instance, tuple(stream), running
        self._view, self._model = View(instance), window_model(instance)
        self._router = self._model.new_router()
        self._days: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._played: dict[tuple[int, ...], list[np.ndarray]] = {}

    def days(self, fleet: Sequence[int] | np.ndarray, days: int) -> np.ndarray:
        """Return the first `days` days of a fleet, (days, 10 + I); see `MISSED`.

        Raises
        ------
        FleetgymError
            If no action wants the fleet.
        """
        target = self._view.action_to_fleet(self._view.fleet_to_action(fleet))
        played = self._played.setdefault(tuple(target.tolist()), [])
        while len(played) < days:
            played.append(self._play(target, len(played)))
        return np.array(played[:days])

    def _play(self, target: np.ndarray, day: int) -> np.ndarray:
        while len(self._days) <= day:
            self._days.append(self._draw(len(self._days)))
        state = self._model.initial_state()
        state.replicas[:, 0] = target if self._running is None else self._running
        memory = new_memory(self.instance.num_workloads, self.instance.num_configurations)  # a day for itself
        terms_usd, requests = np.zeros(len(COST_TERMS)), np.zeros((3, self.instance.num_workloads))
        status = hold_fleet(
            self._router.packed.words,
            *memory,
            *self._days[day],
            np.array(target, dtype=np.int64),
            state.replicas,
            terms_usd,
            requests,
        )
        self._model.check(status)
        return np.append(terms_usd, shares(requests))

    def _draw(self, day: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        drawn = draw_scenario(self.instance, np.random.default_rng([*self._stream, day]))
        windows = [Conditions.of(drawn, t) for t in range(self.instance.num_windows)]
        return (
            np.array([w.stacked() for w in windows]),
            np.array([w.available_gpus for w in windows], dtype=np.int64),
            np.array([w.price_factor for w in windows]),
        )


def shares(requests: np.ndarray) -> np.ndarray:
    """Return which shares of a day's requests are missed and unserved, and are missed of each workload, (2 + I,).

    Parameters
    ----------
    requests : ndarray, shape (3, I)
        Requests missed, unserved, and all. Of none, nothing is missed.
    """
    missed, unserved, every = requests
    of_all = np.array([missed.sum(), unserved.sum(), *missed])
    total = np.array([every.sum(), every.sum(), *every])
    return np.where(total > 0.0, of_all / np.where(total > 0.0, total, 1.0), 0.0)
