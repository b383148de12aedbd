"""State what a planner gets, a `Snapshot` of one window's problem, and what it returns, a `Plan`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fleetgym.model.instance import Instance


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LateSegments:
    """Piecewise linear cost of load on the queue servers, per configuration and number of replicas.

    Row ``offsets[c] + r - 1`` belongs to configuration c with r replicas (section 3 of the model page).

    Attributes
    ----------
    offsets : ndarray of int64, shape (configurations,)
        First row of each configuration.
    safe_utilization : ndarray, shape (rows,)
        Share of the queue servers that costs nothing.
    width : ndarray, shape (rows, 3)
        Length of each segment, busy servers.
    slope_usd : ndarray, shape (rows, 3)
        USD per busy server and window.
    """

    offsets: np.ndarray
    safe_utilization: np.ndarray
    width: np.ndarray
    slope_usd: np.ndarray


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Snapshot:
    """The allocation problem of one window, as a planner sees it.

    Money is USD for one window. Arrays are indexed [workload, configuration], [pool, configuration] and so on;
    I workloads, C configurations, G pools.

    Attributes
    ----------
    instance : Instance
        The public parameters.
    window : int
        The coming window, from 0.
    rate_rps : ndarray, shape (I,)
        Expected arrivals per second.
    requests : ndarray, shape (I,)
        Expected requests in the window.
    delay_s : ndarray, shape (I, C)
        Residency of a request, seconds.
    error : ndarray, shape (I, C)
        Share of wrong answers.
    work_tflop : ndarray, shape (I, C)
        Compute of a request.
    kv_gb_s : ndarray, shape (I, C)
        KV memory of a request times its time.
    service_s : ndarray, shape (I, C)
        Seconds that a request holds a queue server.
    prefill_s : ndarray, shape (I, C)
        Seconds to the first token without waiting, of a mean prompt.
    own_late : ndarray, shape (I, C)
        Share of the requests whose first token is late by their prompt alone: 0 or 1 without a law of lengths.
    slack_s : ndarray, shape (I, C)
        Seconds that the others may wait on average; inf without a TTFT SLO.
    compatible : ndarray of bool, shape (I, C)
        Whether the configuration may serve the workload.
    route_usd : ndarray, shape (I, C)
        Cost of routing the whole workload there.
    unserved_usd : ndarray, shape (I,)
        Cost of serving none of it; also of an SLO excess of 100 %.
    hold_usd : ndarray, shape (C,)
        Rent and model storage of one replica.
    startup_usd : ndarray, shape (C,)
        Fee of starting one replica.
    compute_tflops : ndarray, shape (C,)
        Compute of one replica, TFLOP/s.
    kv_capacity_gb : ndarray, shape (C,)
        KV memory of one replica.
    max_concurrency : ndarray, shape (C,)
        Queue servers of one replica.
    max_replicas : ndarray of int64, shape (C,)
        Most replicas that an action can ask for.
    gpu_use : ndarray, shape (G, C)
        GPUs of one replica.
    available_gpus : ndarray, shape (G,)
        Most GPUs the fleet may hold.
    budget_usd : float
        Most the fleet may cost to hold in the window; inf where there is no budget.
    fleet : ndarray, shape (C,)
        Replicas running or starting now.
    segments : LateSegments
        Cost of late requests under load.

    Examples
    --------
    >>> import fleetgym
    >>> class CheapestReplica:
    ...     def plan(self, snapshot):
    ...         fleet = np.zeros_like(snapshot.max_replicas)
    ...         fleet[np.argmin(snapshot.hold_usd)] = 1
    ...         return Plan(fleet=fleet)
    >>> fleetgym.plan("fleet-v0/toy/drop", CheapestReplica()).fleet.tolist()
    [1, 0]
    """

    instance: Instance
    window: int
    rate_rps: np.ndarray
    requests: np.ndarray
    delay_s: np.ndarray
    error: np.ndarray
    work_tflop: np.ndarray
    kv_gb_s: np.ndarray
    service_s: np.ndarray
    prefill_s: np.ndarray
    own_late: np.ndarray
    slack_s: np.ndarray
    compatible: np.ndarray
    route_usd: np.ndarray
    unserved_usd: np.ndarray
    hold_usd: np.ndarray
    startup_usd: np.ndarray
    compute_tflops: np.ndarray
    kv_capacity_gb: np.ndarray
    max_concurrency: np.ndarray
    max_replicas: np.ndarray
    gpu_use: np.ndarray
    available_gpus: np.ndarray
    budget_usd: float
    fleet: np.ndarray
    segments: LateSegments

    def slo_excess(self) -> np.ndarray:
        """Return by what share each route exceeds its workload's mean delay and error SLOs, added up, (I, C)."""
        delay = np.array([[w.mean_delay_slo_s] for w in self.instance.workloads])
        error = np.array([[w.error_slo] for w in self.instance.workloads])
        return np.maximum(0.0, self.delay_s / delay - 1.0) + np.maximum(0.0, self.error / error - 1.0)

    def replicas_needed(self, utilization: float | np.ndarray = 1.0) -> np.ndarray:
        """Return the replicas that all of each workload takes of each configuration, by resource: (3, I, C).

        Parameters
        ----------
        utilization : float or ndarray that broadcasts to (3, 1, C)
            Share of compute, KV memory and queue servers to plan for.

        Returns
        -------
        ndarray
            Not whole; infinite where a configuration lacks the resource.

        Examples
        --------
        >>> import fleetgym
        >>> view = fleetgym.View(fleetgym.load_instance("fleet-v0/toy/two-pools"))
        >>> view.snapshot().replicas_needed(0.5).shape
        (3, 1, 2)
        """
        capacity = np.stack((self.compute_tflops, self.kv_capacity_gb, self.max_concurrency))
        load = self.rate_rps[:, None] * np.stack((self.work_tflop, self.kv_gb_s, self.service_s))
        with np.errstate(divide="ignore", invalid="ignore"):
            parts = load / (utilization * capacity[:, None, :])
        return np.where(load > 0, parts, 0.0)

    def busy_seconds(self) -> np.ndarray:
        """Return how long one request keeps one replica busy if all its servers are in use, seconds (I, C).

        It is the longest of service time over queue servers, work over compute, and KV memory times time over KV
        memory; infinite where the configuration cannot serve the workload.

        Examples
        --------
        >>> import fleetgym
        >>> view = fleetgym.View(fleetgym.load_instance("fleet-v0/toy/two-pools"))
        >>> view.snapshot().busy_seconds().shape
        (1, 2)
        """
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = [
                self.service_s / self.max_concurrency,
                self.work_tflop / self.compute_tflops,
                self.kv_gb_s / self.kv_capacity_gb,
            ]
        longest = np.max([np.nan_to_num(share, nan=0.0, posinf=np.inf) for share in shares], axis=0)
        return np.where(self.compatible, longest, np.inf)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """A fleet, with the planner's estimate, bound and diagnostics.

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
    """Plans one window: `plan` turns a snapshot into a plan."""

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return a fleet for the snapshot's window.

        Parameters
        ----------
        snapshot : Snapshot
            The window's problem; money in USD per window.

        Returns
        -------
        Plan
            What a planner's ``diagnostics`` hold, its own `plan` says.
        """
        ...
