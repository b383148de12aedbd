"""Time the fast exact pipeline against the paper's McCormick program, both with HiGHS on one thread, in CPU seconds.

Run ``python tests/benchmarks/bench_milp.py``. Each size gets fresh instances of the family ``fastllm``. The problem is
the paper's, ``slo="mean"`` and ``kv="paper"``; with ``--slo elastic --kv littles-law`` it is the environment's.
McCormick is given the equation that x is the sum of its products, which the paper does not print; ``--printed`` leaves
it out.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "baselines"))

from problems import snapshot_of

import fleetgym.baselines.milp.mccormick as mccormick
import fleetgym.baselines.milp.search as search
from fleetgym.baselines.milp import MilpPlanner
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.families.generate import generate
from fleetgym.files.quantities import COUNT, LIMIT_S, SEED
from fleetgym.runtime.programs import program

#: CPU seconds that a size gets, and by when the cost should be within 1 % of the best known.
SIZES = {
    "4-4-5": (60.0, 5.0),
    "6-6-10": (300.0, 5.0),
    "10-10-10": (60.0, 5.0),
    "15-15-10": (150.0, 15.0),
    "20-20-20": (300.0, 30.0),
}
ORACLE_SIZES = ("4-4-5", "6-6-10")
FIRST_SEED = 2000  # nothing was tuned on these


def run(snapshot, formulation, limit_s, modes):
    """Return the plan and its CPU seconds."""
    planner = MilpPlanner(formulation=formulation, time_limit_s=limit_s, clock=time.process_time, **modes)
    start = time.process_time()
    plan = planner.plan(snapshot)
    return plan, time.process_time() - start


def cost_at(plan, seconds):
    """Return the cost of the best fleet known by then."""
    costs = [usd for when, usd in plan.diagnostics["incumbents"] if when <= seconds]
    return costs[-1] if costs else np.inf


def warm_up(modes):
    """Compile every kernel, and load HiGHS, on a small instance."""
    MilpPlanner(**modes).plan(snapshot_of(generate("fastllm", "4-4-5", 0)))


def bench(size, seeds, limit_s, modes, oracle):
    """Print a line per instance and a summary of the size."""
    limit_s, early_s = limit_s or SIZES[size][0], SIZES[size][1]
    rows = []
    for seed in seeds:
        snapshot = snapshot_of(generate("fastllm", size, seed))
        plan, seconds = run(snapshot, "tight", limit_s, modes)
        best, line = plan.objective_usd, ""
        if oracle:
            other, took = run(snapshot, "mccormick", limit_s, modes)
            best = min(best, other.objective_usd)
            ratio = took / seconds
            line = (
                f"  mccormick {288 * other.objective_usd:9.4f} {other.status:8s} {took:7.1f} s  x{ratio:.1f}"
            )
            agree = (
                abs(plan.objective_usd / other.objective_usd - 1) if other.status == plan.status else np.nan
            )
        early = cost_at(plan, early_s) / best - 1
        rows.append((seconds, plan.status == "optimal", plan.diagnostics["gap"], early))
        if oracle:
            rows[-1] += (took, other.status == "optimal", agree)
        print(
            f"{size} {seed}: {288 * plan.objective_usd:9.4f} USD/day, bound {288 * plan.bound_usd:9.4f}, "
            f"{plan.status:8s} {seconds:6.1f} s, {early:6.2%} above at {early_s:.0f} s{line}",
            flush=True,
        )
    table = np.array(rows, dtype=float).T
    print(
        f"{size}: {int(table[1].sum())} of {len(seeds)} proven, mean {table[0].mean():.1f} s, "
        f"worst {table[0].max():.1f} s, worst gap {table[2].max():.2%}, "
        f"within 1 % of the best known by {early_s:.0f} s: {int((table[3] <= 0.01).sum())}"
    )
    if oracle:
        print(
            f"{size}: McCormick {int(table[5].sum())} of {len(seeds)} proven, mean {table[4].mean():.1f} s: "
            f"{table[4].mean() / table[0].mean():.1f} times the pipeline's; "
            f"costs differ by {np.max(table[6], initial=0.0, where=~np.isnan(table[6])):.1e}"
        )


def smoke(folder: Path) -> None:
    """Prove one instance of the smallest size, or stop after half a second."""
    main(["--sizes", "4-4-5", "--seeds", "1", "--time-limit", "0.5"])


def main(argv: list[str] | None = None) -> None:
    """Print the tables."""
    parser = program(
        __doc__, writes="No file.", takes="Up to two and a half CPU hours; --sizes chooses.", smoke=smoke
    )
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), choices=list(SIZES))
    parser.add_argument("--seeds", type=of(COUNT), default=10)
    parser.add_argument("--first-seed", type=of(SEED), default=FIRST_SEED)
    parser.add_argument("--time-limit", type=of(LIMIT_S), help="CPU seconds per instance; default: by size")
    parser.add_argument("--slo", default="mean")
    parser.add_argument("--kv", default="paper")
    parser.add_argument("--printed", action="store_true", help="McCormick exactly as printed")
    arguments = parser.parse_args(argv)
    if arguments.printed:
        search.mccormick_program = lambda problem, unit_usd: mccormick.mccormick_program(
            problem, unit_usd, linked=False
        )
    print(f"slo={arguments.slo} kv={arguments.kv}, CPU seconds")
    chosen = {"slo": arguments.slo, "kv": arguments.kv}
    warm_up(chosen)
    numbers = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    for name in arguments.sizes:
        bench(name, numbers, arguments.time_limit, chosen, name in ORACLE_SIZES)


if __name__ == "__main__":
    run_program(main)
