"""Plan the nominal window of an instance."""

from __future__ import annotations

from fleetgym.agents.registry import make_planner
from fleetgym.agents.view import View
from fleetgym.model.library import InstanceSource
from fleetgym.model.planning import Plan, Planner


def plan(instance: InstanceSource, planner: Planner | str = "agh") -> Plan:
    """Plan for an instance's nominal window, from its nominal fleet.

    Parameters
    ----------
    instance : Instance, str or path-like
        An instance, its id or its file.
    planner : Planner or str
        A planner, or the name of an agent that has one.

    Returns
    -------
    Plan
        The fleet, and what the planner knows about it.

    Raises
    ------
    DataError
        If no action leads to the planner's fleet.

    Examples
    --------
    >>> plan("fleet-v0/toy/drop", "gh").fleet.tolist()
    [2, 0]
    """
    solver = make_planner(planner) if isinstance(planner, str) else planner
    view = View(instance)
    found = solver.plan(view.snapshot())
    view.fleet_to_action(found.fleet)
    return found
