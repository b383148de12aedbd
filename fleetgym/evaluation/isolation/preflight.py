"""Names of agents in; nothing, or an error that says which of them cannot be made and why, out.

A run notes a failing agent and goes on, for hours perhaps. That its class does not exist, or does not take the
arguments that were given, is known before.
"""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import threading
from collections.abc import Iterable

from fleetgym.agents.registry import make_agent, parse_agent
from fleetgym.evaluation.isolation.agent_process import agent_environment, agents_module_path, describe_end
from fleetgym.evaluation.isolation.agent_runner import AgentFailure, guarded, tidy
from fleetgym.evaluation.isolation.sandbox import Sandbox
from fleetgym.evaluation.isolation.visible import hidden_files
from fleetgym.evaluation.isolation.wire import MAX_REPLY_CHARS
from fleetgym.files.errors import FleetgymError

_MAKE = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from fleetgym.evaluation.isolation.preflight import main; main(sys.argv[2])"
)
#: Marks the reason among what the agent's own code prints.
_REASON = "fleetgym-preflight: "
_ADDRESS_SPACE_BYTES = 16e9


class _NotMade(Exception):
    """Why an agent cannot be made."""


def preflight(agents: Iterable[str], most_s: float = 300.0, *, boxed: bool = False) -> None:
    """Make each agent once: ours in this process, others in one of their own.

    Parameters
    ----------
    agents : iterable of str
        As for `make_agent`.
    most_s : float
        Wall seconds that one may take in a process of its own.
    boxed : bool
        Make others in the box of an official run.

    Raises
    ------
    FleetgymError
        For the first that cannot be made. One that was made, and not edited since, is not tried again.

    Examples
    --------
    >>> preflight(["hold", "gh(margin=0.2)"])
    """
    for name in agents:
        spec = parse_agent(name)
        try:
            if spec.is_reference or spec.target.startswith("__main__:"):  # which only this process has
                _make_here(name)
            else:
                _make_elsewhere(name, most_s, boxed, spec.code_sha256, tuple(agents_module_path()))
        except _NotMade as error:
            raise FleetgymError(f"cannot make the agent {name!r}: {error}") from None


def _make_here(name: str) -> None:
    try:
        guarded(lambda: make_agent(name))
    except AgentFailure as failure:
        said = failure.__cause__
        raise _NotMade(tidy(str(said)) if isinstance(said, FleetgymError) else failure.message) from None


@functools.cache
def _make_elsewhere(
    name: str, most_s: float, boxed: bool, code_sha256: str | None, path: tuple[str, ...]
) -> None:
    """Make an agent in a process of its own; with what it depends on, so that it is done once for each state."""
    command = [sys.executable, "-c", _MAKE, json.dumps(path), name]
    try:
        printed, end = (_run_boxed if boxed else _run)(command, name, most_s)
    except subprocess.TimeoutExpired:
        raise _NotMade(f"it takes over {most_s:g} s") from None
    for line in printed.splitlines():
        if line.startswith(_REASON):
            raise _NotMade(line.removeprefix(_REASON))
    if end != describe_end(0):
        raise _NotMade(end)


def _run(command: list[str], name: str, most_s: float) -> tuple[str, str]:
    """Return what a command printed, and how it ended."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=agent_environment(),
        timeout=most_s,
    )
    return done.stdout, describe_end(done.returncode)


def _run_boxed(command: list[str], name: str, most_s: float) -> tuple[str, str]:
    """Return what a command printed in the box of an official run, and how it ended."""
    with Sandbox(command, _ADDRESS_SPACE_BYTES, hidden_files(), name) as box:
        late = threading.Timer(most_s, box.tree.kill)
        late.daemon = True
        late.start()
        assert box.process.stdout is not None
        printed = box.process.stdout.read(MAX_REPLY_CHARS)
        if not late.is_alive():
            raise subprocess.TimeoutExpired(command, most_s)
        late.cancel()
        return printed, box.cause_of_death()


def main(name: str) -> None:
    """Make one agent and print why that is not possible, if so."""
    try:
        _make_here(name)
    except _NotMade as error:
        print(f"\n{_REASON}{error}", flush=True)
