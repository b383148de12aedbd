"""The first process beside an agent: says what the agent cannot reach, starts it, and tells how it ended.

It adopts the agent's orphans, so that none escapes the count of CPU seconds. The standard library alone: it runs below
`supervisor`, where nothing else is loaded.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from fleetgym.evaluation.isolation import confine, doors


def main() -> None:
    """Run as the first process of a box that bubblewrap made."""
    plan = read_plan(int(sys.argv[2])) | {"ready_fd": int(sys.argv[3])}
    os.write(plan["ready_fd"], b"1")
    run(plan)


def read_plan(fd: int) -> dict[str, Any]:
    """Return the plan that `sandbox.Sandbox` wrote into a file in memory."""
    with open(fd, "rb", closefd=False) as stream:
        stream.seek(0)
        return {**json.load(stream), "plan_fd": fd}


def run(plan: Mapping[str, Any]) -> None:
    """Report what the agent is kept from, start it, and report how it ended; ends this process.

    Parameters
    ----------
    plan : dict
        See `fleetgym.evaluation.isolation.sandbox.Sandbox`.
    """
    os.close(plan["ready_fd"])
    confine.hide_from_tracers()
    _copy_kernels(plan)
    _write(plan["status_fd"], _facts(plan))
    if not os.read(0, 1):  # the run reads the clock before the agent starts; this one is gone
        os._exit(0)
    agent = os.fork()
    if agent == 0:
        _become_agent(plan)
    leave_pipes()
    while True:
        pid, how = os.wait()
        if pid == agent:
            code = os.waitstatus_to_exitcode(how)
            _write(plan["status_fd"], {"signal": -code} if code < 0 else {"exit": code})
            os._exit(0)


def leave_pipes() -> None:
    """Let go of the agent's channel, so that its end is seen when the agent ends."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)


def _copy_kernels(plan: Mapping[str, Any]) -> None:
    """Give the agent compiled kernels of its own: what it adds to them, or damages, goes with it."""
    if plan["kernels"] is None:
        return
    folder = os.path.join(plan["cache"], os.path.basename(plan["kernels"]))
    with contextlib.suppress(OSError, shutil.Error):  # then it compiles
        shutil.copytree(plan["kernels"], folder)
    if os.geteuid() == 0:
        for place, _, names in os.walk(plan["cache"], topdown=False):  # while they can still be passed
            for path in (place, *(os.path.join(place, name) for name in names)):
                os.chown(path, confine.NOBODY, confine.NOBODY)


def _facts(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return what a process confined as the agent will be is kept from, or ``{"error": why}``."""
    read_end, write_end = os.pipe()
    attempt = os.fork()
    if attempt == 0:
        try:
            _confine(plan)
            found = doors.facts(plan["targets"], plan["secret"], plan["writable"])
            if shutil.which(plan["command"][0]) is None:
                who = "by the user nobody, whom agents are when root plays them"
                found = {"error": f"{plan['command'][0]} cannot be run {who}"}
        except OSError as error:
            found = {"error": str(error)}
        finally:
            with contextlib.suppress(BaseException):
                _write(write_end, found)
            os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, encoding="utf-8") as stream:
        text = stream.read()
    os.waitpid(attempt, 0)
    return json.loads(text) if text else {"error": "a process that gives up its rights cannot be started"}


def _confine(plan: Mapping[str, Any]) -> None:
    confine.confine(plan["address_space_bytes"], is_counted=plan["group_fd"] is not None)


def _become_agent(plan: Mapping[str, Any]) -> None:
    try:
        if plan["group_fd"] is not None:
            os.write(plan["group_fd"], b"0")
        for place in (plan["cwd"], plan["scratch"]):
            with contextlib.suppress(OSError):
                os.chdir(place)
                break
        _confine(plan)
        for name in ("status_fd", "plan_fd", "group_fd"):
            if plan[name] is not None:
                os.close(plan[name])
        os.execvp(plan["command"][0], plan["command"])
    except BaseException as error:
        print(f"cannot start the agent: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(127)


def _write(fd: int, facts: Mapping[str, Any]) -> None:
    os.write(fd, (json.dumps(facts) + "\n").encode())
