"""From a window's costs and limits to the scaled columns and rows of the routing LP in a `Workspace`.

Columns of a workload are its unserved share, slack and excess of its delay and of its error row, then one per
configuration. Rows of the scaled data are cost, demand, delay, error, three uses and a scale.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fleetgym.kernels.compile import always_inline, inline
from fleetgym.kernels.pointers import Packer
from fleetgym.kernels.simd import (
    WIDTH,
    are_at_most,
    are_less,
    choose,
    is_zero,
    larger,
    load_first,
    padded,
    sizes,
    spread,
    store_first,
    zeros,
)
from fleetgym.kernels.timer import new_timer

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
    timer: np.ndarray  # from `new_timer`
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
        timer=new_timer(),
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
