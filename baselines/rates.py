"""From a snapshot to what methods that were made for throughput alone (Coral, Jiang, Mélange) know of an instance.

How long one replica is busy with one request, where it keeps the request's SLOs, and which replicas exclude each other.
"""

from __future__ import annotations

import numpy as np

from fleetgym import Instance, Snapshot


def placeable(snapshot: Snapshot) -> np.ndarray:
    """Return which configurations (C,) fit availability and budget at least once, all else released."""
    fits = (snapshot.gpu_use <= snapshot.available_gpus[:, None]).all(axis=0)
    return fits & (snapshot.hold_usd <= snapshot.budget_usd) & (snapshot.max_replicas > 0)


def exclusive_groups(instance: Instance) -> tuple[tuple[int, ...], ...]:
    """Return the sets of configurations of which one replica at most may be held: the exclusive slots."""
    slots = zip(instance.slots, instance.slot_members, strict=True)
    return tuple(members for slot, members in slots if slot.exclusive)


def slo_excess(snapshot: Snapshot) -> np.ndarray:
    """Return by how much each pair misses its SLOs, as a share of them, (I, C); a first token that is late counts 1."""
    workloads = snapshot.instance.workloads
    delay = np.array([[w.mean_delay_slo_s] for w in workloads])
    error = np.array([[w.error_slo] for w in workloads])
    first = np.array([[np.inf if w.ttft_slo_s is None else w.ttft_slo_s] for w in workloads])
    excess = np.maximum(0.0, snapshot.delay_s / delay - 1.0) + np.maximum(0.0, snapshot.error / error - 1.0)
    return excess + (snapshot.prefill_s >= first)


def keeps_slos(snapshot: Snapshot, allowed: np.ndarray) -> np.ndarray:
    """Return which pairs keep the workload's mean delay, error and TTFT SLO by themselves: bool (I, C).

    Where none does among those that are `allowed`, (C,) bool, those that break them least do: the elastic SLOs make
    an excess of one per cent cost as much as not serving one per cent.
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


#: Where some pair is late at any load, no utilisation is safe; then this one is taken.
LEAST_UTILIZATION = 0.5


def safe_utilization(snapshot: Snapshot, replicas: np.ndarray) -> np.ndarray:
    """Return the utilisation (C,) at which a number of replicas (C,) is hardly ever late; at least a half.

    It grows with the number of replicas: section 3 of the model page. Configurations with none count as one.
    """
    row = snapshot.segments.offsets + np.maximum(1, replicas) - 1
    return np.maximum(snapshot.segments.safe_utilization[row], LEAST_UTILIZATION)
