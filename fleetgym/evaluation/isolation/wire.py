"""Write messages of the agent protocol, version 1, and check replies; see docs/agent-protocol.md."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym.evaluation.isolation.agent_runner import AgentFailure
from fleetgym.evaluation.isolation.rules import FAILURE_KINDS, PROTOCOL
from fleetgym.files.documents import parse_json
from fleetgym.files.errors import DataError
from fleetgym.model.instance import Instance

MAX_REPLY_CHARS = 2**20


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


def new_id() -> int:
    """Return the number of a message: nobody can answer it before it was sent.

    Examples
    --------
    >>> 0 < new_id() < 2**53
    True
    """
    return 1 + secrets.randbelow(2**53 - 1)  # whole in every language's floats


def reset_message(
    number: int, agent: str, instance: Instance, info: Mapping[str, Any], seed: int
) -> dict[str, Any]:
    """Return the message that begins an episode: the public instance, the first info, and a seed."""
    return {
        "do": "reset",
        "id": number,
        "protocol": PROTOCOL,
        "agent": agent,
        "instance": instance.to_dict(),
        "info": encode(info),
        "seed": seed,
    }


def act_message(
    number: int, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the message that asks for the action of the coming window."""
    return {"do": "act", "id": number, "observation": encode(observation), "info": encode(info)}


def to_line(message: Mapping[str, Any]) -> str:
    """Return a message as one line; NaN and infinity are refused."""
    return json.dumps(message, allow_nan=False) + "\n"


def read_reply(line: str, number: int) -> dict[str, Any]:
    """Return a reply whose form is right; its action is checked by whoever plays it.

    Parameters
    ----------
    line : str
        What the agent's process wrote.
    number : int
        The ``id`` of the message that it must answer.

    Raises
    ------
    AgentFailure
        If it is no reply to this message, or it reports that the agent failed.

    Examples
    --------
    >>> read_reply('{"id": 3, "action": [0, 2]}', 3)["action"]
    [0, 2]
    """
    if len(line) >= MAX_REPLY_CHARS:
        raise AgentFailure(
            "protocol", f"the agent's process wrote a line of over {MAX_REPLY_CHARS} characters"
        )
    try:
        reply = parse_json(line)
    except DataError as error:
        raise AgentFailure("protocol", f"the agent's process wrote something else: {error.message}") from None
    if not isinstance(reply, dict) or reply.get("id") != number or isinstance(reply["id"], bool):
        # Without the number, which is random: messages are the same in every run.
        raise AgentFailure("protocol", "the agent's process wrote a line that does not answer the request")
    cpu_s = reply.setdefault("cpu_s", 0.0)
    if isinstance(cpu_s, bool) or not isinstance(cpu_s, (int, float)) or not 0 <= cpu_s < 1e9:
        raise AgentFailure("protocol", "the agent's process sent a cpu_s that is no number of seconds")
    if "kind" in reply:
        kind = reply["kind"] if reply["kind"] in FAILURE_KINDS else "protocol"
        raise AgentFailure(kind, str(reply.get("message", "")))
    action = reply.setdefault("action", [])
    if not isinstance(action, list) or not {type(option) for option in action} <= {int, float}:
        raise AgentFailure("invalid-action", "expected a list of whole numbers")
    return reply
