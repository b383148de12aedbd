"""Serve a Python agent by the agent protocol: answer each message of the parent process by one line.

What the agent prints goes to stderr; the pipes of the protocol are moved out of its way.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from collections.abc import Iterable, Mapping
from typing import IO, Any

from fleetgym.evaluation.isolation.agent_runner import AgentFailure, LocalAgent
from fleetgym.evaluation.isolation.rules import PROTOCOL
from fleetgym.evaluation.isolation.wire import decode
from fleetgym.model.instance import Instance


def main() -> None:
    """Serve one parent until it is gone; ``sys.argv[2]`` holds the limit of the address space, in GB, as JSON."""
    _limit_memory(json.loads(sys.argv[2]))
    requests, replies = _private_channel()
    inbox: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_until_orphaned, args=(requests, inbox), daemon=True).start()
    agent: LocalAgent | None = None
    while True:
        message = json.loads(inbox.get())
        if message["do"] == "reset":
            assert message["protocol"] == PROTOCOL
            agent = LocalAgent(message["agent"])
        assert agent is not None
        reply = {"id": message["id"], **_answer(agent, message)}
        try:
            replies.write(json.dumps(reply) + "\n")
            replies.flush()
        except BrokenPipeError:  # the parent was killed while it waited
            os._exit(0)


def _answer(agent: LocalAgent, message: Mapping[str, Any]) -> dict[str, Any]:
    try:
        info = decode(message["info"])
        if message["do"] == "reset":
            return {"cpu_s": agent.reset(Instance.from_dict(message["instance"]), info, message["seed"])}
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
