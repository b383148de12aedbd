"""From workloads' needs and a capacity to who serves what, in merit order: the compiled loop behind the features."""

from __future__ import annotations

import numpy as np

from fleetgym.kernels.compile import jit

_TINY = 1e-9


@jit
def fill(
    left: np.ndarray,
    priority: np.ndarray,
    order: np.ndarray,
    need: np.ndarray,
    room: np.ndarray,
    gpu_use: np.ndarray,
    gpus: np.ndarray,
) -> np.ndarray:
    """Serve each workload on its cheapest configurations that still have room.

    Parameters
    ----------
    left : (I,) ndarray
        Share of each workload that is to be served; modified in place: what is left over.
    priority : (I,) ndarray of int64
        Workloads, first served first.
    order : (I, C) ndarray of int64
        Each workload's configurations, the cheapest first; -1 ends the list.
    need : (I, C) ndarray
        Replicas that all of a workload needs.
    room : (C,) ndarray
        Replicas that may be used; modified in place.
    gpu_use : (G, C) ndarray of int64
        GPUs of a replica.
    gpus : (G,) ndarray
        GPUs that may be used; modified in place. inf where they are held already.

    Returns
    -------
    (C,) ndarray
        Replicas used, not rounded.
    """
    used = np.zeros(room.size)
    for i in priority:
        for c in order[i]:
            if c < 0 or left[i] <= _TINY:
                break
            most = room[c]
            for g in range(gpus.size):
                if gpu_use[g, c] > 0:
                    most = min(most, gpus[g] / gpu_use[g, c])
            if most <= 0.0:
                continue
            share = left[i] if need[i, c] <= _TINY else min(left[i], most / need[i, c])
            taken = share * need[i, c]
            left[i] -= share
            used[c] += taken
            room[c] -= taken
            for g in range(gpus.size):
                gpus[g] -= taken * gpu_use[g, c]
    return used
