"""Forecasters: past arrival rates in, expected rates of the coming windows out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable

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
        self._window = -1  # updated last
        centred = self._centred(np.log(np.maximum(instance.history.rate_rps, self._floor)), instance)
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

    def _centred(self, series: np.ndarray, instance: Instance) -> np.ndarray:
        """Study the log rates of the history (windows, I) for `_expected`; return what that leaves of them."""
        self._mean = series.mean(axis=0)
        return series - self._mean

    def _expected(self, window: int) -> np.ndarray:
        """Return the expected log rates of a window before any was seen, (I,)."""
        return self._mean

    def update(self, rate_rps: np.ndarray) -> None:
        """Filter one more window of rates, (I,)."""
        self._window += 1
        state, spread = self._phi * self._state, self._phi**2 * self._spread + self._process
        gain = spread / (spread + self._noise)
        seen = np.log(np.maximum(rate_rps, self._floor)) - self._expected(self._window)
        self._state = state + gain * (seen - state)
        self._spread = (1.0 - gain) * spread

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the expected rates, (I,), `windows_ahead` windows after the last update."""
        decay = self._phi**windows_ahead
        stationary = self._process / (1.0 - self._phi**2)
        spread = decay**2 * self._spread + (1.0 - decay**2) * stationary
        return np.exp(self._expected(self._window + windows_ahead) + decay * self._state + 0.5 * spread)


class Seasonal(Kalman):
    """A level, times the course of the day and of the week, times what the last windows departed from it.

    Each workload's course of the day is the mean log rate of the history's days at a time of day, smoothed over an
    hour. That of the week is the mean log rate of each weekday. Either counts in so far as it repeats: by the
    coefficient with which the other days, or the other weeks, foretell one that was left out. So demand without a
    course has none, and a single week says nothing of weekdays. The departure from them is filtered as by `Kalman`:
    what was seen counts less by the same factor each window (Brown 1963, *Smoothing, Forecasting and Prediction*).

    The history is taken to end where the day begins: as it does by the time of day in every family, and by the calendar
    in `trace` only.

    Examples
    --------
    >>> import fleetgym
    >>> forecaster = Seasonal()
    >>> forecaster.reset(fleetgym.load_instance("fleet-v0/dev/trace-m-001"))
    >>> [bool(forecaster.predict(12 * hour)[0] > 0) for hour in (1, 12)]
    [True, True]
    """

    _SMOOTH = 13  # windows over which the course of the day is averaged
    _WEEK = 7  # days

    def _centred(self, series: np.ndarray, instance: Instance) -> np.ndarray:
        self._day = day = max(1, round(86_400.0 / instance.window_s))
        mean, count, workloads = series.mean(axis=0), len(series) // day, series.shape[1]
        whole = (series[len(series) - count * day :] - mean).reshape(count, day, workloads)
        levels = whole.mean(axis=1)  # (days, I)
        weeks = count // self._WEEK
        week = levels[count - weeks * self._WEEK :].reshape(weeks, self._WEEK, workloads)
        weekdays, week_others = _course(week)
        shapes = whole - levels[:, None]
        half = self._SMOOTH // 2
        smooth = np.mean([np.roll(shapes, k, axis=1) for k in range(-half, half + 1)], axis=0)
        times, others = _course(smooth, shapes)
        self._mean, self._times, self._weekdays = mean, times, weekdays
        left = whole - others
        left[count - weeks * self._WEEK :] -= week_others.reshape(weeks * self._WEEK, 1, workloads)
        first = series[: len(series) - count * day] - mean
        phase = np.arange(-len(first), 0) % day
        return np.concatenate(
            (first - times[phase] if count else first, left.reshape(count * day, workloads))
        )

    def _expected(self, window: int) -> np.ndarray:
        expected = self._mean
        if len(self._times):
            expected = expected + self._times[window % self._day]
        if len(self._weekdays):
            expected = expected + self._weekdays[window // self._day % self._WEEK]
        return expected


class _Law(NamedTuple):
    """What does not change of a forecast so many windows ahead; each (n, I)."""

    decay: np.ndarray  # of the state
    share: np.ndarray  # of the state's variance that is left
    more: np.ndarray  # variance that comes with the windows


class KalmanBatch(Kalman):
    """`Kalman`, or kinds of it, for n episodes side by side; each row is what a single one says, to the bit.

    Parameters
    ----------
    instances : sequence of Instance
        With equally many workloads.
    which : ndarray of int64, shape (n,)
        The instance of each row.
    kinds : sequence of type, optional
        `Kalman` or `Seasonal` for each instance; by default the former.
    ahead : int
        Most windows ahead that are predicted.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> several, one = KalmanBatch([instance], np.zeros(2, dtype=int)), Kalman()
    >>> one.reset(instance)
    >>> several.take(np.array([[9.0], [11.0]]), np.array([True, True]))
    >>> one.update(np.array([11.0]))
    >>> bool(several.predict()[1] == one.predict())
    True
    """

    def __init__(
        self,
        instances: Sequence[Instance],
        which: np.ndarray,
        kinds: Sequence[type[Kalman]] | None = None,
        ahead: int = 1,
    ):
        own = [kind() for kind in kinds or [Kalman] * len(instances)]
        for one, instance in zip(own, instances, strict=True):
            one.reset(instance)
        self._floor, self._phi, self._process, self._noise, self._first = (
            np.stack([getattr(one, name) for one in own])[which]
            for name in ("_floor", "_phi", "_process", "_noise", "_spread")
        )
        windows = max(instance.num_windows for instance in instances) + ahead + 1
        self._expectations = np.concatenate([[one._expected(t) for t in range(windows)] for one in own])
        self._row = which * windows
        self._laws = [self._law(k) for k in range(ahead + 1)]
        self._state, self._spread = np.zeros_like(self._first), self._first.copy()
        self._window = np.full(len(which), -1)  # type: ignore[assignment]

    def _expected(self, window: np.ndarray) -> np.ndarray:  # type: ignore[override]
        return self._expectations.take(self._row + window, axis=0)

    def _law(self, windows_ahead: int) -> _Law:
        decay = self._phi**windows_ahead
        stationary = self._process / (1.0 - self._phi**2)
        return _Law(decay, decay**2, (1.0 - decay**2) * stationary)

    def begin(self, rows: np.ndarray) -> None:
        """Forget what was seen in some rows, bool (n,)."""
        self._state[rows], self._spread[rows], self._window[rows] = 0.0, self._first[rows], -1  # type: ignore[index]

    def take(self, rate_rps: np.ndarray, rows: np.ndarray) -> None:
        """Filter one more window of rates, (n, I), in some rows, bool (n,)."""
        state, spread, window = self._state, self._spread, np.array(self._window)
        self.update(rate_rps)
        if not rows.all():
            self._state, self._spread = (
                np.where(rows[:, None], new, old)
                for new, old in ((self._state, state), (self._spread, spread))
            )
            self._window = np.where(rows, self._window, window)  # type: ignore[assignment]

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the expected rates, (n, I), at most `ahead` windows after the last update."""
        law = self._laws[windows_ahead]
        spread = law.share * self._spread + law.more
        expected = self._expected(np.add(self._window, windows_ahead))
        return np.exp(expected + law.decay * self._state + 0.5 * spread)

    def deviation(self, windows_ahead: int) -> np.ndarray:
        """Return the standard deviation of the log rate that will be seen so many windows ahead, (n, I)."""
        law = self._laws[windows_ahead]
        return np.sqrt(law.share * self._spread + law.more + self._noise)


def _course(periods: np.ndarray, seen: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return how periods go, in so far as it repeats, and for each one how the others say that it goes.

    Parameters
    ----------
    periods : ndarray, shape (n, length, I)
        How each one went.
    seen : ndarray, shape (n, length, I), optional
        What the others foretell, if it is not `periods`.

    Returns
    -------
    course : ndarray, shape (length, I), or (0, I) if there are none
    others : ndarray, shape (n, length, I)
    """
    count, length, workloads = periods.shape
    if count < 2:
        return np.zeros((length if count else 0, workloads)), np.zeros(periods.shape)
    total = periods.sum(axis=0)
    others = (total - periods) / (count - 1)
    others -= others.mean(axis=1, keepdims=True)
    told = (others * (periods if seen is None else seen)).sum(axis=(0, 1))
    power = (others**2).sum(axis=(0, 1))
    share = np.clip(np.divide(told, power, out=np.zeros_like(told), where=power > 1e-12), 0.0, 1.0)
    mean = total / count
    return share * (mean - mean.mean(axis=0)), share * others


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


FORECASTERS = {
    "last": Last,
    "ewma": EWMA,
    "kalman": Kalman,
    "quantile": Quantile,
    "seasonal": Seasonal,
    "belief": BeliefMean,
}


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
