"""Handle Ctrl-C and ``SIGTERM``, with the standard library alone, as this comes before all other imports."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any


def is_command() -> bool:
    """Return whether this process was started as ``fleetgym`` or ``python -m fleetgym``."""
    words = sys.orig_argv[1:3]
    return words == ["-m", "fleetgym"] or os.path.basename(words[0] if words else "") == "fleetgym"


def handle(number: int, handler: Callable[..., Any] | signal.Handlers) -> None:
    """Set a signal's handler, unless whoever started this process wants the signal ignored, as ``nohup`` does."""
    if signal.getsignal(number) is not signal.SIG_IGN:
        signal.signal(number, handler)


def end_at_once() -> None:
    """Let Ctrl-C and ``SIGTERM`` end this process without a word: it has nothing to keep yet, or all is kept."""
    for number in (signal.SIGINT, signal.SIGTERM):
        handle(number, signal.SIG_DFL)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold Ctrl-C back while the block runs, and from the processes that it starts until they let it through.

    A process that starts would print a traceback: Ctrl-C in a terminal goes to all processes of a command.
    """
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def leave_to_parent() -> None:
    """Pass over Ctrl-C in a process that its parent ends; what this process starts does not inherit that."""
    signal.signal(signal.SIGINT, lambda number, frame: None)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
