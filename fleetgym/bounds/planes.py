"""Compute how high a plane may lie below the cost of late requests on a configuration.

N replicas of a configuration serve the shares x_i of its workloads. Their late requests cost Σ_i late_i x_i P_i USD, as
in `fleetgym.bounds.late`. For any worth w_i of serving workload i and price B of a replica there is a largest s with

    Σ_i late_i x_i P_i ≥ s Σ_i w_i x_i - B N    for all whole N ≥ 1 and all x that N replicas have the capacity for.

It is found by branch and bound. In a box of x, P_i is at least that of the box's least load, least ca² and least spread
of the waiting time. Then the difference of the two sides is linear in x, and a fractional knapsack bounds it.
"""

from __future__ import annotations

import numpy as np

from fleetgym.kernels.compile import inline, jit
from fleetgym.kernels.queueing import U_MAX, chance_to_wait

#: Boxes within boxes.
_DEPTH = 100
#: Where too many boxes are left, the plane is lowered to this share of its height.
_LOWERED = 0.9
#: And below this height given up.
_LOWEST = 0.05
#: Capacities are kept by so much: round-off.
_OUTSIDE = 1e-9


@inline
def _least_mean(weight, value, low, high):
    """Return the least mean of `value`, weighted by weight · x with low ≤ x ≤ high; inf where all weights are 0."""
    best = np.inf
    for _ in range(value.size + 1):
        total = amount = 0.0
        for i in range(value.size):
            x = weight[i] * (high[i] if value[i] < best else low[i])
            total += x * value[i]
            amount += x
        if not total < best * amount:
            return best
        best = total / amount
    return best


@inline
def _fill(gain, use, low, high, room, x):
    """Write the x within low ≤ x ≤ high, Σ use · x ≤ room that gains most, and return what it gains."""
    left, total = room, 0.0
    for i in range(gain.size):
        x[i] = low[i]
        left -= use[i] * low[i]
        total += gain[i] * low[i]
    while True:
        best, at = 0.0, -1
        for i in range(gain.size):
            if x[i] < high[i] and gain[i] > best * use[i]:
                best, at = (gain[i] / use[i] if use[i] > 0.0 else np.inf), i
        if at < 0:
            return total
        more = high[at] - low[at]
        if use[at] * more > left:
            more = max(0.0, left / use[at])
            x[at] = low[at] + more
            return total + gain[at] * more
        x[at] = high[at]
        left -= use[at] * more
        total += gain[at] * more


@inline
def _late_usd(busy, rate, own, arrival_cv2, wait, late_usd, servers, x):
    """Return what shares x of the workloads cost in late requests on a number of servers, and what they keep busy."""
    load = amount = bursts = spread = 0.0
    for i in range(busy.size):
        load += busy[i] * x[i]
        amount += rate[i] * x[i]
        bursts += rate[i] * x[i] * arrival_cv2[i]
        spread += busy[i] * x[i] * own[i]
    if amount <= 0.0 or load <= 0.0:
        return 0.0
    cv2 = bursts / amount
    spread = load / amount * (cv2 - 1.0) + spread / load
    waits = chance_to_wait(servers, load, cv2, 0.0)
    return _usd_of_waits(late_usd, x, waits, servers - load, spread, wait)


@inline
def _usd_of_waits(late_usd, x, waits, idle, spread, wait):
    """Return what shares x cost where a share `waits` has to wait at all."""
    usd = 0.0
    for i in range(x.size):
        if waits * late_usd[i] * x[i] > 0.0:
            usd += late_usd[i] * x[i] * waits * _decay(idle, spread, wait[i])
    return usd


@inline
def _replicas(need, x):
    """Return how many replicas have the capacity for shares x."""
    most = 0.0
    for r in range(need.shape[0]):
        used = 0.0
        for i in range(x.size):
            used += need[r, i] * x[i]
        most = max(most, used)
    return most


@inline
def _decay(idle, spread, wait):
    """Return P(W > wait | W > 0)."""
    if wait <= 0.0:
        return 1.0
    return np.exp(-2.0 * idle / spread * wait) if spread > 0.0 else 0.0


@jit
def highest_plane(busy, service, own, arrival_cv2, wait, late_usd, servers, most, worth, need, price, limits):
    """Return a height s of the plane that is proven, at most a little less than the largest one; 0 if there is none.

    Parameters
    ----------
    busy, service, own, arrival_cv2, wait, late_usd : ndarray, shape (m,)
        As in `fleetgym.bounds.late.Queues`, of one configuration.
    worth : ndarray, shape (m,)
        w_i, USD of all of a workload.
    need : ndarray, shape (R, m)
        Replicas that all of a workload takes, by resource; the last row is that of servers.
    servers, most : int
        Servers of a replica, and the most replicas.
    price : float
        B, USD of a replica.
    limits : tuple of float
        The most that s may be; what it may lack, relative; boxes until the plane is lowered.
    """
    highest, lacking, effort = limits
    m, resources = busy.size, need.shape[0]
    rate = np.array([busy[i] / service[i] if service[i] > 0.0 else 0.0 for i in range(m)])
    low, high = np.zeros((_DEPTH, m)), np.ones((_DEPTH, m))
    least, greatest = np.empty(_DEPTH), np.empty(_DEPTH)  # load
    gain, x, other = np.empty(m), np.empty(m), np.empty(m)
    all_worth = worth.sum()
    height, boxes = highest / (1.0 - lacking), 0
    for i in range(m):  # each workload alone
        takes = need[:, i].max()
        for n in range(1, most + 1):
            if worth[i] <= 0.0 or price * n >= height * worth[i]:
                break
            x[:] = 0.0
            x[i] = min(1.0, n / takes) if takes > 0.0 else 1.0
            late = _late_usd(busy, rate, own, arrival_cv2, wait, late_usd, n * servers, x)
            height = min(height, (price * n + late) / (worth[i] * x[i]))
    for n in range(1, most + 1):
        if price * n >= height * (1.0 - lacking) * all_worth:
            break  # serving everybody is not worth so many replicas
        size = n * servers
        low[0], high[0], least[0], greatest[0], depth = 0.0, 1.0, 0.0, U_MAX * size, 0
        while depth >= 0:
            lo, hi = low[depth], high[depth]
            load = full = 0.0
            for i in range(m):
                load += busy[i] * lo[i]
                full += busy[i] * hi[i]
            if (
                _replicas(need, lo) > n * (1.0 + _OUTSIDE)
                or load > greatest[depth] * (1.0 + _OUTSIDE)
                or full < least[depth] * (1.0 - _OUTSIDE)
            ):
                depth -= 1
                continue
            load = max(load, least[depth])
            cv2 = _least_mean(rate, arrival_cv2, lo, hi)
            mean = service.max() if cv2 < 1.0 else _least_mean(rate, service, lo, hi)
            spread = max(0.0, mean * (cv2 - 1.0) + _least_mean(busy, own, lo, hi))
            waits = chance_to_wait(size, load, cv2, 0.0)
            target = height * (1.0 - lacking)
            for i in range(m):
                gain[i] = target * worth[i]
                if waits * late_usd[i] > 0.0:
                    gain[i] -= late_usd[i] * waits * _decay(size - load, spread, wait[i])
            proven = _fill(gain, busy, lo, hi, greatest[depth], x) <= price * n
            for r in range(resources - 1):
                proven = proven or _fill(gain, need[r], lo, hi, float(n), other) <= price * n
            if proven:
                depth -= 1
                continue
            # A point in the box, made to fit, may show that the plane is too high.
            x /= max(1.0, _replicas(need, x) / n)
            served = load_there = 0.0
            for i in range(m):
                served += worth[i] * x[i]
                load_there += busy[i] * x[i]
            late = _late_usd(busy, rate, own, arrival_cv2, wait, late_usd, size, x)
            if served > 0.0:
                height = min(height, (price * n + late) / served)
            # How much of what is missing comes from the load, how much from the mixture?
            below = _usd_of_waits(late_usd, x, waits, size - load, spread, wait)
            waits = chance_to_wait(size, load_there, cv2, 0.0)
            between = _usd_of_waits(late_usd, x, waits, size - load_there, spread, wait)
            by_load = between - below >= late - between
            boxes += 1
            if boxes > effort or depth + 1 == _DEPTH:
                height, boxes = _LOWERED * height, 0
                if height < _LOWEST:
                    return 0.0
                continue
            least[depth] = load
            _split(
                busy, rate, service, own, arrival_cv2, by_load, cv2, spread, low, high, least, greatest, depth
            )
            depth += 1
    return height * (1.0 - lacking)


@inline
def _split(busy, rate, service, own, arrival_cv2, by_load, cv2, spread, low, high, least, greatest, depth):
    """Halve a box, or its load, where that changes waiting most: the lower half stays, the upper one follows."""
    all_busy = all_rate = 0.0
    for i in range(busy.size):
        all_busy += busy[i] * high[depth, i]
        all_rate += rate[i] * high[depth, i]
    most, at = 0.0, -1
    for i in range(0 if by_load else busy.size):
        width = high[depth, i] - low[depth, i]
        part = rate[i] / all_rate * abs(arrival_cv2[i] - cv2) / (1.0 + cv2)
        alone = own[i] + service[i] * (arrival_cv2[i] - 1.0)
        part += busy[i] / all_busy * abs(alone - spread) / max(spread, 1e-300)
        if width * part > most:
            most, at = width * part, i
    low[depth + 1], high[depth + 1] = low[depth], high[depth]
    least[depth + 1], greatest[depth + 1] = least[depth], greatest[depth]
    if at < 0:
        middle = 0.5 * (least[depth] + greatest[depth])
        greatest[depth] = least[depth + 1] = middle
    else:
        middle = 0.5 * (low[depth, at] + high[depth, at])
        high[depth, at] = low[depth + 1, at] = middle
