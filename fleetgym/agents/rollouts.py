"""Compute the costs of targets over paths, with work space for the configurations in use."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetgym.agents.beliefs.belief import Paths
from fleetgym.kernels.pricing import Prices, new_prices, price_targets
from fleetgym.kernels.rollouts import new_recall, new_track, play_targets
from fleetgym.model.packing import restricted
from fleetgym.model.window import FleetState, Router, WindowModel


class Rollouts:
    """Plays targets over paths from some state, with what it remembers of others.

    Only the configurations that were held or wanted so far are in play: few of those that an instance offers.

    Parameters
    ----------
    model : WindowModel
        The instance.
    """

    def __init__(self, model: WindowModel):
        self._model = model
        self._members = np.zeros(0, dtype=np.int64)
        self._others = np.arange(model.instance.num_configurations)
        self._router: Router | None = None
        self._shape = (0, 0)
        self._prices: Prices | None = None
        pools = model.instance.num_pools
        self._used, self._rent_usd = np.zeros(pools, dtype=np.int64), np.zeros(pools)

    def play(
        self,
        targets: np.ndarray,
        paths: Paths,
        weight: np.ndarray,
        state: FleetState,
        windows: int,
        limit_usd: float,
    ) -> np.ndarray:
        """Return what targets cost, (n,) USD; the arguments are those of `View.rollout`, and right.

        Parameters
        ----------
        targets : ndarray of int64, shape (n, C)
        paths : Paths
        weight : ndarray, shape (P,)
        state : FleetState
            Before the first window.
        windows : int
            Of each path that are played.
        limit_usd : float
        """
        fleet, played = self._prepare(targets, paths, weight, state, windows)
        usd = np.empty(len(targets))
        status = play_targets(
            *(*played, fleet, limit_usd, self._track, np.empty_like(fleet)),
            *(self._used, self._rent_usd, usd),
        )
        self._model.check(status)
        return usd

    def estimate(
        self, targets: np.ndarray, paths: Paths, weight: np.ndarray, state: FleetState, windows: int
    ) -> np.ndarray:
        """Return what the first target costs, and estimates of the others, (n,) USD; arguments as of `play`."""
        fleet, played = self._prepare(targets, paths, weight, state, windows)
        if self._prices is None:
            self._prices = new_prices(*self._shape, len(self._members))
        usd = np.empty(len(targets))
        status = price_targets(*played, fleet, np.empty_like(fleet), self._prices, usd)
        self._model.check(status)
        return usd

    def _prepare(
        self, targets: np.ndarray, paths: Paths, weight: np.ndarray, state: FleetState, windows: int
    ) -> tuple[np.ndarray, tuple[Any, ...]]:
        """Return the state, and the arguments of a kernel before it, of the configurations in play."""
        router = self._make_room(targets, state.replicas, (len(weight), windows))
        # Copies: kernels are not compiled for arrays that cannot be written to.
        played = (
            router.packed.words,
            self._recall.words,
            np.array(paths.workload[:, :windows], dtype=np.float64, order="C"),
            np.array(paths.available[:, :windows], dtype=np.int64, order="C"),
            np.array(paths.price[:, :windows], dtype=np.float64, order="C"),
            weight,
            np.ascontiguousarray(targets[:, self._members]),
            state.window == 0,
            state.spent_usd,
        )
        return state.replicas[self._members], played

    def _make_room(self, targets: np.ndarray, replicas: np.ndarray, shape: tuple[int, int]) -> Router:
        """Return the work space, a new one for further configurations or another shape of the paths."""
        others = self._others
        if self._router is None or targets[:, others].any() or replicas[others].any():
            in_play = np.any(targets, axis=0)
            in_play |= np.any(replicas, axis=1)
            in_play[self._members] = True
            self._members, self._others = np.flatnonzero(in_play), np.flatnonzero(~in_play)
            self._router, self._shape = Router(restricted(self._model.problem, self._members)), (0, 0)
        if shape != self._shape:
            self._shape = shape
            workloads = self._model.instance.num_workloads
            self._recall = new_recall(*shape, self._router.memory, workloads)
            self._track = new_track(shape[1], replicas[self._members])
            self._prices = None
        return self._router
