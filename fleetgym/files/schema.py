"""Declare fields of the file formats: each kind reads and checks a JSON value, and describes itself as JSON Schema.

A dataclass declares its fields with `spec`; `read_object` turns a mapping into the dataclass and names the
JSON path of whatever is wrong; `object_schema` writes the published schema from the same declarations, and
`to_jsonable` is the way back.
"""

from __future__ import annotations

import dataclasses
import datetime
import inspect
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from fleetgym.files.errors import DataError, suggestion

T = TypeVar("T")
_REQUIRED = object()

#: Keys of mappings are names, which error messages repeat.
MAX_NAME_CHARS = 400


def spec(kind: Kind, default: Any = _REQUIRED, doc: str = "", *, sparse: bool = False) -> Any:
    """Declare a dataclass field by its kind.

    Parameters
    ----------
    kind : Kind
        Reads, checks and describes the value.
    default : object, optional
        Used where the key is absent; without it the key is required.
    doc : str
        One line for the published schema: meaning and unit.
    sparse : bool
        Leave the key out of files, and so out of hashes, where the value is the default.

    Returns
    -------
    dataclasses.Field
        To be assigned in the class body.
    """
    metadata = {"kind": kind, "doc": doc, "sparse": sparse}
    if default is _REQUIRED:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def shown(value: object) -> str:
    """Return a short form of a bad value for a message."""
    text = repr(value.item() if isinstance(value, np.generic) else value)
    return text if len(text) <= 40 else text[:37] + "..."


def checked_names(value: Any, path: str) -> dict[str, Any]:
    """Return a mapping whose keys are names, or raise `DataError`."""
    if not isinstance(value, Mapping):
        raise DataError(f"expected an object, got {shown(value)}", path)
    for name in value:
        if len(str(name)) > MAX_NAME_CHARS:
            raise DataError(f"expected keys of at most {MAX_NAME_CHARS} characters, got {shown(name)}", path)
    return {str(name): entry for name, entry in value.items()}


class Kind:
    """What a field may hold."""

    def read(self, value: Any, path: str) -> Any:
        """Return the checked value, or raise `DataError` with its path."""
        raise DataError(f"no reader for {type(self).__name__}", path)

    def words(self) -> str:
        """Return the bounds in words, or an empty text if the type has none."""
        return ""

    def json_schema(self) -> dict[str, Any]:
        """Return the JSON Schema of this kind."""
        return {}


#: The one way to write a number as text: ASCII digits, a point, an exponent.
_WHOLE = re.compile(r"[+-]?[0-9]{1,400}")
_DECIMAL = re.compile(r"[+-]?([0-9]{1,400}(\.[0-9]{0,400})?|\.[0-9]{1,400})([eE][+-]?[0-9]{1,5})?")


def from_text(text: str) -> int | float | str:
    """Return the number that a text writes, or the text where it writes none.

    Cells of CSV files and words of the command line are read by this alone: ASCII digits without separators.

    Examples
    --------
    >>> from_text("10"), from_text("-2.5e3"), from_text("1_0"), from_text("0x10"), from_text("nan"), from_text("1e999")
    (10, -2500.0, '1_0', '0x10', 'nan', '1e999')
    """
    if _WHOLE.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text) and math.isfinite(number := float(text)):
        return number
    return text


def _short(bound: float) -> str:
    """Return a bound as one writes it: 0.001, 1e9."""
    return re.sub(r"e([+-])0*", lambda e: "e" + e[1].strip("+"), f"{bound:g}")


@dataclasses.dataclass(frozen=True)
class Number(Kind):
    """A number within two bounds, which are finite, in a unit; see `fleetgym.files.quantities`.

    Examples
    --------
    >>> Number(1e-6, 1e7, "s").words()
    'from 1e-6 to 1e7 s'
    """

    minimum: float
    maximum: float
    unit: str = ""
    nullable: bool = False

    def read(self, value: Any, path: str) -> float | None:
        """Return the number as a float."""
        if value is None and self.nullable:
            return None
        is_number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        if not is_number or not self.minimum <= value <= self.maximum:
            raise DataError(f"expected a number {self.words()}, got {shown(value)}", path)
        return float(value)

    def parse(self, text: str, path: str = "$") -> float:
        """Return the number that a text writes; see `from_text`."""
        return float(self.or_null(False).read(from_text(text), path))  # type: ignore[arg-type]

    def or_null(self, nullable: bool = True) -> Number:
        """Return the same kind, where null stands for none."""
        return dataclasses.replace(self, nullable=nullable)

    def words(self) -> str:
        """Return the bounds."""
        return f"from {_short(self.minimum)} to {_short(self.maximum)} {self.unit}".rstrip()

    def json_schema(self) -> dict[str, Any]:
        """Return type and bounds."""
        number = ["number", "null"] if self.nullable else "number"
        return {"type": number, "minimum": self.minimum, "maximum": self.maximum}


@dataclasses.dataclass(frozen=True)
class Integer(Kind):
    """A whole number within bounds."""

    minimum: int = 0
    maximum: int = 10**9
    nullable: bool = False

    def read(self, value: Any, path: str) -> int | None:
        """Return the number as an int."""
        if value is None and self.nullable:
            return None
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        if not whole or not self.minimum <= value <= self.maximum:
            raise DataError(f"expected a whole number {self.words()}, got {shown(value)}", path)
        return int(value)

    def parse(self, text: str, path: str = "$") -> int:
        """Return the number that a text writes; see `from_text`."""
        return int(self.or_null(False).read(from_text(text), path))  # type: ignore[arg-type]

    def or_null(self, nullable: bool = True) -> Integer:
        """Return the same kind, where null stands for none."""
        return dataclasses.replace(self, nullable=nullable)

    def words(self) -> str:
        """Return the bounds."""
        return f"from {self.minimum} to {self.maximum}"

    def json_schema(self) -> dict[str, Any]:
        """Return type and bounds."""
        integer = ["integer", "null"] if self.nullable else "integer"
        return {"type": integer, "minimum": self.minimum, "maximum": self.maximum}


@dataclasses.dataclass(frozen=True)
class Text(Kind):
    """A string that matches a pattern."""

    pattern: str = r"^[^\x00-\x1f]{0,200}$"
    nullable: bool = False

    def read(self, value: Any, path: str) -> str | None:
        """Return the string."""
        if value is None and self.nullable:
            return None
        if not isinstance(value, str) or not re.fullmatch(self.pattern, value, re.ASCII):
            raise DataError(f"expected text that matches {self.pattern}, got {shown(value)}", path)
        return value

    def json_schema(self) -> dict[str, Any]:
        """Return type and pattern."""
        return {"type": ["string", "null"] if self.nullable else "string", "pattern": self.pattern}


#: Controls, surrogates, and marks that reorder or hide text.
_UNPRINTABLE = (
    "\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\uffff"
    "\U000e0000-\U000e0fff"
)


@dataclasses.dataclass(frozen=True)
class Line(Kind):
    """One line of printable text."""

    minimum: int = 0
    maximum: int = 200

    def read(self, value: Any, path: str) -> str:
        """Return the text."""
        if not isinstance(value, str) or not self.minimum <= len(value) <= self.maximum:
            raise DataError(
                f"expected text of {self.minimum} to {self.maximum} characters, got {shown(value)}", path
            )
        if bad := re.search(f"[{_UNPRINTABLE}]", value):
            raise DataError(f"expected one line of printable text, got {ascii(bad[0])} in it", path)
        return value

    def json_schema(self) -> dict[str, Any]:
        """Return type and lengths."""
        return {"type": "string", "minLength": self.minimum, "maxLength": self.maximum}


@dataclasses.dataclass(frozen=True)
class Day(Text):
    """A date, as in 2026-11-21."""

    pattern: str = r"\A\d{4}-\d{2}-\d{2}\Z"

    def read(self, value: Any, path: str) -> str | None:
        """Return the date as it is written."""
        text = super().read(value, path)
        try:
            return datetime.date.fromisoformat(str(text)).isoformat()
        except ValueError:
            raise DataError(f"there is no such day: {text}", path) from None


@dataclasses.dataclass(frozen=True)
class Choice(Kind):
    """One of a few words."""

    options: tuple[str, ...]

    def read(self, value: Any, path: str) -> str:
        """Return the word."""
        if not isinstance(value, str) or value not in self.options:
            raise DataError(f"expected {self.words()}; got {shown(value)}", path)
        return value

    def words(self) -> str:
        """Return the options."""
        return f"one of {', '.join(self.options)}"

    def json_schema(self) -> dict[str, Any]:
        """Return the enumeration."""
        return {"enum": list(self.options)}


@dataclasses.dataclass(frozen=True)
class Array(Kind):
    """Nested lists of numbers, read into a read-only float64 array (int64 or bool with `dtype`)."""

    dims: tuple[str, ...]
    item: Kind
    dtype: str = "float64"

    def read(self, value: Any, path: str) -> np.ndarray:
        """Return the array; its shape is checked later against the instance's counts."""
        array = self._fast(value)
        if array is None:
            self._explain(value, path, 0)
            array = self._fast(value)
        if array is None:
            raise DataError(f"expected nested lists of equal lengths, {self._form()}", path)
        array.setflags(write=False)
        return array

    def _form(self) -> str:
        return "one number per " + " and ".join(self.dims)

    def _fast(self, value: Any) -> np.ndarray | None:
        """Read a well-formed value at once; None means that something is wrong with it."""
        try:
            raw = np.array(value)
        except (ValueError, TypeError, OverflowError):
            return None
        if raw.ndim != len(self.dims) or raw.dtype.kind not in "iufb":
            return None
        if (raw.dtype.kind == "b") != (self.dtype == "bool") or (
            self.dtype == "int64" and raw.dtype.kind == "f"
        ):
            return None
        if self.dtype != "bool" and _holds_bool(value):
            return None
        array = raw.astype(self.dtype)
        if self.dtype != "bool" and array.size and not self._in_range(array):
            return None
        return np.ascontiguousarray(array)

    def _in_range(self, array: np.ndarray) -> bool:
        bounds: Any = self.item
        return bool(array.min() >= bounds.minimum and array.max() <= bounds.maximum)  # NaN is not

    def _explain(self, value: Any, path: str, depth: int) -> None:
        """Walk the lists and raise at the first wrong element."""
        if depth == len(self.dims):
            self.item.read(value, path)
            return
        if not isinstance(value, (list, tuple, np.ndarray)):
            raise DataError(f"expected a list ({self._form()}), got {shown(value)}", path)
        for k, element in enumerate(value):
            self._explain(element, f"{path}[{k}]", depth + 1)
            if depth + 1 < len(self.dims) and len(element) != len(value[0]):
                raise DataError(
                    f"expected {len(value[0])} numbers as in the first row, got {len(element)}",
                    f"{path}[{k}]",
                )

    def words(self) -> str:
        """Return the bounds of a number in it."""
        return self.item.words()

    def json_schema(self) -> dict[str, Any]:
        """Return nested array types."""
        schema = self.item.json_schema()
        for dim in reversed(self.dims):
            schema = {"type": "array", "items": schema, "description": f"one per {dim}"}
        return schema


def _holds_bool(value: Any) -> bool:
    """Whether nested lists hold true or false, which NumPy reads as numbers beside other numbers."""
    if isinstance(value, (list, tuple)):
        return bool in map(type, value) or any(map(_holds_bool, value))
    return False


@dataclasses.dataclass(frozen=True)
class Flag(Kind):
    """true or false."""

    def read(self, value: Any, path: str) -> bool:
        """Return the bool."""
        if not isinstance(value, (bool, np.bool_)):
            raise DataError(f"expected true or false, got {shown(value)}", path)
        return bool(value)

    def json_schema(self) -> dict[str, Any]:
        """Return the type."""
        return {"type": "boolean"}


@dataclasses.dataclass(frozen=True)
class Nested(Kind):
    """A dataclass of specs."""

    cls: type
    nullable: bool = False

    def read(self, value: Any, path: str) -> Any:
        """Return the dataclass; one that is made already is taken as it is."""
        if isinstance(value, self.cls) or (value is None and self.nullable):
            return value
        return read_object(self.cls, value, path)

    def json_schema(self) -> dict[str, Any]:
        """Return the object's schema."""
        schema = object_schema(self.cls)
        return {"anyOf": [schema, {"type": "null"}]} if self.nullable else schema


@dataclasses.dataclass(frozen=True)
class ListOf(Kind):
    """A list of one kind, read into a tuple."""

    item: Kind
    minimum: int = 0
    maximum: int = 100_000

    def read(self, value: Any, path: str) -> tuple[Any, ...]:
        """Return the tuple."""
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise DataError(f"expected a list, got {shown(value)}", path)
        if not self.minimum <= len(value) <= self.maximum:
            raise DataError(f"expected {self.minimum} to {self.maximum} entries, got {len(value)}", path)
        return tuple(self.item.read(element, f"{path}[{k}]") for k, element in enumerate(value))

    def json_schema(self) -> dict[str, Any]:
        """Return the array type."""
        return {
            "type": "array",
            "items": self.item.json_schema(),
            "minItems": self.minimum,
            "maxItems": self.maximum,
        }


@dataclasses.dataclass(frozen=True)
class MapOf(Kind):
    """Values of one kind by name."""

    item: Kind

    def read(self, value: Any, path: str) -> dict[str, Any]:
        """Return the mapping."""
        named = checked_names(value, path)
        if not named:
            raise DataError("expected an object with at least one entry", path)
        return {name: self.item.read(entry, f"{path}[{name!r}]") for name, entry in named.items()}

    def json_schema(self) -> dict[str, Any]:
        """Return the mapping's schema."""
        return {"type": "object", "additionalProperties": self.item.json_schema(), "minProperties": 1}


@dataclasses.dataclass(frozen=True)
class NumberMap(Kind):
    """Named numbers, or lists of numbers."""

    item: Number

    def read(self, value: Any, path: str) -> dict[str, Any]:
        """Return a mapping from name to a float or to a tuple of floats."""
        many = ListOf(self.item)
        return {
            name: (many if isinstance(entry, (list, tuple)) else self.item).read(entry, f"{path}.{name}")
            for name, entry in checked_names(value, path).items()
        }

    def json_schema(self) -> dict[str, Any]:
        """Return the mapping's schema."""
        number = self.item.json_schema()
        entry = {"anyOf": [number, {"type": "array", "items": number}]}
        return {"type": "object", "additionalProperties": entry}


@dataclasses.dataclass(frozen=True)
class TextMap(Kind):
    """Named texts."""

    def read(self, value: Any, path: str) -> dict[str, str]:
        """Return a mapping from name to text."""
        text = Text(r"[\s\S]*")
        return {
            name: str(text.read(entry, f"{path}.{name}"))
            for name, entry in checked_names(value, path).items()
        }

    def json_schema(self) -> dict[str, Any]:
        """Return the mapping's schema."""
        return {"type": "object", "additionalProperties": {"type": "string"}}


@dataclasses.dataclass(frozen=True)
class Opaque(Kind):
    """An object that another module knows how to read."""

    nullable: bool = False

    def read(self, value: Any, path: str) -> dict[str, Any] | None:
        """Return the object."""
        return None if value is None and self.nullable else checked_names(value, path)

    def json_schema(self) -> dict[str, Any]:
        """Return the type."""
        return {"type": ["object", "null"] if self.nullable else "object"}


#: Names of things: letters, digits and a few marks, so that they are safe in file names and tables.
ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.+x@:-]{0,79}$"
ID = Text(ID_PATTERN)
NAME = Line(1, 400)
SHA256 = Text(r"^[0-9a-f]{64}$")
DAY = Day()


def read_object(cls: type[T], data: Any, path: str = "$") -> T:
    """Read a mapping into a dataclass whose fields were declared with `spec`.

    Parameters
    ----------
    cls : type
        The dataclass.
    data : mapping
        Parsed JSON.
    path : str
        Where `data` stands in its file.

    Returns
    -------
    object
        An instance of `cls`.

    Raises
    ------
    DataError
        For a missing or unknown key or a wrong value, with its JSON path.
    """
    if not isinstance(data, Mapping):
        raise DataError(f"expected an object, got {shown(data)}", path)
    fields = {f.name: f for f in dataclasses.fields(cls) if "kind" in f.metadata}  # type: ignore[arg-type]
    if "format" in fields and "format" in data:  # of a file of another kind, no other key is worth a word
        fields["format"].metadata["kind"].read(data["format"], f"{path}.format")
    for key in data:
        if key not in fields:
            hint = suggestion(str(key), fields) if len(str(key)) <= MAX_NAME_CHARS else ""
            raise DataError(f"unknown key {shown(key)}{hint}", path)
    values = {}
    for name, field in fields.items():
        if name in data:
            values[name] = field.metadata["kind"].read(data[name], f"{path}.{name}")
        elif field.default is dataclasses.MISSING:
            raise DataError(f"missing key {name!r} ({field.metadata['doc'] or 'required'})", path)
    try:
        return cls(**values)
    except DataError as error:
        own, name, inside = error.path.partition(cls.__name__)  # what an object checks of itself
        raise error if own or not name else DataError(error.message, path + inside) from None


class Checked:
    """Base of dataclasses whose fields, declared with `spec`, are checked however an object is made.

    Examples
    --------
    >>> @dataclasses.dataclass(frozen=True)
    ... class Pool(Checked):
    ...     price: float = spec(Number(0, 1e6, "USD/h"), 1.5)
    >>> Pool(price=2)
    Pool(price=2.0)
    >>> Pool(price=-2)
    Traceback (most recent call last):
    ...
    fleetgym.files.errors.DataError: Pool.price: expected a number from 0 to 1e6 USD/h, got -2
    """

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            if kind := field.metadata.get("kind"):
                value = kind.read(getattr(self, field.name), f"{type(self).__name__}.{field.name}")
                object.__setattr__(self, field.name, value)


def object_schema(cls: type) -> dict[str, Any]:
    """Return the JSON Schema of a dataclass whose fields were declared with `spec`."""
    properties, required = {}, []
    for field in dataclasses.fields(cls):
        if "kind" not in field.metadata:
            continue
        schema = field.metadata["kind"].json_schema()
        if field.metadata["doc"]:
            schema = {**schema, "description": field.metadata["doc"]}
        properties[field.name] = schema
        if field.default is dataclasses.MISSING:
            required.append(field.name)
    return {
        "type": "object",
        "description": (cls.__doc__ or "").strip().split("\n")[0],
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


def documented(cls: type[T]) -> type[T]:
    """Put a "Parameters" section into the docstring of a dataclass whose fields were declared with `spec`.

    Examples
    --------
    >>> @documented
    ... @dataclasses.dataclass
    ... class Pool:
    ...     "What can be rented."
    ...     price: float = spec(Number(0, 1e6, "USD/h"), 1.5, doc="of an hour")
    >>> Pool.__doc__.splitlines()[-2:]
    ['price : float, from 0 to 1e6 USD/h, default 1.5', '    of an hour']
    """
    section = ["Parameters", "----------"]
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        if "kind" not in field.metadata:
            continue
        kind = field.metadata["kind"]
        is_array = isinstance(kind, Array)
        about = [f"ndarray of {kind.dtype}, per {' and '.join(kind.dims)}" if is_array else str(field.type)]
        about += [words] if (words := kind.words()) else []
        about += [] if field.default is dataclasses.MISSING else [f"default {field.default!r}"]
        section.append(f"{field.name} : {', '.join(about)}")
        section += [f"    {field.metadata['doc']}"] if field.metadata["doc"] else []
    text = inspect.cleandoc(cls.__doc__ or "")
    before, heading, after = text.partition("\n\nExamples\n")
    cls.__doc__ = "\n".join([before, "", *section]) + heading + after
    return cls


def to_jsonable(value: Any) -> Any:
    """Return `value` as plain lists, mappings and numbers, ready for `json.dumps`."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            f.name: to_jsonable(getattr(value, f.name))
            for f in dataclasses.fields(value)
            if "kind" in f.metadata and not (f.metadata["sparse"] and getattr(value, f.name) == f.default)
        }
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return [to_jsonable(element) for element in value]
    if isinstance(value, Mapping):
        return {str(key): to_jsonable(element) for key, element in value.items()}
    return value


def check_unique_ids(parts: Sequence[Any], path: str) -> None:
    """Raise `DataError` if two of the objects, which were read at `path`, have one `id`."""
    seen: dict[str, int] = {}
    for k, part in enumerate(parts):
        if part.id in seen:
            first = f"{path}[{seen[part.id]}]"
            raise DataError(f"duplicate id {part.id!r}, first used at {first}", f"{path}[{k}].id")
        seen[part.id] = k
