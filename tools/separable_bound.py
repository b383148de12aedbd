"""A task in; where its windows do not depend on each other, the sum of what each costs at least out.

`fleetgym.bounds.hindsight_bound` proves the same with a general program; the reference agent `milp` knows the problem,
and takes a twentieth of the time where there are hundreds of configurations.
"""

from __future__ import annotations

import numpy as np

from fleetgym.agents.view import View
from fleetgym.baselines.milp.milp_planner import MilpPlanner
from fleetgym.bounds.certificate import certified_usd
from fleetgym.bounds.hindsight import HindsightBound
from fleetgym.bounds.relaxation import relax
from fleetgym.bounds.window import Effort
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario


def separable_bound(
    instance: Instance, scenario: Scenario, *, effort: Effort | None = None
) -> HindsightBound | None:
    """Return a lower bound on the cost of an episode of which every window's fleet may be chosen anew.

    Parameters
    ----------
    instance, scenario : Instance, Scenario
        A task.
    effort : Effort, optional
        Of each window's branch and bound.

    Returns
    -------
    HindsightBound or None
        With the windows' fleets; None where something starts slowly, costs a fee, adds up or drains.

    Examples
    --------
    >>> import fleetgym
    >>> scenario, = fleetgym.load_scenarios("fleet-v0/toy/two-pools")
    >>> found = separable_bound(fleetgym.load_instance("fleet-v0/toy/two-pools"), scenario)
    >>> 13.9 < found.bound_usd <= 14.0
    True
    """
    problem = relax(instance, scenario)
    if not problem.is_separable or problem.drain_windows > 0:
        return None
    limits = effort or Effort()
    planner = MilpPlanner(gap=limits.relative_gap, node_limit=limits.nodes, late="omit")
    view = View(instance)
    planner.prepare(view.snapshot())
    conditions = [Conditions.of(scenario, window) for window in range(instance.num_windows)]
    plans = [planner.plan(view.snapshot(conditions=each)) for each in conditions]
    values = np.array([plan.bound_usd for plan in plans])
    serving = np.array([plan.fleet for plan in plans], dtype=float)
    return HindsightBound(certified_usd(values, 0.0, 0.0), serving, "windows")
