"""The planners of this package as agents: arguments of the planner and of its wrapper in, an agent out.

*Static* plans once for nominal demand and keeps the fleet, as the papers' 24-hour policies do; *rolling* plans again
every few windows on a forecast. Every planner gets the same wrapper; where its arguments differ by default, the tables
here say so.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from baselines.agh import AdaptiveGreedyHeuristic
from baselines.best_forecaster import BestForecaster
from baselines.columns import ColumnPool
from baselines.gh import GreedyHeuristic
from baselines.homogeneous import HomogeneousPlanner
from baselines.milp import MilpPlanner
from baselines.newsvendor import NewsvendorForecaster
from baselines.saa import SaaPlanner
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


#: How the MILP is solved in an agent. Loading queue servers to their safe utilisation only proved cheaper than the
#: router's late-cost segments, which price the nominal mixture, and takes half as long.
SEARCH: dict[str, Any] = {"late": "safe", "node_limit": 20, "gap": 0.01, "switch_weight": 1.0}


def rolling(planner: Callable[..., Planner], arguments: dict[str, Any], **defaults: Any) -> Rolling:
    """Sort the arguments: those of the wrapper go to the wrapper, the others to the planner."""
    names = set(inspect.signature(Rolling).parameters) - {"planner"}
    wrapper = {**ROLLING, **defaults, **{name: arguments.pop(name) for name in names & set(arguments)}}
    if wrapper["forecaster"] == "auto":
        wrapper["forecaster"] = BestForecaster()
    return Rolling(planner(**arguments), **wrapper)


def gh(*, margin: float = 0.0, **rules: Any) -> Static:
    """GH, FastLLM's greedy heuristic, planning once; `rules` as for `baselines.gh.GreedyHeuristic`."""
    return Static(GreedyHeuristic(**rules), margin)


def gh_rolling(**arguments: Any) -> Rolling:
    """GH, planning again and again; arguments of `Rolling` and of `baselines.gh.GreedyHeuristic`."""
    return rolling(GreedyHeuristic, arguments)


def agh(*, margin: float = 0.0, **rules: Any) -> Static:
    """AGH, FastLLM's adaptive greedy, planning once; `rules` as for `baselines.agh.AdaptiveGreedyHeuristic`."""
    return Static(AdaptiveGreedyHeuristic(**rules), margin)


def agh_rolling(**arguments: Any) -> Rolling:
    """AGH, planning again and again; arguments of `Rolling` and of the planner."""
    return rolling(AdaptiveGreedyHeuristic, arguments)


def homogeneous(*, margin: float = 0.0, **arguments: Any) -> Static:
    """The best single GPU type, planning once; arguments as for `baselines.homogeneous`."""
    return Static(HomogeneousPlanner(**arguments), margin)


def homogeneous_rolling(**arguments: Any) -> Rolling:
    """The best single GPU type, planning again and again; arguments of `Rolling` and of the planner."""
    return rolling(HomogeneousPlanner, arguments)


def milp(*, margin: float = 0.0, **search: Any) -> Static:
    """The exact MILP, planning once; arguments as for `baselines.milp.MilpPlanner`."""
    return Static(MilpPlanner(**{**SEARCH, "node_limit": 1000, **search}), margin)


def milp_hourly(**arguments: Any) -> Rolling:
    """The exact MILP, planning every 12 windows; arguments of `Rolling` and of `baselines.milp.MilpPlanner`.

    Start-up fees, and rent during start-up, are in its objective, spread over the payback windows.
    """
    return rolling(_milp_planner, arguments, every=12, forecaster="auto")


def milp_rolling(**arguments: Any) -> Rolling:
    """The exact MILP, planning in every window; arguments as for `milp_hourly`.

    It considers the configurations of `baselines.columns`, from `samples` windows (0: all configurations).
    """
    return rolling(_milp_planner, {"samples": 6, **arguments}, every=1, forecaster="auto")


def newsvendor(forecaster: str = "auto", **arguments: Any) -> Rolling:
    """The exact MILP for each workload's critical quantile of demand; see `baselines.newsvendor`.

    Parameters
    ----------
    forecaster : str
        Centre of the distribution of demand, as for `baselines.best_forecaster.BestForecaster`.
    **arguments
        As for `milp_rolling`.
    """
    return milp_rolling(
        **{"forecaster": NewsvendorForecaster(forecaster), "margin": 0.0, "every": 3, **arguments}
    )


def saa(forecaster: str = "auto", samples: int = 6, **arguments: Any) -> Rolling:
    """The two-stage MILP over demand scenarios; see `baselines.saa`.

    Parameters
    ----------
    forecaster : str
        Centre of the scenarios, and whose errors they are, as for `baselines.best_forecaster.BestForecaster`.
    samples : int
        Windows that the configurations considered come from, see `baselines.columns`; 0: all configurations.
    **arguments
        Of `Rolling` and of `baselines.saa.SaaPlanner`.
    """
    names = set(inspect.signature(Rolling).parameters)
    search = {name: arguments.pop(name) for name in set(arguments) - names}
    planner = functools.partial(
        ColumnPool, functools.partial(SaaPlanner, forecaster=forecaster, **search), samples
    )
    wrapper = {"forecaster": BestForecaster(forecaster), "margin": 0.0, "every": 1, "keep_best": False}
    return rolling(planner, {**wrapper, **arguments})


def _milp_planner(samples: int = 0, **search: Any) -> ColumnPool:
    """Return the MILP over the configurations that `samples` windows need."""
    return ColumnPool(functools.partial(MilpPlanner, **{**SEARCH, **search}), samples)
