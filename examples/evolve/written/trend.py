"""Follow a smoothed rate and its trend to the window in which a new replica would serve."""

import numpy as np

from fleetgym.planning import FleetSizer


class Agent:
    """Smooth rates by Holt's method, and keep capacity between two margins of the forecast."""

    def reset(self, view, *, seed):
        """Prepare."""
        self.view, self.sizer = view, FleetSizer(view.instance)
        self.ahead = 1 + max(c.startup_windows for c in view.instance.configurations)
        self.level = np.array([workload.rate_rps for workload in view.instance.workloads])
        self.trend = np.zeros_like(self.level)

    def act(self, observation, info):
        """Return the action of this window."""
        level = 0.5 * self.view.conditions.rate_rps + 0.5 * (self.level + self.trend)
        self.trend = 0.8 * self.trend + 0.2 * (level - self.level)
        self.level = level
        rates = np.maximum(0.0, level + self.ahead * self.trend)
        target = self.sizer.target(self.view, rates, 1.05, 1.15, budget_usd=self.view.budget_left_usd)
        return self.view.fleet_to_action(target)
