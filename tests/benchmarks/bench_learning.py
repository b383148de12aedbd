"""What learning costs beside playing: `for_learning` on top of the bare batch, and going back to a state.

    python tests/benchmarks/bench_learning.py

The zero action plays in both, so both play the same windows. CPU microseconds per environment and step.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from fleetgym import list_instances
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


def step_us(instance: str, count: int, steps: int, **ways: Any) -> float:
    """Return CPU microseconds of a step, per environment, behind `for_learning` with zero actions."""
    envs = for_learning(_batch(instance, count), **ways)
    envs.reset(seed=0)
    action = np.zeros(envs.action_space.shape, dtype=np.int64 if "actions" in ways else np.float32)
    return cpu_us(lambda: envs.step(action), steps) / count


def bare_us(instance: str, count: int, steps: int) -> float:
    """Return CPU microseconds of a bare step with the actions that zeros stand for, per environment."""
    shown = for_learning(_batch(instance, count))
    shown.reset(seed=0)
    played: list[np.ndarray] = []
    inner = shown.env
    step = inner.step
    inner.step = lambda actions: played.append(np.array(actions)) or step(actions)  # type: ignore[method-assign]
    zero = np.zeros(shown.action_space.shape, dtype=np.float32)
    for _ in range(3 * steps + 1):
        shown.step(zero)
    bare, actions = _batch(instance, count), iter(played)
    bare.reset(seed=0)
    return cpu_us(lambda: bare.step(next(actions)), steps) / count


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
        bare = bare_us(name, call.envs, call.steps)
        print(f"{name}: bare batch {bare:.1f} us per environment and step")
        for way, arguments in WAYS.items():
            more = step_us(name, call.envs, call.steps, **arguments) - bare
            print(f"  {way}: {more:.1f} us on top")
        print("  get_state {:.1f} us, set_state {:.1f} us".format(*state_us(name)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
