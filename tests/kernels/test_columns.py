"""Scattered columns against NumPy: what is gathered, divided, counted and written is what it should be."""

import numba
import numpy as np
import pytest

from fleetgym.kernels.simd import gather, how_many, quotient, store_bits, store_places, table
from fleetgym.kernels.simd import WIDTH, are_less, load_first, spread, store_first


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
