"""Fit the demand process `diurnal-ou` and token drift to counts per window, and say what was assumed.

A trace tells only what it is long enough for. Whatever it cannot tell takes the medians of the fits to ServeGen
that ship with fleetgym (`fleetgym/data/demand_fits.json`), and is named as assumed.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import numpy as np

from fleetgym.capacity.traces.workloads import TraceStatistics
from fleetgym.families.demand import DAY, WINDOW_S
from fleetgym.families.draft import fits
from fleetgym.families.text import six
from fleetgym.model.dynamics.demand import MIN_JUMP_LOG, DiurnalOU, draw_counts

_HOUR = 12  # windows
_FEW_PER_WINDOW = 5.0  # fewer requests than this, and logs of counts say nothing
_LONGEST_LAG = 6 * _HOUR
_OU_TIMES_MIN = np.geomspace(20.0, 720.0, 46)
_JUMP_SIDE = 3  # windows on either side of a jump that must agree on it
_HOLD_MIN = 45.0
_COMMON = 0.6
_TOKEN_LOG_SD, _TOKEN_TIME_MIN = 0.1, 360.0
_PEAK_H = 14.5
#: What parameters are clipped to. A jump's mean log size must stay below MIN_JUMP_LOG + 1: only then its mean factor is
#: finite.
_LARGEST = {"ou_sd": 1.5, "noise_sd": 1.0, "jump_log_mean": 1.3}
#: The busiest percent of windows of this many generated days may be this many times as busy as that of the trace, which
#: counts as at least this many requests.
_TRIAL_DAYS, _WILD, _FEW_BUSY = 28, 2.0, 5.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fit:
    """A process for generated days: parameters per workload, and what they rest on."""

    process: dict[str, Any]  # as in an instance's dynamics
    tokens: dict[str, Any]
    fitted: tuple[str, ...]
    assumed: tuple[str, ...]
    wild: tuple[str, ...] = ()  # workloads that the process does not fit: see `fit_process`

    @property
    def ou(self) -> DiurnalOU:
        """The process ready to draw from."""
        values = {k: v for k, v in self.process["parameters"].items() if k not in ("dispersion", "ou_common")}
        vectors = {name: np.array(value) for name, value in values.items()}
        return DiurnalOU(ou_common=self.process["parameters"]["ou_common"], **vectors)


@functools.cache
def typical() -> dict[str, float]:
    """Return what is assumed where a trace cannot tell: medians of the fits to ServeGen's models."""
    found = list(fits()["demand"].values())

    def median(name: str) -> float:
        return float(np.median([fit[name] for fit in found if fit[name] is not None]))

    return {
        "daily_amplitude": median("daily_amp_log"),
        "daily_peak_h": _PEAK_H,
        "ou_sd": median("ou_sd"),
        "ou_time_min": median("ou_time_min"),
        "noise_sd": median("noise_sd"),
        "jumps_per_day": median("jumps_gt_1p5x_per_day"),
        "jump_log_mean": 0.5,
        "jump_hold_min": _HOLD_MIN,
    }


def fit_process(found: TraceStatistics) -> Fit:
    """Fit the process ``diurnal-ou`` and the drift of token lengths to a trace.

    - *dispersion*: variance / mean of counts, from the halves of windows (any trace).
    - *noise*: from the variogram of log demand at a lag of one window, less what the counts' dispersion
      explains (any trace of an hour; the smaller of this and the variogram's intercept from a day on).
    - *daily term*: first harmonic of 24 h, by least squares on whole days. A single day cannot tell a daily
      pattern from that day's course: all of it counts as daily.
    - *jumps*: changes of level by at least 1.5 times that the three windows before and after agree on, and that
      stand out of the noise.
    - *swings (OU)*: variance and time constant of the variogram's rise over lags up to 6 h, jumps taken out.
    - *common share*: correlation of the workloads' hourly means, the daily term taken out.

    The last three need a whole day, as does the drift of lengths. Numbers are rounded to six digits.

    Demand that nearly stops at night, or that has holes, is none of this. A workload is *wild* where a
    fitted parameter would be larger than the largest that is allowed, or, for a trace of a day or more, where 1 % of
    the windows of generated days have more than twice the requests that 1 % of the trace's windows have.

    Notes
    -----
    Variogram: gamma(h) = noise² + ou² (1 - exp(-h/time)), fitted by least squares for each of 46 time
    constants, both variances kept from being negative.
    """
    counts = found.counts
    busy = counts.mean(axis=0) >= _FEW_PER_WINDOW
    values = {
        name: np.full(len(found.names), value) for name, value in typical().items() if name != "daily_peak_h"
    }
    values["daily_peak_h"] = np.full(len(found.names), _PEAK_H)
    count_noise = found.dispersion / np.maximum(counts.mean(axis=0), 1.0)
    log = np.log(counts + 0.5) - np.log(counts.mean(axis=0) + 0.5)
    common = _COMMON
    fitted, assumed = ["dispersion of counts"], []
    if found.num_windows >= _HOUR - 1:
        step = 0.5 * np.diff(log, axis=0).var(axis=0)
        values["noise_sd"] = np.where(
            busy, np.sqrt(np.clip(step - count_noise, 0.0, _LARGEST["noise_sd"] ** 2)), values["noise_sd"]
        )
        fitted.append("noise between windows")
    else:
        assumed.append("noise between windows")
    if found.num_days >= 1:
        common = _fit_days(found, log, busy, count_noise, values)
        fitted += ["daily term", "jumps", "swings", "common share", "drift of lengths"]
        if found.num_days == 1:
            assumed.append("that every day has the daily term of this one")
    else:
        assumed += ["daily term", "jumps", "swings", "common share", "drift of lengths"]
    if not busy.all():
        seldom = [name for name, enough in zip(found.names, busy, strict=True) if not enough]
        few = seldom[0] if len(seldom) == 1 else f"{len(seldom)} workloads, such as {seldom[0]}"
        assumed.append(f"everything but dispersion of {few} (under {_FEW_PER_WINDOW:g} requests per window)")
    parameters: dict[str, Any] = {name: six(value).tolist() for name, value in values.items()}
    parameters |= {"ou_common": float(six(common)), "dispersion": six(found.dispersion).tolist()}
    fit = Fit(
        process={"kind": "diurnal-ou", "parameters": parameters},
        tokens={
            "kind": "drift",
            "parameters": {"log_sd": six(_token_drift(found)).tolist(), "time_min": _TOKEN_TIME_MIN},
        },
        fitted=tuple(fitted),
        assumed=tuple(assumed),
    )
    return dataclasses.replace(fit, wild=_wild(found, fit, values))


def _wild(found: TraceStatistics, fit: Fit, values: dict[str, np.ndarray]) -> tuple[str, ...]:
    """Return the workloads that the process does not fit."""
    is_wild = np.any([values[name] >= largest for name, largest in _LARGEST.items()], axis=0)
    if found.num_days >= 1:
        rng = np.random.default_rng(0)
        level = np.exp(fit.ou.log_level(rng, _TRIAL_DAYS * DAY, WINDOW_S))
        drawn = draw_counts(rng, found.counts.mean(axis=0) * level, found.dispersion)
        busy = np.maximum(np.quantile(found.counts, 0.99, axis=0), _FEW_BUSY)
        is_wild |= np.quantile(drawn, 0.99, axis=0) > _WILD * busy
    return tuple(name for name, wild in zip(found.names, is_wild, strict=True) if wild)


def _fit_days(
    found: TraceStatistics,
    log: np.ndarray,
    busy: np.ndarray,
    count_noise: np.ndarray,
    values: dict[str, np.ndarray],
) -> float:
    """Replace what a trace of a day or more tells; return the common share."""
    whole = found.num_days * DAY
    hours = (found.first_window + np.arange(len(log))) % DAY * (WINDOW_S / 3600.0)
    waves = np.column_stack((np.cos(hours * math.pi / 12.0), np.sin(hours * math.pi / 12.0)))
    rest = np.empty_like(log)
    for i in range(log.shape[1]):
        size = 2.0 * (waves[:whole] * log[:whole, [i]]).mean(axis=0)  # orthogonal over whole days
        rest[:, i] = log[:, i] - waves @ size
        if busy[i]:
            values["daily_amplitude"][i] = float(np.hypot(*size))
            values["daily_peak_h"][i] = float(math.atan2(size[1], size[0]) * 12.0 / math.pi % 24.0)
            _fit_swings(rest[:, i], float(count_noise[i]), i, values)
    return _common_share(rest[:, busy]) if busy.sum() > 1 else _COMMON


def _fit_swings(rest: np.ndarray, count_noise: float, i: int, values: dict[str, np.ndarray]) -> None:
    lags = np.arange(1, min(_LONGEST_LAG, len(rest) // 4) + 1)
    variogram = np.array([0.5 * np.mean((rest[h:] - rest[:-h]) ** 2) for h in lags])
    nugget, sill, time_min = _fit_variogram(lags * WINDOW_S / 60.0, variogram)
    sizes = _jumps(rest, math.sqrt(nugget + count_noise))
    per_day = len(sizes) * DAY / len(rest)
    mean = (
        float(np.clip(np.mean(sizes), MIN_JUMP_LOG + 0.01, _LARGEST["jump_log_mean"])) if len(sizes) else 0.5
    )
    spread = mean - MIN_JUMP_LOG
    holding = 0.5 * per_day * _HOLD_MIN / 1440.0  # jumps that hold at a time
    by_jumps = holding * (mean * mean + spread * spread)
    values["jumps_per_day"][i], values["jump_log_mean"][i] = per_day, mean
    values["ou_sd"][i] = math.sqrt(min(max(sill - by_jumps, 0.0), _LARGEST["ou_sd"] ** 2))
    values["ou_time_min"][i] = time_min
    noise = math.sqrt(min(max(nugget - count_noise, 0.0), _LARGEST["noise_sd"] ** 2))
    values["noise_sd"][i] = min(values["noise_sd"][i], noise)


def _fit_variogram(lag_min: np.ndarray, variogram: np.ndarray) -> tuple[float, float, float]:
    """Return intercept, rise and time constant in minutes of noise² + ou² (1 - exp(-h/time))."""
    best = (math.inf, 0.0, 0.0, float(_OU_TIMES_MIN[0]))
    for time in _OU_TIMES_MIN:
        shape = 1.0 - np.exp(-lag_min / time)
        centred = shape - shape.mean()
        rise = float(max(0.0, centred @ variogram / (centred @ centred)))
        nugget = float(variogram.mean() - rise * shape.mean())
        if nugget < 0.0:
            nugget, rise = 0.0, float(shape @ variogram / (shape @ shape))
        error = float(((variogram - nugget - rise * shape) ** 2).sum())
        if error < best[0]:
            best = (error, nugget, rise, float(time))
    return best[1:]


def _jumps(rest: np.ndarray, noise: float) -> np.ndarray:
    """Return |log| of the changes of level, at most one in any 2 x 3 windows."""
    triples = np.lib.stride_tricks.sliding_window_view(rest, _JUMP_SIDE)
    level = np.median(triples, axis=1)
    change = np.abs(level[_JUMP_SIDE:] - level[:-_JUMP_SIDE])
    threshold = max(MIN_JUMP_LOG, 4.0 * noise)
    sizes: list[float] = []
    k = 0
    while k < len(change):
        if change[k] >= threshold:
            peak = float(change[k : k + _JUMP_SIDE].max())
            sizes.append(peak)
            k += 2 * _JUMP_SIDE
        else:
            k += 1
    return np.array(sizes)


def _common_share(rest: np.ndarray) -> float:
    hours = rest[: len(rest) // _HOUR * _HOUR].reshape(-1, _HOUR, rest.shape[1]).mean(axis=1)
    if np.any(hours.std(axis=0) == 0.0):
        return 0.0
    matrix = np.corrcoef(hours.T)
    return float(np.clip(matrix[np.triu_indices(len(matrix), 1)].mean(), 0.0, 0.95))


def _token_drift(found: TraceStatistics) -> np.ndarray:
    """Return the spread of the log of hourly mean output lengths beyond sampling error: (I,)."""
    hours = found.num_windows // _HOUR
    if found.num_days < 1:
        return np.full(len(found.names), _TOKEN_LOG_SD)
    counts = found.counts[: hours * _HOUR].reshape(hours, _HOUR, -1)
    sd = []
    for i in range(len(found.names)):
        n = counts[:, :, i].sum(axis=1)
        enough = n >= 20
        if enough.sum() < 12:
            sd.append(_TOKEN_LOG_SD)
            continue
        sums = np.nansum(
            found.output_mean[: hours * _HOUR, i].reshape(hours, _HOUR) * counts[:, :, i], axis=1
        )[enough]
        sampling = float(np.mean(found.lengths[i, 3] / n[enough]))
        sd.append(math.sqrt(max(float(np.log(np.maximum(sums, 1.0) / n[enough]).var()) - sampling, 0.0)))
    return np.clip(sd, 0.0, 0.5)
