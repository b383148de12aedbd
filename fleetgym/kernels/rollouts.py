"""One call takes many windows, and plays them in a row, prices each option of one slot, or plays many targets in them.

The search for best-known costs and agents that look ahead do little else. Window by window from Python, they would
spend three quarters of their time between the kernels.
"""

import math
from typing import NamedTuple

import numpy as np

from fleetgym.kernels.compile import inline, jit
from fleetgym.kernels.economics import T_MODEL, T_RENTAL, T_STARTUP
from fleetgym.kernels.pointers import borrow
from fleetgym.kernels.records import Memory, PackedConditions, unpack
from fleetgym.kernels.window import BUDGET_KIND, NO_BUDGET, extern_play, serve


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


@inline
def _least_usd(problem, available, price, target):
    """Return the least that holding a target costs over the windows of a path; 0 where it may not be had."""
    if problem.budget[BUDGET_KIND] != NO_BUDGET:
        return 0.0
    usd = 0.0
    for t in range(available.shape[0]):
        for g in range(available.shape[1]):
            used, rent = 0, 0.0
            for c in range(target.shape[0]):
                used += target[c] * problem.gpu_use[g, c]
                rent += target[c] * problem.rental_usd[g, c]
            if used > available[t, g]:
                return 0.0
            usd += rent * price[t, g]
    return usd


@jit
def play_targets(
    packed,
    basis,
    active,
    workload,
    available,
    price,
    weight,
    target,
    first,
    spent_usd,
    fleet,
    limit_usd,
    space,
    usd,
):
    """Write what each target costs if it is wanted in all windows, as a mean over paths.

    Parameters
    ----------
    packed : (words,) int64
        Words of `records.pack_problem`.
    basis, active : (P, W, ...) int64
        A `Memory` for each window of each path, modified in place.
    workload, available, price : ndarray
        Fields of `PackedConditions`: (P, W, 5, I), (P, W, G) and (P, W, G).
    weight : (P,) float
        Of the paths; 0 leaves one out.
    target : (n, C) int64
        The fleets wanted.
    first : bool
        Whether the first window is that of an episode.
    spent_usd : float
        What a budget for the whole episode has paid.
    fleet : (C, 1 + 2K) int64
        The present state.
    limit_usd : float
        A target that costs more for certain is not played to the end.
    space : (C, 1 + 2K) int64
        Overwritten.
    usd : (n,) float
        Written: inf beyond `limit_usd`.

    Returns
    -------
    int
        Status of the routing that failed; 0 if none did.
    """
    packed, basis, active, workload, available = borrow((packed, basis, active, workload, available))
    price, weight, target, fleet, space, usd = borrow((price, weight, target, fleet, space, usd))
    problem, _, played = unpack(packed)
    for k in range(target.shape[0]):
        ahead = 0.0  # the least that the paths to come cost
        for p in range(weight.shape[0]):
            if weight[p] > 0.0 and limit_usd < np.inf:
                ahead += weight[p] * _least_usd(problem, available[p], price[p], target[k])
        total = 0.0
        for p in range(weight.shape[0]):
            if not weight[p] > 0.0:
                continue
            if limit_usd < np.inf:
                ahead -= weight[p] * _least_usd(problem, available[p], price[p], target[k])
            _copy_fleet(fleet, space)
            spent = spent_usd
            for t in range(workload.shape[1]):
                conditions = PackedConditions(workload[p, t], available[p, t], price[p, t])
                memory = Memory(basis[p, t], active[p, t])
                status, _, spent = extern_play(
                    packed, conditions, target[k], first and t == 0, spent, space, memory
                )
                if status != 0:
                    return status
                cost = 0.0
                for term in range(played.terms_usd.shape[0]):
                    cost += played.terms_usd[term]
                total += weight[p] * cost
                if total + ahead > limit_usd:
                    break
            if total + ahead > limit_usd:
                total = np.inf
                break
        usd[k] = total
    return 0
