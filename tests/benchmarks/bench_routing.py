"""Time the routing kernel against HiGHS and SciPy on series of routing LPs; print CPU time and ratios.

Run ``python tests/benchmarks/bench_routing.py``. All solvers get the same LPs in the same run: the windows of
a series, as an environment solves them one after the other. What a peer is given is prepared outside
the clock. Times are CPU seconds of this process, and each is the best of three rounds.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import highspy
import numpy as np
import scipy.optimize

sys.path.insert(0, str(Path(__file__).parents[1] / "kernels"))

import routing_lps

from fleetgym.cli.process import run_program
from fleetgym.kernels.compile import jit
from fleetgym.kernels.routing import new_basis, new_workspace, route
from fleetgym.runtime.programs import program

SIZES = ((6, 4), (6, 10), (10, 10), (20, 30))
LOADS = {"slack": 0.05, "tight": 0.9, "overloaded": 2.0}
# Peer: (least geometric mean, least ratio of any cell).
TARGETS = {"fresh": (60.0, 15.0), "best": (20.0, 7.0), "linprog": (300.0, 40.0)}
WINDOWS = 200
ROUNDS = 3
LEAST_S = 0.1  # CPU seconds of a measurement of the kernel


def make_series(rng, workloads, configurations, load, windows, demand_only):
    """Return the LPs of a series of windows, and the demand factors where only these change."""
    base = routing_lps.realistic(rng, workloads, configurations, load=load)
    if not demand_only:
        return routing_lps.drifting_windows(rng, base, windows), None
    factors = routing_lps.demand_walk(rng, workloads, windows)
    return [routing_lps.with_demand(base, factor) for factor in factors], (base, factors)


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

    def run(self, series, warm, least_s=LEAST_S):
        """Solve the series; return seconds per LP, the objectives and pivots per LP."""
        objectives, pivots, rounds, basis = np.empty(len(series)), 0, 0, self.basis
        basis[:] = 0
        start = time.process_time()
        while (spent := time.process_time() - start) < least_s:
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
def solve_series(cost, unserved, delay, error, use, fixed, basis, work, out):
    """Solve all windows within compiled code: one call from Python for the whole series."""
    total = 0.0
    for n in range(cost.shape[0]):
        total += route(
            cost[n], unserved[n], delay[n], error[n], use[n], fixed[0], fixed[1], fixed[2], fixed[3], basis,
            work, out[0], out[1], out[2], out[3],
        )[1]  # fmt: skip
    return total


def time_compiled(kernel, series, least_s=LEAST_S):
    """Return seconds per LP when the loop over windows is compiled too, as in the environment's kernel."""
    data = [np.stack(arrays) for arrays in zip(*(lp[:5] for lp in series), strict=True)]
    arguments = *data, tuple(series[0][5:]), kernel.basis, kernel.work, kernel.out
    rounds = 0
    solve_series(*arguments)
    start = time.process_time()
    while (spent := time.process_time() - start) < least_s:
        rounds += 1
        solve_series(*arguments)
    return spent / rounds / len(series)


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


def pass_model(solver, forms):
    """Yield once per window when HiGHS has its model: passed as a whole, the last basis set again."""
    models = [routing_lps.to_highs(form) for form in forms]
    yield
    for n, model in enumerate(models):
        basis = solver.getBasis() if n > 0 else None
        solver.passModel(model)
        if basis is not None:
            solver.setBasis(basis)
        yield


def change_in_place(solver, forms):
    """Yield once per window when HiGHS has its model: only what differs is changed in the one it holds."""
    count = forms[0].cost.size
    columns = np.arange(count, dtype=np.int32)
    matrices = [form.matrix.tocoo() for form in forms]
    moving = np.ptp([matrix.data for matrix in matrices], axis=0) > 0.0
    rows, places = matrices[0].row[moving].tolist(), matrices[0].col[moving].tolist()
    values = [matrix.data[moving].tolist() for matrix in matrices]
    solver.passModel(routing_lps.to_highs(forms[0]))
    yield
    for form, window in zip(forms, values, strict=True):
        solver.changeColsCost(count, columns, form.cost)
        for row, place, value in zip(rows, places, window, strict=True):
            solver.changeCoeff(row, place, value)
        yield


def time_warm(forms, change, **options):
    """HiGHS without presolve, warm from its last basis, each window's model given to it by `change`."""
    solver = quiet_highs(presolve="off", threads=1, **options)
    objectives = np.empty(len(forms))
    changes = change(solver, forms)
    next(changes)
    solver.run()
    start = time.process_time()
    for n, _ in enumerate(changes):
        solver.run()
        objectives[n] = solver.getInfo().objective_function_value
    spent = time.process_time() - start
    return spent / len(forms), objectives * forms[0].money


def time_right_hand_sides(base, factors):
    """HiGHS where only demand changes: one model for all windows, warm, without presolve.

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


def best_of(series):
    """Return the fastest warm HiGHS: each way to give it the model, with the dual and the primal simplex."""
    first = routing_lps.to_matrix(series[0])
    forms = [first, *(routing_lps.to_matrix(lp, like=first) for lp in series[1:])]
    runs = [
        time_warm(forms, change, simplex_strategy=strategy, simplex_scale_strategy=0)
        for change in (pass_model, change_in_place)
        for strategy in (1, 4)
    ]
    return min(runs, key=lambda run: run[0])


def measure(workloads, configurations, load, seed, windows, demand_only, rounds=ROUNDS, least_s=LEAST_S):
    """Return the times of one cell in microseconds, and pivots per warm LP."""
    rng = np.random.default_rng(seed)
    series, demand = make_series(rng, workloads, configurations, load, windows, demand_only)
    kernel = Kernel(workloads, configurations)
    kernel.run(series[:3], True, least_s)
    best = (lambda: time_right_hand_sides(*demand)) if demand_only else (lambda: best_of(series))
    seconds = dict.fromkeys(("cold", "warm", "inner", "fresh", "best", "linprog"), math.inf)
    for _ in range(rounds):  # in turns, so that all of them meet the machine's faster and slower phases
        cold, cold_objectives, _ = kernel.run(series, False, least_s)
        warm, objectives, pivots = kernel.run(series, True, least_s)
        fresh, fresh_objectives = time_fresh(series)
        best_seconds, best_objectives = best()
        linprog = time_linprog(series[: max(windows // 5, 5)])
        inner = min(time_compiled(kernel, series, least_s) for _ in range(2))
        spent = {
            "cold": cold,
            "warm": warm,
            "inner": inner,
            "fresh": fresh,
            "best": best_seconds,
            "linprog": linprog,
        }
        seconds = {name: min(value, spent[name]) for name, value in seconds.items()}
    for other in (cold_objectives, fresh_objectives, best_objectives):
        np.testing.assert_allclose(objectives, other, rtol=1e-5)
    return {name: 1e6 * value for name, value in seconds.items()} | {"pivots": pivots}


TITLES = {
    False: "Demand and token lengths move as in the dev instances, and all coefficients with them.\n"
    "best: HiGHS without presolve or scaling, warm; the fastest, per cell, of passing the model and setting\n"
    "the last basis, or changing coefficients in place, each with the dual and the primal simplex method.",
    True: "Only demand moves.\nbest: HiGHS without presolve, warm, one model in routed amounts, of which only "
    "right-hand sides change;\nthis form exists only where token lengths and factors stand still,\n"
    "as in families fastllm, grw and warp.",
}


def table(demand_only, windows, sizes, draws, **effort):
    """Print one table and its verdicts; return whether all targets are met."""
    print(TITLES[demand_only])
    header = f"{'cell':>18} {'pivots':>6} | {'inner':>7} {'warm':>7} {'cold':>7} | "
    print(header + f"{'fresh':>8} {'best':>8} {'linprog':>8} | {'x fresh':>8} {'x best':>8} {'x linprog':>9}")
    times = []
    for workloads, configurations in sizes:
        for name, load in LOADS.items():
            runs = [
                measure(workloads, configurations, load, 7 + draw, windows, demand_only, **effort)
                for draw in range(draws)
            ]
            t = {key: sum(run[key] for run in runs) / draws for key in runs[0]}
            times.append(t)
            print(
                f"{workloads:>3}x{configurations:<3} {name:>10} {t['pivots']:6.1f} | "
                f"{t['inner']:7.1f} {t['warm']:7.1f} {t['cold']:7.1f} | "
                f"{t['fresh']:8.0f} {t['best']:8.0f} {t['linprog']:8.0f} | "
                + " ".join(f"{t[peer] / t['inner']:7.1f}x" for peer in TARGETS),
                flush=True,
            )
    passed = report(times)
    print()
    return passed


def both_tables(windows=WINDOWS, sizes=SIZES, draws=2, **effort):
    """Print both tables; return whether all targets are met where all coefficients move.

    Parameters
    ----------
    windows : int
        Length of each series.
    sizes : sequence of (int, int)
        Workloads and active configurations of the cells.
    draws : int
        Independent series per cell; times are their means.
    **effort
        Of each measurement: ``rounds`` and ``least_s``.
    """
    print(
        "CPU microseconds per LP. inner: warm, from compiled code as the environment's kernel calls it; warm,"
    )
    print(
        "cold: from Python. Peers are called from Python in either case, and their times include that call.\n"
    )
    passed = table(False, windows, sizes, draws, **effort)
    table(True, windows, sizes, draws, **effort)
    return passed


def report(times):
    """Print geometric means and worst cells against the targets; return whether all are met from within."""
    passed = True
    for peer, (least_mean, least_cell) in TARGETS.items():
        for own, basis in (("inner", "from compiled code"), ("warm", "from Python")):
            ratios = [t[peer] / t[own] for t in times]
            mean, least = math.exp(np.mean(np.log(ratios))), min(ratios)
            met = mean >= least_mean and least >= least_cell
            passed = passed and (met or own == "warm")
            print(
                f"{'PASS' if met else 'MISS'} {peer:>8} {basis:>18}: geometric mean {mean:.1f}x "
                f"(target {least_mean:.0f}x), worst cell {least:.1f}x (target {least_cell:.0f}x)"
            )
    return passed


def smoke(folder: Path) -> None:
    """Compare all solvers on five windows of the smallest shape."""
    both_tables(windows=5, sizes=SIZES[:1], draws=1, rounds=1, least_s=0.01)


def main(argv: Sequence[str] | None = None) -> None:
    """Print both tables; PASS or MISS against the targets is a measurement, and no error."""
    program(__doc__, writes="No file.", takes="Five CPU minutes.", smoke=smoke).parse_args(argv)
    both_tables()


if __name__ == "__main__":
    run_program(main)
