"""A process tree that is kept from the stored scenarios, and where possible from all but itself.

The work is done by `supervisor`, a small program between the run and the agent; this is its side in the run's process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from fleetgym.evaluation.isolation.agent_process import agent_environment, describe_end
from fleetgym.evaluation.isolation.cgroup import ControlGroup
from fleetgym.evaluation.isolation.confine import Filter
from fleetgym.evaluation.isolation.doors import Targets
from fleetgym.evaluation.isolation.process_tree import ProcessTree, Usage
from fleetgym.evaluation.isolation.visible import hidden_files, visible_files
from fleetgym.files.errors import FleetgymError, printable
from fleetgym.runtime.places import PACKAGE
from fleetgym.runtime.threads import THREADS

#: An agent gets the environment variables whose names begin so, and those that this one names: no passwords.
PASSED = (
    "PATH",
    "LANG",
    "LC_",
    "TZ",
    "LD_LIBRARY_PATH",
    "PYTHON",
    "VIRTUAL_ENV",
    "NUMBA_",
    "FLEETGYM_",
)
PASS_VARIABLE = "FLEETGYM_PASS"
#: Set to anything: use no namespaces, or not bubblewrap, or no control groups, as if the system had none.
NO_NAMESPACES, NO_BUBBLEWRAP = "FLEETGYM_NO_NAMESPACES", "FLEETGYM_NO_BUBBLEWRAP"
NO_CONTROL_GROUPS = "FLEETGYM_NO_CONTROL_GROUPS"
_CACHE = "cache"  # in the agent's folder
_STDERR_BYTES = 2**16  # of an agent's stderr that is passed on, per episode
#: Runs a module of this package without the package's own start, which takes longer than an agent's.
_START = (
    "import sys, types; package = types.ModuleType('fleetgym'); package.__path__ = [sys.argv[1]];"
    "sys.modules['fleetgym'] = package;"
)
_SUPERVISOR = "from fleetgym.evaluation.isolation.supervisor import main; main()"
_INIT = "from fleetgym.evaluation.isolation.init import main; main()"


def probe_isolation() -> dict[str, str]:
    """Return what an agent can be kept from on this machine.

    Returns
    -------
    dict of str to str
        ``network``, ``processes``, ``files`` and ``cpu_time``, as in `Rules`. A process like the agent's has tried.

    Raises
    ------
    FleetgymError
        If no agent's process can be started.
    """
    hidden = hidden_files()
    with Sandbox([sys.executable, "-I", "-S", "-c", ""], 2.0e9, hidden) as sandbox:
        return sandbox.facts


@functools.cache
def bubblewrap() -> str | None:
    """Return the path of bubblewrap's program, if it is installed and can make namespaces here."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    words = [program, "--unshare-pid", "--unshare-net", "--ro-bind", "/", "/", "--proc", "/proc"]
    words += [] if os.geteuid() == 0 else ["--unshare-user"]
    try:
        tried = subprocess.run([*words, "--", "true"], capture_output=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return program if tried.returncode == 0 else None


def _environment(scratch: str) -> dict[str, str]:
    """Return the environment variables of an agent."""
    named = {*THREADS, *os.environ.get(PASS_VARIABLE, "").split(os.pathsep)}
    found = {
        name: value for name, value in agent_environment().items() if name in named or name.startswith(PASSED)
    }
    own = {"FLEETGYM_CACHE_DIR": _CACHE, "NUMBA_CACHE_DIR": "numba", "TMPDIR": "", "HOME": ""}
    return found | {name: os.path.join(scratch, folder) for name, folder in own.items()}


class Sandbox:
    """A command that runs below a supervisor: its tree, its pipes, and how it ended.

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
        If the system cannot start an agent so.
    """

    def __init__(
        self,
        command: list[str],
        address_space_bytes: float,
        hidden: Sequence[str],
        agent: str | None = None,
    ):
        if not sys.platform.startswith("linux"):
            raise FleetgymError(
                "an agent can be kept apart in a sandbox on Linux only; a run that is not official does without"
            )
        from fleetgym.kernels.compile import cache_folder

        kernels = cache_folder()
        visible = visible_files(agent, hidden)
        self._scratch = tempfile.mkdtemp(prefix="fleetgym-agent-")
        os.chmod(self._scratch, 0o777 if os.geteuid() == 0 else 0o700)  # as root the agent is another user
        self._group = None if os.environ.get(NO_CONTROL_GROUPS) else ControlGroup.make()
        group_fd = None if self._group is None else os.open(self._group.folder / "cgroup.procs", os.O_WRONLY)
        status, status_end = os.pipe()
        control_end, self._control = os.pipe()
        isolate = not os.environ.get(NO_NAMESPACES)
        start = [sys.executable, "-I", "-S", "-c"]
        with Targets() as targets, os.fdopen(os.memfd_create("fleetgym-plan"), "w+b") as written:
            plan = {
                "command": command,
                "cwd": os.getcwd(),
                "scratch": self._scratch,
                "visible": visible,
                "masked": [path for path in hidden if any(Path(path).is_relative_to(v) for v in visible)],
                "secret": list(hidden),
                "writable": [self._scratch],
                "kernels": None if kernels is None else str(kernels),
                "cache": os.path.join(self._scratch, _CACHE),
                "targets": targets.as_dict(),
                "isolate": isolate,
                "bwrap": bubblewrap() if isolate and not os.environ.get(NO_BUBBLEWRAP) else None,
                "start": [*start, _START + _INIT, str(PACKAGE)],
                "address_space_bytes": int(address_space_bytes),
                "status_fd": status_end,
                "control_fd": control_end,
                "group_fd": group_fd,
                "group": None if self._group is None else str(self._group.folder),
            }
            written.write(json.dumps(plan).encode())
            written.flush()
            ends = [fd for fd in (status_end, control_end, group_fd) if fd is not None]
            self.process: subprocess.Popen[str] = subprocess.Popen(
                [*start, _START + _SUPERVISOR, str(PACKAGE), str(written.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=_environment(self._scratch),
                text=True,
                encoding="utf-8",
                errors="replace",
                pass_fds=[*ends, written.fileno()],
                start_new_session=True,
            )
            for fd in ends:
                os.close(fd)
            threading.Thread(target=_pass_on, args=(self.process.stderr,), daemon=True).start()
            self._status = os.fdopen(status, encoding="utf-8")
            self.tree = ProcessTree(self.process.pid)
            self.facts: dict[str, str] = json.loads(self._status.readline() or "{}")
        if "processes" not in self.facts:
            self.__exit__()
            why = self.facts.get("error", "official runs need Linux 5.3 or newer")
            raise FleetgymError(f"cannot start an agent's process: {why}")
        self.facts["cpu_time"] = "counted" if self._counts_all() else "sampled"
        # Below the supervisor, what it and its probe used does not count. The group holds the agent alone.
        self._before_s = 0.0 if self._group is not None else self._cpu_s()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it was ended
            self.process.stdin.write("\n")  # the agent may start
            self.process.stdin.flush()

    def usage(self) -> Usage:
        """Return what the agent has used until now (CPU seconds), and uses now (memory, processes)."""
        used = self.tree.usage()
        return dataclasses.replace(used, cpu_s=max(0.0, self._cpu_s(used) - self._before_s))

    def _cpu_s(self, used: Usage | None = None) -> float:
        if self._group is not None:
            return self._group.cpu_s()
        return (used or self.tree.usage()).cpu_s

    def _counts_all(self) -> bool:
        """Return whether no child can end unseen: a control group counts, or nobody can ignore children."""
        return self._group is not None or Filter.find() is not None

    def cause_of_death(self) -> str:
        """Return how the agent's own process ended, in words."""
        ready, _, _ = select.select([self._status], [], [], 5.0)
        if not ready:
            return "the agent closed its channel"
        facts = json.loads(self._status.readline() or "{}")
        if "signal" in facts:
            return describe_end(-facts["signal"])
        return describe_end(facts["exit"]) if "exit" in facts else "the agent's process tree was ended"

    def end(self) -> None:
        """End everything that the agent started, and remove its folder."""
        if self._group is not None:
            self._group.kill()
        self.tree.kill()
        os.close(self._control)
        self._status.close()
        if self._group is not None:
            self._group.remove()
        with contextlib.suppress(OSError):
            shutil.rmtree(self._scratch)

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
