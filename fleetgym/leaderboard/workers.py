"""Run work in parallel processes, and yield the results in order, with little of the work read ahead."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Future
from typing import Any

from fleetgym.evaluation.executors import pool
from fleetgym.files.errors import FleetgymError


def in_order(work: Callable[[Any], Any], items: Iterable[Any], workers: int) -> Iterator[Any]:
    """Yield the results of `work` in order, with few items under way: the rest is not even read.

    Raises
    ------
    FleetgymError
        If a worker dies, or none can be started.
    """
    if workers == 1:
        yield from map(work, items)
        return
    under_way: collections.deque[Future[Any]] = collections.deque()
    with pool(workers) as made:
        try:
            for item in items:
                under_way.append(made.submit(work, item))
                if len(under_way) > 4 * workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        except BrokenExecutor as error:
            raise FleetgymError(f"a worker died while replaying ({error})") from None
