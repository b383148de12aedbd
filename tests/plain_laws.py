"""Draw days from each process window by window, as docs/laws.md states it; shares no code with the package."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import stats

Numbers = dict[str, Any]


# [mean reversion]
def mean_reverting(rng, sd, time_min, shocks, window_s):
    """Return a series that returns to 0, (W, N), from standard normals `shocks`, (W, N)."""
    keep = np.exp(-window_s / 60.0 / time_min)
    series = np.empty_like(shocks)
    series[0] = sd * shocks[0]
    for t in range(1, len(shocks)):
        series[t] = keep * series[t - 1] + np.sqrt(1.0 - keep**2) * sd * shocks[t]
    return series


# [jumps]
def jumps(rng, windows, begin, hold_min, size, window_s):
    """Return the sum of the jumps that hold in each window, (W, N); `begin` are jumps a window, `size(n)` draws one."""
    end = np.minimum(1.0, window_s / 60.0 / hold_min)
    holding, total = [[] for _ in begin], np.zeros((windows, len(begin)))
    for t in range(-BEFORE, windows):
        for n in range(len(begin)):
            holding[n] = [jump for jump in holding[n] if rng.random() >= end[n]]
            holding[n] += [size(n) for _ in range(rng.poisson(begin[n]))]
            if t >= 0:
                total[t, n] = sum(holding[n])
    return total


BEFORE = 288  # windows before the first one, in which jumps and drops may begin


# [demand]
def log_level(rng, p, daily, windows, window_s):
    """Return log(rate / nominal rate) before its mean is set, (W, I); `daily` (W, I) is what the time says."""
    count, common = len(p["ou_sd"]), p["ou_common"]
    own, all_alike = rng.standard_normal((windows, count)), rng.standard_normal((windows, 1))
    shocks = np.sqrt(1.0 - common) * own + np.sqrt(common) * all_alike

    def size(i):
        return rng.choice([-1.0, 1.0]) * (0.4 + (p["jump_log_mean"][i] - 0.4) * rng.exponential())

    swing = mean_reverting(rng, p["ou_sd"], p["ou_time_min"], shocks, window_s)
    begin = 0.5 * p["jumps_per_day"] * window_s / 86400.0  # the other half are returns
    noise = p["noise_sd"] * rng.standard_normal((windows, count))
    return swing + noise + jumps(rng, windows, begin, p["jump_hold_min"], size, window_s) + daily


def log_mean(p, period, window_s):
    """Return what is taken off the log level; `period` (T, I) is what the time says over a whole day or week."""
    above = p["jump_log_mean"] - 0.4
    factor = 0.5 * (math.exp(0.4) / (1.0 - above) + math.exp(-0.4) / (1.0 + above))  # mean of exp(jump)
    holding = (
        0.5 * p["jumps_per_day"] * window_s / 86400.0 * np.maximum(1.0, p["jump_hold_min"] * 60.0 / window_s)
    )
    spread = 0.5 * (p["ou_sd"] ** 2 + p["noise_sd"] ** 2)
    return spread + holding * (factor - 1.0) + np.log(np.mean(np.exp(period), axis=0))


def rates(rng, nominal_rps, log, dispersion, window_s):
    """Return requests/s, (W, I): whole requests of a window, with variance = dispersion x mean."""
    mean = nominal_rps * np.exp(log) * window_s
    over = np.maximum(dispersion - 1.0, 1e-6)
    return rng.poisson(rng.gamma(mean / over, over)) / window_s


# [the day]
def diurnal(p, windows, window_s):
    """Return what the time of the day says of log demand, (W, I); window 0 begins at midnight."""
    hours = np.arange(windows)[:, None] * window_s / 3600.0
    return p["daily_amplitude"] * np.cos(2.0 * math.pi * (hours - p["daily_peak_h"]) / 24.0)


# [the week]
def weekly(p, windows, window_s):
    """Return what the time of the week says of log demand, (W, I); `first_day` 0 begins on Monday at midnight."""
    hours = (24.0 * p["first_day"] + np.arange(windows) * window_s / 3600.0) % 168.0
    from_middle = np.abs(
        (hours - 144.0 + 84.0) % 168.0 - 84.0
    )  # hours from the midnight between Saturday and Sunday
    part = np.clip(
        (30.0 - from_middle) / 12.0, 0.0, 1.0
    )  # 0 on working days, 1 at weekends, half at its midnights
    weekend = 0.5 - 0.5 * np.cos(math.pi * part)
    total = 0.0
    for days, share in (("workday", 1.0 - weekend), ("weekend", weekend)):
        total = total + share[:, None] * p[f"{days}_level"]
        for k in (1, 2, 3, 4):
            angle = 2.0 * math.pi * k * hours[:, None] / 24.0
            wave = p[f"{days}_cos_{k}"] * np.cos(angle) + p[f"{days}_sin_{k}"] * np.sin(angle)
            total = total + share[:, None] * wave
    return total


# [a random walk]
def walk(rng, p, windows, count):
    """Return log(rate / nominal rate), (W, I), which is 0 in the first window."""
    steps = np.asarray(p["sigma"]) * rng.standard_normal((windows, count))
    steps[0] = 0.0
    return np.cumsum(steps, axis=0)


# [a day of the history]
def resampled(rng, p, history_rps, windows, window_s):
    """Return requests/s of a whole day of the history, counted from its end, rolled and scaled, (W, I)."""
    days = len(history_rps) // windows
    back = windows * rng.integers(1, days + 1)
    day = history_rps[len(history_rps) - back :][:windows]
    most, sd = int(p["roll_windows"]), np.asarray(p["level_log_sd"])
    level = np.exp(sd * rng.standard_normal(day.shape[1]) - 0.5 * sd**2)
    rolled = np.roll(day, rng.integers(-most, most + 1), axis=0)
    return np.rint(rolled * level * window_s) / window_s


# [lengths]
def scales(rng, p, windows, count, window_s):
    """Return mean lengths over nominal ones, of input and of output, (W, 2 I): means 1, all independent."""
    sd, time_min = (np.tile(np.broadcast_to(p[name], count), 2) for name in ("log_sd", "time_min"))
    shocks = rng.standard_normal((windows, 2 * count))
    return np.exp(mean_reverting(rng, sd, time_min, shocks, window_s) - 0.5 * sd**2)


# [factors]
def factors(rng, sd, windows):
    """Return factors on delays or on errors, (W, I): lognormal, mean 1, independent in each window."""
    return np.exp(sd * rng.standard_normal((windows, len(sd))) - 0.5 * sd**2)


# [pools alike]
def alike(rng, region, same, other):
    """Return a standard normal for each pool, (G,); those of one region correlate by `same`, others by `other`."""
    of_region = rng.standard_normal(max(region) + 1)[region]
    own = rng.standard_normal(len(region))
    shared = np.sqrt(other) * rng.standard_normal() + np.sqrt(same - other) * of_region
    return shared + np.sqrt(1.0 - same) * own


# [drops]
def drops(rng, p, nodes, region, windows, window_s):
    """Return the nodes that are left in each window, (W, G)."""
    in_windows = stats.lognorm(
        p["duration_log_sd"], scale=math.exp(p["duration_log_mean_min"]) * 60.0 / window_s
    )
    whole = np.arange(1, 100_000)
    mean = 1.0 + in_windows.sf(whole + 0.5).sum()  # of a duration, rounded to windows, at least one
    per_day = np.maximum(p["drops_per_day"], 1e-300)
    threshold = stats.norm.ppf(1.0 / np.maximum(86400.0 / window_s / per_day - mean + 1.0, 1.0))
    left, lost, deep = np.zeros(len(nodes)), np.zeros((windows + BEFORE, len(nodes))), np.zeros(len(nodes))
    copula = region, p["copula_same_region"], p["copula_other_region"]
    for t in range(windows + BEFORE):
        begins = (left <= 0) & (alike(rng, *copula) < threshold) & (p["drops_per_day"] > 0)
        lasting = (
            np.exp(p["duration_log_mean_min"] + p["duration_log_sd"] * alike(rng, *copula)) * 60.0 / window_s
        )
        share = rng.beta(p["depth_a"], p["depth_b"], len(nodes))
        left = np.where(begins, np.maximum(1, np.rint(lasting)), left)
        deep = np.where(begins, np.maximum(1, np.rint(share * nodes)), deep)
        first = np.maximum(1, np.floor(p["first_window_share"] * deep + rng.random(len(nodes))))
        lost[t] = np.where(left > 0, np.where(begins, first, deep), 0)
        left = left - 1
    return np.maximum(0, nodes - lost[BEFORE:])


# [prices]
def prices(rng, p, region, windows, window_s):
    """Return prices over list prices, (W, G): they return to a mean, jump up for a while, and have a ceiling."""
    shocks = np.array([alike(rng, region, p["same_region"], p["other_region"]) for _ in range(windows)])
    begin = p["jumps_per_day"] * window_s / 86400.0

    def size(g):
        return p["jump_log_mean"][g] * rng.exponential()

    log = mean_reverting(rng, p["ou_sd"], p["ou_time_min"], shocks, window_s)
    log = log + jumps(rng, windows, begin, p["jump_hold_min"], size, window_s)
    holding = begin * np.maximum(1.0, p["jump_hold_min"] * 60.0 / window_s)
    mean = 0.5 * p["ou_sd"] ** 2 + holding * (1.0 / (1.0 - p["jump_log_mean"]) - 1.0)
    return np.minimum(np.exp(log - mean), p["ceiling"])
