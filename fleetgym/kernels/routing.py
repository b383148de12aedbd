"""Solve the second-stage routing LP: a window's costs and limits in, routed shares and certifying duals out.

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

from fleetgym.kernels.compile import inner, jit, lean, once, separate
from fleetgym.kernels.lanes import (
    WIDTH,
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
    total,
    zeros,
)
from fleetgym.kernels.profile import new_ticks

# What most solves never reach is kept apart by `separate`, or each caller would optimise it again.
_apart = jit(**lean())

OPTIMAL = 0
NUMERIC_FAILURE = 1

# Columns of one workload: unserved share, slack and excess of the delay row, of the error row, then x[i, c].
_U, _P, _S, _Q, _T, _X = 0, 1, 2, 3, 4, 5
# Rows of the packed data of one workload.
_COST, _DEMAND, _DELAY, _ERROR, _USE, _SCALE = 0, 1, 2, 3, 4, 7
# Blocks of `Workspace.local`, one triple each per workload.
_VALUE, _DUAL, _STEP, _NOISE = 0, 1, 2, 3
# Blocks of `Workspace.row`.
_PRICE, _RATE, _LOAD, _UNIT = 0, 1, 2, 3
# Kinds of what leaves the basis.
_NONE, _KEY, _EXTRA, _ROW = 0, 1, 2, 3

_STRIDE = 65536  # a basic column is stored as workload * stride + column
_FEASIBLE = 1e-11  # primal tolerance, on shares and loads that are scaled to at most about one
_ROUND_OFF = 1e-14  # per unit of the terms that a number is summed from
_TINY_PIVOT = 1e-11  # pivots below this share of their terms are noise
_STALL = 40  # degenerate pivots in a row before the smallest-index rule takes over
_REFRESH = 500  # pivots between two factorisations
_ROUNDS = 40  # factorisations: half from the warm start, a quarter cold by smallest index, a quarter cold


class Workspace(NamedTuple):
    """Arrays that `route` overwrites: allocate once per thread with `new_workspace`."""

    lp: np.ndarray  # (I, 8, N) packed data, N = C + 5 columns and what fills up the last lanes
    inverse: np.ndarray  # (I, 3, 3) inverse of each workload's key columns
    local: np.ndarray  # (I, 4, 3) values, duals, dual direction and noise of each workload
    row: np.ndarray  # (4, 3, N) price, its rate, load and unit of each capacity row
    segment: np.ndarray  # (2, 3, 6, N) breakpoints and slopes of each capacity row
    span: np.ndarray  # (2, 3, N) loads between which each capacity row needs no pivot
    working: np.ndarray  # (R, R) inverse of the working matrix, R = 3 C + 2, filled up likewise
    scratch: np.ndarray  # (R, R) factorisation; one row while pivoting
    extra: np.ndarray  # (R, 4) representation by the keys, and value, of each extra column
    vector: np.ndarray  # (4, R)
    candidate: np.ndarray  # (2, 8) reduced costs and their rates
    pick: np.ndarray  # (6,) relaxed step, step, pivot of what enters; largest price rate; ease; restarts
    key: np.ndarray  # (I, 3) key columns
    match: np.ndarray  # (4, R) scratch of the factorisation
    place: np.ndarray  # (3, N) position of a tight row, or -1
    state: np.ndarray  # (3, N) 2 k: in segment k; 2 k + 1: tight at breakpoint k
    tight: np.ndarray  # (4, R) resource and column of tight rows, workload and column of extras
    flag: np.ndarray  # (I, N) whether a column is basic
    number: np.ndarray  # (I + 8,) live workloads, then the choice of the ratio test
    ticks: np.ndarray  # of `profile.lap`


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
    workloads, columns = num_workloads, padded(num_configurations + _X)
    rows = padded(3 * num_configurations + 2)
    lp = zeros(workloads, 8, columns)
    lp[:, _DEMAND, _U] = 1.0
    lp[:, _DELAY, _P], lp[:, _DELAY, _S] = 1.0, -1.0
    lp[:, _ERROR, _Q], lp[:, _ERROR, _T] = 1.0, -1.0
    lp[:, _SCALE, :_X] = 1.0
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
        candidate=zeros(2, WIDTH),
        pick=np.ones(6),
        key=np.zeros((workloads, 3), dtype=np.int64),
        match=np.zeros((4, rows), dtype=np.int64),
        place=np.zeros((3, columns), dtype=np.int64),
        state=np.zeros((3, columns), dtype=np.int64),
        tight=np.zeros((4, rows), dtype=np.int64),
        flag=np.zeros((workloads, columns), dtype=np.uint8),
        number=np.zeros(workloads + 8, dtype=np.int64),
        ticks=new_ticks(),
    )


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


# --- packing ----------------------------------------------------------------------------------------------


@once
def _pack_rows(capacity, width, slope, segment, row):
    """Scale each capacity row to a limit of one, or give it unit 0; merge empty segments and equal slopes."""
    for c in range(capacity.shape[1]):
        j = c + _X
        for r in range(2):
            row[_UNIT, r, j] = 1.0 / capacity[r, c] if capacity[r, c] > 0.0 else 0.0
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
        row[_UNIT, 2, j] = unit


@once
def _pack_workload(cost, delay, error, use, allowed, i, lp, w, row):
    """Copy one workload's columns; a column that may not be used costs infinity and is otherwise zero."""
    count, n, none, one = cost.shape[1], lp.shape[2], spread(0.0), spread(1.0)
    plane = cost.shape[0] * count
    for first in range(0, count, WIDTH):
        some, at, to = count - first, i * count + first, w * 8 * n + _X + first
        usable = is_zero(allowed, at, some) ^ 255
        delays, errors = load_first(delay, at, some), load_first(error, at, some)
        scale = larger(larger(one, sizes(delays)), sizes(errors))
        for r in range(3):
            amounts = load_first(use, r * plane + at, some)
            units = load_first(row, (3 * _UNIT + r) * n + _X + first, some)
            usable &= are_less(none, units) | are_at_most(amounts, none)
            scaled = amounts * units
            scale = larger(scale, scaled)
            store_first(lp, to + (_USE + r) * n, scaled, some)
        unusable = spread(np.inf)
        store_first(lp, to, choose(usable, load_first(cost, at, some), unusable), some)
        store_first(lp, to + n, choose(usable, one, none), some)
        store_first(lp, to + _DELAY * n, choose(usable, delays, none), some)
        store_first(lp, to + _ERROR * n, choose(usable, errors, none), some)
        store_first(lp, to + _SCALE * n, choose(usable, scale, one), some)
        if usable != 255:
            for r in range(3):
                at = to + (_USE + r) * n
                store_first(lp, at, choose(usable, load_first(lp, at, some), none), some)
    for j in range(count + _X, (count + _X + WIDTH - 1) // WIDTH * WIDTH):
        _close_column(lp, w, j)


@inner
def _close_column(lp, w, j):
    """Let a column cost infinity and do nothing."""
    for r in range(_SCALE):
        lp[w, r, j] = 0.0
    lp[w, _COST, j], lp[w, _SCALE, j] = np.inf, 1.0


@once
def _pack(cost, unserved, delay, error, use, capacity, width, slope, allowed, work):
    """Fill the packed data; return the number of workloads with arrivals, listed in `work.number`."""
    _pack_rows(capacity, width, slope, work.segment, work.row)
    lp, row, number, live = work.lp, work.row, work.number, 0
    for i in range(cost.shape[0]):
        if unserved[i] > 0.0:
            number[live] = i
            live += 1
    for w in range(live):
        i = number[w]
        lp[w, _COST, _U] = lp[w, _COST, _S] = lp[w, _COST, _T] = unserved[i]
        _pack_workload(cost, delay, error, use, allowed, i, lp, w, row)
    return live


# --- one workload -----------------------------------------------------------------------------------------


@inner
def _invert(lp, key, inverse, i, least):
    """Invert the 3x3 matrix of three key columns; tell whether its determinant exceeds `least`, scaled."""
    a, b, c = key[i, 0], key[i, 1], key[i, 2]
    a0, a1, a2 = lp[i, _DEMAND, a], lp[i, _DELAY, a], lp[i, _ERROR, a]
    b0, b1, b2 = lp[i, _DEMAND, b], lp[i, _DELAY, b], lp[i, _ERROR, b]
    c0, c1, c2 = lp[i, _DEMAND, c], lp[i, _DELAY, c], lp[i, _ERROR, c]
    m00, m01, m02 = b1 * c2 - b2 * c1, b2 * c0 - b0 * c2, b0 * c1 - b1 * c0
    det = a0 * m00 + a1 * m01 + a2 * m02
    if not abs(det) > least * lp[i, _SCALE, a] * lp[i, _SCALE, b] * lp[i, _SCALE, c]:
        return False
    inv = 1.0 / det
    inverse[i, 0, 0], inverse[i, 0, 1], inverse[i, 0, 2] = m00 * inv, m01 * inv, m02 * inv
    inverse[i, 1, 0], inverse[i, 1, 1] = (c1 * a2 - c2 * a1) * inv, (c2 * a0 - c0 * a2) * inv
    inverse[i, 1, 2] = (c0 * a1 - c1 * a0) * inv
    inverse[i, 2, 0], inverse[i, 2, 1] = (a1 * b2 - a2 * b1) * inv, (a2 * b0 - a0 * b2) * inv
    inverse[i, 2, 2] = (a0 * b1 - a1 * b0) * inv
    return True


@inner
def _represent(lp, inverse, i, j, out, e):
    """Write column `j` of workload `i` as a combination of its key columns into out[e]."""
    d0, d1, d2 = lp[i, _DEMAND, j], lp[i, _DELAY, j], lp[i, _ERROR, j]
    for k in range(3):
        out[e, k] = inverse[i, k, 0] * d0 + inverse[i, k, 1] * d1 + inverse[i, k, 2] * d2


@inner
def _replace_key(inverse, i, k, column, e):
    """Update a workload's inverse: the column that column[e] represents takes the place of key `k`."""
    for r in range(3):
        pivot = inverse[i, k, r] / column[e, k]
        for q in range(3):
            if q != k:
                inverse[i, q, r] -= column[e, q] * pivot
        inverse[i, k, r] = pivot


@inner
def _priced_cost(lp, i, row, j):
    """Cost of column `j` with what it pays for capacity."""
    return lp[i, _COST, j] + (
        row[_PRICE, 0, j] * lp[i, _USE, j]
        + row[_PRICE, 1, j] * lp[i, _USE + 1, j]
        + row[_PRICE, 2, j] * lp[i, _USE + 2, j]
    )


@inner
def _load(lp, i, j):
    """Sum of what column `j` takes of its configuration's limits."""
    return lp[i, _USE, j] + lp[i, _USE + 1, j] + lp[i, _USE + 2, j]


@inner
def _workload_dual(lp, i, row, key, inverse, local, round_off, price_noise):
    """Set the duals of a workload's three rows from its key columns, and the round-off they carry."""
    y0 = y1 = y2 = noise = 0.0
    for k in range(3):
        cost = _priced_cost(lp, i, row, key[i, k])
        v0, v1, v2 = inverse[i, k, 0], inverse[i, k, 1], inverse[i, k, 2]
        y0, y1, y2 = y0 + cost * v0, y1 + cost * v1, y2 + cost * v2
        size = abs(v0) + abs(v1) + abs(v2)
        noise += (abs(cost) * round_off + price_noise * _load(lp, i, key[i, k])) * size
    local[i, _DUAL, 0], local[i, _DUAL, 1], local[i, _DUAL, 2] = y0, y1, y2
    local[i, _NOISE, 0] = noise


@inner
def _reduced_costs(lp, i, row, y0, y1, y2, j):
    """Return the reduced costs of the columns from `j` on, given the duals of workload `i`."""
    n = lp.shape[2]
    at = i * 8 * n + j
    paid = fused(load(row, j), load(lp, at + _USE * n), load(lp, at))
    paid = fused(load(row, n + j), load(lp, at + (_USE + 1) * n), paid)
    paid = fused(load(row, 2 * n + j), load(lp, at + (_USE + 2) * n), paid)
    worth = fused(y1, load(lp, at + _DELAY * n), y0 * load(lp, at + n))
    return paid - fused(y2, load(lp, at + _ERROR * n), worth)


@inner
def _rates(lp, i, row, y0, y1, y2, j):
    """Return how fast these reduced costs fall along the dual direction."""
    n = lp.shape[2]
    at, rate = i * 8 * n + j, 3 * _RATE * n + j
    paid = load(row, rate) * load(lp, at + _USE * n)
    paid = fused(load(row, rate + n), load(lp, at + (_USE + 1) * n), paid)
    paid = fused(load(row, rate + 2 * n), load(lp, at + (_USE + 2) * n), paid)
    worth = fused(y1, load(lp, at + _DELAY * n), y0 * load(lp, at + n))
    return fused(y2, load(lp, at + _ERROR * n), worth) - paid


@once
def _rate_noise(lp, i, reach, noise, j):
    """Return the smallest rate of column `j` that is more than round-off of the direction it comes from."""
    own = abs(lp[i, _DEMAND, j]) + abs(lp[i, _DELAY, j]) + abs(lp[i, _ERROR, j])
    return _TINY_PIVOT * (reach * _load(lp, i, j) + noise * own)


@inner
def _offer(pick, gap, rate, slack):
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


@inner
def _ratio(lp, i, row, local, candidate, flag, pick, number, size, bland):
    """Offer the columns of workload `i` to the ratio test; note the choice in the last cells of `number`."""
    n, none = lp.shape[2], spread(0.0)
    y0, y1, y2 = spread(local[i, _DUAL, 0]), spread(local[i, _DUAL, 1]), spread(local[i, _DUAL, 2])
    z0, z1, z2 = spread(local[i, _STEP, 0]), spread(local[i, _STEP, 1]), spread(local[i, _STEP, 2])
    slack = 0.0 if bland else local[i, _NOISE, 0]
    for first in range(0, size, WIDTH):
        rates = _rates(lp, i, row, z0, z1, z2, first)
        bits = are_less(none, rates) & is_zero(flag, i * n + first, WIDTH)
        if bits == 0:
            continue
        gaps = _reduced_costs(lp, i, row, y0, y1, y2, first)
        bits &= are_at_most(gaps, spread(pick[0]) * rates)
        store(candidate, 0, gaps)
        store(candidate, WIDTH, rates)
        while bits != 0:
            k = lowest(bits)
            bits &= bits - 1
            gap, rate, j = candidate[0, k], candidate[1, k], first + k
            if gap > pick[0] * rate or (bland and max(gap, 0.0) >= pick[1] * rate):
                continue
            if rate > _rate_noise(lp, i, pick[3], local[i, _NOISE, 2], j) and _offer(pick, gap, rate, slack):
                number[-2], number[-1] = i, j


@inner
def _reset_pick(pick, number):
    """Forget the choice of the last ratio test."""
    pick[0], pick[1], pick[2] = np.inf, np.inf, 0.0
    number[-1] = -1


@inner
def _aim_by_key(inverse, i, k, local, pick):
    """Let the reduced cost of key `k` rise while prices rest: write the direction of the workload's duals."""
    size = 0.0
    for r in range(3):
        local[i, _STEP, r] = -inverse[i, k, r]
        size = max(size, abs(inverse[i, k, r]))
    local[i, _NOISE, 2] = size
    pick[3] = 0.0


@once
def _worst_key(lp, i, key, inverse, bland):
    """Return the key position with the most negative scaled value, or -1; the smallest column if `bland`."""
    worst, place = 0.0, -1
    for k in range(3):
        scaled = inverse[i, k, 0] * lp[i, _SCALE, key[i, k]]
        if scaled < -_FEASIBLE and (place < 0 or (key[i, k] < key[i, place] if bland else scaled < worst)):
            worst, place = scaled, k
    return place


@once
def _best_column(lp, i, row, size):
    """Return the cheapest way to serve a workload at these prices, its service levels left aside."""
    best, cost = _U, lp[i, _COST, _U]
    for j in range(_X, size):
        priced = _priced_cost(lp, i, row, j)
        if priced < cost:
            best, cost = j, priced
    return best


@once
def _solve_workload(work, i, size):
    """Solve one workload's three-row problem at the current prices by its own dual simplex method."""
    lp, key, inverse, local, flag = work.lp, work.key, work.inverse, work.local, work.flag
    row, column, last = work.row, work.extra, work.extra.shape[0] - 1
    for k in range(3):
        flag[i, key[i, k]] = 0
    key[i, 0], key[i, 1], key[i, 2] = _best_column(lp, i, row, size), _P, _Q
    for k in range(3):
        flag[i, key[i, k]] = 1
    _invert(lp, key, inverse, i, 0.0)
    for count in range(200):
        bland = count > 30
        leaving = _worst_key(lp, i, key, inverse, bland)
        _workload_dual(lp, i, row, key, inverse, local, _ROUND_OFF, 0.0)
        if leaving < 0:
            return True
        _aim_by_key(inverse, i, leaving, local, work.pick)
        _reset_pick(work.pick, work.number)
        _ratio(lp, i, row, local, work.candidate, flag, work.pick, work.number, size, bland)
        entering = work.number[-1]
        if entering < 0:
            return False
        _represent(lp, inverse, i, entering, column, last)
        _replace_key(inverse, i, leaving, column, last)
        flag[i, key[i, leaving]], flag[i, entering] = 0, 1
        key[i, leaving] = entering
    return False


# --- factorisation ----------------------------------------------------------------------------------------


@once
def _choose_keys(lp, i, basis, start, stop, key, inverse, column):
    """Choose three independent key columns among a workload's basic ones, by complete pivoting.

    Columns count by their size after scaling. Where the basic columns do not span, unit columns stay in;
    returns whether none had to.
    """
    last = column.shape[0] - 1
    for k in range(3):
        key[i, k] = _U if k == 0 else 2 * k - 1
        for r in range(3):
            inverse[i, k, r] = 1.0 if k == r else 0.0
    open_places = 7
    while open_places:
        best, place, choice = 1e-9, start, start
        for n in range(start, stop):
            j = basis[n] % _STRIDE
            _represent(lp, inverse, i, j, column, last)
            for k in range(3):
                size = abs(column[last, k]) / lp[i, _SCALE, j]
                if open_places >> k & 1 and size > best:
                    best, place, choice = size, k, j
        if best == 1e-9:
            return False
        _represent(lp, inverse, i, choice, column, last)
        _replace_key(inverse, i, place, column, last)
        key[i, place] = choice
        open_places -= 1 << place
    return True


@inner
def _scatter(lp, i, key, place, j, column, e, out, at):
    """Add to out[at, t] what column `j` of workload `i` loads row t by, net of the keys that represent it."""
    for k in range(4):
        col, factor = (j, 1.0) if k == 3 else (key[i, k], -column[e, k])
        if col >= _X and factor != 0.0:
            for r in range(3):
                if place[r, col] >= 0:
                    out[at, place[r, col]] += factor * lp[i, _USE + r, col]


@inner
def _entry(lp, i, key, j, column, e, r, at):
    """Return what `_scatter` adds for the one row (r, at)."""
    share = 1.0 if j == at else 0.0
    for k in range(3):
        if key[i, k] == at:
            share -= column[e, k]
    return share * lp[i, _USE + r, at]


@inner
def _release(work, r, j, segment):
    """Take a row out of the tight ones: its load is free within a segment, and its price is that slope."""
    work.place[r, j] = -1
    work.state[r, j] = 2 * segment
    work.row[_PRICE, r, j] = work.segment[1, r, segment, j]
    work.span[0, r, j] = work.segment[0, r, segment - 1, j] if segment > 0 else -np.inf
    work.span[1, r, j] = work.segment[0, r, segment, j]


@inner
def _tie(work, t, r, j, level):
    """Put row (r, j) into position `t` of the tight rows, at breakpoint `level`."""
    work.tight[0, t], work.tight[1, t] = r, j
    work.place[r, j], work.state[r, j] = t, 2 * level + 1
    work.span[0, r, j], work.span[1, r, j] = -np.inf, np.inf


@once
def _reset_rows(work, size):
    """Leave every row in its first segment, without a price; one without capacity is never out of bounds."""
    n, none, wide = work.row.shape[2], spread(0.0), spread(np.inf)
    for r in range(3):
        for j in range(size):
            work.state[r, j] = 0
        for j in range(size):
            work.place[r, j] = -1
        for first in range(0, size, WIDTH):
            at = r * n + first
            store(work.row, 3 * _PRICE * n + at, none)
            store(work.row, 3 * _RATE * n + at, none)
            store(work.span, at, none - wide)
            some = are_less(none, load(work.row, 3 * _UNIT * n + at))
            store(work.span, 3 * n + at, choose(some, load(work.segment, 6 * r * n + first), wide))


@once
def _load_rows(work, basis, size):
    """Take each row's state from the stored basis; return the number of tight rows."""
    _reset_rows(work, size)
    tight = 0
    for n in range(2 + basis[0], 2 + basis[0] + 2 * basis[1], 2):
        r, j, state = basis[n] // _STRIDE, basis[n] % _STRIDE, basis[n + 1]
        while state > 1 and work.segment[1, r, state // 2, j] == np.inf:
            state -= 2  # there are fewer segments than there were
        if work.row[_UNIT, r, j] == 0.0:
            continue
        _release(work, r, j, state // 2)
        if state % 2 == 1:
            _tie(work, tight, r, j, state // 2)
            tight += 1
    return tight


@once
def _load_keys(lp, i, key, inverse, basis, start, stop, column):
    """Make keys of three of a workload's stored basic columns; tell whether the stored ones sufficed."""
    if stop - start >= 3:  # the first three will do unless others are much better
        for k in range(3):
            key[i, k] = basis[start + k] % _STRIDE
        if _invert(lp, key, inverse, i, 1e-13 if stop - start == 3 else 0.03):
            return True
    complete = _choose_keys(lp, i, basis, start, stop, key, inverse, column)
    _invert(lp, key, inverse, i, 0.0)
    return complete


@once
def _load_columns(lp, key, inverse, flag, number, tied, column, basis, live, size):
    """Split the stored columns into keys and extras; return how many extras, and whether they sufficed."""
    extras, complete, stop, end = 0, True, 2, 2 + basis[0]
    for i in range(live):
        for j in range(size):
            flag[i, j] = 0
        start = stop
        while start < end and basis[start] // _STRIDE < number[i]:
            start += 1
        stop = start
        while stop < end and basis[stop] // _STRIDE == number[i]:
            stop += 1
        complete = _load_keys(lp, i, key, inverse, basis, start, stop, column) and complete
        for k in range(3):
            flag[i, key[i, k]] = 1
        for n in range(start, stop):
            j = basis[n] % _STRIDE
            if flag[i, j] == 0 and lp[i, _COST, j] < np.inf and extras < tied.shape[1] - 2:
                tied[2, extras], tied[3, extras] = i, j
                extras += 1
    return extras, complete


@inner
def _clear_row(matrix, e, size):
    """Set the first `size` cells of a row to zero; those behind, up to full lanes, mean nothing."""
    for t in range(0, size, WIDTH):
        store(matrix, e * matrix.shape[1] + t, spread(0.0))


@inner
def _add_row(matrix, e, factor, other, a, size):
    """Add to a row of a matrix a multiple of a row of another one."""
    to, by, factors = e * matrix.shape[1], a * other.shape[1], spread(factor)
    for t in range(0, size, WIDTH):
        store(matrix, to + t, load(matrix, to + t) + factors * load(other, by + t))


@inner
def _dot(matrix, e, vector, a, size):
    """Return the product of two rows' first `size` cells."""
    sums = spread(0.0)
    for t in range(0, size, WIDTH):
        left = load_first(matrix, e * matrix.shape[1] + t, size - t)
        sums = sums + left * load_first(vector, a * vector.shape[1] + t, size - t)
    return total(sums)


@inner
def _exchange(matrix, size, a, b):
    """Swap row `a` and column `b` of a linear map: output a becomes an input, input b an output."""
    inverse = 1.0 / matrix[a, b]
    for e in range(size):
        factor = matrix[e, b] * inverse
        if e != a and factor != 0.0:
            _add_row(matrix, e, -factor, matrix, a, size)
            matrix[e, b] = factor
    n, scale = matrix.shape[1], spread(-inverse)
    for t in range(0, size, WIDTH):
        store(matrix, a * n + t, load(matrix, a * n + t) * scale)
    matrix[a, b] = inverse


@once
def _eliminate(matrix, extra, rows, columns, match):
    """Invert in place by exchanges: each row takes its largest free column, match[0, row] = column.

    A row that depends on those before it gets no column (-1); match[1, column] is the reverse.
    """
    for t in range(columns):
        match[1, t] = -1
    for e in range(rows):
        best, choice = extra[e, 3], columns
        for t in range(columns):
            if match[1, t] < 0 and abs(matrix[e, t]) > best:
                best, choice = abs(matrix[e, t]), t
        match[0, e] = -1
        if choice < columns:
            match[0, e], match[1, choice] = choice, e
            _exchange(matrix, max(rows, columns), e, choice)


@once
def _build(work, tight, extras):
    """Write the working matrix, one row per extra, and beside each extra the least pivot to trust."""
    matrix = work.scratch
    for e in range(extras):
        i, j = work.tight[2, e], work.tight[3, e]
        _represent(work.lp, work.inverse, i, j, work.extra, e)
        _clear_row(matrix, e, max(tight, extras) + 1)
        _scatter(work.lp, i, work.key, work.place, j, work.extra, e, matrix, e)
        largest = 0.0
        for t in range(tight):
            largest = max(largest, abs(matrix[e, t]))
        work.extra[e, 3] = _TINY_PIVOT * largest


@once
def _keep_pairs(work, tight, extras, repaired):
    """Put rows and extras that pair in the same order, release the other rows; return how many pair.

    Once prices are known, rows that are left over are untied instead, which lets them keep their price.
    """
    match, tied = work.match, work.tight
    for t in range(tight):
        match[2, t], match[3, t] = tied[0, t], tied[1, t]
        if match[1, t] < 0:
            r, j = tied[0, t], tied[1, t]
            if repaired:
                _untie(work, r, j)
            else:
                _release(work, r, j, work.state[r, j] // 2)
    pairs = 0
    for e in range(extras):
        t = match[0, e]
        if t >= 0:
            tied[0, pairs], tied[1, pairs] = match[2, t], match[3, t]
            tied[2, pairs], tied[3, pairs] = tied[2, e], tied[3, e]
            work.place[match[2, t], match[3, t]] = pairs
            work.flag[tied[2, e], tied[3, e]] = 1
            for k in range(3):
                work.extra[pairs, k] = work.extra[e, k]
            match[0, pairs], match[1, pairs] = t, e
            pairs += 1
    for e in range(pairs):
        for f in range(pairs):
            work.working[f, e] = work.scratch[match[1, e], match[0, f]]
    return pairs


@once
def _factorise(work, basis, live, size):
    """Load and factorise the stored basis, and repair it until it is dual feasible.

    Returns the number of pairs (-1 where a workload could not be solved) and whether nothing was changed.
    """
    tight = _load_rows(work, basis, size)
    extras, sound = _load_columns(
        work.lp, work.key, work.inverse, work.flag, work.number, work.tight, work.extra, basis, live, size
    )
    for repaired in range(2):
        _build(work, tight, extras)
        _eliminate(work.scratch, work.extra, extras, tight, work.match)
        pairs = _keep_pairs(work, tight, extras, repaired > 0)
        if repaired == 0:
            sound = sound and pairs == tight and pairs == extras
            tight, extras, changed = _repair(work, live, pairs, size)
            sound = sound and not changed
            if extras < 0 or (tight == pairs and extras == pairs):
                return extras, sound
    return pairs, False


@once
def _store(work, basis, live, size):
    """Write the basis in its canonical order: columns by workload and number, then rows that are not free."""
    n = 2
    for i in range(live):
        for j in range(size):
            if work.flag[i, j] != 0:
                basis[n] = work.number[i] * _STRIDE + j
                n += 1
    basis[0] = n - 2
    for r in range(3):
        for j in range(_X, size):
            if work.state[r, j] != 0:
                basis[n], basis[n + 1] = r * _STRIDE + j, work.state[r, j]
                n += 2
    basis[1] = (n - 2 - basis[0]) // 2


# --- primal and dual solution of a basis ------------------------------------------------------------------


@once
def _values(work, live, pairs):
    """Compute the values of all basic columns."""
    rhs, tied = work.vector[0], work.tight
    for t in range(pairs):
        r, j = tied[0, t], tied[1, t]
        rhs[t] = work.segment[0, r, work.state[r, j] // 2, j]
    for i in range(live):
        for k in range(3):
            j, value = work.key[i, k], work.inverse[i, k, 0]
            work.local[i, _VALUE, k] = value
            for r in range(3):
                if work.place[r, j] >= 0:
                    rhs[work.place[r, j]] -= value * work.lp[i, _USE + r, j]
    for e in range(pairs):
        value = _dot(work.working, e, work.vector, 0, pairs)
        work.extra[e, 3] = value
        for k in range(3):
            work.local[tied[2, e], _VALUE, k] -= work.extra[e, k] * value


@once
def _loads(work, live, pairs, size):
    """Compute the load of every capacity row, as a share of its limit."""
    carried = work.row[_LOAD]
    n = carried.shape[1]
    for r in range(3):
        for first in range(0, size, WIDTH):
            store(carried, r * n + first, spread(0.0))
    for i in range(live):
        for k in range(3):
            j = work.key[i, k]
            for r in range(3):
                carried[r, j] += work.local[i, _VALUE, k] * work.lp[i, _USE + r, j]
    for e in range(pairs):
        i, j = work.tight[2, e], work.tight[3, e]
        for r in range(3):
            carried[r, j] += work.extra[e, 3] * work.lp[i, _USE + r, j]


@once
def _prices(lp, row, key, tied, extra, working, vector, pairs):
    """Compute the tight rows' prices, which make the reduced costs of the extras zero; return their noise."""
    n = vector.shape[1]
    for t in range(pairs):
        row[_PRICE, tied[0, t], tied[1, t]] = 0.0
    _clear_row(vector, 0, pairs)
    _clear_row(vector, 1, pairs)
    for e in range(pairs):
        i = tied[2, e]
        cost = _priced_cost(lp, i, row, tied[3, e])
        size = abs(cost)
        for k in range(3):
            part = _priced_cost(lp, i, row, key[i, k]) * extra[e, k]
            cost, size = cost - part, size + abs(part)
        _add_row(vector, 0, -cost, working, e, pairs)
        for t in range(0, pairs, WIDTH):
            parts = sizes(load(working, e * working.shape[1] + t))
            store(vector, n + t, load(vector, n + t) + spread(size) * parts)
    noise = 0.0
    for t in range(pairs):
        row[_PRICE, tied[0, t], tied[1, t]] = vector[0, t]
        noise = max(noise, vector[1, t])
    return noise


@inner
def _duals(work, live, pairs):
    """Compute the prices of the tight rows and each workload's duals; return the noise of the prices."""
    lp, row, key, inverse, local = work.lp, work.row, work.key, work.inverse, work.local
    round_off = _ROUND_OFF * work.pick[4]
    noise = round_off * _prices(lp, row, key, work.tight, work.extra, work.working, work.vector, pairs)
    for i in range(live):
        _workload_dual(lp, i, row, key, inverse, local, round_off, noise)
    return noise


@once
def _is_priced_out(lp, i, row, local, candidate, flag, size, noise):
    """Tell whether a column outside the basis would lower the cost of workload `i`."""
    y0, y1, y2 = spread(local[i, _DUAL, 0]), spread(local[i, _DUAL, 1]), spread(local[i, _DUAL, 2])
    limit = -2.0 * local[i, _NOISE, 0]
    for first in range(0, size, WIDTH):
        gaps = _reduced_costs(lp, i, row, y0, y1, y2, first)
        bits = are_less(gaps, spread(limit)) & is_zero(flag, i * lp.shape[2] + first, WIDTH)
        store(candidate, 0, gaps)
        while bits != 0:
            k = lowest(bits)
            bits &= bits - 1
            j = first + k
            if candidate[0, k] < limit * lp[i, _SCALE, j] - noise * _load(lp, i, j):
                return True
    return False


@once
def _is_price_outside(work, t, noise):
    """Tell whether the price of tight row `t` is beyond the slopes beside its breakpoint."""
    r, j = work.tight[0, t], work.tight[1, t]
    level, price = work.state[r, j] // 2, work.row[_PRICE, r, j]
    return price < work.segment[1, r, level, j] - noise or price > work.segment[1, r, level + 1, j] + noise


@once
def _untie(work, r, j):
    """Turn a tight row into one that merely has a price: between two slopes it must become tight again."""
    level, price = work.state[r, j] // 2, work.row[_PRICE, r, j]
    if price <= work.segment[1, r, level, j]:
        _release(work, r, j, level)
    elif price >= work.segment[1, r, level + 1, j]:
        _release(work, r, j, level + 1)
    else:
        work.place[r, j] = -1
        _demand_pivot(work, r, j, level)


@inner
def _demand_pivot(work, r, j, level):
    """Let a row count as out of bounds, whatever its load."""
    least = 2.0 * _FEASIBLE * work.pick[4]
    work.span[0, r, j] = work.segment[0, r, level, j] + least
    work.span[1, r, j] = work.segment[0, r, level, j] - least


@once
def _clip_prices(work, pairs, noise):
    """Release the tight rows whose prices are beyond the slopes beside them, marked by a rate; return how many.

    All workloads with extras are marked as such.
    """
    released = 0
    for t in range(pairs):
        r, j = work.tight[0, t], work.tight[1, t]
        work.local[work.tight[2, t], _NOISE, 1] = 2.0
        if _is_price_outside(work, t, noise):
            _untie(work, r, j)
            work.row[_RATE, r, j] = 1.0
            released += 1
    return released


@inner
def _is_touched(work, i, j):
    """Tell whether column `j` of workload `i` loads a row whose price was clipped."""
    row, lp = work.row[_RATE], work.lp
    return (
        row[0, j] * lp[i, _USE, j] + row[1, j] * lp[i, _USE + 1, j] + row[2, j] * lp[i, _USE + 2, j]
    ) != 0.0


@once
def _mark_faults(work, live, pairs, size, noise, clipped):
    """Mark the workloads that must be solved again: one with extras also where a clipped price touches it.

    local[i, _NOISE, 1] is 0 or 2, plus one where there is a fault.
    """
    lp, row, local, candidate, flag = work.lp, work.row, work.local, work.candidate, work.flag
    faults = 0.0
    if clipped:
        for i in range(live):
            touched = False
            for k in range(3):
                touched = touched or _is_touched(work, i, work.key[i, k])
            if touched:
                _workload_dual(lp, i, row, work.key, work.inverse, local, _ROUND_OFF * work.pick[4], noise)
                local[i, _NOISE, 1] += local[i, _NOISE, 1] / 2.0
        for e in range(pairs):
            if _is_touched(work, work.tight[2, e], work.tight[3, e]):
                local[work.tight[2, e], _NOISE, 1] = 3.0
    for i in range(live):
        mark = local[i, _NOISE, 1]
        if mark != 3.0 and _is_priced_out(lp, i, row, local, candidate, flag, size, noise):
            local[i, _NOISE, 1] = mark + 1.0
        faults = max(faults, local[i, _NOISE, 1] % 2.0)
    return faults > 0.0


@once
def _drop_faults(work, pairs):
    """Take clipped rows and the extras of marked workloads out; return the numbers of rows and extras left."""
    tied, tight, extras = work.tight, 0, 0
    for t in range(pairs):
        r, j, i, column = tied[0, t], tied[1, t], tied[2, t], tied[3, t]
        work.row[_RATE, r, j] = 0.0
        work.flag[i, column] = 0
        if work.place[r, j] >= 0:
            work.place[r, j] = tight
            tied[0, tight], tied[1, tight] = r, j
            tight += 1
        if work.local[i, _NOISE, 1] == 2.0:
            tied[2, extras], tied[3, extras] = i, column
            extras += 1
    return tight, extras


@_apart
def _mend(work, live, pairs, size):
    """Solve the marked workloads again, without extras; return the numbers of tight rows and extras left."""
    tight, extras = _drop_faults(work, pairs)
    if tight == pairs and extras == pairs:  # no other workload's factors are touched
        for e in range(pairs):
            work.flag[work.tight[2, e], work.tight[3, e]] = 1
    for i in range(live):
        if work.local[i, _NOISE, 1] % 2.0 == 1.0 and not _solve_workload(work, i, size):
            extras = -1
            break
    for i in range(live):
        work.local[i, _NOISE, 1] = 0.0
    return tight, extras


_distant_mend = separate(_mend, new_workspace(1, 1), 0, 0, 0)


@once
def _repair(work, live, pairs, size):
    """Compute the duals and repair the basis where they are infeasible, at as few changes as possible.

    Prices beyond the slopes beside them are clipped. Workloads whose columns these prices or the new data
    leave dual infeasible lose their extras and are solved again; the others keep theirs, which still have no
    reduced cost. Returns the numbers of tight rows and of extras left (-1 where a workload could not be
    solved) and whether anything was changed. If it was, the working matrix has to be factorised again.
    """
    noise = _duals(work, live, pairs)
    clipped = _clip_prices(work, pairs, noise)
    if not _mark_faults(work, live, pairs, size, noise, clipped > 0) and clipped == 0:
        for i in range(live):
            work.local[i, _NOISE, 1] = 0.0
        return pairs, pairs, False
    tight, extras = _distant_mend(work, live, pairs, size)
    return tight, extras, True


# --- dual simplex method ----------------------------------------------------------------------------------


@inner
def _violation(work, r, j):
    """How far a row's load is beyond its segment: positive above it, negative below it."""
    load, level = work.row[_LOAD, r, j], work.state[r, j] // 2
    above = load - work.segment[0, r, level, j]
    if work.state[r, j] % 2 == 1:  # untied: whatever its load, no basis has such a row
        least = 2.0 * _FEASIBLE * work.pick[4]
        return max(above, least) if above >= 0.0 else min(above, -least)
    if above > 0.0 or level == 0:
        return max(above, 0.0)
    return min(load - work.segment[0, r, level - 1, j], 0.0)


@once
def _leaving(work, live, pairs, size, bland):
    """Return kind and place of what should leave: the column or row that is furthest out of bounds.

    The first of all if `bland`.
    """
    worst, kind, a, b, least = 0.0, _NONE, 0, 0, _FEASIBLE * work.pick[4]
    for i in range(live):
        for k in range(3):
            if work.local[i, _VALUE, k] < 0.0:
                j = work.key[i, k]
                below = -work.local[i, _VALUE, k] * work.lp[i, _SCALE, j]
                value = _badness(below, i * _STRIDE + j, least, bland)
                if value > worst:
                    worst, kind, a, b = value, _KEY, i, k
    for e in range(pairs):
        if work.extra[e, 3] < 0.0:
            i, j = work.tight[2, e], work.tight[3, e]
            value = _badness(-work.extra[e, 3] * work.lp[i, _SCALE, j], i * _STRIDE + j, least, bland)
            if value > worst:
                worst, kind, a, b = value, _EXTRA, e, 0
    n = work.row.shape[2]
    for r in range(3):
        for first in range(0, size, WIDTH):
            at = r * n + first
            loads = load(work.row, 3 * _LOAD * n + at)
            beyond = larger(loads - load(work.span, 3 * n + at), load(work.span, at) - loads)
            bits = are_less(spread(least if bland else max(worst, least)), beyond)
            while bits != 0:
                j = first + lowest(bits)
                bits &= bits - 1
                value = _badness(abs(_violation(work, r, j)), (live + r) * _STRIDE + j, least, bland)
                if value > worst:
                    worst, kind, a, b = value, _ROW, r, j
    return kind, a, b


@inner
def _badness(violation, number, least, bland):
    """Rank what may leave: by its violation, or by its number."""
    if violation <= least:
        return 0.0
    return 1.0 / (1.0 + number) if bland else violation


@once
def _dependent_extra(work, i, k, pairs):
    """Return the extra of workload `i` that depends most on key `k`, or -1."""
    best, choice, lp = _TINY_PIVOT, -1, work.lp[i]
    for e in range(pairs):
        if work.tight[2, e] == i:
            size = abs(work.extra[e, k]) * lp[_SCALE, work.key[i, k]] / lp[_SCALE, work.tight[3, e]]
            if size > best:
                best, choice = size, e
    return choice


@once
def _swap_key(work, i, k, pairs):
    """Let an extra of workload `i` that depends on key `k` take its place; return which, or -1.

    The basis stays the same, but the key that should leave is now an extra.
    """
    choice = _dependent_extra(work, i, k, pairs)
    if choice < 0:
        return -1
    mine, working, tied = work.extra[choice], work.working, work.tight
    pivot = mine[k]
    _replace_key(work.inverse, i, k, work.extra, choice)
    for t in range(pairs):
        working[choice, t] *= -pivot
    for e in range(pairs):
        if tied[2, e] == i and e != choice:
            factor = work.extra[e, k]
            _add_row(working, choice, -factor, working, e, pairs)
            for q in range(3):
                work.extra[e, q] -= mine[q] * (factor / pivot)
            work.extra[e, k] = factor / pivot
    for q in range(3):
        mine[q] /= -pivot
    mine[k] = 1.0 / pivot
    work.key[i, k], tied[3, choice] = tied[3, choice], work.key[i, k]
    work.local[i, _VALUE, k], mine[3] = mine[3], work.local[i, _VALUE, k]
    return choice


@once
def _border_row(work, r, at, pairs):
    """Write the load of row (r, at), by the limits of the tight rows, into the working matrix's border."""
    matrix = work.working
    _clear_row(matrix, pairs, pairs)
    for e in range(pairs):
        entry = _entry(work.lp, work.tight[2, e], work.key, work.tight[3, e], work.extra, e, r, at)
        if entry != 0.0:
            _add_row(matrix, pairs, entry, matrix, e, pairs)


@once
def _border_column(work, i, j, r, at, pairs):
    """Write what column (i, j) takes from the extras, and adds to row (r, at), into the border."""
    matrix, loads = work.working, work.scratch
    _represent(work.lp, work.inverse, i, j, work.extra, pairs)
    _clear_row(loads, pairs, pairs)
    _scatter(work.lp, i, work.key, work.place, j, work.extra, pairs, loads, pairs)
    corner = _entry(work.lp, i, work.key, j, work.extra, pairs, r, at)
    for e in range(pairs + 1):
        matrix[e, pairs] = -_dot(matrix, e, loads, pairs, pairs)
    matrix[pairs, pairs] += corner


@inner
def _aim(work, a, sign, pairs):
    """Let the tight rows' prices follow what leaves, row `a` of the working matrix: write their rates."""
    reach = 0.0
    for t in range(pairs):
        rate = sign * work.working[a, t]
        work.vector[1, t] = work.row[_RATE, work.tight[0, t], work.tight[1, t]] = rate
        reach = max(reach, abs(rate))
    work.pick[3] = reach


@once
def _aim_workload(lp, i, row, key, inverse, local, reach):
    """Let the duals of workload `i` follow the prices so that its keys' reduced costs stay zero."""
    y0 = y1 = y2 = noise = 0.0
    for k in range(3):
        j = key[i, k]
        if j < _X:
            continue
        cost = row[_RATE, 0, j] * lp[i, _USE, j] + row[_RATE, 1, j] * lp[i, _USE + 1, j]
        cost += row[_RATE, 2, j] * lp[i, _USE + 2, j]
        if cost != 0.0:
            v0, v1, v2 = inverse[i, k, 0], inverse[i, k, 1], inverse[i, k, 2]
            y0, y1, y2 = y0 + cost * v0, y1 + cost * v1, y2 + cost * v2
            noise += max(abs(v0), abs(v1), abs(v2)) * _load(lp, i, j)
    local[i, _STEP, 0], local[i, _STEP, 1], local[i, _STEP, 2] = y0, y1, y2
    local[i, _NOISE, 2] = noise * reach


@once
def _ratio_of_rows(work, pairs):
    """Offer the tight rows, whose prices must stay between two slopes, to the ratio test."""
    end = work.number.size
    for t in range(pairs):
        r, j = work.tight[0, t], work.tight[1, t]
        rate, level, price = work.vector[1, t], work.state[r, j] // 2, work.row[_PRICE, r, j]
        bound = work.segment[1, r, level + (1 if rate > 0.0 else 0), j]
        if abs(rate) > _TINY_PIVOT * work.pick[3] and bound < np.inf:
            gap = bound - price if rate > 0.0 else price - bound
            if _offer(work.pick, gap, abs(rate), _ROUND_OFF * (abs(price) + bound)):
                work.number[end - 2], work.number[end - 1] = -1, t


@once
def _ratio_test(work, kind, only, live, pairs, size, bland):
    """Find what enters: a column, or a tight row that becomes free."""
    lp, row, local, candidate, flag = work.lp, work.row, work.local, work.candidate, work.flag
    pick, number = work.pick, work.number
    _reset_pick(pick, number)
    if kind != _KEY:  # these are few, and leave less to the columns
        _ratio_of_rows(work, pairs)
    for i in range(live):
        if kind != _KEY:
            _aim_workload(lp, i, row, work.key, work.inverse, local, pick[3])
        if kind != _KEY or i == only:  # without a change of prices no other workload is concerned
            _ratio(lp, i, row, local, candidate, flag, pick, number, size, bland)


@inner
def _is_off(pivot, rate):
    """Tell whether the two ways to compute a pivot differ so much that the inverses need a refresh."""
    return not abs(abs(pivot) - rate) <= 1e-7 * rate


@once
def _exchange_key(work, i, k, pairs):
    """Exchange a key that no extra depends on: within its workload, so that the working matrix stays."""
    lp, inverse, tied, j = work.lp, work.inverse, work.tight, work.number[-1]
    _represent(lp, inverse, i, j, work.extra, pairs)
    if _is_off(work.extra[pairs, k], work.pick[2]):
        return -1
    _replace_key(inverse, i, k, work.extra, pairs)
    work.flag[i, work.key[i, k]], work.flag[i, j] = 0, 1
    work.key[i, k] = j
    for e in range(pairs):
        if tied[2, e] == i:
            _represent(lp, inverse, i, tied[3, e], work.extra, e)
    return pairs


@once
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


@inner
def _move_column(work, i, j, column, e, amount):
    """Serve more by column `j` of workload `i`, which column[e] represents, and less by its keys."""
    lp, carried = work.lp, work.row[_LOAD]
    for r in range(3):
        carried[r, j] += amount * lp[i, _USE + r, j]
    for k in range(3):
        share, key = column[e, k] * amount, work.key[i, k]
        if share != 0.0:
            work.local[i, _VALUE, k] -= share
            for r in range(3):
                carried[r, key] -= share * lp[i, _USE + r, key]


@once
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


@once
def _exchange_pair(work, e, r, at, level, pairs):
    """Let extra `e`, or row (r, at) if e == pairs, make place for what the ratio test chose.

    Returns the number of pairs, or -1 where the inverses need a refresh.
    """
    i, j, tied = work.number[-2], work.number[-1], work.tight
    t = j if i < 0 else pairs
    if i >= 0:
        _border_column(work, i, j, r, at, pairs)
    if _is_off(work.working[e, t], work.pick[2]):
        return -1
    missing = work.segment[0, r, level, at] - work.row[_LOAD, r, at] if e == pairs else -work.extra[e, 3]
    _move_values(work, i, j, t, missing / work.working[e, t], pairs)
    _exchange(work.working, pairs + 1, e, t)
    if i < 0:
        _release(work, tied[0, t], tied[1, t], _next_segment(work, t))
    if e < pairs:
        work.flag[tied[2, e], tied[3, e]] = 0
    if e == pairs:
        _tie(work, t, r, at, level)
    if i >= 0:
        tied[2, e], tied[3, e] = i, j
        work.flag[i, j] = 1
        for k in range(4):
            work.extra[e, k] = work.extra[pairs, k]
    elif e < pairs:
        _move_last(work, e, t, pairs - 1)
    return pairs + (1 if e == pairs else 0) - (1 if i < 0 else 0)


@once
def _next_segment(work, t):
    """Return the segment towards which the price of tight row `t` was moving."""
    return work.state[work.tight[0, t], work.tight[1, t]] // 2 + (1 if work.vector[1, t] > 0.0 else 0)


@once
def _step(work, kind, only, r, at, step, live, pairs):
    """Move prices and duals along their direction, and forget the prices' rates."""
    row, local = work.row, work.local
    for t in range(pairs):
        q, j = work.tight[0, t], work.tight[1, t]
        row[_PRICE, q, j] += step * row[_RATE, q, j]
        row[_RATE, q, j] = 0.0
    row[_PRICE, r, at] += step * row[_RATE, r, at]
    row[_RATE, r, at] = 0.0
    first, last = (only, only + 1) if kind == _KEY else (0, live)
    for i in range(first, last):
        for k in range(3):
            local[i, _DUAL, k] += step * local[i, _STEP, k]


@_apart
def _pivot(work, kind, a, b, live, pairs, size, bland):
    """Do one pivot for what leaves.

    Returns the number of pairs, or -1 where the inverses need a refresh, and whether values must be computed anew.
    """
    e, r, at, level, segment = pairs, 0, _X, 0, -1
    if kind == _KEY:
        e = _swap_key(work, a, b, pairs)
        if e < 0:
            _aim_by_key(work.inverse, a, b, work.local, work.pick)
        else:
            kind = _EXTRA
    elif kind == _EXTRA:
        e = a
    if kind == _ROW:
        r, at = a, b
        up = _violation(work, r, at) > 0.0
        level = work.state[r, at] // 2 - (0 if up or work.state[r, at] % 2 == 1 else 1)
        segment = level + (1 if up else 0)
        _border_row(work, r, at, pairs)
        _aim(work, pairs, -1.0 if up else 1.0, pairs)
        work.row[_RATE, r, at] = 1.0 if up else -1.0
        work.pick[3] = max(work.pick[3], 1.0)
    elif kind == _EXTRA:
        _aim(work, e, 1.0, pairs)
    _ratio_test(work, kind, a, live, pairs, size, bland)
    step, ends = work.pick[1], False
    if segment >= 0:
        bound = work.segment[1, r, segment, at]
        distance = abs(bound - work.row[_PRICE, r, at])
        if bound < np.inf and distance <= step:
            step, ends = distance, True
    if not ends and work.number[-1] < 0:
        step = 0.0
    _step(work, kind, a, r, at, step, live, pairs)
    if ends:
        _release(work, r, at, segment)
        return pairs, False
    if work.number[-1] < 0:
        return -1, False
    if kind == _KEY:
        return _exchange_key(work, a, b, pairs), True
    return _exchange_pair(work, e, r, at, level, pairs), False


_distant_pivot = separate(_pivot, new_workspace(1, 1), 0, 0, 0, 0, 0, 0, False)

# --- the whole problem ------------------------------------------------------------------------------------


@once
def _pivot_until_feasible(work, live, pairs, size, budget, careful):
    """Pivot until all values are feasible or a refresh is due; return pairs, pivots and whether it ended.

    The smallest-index rule, which cannot cycle, takes over after a stall, or holds throughout if `careful`.
    """
    stalled, anew = 0, True
    for pivots in range(budget):
        if anew:
            _values(work, live, pairs)
            _loads(work, live, pairs, size)
        bland = careful or stalled > _STALL
        kind, a, b = _leaving(work, live, pairs, size, bland)
        if kind == _NONE:
            return pairs, pivots, True
        after, anew = _distant_pivot(work, kind, a, b, live, pairs, size, bland)
        if after < 0:
            return pairs, pivots, False
        pairs = after
        stalled = stalled + 1 if work.pick[0] >= 2.0 * work.pick[1] else 0
    return pairs, budget, False


@inner
def _write_value(x, slack, i, j, value):
    """Write the value of one basic column; what is below zero by round-off becomes zero."""
    positive = value if value > 0.0 else 0.0
    if j >= _X:
        x[i, j - _X] = positive
    elif j == _U:
        slack[i, 0] = positive
    elif j == _S:
        slack[i, 1] = positive
    elif j == _T:
        slack[i, 2] = positive


@once
def _write_primal(work, live, pairs, x, slack):
    """Write the routed shares, unserved shares and service-level excesses."""
    for i in range(x.shape[0]):
        slack[i, 0] = slack[i, 1] = slack[i, 2] = 0.0
        for c in range(x.shape[1]):
            x[i, c] = 0.0
    for w in range(live):
        for k in range(3):
            _write_value(x, slack, work.number[w], work.key[w, k], work.local[w, _VALUE, k])
    for e in range(pairs):
        _write_value(x, slack, work.number[work.tight[2, e]], work.tight[3, e], work.extra[e, 3])


@once
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


@once
def _write_duals(work, live, workload_dual, capacity_dual):
    """Write the demand, delay and error duals and the prices of capacity, in the units of the data."""
    for i in range(workload_dual.shape[0]):
        workload_dual[i, 0] = workload_dual[i, 1] = workload_dual[i, 2] = 0.0
    for w in range(live):
        for r in range(3):
            value = work.local[w, _DUAL, r]
            workload_dual[work.number[w], r] = value if r == 0 else max(-value, 0.0)
    for r in range(3):
        for c in range(capacity_dual.shape[1]):
            price = work.row[_PRICE, r, c + _X] * work.row[_UNIT, r, c + _X]
            capacity_dual[r, c] = price if price > 0.0 else 0.0


@once
def _close_rows(cost, unserved, delay, error, use, allowed, row, workload_dual, capacity_dual):
    """Price each row without any capacity so high that no column it closes would pay."""
    for r in range(3):
        for c in range(cost.shape[1]):
            if row[_UNIT, r, c + _X] > 0.0:
                continue
            for i in range(cost.shape[0]):
                if unserved[i] > 0.0 and allowed[i, c] != 0 and use[r, i, c] > 0.0:
                    gap = cost[i, c] - workload_dual[i, 0]
                    gap += workload_dual[i, 1] * delay[i, c] + workload_dual[i, 2] * error[i, c]
                    for q in range(3):
                        gap += capacity_dual[q, c] * use[q, i, c]
                    if gap < 0.0:
                        capacity_dual[r, c] -= gap / use[r, i, c] * (1.0 + 1e-15)


@once
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


@jit(**lean())
def route(
    cost, unserved, delay, error, use, capacity, width, slope, allowed, basis, work, x, slack, overload, duals
):
    """Solve one routing LP; the kernel behind `solve_routing`, which documents the problem and the shapes.

    Inputs are trusted. `basis` (from `new_basis`) is read as the warm start and overwritten, `work` (from
    `new_workspace`) is overwritten, and so are the outputs `x` (I, C), `slack` (I, 3: unserved, delay excess,
    error excess), `overload` (C, B) and `duals`, a pair of arrays: (I, 3) for the demand, delay and error
    rows and (3, C) for the capacities. All are C-contiguous; `allowed` is uint8.

    The answer is always computed from a fresh factorisation of the final basis in its stored order, so that
    it depends on nothing else. Should a start lead nowhere, the solver starts again without it, by the
    smallest-index rule first, before it gives up; `work.pick[5]` counts these restarts.

    Returns
    -------
    status : int
        0 (optimal) or 1 (numeric failure).
    objective : float
        Cost of the routing, in the money of `cost`.
    pivots : int
        Number of pivots that joined the workloads' own problems.
    """
    # The loop stands here since each further level of calls is one more optimisation of everything below it.
    size = cost.shape[1] + _X
    live = _pack(cost, unserved, delay, error, use, capacity, width, slope, allowed, work)
    status, pairs, done = NUMERIC_FAILURE, 0, 0
    work.pick[5] = 0.0
    for attempt in range(_ROUNDS):
        work.pick[4] = 1.0 if attempt < 4 else 2.0 ** min(attempt - 3, 10)
        careful = _ROUNDS // 2 <= attempt < 3 * _ROUNDS // 4
        if attempt == _ROUNDS // 2 or attempt == 3 * _ROUNDS // 4 or pairs < 0:  # this start leads nowhere
            basis[0] = basis[1] = 0
            work.pick[5] += 1.0
        pairs, sound = _factorise(work, basis, live, size)
        if pairs >= 0:
            budget = _REFRESH * (attempt + 1)
            pairs, pivots, ended = _pivot_until_feasible(work, live, pairs, size, budget, careful)
            done += pivots
            if ended and pivots == 0 and sound:
                status = OPTIMAL
                break
            _store(work, basis, live, size)
    _write_primal(work, live, max(pairs, 0), x, slack)
    _write_overload(use, capacity, width, x, overload)
    _write_duals(work, live, duals[0], duals[1])
    _close_rows(cost, unserved, delay, error, use, allowed, work.row, duals[0], duals[1])
    objective = _objective(cost, unserved, slope, x, slack, overload)
    return status if np.isfinite(objective) else NUMERIC_FAILURE, objective, done


def _example_arguments():
    """Return arguments of `route` in their types, which do not depend on the size."""
    money, flags = np.zeros((1, 1)), np.zeros((1, 1), dtype=np.uint8)
    duals = np.zeros((1, 3)), np.zeros((3, 1))
    use = np.zeros((3, 1, 1))
    return (
        *(money, np.zeros(1), money, money, use, money, money, money, flags, new_basis(1, 1)),
        *(new_workspace(1, 1), money, money, money, duals),
    )


distant_route = separate(route, *_example_arguments())


@jit(**lean())
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
        j = basis[n] % _STRIDE
        target = j if j < _X else _place_of(old_active[j - _X], new_active)
        if target >= 0:
            basis[out] = basis[n] - j + target
            out += 1
    basis[0] = out - 2
    for n in range(2 + columns, 2 + columns + 2 * rows, 2):
        j = basis[n] % _STRIDE
        target = _place_of(old_active[j - _X], new_active)
        if target >= 0:
            basis[out], basis[out + 1] = basis[n] - j + target, basis[n + 1]
            out += 2
    basis[1] = (out - 2 - basis[0]) // 2


@inner
def _place_of(label, labels):
    """Return the column that stands for `label`, or -1."""
    for c in range(labels.size):
        if labels[c] == label:
            return c + _X
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
    if np.any(stored % _STRIDE >= configurations + _X) or np.any(stored // _STRIDE >= max(workloads, 3)):
        raise ValueError(f"basis belongs to a larger problem than {shape}: use remap_basis or a new basis")
    if basis.size < 2 + 3 * workloads + 9 * configurations:
        raise ValueError(f"basis has room for {basis.size} entries: make it with new_basis{shape}")
    if work.lp.shape[0] < workloads or work.lp.shape[2] < configurations + _X:
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
