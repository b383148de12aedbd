"""Define the protocol of an agent: it acts once per window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fleetgym.agents.view import View


@runtime_checkable
class Agent(Protocol):
    """Chooses one option per slot in every window."""

    def reset(self, view: View, *, seed: int) -> None:
        """Prepare for an episode on the view's instance."""
        ...

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options. The view is up to date."""
        ...
