"""Define the protocol of an agent: it acts once per window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fleetgym.agents.view import View


@runtime_checkable
class Agent(Protocol):
    """Chooses one option per slot in every window. Any object with these two methods is an agent.

    Examples
    --------
    >>> import fleetgym
    >>> class Nothing:
    ...     def reset(self, view, *, seed):
    ...         self.action = 0 * view.nvec
    ...
    ...     def act(self, observation, info):
    ...         return self.action
    >>> fleetgym.evaluate([Nothing], "fleet-v0/toy/two-pools").failures
    ()
    """

    def reset(self, view: View, *, seed: int) -> None:
        """Prepare for an episode on the view's instance.

        Parameters
        ----------
        view : View
            Everything that the agent may know. It is updated through the episode.
        seed : int
            The only source of randomness for the agent.
        """
        ...

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window. The view is up to date.

        Parameters
        ----------
        observation : mapping of str to ndarray
            As the environment returned it.
        info : mapping
            As the environment returned it, without the scenario's name.

        Returns
        -------
        ndarray of int, shape (slots,)
            One option per slot, below ``view.nvec``; anything else is a failure of the kind ``invalid-action``.
        """
        ...
