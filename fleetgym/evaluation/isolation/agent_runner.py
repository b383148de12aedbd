"""Run an agent in this process: check its actions, measure its CPU seconds, and name its failures."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fleetgym.agents.agent import Agent
from fleetgym.agents.registry import make_agent, parse_agent
from fleetgym.agents.view import View
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.kernels.compile import compile_seconds
from fleetgym.model.instance import Instance
from fleetgym.runtime.places import PACKAGE

#: Environment variable: if it is set, the traceback of what an agent raises is printed to stderr.
TRACEBACK = "FLEETGYM_TRACEBACK"


class AgentFailure(Exception):
    """A failure of an agent; the episode continues without it.

    Parameters
    ----------
    kind : str
        One of `fleetgym.evaluation.isolation.rules.FAILURE_KINDS`.
    message : str
        What happened; made the same for every run, and short.
    """

    def __init__(self, kind: str, message: str):
        self.kind, self.message = kind, tidy(message)
        super().__init__(f"{kind}: {self.message}")


def tidy(message: str, limit: int = 300) -> str:
    """Return a message on one line, without what differs from run to run.

    Examples
    --------
    >>> tidy("bad <Thing at 0x7f3a>" + chr(10) + "more")
    'bad <Thing at 0x...> more'
    """
    line = re.sub(r"0x[0-9a-fA-F]+", "0x...", re.sub(r"[\x00-\x1f\s]+", " ", message)).strip()
    line = line.encode("utf-8", "replace").decode()
    return line if len(line) <= limit else line[: limit - 3] + "..."


def describe_error(error: BaseException) -> str:
    """Return an error's class, text, and the agent's line that it came from, whatever of ours it called."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    ours = tuple(f"{folder}{os.sep}" for folder in (str(PACKAGE), sys.prefix, sys.base_prefix))
    frames = traceback.extract_tb(error.__traceback__)
    outside = [f for f in frames if not f.filename.startswith((*ours, "<"))]
    if not outside:
        return text
    return f"{text} ({Path(outside[-1].filename).name}:{outside[-1].lineno} in {outside[-1].name})"


def cpu_seconds() -> float:
    """Return the CPU seconds that this process and its finished children have used."""
    try:
        import resource
    except ImportError:  # Windows: children are not counted
        return time.process_time()
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def load_kernels(instance: Instance, agents: Iterable[str] = ()) -> None:
    """Load what a window takes into this process; what is not in the user's cache is compiled and kept there.

    So are the kernels of reference agents.
    """
    for name in agents:
        if parse_agent(name).is_reference:
            with contextlib.suppress(FleetgymError):
                make_agent(name)
    view = View(instance)
    view.preview(view.fleet)


class LocalAgent:
    """An agent in this process, created again for every episode so that it cannot remember another.

    Parameters
    ----------
    name : str
        As for `make_agent`.
    """

    speed: float | None = None  # see `AgentProcess`

    def __init__(self, name: str):
        self.name = name
        self._agent: Agent
        self._view: View

    def reset(self, instance: Instance, info: Mapping[str, Any], seed: int) -> float:
        """Make the agent and prepare it for an episode; return the CPU seconds it took.

        Raises
        ------
        AgentFailure
            If the agent cannot be made, or its reset raises.
        """
        load_kernels(instance)  # for which the agent need not pay
        self._view = View(instance)
        self._view.update(info)

        def prepare() -> None:
            self._agent = make_agent(self.name)
            self._agent.reset(self._view, seed=seed)

        return guarded(prepare)[1]

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> tuple[list[int], float]:
        """Return the agent's action and the CPU seconds it took.

        Raises
        ------
        AgentFailure
            If the agent raises, or its action is not valid.
        """
        self._view.update(info)
        action, cpu_s = guarded(lambda: self._agent.act(observation, info))
        try:
            return self._view.actions.check(action).tolist(), cpu_s
        except DataError as error:
            raise AgentFailure("invalid-action", str(error)) from None

    def close(self) -> None:
        """Release nothing: only an `AgentProcess` has something to release."""


def guarded(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return what the agent's code returned and its CPU seconds; whatever it raises is its failure.

    Compiling our kernels counts nothing. What it prints goes to stderr, since stdout is the run's.
    """
    begin = cpu_seconds() - compile_seconds()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            value = call()
    except (KeyboardInterrupt, AgentFailure):  # the latter from a program, which has named its failure
        raise
    except BaseException as error:  # SystemExit too: an agent may not end the run
        if os.environ.get(TRACEBACK):
            traceback.print_exception(error)
        raise AgentFailure("raised", describe_error(error)) from error
    return value, max(0.0, cpu_seconds() - compile_seconds() - begin)
