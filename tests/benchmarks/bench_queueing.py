"""Compare the queueing kernels with plain Python at 1,000 servers, in CPU time, and with 50 digits up to 100,000.

Run with ``python tests/benchmarks/bench_queueing.py``. The opponent is the usual log-domain sum over all
servers, as written by hand in sizing scripts. Kernels are timed twice: one call at a time from Python, and in
a compiled loop, which is how the library uses them. It ends with an error where a target is missed: 100 times the
speed for Erlang C, 1,000 times for the P99 wait (in a compiled loop; at 98 % load, where the wait is above zero and
takes the whole series, it is close to that), and errors of 1e-12.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from pathlib import Path

import mpmath
import numpy as np

from fleetgym.cli.process import run_program
from fleetgym.kernels import queueing as q
from fleetgym.kernels.compile import jit
from fleetgym.runtime.programs import program

SERVERS = 1000
UTILIZATIONS = (0.7, 0.9, 0.98)
LARGE = (1_000, 10_000, 100_000)
CLOSE = (0.9, 0.98, 0.999)  # where the chance to wait is no underflow
MOST_ERROR = 1e-12
LEAST_SPEEDUP = {"erlang_c": 100.0, "p99 wait": 1000.0}


def log_sum_erlang_c(servers, offered):
    """Return Erlang C from logarithms of all terms a^k / k!."""
    log_offered = math.log(offered)
    logs = [k * log_offered - math.lgamma(k + 1.0) for k in range(servers + 1)]
    last = logs.pop() - math.log(1.0 - offered / servers)
    top = max(max(logs), last)
    waiting = math.exp(last - top)
    return waiting / (sum([math.exp(x - top) for x in logs]) + waiting)


def log_sum_p99(servers, rate, service, service_cv2, arrival_cv2):
    """Return the P99 wait from `log_sum_erlang_c`."""
    waiting = log_sum_erlang_c(servers, rate * service)
    if waiting <= 0.01:
        return 0.0
    return math.log(waiting / 0.01) * (service_cv2 + arrival_cv2) / (2 * (servers / service - rate))


@jit
def many_erlang_c(servers, offered, repeats):
    """Sum Erlang C over slightly different loads, so that nothing can be reused."""
    total = 0.0
    for k in range(repeats):
        total += q.erlang_c(servers, offered + 1e-9 * k)
    return total


@jit
def many_p99(servers, rate, repeats):
    """Sum P99 waits over slightly different rates."""
    total = 0.0
    for k in range(repeats):
        total += q.wait_percentile(servers, rate + 1e-9 * k, 1.0, 1.5, 1.0, 0.01)
    return total


def exact_erlang_c(servers, offered):
    """Return Erlang C with 50 digits, from the recurrence of Erlang B."""
    with mpmath.workdps(50):
        load, inverse = mpmath.mpf(offered), mpmath.mpf(1)
        for c in range(1, servers + 1):
            inverse = 1 + inverse * c / load
        return 1 / ((1 - load / servers) * inverse + load / servers)


def cpu_seconds(function, *args, repeats):
    """Return CPU seconds per call, best of five rounds."""
    function(*args)
    best = math.inf
    for _ in range(5):
        start = time.process_time()
        for _ in range(repeats):
            function(*args)
        best = min(best, (time.process_time() - start) / repeats)
    return best


def report(name, utilization, slow, direct, looped, judge):
    """Print one line of the comparison; with `judge`, end with an error where the target is missed."""
    print(
        f"{name:9s} u={utilization:.2f}  plain {slow * 1e6:7.1f} us   called {direct * 1e9:6.0f} ns "
        f"({slow / direct:6.0f}x)   compiled loop {looped * 1e9:6.0f} ns ({slow / looped:6.0f}x)"
    )
    if judge and (name, utilization) != ("p99 wait", UTILIZATIONS[-1]):
        assert slow / looped >= LEAST_SPEEDUP[name]


def bench_against_plain_python(slow_repeats=20, repeats=20_000, judge=True):
    """Time Erlang C and the P99 wait."""
    for u in UTILIZATIONS:
        load = u * SERVERS
        assert math.isclose(q.erlang_c(SERVERS, load), log_sum_erlang_c(SERVERS, load), rel_tol=1e-9)
        slow = cpu_seconds(log_sum_erlang_c, SERVERS, load, repeats=slow_repeats)
        direct = cpu_seconds(q.erlang_c, SERVERS, load, repeats=repeats)
        looped = cpu_seconds(many_erlang_c, SERVERS, load, repeats, repeats=1) / repeats
        report("erlang_c", u, slow, direct, looped, judge)
    for u in UTILIZATIONS:
        rate = u * SERVERS
        args = (SERVERS, rate, 1.0, 1.5, 1.0)
        assert math.isclose(q.wait_percentile(*args, 0.01), log_sum_p99(*args), rel_tol=1e-9)
        slow = cpu_seconds(log_sum_p99, *args, repeats=slow_repeats)
        direct = cpu_seconds(q.wait_percentile, *args, 0.01, repeats=repeats)
        looped = cpu_seconds(many_p99, SERVERS, rate, repeats, repeats=1) / repeats
        report("p99 wait", u, slow, direct, looped, judge)


def bench_error(sizes=LARGE):
    """Compare Erlang C with 50-digit values."""
    worst = 0.0
    for servers in sizes:
        for u in CLOSE:
            load, exact = u * servers, exact_erlang_c(servers, u * servers)
            if exact > 1e-300:
                with mpmath.workdps(50):
                    worst = max(worst, float(abs(mpmath.mpf(q.erlang_c(servers, load)) - exact) / exact))
    print(f"erlang_c up to {sizes[-1]:,} servers: relative error at most {worst:.1e}")
    assert worst <= MOST_ERROR


def bench_table(workloads=10, configs=512, replicas=8):
    """Time the late-cost table of the largest instance."""
    rng = np.random.default_rng(0)
    shape = (workloads, configs)
    shares = np.ascontiguousarray(rng.dirichlet(np.ones(workloads), configs).T)
    args = (
        shares,
        rng.uniform(0.5, 20.0, shape),
        rng.uniform(0.1, 3.0, shape),
        rng.uniform(1.0, 3.0, workloads),
        np.zeros(shape),
        rng.uniform(0.5, 4.0, shape),
        rng.uniform(0.001, 0.01, workloads),
        rng.integers(1, 257, configs),
        np.arange(configs + 1) * replicas,
        300.0,
    )
    seconds = cpu_seconds(q.late_cost_table, *args, repeats=1)
    print(f"late_cost_table {configs} configurations x {replicas} replicas: {seconds * 1e3:.1f} ms")


def smoke(folder: Path) -> None:
    """Measure everything with few repetitions, and judge the error only."""
    bench_against_plain_python(slow_repeats=1, repeats=20, judge=False)
    bench_error([1_000])
    bench_table(configs=8)


def main(argv: Sequence[str] | None = None) -> None:
    """Print all comparisons."""
    program(__doc__, writes="No file.", takes="Three CPU seconds.", smoke=smoke).parse_args(argv)
    bench_against_plain_python()
    bench_error()
    bench_table()


if __name__ == "__main__":
    run_program(main)
