"""Evaluate actions independently of the kernels: every cost term of every window, slowly and in plain Python.

It follows `docs/model.md`, a module for each of its sections, in lists and loops; it shares no code with the fast path.
"""

from fleetgym.reference.admission import Admission, FleetState
from fleetgym.reference.certified_lp import CertificateError
from fleetgym.reference.costs import COST_TERMS
from fleetgym.reference.episode import ReferenceEpisode, action_to_target, replay
from fleetgym.reference.late import LateSegments
from fleetgym.reference.routing import Routing
from fleetgym.reference.tails import chance_to_wait, erlang_c

__all__ = [
    "COST_TERMS",
    "Admission",
    "CertificateError",
    "FleetState",
    "LateSegments",
    "ReferenceEpisode",
    "Routing",
    "action_to_target",
    "chance_to_wait",
    "erlang_c",
    "replay",
]
