"""Lanes against NumPy: the same numbers, place by place, also where rows end within a lane."""

import numba
import numpy as np
import pytest

from fleetgym.kernels import lanes
from fleetgym.kernels.simd import (
    WIDTH,
    are_at_most,
    are_less,
    choose,
    fused,
    is_zero,
    larger,
    largest,
    load,
    load_first,
    lowest,
    sizes,
    spread,
    store,
    store_first,
    total,
)

SPECIAL = np.array([0.0, -0.0, 1.5, -2.5, np.inf, -np.inf, np.nan, 5e-324])


@numba.njit
def combine(a, b, out):
    """Write sums, differences, products, maxima and sizes of the rows of two (8,) arrays into `out` (5, 8)."""
    x, y = load(a, 0), load(b, 0)
    store(out, 0, x + y)
    store(out, 8, x - y)
    store(out, 16, x * y)
    store(out, 24, larger(x, y))
    store(out, 32, sizes(x))


@numba.njit
def compare(a, b):
    """Return the bits of a < b and of a <= b."""
    return are_less(load(a, 0), load(b, 0)), are_at_most(load(a, 0), load(b, 0))


@numba.njit
def scale_some(values, skip, factor, out):
    """Write `factor` times the values into `out`, or minus one where `skip` is not zero, up to its end."""
    for first in range(0, values.size, WIDTH):
        some = values.size - first
        scaled = load_first(values, first, some) * spread(factor)
        store_first(out, first, choose(is_zero(skip, first, some), scaled, spread(-1.0)), some)


@numba.njit
def sum_of(values):
    """Return sum and maximum of up to eight values, and the sum of the places where they are positive."""
    row = load_first(values, 0, values.size)
    bits, places = are_less(spread(0.0), row), 0
    while bits != 0:
        places += lowest(bits)
        bits &= bits - 1
    return total(row), largest(row), places


@pytest.mark.parametrize("turn", range(WIDTH))
def test_operators_round_as_numpy_does(turn):
    """Every operator gives NumPy's bits, for special numbers too."""
    a, b, out = SPECIAL, np.roll(SPECIAL, turn), np.empty((5, WIDTH))
    combine(a, b, out)
    with np.errstate(invalid="ignore"):
        expected = [a + b, a - b, a * b, np.where(a < b, b, a), np.abs(a)]
    np.testing.assert_array_equal(out, expected)
    less, at_most = compare(a, b)
    assert [less >> k & 1 for k in range(WIDTH)] == (a < b).astype(int).tolist()
    assert [at_most >> k & 1 for k in range(WIDTH)] == (a <= b).astype(int).tolist()


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 23])
def test_nothing_beyond_the_end_of_a_row_is_read_or_written(count):
    """Rows of any length are whole, and what lies behind them stays."""
    rng = np.random.default_rng(count)
    room = np.full(count + WIDTH, np.nan)
    values, skip = rng.normal(size=count), rng.integers(0, 2, count).astype(np.uint8)
    scale_some(values, skip, 3.0, room[:count])
    np.testing.assert_array_equal(room[:count], np.where(skip == 0, 3.0 * values, -1.0))
    assert np.isnan(room[count:]).all()


@numba.njit
def add_product(a, b, out):
    """Write a * b + 0.1 into `out`, all of shape (8,)."""
    store(out, 0, fused(load(a, 0), load(b, 0), spread(0.1)))


def test_a_fused_product_differs_by_one_rounding_at_most():
    """Rounding once or twice, the result is that of the exact sum or its neighbour."""
    rng = np.random.default_rng(0)
    a, b, out = rng.normal(size=WIDTH), rng.normal(size=WIDTH), np.empty(WIDTH)
    add_product(a, b, out)
    np.testing.assert_allclose(out, a * b + 0.1, rtol=0, atol=2.3e-16 * (np.abs(a * b) + 0.1).max())


@pytest.mark.parametrize("count", range(1, WIDTH + 1))
def test_sums_maxima_and_bits(count):
    """A sum is that of the values, places beyond them count as zero; bits are visited once each, from the lowest on."""
    values = np.random.default_rng(count).integers(-9, 10, count).astype(float)
    most = max(values.max(), 0.0) if count < WIDTH else values.max()
    assert sum_of(values) == (values.sum(), most, np.flatnonzero(values > 0).sum())


def test_arrays_of_zeros_begin_with_a_cache_line():
    """Every array starts at a multiple of 64 bytes and is contiguous, also an empty one."""
    for shape in ((3, 5), (1,), (0, 4), (2, 3, 7)):
        array = lanes.zeros(*shape)
        assert array.shape == shape
        assert array.flags.c_contiguous
        assert not array.any()
        assert array.ctypes.data % 64 == 0 or array.size == 0
