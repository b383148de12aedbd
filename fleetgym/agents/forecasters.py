"""Predict the arrival rates of the coming windows from past ones."""

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
    """Predicts demand from past rates."""

    def reset(self, instance: Instance) -> None:
        """Forget everything and study the instance's history."""
        ...

    def update(self, rate_rps: np.ndarray) -> None:
        """Record the rates of one more window, (I,) requests/s."""
        ...

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the rates to plan for, (I,) requests/s, `windows_ahead` windows after the last update."""
        ...


class Last:
    """Predict the last rates.

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


class KalmanBatch:
    """Kalman filters of mean-reverting log rates seen through noise, for n episodes side by side.

    The state is ``z' = phi z + w`` around the expected log rate, the observation ``z + v``. The autocovariances of
    the history at one and two windows give phi and the two variances (Brockwell and Davis, *Introduction to Time
    Series and Forecasting*, ch. 8, for the filter).

    Parameters
    ----------
    instances : sequence of Instance
        Instances with equally many workloads.
    which : ndarray of int64, shape (n,)
        The instance of each row.
    is_seasonal : sequence of bool, optional
        For each instance, whether the expected log rate follows the course of day and week; by default not.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> several, one = KalmanBatch([instance], np.zeros(2, dtype=int)), Kalman()
    >>> one.reset(instance)
    >>> several.take(np.array([[9.0], [11.0]]))
    >>> one.update(np.array([11.0]))
    >>> bool(several.predict()[1] == one.predict())
    True
    """

    def __init__(
        self, instances: Sequence[Instance], which: np.ndarray, is_seasonal: Sequence[bool] | None = None
    ):
        seasonal = is_seasonal or [False] * len(instances)
        fits = [_fitted(*pair) for pair in zip(instances, seasonal, strict=True)]
        self._floor, self._phi, self._process, self._noise, self._first = (
            np.stack(part)[which] for part in zip(*(fit[:-1] for fit in fits), strict=True)
        )
        tables = [fit.expected for fit in fits]
        self._expectations = np.concatenate(tables)
        self._period = np.array([len(table) for table in tables])
        self._row = (np.cumsum(self._period) - self._period)[which]
        self._period = self._period[which]
        self._laws: dict[int, _Law] = {}
        self._state, self._spread = np.zeros_like(self._first), self._first.copy()
        self._window = np.full(len(which), -1)  # updated last

    def arrays(self, *aheads: int | np.ndarray) -> dict[str, np.ndarray]:
        """Return what compiled filters need: constants, tables, and a law for each number of windows ahead.

        Parameters
        ----------
        *aheads : int, or ndarray of int64, shape (n,)
            Windows after the last update, in all rows or in each.

        Returns
        -------
        dict of str to ndarray
            Fields of `fleetgym.agents.margin_kernels.Setting`.
        """
        laws = []
        for ahead in aheads:
            each = np.broadcast_to(ahead, len(self._row))
            law = np.zeros((3, *self._phi.shape))
            for k in np.unique(each).tolist():
                law[:, each == k] = np.stack(self._law(k))[:, each == k]
            laws.append(law)
        return {
            "floor_rps": self._floor[: len(self._row) // 2].copy(),
            "fitted": np.stack([self._phi, self._phi**2, self._process, self._noise]),
            "first": self._first,
            "expected": self._expectations,
            "row": np.stack([self._row, self._period], axis=1),
            "law": np.stack(laws),
        }

    def begin(self, rows: np.ndarray) -> None:
        """Forget what was seen in some rows, bool (n,)."""
        self._state[rows], self._spread[rows], self._window[rows] = 0.0, self._first[rows], -1

    def take(self, rate_rps: np.ndarray, rows: np.ndarray | None = None) -> None:
        """Filter one more window of rates, (n, I), in some rows, bool (n,); by default in all."""
        window = self._window + 1
        state, spread = self._phi * self._state, self._phi**2 * self._spread + self._process
        gain = spread / (spread + self._noise)
        seen = np.log(np.maximum(rate_rps, self._floor)) - self._expected(window)
        state, spread = state + gain * (seen - state), (1.0 - gain) * spread
        if rows is not None and not rows.all():
            state = np.where(rows[:, None], state, self._state)
            spread = np.where(rows[:, None], spread, self._spread)
            window = np.where(rows, window, self._window)
        self._state, self._spread, self._window = state, spread, window

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the expected rates, (n, I), `windows_ahead` windows after the last update."""
        law = self._law(windows_ahead)
        spread = law.share * self._spread + law.more
        return np.exp(self._expected(self._window + windows_ahead) + law.decay * self._state + 0.5 * spread)

    def deviation(self, windows_ahead: int) -> np.ndarray:
        """Return the standard deviation of the log rate seen `windows_ahead` windows later, (n, I)."""
        law = self._law(windows_ahead)
        return np.sqrt(law.share * self._spread + law.more + self._noise)

    def _expected(self, window: np.ndarray) -> np.ndarray:
        return self._expectations.take(self._row + window % self._period, axis=0)

    def _law(self, windows_ahead: int) -> _Law:
        if windows_ahead not in self._laws:
            decay = self._phi**windows_ahead
            stationary = self._process / (1.0 - self._phi**2)
            self._laws[windows_ahead] = _Law(decay, decay**2, (1.0 - decay**2) * stationary)
        return self._laws[windows_ahead]


class _Law(NamedTuple):
    """The constants of a forecast some windows ahead; each (n, I)."""

    decay: np.ndarray  # of the state
    share: np.ndarray  # of the state's variance that is left
    more: np.ndarray  # variance that comes with the windows


class _Fitted(NamedTuple):
    """A model fitted to a history; each (I,), but the last."""

    floor: np.ndarray
    phi: np.ndarray
    process: np.ndarray
    noise: np.ndarray
    signal: np.ndarray
    expected: np.ndarray  # (period, I) log rates before any was seen


def _fitted(instance: Instance, is_seasonal: bool) -> _Fitted:
    """Fit the model to an instance's history by moments."""
    floor = _FLOOR * np.array([w.rate_rps for w in instance.workloads])
    series = np.log(np.maximum(instance.history.rate_rps, floor))
    if is_seasonal:
        expected, centred = _seasons(series, instance)
    else:
        expected = series.mean(axis=0)[None]
        centred = series - expected[0]
    variance = np.maximum(centred.var(axis=0), 1e-12)
    lag1, lag2 = _autocovariance(centred, 1), _autocovariance(centred, 2)
    phi = np.clip(np.divide(lag2, lag1, out=np.zeros_like(lag1), where=lag1 > 1e-12), 0.0, 0.999)
    signal = np.divide(lag1, phi, out=np.zeros_like(lag1), where=phi > 1e-3)
    signal = np.clip(signal, 0.0, variance)
    return _Fitted(floor, phi, signal * (1.0 - phi**2), np.maximum(variance - signal, 1e-9), signal, expected)


class Kalman:
    """A Kalman filter of a mean-reverting log rate seen through noise; see `KalmanBatch`."""

    _is_seasonal = False

    def reset(self, instance: Instance) -> None:
        """Fit the model to the instance's history."""
        self._filter = KalmanBatch([instance], np.zeros(1, dtype=np.int64), [self._is_seasonal])

    def update(self, rate_rps: np.ndarray) -> None:
        """Filter one more window of rates, (I,)."""
        self._filter.take(np.asarray(rate_rps, dtype=float)[None])

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the expected rates, (I,), `windows_ahead` windows after the last update."""
        return self._filter.predict(windows_ahead)[0]


class Seasonal(Kalman):
    """A level, times the course of day and week, times the filtered departure of the last windows from both.

    A workload's course of the day is the history's mean log rate at each time of day, smoothed over an hour. That of
    the week is the mean log rate of each weekday. Each counts as far as it repeats: by the coefficient with which the
    other days, or weeks, predict one that was left out. So demand without a course has none, and a single week says
    nothing about weekdays. The departure is filtered as by `Kalman`: the weight of an observation decays by the same
    factor each window (Brown 1963, *Smoothing, Forecasting and Prediction*).

    The history is assumed to end where the day begins: by the time of day in every family, and by the calendar in
    `trace` only.

    Examples
    --------
    >>> import fleetgym
    >>> forecaster = Seasonal()
    >>> forecaster.reset(fleetgym.load_instance("fleet-v0/dev/trace-m-001"))
    >>> [bool(forecaster.predict(12 * hour)[0] > 0) for hour in (1, 12)]
    [True, True]
    """

    _is_seasonal = True


_SMOOTH = 13  # windows over which the course of the day is averaged
_WEEK = 7  # days


def _seasons(series: np.ndarray, instance: Instance) -> tuple[np.ndarray, np.ndarray]:
    """Return the expected log rates of a week's windows, and what they leave of a history (windows, I)."""
    day = max(1, round(86_400.0 / instance.window_s))
    mean, count, workloads = series.mean(axis=0), len(series) // day, series.shape[1]
    whole = (series[len(series) - count * day :] - mean).reshape(count, day, workloads)
    levels = whole.mean(axis=1)  # (days, I)
    weeks = count // _WEEK
    week = levels[count - weeks * _WEEK :].reshape(weeks, _WEEK, workloads)
    weekdays, week_others = _course(week)
    shapes = whole - levels[:, None]
    half = _SMOOTH // 2
    smooth = np.mean([np.roll(shapes, k, axis=1) for k in range(-half, half + 1)], axis=0)
    times, others = _course(smooth, shapes)
    expected = np.tile(mean, (_WEEK * day, 1))
    if len(times):
        expected = expected + np.tile(times, (_WEEK, 1))
    if len(weekdays):
        expected = expected + np.repeat(weekdays, day, axis=0)
    left = whole - others
    left[count - weeks * _WEEK :] -= week_others.reshape(weeks * _WEEK, 1, workloads)
    first = series[: len(series) - count * day] - mean
    phase = np.arange(-len(first), 0) % day
    first = first - times[phase] if count else first
    return expected, np.concatenate((first, left.reshape(count * day, workloads)))


def _course(periods: np.ndarray, seen: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the course that periods share, as far as it repeats, and each one as the others predict it.

    Parameters
    ----------
    periods : ndarray, shape (n, length, I)
        The course of each one.
    seen : ndarray, shape (n, length, I), optional
        What the others predict, if it is not `periods`.

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


class BeliefMean:
    """The mean demand of a `fleetgym.Belief`: by the instance's own process, or by regression on its history.

    Parameters
    ----------
    paths : int
        Sampled paths of the mean.
    """

    def __init__(self, paths: int = 64):
        self.paths = paths

    def reset(self, instance: Instance) -> None:
        """Begin before the first window."""
        self._demand = demand_belief(instance)
        self._most = instance.num_windows

    def update(self, rate_rps: np.ndarray) -> None:
        """Record one more window of rates, (I,)."""
        self._demand.update(np.asarray(rate_rps, dtype=float))

    def predict(self, windows_ahead: int = 1) -> np.ndarray:
        """Return the mean rates, (I,), for at most the length of an episode ahead.

        Random numbers are equal in every window, so that only observations move the mean.
        """
        windows = min(windows_ahead, self._most)
        drawn = self._demand.sample(self.paths, windows, np.random.default_rng(0))
        return drawn[:, -1].mean(axis=0)


FORECASTERS = {
    "last": Last,
    "ewma": EWMA,
    "kalman": Kalman,
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
