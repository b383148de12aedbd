"""Run a command in its process: streams, signals and exit codes.

A command says in one line why it ended, whatever ended it, and never in a traceback. A reader that has seen enough,
such as ``head``, is no error.
"""

from __future__ import annotations

import _thread
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from fleetgym.files.errors import DataError, FleetgymError, one_line
from fleetgym.runtime.signals import end_at_once, handle

#: Exit codes of a command that a signal ended, as shells give them.
INTERRUPTED, TERMINATED = 130, 143


class Terminated(KeyboardInterrupt):
    """Somebody has asked this process to end (``SIGTERM``): it does what it does after Ctrl-C."""


def told(work: Callable[[], int | None], name: str = "fleetgym") -> int:
    """Do a command's work; tell a wrong input, or a file that cannot be used, in one line that begins with its name.

    The exit code is the work's (None: 0); 1 for a fault in a file, 2 for any other.

    Raises
    ------
    BrokenPipeError
        If the reader has seen enough, which is no fault.
    """
    try:
        return work() or 0
    except BrokenPipeError:
        raise
    except (FleetgymError, OSError) as error:
        print(f"{name}: {one_line(error)}", file=sys.stderr)
        return 1 if isinstance(error, DataError) else 2


def run_program(main: Callable[[], int | None]) -> NoReturn:
    """Run a program of the checkout as a command: its process ends with an exit code, and errors are one line.

    `main` returns the exit code; None is 0.
    """
    file = Path(sys.argv[0])
    name = file.parent.name if file.stem == "__main__" else file.stem

    def command() -> int:
        try:
            return told(main, name)
        except BrokenPipeError:
            return 0

    sys.exit(run(command, name))


def run(command: Callable[[], int], name: str = "fleetgym") -> int:
    """Run a command in a process that is its own; `name` begins its lines.

    The exit code is the command's; 2 if what it printed could not be written; 130 or 143 if Ctrl-C or ``SIGTERM``
    ended it.
    """
    _open_streams()
    try:
        with _signals_as_interrupts():
            try:
                code = command()
            except SystemExit as end:  # argparse
                code = int(end.code or 0)
            return _flush(code, name)
    except KeyboardInterrupt as stop:
        end_at_once()
        return stopped(stop, name=name)


def stopped(stop: KeyboardInterrupt, kept: str = "", name: str = "fleetgym") -> int:
    """Say that a signal has ended the command, and what it has kept; return the exit code."""
    print(f"{name}: stopped{kept}", file=sys.stderr)
    return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


def _flush(code: int, name: str) -> int:
    """Write what was printed and not yet written; return the exit code, which is not 0 if that is impossible."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return code
    except OSError as error:
        print(f"{name}: {one_line(error)}", file=sys.stderr)
        return code or 2
    return code


# -- standard streams


class _Output(io.FileIO):
    """A standard stream that nothing is written to after an error, which would be raised again and again.

    The errors of number 1 get its name; of those of number 2 nobody could be told.
    """

    def __init__(self, number: int):
        super().__init__(number, "w", closefd=False)

    def write(self, data: Any, /) -> int | None:  # type: ignore[override]
        """Write what can be written."""
        try:
            return super().write(data)
        except OSError as error:
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, self.fileno())
            os.close(nothing)
            if self.fileno() == 1:
                error.filename = "standard output"
                raise
            return len(data)


def _open_streams() -> None:
    """Put something in the place of streams that are closed; escape what a terminal cannot show; name errors.

    Otherwise the next file that is opened would take a closed stream's number, and what goes to the one would be
    written into the other.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free: this one
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name) or open(number, "w", closefd=False)  # noqa: SIM115
        if type(getattr(stream.buffer, "raw", stream.buffer)) is io.FileIO:  # and no console of Windows
            renewed = io.TextIOWrapper(
                io.BufferedWriter(_Output(number)),
                encoding=stream.encoding,
                errors="backslashreplace",
                line_buffering=stream.line_buffering or stream.write_through,
            )
            setattr(sys, name, renewed)


# -- signals

#: Packages whose Python code owns memory that is not Python's: an exception between the two loses it or frees it twice.
OWNERS = ("llvmlite",)
#: Functions that start compiled modules, which make another error of an exception.
STARTERS = {ExtensionFileLoader.create_module.__code__, ExtensionFileLoader.exec_module.__code__}
#: How long a signal that found such a place waits.
_LATER_S = 0.01


@contextmanager
def _signals_as_interrupts() -> Iterator[None]:
    """Turn Ctrl-C and ``SIGTERM`` into a `KeyboardInterrupt`; afterwards they end the process at once."""
    hook, stopping = sys.unraisablehook, []
    lost: list[int] = []
    kinds: dict[int, type[KeyboardInterrupt]] = {
        signal.SIGINT: KeyboardInterrupt,
        signal.SIGTERM: Terminated,
    }

    def stop(number: int, frame: FrameType | None) -> None:
        if _is_delicate(frame):
            later(number)
            return
        stopping.append(number)
        raise kinds[number]

    def later(number: int) -> None:
        lost.append(number)
        threading.Timer(_LATER_S, _thread.interrupt_main, (number,)).start()

    def again(what: Any) -> None:
        """Raise again what came where nothing can be raised, such as in a weak reference's callback.

        Not at once: this function is called from such a place, and what it raises is lost, too.
        """
        if issubclass(what.exc_type, KeyboardInterrupt):
            later(signal.SIGTERM if issubclass(what.exc_type, Terminated) else signal.SIGINT)
        elif not stopping:  # objects that a signal found half made complain when they go
            hook(what)

    sys.unraisablehook = again
    try:
        for number in kinds:
            handle(number, stop)
        yield
        if lost:  # the command was done before
            raise kinds[lost[-1]]
    finally:
        end_at_once()


def _is_delicate(frame: FrameType | None) -> bool:
    """Return whether a function of `OWNERS` or `STARTERS` is at work, which an exception would break."""
    while frame is not None:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in OWNERS or frame.f_code in STARTERS:
            return True
        frame = frame.f_back
    return False
