"""Time Jiang's exact program against the published binary search, in CPU seconds of one run.

Run ``python tests/benchmarks/bench_jiang.py``. Nine problems: the three traces of
the paper's table 5 at its three budgets, Llama-70B, availability 1 of its table 4. The exact program should be at
least three times faster than the search with its own (integer) check, and nowhere slower to finish the requests.
"""

from __future__ import annotations

import time
from pathlib import Path

from fleetgym.baselines.jiang.exact import minimal_makespan
from fleetgym.baselines.jiang.program import Limits
from fleetgym.baselines.jiang.search import minimal_makespan_by_search
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.files.quantities import BUDGET_USD, COUNT, NUMBER, POSITIVE_SHARE
from fleetgym.papers.jiang import paper
from fleetgym.runtime.programs import program


def measure(solve, *arguments, **options):
    """Return the plan and the CPU seconds that it took."""
    start = time.process_time()
    plan = solve(*arguments, **options)
    return plan, time.process_time() - start


def smoke(folder: Path) -> None:
    """Solve the smallest problem all three ways."""
    main(["--traces", "1", "--budgets", "15", "--gap", "1e-3", "--tolerance", "0.1", "--nodes", "20"])


def main(argv: list[str] | None = None) -> None:
    """Print one line per problem, and the totals."""
    parser = program(__doc__, writes="No file.", takes="20 CPU seconds.", smoke=smoke)
    parser.add_argument(
        "--traces", nargs="+", type=of(NUMBER), default=list(paper.TRACES), choices=list(paper.TRACES)
    )
    parser.add_argument(
        "--budgets", nargs="+", type=of(BUDGET_USD), default=list(paper.BUDGETS_USD_PER_H), help="USD/h"
    )
    parser.add_argument("--availability", type=of(NUMBER), default=1, choices=sorted(paper.AVAILABLE))
    parser.add_argument(
        "--gap", type=of(POSITIVE_SHARE), default=1e-5, help="relative gap at which the exact program stops"
    )
    parser.add_argument(
        "--tolerance", type=of(POSITIVE_SHARE), default=1e-3, help="of the search, relative to the makespan"
    )
    parser.add_argument("--kind", default="single-type", help="pipelines: single-type or mixed")
    parser.add_argument("--nodes", type=of(COUNT), default=20_000, help="of each integer program")
    options = parser.parse_args(argv)
    limits = Limits(options.gap, options.nodes)
    print(
        "trace  USD/h  configurations   exact: s   CPU s   search: s   CPU s  checks   knapsack: s   CPU s"
        "   ratio  slower"
    )
    minimal_makespan(paper.problem(1, 1, 15.0, kind=options.kind)[0], limits)  # imports HiGHS
    totals = [0.0, 0.0, 0.0]
    worse = 0.0
    for trace in options.traces:
        for budget in options.budgets:
            problem, found = paper.problem(trace, options.availability, budget, kind=options.kind)
            exact, cpu = measure(minimal_makespan, problem, limits)
            precision = {"tolerance_s": options.tolerance * exact.makespan_s, "limits": limits}
            search, search_cpu = measure(minimal_makespan_by_search, problem, **precision)
            packed, packed_cpu = measure(minimal_makespan_by_search, problem, check="knapsack", **precision)
            totals = [a + b for a, b in zip(totals, (cpu, search_cpu, packed_cpu), strict=True)]
            slower = exact.makespan_s / search.makespan_s - 1
            worse = max(worse, slower)
            print(
                f"{trace:5d} {budget:6.0f} {len(found):15d} {exact.makespan_s:10.2f} {cpu:7.2f} "
                f"{search.makespan_s:11.2f} "
                f"{search_cpu:7.2f} {search.checks:7d} {packed.makespan_s:13.2f} {packed_cpu:7.2f} "
                f"{search_cpu / cpu:7.1f} {100 * slower:6.2f}%",
                flush=True,
            )
    print(
        f"CPU seconds in all: exact {totals[0]:.1f}, search {totals[1]:.1f}, knapsack {totals[2]:.1f}; the exact "
        f"program is {totals[1] / totals[0]:.1f} times faster than the search, its makespan at most "
        f"{100 * worse:.3f} % longer"
    )


if __name__ == "__main__":
    run_program(main)
