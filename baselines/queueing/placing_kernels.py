"""Find the cheapest place for a part of a workload among the pools so far, in compiled loops.

All kernels are in this file, because a cached kernel does not notice edits of its callees in other files of this
folder. What each of them decides is said in `fleetgym.baselines.queueing.queueing_planner`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fleetgym.planning import chance_to_wait, jit

#: A fraction of a workload below this is not worth a route.
LEAST_FRACTION = 1e-3
_BISECTIONS = 8
_SLACK = 1e-12  # round-off allowed in a limit, relative to it


class Problem(NamedTuple):
    """One window's problem; I workloads, C configurations, G pools of GPUs."""

    rate_rps: np.ndarray  # (I,)
    arrival_cv2: np.ndarray  # (I,)
    work_tflop: np.ndarray  # (I, C) of a request
    kv_gb_s: np.ndarray  # (I, C)
    service_s: np.ndarray  # (I, C)
    service_cv2: np.ndarray  # (I, C)
    punctual: np.ndarray  # (I, C) share of the requests that are late only if they wait
    slack_s: np.ndarray  # (I, C) how long these may wait
    route_usd: np.ndarray  # (I, C) of the whole workload
    limits: np.ndarray  # (C, 3) compute, KV memory and busy servers of a replica
    servers: np.ndarray  # (C,) int64 of a replica
    max_replicas: np.ndarray  # (C,) int64
    hold_usd: np.ndarray  # (C,)
    startup_usd: np.ndarray  # (C,)
    fleet: np.ndarray  # (C,) int64 replicas that need no start-up
    gpu_use: np.ndarray  # (G, C) int64
    available_gpus: np.ndarray  # (G,) int64
    group: np.ndarray  # (C,) int64 exclusive slot; -1: none
    budget_usd: float
    miss_share: float


@jit
def needed(p, x, c, i, fraction):
    """Return the replicas of configuration c for shares x (I, C) and a fraction more of workload i; -1: too many."""
    total = 0.0
    load = np.zeros(3)
    for j in range(p.rate_rps.size):
        rate = _rate(p, x, c, i, fraction, j)
        total += rate
        load[0] += rate * p.work_tflop[j, c]
        load[1] += rate * p.kv_gb_s[j, c]
        load[2] += rate * p.service_s[j, c]
    if total <= 0.0:
        return 0
    least = 1.0
    for k in range(3):
        if load[k] > 0.0:
            least = max(least, load[k] / p.limits[c, k] if p.limits[c, k] > 0.0 else math.inf)
    most = p.max_replicas[c]
    if not least <= most * (1.0 + _SLACK):
        return -1
    low, high = math.ceil(least * (1.0 - _SLACK)) - 1, most
    if miss(p, x, c, i, fraction, low + 1) <= p.miss_share:
        return low + 1
    if miss(p, x, c, i, fraction, most) > p.miss_share:
        return -1
    while high - low > 1:
        middle = (low + high) // 2
        if miss(p, x, c, i, fraction, middle) <= p.miss_share:
            high = middle
        else:
            low = middle
    return high


@jit
def _rate(p, x, c, i, fraction, j):
    """Return the rate of workload j at configuration c."""
    return p.rate_rps[j] * (x[j, c] + fraction if j == i else x[j, c])


@jit
def miss(p, x, c, i, fraction, replicas):
    """Return the share of late requests of a pool; those whose prefill alone is late are late at any size."""
    total = 0.0
    for j in range(p.rate_rps.size):
        total += _rate(p, x, c, i, fraction, j)
    mean, square, burst = 0.0, 0.0, 0.0
    for j in range(p.rate_rps.size):
        share = _rate(p, x, c, i, fraction, j) / total
        if share > 0.0:
            mean += share * p.service_s[j, c]
            square += share * (1.0 + p.service_cv2[j, c]) * p.service_s[j, c] ** 2
            burst += share * p.arrival_cv2[j]
    if mean <= 0.0:
        return 0.0
    servers, offered = replicas * p.servers[c], total * mean
    if offered >= servers:
        return 1.0
    spread = square / mean**2 - 1.0 + burst
    if spread <= 0.0:
        return 0.0
    decay, late = 2.0 * (servers - offered) / (mean * spread), 0.0
    for j in range(p.rate_rps.size):
        share, slack = _rate(p, x, c, i, fraction, j) / total * p.punctual[j, c], p.slack_s[j, c]
        if share > 0.0 and slack < math.inf:
            late += share * math.exp(-decay * slack)
    return late * chance_to_wait(servers, offered, burst, 0.0)


@jit
def fits(p, replicas, c, count):
    """Check that configuration c may have this number of replicas beside the others."""
    if p.group[c] >= 0:
        others = count
        for d in range(p.group.size):
            if d != c and p.group[d] == p.group[c]:
                others += replicas[d]
        if others > 1:
            return False
    more = count - replicas[c]
    for g in range(p.available_gpus.size):
        used = p.gpu_use[g, c] * more
        for d in range(replicas.size):
            used += p.gpu_use[g, d] * replicas[d]
        if used > p.available_gpus[g]:
            return False
    held = 0.0
    for d in range(replicas.size):
        held += p.hold_usd[d] * (count if d == c else replicas[d])
    return held <= p.budget_usd * (1.0 + _SLACK)


@jit
def price(p, c, count):
    """Return the rent and start-up fees of a pool."""
    return count * p.hold_usd[c] + max(0, count - p.fleet[c]) * p.startup_usd[c]


@jit
def added(p, x, replicas, i, c, fraction):
    """Return what placing a fraction of workload i on c costs, and the replicas then; -1 if it does not fit."""
    count = needed(p, x, c, i, fraction)
    if count < 0 or (count > replicas[c] and not fits(p, replicas, c, count)):
        return 0.0, -1
    count = max(count, replicas[c])
    usd = price(p, c, count) - price(p, c, replicas[c])
    return usd + fraction * p.route_usd[i, c], count


@jit
def cheapest_place(p, x, replicas, i, options, size, left):
    """Return cost, configuration, fraction and replicas of the cheapest place for the rest of workload i, or a part.

    The options are looked at in batches of a size; a later batch only where nothing in those before fits. Of equals
    the first is taken. Without a place the configuration is -1.
    """
    for begin in range(0, options.size, size):
        batch = options[begin : begin + size]
        best = (0.0, -1, 0.0, 0)
        for c in batch:
            usd, count = added(p, x, replicas, i, c, left)
            if count >= 0 and (best[1] < 0 or usd < best[0]):
                best = (usd, c, left, count)
        if best[1] < 0:
            best = _largest_piece(p, x, replicas, i, batch, left)
        if best[1] >= 0:
            return best
    return (0.0, -1, 0.0, 0)


@jit
def _largest_piece(p, x, replicas, i, options, left):
    """Return the piece of workload i with the least cost per fraction, among the largest that fit each option."""
    best = (0.0, -1, 0.0, 0)
    for c in options:
        low, high = 0.0, left
        piece = (0.0, -1, 0.0, 0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            usd, count = added(p, x, replicas, i, c, middle)
            if count >= 0:
                low, piece = middle, (usd, c, middle, count)
            else:
                high = middle
        is_worth_it = piece[1] >= 0 and piece[2] >= LEAST_FRACTION
        if is_worth_it and (best[1] < 0 or piece[0] / piece[2] < best[0] / best[2]):
            best = piece
    return best
