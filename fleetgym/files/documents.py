"""Read and write JSON files: bounded in size, strict about what JSON is, written whole or not at all."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import gzip
import hashlib
import io
import json
import os
import re
import secrets
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from fleetgym.files.errors import DataError, FleetgymError

#: A file that is, or unpacks to, more than this is refused before it is parsed.
MAX_FILE_BYTES = 256 * 2**20


@dataclasses.dataclass(frozen=True)
class StoredFile(os.PathLike[str]):
    """A file that was read once: the hash and the parsed data are of the same bytes, even if the file changes.

    It stands for its path wherever `read_text` and what builds on it take one. Two are equal if path and checksum are.
    """

    path: str
    sha256: str
    data: bytes = dataclasses.field(repr=False, compare=False)

    def __fspath__(self) -> str:
        """Return the path."""
        return self.path

    def __str__(self) -> str:
        """Return the path, as messages name it."""
        return self.path


def stored_file(path: str | os.PathLike[str], limit: int = MAX_FILE_BYTES) -> StoredFile:
    """Read a file once, and hash what was read.

    Parameters
    ----------
    path : path-like
        The file; a gzipped one stays packed.
    limit : int
        Most bytes it may hold.

    Returns
    -------
    StoredFile

    Raises
    ------
    DataError
        If the file is larger, or no file.
    """
    with open_file(path) as stream:
        data = read_at_most(stream, limit)
    if len(data) > limit:
        raise DataError(f"larger than {limit // 2**20} MiB", source=str(path))
    return StoredFile(os.fspath(path), hashlib.sha256(data).hexdigest(), data)


def open_file(path: str | os.PathLike[str]) -> io.BufferedReader:
    """Open a file to read its bytes, without waiting for a pipe that has no data.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    binary file

    Raises
    ------
    DataError
        If it is something else than a file.
    OSError
        If it cannot be opened.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return os.fdopen(handle, "rb")
    os.close(handle)
    what = "a directory" if stat.S_ISDIR(kind) else "a pipe or a device"
    raise DataError(f"{what}; expected a file", source=str(path))


def read_text(path: str | os.PathLike[str], limit: int = MAX_FILE_BYTES) -> str:
    """Return the text of a UTF-8 file, unpacked if its name ends in ``.gz``.

    Parameters
    ----------
    path : path-like
        The file; of a `StoredFile` the bytes that it holds.
    limit : int
        Most bytes it may hold when unpacked.

    Returns
    -------
    str
        The whole text.

    Raises
    ------
    DataError
        With the file's name, if it is no file, too large, truncated, not gzip or not UTF-8.
    """
    try:
        with _unpacked(path) as stream:
            data = read_at_most(stream, limit)
        if len(data) > limit:
            raise DataError(f"larger than {limit // 2**20} MiB when unpacked")
        return as_text(data)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"not a complete gzip file ({error})", source=str(path)) from None
    except DataError as error:
        raise error.in_file(path) from None


def as_text(data: bytes) -> str:
    """Return UTF-8 bytes as text; raise `DataError` for others."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text (byte {error.start})") from None


_BLOCK_BYTES = 2**20


def read_at_most(stream: IO[bytes], limit: int) -> bytes:
    """Return the rest of a stream, or its first `limit` + 1 bytes, in memory of the size of the data.

    Examples
    --------
    >>> import io
    >>> read_at_most(io.BytesIO(b"abcdef"), 3), read_at_most(io.BytesIO(b"ab"), 3)
    (b'abcd', b'ab')
    """
    blocks, left = [], limit + 1
    while left > 0 and (block := stream.read(min(left, _BLOCK_BYTES))):
        blocks.append(block)
        left -= len(block)
    return b"".join(blocks)


@contextlib.contextmanager
def _unpacked(path: str | os.PathLike[str]) -> Iterator[Any]:
    with io.BytesIO(path.data) if isinstance(path, StoredFile) else open_file(path) as stream:
        if not os.fspath(path).endswith(".gz"):
            yield stream
            return
        with gzip.open(stream, "rb") as unpacked:
            yield unpacked


def parse_json(text: str) -> Any:
    """Parse strict JSON: NaN, Infinity, duplicate keys and deep nesting are errors.

    Parameters
    ----------
    text : str
        The document.

    Returns
    -------
    object
        Plain lists, mappings, strings and numbers.

    Raises
    ------
    DataError
        Where the document is not JSON, with line and column.

    Examples
    --------
    >>> parse_json('{"a": [1, 2.5]}')
    {'a': [1, 2.5]}
    """
    try:
        value = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise DataError(f"not JSON: {error.msg} at {where}") from None
    except RecursionError:
        raise DataError("nested too deeply") from None
    except ValueError as error:  # an integer of thousands of digits
        raise DataError(f"not JSON: {error}") from None
    check_characters(text, value)
    return value


_HALF = re.compile(r"\\u[dD][89a-fA-F]")


def check_characters(text: str, value: Any) -> None:
    r"""Raise `DataError` if JSON escapes half of a surrogate pair, which is no character and cannot be written again.

    Parameters
    ----------
    text : str
        The document.
    value : object
        What it holds.

    Examples
    --------
    >>> check_characters(r'"\ud83d\ude00"', "\U0001f600")
    >>> check_characters(r'"\ud800"', "\ud800")
    Traceback (most recent call last):
    fleetgym.files.errors.DataError: $: not JSON: half of a surrogate pair; expected whole characters
    """
    if _HALF.search(text):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise DataError("not JSON: half of a surrogate pair; expected whole characters") from None


def _refuse_constant(name: str) -> float:
    raise DataError(f"{name} is not a number in JSON; expected a finite number")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        [(twice, _)] = collections.Counter(key for key, _ in pairs).most_common(1)
        raise DataError(f"the key {twice[:40]!r} appears twice in one object")
    return found


def read_json(path: str | os.PathLike[str]) -> Any:
    """Read a strict JSON document from a file, which may be gzipped.

    Parameters
    ----------
    path : path-like
        The file.

    Returns
    -------
    object
        Plain lists, mappings, strings and numbers.

    Raises
    ------
    DataError
        With the file's name, if it does not hold one.
    """
    text = read_text(path)
    try:
        return parse_json(text)
    except DataError as error:
        raise error.in_file(path) from None


def canonical_json(data: Any) -> str:
    """Return the one JSON text that stands for `data`: sorted keys, no spaces, shortest floats.

    Examples
    --------
    >>> canonical_json({"b": 1.0, "a": [True]})
    '{"a":[true],"b":1.0}'
    """
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_hash(data: Any) -> str:
    """Return the SHA-256 of `canonical_json`, in hexadecimal."""
    return hashlib.sha256(canonical_json(data).encode()).hexdigest()


def file_sha256(path: str | os.PathLike[str]) -> str:
    """Return the SHA-256 of a file's bytes, in hexadecimal."""
    with open_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_atomically(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to a temporary file beside `path`, then move it there: never a half-written file.

    Parameters
    ----------
    path : path-like
        Where the file shall be; its folder is created.
    data : bytes
        The content.

    Raises
    ------
    FleetgymError
        If there is a folder, a pipe or a device of this name, which would be lost.
    OSError
        If it cannot be written; it names `path`.
    """
    target = Path(path)
    if target.is_dir():
        raise FleetgymError(f"{path} is a folder; expected a file to write")
    if target.exists() and not target.is_file():
        raise FleetgymError(f"{path} is a pipe or a device; expected a file to write")
    target.parent.mkdir(parents=True, exist_ok=True)
    name = target.parent / f".{target.name}.{secrets.token_hex(8)}"
    try:
        with naming(path):
            with open(name, "xb") as stream:  # with the rights that the user's umask leaves, as any new file
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            os.replace(name, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def append(stream: io.FileIO, data: bytes) -> None:
    """Append `data` to a file that was opened without a buffer: all of it or nothing.

    Raises
    ------
    OSError
        If it does not fit; it names the file, which is as long as before.
    """
    length = os.fstat(stream.fileno()).st_size
    left = memoryview(data)
    try:
        with naming(stream.name):
            while left:
                left = left[stream.write(left) :]
    except BaseException:
        with contextlib.suppress(OSError):  # no regular file
            stream.truncate(length)
        raise


@contextlib.contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Give an `OSError` the name of the file that is written: that of a full disk has none.

    Examples
    --------
    >>> with naming("day.json"):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: 'day.json'
    """
    try:
        yield
    except OSError as error:
        error.filename = os.fspath(path)
        raise


def lock(stream: IO[Any]) -> None:
    """Keep others from writing to a file until it is closed, where the system can.

    Raises
    ------
    FleetgymError
        If another holds it.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FleetgymError(
            f"{stream.name} is being written by another run; wait for it, or end it"
        ) from None
    except OSError:
        return  # a file system without locks


def write_private(path: str | os.PathLike[str], data: bytes) -> None:
    """Write `data` to a new file that only its owner may read; a file that exists is a `FileExistsError`."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with naming(path), os.fdopen(handle, "wb") as stream:
            stream.write(data)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise


def write_json(path: str | os.PathLike[str], data: Any) -> None:
    """Write canonical JSON, gzipped without a time stamp if the name ends in ``.gz``.

    Parameters
    ----------
    path : path-like
        The file; replaced as a whole.
    data : object
        Plain lists, mappings, strings and finite numbers.
    """
    raw = (canonical_json(data) + "\n").encode()
    if os.fspath(path).endswith(".gz"):
        raw = gzip.compress(raw, compresslevel=9, mtime=0)
    write_atomically(path, raw)
