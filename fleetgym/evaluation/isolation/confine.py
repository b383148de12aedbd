"""Remove what an agent does not need before its code runs: its user, rights, keyring, and many system calls.

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
_EQUAL_ADDRESSES = 0x0040000  # ADDR_NO_RANDOMIZE of <sys/personality.h>
#: Numbers of system calls that the C library does not wrap.
CALLS = {
    "x86_64": {"capset": 126, "add_key": 248, "keyctl": 250},
    "aarch64": {"capset": 91, "add_key": 217, "keyctl": 219},
}.get(platform.machine(), {})
NOBODY = 65534
_FILE_BYTES = 256 * 2**20  # of one file, also of one in memory

#: System calls that agents may make; all others do not exist for them, so that C libraries do without. Missing are
#: those that reach what the namespaces do not part: keyrings, other processes' memory, mounts, locks and watches on
#: files, shared memory without files, the state of the page cache, and work that is not counted.
ALLOWED_CALLS = """
    accept accept4 access alarm arch_prctl bind brk capget chdir chmod chown clock_getres clock_gettime
    clock_nanosleep close close_range connect copy_file_range creat dup dup2 dup3 epoll_create epoll_create1
    epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd eventfd2 execve execveat exit exit_group faccessat
    faccessat2 fallocate fchdir fchmod fchmodat fchown fchownat fdatasync fgetxattr flistxattr fork fstat fstatfs
    fsync ftruncate futex futex_waitv futimesat get_mempolicy get_robust_list getcpu getcwd getdents getdents64
    getegid geteuid getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom
    getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr
    ioctl kill lchown lgetxattr link linkat listen listxattr llistxattr lseek lstat mbind membarrier
    memfd_create mkdir mkdirat mlock mlock2 mmap mprotect mremap msync munlock munmap nanosleep newfstatat open
    openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect poll ppoll
    prctl pread64 preadv prlimit64 pselect6 pwrite64 pwritev read readlink readlinkat readv recvfrom recvmmsg
    recvmsg rename renameat renameat2 restart_syscall rmdir rseq rt_sigpending rt_sigprocmask rt_sigqueueinfo
    rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo sched_get_priority_max sched_get_priority_min
    sched_getaffinity sched_getattr sched_getparam sched_getscheduler sched_rr_get_interval sched_setaffinity
    sched_setattr sched_setparam sched_setscheduler sched_yield select sendfile sendmmsg sendmsg sendto
    set_mempolicy set_robust_list set_tid_address setfsgid setfsuid setgid setgroups setitimer setpgid setpriority
    setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid shutdown sigaltstack signalfd
    signalfd4 socketpair splice stat statfs statx symlink symlinkat sysinfo tee tgkill time timer_create
    timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime timerfd_settime times
    tkill truncate umask uname unlink unlinkat utime utimensat utimes vfork vmsplice wait4 waitid write writev
""".split()  # noqa: SIM905
# From <seccomp.h>.
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NOT_EQUAL, _EQUAL, _MASKED_EQUAL = 1, 4, 7
# From <fcntl.h>: all commands but locks of both kinds, leases and notices.
_FILE_COMMANDS = (0, 1, 2, 3, 4, 8, 9, 10, 11, 15, 16, 1030, 1031, 1032, 1033, 1034)
# From <linux/mman.h>: all advice but to drop pages that files hold (MADV_COLD, MADV_PAGEOUT).
_ADVICE = (*range(5), *range(8, 20), *range(22, 26), 102, 103)
# From <sched.h>: all namespaces.
_NEW_NAMESPACES = 0x7E020000
_EAFNOSUPPORT, _ENOSYS = 97, 38


class _Comparison(ctypes.Structure):
    _fields_ = [
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    ]


def confine(address_space_bytes: int) -> None:
    """Drop everything that an agent does not need, permanently, in this process and its children.

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
    # Python hashes objects by their addresses: a rerun finds sets in the same order.
    _LIBC.personality(_EQUAL_ADDRESSES)
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
        self._context = self._library.seccomp_init(_ERRNO | _ENOSYS)
        for name in ALLOWED_CALLS:
            self._add(name, _ALLOW)
        for command in _FILE_COMMANDS:
            self._add("fcntl", _ALLOW, (1, _EQUAL, command, 0))
        for advice in _ADVICE:
            self._add("madvise", _ALLOW, (2, _EQUAL, advice, 0))
        # glibc turns to clone where there is no clone3, whose flags a filter cannot read.
        self._add("clone", _ALLOW, (0, _MASKED_EQUAL, _NEW_NAMESPACES, 0))
        # Sockets between its own processes alone: virtual machines' sockets pass network namespaces.
        self._add("socket", _ALLOW, (0, _EQUAL, socket.AF_UNIX, 0))
        self._add("socket", _ERRNO | _EAFNOSUPPORT, (0, _NOT_EQUAL, socket.AF_UNIX, 0))
        # With a flag a read tells whether another episode has read the same file.
        for name in ("preadv2", "pwritev2"):
            self._add(name, _ALLOW, (5, _EQUAL, 0, 0))
        self._add("rt_sigaction", _ALLOW, (0, _NOT_EQUAL, signal.SIGCHLD, 0))
        self._add("rt_sigaction", _ALLOW, (0, _EQUAL, signal.SIGCHLD, 0), (1, _EQUAL, 0, 0))
        self._add("rt_sigaction", _ERRNO, (0, _EQUAL, signal.SIGCHLD, 0), (1, _NOT_EQUAL, 0, 0))
        if self._library.seccomp_load(self._context) != 0:
            raise OSError("libseccomp cannot load the filter of system calls")

    def _add(self, name: str, action: int, *conditions: tuple[int, int, int, int]) -> None:
        number = self._library.seccomp_syscall_resolve_name(name.encode())
        array = (_Comparison * max(1, len(conditions)))(*(_Comparison(*each) for each in conditions))
        if number >= 0:  # this machine has the call, and the library knows it
            self._library.seccomp_rule_add_array(self._context, action, number, len(conditions), array)
