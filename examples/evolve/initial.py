"""Choose a fleet in every window: what the search begins with, and changes."""

import numpy as np

from fleetgym.planning import FleetSizer

# EVOLVE-BLOCK-START
LOWER, UPPER = 1.5, 2.0


class Agent:
    """Keep capacity between two multiples of the demand seen last."""

    def reset(self, view, *, seed):
        """Prepare."""
        self.view, self.sizer = view, FleetSizer(view.instance)

    def act(self, observation, info):
        """Return the action of this window."""
        rates = np.asarray(self.view.conditions.rate_rps)
        budget = self.view.budget_left_usd
        return self.view.fleet_to_action(self.sizer.target(self.view, rates, LOWER, UPPER, budget_usd=budget))


# EVOLVE-BLOCK-END
