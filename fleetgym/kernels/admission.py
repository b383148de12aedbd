"""Admit a target fleet within its limits: from a fleet's state to its next one (section 2 of the model page).

A fleet state is an int64 array of shape (configurations, 1 + 2 K), K being the longest start-up in windows (at
least 1): column 0 counts running replicas, column k those that start serving in k windows, column K + k
those that are draining and released in k windows.
"""

import numpy as np

from fleetgym.kernels.compile import extern, inline

#: Rows of the array of moves that `admit` fills, each of shape (configurations,).
LEAVING, PENDING, GRANTED, DENIED, LOST = range(5)
NUM_MOVES = 5

#: Comparisons of money allow this much, relative to max(1, limit).
MONEY_TOLERANCE = 1e-9


@inline
def held_replicas(state, moves, c):
    """Replicas of configuration c that hold GPUs and pay."""
    total = moves[LEAVING, c]
    for k in range(state.shape[1]):
        total += state[c, k]
    return total


@inline
def holding_usd(state, moves, hold_usd):
    """Rent and model storage of everything held in this window."""
    total = 0.0
    for c in range(state.shape[0]):
        total += held_replicas(state, moves, c) * hold_usd[c]
    return total


@inline
def _over_budget(usd, limit_usd):
    return usd > limit_usd + MONEY_TOLERANCE * max(1.0, limit_usd)


@inline
def _remove_draining(state, moves, c):
    """Remove one draining replica of c: leaving ones first, then fewest windows left. False if there is none."""
    if moves[LEAVING, c] > 0:
        moves[LEAVING, c] -= 1
        return True
    longest = (state.shape[1] - 1) // 2
    for k in range(longest + 1, 2 * longest + 1):
        if state[c, k] > 0:
            state[c, k] -= 1
            return True
    return False


@inline
def _remove_starting(state, moves, c):
    """Remove one starting replica of c, most windows left first. False if there is none."""
    for k in range((state.shape[1] - 1) // 2, 0, -1):
        if state[c, k] > 0:
            state[c, k] -= 1
            moves[PENDING, c] = 0  # a slot with a pending replica holds no other
            return True
    return False


@inline
def _remove_running(state, c):
    if state[c, 0] > 0:
        state[c, 0] -= 1
        return True
    return False


@inline
def _remove_last(state, moves, order, weight, only_draining):
    """Remove one replica whose `weight` is positive: draining, else starting, else running; last rank first.

    Returns the configuration, or -1 if there is none.
    """
    for stage in range(1 if only_draining else 3):
        for k in range(order.shape[0] - 1, -1, -1):
            c = order[k]
            if weight[c] <= 0:
                continue
            if stage == 0:
                removed = _remove_draining(state, moves, c)
            elif stage == 1:
                removed = _remove_starting(state, moves, c)
            else:
                removed = _remove_running(state, c)
            if removed:
                return c
    return -1


@inline
def _leave(target, state, moves, order, slot_start, slot_exclusive):
    """(a) Cancel or drain what exceeds the target."""
    for s in range(slot_start.shape[0] - 1):
        wanted = 0
        for k in range(slot_start[s], slot_start[s + 1]):
            wanted += target[order[k]]
        for k in range(slot_start[s], slot_start[s + 1]):
            c = order[k]
            switches = slot_exclusive[s] and wanted > 0 and target[c] == 0
            _leave_one(target[c], switches, state, moves, c)


@inline
def _leave_one(wanted, switches, state, moves, c):
    longest = (state.shape[1] - 1) // 2
    surplus = -wanted
    for k in range(longest + 1):
        surplus += state[c, k]
    for k in range(longest, 0, -1):
        leave = min(surplus, state[c, k])
        if leave > 0 and switches:
            moves[PENDING, c] = 1
            surplus -= leave
        elif leave > 0:
            state[c, k] -= leave
            surplus -= leave
    if surplus > 0:
        state[c, 0] -= surplus
        moves[LEAVING, c] += surplus


@inline
def _fill_used(state, moves, gpu_use, used):
    """Write the GPUs held of each pool."""
    for g in range(gpu_use.shape[0]):
        used[g] = 0
    for c in range(state.shape[0]):
        held = held_replicas(state, moves, c)
        if held > 0:
            for g in range(gpu_use.shape[0]):
                used[g] += gpu_use[g, c] * held


@inline
def _shed(state, moves, order, gpu_use, available, hold_usd, budget_usd, used):
    """(b), (c) Remove replicas until availability and budget hold."""
    for g in range(gpu_use.shape[0]):
        while used[g] > available[g]:
            c = _remove_last(state, moves, order, gpu_use[g], False)
            if c < 0:
                break
            moves[LOST, c] += 1
            for h in range(gpu_use.shape[0]):
                used[h] -= gpu_use[h, c]
    while budget_usd < np.inf and _over_budget(holding_usd(state, moves, hold_usd), budget_usd):
        c = _remove_last(state, moves, order, hold_usd, False)
        if c < 0:
            break
        moves[LOST, c] += 1
        for h in range(gpu_use.shape[0]):
            used[h] -= gpu_use[h, c]


@inline
def _grant(state, moves, c, count, delay, gpu_use, used):
    """Let `count` replicas of configuration c come."""
    state[c, delay] += count
    moves[GRANTED, c] += count
    for g in range(gpu_use.shape[0]):
        used[g] += gpu_use[g, c] * count


@inline
def _free_replicas(c, gpu_use, available, used, most):
    """Return for how many replicas of configuration c, up to `most`, there are free GPUs."""
    for g in range(gpu_use.shape[0]):
        if gpu_use[g, c] > 0:
            most = min(most, (available[g] - used[g]) // gpu_use[g, c])
    return max(most, 0)


@inline
def _take_back(state, moves, c):
    """(d) 1. Return a draining replica of c to running, most windows left first. False if there is none."""
    if moves[LEAVING, c] > 0:
        moves[LEAVING, c] -= 1
        state[c, 0] += 1
        return True
    longest = (state.shape[1] - 1) // 2
    for k in range(2 * longest, longest, -1):
        if state[c, k] > 0:
            state[c, k] -= 1
            state[c, 0] += 1
            return True
    return False


@inline
def _first_violation(state, moves, c, gpu_use, available, used, hold_usd, fee_usd, budget_usd):
    """Return the first pool that one more replica of c overfills, G for the budget, -1 if it fits."""
    num_pools = gpu_use.shape[0]
    for g in range(num_pools):
        if gpu_use[g, c] > 0 and used[g] + gpu_use[g, c] > available[g]:
            return g
    if budget_usd < np.inf:
        usd = holding_usd(state, moves, hold_usd) + hold_usd[c] + fee_usd
        if _over_budget(usd, budget_usd):
            return num_pools
    return -1


@inline
def _draining(state, moves, c):
    """Replicas of configuration c that leave or drain."""
    longest = (state.shape[1] - 1) // 2
    total = moves[LEAVING, c]
    for k in range(longest + 1, 2 * longest + 1):
        total += state[c, k]
    return total


@inline
def _fits_undrained(state, moves, c, gpu_use, available, used, hold_usd, fee_usd, budget_usd):
    """Return whether one more replica of c would fit if nothing left or drained."""
    for g in range(gpu_use.shape[0]):
        missing = used[g] + gpu_use[g, c] - available[g]
        if gpu_use[g, c] > 0 and missing > 0:
            for d in range(state.shape[0]):
                missing -= gpu_use[g, d] * _draining(state, moves, d)
            if missing > 0:
                return False
    if budget_usd == np.inf:
        return True
    usd = 0.0
    for d in range(state.shape[0]):
        usd += (held_replicas(state, moves, d) - _draining(state, moves, d)) * hold_usd[d]
    return not _over_budget(usd + hold_usd[c] + fee_usd, budget_usd)


@inline
def _make_room(state, moves, c, order, gpu_use, available, used, hold_usd, fee_usd, budget_usd):
    """(d) 2.-3. Let draining replicas give way to one of c. Returns how many did, -1 if that is not enough."""
    short = _first_violation(state, moves, c, gpu_use, available, used, hold_usd, fee_usd, budget_usd)
    if short < 0:
        return 0
    if not _fits_undrained(state, moves, c, gpu_use, available, used, hold_usd, fee_usd, budget_usd):
        return -1
    gave_way = 0
    while short >= 0:  # as it fits once all are gone, something that drains is in the way
        if short < gpu_use.shape[0]:
            removed = _remove_last(state, moves, order, gpu_use[short], True)
        else:
            removed = _remove_last(state, moves, order, hold_usd, True)
        gave_way += 1
        for g in range(gpu_use.shape[0]):
            used[g] -= gpu_use[g, removed]
        short = _first_violation(state, moves, c, gpu_use, available, used, hold_usd, fee_usd, budget_usd)
    return gave_way


@inline
def _settle_switch(state, moves, c, granted, order, first, last):
    """(d) End of an exclusive slot: cancel what was pending if c came, keep the old option if not.

    Returns whether anything was cancelled.
    """
    cancelled = False
    for k in range(first, last):
        old = order[k]
        if old == c:
            continue
        if moves[PENDING, old] > 0:
            moves[PENDING, old] = 0
            if granted:
                cancelled = _remove_starting(state, moves, old) or cancelled
        if not granted and moves[LEAVING, old] > 0:
            state[old, 0] += moves[LEAVING, old]
            moves[LEAVING, old] = 0
    return cancelled


@inline
def _present(state, c):
    total = 0
    for k in range((state.shape[1] - 1) // 2 + 1):
        total += state[c, k]
    return total


@inline
def _drain(state, moves, wait):
    """(e) What still leaves drains until everything granted in this window serves."""
    longest = (state.shape[1] - 1) // 2
    for c in range(state.shape[0]):
        if moves[LEAVING, c] > 0:
            if wait > 0:
                state[c, longest + wait] += moves[LEAVING, c]
            moves[LEAVING, c] = 0


@inline
def clear(moves):
    """Note that nothing has happened yet."""
    for row in range(moves.shape[0]):
        for c in range(moves.shape[1]):
            moves[row, c] = 0


@inline
def count_held(state, held):
    """Write the replicas that hold GPUs and pay into `held` (C,)."""
    for c in range(state.shape[0]):
        held[c] = 0
        for k in range(state.shape[1]):
            held[c] += state[c, k]


@inline
def is_settled(target, state, held, gpu_use, available, hold_usd, budget_usd):
    """Return whether the fleet is the target and within all limits, so that `admit` would change nothing."""
    for c in range(target.shape[0]):
        if target[c] != _present(state, c):
            return False
    for g in range(gpu_use.shape[0]):
        used = 0
        for c in range(target.shape[0]):
            used += gpu_use[g, c] * held[c]
        if used > available[g]:
            return False
    usd = 0.0
    if budget_usd < np.inf:
        for c in range(target.shape[0]):
            usd += held[c] * hold_usd[c]
    return not _over_budget(usd, budget_usd)


def admit(
    target,
    state,
    moves,
    order,
    slot_start,
    slot_exclusive,
    gpu_use,
    available,
    used,
    hold_usd,
    startup_usd,
    startup_windows,
    at_once,
    budget_usd,
    fees_count,
):
    """Admit a target fleet in one window.

    Parameters
    ----------
    target : (C,) int64
        Replicas wanted.
    state : (C, 1 + 2K) int64, modified in place
        The fleet's state.
    moves : (5, C) int64, overwritten
        Rows LEAVING and PENDING (work space, zero on return), GRANTED, DENIED, LOST.
    order, slot_start, slot_exclusive : int64 (C,), int64 (S + 1,), bool (S,)
        Configurations by rank; where each slot begins in `order`; whether it is an exclusive group.
    gpu_use, available : (G, C) int64, (G,) int64
    used : (G or more,) int64
        Work space.
    hold_usd, startup_usd : (C,)
        What one replica pays in this window, and the fee of a grant.
    startup_windows : (C,) int64
        Windows until a grant serves.
    at_once : bool
        Whether grants of this window serve at once all the same, as in window 0.
    budget_usd : float
        Most that may be spent on holding in this window; inf for no budget.
    fees_count : bool
        Whether fees count against the budget (a budget of kind ``pool``).

    Returns
    -------
    forced_outages : int
        Replicas that gave way to one that does not serve yet.
    fees_usd : float
        Start-up fees.
    """
    clear(moves)
    _leave(target, state, moves, order, slot_start, slot_exclusive)
    _fill_used(state, moves, gpu_use, used)
    _shed(state, moves, order, gpu_use, available, hold_usd, budget_usd, used)
    outages, wait = 0, 0
    fees_usd = 0.0
    for s in range(slot_start.shape[0] - 1):
        for k in range(slot_start[s], slot_start[s + 1]):
            c = order[k]
            came = False
            missing = target[c] - _present(state, c)
            while missing > 0 and _take_back(state, moves, c):
                came = True
                missing -= 1
            delay = 0 if at_once else startup_windows[c]
            if missing > 0 and budget_usd == np.inf:  # all at once what needs no room to be made
                count = _free_replicas(c, gpu_use, available, used, missing)
                _grant(state, moves, c, count, delay, gpu_use, used)
                fees_usd += count * startup_usd[c]
                missing -= count
                came = came or count > 0
            while missing > 0:
                counted = fees_usd + startup_usd[c] if fees_count else 0.0
                gave_way = _make_room(
                    state, moves, c, order, gpu_use, available, used, hold_usd, counted, budget_usd
                )
                if gave_way < 0:
                    moves[DENIED, c] = missing
                    break
                _grant(state, moves, c, 1, delay, gpu_use, used)
                fees_usd += startup_usd[c]
                missing -= 1
                came = True
                if delay > 0:
                    outages += gave_way
            if moves[GRANTED, c] > 0:
                wait = max(wait, delay)
            if slot_exclusive[s] and target[c] > 0:
                stays = came or _present(state, c) >= target[c]
                if _settle_switch(state, moves, c, stays, order, slot_start[s], slot_start[s + 1]):
                    _fill_used(state, moves, gpu_use, used)
    _drain(state, moves, wait)
    return outages, fees_usd


def _example_arguments():
    """Return arguments of `admit` in their types, which do not depend on the size."""
    whole, money, table = np.zeros(1, dtype=np.int64), np.zeros(1), np.zeros((1, 1), dtype=np.int64)
    return (
        *(whole, table, table, whole, whole, np.zeros(1, dtype=np.bool_), table, whole, whole),
        *(money, money, whole, False, 0.0, False),
    )


extern_admit = extern(admit, (0, 0.0), *_example_arguments())


@inline
def count_serving(state, serving):
    """Write the replicas that serve in this window, running and draining, into `serving` (C,)."""
    longest = (state.shape[1] - 1) // 2
    for c in range(state.shape[0]):
        serving[c] = state[c, 0]
        for k in range(longest + 1, 2 * longest + 1):
            serving[c] += state[c, k]


@inline
def advance(state):
    """Let one window pass: starting replicas come closer to serving, draining ones to release."""
    longest = (state.shape[1] - 1) // 2
    for c in range(state.shape[0]):
        state[c, 0] += state[c, 1]
        for k in range(1, longest):
            state[c, k] = state[c, k + 1]
            state[c, longest + k] = state[c, longest + k + 1]
        state[c, longest] = 0
        state[c, 2 * longest] = 0
