"""Define what an agent of an official run may use, what it is kept from, and the names of its failures."""

from __future__ import annotations

import dataclasses

from fleetgym.files import quantities as q
from fleetgym.files.schema import NAME, Choice, spec

#: What can go wrong with an agent.
FAILURE_KINDS = ("raised", "invalid-action", "timeout", "died", "protocol", "resources")

#: The wire format between a run and an agent's process; see docs/agent-protocol.md.
PROTOCOL = "fleetgym-agent-1"

#: Reference CPU seconds of an episode, `reset` not counted.
TIME_CLASSES = {"reflex": 3.0, "online": 60.0, "offline": 1800.0}

#: What a results file's header says where nothing was reached from inside the box, and where something was.
ISOLATED = {"network": "none", "processes": "apart", "files": "hidden", "cpu_time": "counted"}
REACHED = {"network": "open", "processes": "shared", "files": "open", "cpu_time": "sampled"}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """The budget and the isolation of an official run."""

    protocol: str = spec(Choice((PROTOCOL,)))
    time_class: str = spec(Choice(tuple(TIME_CLASSES)))
    cpu_s: float = spec(q.LIMIT_S, doc="reference CPU seconds of an episode after reset")
    reset_cpu_s: float = spec(q.LIMIT_S, doc="reference CPU seconds from the start to reset's answer")
    wall_factor: float = spec(q.FACTOR, doc="wall seconds per CPU second allowed")
    memory_gb: float = spec(q.MEMORY_GB, doc="of the whole process tree")
    machine: str = spec(NAME, doc="that was calibrated")
    speed: float = spec(q.SPEED, doc="reference CPU seconds per CPU second of the machine")
    network: str = spec(Choice(("none", "open")), doc="what the agent could reach")
    processes: str = spec(Choice(("apart", "shared")), doc="whether the agent saw its own alone")
    files: str = spec(Choice(("hidden", "open")), doc="whether scenarios were hidden and files read-only")
    cpu_time: str | None = spec(
        Choice(("counted", "sampled")),
        default=None,
        doc="whether all CPU time was counted, or that of short children could be missed; not in older files",
    )
    caches: str | None = spec(
        Choice(("dropped", "kept")),
        default=None,
        doc="what was done with the kernel's caches before each episode; not in older files",
        sparse=True,
    )
