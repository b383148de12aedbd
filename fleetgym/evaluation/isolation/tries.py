"""Check from inside the box of an official run, by tries, that an agent cannot reach what it must not reach.

It uses the standard library alone, since it starts as an agent does. Outside of a box all tries succeed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_NAMED = 3  # of what a try has reached


def main() -> None:
    """Print what the tries reached, by the header's fact; the places to try come as JSON in ``sys.argv[2]``."""
    places = json.loads(sys.argv[2])
    places["special"] = list(_special(places["visible"]))
    found: dict[str, list[str]] = {}
    for fact, trial in _TRIES.items():
        reached = found[fact] = []
        for each in trial(places):
            reached.append(each)
            if len(reached) == _NAMED:
                break
    print(json.dumps(found), flush=True)


def _network(places: Mapping[str, Any]) -> Iterator[str]:
    """Yield the run's addresses that answer, and the sockets in what is visible that do."""
    for family, address in places["addresses"]:
        target = tuple(address) if isinstance(address, list) else address
        if _connects(socket.AddressFamily(family), target):
            yield f"the address {target!r}"
    for path in places["special"]:
        if stat.S_ISSOCK(os.lstat(path).st_mode):
            with contextlib.suppress(OSError), contextlib.chdir(os.path.dirname(path)):  # an address is short
                if _connects(socket.AF_UNIX, os.path.basename(path)):
                    yield path


def _connects(family: socket.AddressFamily, address: Any) -> bool:
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        with contextlib.suppress(OSError), socket.socket(family, kind) as made:
            made.settimeout(1.0)
            made.connect(address)
            return True
    return False


def _processes(places: Mapping[str, Any]) -> Iterator[str]:
    """Yield processes other than this one and the first; the run itself, if it can be signalled."""
    own = {1, os.getpid()}
    yield from (f"process {name}" for name in os.listdir("/proc") if name.isdigit() and int(name) not in own)
    with contextlib.suppress(OSError):
        os.kill(places["pid"], 0)
        if int(places["pid"]) not in own:
            yield f"process {places['pid']}"


def _files(places: Mapping[str, Any]) -> Iterator[str]:
    """Yield a secret, files that are hidden, what takes writing, and pipes and devices in what is visible."""
    with contextlib.suppress(OSError), open(places["secret"], "rb"):
        yield places["secret"]
    for path in places["hidden"]:
        yield from _readable(path, set(places["visible"]))
    for path in ("/", "/dev", "/proc", *places["visible"], *places["hidden"]):
        with contextlib.suppress(OSError):
            _write_to(path)
            yield f"{path} for writing"
    null = os.stat(os.devnull).st_rdev  # which stands for a file that is hidden
    for path in places["special"]:
        facts = os.lstat(path)
        if not stat.S_ISSOCK(facts.st_mode) and facts.st_rdev != null:
            with contextlib.suppress(OSError):
                os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
                yield path


def _readable(path: str, shown: set[str]) -> Iterator[str]:
    """Yield the files of a hidden folder or file, but for those that are shown all the same."""
    if os.path.isfile(path):
        yield path
    for folder, folders, names in os.walk(path):
        folders[:] = [name for name in folders if os.path.join(folder, name) not in shown]
        files = (os.path.join(folder, name) for name in names)
        yield from (file for file in files if file not in shown and os.access(file, os.R_OK))


def _write_to(path: str) -> None:
    """Change a file by nothing, or make a file in a folder; raise `OSError` if that cannot be done."""
    made = os.path.join(path, "fleetgym-try")
    flags = os.O_CREAT | os.O_EXCL if os.path.isdir(path) else os.O_APPEND
    os.close(os.open(made if os.path.isdir(path) else path, os.O_WRONLY | os.O_NONBLOCK | flags))
    if os.path.isdir(path):
        os.unlink(made)


def _special(paths: list[str]) -> Iterator[str]:
    """Yield the sockets, pipes and devices among some files and folders, and below them."""
    folders = []
    for path in paths:
        with contextlib.suppress(OSError):
            kind = os.lstat(path).st_mode
            if stat.S_ISDIR(kind):
                folders.append(path)
            elif not stat.S_ISREG(kind) and not stat.S_ISLNK(kind):
                yield path
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif not entry.is_file(follow_symlinks=False) and not entry.is_symlink():
                    yield entry.path


def _cpu_time(places: Mapping[str, Any]) -> Iterator[str]:
    """Yield something if a child can end without anybody learning what it has used."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    if (child := os.fork()) == 0:
        os._exit(0)
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        yield "a child that nobody counts"
    finally:
        signal.signal(signal.SIGCHLD, before)


#: By the fact of the header that a try decides.
_TRIES: dict[str, Callable[[Mapping[str, Any]], Iterator[str]]] = {
    "network": _network,
    "processes": _processes,
    "files": _files,
    "cpu_time": _cpu_time,
}
