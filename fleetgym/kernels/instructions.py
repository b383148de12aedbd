"""How kernels get instructions of their own: what emits LLVM code in, a function that kernels call out.

`lanes` and `columns` hold the instructions; here is what they are made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.extending import intrinsic, models, register_model

#: How many numbers a `Lanes` holds.
WIDTH = 8

DOUBLE, INT, BYTE, BIT = ir.DoubleType(), ir.IntType(64), ir.IntType(8), ir.IntType(1)
VECTOR, MASK = ir.VectorType(DOUBLE, WIDTH), ir.VectorType(BIT, WIDTH)

#: Decorator that lets kernels call what a function emits.
instruction: Any = intrinsic


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
    data = context.make_array(kind)(context, builder, arguments[0]).data
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
