"""Sample the coming conditions given the observed ones: many paths of windows in one call."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgym.agents.arguments import whole_at_least
from fleetgym.agents.beliefs.availability import ConstantAvailability, DropsBelief
from fleetgym.agents.beliefs.demand import demand_belief
from fleetgym.agents.beliefs.lengths import FactorsBelief, LengthsBelief
from fleetgym.files.errors import FleetgymError
from fleetgym.model.conditions import Conditions
from fleetgym.model.library import InstanceSource, load_instance


class Paths(NamedTuple):
    """Conditions of P paths of W windows; I workloads, G pools.

    Attributes
    ----------
    workload : ndarray, shape (P, W, 5, I)
        Rates and factors, in the order of `Conditions.WORKLOAD_FIELDS`.
    available : ndarray of int64, shape (P, W, G)
        GPUs.
    price : ndarray, shape (P, W, G)
        Factors on list prices.
    weight : ndarray, shape (P,)
        Probabilities of the paths; they sum to one.
    """

    workload: np.ndarray
    available: np.ndarray
    price: np.ndarray
    weight: np.ndarray

    def conditions(self, path: int, window: int) -> Conditions:
        """Return one window of one path."""
        at = (path, window)
        rows = (*self.workload[at], self.available[at], self.price[at])
        return Conditions(**dict(zip(Conditions.FIELDS, rows, strict=True)))

    def mean(self, of: np.ndarray) -> np.ndarray:
        """Return the weighted mean over the paths, the same on every processor.

        It is summed path by path. BLAS would sum in an order of its own, which decides ties.

        Parameters
        ----------
        of : ndarray, shape (P, ...)

        Returns
        -------
        ndarray, shape (...)

        Examples
        --------
        >>> import numpy as np
        >>> paths = Paths(*[np.empty(0)] * 3, weight=np.array([0.25, 0.75]))
        >>> paths.mean(np.array([[4.0, 0.0], [8.0, 4.0]])).tolist()
        [7.0, 3.0]
        """
        return (self.weight.reshape(-1, *[1] * (of.ndim - 1)) * of).sum(axis=0)


class Belief:
    """Sample the coming windows, given the past ones.

    It uses public information only: the kinds of the instance's processes, their parameters, and the history.

    Parameters
    ----------
    instance : Instance, str or path-like
        The problem, its id or its file.

    Attributes
    ----------
    window : int
        The window seen last; -1 before any.

    Examples
    --------
    >>> import numpy as np, fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> belief = fleetgym.Belief(instance)
    >>> belief.update(0, fleetgym.Conditions.nominal(instance))
    >>> paths = belief.sample(8, 5, np.random.default_rng(0))
    >>> paths.workload.shape, paths.available.shape, round(float(paths.weight.sum()), 9)
    ((8, 5, 5, 1), (8, 5, 2), 1.0)
    """

    def __init__(self, instance: InstanceSource):
        self.instance = instance = load_instance(instance)
        dynamics, self.window = instance.dynamics, -1
        self._demand = demand_belief(instance)
        self._lengths, self._factors = LengthsBelief(instance), FactorsBelief(instance)
        drops = dynamics.availability.kind != "constant"
        self._availability = DropsBelief(instance) if drops else ConstantAvailability(instance)
        self._price = np.ones(instance.num_pools)

    def update(self, window: int, conditions: Conditions) -> None:
        """Record an observed window.

        Parameters
        ----------
        window : int
            The window after the last recorded one.
        conditions : Conditions
            As `View.conditions` shows them.

        Raises
        ------
        FleetgymError
            For another window.
        """
        if window != self.window + 1:
            raise FleetgymError(
                f"window is {window}; expected {self.window + 1}, which follows what was seen"
            )
        self.window = window
        self._demand.update(conditions.rate_rps)
        self._lengths.update(np.array([conditions.input_scale, conditions.output_scale]))
        self._availability.update(conditions.available_gpus)
        self._price = np.array(conditions.price_factor)

    def sample(self, paths: int, windows: int, rng: np.random.Generator) -> Paths:
        """Return sampled paths of the coming windows.

        Paths come in pairs with opposite random numbers, and are spread evenly over what may be now, so a few of them
        have about the mean of many. Generators in the same state give paths that change little between windows.

        Parameters
        ----------
        paths, windows : int
            How many.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        Paths
            Named tuple of `workload` (P, W, 5, I), `available` (P, W, G), `price` (P, W, G) and `weight` (P,).

        Raises
        ------
        FleetgymError
            For a number below 1.
        """
        whole_at_least(1, paths=paths, windows=windows)
        streams = rng.spawn(4)
        workload = np.empty((paths, windows, 5, self.instance.num_workloads))
        workload[:, :, 0] = self._demand.sample(paths, windows, streams[0])
        workload[:, :, 1:3] = self._lengths.sample(paths, windows, streams[1])
        workload[:, :, 3:5] = self._factors.sample(paths, windows, streams[2])
        available, weight = self._availability.sample(paths, windows, streams[3])
        price = np.broadcast_to(self._price, available.shape).copy()
        return Paths(workload, available, price, weight)
