"""Burn CPU time in ways that may escape a count: children, threads, and work behind the run's back.

It runs inside a box, so it uses the standard library alone.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import threading
import time
from collections.abc import Callable


def _work(cpu_s: float) -> None:
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass


def _child(cpu_s: float, notes: int) -> int:
    """Start a child that burns, notes what its clock says, and ends; return its id."""
    child = os.fork()
    if child == 0:
        _work(cpu_s)
        os.write(notes, struct.pack("d", time.process_time()))
        os._exit(0)
    return child


def _children(cpu_s: float, together: int, is_ignored: bool) -> Callable[[float, int], None]:
    def burn(total_s: float, notes: int) -> None:
        if is_ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for _ in range(round(total_s / cpu_s / together)):
            children = [_child(cpu_s, notes) for _ in range(together)]
            if is_ignored:
                time.sleep(1.5 * cpu_s)
                continue
            for child in children:
                os.waitpid(child, 0)

    return burn


def _threads(total_s: float, notes: int) -> None:
    for _ in range(10):
        made = [threading.Thread(target=sum, args=(range(200_000),)) for _ in range(4)]
        for thread in made:
            thread.start()
        for thread in made:
            thread.join()


def _double_fork(total_s: float, notes: int) -> None:
    for _ in range(round(total_s / 0.004)):
        between = os.fork()
        if between == 0:
            os.setsid()
            _child(0.004, notes)
            os._exit(0)
        os.waitpid(between, 0)
        time.sleep(0.006)


def _behind_a_child(total_s: float, notes: int) -> None:
    """Children that ignore their own children, and live for less than a look."""
    for _ in range(round(total_s / 0.008)):
        between = os.fork()
        if between == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
            for _ in range(4):
                _child(0.002, notes)
                time.sleep(0.003)
            os._exit(0)
        os.waitpid(between, 0)


def _after_the_answer(total_s: float, notes: int) -> None:
    if os.fork() == 0:
        time.sleep(0.05)
        _work(total_s)
        os.write(notes, struct.pack("d", time.process_time()))
        os._exit(0)


PATTERNS: dict[str, Callable[[float, int], None]] = {
    f"children of {ms} ms, {number} at a time, {end}": _children(ms / 1000, together, end == "ignored")
    for end in ("waited for", "ignored")
    for together, number in ((1, "one"), (2, "two"))
    for ms in (1, 2, 4, 20)
}
PATTERNS |= {
    "threads that come and go": _threads,
    "grandchildren of 4 ms in a session of their own": _double_fork,
    "grandchildren of 2 ms that a child of 12 ms ignores": _behind_a_child,
    "a child that works after the answer": _after_the_answer,
}


def burn(pattern: str, total_s: float) -> None:
    """Burn by a pattern in this process and others, and print what their clocks say."""
    reading, notes = os.pipe()
    begin = time.process_time()
    PATTERNS[pattern](total_s, notes)
    own_s = time.process_time() - begin
    print(json.dumps({"answered": True}), flush=True)
    os.close(notes)
    with os.fdopen(reading, "rb") as stream:
        data = stream.read()  # until no child holds the other end
    clocks = struct.unpack(f"{len(data) // 8}d", data)
    print(json.dumps({"clocks_s": own_s + sum(clocks), "processes": 2 * len(clocks)}), flush=True)
    time.sleep(600)  # until it is ended: what is not waited for stays in sight
