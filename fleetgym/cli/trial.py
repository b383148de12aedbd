"""Names of agents in; nothing, or an error that says which of them cannot be made and why, out.

A run notes a failing agent and goes on, for hours perhaps. That its class does not exist, or does not take the
arguments that were given, is known before.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

from fleetgym.errors import FleetgymError
from fleetgym.registry import parse_agent

_TRY = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from fleetgym.cli.trial import main; main(sys.argv[2])"
)
#: Marks the reason among what the agent's own code prints.
_REASON = "fleetgym-trial: "


def try_agents(agents: Iterable[str], most_s: float = 300.0) -> None:
    """Make each agent once, in a process of its own; ours as they are need no trial.

    Parameters
    ----------
    agents : iterable of str
        As for `make_agent`.
    most_s : float
        Wall seconds that one may take.

    Raises
    ------
    FleetgymError
        For the first that cannot be made.
    """
    for name in agents:
        spec = parse_agent(name)
        if spec.is_reference and not spec.arguments:
            continue
        reason = _reason_elsewhere(name, most_s)
        if reason is not None:
            raise FleetgymError(f"cannot make the agent {name!r}: {reason}")


def _reason_elsewhere(name: str, most_s: float) -> str | None:
    from fleetgym.evaluation.agent_process import agent_environment, module_path

    command = [sys.executable, "-c", _TRY, json.dumps(module_path()), name]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=agent_environment(),
            timeout=most_s,
        )
    except subprocess.TimeoutExpired:
        return f"it takes over {most_s:g} s"
    for line in done.stdout.splitlines():
        if line.startswith(_REASON):
            return line.removeprefix(_REASON)
    return None if done.returncode == 0 else f"its process ended with exit code {done.returncode}"


def main(name: str) -> None:
    """Make one agent and print why that is not possible, if so."""
    from fleetgym.evaluation.agent_runner import describe_error, tidy
    from fleetgym.registry import make_agent

    try:
        make_agent(name)
    except FleetgymError as error:
        print(f"\n{_REASON}{tidy(str(error))}", flush=True)
    except (Exception, SystemExit) as error:
        print(f"\n{_REASON}{tidy(describe_error(error))}", flush=True)
