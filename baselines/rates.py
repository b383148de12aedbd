"""Convert a snapshot for methods that were made for throughput alone: Coral, Jiang and Mélange.

They need the seconds that a request keeps a replica busy, the routes that keep the SLOs, and the exclusive groups.
"""

from __future__ import annotations

import numpy as np

from fleetgym import Snapshot


def placeable(snapshot: Snapshot) -> np.ndarray:
    """Return which configurations (C,) fit availability and budget with one replica and an empty fleet."""
    fits = (snapshot.gpu_use <= snapshot.available_gpus[:, None]).all(axis=0)
    return fits & (snapshot.hold_usd <= snapshot.budget_usd) & (snapshot.max_replicas > 0)


def slo_excess(snapshot: Snapshot) -> np.ndarray:
    """Return by what share each route exceeds its SLOs, (I, C); first tokens most of which are late count 1."""
    return snapshot.slo_excess() + (snapshot.own_late > 0.5)


def keeps_slos(snapshot: Snapshot, allowed: np.ndarray) -> np.ndarray:
    """Return which routes keep the workload's mean delay, error and TTFT SLO by themselves: bool (I, C).

    If none of a workload's `allowed` routes, (C,) bool, does, those with the least excess count: by the elastic SLOs
    an excess of one per cent costs as much as not serving one per cent.
    """
    excess, usable = slo_excess(snapshot), snapshot.compatible & allowed
    least = np.where(usable, excess, np.inf).min(axis=1, initial=np.inf, keepdims=True)
    return usable & (excess <= 1.05 * least + 1e-12)


def serving_seconds(snapshot: Snapshot, allowed: np.ndarray | None = None) -> np.ndarray:
    """Return seconds of one replica per request, all servers in use, (I, C); inf where it cannot or should not.

    Parameters
    ----------
    snapshot : Snapshot
        One window's problem.
    allowed : (C,) ndarray of bool, optional
        Configurations that may be used; None: all. Those that are not `placeable` never are.
    """
    usable = placeable(snapshot) if allowed is None else placeable(snapshot) & allowed
    return np.where(keeps_slos(snapshot, usable), snapshot.busy_seconds(), np.inf)


#: Utilisation to plan for where some route is late at any load, so that none is safe.
LEAST_UTILIZATION = 0.5


def safe_utilization(snapshot: Snapshot, replicas: np.ndarray) -> np.ndarray:
    """Return the utilisation (C,) at which a number of replicas (C,) is rarely late; at least a half.

    It grows with the number of replicas: section 3 of the model page. Configurations with none count as one.
    """
    row = snapshot.segments.offsets + np.maximum(1, replicas) - 1
    return np.maximum(snapshot.segments.safe_utilization[row], LEAST_UTILIZATION)
