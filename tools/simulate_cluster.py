"""How long `fleet-v1/test` takes on many machines, and what limits it: real episodes' CPU times in, tables out.

Two parts. A real Dask cluster, its workers being threads of this process, plays jobs that only wait. It gives the CPU
time and the memory that a job and a worker cost all parties. A simulation of events then plays recorded episodes on as
many workers as are asked for. It hands jobs out by `fleetgym.evaluation.executors.HandOut`, as a run does. Scheduler
and run serve one job after another, each for the whole CPU time that was measured for all parties. A worker gets its
next job when the scheduler has heard of the last one. (Dask sends it one job ahead, which hides this gap.)

A job takes the recorded CPU seconds of its episode, and those of the environment. Slow agents have played the tasks of
the sample only. The others take, in turn, the times of those of their family. A size that the sample lacks takes longer
by the median factor of the agents that have played all tasks.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import functools
import heapq
import logging
import math
import pickle
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.evaluation.executors import HandOut, play_on
from fleetgym.evaluation.jobs import Job, run_job
from fleetgym.files.documents import write_atomically
from fleetgym.files.errors import FleetgymError
from fleetgym.files.markdown import rewrite, table
from fleetgym.files.quantities import COUNT
from fleetgym.model.library import Task, find_entry, list_tasks
from fleetgym.runtime.places import checkout
from fleetgym.runtime.programs import program
from tools.kept_episodes import read_kept

_SUITE = "fleet-v1/test"
_LATENCY_S = 0.001  # of one message between machines


# -- how long jobs take


@dataclasses.dataclass(frozen=True)
class Recorded:
    """An agent's jobs on the suite.

    Attributes
    ----------
    agent : str
    seconds : tuple of float
        CPU seconds of each task, in the suite's order.
    lengths : tuple of float
        What a run knows of them before: decisions times slots.
    is_scaled : bool
        Whether only the sample was played.
    """

    agent: str
    seconds: tuple[float, ...]
    lengths: tuple[float, ...]
    is_scaled: bool


def recorded(folder: Path, suite: str = _SUITE) -> list[Recorded]:
    """Return the jobs of all agents that have played the suite or its sample, quick ones first."""
    tasks = list_tasks(suite)
    played: dict[str, dict[Task, float]] = {}
    lengths: dict[str, float] = {}
    for path in sorted([*folder.glob("v1-test/*.jsonl.gz"), *folder.glob("v1-sample/*.jsonl.gz")]):
        header, episodes = read_kept(path)
        lengths |= {name: facts.num_windows * len(facts.options) for name, facts in header.instances.items()}
        for episode in episodes:
            if episode.timing is None:
                raise FleetgymError(f"{path} has an episode without CPU times")
            seconds = episode.timing.reset_cpu_s + math.fsum(episode.timing.act_cpu_s)
            played.setdefault(episode.agent, {})[episode.instance, episode.scenario] = seconds
    own = {size: _environment_s(size, tasks) for size in {find_entry(name).size for name, _ in tasks}}
    known = tuple(lengths[name] for name, _ in tasks)
    whole = [times for times in played.values() if len(times) == len(tasks)]
    found = []
    for agent, times in played.items():
        seconds = _scaled(times, tasks, whole)
        total = tuple(s + own[find_entry(name).size] for s, (name, _) in zip(seconds, tasks, strict=True))
        found.append(Recorded(agent, total, known, len(times) < len(tasks)))
    return sorted(found, key=lambda jobs: sum(jobs.seconds))


Times = Mapping[Task, float]


def _scaled(times: Times, tasks: Sequence[Task], whole: Sequence[Times]) -> list[float]:
    """Return a time for every task: its own, or in turn those of its family, scaled to its size."""
    cells: dict[tuple[str, str], list[float]] = {}
    for (name, _), seconds in sorted(times.items()):
        cells.setdefault(_cell(name), []).append(seconds)
    turns: collections.Counter[tuple[str, str]] = collections.Counter()
    found = []
    for task in tasks:
        family, size = _cell(task[0])
        near = next((cell for cell in sorted(cells) if cell == (family, size)), None) or next(
            (cell for cell in sorted(cells) if cell[0] == family), None
        )
        if near is None:
            raise FleetgymError(f"no episode of family {family} was recorded")
        turn = cells[near][turns[family, size] % len(cells[near])]
        turns[family, size] += 1
        found.append(times.get(task, turn * _growth(near, (family, size), whole)))
    return found


def _growth(old: tuple[str, str], new: tuple[str, str], whole: Sequence[Times]) -> float:
    """Return how much longer than one cell another takes: the median over agents that have played both."""
    if old == new:
        return 1.0
    means = [[_mean(times, cell) for cell in (old, new)] for times in whole]
    return statistics.median(b / a for a, b in means)


def _mean(times: Times, cell: tuple[str, str]) -> float:
    return statistics.fmean(seconds for (name, _), seconds in times.items() if _cell(name) == cell)


@functools.cache
def _cell(name: str) -> tuple[str, str]:
    entry = find_entry(name)
    return entry.family, entry.size


def _environment_s(size: str, tasks: Sequence[Task]) -> float:
    """Return the CPU seconds of an episode of this size beside those of its agent, measured here."""
    name, scenario = next(task for task in tasks if find_entry(task[0]).size == size)
    for _ in range(2):  # the first one loads the kernels
        begin = time.process_time()
        episode = run_job(Job("hold", name, scenario), isolate="never")
        spent_s = time.process_time() - begin
    assert episode.timing is not None
    return spent_s - episode.timing.reset_cpu_s - math.fsum(episode.timing.act_cpu_s)


# -- a real cluster


@dataclasses.dataclass(frozen=True)
class Measured:
    """What a cluster costs beside the jobs.

    Attributes
    ----------
    workers, jobs : int
        That were tried.
    cpu_s : float
        CPU seconds of run, scheduler and workers, for each job.
    worker_mb, job_mb : float
        Memory of the process, for each worker (its own and the scheduler's part) and for each job that was played.
    result_kb : float
        Size of a result.
    """

    workers: int
    jobs: int
    cpu_s: float
    worker_mb: float
    job_mb: float
    result_kb: float


@dataclasses.dataclass(frozen=True)
class Sleeper:
    """Plays jobs that wait for some seconds and return a result of some bytes."""

    size: int

    def __call__(self, seconds: float) -> bytes:
        """Return the result."""
        time.sleep(seconds)
        return bytes(self.size)

    def isolated(self) -> Sleeper:
        """Return itself."""
        return self


def measure(workers: int, jobs: int) -> Measured:
    """Play jobs that wait on a Dask cluster of this process."""
    from distributed import LocalCluster

    from fleetgym.evaluation.dask_cluster import dask_executor

    episode = run_job(Job("autoscale", list_tasks(_SUITE)[0][0], 0), isolate="never")
    size = len(pickle.dumps(episode))
    before = _resident_mb()
    with LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=False,
        protocol="tcp://",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit=0,
        silence_logs=logging.ERROR,
    ) as cluster:
        with_workers = _resident_mb()
        with dask_executor(cluster.scheduler_address) as executor:
            begin = time.process_time()
            played = sum(1 for _ in play_on(executor, Sleeper(size), [0.0] * jobs))
            spent_s = time.process_time() - begin
        after = _resident_mb()
    return Measured(
        workers,
        played,
        spent_s / jobs,
        (with_workers - before) / workers,
        (after - with_workers) / jobs,
        size / 1e3,
    )


def _resident_mb() -> float:
    import resource  # there is none outside of Unix

    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6


# -- simulated clusters


@dataclasses.dataclass
class Simulated:
    """A run on a simulated cluster.

    Attributes
    ----------
    wall_s : float
        Until the last result is written.
    busy, order, service, end : float
        Shares of the workers' time: in jobs; without one because the results of later jobs would not be written yet;
        while scheduler or run were busy with others; and when no job was left to start.
    waiting : int
        Most results that wait for their turn.
    """

    wall_s: float = 0.0
    busy: float = 0.0
    order: float = 0.0
    service: float = 0.0
    end: float = 0.0
    waiting: int = 0

    @property
    def limit(self) -> str:
        """What limits the run: what costs most of the workers' time, if that is over a tenth."""
        losses = {"writing in order": self.order, "scheduler": self.service, "longest job": self.end}
        largest = max(losses, key=lambda name: losses[name])
        return largest if losses[largest] > 0.1 else "CPU time"


def simulate(seconds: Sequence[float], lengths: Sequence[float], workers: int, job_s: float) -> Simulated:
    """Play jobs on simulated workers.

    Parameters
    ----------
    seconds : sequence of float
        How long each job takes.
    lengths : sequence of float
        What the run knows of that.
    workers : int
    job_s : float
        For which the scheduler, and then the run, is busy with one job.

    Examples
    --------
    >>> run = simulate([4.0, 1.0, 1.0, 2.0], [1.0] * 4, workers=2, job_s=0.0)
    >>> round(run.wall_s, 1), round(run.busy, 2), run.waiting
    (4.0, 1.0, 2)
    """
    order = HandOut(lengths)
    found = Simulated()
    queue: collections.deque[int] = collections.deque()  # jobs that the scheduler has
    events: list[tuple[float, int, int, int]] = []  # when, a number, what kind, which job
    count = busy = waiting = started = sent = 0
    now = run_free = scheduler_free = 0.0
    idle = workers  # without a job, and known as such by the scheduler
    arrived, done, told = 0, 1, 2

    def later(when: float, kind: int, job: int) -> None:
        nonlocal count
        count += 1
        heapq.heappush(events, (when, count, kind, job))

    def hand_out() -> None:
        """Let the run send what is to be sent, one job after another; then the scheduler takes it."""
        nonlocal run_free, scheduler_free, sent
        for job in order.block(lambda: workers):
            sent += 1
            scheduler_free = max(scheduler_free, run_free + _LATENCY_S) + job_s / 2
            later(scheduler_free, arrived, job)

    hand_out()
    spent: collections.Counter[str] = collections.Counter()
    while events:
        when, _, kind, job = heapq.heappop(events)
        why = "order" if started == sent else "service"
        if started == len(seconds):
            why = "end" if busy else "service"  # when all are played, what is left is to take the results
        spent["busy"] += busy * (when - now)
        spent[why] += (workers - busy) * (when - now)
        now = when
        if kind == arrived:
            queue.append(job)
        elif kind == done:  # the worker is without a job until the scheduler has heard of it
            busy -= 1
            scheduler_free = max(scheduler_free, now + _LATENCY_S) + job_s / 2
            later(scheduler_free, told, job)
        else:
            idle += 1
            run_free = max(run_free, now + _LATENCY_S) + job_s
            waiting += 1 - len(order.landed(job))
            found.waiting = max(found.waiting, waiting)
            hand_out()
        while queue and idle:
            idle, busy, started = idle - 1, busy + 1, started + 1
            first = queue.popleft()
            later(now + _LATENCY_S + seconds[first], done, first)
    found.wall_s = max(now, run_free)
    total = sum(spent.values())
    for name, value in spent.items():
        setattr(found, name, value / total)
    return found


# -- the page


def report(runs: Sequence[Recorded], cost: Measured, counts: Sequence[int]) -> str:
    """Return the tables as Markdown."""
    largest = max(counts)
    everything = [s for run in runs for s in run.seconds], [n for run in runs for n in run.lengths]
    all_runs = {count: simulate(*everything, count, cost.cpu_s) for count in counts}
    parts = [
        f"A real Dask cluster in one process, with {cost.workers} workers that only wait, spends "
        f"{1e3 * cost.cpu_s:.1f} CPU ms a job on run, scheduler and workers together. It played "
        f"{cost.jobs:,} jobs, with results of {cost.result_kb:.0f} kB. "
        f"So one scheduler serves at least {1 / cost.cpu_s:,.0f} jobs a second.\n\n"
        f"A worker takes {cost.worker_mb:.2f} MB of that process, its own part included, and a job that was played "
        f"{1e3 * cost.job_mb:.0f} kB. So the scheduler of {largest:,} workers takes at most "
        f"{largest * cost.worker_mb / 1e3:.1f} GB.\n",
        "The rest is simulated from recorded CPU times.\n",
        f"All {len(runs)} agents on all tasks of `{_SUITE}` in one run ({len(everything[0]):,} jobs):\n",
        table(
            [
                "workers",
                "wall",
                "jobs/s",
                "busy %",
                "last jobs %",
                "order %",
                "scheduler %",
                "results waiting",
            ],
            [
                [
                    f"{count:,}",
                    duration(run.wall_s),
                    f"{len(everything[0]) / run.wall_s:,.1f}",
                    *(f"{100 * share:.1f}" for share in (run.busy, run.end, run.order, run.service)),
                    f"{run.waiting:,}",
                ]
                for count, run in all_runs.items()
            ],
            0,
        ),
        "\n`busy` is the share of the workers' time that they play. They lose the rest when no job is left to start "
        "(last jobs), while the scheduler is busy, and in waiting for an early job to be written (order). "
        "Results that wait take "
        f"{max(run.waiting for run in all_runs.values()) * cost.result_kb / 1e3:.0f} MB of the run's memory at most.\n",
        "One agent at a time:\n",
        table(
            ["agent", "CPU hours", *(f"{count:,} workers" for count in counts), "longest job", "limit"],
            [_row(run, counts, cost) for run in runs],
        ),
        "\n\\* recorded on the 81 tasks of `fleet-v1/sample`, and scaled. The sample has the smallest size of each\n"
        "family. Other sizes take longer by the median factor of the agents without a star.\n\n"
        f"The limit is that of {largest:,} workers: what costs most of their time, if that is over a tenth.\n",
    ]
    return "\n".join(parts)


def _row(run: Recorded, counts: Sequence[int], cost: Measured) -> list[str]:
    played = {count: simulate(run.seconds, run.lengths, count, cost.cpu_s) for count in counts}
    return [
        f"`{run.agent}`" + (" \\*" if run.is_scaled else ""),
        f"{sum(run.seconds) / 3600:,.2f}",
        *(duration(one.wall_s) for one in played.values()),
        duration(max(run.seconds)),
        played[max(counts)].limit,
    ]


def duration(seconds: float) -> str:
    """Return a time with its unit.

    Examples
    --------
    >>> duration(3.21), duration(95.0), duration(86_400.0)
    ('3.2 s', '1.6 min', '24.0 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def smoke(folder: Path) -> int:
    """Simulate a few jobs, and measure two workers; 1 if the simulation loses a job or time."""
    cost = measure(2, 20)
    run = Recorded("hold", (3.0, 1.0, 1.0, 1.0), (1.0,) * 4, False)
    print(report([run], cost, [2, 3]))
    busy_s = simulate(run.seconds, run.lengths, 2, 0.0)
    return int(abs(busy_s.busy * 2 * busy_s.wall_s - 6.0) > 0.1)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    parser = program(
        __doc__,
        writes="The part of docs/results-workers.md between its marks.",
        takes="A CPU minute.",
        smoke=smoke,
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--workers", type=of(COUNT), nargs="+", default=[2, 64, 1000], help="(default: 2 64 1000)"
    )
    parser.add_argument(
        "--real", type=of(COUNT), default=20, help="workers of the real cluster (default: 20)"
    )
    parser.add_argument("--jobs", type=of(COUNT), default=400, help="jobs of the real cluster (default: 400)")
    arguments = parser.parse_args(argv)
    root = checkout()
    assert root is not None
    try:
        page = root / "docs" / "results-workers.md"
        text = report(
            recorded(root / "leaderboard" / "episodes"),
            measure(arguments.real, arguments.jobs),
            arguments.workers,
        )
        write_atomically(page, rewrite(page, text).encode())
    except (FleetgymError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(text)
    return 0


if __name__ == "__main__":
    run_program(main)
