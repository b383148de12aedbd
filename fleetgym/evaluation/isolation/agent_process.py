"""Run an agent in a separate process, and ask it for actions by lines of JSON over pipes.

The parent never unpickles output of the agent's process. The agent's prints go to stderr.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym.agents.registry import agent_places
from fleetgym.evaluation.isolation.agent_runner import AgentFailure
from fleetgym.evaluation.isolation.wire import (
    MAX_REPLY_CHARS,
    act_message,
    decode,
    encode,
    new_id,
    read_reply,
    reset_message,
    to_line,
)
from fleetgym.model.instance import Instance
from fleetgym.runtime.threads import THREADS

__all__ = ["AgentProcess", "Limits", "agent_command", "agent_environment", "decode", "encode"]

#: This interpreter's path without "..", as the box shows it; links stay, since a virtual environment is one.
PYTHON = os.path.abspath(sys.executable)
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from fleetgym.evaluation.isolation.agent_server import main; main()"
)
#: Lines that the parent holds unread; then the agent's process waits, so that it cannot fill the parent's memory.
_MOST_UNREAD = 4
_FULL_S = 0.01


@dataclasses.dataclass(frozen=True)
class Limits:
    """The limits of an isolated agent, beyond which it fails; wall time, so they are generous.

    Parameters
    ----------
    reset_wall_s, act_wall_s, episode_wall_s : float
        For imports and `reset`, for one `act`, and for all of an episode.
    memory_gb : float, optional
        Most address space of the agent's process; None: no limit.
    """

    reset_wall_s: float = 300.0
    act_wall_s: float = 60.0
    episode_wall_s: float = 3600.0
    memory_gb: float | None = None


def agent_command(memory_gb: float | None) -> list[str]:
    """Return the command that serves Python agents, with the module path of agents."""
    return [PYTHON, "-c", _START, json.dumps(agents_module_path()), json.dumps(memory_gb)]


def module_path() -> list[str]:
    """Return where this process looks for modules, the current folder by its name."""
    return [os.path.abspath(place) for place in sys.path]


def agents_module_path() -> list[str]:
    """Return where agents' processes look for modules: as this one does, then in the folders of `AGENT_PATH`."""
    return [*module_path(), *agent_places()]


def agent_environment() -> dict[str, str]:
    """Return the environment of an agent's process: this one's, one thread unless it says otherwise, equal hashes."""
    return {**os.environ, **{name: os.environ.get(name, "1") for name in THREADS}, "PYTHONHASHSEED": "0"}


class AgentProcess:
    """An agent in a separate process, with the interface of `LocalAgent`.

    Parameters
    ----------
    name : str
        As for `make_agent`.
    limits : Limits
        Wall time and memory.
    """

    #: Reference CPU seconds per CPU second; known in official runs only.
    speed: float | None = None

    def __init__(self, name: str, limits: Limits):
        self.name, self.limits = name, limits
        self._deadline = 0.0
        self._process: subprocess.Popen[str] | None = None

    def reset(self, instance: Instance, info: Mapping[str, Any], seed: int) -> float:
        """Begin an episode; start the process if there is none. Return the agent's CPU seconds.

        Raises
        ------
        AgentFailure
            If the agent raises, dies or is late.
        """
        if self._process is None:
            self._start()
        self._deadline = time.monotonic() + self.limits.episode_wall_s
        message = reset_message(new_id(), self.name, instance, info, seed)
        return self._ask(message, self.limits.reset_wall_s)["cpu_s"]

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> tuple[list[int], float]:
        """Return the agent's action, not yet checked, and its CPU seconds.

        Raises
        ------
        AgentFailure
            If the agent raises, dies or is late.
        """
        reply = self._ask(act_message(new_id(), observation, info), self.limits.act_wall_s)
        return reply["action"], reply["cpu_s"]

    def close(self) -> None:
        """End the process and its group. What has left the group goes on; only official runs end that too."""
        process, self._process = self._process, None
        if process is None:
            return
        self._kill(process)
        process.wait()
        self._outbox.put(None)

    # -- the process

    def _start(self) -> None:
        self._begin(
            subprocess.Popen(
                agent_command(self.limits.memory_gb),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
                env=agent_environment(),
                start_new_session=True,  # so that the agent's own children can be ended with it
            )
        )

    def _begin(self, process: subprocess.Popen[str]) -> None:
        """Serve the pipes by threads: a pipe may block on either side, and the parent must never wait for ever.

        Ctrl-C inside of a `queue.Queue` may leave its lock held, and whoever closes the agent would wait for it.
        """
        self._process = process
        self._inbox: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._outbox: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        for work, box in ((self._receive, self._inbox), (_send, self._outbox)):
            threading.Thread(target=work, args=(process, box), daemon=True).start()

    def _receive(self, process: subprocess.Popen[str], inbox: queue.SimpleQueue[str | None]) -> None:
        assert process.stdout is not None
        with process.stdout as pipe, contextlib.suppress(OSError, ValueError):
            while self._process is process and (line := pipe.readline(MAX_REPLY_CHARS)):
                while inbox.qsize() >= _MOST_UNREAD and self._process is process:
                    time.sleep(_FULL_S)
                inbox.put(line)
        inbox.put(None)

    def _kill(self, process: subprocess.Popen[str]) -> None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError, AttributeError):
            process.kill()

    # -- questions and answers

    def _ask(self, message: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Send a message and return the reply; any trouble ends the process."""
        try:
            self._outbox.put(to_line(message))
            return read_reply(self._wait(limit_s), message["id"])
        except BaseException:
            self.close()
            raise

    def _wait(self, limit_s: float) -> str:
        left_s = self._deadline - time.monotonic()
        try:
            reply = self._inbox.get(timeout=max(0.0, min(limit_s, left_s)))
        except queue.Empty:
            what = "one answer" if limit_s < left_s else "the episode"
            seconds = limit_s if limit_s < left_s else self.limits.episode_wall_s
            raise AgentFailure("timeout", f"took over {seconds:g} s of wall time for {what}") from None
        if reply is None:
            raise AgentFailure("died", self._cause_of_death())
        return reply

    def _cause_of_death(self) -> str:
        assert self._process is not None
        try:
            code = self._process.wait(timeout=5.0)
        except subprocess.TimeoutExpired:
            return "the agent closed its channel"
        return describe_end(code)


def describe_end(code: int) -> str:
    """Return how a process ended in words.

    Examples
    --------
    >>> describe_end(3), describe_end(-9)
    ("the agent's process ended with exit code 3", "the agent's process was ended by SIGKILL")
    """
    if code < 0:
        known = {int(number): number.name for number in signal.Signals}
        return f"the agent's process was ended by {known.get(-code, f'signal {-code}')}"
    return f"the agent's process ended with exit code {code}"


def _send(process: subprocess.Popen[str], outbox: queue.SimpleQueue[str | None]) -> None:
    assert process.stdin is not None
    try:
        with process.stdin as pipe:
            while (line := outbox.get()) is not None:
                pipe.write(line)
                pipe.flush()
    except OSError:  # the process died; the other thread tells
        pass
