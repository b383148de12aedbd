"""Read the columns of a CSV, JSON Lines, JSON or Parquet file by name, in pieces whose rows know their place."""

from __future__ import annotations

import base64
import csv
import dataclasses
import io
import itertools
import json
import math
import os
import re
import tempfile
from collections.abc import Callable, Container, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, Protocol

import numpy as np

from fleetgym.capacity.traces.source import Block, Source, StrPath, blocks, fail, fault
from fleetgym.files.documents import check_characters, parse_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.schema import shown

_LOOKED_AT = 1000  # records whose names make the columns of a file without a header
_DEEPEST = 6

#: Objects of JSON, each with its place in the file.
Records = Iterator[tuple[int | str, dict[str, Any]]]


@dataclasses.dataclass(frozen=True)
class Piece:
    """Some rows of a table."""

    columns: dict[
        int, np.ndarray
    ]  # by number of the column: of numbers, or of objects, which from CSV are texts
    place: Callable[[int], int | str]  # of a row in the file: a line, or a path
    written: Callable[[int, int], Any] | None = (
        None  # an entry, by row and column, where columns are of numbers
    )

    def entry(self, row: int, column: int) -> Any:
        """Return an entry as the file has it, for messages."""
        return self.columns[column][row] if self.written is None else self.written(row, column)


class Table(Protocol):
    """A file whose columns have names."""

    names: tuple[str, ...]
    #: Where rows that are none stand, and why, if they are passed over; None: the first one is an error.
    passed_over: list[DataError] | None

    def pieces(self, wanted: Sequence[int], numeric: Container[int] = ()) -> Iterator[Piece]:
        """Yield the wanted columns, all rows in order; those that should be numeric may come as numbers."""
        ...


def open_table(
    path: StrPath, unpack_gib: float | None = None, *, expected: str = "", pass_over: bool = False
) -> Table:
    """Return the table that a file holds, whatever its ending says.

    `expected` says what the header of an empty file should have been. With `pass_over`, lines of CSV with another
    number of fields, and of JSON Lines that are no object, are passed over.

    Raises
    ------
    DataError
        For what is no table, by what it is.
    """
    source = Source(path, unpack_gib)
    passed_over: list[DataError] | None = [] if pass_over else None
    for magic, what in _MAGIC.items():
        if source.head.startswith(magic):
            fail(path, 1, f"not UTF-8 text (byte {source.head[0]:#04x}); {what}" if magic[0] > 127 else what)
    if source.head.startswith(b"PAR1"):
        return _Parquet(source)
    first = source.head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1]
    if first == b"<":
        fail(path, 1, "it looks like HTML or XML: export the table as CSV or JSON")
    if first in (b"{", b"["):
        return _json_table(source, passed_over)
    return _Csv(source, expected, passed_over)


class Files(os.PathLike[str]):
    """Several files of one trace; as a path it is their names in words."""

    def __init__(self, paths: Sequence[StrPath]):
        self.paths = tuple(paths)

    def __fspath__(self) -> str:
        more = len(self.paths) - 1
        return f"{os.fspath(self.paths[0])} and {more} more file{'s' * (more > 1)}"


def files(paths: Sequence[StrPath]) -> StrPath:
    """Return a single file as it is, and otherwise `Files`; a folder stands for what lies in it, by name.

    Raises
    ------
    DataError
        For an empty folder, or a file that is named twice.
    """
    found: list[StrPath] = []
    for path in paths:
        inside = (
            sorted(p for p in Path(path).iterdir() if not p.name.startswith("."))
            if os.path.isdir(path)
            else []
        )
        if os.path.isdir(path) and not inside:
            fail(path, "$", "the folder is empty; expected the files of a trace")
        found += inside or [path]
    real = [os.path.realpath(path) for path in found]
    for k, path in enumerate(real):
        if path in real[:k]:
            fail(found[k], "$", "the file is named twice, so its requests would count twice")
    return found[0] if len(found) == 1 else Files(found)


def open_tables(
    path: StrPath, unpack_gib: float | None = None, *, expected: str = "", pass_over: bool = False
) -> Table:
    """Return the table that a file or `Files` hold; see `open_table`."""
    if isinstance(path, Files):
        return _Several(path, unpack_gib, expected, pass_over)
    return open_table(path, unpack_gib, expected=expected, pass_over=pass_over)


class _Several:
    """The rows of several files, which have the same columns, one file after the other."""

    def __init__(self, files: Files, unpack_gib: float | None, expected: str, pass_over: bool):
        self._files, self._unpack_gib, self._expected = files, unpack_gib, expected
        self.passed_over: list[DataError] | None = [] if pass_over else None
        self.names = self._open(files.paths[0]).names

    def _open(self, path: StrPath) -> Table:
        is_passing = self.passed_over is not None
        return open_table(path, self._unpack_gib, expected=self._expected, pass_over=is_passing)

    def pieces(self, wanted: Sequence[int], numeric: Container[int] = ()) -> Iterator[Piece]:
        """Yield the wanted columns of each file."""
        for path in self._files.paths:
            table = self._open(path)
            if isinstance(table, _Records):
                table.names = self.names  # a field that no record has is empty
            lacking = [self.names[k] for k in wanted if self.names[k] not in table.names]
            if lacking:
                fail(path, 1, f"no column {lacking[0]!r}, as {os.fspath(self._files.paths[0])} has")
            at = {k: table.names.index(self.names[k]) for k in wanted}
            for piece in table.pieces(sorted(at.values()), {at[k] for k in wanted if k in numeric}):
                yield _of_file(piece, path, at)
            if self.passed_over is not None:
                self.passed_over += table.passed_over or []


def _of_file(piece: Piece, path: StrPath, at: dict[int, int]) -> Piece:
    """Return a piece with other numbers of columns, whose places name its file."""

    def place(row: int) -> str:
        found = piece.place(row)
        return f"{f'line {found}' if isinstance(found, int) else found} of {os.fspath(path)}"

    return Piece(
        {k: piece.columns[own] for k, own in at.items()}, place, lambda row, k: piece.entry(row, at[k])
    )


#: How files begin that hold no table that is read.
_MAGIC = {
    b"\x1f\x8b": "it looks like gzip: name it .gz",
    b"\x28\xb5\x2f\xfd": "it looks like Zstandard: name it .zst",
    b"BZh": "it looks like bzip2: name it .bz2",
    b"\xfd7zXZ": "it looks like xz: name it .xz",
    b"PK\x03\x04": "it looks like an Excel workbook or a zip file: save the table as CSV in UTF-8",
    b"\xff\xfe": "it looks like UTF-16: save it as UTF-8",
    b"\xfe\xff": "it looks like UTF-16: save it as UTF-8",
    b"\xd0\xcf\x11\xe0": "it is an old Excel workbook: save the table as CSV in UTF-8",
    b"%PDF": "it is a PDF: export the table as CSV",
    b"\x89HDF": "it is an HDF5 file: save the table as CSV or Parquet",
    b"\x93NUMPY": "it is a NumPy array: save the table as CSV or Parquet",
    b"\x80\x04": "it is a pickle, which is never loaded: save the table as CSV or Parquet",
    b"\x80\x05": "it is a pickle, which is never loaded: save the table as CSV or Parquet",
    b"SQLite format 3": "it is an SQLite database: export the table as CSV",
    b"ARROW1": "it is an Arrow file: save it as Parquet",
    b"Obj\x01": "it is an Avro file: save it as Parquet",
    b"ORC": "it is an ORC file: save it as Parquet",
}


def _decoded(path: StrPath, block: Block) -> str:
    try:
        return block.data.decode("utf-8-sig" if block.first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = block.first_line + block.data.count(b"\n", 0, error.start)
        fail(path, line, f"not UTF-8 text (byte {block.data[error.start]:#04x})")


# -- CSV


class _Csv:
    """Rows with a header, their fields separated by commas, semicolons, tabs or bars."""

    def __init__(self, source: Source, expected: str, passed_over: list[DataError] | None):
        self.path, self.passed_over = source.path, passed_over
        self._blocks = blocks(source, quotes=True)
        first = next(self._blocks, None)
        if first is None:
            fail(self.path, 1, f"the file is empty; {expected}".rstrip("; "))
        head, _, rest = _decoded(self.path, first).partition("\n")
        headers = {mark: tuple(_fields(head, mark)) for mark in _SEPARATORS}
        self.separator = max(headers, key=lambda mark: len(headers[mark]))  # of equals the first
        self.names = headers[self.separator]
        if rest:
            self._blocks = itertools.chain([Block(rest.encode(), 2)], self._blocks)

    def pieces(self, wanted: Sequence[int], numeric: Container[int] = ()) -> Iterator[Piece]:
        """Yield the wanted columns, all rows in order."""
        for block in self._blocks:
            yield self._piece(block, wanted, numeric)

    def _piece(self, block: Block, wanted: Sequence[int], numeric: Container[int]) -> Piece:
        text = _decoded(self.path, block)
        if '"' in text:
            return self._split_quoted(block, text, wanted)
        if self.separator != ",":
            data = _DECIMAL_COMMA.sub(r"\1.\2", text).encode()  # such files often write decimals with commas
            return self._split_plain(Block(data, block.first_line), wanted, numeric)
        if dates := _DATE_WITH_COMMA.search(text.partition("\n")[0]) and _DATE_WITH_COMMA.sub(r"\1 ", text):
            block = Block(dates.encode(), block.first_line)
        return self._split_plain(block, wanted, numeric)

    def _split_plain(self, block: Block, wanted: Sequence[int], numeric: Container[int]) -> Piece:
        """Split lines without quotes; a count of the separators comes first, so that every row has its line."""
        data = np.frombuffer(block.data, dtype=np.uint8)
        ends = np.append(np.flatnonzero(data == ord("\n")), len(data))
        marks = np.searchsorted(np.flatnonzero(data == ord(self.separator)), ends)
        widths, lengths = np.diff(marks, prepend=0) + 1, np.diff(ends, prepend=-1) - 1
        odd = np.flatnonzero(widths != len(self.names))
        if odd.size and self.passed_over is not None:
            return self._split_plain_but(block, odd, widths, lengths, wanted, numeric)
        if odd.size:
            raise self._odd_width(block.first_line + odd[0], widths[odd[0]], lengths[odd[0]])
        self._check_characters(block, data, ends)
        columns = self._parsed(block, wanted, {k: object for k in wanted if k not in numeric})
        if not all(map(_is_plain, columns.values())):
            columns = self._parsed(block, wanted, dict.fromkeys(wanted, object))

        def written(row: int, column: int) -> str:
            line = block.data.split(b"\n", row + 1)[row].removesuffix(b"\r")
            return line.decode().split(self.separator)[column]

        return Piece(columns, lambda row: block.first_line + row, written)

    def _split_plain_but(
        self,
        block: Block,
        odd: np.ndarray,
        widths: np.ndarray,
        lengths: np.ndarray,
        wanted: Sequence[int],
        numeric: Container[int],
    ) -> Piece:
        """Split the lines that are not odd; the others are passed over."""
        assert self.passed_over is not None
        lines = block.data.split(b"\n")
        self.passed_over += [
            self._odd_width(block.first_line + k, widths[k], lengths[k]) for k in odd if lines[k].strip()
        ]
        kept = np.setdiff1d(np.arange(len(widths)), odd)
        if not len(kept):
            return Piece({k: np.empty(0, dtype=object) for k in wanted}, lambda row: block.first_line + row)
        whole = Block(b"\n".join(lines[k] for k in kept), block.first_line)
        piece = self._split_plain(whole, wanted, numeric)
        return Piece(piece.columns, lambda row: int(block.first_line + kept[row]), piece.written)

    def _parsed(self, block: Block, wanted: Sequence[int], dtype: dict[int, Any]) -> dict[int, np.ndarray]:
        """Return columns of numbers where all entries are numbers and the type is left open, else of texts."""
        import pandas

        frame = pandas.read_csv(
            io.BytesIO(block.data),
            sep=self.separator,
            header=None,
            names=range(len(self.names)),
            usecols=sorted(wanted),
            dtype=dtype,
            na_filter=False,
            quoting=csv.QUOTE_NONE,
            skip_blank_lines=False,
            index_col=False,
            low_memory=False,
        )
        return {k: frame[k].to_numpy() for k in wanted}

    def _odd_width(self, line: int, width: int, length: int) -> DataError:
        found = "an empty line" if length <= 1 else str(width)
        return fault(self.path, int(line), f"expected {len(self.names)} fields as in the header, got {found}")

    def _check_characters(self, block: Block, data: np.ndarray, ends: np.ndarray) -> None:
        """Refuse NUL bytes and carriage returns within a line: they would shift rows against lines."""
        returns = np.flatnonzero(data == ord("\r"))
        after = np.append(data, ord("\n"))[returns + 1]
        bad = np.append(np.flatnonzero(data == 0), returns[after != ord("\n")])
        if bad.size:
            row = int(np.searchsorted(ends, bad.min()))
            fail(self.path, block.first_line + row, "a NUL byte or a carriage return within the line")

    def _split_quoted(self, block: Block, text: str, wanted: Sequence[int]) -> Piece:
        """Split by the rules of CSV; a quoted field may run over line breaks."""
        columns: dict[int, list[str]] = {k: [] for k in wanted}
        lines: list[int] = []
        reader = csv.reader(io.StringIO(text, newline=""), delimiter=self.separator, strict=True)
        while True:
            line = block.first_line + reader.line_num
            try:
                fields = next(reader)
            except StopIteration:
                break
            except (csv.Error, ValueError) as error:
                fail(self.path, line, f"not a row of CSV ({error})")
            if len(fields) != len(self.names):
                odd = self._odd_width(line, len(fields), sum(map(len, fields)))
                if self.passed_over is None:
                    raise odd
                self.passed_over.append(odd)
                continue
            if self.separator != ",":
                fields = [_DECIMAL_COMMA.sub(r"\1.\2", field) for field in fields]
            lines.append(line)
            for k, values in columns.items():
                values.append(fields[k])
        return Piece({k: np.array(values, dtype=object) for k, values in columns.items()}, lines.__getitem__)


def _is_plain(column: np.ndarray) -> bool:
    """Return whether a column is of texts, or of finite numbers: pandas also reads inf, and truth values."""
    return column.dtype.kind in "iuO" or (column.dtype.kind == "f" and bool(np.isfinite(column).all()))


#: A date of mail or HTTP, whose comma does not separate fields.
_DATE_WITH_COMMA = re.compile(r"\b(Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?=\d{1,2} [A-Z][a-z]{2} \d{4} )")


_DECIMAL_COMMA = re.compile(r"(?<![^;\t|\n])([+-]?\d+),(\d+)(?![^;\t|\r\n])")
_SEPARATORS = (",", ";", "\t", "|")


def _fields(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line.rstrip("\r")], delimiter=separator), [])
    except csv.Error:
        return []


# -- records


class _Records:
    """Records of JSON; the columns are the names in the first ones, dots being steps into nested objects."""

    def __init__(self, path: StrPath, records: Records, passed_over: list[DataError] | None = None):
        self._records, self.passed_over = records, passed_over
        self._seen = list(itertools.islice(records, _LOOKED_AT))
        if not self._seen:
            fail(path, 1, "there is no record in the file")
        names: dict[str, None] = {}
        for _, record in self._seen:
            names.update(dict.fromkeys(_flat_names(record)))
        self.names = tuple(names)

    def pieces(self, wanted: Sequence[int], numeric: Container[int] = ()) -> Iterator[Piece]:
        """Yield the wanted columns, all records in order."""
        steps = {k: self.names[k] for k in wanted}
        rows, places = {k: [] for k in wanted}, []  # type: dict[int, list[Any]], list[int | str]
        for place, record in itertools.chain(self._seen, self._records):
            places.append(place)
            for k, name in steps.items():
                rows[k].append(_value(record, name))
            if len(places) >= 100_000:
                yield _piece_of(rows, places)
                rows, places = {k: [] for k in wanted}, []
        yield _piece_of(rows, places)


def _piece_of(rows: dict[int, list[Any]], places: list[int | str]) -> Piece:
    return Piece({k: _array(values) for k, values in rows.items()}, places.__getitem__)


#: Lists within a record whose entries are the rows, the record's own fields being of all of them.
_INNER_LISTS = (("results",), ("requests", "successful"))


def _inner_rows(
    records: Records,
) -> Records:
    """Yield the rows of records that hold a list of them, as usage by the hour does; other records as they are."""
    for place, record in records:
        for steps in _INNER_LISTS:
            inner: Any = record
            for step in steps:
                inner = inner.get(step) if isinstance(inner, dict) else None
            if isinstance(inner, list) and all(isinstance(row, dict) for row in inner):
                shared = {name: value for name, value in record.items() if name != steps[0]}
                for k, row in enumerate(inner):
                    yield f"{place}.{'.'.join(steps)}[{k}]", {**shared, **row}
                break
        else:
            yield place, record


def _flat_names(record: dict[str, Any], depth: int = 0) -> Iterator[str]:
    for name, value in record.items():
        if isinstance(value, dict) and value and depth < _DEEPEST and name != "error":
            yield from (f"{name}.{inner}" for inner in _flat_names(value, depth + 1))
        else:
            yield name


def _value(record: Any, name: str) -> Any:
    """Return the value at a dotted name; a name may have dots of its own."""
    if not isinstance(record, dict):
        return None
    if name in record:
        return record[name]
    at = name.find(".")
    while at > 0:
        if name[:at] in record:
            return _value(record[name[:at]], name[at + 1 :])
        at = name.find(".", at + 1)
    return None


def _json_table(source: Source, passed_over: list[DataError] | None) -> Table:
    """Return the table of JSON Lines, or of one JSON document."""
    path = source.path
    line, newline, rest = source.first_block().removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")
    try:
        is_lines = isinstance(json.loads(line), dict) and bool(rest.strip())
    except (ValueError, RecursionError):
        is_lines = False
    if is_lines:
        first = json.loads(line)
        if isinstance(first.get("input_lens"), list):
            fail(path, 2, "a second bench result; give a file with one of them")
        lines = _json_lines(source, passed_over)
        records = _spans_of(lines) if "resourceSpans" in first else _opened(lines)
        return _Records(path, records, passed_over)
    data = source.everything()
    try:
        value = parse_json(data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        fail(path, 1, f"not UTF-8 text (byte {data[error.start]:#04x})")
    except DataError as error:
        if newline and line.lstrip()[:1] == b"{" and line.rstrip()[-1:] == b"}":
            fail(path, 1, f"not a line of JSON ({error.message})")
        raise error.in_file(path) from None
    return _document_table(path, value)


def _json_lines(source: Source, passed_over: list[DataError] | None) -> Records:
    for block in blocks(source):
        for number, line in enumerate(block.data.split(b"\n"), block.first_line):
            if not line.strip():
                continue
            try:
                record = _record(source.path, number, line)
            except DataError as error:
                if passed_over is None:
                    raise
                passed_over.append(error)
            else:
                yield number, record


def _record(path: StrPath, number: int, line: bytes) -> dict[str, Any]:
    try:
        text = line.decode("utf-8-sig" if number == 1 else "utf-8")
        record = json.loads(text)
        check_characters(text, record)
    except ValueError as error:
        fail(path, number, f"not a line of JSON ({error})")
    except RecursionError:
        fail(path, number, "not a line of JSON (nested too deeply)")
    except DataError as error:
        fail(path, number, error.message)
    if not isinstance(record, dict):
        fail(path, number, "expected an object of JSON in each line")
    return record


def _document_table(path: StrPath, value: Any) -> Table:
    """Return the records of a document: a list, a list or named records under one name, columns as lists, or spans."""
    if isinstance(value, dict) and "resourceSpans" in value:
        return _Records(path, _spans_of(iter([("$", value)])))
    if isinstance(value, dict) and str(value.get("format")).startswith("fleetgym-"):
        fail(path, "$.format", f"it is a file of the format {value['format']}; expected a table")
    if isinstance(value, dict) and isinstance(data := value.get("data"), dict) and "resultType" in data:
        return _Records(path, _series(path, data))
    if isinstance(value, dict):
        lists = {k: v for k, v in value.items() if isinstance(v, list) and v}
        records = {k: v for k, v in lists.items() if isinstance(v[0], dict)}
        if len(records) == 1:
            ((name, found),) = records.items()
            return _Records(path, _opened(_inner_rows(_listed(path, found, f"$.{name}"))))
        if not records and len(lists) > 1:
            return _columns_of_lists(path, value, lists)
        keyed = {k: v for k, v in value.items() if v and isinstance(v, dict)}
        if len(keyed) == 1 and all(isinstance(entry, dict) for entry in next(iter(keyed.values())).values()):
            ((name, under),) = keyed.items()
            return _Records(path, ((f"$.{name}.{key}", entry) for key, entry in under.items()))
        if list(value) == ["data"] and len(keyed) == 1:  # as GraphQL answers
            return _document_table(path, value["data"])
        held = ", ".join(repr(name) for name in value)
        fail(path, "$", f"expected one list of records, got the names {held[:200]}")
    if not isinstance(value, list):
        fail(path, "$", "expected a list of records")
    return _Records(path, _opened(_listed(path, value, "$")))


def _opened(records: Records) -> Records:
    """Yield records with objects in place of the texts that hold them, as logs of clouds and SageMaker's bodies do."""
    for place, wrapped in records:
        event = wrapped.get("event")  # as Dynamo's recorder wraps its rows
        record = event if isinstance(event, dict) and "schema" in event else wrapped
        for part in (record, *(value for value in record.values() if isinstance(value, dict))):
            for name, text in part.items():
                if isinstance(text, str) and text.startswith("{") and "oken" in text:
                    part[name] = _object(text)
        captured = record.get("captureData")
        for body in captured.values() if isinstance(captured, dict) else ():
            if isinstance(body, dict) and isinstance(body.get("data"), str):
                body["data"] = _object(body["data"], is_packed=body.get("encoding") == "BASE64")
        yield place, record


def _object(text: str, is_packed: bool = False) -> Any:
    """Return the JSON of a text; the text itself if it has none: then its tokens are not known."""
    try:
        return json.loads(base64.b64decode(text).decode() if is_packed else text)
    except (ValueError, RecursionError):
        return text


def _sample(path: StrPath, place: str, sample: Any) -> tuple[float, float]:
    """Return time and value of a sample of Prometheus; the value is a text there, such as "NaN"."""
    try:
        time, value = (float(number) for number in sample)
    except (TypeError, ValueError):
        fail(path, place, f'expected a time and a number, such as [1764288000, "12"], got {shown(sample)}')
    if math.isinf(value) or not math.isfinite(time):
        fail(path, place, f"expected finite numbers, got {shown(sample)}")
    return time, value


def _series(path: StrPath, data: dict[str, Any]) -> Records:
    """Return rows of what Prometheus answers to `query_range`: by time and model, a column for each metric.

    Series that differ in other labels are added up. A counter, whose name ends in ``_total``, counts by what it adds
    until the next sample. What a function such as ``increase`` extrapolates is rounded.
    """
    if data["resultType"] != "matrix" or not isinstance(data.get("result"), list):
        fail(path, "$.data.resultType", "expected a matrix, as query_range answers")
    rows: dict[tuple[float, str], dict[str, Any]] = {}
    for k, one in enumerate(data["result"]):
        metric = one.get("metric", {}) if isinstance(one, dict) else {}
        if "__name__" not in metric:
            why = "no name of a metric, which functions drop: which of the series are requests or tokens is not known."
            how = "Ask for the counters themselves (such as vllm:prompt_tokens_total): their increases are taken here"
            fail(path, f"$.data.result[{k}].metric", f"{why} {how}")
        if "le" in metric or "quantile" in metric:
            continue
        name, model = metric["__name__"], str(metric.get("model_name") or metric.get("model") or "")
        samples = [
            _sample(path, f"$.data.result[{k}].values[{n}]", s) for n, s in enumerate(one.get("values") or [])
        ]
        samples = [
            (time, value) for time, value in samples if not math.isnan(value)
        ]  # a series that was not there
        for time, value in _increases(samples) if name.endswith("_total") else samples:
            row = rows.setdefault((time, model), {"time": time, **({"model": model} if model else {})})
            row[name] = row.get(name, 0.0) + value
    for (time, model), row in sorted(rows.items()):
        yield (
            f"time {time} {model}".strip(),
            {n: round(v) if isinstance(v, float) and n != "time" else v for n, v in row.items()},
        )


def _increases(samples: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield what a counter adds from each sample to the next; one that falls was started again at zero.

    Examples
    --------
    >>> list(_increases([(0.0, 5.0), (60.0, 8.0), (120.0, 2.0)]))
    [(0.0, 3.0), (60.0, 2.0)]
    """
    for (time, before), (_, value) in itertools.pairwise(samples):
        yield time, value - before if value >= before else value


def _listed(path: StrPath, found: list[Any], at: str) -> Records:
    for k, record in enumerate(found):
        if not isinstance(record, dict):
            fail(path, f"{at}[{k}]", "expected an object, one per row")
        yield f"{at}[{k}]", record


def _columns_of_lists(path: StrPath, value: dict[str, Any], lists: dict[str, Any]) -> Table:
    """Return the records of a result that holds each column as a list; what is no list holds for all."""
    longest = max(len(v) for v in lists.values())
    columns = {k: v for k, v in lists.items() if len(v) == longest}
    same = {k: v for k, v in value.items() if isinstance(v, (str, int, float))}
    return _Records(
        path,
        (
            (f"$[{k}]", {**same, **{name: column[k] for name, column in columns.items()}})
            for k in range(longest)
        ),
    )


def _spans_of(
    exports: Records,
) -> Records:
    """Yield the spans of OTLP exports that call a model, their attributes as an object."""
    for place, export in exports:
        for r, resource in enumerate(export.get("resourceSpans", [])):
            for s, scope in enumerate(resource.get("scopeSpans", [])):
                for k, span in enumerate(scope.get("spans", [])):
                    attributes = {
                        a.get("key"): next(iter(a.get("value", {"": None}).values()), None)
                        for a in span.get("attributes", [])
                    }
                    if any(str(name).startswith(_CALLS) for name in attributes):
                        path = f"$.resourceSpans[{r}].scopeSpans[{s}].spans[{k}]"
                        yield place if isinstance(place, int) else path, {**span, "attributes": attributes}


_CALLS = ("gen_ai.usage.", "llm.token_count.")


# -- Parquet


class _Parquet:
    """A Parquet file, read group by group; needs pyarrow."""

    def __init__(self, source: Source):
        self.path = source.path
        self.passed_over: list[DataError] | None = None  # a file whose rows all have the same columns
        try:
            import pyarrow
            from pyarrow import parquet
        except ModuleNotFoundError:
            raise FleetgymError(
                f"{self.path} is a Parquet file: pip install 'fleetgym[traces]', or save it as CSV"
            ) from None
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - read by `pieces`; Parquet begins at its end
        for chunk in source.chunks():
            self._file.write(chunk)
        try:
            self._table = parquet.ParquetFile(self._file)
            self.names = tuple(self._table.schema_arrow.names)
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            self._broken(error)

    def _broken(self, error: Exception) -> NoReturn:
        fail(self.path, "$", f"a Parquet file that is broken or cut off ({str(error).splitlines()[0]})")

    def pieces(self, wanted: Sequence[int], numeric: Container[int] = ()) -> Iterator[Piece]:
        """Yield the wanted columns, all rows in order."""
        import pyarrow

        done, chosen = 0, [self.names[k] for k in wanted]
        try:
            for batch in self._table.iter_batches(batch_size=100_000, columns=chosen):
                columns = {k: _objects(batch.column(self.names[k])) for k in wanted}
                yield Piece(columns, lambda row, before=done: f"row {before + row + 1}")  # type: ignore[misc]
                done += batch.num_rows
        except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:
            self._broken(error)


def _objects(column: Any) -> np.ndarray:
    """Return a column's values; dates as texts of ISO 8601."""
    import pyarrow

    if pyarrow.types.is_timestamp(column.type) or pyarrow.types.is_date(column.type):
        column = column.cast(pyarrow.timestamp("ns", getattr(column.type, "tz", None)))
        stamps = np.array(column.cast("int64").to_numpy(zero_copy_only=False)).astype("datetime64[ns]")
        return np.where(np.isnat(stamps), "", np.datetime_as_string(stamps)).astype(object)
    return _array(column.to_pylist())


def _array(values: list[Any]) -> np.ndarray:
    """Return an array of objects, which may be lists."""
    found = np.empty(len(values), dtype=object)
    found[:] = values
    return found
