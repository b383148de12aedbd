"""Compare the simulator with plain Python and with Ciw on M/M/c, and large fleets with small ones, in CPU time.

Run with ``python tests/benchmarks/bench_simulation.py``. Everything is timed per request, random
numbers included. The plain loops are what one would write by hand: an event list with `heapq` and a queue (the
simulator's opponent), and the shortest possible recursion over the times at which servers become free, which can do
nothing but first come first served.
Ciw (pip install ciw) is skipped where it is not installed.
"""

from __future__ import annotations

import heapq
import math
import random
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from fleetgym.capacity.simulation.fleet import Pool, Workload
from fleetgym.capacity.simulation.run import simulate
from fleetgym.cli.process import run_program
from fleetgym.kernels.queueing import erlang_c
from fleetgym.runtime.programs import program

SERVERS = 16
LOAD = 0.9


def event_loop(requests, rate, servers, seed=0):
    """Return the share that waits, from a list of arrivals and departures."""
    rng = random.Random(seed)
    events = [(rng.expovariate(rate), 0, 0)]
    queue, busy, arrived, waited, waits = deque(), 0, 1, 0, []
    while events:
        now, kind, _ = heapq.heappop(events)
        if kind == 0:
            if arrived < requests:
                heapq.heappush(events, (now + rng.expovariate(rate), 0, arrived))
                arrived += 1
            if busy < servers:
                busy += 1
                waits.append(0.0)
                heapq.heappush(events, (now + rng.expovariate(1.0), 1, arrived))
            else:
                waited += 1
                queue.append(now)
        elif queue:
            waits.append(now - queue.popleft())
            heapq.heappush(events, (now + rng.expovariate(1.0), 1, arrived))
        else:
            busy -= 1
    return waited / requests


def recursion(requests, rate, servers, seed=0):
    """Return the share that waits, from the times at which servers become free (Kiefer and Wolfowitz)."""
    rng = random.Random(seed)
    free, now, waits = [0.0] * servers, 0.0, []
    for _ in range(requests):
        now += rng.expovariate(rate)
        start = max(now, free[0])
        heapq.heapreplace(free, start + rng.expovariate(1.0))
        waits.append(start - now)
    return sum(w > 0.0 for w in waits) / requests


def ciw_run(requests, rate, servers, seed=0):
    """Return the share that waits, from Ciw."""
    import ciw

    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Exponential(rate=rate)],
        service_distributions=[ciw.dists.Exponential(rate=1.0)],
        number_of_servers=[servers],
    )
    ciw.seed(seed)
    run = ciw.Simulation(network)
    run.simulate_until_max_customers(requests, method="Arrive")
    records = run.get_all_records()
    return sum(r.waiting_time > 1e-12 for r in records) / len(records)


def ours(requests, rate, servers, seed=0, replicas=1, kv_tokens=None, tokens=0):
    """Return the share that waits, from `simulate`, in replications of 100,000 requests."""
    replications = max(2, requests // 100_000)
    found = simulate(
        Pool(replicas=replicas, slots=servers // replicas, kv_tokens=kv_tokens),
        Workload(arrivals=rate, service_s=1.0, input_tokens=tokens),
        window_s=requests / rate / replications,
        warmup_s=0.0,
        seed=seed,
        min_replications=replications,
        max_replications=replications,
    )
    return float(found.wait_exceeds.mean[0, 0])


def ns_per_request(function, requests, *args, rounds=3, **options):
    """Return CPU nanoseconds per request, best of some rounds, and the answer."""
    best, answer = math.inf, math.nan
    for _ in range(rounds):
        start = time.process_time()
        answer = function(requests, *args, **options)
        best = min(best, (time.process_time() - start) / requests * 1e9)
    return best, answer


def bench_mmc(most_requests=1_000_000, tolerance=0.02):
    """Time M/M/c in all four ways; each must find Erlang's answer, the plain loops within three times the tolerance."""
    exact = erlang_c(SERVERS, LOAD * SERVERS)
    args = (LOAD * SERVERS, SERVERS)
    ours(1000, *args)  # compiles
    base, found = ns_per_request(ours, most_requests, *args, rounds=9)
    print(
        f"M/M/{SERVERS} at {LOAD:.0%}; a share of {exact:.3f} waits; CPU time per request, random numbers included"
    )
    print(f"  simulate           {base:9.0f} ns             waits {found:.3f}")
    assert abs(found - exact) < tolerance
    for name, function, requests in (
        ("heapq event loop", event_loop, min(most_requests, 200_000)),
        ("heapq recursion", recursion, min(most_requests, 200_000)),
    ):
        slow, found = ns_per_request(function, requests, *args)
        print(f"  {name:18s} {slow:9.0f} ns  {slow / base:7.1f} x  waits {found:.3f}")
        assert abs(found - exact) < 3 * tolerance
    try:
        import ciw  # noqa: F401
    except ImportError:
        print("  Ciw                skipped: not installed (pip install ciw)")
        return
    slow, found = ns_per_request(ciw_run, min(most_requests, 20_000), *args, rounds=2)
    print(f"  Ciw                {slow:9.0f} ns  {slow / base:7.1f} x  waits {found:.3f}")


def bench_size(slots=16, sizes=(4, 16, 64, 256, 1024), requests=2_000_000):
    """Time fleets of 4 to 1,024 GPUs at the same load, without and with memory that can run out."""
    print(
        f"fleets of GPUs with {slots} slots each at {LOAD:.0%}; last column: with KV memory that can run out"
    )
    first = None
    for gpus in sizes:
        args, options = (LOAD * gpus * slots, gpus * slots), {"replicas": gpus}
        plain, _ = ns_per_request(ours, requests, *args, **options)
        tracked, _ = ns_per_request(ours, requests, *args, **options, tokens=10, kv_tokens=10 * slots - 1)
        first = first or (plain, tracked)
        print(
            f"  {gpus:5d} GPUs  {plain:6.0f} ns ({plain / first[0]:.2f} x)   "
            f"{tracked:6.0f} ns ({tracked / first[1]:.2f} x)"
        )


def smoke(folder: Path) -> None:
    """Simulate few requests, which come only roughly to Erlang's answer."""
    bench_mmc(most_requests=20_000, tolerance=0.1)
    bench_size(sizes=(4, 16), requests=20_000)


def main(argv: Sequence[str] | None = None) -> None:
    """Print both comparisons."""
    program(__doc__, writes="No file.", takes="Half a CPU minute.", smoke=smoke).parse_args(argv)
    bench_mmc()
    bench_size()


if __name__ == "__main__":
    run_program(main)
