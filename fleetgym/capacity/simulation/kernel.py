"""Simulate requests by events: when and where each one is served (compiled).

A *pool* is a set of equal replicas behind one queue, first come first served. A request takes a slot and its
tokens of KV memory on one replica from its start until it is finished. The head of the queue waits until some
replica has room, and nobody overtakes it. A pool is brought up to date only when an arrival looks at it, so a
request costs one push and one pop of a heap over the busy slots, however many GPUs and pools there are.

At equal times departures come first (by request number), then requests that give up, then arrivals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fleetgym.capacity.simulation import slots_kernel
from fleetgym.kernels.compile import inline, jit
from fleetgym.kernels.lowlevel import borrow

# Status of a request when the clock stops.
SERVED = 0
NO_POOL = 1  # dropped: no pool with a slot may serve it
TOO_LARGE = 2  # dropped: it has more tokens than any replica's memory
QUEUE_FULL = 3  # dropped
TIMED_OUT = 4  # gave up waiting
IN_SERVICE = 5
WAITING = 6
STATUSES = ("served", "no_pool", "too_large", "queue_full", "timed_out", "in_service", "waiting")

# What an arrival does with its candidates, in order of preference.
LEAST_LOADED = 0  # takes the one with the fewest requests per slot; the first of equals
SPILLOVER = 1  # takes the first that can start it at once; else waits at the first with room in the queue

NONE = -1
UNLIMITED = 2**62

REQUEST = np.dtype(
    [
        ("arrival_s", "f8"),
        ("start_s", "f8"),  # NaN if never started
        ("tokens", "i8"),  # KV memory while it is served
        ("kind", "i4"),  # row of the candidates
        ("pool", "i4"),  # NONE if dropped
        ("replica", "i4"),  # NONE where memory cannot run out, so that replicas do not matter
        ("follower", "i4"),  # the request behind it in the queue
        ("status", "i8"),
    ]
)
POOL = np.dtype(
    [
        ("replicas", "i8"),
        ("slots", "i8"),  # per replica
        ("kv_tokens", "i8"),  # memory of one replica
        ("queue_limit", "i8"),  # requests that may wait
        ("patience_s", "f8"),  # a request that has waited longer gives up
        # State:
        ("busy", "i8"),  # requests in service
        ("waiting", "i8"),
        ("head", "i8"),  # first and last of the queue
        ("tail", "i8"),
        ("clock_s", "f8"),  # time of the last change
        ("area_s", "f8"),  # integral of the requests in the pool over time
        # Where its part of the common arrays begins:
        ("heap_at", "i8"),
        ("replica_at", "i8"),
        ("tree_at", "i8"),
        ("leaves", "i8"),  # of its tree, a power of two; 0 where memory cannot run out
    ]
)
_ENTRY = np.dtype([("time_s", "f8"), ("request", "i8")])
_REPLICA = np.dtype([("slots", "i8"), ("tokens", "i8")])  # what is free


# -- heap of finish times: four children per node, since large fleets have deep heaps


@inline
def _is_before(time_a, request_a, time_b, request_b):
    # Bitwise, for one comparison without branches: which way they go cannot be predicted.
    return (time_a < time_b) | ((time_a == time_b) & (request_a < request_b))


@inline
def _push(heap, at, size, time_s, request):
    """Add an entry to the heap of `size` entries that begins at `at`."""
    k = size
    while k > 0:
        parent = (k - 1) >> 2
        above = heap[at + parent]
        if not _is_before(time_s, request, above.time_s, above.request):
            break
        heap[at + k].time_s = above.time_s
        heap[at + k].request = above.request
        k = parent
    heap[at + k].time_s = time_s
    heap[at + k].request = request


@inline
def _first(heap, at, size, one, other):
    """Return the earlier of two entries of a heap, of which the second need not exist."""
    a, b = heap[at + one], heap[at + min(other, size - 1)]
    return other if (other < size) & _is_before(b.time_s, b.request, a.time_s, a.request) else one


@inline
def _replace_root(heap, at, size, time_s, request):
    """Put an entry in the place of the root of a heap of `size` entries."""
    k = 0
    while True:
        child = 4 * k + 1
        if child >= size:
            break
        best = _first(
            heap,
            at,
            size,
            _first(heap, at, size, child, child + 1),
            _first(heap, at, size, child + 2, child + 3),
        )
        below = heap[at + best]
        if not _is_before(below.time_s, below.request, time_s, request):
            break
        heap[at + k].time_s = below.time_s
        heap[at + k].request = below.request
        k = best
    heap[at + k].time_s = time_s
    heap[at + k].request = request


# -- memory of the replicas: a tournament tree of how large a request each may start


@inline
def _set_room(pool, replicas, tree, r):
    """Bring the pool's tree up to date after a change of its replica r."""
    free = replicas[pool.replica_at + r]
    k = pool.leaves + r
    at = pool.tree_at
    tree[at + k] = free.tokens if free.slots > 0 else NONE
    while k > 1:
        k >>= 1
        tree[at + k] = max(tree[at + 2 * k], tree[at + 2 * k + 1])


@inline
def _roomiest(pool, tree):
    """Return the replica with most free memory among those with a free slot; the first of equals."""
    at = pool.tree_at
    k = 1
    while k < pool.leaves:
        k *= 2
        if tree[at + k] < tree[at + k + 1]:
            k += 1
    return k - pool.leaves


@inline
def _fits(pool, tree, tokens):
    """Return whether the pool can start a request now."""
    if pool.leaves > 0:
        return tree[pool.tree_at + 1] >= tokens
    return pool.busy < pool.replicas * pool.slots


@inline
def _is_free(pool, tree, tokens):
    """Return whether an arrival would start at once."""
    return pool.waiting == 0 and _fits(pool, tree, tokens)


# -- one pool in time


@inline
def _service_s(service_s, index, p):
    """Return how long a request holds a slot of pool p."""
    return service_s[index, p if service_s.shape[1] > 1 else 0]


@inline
def _tick(pool, time_s):
    """Move the pool's clock."""
    inside = pool.busy + pool.waiting
    if inside > 0:
        pool.area_s += inside * (time_s - pool.clock_s)
    pool.clock_s = time_s


@inline
def _start(pool, p, request, index, duration_s, heap, replicas, tree):
    """Start a request in pool p, where it fits."""
    if pool.leaves > 0:
        r = _roomiest(pool, tree)
        replicas[pool.replica_at + r].slots -= 1
        replicas[pool.replica_at + r].tokens -= request.tokens
        _set_room(pool, replicas, tree, r)
        request.replica = r
    _push(heap, pool.heap_at, pool.busy, pool.clock_s + duration_s, index)
    pool.busy += 1
    request.pool = p
    request.start_s = pool.clock_s
    request.status = IN_SERVICE


@inline
def _hand_over(pool, p, requests, service_s, heap):
    """Give the slot of the request that finishes first to the head of the queue, where only slots count."""
    at = pool.heap_at
    requests[heap[at].request].status = SERVED
    index = _leave_queue(pool, requests)
    request = requests[index]
    _replace_root(heap, at, pool.busy, pool.clock_s + _service_s(service_s, index, p), index)
    request.start_s = pool.clock_s
    request.status = IN_SERVICE


@inline
def _finish(pool, requests, heap, replicas, tree):
    """Let the request that finishes first leave the pool."""
    at = pool.heap_at
    request = requests[heap[at].request]
    pool.busy -= 1
    last = heap[at + pool.busy]
    _replace_root(heap, at, pool.busy, last.time_s, last.request)
    request.status = SERVED
    if pool.leaves > 0:
        replicas[pool.replica_at + request.replica].slots += 1
        replicas[pool.replica_at + request.replica].tokens += request.tokens
        _set_room(pool, replicas, tree, request.replica)


@inline
def _leave_queue(pool, requests):
    """Take the head from the queue and return it."""
    index = pool.head
    pool.head = requests[index].follower
    pool.waiting -= 1
    return index


@inline
def _leave_s(pool, heap):
    """Return when the next request finishes; infinite if none is served."""
    return heap[pool.heap_at].time_s if pool.busy > 0 else np.inf


@inline
def _give_up_s(pool, requests):
    """Return when the head of the queue gives up; infinite if nobody waits."""
    return requests[pool.head].arrival_s + pool.patience_s if pool.waiting > 0 else np.inf


@inline
def _advance(pools, p, until_s, requests, service_s, heap, replicas, tree):
    """Let everything happen in pool p up to `until_s`."""
    pool = pools[p]
    leave_s, give_up_s = _leave_s(pool, heap), _give_up_s(pool, requests)
    while min(leave_s, give_up_s) <= until_s and min(leave_s, give_up_s) < np.inf:
        _tick(pool, min(leave_s, give_up_s))
        if give_up_s < leave_s:
            requests[_leave_queue(pool, requests)].status = TIMED_OUT
        elif pool.waiting > 0 and pool.leaves == 0:
            _hand_over(pool, p, requests, service_s, heap)
        else:
            _finish(pool, requests, heap, replicas, tree)
        while pool.waiting > 0 and _fits(pool, tree, requests[pool.head].tokens):
            index = _leave_queue(pool, requests)
            _start(pool, p, requests[index], index, _service_s(service_s, index, p), heap, replicas, tree)
        leave_s, give_up_s = _leave_s(pool, heap), _give_up_s(pool, requests)


# -- an arrival


@inline
def _choose(pools, policy, candidates, request, tree):
    """Return the pool that a request goes to, or NONE, and in that case why.

    All candidates have been brought up to date.
    """
    reason = NO_POOL
    best = NONE
    least = np.inf
    for k in range(candidates.shape[1]):
        p = candidates[request.kind, k]
        if p == NONE:
            break
        pool = pools[p]
        servers = pool.replicas * pool.slots
        if servers == 0:
            continue
        if request.tokens > pool.kv_tokens:
            reason = max(reason, TOO_LARGE)
            continue
        free = _is_free(pool, tree, request.tokens)
        if not free and pool.waiting >= pool.queue_limit:
            reason = QUEUE_FULL
            continue
        if policy == SPILLOVER:
            if free:
                return p, reason
            if best == NONE:
                best = p
        else:
            load = (pool.busy + pool.waiting) / servers
            if load < least:
                least = load
                best = p
    return best, reason


@inline
def _join_queue(pool, p, requests, index):
    """Let a request wait in pool p."""
    if pool.waiting == 0:
        pool.head = index
    else:
        requests[pool.tail].follower = index
    pool.tail = index
    pool.waiting += 1
    requests[index].pool = p
    requests[index].status = WAITING


@inline
def _arrive(pools, policy, candidates, index, requests, service_s, heap, replicas, tree):
    """Bring the candidates of a request up to date; let it start, wait or go."""
    request = requests[index]
    for k in range(candidates.shape[1]):
        if candidates[request.kind, k] != NONE:
            _advance(
                pools,
                candidates[request.kind, k],
                request.arrival_s,
                requests,
                service_s,
                heap,
                replicas,
                tree,
            )
    p, reason = _choose(pools, policy, candidates, request, tree)
    if p == NONE:
        request.status = reason
    else:
        pool = pools[p]
        _tick(pool, request.arrival_s)
        if _is_free(pool, tree, request.tokens):
            _start(pool, p, request, index, _service_s(service_s, index, p), heap, replicas, tree)
        else:
            _join_queue(pool, p, requests, index)


# -- all of it


@inline
def _fill_memory(pool, replicas, tree):
    """Make every replica of an empty pool free."""
    for r in range(pool.replicas):
        replicas[pool.replica_at + r].slots = pool.slots
        replicas[pool.replica_at + r].tokens = pool.kv_tokens
        _set_room(pool, replicas, tree, r)


@jit
def run(requests, service_s, candidates, policy, pools, heap, replicas, tree, end_s):
    """Do what `play` says; `heap`, `replicas` and `tree` are work space that it laid out."""
    requests, service_s, candidates, pools = borrow((requests, service_s, candidates, pools))
    heap, replicas, tree = borrow((heap, replicas, tree))
    for p in range(pools.size):
        if pools[p].leaves > 0:
            _fill_memory(pools[p], replicas, tree)
    for index in range(requests.size):
        _arrive(pools, policy, candidates, index, requests, service_s, heap, replicas, tree)
    for p in range(pools.size):
        _advance(pools, p, end_s, requests, service_s, heap, replicas, tree)
        if end_s < np.inf:
            _tick(pools[p], end_s)


@jit
def fill(requests, arrival_s, tokens, kind):
    """Write new requests, all fields in one pass."""
    requests, arrival_s, tokens, kind = borrow((requests, arrival_s, tokens, kind))
    for index in range(requests.size):
        request = requests[index]
        request.arrival_s = arrival_s[index]
        request.tokens = tokens[index]
        request.kind = kind[index]
        request.start_s = np.nan
        request.pool = NONE
        request.replica = NONE
        request.follower = NONE
        request.status = NO_POOL


@jit
def count(
    requests,
    owner,
    service_s,
    prefill_s,
    slo_s,
    begin_s,
    stop_s,
    thresholds_s,
    pools,
    totals,
    longer,
    busy_s,
    statuses,
    ttft_s,
):
    """Count what became of requests, in one pass.

    Parameters
    ----------
    requests, service_s, pools
        After `play`.
    owner : (n,) int array
        Workload of each request.
    prefill_s : (n, P) or (n, 1) float array
        Time from start to first token.
    slo_s : (W,) float array
        Bound on the time to first token.
    begin_s, stop_s : float
        Arrivals between them are measured, and the busy slots.
    thresholds_s : (T,) float array
        For `longer`.
    totals : (5, W) float array
        Zeros; becomes measured, missed, refused, started, and the sum of waits.
    longer : (T, W) int array
        Zeros; becomes the measured requests that waited longer than each threshold, those never started included.
    busy_s : (P,) float array
        Zeros; becomes the slot-seconds of each pool.
    statuses : (7,) int array
        Zeros; becomes the number of requests by status.
    ttft_s : (n,) float array
        Becomes wait plus prefill; infinite if never started.

    Returns
    -------
    float
        Sum of the times that requests spent in the pools.
    """
    requests, owner, service_s, prefill_s, slo_s = borrow((requests, owner, service_s, prefill_s, slo_s))
    thresholds_s, pools, totals, longer = borrow((thresholds_s, pools, totals, longer))
    busy_s, statuses, ttft_s = borrow((busy_s, statuses, ttft_s))
    inside_s = 0.0
    for index in range(requests.size):
        request = requests[index]
        status = request.status
        statuses[status] += 1
        wait_s = request.start_s - request.arrival_s
        started = wait_s == wait_s
        if started:
            pool = pools[request.pool]
            leave_s = request.start_s + _service_s(service_s, index, request.pool)
            if status == IN_SERVICE:
                leave_s = pool.clock_s
            inside_s += leave_s - request.arrival_s
            busy_until = min(request.start_s + _service_s(service_s, index, request.pool), stop_s)
            busy_s[request.pool] += max(0.0, busy_until - max(request.start_s, begin_s))
            ttft_s[index] = wait_s + _service_s(prefill_s, index, request.pool)
        else:
            ttft_s[index] = np.inf
            wait_s = np.inf
            if status == TIMED_OUT:
                inside_s += pools[request.pool].patience_s
            elif status == WAITING:
                inside_s += pools[request.pool].clock_s - request.arrival_s
        if request.arrival_s >= begin_s:
            w = owner[index]
            totals[0, w] += 1.0
            totals[1, w] += not started or ttft_s[index] > slo_s[w]
            totals[2, w] += status == NO_POOL
            if started:
                totals[3, w] += 1.0
                totals[4, w] += wait_s
            for k in range(thresholds_s.size):
                longer[k, w] += wait_s > thresholds_s[k]
    return inside_s


def play(
    requests: np.ndarray,
    service_s: np.ndarray,
    candidates: np.ndarray,
    policy: int,
    pools: np.ndarray,
    end_s: float = math.inf,
) -> None:
    """Play requests through pools that are empty at first.

    Parameters
    ----------
    requests : ndarray of REQUEST, shape (n,)
        From `new_requests`, ascending in ``arrival_s``, none after `end_s`. What became of them is written into
        them.
    service_s : ndarray of float, shape (n, P) or (n, 1)
        How long each request would hold a slot of each pool; one column if that is the same everywhere, or known
        beforehand.
    candidates : ndarray of int32, shape (K, P)
        For each kind of request the pools that may serve it, in order of preference; NONE fills a row up.
    policy : int
        LEAST_LOADED or SPILLOVER. With one candidate both mean: there.
    pools : ndarray of POOL, shape (P,)
        From `new_pools`. Their state is modified in place.
    end_s : float
        When the clock stops; infinite to serve everybody who does not give up.

    Examples
    --------
    Three requests of 2 s arrive a second apart at one slot, and wait 0, 1 and 2 s.

    >>> requests = new_requests(np.array([0.0, 1.0, 2.0]))
    >>> play(requests, np.full((3, 1), 2.0), np.zeros((1, 1), np.int32), SPILLOVER, new_pools([1], [1]))
    >>> (requests["start_s"] - requests["arrival_s"]).tolist()
    [0.0, 1.0, 2.0]
    """
    replicas, slots, memory = pools["replicas"], pools["slots"], pools["kv_tokens"]
    most = np.minimum(len(requests), replicas * slots)
    # A replica full of the largest requests that it may hold is within its memory: no need to look.
    largest = np.minimum(requests["tokens"].max(initial=0), memory)
    tracked = np.where((slots > 0) & (largest > memory // np.maximum(1, slots)), replicas, 0)
    leaves = np.array([1 << (int(n) - 1).bit_length() if n else 0 for n in tracked], dtype=np.int64)
    pools["leaves"] = leaves
    if _only_slots_count(candidates, pools, len(requests)):
        _serve(requests, service_s, candidates, pools, most, end_s)
        return
    for name, sizes in (("heap_at", most), ("replica_at", tracked), ("tree_at", 2 * leaves)):
        pools[name] = np.cumsum(sizes) - sizes
    run(
        requests,
        service_s,
        candidates,
        policy,
        pools,
        np.empty(2 + most.sum(), _ENTRY),  # `_first` looks up to two entries beyond
        np.empty(tracked.sum(), _REPLICA),
        np.full(2 * leaves.sum(), NONE, np.int64),
        end_s,
    )


def _only_slots_count(candidates: np.ndarray, pools: np.ndarray, count: int) -> bool:
    """Return whether a request's start depends on nothing but slots: one pool to go to, no limits that may bind."""
    unlimited = (pools["leaves"] == 0) & (pools["queue_limit"] >= count) & (pools["patience_s"] == np.inf)
    return bool(unlimited.all() and (candidates[:, 1:] == NONE).all())


def _serve(
    requests: np.ndarray,
    service_s: np.ndarray,
    candidates: np.ndarray,
    pools: np.ndarray,
    sizes: np.ndarray,
    end_s: float,
) -> None:
    """Do what `play` says without events; `sizes` are the slots of each pool that there are requests for."""
    ends = np.cumsum(sizes + slots_kernel.ARITY)
    pools["heap_at"] = ends - sizes - slots_kernel.ARITY
    free_s = np.full(ends[-1], np.inf)
    for at, size in zip(pools["heap_at"], sizes, strict=True):
        free_s[at : at + size] = -np.inf
    codes = (SERVED, IN_SERVICE, WAITING, NO_POOL, TOO_LARGE)
    slots_kernel.serve(requests, service_s, candidates, pools, sizes, free_s, end_s, codes)


def new_requests(
    arrival_s: np.ndarray, tokens: np.ndarray | int = 0, kind: np.ndarray | int = 0
) -> np.ndarray:
    """Return requests that nothing has happened to yet, (n,) of REQUEST."""
    requests = np.empty(len(arrival_s), dtype=REQUEST)
    n = requests.shape
    fill(requests, np.asarray(arrival_s, float), _column(tokens, n, np.int64), _column(kind, n, np.int32))
    return requests


def _column(values: np.ndarray | int, shape: tuple[int, ...], dtype: type) -> np.ndarray:
    return np.broadcast_to(np.asarray(values, dtype=dtype), shape)


def new_pools(
    replicas: Sequence[int] | np.ndarray,
    slots: Sequence[int] | np.ndarray,
    kv_tokens: Sequence[int] | np.ndarray | int = UNLIMITED,
    queue_limit: Sequence[int] | np.ndarray | int = UNLIMITED,
    patience_s: Sequence[float] | np.ndarray | float = math.inf,
) -> np.ndarray:
    """Return empty pools, (P,) of POOL."""
    pools = np.zeros(len(replicas), dtype=POOL)
    pools["replicas"], pools["slots"], pools["kv_tokens"] = replicas, slots, kv_tokens
    pools["queue_limit"], pools["patience_s"] = queue_limit, patience_s
    return pools
