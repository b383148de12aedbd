"""The files, devices and namespaces among which an agent lives: just what a list allows, and nothing beside it.

Where bubblewrap is installed it makes the box. Elsewhere `enter` does, by the same steps. The standard library alone:
it runs below `supervisor`, where nothing else is loaded.
"""

from __future__ import annotations

import ctypes
import os
import platform
import signal
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from fleetgym.evaluation.isolation.confine import map_user

_LIBC = ctypes.CDLL(None, use_errno=True)
# From <sched.h>, <sys/mount.h>, <linux/mount.h> and <linux/prctl.h>; Python names some of them from 3.12 on.
_NEW_MOUNTS, _NEW_CGROUP, _NEW_UTS, _NEW_IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
_NEW_USER, _NEW_PID, _NEW_NET = 0x10000000, 0x20000000, 0x40000000
_NO_SUID, _NO_DEV, _NO_EXEC, _BIND, _RECURSIVE, _PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
_DETACH, _SET_DEATH_SIGNAL = 2, 1
_CALLS = {
    "x86_64": {"pivot_root": 155, "mount_setattr": 442},
    "aarch64": {"pivot_root": 41, "mount_setattr": 442},
}.get(platform.machine(), {})
_AT_CWD, _AT_RECURSIVE = -100, 0x8000
_READ_ONLY, _NO_SUID_ATTRIBUTE = 1, 2
_DEVICES = ("null", "zero", "full", "random", "urandom")
_DEVICE_LINKS = {"fd": "/proc/self/fd", "stdin": "fd/0", "stdout": "fd/1", "stderr": "fd/2"}
_SCRATCH_BYTES = 256 * 2**20
_HOST_NAME = "fleetgym"


class Step(NamedTuple):
    """One step of building a box.

    `kind` is ``folder``, ``bind`` (of a file or folder, read-only), ``device``, ``link``, ``proc``, ``scratch`` (a
    folder that begins empty and may be written to) or ``empty`` (one that may not).
    """

    kind: str
    path: str
    source: str = ""  # what is bound, or where a link points


def steps(visible: Sequence[str], masked: Sequence[str], scratch: str) -> list[Step]:
    """Return how a box is built, in order.

    Parameters
    ----------
    visible : sequence of str
        Absolute paths of folders and files that are shown at their own place, read-only.
    masked : sequence of str
        Paths inside of those that are empty in the box, but for what is visible inside them.
    scratch : str
        Folder that the agent may write to; it begins empty.

    Returns
    -------
    list of Step

    Examples
    --------
    >>> [step.path for step in steps(["/usr/share"], ["/usr/share/doc"], "/scratch")][:5]
    ['/scratch', '/usr', '/usr/share', '/usr/share/doc', '/dev']
    """
    shown = [
        Step("link", path, os.readlink(path))
        if os.path.dirname(path) == "/" and os.path.islink(path)  # as /bin, where that is /usr/bin
        else Step("bind", path, path)
        for path in visible
    ]
    for path in masked:
        shown.append(Step("empty", path) if os.path.isdir(path) else Step("device", path, os.devnull))
    shown.sort(key=lambda step: step.path.count(os.sep))  # a folder before what it holds
    found = _with_folders([Step("scratch", scratch), *shown])
    found += [Step("empty", "/dev"), Step("scratch", "/dev/shm"), Step("proc", "/proc")]
    found += [Step("device", f"/dev/{name}", f"/dev/{name}") for name in _DEVICES]
    return [*found, *(Step("link", f"/dev/{name}", to) for name, to in _DEVICE_LINKS.items())]


def _with_folders(shown: Sequence[Step]) -> list[Step]:
    """Precede steps by those that make the folders around them, which whoever lives in the box may pass."""
    there = {"/"}
    found: list[Step] = []
    for step in shown:
        missing = [parent for parent in map(str, Path(step.path).parents) if parent not in there]
        if not any(other.kind == "bind" and other.path in missing for other in found):
            found += [Step("folder", parent) for parent in reversed(missing)]
            there.update(missing)
        found.append(step)
    return found


def bubblewrap(program: str, plan: Sequence[Step], command: Sequence[str]) -> list[str]:
    """Return the command by which bubblewrap runs another one in a box, as its first process.

    Parameters
    ----------
    program : str
        Path of ``bwrap``.
    plan : sequence of Step
    command : sequence of str

    Returns
    -------
    list of str
    """
    words = [program, "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    words += ["--unshare-cgroup-try", "--hostname", _HOST_NAME, "--die-with-parent", "--as-pid-1"]
    if os.geteuid() == 0:  # no user namespace is needed, and `confine` becomes a user without rights
        words += ["--cap-drop", "ALL"]
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_CHOWN"):
            words += ["--cap-add", capability]
    else:
        words += ["--unshare-user"]
    for kind, path, source in plan:
        if kind == "scratch":
            words += ["--perms", "1777", "--size", str(_SCRATCH_BYTES), "--tmpfs", path]
        elif kind == "empty":
            words += ["--size", "65536", "--tmpfs", path]
        elif kind == "folder":
            words += ["--perms", "0755", "--dir", path]
        elif kind == "proc":
            words += ["--proc", path]
        else:
            option = {"bind": "--ro-bind", "device": "--dev-bind", "link": "--symlink"}[kind]
            words += [option, source, path]
    for path in ("/", *(step.path for step in plan if step.kind in ("empty", "proc"))):
        words += ["--remount-ro", path]
    return [*words, "--", *command]


def enter(plan: Sequence[Step], scratch: str, work: Callable[[], None], *, files: bool = True) -> None:
    """Make a box in this process, and do some work as the box's first process; ends this process with it.

    Parameters
    ----------
    plan : sequence of Step
    scratch : str
        A folder outside; while the box is built it is its root.
    work : callable
        Called in the box.
    files : bool
        If not, the files stay as they are: all the rest is apart.

    Raises
    ------
    OSError
        In this process, if the system does not allow the namespaces.
    """
    flags = _NEW_NET | _NEW_PID | _NEW_IPC | _NEW_UTS | _NEW_MOUNTS | _NEW_CGROUP
    uid, gid = os.geteuid(), os.getegid()
    _check(_LIBC.unshare(flags if uid == 0 else flags | _NEW_USER), "make namespaces")
    if uid != 0:
        map_user(uid, gid)
    _LIBC.sethostname(_HOST_NAME.encode(), len(_HOST_NAME))
    first = os.fork()
    if first != 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.closerange(3, 256)
        os.waitpid(first, 0)
        os._exit(0)
    try:
        _LIBC.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
        if files:
            _arrange(plan, scratch)
        work()
    finally:
        os._exit(1)


def _arrange(plan: Sequence[Step], root: str) -> None:
    """Build the box's files below a folder and make it the root; nothing else stays in reach."""
    _mount("none", "/", "", _RECURSIVE | _PRIVATE)
    _mount("none", root, "tmpfs", _NO_SUID | _NO_DEV, "mode=755")
    for kind, path, source in plan:
        _build(kind, root + path, source)
    os.chdir(root)
    _check(_LIBC.syscall(_CALLS.get("pivot_root", -1), b".", b"."), "change the root")
    _check(_LIBC.umount2(b".", _DETACH), "let go of the old root")
    os.chdir("/")
    _set_attributes("/", set_flags=_READ_ONLY | _NO_SUID_ATTRIBUTE, at_flags=_AT_RECURSIVE)
    for step in plan:
        if step.kind == "scratch":
            _set_attributes(step.path, clear_flags=_READ_ONLY)


def _build(kind: str, place: str, source: str) -> None:
    os.makedirs(os.path.dirname(place), exist_ok=True)
    if kind == "link":
        os.symlink(source, place)
        return
    if kind in ("folder", "scratch", "empty", "proc") or stat.S_ISDIR(os.stat(source).st_mode):
        os.makedirs(place, exist_ok=True)
    elif not os.path.exists(place):
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
    if kind in ("bind", "device"):
        _mount(source, place, "", _BIND | _RECURSIVE)
    elif kind == "proc":
        _mount("none", place, "proc", _NO_SUID | _NO_DEV | _NO_EXEC)
    elif kind != "folder":
        data = f"mode=1777,size={_SCRATCH_BYTES}" if kind == "scratch" else "mode=755,size=64k"
        _mount("none", place, "tmpfs", _NO_SUID | _NO_DEV, data)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    words = [os.fsencode(word) or None for word in (source, target, kind)]
    done = _LIBC.mount(*words, ctypes.c_ulong(flags), data.encode() or None)
    _check(done, f"mount {target}")


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns_fd")]


def _set_attributes(path: str, *, set_flags: int = 0, clear_flags: int = 0, at_flags: int = 0) -> None:
    attributes = _MountAttributes(set_flags, clear_flags, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    number = _CALLS.get("mount_setattr", -1)
    done = _LIBC.syscall(number, _AT_CWD, os.fsencode(path), at_flags, ctypes.byref(attributes), size)
    _check(done, f"make {path} read-only")


def _check(returned: int, what: str) -> None:
    if returned != 0:
        raise OSError(ctypes.get_errno(), f"cannot {what}")
