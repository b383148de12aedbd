"""Find the cheapest way through candidate fleets of every window, by dynamic programming over time.

A step from one window's fleet to the next one's costs what its starts cost. Whether starting replicas find room, and
what drains meanwhile, depends on the windows before, which are read from the best way so far.
"""

from typing import NamedTuple

import numpy as np

from fleetgym.kernels.compile import inline, jit
from fleetgym.kernels.lowlevel import borrow


class Passage(NamedTuple):
    """What it takes to get from one window's fleet to the next; C configurations, G pools of GPUs."""

    first: np.ndarray  # (C,) int64 before the first window
    start_usd: np.ndarray  # (T, C) fee and rent of one that serves from each window on; inf: there is none
    wait: np.ndarray  # (C,) int64 windows that a start takes
    hold_usd: np.ndarray  # (T, C)
    gpu_use: np.ndarray  # (G, C) int64
    available: np.ndarray  # (T, G) int64
    limit_usd: float  # that holding may cost in a window


class WorkSpace(NamedTuple):
    """Room for what the kernel writes down."""

    held: np.ndarray  # (T, N, C) int32
    way: np.ndarray  # (longest wait + 2, C) int64
    member: np.ndarray  # (C,) int64


def new_work_space(passage: Passage, fleets: np.ndarray) -> WorkSpace:
    """Return work space for these fleets, (T, N, C)."""
    rows, configurations = int(passage.wait.max(initial=0)) + 2, fleets.shape[2]
    return WorkSpace(
        np.empty(fleets.shape, dtype=np.int32),
        np.empty((rows, configurations), dtype=np.int64),
        np.empty(configurations, dtype=np.int64),
    )


@inline
def _starts_usd(passage, before, after, held, t):
    """Return what starts cost that let a fleet serve after another one, and the most windows one of them takes.

    `held` lists the configurations that serve in the later one, and -1.
    """
    usd, longest = 0.0, 0
    for n in range(held.shape[0]):
        c = held[n]
        if c < 0:
            break
        more = after[c] - before[c]
        if more > 0:
            usd += more * passage.start_usd[t, c]
            longest = max(longest, passage.wait[c])
    return usd, longest


@inline
def _list_held(fleets, held):
    """Write which configurations have replicas in each fleet, (T, N, C), and -1."""
    for t in range(fleets.shape[0]):
        for k in range(fleets.shape[1]):
            count = 0
            for c in range(fleets.shape[2]):
                if fleets[t, k, c] > 0:
                    held[t, k, count] = c
                    count += 1
            if count < fleets.shape[2]:
                held[t, k, count] = -1


@inline
def _fill_way(fleets, last, t, k, at, way, member):
    """Write the fleets of window t and of those before, on the best way to fleet k after fleet `at`, latest first.

    Only configurations that any of them has are written; `member` says which. Returns their number.
    """
    count = 0
    for c in range(fleets.shape[2]):
        some, n = fleets[t, k, c], at
        way[0, count] = some
        for back in range(1, way.shape[0]):
            way[back, count] = fleets[t - back, n, c]
            some += way[back, count]
            n = last[t - back, n]
        if some > 0:
            member[count] = c
            count += 1
    return count


@inline
def _held(way, wait, n, k):
    """Return how many replicas are held k windows ago for what serves since."""
    most = way[k, n]
    for j in range(max(0, k - wait), k):
        most = max(most, way[j, n])
    return most


@inline
def _asked_usd(passage, way, member, t, longest):
    """Return what drains cost while replicas start, inf if these find no room.

    Row k of `way` is the fleet of k windows ago; row 0 is that of window t, for which replicas may start.
    """
    usd = 0.0
    for k in range(1, min(longest, t) + 1):
        if not _has_room(passage, way, member, t, k):
            return np.inf
        usd += _drained_usd(passage, way, member, t, k)
    return usd


@inline
def _has_room(passage, way, member, t, k):
    """Return whether what is held k windows ago was to be had."""
    if passage.limit_usd < np.inf:
        held_usd = 0.0
        for n in range(member.shape[0]):
            c = member[n]
            held_usd += _held(way, passage.wait[c], n, k) * passage.hold_usd[t - k, c]
        if held_usd > passage.limit_usd:
            return False
    for g in range(passage.gpu_use.shape[0]):
        room = passage.available[t - k, g]
        for n in range(member.shape[0]):
            c = member[n]
            if passage.gpu_use[g, c] > 0:
                room -= _held(way, passage.wait[c], n, k) * passage.gpu_use[g, c]
        if room < 0:
            return False
    return True


@inline
def _drained_usd(passage, way, member, t, k):
    """Return the rent of what leaves k windows ago, and drains since something else starts that takes so long."""
    if k + 1 >= way.shape[0]:
        return 0.0
    starts = False
    for n in range(member.shape[0]):
        starts = starts or (passage.wait[member[n]] == k and way[0, n] > way[1, n])
    usd = 0.0
    if starts:
        for n in range(member.shape[0]):
            c = member[n]
            leaving = way[k + 1, n] - _held(way, passage.wait[c], n, k)
            if leaving > 0:
                for s in range(t - k, t):
                    usd += leaving * passage.hold_usd[s, c]
    return usd


@inline
def _fill_from(passage, fleets, usd, held, from_usd):
    """Write the least after each fleet's window, windows backwards; return the steps that were priced."""
    windows, count = usd.shape
    steps = 0
    for k in range(count):
        from_usd[windows - 1, k] = 0.0
    for t in range(windows - 2, -1, -1):
        following = from_usd[t + 1] + usd[t + 1]
        order = np.argsort(following)
        for k in range(count):
            best = np.inf
            if usd[t, k] < np.inf:
                for n in order:
                    if following[n] >= best:
                        break
                    steps += 1
                    starting_usd, _ = _starts_usd(
                        passage, fleets[t, k], fleets[t + 1, n], held[t + 1, n], t + 1
                    )
                    best = min(best, following[n] + starting_usd)
            from_usd[t, k] = best
    return steps


@jit
def cheapest_ways(passage, fleets, usd, through_usd, work, to_usd, last, from_usd):
    """Find the cheapest way from before the first window to each fleet, and about what follows each at least.

    Parameters
    ----------
    passage : Passage
    fleets : (T, N, C) int32
        Replicas that may serve in each window. The first of each did, so from one of them to the next there is room.
    usd : (T, N)
        What a window costs with them, without starts; inf: not to be had.
    through_usd : (T,)
        Fleets are left out that only dearer ways through all windows lead by, but for the first.
    work : WorkSpace
    to_usd : (T, N), overwritten
        The least up to each fleet, its window included; inf if it is left out.
    last : (T, N) int64, overwritten
        The fleet before on that way; -1: none.
    from_usd : (T, N), overwritten
        The least after each fleet's window, if starts always find room and nothing drains.

    Returns
    -------
    int
        Steps from fleet to fleet that were priced.
    """
    passage, fleets, usd, through_usd, work = borrow((passage, fleets, usd, through_usd, work))
    to_usd, last, from_usd = borrow((to_usd, last, from_usd))
    windows, count = usd.shape
    held, way, member = work
    _list_held(fleets, held)
    steps = _fill_from(passage, fleets, usd, held, from_usd)
    for k in range(count):
        to_usd[0, k] = _starts_usd(passage, passage.first, fleets[0, k], held[0, k], 0)[0] + usd[0, k]
        last[0, k] = -1
    for t in range(1, windows):
        order = np.argsort(to_usd[t - 1])
        least = to_usd[t - 1, order[0]]
        for k in range(count):
            best, at = np.inf, -1
            if k == 0 or least + usd[t, k] + from_usd[t, k] <= through_usd[t]:
                for n in order:
                    total = to_usd[t - 1, n]
                    if total >= best:
                        break
                    steps += 1
                    starting_usd, longest = _starts_usd(
                        passage, fleets[t - 1, n], fleets[t, k], held[t, k], t
                    )
                    total += starting_usd
                    if total < best and longest > 0 and (k > 0 or n > 0):
                        back = way[: min(longest + 1, t) + 1]
                        some = member[: _fill_way(fleets, last, t, k, n, back, member)]
                        total += _asked_usd(passage, back, some, t, longest)
                    if total < best:
                        best, at = total, n
            to_usd[t, k], last[t, k] = best + usd[t, k], at
    return steps
