"""Set arrival rates and GPU limits: the mean fleet has the size's GPUs, and the limits bind at the peak."""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym.families import demand
from fleetgym.families.draft import Draft, dear_penalties, pools_alone
from fleetgym.families.static import Columns, allocate, largest_load

#: Reserved share of the GPUs that would do the mean work alone: about what the nights of working days need.
COMMITTED_SHARE = 0.4


def rates_and_caps(draft: Draft, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return nominal rates (I,) and caps in GPUs (G,)."""
    count = len(draft.lengths)
    weight = np.ones(count)
    if draft.family == "trace":  # tenants that move get more of the fleet than those that need no planning
        weight = np.clip(demand.daily_movement(draft.demand.level), 0.15, 0.8)
    share = rng.dirichlet(12.0 * weight / weight.mean())
    relaxed = dataclasses.replace(draft.problem, groups=(), max_replicas=np.full(len(draft.columns), 1e4))
    ones = np.ones(count)
    alone = [
        allocate(
            relaxed, np.where(np.arange(count) == i, 1.0, 1e-6), dear_penalties(relaxed, ones)
        ).cost_usd_per_s
        for i in range(count)
    ]
    rate = share / np.array(alone)
    peak = _peak_factor(draft, share)
    margin = rng.uniform(1.15, 1.35)
    spread = rng.uniform(0.8, 1.2, len(draft.plan.pools))
    cap = np.full(len(draft.plan.pools), np.inf)
    gpus = 0.0
    for _ in range(3):  # the mean fleet depends on the caps, and they on the rates
        found = allocate(relaxed, rate, dear_penalties(relaxed, rate), np.minimum(cap, 1e6))
        gpus = float((relaxed.gpu_use @ found.replicas).sum())
        rate = rate * draft.plan.gpus / gpus
        cap = _caps(draft, relaxed, rate, peak, margin, spread)
    return rate, cap


def _peak_factor(draft: Draft, share: np.ndarray) -> float:
    """Return p99 / mean of the demand, weighted by what each workload's share of the fleet costs."""
    total = draft.demand.level @ share
    return float(np.quantile(total, 0.99) / total.mean())


def _caps(
    draft: Draft, problem: Columns, rate: np.ndarray, peak: float, margin: float, spread: np.ndarray
) -> np.ndarray:
    """Return caps at which all pools together bear `margin` times the p99 demand.

    The pool that is used first may hold at most 55 % of the GPUs that it would need to do the mean work alone, the
    others 40 % to 90 % before scaling, so that each binds at some time of the day.
    """
    alone, cost = pools_alone(problem, rate)
    base = np.where(np.arange(len(alone)) == int(np.argmin(cost)), 0.55, 0.65 * spread) * alone
    spot = np.array([pool.market == "spot" for pool in draft.plan.pools])
    crowded = max(1.0, len(alone) / 4.0)  # many pools share the same work
    base = np.where(spot & spot.any(), 0.7, 1.0) * base / crowded
    whole = np.array([max(problem.gpu_use[g][problem.gpu_use[g] > 0].min(), 1.0) for g in range(len(base))])
    first = int(np.argmin(cost))
    committed = np.array([pool.is_committed for pool in draft.plan.pools])

    def scaled(factor: float) -> np.ndarray:
        grown = base * factor
        grown[first] = min(grown[first], 0.58 * alone[first])
        grown[committed] = COMMITTED_SHARE * alone[committed] / max(1, int(committed.sum()))
        return np.maximum(np.ceil(grown), 2.0 * whole)

    low, high = 0.4, 4.0
    for _ in range(7):
        middle = (low * high) ** 0.5
        if largest_load(problem, peak * rate, scaled(middle)) < margin:
            low = middle
        else:
            high = middle
    return scaled(high)
