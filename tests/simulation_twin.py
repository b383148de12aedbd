"""The simulator once more, slow and plain: one global list of events, and every replica looked at in turn."""

from __future__ import annotations

import dataclasses
import heapq
import math
from collections import deque

DEPARTURE, GIVE_UP, ARRIVAL = 0, 1, 2


@dataclasses.dataclass
class TwinPool:
    """A pool: the capacity of each replica, who is served there, and who waits."""

    replicas: int
    slots: int
    kv_tokens: float = math.inf
    queue_limit: float = math.inf
    patience_s: float = math.inf

    def __post_init__(self) -> None:
        self.served: list[dict[int, int]] = [{} for _ in range(self.replicas)]  # request to tokens
        self.queue: deque[int] = deque()

    def replica_for(self, tokens: int) -> int | None:
        """Return the replica with most free memory among those with a free slot and room, or None."""
        best, most = None, -1.0
        for r, inside in enumerate(self.served):
            free = self.kv_tokens - sum(inside.values())
            if len(inside) < self.slots and free >= tokens and free > most:
                best, most = r, free
        return best

    @property
    def load(self) -> float:
        """Requests per slot."""
        return (sum(map(len, self.served)) + len(self.queue)) / (self.replicas * self.slots)


@dataclasses.dataclass
class Fate:
    """What became of one request."""

    status: str = ""
    pool: int = -1
    replica: int = -1
    start_s: float = math.nan


def play(
    arrivals: list[float],
    service: list[list[float]],
    tokens: list[int],
    candidates: list[list[int]],
    policy: str,
    pools: list[TwinPool],
    end_s: float = math.inf,
) -> list[Fate]:
    """Return the fate of every request; `candidates` are listed per request, without fillers."""
    fates = [Fate() for _ in arrivals]
    events: list[tuple[float, int, int]] = [(t, ARRIVAL, n) for n, t in enumerate(arrivals)]
    heapq.heapify(events)

    def serve(pool: TwinPool, now: float) -> None:
        """Start whoever may start, from the head of the queue."""
        while pool.queue:
            n = pool.queue[0]
            replica = pool.replica_for(tokens[n])
            if replica is None:
                return
            pool.queue.popleft()
            pool.served[replica][n] = tokens[n]
            fates[n].status, fates[n].replica, fates[n].start_s = "in_service", replica, now
            duration = service[n][fates[n].pool]
            if duration < math.inf:
                heapq.heappush(events, (now + duration, DEPARTURE, n))

    def choose(n: int) -> tuple[int | None, str]:
        """Return the pool for an arrival, or why there is none."""
        able = [p for p in candidates[n] if pools[p].replicas * pools[p].slots > 0]
        if not able:
            return None, "no_pool"
        fitting = [p for p in able if tokens[n] <= pools[p].kv_tokens]
        if not fitting:
            return None, "too_large"

        def at_once(p: int) -> bool:
            return not pools[p].queue and pools[p].replica_for(tokens[n]) is not None

        open_ = [p for p in fitting if at_once(p) or len(pools[p].queue) < pools[p].queue_limit]
        if not open_:
            return None, "queue_full"
        if policy == "spillover":
            return next((p for p in open_ if at_once(p)), open_[0]), ""
        return min(open_, key=lambda p: pools[p].load), ""

    while events and events[0][0] <= end_s:
        now, what, n = heapq.heappop(events)
        fate = fates[n]
        if what == ARRIVAL:
            p, why = choose(n)
            if p is None:
                fate.status = why
                continue
            fate.pool, fate.status = p, "waiting"
            pools[p].queue.append(n)
            serve(pools[p], now)
            if fate.status == "waiting" and pools[p].patience_s < math.inf:
                heapq.heappush(events, (now + pools[p].patience_s, GIVE_UP, n))
        elif what == DEPARTURE:
            del pools[fate.pool].served[fate.replica][n]
            fate.status = "served"
            serve(pools[fate.pool], now)
        elif fate.status == "waiting":
            pools[fate.pool].queue.remove(n)
            fate.status = "timed_out"
            serve(pools[fate.pool], now)
    return fates
