"""The planners of this package as agents: arguments of the planner and of its wrapper in, an agent out.

*Static* plans once for nominal demand and keeps the fleet, as the papers' 24-hour policies do; *rolling* plans again
every few windows on a forecast. Every planner gets the same wrapper with the same defaults.
"""

from __future__ import annotations

import inspect
from typing import Any

from baselines.agh import AdaptiveGreedyHeuristic
from baselines.gh import GreedyHeuristic
from baselines.homogeneous import HomogeneousPlanner
from fleetgym.agents import Rolling, Static
from fleetgym.planning import Planner

#: What `fleetgym.agents.Rolling` is told where nothing else is asked for.
ROLLING: dict[str, Any] = {
    "every": 6,
    "forecaster": "last",
    "margin": 0.1,
    "switch_cost": 2.0,
    "keep_best": True,
}


def _rolling(planner: type[Planner], arguments: dict[str, Any]) -> Rolling:
    """Sort the arguments: those of the wrapper go to the wrapper, the others to the planner."""
    names = set(inspect.signature(Rolling).parameters) - {"planner"}
    wrapper = {**ROLLING, **{name: arguments.pop(name) for name in names & set(arguments)}}
    return Rolling(planner(**arguments), **wrapper)


def gh(*, margin: float = 0.0, **rules: Any) -> Static:
    """Return GH, planning once; `rules` as for `baselines.gh.GreedyHeuristic`."""
    return Static(GreedyHeuristic(**rules), margin)


def gh_rolling(**arguments: Any) -> Rolling:
    """Return GH, planning again and again; arguments of `Rolling` and of `baselines.gh.GreedyHeuristic`."""
    return _rolling(GreedyHeuristic, arguments)


def agh(*, margin: float = 0.0, **rules: Any) -> Static:
    """Return AGH, planning once; `rules` as for `baselines.agh.AdaptiveGreedyHeuristic`."""
    return Static(AdaptiveGreedyHeuristic(**rules), margin)


def agh_rolling(**arguments: Any) -> Rolling:
    """Return AGH, planning again and again; arguments of `Rolling` and of the planner."""
    return _rolling(AdaptiveGreedyHeuristic, arguments)


def homogeneous(*, margin: float = 0.0, **arguments: Any) -> Static:
    """Return the best single GPU type, planning once; arguments as for `baselines.homogeneous`."""
    return Static(HomogeneousPlanner(**arguments), margin)


def homogeneous_rolling(**arguments: Any) -> Rolling:
    """Return the best single GPU type, planning again and again; arguments of `Rolling` and of the planner."""
    return _rolling(HomogeneousPlanner, arguments)
