"""Tell an agent the law from which days are drawn: a reference for what knowing it is worth, not an agent.

Where an instance has ``law = "fitted"``, its processes are fitted to its history, and stored days come from others.
This agent reads those. Official runs hide them, so it cannot play there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import View, make_agent
from fleetgym.planning import with_law


class KnowsLaw:
    """Play like another agent that is told the law.

    Parameters
    ----------
    agent : str
        As for `fleetgym.make_agent`.
    """

    def __init__(self, agent: str = "lookahead"):
        self._agent = make_agent(agent)

    def reset(self, view: View, *, seed: int) -> None:
        """Begin before the first window, with a view of the instance that tells its law."""
        self._view = View(with_law(view.instance))
        self._agent.reset(self._view, seed=seed)

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the other agent's action."""
        self._view.update(info)
        return self._agent.act(observation, info)
