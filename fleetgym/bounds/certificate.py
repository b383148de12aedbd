"""Certify a lower bound on the cost of every agent from prices: weak duality, evaluated without a solver.

A fleet plays two parts: it serves in windows, and it lives through time. `LimitPrices` pay the second part for what the
first one uses. Each part is then minimised alone, so for *any* prices

    episode cost ≥ Σ_t min_S [operating_t(S) + q_t S] + Σ_replicas min over lives [...] - what the limits are worth.

The window's minimum is bounded by the window's own dual prices, and the lives' minimum is found by dynamic
programming. Bad prices, such as those of a solver that stopped early, give a poor bound, never a wrong one.
(Geoffrion, Lagrangean relaxation for integer programming, 1974; safe dual bounds: Neumaier and Shcherbina, 2004.)
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from fleetgym.bounds.relaxation import EpisodeRelaxation, WindowRelaxation

#: Taken off every bound, relative to the money that was added up: round-off, and the episode's own tolerances.
SAFETY = 1e-7
_HALVINGS = 12


@dataclasses.dataclass(frozen=True, eq=False)
class WindowPrices:
    """Dual prices of one window; all but `served` are at least 0."""

    served: np.ndarray  # (m,) of serving a workload
    delay: np.ndarray  # (m,) of the mean-delay SLO
    error: np.ndarray  # (m,)
    capacity: np.ndarray  # (R, C) of compute, KV, queue servers, late; at most `WindowRelaxation.missing_usd`
    whole: np.ndarray  # (m, C) of x ≤ S
    lossy: np.ndarray  # (L,) of a GPU in the pools with losses
    room: np.ndarray  # (C,) of the most replicas that losses leave; 0 where there are none


@dataclasses.dataclass(frozen=True, eq=False)
class LimitPrices:
    """LimitPrices of the limits that windows share."""

    gpus: np.ndarray  # (T, G) USD per GPU held
    room: np.ndarray  # (T, C) USD per serving replica, of the most that the availability has room for
    rate_budget: np.ndarray  # (T,) USD per USD held
    pool_budget: float  # USD per USD


def clipped(window: WindowRelaxation, prices: WindowPrices) -> WindowPrices:
    """Return prices without the small violations that a solver leaves."""
    most = window.unserved_usd
    return WindowPrices(
        served=prices.served,
        delay=np.clip(prices.delay, 0.0, most),
        error=np.clip(prices.error, 0.0, most),
        capacity=np.clip(prices.capacity, 0.0, window.missing_usd),
        whole=np.maximum(0.0, prices.whole),
        lossy=np.maximum(0.0, prices.lossy),
        room=np.maximum(0.0, prices.room) if window.is_lossy else np.zeros(window.most.size),
    )


def route_gain(window: WindowRelaxation, prices: WindowPrices) -> np.ndarray:
    """Return what routing a workload to a configuration is worth before its capacity is paid, (m, C)."""
    price = prices.delay[:, None] * window.delay_excess + prices.error[:, None] * window.error_excess
    price += window.route_usd
    return np.where(window.is_open, prices.served[:, None] - price, -np.inf)


def with_capacity_for(window: WindowRelaxation, prices: WindowPrices, others: np.ndarray) -> WindowPrices:
    """Return prices with capacity of `others`, (n,) configurations, so expensive that routing there gains nothing.

    Of all such prices of a single resource the one with the cheapest replica is taken: the dual of a fractional
    knapsack, whose optimum lies where one workload stops to gain.
    """
    gain = np.maximum(0.0, route_gain(window, prices)[:, others])  # (m, n)
    need = window.need[:, :, others]  # (R, m, n)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps = np.where(need > 0.0, gain / need, 0.0)  # (R, m, n): prices at which a workload stops to gain
    steps = np.minimum(steps, window.missing_usd[:, None, others])
    best = gain.sum(axis=0)  # with whole replicas priced alone: needs x ≤ S, which is valid for every route
    choice, resource = np.zeros(others.size), np.full(others.size, -1)
    for k in range(len(need)):
        for candidate in steps[k]:
            value = candidate + np.maximum(0.0, gain - candidate * need[k]).sum(axis=0)
            better = value < best
            best, choice = np.where(better, value, best), np.where(better, candidate, choice)
            resource = np.where(better, k, resource)
    capacity, whole = prices.capacity.copy(), prices.whole.copy()
    capacity[:, others] = 0.0
    priced = resource >= 0
    capacity[resource[priced], others[priced]] = choice[priced]
    used = np.where(priced, choice, 0.0) * need[np.maximum(resource, 0), :, np.arange(others.size)].T
    whole[:, others] = np.maximum(0.0, gain - used)
    return dataclasses.replace(prices, capacity=capacity, whole=whole)


def affordable(
    window: WindowRelaxation, prices: WindowPrices, share: np.ndarray, others: np.ndarray
) -> WindowPrices:
    """Return prices that pay replicas of `others`, (n,), only a `share`, (n,); for that, serving is worth less."""
    capacity, whole = prices.capacity.copy(), prices.whole.copy()
    capacity[:, others] *= share
    whole[:, others] *= share
    cut = dataclasses.replace(prices, capacity=capacity, whole=whole)
    over = np.maximum(0.0, -_reduced_usd(window, cut)[:, others]).max(axis=1, initial=0.0)
    return dataclasses.replace(cut, served=prices.served - over)


def _reduced_usd(window: WindowRelaxation, prices: WindowPrices) -> np.ndarray:
    """Return the reduced costs of the routes, (m, C)."""
    spent = (prices.capacity[:, None, :] * window.need).sum(axis=0) + prices.whole
    return np.where(window.is_open, spent - route_gain(window, prices), 0.0)


def serving_price_usd(window: WindowRelaxation, prices: WindowPrices) -> np.ndarray:
    """Return q, what a serving replica is paid in a window, (C,): where losses come, less what its place is worth."""
    usd: np.ndarray = prices.capacity.sum(axis=0) + prices.whole.sum(axis=0)
    return np.maximum(0.0, usd - prices.lossy @ window.lossy_use - prices.room) if window.is_lossy else usd


def window_value_usd(window: WindowRelaxation, prices: WindowPrices) -> float:
    """Return a lower bound on operating + q · S over all S, at the q of `serving_price_usd`."""
    reduced = _reduced_usd(window, prices)
    unserved = np.minimum(0.0, window.unserved_usd - prices.served)
    losses = prices.lossy @ window.lossy_gpus + (prices.room @ window.most if window.is_lossy else 0.0)
    return float(prices.served.sum() + unserved.sum() + np.minimum(0.0, reduced).sum() - losses)


# -- lives


@dataclasses.dataclass(frozen=True, eq=False)
class Lives:
    """What replicas' lives cost at given prices."""

    total_usd: float  # of the cheapest lives of all replicas together
    unused_usd: np.ndarray  # (C,) of the cheapest life of a replica that does not run at the start; at most 0


def cheapest_lives(problem: EpisodeRelaxation, prices: LimitPrices, paid_usd: np.ndarray) -> Lives:
    """Return the cost of the cheapest lives: rent, fees and limits minus `paid_usd`, (T, C), while serving."""
    money = _money(problem, prices, paid_usd)
    off, on = _single_lives(problem, money)
    nominal = problem.nominal
    each = nominal * on + (problem.max_replicas - nominal) * off
    for members in problem.exclusive:
        each[members] = 0.0
        each[members[0]] = _slot_lives(problem, members, money)
    return Lives(float(each.sum()), off)


def affordable_shares(
    problem: EpisodeRelaxation, prices: LimitPrices, paid_usd: np.ndarray, others: np.ndarray
) -> np.ndarray:
    """Return the share of its pay at which a replica of each of `others` just earns nothing, (n,); at most 1."""
    low, high = np.zeros(problem.nominal.size), np.ones(problem.nominal.size)
    for k in range(_HALVINGS):
        share = high if k == 0 else 0.5 * (low + high)
        off, on = _single_lives(problem, _money(problem, prices, share * paid_usd))
        earns = np.where(problem.nominal > 0, on, off) < 0.0
        low, high = np.where(earns, low, share), np.where(earns, share, high)
    return low[others]


class _Money(NamedTuple):
    """What a replica pays, and is paid."""

    rent: np.ndarray  # (T, C) in every window, limits included
    fee: np.ndarray  # (C,) at its start
    net: np.ndarray  # (T, C) rent minus what serving in the window brings
    arrival: np.ndarray | None  # (T, C) what the first window of service brings besides


def _money(problem: EpisodeRelaxation, prices: LimitPrices, paid_usd: np.ndarray) -> _Money:
    """Return what replicas pay and earn.

    In a problem that is ahead, who served in the window before is routed to, and paid, in this one. So the pay of
    window t + 1 is earned in window t already, and an arrival is paid in its first window besides. In window 0 those
    are paid who serve.
    """
    worth = 1.0 + prices.pool_budget + prices.rate_budget[:, None]
    rent = problem.hold_usd * worth + prices.gpus @ problem.gpu_use
    fee = (1.0 + prices.pool_budget) * problem.startup_usd
    earned = paid_usd - prices.room
    if not problem.is_ahead:
        return _Money(rent, fee, rent - earned, None)
    later = np.vstack([earned[1:], np.zeros(fee.size)])
    later[0] += earned[0]
    return _Money(rent, fee, rent - later, earned)


def _starts(problem: EpisodeRelaxation, money: _Money) -> tuple[np.ndarray, np.ndarray]:
    """Return what a grant in every window costs up to some window, and that window; (T, C) each.

    It is the one after the first window of service. In a problem that is ahead it is that window itself: the replica is
    routed to, and may leave or be lost. Cost is inf where the replica would not serve before the end.
    """
    rent, count = money.rent, len(money.rent)
    waits = np.where(np.arange(count)[:, None] > 0, problem.startup_windows, 0)
    first = np.arange(count)[:, None] + waits
    paid = np.vstack([np.zeros(rent.shape[1]), np.cumsum(rent, axis=0)])
    columns = np.arange(rent.shape[1])
    serves = np.minimum(first, count - 1)
    cost = money.fee + paid[serves, columns] - paid[np.arange(count)[:, None], columns]
    net, after = money.net[serves, columns], serves + 1
    if money.arrival is not None:
        may_leave = (np.arange(count) > 0)[:, None]
        net = np.where(may_leave, -money.arrival[serves, columns], net)
        after = np.where(may_leave, serves, after)
    return np.where(first < count, cost + net, np.inf), after


def _single_lives(problem: EpisodeRelaxation, money: _Money) -> tuple[np.ndarray, np.ndarray]:
    """Return the cheapest life from window 0 of a replica that is off, and of one that runs, (C,) each."""
    count, columns = len(money.net), np.arange(money.fee.size)
    start, after = _starts(problem, money)
    on, off = np.zeros((count + 1, columns.size)), np.zeros((count + 1, columns.size))
    for t in range(count - 1, -1, -1):
        off[t] = np.minimum(off[t + 1], start[t] + on[after[t], columns])
        on[t] = np.minimum(money.net[t] + on[t + 1], off[t])
    return off[0], on[0]


def _slot_lives(problem: EpisodeRelaxation, members: np.ndarray, money: _Money) -> float:
    """Return the cheapest life of an exclusive slot from window 0: one starts or runs, any number drain."""
    net = money.net[:, members]
    count, columns = len(net), np.arange(members.size)
    start, after = (part[:, members] for part in _starts(problem, money))
    drain = _cheapest_drains(net, problem.drain_windows)
    on, off = np.zeros((count + 1, members.size)), np.zeros(count + 1)
    for t in range(count - 1, -1, -1):
        off[t] = min(off[t + 1], np.min(start[t] + on[after[t], columns]))
        on[t] = np.minimum(net[t] + on[t + 1], drain[t] + off[t])
    runs = np.flatnonzero(problem.nominal[members])
    return float(on[0, runs[0]] if runs.size else off[0])


def _cheapest_drains(net: np.ndarray, longest: int) -> np.ndarray:
    """Return what draining for 0 to `longest` windows costs at best, by the window in which a replica leaves."""
    best, total = np.zeros_like(net), np.zeros_like(net)
    for k in range(min(longest, len(net))):
        total[: len(net) - k] += net[k:]
        np.minimum(best[: len(net) - k], total[: len(net) - k], out=best[: len(net) - k])
    return best


# -- the bound


def limits_usd(problem: EpisodeRelaxation, prices: LimitPrices) -> float:
    """Return what the availability and the budgets are worth at these prices."""
    total = 0.0
    for gpus, room, window in zip(prices.gpus, prices.room, problem.windows, strict=True):
        total += float(gpus @ window.available_gpus + room @ window.most)
    if np.isfinite(problem.rate_budget_usd):
        total += float(prices.rate_budget.sum()) * problem.rate_budget_usd
    if np.isfinite(problem.pool_budget_usd):
        total += prices.pool_budget * problem.pool_budget_usd
    return total


def certified_usd(window_values: np.ndarray, lives_usd: float, limits: float) -> float:
    """Return the bound on the episode, rounded down by `SAFETY`; costs are at least 0, so it is too."""
    added = float(np.abs(window_values).sum()) + abs(lives_usd) + limits
    return max(0.0, float(window_values.sum()) + lives_usd - limits - SAFETY * added)
