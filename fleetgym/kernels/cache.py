"""The folder of compiled kernels: files that Numba wrote go in; only files with the right checksum stay.

Numba keys its cache by the file that holds a function, so it would miss an edit of a *callee* in another file.
Here the folder's name is a digest of all kernel sources, of their place, of the versions and of the processor.
Any edit starts a new folder. So does another installation, because Numba does not find what was compiled elsewhere.

Numba loads whatever lies in its folder. A damaged file may raise, crash the process, or give wrong numbers.
So each file has a seal beside it: a small file with its checksum, written as soon as the kernel is compiled.
Files without the right seal are removed before Numba looks, and the kernel is compiled again.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import tempfile
import time
import uuid
from collections.abc import Collection, Iterator
from pathlib import Path

import llvmlite.binding
import numba

_SOURCES = Path(__file__).parent
_SEAL = ".sha256"
_KEPT = (".nbi", ".nbc")  # Numba's index of one function, and compiled code
_SPACE_BYTES = 4 << 20  # a folder must have so much space left; all kernels together need less
_ABANDONED_S = 3600.0  # a temporary file this old belongs to a process that was killed


def source_digest() -> str:
    """Return a digest of every kernel source and of its place, of the versions and of the processor.

    Returns
    -------
    str
        Sixteen hexadecimal digits.

    Examples
    --------
    >>> len(source_digest())
    16
    """
    digest = hashlib.sha256()
    profile = os.environ.get("FLEETGYM_PROFILE", "")  # changes what is compiled, see `kernels.timer`
    place = str(_SOURCES)  # Numba looks nowhere else for what it compiled there
    processor = str(llvmlite.binding.get_host_cpu_name())
    versions = numba.__version__, llvmlite.__version__, platform.python_version(), platform.machine()
    for part in (*versions, processor, profile, place):
        digest.update(part.encode() + b"\0")
    for path in sorted(_SOURCES.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _candidates() -> Iterator[Path]:
    """Folders to try, best first."""
    for name in ("FLEETGYM_CACHE_DIR", "NUMBA_CACHE_DIR"):
        if os.environ.get(name):
            yield Path(os.environ[name])
    if os.environ.get("XDG_CACHE_HOME"):
        yield Path(os.environ["XDG_CACHE_HOME"]) / "fleetgym"
    with contextlib.suppress(RuntimeError):  # no home directory can be determined
        yield Path.home() / ".cache" / "fleetgym"
    with contextlib.suppress(OSError):  # there is no temporary folder
        user = str(os.getuid()) if hasattr(os, "getuid") else "user"
        yield Path(tempfile.gettempdir()) / f"fleetgym-{user}"


def _is_ours_and_writable(folder: Path) -> bool:
    """Create `folder` if need be; tell whether we own it and can write to it.

    Compiled code is loaded from there, so a folder that somebody else owns is refused.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if hasattr(os, "getuid") and folder.stat().st_uid != os.getuid():
            return False
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_SPACE_BYTES))
            probe.flush()
            return True
    except OSError:
        return False


@functools.cache
def cache_folder() -> Path | None:
    """Return the folder that holds this version's compiled kernels, or None where none can be written.

    ``FLEETGYM_CACHE_DIR`` and ``NUMBA_CACHE_DIR`` are tried first, then the user's cache folder, then a
    temporary one. The first call removes what is damaged.
    """
    digest = source_digest()
    for base in _candidates():
        folder = base / f"kernels-{digest}"
        if not _is_ours_and_writable(folder):
            continue
        with contextlib.suppress(OSError):  # something damaged cannot be removed: try the next folder
            remove_damaged(folder)
            return folder
    return None


# --- seals ------------------------------------------------------------------------------------------------


def _checksum(path: Path) -> str:
    """Return the checksum of a file and of its name, so that no file can take another's place."""
    return hashlib.sha256(path.name.encode() + b"\0" + path.read_bytes()).hexdigest()


def _seal_of(path: Path) -> Path:
    return path.with_name(path.name + _SEAL)


def is_sound(path: Path) -> bool:
    """Tell whether a file of the cache is what was sealed."""
    try:
        return _seal_of(path).read_text() == _checksum(path)
    except (OSError, ValueError):
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_damaged(folder: Path) -> list[Path]:
    """Remove every file that is not what was sealed, and what killed processes left behind.

    A file that another process writes at this moment may go too; that costs it a compilation later on.

    Parameters
    ----------
    folder : Path
        From `cache_folder`.

    Returns
    -------
    list of Path
        Kernel files that were removed.

    Raises
    ------
    OSError
        If a file cannot be removed.
    """
    removed = []
    for path in sorted(folder.rglob("*")):
        if path.suffix in _KEPT:
            if not is_sound(path):
                _remove(path)
                removed.append(path)
        elif path.suffix == _SEAL:
            if path.is_dir() or not path.with_suffix("").exists():
                _remove(path)
        elif ".tmp." in path.name:
            with contextlib.suppress(FileNotFoundError):  # its process has just renamed it
                if time.time() - path.stat().st_mtime > _ABANDONED_S:
                    _remove(path)
    return removed


def seal(folder: Path, starts: Collection[str]) -> None:
    """Seal the files of some kernels; what cannot be sealed counts as missing in the next process.

    Parameters
    ----------
    folder : Path
        From `cache_folder`.
    starts : collection of str
        How the names of the kernels' files begin.
    """
    for path in folder.rglob("*"):
        if path.suffix in _KEPT and path.name.startswith(tuple(starts)) and not is_sound(path):
            with contextlib.suppress(OSError):
                temporary = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex[:16]}")
                temporary.write_text(_checksum(path))
                temporary.replace(_seal_of(path))
