"""Compile independent kernels at the same time, in processes of their own, into the folder of kernels."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

#: What a process runs: it reads where to find modules, and which, from its first line of input.
_PROGRAM = """
import json, sys
job = json.loads(sys.stdin.readline())
sys.path[:] = job["path"]
from fleetgym.kernels.compile import serve
serve(job["folder"], job["modules"])
"""


def num_cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def compile_apart(
    names: Sequence[str], modules: Sequence[str], folder: Path, note: Callable[[str], None]
) -> None:
    """Let other processes compile kernels; what they do not manage is left to the caller.

    Parameters
    ----------
    names : sequence of str
        Of `extern` and `entry` kernels, in the order in which they are begun.
    modules : sequence of str
        Modules to import, so that these are known.
    folder : Path
        From `cache_folder`.
    note : callable
        Called with each name as soon as it is compiled, by any thread.
    """
    waiting, processes = deque(names), list[subprocess.Popen[str]]()
    try:
        for _ in range(min(num_cores(), len(names))):
            processes.append(_start(modules, folder))
        threads = [
            threading.Thread(target=_feed, args=(one, waiting, note), daemon=True) for one in processes
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    except (OSError, RuntimeError):  # neither a process nor a thread is to be had
        pass
    finally:
        for process in processes:
            process.kill()
            with contextlib.suppress(OSError):
                process.communicate()


def _start(modules: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """Start a process that compiles what it is told."""
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    job: dict[str, Any] = {"path": sys.path, "modules": list(modules), "folder": str(folder)}
    assert process.stdin is not None
    process.stdin.write(json.dumps(job) + "\n")
    return process


def _feed(process: subprocess.Popen[str], waiting: deque[str], note: Callable[[str], None]) -> None:
    """Give a process one name after the other, until none is left or it ends."""
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError, IndexError):
        while True:
            name = waiting.popleft()
            process.stdin.write(name + "\n")
            process.stdin.flush()
            if not process.stdout.readline():
                return
            note(name)
