"""Limit linear algebra to one thread: sums have the same order, and processes do not compete for cores."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from threadpoolctl import threadpool_limits

#: Environment variables that say it to a process that is started; they are read when NumPy is loaded.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

_lock = threading.Lock()
_inside: list[threadpool_limits] = []  # one entry for each block under way; the first one holds the limit


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Do it so in this process while any such block is under way, in whatever thread; then as before.

    Examples
    --------
    >>> from threadpoolctl import threadpool_info
    >>> with one_thread():
    ...     {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}
    {1}
    """
    with _lock:
        _inside.append(_inside[0] if _inside else threadpool_limits(1, user_api="blas"))
    try:
        yield
    finally:
        with _lock:
            limits = _inside.pop()
            if not _inside:
                limits.restore_original_limits()
