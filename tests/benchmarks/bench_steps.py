"""CPU microseconds of a step of `FleetAlloc-v0`, single and in a batch of 64: to compare two commits.

    python tests/benchmarks/bench_steps.py                    # this checkout
    PYTHONPATH=OTHER python tests/benchmarks/bench_steps.py   # another one

Run both in turns, several times, and compare the least of each row.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

import fleetgym
from fleetgym.cli.process import run_program
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.vector import FleetAllocVectorEnv
from fleetgym.runtime.programs import program

INSTANCES = ("fleet-v0/dev/ou-m-001", "fleet-v1/dev/multi-s-101")
ENVIRONMENTS = 64


def single(name: str, rounds: int) -> float:
    """Return CPU seconds a step, the least of so many days; every tenth step changes one slot."""
    env = FleetAllocEnv(name)
    instance, scenario = fleetgym.load_instance(name), fleetgym.load_scenarios(name)[0]
    start, options = env.actions.from_fleet(instance.nominal_fleet), env.action_space.nvec
    found = []
    for _ in range(rounds + 1):  # the first warms up
        env.reset(seed=0, options={"scenario": scenario})
        rng, action = np.random.default_rng(1), start.copy()
        began = time.process_time()
        for t in range(instance.num_windows):
            if t % 10 == 0:
                slot = rng.integers(len(action))
                action[slot] = rng.integers(options[slot])
            env.step(action)
        found.append((time.process_time() - began) / instance.num_windows)
    return min(found[1:])


def batched(name: str, rounds: int, steps: int = 100) -> float:
    """Return CPU seconds a step of one environment of a batch, the least of so many rounds; one slot changes a step."""
    envs = FleetAllocVectorEnv(ENVIRONMENTS, name)
    env = FleetAllocEnv(name)
    start, options = env.actions.from_fleet(fleetgym.load_instance(name).nominal_fleet), env.action_space.nvec
    rng = np.random.default_rng(2)
    actions = np.stack([start] * ENVIRONMENTS)
    envs.reset(seed=0)
    found = []
    for _ in range(rounds):
        began = time.process_time()
        for _ in range(steps):
            slot = rng.integers(len(start))
            actions[rng.integers(ENVIRONMENTS), slot] = rng.integers(options[slot])
            envs.step(actions)
        found.append((time.process_time() - began) / (steps * ENVIRONMENTS))
    envs.close()
    return min(found)


def report(rounds: int) -> None:
    """Print a line per instance."""
    for name in INSTANCES:
        print(
            f"{name}: single {1e6 * single(name, rounds):.2f} us, batch {1e6 * batched(name, rounds):.2f} us"
        )


def smoke(folder: Path) -> None:
    """Measure one day of each."""
    report(rounds=1)


def main(argv: list[str] | None = None) -> None:
    """Print all rows."""
    program(__doc__, writes="No file.", takes="Eight CPU seconds.", smoke=smoke).parse_args(argv)
    report(rounds=10)


if __name__ == "__main__":
    run_program(main)
