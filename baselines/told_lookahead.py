"""Tell `lookahead` some of the windows to come: a reference for what knowing them is worth, not an agent."""

from __future__ import annotations

import copy

import numpy as np

from fleetgym import Conditions, Scenario
from fleetgym.planning import Paths

from .lookahead import Lookahead


class ToldLookahead(Lookahead):
    """Plan like `Lookahead`, with the first windows of every path replaced by those that come.

    Parameters
    ----------
    scenario : Scenario
        The day that is played.
    told : int
        How many windows are known. What follows them is drawn as if they had been seen.
    **settings
        Of `Lookahead`.
    """

    def __init__(self, scenario: Scenario, told: int, **settings: int):
        super().__init__(**settings)
        self.scenario, self.told = scenario, told

    def _paths(self) -> Paths:
        view = self.view
        windows = min(self.ahead, view.instance.num_windows - view.window)
        told = min(self.told, windows)
        if told == 0:
            return super()._paths()
        belief, true = copy.deepcopy(self.belief), []
        for t in range(view.window, view.window + told):
            conditions = Conditions.of(self.scenario, t)
            true.append(conditions.packed())
            if t > belief.window:
                belief.update(t, conditions)
        workload, available, price = (
            np.broadcast_to(np.array(rows), (self.paths, told, *rows[0].shape))
            for rows in zip(*true, strict=True)
        )
        if told == windows:
            return Paths(workload, available, price, np.full(self.paths, 1.0 / self.paths))
        drawn = belief.sample(self.paths, windows - told, np.random.default_rng(self.seed))
        return Paths(
            np.concatenate((workload, drawn.workload), axis=1),
            np.concatenate((available, drawn.available), axis=1),
            np.concatenate((price, drawn.price), axis=1),
            drawn.weight,
        )
