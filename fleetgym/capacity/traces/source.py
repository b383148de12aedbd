"""Unpack a file, and read it in blocks of whole lines that know the number of their first line."""

from __future__ import annotations

import bz2
import dataclasses
import gzip
import lzma
import os
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

import numpy as np

from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.quantities import MEMORY_GB

_BLOCK_BYTES = 4 * 2**20
_LONGEST_LINE = 2**20

#: What a file may unpack to if nothing else is asked for: a packed one so many times its size, but never more than
#: the second. Request traces compress 4 to 15 times.
UNPACK_RATIO, UNPACK_BYTES = 100, 8 * 2**30
_ALWAYS_ALLOWED = 16 * 2**20

#: A path, as text or an object.
StrPath = str | os.PathLike[str]

#: Endings of packed files.
PACKED = (".tar.gz", ".tgz", ".tar.zst", ".tar", ".gz", ".zst", ".bz2", ".xz", ".zip")


@dataclasses.dataclass(frozen=True)
class Block:
    """Some whole lines of a file."""

    data: bytes  # without the line break after the last line
    first_line: int  # counted from 1


def fault(path: StrPath, place: int | str, message: str) -> DataError:
    """Return the error of a line, or of another place, of a file."""
    return DataError(message, f"line {place}" if isinstance(place, int) else place, os.fspath(path))


def fail(path: StrPath, place: int | str, message: str) -> NoReturn:
    """Raise the error of a line, or of another place, of a file."""
    raise fault(path, place, message)


def separator_hint(header: Sequence[str]) -> str:
    """Return what to say of a header that is a single field because something else than a comma separates.

    Examples
    --------
    >>> separator_hint(["gpu;usd_per_gpu_h"]), separator_hint(["gpu"])
    ("; the fields are separated by ';', expected commas", '')
    """
    other = next((mark for mark in (";", "\t", "|") if len(header) == 1 and mark in header[0]), None)
    return "" if other is None else f"; the fields are separated by {other!r}, expected commas"


class Source:
    """The unpacked bytes of a file; an archive must hold one file.

    By default it may unpack to 8 GiB, and to no more than 100 times its packed size (16 MiB are always allowed).
    """

    def __init__(self, path: StrPath, unpack_gib: float | None = None):
        self.path, self.limit, self.unpacked, self.line = path, _limit(path, unpack_gib), 0, 1
        if os.path.isdir(path):  # of an empty path, `Path` takes the current folder
            raise DataError("a directory; expected a file", source=os.fspath(path))
        if os.path.exists(path) and not os.path.isfile(path) and os.fspath(path).lower().endswith(PACKED):
            fail(path, "$", "no regular file, as a packed trace must be")
        self.stream = self._guard(lambda: _open(path))
        self.head = self.read(16)  # what the file is, is told by how it begins
        self.start = self.head

    def _guard(self, action: Any) -> Any:
        try:
            return action()
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            fail(
                self.path,
                self.line,
                f"the gzip file is broken or truncated at or after this line ({error})",
            )
        except _broken_archive() as error:
            fail(self.path, self.line, f"the packed file is broken or truncated ({error})")
        except MemoryError:
            fail(self.path, self.line, "the packed file asks for more memory than there is; unpack it")
        except OSError as error:
            if error.filename is not None:
                raise
            fail(self.path, self.line, f"the packed file is broken or truncated ({error})")

    def read(self, size: int = _BLOCK_BYTES) -> bytes:
        """Return the next bytes; empty at the end."""
        chunk: bytes = self._guard(lambda: self.stream.read(size))
        self.unpacked += len(chunk)
        if self.unpacked > self.limit:
            fail(
                self.path,
                self.line,
                f"the file holds more than {self.limit / 2**30:.3g} GiB when unpacked, which is too much for its "
                "size or at all; if it is what it should be, raise the limit with --unpack-limit (unpack_gib)",
            )
        return chunk

    def chunks(self) -> Iterator[bytes]:
        """Yield all bytes from the first on, once."""
        chunk, self.start = self.start + self.read(max(1, _BLOCK_BYTES - len(self.start))), b""
        while chunk:
            yield chunk
            chunk = self.read()

    def first_block(self) -> bytes:
        """Return the first few MiB; they will be read again."""
        self.start += self.read(max(1, _BLOCK_BYTES - len(self.start)))
        return self.start

    def everything(self) -> bytes:
        """Return all bytes."""
        return b"".join(self.chunks())

    def close(self) -> None:
        """Close the file."""
        self.stream.close()


def blocks(source: Source, *, quotes: bool = False) -> Iterator[Block]:
    """Yield the lines of a file in blocks of a few MiB, without empty lines at the end of the file.

    With `quotes`, a record of CSV stays whole where quoted fields run over line breaks. Lines and records of over 1 MiB
    are refused.
    """
    carry = b""
    for chunk in source.chunks():
        carry += chunk
        end = _whole_lines(carry, quotes)
        if end:
            yield Block(carry[: end - 1], source.line)
            source.line += carry.count(b"\n", 0, end)
            carry = carry[end:]
        elif len(carry) > _LONGEST_LINE:
            what = ", or a quote that is left open" if quotes and b'"' in carry else ""
            fail(
                source.path,
                source.line,
                f"longer than {_LONGEST_LINE // 2**20} MiB{what}; expected a short row of a CSV file",
            )
    if rest := carry.rstrip(b"\r\n"):
        yield Block(rest, source.line)


def _whole_lines(data: bytes, quotes: bool) -> int:
    """Return where the last line ends that is not blank, and not inside a quoted field."""
    end = data.rstrip(b"\r\n").rfind(b"\n") + 1
    if not quotes or b'"' not in data:
        return end
    characters = np.frombuffer(data[:end], dtype=np.uint8)
    breaks = np.flatnonzero(characters == ord("\n"))
    before = np.searchsorted(np.flatnonzero(characters == ord('"')), breaks)
    outside = breaks[before % 2 == 0]
    return int(outside[-1]) + 1 if outside.size else 0


def _limit(path: StrPath, unpack_gib: float | None) -> float:
    if unpack_gib is not None:
        return float(MEMORY_GB.read(unpack_gib, "unpack_gib") or 0.0) * 2**30
    if not os.fspath(path).lower().endswith(PACKED):
        return UNPACK_BYTES
    return min(UNPACK_BYTES, max(_ALWAYS_ALLOWED, UNPACK_RATIO * Path(path).stat().st_size))


def _open(path: StrPath) -> IO[bytes]:
    name = os.fspath(path)
    lower = name.lower()
    if lower.endswith(".zip"):
        return _only_file(path)
    if lower.endswith((".tar", ".tar.gz", ".tgz", ".tar.zst")):
        packed: Any = _zstandard(name) if lower.endswith(".zst") else open(name, "rb")  # noqa: SIM115
        try:
            archive = tarfile.open(fileobj=packed, mode="r|" if lower.endswith(".zst") else "r|*")  # noqa: SIM115
        except TypeError:  # of a header of gzip that is cut off
            raise tarfile.ReadError("unexpected end of data") from None
        return _first_file(path, archive)
    opened: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open, ".zst": _zstandard}
    return next((call(name) for ending, call in opened.items() if lower.endswith(ending)), None) or open(
        name, "rb"
    )


def _zstandard(name: str) -> Any:
    try:
        import zstandard
    except ModuleNotFoundError:
        raise FleetgymError(
            f"{name} is packed with Zstandard: pip install 'fleetgym[traces]', or unpack it"
        ) from None
    return zstandard.open(name, "rb")


def _broken_archive() -> tuple[type[Exception], ...]:
    """Return what broken archives raise; that of .zst only where one can have been opened."""
    zstandard = sys.modules.get("zstandard")
    found = (tarfile.TarError, zipfile.BadZipFile, lzma.LZMAError)
    return found if zstandard is None else (*found, zstandard.ZstdError)


def _only_file(path: StrPath) -> IO[bytes]:
    """Return the one file of a .zip."""
    try:
        archive = zipfile.ZipFile(path)
        files = [info for info in archive.infolist() if not info.filename.endswith("/")]
        if len(files) != 1:
            message = f"the archive holds {len(files)} files; expected one: unpack it, and give the trace"
            fail(path, "$", message)
        if files[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2):
            fail(path, "$", "the archive is packed by an unusual method; unpack it, and give the trace")
        return archive.open(files[0])
    except RuntimeError as error:  # encrypted, or a feature that Python's reader lacks
        fail(path, "$", f"the archive cannot be read ({error}); unpack it, and give the trace")


def _first_file(path: StrPath, archive: tarfile.TarFile) -> IO[bytes]:
    """Return the one file of an archive, which is read from its start to its end."""
    member = archive.next()
    while member is not None and not member.isfile():
        member = archive.next()
    stream = None if member is None else archive.extractfile(member)
    if stream is None:
        fail(path, "$", "the archive holds no file; expected one")
    return _OneMember(path, archive, stream)  # type: ignore[return-value]


class _OneMember:
    """The first file of an archive; raises at its end if there is another."""

    def __init__(self, path: StrPath, archive: tarfile.TarFile, stream: IO[bytes]):
        self.path, self.archive, self.stream = path, archive, stream

    def read(self, size: int) -> bytes:
        found = self.stream.read(size)
        if not found:
            while (more := self.archive.next()) is not None:
                if more.isfile():
                    fail(
                        self.path,
                        "$",
                        f"the archive holds a second file, {more.name!r}; expected one: unpack it, and give the "
                        "trace",
                    )
        return found

    def close(self) -> None:
        self.archive.close()
