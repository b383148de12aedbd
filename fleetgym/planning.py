"""What a planner gets and gives: `Snapshot` in (one window's problem, all numbers filled in), `Plan` out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fleetgym.instance import Instance


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LateSegments:
    """Piecewise linear cost of load on the queue servers, per configuration and number of replicas.

    Row ``offsets[c] + r - 1`` belongs to configuration c with r replicas (section 3 of the model page).
    """

    offsets: np.ndarray  # (configurations,) int64
    safe_utilization: np.ndarray  # (rows,) share of the queue servers that costs nothing
    width: np.ndarray  # (rows, 3) busy servers
    slope_usd: np.ndarray  # (rows, 3) USD per busy server and window


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """The allocation problem of one window, as a planner sees it.

    Money is USD for one window. Arrays are indexed [workload, configuration], [pool, configuration] and so on;
    I workloads, C configurations, G pools.
    """

    instance: Instance
    window: int  # the coming window
    rate_rps: np.ndarray  # (I,) expected arrivals per second
    requests: np.ndarray  # (I,) expected requests in the window
    delay_s: np.ndarray  # (I, C) residency of a request
    error: np.ndarray  # (I, C) error share
    work_tflop: np.ndarray  # (I, C) compute per request
    kv_gb_s: np.ndarray  # (I, C) KV memory times time per request
    service_s: np.ndarray  # (I, C) time a request holds a queue server
    prefill_s: np.ndarray  # (I, C) time to first token without waiting
    compatible: np.ndarray  # (I, C) bool
    route_usd: np.ndarray  # (I, C) cost of routing the whole workload there
    unserved_usd: np.ndarray  # (I,) cost of serving none of it; also of an SLO excess of 100 %
    hold_usd: np.ndarray  # (C,) rent and model storage of one replica
    startup_usd: np.ndarray  # (C,) fee of one grant
    compute_tflops: np.ndarray  # (C,) per replica
    kv_capacity_gb: np.ndarray  # (C,) per replica
    max_concurrency: np.ndarray  # (C,) queue servers per replica
    max_replicas: np.ndarray  # (C,) int64
    gpu_use: np.ndarray  # (G, C) GPUs of one replica
    available_gpus: np.ndarray  # (G,) most GPUs the fleet may hold
    budget_usd: float  # most the fleet may cost to hold in the window; inf where there is no budget
    fleet: np.ndarray  # (C,) replicas running or starting now
    segments: LateSegments


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A fleet, and what the planner knows about it.

    Parameters
    ----------
    fleet : ndarray of int, shape (C,)
        Replicas per configuration.
    eligible : ndarray of bool, shape (I, C), optional
        Routes the planner opened (FastLLM's z); None: every compatible one.
    objective_usd : float
        The planner's own estimate of the window's cost; NaN if it makes none.
    bound_usd : float, optional
        A proven lower bound on the window's cost.
    status : str
        ``"optimal"``, ``"feasible"`` or ``"empty"``.
    diagnostics : mapping
        Whatever else is worth knowing.
    """

    fleet: np.ndarray
    eligible: np.ndarray | None = None
    objective_usd: float = math.nan
    bound_usd: float | None = None
    status: str = "feasible"
    diagnostics: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@runtime_checkable
class Planner(Protocol):
    """One-shot optimisation: a snapshot in, a plan out."""

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return a fleet for the snapshot's window."""
        ...
