"""Give up what an agent does not need before its code runs: its user, rights, keyring, and many system calls.

It uses the standard library alone, since it runs in `init`, where nothing else is loaded.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
import socket
from typing import Any

_LIBC: Any = ctypes.CDLL(None, use_errno=True) if os.name == "posix" else None
# From <sched.h>, <linux/prctl.h>, <linux/capability.h> and <linux/keyctl.h>.
_NEW_USER = 0x10000000
_CAPABILITY_BOUND_DROP, _NO_NEW_PRIVILEGES, _SET_DUMPABLE = 24, 38, 4
_CAPABILITY_VERSION, _CAPABILITIES = 0x20080522, 64
_JOIN_SESSION_KEYRING = 1
#: Numbers of system calls that the C library does not wrap.
CALLS = {
    "x86_64": {"capset": 126, "add_key": 248, "keyctl": 250},
    "aarch64": {"capset": 91, "add_key": 217, "keyctl": 219},
}.get(platform.machine(), {})
NOBODY = 65534
_FILE_BYTES = 256 * 2**20  # of one file, also of one in memory

#: System calls that no agent needs, and that reach what the namespaces do not part.
REFUSED_CALLS = (
    # keyrings, which outlive a process
    *("add_key", "request_key", "keyctl"),
    # other processes' memory and state
    *("ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "process_madvise"),
    # the files' arrangement
    *("mount", "umount2", "pivot_root", "chroot", "setns", "unshare", "open_tree", "move_mount"),
    *("fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr"),
    *("open_by_handle_at", "name_to_handle_at", "mknod", "mknodat", "quotactl", "quotactl_fd"),
    # locks and watches on files, which others see although the files are read-only
    *("flock", "inotify_init", "inotify_init1", "inotify_add_watch", "fanotify_init", "fanotify_mark"),
    # work that this filter does not see, or that is not counted
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "userfaultfd", "bpf", "perf_event_open"),
    # the machine
    *("kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "reboot"),
    *("swapon", "swapoff", "acct", "syslog", "settimeofday", "clock_settime", "adjtimex", "clock_adjtime"),
    *("sethostname", "setdomainname", "iopl", "ioperm", "vhangup", "lookup_dcookie", "nfsservctl"),
)
# From <seccomp.h>.
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NOT_EQUAL, _EQUAL, _MASKED_EQUAL = 1, 4, 7
# From <fcntl.h>: locks of both kinds, leases and notices.
_FILE_LOCKS = (5, 6, 7, 37, 38, 1024, 1026)
_EPERM, _ENOSYS, _EAFNOSUPPORT, _ENOLCK = 1, 38, 97, 37


class _Comparison(ctypes.Structure):
    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    ]


def confine(address_space_bytes: int) -> None:
    """Give up all that an agent does not need, for good, in this process and in all that it starts.

    Parameters
    ----------
    address_space_bytes : int
        Limit of each process.

    Raises
    ------
    OSError
        If this runs as root and cannot become a user without rights, or the filter of calls cannot be loaded.
    """
    import resource  # which only Unix has

    os.setsid()
    if "keyctl" in CALLS:
        _LIBC.syscall(CALLS["keyctl"], _JOIN_SESSION_KEYRING, None)
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        _LIBC.prctl(_SET_DUMPABLE, 1, 0, 0, 0)  # or its files in /proc, which follow, stay root's
        if _LIBC.unshare(_NEW_USER) == 0:  # whose keyring of the user nobody is its own
            with contextlib.suppress(OSError):
                _map_user(NOBODY, NOBODY)
    _drop_capabilities()
    _LIBC.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (address_space_bytes, address_space_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (_FILE_BYTES, _FILE_BYTES))
    _Filter().load()


def _map_user(uid: int, gid: int) -> None:
    """Name this process's user in the user namespace that it has just made."""
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as stream:
            stream.write(text)


def hide_from_tracers() -> None:
    """Let nobody but root look into this process."""
    _LIBC.prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def _drop_capabilities() -> None:
    for capability in range(_CAPABILITIES):
        _LIBC.prctl(_CAPABILITY_BOUND_DROP, capability, 0, 0, 0)
    if "capset" in CALLS:
        header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
        _LIBC.syscall(CALLS["capset"], header, (ctypes.c_uint32 * 6)())


def load_seccomp() -> ctypes.CDLL:
    """Return libseccomp.

    Raises
    ------
    OSError
        If it is not installed.
    """
    return ctypes.CDLL("libseccomp.so.2")


class _Filter:
    """A filter of system calls, made by libseccomp."""

    def __init__(self) -> None:
        self._library = library = load_seccomp()
        library.seccomp_init.restype = ctypes.c_void_p
        library.seccomp_rule_add_array.argtypes = [
            ctypes.c_void_p,
            ctypes.c_uint32,
            ctypes.c_int,
            ctypes.c_uint,
            ctypes.POINTER(_Comparison),
        ]
        library.seccomp_load.argtypes = [ctypes.c_void_p]

    def load(self) -> None:
        """Filter the calls of this process and of all that it starts.

        A process may say what happens when a child ends, and with it that nobody learns what the child has used. Here
        that call does nothing, so that every child stays in sight until somebody waits for it.

        Raises
        ------
        OSError
            If the filter cannot be loaded.
        """
        self._context = self._library.seccomp_init(_ALLOW)
        for name in REFUSED_CALLS:
            self._refuse(name, _EPERM)
        for command in _FILE_LOCKS:
            self._refuse("fcntl", _ENOLCK, (1, _EQUAL, command, 0))
        # Namespaces of one's own; glibc turns to clone where there is no clone3, whose flags a filter cannot read.
        self._refuse("clone", _EPERM, (0, _MASKED_EQUAL, _NEW_USER, _NEW_USER))
        self._refuse("clone3", _ENOSYS)
        # Sockets between its own processes alone: virtual machines' sockets pass network namespaces.
        self._refuse("socket", _EAFNOSUPPORT, (0, _NOT_EQUAL, socket.AF_UNIX, 0))
        self._refuse("rt_sigaction", 0, (0, _EQUAL, signal.SIGCHLD, 0), (1, _NOT_EQUAL, 0, 0))
        if self._library.seccomp_load(self._context) != 0:
            raise OSError("libseccomp cannot load the filter of system calls")

    def _refuse(self, name: str, errno: int, *conditions: tuple[int, int, int, int]) -> None:
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        array = (_Comparison * max(1, len(conditions)))(*(_Comparison(*each) for each in conditions))
        if number != -1:  # the library knows the call
            self._library.seccomp_rule_add_array(
                self._context, _ERRNO | errno, number, len(conditions), array
            )
