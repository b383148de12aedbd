"""Read zip archives and the NumPy arrays in them: a damaged one is refused in one line that names it."""

from __future__ import annotations

import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Collection

import numpy as np

from fleetgym.files.documents import MAX_FILE_BYTES, open_file, read_at_most
from fleetgym.files.errors import DataError

#: What `zipfile` and `numpy.load` raise for damaged archives.
_DAMAGED = (
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    zipfile.BadZipFile,
    zlib.error,
)


def open_archive(path: str | os.PathLike[str]) -> zipfile.ZipFile:
    """Read a zip archive into memory, and check that each of its files is whole.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    ZipFile

    Raises
    ------
    DataError
        If it is missing, larger than 256 MiB, damaged or no zip archive.
    """
    try:
        with open_file(path) as stream:
            data = read_at_most(stream, MAX_FILE_BYTES)
        if len(data) > MAX_FILE_BYTES:
            raise DataError(f"larger than {MAX_FILE_BYTES // 2**20} MiB")
        archive = zipfile.ZipFile(io.BytesIO(data))
        if (damaged := archive.testzip()) is not None:
            raise DataError(f"{damaged} in it is damaged")
    except DataError as error:
        raise error.in_file(path) from None
    except _DAMAGED as error:
        why = f"not a whole zip archive ({error})"
        if isinstance(error, OSError) and error.strerror:  # it could not be read at all
            why = error.strerror
        raise DataError(why, source=os.fspath(path)) from None
    return archive


def read_arrays(path: str | os.PathLike[str], names: Collection[str]) -> dict[str, np.ndarray]:
    """Read arrays of numbers from an ``.npz`` file.

    Parameters
    ----------
    path : path-like
    names : collection of str
        Arrays that must be in it; others are left out.

    Returns
    -------
    dict of str to ndarray
        By name, as 64-bit floats.

    Raises
    ------
    DataError
        If the file is missing, damaged or no such archive, lacks an array, or holds other things than numbers.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/weights.npz", a=np.arange(3))
    ...     read_arrays(f"{folder}/weights.npz", ["a"])
    {'a': array([0., 1., 2.])}
    """
    found = {}
    with open_archive(path) as archive:
        for name in names:
            try:
                with archive.open(f"{name}.npy") as stream:
                    found[name] = np.asarray(np.lib.format.read_array(stream, allow_pickle=False), float)
            except _DAMAGED as error:
                raise DataError(f"no array {name!r} of numbers ({error})", source=os.fspath(path)) from None
    return found
