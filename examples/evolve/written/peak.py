"""Be ready for the highest demand of the last half hour."""

from collections import deque

import numpy as np

from fleetgym.planning import FleetSizer


class Agent:
    """Keep capacity for a moving maximum."""

    def reset(self, view, *, seed):
        """Prepare."""
        self.view, self.sizer = view, FleetSizer(view.instance)
        self.seen: deque[np.ndarray] = deque(maxlen=6)

    def act(self, observation, info):
        """Return the action of this window."""
        self.seen.append(np.array(self.view.conditions.rate_rps))
        target = self.sizer.target(
            self.view, np.max(self.seen, axis=0), 1.0, 1.1, budget_usd=self.view.budget_left_usd
        )
        return self.view.fleet_to_action(target)
