"""Play commands in processes that are made unhappy: a case a line in, how it ended a line out.

Every case is a fork of one process that has imported everything, and ends as an interpreter does. So hundreds of cases
take the time of a few. It is a program, and no part of a test's process: `in_processes` starts it.
"""

from __future__ import annotations

import atexit
import ctypes
import dataclasses
import gc
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

_LIBC = ctypes.CDLL(None, use_errno=True)
_NEW_MOUNTS = 0x00020000  # CLONE_NEWNS, from <sched.h>
_PRIVATE, _READ_ONLY, _REMOUNT, _BIND = 0x44000, 1, 32, 4096  # from <sys/mount.h>
#: Linear algebra has no threads of its own, which a fork would lose.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: A file that fills a disk.
FILLER = "filler"
#: A case that takes longer hangs.
_MOST_S = 120.0


@dataclasses.dataclass(frozen=True)
class Case:
    """A command in a process.

    Attributes
    ----------
    words : tuple of str
        After ``fleetgym``.
    folder : str
        In which it runs; it is made.
    environment : dict of str to str
        Beside the present one.
    stdout, stderr : str
        ``"read"``, ``"gone"`` (nobody reads), ``"closed"`` or ``"full"`` (a full disk).
    most_bytes : int, optional
        Of a file.
    disk_bytes : int, optional
        Free in the folder, which is on a disk of its own: 0 or 4096.
    shared_memory : str
        ``"present"``, ``"missing"`` or ``"read-only"``.
    signal : int
        Sent at a share of all calls of Python functions; 0: none.
    share : float
        0 to 1.
    package : str
        Whose functions' calls are counted; "": all.
    """

    words: tuple[str, ...]
    folder: str
    environment: dict[str, str] = dataclasses.field(default_factory=dict)
    stdout: str = "read"
    stderr: str = "read"
    most_bytes: int | None = None
    disk_bytes: int | None = None
    shared_memory: str = "present"
    signal: int = 0
    share: float = 0.0
    package: str = ""


@dataclasses.dataclass(frozen=True)
class End:
    """How a case ended: its exit code (negative: a signal's number), what it printed, and the files of its folder."""

    code: int
    out: str
    err: str
    files: list[str]
    impossible: str = ""


def in_processes(
    cases: Sequence[Case], start: Callable[..., subprocess.CompletedProcess[str]] | None = None
) -> list[End]:
    """Play cases, one after another, in forks of one process; `start` may start it as another user."""
    text = "".join(json.dumps(dataclasses.asdict(case)) + "\n" for case in cases)
    command = [sys.executable, __file__]
    if start is None:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=1200, check=False)
    else:
        done = start(command, input=text, timeout=1200)
    assert done.returncode == 0, done.stderr
    ends = [End(**json.loads(line)) for line in done.stdout.splitlines()]
    assert len(ends) == len(cases), done.stderr
    return ends


def main() -> None:
    """Read cases, fork for each, and write how it ended."""
    os.environ.update(dict.fromkeys(THREADS, "1"))  # before anything that reads it is imported
    cases = [Case(**json.loads(line)) for line in sys.stdin]
    _warm_up()
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: a fork would lose them"
    gc.freeze()
    calls: dict[tuple[str, ...], int] = {}
    for case in cases:
        what = (case.package, *case.words)
        if case.signal and what not in calls:
            _count_calls(case, "first")  # compiles and writes what later runs load
            calls[what] = _count_calls(case, "counted")
        report = _play(case, calls.get(what, 0))
        os.write(1, (json.dumps(dataclasses.asdict(report)) + "\n").encode())


def _warm_up() -> None:
    """Import all, and load the kernels that an episode takes."""
    import fleetgym.baselines.hold
    import fleetgym.capacity.simulation.window
    import fleetgym.capacity.traces
    import fleetgym.evaluation.run
    import fleetgym.leaderboard.report
    import fleetgym.leaderboard.rerun
    import fleetgym.leaderboard.season
    import fleetgym.leaderboard.site
    import fleetgym.leaderboard.submit
    import fleetgym.leaderboard.verify
    import fleetgym.scoring.comparison  # noqa: F401
    from fleetgym.evaluation.jobs import Job, close_agents, run_job

    run_job(Job("hold", "fleet-v0/toy/drop", 0), isolate="never")
    close_agents()


def _play(case: Case, calls: int) -> End:
    os.makedirs(case.folder, exist_ok=True)
    (out_end, out), (err_end, err), (told_end, told) = os.pipe(), os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _become(case, calls, out, err, told)
    for end in (out, err, told):
        os.close(end)
    if case.stdout == "gone":
        os.close(out_end)
    printed = _read(
        {"out": out_end if case.stdout != "gone" else -1, "err": err_end, "told": told_end}, child
    )
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    told_text = printed["told"].decode()
    if told_text.startswith("cannot "):
        return End(code, "", "", [], told_text)
    files = json.loads(told_text) if told_text else _files(case.folder)
    return End(code, *(printed[n].decode(errors="replace") for n in ("out", "err")), files)


def _read(ends: dict[str, int], child: int) -> dict[str, bytes]:
    """Return what comes from pipes until all are closed."""
    found = dict.fromkeys(ends, b"")
    until = time.monotonic() + _MOST_S
    with selectors.DefaultSelector() as selector:
        for name, end in ends.items():
            if end >= 0:
                selector.register(end, selectors.EVENT_READ, name)
        while selector.get_map():
            for key, _ in selector.select(1.0):
                data = os.read(key.fd, 65536)
                found[key.data] += data
                if not data:
                    selector.unregister(key.fd)
                    os.close(key.fd)
            if time.monotonic() > until:
                os.kill(child, signal.SIGKILL)
                found["err"] += b"\nTraceback: it hangs"
                until += _MOST_S
    return found


def _files(folder: str) -> list[str]:
    """Return the files of a folder; of one with lines, whether the last one has no end."""
    found = []
    for path in sorted(path for path in Path(folder).rglob("*") if path.is_file() and path.name != FILLER):
        data = path.read_bytes() if path.suffix == ".jsonl" else b""
        torn = " (torn)" if data and not data.endswith(b"\n") else ""
        found.append(f"{path.relative_to(folder)}{torn}")
    return found


def _become(case: Case, calls: int, out: int, err: int, told: int) -> None:
    """Be the command, and end as a Python program does."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.environ.update(case.environment)
    try:
        if case.disk_bytes is not None or case.shared_memory != "present":
            _change_mounts(case)
    except OSError as error:
        os.write(told, f"cannot change mounts: {error}".encode())
        os._exit(0)
    os.chdir(case.folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for name, number, pipe in (("stdout", 1, out), ("stderr", 2, err)):
        how = getattr(case, name)
        if how == "closed":
            os.close(number)
            setattr(sys, name, None)
            continue
        os.dup2(os.open("/dev/full", os.O_WRONLY) if how == "full" else pipe, number)
        encoding, _, errors = os.environ.get("PYTHONIOENCODING", "utf-8").partition(":")
        errors = errors or ("strict" if number == 1 else "backslashreplace")
        setattr(sys, name, open(number, "w", encoding=encoding, errors=errors, closefd=False))  # noqa: SIM115
        setattr(sys, f"__{name}__", None)  # the zygote's, which would be flushed at the end
    os.close(out)
    os.close(err)
    if case.most_bytes is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (case.most_bytes, case.most_bytes))
    from fleetgym.cli.parser import main as command

    sys.argv = ["fleetgym", *case.words]
    code = 1
    try:
        if case.signal:
            _signal_at(case, int(case.share * calls))
        code = command()
    except BaseException:
        traceback.print_exc()
    finally:
        sys.setprofile(None)
        if case.disk_bytes is not None:  # only this process sees its disk
            os.write(told, json.dumps(_files(case.folder)).encode())
        os.close(told)
    _exit(code)


def _exit(code: int) -> NoReturn:
    """End as an interpreter does, but for the destruction of all modules, which takes a third of a CPU second."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            os.write(2, f"Exception ignored: {error}".encode())
            code = 120
    os._exit(code)


def _is_call(case: Case, frame: Any, event: str) -> bool:
    module = frame.f_globals.get("__name__", "")
    return event == "call" and (not case.package or module.partition(".")[0] == case.package)


def _signal_at(case: Case, call: int) -> None:
    seen = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal seen
        if _is_call(case, frame, event):
            seen += 1
            if seen > call:
                sys.setprofile(None)
                signal.raise_signal(case.signal)

    sys.setprofile(count)


def _count_calls(case: Case, name: str) -> int:
    """Return how many calls of Python functions a command takes in a folder of its own."""
    end, told = os.pipe()
    child = os.fork()
    if child == 0:
        from fleetgym.cli.parser import main as command

        folder = f"{case.folder}-{name}"
        os.makedirs(folder)
        os.chdir(folder)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        sys.stdout, sys.stderr = (open(n, "w", closefd=False) for n in (1, 2))  # noqa: SIM115
        sys.argv = ["fleetgym", *case.words]
        seen = 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal seen
            seen += _is_call(case, frame, event)

        sys.setprofile(count)
        try:
            command()
        finally:
            sys.setprofile(None)
            os.write(told, str(seen).encode())
            os._exit(0)
    os.close(told)
    with os.fdopen(end) as stream:
        text = stream.read()
    os.waitpid(child, 0)
    return int(text)


def _change_mounts(case: Case) -> None:
    """Give the process a small disk, or no shared memory, of its own."""
    if _LIBC.unshare(_NEW_MOUNTS) != 0:
        raise OSError(ctypes.get_errno(), "no namespace of mounts")
    _mount(None, "/", None, _PRIVATE, None)
    if case.disk_bytes is not None:
        _mount("none", case.folder, "tmpfs", 0, "size=8192")
        Path(case.folder, FILLER).write_bytes(bytes(8192 - case.disk_bytes))
    if case.shared_memory == "read-only":
        _mount("none", "/dev/shm", "tmpfs", _READ_ONLY, None)
    elif case.shared_memory == "missing":
        kept = f"{case.folder}-dev"
        os.makedirs(kept)
        _mount("none", kept, "tmpfs", 0, "mode=755")
        for name in ("null", "zero", "full", "random", "urandom"):
            Path(kept, name).touch()
            _mount(f"/dev/{name}", f"{kept}/{name}", None, _BIND, None)
        _mount(kept, "/dev", None, _BIND | 0x4000, None)  # with what is mounted in it


def _mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    words = [None if word is None else word.encode() for word in (source, target, kind)]
    if _LIBC.mount(*words, ctypes.c_ulong(flags), None if options is None else options.encode()) != 0:
        raise OSError(ctypes.get_errno(), f"cannot mount {target}")


if __name__ == "__main__":
    main()
