"""Arrays go in, and their addresses come out, from which kernels read the same arrays without unpacking tuples.

To unpack a tuple of fifty arrays from Python takes longer than many a window does (22 us for sixty arrays).
So callers pack their arrays once; kernels take the addresses as one array and unpack them in place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import llvmlite.ir as ir
import numba
import numba.extending
import numpy as np
from numba.core import cgutils, types
from numba.core.typing import signature

_WORDS = types.Array(types.int64, 1, "C")


class PackedPointers:
    """Addresses and shapes of arrays, together with the arrays: none is freed as long as this object lives.

    Parameters
    ----------
    words : ndarray of int64
        What kernels take.
    owned
        The arrays that it points to.
    """

    __slots__ = ("_owned", "words")

    def __init__(self, words: np.ndarray, owned: Any):
        self.words, self._owned = words, owned

    @classmethod
    def stack(cls, parts: Sequence[PackedPointers]) -> PackedPointers:
        """Return equally long pointers as one, with one row each."""
        return cls(np.stack([part.words for part in parts]), tuple(parts))


class Packer:
    """Packs (named) tuples of arrays of one type, and lets kernels `unpack` them.

    Parameters
    ----------
    *example
        C-contiguous arrays, and (named) tuples of them, of the types that will be packed.

    Examples
    --------
    >>> from fleetgym.kernels.compile import jit
    >>> packer = Packer(np.zeros(2), np.zeros(1, dtype=np.int64))
    >>> unpack = packer.unpack
    >>> @jit
    ... def pick(words):
    ...     numbers, places = unpack(words)
    ...     return numbers[places[0]]
    >>> numbers, places = np.array([3.0, 4.0]), np.array([1])
    >>> packed = packer.pack(numbers, places)
    >>> pick(packed.words)
    4.0
    >>> numbers[1] = 5.0
    >>> pick(packed.words)
    5.0
    """

    def __init__(self, *example: Any):
        self._kind = kind = numba.typeof(example)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _Reader(context, builder, data_of(context, builder, _WORDS, arguments[0])).read(kind)

        def unpack(typing_context: Any, words: Any) -> Any:
            return signature(kind, _WORDS), generate

        self.unpack = numba.extending.intrinsic(unpack)

    def pack(self, *value: Any, owned: Any = None) -> PackedPointers:
        """Return the pointers from which kernels unpack `value`; they own its arrays, and `owned`.

        Raises
        ------
        TypeError
            If a type is not that of the example.
        """
        if numba.typeof(value) != self._kind:
            raise TypeError(f"expected {self._kind}, got {numba.typeof(value)}")
        return PackedPointers(np.array(_words(value), dtype=np.int64), (value, owned))


def _words(value: Any) -> list[int]:
    """Return address and shape of each array, in order."""
    if isinstance(value, tuple):
        return [word for part in value for word in _words(part)]
    return [value.ctypes.data, *value.shape]


class _Reader:
    """Reads what `_words` wrote, one array after the other."""

    def __init__(self, context: Any, builder: Any, words: Any):
        self._context, self._builder, self._words, self._place = context, builder, words, 0

    def _next(self) -> Any:
        pointer = cgutils.gep_inbounds(self._builder, self._words, self._place)
        self._place += 1
        return self._builder.load(pointer)

    def read(self, kind: Any) -> Any:
        if isinstance(kind, types.BaseTuple):
            parts = [self.read(part) for part in list(kind)]  # type: ignore[call-overload]
            return self._context.make_tuple(self._builder, kind, parts)
        address, shape = self._next(), [self._next() for _ in range(kind.ndim)]
        data = self._builder.inttoptr(address, self._context.get_data_type(kind.dtype).as_pointer())
        return array_at(self._context, self._builder, kind, data, shape)


def data_of(context: Any, builder: Any, kind: Any, array: Any) -> Any:
    """Return the pointer to the first number of an array."""
    return cgutils.create_struct_proxy(kind)(context, builder, value=array).data


def array_at(context: Any, builder: Any, kind: Any, data: Any, shape: Sequence[Any]) -> Any:
    """Return a C-contiguous array of some shape that lies at a pointer and owns nothing."""
    size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    item = ir.Constant(ir.IntType(64), size)
    step, strides = item, list[Any]()
    for length in reversed(shape):
        strides.insert(0, step)
        step = builder.mul(step, length)
    count = ir.Constant(ir.IntType(64), 1)
    for length in shape:
        count = builder.mul(count, length)
    array = cgutils.create_struct_proxy(kind)(context, builder)
    array.data, array.itemsize, array.nitems = data, item, count
    array.shape, array.strides = cgutils.pack_array(builder, shape), cgutils.pack_array(builder, strides)
    array.meminfo, array.parent = array.meminfo.type(None), array.parent.type(None)
    return array._getvalue()
