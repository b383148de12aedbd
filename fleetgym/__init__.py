"""fleetgym: every way of allocating GPUs to LLM serving competes on the same problem.

``gymnasium.make("fleetgym:FleetAlloc-v0")`` makes the environment; `evaluate` scores agents on the standard set.
Everything is imported on first use, so that ``import fleetgym`` stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import gymnasium

__version__ = "0.1.0"

#: Where each public name lives.
_HOME = {
    "ActionSpace": "actions",
    "Agent": "agents",
    "Rolling": "agents",
    "Static": "agents",
    "DataError": "errors",
    "FleetgymError": "errors",
    "UnknownNameError": "errors",
    "evaluate": "evaluation.run",
    "Instance": "instance",
    "Scenario": "scenario",
    "list_instances": "library",
    "load_instance": "library",
    "load_scenarios": "library",
    "Plan": "planning",
    "Planner": "planning",
    "read_results": "evaluation.results",
    "agent_risk": "risk",
    "fleet_risk": "risk",
    "import_trace": "traces.importing",
    "Snapshot": "planning",
    "plan": "evaluation.run",
    "make_agent": "registry",
    "score": "scoring.score",
    "simulate": "simulation.run",
    "two_stage_evaluate": "two_stage",
    "View": "view",
    "verify": "leaderboard.verify",
    "Outcome": "window",
}

__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fleetgym' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"fleetgym.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})


def _register() -> None:
    if "FleetAlloc-v0" not in gymnasium.registry:
        gymnasium.register(
            "FleetAlloc-v0",
            entry_point="fleetgym.envs.fleet_alloc:FleetAllocEnv",
            vector_entry_point="fleetgym.envs.vector:FleetAllocVectorEnv",
        )
    if "FleetMakespan-v0" not in gymnasium.registry:
        gymnasium.register("FleetMakespan-v0", entry_point="fleetgym.envs.makespan:FleetMakespanEnv")
    if "FleetPools-v0" not in gymnasium.registry:
        gymnasium.register("FleetPools-v0", entry_point="fleetgym.envs.pools:FleetPoolsEnv")


_register()

if TYPE_CHECKING:
    from fleetgym.actions import ActionSpace as ActionSpace
    from fleetgym.agents import Agent as Agent
    from fleetgym.agents import Rolling as Rolling
    from fleetgym.agents import Static as Static
    from fleetgym.errors import DataError as DataError
    from fleetgym.errors import FleetgymError as FleetgymError
    from fleetgym.errors import UnknownNameError as UnknownNameError
    from fleetgym.evaluation.results import read_results as read_results
    from fleetgym.evaluation.run import evaluate as evaluate
    from fleetgym.evaluation.run import plan as plan
    from fleetgym.instance import Instance as Instance
    from fleetgym.leaderboard.verify import verify as verify
    from fleetgym.library import list_instances as list_instances
    from fleetgym.library import load_instance as load_instance
    from fleetgym.library import load_scenarios as load_scenarios
    from fleetgym.planning import Plan as Plan
    from fleetgym.planning import Planner as Planner
    from fleetgym.planning import Snapshot as Snapshot
    from fleetgym.registry import make_agent as make_agent
    from fleetgym.risk import agent_risk as agent_risk
    from fleetgym.risk import fleet_risk as fleet_risk
    from fleetgym.scenario import Scenario as Scenario
    from fleetgym.scoring.score import score as score
    from fleetgym.simulation.run import simulate as simulate
    from fleetgym.traces.importing import import_trace as import_trace
    from fleetgym.two_stage import two_stage_evaluate as two_stage_evaluate
    from fleetgym.view import View as View
    from fleetgym.window import Outcome as Outcome
