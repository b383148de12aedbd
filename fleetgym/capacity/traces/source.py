"""A text file in, plain or gzipped; blocks of whole lines out, each with its first line's number, in bounded memory."""

from __future__ import annotations

import dataclasses
import gzip
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from fleetgym.files.errors import DataError, FleetgymError

_BLOCK_BYTES = 4 * 2**20
_LONGEST_LINE = 2**20

#: What a file may unpack to if nothing else is asked for: a .gz so many times its size, but never more than the
#: second. Request traces compress 4 to 15 times.
UNPACK_RATIO, UNPACK_BYTES = 100, 8 * 2**30
_ALWAYS_ALLOWED = 16 * 2**20


@dataclasses.dataclass(frozen=True)
class Block:
    """Some whole lines of a file."""

    data: bytes  # without the line break after the last line
    first_line: int  # counted from 1


def fail(path: str | os.PathLike[str], line: int, message: str) -> NoReturn:
    """Raise the `DataError` of a line of a file."""
    raise DataError(message, f"line {line}", os.fspath(path))


def separator_hint(header: Sequence[str]) -> str:
    """Return what to say of a header that is a single field because something else than a comma separates.

    Examples
    --------
    >>> separator_hint(["gpu;usd_per_gpu_h"]), separator_hint(["gpu"])
    ("; the fields are separated by ';', expected commas", '')
    """
    other = next((mark for mark in (";", "\t", "|") if len(header) == 1 and mark in header[0]), None)
    return "" if other is None else f"; the fields are separated by {other!r}, expected commas"


def blocks(path: str | os.PathLike[str], unpack_gib: float | None = None) -> Iterator[Block]:
    """Yield the lines of a file in blocks of a few MiB.

    Parameters
    ----------
    path : path-like
        Unpacked on the way if its name ends in ``.gz``.
    unpack_gib : float, optional
        Most GiB that the file may hold when unpacked. By default 8 GiB, and for a ``.gz`` no more than 100
        times its size (16 MiB are always allowed).

    Yields
    ------
    Block
        Empty lines at the end of the file are left out.

    Raises
    ------
    DataError
        For a directory, a truncated or broken gzip file, one that unpacks to too much, a line of over 1 MiB.
    FleetgymError
        For a limit that is not above 0.
    """
    limit = _limit(path, unpack_gib)
    carry, line, unpacked = b"", 1, 0
    try:
        with _open(path) as stream:
            while chunk := _read(stream, path, line):
                unpacked += len(chunk)
                if unpacked > limit:
                    _too_large(path, line, limit)
                carry += chunk
                end = carry.rstrip(b"\r\n").rfind(b"\n") + 1
                if end:
                    yield Block(carry[: end - 1], line)
                    line += carry.count(b"\n", 0, end)
                    carry = carry[end:]
                elif len(carry) > _LONGEST_LINE:
                    fail(
                        path,
                        line,
                        f"longer than {_LONGEST_LINE // 2**20} MiB; expected a short row of a CSV file",
                    )
    except IsADirectoryError:
        raise DataError("a directory; expected a file", source=os.fspath(path)) from None
    if rest := carry.rstrip(b"\r\n"):
        yield Block(rest, line)


def _limit(path: str | os.PathLike[str], unpack_gib: float | None) -> float:
    if unpack_gib is not None:
        if not unpack_gib > 0.0:
            raise FleetgymError(
                f"expected a limit above 0 GiB for what a file unpacks to, got {unpack_gib:g}"
            )
        return unpack_gib * 2**30
    if not os.fspath(path).endswith(".gz"):
        return UNPACK_BYTES
    return min(UNPACK_BYTES, max(_ALWAYS_ALLOWED, UNPACK_RATIO * Path(path).stat().st_size))


def _open(path: str | os.PathLike[str]) -> Any:
    name = os.fspath(path)
    return gzip.open(name, "rb") if name.endswith(".gz") else open(name, "rb")


def _read(stream: Any, path: str | os.PathLike[str], line: int) -> bytes:
    try:
        return stream.read(_BLOCK_BYTES)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        fail(path, line, f"the gzip file is broken or truncated at or after this line ({error})")


def _too_large(path: str | os.PathLike[str], line: int, limit: float) -> NoReturn:
    fail(
        path,
        line,
        f"the file holds more than {limit / 2**30:.3g} GiB when unpacked, which is too much for its size or at all; "
        "if it is what it should be, raise the limit with --unpack-limit (unpack_gib)",
    )
