"""Start an agent's process where it can harm and see little, and end all of it when the run says so, or is gone.

Two processes stay between the run and the agent. This one, outside, ends everything when the run closes its control
pipe or was killed. `init`, inside, starts the agent. The status pipe has two lines: what the agent is kept from, and
how it ended. It runs with the standard library alone, since it starts once per episode.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from fleetgym.evaluation.isolation import box, init
from fleetgym.evaluation.isolation.cgroup import ControlGroup
from fleetgym.evaluation.isolation.process_tree import ProcessTree

_LIBC = ctypes.CDLL(None, use_errno=True)
_SET_DEATH_SIGNAL, _SET_SUBREAPER = 1, 36  # from <sys/prctl.h>


def main() -> None:
    """Read the plan (see `sandbox.Sandbox`), isolate, start the agent, wait."""
    os.umask(0o022)
    plan = init.read_plan(int(sys.argv[2]))
    _LIBC.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    below = _start(plan)
    init.leave_pipes()
    for name in ("status_fd", "plan_fd", "group_fd"):
        if plan[name] is not None:
            os.close(plan[name])
    ended = os.pidfd_open(below)
    if ended not in select.select([plan["control_fd"], ended], [], [])[0]:  # the run is over, or was killed
        _end(plan, below)
        with contextlib.suppress(ProcessLookupError):
            os.kill(below, signal.SIGKILL)
    os.waitpid(below, 0)
    _end(plan, os.getpid())
    if plan["group"] is not None:
        ControlGroup(Path(plan["group"])).remove()


def _end(plan: Mapping[str, Any], pid: int) -> None:
    if plan["group"] is not None:
        ControlGroup(Path(plan["group"])).kill()
    ProcessTree(pid).kill_below()


def _start(plan: dict[str, Any]) -> int:
    """Start `init` in the best box that this system allows; return the process that ends with it."""
    for make in _ways(plan):
        ready, plan["ready_fd"] = os.pipe()
        os.set_inheritable(plan["ready_fd"], True)
        pid = make(plan)
        os.close(plan["ready_fd"])
        with os.fdopen(ready, "rb") as stream:
            if stream.read(1):
                return pid
        os.waitpid(pid, 0)
    raise AssertionError("the last way needs nothing of the system")


def _ways(plan: Mapping[str, Any]) -> Iterator[Any]:
    if plan["bwrap"] is not None:
        yield _by_bubblewrap
    if plan["isolate"]:
        yield lambda plan: _by_hand(plan, files=True)
        yield lambda plan: _by_hand(plan, files=False)
    yield _bare


def _by_bubblewrap(plan: Mapping[str, Any]) -> int:
    inside = [*plan["start"], *(str(plan[name]) for name in ("plan_fd", "ready_fd"))]
    command = box.bubblewrap(plan["bwrap"], _steps(plan), inside)
    names = ("plan_fd", "ready_fd", "status_fd", "group_fd")
    return subprocess.Popen(command, pass_fds=[plan[name] for name in names if plan[name] is not None]).pid


def _by_hand(plan: Mapping[str, Any], *, files: bool) -> int:
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(OSError):
            box.enter(_steps(plan), plan["scratch"], lambda: _inside(plan), files=files)
        os._exit(1)
    return pid


def _bare(plan: Mapping[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        _LIBC.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
        _inside(plan)
    return pid


def _inside(plan: Mapping[str, Any]) -> None:
    _LIBC.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    os.close(plan["control_fd"])
    os.write(plan["ready_fd"], b"1")
    init.run(plan)


def _steps(plan: Mapping[str, Any]) -> list[box.Step]:
    return box.steps(plan["visible"], plan["masked"], plan["scratch"])
