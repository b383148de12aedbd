"""Play one window of each episode of a batch, and write what is seen, paid and allowed after it.

Episodes of instances of one shape lie in arrays whose first axis counts instances, scenarios or episodes. The
environment with one episode uses the same kernel as a batch, so that their numbers are the same.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from fleetgym.kernels import admission, economics
from fleetgym.kernels.admission import DENIED, GRANTED, LOST
from fleetgym.kernels.compile import entry, inline, jit
from fleetgym.kernels.economics import SECONDS_PER_DAY
from fleetgym.kernels.lowlevel import Packer, borrow
from fleetgym.kernels.records import (
    EXAMPLE_CONDITIONS,
    EXAMPLE_FLEET,
    EXAMPLE_MEMORY,
    EXAMPLE_PACKED,
    Memory,
    PackedConditions,
    unpack,
)
from fleetgym.kernels.window import BUDGET_KIND, BUDGET_USD, POOL_BUDGET, budget_usd, extern_play

#: Most that the demand of a workload may differ from nominal in an observation, as a natural logarithm.
MAX_LOG_RATIO = 5.0
MAX_PRICE_FACTOR = 100.0

_ANY = np.iinfo(np.int64).max - 1  # fits everything but options that do not exist


class Shape(NamedTuple):
    """What the instances of a batch have in common."""

    workloads: int
    configurations: int
    pools: int
    longest_startup: int  # windows, at least 1
    windows: int


class Setting(NamedTuple):
    """What stays the same: instances, first axis M, and scenarios, first axis the number of the scenario."""

    nominal: PackedConditions  # the window expected before any was seen
    nominal_fleet: np.ndarray  # (M, C) int64
    option: np.ndarray  # (M, 2, A) int64 configuration and replicas of each option of the flat mask
    option_start: np.ndarray  # (M, S) int64 where each slot's options begin
    lead: np.ndarray  # (M,) int64 windows between the last one seen and the coming one
    scenario: PackedConditions  # second axis: windows


class Episodes(NamedTuple):
    """What episodes carry along; first axis N."""

    position: np.ndarray  # (N, 3) int64 instance, scenario, the coming window
    fleet: np.ndarray  # (N, C, 1 + 2K) int64
    spent_usd: np.ndarray  # (N,)
    memory: Memory
    limits: PackedConditions  # availability and prices that `Report.mask` is for
    limit_usd: np.ndarray  # (N,) budget that `Report.mask` is for; NaN for none yet


class Report(NamedTuple):
    """What episodes show after a window; first axis N. The columns are those of `columns`."""

    observation: np.ndarray  # (N, ...) float32
    money: np.ndarray  # (N, ...) float64: costs, shares, the conditions seen last
    counts: np.ndarray  # (N, ...) int64: the fleet and what happened to it
    mask: np.ndarray  # (N, A) bool: options that fit


def columns(shape):
    """Return name and shape of the columns of each array of `Report`, in order.

    Parameters
    ----------
    shape : Shape

    Returns
    -------
    observation, money, count : dict of str to tuple of int
        A shape of () is a single number.
    """
    workload, pool, configuration = (shape.workloads,), (shape.pools,), (shape.configurations,)
    pipeline = (shape.configurations, shape.longest_startup)
    factors = ("input_scale", "output_scale", "delay_factor", "error_factor")
    observation = {
        "demand": workload,
        **dict.fromkeys(factors, workload),
        **dict.fromkeys(("availability", "price"), pool),
        **dict.fromkeys(("running", "starting", "draining", "denied", "lost"), configuration),
        "clock": (2,),
        **dict.fromkeys(("progress", "budget_left"), (1,)),
    }
    money = {
        **dict.fromkeys((*economics.TERMS, "cost", "spent_usd"), ()),
        **dict.fromkeys(("unserved_share", "miss_share", "rate_rps", *factors), workload),
        "price_factor": pool,
    }
    count = {
        **dict.fromkeys(("window", "forced_outage"), ()),
        "available_gpus": pool,
        "running": configuration,
        **dict.fromkeys(("starting", "draining"), pipeline),
        **dict.fromkeys(("granted", "denied", "lost", "held"), configuration),
    }
    return observation, money, count


@inline
def _window(conditions, s, t):
    return PackedConditions(conditions.workload[s, t], conditions.available[s, t], conditions.price[s, t])


@inline
def _log_ratio(value, nominal):
    if value == nominal:
        return 0.0
    if value <= 0.0:
        return -MAX_LOG_RATIO
    return min(max(math.log(value / nominal), -MAX_LOG_RATIO), MAX_LOG_RATIO)


@inline
def _write_money(terms_usd, share, workload, price, spent_usd, out):
    """Write the columns of `Report.money`."""
    total, n = 0.0, terms_usd.shape[0] + 2
    for k in range(terms_usd.shape[0]):
        out[k] = terms_usd[k]
        total += terms_usd[k]
    out[n - 2], out[n - 1] = total, spent_usd
    for row in range(2):
        for i in range(share.shape[1]):
            out[n] = share[row, i]
            n += 1
    for row in range(workload.shape[0]):
        for i in range(workload.shape[1]):
            out[n] = workload[row, i]
            n += 1
    for g in range(price.shape[0]):
        out[n + g] = price[g]


@inline
def _write_count(fleet, moves, held, available, window, forced_outages, out):
    """Write the columns of `Report.counts`."""
    count, longest, n = fleet.shape[0], (fleet.shape[1] - 1) // 2, 2 + available.shape[0]
    out[0], out[1] = window, forced_outages
    for g in range(available.shape[0]):
        out[2 + g] = available[g]
    for c in range(count):
        out[n + c] = fleet[c, 0]
        for k in range(longest):
            out[n + count + c * longest + k] = fleet[c, 1 + k]
            out[n + count + (count + c) * longest + k] = fleet[c, 1 + longest + k]
    n += count + 2 * count * longest
    for c in range(count):
        out[n + c] = moves[GRANTED, c]
        out[n + count + c] = moves[DENIED, c]
        out[n + 2 * count + c] = moves[LOST, c]
        out[n + 3 * count + c] = held[c]


@inline
def _write_observation(workload, available, price, nominal, caps, fleet, moves, out):
    """Write the columns of `Report.observation` up to the clock; return the column of that."""
    n, pools = workload.shape[0] * workload.shape[1], available.shape[0]
    for row in range(workload.shape[0]):
        for i in range(workload.shape[1]):
            ratio = _log_ratio(workload[row, i], nominal[row, i])
            out[row * workload.shape[1] + i] = ratio
    for g in range(pools):
        out[n + g] = available[g] / max(1, caps[g])
        out[n + pools + g] = min(price[g], MAX_PRICE_FACTOR)
    n += 2 * pools
    count, longest = fleet.shape[0], (fleet.shape[1] - 1) // 2
    for c in range(count):
        starting = draining = 0
        for k in range(1, longest + 1):
            starting += fleet[c, k]
            draining += fleet[c, longest + k]
        out[n + c] = fleet[c, 0]
        out[n + count + c] = starting
        out[n + 2 * count + c] = draining
        out[n + 3 * count + c] = moves[DENIED, c]
        out[n + 4 * count + c] = moves[LOST, c]
    return n + 5 * count


@inline
def _write_time(window, window_s, windows, budget, spent_usd, out, n):
    """Write the clock, the progress and the share of the budget that is left."""
    day = 2.0 * math.pi * window * window_s / SECONDS_PER_DAY
    out[n], out[n + 1], out[n + 2], out[n + 3] = math.sin(day), math.cos(day), window / windows, 1.0
    if budget[BUDGET_KIND] == POOL_BUDGET and budget[BUDGET_USD] > 0.0:
        out[n + 3] = min(1.0, max(0.0, 1.0 - spent_usd / budget[BUDGET_USD]))


@inline
def _fits(gpu_use, rental_usd, model_storage_usd, available, price, limit_usd, c):
    """Return how many replicas of configuration `c` would fit if they alone were held."""
    most, hold_usd = _ANY, model_storage_usd[c]
    for g in range(available.shape[0]):
        if gpu_use[g, c] > 0:
            most = min(most, available[g] // gpu_use[g, c])
        hold_usd += rental_usd[g, c] * price[g]
    if limit_usd < np.inf and hold_usd > 0.0:
        tolerance = admission.MONEY_TOLERANCE * max(1.0, limit_usd)
        most = min(most, math.floor((limit_usd + tolerance) / hold_usd))
    return most


@inline
def _write_mask(gpu_use, rental_usd, model_storage_usd, available, price, limit_usd, option, mask):
    """Write which options fit."""
    known, most = -1, 0
    for a in range(option.shape[1]):
        c = option[0, a]
        if c != known:
            most = _fits(gpu_use, rental_usd, model_storage_usd, available, price, limit_usd, c)
            known = c
        mask[a] = option[1, a] <= most


@inline
def _is_limit_known(limits, limit_usd, available, price, now_usd, e):
    """Return whether the mask of episode `e` is for these limits; keep them."""
    same = now_usd == limit_usd[e]
    limit_usd[e] = now_usd
    for g in range(available.shape[0]):
        same = same and limits.available[e, g] == available[g] and limits.price[e, g] == price[g]
        limits.available[e, g], limits.price[e, g] = available[g], price[g]
    return same


@inline
def _tell(setting, episodes, report, problem, played, forced_outages, e):
    """Write everything that is seen of episode `e`."""
    m, s, window = episodes.position[e, 0], episodes.position[e, 1], episodes.position[e, 2]
    nominal, windows, budget = setting.nominal, setting.scenario.workload.shape[1], problem.budget
    last, spent_usd = min(window - setting.lead[m], windows - 1), episodes.spent_usd[e]
    workload, available, price = nominal.workload[m], nominal.available[m], nominal.price[m]
    if last >= 0:
        seen = setting.scenario
        workload, available, price = seen.workload[s, last], seen.available[s, last], seen.price[s, last]
    out, fleet = report.observation[e], episodes.fleet[e]
    n = _write_observation(
        workload, available, price, nominal.workload[m], nominal.available[m], fleet, played.moves, out
    )
    _write_time(window, problem.parameters.clock[0], windows, budget, spent_usd, out, n)
    _write_money(played.terms_usd, played.share, workload, price, spent_usd, report.money[e])
    _write_count(fleet, played.moves, played.held, available, window, forced_outages, report.counts[e])
    limit_usd = budget_usd(budget, spent_usd)
    if not _is_limit_known(episodes.limits, episodes.limit_usd, available, price, limit_usd, e):
        _write_mask(
            problem.gpu_use,
            problem.rental_usd,
            problem.model_storage_usd,
            available,
            price,
            limit_usd,
            setting.option[m],
            report.mask[e],
        )


@inline
def _begin(setting, episodes, played, e):
    """Put episode `e` before window 0, with the nominal fleet running and nothing played."""
    m = episodes.position[e, 0]
    episodes.position[e, 2] = 0
    episodes.spent_usd[e] = 0.0
    episodes.limit_usd[e] = np.nan
    episodes.memory.basis[e, 0] = episodes.memory.basis[e, 1] = episodes.memory.active[e, 0] = 0
    for c in range(episodes.fleet.shape[1]):
        for k in range(episodes.fleet.shape[2]):
            episodes.fleet[e, c, k] = 0
        episodes.fleet[e, c, 0] = setting.nominal_fleet[m, c]
    for k in range(played.terms_usd.shape[0]):
        played.terms_usd[k] = 0.0
    for row in range(2):
        for i in range(played.share.shape[1]):
            played.share[row, i] = 0.0
    for c in range(played.moves.shape[1]):
        played.held[c] = 0
        for row in range(played.moves.shape[0]):
            played.moves[row, c] = 0


@inline
def _play(setting, episodes, packed, played, action, e):
    """Let one window of episode `e` happen; return the status of the routing and the forced outages."""
    m, s, window = episodes.position[e, 0], episodes.position[e, 1], episodes.position[e, 2]
    option, start = setting.option[m], setting.option_start[m]
    target = played.numbers[0, : episodes.fleet.shape[1]]
    for c in range(target.shape[0]):
        target[c] = 0
    for k in range(start.shape[0]):
        chosen = start[k] + action[k]
        target[option[0, chosen]] = option[1, chosen]
    status, forced_outages, spent_usd = extern_play(
        packed,
        _window(setting.scenario, s, window),
        target,
        window == 0,
        episodes.spent_usd[e],
        episodes.fleet[e],
        Memory(episodes.memory.basis[e], episodes.memory.active[e]),
    )
    episodes.position[e, 2] = window + 1
    episodes.spent_usd[e] = spent_usd
    return status, forced_outages


def _example(arrays, axes):
    """Return a tuple of arrays with `axes` more axes in front."""
    if isinstance(arrays, tuple):
        parts = [_example(part, axes) for part in arrays]
        return type(arrays)(*parts) if hasattr(arrays, "_fields") else tuple(parts)
    return np.zeros((1,) * (axes + arrays.ndim), dtype=arrays.dtype)


def _example_batch():
    """Return what `advance_episodes` works on, in its types."""
    whole, number = np.zeros((1, 1), dtype=np.int64), np.zeros((1, 1))
    setting = Setting(
        nominal=_example(EXAMPLE_CONDITIONS, 1),
        nominal_fleet=whole,
        option=_example(whole, 1),
        option_start=whole,
        lead=whole[0],
        scenario=_example(EXAMPLE_CONDITIONS, 2),
    )
    fleet, memory, limits = (
        _example(part, 1) for part in (EXAMPLE_FLEET, EXAMPLE_MEMORY, EXAMPLE_CONDITIONS)
    )
    episodes = Episodes(whole, fleet, number[0], memory, limits, number[0])
    report = Report(number.astype(np.float32), number, whole, number.astype(np.bool_))
    return setting, episodes, report, _example(EXAMPLE_PACKED, 1)


_packer = Packer(*_example_batch())
_unpack: Any = _packer.unpack


def pack_batch(setting, episodes, report, problems):
    """Return what `advance_episodes` works on.

    Parameters
    ----------
    setting : Setting
    episodes : Episodes
        Modified by `advance_episodes`.
    report : Report
        Overwritten by it.
    problems : PackedPointers
        From `records.pack_problem`, stacked: one row per instance, with a workspace that no other thread uses.

    Returns
    -------
    PackedPointers
    """
    return _packer.pack(setting, episodes, report, problems.words, owned=problems)


@jit
def advance_episodes(batch, actions, begin, first, stop):
    """Begin some episodes and let one window of the others happen.

    Parameters
    ----------
    batch : ndarray of int64
        Words of `pack_batch`.
    actions : (N, S) int64
        Valid options; those of episodes that begin are not read.
    begin : (N,) uint8
        1: the episode begins anew, with the instance and scenario in `Episodes.position`; 0: a window happens;
        2: it is left alone.
    first, stop : int
        Which episodes: a range, so that threads can share the work.

    Returns
    -------
    int
        -1, or the first episode whose routing LP was not solved.
    """
    actions, begin = borrow((actions, begin))
    setting, episodes, report, problems = _unpack(batch)
    failed = -1
    for e in range(first, stop):
        if begin[e] == 2:
            continue
        packed = problems[episodes.position[e, 0]]
        problem, _, played = unpack(packed)
        forced_outages = 0
        if begin[e] == 1:
            _begin(setting, episodes, played, e)
        else:
            status, forced_outages = _play(setting, episodes, packed, played, actions[e], e)
            if status != 0 and failed < 0:
                failed = e
        _tell(setting, episodes, report, problem, played, forced_outages, e)
    return failed


entry(advance_episodes, EXAMPLE_PACKED, EXAMPLE_FLEET, np.zeros(1, dtype=np.uint8), 0, 0)
