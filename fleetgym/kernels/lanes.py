"""Eight numbers at a time: rows of arrays in, sums and comparisons of all eight by single instructions out.

The compiler turns loops into such instructions only where they are long, and ours are short. Here it has no choice:
a `Lanes` value is a vector register, and the usual operators work on it, number by number, rounding as they always do.
Processors with narrower registers use several. Places are indices into the flattened, C-contiguous array.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, lower_builtin, models, register_model

#: How many numbers a `Lanes` holds.
WIDTH = 8

_DOUBLE, _INT, _BYTE, _BIT = ir.DoubleType(), ir.IntType(64), ir.IntType(8), ir.IntType(1)
_VECTOR, _MASK = ir.VectorType(_DOUBLE, WIDTH), ir.VectorType(_BIT, WIDTH)


class _LanesType(types.Type):
    """Numba's type of eight numbers."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


_lanes = _LanesType()


@register_model(_LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def padded(count: int) -> int:
    """Return the least multiple of `WIDTH` that is not below `count`: the length of rows that lanes may read.

    Examples
    --------
    >>> padded(15), padded(16)
    (16, 16)
    """
    return -(-count // WIDTH) * WIDTH


def zeros(*shape: int) -> np.ndarray:
    """Return an array of zeros that begins with a cache line, so that lanes at multiples of `WIDTH` lie in one.

    Examples
    --------
    >>> zeros(3, 16).ctypes.data % 64
    0
    """
    count, line = math.prod(shape), 8 * WIDTH
    room = np.zeros(count + WIDTH)
    start = -room.ctypes.data % line // room.itemsize
    return room[start : start + count].reshape(shape)


# --- operators --------------------------------------------------------------------------------------------


def _define(symbol: Any, method: str) -> None:
    """Let an operator of two `Lanes` be one instruction."""

    @infer_global(symbol)
    class Template(AbstractTemplate):
        def generic(self, arguments: Any, keywords: Any) -> Any:
            return signature(_lanes, _lanes, _lanes) if arguments == (_lanes, _lanes) else None

    @lower_builtin(symbol, _lanes, _lanes)
    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, method)(*arguments)


for _symbol, _method in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _define(_symbol, _method)


# --- functions --------------------------------------------------------------------------------------------


def _generator(result: Any, emit: Callable[..., Any]) -> Callable[..., Any]:
    """Return what an intrinsic returns: a function from argument types to a signature and a generator."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return emit(context, builder, signature, arguments)

    return lambda *kinds: (signature(result, *kinds), generate)


def _instruction(function: Any) -> Any:
    """Let kernels call what `function` emits."""
    return intrinsic(function)


def _spread(builder: Any, value: Any, vector: Any) -> Any:
    """Return `value` in all places of a vector."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(first, undefined, zeros)


def _pointer(context: Any, builder: Any, kind: Any, arguments: Any, vector: Any) -> Any:
    """Return a pointer to a vector, given an array and the place where it begins as the first arguments."""
    data = context.make_array(kind)(context, builder, arguments[0]).data
    return builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer())


def _first_bits(builder: Any, count: Any) -> Any:
    """Return a mask of the first `count` lanes."""
    steps = ir.Constant(ir.VectorType(_INT, WIDTH), list(range(WIDTH)))
    return builder.icmp_signed("<", steps, _spread(builder, count, steps.type))


def _as_bits(builder: Any, mask: Any) -> Any:
    return builder.zext(builder.bitcast(mask, _BYTE), _INT)


def _declare(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


@_instruction
def spread(typing_context, value):
    """Return eight times the same number."""

    def emit(context, builder, signature, arguments):
        return _spread(
            builder, context.cast(builder, arguments[0], signature.args[0], types.float64), _VECTOR
        )

    return _generator(_lanes, emit)(value)


@_instruction
def load(typing_context, array, place):
    """Return eight numbers of an array of floats."""

    def emit(context, builder, signature, arguments):
        return builder.load(_pointer(context, builder, signature.args[0], arguments, _VECTOR), align=8)

    return _generator(_lanes, emit)(array, types.intp)


@_instruction
def store(typing_context, array, place, lanes):
    """Write eight numbers to an array of floats."""

    def emit(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments, _VECTOR)
        builder.store(arguments[2], pointer, align=8)
        return context.get_dummy_value()

    return _generator(types.none, emit)(array, types.intp, lanes)


@_instruction
def load_first(typing_context, array, place, count):
    """Return the first `count` of eight numbers, and zeros for the others, which need not exist."""

    def emit(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments, _VECTOR)
        kinds = [pointer.type, ir.IntType(32), _MASK, _VECTOR]
        function = _declare(builder, "llvm.masked.load.v8f64.p0", _VECTOR, kinds)
        zeros = ir.Constant(_VECTOR, [0.0] * WIDTH)
        mask = _first_bits(builder, arguments[2])
        return builder.call(function, [pointer, ir.Constant(ir.IntType(32), 8), mask, zeros])

    return _generator(_lanes, emit)(array, types.intp, types.intp)


@_instruction
def store_first(typing_context, array, place, lanes, count):
    """Write the first `count` of eight numbers."""

    def emit(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments, _VECTOR)
        kinds = [_VECTOR, pointer.type, ir.IntType(32), _MASK]
        function = _declare(builder, "llvm.masked.store.v8f64.p0", ir.VoidType(), kinds)
        mask = _first_bits(builder, arguments[3])
        builder.call(function, [arguments[2], pointer, ir.Constant(ir.IntType(32), 8), mask])
        return context.get_dummy_value()

    return _generator(types.none, emit)(array, types.intp, lanes, types.intp)


@_instruction
def is_zero(typing_context, array, place, count):
    """Return bits that tell which of the first `count` of eight bytes are zero; those beyond are not."""
    vector = ir.VectorType(_BYTE, WIDTH)

    def emit(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments, vector)
        kinds = [pointer.type, ir.IntType(32), _MASK, vector]
        function = _declare(builder, "llvm.masked.load.v8i8.p0", vector, kinds)
        ones = ir.Constant(vector, [1] * WIDTH)
        mask = _first_bits(builder, arguments[2])
        bytes_ = builder.call(function, [pointer, ir.Constant(ir.IntType(32), 1), mask, ones])
        return _as_bits(builder, builder.icmp_unsigned("==", bytes_, ir.Constant(vector, [0] * WIDTH)))

    return _generator(types.int64, emit)(array, types.intp, types.intp)


@_instruction
def are_less(typing_context, left, right):
    """Return bits that tell where `left` < `right`."""

    def emit(context, builder, signature, arguments):
        return _as_bits(builder, builder.fcmp_ordered("<", *arguments))

    return _generator(types.int64, emit)(left, right)


@_instruction
def are_at_most(typing_context, left, right):
    """Return bits that tell where `left` <= `right`."""

    def emit(context, builder, signature, arguments):
        return _as_bits(builder, builder.fcmp_ordered("<=", *arguments))

    return _generator(types.int64, emit)(left, right)


@_instruction
def choose(typing_context, bits, yes, no):
    """Return numbers of `yes` where bits are set and of `no` elsewhere."""

    def emit(context, builder, signature, arguments):
        mask = builder.bitcast(builder.trunc(arguments[0], _BYTE), _MASK)
        return builder.select(mask, arguments[1], arguments[2])

    return _generator(_lanes, emit)(types.int64, yes, no)


@_instruction
def larger(typing_context, left, right):
    """Return the larger numbers of two."""

    def emit(context, builder, signature, arguments):
        return builder.select(builder.fcmp_ordered("<", *arguments), arguments[1], arguments[0])

    return _generator(_lanes, emit)(left, right)


@_instruction
def sizes(typing_context, lanes):
    """Return absolute values."""

    def emit(context, builder, signature, arguments):
        return builder.call(_declare(builder, "llvm.fabs.v8f64", _VECTOR, [_VECTOR]), arguments)

    return _generator(_lanes, emit)(lanes)


@_instruction
def lowest(typing_context, bits):
    """Return the place of the lowest of the bits, which are not all zero."""

    def emit(context, builder, signature, arguments):
        function = _declare(builder, "llvm.cttz.i64", _INT, [_INT, _BIT])
        return builder.call(function, [arguments[0], ir.Constant(_BIT, 1)])

    return _generator(types.int64, emit)(types.int64)


@_instruction
def total(typing_context, lanes):
    """Return the sum of eight numbers, added by halves."""

    def emit(context, builder, signature, arguments):
        value = arguments[0]
        undefined = ir.Constant(_VECTOR, ir.Undefined)
        for half in (4, 2, 1):
            places = [k ^ half for k in range(WIDTH)]
            swap = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), places)
            value = builder.fadd(value, builder.shuffle_vector(value, undefined, swap))
        return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))

    return _generator(types.float64, emit)(lanes)


@_instruction
def fused(typing_context, left, right, lanes):
    """Return left * right + lanes, rounded once where the processor can: for what only steers a search."""

    def emit(context, builder, signature, arguments):
        function = _declare(builder, "llvm.fmuladd.v8f64", _VECTOR, [_VECTOR] * 3)
        return builder.call(function, arguments)

    return _generator(_lanes, emit)(left, right, lanes)
