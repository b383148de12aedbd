"""Agents that misuse their process, as programs that speak the agent protocol: they start in no time.

Each plays an instance of one slot, keeps nothing running, and turns bad in window `WINDOW`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time

WINDOW = 2
_started: list[int] = []  # children that still run


def main() -> None:
    """Serve as the agent that ``sys.argv[1]`` names."""
    for line in sys.stdin:
        message = json.loads(line)
        if message["do"] == "act" and message["info"]["window"] >= WINDOW:
            globals()[sys.argv[1]]()
        print(json.dumps({"id": message["id"], "action": [0]}), flush=True)


def _compute(cpu_s: float) -> None:
    end = time.process_time() + cpu_s
    while time.process_time() < end:
        pass


def works() -> None:
    """Do as much work as ``sys.argv[2]`` says, once."""
    if not _started:
        _started.append(0)
        count(int(sys.argv[2]))


def count(steps: int) -> int:
    """Return a number that takes many steps to find."""
    found = 0
    for step in range(steps):
        found = (found * 31 + step) % 1_000_003
    return found


def uses_more() -> None:
    """Use 1.3 CPU seconds, once."""
    if not _started:
        _started.append(0)
        _compute(1.3)


def burns() -> None:
    """Compute for ever."""
    while True:
        pass


def burns_in_children() -> None:
    """Let two children compute for ever."""
    for _ in range(2):
        if os.fork() == 0:
            burns()
    time.sleep(600)


def burns_in_orphans() -> None:
    """Let grandchildren compute that leave the session and lose their parent, for whom nobody waits."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for _ in range(2):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                burns()
            os._exit(0)
    time.sleep(600)


def burns_in_short_children() -> None:
    """Let children compute that are over soon, but add up."""
    while True:
        if (child := os.fork()) == 0:
            _compute(0.05)
            os._exit(0)
        os.waitpid(child, 0)


def burns_behind_answers() -> None:
    """Answer, and let a child compute for 0.3 CPU seconds behind the run's back."""
    for child in _started:
        os.waitpid(child, 0)
    if (child := os.fork()) == 0:
        _compute(0.3)
        os._exit(0)
    _started[:] = [child]


def grows_without_end() -> None:
    """Take more and more memory, slowly: the watch sees it long before the CPU seconds are spent."""
    kept = []
    while True:
        kept.append(b"x" * 2**24)
        time.sleep(0.02)


def children_grow() -> None:
    """Take much memory in all, with processes of which each is modest."""
    for _ in range(6):
        if os.fork() == 0:
            kept = b"x" * 2**27
            time.sleep(600)
            os._exit(len(kept) > 0)
    time.sleep(600)


def forks_without_end() -> None:
    """Start more and more processes."""
    while True:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        time.sleep(0.001)


def sleeps() -> None:
    """Do nothing for ever."""
    time.sleep(600)


def kills_itself() -> None:
    """End by SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


def kills_all() -> None:
    """Send SIGKILL to every process that may be signalled; its own first process is none of them."""
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        os._exit(7)


def ends_by_an_odd_signal() -> None:
    """End by a signal without a name."""
    os.kill(os.getpid(), signal.SIGRTMIN + 3)
    time.sleep(600)


def leaves_a_child() -> None:
    """End, but leave a child that keeps the channel open."""
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
    os._exit(5)


if __name__ == "__main__":
    main()
