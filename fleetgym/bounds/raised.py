"""Raise the rows for late requests of a relaxation, by the prices that solve it.

At a solution's prices all of workload i gains w_ic on configuration c, and a replica is paid B_c. The plane of
`fleetgym.bounds.planes` in that direction is a valid row,

    late_c ≥ s Σ_i w_ic x_ic - B_c S_c.

The rows of the program say as much with s = 1. So where s is more, the program with the new row has a higher optimum.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym.bounds.certificate import WindowPrices, clipped, route_gain
from fleetgym.bounds.late import ROUND_OFF
from fleetgym.bounds.planes import highest_plane
from fleetgym.bounds.relaxation import HARD, EpisodeRelaxation, WindowRelaxation

#: Most by which planes are raised; the share of it that they may lack; boxes until they are lowered.
LIMITS = (3.0, 0.03, 500)
#: Replicas that are paid less than this share of their rent keep their row: they are not what is scarce.
LEAST_PAID = 0.3


def raised(
    problem: EpisodeRelaxation, windows: tuple[tuple[WindowPrices, ...], ...], among: np.ndarray
) -> EpisodeRelaxation:
    """Return the relaxation with rows for late requests that follow the prices of a solution.

    Parameters
    ----------
    problem : EpisodeRelaxation
    windows : tuple
        The solution's prices of every draw of every window.
    among : ndarray of int, shape (n,)
        Configurations of the solution; the others keep their rows.
    """
    routings = []
    for routing, found in zip(problem.routings, windows, strict=True):
        draws = (_raised(*pair, among) for pair in zip(routing.draws, found, strict=True))
        routings.append(dataclasses.replace(routing, draws=tuple(draws)))
    return dataclasses.replace(problem, routings=tuple(routings))


def _raised(window: WindowRelaxation, prices: WindowPrices, among: np.ndarray) -> WindowRelaxation:
    """Return a window whose rows are as high as a solution's prices ask for."""
    prices = clipped(window, prices)
    paid = prices.capacity.sum(axis=0) + prices.whole.sum(axis=0)
    gain = np.maximum(0.0, route_gain(window, prices))
    need, missing_usd = window.need.copy(), window.missing_usd.copy()
    for c in among[paid[among] > LEAST_PAID * window.hold_usd[among]]:
        served = np.flatnonzero(window.is_open[:, c])
        queue = window.queues.of(c, served)
        if not (gain[served, c].any() and queue.service.all()):
            continue
        height = highest_plane(*queue, gain[served, c], need[:HARD, served, c], paid[c], LIMITS)
        if height > 1.0:
            need[HARD, :, c] = 0.0
            need[HARD, served, c] = height * (1.0 - ROUND_OFF) / paid[c] * gain[served, c]
            missing_usd[HARD, c] = paid[c]
    return dataclasses.replace(window, need=need, missing_usd=missing_usd)
