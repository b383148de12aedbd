"""Count the CPU seconds, memory and processes of a process and its descendants; Linux only.

A CPU second counts however it was spent: by threads, by children that still run, and by children that ended. Orphans
count as long as a process of the tree adopts them, as `init` does. Children that nobody waits for count as long as
they cannot be ignored, as `confine` ensures.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_PROC = Path("/proc")


@dataclasses.dataclass(frozen=True)
class Usage:
    """CPU seconds that a process tree has used until now, and the memory and processes that it uses now."""

    cpu_s: float
    resident_bytes: int  # pages shared after a fork count in each process
    processes: int


class ProcessTree:
    """The processes below and including a root.

    Parameters
    ----------
    root : int
        Process id.

    Examples
    --------
    >>> ProcessTree(os.getpid()).usage().cpu_s > 0
    True
    """

    def __init__(self, root: int):
        self.root = root
        self._seen_s: dict[tuple[int, int], float] = {}  # by process id and start time: ids are used again
        self._cpu_s = 0.0

    def usage(self) -> Usage:
        """Return the usage; its CPU seconds never shrink.

        Two sums bound it from below: what every process ever seen had used when it was last seen, and what the
        living ones and the children they waited for have used. A child that ended between two looks is in the second, a
        child for which nobody waits is in the first.
        """
        settled_s, resident, alive = 0.0, 0, 0
        for pid in self.processes():
            fields = _stat(pid)
            if fields is None:
                continue
            user, system, waited_user, waited_system = (int(f) / _TICKS_PER_S for f in fields[11:15])
            own_s = max(user + system, _cpu_clock_s(pid))
            self._seen_s[pid, int(fields[19])] = own_s
            settled_s += own_s + waited_user + waited_system
            resident += int(fields[21]) * _PAGE_BYTES
            alive += 1
        self._cpu_s = max(self._cpu_s, settled_s, sum(self._seen_s.values()))
        return Usage(self._cpu_s, resident, alive)

    def queued_s(self) -> float:
        """Return how long the living threads of the tree, and of the run, have waited for a processor: seconds in all.

        Those of the run count, since it may be late to read an answer.
        """
        total_ns = 0
        for pid in (os.getpid(), *self.processes()):
            with contextlib.suppress(OSError):
                for thread in (_PROC / str(pid) / "task").iterdir():
                    with contextlib.suppress(OSError, IndexError):
                        total_ns += int((thread / "schedstat").read_text().split()[1])
        return total_ns / 1e9

    def private_bytes(self) -> int:
        """Return the memory of the tree with shared pages counted once; takes longer than `usage`."""
        total = 0
        for pid in self.processes():
            try:
                lines = (_PROC / str(pid) / "smaps_rollup").read_text().splitlines()
            except (
                OSError
            ):  # it is gone, or does not let itself be looked into: then all of its memory counts
                fields = _stat(pid)
                total += 0 if fields is None else int(fields[21]) * _PAGE_BYTES
                continue
            total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        return total

    def processes(self) -> list[int]:
        """Return the ids of the root and its descendants that run now."""
        found, new = [self.root], [self.root]
        while new:
            new = [child for pid in new for child in _children(pid)]
            found += new
        return found


def _stat(pid: int) -> list[str] | None:
    """Return the fields of a process from its state on, or None if it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text.rpartition(")")[2].split()


def _cpu_clock_s(pid: int) -> float:
    """Return a process's own CPU clock, finer than the kernel's ticks; 0 if it is gone."""
    try:
        return time.clock_gettime((~pid << 3) | 2)  # the id that clock_getcpuclockid(3) gives
    except OSError:
        return 0.0


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return found
