"""Choose the forecaster with the smallest error on an instance's history, as far ahead as start-up takes."""

from __future__ import annotations

import numpy as np

from fleetgym import Instance
from fleetgym.planning import Forecaster, at_least

from .descent import candidates, study


class BestForecaster:
    """Of several forecasters, the one with the smallest squared log error on the history.

    What is ordered now serves when it has started, so forecast and errors look that much further than asked.

    Parameters
    ----------
    forecaster : str
        Name of a forecaster; ``"auto"`` chooses among ``last``, ``ewma`` and ``kalman``.
    wait_windows : int, optional
        How much further. None: the instance's longest start-up.

    Raises
    ------
    UnknownNameError
        If there is no such forecaster.
    FleetgymError
        If `wait_windows` is negative.

    Examples
    --------
    >>> import fleetgym
    >>> forecaster = BestForecaster()
    >>> forecaster.reset(fleetgym.load_instance("fleet-v0/toy/two-pools"))
    >>> forecaster.predict(1).shape
    (1,)
    """

    def __init__(self, forecaster: str = "auto", wait_windows: int | None = None):
        at_least(0, wait_windows=wait_windows)
        self.names = candidates(forecaster)
        self.wait_windows = wait_windows

    def reset(self, instance: Instance) -> None:
        """Choose by the history, then start anew."""
        self._instance = instance
        longest = max(c.startup_windows for c in instance.configurations)
        self.wait = longest if self.wait_windows is None else self.wait_windows
        studies = {name: study(instance, name, self.wait + 1) for name in self.names}
        self.name = min(studies, key=lambda name: float(np.mean(studies[name][1] ** 2)))
        self._forecaster: Forecaster = studies[self.name][0]
        self._forecaster.reset(instance)
        self._errors = {1: studies[self.name][1]}

    def update(self, rate_rps: np.ndarray) -> None:
        """Take in one more window, (I,) requests/s."""
        self._forecaster.update(rate_rps)

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the expected rates, (I,) requests/s."""
        return self._forecaster.predict(windows_ahead + self.wait)

    def errors(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the log of what came over what was forecast, in the history, (windows, I)."""
        if windows_ahead not in self._errors:
            self._errors[windows_ahead] = study(self._instance, self.name, windows_ahead + self.wait)[1]
        return self._errors[windows_ahead]
