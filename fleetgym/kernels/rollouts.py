"""Play many windows in one call: episodes, options of one slot, or targets that are held in them.

The search for best-known costs and agents that look ahead do little else. Window by window from Python, they would
spend three quarters of their time between the kernels.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from fleetgym.kernels.compile import entry, inline, jit
from fleetgym.kernels.economics import T_MODEL, T_RENTAL, T_STARTUP
from fleetgym.kernels.lowlevel import PackedPointers, Packer, borrow
from fleetgym.kernels.records import (
    EXAMPLE_FLEET,
    EXAMPLE_MEMORY,
    EXAMPLE_PACKED,
    Memory,
    PackedConditions,
    unpack,
)
from fleetgym.kernels.window import BUDGET_KIND, NO_BUDGET, extern_hold, extern_play, serve


class Track(NamedTuple):
    """A played episode; first axis: windows, and for states the end as well."""

    fleet: np.ndarray  # (T + 1, C, 1 + 2K) int64 before each window
    spent_usd: np.ndarray  # (T + 1,) of a budget for the whole episode
    cost_usd: np.ndarray  # (T,)
    serving: np.ndarray  # (T, C) int64


@inline
def _is_back(old, new, t):
    """Return whether two episodes stand alike before window t."""
    if old.spent_usd[t] != new.spent_usd[t]:
        return False
    for c in range(new.fleet.shape[1]):
        for k in range(new.fleet.shape[2]):
            if old.fleet[t, c, k] != new.fleet[t, c, k]:
                return False
    return True


@inline
def copy_fleet(source, target):
    """Copy the state of a fleet."""
    for c in range(target.shape[0]):
        for k in range(target.shape[1]):
            target[c, k] = source[c, k]


@inline
def _copy(source, target):
    for c in range(target.shape[0]):
        target[c] = source[c]


@inline
def operating_usd(terms_usd):
    """Return what a window costs without holding and starting."""
    usd = 0.0
    for term in range(terms_usd.shape[0]):
        if term != T_RENTAL and term != T_MODEL and term != T_STARTUP:
            usd += terms_usd[term]
    return usd


def new_track(windows: int, fleet: np.ndarray) -> Track:
    """Return an empty track of so many windows for fleets like this state, (C, 1 + 2K)."""
    return Track(
        np.zeros((windows + 1, *fleet.shape), dtype=np.int64),
        np.zeros(windows + 1),
        np.zeros(windows),
        np.zeros((windows, len(fleet)), dtype=np.int64),
    )


class Recall(NamedTuple):
    """What rollouts of P paths of W windows remember; it changes the speed, and the result by round-off only."""

    basis: np.ndarray  # (P, W, ...) `Memory` of each window, of the last fleet that was played (to the end)
    active: np.ndarray
    tried_basis: np.ndarray  # the same of the fleet that is being played
    tried_active: np.ndarray
    workload: np.ndarray  # (P, W, 5, I) conditions under which the next two hold
    serving: (
        np.ndarray
    )  # (P, W, places, C + 1) int64: how many configurations serve, -1: nothing; each, and its replicas
    usd: np.ndarray  # (P, W, places) what operating them costs


#: Serving fleets that are remembered for a window of a path, unless told otherwise.
RECALLED = 16
_REPLICAS = 2**32  # a configuration and its replicas are one number


def _empty_recall(paths: int, windows: int, memory: Memory, workloads: int, places: int) -> Recall:
    basis, active = (np.zeros((paths, windows, part.size), dtype=np.int64) for part in memory)
    serving = np.zeros((paths, windows, places, memory.active.size), dtype=np.int64)
    serving[..., 0] = -1
    return Recall(
        *(basis, active, np.empty_like(basis), np.empty_like(active)),
        np.full((paths, windows, 5, workloads), np.nan),
        serving,
        np.zeros((paths, windows, places)),
    )


_packer = Packer(_empty_recall(1, 1, EXAMPLE_MEMORY, 1, 1))
unpack_recall: Any = _packer.unpack


def new_recall(
    paths: int, windows: int, memory: Memory, workloads: int, places: int = RECALLED
) -> PackedPointers:
    """Return a packed `Recall` that knows nothing, for problems whose memory is like this one.

    For a window of a path as many serving fleets are remembered as there are places, a power of two.
    """
    return _packer.pack(_empty_recall(paths, windows, memory, workloads, places))


@inline
def _copy_memory(basis, active, to_basis, to_active):
    """Copy what a warm start uses."""
    for n in range(2 + basis[0] + 2 * basis[1]):
        to_basis[n] = basis[n]
    for n in range(1 + active[0]):
        to_active[n] = active[n]


@inline
def _keep(recall):
    """Let later fleets start from the bases of the one that was played."""
    for p in range(recall.active.shape[0]):
        for t in range(recall.active.shape[1]):
            if recall.tried_active[p, t, 0] >= 0:
                _copy_memory(
                    recall.tried_basis[p, t],
                    recall.tried_active[p, t],
                    recall.basis[p, t],
                    recall.active[p, t],
                )


@inline
def _forget_others(recall, workload, p, t):
    """Forget what other conditions cost."""
    known, same = recall.workload[p, t], True
    for row in range(known.shape[0]):
        for i in range(known.shape[1]):
            same = same and known[row, i] == workload[row, i]
    if same:
        return
    for row in range(known.shape[0]):
        for i in range(known.shape[1]):
            known[row, i] = workload[row, i]
    for n in range(recall.usd.shape[2]):
        recall.serving[p, t, n, 0] = -1


@inline
def _place(serving, places):
    """Return at which of a power of two of places a serving fleet is remembered."""
    mixed = np.uint64(0)
    for c in range(serving.shape[0]):
        if serving[c] > 0:
            mixed = (mixed + np.uint64(c * _REPLICAS + serving[c])) * np.uint64(0x9E3779B97F4A7C15)
            mixed ^= mixed >> np.uint64(29)
    return np.int64(mixed & np.uint64(places - 1))


@inline
def _is_recalled(known, serving):
    """Return whether this is the serving fleet that is remembered here."""
    count = 0
    for c in range(serving.shape[0]):
        if serving[c] > 0:
            count += 1
            if count > known[0] or known[count] != c * _REPLICAS + serving[c]:
                return False
    return count == known[0]


@inline
def _note(known, serving):
    """Write down a serving fleet."""
    known[0] = 0
    for c in range(serving.shape[0]):
        if serving[c] > 0:
            known[0] += 1
            known[known[0]] = c * _REPLICAS + serving[c]


@inline
def _serve_and_note(packed, conditions, recall, memory, p, t, place):
    """Route, and remember at a place what that costs; return the status of the routing, and the cost."""
    _, _, played = unpack(packed)
    status = serve(packed, conditions, memory)
    usd = operating_usd(played.terms_usd)
    _note(recall.serving[p, t, place], played.serving)
    recall.usd[p, t, place] = usd
    return status, usd


@inline
def _recalled_usd(packed, conditions, recall, p, t):
    """Return the status of the routing, and what it costs to operate the replicas that serve; or what is remembered."""
    _, _, played = unpack(packed)
    place = _place(played.serving, recall.usd.shape[2])
    if _is_recalled(recall.serving[p, t, place], played.serving):
        recall.tried_active[p, t, 0] = -1
        return 0, recall.usd[p, t, place]
    memory = Memory(recall.tried_basis[p, t], recall.tried_active[p, t])
    _copy_memory(recall.basis[p, t], recall.active[p, t], memory.basis, memory.active)
    return _serve_and_note(packed, conditions, recall, memory, p, t, place)


@inline
def _known_usd(packed, conditions, recall, t):
    """Return the same on the only path, where any fleet's basis is left to the next one."""
    _, _, played = unpack(packed)
    place = _place(played.serving, recall.usd.shape[2])
    if _is_recalled(recall.serving[0, t, place], played.serving):
        return 0, recall.usd[0, t, place]
    memory = Memory(recall.basis[0, t], recall.active[0, t])
    return _serve_and_note(packed, conditions, recall, memory, 0, t, place)


@inline
def _least_usd(available, price, used, rent_usd):
    """Return the least that holding a target costs over the windows of a path; 0 where it may not be had."""
    usd = 0.0
    for t in range(available.shape[0]):
        for g in range(available.shape[1]):
            if used[g] > available[t, g]:
                return 0.0
            usd += rent_usd[g] * price[t, g]
    return usd


@inline
def _fill_holding(problem, target, used, rent_usd):
    """Write the GPUs that a target uses of each pool, and their rent in a window."""
    for g in range(used.shape[0]):
        used[g], rent_usd[g] = 0, 0.0
        for c in range(target.shape[0]):
            used[g] += target[c] * problem.gpu_use[g, c]
            rent_usd[g] += target[c] * problem.rental_usd[g, c]


@inline
def _held_usd(terms_usd):
    return terms_usd[T_RENTAL] + terms_usd[T_MODEL] + terms_usd[T_STARTUP]


@inline
def _hold_path(packed, workload, available, price, target, first, spent_usd, fleet, track):
    """Hold a target in all windows of a path, and write how that goes; demand does not matter."""
    _, _, played = unpack(packed)
    copy_fleet(fleet, track.fleet[0])
    track.spent_usd[0] = spent_usd
    for t in range(workload.shape[0]):
        copy_fleet(track.fleet[t], track.fleet[t + 1])
        conditions = PackedConditions(workload[t], available[t], price[t])
        _, track.spent_usd[t + 1] = extern_hold(
            packed, conditions, target, first and t == 0, track.spent_usd[t], track.fleet[t + 1]
        )
        track.cost_usd[t] = _held_usd(played.terms_usd)
        _copy(played.serving, track.serving[t])


@jit
def play_rollout(packed, recall, workload, available, price, target, begin, end, limit_usd, old, new):
    """Play windows from `begin` until the old state is reached, the episode ends, or a cost is exceeded.

    Parameters
    ----------
    packed : (words,) int64
        Words of `records.pack_problem`.
    recall : (words,) int64
        Words of `new_recall` for one path of T windows, whose conditions never change; modified in place.
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
    packed, words, target, old, new = borrow((packed, recall, target, old, new))
    season = borrow(PackedConditions(workload, available, price))
    copy_fleet(old.fleet[begin], new.fleet[begin])
    new.spent_usd[begin] = old.spent_usd[begin]
    _, _, played = unpack(packed)
    memories, total = unpack_recall(words)[0], 0.0
    for t in range(begin, target.shape[0]):
        if t >= end and _is_back(old, new, t):
            return 0, t
        copy_fleet(new.fleet[t], new.fleet[t + 1])
        conditions = PackedConditions(season.workload[t], season.available[t], season.price[t])
        _, new.spent_usd[t + 1] = extern_hold(
            packed, conditions, target[t], t == 0, new.spent_usd[t], new.fleet[t + 1]
        )
        held_usd = _held_usd(played.terms_usd)
        status, running_usd = _known_usd(packed, conditions, memories, t)
        if status != 0:
            return status, t
        new.cost_usd[t] = held_usd + running_usd
        _copy(played.serving, new.serving[t])
        total += new.cost_usd[t]
        if total > limit_usd:
            return 0, t + 1
    return 0, target.shape[0]


@jit
def price_options(packed, recall, workload, available, price, begin, serving, members, option, usd):
    """Write what operating costs if some configurations had other replicas.

    Parameters
    ----------
    packed, recall, workload, available, price
        As for `play_rollout`.
    begin : int
        First of n windows.
    serving : (n, C) int64
        Replicas that serve.
    members : (m,) int64
        Configurations whose replicas are replaced.
    option : (n, L, m) int64
        By what.
    usd : (n, L), modified in place
        Where it is finite it becomes the cost of the window without holding and starting; elsewhere nothing is done.

    Returns
    -------
    int
        Status of the routing that failed; 0 if none did.
    """
    packed, words, serving, members, option, usd = borrow((packed, recall, serving, members, option, usd))
    season = borrow(PackedConditions(workload, available, price))
    _, _, played = unpack(packed)
    memories = unpack_recall(words)[0]
    for n in range(serving.shape[0]):
        t = begin + n
        conditions = PackedConditions(season.workload[t], season.available[t], season.price[t])
        for k in range(option.shape[1]):
            if not math.isfinite(usd[n, k]):
                continue
            _copy(serving[n], played.serving)
            for m in range(members.shape[0]):
                played.serving[members[m]] = option[n, k, m]
            status, usd[n, k] = _known_usd(packed, conditions, memories, t)
            if status != 0:
                return status
    return 0


@inline
def _is_alike(available, price, p, q, t):
    """Return whether paths p and q differ at most in demand in window t."""
    for g in range(available.shape[2]):
        if available[p, t, g] != available[q, t, g] or price[p, t, g] != price[q, t, g]:
            return False
    return True


@jit
def play_targets(
    packed,
    recall,
    workload,
    available,
    price,
    weight,
    target,
    first,
    spent_usd,
    fleet,
    limit_usd,
    track,
    space,
    used,
    rent_usd,
    usd,
):
    """Write what each target costs if it is wanted in all windows, as a mean over paths.

    Each window of a path remembers the basis of the last target that was played to the end, from which neighbours of
    it start, and what serving fleets cost. Paths share how the target is held until GPUs or prices differ.

    Parameters
    ----------
    packed : (words,) int64
        Words of `records.pack_problem`.
    recall : (words,) int64
        Words of `new_recall`; what they point to is modified in place.
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
    track : Track
        Of the windows of a path. Overwritten, as are the next three.
    space, used, rent_usd : (C, 1 + 2K) int64, (G,) int64, (G,) float
    usd : (n,) float
        Written: inf beyond `limit_usd`.

    Returns
    -------
    int
        Status of the routing that failed; 0 if none did.
    """
    packed, words, workload, available, price = borrow((packed, recall, workload, available, price))
    weight, target, fleet, space, used = borrow((weight, target, fleet, space, used))
    track, rent_usd, usd = borrow((track, rent_usd, usd))
    problem, _, played = unpack(packed)
    memories = unpack_recall(words)[0]
    bounded = limit_usd < np.inf and problem.budget[BUDGET_KIND] == NO_BUDGET
    for p in range(workload.shape[0]):
        for t in range(workload.shape[1]):
            _forget_others(memories, workload[p, t], p, t)
    shared = 0  # the path whose track the others share
    while shared < weight.shape[0] - 1 and not weight[shared] > 0.0:
        shared += 1
    for k in range(target.shape[0]):
        _hold_path(
            packed,
            workload[shared],
            available[shared],
            price[shared],
            target[k],
            first,
            spent_usd,
            fleet,
            track,
        )
        _fill_holding(problem, target[k], used, rent_usd)
        ahead = 0.0  # the least that the paths to come cost
        for p in range(weight.shape[0]):
            if bounded and weight[p] > 0.0:
                ahead += weight[p] * _least_usd(available[p], price[p], used, rent_usd)
        total = 0.0
        for p in range(weight.shape[0]):
            if not weight[p] > 0.0:
                for t in range(workload.shape[1]):
                    memories.tried_active[p, t, 0] = -1
                continue
            if bounded:
                ahead -= weight[p] * _least_usd(available[p], price[p], used, rent_usd)
            alike, spent = True, spent_usd
            for t in range(workload.shape[1]):
                conditions = PackedConditions(workload[p, t], available[p, t], price[p, t])
                if alike and not _is_alike(available, price, p, shared, t):
                    alike, spent = False, track.spent_usd[t]
                    copy_fleet(track.fleet[t], space)
                if alike:
                    _copy(track.serving[t], played.serving)
                    held_usd = track.cost_usd[t]
                else:
                    _, spent = extern_hold(packed, conditions, target[k], first and t == 0, spent, space)
                    held_usd = _held_usd(played.terms_usd)
                status, running_usd = _recalled_usd(packed, conditions, memories, p, t)
                if status != 0:
                    return status
                total += weight[p] * (held_usd + running_usd)
                if total + ahead > limit_usd:
                    break
            if total + ahead > limit_usd:
                total = np.inf
                break
        usd[k] = total
        if total < np.inf:
            _keep(memories)
    return 0


@jit
def hold_fleet(packed, basis, active, workload, available, price, target, fleet, terms_usd, requests):
    """Play an episode in which one target is wanted all the time; write what it costs and misses.

    Parameters
    ----------
    packed : (words,) int64
        Words of `records.pack_problem`.
    basis, active : ndarray
        Fields of `Memory`, modified in place.
    workload, available, price : ndarray
        Fields of `PackedConditions` for all windows, (T, 5, I), (T, G) and (T, G).
    target : (C,) int64
        The fleet wanted.
    fleet : (C, 1 + 2K) int64, modified in place
        The state before the first window, and afterwards that at the end.
    terms_usd : (8,) float, modified in place
        Cost terms are added.
    requests : (3, I) float, modified in place
        Requests missed, requests unserved and all requests are added, each divided by the seconds of a window.

    Returns
    -------
    int
        Status of the routing that failed; 0 if none did.
    """
    packed, workload, available, price = borrow((packed, workload, available, price))
    target, fleet, terms_usd, requests = borrow((target, fleet, terms_usd, requests))
    _, _, played = unpack(packed)
    memory, spent = borrow(Memory(basis, active)), 0.0
    for t in range(workload.shape[0]):
        conditions = PackedConditions(workload[t], available[t], price[t])
        status, _, spent = extern_play(packed, conditions, target, t == 0, spent, fleet, memory)
        if status != 0:
            return status
        for term in range(terms_usd.shape[0]):
            terms_usd[term] += played.terms_usd[term]
        for i in range(workload.shape[2]):
            rate = workload[t, 0, i]
            requests[0, i] += rate * played.share[1, i]
            requests[1, i] += rate * played.share[0, i]
            requests[2, i] += rate
    return 0


#: Arguments of `play_targets` and `price_targets` in their types, up to the state.
EXAMPLE_TARGETS = (
    *(EXAMPLE_PACKED, EXAMPLE_PACKED, np.zeros((1, 1, 5, 1)), np.zeros((1, 1, 1), dtype=np.int64)),
    *(np.zeros((1, 1, 1)), np.zeros(1), EXAMPLE_FLEET, False, 0.0, EXAMPLE_FLEET),
)
entry(
    play_targets,
    *(*EXAMPLE_TARGETS, 0.0, new_track(1, EXAMPLE_FLEET), EXAMPLE_FLEET),
    *(EXAMPLE_PACKED, np.zeros(1), np.zeros(1)),
)
