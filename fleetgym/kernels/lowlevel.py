"""Extend Numba by what kernels need: borrowed arrays, records of packed arrays, eight numbers at a time, symbols.

All names of Numba and llvmlite that are not public are used in this file.

*Pointers.* To unpack a tuple of fifty arrays from Python takes longer than many a window does (22 us for sixty arrays).
So callers pack their arrays once. Kernels take the addresses as one array, and read the arrays by name. Arrays inside
kernels are `Borrowed`: Numba counts no references to them, since a caller owns them. Counting took a third of a step.

*Lanes.* The compiler turns loops into vector instructions only where they are long, and ours are short. A `Lanes`
value is a vector register. The usual operators work on it, number by number, rounding as they always do. Processors
with narrower registers use several. Places are indices into the flattened, C-contiguous array.

An intrinsic emits LLVM code: it gets the types of its arguments, and returns its result's type and the emitter.
"""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.binding
import llvmlite.ir as ir
import numba
import numba.extending
import numpy as np
from numba.core import cgutils, types
from numba.core.event import Listener, register
from numba.core.typing import signature
from numba.core.typing.templates import AttributeTemplate
from numba.extending import lower_builtin, lower_cast, models, register_model, type_callable

__all__ = ["Listener", "register"]

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


class Record(types.Type):
    """Numba's type of a named tuple of arrays: kernels hold the place of its packed pointers, and read them by name."""

    def __init__(self, kind: Any):
        self.fields: dict[str, tuple[int, Any]] = {}  # place of the first word, and type
        place = 0
        for name, part in zip(kind.fields, list(kind), strict=True):
            self.fields[name] = place, _record_type(part)
            place += _count_words(part)
        super().__init__(name=f"Record({kind})")


def _record_type(kind: Any) -> Any:
    """Return the type that kernels read a part of a packed value as."""
    return Record(kind) if isinstance(kind, types.BaseTuple) else borrowed_type(kind)


def _count_words(kind: Any) -> int:
    """Return how many words a packed value takes."""
    if isinstance(kind, types.BaseTuple):
        parts: Any = kind
        return sum(map(_count_words, parts))
    return 1 + int(kind.ndim)


@register_model(Record)
class _RecordModel(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(64).as_pointer())


@numba.extending.infer_getattr
class _RecordFields(AttributeTemplate):
    key = Record

    def generic_resolve(self, value: Any, attr: str) -> Any:  # type: ignore[override]
        return value.fields[attr][1] if attr in value.fields else None


@numba.extending.lower_getattr_generic(Record)
def _read_field(context: Any, builder: Any, record: Any, words: Any, name: str) -> Any:
    place, kind = record.fields[name]
    return _read(context, builder, kind, words, place)


def _read(context: Any, builder: Any, kind: Any, words: Any, place: int) -> Any:
    """Return what was packed from some place of the words on: a record, or an array."""
    first = cgutils.gep_inbounds(builder, words, place)
    if isinstance(kind, Record):
        return first
    numbers = []
    for k in range(1 + kind.ndim):
        number = builder.load(cgutils.gep_inbounds(builder, first, k))
        number.set_metadata("invariant.load", builder.module.add_metadata([]))  # nobody writes to words
        numbers.append(number)
    data = builder.inttoptr(numbers[0], context.get_data_type(kind.dtype).as_pointer())
    return array_at(context, builder, kind, data, numbers[1:])


class Packer:
    """Packs named tuples of arrays of one type, and lets kernels `unpack` them.

    Parameters
    ----------
    *example
        C-contiguous arrays, and named tuples of them, of the types that will be packed.

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
        parts = [_record_type(part) for part in list(self._kind)]
        kind = types.Tuple(parts)
        places = [sum(map(_count_words, list(self._kind)[:k])) for k in range(len(parts))]

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            words = data_of(context, builder, signature.args[0], arguments[0])
            values = [
                _read(context, builder, part, words, place) for part, place in zip(parts, places, strict=True)
            ]
            return context.make_tuple(builder, kind, values)

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


# --- lanes -------------------------------------------------------------------------------------------------

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


# --- symbols ------------------------------------------------------------------------------------------------


def call_by_symbol(function: Any, symbol: str, kind: Any) -> Any:
    """Return a function that kernels call by a symbol, which `name_address` defines.

    Parameters
    ----------
    function : callable
        What its arguments are called as.
    symbol : str
    kind
        Its signature.
    """

    def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        values = [context.get_value_type(argument) for argument in signature.args]
        shape = ir.FunctionType(context.get_value_type(signature.return_type), values)
        callee = builder.module.globals.get(symbol) or ir.Function(builder.module, shape, symbol)
        return builder.call(callee, arguments)

    def type_call(typing_context: Any, *arguments: Any) -> Any:
        return kind, emit

    names = ["typing_context", *inspect.signature(function).parameters]
    place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    type_call.__signature__ = inspect.Signature([inspect.Parameter(n, place) for n in names])  # type: ignore[attr-defined]
    type_call.__name__ = function.__name__
    return intrinsic(type_call)


def name_address(symbol: str, address: int) -> None:
    """Tell the linker where a function is."""
    llvmlite.binding.add_symbol(symbol, address)


def widen(dispatcher: Any) -> None:
    """Let calls with a constant take the code for all numbers, instead of compiling some for the constant."""
    template = dispatcher.get_call_template

    def get_call_template(args: Any, kws: Any) -> Any:
        wide = {name: types.unliteral(kind) for name, kind in kws.items()}
        return template(tuple(map(types.unliteral, args)), wide)

    dispatcher.get_call_template = get_call_template


def compiler() -> tuple[str, str, str]:
    """Return what compiled code depends on: versions of Numba and llvmlite, and the processor."""
    return numba.__version__, llvmlite.__version__, str(llvmlite.binding.get_host_cpu_name())
