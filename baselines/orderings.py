"""Compute the orders in which the greedy heuristics serve workloads."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgym import FleetgymError, Snapshot

#: What the deterministic orderings sort by; AGH takes each descending and ascending.
KEYS = ("rate", "unserved", "storage", "error")
#: Names of the deterministic orderings. GH's own comes first, so that AGH always includes it.
ORDERINGS = tuple(f"{key}-{direction}" for key in KEYS for direction in ("desc", "asc"))


def sort_key(snapshot: Snapshot, key: str) -> np.ndarray:
    """Return what a key sorts by, per workload: lambda, phi, storage footprint, or error SLO."""
    if key == "rate":
        return snapshot.rate_rps
    if key == "unserved":
        return snapshot.unserved_usd
    if key == "storage":
        return snapshot.requests * snapshot.instance.performance.storage_usd.mean(axis=1)
    return np.array([w.error_slo for w in snapshot.instance.workloads])


def check_ordering(name: str | Sequence[int]) -> None:
    """Refuse a name that is none of `ORDERINGS`; a permutation needs the snapshot."""
    if isinstance(name, str) and name not in ORDERINGS:
        raise FleetgymError(f"unknown ordering {name!r}; expected one of {', '.join(ORDERINGS)}")


def ordering(snapshot: Snapshot, name: str | Sequence[int]) -> np.ndarray:
    """Return a permutation of the workloads.

    Parameters
    ----------
    snapshot : Snapshot
        The window's problem.
    name : str or sequence of int
        One of `ORDERINGS`, or the permutation itself. Ties keep the workloads' own order.

    Returns
    -------
    ndarray of int64, shape (I,)
        Workload indices, first to be served first.

    Raises
    ------
    FleetgymError
        If `name` is neither.
    """
    check_ordering(name)
    if not isinstance(name, str):
        order = np.asarray(name, dtype=np.int64)
        if not np.array_equal(np.sort(order), np.arange(snapshot.rate_rps.size)):
            raise FleetgymError(
                f"expected a permutation of 0..{snapshot.rate_rps.size - 1}, got {list(name)}"
            )
        return order
    key, direction = name.rsplit("-", 1)
    values = sort_key(snapshot, key)
    return np.argsort(-values if direction == "desc" else values, kind="stable").astype(np.int64)
