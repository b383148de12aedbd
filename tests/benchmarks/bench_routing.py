"""Time the routing kernel against HiGHS and SciPy on series of routing LPs; print CPU time and ratios.

Run ``python tests/benchmarks/bench_routing.py``. All solvers get the same LPs in the same run: the windows of
a demand series, as an environment solves them one after the other. What a peer is given is prepared outside
the clock. Times are CPU seconds of this process, so that a busy machine does not matter much.
"""

from __future__ import annotations

import math
import sys
import time
from pathlib import Path

import highspy
import numpy as np
import scipy.optimize

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))

import routing_lps

from fleetgym.kernels.compile import jit
from fleetgym.kernels.routing import new_basis, new_workspace, route

SIZES = ((6, 4), (6, 10), (10, 10), (20, 30))
LOADS = {"slack": 0.05, "tight": 0.9, "overloaded": 2.0}
# Peer: (least geometric mean, least ratio of any cell).
TARGETS = {"fresh": (60.0, 15.0), "best": (20.0, 7.0), "linprog": (300.0, 40.0)}
WINDOWS = 200


def make_series(rng, workloads, configurations, load, windows):
    """Return a base LP, its demand factors (windows, I), and the LP of each window."""
    base = routing_lps.realistic(rng, workloads, configurations, load=load)
    factors = routing_lps.demand_walk(rng, workloads, windows)
    return base, factors, [routing_lps.with_demand(base, factor) for factor in factors]


# --- the kernel -------------------------------------------------------------------------------------------


class Kernel:
    """The kernel with its arrays, called from Python."""

    def __init__(self, workloads, configurations):
        self.basis = new_basis(workloads, configurations)
        self.work = new_workspace(workloads, configurations)
        self.out = (
            np.empty((workloads, configurations)),
            np.empty((workloads, 3)),
            np.empty((configurations, routing_lps.SEGMENTS)),
            (np.empty((workloads, 3)), np.empty((3, configurations))),
        )

    def run(self, series, warm):
        """Solve the series; return seconds per LP, the objectives and pivots per LP."""
        objectives, pivots, rounds, basis = np.empty(len(series)), 0, 0, self.basis
        basis[:] = 0
        start = time.process_time()
        while (spent := time.process_time() - start) < 0.1:
            rounds += 1
            for n, lp in enumerate(series):
                if not warm:
                    basis[:2] = 0
                status, objectives[n], count = route(*lp, basis, self.work, *self.out)
                pivots += count
                assert status == 0
        solves = rounds * len(series)
        return spent / solves, objectives, pivots / solves


@jit
def solve_series(factors, base, cost, unserved, use, basis, work, out):
    """Solve all windows within compiled code; writing a window's demand into the data is on the clock."""
    total = 0.0
    for n in range(factors.shape[0]):
        for i in range(cost.shape[0]):
            unserved[i] = base[1][i] * factors[n, i]
            for c in range(cost.shape[1]):
                cost[i, c] = base[0][i, c] * factors[n, i]
                for r in range(3):
                    use[r, i, c] = base[4][r, i, c] * factors[n, i]
        total += route(
            cost, unserved, base[2], base[3], use, base[5], base[6], base[7], base[8], basis, work,
            out[0], out[1], out[2], out[3],
        )[1]  # fmt: skip
    return total


def time_compiled(kernel, base, factors):
    """Return seconds per LP when the loop over windows is compiled too, as in a batched environment."""
    data = np.empty_like(base.cost), np.empty_like(base.unserved), np.empty_like(base.use)
    rounds = 0
    solve_series(factors, tuple(base), *data, kernel.basis, kernel.work, kernel.out)
    start = time.process_time()
    while (spent := time.process_time() - start) < 0.1:
        rounds += 1
        solve_series(factors, tuple(base), *data, kernel.basis, kernel.work, kernel.out)
    return spent / rounds / len(factors)


# --- peers ------------------------------------------------------------------------------------------------


def quiet_highs(**options):
    """Return a HiGHS object that prints nothing."""
    solver = highspy.Highs()
    for name, value in {"output_flag": False, **options}.items():
        solver.setOptionValue(name, value)
    return solver


def time_fresh(series):
    """HiGHS as it comes, a new model per LP; building the model's arrays is off the clock."""
    solver = quiet_highs()
    forms = [routing_lps.to_matrix(lp) for lp in series]
    models = [routing_lps.to_highs(form) for form in forms]
    objectives = np.empty(len(series))
    start = time.process_time()
    for n, model in enumerate(models):
        solver.passModel(model)
        solver.run()
        objectives[n] = solver.getInfo().objective_function_value
    spent = time.process_time() - start
    return spent / len(series), objectives * [form.money for form in forms]


def time_best(base, factors):
    """HiGHS as fast as it goes: one model for all windows, warm, without presolve.

    Written in routed amounts (arrivals times shares), a window's demand is only in the right-hand sides, so
    that one call changes it and the last basis stays dual feasible. That holds only for changes of demand.
    """
    form = routing_lps.to_matrix(base)
    workloads = len(base.unserved)
    solver = quiet_highs(presolve="off", threads=1)
    solver.passModel(routing_lps.to_highs(form))
    rows = np.arange(workloads, dtype=np.int32)
    objectives = np.empty(len(factors))
    solver.run()
    start = time.process_time()
    for n, factor in enumerate(factors):
        solver.changeRowsBounds(workloads, rows, factor, factor)
        solver.run()
        objectives[n] = solver.getInfo().objective_function_value
    spent = time.process_time() - start
    return spent / len(factors), objectives * form.money


def time_linprog(series):
    """`scipy.optimize.linprog` with HiGHS; building its sparse arrays is off the clock."""
    arguments = []
    for lp in series:
        form = routing_lps.to_matrix(lp)
        n = form.equalities
        arguments.append(
            {
                "c": form.cost,
                "A_ub": form.matrix[n:],
                "b_ub": form.upper[n:],
                "A_eq": form.matrix[:n],
                "b_eq": form.upper[:n],
                "bounds": np.column_stack([np.zeros(form.cost.size), form.bound]),
                "method": "highs",
            }
        )
    start = time.process_time()
    for keywords in arguments:
        assert scipy.optimize.linprog(**keywords).status == 0
    return (time.process_time() - start) / len(series)


# --- report -----------------------------------------------------------------------------------------------


def measure(workloads, configurations, load, seed, windows):
    """Return the times of one cell in microseconds, and pivots per warm LP."""
    rng = np.random.default_rng(seed)
    base, factors, series = make_series(rng, workloads, configurations, load, windows)
    kernel = Kernel(workloads, configurations)
    kernel.run(series[:3], warm=True)
    seconds = {}
    seconds["cold"], cold_objectives, _ = kernel.run(series, warm=False)
    seconds["warm"], objectives, pivots = kernel.run(series, warm=True)
    seconds["inner"] = time_compiled(kernel, base, factors)
    seconds["fresh"], fresh_objectives = time_fresh(series)
    seconds["best"], best_objectives = time_best(base, factors)
    seconds["linprog"] = time_linprog(series[: max(windows // 5, 5)])
    for other in (cold_objectives, fresh_objectives, best_objectives):
        np.testing.assert_allclose(objectives, other, rtol=1e-5)
    return {name: 1e6 * value for name, value in seconds.items()} | {"pivots": pivots}


def main(windows=WINDOWS, sizes=SIZES, draws=2):
    """Print the table; return whether all targets are met.

    Parameters
    ----------
    windows : int
        Length of each demand series.
    sizes : sequence of (int, int)
        Workloads and active configurations of the cells.
    draws : int
        Independent series per cell; times are their means.
    """
    header = f"{'cell':>18} {'pivots':>6} | {'inner':>7} {'warm':>7} {'cold':>7} | "
    print(header + f"{'fresh':>8} {'best':>8} {'linprog':>8} | {'x fresh':>8} {'x best':>8} {'x linprog':>9}")
    times = []
    for workloads, configurations in sizes:
        for name, load in LOADS.items():
            runs = [measure(workloads, configurations, load, 7 + draw, windows) for draw in range(draws)]
            t = {key: sum(run[key] for run in runs) / draws for key in runs[0]}
            times.append(t)
            print(
                f"{workloads:>3}x{configurations:<3} {name:>10} {t['pivots']:6.1f} | "
                f"{t['inner']:7.1f} {t['warm']:7.1f} {t['cold']:7.1f} | "
                f"{t['fresh']:8.0f} {t['best']:8.0f} {t['linprog']:8.0f} | "
                + " ".join(f"{t[peer] / t['inner']:7.0f}x" for peer in TARGETS),
                flush=True,
            )
    print(
        "CPU microseconds per LP. inner: warm, from compiled code as the environments call it (the ratios);"
    )
    print(
        "warm, cold: from Python. fresh: HiGHS, new model; best: HiGHS, warm, only right-hand sides changed."
    )
    return report(times)


def report(times):
    """Print the geometric means against the targets; return whether all are met."""
    passed = True
    for peer, (least_mean, least_cell) in TARGETS.items():
        ratios = {own: [t[peer] / t[own] for t in times] for own in ("inner", "warm", "cold")}
        means = {own: math.exp(np.mean(np.log(values))) for own, values in ratios.items()}
        least = min(ratios["inner"])
        met = means["inner"] >= least_mean and least >= least_cell
        passed = passed and met
        print(
            f"{'PASS' if met else 'MISS'} {peer:>8}: geometric mean {means['inner']:.0f}x "
            f"(target {least_mean:.0f}x), worst cell {least:.1f}x (target {least_cell:.0f}x); "
            f"called from Python {means['warm']:.0f}x, cold {means['cold']:.0f}x"
        )
    return passed


if __name__ == "__main__":
    sys.exit(0 if main() else 1)
