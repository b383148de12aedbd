"""An agent in a process of its own: JSON lines over pipes in, actions out; limits and death are noticed.

The parent never unpickles anything that the agent's process wrote. What the agent prints goes to stderr.
"""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from typing import IO, Any

import numpy as np

from fleetgym.errors import DataError
from fleetgym.evaluation.agent_runner import AgentFailure, LocalAgent
from fleetgym.evaluation.episode import FAILURE_KINDS
from fleetgym.files import parse_json

#: Linear algebra in one thread: the same sums in the same order, and no fight over cores.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from fleetgym.evaluation.agent_process import main; main()"
)
_MAX_REPLY_CHARS = 2**24


@dataclasses.dataclass(frozen=True)
class Limits:
    """What an isolated agent may take before it counts as failed; wall time, so it is generous.

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


# -- arrays as JSON


def encode(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a mapping of arrays and plain values as JSON values; `decode` restores every bit.

    Examples
    --------
    >>> decode(encode({"x": np.float32([0.1]), "n": 3}))
    {'x': array([0.1], dtype=float32), 'n': 3}
    """
    return {
        name: {"dtype": str(value.dtype), "array": value.tolist()} if isinstance(value, np.ndarray) else value
        for name, value in values.items()
    }


def decode(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the mapping that `encode` was given."""
    return {
        name: np.array(value["array"], dtype=value["dtype"]) if isinstance(value, dict) else value
        for name, value in values.items()
    }


# -- the parent's side


class AgentProcess:
    """An agent that runs in a spawned process; the same calls as `LocalAgent`.

    Parameters
    ----------
    name : str
        As for `make_agent`.
    limits : Limits
        Wall time and memory.
    """

    def __init__(self, name: str, limits: Limits):
        self.name, self.limits = name, limits
        self._deadline = 0.0
        self._process: subprocess.Popen[str] | None = None

    def reset(self, instance: str, info: Mapping[str, Any], seed: int) -> float:
        """Begin an episode; start the process if there is none. Return the agent's CPU seconds.

        Raises
        ------
        AgentFailure
            If the agent raises, dies or is late.
        """
        if self._process is None:
            self._start()
        self._deadline = time.monotonic() + self.limits.episode_wall_s
        message = {
            "do": "reset",
            "agent": self.name,
            "instance": instance,
            "info": encode(info),
            "seed": seed,
        }
        return self._ask(message, self.limits.reset_wall_s)["cpu_s"]

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> tuple[list[int], float]:
        """Return the agent's action, not yet checked, and its CPU seconds.

        Raises
        ------
        AgentFailure
            If the agent raises, dies or is late.
        """
        message = {"do": "act", "observation": encode(observation), "info": encode(info)}
        reply = self._ask(message, self.limits.act_wall_s)
        return reply.get("action", []), reply["cpu_s"]

    def close(self) -> None:
        """End the process and everything that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        _kill_group(process)
        process.wait()
        self._outbox.put(None)

    def _start(self) -> None:
        environment = {**os.environ, **{name: os.environ.get(name, "1") for name in _ONE_THREAD}}
        memory = json.dumps(self.limits.memory_gb)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps([p or os.getcwd() for p in sys.path]), memory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            env=environment,
            start_new_session=True,  # so that the agent's own children can be ended with it
        )
        # Threads, because a pipe may block on either side, and the parent must never wait for ever.
        self._inbox: queue.Queue[str | None] = queue.Queue()
        self._outbox: queue.Queue[str | None] = queue.Queue()
        for work in (_receive, _send):
            pipe = self._process.stdout if work is _receive else self._process.stdin
            box = self._inbox if work is _receive else self._outbox
            threading.Thread(target=work, args=(pipe, box), daemon=True).start()

    def _ask(self, message: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
        """Send a message and return the reply; any trouble ends the process."""
        try:
            self._outbox.put(json.dumps(message, allow_nan=False) + "\n")
            return self._checked(self._wait(limit_s))
        except AgentFailure:
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
        if code < 0:
            return f"the agent's process was ended by {signal.Signals(-code).name}"
        return f"the agent's process ended with exit code {code}"

    @staticmethod
    def _checked(line: str) -> dict[str, Any]:
        """Return a reply whose form is right; its action is checked by whoever plays it."""
        try:
            reply = parse_json(line)
        except DataError as error:
            raise AgentFailure(
                "protocol", f"the agent's process wrote something else: {error.message}"
            ) from None
        cpu_s = reply.get("cpu_s") if isinstance(reply, dict) else None
        if isinstance(cpu_s, bool) or not isinstance(cpu_s, (int, float)) or cpu_s < 0:
            raise AgentFailure("protocol", "the agent's process sent no cpu_s")
        if "kind" in reply:
            kind = reply["kind"] if reply["kind"] in FAILURE_KINDS else "protocol"
            raise AgentFailure(kind, str(reply.get("message", "")))
        return reply


def _kill_group(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError, AttributeError):
        process.kill()


def _receive(pipe: IO[str], inbox: queue.Queue[str | None]) -> None:
    with pipe:
        while line := pipe.readline(_MAX_REPLY_CHARS):
            inbox.put(line)
    inbox.put(None)


def _send(pipe: IO[str], outbox: queue.Queue[str | None]) -> None:
    try:
        with pipe:
            while (line := outbox.get()) is not None:
                pipe.write(line)
                pipe.flush()
    except OSError:  # the process died; the other thread tells
        pass


# -- the child's side


def main() -> None:
    """Serve one parent: read messages, answer each with one line, end when the parent is gone."""
    _limit_memory(json.loads(sys.argv[2]))
    requests, replies = _private_channel()
    inbox: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_until_orphaned, args=(requests, inbox), daemon=True).start()
    agent: LocalAgent | None = None
    while True:
        message = json.loads(inbox.get())
        if message["do"] == "reset":
            agent = LocalAgent(message["agent"])
        assert agent is not None
        replies.write(json.dumps(_answer(agent, message)) + "\n")
        replies.flush()


def _answer(agent: LocalAgent, message: Mapping[str, Any]) -> dict[str, Any]:
    try:
        info = decode(message["info"])
        if message["do"] == "reset":
            return {"cpu_s": agent.reset(message["instance"], info, message["seed"])}
        action, cpu_s = agent.act(decode(message["observation"]), info)
        return {"action": action, "cpu_s": cpu_s}
    except AgentFailure as failure:
        return {"kind": failure.kind, "message": failure.message, "cpu_s": 0.0}


def _limit_memory(memory_gb: float | None) -> None:
    if memory_gb is not None:
        import resource

        limit = int(memory_gb * 1e9)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _private_channel() -> tuple[IO[str], IO[str]]:
    """Move the pipes out of the agent's reach: its prints go to stderr, its input() finds nothing."""
    requests, replies = os.fdopen(os.dup(0), encoding="utf-8"), os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    sys.stdin, sys.stdout = open(os.devnull, encoding="utf-8"), sys.stderr  # noqa: SIM115
    return requests, replies


def _read_until_orphaned(requests: Iterable[str], inbox: queue.Queue[str]) -> None:
    for line in requests:
        inbox.put(line)
    os._exit(0)  # the parent closed its end or was killed: nobody wants an answer any more
