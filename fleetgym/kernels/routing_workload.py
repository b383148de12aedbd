"""From prices of capacity to one workload's key columns, duals and reduced costs in the routing LP."""

from __future__ import annotations

import numpy as np

from fleetgym.kernels.compile import always_inline, inline
from fleetgym.kernels.routing_data import (
    COST,
    DELAY,
    DELAY_SLACK,
    DEMAND,
    DUAL,
    ERROR,
    ERROR_SLACK,
    FEASIBLE,
    FIRST_X,
    NOISE,
    PRICE,
    RATE,
    RESIDUAL,
    ROUND_OFF,
    SCALE,
    STEP,
    STRIDE,
    TINY_PIVOT,
    UNSERVED,
    USE,
)
from fleetgym.kernels.simd import (
    WIDTH,
    are_at_most,
    are_less,
    fused,
    is_zero,
    load,
    lowest,
    spread,
    store,
)

_LEAST_RATE = 1e-13  # a key that changes less as a column enters does not change


@inline
def invert(lp, key, inverse, i, least):
    """Invert the 3x3 matrix of three key columns; tell whether its determinant exceeds `least`, scaled."""
    a, b, c = key[i, 0], key[i, 1], key[i, 2]
    a0, a1, a2 = lp[i, DEMAND, a], lp[i, DELAY, a], lp[i, ERROR, a]
    b0, b1, b2 = lp[i, DEMAND, b], lp[i, DELAY, b], lp[i, ERROR, b]
    c0, c1, c2 = lp[i, DEMAND, c], lp[i, DELAY, c], lp[i, ERROR, c]
    m00, m01, m02 = b1 * c2 - b2 * c1, b2 * c0 - b0 * c2, b0 * c1 - b1 * c0
    det = a0 * m00 + a1 * m01 + a2 * m02
    if not abs(det) > least * lp[i, SCALE, a] * lp[i, SCALE, b] * lp[i, SCALE, c]:
        return False
    inv = 1.0 / det
    inverse[i, 0, 0], inverse[i, 0, 1], inverse[i, 0, 2] = m00 * inv, m01 * inv, m02 * inv
    inverse[i, 1, 0], inverse[i, 1, 1] = (c1 * a2 - c2 * a1) * inv, (c2 * a0 - c0 * a2) * inv
    inverse[i, 1, 2] = (c0 * a1 - c1 * a0) * inv
    inverse[i, 2, 0], inverse[i, 2, 1] = (a1 * b2 - a2 * b1) * inv, (a2 * b0 - a0 * b2) * inv
    inverse[i, 2, 2] = (a0 * b1 - a1 * b0) * inv
    return True


@inline
def represent(lp, inverse, i, j, out, e):
    """Write column `j` of workload `i` as a combination of its key columns into out[e]."""
    d0, d1, d2 = lp[i, DEMAND, j], lp[i, DELAY, j], lp[i, ERROR, j]
    for k in range(3):
        out[e, k] = inverse[i, k, 0] * d0 + inverse[i, k, 1] * d1 + inverse[i, k, 2] * d2


@inline
def replace_key(inverse, i, k, column, e):
    """Update a workload's inverse: the column that column[e] represents takes the place of key `k`."""
    for r in range(3):
        pivot = inverse[i, k, r] / column[e, k]
        for q in range(3):
            if q != k:
                inverse[i, q, r] -= column[e, q] * pivot
        inverse[i, k, r] = pivot


@inline
def priced_cost(lp, i, row, j):
    """Cost of column `j` with what it pays for capacity."""
    return lp[i, COST, j] + (
        row[PRICE, 0, j] * lp[i, USE, j]
        + row[PRICE, 1, j] * lp[i, USE + 1, j]
        + row[PRICE, 2, j] * lp[i, USE + 2, j]
    )


@inline
def column_load(lp, i, j):
    """Sum of what column `j` takes of its configuration's limits."""
    return lp[i, USE, j] + lp[i, USE + 1, j] + lp[i, USE + 2, j]


@inline
def set_workload_dual(lp, i, row, key, inverse, local, round_off, price_noise):
    """Set the duals of a workload's three rows from its key columns, and the round-off they carry."""
    y0 = y1 = y2 = noise = 0.0
    for k in range(3):
        cost = priced_cost(lp, i, row, key[i, k])
        v0, v1, v2 = inverse[i, k, 0], inverse[i, k, 1], inverse[i, k, 2]
        y0, y1, y2 = y0 + cost * v0, y1 + cost * v1, y2 + cost * v2
        size = abs(v0) + abs(v1) + abs(v2)
        noise += (abs(cost) * round_off + price_noise * column_load(lp, i, key[i, k])) * size
    local[i, DUAL, 0], local[i, DUAL, 1], local[i, DUAL, 2] = y0, y1, y2
    local[i, NOISE, 0] = noise


@inline
def reduced_costs(lp, i, row, y0, y1, y2, j):
    """Return the reduced costs of the columns from `j` on, given the duals of workload `i`."""
    n = lp.shape[2]
    at = i * 8 * n + j
    paid = fused(load(row, j), load(lp, at + USE * n), load(lp, at))
    paid = fused(load(row, n + j), load(lp, at + (USE + 1) * n), paid)
    paid = fused(load(row, 2 * n + j), load(lp, at + (USE + 2) * n), paid)
    worth = fused(y1, load(lp, at + DELAY * n), y0 * load(lp, at + n))
    return paid - fused(y2, load(lp, at + ERROR * n), worth)


@inline
def fill_gaps(lp, i, row, local, gap, size):
    """Write the reduced costs of all columns of workload `i`, given its duals."""
    y0, y1, y2 = spread(local[i, DUAL, 0]), spread(local[i, DUAL, 1]), spread(local[i, DUAL, 2])
    for first in range(0, size, WIDTH):
        store(gap, i * gap.shape[1] + first, reduced_costs(lp, i, row, y0, y1, y2, first))


@inline
def _rates(lp, i, row, y0, y1, y2, j):
    """Return how fast these reduced costs fall along the dual direction."""
    n = lp.shape[2]
    at, rate = i * 8 * n + j, 3 * RATE * n + j
    paid = load(row, rate) * load(lp, at + USE * n)
    paid = fused(load(row, rate + n), load(lp, at + (USE + 1) * n), paid)
    paid = fused(load(row, rate + 2 * n), load(lp, at + (USE + 2) * n), paid)
    worth = fused(y1, load(lp, at + DELAY * n), y0 * load(lp, at + n))
    return fused(y2, load(lp, at + ERROR * n), worth) - paid


@always_inline
def _rate_noise(lp, i, reach, noise, j):
    """Return the smallest rate of column `j` that is more than round-off of the direction it comes from."""
    own = abs(lp[i, DEMAND, j]) + abs(lp[i, DELAY, j]) + abs(lp[i, ERROR, j])
    return TINY_PIVOT * (reach * column_load(lp, i, j) + noise * own)


@inline
def offer(pick, gap, rate, slack):
    """Harris's test on one candidate whose gap closes at `rate`; tell whether it becomes the choice.

    pick = (relaxed step, step, pivot size, ...). Steps are clipped at zero; each choice keeps its own step.
    """
    gap = max(gap, 0.0)
    step = gap / rate
    relaxed = (gap + slack) / rate
    if relaxed < pick[0]:
        pick[0] = relaxed
    if step <= pick[0] and (pick[1] > pick[0] or rate > pick[2]):
        pick[1], pick[2] = step, rate
        return True
    return False


@inline
def offer_columns(lp, i, row, local, gap, fall, flag, pick, number, size, bland):
    """Offer the columns of workload `i` to the ratio test, by their reduced costs `gap`.

    Writes how fast these fall, and notes the choice in the last cells of `number`.
    """
    n, none = lp.shape[2], spread(0.0)
    z0, z1, z2 = spread(local[i, STEP, 0]), spread(local[i, STEP, 1]), spread(local[i, STEP, 2])
    slack = 0.0 if bland else local[i, NOISE, 0]
    for first in range(0, size, WIDTH):
        at, rates = i * n + first, _rates(lp, i, row, z0, z1, z2, first)
        store(fall, at, rates)
        bits = are_less(none, rates) & is_zero(flag, at, WIDTH)
        bits &= are_at_most(load(gap, at), spread(pick[0]) * rates)
        while bits != 0:
            j = first + lowest(bits)
            bits &= bits - 1
            cost, rate = gap[i, j], fall[i, j]
            if cost > pick[0] * rate or (bland and max(cost, 0.0) >= pick[1] * rate):
                continue
            if rate > _rate_noise(lp, i, pick[3], local[i, NOISE, 2], j) and offer(pick, cost, rate, slack):
                number[-2], number[-1] = i, j


@inline
def reset_pick(pick, number):
    """Forget the choice of the last ratio test."""
    pick[0], pick[1], pick[2] = np.inf, np.inf, 0.0
    number[-1] = -1


@inline
def aim_by_key(inverse, i, k, local, pick):
    """Let the reduced cost of key `k` rise while prices rest: write the direction of the workload's duals."""
    size = 0.0
    for r in range(3):
        local[i, STEP, r] = -inverse[i, k, r]
        size = max(size, abs(inverse[i, k, r]))
    local[i, NOISE, 2] = size
    pick[3] = 0.0


@always_inline
def _worst_key(lp, i, key, inverse, bland):
    """Return the key position with the most negative scaled value, or -1; the smallest column if `bland`."""
    worst, place = 0.0, -1
    for k in range(3):
        scaled = inverse[i, k, 0] * lp[i, SCALE, key[i, k]]
        if scaled < -FEASIBLE and (place < 0 or (key[i, k] < key[i, place] if bland else scaled < worst)):
            worst, place = scaled, k
    return place


@always_inline
def _best_column(lp, i, row, size):
    """Return the cheapest way to serve a workload at these prices, its service levels left aside."""
    best, cost = UNSERVED, lp[i, COST, UNSERVED]
    for j in range(FIRST_X, size):
        priced = priced_cost(lp, i, row, j)
        if priced < cost:
            best, cost = j, priced
    return best


@inline
def _start_with(work, i, first):
    """Make keys of one column and of both slacks."""
    key, flag = work.key, work.flag
    for k in range(3):
        flag[i, key[i, k]] = 0
    key[i, 0], key[i, 1], key[i, 2] = first, DELAY_SLACK, ERROR_SLACK
    for k in range(3):
        flag[i, key[i, k]] = 1
    invert(work.lp, key, work.inverse, i, 0.0)


@inline
def _price_columns(work, i, size):
    """Compute the duals of a workload, and the reduced costs of its columns."""
    set_workload_dual(work.lp, i, work.row, work.key, work.inverse, work.local, ROUND_OFF, 0.0)
    fill_gaps(work.lp, i, work.row, work.local, work.gap, size)


@always_inline
def solve_workload(work, i, size):
    """Solve one workload's three-row problem at the current prices; tell whether that succeeded.

    The dual simplex method comes first. Where columns are nearly equal it may fail or end in noise: it may pass a basis
    with two of them, whose inverse is worth nothing, and a pivot that would mend a reduced cost below zero looks like
    round-off. So from the fifth attempt of `route` on, the primal method comes first.
    """
    dual_first = work.pick[4] == 1.0
    for turn in range(2):
        by_dual = (turn == 0) == dual_first
        if _solve_dual(work, i, size) if by_dual else _solve_primal(work, i, size):
            return True
    return False


@always_inline
def _solve_dual(work, i, size):
    """Solve one workload's problem from the cheapest column on, its service levels left aside at first."""
    lp, key, inverse, local, flag = work.lp, work.key, work.inverse, work.local, work.flag
    column, last = work.extra, work.extra.shape[0] - 1
    _start_with(work, i, _best_column(lp, i, work.row, size))
    for count in range(200):
        bland = count > 30
        leaving = _worst_key(lp, i, key, inverse, bland)
        _price_columns(work, i, size)
        if leaving < 0:
            return True
        aim_by_key(inverse, i, leaving, local, work.pick)
        reset_pick(work.pick, work.number)
        offer_columns(lp, i, work.row, local, work.gap, work.fall, flag, work.pick, work.number, size, bland)
        entering = work.number[-1]
        if entering < 0:
            return False
        represent(lp, inverse, i, entering, column, last)
        replace_key(inverse, i, leaving, column, last)
        flag[i, key[i, leaving]], flag[i, entering] = 0, 1
        key[i, leaving] = entering
    return False


@inline
def _entering_column(work, i, size, bland):
    """Return the column with the lowest reduced cost, or the first one below zero if `bland`; -1 if there is none."""
    best, choice = -0.5 * RESIDUAL * abs(work.local[i, DUAL, 0]), -1
    for j in range(size):
        if work.flag[i, j] == 0 and work.gap[i, j] < best:
            choice = j
            if bland:
                return j
            best = work.gap[i, j]
    return choice


@inline
def _leaving_key(work, i, column, e, scale):
    """Return the key that reaches zero first as column[e] enters, of nearly equal ones that with the largest pivot."""
    lp, key, inverse, bound = work.lp, work.key, work.inverse, np.inf
    for k in range(3):
        size = lp[i, SCALE, key[i, k]]
        rate, value = column[e, k] * size / scale, max(inverse[i, k, 0], 0.0) * size
        if rate > _LEAST_RATE:
            bound = min(bound, (value + RESIDUAL) / rate)
    most, choice = 0.0, -1
    for k in range(3):
        size = lp[i, SCALE, key[i, k]]
        rate, value = column[e, k] * size / scale, max(inverse[i, k, 0], 0.0) * size
        if rate > _LEAST_RATE and rate > most and value <= bound * rate:
            most, choice = rate, k
    return choice


@inline
def _solve_primal(work, i, size):
    """Solve one workload's problem by the primal simplex method, with a new inverse at each step."""
    lp, key, column, last = work.lp, work.key, work.extra, work.extra.shape[0] - 1
    _start_with(work, i, UNSERVED)
    for count in range(500):
        _price_columns(work, i, size)
        entering = _entering_column(work, i, size, count > 100)
        if entering < 0:
            return True
        represent(lp, work.inverse, i, entering, column, last)
        leaving = _leaving_key(work, i, column, last, lp[i, SCALE, entering])
        if leaving < 0:
            return False
        work.flag[i, key[i, leaving]], work.flag[i, entering] = 0, 1
        key[i, leaving] = entering
        if not invert(lp, key, work.inverse, i, 0.0):
            return False
    return False


@always_inline
def choose_keys(lp, i, basis, start, stop, key, inverse, column):
    """Choose three independent key columns among a workload's basic ones, by complete pivoting.

    Columns count by their size after scaling. Where the basic columns do not span, unit columns stay in;
    returns whether none had to.
    """
    last = column.shape[0] - 1
    for k in range(3):
        key[i, k] = UNSERVED if k == 0 else 2 * k - 1
        for r in range(3):
            inverse[i, k, r] = 1.0 if k == r else 0.0
    open_places = 7
    while open_places:
        best, place, choice = 1e-9, start, start
        for n in range(start, stop):
            j = basis[n] % STRIDE
            represent(lp, inverse, i, j, column, last)
            for k in range(3):
                size = abs(column[last, k]) / lp[i, SCALE, j]
                if open_places >> k & 1 and size > best:
                    best, place, choice = size, k, j
        if best == 1e-9:
            return False
        represent(lp, inverse, i, choice, column, last)
        replace_key(inverse, i, place, column, last)
        key[i, place] = choice
        open_places -= 1 << place
    return True


@always_inline
def aim_workload(lp, i, row, key, inverse, local, reach):
    """Let the duals of workload `i` follow the prices so that its keys' reduced costs stay zero."""
    y0 = y1 = y2 = noise = 0.0
    for k in range(3):
        j = key[i, k]
        if j < FIRST_X:
            continue
        cost = row[RATE, 0, j] * lp[i, USE, j] + row[RATE, 1, j] * lp[i, USE + 1, j]
        cost += row[RATE, 2, j] * lp[i, USE + 2, j]
        if cost != 0.0:
            v0, v1, v2 = inverse[i, k, 0], inverse[i, k, 1], inverse[i, k, 2]
            y0, y1, y2 = y0 + cost * v0, y1 + cost * v1, y2 + cost * v2
            noise += max(abs(v0), abs(v1), abs(v2)) * column_load(lp, i, j)
    local[i, STEP, 0], local[i, STEP, 1], local[i, STEP, 2] = y0, y1, y2
    local[i, NOISE, 2] = noise * reach
