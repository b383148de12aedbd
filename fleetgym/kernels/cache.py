"""Keep compiled kernels in a folder: files that Numba wrote stay as long as their checksums are those sealed.

Numba keys its cache by the file that holds a function, so it would miss an edit of a *callee* in another file.
Here the folder's name is a digest of all kernel sources, of their place, of the versions and of the processor.
Any edit starts a new folder. So does another installation, because Numba does not find what was compiled elsewhere.

Numba loads whatever lies in its folder. A damaged file may raise, crash the process, or give wrong numbers.
So the file `seals` lists a checksum of each file, written as soon as the kernel is compiled.
Files without a seal are removed before Numba looks, and their kernels are compiled again.
Whatever is not a regular file, or whose seals others could have written, has no seal.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
import shutil
import stat
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path

from fleetgym.kernels.lowlevel import compiler

_SOURCES = Path(__file__).parent
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
    place = str(_SOURCES)  # Numba looks nowhere else for what it compiled there
    versions = *compiler(), platform.python_version(), platform.machine()
    for part in (*versions, place):
        digest.update(part.encode() + b"\0")
    for path in sorted(_SOURCES.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _candidates() -> Iterator[tuple[Path, bool]]:
    """Yield folders to try, best first, and whether the user has named them."""
    for name in ("FLEETGYM_CACHE_DIR", "NUMBA_CACHE_DIR"):
        if os.environ.get(name):
            yield Path(os.environ[name]), True
    if os.environ.get("XDG_CACHE_HOME"):
        yield Path(os.environ["XDG_CACHE_HOME"]) / "fleetgym", False
    with contextlib.suppress(RuntimeError):  # no home directory can be determined
        yield Path.home() / ".cache" / "fleetgym", False
    with contextlib.suppress(OSError):  # there is no temporary folder
        user = str(os.getuid()) if hasattr(os, "getuid") else "user"
        yield Path(tempfile.gettempdir()) / f"fleetgym-{user}", False


def _is_ours_and_writable(folder: Path, is_named: bool) -> bool:
    """Create `folder` if need be; return whether we own it, and the folder it lies in, and can write to it.

    Compiled code is loaded from there. So a folder is refused that somebody else owns, or could put in its place.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_ours(folder) or not (is_named or _is_ours(folder.parent)):
            return False
        if os.name == "posix":
            folder.chmod(0o700)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_SPACE_BYTES))
            probe.flush()
            return True
    except OSError:
        return False


def _is_ours(path: Path) -> bool:
    return not hasattr(os, "getuid") or path.stat().st_uid == os.getuid()


def cache_folder() -> Path | None:
    """Return the folder that holds this version's compiled kernels, or None where none can be written.

    ``FLEETGYM_CACHE_DIR`` and ``NUMBA_CACHE_DIR`` are tried first, then the user's cache folder, then a
    temporary one. The first call removes what is damaged, unless another process is compiling: see `examine`.
    """
    return _adopted[0] if _adopted else _find_folder()


_adopted: list[Path] = []


def adopt(folder: Path) -> None:
    """Let this process use the folder of the one that started it, which has removed what is damaged."""
    _adopted[:] = [folder]


@functools.cache
def _find_folder() -> Path | None:
    digest = source_digest()
    for base, is_named in _candidates():
        folder = base / f"kernels-{digest}"
        if not _is_ours_and_writable(folder, is_named):
            continue
        with contextlib.suppress(OSError), locked(folder, 0.0) as is_alone:
            if is_alone:
                remove_damaged(folder)  # what cannot be removed raises: try the next folder
            else:
                _unexamined.append(folder)
            return folder
    return None


_unexamined: list[Path] = []


def examine(folder: Path) -> None:
    """Remove what is damaged if `cache_folder` could not, once the other process has sealed what it compiled."""
    if _unexamined:
        with contextlib.suppress(OSError), locked(folder):
            remove_damaged(folder)
        _unexamined.clear()


@contextlib.contextmanager
def locked(folder: Path, patience_s: float = 300.0) -> Iterator[bool]:
    """Hold the lock of a folder, so that one process at a time compiles into it; yield whether it was free in time.

    The lock ends with its process, however that ends. Where there are no locks, or none is free in time, this one
    goes on all the same: that costs time and does no harm.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield True
        return
    if not is_regular(folder / "lock"):
        _remove(folder / "lock")
    with open(folder / "lock", "a") as file:
        end, is_busy = time.monotonic() + patience_s, True
        while is_busy:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                is_busy = False
            except BlockingIOError:
                if time.monotonic() >= end:
                    break
                time.sleep(0.05)
            except OSError:  # a file system without locks
                is_busy = False
        yield not is_busy


# --- seals ------------------------------------------------------------------------------------------------


def is_kernel(path: Path) -> bool:
    """Return whether a path is that of a file that Numba keeps a kernel in."""
    return path.suffix in (".nbi", ".nbc")  # Numba's index of one function, and compiled code


def is_regular(path: Path) -> bool:
    """Return whether a path is that of a file, and not of a link, a pipe or a device, which could keep a reader."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _is_trusted(path: Path) -> bool:
    """Return whether a file is one of ours, to which nobody else can write."""
    return is_regular(path) and _is_ours(path) and not (os.name == "posix" and path.stat().st_mode & 0o022)


def _seal_of(path: Path) -> str:
    """Return the line that seals a file: its checksum and its name, so that no file can take another's place."""
    return f"{hashlib.sha256(path.read_bytes()).hexdigest()} {path.name}"


def read_seals(folder: Path) -> set[str]:
    """Return all seals of a folder; none if its list is no file of ours, or others can write to it."""
    path = folder / "seals"
    try:
        return set(path.read_text().split("\n")) if _is_trusted(path) else set()
    except (OSError, ValueError):
        return set()


def is_sound(path: Path, seals: set[str]) -> bool:
    """Return whether a file of the cache is one that was sealed."""
    try:
        return is_regular(path) and _seal_of(path) in seals
    except OSError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def remove_damaged(folder: Path) -> list[Path]:
    """Remove every kernel file without a seal, and what killed processes left behind.

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
    removed, seals = [], read_seals(folder)
    for path in sorted(folder.rglob("*")):
        if is_kernel(path):
            if not is_sound(path, seals):
                _remove(path)
                removed.append(path)
        elif ".tmp." in path.name:
            with contextlib.suppress(FileNotFoundError):  # its process has just renamed it
                if time.time() - path.stat().st_mtime > _ABANDONED_S:
                    _remove(path)
    return removed


def seal(folder: Path, starts: Collection[str]) -> None:
    """Seal the files of some kernels; what cannot be sealed counts as missing in the next process.

    Seals are only ever appended, so that processes can do so at the same time.

    Parameters
    ----------
    folder : Path
        From `cache_folder`.
    starts : collection of str
        How the names of the kernels' files begin.
    """
    known = read_seals(folder)
    with contextlib.suppress(OSError):
        fresh = [p for p in folder.rglob("*") if is_kernel(p) and p.name.startswith(tuple(starts))]
        lines = {_seal_of(path) for path in fresh if is_regular(path)} - known
        if lines:
            if os.path.lexists(folder / "seals") and not _is_trusted(folder / "seals"):
                _remove(folder / "seals")
            with open(folder / "seals", "a", opener=_private) as file:
                file.write(
                    "\n" + "\n".join(sorted(lines)) + "\n"
                )  # a line of its own, whatever was left before


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
