"""Forecasters: past arrival rates in, expected rates of the coming windows out."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np

from fleetgym.agents.beliefs.demand import demand_belief
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.model.instance import Instance

_FLOOR = 0.05  # of the nominal rate: where a logarithm is taken, a nearly empty window counts as this


@runtime_checkable
class Forecaster(Protocol):
    """Predicts demand from what was seen."""

    def reset(self, instance: Instance) -> None:
        """Forget everything and study the instance's history."""
        ...

    def update(self, rate_rps: np.ndarray) -> None:
        """Take in the rates of one more window, (I,) requests/s."""
        ...

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the rates to plan for, (I,) requests/s, `windows_ahead` windows after the last update."""
        ...


class Last:
    """Tomorrow is like today: the rates seen last.

    Examples
    --------
    >>> import numpy as np
    >>> forecaster = Last()
    >>> forecaster.update(np.array([2.0]))
    >>> forecaster.predict().tolist()
    [2.0]
    """

    def reset(self, instance: Instance) -> None:
        """Start from the nominal rates."""
        self._rate = np.array([w.rate_rps for w in instance.workloads])

    def update(self, rate_rps: np.ndarray) -> None:
        """Remember `rate_rps`, (I,)."""
        self._rate = np.asarray(rate_rps, dtype=float)

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the last rates, (I,)."""
        return self._rate


class EWMA:
    """Exponentially weighted moving average of the rates.

    Parameters
    ----------
    weight : float
        Weight of the newest window, in (0, 1].
    """

    def __init__(self, weight: float = 0.3):
        if not 0.0 < weight <= 1.0:
            raise FleetgymError(f"EWMA weight must be in (0, 1], got {weight}")
        self.weight = weight

    def reset(self, instance: Instance) -> None:
        """Start from the nominal rates."""
        self._rate = np.array([w.rate_rps for w in instance.workloads])

    def update(self, rate_rps: np.ndarray) -> None:
        """Mix `rate_rps`, (I,), into the average."""
        self._rate = self._rate + self.weight * (rate_rps - self._rate)

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the average, (I,)."""
        return self._rate


class Kalman:
    """Kalman filter of a mean-reverting log rate seen through noise, fitted to the history by moments.

    The state is ``z' = phi z + w`` around the nominal log rate, the observation ``z + v``. The autocovariances of
    the history at one and two windows give phi and the two variances (Brockwell and Davis, *Introduction to Time
    Series and Forecasting*, ch. 8, for the filter).
    """

    def reset(self, instance: Instance) -> None:
        """Fit the model to the instance's history."""
        nominal = np.array([w.rate_rps for w in instance.workloads])
        self._floor = _FLOOR * nominal
        series = np.log(np.maximum(instance.history.rate_rps, self._floor))
        self._mean = series.mean(axis=0)
        centred = series - self._mean
        variance = np.maximum(centred.var(axis=0), 1e-12)
        lag1 = _autocovariance(centred, 1)
        lag2 = _autocovariance(centred, 2)
        self._phi = np.clip(np.divide(lag2, lag1, out=np.zeros_like(lag1), where=lag1 > 1e-12), 0.0, 0.999)
        signal = np.divide(lag1, self._phi, out=np.zeros_like(lag1), where=self._phi > 1e-3)
        signal = np.clip(signal, 0.0, variance)
        self._process = signal * (1.0 - self._phi**2)
        self._noise = np.maximum(variance - signal, 1e-9)
        self._state = np.zeros_like(variance)
        self._spread = signal

    def update(self, rate_rps: np.ndarray) -> None:
        """Filter one more window of rates, (I,)."""
        state, spread = self._phi * self._state, self._phi**2 * self._spread + self._process
        gain = spread / (spread + self._noise)
        seen = np.log(np.maximum(rate_rps, self._floor)) - self._mean
        self._state = state + gain * (seen - state)
        self._spread = (1.0 - gain) * spread

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the expected rates, (I,), `windows_ahead` windows after the last update."""
        decay = self._phi**windows_ahead
        stationary = self._process / (1.0 - self._phi**2)
        spread = decay**2 * self._spread + (1.0 - decay**2) * stationary
        return np.exp(self._mean + decay * self._state + 0.5 * spread)


def _autocovariance(centred: np.ndarray, lag: int) -> np.ndarray:
    if centred.shape[0] <= lag:
        return np.zeros(centred.shape[1])
    return (centred[lag:] * centred[:-lag]).mean(axis=0)


class Quantile:
    """The last rates, raised by a quantile of how much rates have risen over the same span in the past.

    The spread of log changes comes from the instance's history, so a volatile workload gets more room than a
    calm one (the newsvendor's answer when the quantile is the critical ratio).

    Parameters
    ----------
    level : float
        Quantile in (0, 1).
    """

    def __init__(self, level: float = 0.8):
        if not 0.0 < level < 1.0:
            raise FleetgymError(f"quantile level must be in (0, 1), got {level}")
        self.level = level

    def reset(self, instance: Instance) -> None:
        """Study the history; start from the nominal rates."""
        self._rate = np.array([w.rate_rps for w in instance.workloads])
        self._floor = _FLOOR * self._rate
        self._log_history = np.log(np.maximum(instance.history.rate_rps, self._floor))
        self._rise: dict[int, np.ndarray] = {}

    def update(self, rate_rps: np.ndarray) -> None:
        """Remember `rate_rps`, (I,)."""
        self._rate = np.asarray(rate_rps, dtype=float)

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the last rates times the quantile of their change, (I,)."""
        if windows_ahead not in self._rise:
            history = self._log_history
            lag = min(windows_ahead, max(1, history.shape[0] - 1))
            changes = history[lag:] - history[:-lag] if history.shape[0] > lag else np.zeros_like(history)
            self._rise[windows_ahead] = np.exp(np.quantile(changes, self.level, axis=0))
        return np.maximum(self._rate, self._floor) * self._rise[windows_ahead]


class BeliefMean:
    """The mean of what `fleetgym.Belief` holds possible, by the instance's own process or by regression on its history.

    Parameters
    ----------
    paths : int
        Over which the mean is taken.
    """

    def __init__(self, paths: int = 64):
        self.paths = paths

    def reset(self, instance: Instance) -> None:
        """Begin before the first window."""
        self._demand = demand_belief(instance)
        self._most = instance.num_windows

    def update(self, rate_rps: np.ndarray) -> None:
        """Take in one more window of rates, (I,)."""
        self._demand.update(np.asarray(rate_rps, dtype=float))

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the mean rates, (I,), for at most the length of an episode ahead.

        Random numbers are equal in every window, so that only what was seen moves the mean.
        """
        windows = min(windows_ahead, self._most)
        drawn = self._demand.sample(self.paths, windows, np.random.default_rng(0))
        return drawn[:, -1].mean(axis=0)


FORECASTERS = {"last": Last, "ewma": EWMA, "kalman": Kalman, "quantile": Quantile, "belief": BeliefMean}


def make_forecaster(name: str | Forecaster) -> Forecaster:
    """Return a new forecaster by name, or the one given.

    Raises
    ------
    UnknownNameError
        If no forecaster has this name.
    FleetgymError
        For what is neither a name nor a forecaster.

    Examples
    --------
    >>> type(make_forecaster("ewma")).__name__
    'EWMA'
    """
    if isinstance(name, Forecaster) and not isinstance(name, type):
        return name
    if not isinstance(name, str):
        raise FleetgymError(f"forecaster is {name!r}; expected one of {', '.join(FORECASTERS)}, or an object")
    if name not in FORECASTERS:
        raise UnknownNameError("forecaster", name, FORECASTERS)
    return FORECASTERS[name]()
