"""One call takes windows of a known scenario, and plays them in a row or prices each option of one slot.

The search for best-known costs does little else. Window by window from Python, it would spend three quarters of its
time between the kernels.
"""

import math
from typing import NamedTuple

import numpy as np

from fleetgym.kernels.compile import inline, jit
from fleetgym.kernels.economics import T_MODEL, T_RENTAL, T_STARTUP
from fleetgym.kernels.pointers import borrow
from fleetgym.kernels.records import Memory, PackedConditions, unpack
from fleetgym.kernels.window import extern_play, serve


class Track(NamedTuple):
    """A played episode; first axis: windows, and for states the end as well."""

    fleet: np.ndarray  # (T + 1, C, 1 + 2K) int64 before each window
    spent_usd: np.ndarray  # (T + 1,) of a budget for the whole episode
    cost_usd: np.ndarray  # (T,)
    serving: np.ndarray  # (T, C) int64


@inline
def _is_back(old, new, t):
    """Tell whether two episodes stand alike before window t."""
    if old.spent_usd[t] != new.spent_usd[t]:
        return False
    for c in range(new.fleet.shape[1]):
        for k in range(new.fleet.shape[2]):
            if old.fleet[t, c, k] != new.fleet[t, c, k]:
                return False
    return True


@inline
def _copy_fleet(source, target):
    for c in range(target.shape[0]):
        for k in range(target.shape[1]):
            target[c, k] = source[c, k]


@inline
def _copy(source, target):
    for c in range(target.shape[0]):
        target[c] = source[c]


@jit
def play_rollout(packed, basis, active, workload, available, price, target, begin, end, limit_usd, old, new):
    """Play windows from `begin` until the old state is reached, the episode ends, or a cost is exceeded.

    Parameters
    ----------
    packed : (W,) int64
        Words of `records.pack_problem`.
    basis, active : ndarray
        Fields of `Memory`, modified in place.
    workload, available, price : ndarray
        Fields of `PackedConditions` for all windows, (T, 5, I), (T, G) and (T, G).
    target : (T, C) int64
        The fleet wanted in each window.
    begin, end : int
        Where targets differ from those of `old`.
    limit_usd : float
        Sum of costs beyond which nobody wants to know.
    old, new : Track
        The episode so far; windows from `begin` on are written to `new`.

    Returns
    -------
    status : int
        Of the routing that failed; 0 if none did.
    stop : int
        First window that was not played.
    """
    packed, target, old, new = borrow((packed, target, old, new))
    season = borrow(PackedConditions(workload, available, price))
    _copy_fleet(old.fleet[begin], new.fleet[begin])
    new.spent_usd[begin] = old.spent_usd[begin]
    _, _, played = unpack(packed)
    memory, total = borrow(Memory(basis, active)), 0.0
    for t in range(begin, target.shape[0]):
        if t >= end and _is_back(old, new, t):
            return 0, t
        _copy_fleet(new.fleet[t], new.fleet[t + 1])
        conditions = PackedConditions(season.workload[t], season.available[t], season.price[t])
        status, _, spent_usd = extern_play(
            packed, conditions, target[t], t == 0, new.spent_usd[t], new.fleet[t + 1], memory
        )
        if status != 0:
            return status, t
        cost = 0.0
        for k in range(played.terms_usd.shape[0]):
            cost += played.terms_usd[k]
        new.spent_usd[t + 1], new.cost_usd[t] = spent_usd, cost
        _copy(played.serving, new.serving[t])
        total += cost
        if total > limit_usd:
            return 0, t + 1
    return 0, target.shape[0]


@jit
def price_options(packed, basis, active, workload, available, price, serving, members, option, usd):
    """Write what operating costs if some configurations had other replicas.

    Parameters
    ----------
    packed, basis, active, workload, available, price
        As for `play_rollout`, for n windows.
    serving : (n, C) int64
        Replicas that serve.
    members : (m,) int64
        Configurations whose replicas are replaced.
    option : (L, m) int64
        By what.
    usd : (n, L), modified in place
        Where it is finite it becomes the cost of the window without holding and starting; elsewhere nothing is done.

    Returns
    -------
    int
        Status of the routing that failed; 0 if none did.
    """
    packed, serving, members, option, usd = borrow((packed, serving, members, option, usd))
    season = borrow(PackedConditions(workload, available, price))
    _, _, played = unpack(packed)
    memory = borrow(Memory(basis, active))
    for t in range(serving.shape[0]):
        conditions = PackedConditions(season.workload[t], season.available[t], season.price[t])
        for k in range(option.shape[0]):
            if not math.isfinite(usd[t, k]):
                continue
            _copy(serving[t], played.serving)
            for m in range(members.shape[0]):
                played.serving[members[m]] = option[k, m]
            status = serve(packed, conditions, memory)
            if status != 0:
                return status
            cost = 0.0
            for term in range(played.terms_usd.shape[0]):
                if term != T_RENTAL and term != T_MODEL and term != T_STARTUP:
                    cost += played.terms_usd[term]
            usd[t, k] = cost
    return 0
