"""From an instance to the few configurations worth considering: those that optima of windows like its own use."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from fleetgym import Conditions, Instance, Plan, Planner, Snapshot, View
from fleetgym.agents.arguments import whole_at_least
from fleetgym.model.dynamics import draw_scenario

from .milp import MilpPlanner


def sample_snapshots(instance: Instance, count: int, seed: int) -> list[Snapshot]:
    """Return the problems of windows of a day drawn from the instance's own processes, evenly spaced.

    Parameters
    ----------
    instance : Instance
        Its processes are public: demand, availability, lengths and factors are drawn from them.
    count : int
        How many.
    seed : int
        Of the draw.

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
def useful_columns(instance: Instance, samples: int, seed: int) -> tuple[int, ...]:
    """Return the configurations that cheap fleets hold, for the nominal window and some that are drawn.

    Parameters
    ----------
    instance : Instance
        The problem.
    samples : int
        Windows drawn.
    seed : int
        Of the draw.

    Returns
    -------
    tuple of int
        Their indices, those of the nominal fleet among them. The fleets cost at most 2 % above the optimum, or are what
        one node of branch and bound finds.
    """
    planner = MilpPlanner(node_limit=1, gap=0.02)
    snapshots = [View(instance).snapshot(), *sample_snapshots(instance, samples, seed)]
    planner.prepare(snapshots[0])
    used = np.array(instance.nominal_fleet) > 0
    for snapshot in snapshots:
        used |= planner.plan(snapshot).fleet > 0
    return tuple(np.flatnonzero(used).tolist())


class ColumnPool:
    """A planner over few configurations, so that it can plan in every window.

    Which ones is settled before the episode (see `useful_columns`), with the instance's public processes and nothing
    else. An optimum may use others: plans carry no bound.

    Parameters
    ----------
    make : callable
        Called with ``allowed``, ndarray of bool (C,), or without; returns the planner.
    samples : int
        Windows drawn; 0 allows every configuration.
    seed : int
        Of the draw.
    """

    def __init__(self, make: Callable[..., Planner], samples: int, seed: int = 0):
        whole_at_least(0, samples=samples)
        make()  # refuses wrong arguments now
        self._make, self.samples, self.seed = make, samples, seed
        self._instance: Instance | None = None

    def prepare(self, snapshot: Snapshot) -> None:
        """Choose the configurations and make the planner."""
        instance = snapshot.instance
        allowed = np.full(instance.num_configurations, self.samples == 0)
        if self.samples > 0:
            allowed[list(useful_columns(instance, self.samples, self.seed))] = True
        self._instance, self._planner = instance, self._make(allowed=allowed)
        if hasattr(self._planner, "prepare"):
            self._planner.prepare(snapshot)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the planner's fleet."""
        if self._instance is not snapshot.instance:
            self.prepare(snapshot)
        return self._planner.plan(snapshot)
