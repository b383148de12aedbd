"""Jobs in, results out in the jobs' order, whoever plays them: this process, spawned workers or any Executor.

A worker that dies takes its pool along. The jobs that were under way are then played again, one at a time and
with their agents isolated, so that the culprit becomes one failed episode and the others lose nothing.
"""

from __future__ import annotations

import collections
import contextlib
import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    wait,
)
from typing import Any, Protocol

from fleetgym.files.errors import FleetgymError

#: Jobs handed out beyond what is being played: enough to keep workers busy while an early job takes long.
_AHEAD = 64


class Player(Protocol):
    """Plays one job; can be pickled."""

    def __call__(self, job: Any, /) -> Any:
        """Return the job's result."""
        ...

    def isolated(self) -> Player:
        """Return a player that survives an agent that kills its process."""
        ...


def play(
    player: Player, jobs: Sequence[Any], *, executor: Executor | None = None, workers: int = 1
) -> Iterator[Any]:
    """Yield the result of every job in order, each as soon as it and all before it are ready.

    Parameters
    ----------
    player : callable
        Plays one job.
    jobs : sequence
        What to play.
    executor : concurrent.futures.Executor, optional
        Plays them; it is not shut down.
    workers : int
        Without an executor: the number of spawned processes; 1 plays in this one.

    Raises
    ------
    FleetgymError
        If a given executor breaks, or no worker can be started.
    """
    if executor is not None:
        yield from _play_on(executor, player, jobs)
    elif workers == 1 or len(jobs) < 2:
        yield from map(player, jobs)
    else:
        yield from _play_on_pools(player, jobs, min(workers, len(jobs)))


def _play_on(executor: Executor, player: Player, jobs: Sequence[Any]) -> Iterator[Any]:
    window: collections.deque[tuple[Future[Any], Any]] = collections.deque()
    try:
        for job in jobs:
            window.append((executor.submit(player, job), job))
            if len(window) > _AHEAD:
                yield _result(executor, player, *window.popleft())
        while window:
            yield _result(executor, player, *window.popleft())
    except (BrokenExecutor, CancelledError) as error:
        raise FleetgymError(f"the executor broke ({error}); resume the results file to go on") from error
    finally:
        for future, _ in window:
            future.cancel()


def _result(executor: Executor, player: Player, future: Future[Any], job: Any) -> Any:
    """Return a job's result; a job that took several workers along is played once more, its agent isolated."""
    try:
        return future.result()
    except Exception as error:
        if not _has_killed_workers(error):
            raise
    try:
        return executor.submit(player.isolated(), job).result()
    except Exception as error:
        if not _has_killed_workers(error):
            raise
        raise FleetgymError(f"{job} ends its worker even with the agent in its own process") from None


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
    with _pool(workers) as pool:
        while (todo or flying) and not suspects:
            try:
                # No more than one job a worker, so that a death has few suspects.
                while todo and len(flying) < workers:
                    future = pool.submit(player, jobs[todo[0]])
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
    with _pool(1) as pool:
        try:
            return pool.submit(player, job).result()
        except BrokenExecutor:
            raise FleetgymError(f"{job} ends its worker even with the agent in its own process") from None


@contextlib.contextmanager
def _pool(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Make a pool of spawned workers that has proved it can start."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    try:
        pool.submit(os.getpid).result()
    except BrokenExecutor:
        raise FleetgymError(
            'no worker could be started; a script that uses workers needs `if __name__ == "__main__":` '
            "around what it runs"
        ) from None
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    """Let a worker end when its parent was killed: otherwise it would wait for jobs for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
