"""Scattered columns, eight at a time: arrays and places in, `Lanes` and tables out, beside what `lanes` has."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba.core import types
from numba.np.arrayobj import populate_array

from fleetgym.kernels.instructions import (
    BYTE,
    DOUBLE,
    INT,
    LANES,
    MASK,
    VECTOR,
    WIDTH,
    as_mask,
    declare,
    everywhere,
    first_bits,
    generator,
    instruction,
    load_masked,
    pointer_to,
    store_masked,
)

_PLACES, _BYTES = ir.VectorType(INT, WIDTH), ir.VectorType(BYTE, WIDTH)


@instruction
def gather(typing_context, array, place, columns, first, count):
    """Return the numbers of an array at `place` + columns[first], and of the `count` - 1 columns that follow."""

    def emit(context, builder, signature, arguments):
        kind, none = signature.args[0], ir.Constant(_PLACES, [0] * WIDTH)
        wanted = pointer_to(context, builder, signature.args[2], arguments[2:4], _PLACES)
        places = load_masked(builder, wanted, arguments[4], none, "v8i64", 8)
        data = context.make_array(kind)(context, builder, arguments[0]).data
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


@instruction
def quotient(typing_context, left, right):
    """Return left / right."""

    def emit(context, builder, signature, arguments):
        return builder.fdiv(*arguments)

    return generator(LANES, emit)(left, right)


@instruction
def store_places(typing_context, array, place, bits, first):
    """Write `first` plus the places of the bits that are set, one behind the other, to an array of whole numbers."""

    def emit(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.gep(data, [arguments[1]])
        steps = ir.Constant(_PLACES, list(range(WIDTH)))
        places = builder.add(steps, everywhere(builder, arguments[3], _PLACES))
        kinds = [_PLACES, pointer.type, MASK]
        function = declare(builder, "llvm.masked.compressstore.v8i64", ir.VoidType(), kinds)
        builder.call(function, [places, pointer, as_mask(builder, arguments[2])])
        return context.get_dummy_value()

    return generator(types.none, emit)(array, types.intp, types.int64, types.intp)


@instruction
def how_many(typing_context, bits):
    """Return how many bits are set."""

    def emit(context, builder, signature, arguments):
        return builder.call(declare(builder, "llvm.ctpop.i64", INT, [INT]), arguments)

    return generator(types.int64, emit)(types.int64)


@instruction
def store_bits(typing_context, array, place, bits, count):
    """Write the first `count` of eight bits to an array of bytes."""

    def emit(context, builder, signature, arguments):
        pointer = pointer_to(context, builder, signature.args[0], arguments, _BYTES)
        bytes_ = builder.zext(as_mask(builder, arguments[2]), _BYTES)
        store_masked(builder, bytes_, pointer, arguments[3], "v8i8", 1)
        return context.get_dummy_value()

    return generator(types.none, emit)(array, types.intp, types.int64, types.intp)


@instruction
def table(typing_context, buffer, first, shape):
    """Return a C-contiguous table of some shape that lies in a buffer from the place `first` on."""
    kind = types.Array(buffer.dtype, len(shape), "C")

    def emit(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        found = context.make_array(kind)(context, builder)
        lengths = [builder.extract_value(arguments[2], k) for k in range(len(shape))]
        size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        item = ir.Constant(INT, size)
        step, strides = item, list[Any]()
        for length in reversed(lengths):
            strides.insert(0, step)
            step = builder.mul(step, length)
        begin = builder.gep(data, [arguments[1]])
        populate_array(found, data=begin, shape=lengths, strides=strides, itemsize=item, meminfo=None)
        return found._getvalue()

    return generator(kind, emit)(buffer, types.intp, types.UniTuple(types.intp, len(shape)))
