"""Verify from inside the sandbox what an official run keeps its agents from."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from fleetgym.agents.registry import parse_agent
from fleetgym.evaluation.isolation.rules import ISOLATED, REACHED
from fleetgym.evaluation.isolation.sandbox import Sandbox, bare_command
from fleetgym.evaluation.isolation.visible import hidden_files, visible_files
from fleetgym.files.errors import FleetgymError, plain

_ADDRESS_SPACE_BYTES = 2e9


def find_facts(agents: Iterable[str] = ()) -> dict[str, str]:
    """Return the header's facts, as found by tries in the box of each agent; reference agents share one.

    Standard error names what a try reached.

    Parameters
    ----------
    agents : iterable of str
        As for `fleetgym.make_agent`.

    Returns
    -------
    dict of str to str
        `rules.ISOLATED` if nothing was reached.

    Raises
    ------
    FleetgymError
        If this machine cannot make the box.
    """
    others = [name for name in dict.fromkeys(agents) if not parse_agent(name).is_reference]
    facts = dict(ISOLATED)
    with _doors() as doors:
        for agent in (None, *others):
            for fact, reached in _reached(agent, doors).items():
                if reached:
                    facts[fact] = REACHED[fact]
                    named = plain(f"fleetgym: in the box an agent reaches {', '.join(reached)}")
                    print(f"{named}; the run's header says {fact}: {facts[fact]}", file=sys.stderr)
    return facts


def _reached(agent: str | None, doors: dict[str, Any]) -> dict[str, list[str]]:
    """Return what the tries reached in an agent's box, by fact."""
    hidden = hidden_files()
    places = doors | {"hidden": hidden, "visible": visible_files(agent, hidden)}
    with Sandbox(bare_command("tries", places), _ADDRESS_SPACE_BYTES, hidden, agent) as box:
        assert box.process.stdout is not None
        line = box.process.stdout.readline()
        if not line:
            raise FleetgymError(f"the tries in the box of an official run fail: {box.cause_of_death()}")
        return json.loads(line)


@contextlib.contextmanager
def _doors() -> Iterator[dict[str, Any]]:
    """Open doors of this process while the context lasts: a secret file, and addresses that answer."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        secret = folder / "secret"
        secret.write_text("secret")
        addresses: list[Any] = []
        for family, address in (
            (socket.AF_INET, ("127.0.0.1", 0)),
            (socket.AF_UNIX, f"\0{folder}"),
            (socket.AF_UNIX, f"{folder}/socket"),
        ):
            with contextlib.suppress(OSError):  # where there is no such network
                server = stack.enter_context(socket.socket(family))
                server.bind(address)
                server.listen()
                named = server.getsockname() if family == socket.AF_INET else address
                addresses.append([int(family), named])
        with contextlib.suppress(OSError):
            (folder / "socket").chmod(0o777)  # the agent may be another user
        yield {"pid": os.getpid(), "secret": str(secret), "addresses": addresses}
