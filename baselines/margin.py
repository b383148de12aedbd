"""Play `margin`: each workload's capacity is kept between two margins, and a packer chooses the replicas.

Per workload the fleet is ready for `lower` times the forecast, and what is held stays while it is useful at `upper`
times the forecast. So small moves of the forecast move no replicas. Such are the two thresholds of a stock: Scarf
(1960), *The optimality of (S, s) policies in the dynamic inventory problem*.
Which replicas that takes, `fleetgym.agents.sizing.FleetSizer` says. Nothing is learned here;
`fleetgym.envs.wrappers.for_learning` lets a learner choose the margins instead.

Where a budget pays for the whole day, a window may cost `PACE` times the budget left per coming window.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import FleetgymError, View
from fleetgym.planning import (
    GAP,
    LOWER,
    PACE,
    PAYBACK_WINDOWS,
    RISK,
    FleetSizer,
    at_least,
    make_forecaster,
    whole_at_least,
)


class Margin:
    """Two margins per workload, with hysteresis.

    Parameters
    ----------
    lower : float
        Multiple of the forecast demand for which replicas are added.
    gap : float
        Replicas are kept while they are useful at ``lower + gap`` times the forecast demand.
    forecaster : str
        Name of a forecaster.
    payback_windows : int
        Windows in which a replica must pay for its start.
    risk : float
        How far queue servers are loaded, from 0 (hardly any request is late) to 1.

    Raises
    ------
    UnknownNameError
        If there is no such forecaster.
    FleetgymError
        For a number out of range.
    """

    def __init__(
        self,
        lower: float = LOWER,
        gap: float = GAP,
        forecaster: str = "kalman",
        payback_windows: int = PAYBACK_WINDOWS,
        risk: float = RISK,
    ):
        at_least(0, lower=lower, gap=gap, risk=risk)
        whole_at_least(1, payback_windows=payback_windows)
        if risk > 1:
            raise FleetgymError(f"risk is {risk!r}; expected at most 1")
        self.lower, self.upper, self.payback_windows, self.risk = lower, lower + gap, payback_windows, risk
        self.forecaster = make_forecaster(forecaster)

    def reset(self, view: View, *, seed: int) -> None:
        """Study the history."""
        self.view, instance = view, view.instance
        self.forecaster.reset(instance)
        self.sizer = FleetSizer(instance, self.risk)
        self.ahead = max(c.startup_windows for c in instance.configurations) + instance.lead
        self.paid_by_day = instance.budget is not None and instance.budget.kind == "pool"

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action whose fleet lies between the margins."""
        view = self.view
        if view.window > 0 or view.instance.lead == 0:
            self.forecaster.update(np.asarray(info["rate_rps"], dtype=float))
        left = view.instance.num_windows - view.window
        target = self.sizer.target(
            view,
            self.forecaster.predict(self.ahead) if self.ahead else view.conditions.rate_rps,
            self.lower,
            self.upper,
            budget_usd=view.budget_left_usd * (min(1.0, PACE / left) if self.paid_by_day else 1.0),
            payback_windows=min(self.payback_windows, left),
        )
        return view.fleet_to_action(target)
