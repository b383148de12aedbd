"""Jobs in, results out in the jobs' order, whoever plays them: this process, spawned workers or any Executor.

A worker that dies takes its pool along. The jobs that were under way are then played again, one at a time and
with their agents isolated, so that the culprit becomes one failed episode and the others lose nothing.
"""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import multiprocessing.connection
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from multiprocessing.connection import Connection
from typing import Any, Protocol

from fleetgym.files.errors import FleetgymError
from fleetgym.runtime.signals import held_back, leave_to_parent

#: Jobs from the oldest that is not done on are handed out: so many for each worker and so many more, up to a bound.
#: Enough to keep all workers busy while an early job takes long; few, as those done out of turn are lost in a crash.
_AHEAD_EACH, _AHEAD, _MAX_AHEAD = 16, 64, 16_384

#: Workers of an executor that does not say how many it has.
_WORKERS = 64

#: Times that a job is handed out again to an executor that let go of it, as a scheduler does that is restarted.
_TRIES = 3


class Player(Protocol):
    """Plays one job; can be pickled."""

    def __call__(self, job: Any, /) -> Any:
        """Return the job's result."""
        ...

    def isolated(self) -> Player:
        """Return a player that survives an agent that kills its process."""
        ...


def play(player: Player, jobs: Sequence[Any], workers: int = 1) -> Iterator[Any]:
    """Yield the result of every job in order, each as soon as it and all before it are ready.

    Parameters
    ----------
    player : callable
        Plays one job.
    jobs : sequence
        What to play.
    workers : int
        The number of spawned processes; 1 plays in this one.

    Raises
    ------
    FleetgymError
        If no worker can be started.
    """
    if workers == 1 or len(jobs) < 2:
        yield from map(player, jobs)
    else:
        yield from _play_on_pools(player, jobs, min(workers, len(jobs)))


def play_on(
    executor: Executor,
    player: Player,
    jobs: Sequence[Any],
    length: Callable[[Any], float] = lambda job: 0.0,
) -> Iterator[Any]:
    """Yield the result of every job in order, played by an executor that takes long jobs first.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        It is not shut down. The more workers it has by its ``num_workers``, the more jobs it is given at once.
    player : callable
        Plays one job.
    jobs : sequence
        What to play.
    length : callable
        About how long a job takes, in any unit.

    Raises
    ------
    FleetgymError
        If the executor breaks.
    """
    hand = _Hand(executor, player, jobs)
    order = HandOut([length(job) for job in jobs])
    ready: dict[int, Any] = {}
    try:
        while not order.is_done:
            for k in order.block(lambda: getattr(executor, "num_workers", _WORKERS)):
                hand.out(k)
            k, result = hand.back()
            ready[k] = result
            for due in order.landed(k):
                yield ready.pop(due)
    except (BrokenExecutor, CancelledError) as error:
        why = f" ({error})" if str(error) else ""
        raise FleetgymError(f"the executor broke{why}; resume the results file to go on") from error
    finally:
        hand.cancel()


class HandOut:
    """Which jobs are handed out when: blocks of them, long ones first, a bounded number from the oldest not done on.

    Parameters
    ----------
    lengths : sequence of float
        About how long each job takes, in any unit.

    Examples
    --------
    >>> order = HandOut([1.0, 3.0, 2.0])
    >>> order.block(lambda: 2), order.block(lambda: 2)
    ([1, 2, 0], [])
    >>> list(order.landed(1)), list(order.landed(0)), list(order.landed(2))
    ([], [0, 1], [2])
    """

    def __init__(self, lengths: Sequence[float]):
        self.lengths = lengths
        self._given = self._due = 0  # so many jobs are handed out, and of so many the results are due
        self._ahead = _AHEAD
        self._waiting: set[int] = set()  # done before their turn

    @property
    def is_done(self) -> bool:
        """Whether every result was due."""
        return self._due == len(self.lengths)

    def block(self, num_workers: Callable[[], int]) -> list[int]:
        """Return the jobs to hand out now, in order; the number of workers is asked for if it is time for some."""
        if self._given == len(self.lengths) or self._given - self._due > self._ahead // 2:
            return []
        self._ahead = min(_AHEAD + _AHEAD_EACH * num_workers(), _MAX_AHEAD)
        end = max(self._given, min(self._due + self._ahead, len(self.lengths)))
        block = range(self._given, end)
        self._given = end
        return sorted(block, key=lambda k: -self.lengths[k])

    def landed(self, k: int) -> range:
        """Take note that a job is done; return the jobs whose results are due now."""
        self._waiting.add(k)
        first = self._due
        while self._due in self._waiting:
            self._waiting.remove(self._due)
            self._due += 1
        return range(first, self._due)


class _Hand:
    """Hands jobs out to an executor and takes results back, in the order in which they come."""

    def __init__(self, executor: Executor, player: Player, jobs: Sequence[Any]):
        self.executor, self.player, self.jobs = executor, player, jobs
        self.flying: dict[Future[Any], int] = {}
        self.landed: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
        self.isolated: set[int] = set()
        self.let_go: collections.Counter[int] = collections.Counter()

    def out(self, k: int) -> None:
        """Hand job `k` out."""
        player = self.player.isolated() if k in self.isolated else self.player
        future = self.executor.submit(player, self.jobs[k])
        self.flying[future] = k
        future.add_done_callback(self.landed.put)

    def back(self) -> tuple[int, Any]:
        """Return number and result of the next job that is done; those that were lost on the way go out again."""
        while True:
            future = self.landed.get()
            k = self.flying.pop(future)
            try:
                return k, future.result()
            except CancelledError:
                self.let_go[k] += 1
                if self.let_go[k] > _TRIES:
                    raise
            except Exception as error:
                if not _has_killed_workers(error):
                    raise
                if k in self.isolated:
                    raise FleetgymError(
                        f"{self.jobs[k]} ends its worker even with the agent in its own process, or no worker can read "
                        "it: their logs say which"
                    ) from None
                self.isolated.add(k)
            self.out(k)

    def cancel(self) -> None:
        """Let the executor forget what it has not played."""
        for future in self.flying:
            future.cancel()


def _has_killed_workers(error: Exception) -> bool:
    """Tell whether Dask gave a job up because the workers that tried it were lost, by default four of them."""
    return type(error).__name__ == "KilledWorker"  # by its name: Dask need not be installed


def _play_on_pools(player: Player, jobs: Sequence[Any], workers: int) -> Iterator[Any]:
    """Play on spawned workers; after a death, see to the suspects and go on in a fresh pool."""
    ready: dict[int, Any] = {}
    todo = collections.deque(range(len(jobs)))
    due = 0  # the job whose result is yielded next
    while due < len(jobs):
        for k, result in _until_death(player, jobs, todo, workers):
            ready[k] = result
            while due in ready:
                yield ready.pop(due)
                due += 1


def _until_death(
    player: Player, jobs: Sequence[Any], todo: collections.deque[int], workers: int
) -> Iterator[tuple[int, Any]]:
    """Yield index and result of jobs as they are done; `todo` loses them. Return when a worker has died."""
    suspects: list[int] = []
    flying: dict[Future[Any], int] = {}
    with pool(workers) as made:
        while (todo or flying) and not suspects:
            try:
                # No more than one job a worker, so that a death has few suspects.
                while todo and len(flying) < workers:
                    future = made.submit(player, jobs[todo[0]])
                    flying[future] = todo.popleft()
                for future in wait(flying, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    yield flying.pop(future), result
            except BrokenExecutor:
                suspects = sorted(flying.values())
                if not suspects:  # it died idle: a fresh pool will do
                    return
    for k in suspects:
        yield k, _play_alone(player.isolated(), jobs[k])


def _play_alone(player: Player, job: Any) -> Any:
    with pool(1) as made:
        try:
            return made.submit(player, job).result()
        except BrokenExecutor:
            raise FleetgymError(f"{job} ends its worker even with the agent in its own process") from None


@contextlib.contextmanager
def pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Make a pool of spawned workers that has proved it can start; with the block, however it ends, they end.

    Parameters
    ----------
    workers : int
        How many.

    Yields
    ------
    concurrent.futures.ProcessPoolExecutor

    Raises
    ------
    FleetgymError
        If no worker can be started.
    """
    context = multiprocessing.get_context("spawn")
    try:
        end, keep = context.Pipe(duplex=False)
        made = _Pool(workers, mp_context=context, initializer=_begin, initargs=(end,))
    except OSError as error:  # of a semaphore, which lies in memory that processes share
        raise FleetgymError(
            f"no worker could be started: the system gives no shared memory, such as /dev/shm "
            f"({error.strerror}); play with one worker"
        ) from None
    try:
        try:
            made.submit(os.getpid).result()
        except BrokenExecutor:
            raise FleetgymError(
                'no worker could be started; a script that uses workers needs `if __name__ == "__main__":` '
                "around what it runs"
            ) from None
        yield made
        made.shutdown(cancel_futures=True)
    finally:
        keep.send(None)  # nobody reads it: all workers that are left see it, and end in the middle of a job
        made.shutdown(cancel_futures=True)
        end.close()
        keep.close()


class _Pool(ProcessPoolExecutor):
    """Starts its workers out of reach of Ctrl-C, which is the run's business."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        """Return the future of a call."""
        with held_back():
            return super().submit(function, *arguments, **named)


def _begin(end: Connection) -> None:
    """Let a worker end with the pool: otherwise it would go on with its job, or wait for jobs for ever."""
    leave_to_parent()
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        multiprocessing.connection.wait([end, parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
