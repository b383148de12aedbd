"""Coral: templates against the paper's ILP, libraries, online allocation against plain HiGHS. CPU-seconds.

Run ``python tests/benchmarks/bench_coral.py``, with names of parts to do only these. Without names it does all parts
but `extended-plain`.
"""

from __future__ import annotations

import dataclasses
import resource
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym.baselines.coral import Options, allocate
from fleetgym.cli.process import run_program
from fleetgym.papers.coral.epochs import EPOCHS, draw, problem
from fleetgym.papers.coral.evaluation import availability_scale, load_templates
from fleetgym.papers.coral.measurements import compile_kernels
from fleetgym.papers.coral.placement import place
from fleetgym.papers.coral.plain import every_column, solve
from fleetgym.papers.coral.setup import CORE, EXTENDED
from fleetgym.runtime.programs import program

PLACEMENT_SETS, ILP_LIMIT_S = 12, 20.0  # the limit holds for each number of stages
PLAIN_LIMIT_S = 60.0
PARTS = ("placement", "libraries", "core", "extended", "scarce")


def placement(sets=PLACEMENT_SETS, limit_s=ILP_LIMIT_S):
    """Time the enumeration and the ILP on the same sets of two and three nodes of the core set-up."""
    ratios, wrong = [], 0
    for number in range(sets):
        both = place(number, limit_s)
        own, oracle, proven = both["own_rps"], both["ilp_rps"], both["proven"]
        wrong += bool(own < oracle * (1 - 1e-6) or (proven and own > oracle * (1 + 1e-6)))
        ratios.append(both["ilp_cpu_s"] / both["own_cpu_s"])
        print(
            f"  {both['nodes']} nodes: ILP {both['ilp_cpu_s']:8.2f} s{'' if proven else ' (limit)'}, "
            f"enumeration {1e6 * both['own_cpu_s']:6.1f} us, {ratios[-1]:10,.0f} times; {own:.4f} against {oracle:.4f}",
            flush=True,
        )
    print(
        f"placement: least {min(ratios):,.0f}, median {statistics.median(ratios):,.0f} times; {wrong} wrong"
    )


def libraries(setups=(CORE, EXTENDED)):
    """Time both libraries, dominance included."""
    for setup in setups:
        _, facts = load_templates(setup)
        memory_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"library, {setup.name}: {facts['templates']:,.0f} templates, {facts['undominated']:,.0f} undominated, "
            f"{facts['cpu_s']:.1f} CPU-s on one core, {memory_gb:.2f} GB peak",
            flush=True,
        )


def online(setup, case, seeds, plain_epochs, epochs=EPOCHS):
    """Time the allocator on epochs in sequence, and plain HiGHS on the same programs for some of them."""
    found, _ = load_templates(setup)
    times, gaps = [], []
    for seed in range(seeds):
        drawn, running = draw(setup, case, seed), None
        scale, _ = availability_scale(setup, case, found, drawn)
        for epoch in range(epochs):
            here = problem(setup, found, drawn.demand_rps[epoch], drawn.nodes[epoch] * scale, running)
            start = time.process_time()
            allocation = allocate(here, Options(time_limit_s=60.0))
            times.append(time.process_time() - start)
            gaps.append(allocation.gap(here))
            running = allocation.running
            line = (
                f"  {setup.name} {case} seed {seed} epoch {epoch}: {times[-1]:6.2f} s, "
                f"{allocation.cost_usd_per_h:8.2f} USD/h, {allocation.status}, gap {gaps[-1]:.5f}"
            )
            if len(times) <= plain_epochs:
                line += "; " + plain(here)
            print(line, flush=True)
    print(
        f"online, {setup.name} {case}: {len(times)} epochs, median {statistics.median(times):.2f} s, "
        f"most {max(times):.2f} s, proven {sum(g <= 1e-4 for g in gaps)}, largest gap {max(gaps):.5f}"
    )


def plain(here):
    """Hand every column to HiGHS."""
    found = solve(here, PLAIN_LIMIT_S)
    cost, gap = (np.nan if found[name] is None else found[name] for name in ("usd_per_h", "gap"))
    return (
        f"plain HiGHS, {every_column(here)[0].size:,} columns: {found['cpu_s']:.1f} s, {cost:.2f}, "
        f"{found['status']}, gap {gap:.4f}"
    )


def smoke(folder: Path) -> None:
    """Do each part for a part of the core set-up: one node set, one model, one epoch."""
    few = dataclasses.replace(CORE, models=CORE.models[:1])
    compile_kernels()
    placement(sets=1, limit_s=0.5)
    libraries([few])
    online(few, "default", seeds=1, plain_epochs=0, epochs=1)


def main(argv: Sequence[str] | None = None) -> None:
    """Run what is asked for."""
    parser = program(
        __doc__, writes="No file.", takes="Some CPU minutes; `extended-plain` half an hour.", smoke=smoke
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} or extended-plain")
    wanted = parser.parse_args(argv).parts or PARTS
    if unknown := set(wanted) - {*PARTS, "extended-plain"}:
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    compile_kernels()
    if "placement" in wanted:
        placement()
    if "libraries" in wanted:
        libraries()
    if "core" in wanted:
        online(CORE, "default", 2, 10)
    if "extended" in wanted:
        online(EXTENDED, "default", 2, 0)
    if "extended-plain" in wanted:  # HiGHS's presolve of a million columns does not look at its time limit
        online(EXTENDED, "default", 1, 1)
    if "scarce" in wanted:
        online(CORE, "scarce", 2, 0)
        online(EXTENDED, "scarce", 1, 0)


if __name__ == "__main__":
    run_program(main)
