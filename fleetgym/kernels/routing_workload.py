"""Solve one workload's three rows of the routing LP at given prices of capacity, in arrays that `Workspace` holds.

Columns of a workload are its unserved share, slack and excess of its delay and of its error row, then one per
configuration. Rows of the scaled data are cost, demand, delay, error, three uses and a scale.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fleetgym.kernels.compile import always_inline, inline
from fleetgym.kernels.lowlevel import (
    WIDTH,
    Packer,
    are_at_most,
    are_less,
    choose,
    fused,
    is_zero,
    larger,
    load,
    load_first,
    lowest,
    padded,
    sizes,
    spread,
    store,
    store_first,
    zeros,
)

# Columns of one workload: unserved share, slack and excess of the delay row, of the error row, then x[i, c].
UNSERVED, DELAY_SLACK, DELAY_EXCESS, ERROR_SLACK, ERROR_EXCESS, FIRST_X = 0, 1, 2, 3, 4, 5
# Rows of the scaled data of one workload.
COST, DEMAND, DELAY, ERROR, USE, SCALE = 0, 1, 2, 3, 4, 7
# Blocks of `Workspace.local`, one triple each per workload.
VALUE, DUAL, STEP, NOISE = 0, 1, 2, 3
# Blocks of `Workspace.row`.
PRICE, RATE, LOAD, UNIT = 0, 1, 2, 3
# Kinds of what leaves the basis.
NONE, KEY, EXTRA, ROW = 0, 1, 2, 3
STRIDE = 65536  # a basic column is stored as workload * stride + column
FEASIBLE = 1e-11  # primal tolerance, on shares and loads that are scaled to at most about one
RESIDUAL = 1e-12  # most that a row of an answer, or a reduced cost per unit of a workload's dual, may be off
ROUND_OFF = 1e-14  # per unit of the terms that a number is summed from
TINY_PIVOT = 1e-11  # pivots below this share of their terms are noise


class Workspace(NamedTuple):
    """Arrays that `route` overwrites: allocate once per thread with `new_workspace`."""

    lp: np.ndarray  # (I, 8, N) scaled data, N = C + 5 columns and what fills up the last lanes
    inverse: np.ndarray  # (I, 3, 3) inverse of each workload's key columns
    local: np.ndarray  # (I, 4, 3) values, duals, dual direction and noise of each workload
    row: np.ndarray  # (4, 3, N) price, its rate, load and unit of each capacity row
    segment: np.ndarray  # (2, 3, 6, N) breakpoints and slopes of each capacity row
    span: np.ndarray  # (2, 3, N) loads between which each capacity row needs no pivot
    working: np.ndarray  # (R, R) inverse of the working matrix, R = 3 C + 2, filled up likewise
    scratch: np.ndarray  # (R, R) factorisation; one row while pivoting
    extra: np.ndarray  # (R, 4) representation by the keys, and value, of each extra column
    vector: np.ndarray  # (4, R) numbers and rates of the tight rows, factors of an exchange, open columns
    gap: np.ndarray  # (I, N) reduced costs
    fall: np.ndarray  # (I, N) how fast they fall along the dual direction
    pick: np.ndarray  # (6,) relaxed step, step, pivot of what enters; largest price rate; ease; restarts
    key: np.ndarray  # (I, 3) key columns
    match: np.ndarray  # (4, R) scratch of the factorisation
    place: np.ndarray  # (3, N) position of a tight row, or -1
    state: np.ndarray  # (3, N) 2 k: in segment k; 2 k + 1: tight at breakpoint k
    tight: np.ndarray  # (4, R) resource and column of tight rows, workload and column of extras
    flag: np.ndarray  # (I, N) whether a column is basic
    number: np.ndarray  # (I + 8,) live workloads, then the choice of the ratio test
    packed: np.ndarray  # words of `Packer.pack` for all these: what kernels pass on, as it is short


def _allocate(num_workloads: int, num_configurations: int) -> Workspace:
    """Return work arrays without their packed pointers."""
    workloads, columns = num_workloads, padded(num_configurations + FIRST_X)
    rows = padded(3 * num_configurations + 2)
    lp = zeros(workloads, 8, columns)
    lp[:, DEMAND, UNSERVED] = 1.0
    lp[:, DELAY, DELAY_SLACK], lp[:, DELAY, DELAY_EXCESS] = 1.0, -1.0
    lp[:, ERROR, ERROR_SLACK], lp[:, ERROR, ERROR_EXCESS] = 1.0, -1.0
    lp[:, SCALE, :FIRST_X] = 1.0
    segment = zeros(2, 3, 6, columns)
    segment[0], segment[1, :, 1:] = 1.0, np.inf
    return Workspace(
        lp=lp,
        inverse=zeros(workloads, 3, 3),
        local=zeros(workloads, 4, 3),
        row=zeros(4, 3, columns),
        segment=segment,
        span=zeros(2, 3, columns),
        working=zeros(rows, rows),
        scratch=zeros(rows, rows),
        extra=zeros(rows, 4),
        vector=zeros(4, rows),
        gap=zeros(workloads, columns),
        fall=zeros(workloads, columns),
        pick=np.ones(6),
        key=np.zeros((workloads, 3), dtype=np.int64),
        match=np.zeros((4, rows), dtype=np.int64),
        place=np.zeros((3, columns), dtype=np.int64),
        state=np.zeros((3, columns), dtype=np.int64),
        tight=np.zeros((4, rows), dtype=np.int64),
        flag=np.zeros((workloads, columns), dtype=np.uint8),
        number=np.zeros(workloads + 8, dtype=np.int64),
        packed=np.zeros(0, dtype=np.int64),
    )


_packer = Packer(_allocate(1, 1))
unpack_workspace: Any = _packer.unpack  # what kernels get the work arrays with, from `Workspace.packed`


def new_workspace(num_workloads: int, num_configurations: int) -> Workspace:
    """Allocate the work arrays of `route` for problems of at most this size.

    Parameters
    ----------
    num_workloads, num_configurations : int
        Largest numbers of workloads and of active configurations.

    Returns
    -------
    Workspace
        Arrays without state: one per thread is enough, whatever number of environments it serves.
    """
    work = _allocate(num_workloads, num_configurations)
    work = work._replace(packed=_packer.pack(work).words)
    work.packed[:] = _packer.pack(work).words  # with its own place
    return work


def new_basis(num_workloads: int, num_configurations: int) -> np.ndarray:
    """Return a cold basis with room for problems of at most this size: one per environment.

    Parameters
    ----------
    num_workloads, num_configurations : int
        Largest numbers of workloads and of active configurations.

    Returns
    -------
    numpy.ndarray of int64
        Number of basic columns, number of rows that are tight or overloaded, the columns
        (workload * 65536 + column), then (row, state) pairs. Zeros mean "cold".
    """
    return np.zeros(2 + 3 * num_workloads + 9 * num_configurations, dtype=np.int64)


@always_inline
def _pack_rows(capacity, width, slope, segment, row):
    """Scale each capacity row to a limit of one, or give it unit 0; merge empty segments and equal slopes."""
    for c in range(capacity.shape[1]):
        j = c + FIRST_X
        for r in range(2):
            row[UNIT, r, j] = 1.0 / capacity[r, c] if capacity[r, c] > 0.0 else 0.0
        limit = capacity[2, c]
        for b in range(width.shape[1]):
            limit += width[c, b]
        unit = 1.0 / limit if limit > 0.0 else 0.0
        last, end, price = 0, capacity[2, c], 0.0
        for b in range(width.shape[1]):
            if width[c, b] <= 0.0:
                continue
            if slope[c, b] > price:
                segment[0, 2, last, j] = end * unit
                last += 1
                price = slope[c, b]
                segment[1, 2, last, j] = price * limit
            end += width[c, b]
        segment[0, 2, last, j] = 1.0
        for b in range(last + 1, segment.shape[2]):  # an old basis may name any segment
            segment[1, 2, b, j] = np.inf
        row[UNIT, 2, j] = unit


@always_inline
def _pack_workload(cost, delay, error, use, allowed, i, lp, w, row):
    """Copy one workload's columns; a column that may not be used costs infinity and is otherwise zero."""
    count, n, none, one = cost.shape[1], lp.shape[2], spread(0.0), spread(1.0)
    plane = cost.shape[0] * count
    for first in range(0, count, WIDTH):
        some, at, to = count - first, i * count + first, w * 8 * n + FIRST_X + first
        usable = is_zero(allowed, at, some) ^ 255
        delays, errors = load_first(delay, at, some), load_first(error, at, some)
        scale = larger(larger(one, sizes(delays)), sizes(errors))
        for r in range(3):
            amounts = load_first(use, r * plane + at, some)
            units = load_first(row, (3 * UNIT + r) * n + FIRST_X + first, some)
            usable &= are_less(none, units) | are_at_most(amounts, none)
            scaled = amounts * units
            scale = larger(scale, scaled)
            store_first(lp, to + (USE + r) * n, scaled, some)
        unusable = spread(np.inf)
        store_first(lp, to, choose(usable, load_first(cost, at, some), unusable), some)
        store_first(lp, to + n, choose(usable, one, none), some)
        store_first(lp, to + DELAY * n, choose(usable, delays, none), some)
        store_first(lp, to + ERROR * n, choose(usable, errors, none), some)
        store_first(lp, to + SCALE * n, choose(usable, scale, one), some)
        if usable != 255:
            for r in range(3):
                at = to + (USE + r) * n
                store_first(lp, at, choose(usable, load_first(lp, at, some), none), some)
    for j in range(count + FIRST_X, (count + FIRST_X + WIDTH - 1) // WIDTH * WIDTH):
        _close_column(lp, w, j)


@inline
def _close_column(lp, w, j):
    """Let a column cost infinity and do nothing."""
    for r in range(SCALE):
        lp[w, r, j] = 0.0
    lp[w, COST, j], lp[w, SCALE, j] = np.inf, 1.0


@always_inline
def fill_problem(cost, unserved, delay, error, use, capacity, width, slope, allowed, work):
    """Fill the scaled data; return the number of workloads with arrivals, listed in `work.number`."""
    _pack_rows(capacity, width, slope, work.segment, work.row)
    lp, row, number, live = work.lp, work.row, work.number, 0
    for i in range(cost.shape[0]):
        if unserved[i] > 0.0:
            number[live] = i
            live += 1
    for w in range(live):
        i = number[w]
        lp[w, COST, UNSERVED] = lp[w, COST, DELAY_EXCESS] = lp[w, COST, ERROR_EXCESS] = unserved[i]
        _pack_workload(cost, delay, error, use, allowed, i, lp, w, row)
    return live


_LEAST_RATE = 1e-13  # a key that changes less as a column enters does not change


@inline
def invert(lp, key, inverse, i, least):
    """Invert the 3x3 matrix of three key columns; return whether its determinant exceeds `least`, scaled."""
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
    """Harris's test on one candidate whose gap closes at `rate`; return whether it becomes the choice.

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
    """Solve one workload's three-row problem at the current prices; return whether that succeeded.

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
