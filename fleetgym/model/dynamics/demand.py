"""Sample requests per window from the parameters of a demand process.

Every function is vectorised over windows and workloads and draws from the generator it is given, nothing
else. Calibration: `fleetgym/data/SOURCES-demand.md`.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from typing import NamedTuple

import numpy as np

#: A jump moves demand by at least a factor exp(0.4) = 1.5, the threshold at which jumps were counted.
MIN_JUMP_LOG = 0.4

#: Below this excess dispersion a count is Poisson for all purposes, and the gamma shape stays finite.
_MIN_EXCESS = 1e-6


def autoregression(innovations: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """Return x with x[0] = innovations[0] and x[t] = phi x[t-1] + innovations[t].

    Doubling the lag needs log2(windows) vectorised steps instead of one step per window, and only
    element-wise operations, so that the result does not depend on a linear algebra library.

    Parameters
    ----------
    innovations : ndarray of float, shape (windows, series)
        Shocks.
    phi : ndarray of float, shape (series,)
        Autoregression coefficient of each series, within [0, 1).

    Returns
    -------
    ndarray of float, shape (windows, series)
        The series.

    Examples
    --------
    >>> autoregression(np.array([[1.0], [0.0], [0.0]]), np.array([0.5])).ravel().tolist()
    [1.0, 0.5, 0.25]
    """
    series, power, lag = innovations.copy(), np.array(phi, dtype=float), 1
    while lag < len(series):
        series[lag:] += power * series[:-lag].copy()
        power = power * power
        lag *= 2
    return series


def stationary_ou(
    rng: np.random.Generator, windows: int, sd: np.ndarray, phi: np.ndarray, common: float = 0.0
) -> np.ndarray:
    """Draw Ornstein-Uhlenbeck series that are stationary from the first window on.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    windows : int
        Length.
    sd : ndarray of float, shape (series,)
        Stationary standard deviation.
    phi : ndarray of float, shape (series,)
        Correlation of neighbouring windows, exp(-window / time constant).
    common : float
        Share of the shocks' variance that all series have in common.

    Returns
    -------
    ndarray of float, shape (windows, series)
        Deviations with mean zero.
    """
    shocks = rng.standard_normal((windows, len(sd)))
    if common > 0.0:
        shared = rng.standard_normal((windows, 1))
        shocks = math.sqrt(1.0 - common) * shocks + math.sqrt(common) * shared
    shocks[1:] *= np.sqrt(1.0 - phi * phi)
    return autoregression(shocks * sd, phi)


def geometric_random_walk(rng: np.random.Generator, windows: int, sigma: np.ndarray) -> np.ndarray:
    """Draw log factors of a random walk that starts at 0 in the first window.

    FastLLM, section 5.4: rate(t+1) = rate(t) exp(N(0, sigma)). There is no drift correction, as in the paper.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    windows : int
        Length.
    sigma : ndarray of float, shape (workloads,)
        Standard deviation of a step of one window.

    Returns
    -------
    ndarray of float, shape (windows, workloads)
        log(rate / rate of the first window).
    """
    steps = rng.standard_normal((windows, len(sigma))) * sigma
    steps[0] = 0.0
    return np.cumsum(steps, axis=0)


class Jumps(NamedTuple):
    """Changes of level that begin and end; J of them."""

    workload: np.ndarray  # (J,)
    onset: np.ndarray  # (J,) first window in which it holds
    end: np.ndarray  # (J,) first window in which it does not
    size: np.ndarray  # (J,) of log demand

    def total(self, windows: int, workloads: int) -> np.ndarray:
        """Return the sum of the jumps that hold in each window: shape (windows, workloads)."""
        change = np.zeros((windows + 1, workloads))
        np.add.at(change, (self.onset, self.workload), self.size)
        np.add.at(change, (self.end, self.workload), -self.size)
        return np.cumsum(change, axis=0)[:windows]


class LogLevel(NamedTuple):
    """What log(rate / nominal rate) is made of, before it is normalised; (windows, workloads) each but the jumps."""

    swing: np.ndarray  # the mean-reverting part
    noise: np.ndarray
    jumps: Jumps
    daily: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False)
class LevelProcess(abc.ABC):
    """Log demand as a sum, one parameter per workload: what is known of the time, OU, noise and jumps."""

    ou_sd: np.ndarray  # (workloads,) of log demand
    ou_time_min: np.ndarray  # (workloads,)
    ou_common: float  # share of the OU shocks' variance that all workloads share
    noise_sd: np.ndarray  # (workloads,) independent in each window
    jumps_per_day: np.ndarray  # (workloads,) changes of level by at least 1.5 times, onsets and returns
    jump_log_mean: np.ndarray  # (workloads,) mean |log| of a jump, at least MIN_JUMP_LOG
    jump_hold_min: np.ndarray  # (workloads,) mean time from onset to return

    def log_level(self, rng: np.random.Generator, windows: int, window_s: float) -> np.ndarray:
        """Draw log(rate / nominal rate), normalised so that the mean of the rate is the nominal one.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of randomness.
        windows : int
            Length; window 0 starts at midnight.
        window_s : float
            Length of a window in seconds.

        Returns
        -------
        ndarray of float, shape (windows, workloads)
            Log factors.
        """
        swing, noise, jumps, daily = self.draw(rng, windows, window_s)
        level = swing + noise
        level += jumps.total(*level.shape)
        level += daily
        return level - self.log_mean(window_s)

    def draw(self, rng: np.random.Generator, windows: int, window_s: float) -> LogLevel:
        """Draw what `log_level` adds up, as it does."""
        swing = stationary_ou(rng, windows, self.ou_sd, self.phi(window_s), self.ou_common)
        noise = self.noise_sd * rng.standard_normal(swing.shape)
        jumps = self._jumps(rng, windows, window_s)
        return LogLevel(swing, noise, jumps, self.daily(np.arange(windows)[:, None], window_s))

    def phi(self, window_s: float) -> np.ndarray:
        """Return the correlation of the mean-reverting part in neighbouring windows: shape (workloads,)."""
        return np.exp(-window_s / 60.0 / self.ou_time_min)

    @abc.abstractmethod
    def daily(self, window: np.ndarray | int, window_s: float) -> np.ndarray:
        """Return the part of log demand that follows from the time of windows (..., 1): shape (..., workloads)."""

    @abc.abstractmethod
    def daily_log_mean(self, window_s: float) -> np.ndarray:
        """Return the log of the mean of exp(daily term): shape (workloads,)."""

    def log_mean(self, window_s: float) -> np.ndarray:
        """Return the log of the mean of exp(level) before normalisation: shape (workloads,)."""
        return _kept_log_mean(self, window_s)

    def _log_mean(self, window_s: float) -> np.ndarray:
        gauss = 0.5 * (self.ou_sd**2 + self.noise_sd**2)
        daily = self.daily_log_mean(window_s)
        spread = self.jump_log_mean - MIN_JUMP_LOG
        mean_factor = 0.5 * (math.exp(MIN_JUMP_LOG) / (1 - spread) + math.exp(-MIN_JUMP_LOG) / (1 + spread))
        active = self.onset_probability(window_s) / self.return_probability(window_s)
        return gauss + daily + active * (mean_factor - 1.0)

    def onset_probability(self, window_s: float) -> np.ndarray:
        """Return how many jumps begin in a window: half of those that were counted are returns to the level before."""
        return 0.5 * self.jumps_per_day * window_s / 86400.0

    def return_probability(self, window_s: float) -> np.ndarray:
        """Return how likely a jump that holds ends with a window: shape (workloads,)."""
        return np.minimum(1.0, window_s / 60.0 / self.jump_hold_min)

    def _jumps(self, rng: np.random.Generator, windows: int, window_s: float) -> Jumps:
        count = len(self.jumps_per_day)
        stop = self.return_probability(window_s)
        # Jumps that began before the episode and still hold: as many as hold at any time.
        before = rng.poisson(self.held_before(window_s))
        during = rng.poisson(windows * self.onset_probability(window_s))
        workload = np.repeat(np.concatenate([np.arange(count)] * 2), np.concatenate([before, during]))
        total = len(workload)
        onset = rng.integers(0, windows, total)
        onset[: before.sum()] = 0
        # A geometric time has no memory, so what is left of an old jump is distributed like a whole one.
        end = np.minimum(onset + rng.geometric(stop[workload]), windows)
        return Jumps(workload, onset, end, self.jump_sizes(rng, workload))

    def held_before(self, window_s: float) -> np.ndarray:
        """Return the mean number of jumps that began before the episode and hold in its first window, (workloads,)."""
        stop = self.return_probability(window_s)
        return self.onset_probability(window_s) * (1.0 - stop) / stop

    def jump_sizes(self, rng: np.random.Generator, workload: np.ndarray) -> np.ndarray:
        """Draw jumps of log demand of these workloads, (J,): half of them down."""
        spread = self.jump_log_mean[workload] - MIN_JUMP_LOG
        size = MIN_JUMP_LOG + spread * rng.standard_exponential(len(workload))
        return size * rng.choice((-1.0, 1.0), len(workload))


@dataclasses.dataclass(frozen=True, eq=False)
class DiurnalOU(LevelProcess):
    """Demand whose known part is one harmonic of the day."""

    daily_amplitude: np.ndarray  # (workloads,) of log demand
    daily_peak_h: np.ndarray  # (workloads,) hour of the day

    def daily(self, window: np.ndarray | int, window_s: float) -> np.ndarray:
        """Return the daily term of log demand in windows (..., 1) or in one: shape (..., workloads)."""
        hours = window * (window_s / 3600.0)
        return self.daily_amplitude * np.cos((2.0 * math.pi / 24.0) * (hours - self.daily_peak_h))

    def daily_log_mean(self, window_s: float) -> np.ndarray:
        """Return the log of the mean of exp(daily term): shape (workloads,)."""
        return np.log(np.i0(self.daily_amplitude))


@functools.lru_cache(maxsize=64)
def _kept_log_mean(process: LevelProcess, window_s: float) -> np.ndarray:
    return process._log_mean(window_s)  # the Bessel function takes longer than drawing a series


def draw_counts(rng: np.random.Generator, mean: np.ndarray, dispersion: np.ndarray) -> np.ndarray:
    """Draw requests per window: negative binomial with variance = dispersion · mean, Poisson where that is 1.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    mean : ndarray of float, shape (windows, workloads)
        Expected number of requests.
    dispersion : ndarray of float, shape (workloads,)
        Index of dispersion inside a window, at least 1.

    Returns
    -------
    ndarray of int64, shape (windows, workloads)
        Counts.
    """
    if np.all(dispersion <= 1.0):
        return rng.poisson(mean)
    excess = np.maximum(dispersion - 1.0, _MIN_EXCESS)
    return rng.poisson(rng.standard_gamma(mean / excess) * excess)


def split_counts(rng: np.random.Generator, counts: np.ndarray, dispersion: np.ndarray) -> np.ndarray:
    """Split each count over two halves of its window as independent negative binomial halves would be.

    Given their sum n, two independent negative binomial counts of index of dispersion d and mean m are
    beta-binomial: n trials whose probability is drawn from Beta(m / (d - 1), m / (d - 1)). Interpolating
    between windows instead would let a forecaster see the future.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    counts : ndarray of int64, shape (windows, workloads)
        Requests per long window.
    dispersion : ndarray of float, shape (workloads,) or (windows, workloads)
        Index of dispersion of a half, above 1.

    Returns
    -------
    ndarray of int64, shape (2 * windows, workloads)
        Requests per half window; each pair adds up to its count.
    """
    shape = np.maximum(counts / 2.0, 0.5) / np.maximum(dispersion - 1.0, _MIN_EXCESS)
    first = rng.binomial(counts, rng.beta(shape, shape))
    return np.stack([first, counts - first], axis=1).reshape(-1, counts.shape[1])


def resampled_day(
    rng: np.random.Generator,
    history_rps: np.ndarray,
    windows: int,
    roll_windows: int = 0,
    level_log_sd: np.ndarray | float = 0.0,
) -> np.ndarray:
    """Draw one of the history's days, rolled in time and scaled.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    history_rps : ndarray of float, shape (windows of the history, workloads)
        Past demand; whole days are counted from its end. A history shorter than a day is rolled at random and
        repeated.
    windows : int
        Windows of the episode.
    roll_windows : int
        The day is rolled around by up to this many windows either way.
    level_log_sd : float or ndarray of float, shape (workloads,)
        Standard deviation of the log of each workload's level.

    Returns
    -------
    ndarray of float, shape (windows, workloads)
        Requests/s; counts are rounded to whole requests by the caller where levels change.
    """
    length = len(history_rps)
    if length >= windows:
        start = length - windows * int(rng.integers(1, length // windows + 1))
        day = history_rps[start : start + windows]
        roll = int(rng.integers(-roll_windows, roll_windows + 1))
    else:
        day = np.resize(history_rps, (windows, history_rps.shape[1]))
        roll = int(rng.integers(0, windows))
    sd = np.broadcast_to(np.asarray(level_log_sd, dtype=float), day.shape[1:])
    factor = np.exp(sd * rng.standard_normal(len(sd)) - 0.5 * sd * sd)
    return np.roll(day, roll, axis=0) * factor
