"""Let an agent play a day, and yield its windows one by one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fleetgym.agents.agent import Agent
from fleetgym.agents.view import View
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.model.scenario import Scenario


class Played(NamedTuple):
    """One window of a day."""

    view: View  # what the agent knew when it chose; the same object throughout, and the agent's own
    action: np.ndarray
    info: dict[str, Any]  # what the environment told after the window, such as its cost terms, USD


def play_day(
    env: FleetAllocEnv, agent: Agent, scenario: Scenario | int, *, seed: int = 0
) -> Iterator[Played]:
    """Let an agent play a day, and yield every window's result.

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
    Played

    Examples
    --------
    >>> import fleetgym
    >>> env = FleetAllocEnv("fleet-v0/toy/drop")
    >>> sum(window.info["cost"] for window in play_day(env, fleetgym.make_agent("hold"), 0)) > 0.0
    True
    """
    view = View(env.instance)
    observation, info = env.reset(seed=0, options={"scenario": scenario})
    view.update(info)
    agent.reset(view, seed=seed)
    for _ in range(env.instance.num_windows):
        action = np.array(agent.act(observation, info))
        observation, _, _, _, info = env.step(action)
        yield Played(view, action, info)
        view.update(info)
