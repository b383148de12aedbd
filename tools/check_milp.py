"""From instances to how many of their nominal problems the `milp` planner proves optimal, and in what time.

    python -m tools.check_milp                          # fleet-v0/dev, at most two CPU-minutes an instance
    python -m tools.check_milp fleet-v0/dev/ou-s-001 --late segments --time-limit 30

A nominal problem is the fleet and routing for nominal demand, all pools available, from an empty fleet: what the agent
`milp` plans. Fails where less than four fifths are proven.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fleetgym import View
from fleetgym.baselines.milp import MilpPlanner
from fleetgym.cli.process import run_program
from fleetgym.cli.text_tables import align
from fleetgym.cli.words import of
from fleetgym.files.quantities import LIMIT_S
from fleetgym.model.library import load_instance
from fleetgym.model.suites import instances_of
from fleetgym.runtime.programs import program

TARGET = 0.8
HEAD = ["instance", "workloads", "columns", "USD/window", "bound", "gap", "", "nodes", "CPU s"]


def prove(name: str, limit_s: float, late: str) -> tuple[list[str], bool]:
    """Return a line of the table, and whether the plan is proven optimal."""
    snapshot = View(load_instance(name)).snapshot()
    planner = MilpPlanner(late=late, time_limit_s=limit_s, clock=time.process_time)
    begin = time.process_time()
    plan = planner.plan(snapshot)
    seconds = time.process_time() - begin
    sizes = [str(n) for n in snapshot.compatible.shape]
    money = [f"{plan.objective_usd:.4f}", f"{plan.bound_usd:.4f}", f"{plan.diagnostics['gap']:.2%}"]
    effort = [plan.status, str(plan.diagnostics["nodes"]), f"{seconds:.1f}"]
    return [name, *sizes, *money, *effort], plan.status == "optimal"


def smoke(folder: Path) -> int:
    """Prove one toy optimal."""
    return main(["fleet-v0/toy/two-pools"])


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; 1 if too few are proven."""
    parser = program(
        __doc__,
        writes="No file.",
        takes="Up to two CPU minutes for each instance.",
        smoke=smoke,
    )
    parser.add_argument("instances", nargs="*", default=["fleet-v0/dev"], help="instances or suites")
    parser.add_argument("--time-limit", type=of(LIMIT_S), default=120.0, help="CPU seconds (default: 120)")
    parser.add_argument(
        "--late", default="safe", help="as for `fleetgym.baselines.milp.Modes` (default: safe)"
    )
    a = parser.parse_args(argv)
    names = [name for suite in a.instances for name in instances_of(suite)]
    prove(names[0], 1.0, a.late)  # compiles
    rows, proven = [], 0
    for name in names:
        line, is_proven = prove(name, a.time_limit, a.late)
        rows.append(line)
        proven += is_proven
        print("  ".join(line), file=sys.stderr, flush=True)
    print(align(HEAD, rows))
    print(f"{proven} of {len(names)} proven")
    return 0 if proven >= TARGET * len(names) else 1


if __name__ == "__main__":
    run_program(main)
