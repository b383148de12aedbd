"""Numbers of finished and of all episodes in, a line with the time left out, on a terminal only."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30


def clock(seconds: float) -> str:
    """Return a duration as minutes and seconds, or hours and minutes.

    Examples
    --------
    >>> clock(75), clock(7260)
    ('1:15', '2 h 01')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d}"


class ProgressBar:
    """Shows how far a run is; silent where stderr is no terminal.

    Parameters
    ----------
    what : str
        Stands before the bar.
    stream : text file, optional
        By default stderr.
    """

    def __init__(self, what: str, stream: TextIO | None = None):
        self.what = what
        self.stream = sys.stderr if stream is None else stream
        self.shown = self.stream.isatty()
        self._begin = time.monotonic()
        self._at_begin: int | None = None

    def __call__(self, done: int, total: int) -> None:
        """Draw the bar."""
        if not self.shown:
            return
        if self._at_begin is None:
            self._at_begin = done - 1  # episodes kept from an earlier run took no time in this one
        spent_s = time.monotonic() - self._begin
        left_s = spent_s / (done - self._at_begin) * (total - done)
        filled = _WIDTH * done // total
        bar = "#" * filled + "." * (_WIDTH - filled)
        self.stream.write(f"\r{self.what} [{bar}] {done}/{total}  {clock(left_s)} left \x1b[K")
        if done == total:
            self.stream.write(f"\r{self.what}: {total} episodes in {clock(spent_s)}\x1b[K\n")
        self.stream.flush()
