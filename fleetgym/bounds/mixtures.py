"""Compute the least values that waiting depends on, over the mixtures of workloads that demand allows.

Mixtures are {w ≥ 0, Σ w = 1, w ≤ cap}. At a vertex some workloads are at their cap, one takes what is left, and the
others are absent. `tests/bounds/test_late_bounds.py` has the same in NumPy.
"""

from __future__ import annotations

import numpy as np

from fleetgym.kernels.compile import jit

#: Points that are outside by so much count: round-off.
_OUTSIDE = 1e-9


@jit
def least_of_mixtures(load, busy, rate, arriving, own, most_limited, found, is_reached):
    """Write the least ca², of E[S] (ca² - 1), and of E[S²] / E[S] by range and interval to `found`.

    Parameters
    ----------
    load : ndarray, shape (rows, U)
        The least load of a range of replicas and an interval of utilisation, busy servers.
    busy : ndarray, shape (rows, m)
        Busy servers of all of a workload; none of it may be more.
    rate, arriving, own : ndarray, shape (rows, m)
        1 / E[S], ca² / E[S] and E[S²] / E[S] of a workload alone.
    most_limited : int
        With more workloads all mixtures count, if there are any.
    found : ndarray, shape (3, rows, U)
        inf where there is no mixture.
    is_reached : ndarray of bool, shape (rows, U)
    """
    rows, m = busy.shape
    cap = np.empty(m)
    for r in range(rows):
        for u in range(load.shape[1]):
            total = 0.0
            for i in range(m):
                share = busy[r, i] / load[r, u]
                cap[i] = share if share < 1.0 else 1.0
                total += cap[i]
            cv2 = bursts = spread = np.inf
            reached = False
            is_limited = m <= most_limited
            for last in range(m):
                for chosen in range(1 << (m - 1) if is_limited else 1):
                    left = 1.0
                    requests = arrivals = owns = 0.0
                    if is_limited:
                        rest = chosen
                        for i in range(m):
                            if i == last:
                                continue
                            if rest & 1:
                                left -= cap[i]
                                requests += cap[i] * rate[r, i]
                                arrivals += cap[i] * arriving[r, i]
                                owns += cap[i] * own[r, i]
                            rest >>= 1
                        if left < -_OUTSIDE or left > cap[last] + _OUTSIDE:
                            continue
                        left = max(0.0, left)
                    elif total < 1.0 - _OUTSIDE or cap[last] <= 0.0:
                        continue
                    requests += left * rate[r, last]
                    arrivals += left * arriving[r, last]
                    owns += left * own[r, last]
                    reached = True
                    cv2 = min(cv2, arrivals / requests)
                    bursts = min(bursts, (arrivals / requests - 1.0) / requests)
                    spread = min(spread, owns)
            found[0, r, u], found[1, r, u], found[2, r, u] = cv2, bursts, spread
            is_reached[r, u] = reached
