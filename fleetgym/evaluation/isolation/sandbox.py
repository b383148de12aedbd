"""A command in, a process tree out that is kept from the stored scenarios, and where possible from all but itself.

The work is done by `supervisor`, a small program between the run and the agent; this is its side in the run's process.
"""

from __future__ import annotations

import contextlib
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

from fleetgym.evaluation.isolation.agent_process import agent_environment, describe_end, module_path
from fleetgym.evaluation.isolation.process_tree import ProcessTree
from fleetgym.files.errors import FleetgymError, printable
from fleetgym.model.library import is_path
from fleetgym.model.sets import set_folders
from fleetgym.runtime.places import PACKAGE, checkout, reference_agents
from fleetgym.runtime.threads import THREADS

#: Folders and files to hide beside our own, separated as in PATH; and what of them is needed, so it stays.
HIDE_VARIABLE, SHOW_VARIABLE = "FLEETGYM_HIDE", "FLEETGYM_SHOW"
#: An agent gets the environment variables whose names begin so, and those that this one names: no passwords.
PASSED = (
    "PATH",
    "HOME",
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
#: Doors to other processes that are files: sockets of services, terminals.
_DOORS = ("/run", "/var/run", "/dev/pts")
#: Set to anything: use no namespaces, as if the system forbade them.
_NO_NAMESPACES = "FLEETGYM_NO_NAMESPACES"
_STDERR_BYTES = 2**16  # of an agent's stderr that is passed on, per episode


def probe_isolation() -> dict[str, str]:
    """Return what an agent can be kept from on this machine: ``network``, ``processes`` and ``files``."""
    with Sandbox([sys.executable, "-I", "-S", "-c", ""], 2.0, ()) as sandbox:
        return sandbox.facts


def hidden_files(instance: str | None = None) -> list[str]:
    """Return the folders and files that an agent must not read: stored scenarios, results, the leaderboard.

    Beside them, doors to processes outside: sockets of services, and terminals. More, such as a season's private seed,
    may be named in the environment variable ``FLEETGYM_HIDE``.

    Parameters
    ----------
    instance : str, optional
        Id or path of the instance that is played: of a path, the scenarios beside it are hidden.
    """
    found, root = [*set_folders(), PACKAGE / "_instances"], checkout()
    if root is not None:
        found += [root / name for name in ("instances", "leaderboard", "results", ".git")]
    found += [Path(door) for door in _DOORS]
    found += _places(HIDE_VARIABLE)
    if instance is not None and is_path(instance):
        stem = Path(instance).name.removesuffix(".gz").removesuffix(".json")
        found += [Path(instance).parent / f"{stem}.scenarios.json{packed}" for packed in ("", ".gz")]
    places = {path.resolve() for path in found if path.exists()}
    return sorted(str(place) for place in places if place != place.parent)  # all there is cannot be hidden


def needed_files(hidden: Sequence[str]) -> list[str]:
    """Return what an agent cannot run without, in case that a folder around it is hidden.

    Python, this package, and every place of the module path that does not hold something hidden.
    """
    around = {str(parent) for path in hidden for parent in (Path(path), *Path(path).parents)}
    modules = [place for place in module_path() if os.path.realpath(place) not in around]
    places = [sys.prefix, sys.base_prefix, str(PACKAGE), str(reference_agents()), *modules]
    return sorted({os.path.realpath(place) for place in (*places, *map(str, _places(SHOW_VARIABLE)))})


def _places(variable: str) -> list[Path]:
    return [Path(place) for place in os.environ.get(variable, "").split(os.pathsep) if place]


def _passed_on() -> dict[str, str]:
    """Return the environment variables that an agent gets."""
    named = {*THREADS, *os.environ.get(PASS_VARIABLE, "").split(os.pathsep)}
    return {
        name: value for name, value in agent_environment().items() if name in named or name.startswith(PASSED)
    }


class Sandbox:
    """A command that runs below a supervisor: its tree, its pipes, and how it ended.

    Parameters
    ----------
    command : list of str
        The agent's.
    address_space_bytes : float
        Limit of each of its processes.
    hide : sequence of str
        Folders and files.
    """

    def __init__(self, command: list[str], address_space_bytes: float, hide: Sequence[str]):
        from fleetgym.kernels.compile import cache_folder

        if not sys.platform.startswith("linux"):
            raise FleetgymError(
                "an agent can be kept apart in a sandbox on Linux only; a run that is not official does without"
            )
        self._scratch = tempfile.mkdtemp(prefix="fleetgym-agent-")
        cache = cache_folder()
        environment = _passed_on() | {
            "TMPDIR": self._scratch,
            "NUMBA_CACHE_DIR": os.path.join(self._scratch, "numba"),
        }
        if cache is not None:
            environment["FLEETGYM_CACHE_DIR"] = str(cache.parent)
        status, status_end = os.pipe()
        control_end, self._control = os.pipe()
        plan = {
            "command": command,
            "cwd": os.getcwd(),
            "scratch": self._scratch,
            "cache": None if cache is None else str(cache),
            "hide": list(hide),
            "show": [*needed_files(hide), self._scratch, *([] if cache is None else [str(cache)])],
            "isolate": not os.environ.get(_NO_NAMESPACES),
            "address_space_bytes": int(address_space_bytes),
            "status_fd": status_end,
            "control_fd": control_end,
        }
        script = str(Path(__file__).with_name("supervisor.py"))
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, "-I", "-S", script, json.dumps(plan)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            text=True,
            encoding="utf-8",
            errors="replace",
            pass_fds=(status_end, control_end),
            start_new_session=True,
        )
        os.close(status_end)
        os.close(control_end)
        threading.Thread(target=_pass_on, args=(self.process.stderr,), daemon=True).start()
        self._status = os.fdopen(status, encoding="utf-8")
        self.tree = ProcessTree(self.process.pid)
        self.facts: dict[str, str] = json.loads(self._status.readline() or "{}")
        if not self.facts:
            self.end()
            raise FleetgymError("cannot start an agent's process; official runs need Linux 5.3 or newer")

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
        self.tree.kill()
        os.close(self._control)
        self._status.close()
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
