"""Route a window's demand at least cost: compute routed shares, and duals that certify them.

The LP (see `solve_routing`) is block-angular: each workload has three rows of its own (demand, delay, error),
and a configuration's three capacity rows couple the workloads. The kernel is a dual simplex method on a
compact basis: one 3x3 inverse per workload (over its *key* columns) and the inverse of a small Schur
complement ("working matrix") that joins the tight capacity rows with as many *extra* columns.

A capacity row is a convex penalty of its load, so overload variables never enter a basis: a row is either
tight at one of its breakpoints, with a price between the neighbouring slopes, or it lies in a segment and its
price is that slope. Any prices within these limits, with each workload's own three-row problem solved at
them, are dual feasible. So every start can be repaired: a stale basis lends its prices, a cold one has none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgym.kernels.compile import always_inline, extern, inline, jit
from fleetgym.kernels.lowlevel import WIDTH, are_less, larger, load, load_first, lowest, spread, store
from fleetgym.kernels.routing_basis import (
    add_row,
    clear_row,
    compute_loads,
    compute_values,
    exchange,
    factorise,
    is_certified,
    net_entry,
    release_row,
    row_product,
    scatter,
    store_basis,
    tie_row,
)
from fleetgym.kernels.routing_workload import (
    COST,
    DELAY_EXCESS,
    DUAL,
    ERROR_EXCESS,
    EXTRA,
    FEASIBLE,
    FIRST_X,
    KEY,
    LOAD,
    NONE,
    PRICE,
    RATE,
    RESIDUAL,
    ROUND_OFF,
    ROW,
    SCALE,
    STEP,
    STRIDE,
    TINY_PIVOT,
    UNIT,
    UNSERVED,
    USE,
    VALUE,
    aim_by_key,
    aim_workload,
    fill_problem,
    new_basis,
    new_workspace,
    offer,
    offer_columns,
    replace_key,
    represent,
    reset_pick,
    unpack_workspace,
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
    """Return whether the two ways to compute a pivot differ so much that the inverses need a refresh.

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


OPTIMAL = 0
NUMERIC_FAILURE = 1
_STALL = 40  # degenerate pivots in a row before the smallest-index rule takes over
_REFRESH = 500  # pivots between two factorisations
_ROUNDS = 40  # factorisations: half from the warm start, a quarter cold by smallest index, a quarter cold


@always_inline
def _pivot_until_feasible(work, live, pairs, size, budget, careful):
    """Pivot until all values, computed anew, are feasible or a refresh is due.

    Returns pairs, pivots and whether it ended. The smallest-index rule, which cannot cycle, takes over after a stall,
    or holds throughout if `careful`.
    """
    stalled, pivots, anew = 0, 0, True
    while pivots < budget:
        if anew:
            compute_values(work, live, pairs)
            compute_loads(work, live, pairs, size)
        bland = careful or stalled > _STALL
        kind, a, b = choose_leaving(work, live, pairs, size, bland)
        if kind == NONE:
            if anew:
                return pairs, pivots, True
            anew = True
            continue
        after, anew = extern_pivot(work.packed, kind, a, b, live, pairs, size, bland)
        if after < 0:
            return pairs, pivots, False
        pairs = after
        pivots += 1
        stalled = stalled + 1 if work.pick[0] >= 2.0 * work.pick[1] else 0
    return pairs, budget, False


@inline
def _write_value(x, slack, i, j, value):
    """Write the value of one basic column; what is below zero by round-off becomes zero."""
    positive = value if value > 0.0 else 0.0
    if j >= FIRST_X:
        x[i, j - FIRST_X] = positive
    elif j == UNSERVED:
        slack[i, 0] = positive
    elif j == DELAY_EXCESS:
        slack[i, 1] = positive
    elif j == ERROR_EXCESS:
        slack[i, 2] = positive


@always_inline
def _write_primal(work, live, pairs, x, slack):
    """Write the routed shares, unserved shares and service-level excesses."""
    for i in range(x.shape[0]):
        slack[i, 0] = slack[i, 1] = slack[i, 2] = 0.0
        for c in range(x.shape[1]):
            x[i, c] = 0.0
    for w in range(live):
        for k in range(3):
            _write_value(x, slack, work.number[w], work.key[w, k], work.local[w, VALUE, k])
    for e in range(pairs):
        _write_value(x, slack, work.number[work.tight[2, e]], work.tight[3, e], work.extra[e, 3])


@always_inline
def _keep_capacity(use, capacity, width, x, slack):
    """Serve less where round-off lets shares exceed a limit by more than `RESIDUAL`, relative to the limit."""
    workloads, count = x.shape
    for r in range(3):
        for first in range(0, count, WIDTH):
            some, load = count - first, spread(0.0)
            for i in range(workloads):
                amount = load_first(use, (r * workloads + i) * count + first, some)
                load = load + amount * load_first(x, i * count + first, some)
            limit = load_first(capacity, r * count + first, some)
            bits = are_less(limit + limit * spread(RESIDUAL), load)
            while bits != 0:
                _cut(use, capacity, width, x, slack, r, first + lowest(bits))
                bits &= bits - 1


@inline
def _cut(use, capacity, width, x, slack, r, c):
    """Leave unserved what a configuration is sent beyond a limit."""
    load, limit = 0.0, capacity[r, c]
    for i in range(x.shape[0]):
        load += use[r, i, c] * x[i, c]
    if r == 2:
        for b in range(width.shape[1]):
            limit += width[c, b]
    if load > limit * (1.0 + RESIDUAL):
        for i in range(x.shape[0]):
            if use[r, i, c] > 0.0:
                kept = x[i, c] * (limit / load)
                slack[i, 0] += x[i, c] - kept
                x[i, c] = kept


@always_inline
def _write_overload(use, capacity, width, x, overload):
    """Fill the overload segments of each configuration from the cheapest to the dearest."""
    for c in range(width.shape[0]):
        excess = -capacity[2, c]
        for i in range(x.shape[0]):
            if x[i, c] > 0.0:
                excess += use[2, i, c] * x[i, c]
        for b in range(width.shape[1]):
            overload[c, b] = min(max(excess, 0.0), width[c, b])
            excess -= width[c, b]


@always_inline
def _write_duals(work, live, workload_dual, capacity_dual):
    """Write the demand, delay and error duals and the prices of capacity, in the units of the data."""
    for i in range(workload_dual.shape[0]):
        workload_dual[i, 0] = workload_dual[i, 1] = workload_dual[i, 2] = 0.0
    for w in range(live):
        for r in range(3):
            value = work.local[w, DUAL, r]
            workload_dual[work.number[w], r] = value if r == 0 else max(-value, 0.0)
    for r in range(3):
        for c in range(capacity_dual.shape[1]):
            price = work.row[PRICE, r, c + FIRST_X] * work.row[UNIT, r, c + FIRST_X]
            capacity_dual[r, c] = price if price > 0.0 else 0.0


@always_inline
def _close_rows(cost, unserved, delay, error, use, allowed, row, workload_dual, capacity_dual):
    """Price each row without any capacity so high that no column it closes would pay."""
    for r in range(3):
        for c in range(cost.shape[1]):
            if row[UNIT, r, c + FIRST_X] > 0.0:
                continue
            for i in range(cost.shape[0]):
                if unserved[i] > 0.0 and allowed[i, c] != 0 and use[r, i, c] > 0.0:
                    gap = cost[i, c] - workload_dual[i, 0]
                    gap += workload_dual[i, 1] * delay[i, c] + workload_dual[i, 2] * error[i, c]
                    for q in range(3):
                        gap += capacity_dual[q, c] * use[q, i, c]
                    if gap < 0.0:
                        capacity_dual[r, c] -= gap / use[r, i, c] * (1.0 + 1e-15)


@always_inline
def _objective(cost, unserved, slope, x, slack, overload):
    total = 0.0
    for i in range(cost.shape[0]):
        for c in range(cost.shape[1]):
            if x[i, c] > 0.0:
                total += cost[i, c] * x[i, c]
        total += unserved[i] * (slack[i, 0] + slack[i, 1] + slack[i, 2])
    for c in range(slope.shape[0]):
        for b in range(slope.shape[1]):
            total += slope[c, b] * overload[c, b]
    return total


@always_inline
def _is_finite(work, live, pairs):
    """Return whether what the basic columns cost is a number."""
    usd = 0.0
    for w in range(live):
        for k in range(3):
            if work.local[w, VALUE, k] > 0.0:
                usd += work.lp[w, COST, work.key[w, k]] * work.local[w, VALUE, k]
    for e in range(pairs):
        if work.extra[e, 3] > 0.0:
            usd += work.lp[work.tight[2, e], COST, work.tight[3, e]] * work.extra[e, 3]
    return np.isfinite(usd)


def _solve(
    cost, unserved, delay, error, use, capacity, width, slope, allowed, basis, packed, x, slack
):  # fmt: skip
    """Do what `route` says but for overloads, duals and objective, in a workspace of which there are packed pointers.

    Returns status, live workloads and pivots.
    """
    work = unpack_workspace(packed)[0]
    size = cost.shape[1] + FIRST_X
    live = fill_problem(cost, unserved, delay, error, use, capacity, width, slope, allowed, work)
    status, pairs, done = NUMERIC_FAILURE, 0, 0
    work.pick[5] = 0.0
    for attempt in range(_ROUNDS):
        work.pick[4] = 1.0 if attempt < 4 else 2.0 ** min(attempt - 3, 10)
        careful = _ROUNDS // 2 <= attempt < 3 * _ROUNDS // 4
        if attempt == _ROUNDS // 2 or attempt == 3 * _ROUNDS // 4 or pairs < 0:  # this start leads nowhere
            basis[0] = basis[1] = 0
            work.pick[5] += 1.0
        pairs, sound = factorise(packed, basis, live, size)
        if pairs >= 0:
            budget = _REFRESH * (attempt + 1)
            pairs, pivots, ended = _pivot_until_feasible(work, live, pairs, size, budget, careful)
            done += pivots
            if pivots > 0 or not sound:
                store_basis(work, basis, live, size)
            if ended and (pivots == 0 and sound or is_certified(packed, live, pairs, size)):
                status = OPTIMAL
                break
    pairs = max(pairs, 0)
    _write_primal(work, live, pairs, x, slack)
    _keep_capacity(use, capacity, width, x, slack)
    return status if _is_finite(work, live, pairs) else NUMERIC_FAILURE, live, done


def _example_arguments():
    """Return arguments of `_solve` in their types, which do not depend on the size."""
    money, flags = np.zeros((1, 1)), np.zeros((1, 1), dtype=np.uint8)
    use = np.zeros((3, 1, 1))
    return (
        *(money, np.zeros(1), money, money, use, money, money, money, flags, new_basis(1, 1)),
        *(new_workspace(1, 1).packed, money, money),
    )


extern_solve = extern(_solve, (0, 0, 0), *_example_arguments())


@jit
def route(
    cost, unserved, delay, error, use, capacity, width, slope, allowed, basis, work, x, slack, overload, duals
):
    """Solve one routing LP; the kernel behind `solve_routing`, which documents the problem and the shapes.

    Inputs are trusted. `basis` (from `new_basis`) is read as the warm start and overwritten, `work` (from
    `new_workspace`) is overwritten, and so are the outputs `x` (I, C), `slack` (I, 3: unserved, delay excess,
    error excess), `overload` (C, B) and `duals`, a pair of arrays: (I, 3) for the demand, delay and error
    rows and (3, C) for the capacities. All are C-contiguous; `allowed` is uint8.

    Values come from the factors that the pivots left behind, or from new ones where values and duals do not certify
    each other (`is_certified`). Should a start lead nowhere, the solver starts again without it, by the smallest-index
    rule first, before it gives up; `work.pick[5]` counts these restarts.

    Returns
    -------
    status : int
        0 (optimal) or 1 (numeric failure).
    objective : float
        Cost of the routing, in the money of `cost`.
    pivots : int
        Number of pivots that joined the workloads' own problems.
    """
    status, live, pivots = extern_solve(
        cost, unserved, delay, error, use, capacity, width, slope, allowed, basis, work.packed, x, slack
    )
    _write_overload(use, capacity, width, x, overload)
    _write_duals(work, live, duals[0], duals[1])
    _close_rows(cost, unserved, delay, error, use, allowed, work.row, duals[0], duals[1])
    objective = _objective(cost, unserved, slope, x, slack, overload)
    return status if np.isfinite(objective) else NUMERIC_FAILURE, objective, pivots


@jit
def remap_basis(basis, old_active, new_active):
    """Carry a basis over to another set of active configurations, in place.

    Columns and rows of configurations that left are dropped; `route` repairs what they leave behind. New
    configurations start outside the basis.

    Parameters
    ----------
    basis : (L,) ndarray of int64
        From `new_basis`, with room for the larger of the two sets.
    old_active, new_active : (C,), (D,) ndarray of int
        What each column stood for and will stand for, ascending.
    """
    columns, rows = basis[0], basis[1]
    out = 2
    for n in range(2, 2 + columns):
        j = basis[n] % STRIDE
        target = j if j < FIRST_X else _place_of(old_active[j - FIRST_X], new_active)
        if target >= 0:
            basis[out] = basis[n] - j + target
            out += 1
    basis[0] = out - 2
    for n in range(2 + columns, 2 + columns + 2 * rows, 2):
        j = basis[n] % STRIDE
        target = _place_of(old_active[j - FIRST_X], new_active)
        if target >= 0:
            basis[out], basis[out + 1] = basis[n] - j + target, basis[n + 1]
            out += 2
    basis[1] = (out - 2 - basis[0]) // 2


@inline
def _place_of(label, labels):
    """Return the column that stands for `label`, or -1."""
    for c in range(labels.size):
        if labels[c] == label:
            return c + FIRST_X
    return -1


class RoutingSolution(NamedTuple):
    """An optimal routing and the duals that certify it."""

    x: np.ndarray  # (I, C) share of each workload routed to each configuration
    unserved_share: np.ndarray  # (I,)
    delay_excess: np.ndarray  # (I,) mean delay beyond the SLO, as a share of the SLO
    error_excess: np.ndarray  # (I,)
    overload: np.ndarray  # (C, B) queue slots taken from each rising-cost segment
    objective: float  # money
    demand_dual: np.ndarray  # (I,) cost of one more unit of demand share
    delay_dual: np.ndarray  # (I,) saving per unit by which the delay row is relaxed, at least 0
    error_dual: np.ndarray  # (I,)
    capacity_dual: np.ndarray  # (3, C) saving per unit of compute, KV memory and queue slots, at least 0
    status: int  # 0: optimal, 1: numeric failure
    pivots: int
    restarts: int = 0  # how often the solver had to start again cold; 0 but for numerical trouble


def _as_array(name, value, shape, non_negative=True):
    """Return `value` as a C-contiguous float array of the given shape, or say what is wrong with it."""
    array = np.ascontiguousarray(value, dtype=np.float64)
    if array.shape != shape:
        raise ValueError(f"{name} has shape {array.shape}, expected {shape}")
    if not np.all(np.isfinite(array)):
        raise ValueError(f"{name} must be finite")
    if non_negative and np.any(array < 0.0):
        raise ValueError(f"{name} must not be negative")
    return array


def solve_routing(
    cost, unserved, delay, error, use, capacity, width, slope, allowed=None, basis=None, work=None
) -> RoutingSolution:
    r"""Route shares of workloads to active configurations at least cost.

    Minimise ``sum cost x + sum_i unserved_i (u_i + s_i + t_i) + sum slope o`` subject to, for each workload
    i, ``sum_c x_ic + u_i = 1``, ``sum_c delay_ic x_ic <= s_i``, ``sum_c error_ic x_ic <= t_i``, and for each
    configuration c, ``sum_i use_ric x_ic <= capacity_rc`` for r = 0 (compute) and 1 (KV memory) and
    ``sum_i use_2ic x_ic - sum_b o_cb <= capacity_2c`` (queue slots) with ``0 <= o_cb <= width_cb``; all
    variables are nonnegative. Serving nothing (u = 1) is always feasible.

    Parameters
    ----------
    cost : (I, C) array_like
        Money for routing the whole workload to the configuration, at least 0.
    unserved : (I,) array_like
        Money for leaving it unserved, and per unit of SLO excess. 0 means no arrivals: it is left out.
    delay, error : (I, C) array_like
        (D - SLO) / SLO, negative where the SLO is met.
    use : (3, I, C) array_like
        Compute, KV memory and queue slots that the whole workload takes, at least 0.
    capacity : (3, C) array_like
        Limits of these, at least 0.
    width, slope : (C, B) array_like
        Segments of slots beyond the free ones and their cost per slot, which must not fall with b.
    allowed : (I, C) array_like of bool, optional
        Where x may be positive; everywhere by default.
    basis : ndarray of int64, optional
        From `new_basis`, read as a warm start and overwritten. Cold by default.
    work : Workspace, optional
        From `new_workspace`, overwritten.

    Returns
    -------
    RoutingSolution
        Shares, excesses, objective and duals. The bound that the duals prove equals the objective.

    Raises
    ------
    ValueError
        If a shape, a sign or the order of slopes is wrong.

    Examples
    --------
    Two workloads share a cheap configuration that can take one of them, beside a dear one:

    >>> import numpy as np
    >>> solution = solve_routing(
    ...     cost=[[1.0, 3.0], [1.0, 2.0]], unserved=[10.0, 10.0],
    ...     delay=np.full((2, 2), -0.5), error=np.full((2, 2), -0.5),
    ...     use=np.ones((3, 2, 2)), capacity=[[1.0, 4.0], [9.0, 9.0], [9.0, 9.0]],
    ...     width=np.zeros((2, 3)), slope=np.zeros((2, 3)),
    ... )
    >>> solution.x.tolist(), round(solution.objective, 9)
    ([[1.0, 0.0], [0.0, 1.0]], 3.0)
    >>> solution.status, solution.capacity_dual[0].tolist()
    (0, [1.0, 0.0])
    """
    cost = np.ascontiguousarray(cost, dtype=np.float64)
    if cost.ndim != 2:
        raise ValueError(f"cost has shape {cost.shape}, expected (workloads, configurations)")
    workloads, configurations = cost.shape
    segments = np.shape(width)[1] if np.ndim(width) == 2 else 0
    if segments > 4:
        raise ValueError(f"width has {segments} segments per configuration, at most 4 are supported")
    shape = (workloads, configurations)
    arrays = [
        _as_array("cost", cost, shape),
        _as_array("unserved", unserved, (workloads,)),
        _as_array("delay", delay, shape, non_negative=False),
        _as_array("error", error, shape, non_negative=False),
        _as_array("use", use, (3, *shape)),
        _as_array("capacity", capacity, (3, configurations)),
        _as_array("width", width, (configurations, segments)),
        _as_array("slope", slope, (configurations, segments)),
    ]
    if np.any(np.diff(arrays[-1], axis=1) < 0.0):
        raise ValueError("slope must not fall from one segment to the next")
    allowed = np.ones(shape) if allowed is None else np.asarray(allowed)
    if allowed.shape != shape:
        raise ValueError(f"allowed has shape {allowed.shape}, expected {shape}")
    basis = new_basis(workloads, configurations) if basis is None else basis
    work = new_workspace(workloads, configurations) if work is None else work
    used = 2 + int(basis[0]), 2 + int(basis[0] + 2 * basis[1])
    stored = np.concatenate([basis[2 : used[0]], basis[used[0] : used[1] : 2]])
    if np.any(stored % STRIDE >= configurations + FIRST_X) or np.any(stored // STRIDE >= max(workloads, 3)):
        raise ValueError(f"basis belongs to a larger problem than {shape}: use remap_basis or a new basis")
    if basis.size < 2 + 3 * workloads + 9 * configurations:
        raise ValueError(f"basis has room for {basis.size} entries: make it with new_basis{shape}")
    if work.lp.shape[0] < workloads or work.lp.shape[2] < configurations + FIRST_X:
        raise ValueError(f"work is too small: make it with new_workspace{shape}")
    x, slack = np.zeros(shape), np.zeros((workloads, 3))
    overload = np.zeros((configurations, segments))
    duals = np.zeros((workloads, 3)), np.zeros((3, configurations))
    status, objective, pivots = route(
        *arrays, np.ascontiguousarray(allowed != 0, dtype=np.uint8), basis, work, x, slack, overload, duals
    )
    return RoutingSolution(
        x=x,
        unserved_share=slack[:, 0],
        delay_excess=slack[:, 1],
        error_excess=slack[:, 2],
        overload=overload,
        objective=objective,
        demand_dual=duals[0][:, 0],
        delay_dual=duals[0][:, 1],
        error_dual=duals[0][:, 2],
        capacity_dual=duals[1],
        status=status,
        pivots=pivots,
        restarts=int(work.pick[5]),
    )
