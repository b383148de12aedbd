"""The planners of this package as agents: arguments of the planner and of its wrapper in, an agent out.

*Static* plans once for nominal demand and keeps the fleet, as the papers' 24-hour policies do; *rolling* plans again
every few windows on a forecast. Every planner gets the same wrapper; where its arguments differ by default, the tables
and the decorators here say so.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, TypeVar

from fleetgym.agents.arguments import passes_on
from fleetgym.agents.rolling import Rolling, Static
from fleetgym.model.planning import Planner

from .agh import AdaptiveGreedyHeuristic
from .best_forecaster import BestForecaster
from .columns import ColumnPool
from .gh import GreedyHeuristic
from .homogeneous import HomogeneousPlanner
from .milp import MilpPlanner
from .newsvendor import NewsvendorForecaster
from .saa import SaaPlanner

#: What `fleetgym.agents.rolling.Rolling` is told where nothing else is asked for.
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

T = TypeVar("T")


def rolls(
    planner: Callable[..., Any], without: Collection[str] = (), **defaults: Any
) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Let a function take the arguments of `Rolling` and of a planner; defaults as in `ROLLING` and as given."""
    return passes_on(Rolling, planner, without=without, **{**ROLLING, **defaults})


def rolling(planner: Callable[..., Planner], arguments: dict[str, Any]) -> Rolling:
    """Sort the arguments: those of the wrapper go to the wrapper, the others to the planner."""
    names = set(inspect.signature(Rolling).parameters) - {"planner"}
    wrapper = {name: arguments.pop(name) for name in names & set(arguments)}
    if wrapper["forecaster"] == "auto":
        wrapper["forecaster"] = BestForecaster()
    return Rolling(planner(**arguments), **wrapper)


@passes_on(GreedyHeuristic)
def gh(*, margin: float = 0.0, **rules: Any) -> Static:
    """GH, FastLLM's greedy heuristic, planning once."""
    return Static(GreedyHeuristic(**rules), margin)


@rolls(GreedyHeuristic)
def gh_rolling(**arguments: Any) -> Rolling:
    """GH, planning again and again."""
    return rolling(GreedyHeuristic, arguments)


@passes_on(AdaptiveGreedyHeuristic)
def agh(*, margin: float = 0.0, **rules: Any) -> Static:
    """AGH, FastLLM's adaptive greedy, planning once."""
    return Static(AdaptiveGreedyHeuristic(**rules), margin)


@rolls(AdaptiveGreedyHeuristic)
def agh_rolling(**arguments: Any) -> Rolling:
    """AGH, planning again and again."""
    return rolling(AdaptiveGreedyHeuristic, arguments)


@passes_on(HomogeneousPlanner)
def homogeneous(*, margin: float = 0.0, **arguments: Any) -> Static:
    """The best single GPU type, planning once."""
    return Static(HomogeneousPlanner(**arguments), margin)


@rolls(HomogeneousPlanner)
def homogeneous_rolling(**arguments: Any) -> Rolling:
    """The best single GPU type, planning again and again."""
    return rolling(HomogeneousPlanner, arguments)


@passes_on(MilpPlanner, **{**SEARCH, "node_limit": 1000})
def milp(*, margin: float = 0.0, **search: Any) -> Static:
    """The exact MILP, planning once."""
    return Static(MilpPlanner(**search), margin)


@passes_on(MilpPlanner, without=("allowed",), **SEARCH)
def _milp_planner(samples: int = 0, **search: Any) -> ColumnPool:
    """Return the MILP over the configurations that `samples` windows need."""
    return ColumnPool(functools.partial(MilpPlanner, **search), samples)


@rolls(_milp_planner, every=12, forecaster="auto")
def milp_hourly(**arguments: Any) -> Rolling:
    """The exact MILP, planning every 12 windows.

    Start-up fees, and rent during start-up, are in its objective, spread over the payback windows.
    """
    return rolling(_milp_planner, arguments)


@rolls(_milp_planner, every=1, forecaster="auto", samples=6)
def milp_rolling(**arguments: Any) -> Rolling:
    """The exact MILP, planning in every window.

    It considers the configurations of `fleetgym.baselines.columns`, from `samples` windows (0: all configurations).
    Start-up is in its objective as in that of `milp_hourly`.
    """
    return rolling(_milp_planner, arguments)


@passes_on(milp_rolling, margin=0.0, every=3)
def newsvendor(forecaster: str = "auto", **arguments: Any) -> Rolling:
    """The exact MILP for each workload's critical quantile of demand; see `fleetgym.baselines.newsvendor`.

    Parameters
    ----------
    forecaster : str
        Centre of the distribution of demand, as for `fleetgym.baselines.best_forecaster.BestForecaster`.
    **arguments
        As for `milp_rolling`.
    """
    return milp_rolling(forecaster=NewsvendorForecaster(forecaster), **arguments)


@rolls(SaaPlanner, without=("allowed",), margin=0.0, every=1, keep_best=False)
def saa(forecaster: str = "auto", samples: int = 6, **arguments: Any) -> Rolling:
    """The two-stage MILP over demand scenarios; see `fleetgym.baselines.saa`.

    Parameters
    ----------
    forecaster : str
        Centre of the scenarios, and whose errors they are, as for `fleetgym.baselines.best_forecaster.BestForecaster`.
    samples : int
        Windows that the configurations considered come from, see `fleetgym.baselines.columns`; 0: all configurations.
    **arguments
        Of `Rolling` and of `fleetgym.baselines.saa.SaaPlanner`.
    """
    names = set(inspect.signature(Rolling).parameters)
    search = {name: arguments.pop(name) for name in set(arguments) - names}
    planner = functools.partial(
        ColumnPool, functools.partial(SaaPlanner, forecaster=forecaster, **search), samples
    )
    return rolling(planner, {"forecaster": BestForecaster(forecaster), **arguments})
