"""Eight numbers at a time: rows of arrays in, sums and comparisons of all eight by single instructions out.

The compiler turns loops into such instructions only where they are long, and ours are short. Here it has no choice:
a `Lanes` value is a vector register, and the usual operators work on it, number by number, rounding as they always do.
Processors with narrower registers use several. Places are indices into the flattened, C-contiguous array.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import llvmlite.ir as ir
import numpy as np
from numba.core import types
from numba.core.typing import signature
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import lower_builtin

from fleetgym.kernels.instructions import (
    BIT,
    BYTE,
    INT,
    LANES,
    VECTOR,
    WIDTH,
    as_bits,
    as_mask,
    declare,
    everywhere,
    generator,
    instruction,
    load_masked,
    pointer_to,
    store_masked,
)


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
            return signature(LANES, LANES, LANES) if arguments == (LANES, LANES) else None

    @lower_builtin(symbol, LANES, LANES)
    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, method)(*arguments)


for _symbol, _method in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _define(_symbol, _method)


# --- functions --------------------------------------------------------------------------------------------


@instruction
def spread(typing_context, value):
    """Return eight times the same number."""

    def emit(context, builder, signature, arguments):
        return everywhere(
            builder, context.cast(builder, arguments[0], signature.args[0], types.float64), VECTOR
        )

    return generator(LANES, emit)(value)


@instruction
def load(typing_context, array, place):
    """Return eight numbers of an array of floats."""

    def emit(context, builder, signature, arguments):
        return builder.load(pointer_to(context, builder, signature.args[0], arguments, VECTOR), align=8)

    return generator(LANES, emit)(array, types.intp)


@instruction
def store(typing_context, array, place, lanes):
    """Write eight numbers to an array of floats."""

    def emit(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments, VECTOR)
        builder.store(arguments[2], pointer, align=8)
        return context.get_dummy_value()

    return generator(types.none, emit)(array, types.intp, lanes)


@instruction
def load_first(typing_context, array, place, count):
    """Return the first `count` of eight numbers, and zeros for the others, which need not exist."""

    def emit(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments, VECTOR)
        zeros = ir.Constant(VECTOR, [0.0] * WIDTH)
        return load_masked(builder, pointer, arguments[2], zeros, "v8f64", 8)

    return generator(LANES, emit)(array, types.intp, types.intp)


@instruction
def store_first(typing_context, array, place, lanes, count):
    """Write the first `count` of eight numbers."""

    def emit(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments, VECTOR)
        store_masked(builder, arguments[2], pointer, arguments[3], "v8f64", 8)
        return context.get_dummy_value()

    return generator(types.none, emit)(array, types.intp, lanes, types.intp)


@instruction
def is_zero(typing_context, array, place, count):
    """Return bits that tell which of the first `count` of eight bytes are zero; those beyond are not."""
    vector = ir.VectorType(BYTE, WIDTH)

    def emit(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments, vector)
        ones = ir.Constant(vector, [1] * WIDTH)
        bytes_ = load_masked(builder, pointer, arguments[2], ones, "v8i8", 1)
        return as_bits(builder, builder.icmp_unsigned("==", bytes_, ir.Constant(vector, [0] * WIDTH)))

    return generator(types.int64, emit)(array, types.intp, types.intp)


@instruction
def are_less(typing_context, left, right):
    """Return bits that tell where `left` < `right`."""

    def emit(context, builder, signature, arguments):
        return as_bits(builder, builder.fcmp_ordered("<", *arguments))

    return generator(types.int64, emit)(left, right)


@instruction
def are_at_most(typing_context, left, right):
    """Return bits that tell where `left` <= `right`."""

    def emit(context, builder, signature, arguments):
        return as_bits(builder, builder.fcmp_ordered("<=", *arguments))

    return generator(types.int64, emit)(left, right)


@instruction
def choose(typing_context, bits, yes, no):
    """Return numbers of `yes` where bits are set and of `no` elsewhere."""

    def emit(context, builder, signature, arguments):
        return builder.select(as_mask(builder, arguments[0]), arguments[1], arguments[2])

    return generator(LANES, emit)(types.int64, yes, no)


@instruction
def larger(typing_context, left, right):
    """Return the larger numbers of two."""

    def emit(context, builder, signature, arguments):
        return builder.select(builder.fcmp_ordered("<", *arguments), arguments[1], arguments[0])

    return generator(LANES, emit)(left, right)


@instruction
def sizes(typing_context, lanes):
    """Return absolute values."""

    def emit(context, builder, signature, arguments):
        return builder.call(declare(builder, "llvm.fabs.v8f64", VECTOR, [VECTOR]), arguments)

    return generator(LANES, emit)(lanes)


@instruction
def lowest(typing_context, bits):
    """Return the place of the lowest of the bits, which are not all zero."""

    def emit(context, builder, signature, arguments):
        function = declare(builder, "llvm.cttz.i64", INT, [INT, BIT])
        return builder.call(function, [arguments[0], ir.Constant(BIT, 1)])

    return generator(types.int64, emit)(types.int64)


def _halved(builder, value, join):
    """Return one number from eight, joined by halves."""
    undefined = ir.Constant(VECTOR, ir.Undefined)
    for half in (4, 2, 1):
        places = [k ^ half for k in range(WIDTH)]
        swap = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), places)
        value = join(value, builder.shuffle_vector(value, undefined, swap))
    return builder.extract_element(value, ir.Constant(ir.IntType(32), 0))


@instruction
def total(typing_context, lanes):
    """Return the sum of eight numbers, added by halves."""

    def emit(context, builder, signature, arguments):
        return _halved(builder, arguments[0], builder.fadd)

    return generator(types.float64, emit)(lanes)


@instruction
def largest(typing_context, lanes):
    """Return the largest of eight numbers."""

    def emit(context, builder, signature, arguments):
        def join(left, right):
            return builder.select(builder.fcmp_ordered("<", left, right), right, left)

        return _halved(builder, arguments[0], join)

    return generator(types.float64, emit)(lanes)


@instruction
def fused(typing_context, left, right, lanes):
    """Return left * right + lanes, rounded once where the processor can: for what only steers a search."""

    def emit(context, builder, signature, arguments):
        function = declare(builder, "llvm.fmuladd.v8f64", VECTOR, [VECTOR] * 3)
        return builder.call(function, arguments)

    return generator(LANES, emit)(left, right, lanes)
