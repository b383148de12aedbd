"""Choose the configurations worth considering: those that optima of sampled windows of the instance use."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from fleetgym import Conditions, Instance, Plan, Snapshot, View
from fleetgym.planning import draw_scenario, whole_at_least

from .milp import MilpPlanner


def sample_snapshots(instance: Instance, count: int, seed: int) -> list[Snapshot]:
    """Return the problems of evenly spaced windows of a sampled day.

    Parameters
    ----------
    instance : Instance
        Demand, availability, lengths and factors come from its public processes.
    count : int
        Number of windows.
    seed : int
        Random seed of the day.

    Returns
    -------
    list of Snapshot

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> [s.rate_rps.shape for s in sample_snapshots(instance, 2, seed=0)]
    [(1,), (1,)]
    """
    scenario, view = draw_scenario(instance, np.random.default_rng(seed)), View(instance)
    windows = np.arange(count) * instance.num_windows // count
    return [view.snapshot(conditions=Conditions.of(scenario, int(window))) for window in windows]


@functools.lru_cache(maxsize=16)
def useful_columns(instance: Instance, samples: int) -> tuple[int, ...]:
    """Return the configurations that cheap fleets hold, for the nominal window and sampled ones.

    Parameters
    ----------
    instance : Instance
    samples : int
        Number of sampled windows.

    Returns
    -------
    tuple of int
        Their indices, those of the nominal fleet among them. The fleets cost at most 2 % above the optimum, or are what
        one node of branch and bound finds.
    """
    planner = MilpPlanner(node_limit=1, gap=0.02)
    snapshots = [View(instance).snapshot(), *sample_snapshots(instance, samples, seed=0)]
    planner.prepare(snapshots[0])
    used = np.array(instance.nominal_fleet) > 0
    for snapshot in snapshots:
        used |= planner.plan(snapshot).fleet > 0
    return tuple(np.flatnonzero(used).tolist())


class ColumnPool:
    """A planner over few configurations, so that it can plan in every window.

    The configurations are chosen before the episode (see `useful_columns`), from the instance's public processes
    alone. An optimum may use others, so plans carry no bound.

    Parameters
    ----------
    planner : dataclass
        A planner with a field `allowed`, ndarray of bool (C,) or None.
    samples : int
        Number of sampled windows; 0 allows every configuration.
    """

    def __init__(self, planner: Any, samples: int = 0):
        whole_at_least(0, samples=samples)
        self.planner, self.samples = planner, samples
        self._instance: Instance | None = None

    def prepare(self, snapshot: Snapshot) -> None:
        """Choose the configurations and restrict the planner to them."""
        instance, allowed = snapshot.instance, self.planner.allowed
        chosen = np.full(instance.num_configurations, self.samples == 0)
        if self.samples > 0:
            chosen[list(useful_columns(instance, self.samples))] = True
        allowed = chosen if allowed is None else chosen & allowed
        self._instance, self._restricted = instance, dataclasses.replace(self.planner, allowed=allowed)
        self._restricted.prepare(snapshot)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the restricted planner's fleet."""
        if self._instance is not snapshot.instance:
            self.prepare(snapshot)
        return self._restricted.plan(snapshot)
