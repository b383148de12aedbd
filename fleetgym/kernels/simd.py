"""Eight numbers at a time: rows of arrays go in; sums, comparisons and choices of all eight come out.

The compiler turns loops into vector instructions only where they are long, and ours are short. Here it has no choice:
a `Lanes` value is a vector register. The usual operators work on it, number by number, rounding as they always do.
Processors with narrower registers use several. Places are indices into the flattened, C-contiguous array.

Each function below emits LLVM code: it gets the types of its arguments, and returns its result's type and the emitter.
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
from numba.extending import lower_builtin, models, register_model, type_callable

from fleetgym.kernels.pointers import Borrowed, array_at, data_of, intrinsic

#: How many numbers a `Lanes` holds.
WIDTH = 8

DOUBLE, INT, BYTE, BIT = ir.DoubleType(), ir.IntType(64), ir.IntType(8), ir.IntType(1)
VECTOR, MASK = ir.VectorType(DOUBLE, WIDTH), ir.VectorType(BIT, WIDTH)


class LanesType(types.Type):
    """Numba's type of eight numbers."""

    def __init__(self) -> None:
        super().__init__(name="Lanes")


LANES = LanesType()


@register_model(LanesType)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


def generator(result: Any, emit: Callable[..., Any]) -> Callable[..., Any]:
    """Return what an intrinsic returns: a function from argument types to a signature and what emits the code."""
    return lambda *kinds: (signature(result, *kinds), emit)


def everywhere(builder: Any, value: Any, vector: Any) -> Any:
    """Return `value` in all places of a vector."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(first, undefined, zeros)


def pointer_to(context: Any, builder: Any, kind: Any, arguments: Any, vector: Any) -> Any:
    """Return a pointer to a vector, given an array and the place where it begins as the first arguments."""
    data = data_of(context, builder, kind, arguments[0])
    return builder.bitcast(builder.gep(data, [arguments[1]]), vector.as_pointer())


def first_bits(builder: Any, count: Any) -> Any:
    """Return a mask of the first `count` lanes."""
    steps = ir.Constant(ir.VectorType(INT, WIDTH), list(range(WIDTH)))
    return builder.icmp_signed("<", steps, everywhere(builder, count, steps.type))


def as_bits(builder: Any, mask: Any) -> Any:
    """Return a mask of lanes as bits."""
    return builder.zext(builder.bitcast(mask, BYTE), INT)


def as_mask(builder: Any, bits: Any) -> Any:
    """Return bits as a mask of lanes."""
    return builder.bitcast(builder.trunc(bits, BYTE), MASK)


def declare(builder: Any, name: str, result: Any, arguments: list[Any]) -> Any:
    """Return a function of LLVM by its name."""
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


def load_masked(builder: Any, pointer: Any, count: Any, rest: Any, suffix: str, align: int) -> Any:
    """Return the first `count` places of the vector at a pointer, and those of the constant `rest` for the others."""
    kinds = [pointer.type, ir.IntType(32), MASK, rest.type]
    function = declare(builder, f"llvm.masked.load.{suffix}.p0", rest.type, kinds)
    return builder.call(
        function, [pointer, ir.Constant(ir.IntType(32), align), first_bits(builder, count), rest]
    )


def store_masked(builder: Any, values: Any, pointer: Any, count: Any, suffix: str, align: int) -> None:
    """Write the first `count` places of a vector to a pointer."""
    kinds = [values.type, pointer.type, ir.IntType(32), MASK]
    function = declare(builder, f"llvm.masked.store.{suffix}.p0", ir.VoidType(), kinds)
    builder.call(function, [values, pointer, ir.Constant(ir.IntType(32), align), first_bits(builder, count)])


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
    buffer = np.zeros(count + WIDTH)
    start = -buffer.ctypes.data % line // buffer.itemsize
    return buffer[start : start + count].reshape(shape)


# --- operators --------------------------------------------------------------------------------------------


def _define(symbol: Any, method: str) -> None:
    """Let an operator of two `Lanes` be one instruction."""

    @type_callable(symbol)
    def type_operator(typing_context: Any) -> Any:
        return lambda left, right: LANES if (left, right) == (LANES, LANES) else None

    @lower_builtin(symbol, LANES, LANES)
    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return getattr(builder, method)(*arguments)


for _symbol, _method in ((operator.add, "fadd"), (operator.sub, "fsub"), (operator.mul, "fmul")):
    _define(_symbol, _method)


# --- functions --------------------------------------------------------------------------------------------


@intrinsic
def spread(typing_context, value):
    """Return eight times the same number."""

    def emit(context, builder, signature, arguments):
        return everywhere(
            builder, context.cast(builder, arguments[0], signature.args[0], types.float64), VECTOR
        )

    return generator(LANES, emit)(value)


@intrinsic
def load(typing_context, array, place):
    """Return eight numbers of an array of floats."""

    def emit(context, builder, signature, arguments):
        return builder.load(pointer_to(context, builder, signature.args[0], arguments, VECTOR), align=8)

    return generator(LANES, emit)(array, types.intp)


@intrinsic
def store(typing_context, array, place, lanes):
    """Write eight numbers to an array of floats."""

    def emit(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments, VECTOR)
        builder.store(arguments[2], pointer, align=8)
        return context.get_dummy_value()

    return generator(types.none, emit)(array, types.intp, lanes)


@intrinsic
def load_first(typing_context, array, place, count):
    """Return the first `count` of eight numbers, and zeros for the others, which need not exist."""

    def emit(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments, VECTOR)
        zeros = ir.Constant(VECTOR, [0.0] * WIDTH)
        return load_masked(builder, pointer, arguments[2], zeros, "v8f64", 8)

    return generator(LANES, emit)(array, types.intp, types.intp)


@intrinsic
def store_first(typing_context, array, place, lanes, count):
    """Write the first `count` of eight numbers."""

    def emit(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments, VECTOR)
        store_masked(builder, arguments[2], pointer, arguments[3], "v8f64", 8)
        return context.get_dummy_value()

    return generator(types.none, emit)(array, types.intp, lanes, types.intp)


@intrinsic
def is_zero(typing_context, array, place, count):
    """Return bits that tell which of the first `count` of eight bytes are zero; those beyond are not."""
    vector = ir.VectorType(BYTE, WIDTH)

    def emit(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments, vector)
        ones = ir.Constant(vector, [1] * WIDTH)
        bytes_ = load_masked(builder, pointer, arguments[2], ones, "v8i8", 1)
        return as_bits(builder, builder.icmp_unsigned("==", bytes_, ir.Constant(vector, [0] * WIDTH)))

    return generator(types.int64, emit)(array, types.intp, types.intp)


@intrinsic
def are_less(typing_context, left, right):
    """Return bits that tell where `left` < `right`."""

    def emit(context, builder, signature, arguments):
        return as_bits(builder, builder.fcmp_ordered("<", *arguments))

    return generator(types.int64, emit)(left, right)


@intrinsic
def are_at_most(typing_context, left, right):
    """Return bits that tell where `left` <= `right`."""

    def emit(context, builder, signature, arguments):
        return as_bits(builder, builder.fcmp_ordered("<=", *arguments))

    return generator(types.int64, emit)(left, right)


@intrinsic
def choose(typing_context, bits, yes, no):
    """Return numbers of `yes` where bits are set and of `no` elsewhere."""

    def emit(context, builder, signature, arguments):
        return builder.select(as_mask(builder, arguments[0]), arguments[1], arguments[2])

    return generator(LANES, emit)(types.int64, yes, no)


@intrinsic
def larger(typing_context, left, right):
    """Return the larger numbers of two."""

    def emit(context, builder, signature, arguments):
        return builder.select(builder.fcmp_ordered("<", *arguments), arguments[1], arguments[0])

    return generator(LANES, emit)(left, right)


@intrinsic
def smaller(typing_context, left, right):
    """Return the smaller numbers of two."""

    def emit(context, builder, signature, arguments):
        return builder.select(builder.fcmp_ordered("<", *arguments), *arguments)

    return generator(LANES, emit)(left, right)


@intrinsic
def sizes(typing_context, lanes):
    """Return absolute values."""

    def emit(context, builder, signature, arguments):
        return builder.call(declare(builder, "llvm.fabs.v8f64", VECTOR, [VECTOR]), arguments)

    return generator(LANES, emit)(lanes)


@intrinsic
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


@intrinsic
def total(typing_context, lanes):
    """Return the sum of eight numbers, added by halves."""

    def emit(context, builder, signature, arguments):
        return _halved(builder, arguments[0], builder.fadd)

    return generator(types.float64, emit)(lanes)


def _extreme(is_largest):
    def emit(context, builder, signature, arguments):
        def join(left, right):
            is_less = builder.fcmp_ordered("<", left, right)
            return builder.select(is_less, *((right, left) if is_largest else (left, right)))

        return _halved(builder, arguments[0], join)

    return emit


@intrinsic
def largest(typing_context, lanes):
    """Return the largest of eight numbers."""
    return generator(types.float64, _extreme(is_largest=True))(lanes)


@intrinsic
def smallest(typing_context, lanes):
    """Return the smallest of eight numbers."""
    return generator(types.float64, _extreme(is_largest=False))(lanes)


@intrinsic
def fused(typing_context, left, right, lanes):
    """Return left * right + lanes, rounded once where the processor can: for what only steers a search."""

    def emit(context, builder, signature, arguments):
        function = declare(builder, "llvm.fmuladd.v8f64", VECTOR, [VECTOR] * 3)
        return builder.call(function, arguments)

    return generator(LANES, emit)(left, right, lanes)


# --- scattered columns and tables ---------------------------------------------------------------------------

_PLACES, _BYTES = ir.VectorType(INT, WIDTH), ir.VectorType(BYTE, WIDTH)


@intrinsic
def gather(typing_context, array, place, columns, first, count):
    """Return the numbers of an array at `place` + columns[first], and of the `count` - 1 columns that follow."""

    def emit(context, builder, signature, arguments):
        kind, none = signature.args[0], ir.Constant(_PLACES, [0] * WIDTH)
        wanted = pointer_to(context, builder, signature.args[2], arguments[2:4], _PLACES)
        places = load_masked(builder, wanted, arguments[4], none, "v8i64", 8)
        data = data_of(context, builder, kind, arguments[0])
        begin = builder.ptrtoint(builder.gep(data, [arguments[1]]), INT)
        bytes_ = builder.shl(places, ir.Constant(_PLACES, [3] * WIDTH))
        pointers = builder.inttoptr(
            builder.add(bytes_, everywhere(builder, begin, _PLACES)),
            ir.VectorType(DOUBLE.as_pointer(), WIDTH),
        )
        kinds = [pointers.type, ir.IntType(32), MASK, VECTOR]
        function = declare(builder, "llvm.masked.gather.v8f64.v8p0", VECTOR, kinds)
        mask, zeros = first_bits(builder, arguments[4]), ir.Constant(VECTOR, [0.0] * WIDTH)
        return builder.call(function, [pointers, ir.Constant(ir.IntType(32), 8), mask, zeros])

    return generator(LANES, emit)(array, types.intp, columns, types.intp, types.intp)


@intrinsic
def quotient(typing_context, left, right):
    """Return left / right."""

    def emit(context, builder, signature, arguments):
        return builder.fdiv(*arguments)

    return generator(LANES, emit)(left, right)


@intrinsic
def store_places(typing_context, array, place, bits, first):
    """Write `first` plus the places of the bits that are set, one behind the other, to an array of whole numbers."""

    def emit(context, builder, signature, arguments):
        data = data_of(context, builder, signature.args[0], arguments[0])
        pointer = builder.gep(data, [arguments[1]])
        steps = ir.Constant(_PLACES, list(range(WIDTH)))
        places = builder.add(steps, everywhere(builder, arguments[3], _PLACES))
        kinds = [_PLACES, pointer.type, MASK]
        function = declare(builder, "llvm.masked.compressstore.v8i64", ir.VoidType(), kinds)
        builder.call(function, [places, pointer, as_mask(builder, arguments[2])])
        return context.get_dummy_value()

    return generator(types.none, emit)(array, types.intp, types.int64, types.intp)


@intrinsic
def how_many(typing_context, bits):
    """Return how many bits are set."""

    def emit(context, builder, signature, arguments):
        return builder.call(declare(builder, "llvm.ctpop.i64", INT, [INT]), arguments)

    return generator(types.int64, emit)(types.int64)


@intrinsic
def store_bits(typing_context, array, place, bits, count):
    """Write the first `count` of eight bits to an array of bytes."""

    def emit(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments, _BYTES)
        bytes_ = builder.zext(as_mask(builder, arguments[2]), _BYTES)
        store_masked(builder, bytes_, pointer, arguments[3], "v8i8", 1)
        return context.get_dummy_value()

    return generator(types.none, emit)(array, types.intp, types.int64, types.intp)


@intrinsic
def table(typing_context, buffer, first, shape):
    """Return a C-contiguous table of some shape that lies in a buffer from the place `first` on."""
    kind = Borrowed(buffer.dtype, len(shape), "C")

    def emit(context, builder, signature, arguments):
        data = data_of(context, builder, signature.args[0], arguments[0])
        lengths = [builder.extract_value(arguments[2], k) for k in range(len(shape))]
        return array_at(context, builder, kind, builder.gep(data, [arguments[1]]), lengths)

    return generator(kind, emit)(buffer, types.intp, types.UniTuple(types.intp, len(shape)))
