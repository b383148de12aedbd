"""Add or remove one replica at a time while a window of the demand seen last gets cheaper."""

import numpy as np

from fleetgym import DataError


class Agent:
    """Search among neighbours of the running fleet."""

    def reset(self, view, *, seed):
        """Prepare."""
        self.view, self.eye = view, np.eye(view.instance.num_configurations, dtype=int)

    def act(self, observation, info):
        """Return the action of this window."""
        fleet, usd = self.view.fleet, self.usd(self.view.fleet)
        for _ in range(3):
            near = [fleet + sign * unit for unit in self.eye for sign in (1, -1)]
            costs = [self.usd(one) for one in near]
            if min(costs) >= usd:
                break
            fleet, usd = near[int(np.argmin(costs))], min(costs)
        return self.view.fleet_to_action(fleet)

    def usd(self, fleet):
        """Return what a window costs with a fleet, and a share of its starts."""
        try:
            steady = self.view.steady_cost_usd(fleet)
        except DataError:
            return np.inf
        starts = np.maximum(0, fleet - self.view.fleet) @ self.view.snapshot().startup_usd
        return steady + starts / 12.0
