"""One pivot of the dual simplex method takes a basis of the routing LP to a neighbour that is less infeasible."""

from __future__ import annotations

import numpy as np

from fleetgym.kernels.compile import always_inline, extern, inline
from fleetgym.kernels.matrix import add_row, clear_row, exchange, row_product
from fleetgym.kernels.routing_basis import net_entry, release_row, scatter, tie_row
from fleetgym.kernels.routing_data import (
    DUAL,
    EXTRA,
    FEASIBLE,
    FIRST_X,
    KEY,
    LOAD,
    NONE,
    PRICE,
    RATE,
    ROUND_OFF,
    ROW,
    SCALE,
    STEP,
    STRIDE,
    TINY_PIVOT,
    USE,
    VALUE,
    new_workspace,
    unpack_workspace,
)
from fleetgym.kernels.routing_workload import (
    aim_by_key,
    aim_workload,
    offer,
    offer_columns,
    replace_key,
    represent,
    reset_pick,
)
from fleetgym.kernels.simd import (
    WIDTH,
    are_less,
    larger,
    load,
    lowest,
    spread,
    store,
)


@inline
def _violation(work, r, j):
    """How far a row's load is beyond its segment: positive above it, negative below it."""
    load, level = work.row[LOAD, r, j], work.state[r, j] // 2
    above = load - work.segment[0, r, level, j]
    if work.state[r, j] % 2 == 1:  # untied: whatever its load, no basis has such a row
        least = 2.0 * FEASIBLE * work.pick[4]
        return max(above, least) if above >= 0.0 else min(above, -least)
    if above > 0.0 or level == 0:
        return max(above, 0.0)
    return min(load - work.segment[0, r, level - 1, j], 0.0)


@always_inline
def choose_leaving(work, live, pairs, size, bland):
    """Return kind and place of what should leave: the column or row that is furthest out of bounds.

    The first of all if `bland`.
    """
    worst, kind, a, b, least = 0.0, NONE, 0, 0, FEASIBLE * work.pick[4]
    for i in range(live):
        for k in range(3):
            if work.local[i, VALUE, k] < 0.0:
                j = work.key[i, k]
                below = -work.local[i, VALUE, k] * work.lp[i, SCALE, j]
                value = _badness(below, i * STRIDE + j, least, bland)
                if value > worst:
                    worst, kind, a, b = value, KEY, i, k
    for e in range(pairs):
        if work.extra[e, 3] < 0.0:
            i, j = work.tight[2, e], work.tight[3, e]
            value = _badness(-work.extra[e, 3] * work.lp[i, SCALE, j], i * STRIDE + j, least, bland)
            if value > worst:
                worst, kind, a, b = value, EXTRA, e, 0
    n = work.row.shape[2]
    for r in range(3):
        for first in range(0, size, WIDTH):
            at = r * n + first
            loads = load(work.row, 3 * LOAD * n + at)
            beyond = larger(loads - load(work.span, 3 * n + at), load(work.span, at) - loads)
            bits = are_less(spread(least if bland else max(worst, least)), beyond)
            while bits != 0:
                j = first + lowest(bits)
                bits &= bits - 1
                value = _badness(abs(_violation(work, r, j)), (live + r) * STRIDE + j, least, bland)
                if value > worst:
                    worst, kind, a, b = value, ROW, r, j
    return kind, a, b


@inline
def _badness(violation, number, least, bland):
    """Rank what may leave: by its violation, or by its number."""
    if violation <= least:
        return 0.0
    return 1.0 / (1.0 + number) if bland else violation


@always_inline
def _dependent_extra(work, i, k, pairs):
    """Return the extra of workload `i` that depends most on key `k`, or -1."""
    best, choice, lp = TINY_PIVOT, -1, work.lp[i]
    for e in range(pairs):
        if work.tight[2, e] == i:
            size = abs(work.extra[e, k]) * lp[SCALE, work.key[i, k]] / lp[SCALE, work.tight[3, e]]
            if size > best:
                best, choice = size, e
    return choice


@always_inline
def _swap_key(work, i, k, pairs):
    """Let an extra of workload `i` that depends on key `k` take its place; return which, or -1.

    The basis stays the same, but the key that should leave is now an extra.
    """
    choice = _dependent_extra(work, i, k, pairs)
    if choice < 0:
        return -1
    mine, working, tied = work.extra[choice], work.working, work.tight
    pivot = mine[k]
    replace_key(work.inverse, i, k, work.extra, choice)
    for t in range(pairs):
        working[choice, t] *= -pivot
    for e in range(pairs):
        if tied[2, e] == i and e != choice:
            factor = work.extra[e, k]
            add_row(working, choice, -factor, working, e, pairs)
            for q in range(3):
                work.extra[e, q] -= mine[q] * (factor / pivot)
            work.extra[e, k] = factor / pivot
    for q in range(3):
        mine[q] /= -pivot
    mine[k] = 1.0 / pivot
    work.key[i, k], tied[3, choice] = tied[3, choice], work.key[i, k]
    work.local[i, VALUE, k], mine[3] = mine[3], work.local[i, VALUE, k]
    return choice


@always_inline
def _border_row(work, r, at, pairs):
    """Write the load of row (r, at), by the limits of the tight rows, into the working matrix's border."""
    matrix = work.working
    clear_row(matrix, pairs, pairs)
    for e in range(pairs):
        entry = net_entry(work.lp, work.tight[2, e], work.key, work.tight[3, e], work.extra, e, r, at)
        if entry != 0.0:
            add_row(matrix, pairs, entry, matrix, e, pairs)


@always_inline
def _border_column(work, i, j, r, at, pairs):
    """Write what column (i, j) takes from the extras, and adds to row (r, at), into the border."""
    matrix, loads = work.working, work.scratch
    represent(work.lp, work.inverse, i, j, work.extra, pairs)
    clear_row(loads, pairs, pairs)
    scatter(work.lp, i, work.key, work.place, j, work.extra, pairs, loads, pairs)
    corner = net_entry(work.lp, i, work.key, j, work.extra, pairs, r, at)
    for e in range(pairs + 1):
        matrix[e, pairs] = -row_product(matrix, e, loads, pairs, pairs)
    matrix[pairs, pairs] += corner


@inline
def _aim(work, a, sign, pairs):
    """Let the tight rows' prices follow what leaves, row `a` of the working matrix: write their rates."""
    reach = 0.0
    for t in range(pairs):
        rate = sign * work.working[a, t]
        work.vector[1, t] = work.row[RATE, work.tight[0, t], work.tight[1, t]] = rate
        reach = max(reach, abs(rate))
    work.pick[3] = reach


@always_inline
def _ratio_of_rows(work, pairs):
    """Offer the tight rows, whose prices must stay between two slopes, to the ratio test."""
    end = work.number.size
    for t in range(pairs):
        r, j = work.tight[0, t], work.tight[1, t]
        rate, level, price = work.vector[1, t], work.state[r, j] // 2, work.row[PRICE, r, j]
        bound = work.segment[1, r, level + (1 if rate > 0.0 else 0), j]
        if abs(rate) > TINY_PIVOT * work.pick[3] and bound < np.inf:
            gap = bound - price if rate > 0.0 else price - bound
            if offer(work.pick, gap, abs(rate), ROUND_OFF * (abs(price) + bound)):
                work.number[end - 2], work.number[end - 1] = -1, t


@always_inline
def _ratio_test(work, kind, only, live, pairs, size, bland):
    """Find what enters: a column, or a tight row that becomes free."""
    lp, row, local, flag = work.lp, work.row, work.local, work.flag
    pick, number = work.pick, work.number
    reset_pick(pick, number)
    if kind != KEY:  # these are few, and leave less to the columns
        _ratio_of_rows(work, pairs)
    for i in range(live):
        if kind != KEY:
            aim_workload(lp, i, row, work.key, work.inverse, local, pick[3])
        if kind != KEY or i == only:  # without a change of prices no other workload is concerned
            offer_columns(lp, i, row, local, work.gap, work.fall, flag, pick, number, size, bland)


@inline
def _is_off(work, pivot):
    """Tell whether the two ways to compute a pivot differ so much that the inverses need a refresh.

    A small pivot between nearly equal columns is known less well, whatever the inverses: later attempts allow for that.
    """
    rate = work.pick[2]
    return not abs(abs(pivot) - rate) <= 1e-7 * work.pick[4] * rate


@always_inline
def _exchange_key(work, i, k, pairs):
    """Exchange a key that no extra depends on: within its workload, so that the working matrix stays."""
    lp, inverse, tied, j = work.lp, work.inverse, work.tight, work.number[-1]
    represent(lp, inverse, i, j, work.extra, pairs)
    if _is_off(work, work.extra[pairs, k]):
        return -1
    replace_key(inverse, i, k, work.extra, pairs)
    work.flag[i, work.key[i, k]], work.flag[i, j] = 0, 1
    work.key[i, k] = j
    for e in range(pairs):
        if tied[2, e] == i:
            represent(lp, inverse, i, tied[3, e], work.extra, e)
    return pairs


@always_inline
def _move_last(work, e, t, last):
    """Close the gaps that extra `e` and tight row `t` left in the working matrix."""
    matrix, tied = work.working, work.tight
    for n in range(last + 1):
        matrix[e, n] = matrix[last, n]
    for n in range(last):
        matrix[n, t] = matrix[n, last]
    for k in range(4):
        work.extra[e, k] = work.extra[last, k]
    tied[2, e], tied[3, e] = tied[2, last], tied[3, last]
    if t != last:
        tied[0, t], tied[1, t] = tied[0, last], tied[1, last]
        work.place[tied[0, t], tied[1, t]] = t


@inline
def _move_column(work, i, j, column, e, amount):
    """Serve more by column `j` of workload `i`, which column[e] represents, and less by its keys."""
    lp, carried = work.lp, work.row[LOAD]
    for r in range(3):
        carried[r, j] += amount * lp[i, USE + r, j]
    for k in range(3):
        share, key = column[e, k] * amount, work.key[i, k]
        if share != 0.0:
            work.local[i, VALUE, k] -= share
            for r in range(3):
                carried[r, key] -= share * lp[i, USE + r, key]


@always_inline
def _move_values(work, i, j, t, amount, pairs):
    """Let column (i, j), or tight row `t` if i < 0, enter by this amount: move values and loads along."""
    for e in range(pairs):
        change = amount * work.working[e, t]
        if change != 0.0:
            work.extra[e, 3] += change
            _move_column(work, work.tight[2, e], work.tight[3, e], work.extra, e, change)
    if i >= 0:
        work.extra[pairs, 3] = amount
        _move_column(work, i, j, work.extra, pairs, amount)


@always_inline
def _exchange_pair(work, e, r, at, level, pairs):
    """Let extra `e`, or row (r, at) if e == pairs, make place for what the ratio test chose.

    Returns the number of pairs, or -1 where the inverses need a refresh.
    """
    i, j, tied = work.number[-2], work.number[-1], work.tight
    t = j if i < 0 else pairs
    if i >= 0:
        _border_column(work, i, j, r, at, pairs)
    if _is_off(work, work.working[e, t]):
        return -1
    missing = work.segment[0, r, level, at] - work.row[LOAD, r, at] if e == pairs else -work.extra[e, 3]
    _move_values(work, i, j, t, missing / work.working[e, t], pairs)
    exchange(work.working, pairs + 1, e, t, work.vector, 2)
    if i < 0:
        release_row(work, tied[0, t], tied[1, t], _next_segment(work, t))
    if e < pairs:
        work.flag[tied[2, e], tied[3, e]] = 0
    if e == pairs:
        tie_row(work, t, r, at, level)
    if i >= 0:
        tied[2, e], tied[3, e] = i, j
        work.flag[i, j] = 1
        for k in range(4):
            work.extra[e, k] = work.extra[pairs, k]
    elif e < pairs:
        _move_last(work, e, t, pairs - 1)
    return pairs + (1 if e == pairs else 0) - (1 if i < 0 else 0)


@always_inline
def _next_segment(work, t):
    """Return the segment towards which the price of tight row `t` was moving."""
    return work.state[work.tight[0, t], work.tight[1, t]] // 2 + (1 if work.vector[1, t] > 0.0 else 0)


@always_inline
def _step(work, kind, only, r, at, step, live, pairs, size):
    """Move prices, duals and reduced costs along their direction, and forget the prices' rates."""
    row, local, gap, fall, by = work.row, work.local, work.gap, work.fall, spread(step)
    for t in range(pairs):
        q, j = work.tight[0, t], work.tight[1, t]
        row[PRICE, q, j] += step * row[RATE, q, j]
        row[RATE, q, j] = 0.0
    row[PRICE, r, at] += step * row[RATE, r, at]
    row[RATE, r, at] = 0.0
    first, last = (only, only + 1) if kind == KEY else (0, live)
    for i in range(first, last):
        for k in range(3):
            local[i, DUAL, k] += step * local[i, STEP, k]
        for column in range(i * gap.shape[1], i * gap.shape[1] + size, WIDTH):
            store(gap, column, load(gap, column) - by * load(fall, column))


def _pivot(packed, kind, a, b, live, pairs, size, bland):
    """Do one pivot for what leaves.

    Returns the number of pairs, or -1 where the inverses need a refresh, and whether values must be computed anew.
    """
    work = unpack_workspace(packed)[0]
    e, r, at, level, segment = pairs, 0, FIRST_X, 0, -1
    if kind == KEY:
        e = _swap_key(work, a, b, pairs)
        if e < 0:
            aim_by_key(work.inverse, a, b, work.local, work.pick)
        else:
            kind = EXTRA
    elif kind == EXTRA:
        e = a
    if kind == ROW:
        r, at = a, b
        up = _violation(work, r, at) > 0.0
        level = work.state[r, at] // 2 - (0 if up or work.state[r, at] % 2 == 1 else 1)
        segment = level + (1 if up else 0)
        _border_row(work, r, at, pairs)
        _aim(work, pairs, -1.0 if up else 1.0, pairs)
        work.row[RATE, r, at] = 1.0 if up else -1.0
        work.pick[3] = max(work.pick[3], 1.0)
    elif kind == EXTRA:
        _aim(work, e, 1.0, pairs)
    _ratio_test(work, kind, a, live, pairs, size, bland)
    step, ends = work.pick[1], False
    if segment >= 0:
        bound = work.segment[1, r, segment, at]
        distance = abs(bound - work.row[PRICE, r, at])
        if bound < np.inf and distance <= step:
            step, ends = distance, True
    if not ends and work.number[-1] < 0:
        step = 0.0
    _step(work, kind, a, r, at, step, live, pairs, size)
    if ends:
        release_row(work, r, at, segment)
        return pairs, False
    if work.number[-1] < 0:
        return -1, False
    if kind == KEY:
        return _exchange_key(work, a, b, pairs), True
    return _exchange_pair(work, e, r, at, level, pairs), False


extern_pivot = extern(_pivot, (0, False), new_workspace(1, 1).packed, 0, 0, 0, 0, 0, 0, False)
