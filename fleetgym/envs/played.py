"""An environment, an agent and a day in; what happens, window by window, out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fleetgym.agents.agent import Agent
from fleetgym.agents.view import View
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.model.scenario import Scenario


def played_windows(
    env: FleetAllocEnv, agent: Agent, scenario: Scenario | int, *, seed: int = 0
) -> Iterator[tuple[View, dict[str, Any]]]:
    """Let an agent play a day, and yield what every window came to.

    Parameters
    ----------
    env : FleetAllocEnv
    agent : Agent
        Reset before the first window.
    scenario : Scenario or int
        The day, or the number of a stored one.
    seed : int
        Of the agent.

    Yields
    ------
    View
        What the agent knew when it chose. It is the same object throughout, and belongs to the agent.
    dict
        What the environment told after the window, such as its cost terms, USD.

    Examples
    --------
    >>> import fleetgym
    >>> env = FleetAllocEnv("fleet-v0/toy/drop")
    >>> played = played_windows(env, fleetgym.make_agent("hold"), 0)
    >>> sum(info["cost"] for _, info in played) > 0.0
    True
    """
    view = View(env.instance)
    observation, info = env.reset(seed=0, options={"scenario": scenario})
    view.update(info)
    agent.reset(view, seed=seed)
    for _ in range(env.instance.num_windows):
        observation, _, _, _, info = env.step(np.asarray(agent.act(observation, info)))
        yield view, info
        view.update(info)
