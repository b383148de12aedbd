"""Check before a run that its agents can be made, and which instances they play.

A run records a failing agent and continues, perhaps for hours. A class that does not exist, or that does not take the
given arguments, is found before.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import subprocess
import threading
from collections.abc import Iterable, Sequence

from fleetgym.agents.registry import make_agent, parse_agent
from fleetgym.evaluation.isolation.agent_process import (
    PYTHON,
    agent_environment,
    agents_module_path,
    describe_end,
)
from fleetgym.evaluation.isolation.agent_runner import AgentFailure, guarded, tidy
from fleetgym.evaluation.isolation.sandbox import Sandbox
from fleetgym.evaluation.isolation.visible import hidden_files
from fleetgym.evaluation.isolation.wire import MAX_REPLY_CHARS
from fleetgym.files.errors import FleetgymError
from fleetgym.model.library import load_instance

_MAKE = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from fleetgym.evaluation.isolation.preflight import main; main(*sys.argv[2:])"
)
#: Marks the reason among what the agent's own code prints.
_REASON = "fleetgym-preflight: "
_FIT = "fleetgym-fit: "
_ADDRESS_SPACE_BYTES = 16e9


class _NotMade(Exception):
    """Why an agent cannot be made."""


def preflight(agents: Iterable[str], most_s: float = 300.0, *, boxed: bool = False) -> None:
    """Create each agent once: reference agents in this process, others in a separate one.

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
            if spec.is_reference or spec.is_here:
                _make_here(name)
            else:
                _make_elsewhere(name, most_s, boxed, spec.code_sha256, tuple(agents_module_path()))
        except _NotMade as error:
            raise FleetgymError(f"cannot make the agent {name!r}: {error}") from None


@dataclasses.dataclass(frozen=True)
class Fit:
    """The instances that a trained agent can play."""

    misfits: dict[str, str]  # instances that it does not play, and why
    trained_on: tuple[str, ...]  # instances that it was trained on


def fit_of(name: str, instances: Sequence[str], most_s: float = 300.0) -> Fit:
    """Ask an agent which instances it plays, in a process of its own; ours play all, and so do those that do not say.

    An agent says so by a method ``misfit(instance)``, which returns why it does not play an instance, or None, and by
    an attribute `trained_on`, ids of instances. `fleetgym.envs.policy_agent.PolicyAgent` has both.

    Parameters
    ----------
    name : str
        As for `make_agent`; it can be made.
    instances : sequence of str
        Ids or paths.
    most_s : float
        Wall seconds that the answer may take.

    Raises
    ------
    FleetgymError
        If it does not answer.

    Examples
    --------
    >>> fit_of("hold", ["fleet-v0/toy/two-pools"]).misfits
    {}
    """
    if parse_agent(name).is_reference:
        return Fit({}, ())
    if parse_agent(name).is_here:
        return _asked(name, instances)
    command = [PYTHON, "-c", _MAKE, json.dumps(agents_module_path()), name, *instances]
    try:
        printed, end = _run(command, name, most_s)
    except subprocess.TimeoutExpired:
        raise FleetgymError(f"{name!r} takes over {most_s:g} s to say which instances it plays") from None
    for line in reversed(printed.splitlines()):
        if line.startswith(_FIT):
            misfits, trained_on = json.loads(line.removeprefix(_FIT))
            return Fit({str(k): str(v) for k, v in misfits.items()}, tuple(map(str, trained_on)))
    raise FleetgymError(f"{name!r} does not say which instances it plays: {end}")


def _asked(name: str, instances: Sequence[str]) -> Fit:
    agent = make_agent(name)
    misfit, trained_on = getattr(agent, "misfit", None), getattr(agent, "trained_on", ())
    reasons = {} if misfit is None else {each: misfit(load_instance(each)) for each in instances}
    return Fit({each: str(why) for each, why in reasons.items() if why is not None}, tuple(trained_on))


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
    command = [PYTHON, "-c", _MAKE, json.dumps(path), name]
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
        late = threading.Timer(most_s, box.end)
        late.daemon = True
        late.start()
        assert box.process.stdout is not None
        printed = box.process.stdout.read(MAX_REPLY_CHARS)
        if not late.is_alive():
            raise subprocess.TimeoutExpired(command, most_s)
        late.cancel()
        return printed, box.cause_of_death()


def main(name: str, *instances: str) -> None:
    """Make one agent and print why that is not possible, if so; and which of some instances it does not play."""
    try:
        _make_here(name)
        if instances:
            fit = _asked(name, instances)
            print(f"\n{_FIT}{json.dumps([fit.misfits, fit.trained_on])}", flush=True)
    except _NotMade as error:
        print(f"\n{_REASON}{error}", flush=True)
