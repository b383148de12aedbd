"""Packed pointers and borrowed arrays: kernels read what was packed, and nothing is freed too soon."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import NamedTuple

import numpy as np
import pytest

from fleetgym.kernels.compile import jit
from fleetgym.kernels.lowlevel import PackedPointers, Packer, borrow


class Pair(NamedTuple):
    """Two arrays."""

    numbers: np.ndarray
    table: np.ndarray


def example(size: int = 1) -> Pair:
    """Return a pair of arrays."""
    return Pair(np.arange(float(size)), np.arange(2 * size, dtype=np.int64).reshape(2, size))


packer = Packer(example(), np.zeros(1, dtype=np.uint8))
unpack = packer.unpack


@jit
def add_up(words):
    """Return sums of all that was packed, and change one number."""
    pair, flags = unpack(words)
    total = 0.0
    for row in range(pair.table.shape[0]):
        for k in range(pair.numbers.size):
            total += pair.numbers[k] * pair.table[row, k]
    pair.numbers[0] = 7.0
    return total, flags.shape[0]


@jit
def parts(pair):
    """Return parts of borrowed arrays as sums: rows, slices, places from the end."""
    lent = borrow(pair)
    row, some = lent.table[1], lent.numbers[1:]
    row[-1] += 100
    return some.sum(), row[0], row[row.size - 1], lent.table[:, 1:].shape


def test_kernels_read_and_write_what_was_packed() -> None:
    """Shapes and addresses are those of the arrays."""
    pair, flags = example(4), np.zeros(3, dtype=np.uint8)
    packed = packer.pack(pair, flags)
    total = float((pair.numbers * pair.table).sum())
    assert add_up(packed.words) == (total, 3)
    assert pair.numbers[0] == 7.0


def test_packed_pointers_own_their_arrays() -> None:
    """As long as the pointers live, so do the arrays, also of several that were stacked."""

    class Owner(np.ndarray):
        """An array to which there can be weak references."""

    numbers = np.arange(4.0).view(Owner)
    seen = weakref.ref(numbers)
    stacked = PackedPointers.stack([PackedPointers(np.zeros(1, dtype=np.int64), (numbers,))] * 2)
    del numbers
    gc.collect()
    assert seen() is not None
    assert stacked.words.shape == (2, 1)
    del stacked
    gc.collect()
    assert seen() is None


def test_other_types_are_refused() -> None:
    """Addresses say nothing about types, so these are compared."""
    with pytest.raises(TypeError, match="expected"):
        packer.pack(example()._replace(numbers=np.zeros(1, dtype=np.float32)), np.zeros(1, dtype=np.uint8))


def test_borrowed_arrays_behave_like_arrays() -> None:
    """Rows, slices and negative places are those of NumPy; the caller's references are not touched."""
    pair = example(3)
    before = sys.getrefcount(pair.numbers)
    total, first, last, shape = parts(pair)
    after = sys.getrefcount(pair.numbers)
    assert (total, first, last, shape) == (3.0, 3, 105, (2, 2))
    assert pair.table[1, 2] == 105
    assert after == before
