"""Try ways out of a box: each function tries one, and returns what it got.

It runs inside a box, so it uses the standard library alone.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import json
import mmap
import os
import platform
import signal
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

with contextlib.suppress(ImportError):  # which other systems do not have: there is nothing to try
    import fcntl
    import resource

_LIBC: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
#: Numbers of system calls that the C library does not wrap.
_CALLS = {
    "x86_64": {
        "add_key": 248,
        "keyctl": 250,
        "bpf": 321,
        "io_uring_setup": 425,
        "userfaultfd": 323,
        "perf_event_open": 298,
        "shmget": 29,
        "shmat": 30,
        "mincore": 27,
        "readahead": 187,
        "msgget": 68,
    },
    "aarch64": {
        "add_key": 217,
        "keyctl": 219,
        "bpf": 280,
        "io_uring_setup": 425,
        "userfaultfd": 282,
        "perf_event_open": 241,
        "shmget": 194,
        "shmat": 196,
        "mincore": 232,
        "readahead": 213,
        "msgget": 186,
    },
}.get(platform.machine(), {})
_SESSION, _USER = -3, -4

#: Title and function of each door, in order.
DOORS: list[tuple[str, Callable[[dict[str, Any]], Any]]] = []
#: Doors that root must not try without a box: they would change the machine.
HARMFUL: set[str] = set()


def door(
    title: str, *, harmful: bool = False
) -> Callable[[Callable[[dict[str, Any]], Any]], Callable[[dict[str, Any]], Any]]:
    """Enter a function in `DOORS`."""

    def enter(function: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Any]:
        DOORS.append((title, function))
        HARMFUL.update([title] if harmful else [])
        return function

    return enter


def main() -> None:
    """Try all doors; the places outside come as JSON in ``sys.argv[2]``, what each got goes to standard output."""
    places = json.loads(sys.argv[2])
    places["descriptors"] = [fd for fd in range(3, 256) if os.path.exists(f"/proc/self/fd/{fd}")]
    found = {}
    signal.signal(signal.SIGIO, signal.SIG_IGN)  # that a watch sends
    for title, function in DOORS:
        if title in HARMFUL and not places["is_boxed"]:
            found[title] = [False, "not tried"]
            continue
        try:
            got = function(places)
            found[title] = [bool(got), str(got)[:80]]
        except Exception as error:
            found[title] = [False, f"{type(error).__name__}: {error}"[:80]]
    print(json.dumps(found), flush=True)


def _call(name: str, *arguments: Any) -> int:
    wide = [ctypes.c_long(each) if isinstance(each, int) else each for each in arguments]
    return _checked(_LIBC.syscall(_CALLS[name], *wide))


def _checked(returned: int) -> int:
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned


def _talk(kind: int, address: Any, style: int = socket.SOCK_STREAM) -> str:
    with socket.socket(kind, style) as made:
        made.settimeout(2.0)
        made.connect(address)
        if style == socket.SOCK_STREAM:
            return made.recv(64).decode()
        made.send(b"x")
        return "sent"


# -- network


door("TCP to a port of this machine")(lambda places: _talk(socket.AF_INET, ("127.0.0.1", places["port"])))
door("TCP to a port of this machine, IPv6")(lambda places: _talk(socket.AF_INET6, ("::1", places["port6"])))
door("UDP to this machine")(
    lambda places: _talk(socket.AF_INET, ("127.0.0.1", places["port"]), socket.SOCK_DGRAM)
)
door("UDP to the world")(lambda _: _talk(socket.AF_INET, ("192.0.2.1", 53), socket.SOCK_DGRAM))
door("names of network interfaces but its own")(
    lambda _: [name for _, name in socket.if_nameindex() if name != "lo"]
)
door("raw packets")(lambda _: socket.socket(socket.AF_PACKET, socket.SOCK_RAW))


@door("kernel messages over netlink")
def _(places: dict[str, Any]) -> Any:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 15)
    made.bind((0, 1))
    return made


door("virtual machines' sockets (AF_VSOCK)")(lambda _: socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM))
door("the kernel's cryptography (AF_ALG)")(lambda _: socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET))
door("Unix socket beside the agent")(lambda places: _talk(socket.AF_UNIX, places["socket_beside"]))
door("Unix socket in the folder for temporary files")(lambda places: _talk(socket.AF_UNIX, places["socket"]))
door("abstract Unix socket")(lambda places: _talk(socket.AF_UNIX, "\0" + places["abstract"]))
door("sockets of services (/run, /var/run)")(lambda _: os.listdir("/run") or os.listdir("/var/run"))


# -- files


door("a secret in the current folder")(lambda places: Path(places["secret"]).read_text())
door("stored scenarios")(lambda places: [each for folder in places["stored"] for each in _files(folder)])
door("stored scenarios in a wheel")(lambda places: Path(places["wheel"]).read_bytes())
door("a file of scenarios beside the agent")(lambda places: Path(places["scenarios_beside"]).read_bytes())
door("the user's home folder")(
    lambda places: [
        each for each in os.listdir(places["home"]) if os.path.isfile(os.path.join(places["home"], each))
    ]
)
door("other users' passwords (/etc/shadow)")(lambda _: Path("/etc/shadow").read_bytes())
door("another agent's folder for temporary files")(lambda places: Path(places["other_scratch"]).read_text())
door("write into Python's folder")(lambda _: _writes(os.path.dirname(os.__file__)))
door("write into fleetgym's package")(lambda places: _writes(places["package"]))
door("write into its own folder")(lambda places: _writes(os.path.dirname(places["agent"])))


@door("change its own file")
def _(places: dict[str, Any]) -> Any:
    with open(places["agent"], "a") as stream:
        return stream.write("\n")


door("write into the folder of compiled kernels")(lambda places: _writes(places["kernels"]))


@door("leave a file in the folder for temporary files")
def _(places: dict[str, Any]) -> Any:
    made = os.path.join(places["temporary"], places["mark"])
    Path(made).write_text("x")
    return made  # who opened the doors looks whether it is there


door("FIFO beside the agent")(
    lambda places: os.write(os.open(places["fifo_beside"], os.O_WRONLY | os.O_NONBLOCK), b"x")
)
door("FIFO in the folder for temporary files")(
    lambda places: os.write(os.open(places["fifo"], os.O_WRONLY | os.O_NONBLOCK), b"x")
)


door("lock a read-only file")(lambda _: _of_file(lambda fd: fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)))
door("lock a part of a read-only file")(
    lambda _: _of_file(lambda fd: fcntl.lockf(fd, fcntl.LOCK_SH | fcntl.LOCK_NB))
)
door("lock a part of a read-only file, by the open file")(
    lambda _: _of_file(lambda fd: fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0)))
)
door("lease of a read-only file")(
    lambda _: _of_file(lambda fd: fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK))
)


@door("watch a read-only file (inotify)")
def _(places: dict[str, Any]) -> Any:
    watch = _checked(_LIBC.inotify_init1(0))
    return _checked(_LIBC.inotify_add_watch(watch, os.fsencode(os.__file__), 1)) + 1


@door("watch a folder (dnotify)")
def _(places: dict[str, Any]) -> Any:
    folder = os.open(os.path.dirname(os.__file__), os.O_RDONLY)
    fcntl.fcntl(folder, fcntl.F_NOTIFY, fcntl.DN_ACCESS)
    return "watched"


@door("open a file by its handle")
def _(places: dict[str, Any]) -> Any:
    handle = (ctypes.c_uint * 34)(128)
    mount = ctypes.c_int()
    path = os.fsencode(os.__file__)
    _checked(_LIBC.name_to_handle_at(-100, path, handle, ctypes.byref(mount), 0))
    return _checked(_LIBC.open_by_handle_at(os.open("/", os.O_RDONLY), handle, os.O_RDONLY))


# -- memory and keys that processes share


door("shared memory of another process (/dev/shm)")(
    lambda places: Path("/dev/shm", places["shm"]).read_text()
)
door("System V shared memory of another process")(lambda places: _call("shmget", places["shm_key"], 1, 0) + 1)
door("message queue of another process")(lambda _: os.listdir("/dev/mqueue"))
door("key in the session's keyring")(
    lambda places: _call("keyctl", 10, _SESSION, b"user", places["key"].encode(), 0)
)
door("key in the user's keyring")(
    lambda places: _call("keyctl", 10, _USER, b"user", places["key"].encode(), 0)
)
door("note for the next episode in a keyring")(
    lambda _: _call("add_key", b"user", b"fleetgym-note", b"x", 1, _USER)
)
door("the user's lasting keyring")(lambda _: _call("keyctl", 22, -1, _SESSION))


# -- processes


@door("signal to the run")
def _(places: dict[str, Any]) -> Any:
    os.kill(places["pid"], 0)
    return "there" if _is_outside(places) else ""


door("the run's command line")(lambda places: _is_outside(places))
door("the run's memory")(
    lambda places: _is_outside(places) and os.open(f"/proc/{places['pid']}/mem", os.O_RDONLY)
)


@door("processes of others in /proc")
def _(places: dict[str, Any]) -> Any:
    seen = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
    return seen if len(seen) > 2 else ""  # its first process, and itself


door("files of its first process (/proc/1/root)")(
    lambda places: Path("/proc/1/root" + places["secret"]).read_text()
)
door("environment of its first process")(lambda _: Path("/proc/1/environ").read_bytes())
door("memory of its first process")(lambda _: os.open("/proc/1/mem", os.O_RDWR))
door("trace its first process (ptrace)")(lambda _: not _checked(_LIBC.ptrace(16, 1, None, None)))


@door("read its first process's memory")
def _(places: dict[str, Any]) -> Any:
    local, remote = (ctypes.c_size_t * 2)(0, 0), (ctypes.c_size_t * 2)(0, 0)
    return not _checked(_LIBC.process_vm_readv(1, local, 1, remote, 1, 0))


door("take a descriptor of its first process")(
    lambda _: _checked(_LIBC.syscall(438, os.pidfd_open(1), 0, 0)) + 1
)


@door("end its first process", harmful=True)
def _(places: dict[str, Any]) -> Any:
    os.kill(1, signal.SIGKILL)
    time.sleep(0.05)
    return "" if os.path.exists("/proc/1") else "ended"


door("descriptors that it was not given")(lambda places: places["descriptors"])


@door("terminal of the run (/dev/tty, TIOCSTI)", harmful=True)
def _(places: dict[str, Any]) -> Any:
    terminal = os.open("/dev/tty", os.O_RDWR)
    return not fcntl.ioctl(terminal, 0x5412, b"x")


@door("ended children that nobody counts (SIGCHLD ignored)")
def _(places: dict[str, Any]) -> Any:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    child = os.fork()
    if child == 0:
        os._exit(0)
    time.sleep(0.05)
    try:
        os.waitpid(child, 0)
    except ChildProcessError:
        return "gone"
    finally:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return ""


# -- the system


door("a password in the environment")(lambda _: os.environ.get("SOME_PASSWORD"))
door("settings of the kernel (core_pattern)")(lambda _: os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY))
door("settings of the kernel (drop_caches)")(lambda _: os.open("/proc/sys/vm/drop_caches", os.O_WRONLY))
door("the kernel's keys (sysrq-trigger)")(lambda _: os.open("/proc/sysrq-trigger", os.O_WRONLY))
door("priority for the killer of processes (oom_score_adj)")(
    lambda _: os.open("/proc/self/oom_score_adj", os.O_WRONLY)
)
door("the kernel's log (/dev/kmsg)")(lambda _: os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))


@door("disks (/dev/loop*, sd*, vd*, nvme*)")
def _(places: dict[str, Any]) -> Any:
    kinds = ("loop", "sd", "vd", "nvme", "dm-")
    return [path for kind in kinds for path in glob.glob(f"/dev/{kind}*") if os.access(path, os.R_OK)]


door("virtual machines (/dev/kvm)")(lambda _: os.open("/dev/kvm", os.O_RDWR))
door("serial ports and memory (/dev/ttyS0, /dev/mem)")(
    lambda _: [path for path in ("/dev/ttyS0", "/dev/mem", "/dev/port") if os.access(path, os.R_OK)]
)


@door("devices beside null, zero, full, random, urandom")
def _(places: dict[str, Any]) -> Any:
    known = {"null", "zero", "full", "random", "urandom", "shm", "fd", "stdin", "stdout", "stderr"}
    return sorted(set(os.listdir("/dev")) - known)


@door("make a device", harmful=True)
def _(places: dict[str, Any]) -> Any:
    path = os.path.join(tempfile.gettempdir(), "device")
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 1))
    return path


door("facts of the machine (/sys)")(lambda _: os.listdir("/sys"))


@door("leave its control group")
def _(places: dict[str, Any]) -> Any:
    found = glob.glob("/sys/fs/cgroup/cgroup.procs") + glob.glob("/sys/fs/cgroup/*/cgroup.procs")
    return [path for path in found if os.access(path, os.W_OK)]


door("mount a file system", harmful=True)(
    lambda _: not _checked(_LIBC.mount(b"none", os.fsencode(tempfile.gettempdir()), b"tmpfs", 0, None))
)
door("make the files writable again", harmful=True)(
    lambda _: not _checked(_LIBC.mount(b"none", b"/", b"", 0x20 | 0x1000, None))
)
door("lift what hides something", harmful=True)(
    lambda _: [path for path in (b"/dev", b"/proc", b"/dev/shm") if _LIBC.umount2(path, 2) == 0]
)
door("a user namespace of its own (unshare)")(
    lambda _: _in_child(lambda: _checked(_LIBC.unshare(_NEW_USER | _NEW_MOUNTS)))
)


@door("a user namespace of its own (clone)")
def _(places: dict[str, Any]) -> Any:
    number = 56 if platform.machine() == "x86_64" else 220
    child = _checked(_LIBC.syscall(number, ctypes.c_long(_NEW_USER | signal.SIGCHLD), None, None, None, None))
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    return child


door("another root (chroot)")(lambda _: _in_child(lambda: os.chroot(tempfile.gettempdir())))
door("become root (setuid)")(lambda _: _in_child(lambda: os.setuid(0)))


@door("be root, or have a right of root's")
def _(places: dict[str, Any]) -> Any:
    lines = Path("/proc/self/status").read_text().splitlines()
    held = {line.split()[0]: int(line.split()[1], 16) for line in lines if line.startswith("Cap")}
    return (os.geteuid() == 0 or any(held.values())) and f"uid {os.geteuid()}, {held}"


@door("gain rights by a program (no_new_privs)")
def _(places: dict[str, Any]) -> Any:
    lines = Path("/proc/self/status").read_text().splitlines()
    return "NoNewPrivs:\t1" not in lines


@door("higher limits of its own")
def _(places: dict[str, Any]) -> Any:
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    if limit == resource.RLIM_INFINITY:
        return "none is set"
    return _in_child(lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit * 2)))


door("a file of any size")(lambda _: resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY)
door("programs in the kernel (bpf)")(lambda _: _call("bpf", 0, (ctypes.c_uint * 18)(1, 4, 8, 1), 72) + 1)


@door("counters of the kernel (perf_event_open)")
def _(places: dict[str, Any]) -> Any:
    attributes = (ctypes.c_uint * 28)(1, 112, 1)
    return _call("perf_event_open", attributes, 0, -1, -1, 0) + 1


door("rings of system calls (io_uring)")(lambda _: _call("io_uring_setup", 1, (ctypes.c_uint * 30)()) + 1)
door("page faults of its own (userfaultfd)")(lambda _: _call("userfaultfd", 1) + 1)


@door("the machine's name and clock", harmful=True)
def _(places: dict[str, Any]) -> Any:
    changed = [not _LIBC.sethostname(b"x", 1)]
    with contextlib.suppress(OSError):
        time.clock_settime(time.CLOCK_REALTIME, time.time())
        changed.append(True)
    return any(changed)


door("the machine's name")(lambda places: socket.gethostname() == places["host"] and places["host"])


# -- traces in the page cache, which the next episode could read


@door("drop a file from the page cache")
def _(places: dict[str, Any]) -> Any:
    with open(sys.executable, "rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    return "dropped"


@door("drop a mapped file from the page cache")
def _(places: dict[str, Any]) -> Any:
    with (
        open(sys.executable, "rb") as stream,
        mmap.mmap(stream.fileno(), 4096, access=mmap.ACCESS_READ) as pages,
    ):
        pages.madvise(21)  # MADV_PAGEOUT, which drops pages for a file's owner
    return "dropped"


@door("read a file ahead into the page cache")
def _(places: dict[str, Any]) -> Any:
    with open(sys.executable, "rb") as stream:
        return _call("readahead", stream.fileno(), 0, 4096) + 1


@door("tell whether the page cache holds a file, by a read that does not wait")
def _(places: dict[str, Any]) -> Any:
    with open(sys.executable, "rb") as stream:
        return os.preadv(stream.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)


@door("tell whether the page cache holds a file, by its mapping")
def _(places: dict[str, Any]) -> Any:
    with (
        open(sys.executable, "rb") as stream,
        mmap.mmap(stream.fileno(), 4096, access=mmap.ACCESS_COPY) as pages,
    ):
        held, start = (ctypes.c_ubyte * 1)(), ctypes.c_char.from_buffer(pages)
        try:
            return _call("mincore", ctypes.addressof(start), 4096, ctypes.addressof(held)) + 1
        finally:
            del start


@door("System V shared memory that nobody holds")
def _(places: dict[str, Any]) -> Any:
    made = _call("shmget", 0, 2**20, 0o1600)
    _LIBC.shmctl(made, 0, None)  # removes it
    return made + 1


@door("System V message queue")
def _(places: dict[str, Any]) -> Any:
    made = _call("msgget", 0, 0o1600)
    _LIBC.msgctl(made, 0, None)  # removes it
    return made + 1


def _is_outside(places: dict[str, Any]) -> str:
    """Return the run's command line, if the process of that number is the run."""
    words = Path(f"/proc/{places['pid']}/cmdline").read_bytes().decode(errors="replace")
    return words if words == places["words"] else ""


def _in_child(action: Callable[[], Any]) -> str:
    """Return whether an action succeeds in a child, which it may change for good."""
    child = os.fork()
    if child == 0:
        try:
            action()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return "" if os.waitpid(child, 0)[1] else "done"


def _of_file(action: Callable[[int], Any]) -> str:
    """Do something with a read-only file."""
    with open(os.__file__) as stream:
        action(stream.fileno())
    return "done"


def _files(folder: str) -> list[str]:
    return glob.glob(os.path.join(folder, "**", "*.json*"), recursive=True)[:3]


def _writes(folder: str) -> str:
    path = os.path.join(folder, "fleetgym-was-here")
    Path(path).write_text("x")
    os.unlink(path)
    return path
