"""Rows of dense matrices go in and are changed in place, eight numbers at a time; rows are filled up to whole lanes."""

from __future__ import annotations

from fleetgym.kernels.compile import inline
from fleetgym.kernels.simd import (
    WIDTH,
    larger,
    largest,
    load,
    load_first,
    sizes,
    spread,
    store,
    total,
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
