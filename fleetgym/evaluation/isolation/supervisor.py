"""Start an agent's process where it can harm and see little; run as a script by `sandbox`, standard library only.

Two processes stay between the run and the agent: the *supervisor*, which ends everything when the run closes its
control pipe or is gone, and the *init* below it, which adopts the agent's orphans so that none escapes the count of CPU
seconds. Where the system allows it, both live in namespaces of their own: no network, no processes but the agent's,
files read-only, and the stored scenarios hidden. The first line on the status pipe says what was possible, the
second how the agent ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import resource
import select
import signal
import stat
import sys
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
# From <sched.h>, <sys/mount.h>, <linux/mount.h> and <sys/prctl.h>; Python names them from 3.12 on.
_NEW_USER, _NEW_NET, _NEW_PID, _NEW_IPC, _NEW_MOUNTS = 0x10000000, 0x40000000, 0x20000000, 0x08000000, 0x20000
_READ_ONLY, _NO_SUID, _NO_DEV, _BIND, _RECURSIVE, _PRIVATE = 1, 2, 4, 0x1000, 0x4000, 0x40000
_SYS_MOUNT_SETATTR, _AT_CWD, _AT_RECURSIVE = 442, -100, 0x8000
_SET_DEATH_SIGNAL, _SET_SUBREAPER, _NO_NEW_PRIVILEGES = 1, 36, 38
_NOBODY = 65534
_SCRATCH_SIZE = "size=256m"
_FILE_BYTES = 256 * 2**20  # of one file, also of one in memory


def main() -> None:
    """Read the plan from ``sys.argv[1]`` (see `sandbox.Sandbox`), isolate, start the agent, wait."""
    plan = json.loads(sys.argv[1])
    status, control = plan["status_fd"], plan["control_fd"]
    facts = _isolate(plan)
    _write(status, facts)
    _LIBC.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    init = os.fork()
    if init == 0:
        os.close(control)
        _run_init(plan, status, apart=facts["processes"] == "apart")
    _leave_pipes()
    os.close(status)
    ended = os.pidfd_open(init)
    if (
        ended not in select.select([control, ended], [], [])[0]
    ):  # the run closed the control pipe, or was killed
        _end_below(init)
        os.kill(init, signal.SIGKILL)
    os.waitpid(init, 0)
    _end_below(os.getpid())


def _write(fd: int, facts: dict[str, Any]) -> None:
    os.write(fd, (json.dumps(facts) + "\n").encode())


def _leave_pipes() -> None:
    """Let go of the agent's channel, so that its end is seen when the agent ends."""
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)


def _end_below(pid: int) -> None:
    sys.path.append(
        os.path.dirname(os.path.abspath(__file__))
    )  # the package itself would take too long to load
    importlib.import_module("process_tree").ProcessTree(pid).kill_below()


# -- isolation


def _isolate(plan: dict[str, Any]) -> dict[str, str]:
    """Move into new namespaces; return what the agent is kept from."""
    facts = {"network": "open", "processes": "shared", "files": "open"}
    if not plan["isolate"]:
        return facts
    uid, gid = os.getuid(), os.getgid()
    if _LIBC.unshare(_NEW_USER | _NEW_NET | _NEW_PID | _NEW_IPC | _NEW_MOUNTS) != 0:
        return facts
    facts |= {"network": "none", "processes": "apart"}
    try:
        # As a user without rights: root would keep them when it starts the agent.
        _put("/proc/self/setgroups", "deny")
        _put("/proc/self/uid_map", f"{uid or _NOBODY} {uid} 1")
        _put("/proc/self/gid_map", f"{gid or _NOBODY} {gid} 1")
        with contextlib.suppress(OSError):
            _put("/proc/sys/user/max_user_namespaces", "0")  # none inside this one, with mounts of its own
        _arrange_files(plan)
    except OSError:
        return facts
    return facts | {"files": "hidden"}


def _put(path: str, text: str) -> None:
    with open(path, "w") as stream:
        stream.write(text)


def _arrange_files(plan: dict[str, Any]) -> None:
    """Hide what must not be read, make the rest read-only, and give the agent a folder and a cache to write to."""
    _mount("none", "/", "", _RECURSIVE | _PRIVATE)
    kept = {path: os.open(path, os.O_PATH) for path in plan["show"] if os.path.exists(path)}
    for path in sorted(plan["hide"], key=len, reverse=True):  # what lies inside before what it lies in
        if os.path.isdir(path):
            _mount("none", path, "tmpfs", _NO_SUID | _NO_DEV, "size=4k")
        elif os.path.exists(path):
            _mount(os.devnull, path, "", _BIND)
    for path in sorted(kept, key=len):
        _show_again(path, kept[path])
    _make_read_only()
    if os.path.isdir("/dev/shm"):
        _mount("none", "/dev/shm", "tmpfs", _NO_SUID | _NO_DEV, _SCRATCH_SIZE)
    scratch, cache = plan["scratch"], plan["cache"]
    _mount("none", scratch, "tmpfs", _NO_SUID | _NO_DEV, _SCRATCH_SIZE)
    if cache and os.path.isdir(
        cache
    ):  # compiled kernels are read, and new ones written, to the agent's own copy
        upper, work = f"{scratch}/.cache", f"{scratch}/.work"
        os.mkdir(upper)
        os.mkdir(work)
        _mount("none", cache, "overlay", 0, f"lowerdir={cache},upperdir={upper},workdir={work}")


def _show_again(path: str, opened: int) -> None:
    """Put a folder or file back to where a folder around it was hidden; what is hidden inside stays so."""
    there = os.fstat(opened)
    if not (os.path.exists(path) and os.path.samestat(os.stat(path), there)):
        if stat.S_ISDIR(there.st_mode):
            os.makedirs(path, exist_ok=True)
        elif not os.path.exists(path):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        _mount(f"/proc/self/fd/{opened}", path, "", _BIND | _RECURSIVE)
    os.close(opened)


def _mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    words = [word.encode() or None for word in (source, target, kind)]
    if _LIBC.mount(*words, ctypes.c_ulong(flags), data.encode() or None) != 0:
        raise OSError(ctypes.get_errno(), f"cannot mount {target}")


class _MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns_fd")]


def _make_read_only() -> None:
    attributes = _MountAttributes(_READ_ONLY, 0, 0, 0)
    size = ctypes.sizeof(attributes)
    done = _LIBC.syscall(
        _SYS_MOUNT_SETATTR, _AT_CWD, b"/", _AT_RECURSIVE, ctypes.byref(attributes), ctypes.c_size_t(size)
    )
    if done != 0:
        raise OSError(ctypes.get_errno(), "cannot make the files read-only")


# -- the init and the agent


def _run_init(plan: dict[str, Any], status: int, apart: bool) -> None:
    """Start the agent, adopt and wait for whatever it leaves, report how it ended, and end all with it."""
    if apart:
        _LIBC.mount(b"none", b"/proc", b"proc", ctypes.c_ulong(_NO_SUID | _NO_DEV), None)
    _LIBC.prctl(_SET_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    _LIBC.prctl(_SET_SUBREAPER, 1, 0, 0, 0)
    agent = os.fork()
    if agent == 0:
        os.close(status)
        _become_agent(plan)
    _leave_pipes()
    while True:
        pid, how = os.wait()
        if pid == agent:
            code = os.waitstatus_to_exitcode(how)
            if not apart:  # otherwise the system ends what is left
                _end_below(os.getpid())
            _write(status, {"signal": -code} if code < 0 else {"exit": code})
            os._exit(0)


def _become_agent(plan: dict[str, Any]) -> None:
    try:
        os.setsid()
        _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
        limit = plan["address_space_bytes"]
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
        os.chdir(plan["cwd"] if os.path.isdir(plan["cwd"]) else plan["scratch"])
        os.execvp(plan["command"][0], plan["command"])
    except BaseException as error:
        print(f"cannot start the agent: {error}", file=sys.stderr)
    finally:
        os._exit(127)


if __name__ == "__main__":
    main()
