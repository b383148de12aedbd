"""Lanes against NumPy: the same numbers, place by place, also where rows end within a lane."""

import numba
import numpy as np
import pytest

from fleetgym.kernels import lowlevel as simd
from fleetgym.kernels.lowlevel import (
    WIDTH,
    are_at_most,
    are_less,
    choose,
    fused,
    gather,
    how_many,
    is_zero,
    larger,
    largest,
    load,
    load_first,
    lowest,
    quotient,
    sizes,
    spread,
    store,
    store_bits,
    store_first,
    store_places,
    table,
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
        array = simd.zeros(*shape)
        assert array.shape == shape
        assert array.flags.c_contiguous
        assert not array.any()
        assert array.ctypes.data % 64 == 0 or array.size == 0


# --- scattered columns and tables ---------------------------------------------------------------------------


@numba.njit
def pick(values, place, columns, out):
    """Write the values at `place` + columns into `out`."""
    for first in range(0, columns.size, WIDTH):
        some = columns.size - first
        store_first(out, first, gather(values, place, columns, first, some), some)


@numba.njit
def divide(a, b, out):
    """Write a / b into `out`."""
    for first in range(0, a.size, WIDTH):
        some = a.size - first
        store_first(out, first, quotient(load_first(a, first, some), load_first(b, first, some)), some)


@numba.njit
def find_positive(values, flags, places):
    """Write where values are positive, as flags and as places; return how many are."""
    count = 0
    for first in range(0, values.size, WIDTH):
        some = values.size - first
        bits = are_less(spread(0.0), load_first(values, first, some))
        store_bits(flags, first, bits, some)
        store_places(places, count, bits, first)
        count += how_many(bits)
    return count


@numba.njit
def fill(buffer, first, rows, columns):
    """Number the places of a table within a buffer, and return the sums of its rows."""
    cells = table(buffer, first, (rows, columns))
    for r in range(rows):
        for c in range(columns):
            cells[r, c] = r * columns + c
    return cells.sum(axis=1), cells.shape


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 21])
def test_gather(count):
    """Any columns, in any order, and nothing beyond the last one is read or written."""
    rng = np.random.default_rng(count)
    values, columns, out = rng.random(100), rng.permutation(60)[:count], np.full(count + 3, -1.0)
    pick(values, 40, columns, out[:count])
    assert np.array_equal(out[:count], values[40 + columns])
    assert (out[count:] == -1.0).all()


def test_quotients_round_like_numpy():
    """Lanes divide as single numbers do, zeros and infinities included."""
    rng = np.random.default_rng(3)
    a = np.append(rng.normal(size=90), [0.0, 1.0, -1.0, np.inf, 5e-324])
    b = np.append(rng.normal(size=90), [0.0, 0.0, np.inf, np.inf, 2.0])
    out = np.empty_like(a)
    divide(a, b, out)
    with np.errstate(divide="ignore", invalid="ignore"):
        assert np.array_equal(out, a / b, equal_nan=True)


@pytest.mark.parametrize("count", [1, 8, 13, 24])
def test_positive_places(count):
    """Flags tell which values are positive, and places list them in order without gaps."""
    values = np.random.default_rng(count).normal(size=count)
    flags, places = np.full(count + 2, 9, dtype=np.uint8), np.full(count + 2, -1)
    found = find_positive(values, flags[:count], places)
    assert np.array_equal(flags[:count], values > 0.0)
    assert np.array_equal(places[:found], np.flatnonzero(values > 0.0))
    assert (flags[count:] == 9).all()
    assert (places[found:] == -1).all()


def test_table_is_a_view():
    """A table shares the buffer's memory, from the given place on."""
    buffer = np.full(12, -1.0)
    sums, shape = fill(buffer, 3, 2, 4)
    assert shape == (2, 4)
    assert sums.tolist() == [6.0, 22.0]
    assert buffer.tolist() == [-1.0] * 3 + list(map(float, range(8))) + [-1.0]
