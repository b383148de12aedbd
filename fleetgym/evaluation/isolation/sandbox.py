"""Run an agent in the box of official runs: bubblewrap makes it, and `init` starts the agent in it.

This is the box's side in the run's process. The box ends when the run says so, and when the run is gone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from fleetgym.evaluation.isolation.agent_process import PYTHON, agent_environment, describe_end
from fleetgym.evaluation.isolation.box import SCRATCH, boxed
from fleetgym.evaluation.isolation.confine import load_seccomp
from fleetgym.evaluation.isolation.process_tree import ProcessTree, Usage
from fleetgym.evaluation.isolation.visible import hidden_files, visible_files
from fleetgym.files.errors import FleetgymError, printable
from fleetgym.runtime.places import PACKAGE
from fleetgym.runtime.threads import THREADS

#: An agent gets the environment variables whose names begin so, and those that `PASS_VARIABLE` names: no passwords.
PASSED = ("PATH", "LANG", "LC_", "TZ", "LD_LIBRARY_PATH", "PYTHON", "VIRTUAL_ENV", "NUMBA_", "FLEETGYM_")
PASS_VARIABLE = "FLEETGYM_PASS"
_CACHE = os.path.join(SCRATCH, "cache")
_OWN = {"FLEETGYM_CACHE_DIR": _CACHE, "NUMBA_CACHE_DIR": os.path.join(SCRATCH, "numba")}
_OWN |= {"TMPDIR": SCRATCH, "HOME": SCRATCH}
_STDERR_BYTES = 2**16  # of an agent's stderr that is passed on, per episode


def bare_command(module: str, plan: Any) -> list[str]:
    """Return the command that runs a module of this package without the package's own start, which takes longer.

    Parameters
    ----------
    module : str
        Its name in this package. Its ``main`` finds `plan` as JSON in ``sys.argv[2]``.
    plan : object
        Plain lists, mappings, strings and numbers.
    """
    start = (
        "import sys, types; package = types.ModuleType('fleetgym'); package.__path__ = [sys.argv[1]];"
        f"sys.modules['fleetgym'] = package; from fleetgym.evaluation.isolation.{module} import main; main()"
    )
    return [PYTHON, "-I", "-S", "-c", start, str(PACKAGE), json.dumps(plan)]


def check_box() -> None:
    """Check that this machine can make the box of official runs.

    Raises
    ------
    FleetgymError
        If it cannot; the message says what to install or to allow.
    """
    with Sandbox([PYTHON, "-I", "-S", "-c", ""], 2.0e9, hidden_files()):
        pass


def _bubblewrap() -> str:
    """Return the path of bubblewrap's program, once all is installed that official runs need."""
    if not sys.platform.startswith("linux"):
        raise FleetgymError("official runs need Linux: their box for agents exists on Linux only")
    if (program := shutil.which("bwrap")) is None:
        raise FleetgymError(
            "official runs need bubblewrap, which is not installed; install it, for example by "
            "`apt-get install bubblewrap`"
        )
    try:
        load_seccomp()
    except OSError:
        raise FleetgymError(
            "official runs need libseccomp, which is not installed; install it, for example by "
            "`apt-get install libseccomp2`"
        ) from None
    return program


def _environment() -> dict[str, str]:
    """Return the environment variables of an agent."""
    named = {*THREADS, *os.environ.get(PASS_VARIABLE, "").split(os.pathsep)}
    found = {
        name: value for name, value in agent_environment().items() if name in named or name.startswith(PASSED)
    }
    return found | _OWN


class Sandbox:
    """A command that runs in a box: its processes, its pipes, and how it ended.

    Parameters
    ----------
    command : list of str
        The agent's.
    address_space_bytes : float
        Limit of each of its processes.
    hidden : sequence of str
        Folders and files that it must not read.
    agent : str, optional
        Name of the agent, whose files it may read.

    Raises
    ------
    FleetgymError
        If this machine cannot make the box, or cannot start the command in it.
    """

    def __init__(
        self,
        command: list[str],
        address_space_bytes: float,
        hidden: Sequence[str],
        agent: str | None = None,
    ):
        from fleetgym.kernels.compile import cache_folder

        program, kernels = _bubblewrap(), cache_folder()
        visible = visible_files(agent, hidden)
        masked = [path for path in hidden if any(Path(path).is_relative_to(v) for v in visible)]
        status, status_end = os.pipe()
        plan = {
            "command": command,
            "cwd": os.getcwd(),
            "scratch": SCRATCH,
            "kernels": None if kernels is None else str(kernels),
            "cache": _CACHE,
            "address_space_bytes": int(address_space_bytes),
            "status_fd": status_end,
        }
        self._status = os.fdopen(status, encoding="utf-8")
        try:
            self.process: subprocess.Popen[str] = subprocess.Popen(
                boxed(program, visible, masked, bare_command("init", plan)),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(),
                text=True,
                encoding="utf-8",
                errors="replace",
                pass_fds=[status_end],
                start_new_session=True,
            )
        finally:
            os.close(status_end)
        self.tree = ProcessTree(self.process.pid)
        facts = json.loads(self._status.readline() or "{}")
        if "ready" not in facts:
            self._refuse(facts.get("error"))
        threading.Thread(target=_pass_on, args=(self.process.stderr,), daemon=True).start()
        self._before_s = self.tree.usage().cpu_s  # what making the box has used, which the agent need not pay
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was ended
            self.process.stdin.write("\n")  # the agent may start
            self.process.stdin.flush()

    def _refuse(self, error: str | None) -> None:
        assert self.process.stderr is not None
        words = error or self.process.stderr.read().strip()
        self.__exit__()
        self.process.stderr.close()
        raise FleetgymError(
            f"bubblewrap cannot start the box of an official run here ({printable(words)}); "
            "docs/official-runs.md says what the box needs"
        )

    def usage(self) -> Usage:
        """Return what the agent has used until now (CPU seconds), and uses now (memory, processes)."""
        used = self.tree.usage()
        return dataclasses.replace(used, cpu_s=max(0.0, used.cpu_s - self._before_s))

    def cause_of_death(self) -> str:
        """Return how the agent's own process ended, in words."""
        ready, _, _ = select.select([self._status], [], [], 5.0)
        if not ready:
            return "the agent closed its channel"
        facts = json.loads(self._status.readline() or "{}")
        if "error" in facts:
            return f"the agent cannot be started: {facts['error']}"
        if "signal" in facts:
            return describe_end(-facts["signal"])
        return describe_end(facts["exit"]) if "exit" in facts else "the agent's processes were ended"

    def end(self) -> None:
        """End everything in the box: with its first process, the kernel ends all others."""
        for pid in self.tree.processes()[1:2] or [self.process.pid]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._status.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def _pass_on(stderr: IO[str]) -> None:
    """Pass on the beginning of what an agent prints, and swallow the rest."""
    left = _STDERR_BYTES
    with stderr, contextlib.suppress(OSError, ValueError):
        while text := stderr.readline(4096):
            if left > 0:
                sys.stderr.write("\n".join(printable(line) for line in text[:left].split("\n")))
            left -= len(text)
