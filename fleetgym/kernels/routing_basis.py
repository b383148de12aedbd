"""Turn a stored basis of the routing LP into its factors, its values, and duals that are feasible.

The first functions change rows of dense matrices in place, eight numbers at a time; rows are filled up to whole lanes.
"""

from __future__ import annotations

import numpy as np

from fleetgym.kernels.compile import always_inline, extern, inline
from fleetgym.kernels.lowlevel import (
    WIDTH,
    are_at_most,
    are_less,
    choose,
    gather,
    is_zero,
    larger,
    largest,
    load,
    load_first,
    lowest,
    sizes,
    spread,
    store,
    total,
)
from fleetgym.kernels.routing_workload import (
    COST,
    DEMAND,
    DUAL,
    FEASIBLE,
    FIRST_X,
    LOAD,
    NOISE,
    PRICE,
    RATE,
    RESIDUAL,
    ROUND_OFF,
    SCALE,
    STEP,
    STRIDE,
    TINY_PIVOT,
    UNIT,
    USE,
    VALUE,
    choose_keys,
    column_load,
    fill_gaps,
    invert,
    new_basis,
    new_workspace,
    priced_cost,
    reduced_costs,
    represent,
    set_workload_dual,
    solve_workload,
    unpack_workspace,
)


@inline
def clear_row(matrix, e, size):
    """Set the first `size` cells of a row to zero; those behind, up to full lanes, mean nothing."""
    for t in range(0, size, WIDTH):
        store(matrix, e * matrix.shape[1] + t, spread(0.0))


@inline
def add_row(matrix, e, factor, other, a, size):
    """Add to a row of a matrix a multiple of a row of another one."""
    to, by, factors = e * matrix.shape[1], a * other.shape[1], spread(factor)
    for t in range(0, size, WIDTH):
        store(matrix, to + t, load(matrix, to + t) + factors * load(other, by + t))


@inline
def row_product(matrix, e, vector, a, size):
    """Return the product of two rows' first `size` cells."""
    sums = spread(0.0)
    for t in range(0, size, WIDTH):
        left = load_first(matrix, e * matrix.shape[1] + t, size - t)
        sums = sums + left * load_first(vector, a * vector.shape[1] + t, size - t)
    return total(sums)


@inline
def largest_of(matrix, e, size):
    """Return the largest absolute value among a row's first `size` cells."""
    most = spread(0.0)
    for t in range(0, size, WIDTH):
        most = larger(most, sizes(load_first(matrix, e * matrix.shape[1] + t, size - t)))
    return largest(most)


@inline
def exchange(matrix, size, a, b, vector, k):
    """Swap row `a` and column `b` of a linear map: output a becomes an input, input b an output.

    Overwrites vector[k].
    """
    n, inverse = matrix.shape[1], 1.0 / matrix[a, b]
    for e in range(size):
        vector[k, e] = matrix[e, b] * inverse
    vector[k, a] = 0.0
    for t in range(0, size, WIDTH):
        by = load(matrix, a * n + t)
        for e in range(size):
            store(matrix, e * n + t, load(matrix, e * n + t) - spread(vector[k, e]) * by)
        store(matrix, a * n + t, by * spread(-inverse))
    for e in range(size):
        matrix[e, b] = vector[k, e]
    matrix[a, b] = inverse


@inline
def scatter(lp, i, key, place, j, column, e, out, at):
    """Add to out[at, t] what column `j` of workload `i` loads row t by, net of the keys that represent it."""
    for k in range(4):
        col, factor = (j, 1.0) if k == 3 else (key[i, k], -column[e, k])
        if col >= FIRST_X and factor != 0.0:
            for r in range(3):
                if place[r, col] >= 0:
                    out[at, place[r, col]] += factor * lp[i, USE + r, col]


@inline
def net_entry(lp, i, key, j, column, e, r, at):
    """Return what `scatter` adds for the one row (r, at)."""
    share = 1.0 if j == at else 0.0
    for k in range(3):
        if key[i, k] == at:
            share -= column[e, k]
    return share * lp[i, USE + r, at]


@inline
def release_row(work, r, j, segment):
    """Take a row out of the tight ones: its load is free within a segment, and its price is that slope."""
    work.place[r, j] = -1
    work.state[r, j] = 2 * segment
    work.row[PRICE, r, j] = work.segment[1, r, segment, j]
    work.span[0, r, j] = work.segment[0, r, segment - 1, j] if segment > 0 else -np.inf
    work.span[1, r, j] = work.segment[0, r, segment, j]


@inline
def tie_row(work, t, r, j, level):
    """Put row (r, j) into position `t` of the tight rows, at breakpoint `level`."""
    work.tight[0, t], work.tight[1, t] = r, j
    work.place[r, j], work.state[r, j] = t, 2 * level + 1
    work.span[0, r, j], work.span[1, r, j] = -np.inf, np.inf


@always_inline
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
            store(work.row, 3 * PRICE * n + at, none)
            store(work.row, 3 * RATE * n + at, none)
            store(work.span, at, none - wide)
            some = are_less(none, load(work.row, 3 * UNIT * n + at))
            store(work.span, 3 * n + at, choose(some, load(work.segment, 6 * r * n + first), wide))


@always_inline
def _load_rows(work, basis, size):
    """Take each row's state from the stored basis; return the number of tight rows."""
    _reset_rows(work, size)
    tight = 0
    for n in range(2 + basis[0], 2 + basis[0] + 2 * basis[1], 2):
        r, j, state = basis[n] // STRIDE, basis[n] % STRIDE, basis[n + 1]
        while state > 1 and work.segment[1, r, state // 2, j] == np.inf:
            state -= 2  # there are fewer segments than there were
        if work.row[UNIT, r, j] == 0.0:
            continue
        release_row(work, r, j, state // 2)
        if state % 2 == 1:
            tie_row(work, tight, r, j, state // 2)
            tight += 1
    return tight


@always_inline
def _load_keys(lp, i, key, inverse, basis, start, stop, column):
    """Make keys of three of a workload's stored basic columns; return whether the stored ones sufficed."""
    if stop - start >= 3:  # the first three will do unless others are much better
        for k in range(3):
            key[i, k] = basis[start + k] % STRIDE
        if invert(lp, key, inverse, i, 1e-13 if stop - start == 3 else 0.03):
            return True
    complete = choose_keys(lp, i, basis, start, stop, key, inverse, column)
    invert(lp, key, inverse, i, 0.0)
    return complete


@always_inline
def _load_columns(lp, key, inverse, flag, number, tied, column, basis, live, size):
    """Split the stored columns into keys and extras; return how many extras, and whether they sufficed."""
    extras, complete, stop, end = 0, True, 2, 2 + basis[0]
    lanes = (size + WIDTH - 1) // WIDTH * WIDTH
    for i in range(live):
        for j in range(lanes):
            flag[i, j] = 0
        start = stop
        while start < end and basis[start] // STRIDE < number[i]:
            start += 1
        stop = start
        while stop < end and basis[stop] // STRIDE == number[i]:
            stop += 1
        complete = _load_keys(lp, i, key, inverse, basis, start, stop, column) and complete
        for k in range(3):
            flag[i, key[i, k]] = 1
        for n in range(start, stop):
            j = basis[n] % STRIDE
            if flag[i, j] == 0 and lp[i, COST, j] < np.inf and extras < tied.shape[1] - 2:
                tied[2, extras], tied[3, extras] = i, j
                extras += 1
    return extras, complete


@always_inline
def _eliminate(matrix, extra, rows, columns, match, vector):
    """Invert in place by exchanges: each row takes its largest open column, match[0, row] = column.

    A row that depends on those before it gets no column (-1); match[1, column] is the reverse.
    """
    n = vector.shape[1]
    clear_row(vector, 3, columns)
    for t in range(columns):
        match[1, t], vector[3, t] = -1, 1.0  # 1.0: open
    for e in range(rows):
        best, choice = extra[e, 3], columns
        for first in range(0, columns, WIDTH):
            size = sizes(load(matrix, e * matrix.shape[1] + first)) * load(vector, 3 * n + first)
            bits = are_less(spread(best), size)
            while bits != 0:
                t = first + lowest(bits)
                bits &= bits - 1
                if abs(matrix[e, t]) > best:
                    best, choice = abs(matrix[e, t]), t
        match[0, e] = -1
        if choice < columns:
            match[0, e], match[1, choice], vector[3, choice] = choice, e, 0.0
            exchange(matrix, max(rows, columns), e, choice, vector, 2)


@always_inline
def _build(work, tight, extras):
    """Write the working matrix, one row per extra, and beside each extra the least pivot to trust."""
    matrix = work.scratch
    for e in range(extras):
        i, j = work.tight[2, e], work.tight[3, e]
        represent(work.lp, work.inverse, i, j, work.extra, e)
        clear_row(matrix, e, max(tight, extras) + 1)
        scatter(work.lp, i, work.key, work.place, j, work.extra, e, matrix, e)
        work.extra[e, 3] = TINY_PIVOT * largest_of(matrix, e, tight)


@always_inline
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
                release_row(work, r, j, work.state[r, j] // 2)
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
    start = match[2]
    for e in range(pairs):
        start[e] = match[1, e] * work.scratch.shape[1]
    for f in range(pairs):
        for first in range(0, pairs, WIDTH):
            cells = gather(work.scratch, match[0, f], start, first, pairs - first)
            store(work.working, f * work.working.shape[1] + first, cells)
    return pairs


@always_inline
def store_basis(work, basis, live, size):
    """Write the basis in its canonical order: columns by workload and number, then rows that are not free."""
    n = 2
    for i in range(live):
        for j in range(size):
            if work.flag[i, j] != 0:
                basis[n] = work.number[i] * STRIDE + j
                n += 1
    basis[0] = n - 2
    for r in range(3):
        for j in range(FIRST_X, size):
            if work.state[r, j] != 0:
                basis[n], basis[n + 1] = r * STRIDE + j, work.state[r, j]
                n += 2
    basis[1] = (n - 2 - basis[0]) // 2


@always_inline
def compute_values(work, live, pairs):
    """Compute the values of all basic columns."""
    rhs, tied = work.vector[0], work.tight
    for t in range(pairs):
        r, j = tied[0, t], tied[1, t]
        rhs[t] = work.segment[0, r, work.state[r, j] // 2, j]
    for i in range(live):
        for k in range(3):
            j, value = work.key[i, k], work.inverse[i, k, 0]
            work.local[i, VALUE, k] = value
            for r in range(3):
                if work.place[r, j] >= 0:
                    rhs[work.place[r, j]] -= value * work.lp[i, USE + r, j]
    for e in range(pairs):
        value = row_product(work.working, e, work.vector, 0, pairs)
        work.extra[e, 3] = value
        for k in range(3):
            work.local[tied[2, e], VALUE, k] -= work.extra[e, k] * value


@always_inline
def compute_loads(work, live, pairs, size):
    """Compute the load of every capacity row, as a share of its limit."""
    carried = work.row[LOAD]
    n = carried.shape[1]
    for r in range(3):
        for first in range(0, size, WIDTH):
            store(carried, r * n + first, spread(0.0))
    for i in range(live):
        for k in range(3):
            j = work.key[i, k]
            for r in range(3):
                carried[r, j] += work.local[i, VALUE, k] * work.lp[i, USE + r, j]
    for e in range(pairs):
        i, j = work.tight[2, e], work.tight[3, e]
        for r in range(3):
            carried[r, j] += work.extra[e, 3] * work.lp[i, USE + r, j]


@always_inline
def _prices(lp, row, key, tied, extra, working, vector, pairs):
    """Compute the tight rows' prices, which make the reduced costs of the extras zero; return their noise."""
    n = vector.shape[1]
    for t in range(pairs):
        row[PRICE, tied[0, t], tied[1, t]] = 0.0
    clear_row(vector, 0, pairs)
    clear_row(vector, 1, pairs)
    for e in range(pairs):
        i = tied[2, e]
        cost = priced_cost(lp, i, row, tied[3, e])
        size = abs(cost)
        for k in range(3):
            part = priced_cost(lp, i, row, key[i, k]) * extra[e, k]
            cost, size = cost - part, size + abs(part)
        add_row(vector, 0, -cost, working, e, pairs)
        for t in range(0, pairs, WIDTH):
            parts = sizes(load(working, e * working.shape[1] + t))
            store(vector, n + t, load(vector, n + t) + spread(size) * parts)
    noise = 0.0
    for t in range(pairs):
        row[PRICE, tied[0, t], tied[1, t]] = vector[0, t]
        noise = max(noise, vector[1, t])
    return noise


@inline
def _duals(work, live, pairs):
    """Compute the prices of the tight rows and each workload's duals; return the noise of the prices."""
    lp, row, key, inverse, local = work.lp, work.row, work.key, work.inverse, work.local
    round_off = ROUND_OFF * work.pick[4]
    noise = round_off * _prices(lp, row, key, work.tight, work.extra, work.working, work.vector, pairs)
    for i in range(live):
        set_workload_dual(lp, i, row, key, inverse, local, round_off, noise)
    return noise


@always_inline
def _is_priced_out(lp, i, row, local, gap, flag, size, noise):
    """Write the reduced costs of workload `i`; return whether a column outside the basis would lower its cost."""
    fill_gaps(lp, i, row, local, gap, size)
    limit = -2.0 * local[i, NOISE, 0]
    for first in range(0, size, WIDTH):
        at = i * lp.shape[2] + first
        bits = are_less(load(gap, at), spread(limit)) & is_zero(flag, at, WIDTH)
        while bits != 0:
            j = first + lowest(bits)
            bits &= bits - 1
            if gap[i, j] < limit * lp[i, SCALE, j] - noise * column_load(lp, i, j):
                return True
    return False


@inline(forceinline=True)
def _is_price_outside(work, t, noise):
    """Return whether the price of tight row `t` is beyond the slopes beside its breakpoint."""
    r, j = work.tight[0, t], work.tight[1, t]
    level, price = work.state[r, j] // 2, work.row[PRICE, r, j]
    return not work.segment[1, r, level, j] - noise <= price <= work.segment[1, r, level + 1, j] + noise


@inline(forceinline=True)
def _untie(work, r, j):
    """Turn a tight row into one that merely has a price: between two slopes it must become tight again."""
    level, price = work.state[r, j] // 2, work.row[PRICE, r, j]
    if price <= work.segment[1, r, level, j]:
        release_row(work, r, j, level)
    elif price >= work.segment[1, r, level + 1, j]:
        release_row(work, r, j, level + 1)
    else:
        work.place[r, j] = -1
        _demand_pivot(work, r, j, level)


@inline
def _demand_pivot(work, r, j, level):
    """Let a row count as out of bounds, whatever its load."""
    least = 2.0 * FEASIBLE * work.pick[4]
    work.span[0, r, j] = work.segment[0, r, level, j] + least
    work.span[1, r, j] = work.segment[0, r, level, j] - least


@always_inline
def _clip_prices(work, pairs, noise):
    """Release the tight rows whose prices are beyond the slopes beside them, marked by a rate; return how many.

    All workloads with extras are marked as such.
    """
    released = 0
    for t in range(pairs):
        r, j = work.tight[0, t], work.tight[1, t]
        work.local[work.tight[2, t], NOISE, 1] = 2.0
        if _is_price_outside(work, t, noise):
            _untie(work, r, j)
            work.row[RATE, r, j] = 1.0
            released += 1
    return released


@inline
def _is_touched(work, i, j):
    """Return whether column `j` of workload `i` loads a row whose price was clipped."""
    row, lp = work.row[RATE], work.lp
    return (row[0, j] * lp[i, USE, j] + row[1, j] * lp[i, USE + 1, j] + row[2, j] * lp[i, USE + 2, j]) != 0.0


@always_inline
def _mark_faults(work, live, pairs, size, noise, clipped):
    """Mark the workloads that must be solved again: one with extras also where a clipped price touches it.

    local[i, NOISE, 1] is 0 or 2, plus one where there is a fault.
    """
    lp, row, local, gap, flag = work.lp, work.row, work.local, work.gap, work.flag
    faults = 0.0
    if clipped:
        for i in range(live):
            touched = False
            for k in range(3):
                touched = touched or _is_touched(work, i, work.key[i, k])
            if touched:
                set_workload_dual(lp, i, row, work.key, work.inverse, local, ROUND_OFF * work.pick[4], noise)
                local[i, NOISE, 1] += local[i, NOISE, 1] / 2.0
        for e in range(pairs):
            if _is_touched(work, work.tight[2, e], work.tight[3, e]):
                local[work.tight[2, e], NOISE, 1] = 3.0
    for i in range(live):
        mark = local[i, NOISE, 1]
        if mark != 3.0 and _is_priced_out(lp, i, row, local, gap, flag, size, noise):
            local[i, NOISE, 1] = mark + 1.0
        faults = max(faults, local[i, NOISE, 1] % 2.0)
    return faults > 0.0


@always_inline
def _drop_faults(work, pairs):
    """Take clipped rows and the extras of marked workloads out; return the numbers of rows and extras left."""
    tied, tight, extras = work.tight, 0, 0
    for t in range(pairs):
        r, j, i, column = tied[0, t], tied[1, t], tied[2, t], tied[3, t]
        work.row[RATE, r, j] = 0.0
        work.flag[i, column] = 0
        if work.place[r, j] >= 0:
            work.place[r, j] = tight
            tied[0, tight], tied[1, tight] = r, j
            tight += 1
        if work.local[i, NOISE, 1] == 2.0:
            tied[2, extras], tied[3, extras] = i, column
            extras += 1
    return tight, extras


def _mend(packed, live, pairs, size):
    """Solve the marked workloads again, without extras; return the numbers of tight rows and extras left."""
    work = unpack_workspace(packed)[0]
    tight, extras = _drop_faults(work, pairs)
    if tight == pairs and extras == pairs:  # no other workload's factors are touched
        for e in range(pairs):
            work.flag[work.tight[2, e], work.tight[3, e]] = 1
    for i in range(live):
        if work.local[i, NOISE, 1] % 2.0 == 1.0 and not solve_workload(work, i, size):
            extras = -1
            break
    for i in range(live):
        work.local[i, NOISE, 1] = 0.0
    return tight, extras


_extern_mend = extern(_mend, (0, 0), new_workspace(1, 1).packed, 0, 0, 0)


@always_inline
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
            work.local[i, NOISE, 1] = 0.0
        return pairs, pairs, False
    tight, extras = _extern_mend(work.packed, live, pairs, size)
    return tight, extras, True


def _factorise(packed, basis, live, size):
    work = unpack_workspace(packed)[0]
    tight = _load_rows(work, basis, size)
    extras, sound = _load_columns(
        work.lp, work.key, work.inverse, work.flag, work.number, work.tight, work.extra, basis, live, size
    )
    for repaired in range(2):
        _build(work, tight, extras)
        _eliminate(work.scratch, work.extra, extras, tight, work.match, work.vector)
        pairs = _keep_pairs(work, tight, extras, repaired > 0)
        if repaired == 0:
            sound = sound and pairs == tight and pairs == extras
            tight, extras, changed = _repair(work, live, pairs, size)
            sound = sound and not changed
            if extras < 0 or (tight == pairs and extras == pairs):
                return extras, sound
    return pairs, False


#: Load and factorise the stored basis, and repair it until it is dual feasible. Returns the number of pairs
#: (-1 where a workload could not be solved) and whether nothing was changed.
factorise = extern(_factorise, (0, False), new_workspace(1, 1).packed, new_basis(1, 1), 0, 0)


@always_inline
def _is_served(work, live, pairs):
    """Return whether the values fulfil the workloads' rows and the limits of the tight rows."""
    local, lp, tied = work.local, work.lp, work.tight
    for i in range(live):
        local[i, STEP, 0], local[i, STEP, 1], local[i, STEP, 2], local[i, NOISE, 2] = -1.0, 0.0, 0.0, 1.0
        for k in range(3):
            _add_column(lp, i, work.key[i, k], local[i, VALUE, k], local)
    for e in range(pairs):
        _add_column(lp, tied[2, e], tied[3, e], work.extra[e, 3], local)
    for i in range(live):
        for r in range(3):
            if not abs(local[i, STEP, r]) < RESIDUAL * local[i, NOISE, 2]:  # nor if both are infinite
                return False
    for t in range(pairs):
        r, j = tied[0, t], tied[1, t]
        if not abs(work.row[LOAD, r, j] - work.segment[0, r, work.state[r, j] // 2, j]) <= RESIDUAL:
            return False
    return True


@inline
def _add_column(lp, i, j, value, local):
    """Add a column's part to the sums of its workload's rows, and to the size of what is summed up."""
    for r in range(3):
        part = value * lp[i, DEMAND + r, j]
        local[i, STEP, r] += part
        local[i, NOISE, 2] += abs(part)


@always_inline
def _are_priced(lp, row, local, flag, live, size):
    """Return whether no column has a negative reduced cost, and no basic one a positive one."""
    for i in range(live):
        limit = RESIDUAL * abs(local[i, DUAL, 0])
        if not limit < np.inf:
            return False
        y0, y1, y2 = spread(local[i, DUAL, 0]), spread(local[i, DUAL, 1]), spread(local[i, DUAL, 2])
        for first in range(0, size, WIDTH):
            gaps = reduced_costs(lp, i, row, y0, y1, y2, first)
            right = are_at_most(gaps, spread(limit)) | is_zero(flag, i * lp.shape[2] + first, WIDTH)
            if right & are_at_most(spread(-limit), gaps) != 255:
                return False
    return True


def _certify(packed, live, pairs, size):
    work = unpack_workspace(packed)[0]
    for t in range(pairs):
        if _is_price_outside(work, t, RESIDUAL * abs(work.local[work.tight[2, t], DUAL, 0])):
            return False
    return _is_served(work, live, pairs) and _are_priced(work.lp, work.row, work.local, work.flag, live, size)


#: Return whether values and duals, of whatever origin, certify each other on the data.
is_certified = extern(_certify, False, new_workspace(1, 1).packed, 0, 0, 0)
