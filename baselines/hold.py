"""Keep the initial fleet all day: the reference point of every comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import View


class HoldAgent:
    """The nominal fleet, held all day: what an agent has to beat. Lost replicas are requested again."""

    def reset(self, view: View, *, seed: int) -> None:
        """Note the fleet that runs now.

        Parameters
        ----------
        view : View
            The instance and the fleet.
        seed : int
            Not used.
        """
        self._action = view.fleet_to_action(view.fleet)

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the same action in every window, (slots,) options."""
        return self._action.copy()


hold = HoldAgent
