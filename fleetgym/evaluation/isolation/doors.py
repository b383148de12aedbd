"""What a process like the agent's can reach: it tries, and what it could not do is a fact of the results file.

The standard library alone: it runs below `supervisor`, where nothing else is loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetgym.evaluation.isolation.confine import CALLS

_LIBC: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
#: Facts of an agent that is kept from nothing.
OPEN = {"network": "open", "processes": "shared", "files": "open"}
_READ_ONLY_PLACES = ("/", "/usr", "/usr/bin", "/etc", "/dev", "/sys", "/proc/sys/kernel/core_pattern")
_SESSION, _USER, _SEARCH, _UNLINK = -3, -4, 10, 9  # from <linux/keyctl.h>


class Targets:
    """Doors of this process, open to whoever shares its network, its files or its keyring.

    Examples
    --------
    >>> with Targets() as targets:
    ...     sorted(targets.as_dict())
    ['abstract', 'canary', 'key', 'path', 'pid', 'port']
    """

    def __init__(self) -> None:
        self._word = f"fleetgym-{secrets.token_hex(8)}"
        self._folder = tempfile.mkdtemp(prefix="fleetgym-doors-")
        os.chmod(self._folder, 0o755)
        self._sockets: list[socket.socket] = []
        self._key = -1
        self._doors: dict[str, Any] = {
            "pid": os.getpid(),
            "key": self._word,
            "canary": os.path.join(self._folder, "canary"),
            "path": os.path.join(self._folder, "socket"),
            "abstract": f"\0{self._word}",
            "port": 0,
        }
        Path(self._doors["canary"]).write_text("canary")
        for kind, address in (
            (socket.AF_UNIX, self._doors["path"]),
            (socket.AF_UNIX, self._doors["abstract"]),
            (socket.AF_INET, ("127.0.0.1", 0)),
        ):
            with contextlib.suppress(OSError):
                door = socket.socket(kind)
                self._sockets.append(door)
                door.bind(address)
                door.listen()
                if kind == socket.AF_INET:
                    self._doors["port"] = door.getsockname()[1]
        if "add_key" in CALLS:
            self._key = _call("add_key", b"user", self._word.encode(), b"x", 1, _SESSION)

    def as_dict(self) -> dict[str, Any]:
        """Return where the doors are, for `facts`."""
        return dict(self._doors)

    def __enter__(self) -> Targets:
        return self

    def __exit__(self, *_: object) -> None:
        for door in self._sockets:
            door.close()
        if self._key > 0:
            _call("keyctl", _UNLINK, self._key, _SESSION)
        shutil.rmtree(self._folder, ignore_errors=True)


def facts(targets: Mapping[str, Any], secret: Sequence[str], writable: Sequence[str]) -> dict[str, str]:
    """Return what this process is kept from, having tried.

    Parameters
    ----------
    targets : dict
        Of `Targets`, of a process outside.
    secret : sequence of str
        Folders and files that must not be read.
    writable : sequence of str
        Folders that must be writable; no other is.

    Returns
    -------
    dict of str to str
        ``network``: ``none`` or ``open``; ``processes``: ``apart`` or ``shared``; ``files``: ``hidden`` or ``open``.
    """
    reaches_network = any(
        _succeeds(door)
        for door in (
            lambda: _connect(socket.AF_INET, ("127.0.0.1", targets["port"])),
            lambda: _connect(socket.AF_UNIX, targets["path"]),
            lambda: _connect(socket.AF_UNIX, targets["abstract"]),
            lambda: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close(),
        )
    )
    own = {1, os.getpid()}
    seen = {int(name) for name in os.listdir("/proc") if name.isdigit()}
    sees_others = not seen <= own or (targets["pid"] not in own and _is_there(targets["pid"]))
    reads = any(_has_content(path) for path in (*secret, targets["canary"]))
    places = [place for place in (*_READ_ONLY_PLACES, os.path.dirname(__file__)) if place not in writable]
    return {
        "network": "open" if reaches_network else "none",
        "processes": "shared" if sees_others or _finds_key(targets["key"]) else "apart",
        "files": "open" if reads or any(map(_can_write, places)) else "hidden",
    }


def _succeeds(door: Callable[[], object]) -> bool:
    try:
        door()
    except (OSError, AttributeError):  # a Python without such sockets has none
        return False
    return True


def _connect(kind: int, address: Any) -> None:
    with socket.socket(kind) as attempt:
        attempt.settimeout(1.0)
        attempt.connect(address)


def _is_there(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


def _has_content(path: str) -> bool:
    try:
        if os.path.isdir(path):
            return bool(os.listdir(path))
        with open(path, "rb") as stream:
            return bool(stream.read(1))
    except OSError:
        return False


def _can_write(place: str) -> bool:
    if not os.path.isdir(place):
        return os.access(place, os.W_OK)
    path = os.path.join(place, f"fleetgym-{secrets.token_hex(8)}")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except OSError:
        return False
    os.unlink(path)
    return True


def _finds_key(word: str) -> bool:
    """Return whether the keyring of the process outside is this one's too."""
    if "keyctl" not in CALLS:
        return False
    rings = (_SESSION, _USER)
    return any(_call("keyctl", _SEARCH, ring, b"user", word.encode(), 0) > 0 for ring in rings)


def _call(name: str, *arguments: object) -> int:
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return int(_LIBC.syscall(CALLS[name], *wide))
