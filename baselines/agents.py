"""Make agents of the planners in this package.

*Static* agents plan once for nominal demand and keep the fleet, as the papers' 24-hour policies do. *Rolling* agents
replan every few windows on a forecast. Every planner gets the same wrapper, and the defaults that differ stand here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fleetgym import Rolling, Static
from fleetgym.planning import Forecaster, Wrapped

from .agh import AdaptiveGreedyHeuristic
from .best_forecaster import BestForecaster
from .columns import ColumnPool
from .gh import GreedyHeuristic
from .homogeneous import HomogeneousPlanner
from .milp import MilpPlanner
from .newsvendor import NewsvendorForecaster
from .saa import SaaPlanner

#: Arguments of `fleetgym.Rolling` that an agent gets by default.
ROLLING: dict[str, Any] = {
    "every": 6,
    "forecaster": "last",
    "margin": 0.1,
    "switch_cost": 2.0,
    "keep_best": True,
}
#: How agents solve the MILP: to a gap, or a number of nodes.
SEARCH: dict[str, Any] = {"gap": 0.01, "switch_weight": 1.0}


def _best_if_auto(forecaster: str | Forecaster) -> str | Forecaster:
    return BestForecaster() if forecaster == "auto" else forecaster


class RollingAgent(Wrapped):
    """Makes agents that replan with a planner, from the arguments of `fleetgym.Rolling` and of the planner.

    Parameters
    ----------
    about : str
        Docstring of the agent.
    planner : callable
        Class or factory of the planner.
    make_forecaster : callable
        Makes the forecaster from the argument `forecaster`; by default ``"auto"`` is a `BestForecaster`.
    **defaults
        Defaults other than those of `ROLLING` and of the planner.
    """

    def __init__(
        self,
        about: str,
        planner: Callable[..., Any],
        make_forecaster: Callable[[Any], str | Forecaster] = _best_if_auto,
        **defaults: Any,
    ) -> None:
        super().__init__(about, Rolling, planner, **{**ROLLING, **defaults})
        self._make_forecaster = make_forecaster

    def wrap(self, made: Any, arguments: dict[str, Any]) -> Rolling:
        """Return the agent, with its forecaster."""
        return Rolling(made, **{**arguments, "forecaster": self._make_forecaster(arguments["forecaster"])})


gh = Wrapped("GH, FastLLM's greedy heuristic, planning once.", Static, GreedyHeuristic)
gh_rolling = RollingAgent("GH, planning again and again.", GreedyHeuristic)
agh = Wrapped("AGH, FastLLM's adaptive greedy, planning once.", Static, AdaptiveGreedyHeuristic)
agh_rolling = RollingAgent("AGH, planning again and again.", AdaptiveGreedyHeuristic)
homogeneous = Wrapped("The best single GPU type, planning once.", Static, HomogeneousPlanner)
homogeneous_rolling = RollingAgent("The best single GPU type, planning again and again.", HomogeneousPlanner)
milp = Wrapped("The exact MILP, planning once.", Static, MilpPlanner, **SEARCH, node_limit=1000)
_pooled_milp = Wrapped("The MILP over few configurations.", ColumnPool, MilpPlanner, **SEARCH, node_limit=20)
milp_hourly = RollingAgent(
    """The exact MILP, planning every 12 windows.

    Start-up costs, and rent during start-up, are in its objective, spread over the payback windows.
    """,
    _pooled_milp,
    every=12,
    forecaster="auto",
)
milp_rolling = RollingAgent(
    """The exact MILP, planning in every window.

    It considers the configurations of `fleetgym.baselines.columns`, from `samples` windows (0: all configurations).
    Start-up is in its objective as in that of `milp_hourly`.
    """,
    _pooled_milp,
    every=1,
    forecaster="auto",
    samples=6,
)
newsvendor = RollingAgent(
    """The exact MILP for each workload's critical quantile of demand; see `fleetgym.baselines.newsvendor`.

    Its arguments are those of `milp_rolling`; `forecaster` is the centre of the distribution of demand.
    """,
    _pooled_milp,
    NewsvendorForecaster,
    margin=0.0,
    every=3,
    forecaster="auto",
    samples=6,
)
saa = RollingAgent(
    """The two-stage MILP over demand scenarios; see `fleetgym.baselines.saa`.

    `forecaster` is the centre of the scenarios, and the forecaster whose errors they are. The configurations come from
    `samples` windows (0: all configurations).
    """,
    Wrapped("The two-stage MILP over few configurations.", ColumnPool, SaaPlanner),
    BestForecaster,
    margin=0.0,
    every=1,
    keep_best=False,
    forecaster="auto",
    samples=6,
)
