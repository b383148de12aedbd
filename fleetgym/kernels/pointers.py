"""Arrays go in, and their addresses come out, from which kernels read the same arrays without unpacking tuples.

To unpack a tuple of fifty arrays from Python takes longer than many a window does (22 us for sixty arrays).
So callers pack their arrays once; kernels take the addresses as one array and unpack them in place.

Arrays inside kernels are `Borrowed`: Numba counts no references to them, since a caller owns them. Counting took a
third of a step.
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
from numba.extending import lower_cast, models, register_model

#: Lets kernels call what a function emits; mypy would take its first argument for that of the call.
intrinsic: Any = numba.extending.intrinsic

_WORDS = types.Array(types.int64, 1, "C")


class Borrowed(types.Array):
    """Numba's type of an array that somebody else owns; parts of it are borrowed, too."""

    def __init__(self, dtype: Any, ndim: int, layout: Any, readonly: bool = False, aligned: bool = True):
        name = f"Borrowed({dtype}, {ndim}, {layout}, {readonly}, {aligned})"
        super().__init__(dtype, ndim, layout, readonly=readonly, name=name, aligned=aligned)

    def copy(self, dtype: Any = None, ndim: Any = None, layout: Any = None, readonly: Any = None) -> Any:
        """Return the type with some properties replaced."""
        return Borrowed(
            self.dtype if dtype is None else dtype,
            self.ndim if ndim is None else ndim,
            self.layout if layout is None else layout,
            readonly=not self.mutable if readonly is None else readonly,
            aligned=self.aligned,
        )


@register_model(Borrowed)
class _BorrowedModel(models.StructModel):
    """The fields of an array, of which `meminfo` is no counter of references."""

    def __init__(self, manager: Any, kind: Any) -> None:
        lengths = types.UniTuple(types.intp, kind.ndim)
        members = [
            ("meminfo", types.voidptr),
            ("parent", types.pyobject),
            ("nitems", types.intp),
            ("itemsize", types.intp),
            ("data", types.CPointer(kind.dtype)),
            ("shape", lengths),
            ("strides", lengths),
        ]
        super().__init__(manager, kind, members)


def borrowed_type(kind: Any) -> Any:
    """Return the type of a value whose arrays are borrowed: an array, a (named) tuple, or anything else."""
    if isinstance(kind, types.BaseTuple):
        parts = [borrowed_type(part) for part in list(kind)]  # type: ignore[call-overload]
        return types.BaseTuple.from_types(parts, getattr(kind, "instance_class", None))
    if isinstance(kind, types.Array):
        return Borrowed(kind.dtype, kind.ndim, kind.layout, readonly=not kind.mutable, aligned=kind.aligned)
    return kind


@lower_cast(types.Array, Borrowed)
def _borrowed_array(context: Any, builder: Any, kind: Any, target: Any, value: Any) -> Any:
    array = cgutils.create_struct_proxy(kind)(context, builder, value=value)
    found = cgutils.create_struct_proxy(target)(context, builder)
    for name in ("parent", "nitems", "itemsize", "data", "shape", "strides"):
        setattr(found, name, getattr(array, name))
    found.meminfo = found.meminfo.type(None)
    return found._getvalue()


def _borrowed(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return a value with its arrays borrowed."""
    if not isinstance(kind, types.BaseTuple):
        return context.cast(builder, value, kind, borrowed_type(kind))
    parts = [
        _borrowed(context, builder, part, builder.extract_value(value, k))
        for k, part in enumerate(list(kind))  # type: ignore[call-overload]
    ]
    return context.make_tuple(builder, borrowed_type(kind), parts)


@intrinsic
def borrow(typing_context, value):
    """Return an array, or a (named) tuple, without counting references; the caller keeps its arrays alive."""

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _borrowed(context, builder, signature.args[0], arguments[0])

    return signature(borrowed_type(value), value), emit


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
        self._kind = numba.typeof(example)
        kind = borrowed_type(self._kind)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return _Reader(context, builder, data_of(context, builder, signature.args[0], arguments[0])).read(
                kind
            )

        def unpack(typing_context: Any, words: Any) -> Any:
            return signature(kind, borrowed_type(_WORDS)), generate

        self.unpack = intrinsic(unpack)

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
