"""Time GH and AGH on the paper's sizes, in CPU time, and count broken constraints.

Run ``python tests/benchmarks/bench_agh.py``. The paper's times are those of arXiv:2604.07472, Table 5, on an unnamed
machine. Costs are USD per day. The paper prints 89.88 for AGH at (6, 6, 10), on an instance that it does not publish.
``--ablation`` repeats Table 3.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "baselines"))

from checker import violations
from problems import snapshot_of

from fleetgym.baselines.agh import AdaptiveGreedyHeuristic
from fleetgym.baselines.gh import GreedyHeuristic
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.families.generate import generate
from fleetgym.files.quantities import COUNT
from fleetgym.runtime.programs import program

#: Size: CPU milliseconds of AGH in the paper, and our target.
SIZES = {
    "4-4-5": (14.9, 1.0),
    "6-6-10": (113.0, 2.0),
    "10-10-10": (570.0, 15.0),
    "15-15-10": (1090.0, 75.0),
    "20-20-20": (2300.0, 250.0),
}


def measure(planner, snapshots, slo):
    """Return USD per day, CPU milliseconds and broken constraints of each plan, and the unserved share."""
    planner.plan(snapshots[0])
    rows = []
    for snapshot in snapshots:
        planner.plan(snapshot)  # the instance's layout is computed once per episode
        start = time.process_time()
        plan = planner.plan(snapshot)
        spent = time.process_time() - start
        broken = len(violations(snapshot, plan, slo))
        rows.append((288 * plan.objective_usd, 1e3 * spent, broken, plan.diagnostics["unserved"].mean()))
    return np.array(rows).T


def bench_sizes(sizes, seeds, slo):
    """Print one line per size and planner."""
    print(
        "size      planner  USD/day: median   mean   unserved   CPU ms: median   worst   paper   target  broken"
    )
    for size in sizes:
        paper, target = SIZES[size]
        snapshots = [snapshot_of(generate("fastllm", size, seed)) for seed in range(seeds)]
        for make in (GreedyHeuristic, AdaptiveGreedyHeuristic):
            usd, ms, broken, unserved = measure(make(slo=slo), snapshots, slo)
            limits = f"{paper:7.1f} {target:8.1f}" if make is AdaptiveGreedyHeuristic else 16 * " "
            print(
                f"{size:9s} {make.__name__:7s} {np.median(usd):16.1f} {usd.mean():6.1f} {unserved.mean():10.3f} "
                f"{np.median(ms):16.2f} {ms.max():7.2f} {limits} {int(broken.sum()):7d}"
            )


def bench_ablation(seeds):
    """Print cost and feasibility without each mechanism, as in Table 3."""
    snapshots = [snapshot_of(generate("fastllm", "6-6-10", seed)) for seed in range(seeds)]
    print('\nablation at 6-6-10, slo="per-route": median USD/day, plans that break a constraint')
    for name, rules in (
        ("all", {}),
        ("w/o M1", {"m1": False}),
        ("w/o M2", {"m2": False}),
        ("w/o M3", {"m3": False}),
    ):
        for make in (GreedyHeuristic, AdaptiveGreedyHeuristic):
            usd, _, broken, _ = measure(make(slo="per-route", **rules), snapshots, "per-route")
            print(f"{name:7s} {make.__name__:4s} {np.median(usd):8.1f} {np.mean(broken > 0):7.0%}")


def smoke(folder: Path) -> None:
    """Plan one instance of the smallest size, and one with each mechanism left out."""
    main(["--sizes", "4-4-5", "--seeds", "1", "--ablation"])


def main(argv: list[str] | None = None) -> None:
    """Print the tables."""
    parser = program(__doc__, writes="No file.", takes="Three CPU minutes.", smoke=smoke)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--seeds", type=of(COUNT), default=50)
    parser.add_argument("--slo", default="elastic")
    parser.add_argument("--ablation", action="store_true")
    arguments = parser.parse_args(argv)
    bench_sizes(arguments.sizes, arguments.seeds, arguments.slo)
    if arguments.ablation:
        bench_ablation(arguments.seeds)


if __name__ == "__main__":
    run_program(main)
