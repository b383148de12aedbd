"""Kernels that eliminate the routings of many draws from a Newton system, so that only the fleets of windows are left.

A draw's routing touches the rest of its program by the n replicas R that it may use. Its system is, with diagonal Θ
of the columns and E of the rows,

    Θ_x x + P'ν + Σ_k need_k λ_k + λ_w = ...    routes; ν are the prices of serving and of SLOs
    P x - D ν = ...                             D has E, and slacks and unserved shares, which are diagonal
    need_k x - R - E λ = ...,  x - R - E λ = ...

Capacity prices λ are eliminated first, and leave per configuration a small matrix Q over the m routes to it. Then the
routes go, and leave S over the 3 m prices ν. Then ν goes, and leaves n x n numbers. Where losses come after the fleet
is chosen, R is what they leave, and is eliminated in the same way against its own limits.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fleetgym.kernels.compile import inline, jit

_LATE = 3  # the capacity row that may be broken for money


class Places(NamedTuple):
    """Where the columns and rows of B draws are in the program; -1 where there is none."""

    x: np.ndarray  # (B, m, n) int64
    slack: np.ndarray  # (B, 3, m) of a workload: unserved, delay, error
    late: np.ndarray  # (B, n)
    left: np.ndarray  # (B, n)
    kept: np.ndarray  # (B, 3, m) rows: served, delay, error
    capacity: np.ndarray  # (B, R, n)
    whole: np.ndarray  # (B, m, n)
    link: np.ndarray  # (B, n) left ≤ ready
    lossy: np.ndarray  # (B, L)
    window: np.ndarray  # (B,)


class Entries(NamedTuple):
    """Coefficients of the draws' rows."""

    kept: np.ndarray  # (B, 3, m, n)
    need: np.ndarray  # (B, R, m, n)
    use: np.ndarray  # (B, L, n)


class Factors(NamedTuple):
    """What an elimination keeps for its solves, and solves for each other."""

    route: np.ndarray  # (B, n, m, m) Q's Cholesky factors, with inverse pivots
    kept: np.ndarray  # (B, 3m, 3m) S's
    left: np.ndarray  # (B, n, n) those of what losses leave
    coupling: np.ndarray  # (B, n, m) of routes with replicas
    through: np.ndarray  # (B, 3m, n) of prices with replicas
    passed: np.ndarray  # (B, 3m, n) S⁻¹ of that
    routes: np.ndarray  # (B, n, m) a right side of the routes
    prices: np.ndarray  # (B, 3m) prices without replicas
    use: np.ndarray  # (B, n) what losses leave, without replicas that are ready


def empty_factors(places: Places) -> Factors:
    """Return space for the factors of draws."""
    b, m, n = places.x.shape
    shapes = (n, m, m), (3 * m, 3 * m), (n, n), (n, m), (3 * m, n), (3 * m, n), (n, m), (3 * m,), (n,)
    return Factors(*(np.empty((b, *shape)) for shape in shapes))


@inline
def _cholesky(matrix):
    """Overwrite the lower triangle with its Cholesky factor, with inverse pivots; those without size become 0."""
    n = matrix.shape[0]
    for j in range(n):
        pivot = matrix[j, j]
        for k in range(j):
            pivot -= matrix[j, k] * matrix[j, k]
        inverse = 1.0 / np.sqrt(pivot) if pivot > 1e-30 else 0.0
        matrix[j, j] = inverse
        for i in range(j + 1, n):
            value = matrix[i, j]
            for k in range(j):
                value -= matrix[i, k] * matrix[j, k]
            matrix[i, j] = value * inverse


@inline
def _solve(factor, b):
    """Overwrite b with the solution."""
    n = b.shape[0]
    for i in range(n):
        value = b[i]
        for k in range(i):
            value -= factor[i, k] * b[k]
        b[i] = value * factor[i, i]
    for i in range(n - 1, -1, -1):
        value = b[i]
        for k in range(i + 1, n):
            value -= factor[k, i] * b[k]
        b[i] = value * factor[i, i]


@inline
def _weight(places, b, k, c, theta, rows):
    """Return the weight of an eliminated capacity row: of E and, if money may break it, of the column that pays."""
    weight = rows[places.capacity[b, k, c]]
    if k == _LATE:
        paid = theta[places.late[b, c]]
        weight /= 1.0 + weight * paid
    return weight


@jit
def factor(places, entries, theta, rows, factors, reduced):
    """Eliminate the draws; add the lower triangles of what they leave to `reduced`.

    Parameters
    ----------
    places : Places
    entries : Entries
    theta : ndarray, shape (columns,)
        Inverse of Θ.
    rows : ndarray, shape (rows,)
        Inverse of E; that of equations does not matter.
    factors : Factors
        Overwritten.
    reduced : ndarray, shape (T, n, n)
    """
    draws, m, n = places.x.shape
    size = 3 * m
    own, space, column = np.empty((n, n)), np.empty((m, m)), np.empty(m)
    for b in range(draws):
        kept, through = factors.kept[b], factors.through[b]
        kept[:] = 0.0
        own[:] = 0.0
        for r in range(3):
            for i in range(m):
                j, at = places.kept[b, r, i], r * m + i
                kept[at, at] = 1.0
                if j >= 0:
                    kept[at, at] = theta[places.slack[b, r, i]] + (1.0 / rows[j] if r else 0.0)
        for c in range(n):
            q, g = factors.route[b, c], factors.coupling[b, c]
            q[:] = 0.0
            g[:] = 0.0
            total = 0.0
            for i in range(m):
                if places.x[b, i, c] < 0:
                    q[i, i] = 1.0
                    continue
                q[i, i] = 1.0 / theta[places.x[b, i, c]]
                if places.whole[b, i, c] >= 0:
                    weight = rows[places.whole[b, i, c]]
                    q[i, i] += weight
                    g[i] -= weight
                    total += weight
            for k in range(entries.need.shape[1]):
                if places.capacity[b, k, c] < 0:
                    continue
                weight = _weight(places, b, k, c, theta, rows)
                total += weight
                for i in range(m):
                    share = weight * entries.need[b, k, i, c]
                    g[i] -= share
                    for h in range(i + 1):
                        q[i, h] += share * entries.need[b, k, h, c]
            _cholesky(q)
            for i in range(m):
                column[i] = g[i]
                space[i] = 0.0
                space[i, i] = 1.0
                _solve(q, space[i])
            _solve(q, column)
            for i in range(m):
                total -= g[i] * column[i]
                for r in range(3):
                    through[r * m + i, c] = entries.kept[b, r, i, c] * column[i]
            own[c, c] = max(total, 0.0)
            for r in range(3):
                for i in range(m):
                    entry = entries.kept[b, r, i, c]
                    if entry == 0.0:
                        continue
                    for other in range(r + 1):
                        for h in range(m):
                            kept[r * m + i, other * m + h] += (
                                entry * space[i, h] * entries.kept[b, other, h, c]
                            )
        _cholesky(kept)
        passed = factors.passed[b]
        for i in range(size):
            for c in range(n):
                passed[i, c] = through[i, c]
            for k in range(i):
                for c in range(n):
                    passed[i, c] -= kept[i, k] * passed[k, c]
            for c in range(n):
                passed[i, c] *= kept[i, i]
        for i in range(size):
            for c in range(n):
                for d in range(c + 1):
                    own[c, d] += passed[i, c] * passed[i, d]
        for i in range(size - 1, -1, -1):
            for k in range(i + 1, size):
                for c in range(n):
                    passed[i, c] -= kept[k, i] * passed[k, c]
            for c in range(n):
                passed[i, c] *= kept[i, i]
        t = places.window[b]
        if places.link[b, 0] < 0:
            for c in range(n):
                for d in range(c + 1):
                    reduced[t, c, d] += own[c, d]
            continue
        left = factors.left[b]
        for c in range(n):
            for d in range(c + 1):
                left[c, d] = own[c, d]
            left[c, c] += 1.0 / theta[places.left[b, c]] + rows[places.link[b, c]]
        for k in range(entries.use.shape[1]):
            if places.lossy[b, k] < 0:
                continue
            weight = rows[places.lossy[b, k]]
            for c in range(n):
                for d in range(c + 1):
                    left[c, d] += weight * entries.use[b, k, c] * entries.use[b, k, d]
        _cholesky(left)
        for c in range(n):
            own[c] = 0.0
            own[c, c] = rows[places.link[b, c]]
            _solve(left, own[c])
            for d in range(c + 1):
                reduced[t, c, d] -= own[c, d] * rows[places.link[b, d]]
            reduced[t, c, c] += rows[places.link[b, c]]


@inline
def _late_side(places, b, c, theta, f, g, k):
    """Return the right side of a capacity row, with the column that pays eliminated."""
    value = g[places.capacity[b, k, c]]
    if k == _LATE:
        late = places.late[b, c]
        value += f[late] * theta[late]
    return value


@jit
def forward(places, entries, factors, theta, rows, f, g, replicas):
    """Add the draws' part of the right side of the replicas to `replicas`.

    Parameters
    ----------
    places, entries, factors, theta, rows
        As in `factor`.
    f : ndarray, shape (columns,)
    g : ndarray, shape (rows,)
    replicas : ndarray, shape (T, n)
    """
    draws, m, n = places.x.shape
    raw = np.empty(m)
    for b in range(draws):
        t = places.window[b]
        side, prices = factors.use[b], factors.prices[b]
        for r in range(3):
            for i in range(m):
                j, s = places.kept[b, r, i], places.slack[b, r, i]
                prices[r * m + i] = 0.0
                if j >= 0:
                    paid = f[s] * theta[s]
                    prices[r * m + i] = -g[j] + (paid if r == 0 else -paid)
        for c in range(n):
            side[c] = 0.0
            for i in range(m):
                raw[i] = 0.0 if places.x[b, i, c] < 0 else f[places.x[b, i, c]]
                w = places.whole[b, i, c]
                if w >= 0:
                    share = g[w] * rows[w]
                    raw[i] += share
                    side[c] -= share
            for k in range(entries.need.shape[1]):
                if places.capacity[b, k, c] < 0:
                    continue
                share = _late_side(places, b, c, theta, f, g, k) * _weight(places, b, k, c, theta, rows)
                side[c] -= share
                for i in range(m):
                    raw[i] += share * entries.need[b, k, i, c]
            factors.routes[b, c] = raw
            _solve(factors.route[b, c], raw)
            for i in range(m):
                side[c] -= factors.coupling[b, c, i] * raw[i]
                for r in range(3):
                    prices[r * m + i] += entries.kept[b, r, i, c] * raw[i]
        for i in range(3 * m):
            for c in range(n):
                side[c] += factors.passed[b, i, c] * prices[i]
        _solve(factors.kept[b], prices)
        if places.link[b, 0] < 0:
            for c in range(n):
                replicas[t, c] += side[c]
            continue
        for c in range(n):
            side[c] += f[places.left[b, c]] + g[places.link[b, c]] * rows[places.link[b, c]]
        for k in range(entries.use.shape[1]):
            j = places.lossy[b, k]
            if j >= 0:
                for c in range(n):
                    side[c] += entries.use[b, k, c] * g[j] * rows[j]
        _solve(factors.left[b], side)
        for c in range(n):
            replicas[t, c] += (side[c] - g[places.link[b, c]]) * rows[places.link[b, c]]


@jit
def backward(places, entries, factors, theta, rows, f, g, ready, value, dual):
    """Write the draws' columns to `value` and rows to `dual`, given the replicas `ready`; after `forward`."""
    draws, m, n = places.x.shape
    prices, use, raw = np.empty(3 * m), np.empty(n), np.empty(m)
    for b in range(draws):
        t = places.window[b]
        for c in range(n):
            use[c] = ready[t, c]
        if places.link[b, 0] >= 0:
            for c in range(n):
                use[c] = ready[t, c] * rows[places.link[b, c]]
            _solve(factors.left[b], use)
            for c in range(n):
                j = places.link[b, c]
                use[c] += factors.use[b, c]
                value[places.left[b, c]] = use[c]
                dual[j] = (use[c] - ready[t, c] - g[j]) * rows[j]
            for k in range(entries.use.shape[1]):
                j = places.lossy[b, k]
                if j >= 0:
                    total = -g[j]
                    for c in range(n):
                        total += entries.use[b, k, c] * use[c]
                    dual[j] = total * rows[j]
        for i in range(3 * m):
            prices[i] = factors.prices[b, i]
            for c in range(n):
                prices[i] -= factors.passed[b, i, c] * use[c]
        for r in range(3):
            for i in range(m):
                j, s = places.kept[b, r, i], places.slack[b, r, i]
                price = prices[r * m + i] if j >= 0 else 0.0
                if j >= 0:
                    dual[j] = price
                if s >= 0:
                    value[s] = (f[s] + (-price if r == 0 else price)) * theta[s]
        for c in range(n):
            for i in range(m):
                raw[i] = factors.routes[b, c, i] - factors.coupling[b, c, i] * use[c]
                for r in range(3):
                    raw[i] -= entries.kept[b, r, i, c] * prices[r * m + i]
            _solve(factors.route[b, c], raw)
            late = places.late[b, c]
            value[late] = f[late] * theta[late]
            for i in range(m):
                if places.x[b, i, c] >= 0:
                    value[places.x[b, i, c]] = raw[i]
                j = places.whole[b, i, c]
                if j >= 0:
                    dual[j] = (raw[i] - use[c] - g[j]) * rows[j]
            for k in range(entries.need.shape[1]):
                j = places.capacity[b, k, c]
                if j < 0:
                    continue
                total = -use[c] - _late_side(places, b, c, theta, f, g, k)
                for i in range(m):
                    total += entries.need[b, k, i, c] * raw[i]
                dual[j] = total * _weight(places, b, k, c, theta, rows)
                if k == _LATE:
                    value[late] += dual[j] * theta[late]
