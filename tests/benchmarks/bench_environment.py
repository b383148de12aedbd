"""Time `FleetAlloc-v0`, single and batched, against Gymnasium's CartPole-v1; print steps per second and ratios.

Run ``python tests/benchmarks/bench_environment.py``. Everything is measured in one process, in rounds that take turns,
and the best of them counts; a ratio is a rate over that of the single CartPole. Rates are steps of one
environment per second of wall time, so that two threads count. Scenarios are stored.

"random": all actions are drawn anew in each step. "sticky": one per cent of them change, as agents do. "tight": with
half of all replicas running, capacity is what demand needs; "slack": it is five times that. Demand is a random
walk (sigma 0.02, the paper's); in the rows "days" it has the instance's own days, with token lengths that move too.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import gymnasium
import numpy as np

import fleetgym
from fleetgym.agents.view import View
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.vector import FleetAllocVectorEnv
from fleetgym.files.quantities import COUNT, LIMIT_S
from fleetgym.model.dynamics.scenario import draw_scenario
from fleetgym.model.instance import Affine, Instance, Performance
from fleetgym.model.processes import Dynamics, Process
from fleetgym.model.scenario import Scenario
from fleetgym.runtime.programs import program

BASE = "fleet-v0/dev/ou-m-001"
_STILL = Process(kind="constant", parameters={})

#: Workloads and configurations: the loads that are measured.
SHAPES = {(6, 10): (1.0, 0.2), (20, 30): (1.0,)}
#: Environments and threads of the batches, and of those that play the instance's own days.
BATCHES, DAY_BATCHES = ((64, 1), (1024, 1), (1024, 2)), ((64, 1), (1024, 2))

#: Row: least ratio to the single CartPole.
TARGETS = {
    "single, 6x10 tight, sticky": 0.25,
    "64 envs 1 thread, 6x10 tight, random": 0.6,
    "64 envs 1 thread, 6x10 tight, sticky": 1.5,
    "1024 envs 2 threads, 6x10 tight, random": 1.2,
    "1024 envs 2 threads, 6x10 tight, sticky": 3.0,
    "1024 envs 2 threads, 6x10 slack, sticky": 4.0,
    "64 envs 1 thread, 20x30 tight, sticky": 0.15,
}


def make_instance(workloads: int, configurations: int, load: float, days: bool = False) -> Instance:
    """Return an instance with so many workloads and active configurations, cut from one of the standard set.

    With half of the replicas of every configuration running, `load` of the capacity is needed. Demand is a random
    walk, or that of the instance's `days`.
    """
    base = fleetgym.load_instance(BASE)
    rows = np.arange(workloads) % base.num_workloads
    usable = np.flatnonzero(base.performance.compatible.all(axis=0))
    columns = usable[np.linspace(0, usable.size - 1, configurations).astype(int)]
    need = _half_fleet(base, rows, columns, load)
    kept = [
        dataclasses.replace(base.configurations[c], id=f"c{k}", max_replicas=int(2 * need[k]))
        for k, c in enumerate(columns)
    ]
    caps = np.maximum(
        1, 3 * (np.array(base.gpu_use)[:, columns] @ need) // 2
    )  # three quarters of all replicas fit
    pools = [
        dataclasses.replace(p, cap_gpus=int(np.ceil(cap / p.gpus_per_node)) * p.gpus_per_node)
        for p, cap in zip(base.pools, caps, strict=True)
    ]
    return base.replace(
        id=f"bench-{workloads}-{configurations}",
        workloads=tuple(dataclasses.replace(base.workloads[i], id=f"w{k}") for k, i in enumerate(rows)),
        configurations=tuple(kept),
        slots=tuple(dataclasses.replace(base.slots[0], configurations=(c.id,)) for c in kept),
        pools=tuple(pools),
        performance=_select(base.performance, rows, columns),
        nominal_fleet=need,
        history=dataclasses.replace(base.history, rate_rps=base.history.rate_rps[..., rows]),
        dynamics=_spread(base, rows) if days else _walk(base),
    )


def _walk(base: Instance) -> Dynamics:
    walk = Process(kind="grw", parameters={"sigma": 0.02, "dispersion": 1.0})
    return dataclasses.replace(base.dynamics, demand=walk, tokens=_STILL, factors=_STILL)


def _half_fleet(base: Instance, rows: np.ndarray, columns: np.ndarray, load: float) -> np.ndarray:
    """Return replicas such that each column would serve an equal share of all demand at that load."""
    snapshot = View(base).snapshot()
    erlang = (snapshot.rate_rps[:, None] * snapshot.service_s)[np.ix_(rows, columns)].sum(axis=0)
    return np.maximum(1, np.ceil(erlang / columns.size / load / snapshot.max_concurrency[columns])).astype(
        np.int64
    )


def _select(performance: Performance, rows: np.ndarray, columns: np.ndarray) -> Performance:
    chosen = np.ix_(rows, columns)
    parts = {}
    for field in dataclasses.fields(performance):
        value = getattr(performance, field.name)
        if isinstance(value, Affine):
            arrays = {f.name: getattr(value, f.name)[chosen] for f in dataclasses.fields(value)}
            parts[field.name] = Affine(**arrays)
        else:
            parts[field.name] = value[chosen]
    return Performance(**parts)


def _spread(base: Instance, rows: np.ndarray) -> Dynamics:
    """Give every row the parameters of the workload it comes from."""
    changed = {}
    for name in ("demand", "tokens", "factors"):
        process = getattr(base.dynamics, name)
        parameters = {
            key: tuple(value[i] for i in rows)
            if isinstance(value, tuple) and len(value) == base.num_workloads
            else value
            for key, value in process.parameters.items()
        }
        changed[name] = dataclasses.replace(process, parameters=parameters)
    return dataclasses.replace(base.dynamics, **changed)


class Stored(FleetAllocVectorEnv):
    """A batch whose episodes play given scenarios, drawn once, as if they were stored."""

    def __init__(self, num_envs: int, instance: Instance, scenarios: list[Scenario], **options: object):
        super().__init__(num_envs, instance, **options)  # type: ignore[arg-type]
        self._given = scenarios

    def _choose(self, k: int, named: int | Scenario | None = None) -> None:
        super()._choose(k, self._given[k % len(self._given)])


def sticky(rng: np.random.Generator, nvec: np.ndarray, count: int, steps: int, share: float) -> np.ndarray:
    """Return actions (steps, count, slots) of which a share changes from step to step."""
    fresh = rng.integers(0, nvec, size=(steps, count, nvec.size))
    change = rng.random(fresh.shape) < share
    for t in range(1, steps):
        fresh[t] = np.where(change[t], fresh[t], fresh[t - 1])
    return fresh


class Row:
    """One line of the table: something that plays steps."""

    def __init__(self, name: str, steps_at_once: int, play: Callable[[int], None]):
        self.name, self.steps_at_once, self.play = name, steps_at_once, play
        self.rate = self.cpu = 0.0

    def measure(self, seconds: float) -> None:
        """Play for a while; keep the best rate."""
        calls, start, cpu = 0, time.perf_counter(), time.process_time()
        while (spent := time.perf_counter() - start) < seconds:
            self.play(20)
            calls += 20
        rate = calls * self.steps_at_once / spent
        if rate > self.rate:
            self.rate, self.cpu = rate, (time.process_time() - cpu) / (calls * self.steps_at_once)


def single_row(name: str, env: gymnasium.Env, actions: list, options: dict | None) -> Row:
    """Return the row of one environment."""
    env.reset(seed=0, options=options)
    place = [0]

    def play(calls: int) -> None:
        for _ in range(calls):
            place[0] = (place[0] + 1) % len(actions)
            if env.step(actions[place[0]])[2]:
                env.reset(options=options)

    return Row(name, 1, play)


def vector_row(name: str, envs: gymnasium.vector.VectorEnv, actions: np.ndarray) -> Row:
    """Return the row of a vector environment."""
    envs.reset(seed=0)
    place = [0]

    def play(calls: int) -> None:
        for _ in range(calls):
            place[0] = (place[0] + 1) % len(actions)
            envs.step(actions[place[0]])

    return Row(name, envs.num_envs, play)


def rows(
    shapes: Mapping[tuple[int, int], Sequence[float]] = SHAPES,
    batches: Sequence[tuple[int, int]] = BATCHES,
    day_batches: Sequence[tuple[int, int]] = DAY_BATCHES,
) -> list[Row]:
    """Return everything that is measured."""
    rng = np.random.default_rng(1)
    pole = gymnasium.make("CartPole-v1")
    poles = gymnasium.make_vec("CartPole-v1", num_envs=64, vectorization_mode="sync")
    many = gymnasium.make_vec("CartPole-v1", num_envs=1024)
    found = [
        single_row("CartPole-v1 single", pole, [int(a) for a in rng.integers(0, 2, 500)], None),
        vector_row("CartPole-v1 sync 64", poles, rng.integers(0, 2, (50, 64))),
        vector_row("CartPole-v1 own vector 1024", many, rng.integers(0, 2, (50, 1024))),
    ]
    for (workloads, configurations), loads in shapes.items():
        for load in loads:
            instance = make_instance(workloads, configurations, load)
            days = [draw_scenario(instance, np.random.default_rng(k)) for k in range(8)]
            label = f"{workloads}x{configurations} {'tight' if load == 1.0 else 'slack'}"
            found += _rows_of(label, instance, days, batches, rng)
    instance = make_instance(6, 10, 1.0, days=True)
    days = [draw_scenario(instance, np.random.default_rng(k)) for k in range(8)]
    nvec = fleetgym.ActionSpace(instance).nvec
    for count, threads in day_batches:
        envs = Stored(count, instance, days, num_threads=threads)
        name = f"{count} envs {threads} thread{'s' * (threads > 1)}, 6x10 tight, sticky, days"
        found.append(vector_row(name, envs, sticky(rng, nvec, count, 60, 0.01)))
    return found


def _rows_of(
    label: str,
    instance: Instance,
    days: list[Scenario],
    batches: Sequence[tuple[int, int]],
    rng: np.random.Generator,
) -> list[Row]:
    nvec = fleetgym.ActionSpace(instance).nvec
    found = []
    for kind, share in (("sticky", 0.01), ("random", 1.0)):
        env = gymnasium.make("FleetAlloc-v0", instance=instance)
        actions = sticky(rng, nvec, 1, 300, share)[:, 0]
        found.append(single_row(f"single, {label}, {kind}", env, list(actions), {"scenario": days[0]}))
        for count, threads in batches:
            if instance.num_workloads > 6 and (count > 64 or kind == "random"):
                continue
            envs = Stored(count, instance, days, num_threads=threads)
            name = f"{count} envs {threads} thread{'s' * (threads > 1)}, {label}, {kind}"
            found.append(vector_row(name, envs, sticky(rng, nvec, count, 60, share)))
    if instance.num_workloads == 6 and "tight" in label:
        makers = [lambda: FleetAllocEnv(instance)] * 64
        envs = gymnasium.vector.SyncVectorEnv(makers)
        found.append(vector_row(f"SyncVectorEnv 64, {label}, sticky", envs, sticky(rng, nvec, 64, 60, 0.01)))
    return found


# --- draws and tables -------------------------------------------------------------------------------------


def draw_microseconds(instance_id: str) -> float:
    """Return how long drawing a scenario takes."""
    instance, best = fleetgym.load_instance(instance_id), np.inf
    for k in range(30):
        rng, start = np.random.default_rng(k), time.process_time()
        draw_scenario(instance, rng)
        best = min(best, time.process_time() - start)
    return 1e6 * best


def smoke(folder: Path) -> None:
    """Measure a few rows of each kind once."""
    compare(rows({(6, 10): (1.0,)}, ((8, 1),), ((8, 2),)), rounds=1, seconds=0.01)


def main(argv: list[str] | None = None) -> None:
    """Measure and print."""
    parser = program(
        __doc__, writes="No file.", takes="A minute, and some more if kernels must be compiled.", smoke=smoke
    )
    parser.add_argument("--rounds", type=of(COUNT), default=5)
    parser.add_argument("--seconds", type=of(LIMIT_S), default=0.4, help="of each measurement (default: 0.4)")
    options = parser.parse_args(argv)
    compare(rows(), options.rounds, options.seconds)


def compare(table: list[Row], rounds: int, seconds: float) -> None:
    """Measure the rows in turns, and print them."""
    for _ in range(rounds):
        for row in table:
            row.measure(seconds)
    pole = table[0].rate
    print(f"{'':<44} {'steps/s':>11} {'CPU us/step':>12} {'x CartPole':>11} {'target':>7}")
    for row in table:
        target = TARGETS.get(row.name)
        verdict = (
            "" if target is None else f"{target:>7.2f} {'met' if row.rate >= target * pole else 'missed'}"
        )
        print(f"{row.name:<44} {row.rate:>11,.0f} {1e6 * row.cpu:>12.2f} {row.rate / pole:>11.2f} {verdict}")
    print("\ndrawing a scenario (not in the rates above; target 300 us):")
    for name in ("ou-s-001", "ou-m-001", "drop-m-001", "trace-m-001", "grw-m-001"):
        print(f"  {name:<14} {draw_microseconds(f'fleet-v0/dev/{name}'):>8.0f} us")
    print(flush=True)


if __name__ == "__main__":
    run_program(main)
