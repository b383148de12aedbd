"""Scattered columns, eight at a time: arrays and places in, `Lanes` and tables out, beside what `lanes` has."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba.core import types
from numba.np.arrayobj import populate_array

from fleetgym.kernels.lanes import (
    _BYTE,
    _DOUBLE,
    _INT,
    _MASK,
    _VECTOR,
    WIDTH,
    _declare,
    _first_bits,
    _generator,
    _instruction,
    _lanes,
    _pointer,
    _spread,
)

_PLACES, _BYTES = ir.VectorType(_INT, WIDTH), ir.VectorType(_BYTE, WIDTH)


def _masked_load(context: Any, builder: Any, kind: Any, arguments: Any, vector: Any, name: str) -> Any:
    """Load the first numbers of a vector, given an array, a place and their number; zeros stand for the others."""
    pointer = _pointer(context, builder, kind, arguments, vector)
    kinds = [pointer.type, ir.IntType(32), _MASK, vector]
    function = _declare(builder, f"llvm.masked.load.{name}.p0", vector, kinds)
    zeros = ir.Constant(vector, [0] * WIDTH)
    mask = _first_bits(builder, arguments[2])
    return builder.call(function, [pointer, ir.Constant(ir.IntType(32), 8), mask, zeros])


@_instruction
def gather(typing_context, array, place, columns, first, count):
    """Return the numbers of an array at `place` + columns[first], and of the `count` - 1 columns that follow."""

    def emit(context, builder, signature, arguments):
        kind, picked = signature.args[0], [*arguments[2:5]]
        places = _masked_load(context, builder, signature.args[2], picked, _PLACES, "v8i64")
        data = context.make_array(kind)(context, builder, arguments[0]).data
        begin = builder.ptrtoint(builder.gep(data, [arguments[1]]), _INT)
        bytes_ = builder.shl(places, ir.Constant(_PLACES, [3] * WIDTH))
        pointers = builder.inttoptr(
            builder.add(bytes_, _spread(builder, begin, _PLACES)), ir.VectorType(_DOUBLE.as_pointer(), WIDTH)
        )
        kinds = [pointers.type, ir.IntType(32), _MASK, _VECTOR]
        function = _declare(builder, "llvm.masked.gather.v8f64.v8p0", _VECTOR, kinds)
        mask, zeros = _first_bits(builder, arguments[4]), ir.Constant(_VECTOR, [0.0] * WIDTH)
        return builder.call(function, [pointers, ir.Constant(ir.IntType(32), 8), mask, zeros])

    return _generator(_lanes, emit)(array, types.intp, columns, types.intp, types.intp)


@_instruction
def quotient(typing_context, left, right):
    """Return left / right."""

    def emit(context, builder, signature, arguments):
        return builder.fdiv(*arguments)

    return _generator(_lanes, emit)(left, right)


@_instruction
def store_places(typing_context, array, place, bits, first):
    """Write `first` plus the places of the bits that are set, one behind the other, to an array of whole numbers."""

    def emit(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.gep(data, [arguments[1]])
        steps = ir.Constant(_PLACES, list(range(WIDTH)))
        places = builder.add(steps, _spread(builder, arguments[3], _PLACES))
        kinds = [_PLACES, pointer.type, _MASK]
        function = _declare(builder, "llvm.masked.compressstore.v8i64", ir.VoidType(), kinds)
        mask = builder.bitcast(builder.trunc(arguments[2], _BYTE), _MASK)
        builder.call(function, [places, pointer, mask])
        return context.get_dummy_value()

    return _generator(types.none, emit)(array, types.intp, types.int64, types.intp)


@_instruction
def how_many(typing_context, bits):
    """Return how many bits are set."""

    def emit(context, builder, signature, arguments):
        return builder.call(_declare(builder, "llvm.ctpop.i64", _INT, [_INT]), arguments)

    return _generator(types.int64, emit)(types.int64)


@_instruction
def store_bits(typing_context, array, place, bits, count):
    """Write the first `count` of eight bits to an array of bytes."""

    def emit(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], arguments, _BYTES)
        kinds = [_BYTES, pointer.type, ir.IntType(32), _MASK]
        function = _declare(builder, "llvm.masked.store.v8i8.p0", ir.VoidType(), kinds)
        bytes_ = builder.zext(builder.bitcast(builder.trunc(arguments[2], _BYTE), _MASK), _BYTES)
        mask = _first_bits(builder, arguments[3])
        builder.call(function, [bytes_, pointer, ir.Constant(ir.IntType(32), 1), mask])
        return context.get_dummy_value()

    return _generator(types.none, emit)(array, types.intp, types.int64, types.intp)


@_instruction
def table(typing_context, buffer, first, shape):
    """Return a C-contiguous table of some shape that lies in a buffer from the place `first` on."""
    kind = types.Array(buffer.dtype, len(shape), "C")

    def emit(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        found = context.make_array(kind)(context, builder)
        lengths = [builder.extract_value(arguments[2], k) for k in range(len(shape))]
        size = context.get_abi_sizeof(context.get_data_type(kind.dtype))
        item = ir.Constant(_INT, size)
        step, strides = item, list[Any]()
        for length in reversed(lengths):
            strides.insert(0, step)
            step = builder.mul(step, length)
        begin = builder.gep(data, [arguments[1]])
        populate_array(found, data=begin, shape=lengths, strides=strides, itemsize=item, meminfo=None)
        return found._getvalue()

    return _generator(kind, emit)(buffer, types.intp, types.UniTuple(types.intp, len(shape)))
