"""Rows of dense matrices against NumPy, at sizes around whole lanes and with garbage behind them."""

import numpy as np
import pytest

from fleetgym.kernels.compile import jit
from fleetgym.kernels.lowlevel import padded, zeros
from fleetgym.kernels.routing_basis import add_row, exchange, largest_of, row_product

SIZES = (1, 2, 7, 8, 9, 16, 21)


@jit
def swap(matrix, size, a, b, vector):
    """Exchange row `a` and column `b`."""
    exchange(matrix, size, a, b, vector, 2)


@jit
def look(matrix, e, vector, size):
    """Return the product of row `e` and vector[0], and the row's largest absolute value."""
    return row_product(matrix, e, vector, 0, size), largest_of(matrix, e, size)


@jit
def add(matrix, e, factor, other, a, size):
    """Add to row `e` a multiple of another matrix's row `a`."""
    add_row(matrix, e, factor, other, a, size)


def square(rng, size):
    """Return a matrix that fills up its last lanes with garbage, and room for vectors of its length."""
    matrix, vector = zeros(padded(size), padded(size)), zeros(4, padded(size))
    matrix[...] = 1e300
    matrix[:size, :size] = rng.normal(size=(size, size)) + 3.0 * np.eye(size)
    return matrix, vector


@pytest.mark.parametrize("size", SIZES)
def test_an_exchange_swaps_an_input_with_an_output(size):
    """For y = M x, the matrix after it gives y with x[b] in the place of y[a] from x with y[a] in that of x[b]."""
    rng = np.random.default_rng(size)
    matrix, vector = square(rng, size)
    for _ in range(5):
        a, b = rng.integers(size, size=2)
        before, x = matrix[:size, :size].copy(), rng.normal(size=size)
        y = before @ x
        swap(matrix, size, a, b, vector)
        inputs, outputs = x.copy(), y.copy()
        inputs[b], outputs[a] = y[a], x[b]
        np.testing.assert_allclose(matrix[:size, :size] @ inputs, outputs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("size", SIZES)
def test_rows_without_what_lies_behind_them(size):
    """Products, maxima and sums of rows are those of their first cells."""
    rng = np.random.default_rng(size)
    matrix, vector = square(rng, size)
    vector[0, :size], vector[0, size:] = rng.normal(size=size), np.nan
    for e in range(size):
        product, most = look(matrix, e, vector, size)
        assert product == pytest.approx(matrix[e, :size] @ vector[0, :size], rel=1e-12, abs=1e-12)
        assert most == np.abs(matrix[e, :size]).max()
    other, before = square(rng, size)[0], matrix.copy()
    add(matrix, 0, -2.5, other, size - 1, size)
    np.testing.assert_array_equal(matrix[0, :size], before[0, :size] + -2.5 * other[size - 1, :size])
    np.testing.assert_array_equal(matrix[1:], before[1:])
