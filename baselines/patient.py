"""Play `patient`: `lookahead` at half its price, over fewer paths, with a search only every few windows.

A fleet that is searched anew in every window follows each turn of the noise, and pays for starts. Between two searches
the target stays. A search comes early where available GPUs have changed, or a workload's rate has moved by more than a
share since the last one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import View
from fleetgym.planning import above, whole_at_least

from .lookahead import Lookahead

_FEW = 1.0  # requests: as many more do not move a rate that is next to nothing


class Patient(Lookahead):
    """Search like `Lookahead`, in some windows.

    Parameters
    ----------
    every : int
        Most windows from one search to the next.
    surprise : float
        Change of the logarithm of a rate that calls for a search.
    paths : int
        As for `Lookahead`.
    **settings
        Of `Lookahead`.

    Raises
    ------
    FleetgymError
        For a number that is too small.
    """

    def __init__(self, every: int = 3, surprise: float = 0.3, paths: int = 8, **settings: Any):
        super().__init__(paths=paths, **settings)
        whole_at_least(1, every=every)
        above(0, surprise=surprise)
        self.every, self.surprise = every, surprise

    def reset(self, view: View, *, seed: int) -> None:
        """Begin before the first window."""
        super().reset(view, seed=seed)
        self._searched = -self.every

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action of the fleet that the last search ended with."""
        view = self.view
        if view.window - self._searched >= self.every or self._is_surprised():
            self._searched = view.window
            self._rates, self._available = self._logs(), view.conditions.available_gpus.copy()
            return super().act(observation, info)
        seen = view.window - view.instance.lead
        if seen >= 0:
            self.belief.update(seen, view.conditions)
        return view.fleet_to_action(self.target)

    def _is_surprised(self) -> bool:
        """Return whether GPUs or a rate are other than at the last search."""
        moved = np.abs(self._logs() - self._rates).max() > self.surprise
        return bool(moved) or not np.array_equal(self.view.conditions.available_gpus, self._available)

    def _logs(self) -> np.ndarray:
        return np.log(self.view.conditions.rate_rps * self.view.instance.window_s + _FEW)
