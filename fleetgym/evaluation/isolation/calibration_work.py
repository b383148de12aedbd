"""Do the work that calibration measures, with fixed sizes and seeds, and without the project's own code.

That code gets faster over time, and the reference CPU second must not.

Any change to it is a new `fleetgym.evaluation.isolation.calibration.CALIBRATION_FORMAT`, with new reference seconds.
Run as ``python -m fleetgym.evaluation.isolation.calibration_work ROUNDS`` this module measures each part and prints
JSON.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from collections.abc import Callable

import numba
import numpy as np

from fleetgym.files.documents import canonical_json
from fleetgym.runtime.highs import make_solver


def main() -> None:
    """Measure ``sys.argv[1]`` rounds and print them as JSON."""
    parts = workload()
    for work in parts.values():  # compilation, caches, lazy imports
        work()
    rounds = [{name: _cpu_s(work) for name, work in parts.items()} for _ in range(int(sys.argv[1]))]
    print(canonical_json(rounds))


def workload() -> dict[str, Callable[[], float]]:
    """Return the parts of the workload by name; every call does the same work and returns the same number."""
    return {"python": _python_work, "numpy": _numpy_work(), "lp": _lp_work(), "compiled": _compiled_work()}


@functools.cache
def _small_numpy_work() -> Callable[[], float]:
    return _numpy_work(rounds=3)


def sample_s() -> float:
    """Return the CPU seconds of a small part of the workload, some 25 ms of Python and NumPy."""
    work = _small_numpy_work()
    begin = time.thread_time()
    _count(75_000, 503)
    work()
    return time.thread_time() - begin


def _cpu_s(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def _python_work() -> int:
    counts = _count(1_200_000, 5003)
    return sum(sum(sorted(counts.values(), key=lambda count: -count)[:100]) for _ in range(20))


def _count(steps: int, keys: int) -> dict[int, int]:
    """Return how often each key comes up."""
    counts: dict[int, int] = {}
    state = 12345
    for _ in range(steps):
        state = (1103515245 * state + 12345) % 2**31
        key = state % keys
        counts[key] = counts.get(key, 0) + 1
    return counts


def _numpy_work(rounds: int = 90) -> Callable[[], float]:
    rng = np.random.default_rng(1)
    matrix, values = rng.random((400, 400)), rng.random(200_000)
    # Written in place: how memory is allocated differs from process to process.
    product, floats, whole = (
        np.empty_like(matrix),
        np.empty_like(values),
        np.empty(values.size, dtype=np.int64),
    )

    def work() -> float:
        total = 0.0
        for _ in range(rounds):
            np.matmul(matrix, matrix, out=product)
            np.copyto(floats, values)
            floats.sort()
            total += float(product.sum() + floats[1000])
            np.cumsum(np.exp(values, out=floats), out=floats)
            np.multiply(values, 999.0, out=whole, casting="unsafe")
            total += float(floats[-1] + np.bincount(whole)[7])
        return total

    return work


def _lp_work() -> Callable[[], float]:
    import highspy

    rng = np.random.default_rng(2)
    demands, servers = 150, 60
    costs, loads = rng.random((demands, servers)), 0.5 + rng.random((demands, servers))

    def solve() -> float:
        solver = make_solver(random_seed=1, presolve="off")
        for column in costs.ravel():
            solver.addVar(0.0, 1.0)
            solver.changeColCost(solver.getNumCol() - 1, float(column))
        for i in range(demands):
            columns = np.arange(i * servers, (i + 1) * servers, dtype=np.int32)
            solver.addRow(1.0, 1.0, servers, columns, np.ones(servers))
        for c in range(servers):
            columns = np.arange(c, demands * servers, servers, dtype=np.int32)
            solver.addRow(-np.inf, 2.0, demands, columns, loads[:, c].copy())
        solver.run()
        assert solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return float(solver.getObjectiveValue())

    return lambda: sum(solve() for _ in range(5))


def _compiled_work() -> Callable[[], float]:
    rng = np.random.default_rng(3)
    tableau, table = rng.random((40, 120)), rng.random(20_000)

    def work() -> float:
        return float(_recursions(7000) + _pivots(tableau, 7000) + _look_ups(table, 7_000_000))

    return work


@numba.njit
def _recursions(count: int) -> float:
    """Sum the probabilities to wait in queues of up to 500 servers at 85 % load, by Erlang's recursion."""
    total = 0.0
    for k in range(count):
        servers = 1 + k % 500
        load = 0.85 * servers
        blocking = 1.0
        for n in range(1, servers + 1):
            blocking = load * blocking / (n + load * blocking)
        wait = blocking / (1.0 - 0.85 * (1.0 - blocking))
        total += math.exp(-0.1 * servers) + math.log(wait)
    return total


@numba.njit
def _pivots(start: np.ndarray, count: int) -> float:
    """Pivot a dense tableau many times, damped so that its numbers neither grow nor vanish."""
    rows, columns = start.shape
    tableau = start.copy()
    for k in range(count):
        r, c = k % rows, (7 * k) % columns
        scale = 0.5 / (1.0 + abs(tableau[r, c]))
        for i in range(rows):
            if i != r:
                factor = scale * tableau[i, c]
                for j in range(columns):
                    tableau[i, j] = 0.9 * tableau[i, j] - factor * tableau[r, j] + 0.05
    return tableau.sum()


@numba.njit
def _look_ups(table: np.ndarray, count: int) -> float:
    """Interpolate in a table at places that depend on what was found."""
    total, place = 0.0, 0.5
    for _ in range(count):
        exact = place * (table.size - 1)
        k = int(exact)
        value = table[k] + (exact - k) * (table[k + 1] - table[k])
        total += value if value < 0.5 else -value
        place = (place + 0.618 + 0.1 * value) % 0.999
    return total


if __name__ == "__main__":
    main()
