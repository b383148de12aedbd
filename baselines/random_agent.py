"""Sample one of the allowed options for each slot: the agent that any method should beat."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import View


class RandomAgent:
    """Options drawn at random: what an agent has to beat by far.

    They are uniform over the options that the action mask allows, slot by slot.
    """

    def reset(self, view: View, *, seed: int) -> None:
        """Start the random stream of an episode.

        Parameters
        ----------
        view : View
            Gives the number of options per slot.
        seed : int
            The same seed gives the same actions where the masks are the same.
        """
        self._rng = np.random.default_rng(seed)
        self._ends = np.cumsum(view.nvec)

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return one allowed option per slot, (slots,).

        Parameters
        ----------
        observation : mapping
            Not used.
        info : mapping
            Its ``action_mask`` is a flat bool array, (sum of options,).
        """
        allowed = np.split(np.asarray(info["action_mask"], dtype=bool), self._ends[:-1])
        return np.array([self._rng.choice(np.flatnonzero(slot)) for slot in allowed], dtype=np.int64)


random = RandomAgent
