"""Predict demand, and say what it asks of fleets, in compiled loops: what `Margins` does between two windows.

Logarithms and exponentials are left to NumPy: its last digit differs from that of compiled ones. A kernel writes what
to take them of, and the next one reads them. So a window is `look`, `log`, `follow`, `exp` and `study`; features are
`log` and `tell`. `tests/margins_twin.py` is the same in plain NumPy, with the same numbers to the bit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fleetgym.kernels.compile import entry, inline, jit
from fleetgym.kernels.lowlevel import PackedPointers, Packer, borrow
from fleetgym.kernels.sizing import (
    BUDGET_USD,
    PAYBACK,
    RENT_FACTOR,
    S_SERVED,
    S_SERVING_USD,
    S_UNSERVED_USD,
    SizingSpace,
    new_space,
    size_studied,
    study_windows,
)

#: Windows in which a replica must pay for its start.
PAYBACK_WINDOWS = 12
#: Cost of a window, at most, over the budget left per coming window.
PACE = 1.25
#: Features of a workload; the others are the fleet's.
OF_WORKLOADS = 10
#: The largest feature.
LARGEST = 5.0

_TINY = 1e-12

#: Columns of `Setting.timing`.
LEAD, WINDOWS, AHEAD = range(3)
#: Columns of `Setting.budget`.
_USD, _IS_PACED = range(2)
#: First axis of `Setting.law`: forecasts of the coming window, of that in which what is added serves, and of the last
#: of these in any episode.
_COMING, _SERVING, _LAST = range(3)
#: Second axis: of the state, of its variance, and the variance that comes with the windows.
_DECAY, _SHARE, _MORE = range(3)
#: First axis of `Now.forecast`; the last is seasonal.
NEXT, RATE, SEASON = range(3)


class Setting(NamedTuple):
    """What stays the same: for P instances, n episodes, and 2n filters, of which the second half is seasonal."""

    problems: np.ndarray  # (P, words) int64, see `records.pack_problem`
    most: np.ndarray  # (P, C) int64 replicas
    place: np.ndarray  # (P, 2, C) int64 slot of a configuration, and the option that stands for one replica
    clock: np.ndarray  # (P, T + 1, 2) sine and cosine of the time of day
    which: np.ndarray  # (n,) int64 instance
    timing: np.ndarray  # (n, 3) int64
    budget: np.ndarray  # (n, 2)
    nominal_rps: np.ndarray  # (n, I)
    caps: np.ndarray  # (n, G) int64, at least 1
    fee: np.ndarray  # (n,)
    most_served: np.ndarray  # (I,) times the forecast
    risk: np.ndarray  # (1,)
    floor_rps: np.ndarray  # (n, I)
    fitted: np.ndarray  # (4, 2n, I) phi, its square, variances of process and noise
    first: np.ndarray  # (2n, I) variance before anything was seen
    expected: np.ndarray  # (rows, I) log rates
    row: np.ndarray  # (2n, 2) int64 where the rows of a filter begin, and their number
    law: np.ndarray  # (3, 3, 2n, I)


class Past(NamedTuple):
    """What is remembered of earlier windows."""

    state: np.ndarray  # (2n, I)
    spread: np.ndarray  # (2n, I)
    window: np.ndarray  # (2n,) int64 updated last
    surprise: np.ndarray  # (n, I)


class Now(NamedTuple):
    """What is known of the coming window."""

    window: np.ndarray  # (n,) int64
    spent_usd: np.ndarray  # (n,)
    workload: np.ndarray  # (n, 5, I) as seen; `study` puts the forecast in place of the rates
    available: np.ndarray  # (n, G) int64
    price: np.ndarray  # (n, G)
    fleet: np.ndarray  # (n, C) int64 running or starting
    share: np.ndarray  # (n, 2, I) unserved, and missed
    seen_logs: np.ndarray  # (2, n, I) of the rates, and of these over their forecasts
    forecast: np.ndarray  # (3, n, I) rates
    money: np.ndarray  # (n, 3)
    at_once: np.ndarray  # (n,) bool
    study: np.ndarray  # (n, 3, I)
    unserved_usd: np.ndarray  # (n, I)
    hold_usd: np.ndarray  # (n, C) of each configuration
    held_usd: np.ndarray  # (n,) of the fleet
    ratios: np.ndarray  # (n, 4 I + G + 1) of workloads, then price factors, and the size of the fleet
    logs: np.ndarray  # of these


def _example() -> tuple[Setting, Past, Now, SizingSpace]:
    row, plane, cube = (np.zeros((1,) * axes) for axes in (1, 2, 3))
    whole, wholes, cubes = (part.astype(np.int64) for part in (row, plane, cube))
    setting = Setting(
        *(wholes, wholes, cubes, cube, whole, wholes, plane, plane, wholes, row, row, row),
        *(plane, cube, plane, plane, wholes, np.zeros((1,) * 4)),
    )
    now = Now(
        *(whole, row, cube, wholes, plane, wholes, cube, cube, cube, plane, row.astype(np.bool_), cube),
        *(plane, plane, row, plane, plane),
    )
    spaces = SizingSpace(*(part[None] for part in new_space(1, 1, 1)))
    return setting, Past(plane, plane, whole, plane), now, spaces


_packer = Packer(*_example())
_unpack: Any = _packer.unpack


def pack(setting: Setting, past: Past, now: Now, spaces: SizingSpace) -> PackedPointers:
    """Return what these kernels take; `spaces` are those of `sizing.study_windows`."""
    return _packer.pack(setting, past, now, spaces)


@inline
def _has_news(setting, now, rows, n):
    return rows[n] and (now.window[n] > 0 or setting.timing[n, LEAD] == 0)


@jit
def look(words, money, counts, rows):
    """Note what a window has shown, begin episodes that are at window 0, and write `Now.seen_logs`.

    Parameters
    ----------
    words : (words,) int64
        From `pack`.
    money : (n, ...) float
    counts : (n, ...) int64
        With the columns of `fleetgym.kernels.batch.columns`.
    rows : (n,) bool
        Episodes in which something has happened.
    """
    money, counts, rows = borrow((money, counts, rows))
    setting, past, now, _ = _unpack(words)
    episodes, kinds, workloads = now.workload.shape
    pools, count = now.available.shape[1], now.fleet.shape[1]
    shares = money.shape[1] - pools - (kinds + 2) * workloads
    longest = (counts.shape[1] - 2 - pools - 5 * count) // (2 * count)
    for n in range(episodes):
        now.window[n], now.spent_usd[n] = counts[n, 0], money[n, shares - 1]
        at = shares
        for k in range(2):
            for i in range(workloads):
                now.share[n, k, i] = money[n, at]
                at += 1
        for k in range(kinds):
            for i in range(workloads):
                now.workload[n, k, i] = money[n, at]
                at += 1
        for g in range(pools):
            now.price[n, g], now.available[n, g] = money[n, at + g], counts[n, 2 + g]
        at = 2 + pools
        for c in range(count):
            now.fleet[n, c] = counts[n, at + c]
            for k in range(longest):
                now.fleet[n, c] += counts[n, at + count + c * longest + k]
        if rows[n] and now.window[n] == 0:
            for i in range(workloads):
                past.surprise[n, i], now.forecast[NEXT, n, i] = 0.0, np.nan
                for f in (n, episodes + n):
                    past.state[f, i], past.spread[f, i] = 0.0, setting.first[f, i]
            past.window[n] = past.window[episodes + n] = -1
        is_new = _has_news(setting, now, rows, n)
        for i in range(workloads):
            rate, expected = 1.0, 1.0
            if is_new:
                floor = setting.floor_rps[n, i]
                rate, expected = max(now.workload[n, 0, i], floor), now.forecast[NEXT, n, i]
                if expected <= floor:
                    expected = floor
            now.seen_logs[0, n, i], now.seen_logs[1, n, i] = rate, rate / expected


@inline
def _log_forecast(setting, past, f, i, which, ahead):
    """Return the log of the rate that filter f expects of workload i some windows after the last update."""
    decay, share, more = setting.law[which, _DECAY], setting.law[which, _SHARE], setting.law[which, _MORE]
    row = setting.row[f, 0] + (past.window[f] + ahead) % setting.row[f, 1]
    spread = share[f, i] * past.spread[f, i] + more[f, i]
    return setting.expected[row, i] + decay[f, i] * past.state[f, i] + 0.5 * spread


@inline
def _deviation(setting, past, f, i, which):
    """Return the standard deviation of the log rate that filter f expects of workload i."""
    share, more = setting.law[which, _SHARE], setting.law[which, _MORE]
    return np.sqrt(share[f, i] * past.spread[f, i] + more[f, i] + setting.fitted[3, f, i])


@jit
def follow(words, rows):
    """Filter what was seen, and write the logs of `Now.forecast`; arguments as for `look`."""
    rows = borrow(rows)
    setting, past, now, _ = _unpack(words)
    _, episodes, workloads = now.forecast.shape
    phi, square, process, noise = setting.fitted[0], setting.fitted[1], setting.fitted[2], setting.fitted[3]
    for n in range(episodes):
        if _has_news(setting, now, rows, n):
            for i in range(workloads):
                surprise = now.seen_logs[1, n, i] / _deviation(setting, past, n, i, _COMING)
                if np.isfinite(surprise):
                    past.surprise[n, i] = surprise
            for f in (n, episodes + n):
                past.window[f] += 1
                row = setting.row[f, 0] + past.window[f] % setting.row[f, 1]
                for i in range(workloads):
                    state = phi[f, i] * past.state[f, i]
                    spread = square[f, i] * past.spread[f, i] + process[f, i]
                    gain = spread / (spread + noise[f, i])
                    seen = now.seen_logs[0, n, i] - setting.expected[row, i]
                    past.state[f, i] = state + gain * (seen - state)
                    past.spread[f, i] = (1.0 - gain) * spread
        ahead = setting.timing[n, AHEAD]
        for i in range(workloads):
            now.forecast[NEXT, n, i] = _log_forecast(setting, past, n, i, _COMING, 1)
            now.forecast[RATE, n, i] = _log_forecast(setting, past, n, i, _SERVING, ahead)
            now.forecast[SEASON, n, i] = _log_forecast(setting, past, episodes + n, i, _SERVING, ahead)


@inline
def _block_sum(values, first, stop):
    """Return the sum of at most 128 numbers in NumPy's order."""
    count, total = stop - first, 0.0
    if count < 8:
        for k in range(first, stop):
            total += values[k]
        return total
    a, b, c, d = values[first], values[first + 1], values[first + 2], values[first + 3]
    e, f, g, h = values[first + 4], values[first + 5], values[first + 6], values[first + 7]
    whole = first + count - count % 8
    for k in range(first + 8, whole, 8):
        a, b, c, d = a + values[k], b + values[k + 1], c + values[k + 2], d + values[k + 3]
        e, f, g, h = e + values[k + 4], f + values[k + 5], g + values[k + 6], h + values[k + 7]
    total = ((a + b) + (c + d)) + ((e + f) + (g + h))
    for k in range(whole, stop):
        total += values[k]
    return total


@jit
def pairwise_sum(values):
    """Return the sum of numbers (m,) to the bit of `numpy.sum`, which adds them in pairs of blocks."""
    count = values.shape[0]
    if count <= 128:
        return _block_sum(values, 0, count)
    half = count // 2
    half -= half % 8
    return pairwise_sum(values[:half]) + pairwise_sum(values[half:])


@inline
def _budget(setting, now, n, left):
    """Return what holding the fleet may cost in the coming window: budgets for the day are paced."""
    usd = setting.budget[n, _USD]
    if setting.budget[n, _IS_PACED] == 0.0:
        return usd
    return max(0.0, usd - now.spent_usd[n]) * min(1.0, PACE / max(1, left))


@inline
def _serving_usd(now, n, i):
    """Return the least that serving a workload costs; what not serving it costs where nothing can."""
    usd = now.study[n, S_SERVING_USD, i]
    return usd if np.isfinite(usd) else now.unserved_usd[n, i]


@jit
def study(words):
    """Study fleets for the forecasts, and write `Now.ratios`; `words` are those of `pack`."""
    setting, _, now, spaces = _unpack(words)
    episodes, _, workloads = now.workload.shape
    pools, count = now.available.shape[1], now.fleet.shape[1]
    for n in range(episodes):
        left = setting.timing[n, WINDOWS] - now.window[n]
        now.money[n, BUDGET_USD], now.money[n, RENT_FACTOR] = _budget(setting, now, n, left), 1.0
        now.money[n, PAYBACK] = min(max(left, 1), PAYBACK_WINDOWS)
        now.at_once[n] = now.window[n] == 0
        for i in range(workloads):
            if setting.timing[n, AHEAD] == 0:  # the rates that were seen
                now.forecast[RATE, n, i] = now.forecast[SEASON, n, i] = now.workload[n, 0, i]
            now.workload[n, 0, i] = now.forecast[RATE, n, i]
    study_windows(
        setting.problems,
        setting.which,
        now.workload,
        now.available,
        now.price,
        now.fleet,
        setting.most_served,
        now.money,
        now.at_once,
        setting.risk[0],
        spaces,
        now.study,
    )
    for n in range(episodes):
        ratios = now.ratios[n]
        for c in range(count):
            now.hold_usd[n, c] = spaces.rent[n, 0, c] * now.fleet[n, c]
        now.held_usd[n] = pairwise_sum(now.hold_usd[n])
        for i in range(workloads):
            now.unserved_usd[n, i] = max(now.study[n, S_UNSERVED_USD, i], _TINY)
            rate, serving = max(now.forecast[RATE, n, i], _TINY), _serving_usd(now, n, i)
            ratios[i] = rate / setting.nominal_rps[n, i]
            ratios[workloads + i] = rate / max(now.forecast[NEXT, n, i], _TINY)
            ratios[2 * workloads + i] = max(now.forecast[SEASON, n, i], _TINY) / rate
            ratios[3 * workloads + i] = now.unserved_usd[n, i] / max(serving, _TINY)
            now.study[n, S_SERVING_USD, i] = serving
        for g in range(pools):
            ratios[4 * workloads + g] = max(now.price[n, g], _TINY)
        serving = pairwise_sum(now.study[n, S_SERVING_USD])
        ratios[4 * workloads + pools] = max(now.held_usd[n], _TINY) / max(serving, _TINY)


@inline
def _within(value):
    return np.float32(min(max(value, -LARGEST), LARGEST))


@inline
def _tell_fleet(setting, now, n, out):
    """Write what is known of the fleet of episode n into the last columns of `out`, (I, features)."""
    pools, workloads, window, m = now.price.shape[1], out.shape[0], now.window[n], setting.which[n]
    logs, available, caps, scarcest = now.logs[n], 0, 0, np.inf
    for g in range(pools):
        available, caps = available + now.available[n, g], caps + setting.caps[n, g]
        scarcest = min(scarcest, now.available[n, g] / setting.caps[n, g])
    budget, tightness, k = now.money[n, BUDGET_USD], 0.0, OF_WORKLOADS
    if budget < np.inf:
        tightness = now.held_usd[n] / max(budget, _TINY)
    for i in range(workloads):
        out[i, k] = _within(available / caps)
        out[i, k + 1] = _within(scarcest)
        out[i, k + 2] = _within(pairwise_sum(logs[4 * workloads : 4 * workloads + pools]) / pools)
        out[i, k + 3] = _within(min(1.0, (setting.timing[n, WINDOWS] - window) / 12.0))
        out[i, k + 4] = _within(setting.clock[m, window, 0])
        out[i, k + 5] = _within(setting.clock[m, window, 1])
        out[i, k + 6] = _within(tightness)
        out[i, k + 7] = _within(setting.timing[n, AHEAD] / 4.0)
        out[i, k + 8] = _within(setting.fee[n])
        out[i, k + 9] = _within(logs[4 * workloads + pools])


@jit
def tell(words, out):
    """Write the features, float32 (n, I, features), into `out`."""
    out = borrow(out)
    setting, past, now, _ = _unpack(words)
    episodes, workloads = out.shape[0], out.shape[1]
    for n in range(episodes):
        logs, weight = now.logs[n], pairwise_sum(now.unserved_usd[n])
        for i in range(workloads):
            own = out[n, i]
            own[0] = _within(logs[i])
            own[1] = _within(logs[workloads + i] * 4.0)
            own[2] = _within(past.surprise[n, i])
            own[3] = _within(3.0 * _deviation(setting, past, n, i, _LAST))
            own[4] = _within(logs[2 * workloads + i] * 2.0)
            own[5] = _within(logs[3 * workloads + i] / 4.0)
            own[6] = _within(now.study[n, S_SERVED, i] - 1.0)
            own[7] = _within(now.share[n, 0, i])
            own[8] = _within(now.share[n, 1, i])
            own[9] = _within(now.unserved_usd[n, i] / weight)
        _tell_fleet(setting, now, n, out[n])


@jit
def choose(words, margins, targets, actions):
    """Write fleets for margins, and the actions that stand for them.

    Parameters
    ----------
    words : (words,) int64
        From `pack`, after `study`.
    margins : (L, n, 2, I) float
        Times the forecast for which replicas are added, and kept; several for each episode.
    targets : (L, n, C) int64
        Written.
    actions : (L, n, slots) int64
        Written.
    """
    margins, targets, actions = borrow((margins, targets, actions))
    setting, _, now, spaces = _unpack(words)
    for k in range(margins.shape[0]):
        size_studied(
            setting.problems,
            setting.which,
            now.available,
            now.fleet,
            margins[k],
            now.money,
            setting.most,
            setting.risk[0],
            spaces,
            targets[k],
        )
        for n in range(margins.shape[1]):
            place = setting.place[setting.which[n]]
            for s in range(actions.shape[2]):
                actions[k, n, s] = 0
            for c in range(targets.shape[2]):
                if targets[k, n, c] > 0:
                    actions[k, n, place[0, c]] = max(targets[k, n, c], place[1, c])


@jit
def tell_apart(targets, masks):
    """Write whether no earlier fleet of an episode is the same: bool (n, L), for fleets int64 (L, n, C)."""
    targets, masks = borrow((targets, masks))
    for n in range(targets.shape[1]):
        for k in range(targets.shape[0]):
            masks[n, k] = True
            for j in range(k):
                same = True
                for c in range(targets.shape[2]):
                    same = same and targets[j, n, c] == targets[k, n, c]
                if same:
                    masks[n, k] = False
                    break


_WORDS, _WHOLES, _FLAGS = (
    np.zeros(1, dtype=np.int64),
    np.zeros((1, 1), dtype=np.int64),
    np.zeros(1, dtype=np.bool_),
)
_FLEETS = np.zeros((1, 1, 1), dtype=np.int64)
entry(look, _WORDS, np.zeros((1, 1)), _WHOLES, _FLAGS)
entry(follow, _WORDS, _FLAGS)
entry(study, _WORDS)
entry(tell, _WORDS, np.zeros((1, 1, 1), dtype=np.float32))
entry(choose, _WORDS, np.zeros((1, 1, 2, 1)), _FLEETS, _FLEETS)
entry(tell_apart, _FLEETS, np.zeros((1, 1), dtype=np.bool_))
