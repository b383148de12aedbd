"""Arguments that stay the same from call to call, unpacked once instead of each time.

To unpack a tuple of fifty arrays takes longer than many a window does. `Freezer.freeze` notes where the arrays
lie; kernels take that note and read the tuple from it with `Freezer.thaw`.
"""

from __future__ import annotations

from typing import Any

import llvmlite.ir
import numba
import numpy as np
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.np.arrayobj import populate_array

_NOTE = types.Array(types.int64, 1, "C")


class Freezer:
    """Notes where the arrays of tuples of one type lie, for kernels to `thaw`.

    Parameters
    ----------
    *example
        C-contiguous arrays, and (named) tuples of them, of the types that will be frozen.

    Examples
    --------
    >>> from fleetgym.kernels.compile import jit
    >>> freezer = Freezer(np.zeros(2), np.zeros(1, dtype=np.int64))
    >>> thaw = freezer.thaw
    >>> @jit
    ... def pick(note):
    ...     numbers, places = thaw(note)
    ...     return numbers[places[0]]
    >>> numbers, places = np.array([3.0, 4.0]), np.array([1])
    >>> note = freezer.freeze(numbers, places)
    >>> pick(note)
    4.0
    >>> numbers[1] = 5.0
    >>> pick(note)
    5.0
    """

    def __init__(self, *example: Any):
        self._kind = kind = numba.typeof(example)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            note = context.make_array(_NOTE)(context, builder, value=arguments[0])
            return _Reader(context, builder, note.data).read(kind)

        def thaw(typing_context: Any, note: Any) -> Any:
            return signature(kind, _NOTE), generate

        self.thaw = numba.extending.intrinsic(thaw)

    def freeze(self, *value: Any) -> np.ndarray:
        """Return the note, int64, from which kernels read `value`; the caller keeps its arrays alive.

        Raises
        ------
        TypeError
            If a type is not that of the example.
        """
        if numba.typeof(value) != self._kind:
            raise TypeError(f"expected {self._kind}, got {numba.typeof(value)}")
        return np.array(_words(value), dtype=np.int64)


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
        context, builder = self._context, self._builder
        if isinstance(kind, types.BaseTuple):
            parts = [self.read(part) for part in list(kind)]  # type: ignore[call-overload]
            return context.make_tuple(builder, kind, parts)
        array = context.make_array(kind)(context, builder)
        data = builder.inttoptr(self._next(), array.data.type)
        shape = [self._next() for _ in range(kind.ndim)]
        size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        item = llvmlite.ir.Constant(shape[0].type, size)
        step, strides = item, list[Any]()
        for length in reversed(shape):
            strides.insert(0, step)
            step = builder.mul(step, length)
        populate_array(array, data=data, shape=shape, strides=strides, itemsize=item, meminfo=None)
        return array._getvalue()
