"""Replay random and stored actions on every task of a suite through the reference evaluator, and compare."""

from __future__ import annotations

import concurrent.futures
import multiprocessing
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import fleetgym
from fleetgym import reference
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.files.quantities import POSITIVE_SHARE, WORKERS
from fleetgym.model.conditions import Conditions
from fleetgym.model.library import list_tasks
from fleetgym.model.window import window_model
from fleetgym.runtime.programs import program


def largest_difference(task: tuple[str, int]) -> tuple[str, int, float, float]:
    """Play one stored scenario with random actions on both sides.

    Returns
    -------
    tuple
        The task, the largest difference of a window's cost relative to its size, and the judge's total cost.
    """
    name, number = task
    instance = fleetgym.load_instance(name)
    scenario = fleetgym.load_scenarios(name)[number]
    rng = np.random.default_rng(number)
    space, model = fleetgym.ActionSpace(instance), window_model(instance)
    state, router = model.initial_state(), model.new_router()
    judge = reference.ReferenceEpisode(instance, scenario)
    action, worst, total = space.from_fleet(instance.nominal_fleet), 0.0, 0.0
    for t in range(instance.num_windows):
        redraw = rng.random(action.size) < rng.choice([0.0, 0.05, 0.3, 1.0], p=[0.4, 0.3, 0.2, 0.1])
        action = np.where(redraw, rng.integers(0, space.nvec), action)
        fast = model.step(state, space.to_fleet(action), Conditions.of(scenario, t), router).cost_usd
        slow = judge.step(reference.action_to_target(instance, action))["cost"]
        worst = max(worst, abs(fast - slow) / max(abs(slow), 1e-9))
        total += slow
    return name, number, worst, total


def smoke(folder: Path) -> int:
    """Compare the toys."""
    return main(["--suite", "fleet-v0/toy", "--workers", "1"])


def main(argv: Sequence[str] | None = None) -> int:
    """Compare every task; return 1 if any differs by more than the tolerance."""
    parser = program(__doc__, writes="No file.", takes="Some CPU minutes for fleet-v0.", smoke=smoke)
    parser.add_argument("--suite", default="fleet-v0", help="suite or split (default: %(default)s)")
    parser.add_argument("--workers", type=of(WORKERS), default=2, help="processes (default: %(default)s)")
    parser.add_argument(
        "--tolerance", type=of(POSITIVE_SHARE), default=1e-9, help="relative (default: %(default)s)"
    )
    options = parser.parse_args(argv)
    tasks = list_tasks(options.suite)
    start, failed = time.perf_counter(), 0
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(options.workers, mp_context=context) as pool:
        for name, number, worst, total in pool.map(largest_difference, tasks):
            bad = worst > options.tolerance
            failed += bad
            print(
                f"{'FAIL' if bad else 'ok  '} {name}#{number:<3} {worst:9.1e} relative  {total:14.2f} USD",
                flush=True,
            )
    print(f"{len(tasks) - failed} of {len(tasks)} tasks agree, {time.perf_counter() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    run_program(main)
