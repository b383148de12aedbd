"""Benchmark policies that allocate rented GPUs to LLM serving.

``gymnasium.make("fleetgym:FleetAlloc-v0")`` makes the environment; `evaluate` scores agents on the standard set.
Everything is imported on first use, so that ``import fleetgym`` stays light.
"""

from __future__ import annotations

import os
import sys

if sys.orig_argv[1:3] == ["-m", "fleetgym"] and sys.path[:1] in ([""], [os.getcwd()]):
    # `python -m` puts the current folder first on the module path. It may hold a submission, whose files must not take
    # the place of modules that packages import. Verbs that take agents add the folder again, last.
    del sys.path[0]

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from fleetgym.runtime import signals

if signals.is_command():  # which takes over when its modules are there
    signals.end_at_once()

import gymnasium

from fleetgym.runtime.version import __version__ as __version__

#: Where each public name lives.
_HOME = {
    "ActionSpace": "model.actions",
    "Agent": "agents.agent",
    "Rolling": "agents.rolling",
    "Static": "agents.rolling",
    "DataError": "files.errors",
    "FleetgymError": "files.errors",
    "UnknownNameError": "files.errors",
    "evaluate": "evaluation.run",
    "Instance": "model.instance",
    "Scenario": "model.scenario",
    "list_instances": "model.library",
    "load_instance": "model.library",
    "load_scenarios": "model.library",
    "Plan": "model.planning",
    "Planner": "model.planning",
    "read_results": "evaluation.results",
    "Results": "evaluation.results",
    "agent_risk": "capacity.risk",
    "fleet_risk": "capacity.risk",
    "import_trace": "capacity.traces.importing",
    "Snapshot": "model.planning",
    "plan": "capacity.plan",
    "make_agent": "agents.registry",
    "score": "scoring.score",
    "ScoreTable": "scoring.score",
    "simulate": "capacity.simulation.run",
    "two_stage_evaluate": "capacity.two_stage",
    "View": "agents.view",
    "Belief": "agents.beliefs.belief",
    "verify": "leaderboard.verify",
    "Conditions": "model.conditions",
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
    # Both versions are frozen: v0 plays the older sets as before, so Gymnasium need not call it out of date.
    warnings.filterwarnings("ignore", r".*FleetAlloc-v0 is out of date", DeprecationWarning)
    if "FleetAlloc-v0" not in gymnasium.registry:
        gymnasium.register(
            "FleetAlloc-v0",
            entry_point="fleetgym.envs.fleet_alloc:FleetAllocEnv",
            vector_entry_point="fleetgym.envs.vector:FleetAllocVectorEnv",
        )
    if "FleetAlloc-v1" not in gymnasium.registry:
        gymnasium.register(
            "FleetAlloc-v1",
            entry_point="fleetgym.envs.fleet_alloc_v1:FleetAllocV1Env",
            vector_entry_point="fleetgym.envs.fleet_alloc_v1:FleetAllocV1VectorEnv",
        )


_register()

if TYPE_CHECKING:
    from fleetgym.agents.agent import Agent as Agent
    from fleetgym.agents.registry import make_agent as make_agent
    from fleetgym.agents.rolling import Rolling as Rolling
    from fleetgym.agents.rolling import Static as Static
    from fleetgym.agents.beliefs.belief import Belief as Belief
    from fleetgym.agents.view import View as View
    from fleetgym.capacity.plan import plan as plan
    from fleetgym.capacity.risk import agent_risk as agent_risk
    from fleetgym.capacity.risk import fleet_risk as fleet_risk
    from fleetgym.capacity.simulation.run import simulate as simulate
    from fleetgym.capacity.traces.importing import import_trace as import_trace
    from fleetgym.capacity.two_stage import two_stage_evaluate as two_stage_evaluate
    from fleetgym.evaluation.results import Results as Results
    from fleetgym.evaluation.results import read_results as read_results
    from fleetgym.evaluation.run import evaluate as evaluate
    from fleetgym.files.errors import DataError as DataError
    from fleetgym.files.errors import FleetgymError as FleetgymError
    from fleetgym.files.errors import UnknownNameError as UnknownNameError
    from fleetgym.leaderboard.verify import verify as verify
    from fleetgym.model.actions import ActionSpace as ActionSpace
    from fleetgym.model.conditions import Conditions as Conditions
    from fleetgym.model.instance import Instance as Instance
    from fleetgym.model.library import list_instances as list_instances
    from fleetgym.model.library import load_instance as load_instance
    from fleetgym.model.library import load_scenarios as load_scenarios
    from fleetgym.model.planning import Plan as Plan
    from fleetgym.model.planning import Planner as Planner
    from fleetgym.model.planning import Snapshot as Snapshot
    from fleetgym.model.scenario import Scenario as Scenario
    from fleetgym.scoring.score import score as score
    from fleetgym.scoring.score import ScoreTable as ScoreTable
