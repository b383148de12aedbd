"""Play or price many windows of a known task in one call."""

from __future__ import annotations

import numpy as np

from fleetgym.kernels.rollouts import Track, new_recall, play_rollout, price_options
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import window_model

#: Serving fleets that are remembered for a window.
RECALLED = 64


class KnownScenario:
    """Plays and prices windows of one scenario, and counts them.

    Parameters
    ----------
    instance, scenario
        The task.

    Attributes
    ----------
    steps : int
        Windows played or routed so far.
    hold_usd : ndarray, shape (T, C)
        What one replica costs to hold in each window.
    start_usd : ndarray, shape (T, C)
        Fee and rent of one replica that starts to serve in each window; inf where it would have to be asked for before
        window 1. In window 0 replicas serve at once.
    """

    def __init__(self, instance: Instance, scenario: Scenario):
        self.instance, self.model = instance, window_model(instance)
        conditions = [Conditions.of(scenario, t) for t in range(instance.num_windows)]
        self.workload = np.array([each.stacked() for each in conditions])
        self.available = np.array([each.available_gpus for each in conditions])
        self.price = np.array([each.price_factor for each in conditions])
        self.hold_usd = np.array([self.model.hold_usd(factor) for factor in self.price])
        self.start_usd = self._start_usd()
        self.steps = 0
        self._router = self.model.new_router()
        self._recall = new_recall(
            1, instance.num_windows, self._router.memory, instance.num_workloads, RECALLED
        )

    def _start_usd(self) -> np.ndarray:
        paid = np.vstack([np.zeros(self.hold_usd.shape[1]), np.cumsum(self.hold_usd, axis=0)])
        windows, configurations = self.hold_usd.shape
        t, c = np.arange(windows)[:, None], np.arange(configurations)
        wait = np.where(t > 0, self.model.startup_windows, 0)
        usd = self.model.startup_usd + paid[t, c] - paid[np.maximum(0, t - wait), c]
        return np.where((wait > 0) & (t - wait < 1), np.inf, usd)

    def new_track(self) -> Track:
        """Return room for an episode, in the state before its first window."""
        count, state = self.instance.num_windows, self.model.initial_state()
        track = Track(
            fleet=np.zeros((count + 1, *state.replicas.shape), dtype=np.int64),
            spent_usd=np.zeros(count + 1),
            cost_usd=np.zeros(count),
            serving=np.zeros((count, self.instance.num_configurations), dtype=np.int64),
        )
        track.fleet[0], track.spent_usd[0] = state.replicas, state.spent_usd
        return track

    def play(self, target: np.ndarray, begin: int, end: int, limit_usd: float, old: Track, new: Track) -> int:
        """Play from window `begin` until the state is that of `old`, or the end, or a cost above `limit_usd`.

        Parameters
        ----------
        target : ndarray of int64, shape (T, C)
            Fleets wanted, other than those of `old` in [begin, end) only.
        begin, end : int
        limit_usd : float
        old, new : Track
            What happened then is read from `old`; what happens now is written to `new`.

        Returns
        -------
        int
            The first window that was not played.
        """
        status, stop = play_rollout(
            self._router.packed.words,
            self._recall.words,
            self.workload,
            self.available,
            self.price,
            np.ascontiguousarray(target),
            begin,
            end,
            limit_usd,
            old,
            new,
        )
        self.model.check(status)
        self.steps += stop - begin
        return int(stop)

    def price_options(
        self, begin: int, serving: np.ndarray, members: np.ndarray, option: np.ndarray, priced: np.ndarray
    ) -> np.ndarray:
        """Return what operating costs with other replicas of some configurations, (n, L).

        Parameters
        ----------
        begin : int
            First of n windows.
        serving : ndarray of int64, shape (n, C)
            Replicas that serve.
        members : ndarray of int64, shape (m,)
            Configurations whose replicas are replaced ...
        option : ndarray of int64, shape (n, L, m)
            ... by these.
        priced : ndarray of bool, shape (n, L)
            Which are asked for; the others cost infinitely much.
        """
        usd = np.where(priced, 0.0, np.inf)
        status = price_options(
            self._router.packed.words,
            self._recall.words,
            self.workload,
            self.available,
            self.price,
            begin,
            np.ascontiguousarray(serving),
            members,
            np.ascontiguousarray(option),
            usd,
        )
        self.model.check(status)
        self.steps += int(np.count_nonzero(priced))
        return usd
