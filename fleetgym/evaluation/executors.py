"""Play jobs in this process, on spawned workers, or on any `Executor`, and yield results as they are ready.

A worker that dies breaks its pool. Its unfinished jobs are then played again, one at a time and with
their agents isolated. So the agent at fault has one failed episode, and no other job is lost.
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


class Player(Protocol):
    """Plays one job; can be pickled."""

    def __call__(self, job: Any, /) -> Any:
        """Return the job's result."""
        ...

    def isolated(self) -> Player:
        """Return a player that survives an agent that kills its process."""
        ...


def play(player: Player, jobs: Sequence[Any], workers: int = 1) -> Iterator[Any]:
    """Yield the result of every job as soon as it is ready, in any order.

    Parameters
    ----------
    player : callable
        Plays one job.
    jobs : sequence
        What to play; hashable.
    workers : int
        The number of spawned processes; 1 plays in this one.

    Raises
    ------
    FleetgymError
        If no worker can be started.
    """
    if workers == 1 or len(jobs) < 2:
        yield from map(player, jobs)
        return
    todo = collections.deque(jobs)
    while todo:
        yield from _until_death(player, todo, min(workers, len(jobs)))


def play_on(
    executor: Executor,
    player: Player,
    jobs: Sequence[Any],
    length: Callable[[Any], float] = lambda job: 0.0,
) -> Iterator[Any]:
    """Yield the result of every job as soon as it is ready, played by an executor that gets long jobs first.

    Parameters
    ----------
    executor : concurrent.futures.Executor
        It is not shut down.
    player : callable
        Plays one job.
    jobs : sequence
        What to play; hashable.
    length : callable
        About how long a job takes, in any unit.

    Raises
    ------
    FleetgymError
        If the executor breaks.
    """
    running: dict[Future[Any], Any] = {}
    ended: queue.SimpleQueue[Future[Any]] = queue.SimpleQueue()
    isolated: set[Any] = set()

    def submit(player: Player, job: Any) -> None:
        future = executor.submit(player, job)
        running[future] = job
        future.add_done_callback(ended.put)

    try:
        for job in sorted(jobs, key=length, reverse=True):
            submit(player, job)
        while running:
            future = ended.get()
            job = running.pop(future)
            try:
                result = future.result()
            except Exception as error:
                if not _has_killed_workers(error):
                    raise
                if job in isolated:
                    raise FleetgymError(
                        f"{job} ends its worker even with the agent in its own process, or no worker can read it: "
                        "their logs say which"
                    ) from None
                isolated.add(job)
                submit(player.isolated(), job)
                continue
            yield result
    except (BrokenExecutor, CancelledError) as error:
        why = f" ({error})" if str(error) else ""
        raise FleetgymError(f"the executor broke{why}; resume the results file to go on") from error
    finally:
        for future in running:
            future.cancel()


def _has_killed_workers(error: Exception) -> bool:
    """Return whether Dask gave a job up because the workers that tried it were lost, by default four of them."""
    return type(error).__name__ == "KilledWorker"  # by its name: Dask need not be installed


def _until_death(player: Player, todo: collections.deque[Any], workers: int) -> Iterator[Any]:
    """Yield results as they are ready; `todo` loses their jobs. Return when a worker has died.

    The jobs that were under way are then played one at a time, isolated.
    """
    suspects: list[Any] = []
    running: dict[Future[Any], Any] = {}
    with pool(workers) as made:
        while (todo or running) and not suspects:
            try:
                # No more than one job a worker, so that a death has few suspects.
                while todo and len(running) < workers:
                    future = made.submit(player, todo[0])
                    running[future] = todo.popleft()
                for future in wait(running, return_when=FIRST_COMPLETED).done:
                    result = future.result()
                    del running[future]
                    yield result
            except BrokenExecutor:
                suspects = list(running.values())
                if not suspects:  # it died idle: a fresh pool will do
                    return
    for job in suspects:
        yield _play_alone(player.isolated(), job)


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
