"""Coral: templates against the paper's ILP, libraries, online allocation against plain HiGHS. CPU-seconds.

Run ``PYTHONPATH=tests:. python tests/benchmarks/bench_coral.py [placement] [libraries] [core] [extended]
[scarce] [extended-plain]``; without arguments: all but the last, some minutes.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time

import numpy as np
import placement_ilp

from baselines.coral import Options, allocate
from baselines.coral.program import Restricted
from fleetgym.configurations import templates
from fleetgym.configurations.templates import enumeration
from fleetgym.configurations.templates.library import best_plan, reach_of
from tools.reproduce_coral.epochs import EPOCHS, draw, problem
from tools.reproduce_coral.evaluation import availability_scale, load_templates
from tools.reproduce_coral.setup import CORE, EXTENDED, service

PLACEMENT_SETS, ILP_LIMIT_S = 12, 20.0  # the limit holds for each number of stages
PLAIN_LIMIT_S = 60.0


def compile_kernels():
    """Compile, so that times are those of a second use."""
    first = templates.generate(service("Phi4-14B"), CORE.nodes[:2], "decode", max_nodes=2)
    first.undominated()
    best_plan(first.table, [0, 1])


def placement():
    """Time the enumeration and the ILP on the same sets of two and three nodes of the core set-up."""
    random = np.random.default_rng(0)
    found = templates.generate(service("Phi4-14B"), CORE.nodes, "prefill", max_nodes=3)
    counts = found.counts(found.templates())
    able = counts[counts.sum(axis=1) >= 2]
    ratios, wrong = [], 0
    for row in able[random.choice(len(able), PLACEMENT_SETS, replace=False)]:
        nodes = np.repeat(np.arange(row.size), row)
        start = time.process_time()
        oracle, proven = placement_ilp.solve_placement(found.table, nodes, ILP_LIMIT_S)
        ilp_s = time.process_time() - start
        types, table, reach = nodes + 1, found.table, reach_of(found.table)
        stage_of, layers = np.zeros(nodes.size, dtype=np.int64), np.zeros(nodes.size, dtype=np.int64)
        work = np.zeros((2 * nodes.size + 1, 1 << nodes.size), dtype=np.int64)
        start = time.process_time()
        for _ in range(2000):
            served, _ = enumeration.improve(table, reach, types, nodes.size, 0.0, stage_of, layers, work)
        own_s = (time.process_time() - start) / 2000
        wrong += bool(served < oracle * (1 - 1e-6) or (proven and served > oracle * (1 + 1e-6)))
        ratios.append(ilp_s / own_s)
        print(
            f"  {nodes.size} nodes: ILP {ilp_s:8.2f} s{'' if proven else ' (limit)'}, "
            f"enumeration {1e6 * own_s:6.1f} us, {ratios[-1]:10,.0f} times; {served:.4f} against {oracle:.4f}",
            flush=True,
        )
    print(
        f"placement: least {min(ratios):,.0f}, median {statistics.median(ratios):,.0f} times; {wrong} wrong"
    )


def libraries():
    """Time both libraries, dominance included."""
    for setup in (CORE, EXTENDED):
        _, facts = load_templates(setup)
        memory_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        print(
            f"library, {setup.name}: {facts['templates']:,.0f} templates, {facts['undominated']:,.0f} undominated, "
            f"{facts['cpu_s']:.1f} CPU-s on one core, {memory_gb:.2f} GB peak",
            flush=True,
        )


def online(setup, case, seeds, plain_epochs):
    """Time the allocator on epochs in sequence, and plain HiGHS on the same programs for some of them."""
    found, _ = load_templates(setup)
    times, gaps = [], []
    for seed in range(seeds):
        drawn, running = draw(setup, case, seed), None
        scale, _ = availability_scale(setup, case, found, drawn)
        for epoch in range(EPOCHS):
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
    fits = [(here.use <= row).all(axis=1) for row in here.available]
    template = np.concatenate([np.flatnonzero(f) for f in fits])
    region = np.concatenate([np.full(int(f.sum()), r) for r, f in enumerate(fits)])
    start = time.process_time()
    allocation, bound, answer = Restricted(here, template, region).solve(
        {"mip_rel_gap": 1e-4, "time_limit": PLAIN_LIMIT_S}
    )
    elapsed = time.process_time() - start
    cost = np.inf if allocation is None else allocation.objective_usd_per_h(here)
    gap = 1.0 - bound / cost if np.isfinite(cost) else np.nan
    return (
        f"plain HiGHS, {template.size:,} columns: {elapsed:.1f} s, {cost:.2f}, {answer.status}, gap {gap:.4f}"
    )


def main():
    """Run what is asked for."""
    compile_kernels()
    wanted = sys.argv[1:] or ["placement", "libraries", "core", "extended", "scarce"]
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
    main()
