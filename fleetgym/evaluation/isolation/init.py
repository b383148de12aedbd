"""Start an agent in its box as the first process there, and report how it ended.

This process adopts the agent's orphans, so that none escapes the count of CPU seconds. When it ends, the kernel ends
everything in the box. It runs with the standard library alone, since it starts once per episode.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from typing import Any

from fleetgym.evaluation.isolation import confine


def main() -> None:
    """Start the agent of the plan in ``sys.argv[2]`` (see `sandbox.Sandbox`) and wait until it has ended."""
    plan = json.loads(sys.argv[2])
    os.umask(0o022)
    confine.hide_from_tracers()
    _copy_kernels(plan)
    agent = os.fork()
    if agent == 0:
        _become_agent(plan)
    while True:
        pid, how = os.wait()
        if pid == agent:
            code = os.waitstatus_to_exitcode(how)
            _report(plan, {"signal": -code} if code < 0 else {"exit": code})
            os._exit(0)


def _copy_kernels(plan: Mapping[str, Any]) -> None:
    """Give the agent compiled kernels of its own: what it adds to them, or damages, goes with the box."""
    if plan["kernels"] is None:
        return
    folder = os.path.join(plan["cache"], os.path.basename(plan["kernels"]))
    with contextlib.suppress(OSError, shutil.Error):  # then it compiles
        shutil.copytree(plan["kernels"], folder)
    if os.geteuid() == 0:
        for place, _, names in os.walk(plan["cache"], topdown=False):  # while they can still be passed
            for path in (*(os.path.join(place, name) for name in names), place):  # the folder last
                os.chown(path, confine.NOBODY, confine.NOBODY)


def _become_agent(plan: Mapping[str, Any]) -> None:
    """Give up all rights, report that this is done, and run the agent once the run has read the clock."""
    command = plan["command"]
    try:
        for place in (plan["cwd"], plan["scratch"]):
            with contextlib.suppress(OSError):
                os.chdir(place)
                break
        confine.confine(plan["address_space_bytes"])
        if shutil.which(command[0]) is None:
            who = " by the user nobody, as whom agents run for root" if os.geteuid() == confine.NOBODY else ""
            raise OSError(f"{command[0]} cannot be run in the box{who}")
        _report(plan, {"ready": True})
        os.set_inheritable(plan["status_fd"], False)
        if os.read(0, 1):  # else the run is gone
            os.execvp(command[0], command)
    except BaseException as error:
        _report(plan, {"error": str(error)})
    finally:
        os._exit(127)


def _report(plan: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    os.write(plan["status_fd"], (json.dumps(facts) + "\n").encode())
