"""Price replicas by the duals of a window's routing, so that neighbours of a fleet can be told apart without routing.

At the prices of one fleet's routing, the routing LP of another fleet costs at least what the change of capacity takes
or gives (weak duality). Late first tokens are charged beside the LP. What one more replica would save of them is
counted at the first fleet's routing. So the result is a bound where nothing is late, and an estimate elsewhere.
"""

from typing import NamedTuple

import numpy as np

from fleetgym.kernels.compile import entry, inline, jit
from fleetgym.kernels.economics import (
    COMPUTE,
    CONCURRENCY,
    KV_CAPACITY,
    NUM_ROUTE_ROWS,
    R_COST,
    R_DELAY,
    R_ERROR,
    R_USE,
    T_MODEL,
    T_RENTAL,
    T_STARTUP,
    fill_late_relief,
    fill_routes,
)
from fleetgym.kernels.lowlevel import borrow, table
from fleetgym.kernels.records import EXAMPLE_FLEET, Memory, PackedConditions, unpack
from fleetgym.kernels.rollouts import EXAMPLE_TARGETS, copy_fleet, operating_usd, unpack_recall
from fleetgym.kernels.routing_workload import DUAL, FIRST_X, PRICE, UNIT
from fleetgym.kernels.window import extern_hold, serve


class Prices(NamedTuple):
    """What replicas are worth in each of W windows of P paths, at the routing of one fleet; and space to use that."""

    serving: np.ndarray  # (P, W, C) int64 replicas of that fleet that serve
    usd: np.ndarray  # (P, W) what operating them costs
    unit_usd: np.ndarray  # (P, W, 3, C) per unit of compute, KV memory and queue slots
    relief_usd: np.ndarray  # (P, W, C) what one more would save of late costs
    first_usd: (
        np.ndarray
    )  # (P, W, C) the most that one replica is worth of those that do not serve; 0 for others
    alike: np.ndarray  # (P,) int64 first path with the same GPUs and prices
    held_usd: np.ndarray  # (P,) of a target on such a path: holding and starting
    changes: (
        np.ndarray
    )  # (P, 1 + W C, 3) int64 their number; then window, configuration and replicas of what serves otherwise


def new_prices(paths: int, windows: int, configurations: int) -> Prices:
    """Return room for prices."""
    wide = (paths, windows, configurations)
    return Prices(
        serving=np.zeros(wide, dtype=np.int64),
        usd=np.zeros((paths, windows)),
        unit_usd=np.zeros((paths, windows, 3, configurations)),
        relief_usd=np.zeros(wide),
        first_usd=np.zeros(wide),
        alike=np.zeros(paths, dtype=np.int64),
        held_usd=np.zeros(paths),
        changes=np.zeros((paths, 1 + windows * configurations, 3), dtype=np.int64),
    )


@inline
def _worth_usd(parameters, unit_usd, c, replicas):
    """Return what the capacity of replicas is worth at fixed prices: of slots, beyond what overload costs."""
    if replicas == 0:
        return 0.0
    row = parameters.segment[parameters.segment_offset[c] + replicas - 1]
    slots = row[0] * parameters.configuration[CONCURRENCY, c] * replicas
    usd = unit_usd[0, c] * parameters.configuration[COMPUTE, c] * replicas
    usd += unit_usd[1, c] * parameters.configuration[KV_CAPACITY, c] * replicas
    usd += unit_usd[2, c] * slots
    for b in range(3):
        usd += max(0.0, unit_usd[2, c] - row[4 + b]) * row[1 + b]
    return usd


@inline
def _fill_unit_usd(work, active, unit_usd):
    """Write the prices of the capacity of configurations that serve; 0 for others."""
    for r in range(3):
        for c in range(unit_usd.shape[1]):
            unit_usd[r, c] = 0.0
        for k in range(active.shape[0]):
            price = work.row[PRICE, r, k + FIRST_X] * work.row[UNIT, r, k + FIRST_X]
            unit_usd[r, active[k]] = max(0.0, price)


@inline
def _gain_usd(work, routes, allowed, unserved_usd, i, w, k):
    """Return what the routing would save if all of a workload could take a route, at its present duals."""
    if not unserved_usd[i] > 0.0 or allowed[i, k] == 0:
        return 0.0
    dual = work.local[w, DUAL]
    gain = dual[0] - routes[R_COST, i, k]
    return gain + min(dual[1], 0.0) * routes[R_DELAY, i, k] + min(dual[2], 0.0) * routes[R_ERROR, i, k]


@inline
def _fill_first_usd(problem, work, played, workload, first_usd):
    """Write the most that a first replica is worth of each configuration that does not serve."""
    parameters, others, number = problem.parameters, played.numbers[0], 0
    count = workload.shape[1]
    for c in range(first_usd.shape[0]):
        first_usd[c] = 0.0
        if played.serving[c] == 0:
            others[number] = c
            number += 1
    others, numbers = others[:number], played.scratch.numbers
    routes = table(numbers, 0, (NUM_ROUTE_ROWS, count, number))
    unserved_usd = numbers[routes.size : routes.size + count]
    allowed = table(played.scratch.flags, 0, (count, number))
    fill_routes(parameters, workload, others, unserved_usd, routes, allowed)
    for k in range(number):
        c, total = others[k], 0.0
        best = np.inf
        for r in range(3):
            row = (COMPUTE, KV_CAPACITY, CONCURRENCY)[r]
            ratio, w = 0.0, 0
            for i in range(count):
                if unserved_usd[i] > 0.0:
                    gain = _gain_usd(work, routes, allowed, unserved_usd, i, w, k)
                    w += 1
                    if gain > 0.0:
                        use = routes[R_USE + r, i, k]
                        ratio = max(ratio, gain / use if use > 0.0 else np.inf)
                        total += gain if r == 0 else 0.0
            best = min(best, ratio * parameters.configuration[row, c] if ratio > 0.0 else 0.0)
        first_usd[c] = min(total, best)


@inline
def _fill_alike(available, price, weight, alike):
    """Write for each path the first one of any weight that has the same GPUs and prices."""
    for p in range(available.shape[0]):
        alike[p] = p
        for q in range(p):
            if alike[q] != q or not weight[q] > 0.0:
                continue
            same = True
            for t in range(available.shape[1]):
                for g in range(available.shape[2]):
                    same = (
                        same and available[p, t, g] == available[q, t, g] and price[p, t, g] == price[q, t, g]
                    )
            if same:
                alike[p] = q
                break


@inline
def _price_window(packed, conditions, memories, prices, p, t):
    """Route a window of the first target; write what it costs and what replicas are worth. Return the status."""
    problem, work, played = unpack(packed)
    memory = Memory(memories.basis[p, t], memories.active[p, t])
    status = serve(packed, conditions, memory)
    active, workload = memory.active[1 : 1 + memory.active[0]], conditions.workload
    prices.usd[p, t] = operating_usd(played.terms_usd)
    for c in range(prices.serving.shape[2]):
        prices.serving[p, t, c] = played.serving[c]
    _fill_unit_usd(work, active, prices.unit_usd[p, t])
    fill_late_relief(problem.parameters, workload, active, played, prices.relief_usd[p, t])
    _fill_first_usd(problem, work, played, workload, prices.first_usd[p, t])
    return status


@inline
def _note_changes(serving, played_serving, t, changes):
    """Write down what serves otherwise in window t."""
    for c in range(serving.shape[0]):
        if played_serving[c] != serving[c]:
            changes[0, 0] += 1
            row = changes[changes[0, 0]]
            row[0], row[1], row[2] = t, c, played_serving[c]


@inline
def _changed_usd(parameters, prices, p, changes):
    """Return what the changes cost at the prices of a path."""
    usd = 0.0
    for n in range(1, 1 + changes[0, 0]):
        t, c, replicas = changes[n, 0], changes[n, 1], changes[n, 2]
        unit_usd, before = prices.unit_usd[p, t], prices.serving[p, t, c]
        usd += _worth_usd(parameters, unit_usd, c, before) - _worth_usd(parameters, unit_usd, c, replicas)
        usd -= (prices.first_usd[p, t, c] + prices.relief_usd[p, t, c]) * (replicas - before)
    return usd


@jit
def price_targets(
    packed, recall, workload, available, price, weight, target, first, spent_usd, fleet, space, prices, usd
):
    """Write what the first target costs if it is wanted in all windows, and estimate the others at its prices.

    Parameters
    ----------
    packed, recall, workload, available, price, weight, target, first, spent_usd, fleet, space
        As of `rollouts.play_targets`.
    prices : Prices
        Overwritten.
    usd : (n,) float
        Written.

    Returns
    -------
    int
        Status of the routing that failed; 0 if none did.
    """
    packed, words, workload, available, price = borrow((packed, recall, workload, available, price))
    weight, target, fleet, space, usd = borrow((weight, target, fleet, space, usd))
    prices = borrow(prices)
    problem, _, played = unpack(packed)
    memories, terms = unpack_recall(words)[0], played.terms_usd
    _fill_alike(available, price, weight, prices.alike)
    for k in range(target.shape[0]):
        usd[k] = 0.0
        for p in range(weight.shape[0]):
            if not weight[p] > 0.0:
                continue
            q = prices.alike[p]
            if k == 0 or p == q:
                copy_fleet(fleet, space)
                spent, held_usd = spent_usd, 0.0
                prices.changes[p, 0, 0] = 0
                for t in range(workload.shape[1]):
                    conditions = PackedConditions(workload[p, t], available[p, t], price[p, t])
                    _, spent = extern_hold(packed, conditions, target[k], first and t == 0, spent, space)
                    held_usd += terms[T_RENTAL] + terms[T_MODEL] + terms[T_STARTUP]
                    if k == 0:
                        status = _price_window(packed, conditions, memories, prices, p, t)
                        if status != 0:
                            return status
                    _note_changes(prices.serving[p, t], played.serving, t, prices.changes[p])
                prices.held_usd[p] = held_usd
            total = prices.held_usd[q]
            for t in range(workload.shape[1]):
                total += prices.usd[p, t]
            total += _changed_usd(problem.parameters, prices, p, prices.changes[q])
            usd[k] += weight[p] * total
    return 0


entry(price_targets, *EXAMPLE_TARGETS, EXAMPLE_FLEET, new_prices(1, 1, 1), np.zeros(1))
