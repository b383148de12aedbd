"""Choose among a few packed fleets, and the running one, by playing them over drawn paths."""

import numpy as np

from fleetgym import Belief
from fleetgym.planning import FleetSizer

MARGINS = (0.9, 1.0, 1.1, 1.2)


class Agent:
    """Judge candidates by rollouts."""

    def reset(self, view, *, seed):
        """Prepare."""
        self.view, self.seed = view, seed
        self.belief, self.sizer = Belief(view.instance), FleetSizer(view.instance)

    def act(self, observation, info):
        """Return the action of this window."""
        view = self.view
        if view.window >= view.instance.lead:
            self.belief.update(view.window - view.instance.lead, view.conditions)
        paths = self.belief.sample(6, 6, np.random.default_rng(self.seed))
        rates = paths.workload[:, 2, 0].mean(axis=0)
        budget = view.budget_left_usd
        packed = [self.sizer.target(view, rates, m, m + 0.1, budget_usd=budget) for m in MARGINS]
        fleets = np.unique([view.fleet, *packed], axis=0)
        return view.fleet_to_action(fleets[int(np.argmin(view.rollout(fleets, paths)))])
