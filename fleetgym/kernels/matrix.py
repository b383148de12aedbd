"""Rows of dense matrices, eight numbers at a time: matrices in, changed in place; rows are filled up to whole lanes."""

from __future__ import annotations

from fleetgym.kernels.compile import inner
from fleetgym.kernels.lanes import WIDTH, load, load_first, spread, store, total


@inner
def clear_row(matrix, e, size):
    """Set the first `size` cells of a row to zero; those behind, up to full lanes, mean nothing."""
    for t in range(0, size, WIDTH):
        store(matrix, e * matrix.shape[1] + t, spread(0.0))


@inner
def add_row(matrix, e, factor, other, a, size):
    """Add to a row of a matrix a multiple of a row of another one."""
    to, by, factors = e * matrix.shape[1], a * other.shape[1], spread(factor)
    for t in range(0, size, WIDTH):
        store(matrix, to + t, load(matrix, to + t) + factors * load(other, by + t))


@inner
def row_product(matrix, e, vector, a, size):
    """Return the product of two rows' first `size` cells."""
    sums = spread(0.0)
    for t in range(0, size, WIDTH):
        left = load_first(matrix, e * matrix.shape[1] + t, size - t)
        sums = sums + left * load_first(vector, a * vector.shape[1] + t, size - t)
    return total(sums)


@inner
def exchange(matrix, size, a, b):
    """Swap row `a` and column `b` of a linear map: output a becomes an input, input b an output."""
    inverse = 1.0 / matrix[a, b]
    for e in range(size):
        factor = matrix[e, b] * inverse
        if e != a and factor != 0.0:
            add_row(matrix, e, -factor, matrix, a, size)
            matrix[e, b] = factor
    n, scale = matrix.shape[1], spread(-inverse)
    for t in range(0, size, WIDTH):
        store(matrix, a * n + t, load(matrix, a * n + t) * scale)
    matrix[a, b] = inverse
