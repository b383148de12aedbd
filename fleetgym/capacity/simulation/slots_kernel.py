"""Simulate pools in which only slots count, without events (compiled).

Where no memory can run out, nobody gives up, no queue is full and every request has one pool to go to, a request
starts when it has come and the slot that is free first is free (Kiefer and Wolfowitz, 1955). One replacement in a
heap of the times at which slots become free does it: no events, no queue. Starts are those of the event loop, to the
last bit.
"""

from __future__ import annotations

import numpy as np

from fleetgym.kernels.compile import inline, jit
from fleetgym.kernels.lowlevel import borrow

#: Children of a node, and so the entries beyond its end that a heap needs: all infinite.
ARITY = 4


@inline
def _replace_first(free_s, at, size, time_s):
    """Replace the earliest of the `size` times of the heap that begins at `at`."""
    k = 0
    while True:
        child = at + ARITY * k + 1
        if child >= at + size:
            break
        # Without branches: which way they go cannot be predicted.
        one = child + (free_s[child + 1] < free_s[child])
        other = child + 2 + (free_s[child + 3] < free_s[child + 2])
        best = other if free_s[other] < free_s[one] else one
        if free_s[best] >= time_s:
            break
        free_s[at + k] = free_s[best]
        k = best - at
    free_s[at + k] = time_s


@inline
def _settle(pool, free_s, size, end_s):
    """Bring a pool to the end: its clock, who is still in service, and the area, from which only arrivals are taken."""
    stop_s = end_s
    if end_s == np.inf:
        stop_s = pool.clock_s
        for k in range(pool.heap_at, pool.heap_at + size):
            if free_s[k] < np.inf:
                stop_s = max(stop_s, free_s[k])
    for k in range(pool.heap_at, pool.heap_at + size):
        if free_s[k] > stop_s:
            pool.busy += 1
            pool.area_s += stop_s
        elif free_s[k] > -np.inf:
            pool.area_s += free_s[k]
    pool.area_s += pool.waiting * stop_s
    pool.clock_s = stop_s


@jit
def serve(requests, service_s, candidates, pools, sizes, free_s, end_s, codes):
    """Start every request; write into requests and pools what the event loop would.

    Parameters
    ----------
    requests, service_s, candidates, pools, end_s
        As for `fleetgym.capacity.simulation.kernel.play`; ``heap_at`` of the pools is set.
    sizes : (P,) int array
        Slots of each pool, as far as there are requests for them.
    free_s : float array
        When slots become free: a heap per pool, minus infinity at first, with `ARITY` infinite entries behind it.
    codes : tuple of int
        Statuses: served, in service, waiting, no pool, too large.
    """
    requests, service_s, candidates = borrow((requests, service_s, candidates))
    pools, sizes, free_s = borrow((pools, sizes, free_s))
    served, in_service, waiting, no_pool, too_large = codes
    several = service_s.shape[1] > 1
    for index in range(requests.size):
        request = requests[index]
        p = candidates[request.kind, 0]
        if p < 0 or sizes[p] == 0:
            request.status = no_pool
            continue
        pool = pools[p]
        if request.tokens > pool.kv_tokens:
            request.status = too_large
            continue
        first_s = free_s[pool.heap_at]
        start_s = max(request.arrival_s, first_s)
        request.pool = p
        # The integral of the requests inside is the sum of their departures less that of their arrivals.
        pool.area_s -= request.arrival_s
        if start_s > end_s or start_s == np.inf:
            request.status = waiting
            pool.waiting += 1
            pool.clock_s = max(pool.clock_s, request.arrival_s)
            continue
        if first_s > -np.inf:
            pool.area_s += first_s
        pool.clock_s = max(pool.clock_s, start_s)
        finish_s = start_s + service_s[index, p if several else 0]
        _replace_first(free_s, pool.heap_at, sizes[p], finish_s)
        request.start_s = start_s
        request.status = served if finish_s <= end_s and finish_s < np.inf else in_service
    for p in range(pools.size):
        _settle(pools[p], free_s, sizes[p], end_s)
