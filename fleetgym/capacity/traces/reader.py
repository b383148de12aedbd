"""A trace of requests as CSV in, checked rows out: arrival in nanoseconds, input and output tokens, label.

Two layouts are told apart by the header alone: the Azure LLM inference trace, ``TIMESTAMP,ContextTokens,
GeneratedTokens``, and any CSV with a column for each of time, input tokens, output tokens and, optionally, a label;
`fleetgym.capacity.traces.header.COLUMN_NAMES` lists what they may be called. Rows are parsed in blocks and spooled
as 18 bytes each, so memory stays bounded however long the trace is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator

import numpy as np

from fleetgym.capacity.traces.header import expected_header, is_clock, read_header
from fleetgym.capacity.traces.rows import ROW, Parser
from fleetgym.capacity.traces.source import Block, blocks, fail
from fleetgym.files.errors import DataError

_SPOOL_BYTES = 256 * 2**20
_CHUNK_ROWS = 2**20


class Trace:
    """The rows of a trace, checked and spooled.

    Attributes
    ----------
    num_rows : int
        Requests.
    num_left_out : int
        Rows that are not among them, see `leave_out_longer`.
    first_ns, last_ns : int
        Earliest and latest arrival, nanoseconds since 1970, or since the trace's zero.
    labels : tuple of str
        Names of the codes in the column ``label``; empty where the file has no such column.
    label_name : str or None
        How the file calls the column.
    is_clock : bool
        Whether arrivals are dates; otherwise seconds, whose zero is taken as midnight.
    """

    def __init__(self) -> None:
        self._spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 - closed in __exit__
        self.num_rows = self.num_left_out = 0
        self._longest: int | None = None
        self.first_ns, self.last_ns = 2**62, -(2**62)
        self.labels: tuple[str, ...] = ()
        self.label_name: str | None = None
        self.is_clock = True

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *error: object) -> None:
        self._spool.close()

    def append(self, rows: np.ndarray) -> None:
        """Add rows of dtype `ROW`."""
        self._spool.write(rows.tobytes())
        self.num_rows += len(rows)
        self.first_ns = min(self.first_ns, int(rows["time_ns"].min()))
        self.last_ns = max(self.last_ns, int(rows["time_ns"].max()))

    def chunks(self) -> Iterator[np.ndarray]:
        """Yield all rows from the first on, at most about a million at a time."""
        self._spool.seek(0)
        while data := self._spool.read(_CHUNK_ROWS * ROW.itemsize):
            rows = np.frombuffer(data, dtype=ROW)
            yield rows if self._longest is None else rows[_tokens(rows) <= self._longest]

    def leave_out_longer(self, tokens: int) -> None:
        """Leave out, once, the requests with more tokens than this, input and output together."""
        self.num_left_out = sum(int((_tokens(rows) > tokens).sum()) for rows in self.chunks())
        self.num_rows -= self.num_left_out
        self._longest = tokens

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last arrival."""
        return (self.last_ns - self.first_ns) / 1e9


def _tokens(rows: np.ndarray) -> np.ndarray:
    return rows["input"].astype(np.int64) + rows["output"]


def read_trace(
    path: str | os.PathLike[str], *, any_order: bool = False, unpack_gib: float | None = None
) -> Trace:
    """Read and check a whole trace.

    Parameters
    ----------
    path : path-like
        CSV, or CSV in gzip if the name ends in ``.gz``.
    any_order : bool
        Accept rows that are not in order of time.
    unpack_gib : float, optional
        Most GiB that the file may unpack to, see `fleetgym.capacity.traces.source.blocks`.

    Returns
    -------
    Trace

    Raises
    ------
    DataError
        With file and line of the first thing that is wrong.
    """
    trace, layout, last_ns = Trace(), None, -(2**62)
    codes: dict[str, int] = {}
    for block in blocks(path, unpack_gib):
        text = _decoded(path, block)
        if layout is None:
            head, _, text = text.partition("\n")
            layout = read_header(path, head)
            block = Block(text.encode(), block.first_line + 1)
        if not text:
            continue
        if trace.num_rows == 0:
            trace.is_clock = is_clock(text, layout.time)
        rows = Parser(path, layout, trace.is_clock, block, text).rows(codes)
        if not any_order:
            last_ns = _check_order(path, block.first_line, rows["time_ns"], last_ns)
        trace.append(rows)
    if layout is None:
        raise DataError("the file is empty; " + expected_header(), "line 1", os.fspath(path))
    if trace.num_rows == 0:
        raise DataError("there is no request after the header", "line 2", os.fspath(path))
    trace.labels = tuple(codes) if layout.label is not None else ()
    trace.label_name = layout.label_name
    return trace


def _decoded(path: str | os.PathLike[str], block: Block) -> str:
    try:
        return block.data.decode("utf-8-sig" if block.first_line == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = block.first_line + block.data.count(b"\n", 0, error.start)
        hint = next((f"; {what}" for magic, what in _MAGIC.items() if block.data.startswith(magic)), "")
        fail(path, line, f"not UTF-8 text (byte {block.data[error.start]:#04x}){hint}")


#: How files begin that are taken for CSV.
_MAGIC = {
    b"\x1f\x8b": "it looks like gzip: name it .gz",
    b"PK\x03\x04": "it looks like an Excel workbook or a zip file: save the table as CSV in UTF-8",
    b"\xff\xfe": "it looks like UTF-16: save it as UTF-8",
    b"\xfe\xff": "it looks like UTF-16: save it as UTF-8",
}


def _check_order(path: str | os.PathLike[str], line: int, time_ns: np.ndarray, before: int) -> int:
    """Return the last arrival; raise where one is earlier than the one before."""
    earlier = np.flatnonzero(np.diff(time_ns, prepend=before) < 0)
    if earlier.size:
        fail(
            path,
            line + int(earlier[0]),
            "earlier than the row before; sort the trace by time, or accept any order with --unsorted (any_order)",
        )
    return int(time_ns[-1])
