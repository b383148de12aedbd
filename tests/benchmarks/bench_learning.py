"""What learning costs beside playing: `for_learning` on top of the bare batch, alone, and going back to a state.

    python tests/benchmarks/bench_learning.py

The zero action plays in both, so both play the same windows. CPU microseconds per environment and step.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from fleetgym import list_instances
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.wrappers import for_learning
from fleetgym.files.quantities import COUNT
from fleetgym.runtime.programs import program

#: Ways to wrap a batch.
WAYS: dict[str, dict[str, Any]] = {
    "margins": {},
    "margins, against the rule": {"reference": "margin"},
    "discrete": {"actions": "discrete"},
}

BARE = "bare batch"
BLOCK = 5  # steps between two looks at the clock


def cpu_us(call: Callable[[], object], times: int, repeats: int = 3) -> float:
    """Return the least CPU microseconds of a call, of some repeats."""
    call()
    found = []
    for _ in range(repeats):
        begin = time.process_time()
        for _ in range(times):
            call()
        found.append((time.process_time() - begin) / times)
    return 1e6 * min(found)


def steps_us(instance: str, count: int, steps: int, repeats: int = 6) -> dict[str, float]:
    """Return CPU microseconds per environment and step: of the bare batch, and of each way with zero actions.

    All play the same days in turns, several times; of each few steps the least time counts.
    """
    ways = {way: for_learning(_batch(instance, count), **arguments) for way, arguments in WAYS.items()}
    played = _zero_actions(ways["margins"], steps)
    calls: dict[str, Callable[[int], object]] = {}
    bare = _batch(instance, count)
    calls[BARE] = lambda t: bare.step(played[t])
    for way, envs in ways.items():
        zero = np.zeros(envs.action_space.shape, dtype=envs.action_space.dtype)
        calls[way] = lambda t, envs=envs, zero=zero: envs.step(zero)  # type: ignore[misc]
    spent: dict[str, list[list[float]]] = {way: [] for way in calls}
    for _ in range(repeats):
        for way, step in calls.items():
            ways.get(way, bare).reset(seed=0)
            spent[way].append([_cpu_s(step, first, steps) for first in range(0, steps, BLOCK)])
    return {way: 1e6 * float(np.min(s, axis=0).sum()) / (steps * count) for way, s in spent.items()}


def _cpu_s(step: Callable[[int], object], first: int, steps: int) -> float:
    """Return CPU seconds of a few steps."""
    begin = time.process_time()
    for t in range(first, min(first + BLOCK, steps)):
        step(t)
    return time.process_time() - begin


def _zero_actions(envs: Any, steps: int) -> list[np.ndarray]:
    """Return the actions of the batch behind `for_learning` that zeros stand for, step by step."""
    inner, played = envs.env, []
    step = inner.step
    inner.step = lambda actions: played.append(np.array(actions)) or step(actions)
    zero = np.zeros(envs.action_space.shape, dtype=np.float32)
    envs.reset(seed=0)
    for _ in range(steps):
        envs.step(zero)
    inner.step = step
    return played


def _batch(instance: str, count: int) -> Any:
    return gymnasium.make_vec(
        "fleetgym:FleetAlloc-v0", num_envs=count, instance=instance, autoreset_mode="SameStep", num_threads=1
    )


def state_us(instance: str) -> tuple[float, float]:
    """Return CPU microseconds of `get_state` and of `set_state`."""
    env = FleetAllocEnv(instance)
    env.reset(seed=0)
    state = env.get_state()
    return cpu_us(env.get_state, 200), cpu_us(lambda: env.set_state(state), 200)


def single_us(instance: str, steps: int) -> dict[str, float]:
    """Return CPU microseconds per step of each way in a single environment, with zero actions."""
    found = {}
    for way, arguments in WAYS.items():
        env = for_learning(gymnasium.make("fleetgym:FleetAlloc-v0", instance=instance), **arguments)
        zero = np.zeros(env.action_space.shape, dtype=env.action_space.dtype)

        def day(env: Any = env, zero: np.ndarray = zero) -> None:
            env.reset(seed=0)
            for _ in range(steps):
                env.step(zero)

        found[way] = cpu_us(day, 1, 12) / steps
    return found


def smoke(folder: Path) -> int:
    """Measure a toy."""
    return main(["--instances", "fleet-v0/toy/two-pools", "--steps", "2", "--envs", "2"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark."""
    parser = program(__doc__, writes="Nothing.", takes="Half a CPU minute.", smoke=smoke)
    default = ["fleet-v0/dev/ou-s-001", "fleet-v0/dev/drop-s-001", "fleet-v0/dev/ou-m-001"]
    parser.add_argument("--instances", nargs="+", default=default, choices=list_instances(), metavar="ID")
    parser.add_argument("--steps", type=of(COUNT), default=80, help="default: %(default)s")
    parser.add_argument("--envs", type=of(COUNT), default=64, help="default: %(default)s")
    call = parser.parse_args(argv)
    for name in call.instances:
        found = steps_us(name, call.envs, call.steps)
        bare = found.pop(BARE)
        print(f"{name}: bare batch {bare:.1f} us per environment and step")
        for way, us in found.items():
            print(f"  {way}: {us - bare:.1f} us on top")
        single = ", ".join(f"{way} {us:.1f} us" for way, us in single_us(name, call.steps).items())
        print(f"  single environments, in all: {single}")
        print("  get_state {:.1f} us, set_state {:.1f} us".format(*state_us(name)), flush=True)
    return 0


if __name__ == "__main__":
    run_program(main)
