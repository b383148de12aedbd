"""Evaluate multipliers on demand, SLOs and shared limits: a lower bound, reduced costs and fixed columns.

With those rows relaxed the columns part: each is worth its reduced cost, what holding it costs less what the best
load for it saves, a continuous knapsack. In each group at most one is opened, those with positive reduced cost stay
closed. The bound holds for *any* multipliers, so it rests on no solver's tolerances.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgym.planning import entry, jit

#: States of a column.
CLOSED, UNDECIDED, OPEN = np.array([-1, 0, 1])


class Relaxation(NamedTuple):
    """The columns' data, rows by column; n columns, I workloads, R shared limits."""

    usd: np.ndarray  # (n, I) routing the whole workload
    delay: np.ndarray  # (n, I) coefficient in the delay row
    error: np.ndarray  # (n, I)
    load: np.ndarray  # (n, I) share of the column's scarcest capacity
    most: np.ndarray  # (n, I) largest share
    hold_usd: np.ndarray  # (n,)
    held: np.ndarray  # (n, R) share of each limit
    first: np.ndarray  # (groups + 1,) columns are sorted by group
    right: np.ndarray  # (3I + R,) right sides of the relaxed rows
    highest: np.ndarray  # (3I + R,) largest multipliers: demand, delay and error rows, limits


@jit
def _fill(r, c, multipliers, share, value, ratio, order):
    """Find the best load of a column; return what it saves."""
    n = r.usd.shape[1]
    items, total, room = 0, 0.0, 0.0
    for i in range(n):
        share[i] = 0.0
        if r.most[c, i] > 0.0:
            gain = multipliers[i] - r.usd[c, i]
            gain -= multipliers[n + i] * r.delay[c, i] + multipliers[2 * n + i] * r.error[c, i]
            if gain > 0.0:
                value[i] = gain
                total += gain * r.most[c, i]
                room += r.load[c, i] * r.most[c, i]
                ratio[i] = gain / max(r.load[c, i], 1e-12)
                k = items
                while k > 0 and ratio[order[k - 1]] < ratio[i]:
                    order[k] = order[k - 1]
                    k -= 1
                order[k] = i
                items += 1
    if room <= 1.0:
        for k in range(items):
            share[order[k]] = r.most[c, order[k]]
        return total
    total, room = 0.0, 1.0
    for k in range(items):
        i = order[k]
        part = r.most[c, i]
        if part * r.load[c, i] > room:
            part = room / r.load[c, i]
        share[i] = part
        total += part * value[i]
        room -= part * r.load[c, i]
        if room <= 0.0:
            break
    return total


@jit
def _reduced(r, c, multipliers, share, value, ratio, order):
    """Return a column's reduced cost; `share` becomes its best load."""
    usd = r.hold_usd[c]
    rows = 3 * r.usd.shape[1]
    for k in range(r.held.shape[1]):
        usd += multipliers[rows + k] * r.held[c, k]
    return usd - _fill(r, c, multipliers, share, value, ratio, order)


@jit
def _open(r, c, share, gradient):
    """Take a column's load and holdings into the subgradient."""
    n = r.usd.shape[1]
    for i in range(n):
        if share[i] > 0.0:
            gradient[i] -= share[i]
            gradient[n + i] += share[i] * r.delay[c, i]
            gradient[2 * n + i] += share[i] * r.error[c, i]
    for k in range(r.held.shape[1]):
        gradient[3 * n + k] += r.held[c, k]


@jit
def _evaluate(r, state, multipliers, reduced, chosen, gradient, work, order):
    """Return the bound of the multipliers; fill reduced costs, each group's choice (or -1) and the subgradient."""
    n = r.usd.shape[1]
    bound = 0.0
    for k in range(multipliers.size):
        sign = 1.0 if k < n else -1.0
        bound += sign * multipliers[k] * r.right[k]
        gradient[k] = sign * r.right[k]
    for g in range(r.first.size - 1):
        best, lowest = -1, 0.0
        for c in range(r.first[g], r.first[g + 1]):
            if state[c] < 0:
                continue
            reduced[c] = _reduced(r, c, multipliers, work[0], work[1], work[2], order)
            if state[c] > 0 or (reduced[c] < lowest):
                best, lowest = c, reduced[c]
                work[3, :] = work[0]
                if state[c] > 0:
                    break
        chosen[g] = best
        if best >= 0:
            bound += lowest
            _open(r, best, work[3], gradient)
    return bound


@jit
def _decide(r, state, reduced, chosen, bound, target):
    """Close and open the columns that no solution below the target has otherwise; return how many."""
    decided = 0
    for g in range(r.first.size - 1):
        best = chosen[g]
        if best >= 0 and state[best] > 0:
            continue
        lowest = reduced[best] if best >= 0 else 0.0
        second = 0.0
        for c in range(r.first[g], r.first[g + 1]):
            if state[c] == 0 and c != best:
                if bound + reduced[c] - lowest >= target:
                    state[c] = -1
                    decided += 1
                else:
                    second = min(second, reduced[c])
        if best >= 0 and bound + second - lowest >= target:
            for c in range(r.first[g], r.first[g + 1]):
                state[c] = -1
            state[best] = 1
            decided += 1
    return decided


@jit
def price(r, state, multipliers, reduced):
    """Return the bound of the multipliers and fill the reduced costs of the columns that are not closed."""
    gradient, order = np.empty(multipliers.size), np.empty(r.usd.shape[1], dtype=np.int64)
    chosen, work = np.empty(r.first.size - 1, dtype=np.int64), np.empty((4, r.usd.shape[1]))
    return _evaluate(r, state, multipliers, reduced, chosen, gradient, work, order)


@jit
def ascend(r, state, multipliers, scale, target, iterations, patience, average):
    """Improve multipliers by subgradient steps and decide columns on the way.

    Parameters
    ----------
    r : Relaxation
    state : ndarray of int64, shape (n,)
        Modified in place.
    multipliers : ndarray, shape (3I + R,)
        In: where to start. Out: the best ones.
    scale : ndarray, shape (3I + R,)
        Typical size of each multiplier.
    target : float
        Stop when the bound reaches it; columns that cannot do with less are decided.
    iterations, patience : int
        Most steps, and how many without progress halve the step.
    average : ndarray, shape (n,)
        Out: how often each column was chosen lately.

    Returns
    -------
    float
        The best bound.
    """
    size = multipliers.size
    gradient, direction, at = np.empty(size), np.zeros(size), multipliers.copy()
    order, work = np.empty(r.usd.shape[1], dtype=np.int64), np.empty((4, r.usd.shape[1]))
    reduced, chosen = np.zeros(state.size), np.empty(r.first.size - 1, dtype=np.int64)
    best, length, waited = -np.inf, 1.0, 0
    average[:] = 0.0
    weight = 0.0
    for _ in range(iterations):
        bound = _evaluate(r, state, at, reduced, chosen, gradient, work, order)
        if bound > best + 1e-5 * abs(target):
            waited = 0
        else:
            waited += 1
        if bound > best:
            best = bound
            multipliers[:] = at
        if bound >= target:
            return best
        _decide(r, state, reduced, chosen, bound, target)
        average *= 0.9
        weight = 0.9 * weight + 0.1
        for g in range(chosen.size):
            if chosen[g] >= 0:
                average[chosen[g]] += 0.1
        if waited >= patience:
            length *= 0.5
            waited = 0
            at[:] = multipliers
            direction[:] = 0.0
            if length < 0.02:
                break
            continue
        norm = 0.0
        for k in range(size):
            direction[k] = 0.5 * direction[k] + gradient[k]
            if (at[k] <= 0.0 and direction[k] < 0.0) or (at[k] >= r.highest[k] and direction[k] > 0.0):
                direction[k] = 0.0
            norm += (scale[k] * direction[k]) ** 2
        if norm <= 0.0:
            break
        step = length * (1.05 * target - bound) / norm
        for k in range(size):
            at[k] = min(max(at[k] + step * scale[k] ** 2 * direction[k], 0.0), r.highest[k])
    average /= max(weight, 1e-12)
    return best


_ROW, _TABLE, _WHOLES = np.zeros(1), np.zeros((1, 1)), np.zeros(1, dtype=np.int64)
_EXAMPLE = Relaxation(_TABLE, _TABLE, _TABLE, _TABLE, _TABLE, _ROW, _TABLE, _WHOLES, _ROW, _ROW)
entry(ascend, _EXAMPLE, _WHOLES, _ROW, _ROW, 0.0, 0, 0, _ROW)
