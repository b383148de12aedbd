"""Compute the cheapest cover of one demand with replicas, by compiled dynamic programming over covered units."""

from __future__ import annotations

import numpy as np

from fleetgym.planning import jit


@jit
def cover(cost, keep_weight, keep_cost, price, value, choice, taken):
    """Fill the tables of the cheapest coverings of 0..Q units; return the best number of units to cover.

    Parameters
    ----------
    cost : (Q + 1,) float array
        Cost of the cheapest template that covers a number of units, any number of times; inf where there is none.
    keep_weight, keep_cost : (P,) arrays
        Units and cost of single replicas, each to be used once at most.
    price : float
        Cost of leaving all Q units uncovered.
    value : (Q + 1,) float array, out
        Cheapest covering of at least q units.
    choice : (Q + 1,) int array, out
        Units of the template to add at q, before kept replicas are considered.
    taken : (P, Q + 1) bool array, out
        Whether kept replica p is used at q.
    """
    units = cost.size - 1
    items = np.empty(units, dtype=np.int64)
    number = 0
    cheapest = np.inf
    for w in range(units, 0, -1):  # what covers less and costs no less is of no use
        if cost[w] < cheapest:
            cheapest = cost[w]
            items[number] = w
            number += 1
    value[0] = 0.0
    choice[0] = 0
    for q in range(1, units + 1):
        best, chosen = np.inf, 0
        for k in range(number):
            w = items[k]
            total = cost[w] + value[max(0, q - w)]
            if total < best:
                best, chosen = total, w
        value[q] = best
        choice[q] = chosen
    for p in range(keep_weight.size):
        for q in range(units, 0, -1):
            total = keep_cost[p] + value[max(0, q - keep_weight[p])]
            taken[p, q] = total < value[q]
            if taken[p, q]:
                value[q] = total
    best, covered = np.inf, 0
    for q in range(units + 1):
        total = value[q] + price * (1.0 - q / units)
        if total < best:
            best, covered = total, q
    return covered


@jit
def replicas(units, choice, taken, keep_weight, new_count, kept):
    """Trace the best covering of `units` back: new replicas by units covered, kept replicas by index."""
    q = units
    for p in range(keep_weight.size - 1, -1, -1):
        kept[p] = q > 0 and taken[p, q]
        if kept[p]:
            q = max(0, q - keep_weight[p])
    while q > 0 and choice[q] > 0:
        new_count[choice[q]] += 1
        q = max(0, q - choice[q])


def with_one_more(value: np.ndarray, price: float) -> np.ndarray:
    """Return, by units w of a replica that must be used, the least cost of everything else.

    Parameters
    ----------
    value : (Q + 1,) array
        From `cover`.
    price : float
        Cost of leaving all units uncovered.

    Returns
    -------
    (Q + 1,) array
        min over q of value[q] + price (1 - (q + w)/Q), q at most Q - w.
    """
    units = value.size - 1
    share = np.arange(units + 1) / units
    best = np.minimum.accumulate(value + price * (1.0 - share))
    return best[::-1] - price * share
