"""Show the progress of a run: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TextIO

_WIDTH = 30
#: Seconds between two lines where there is no terminal; shorter runs say nothing there.
_EVERY_S = 30.0


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
    """Shows how far a run is, and how long the rest will take.

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
        self.is_drawn = self.stream.isatty()
        self._begin = self._told = time.monotonic()
        self._kept: int | None = None

    def __call__(self, done: int, total: int, share: float | None = None) -> None:
        """Draw the bar, or write a line if it is time for one; `share` of the work is done, by default done / total."""
        share = done / total if share is None else share
        if self._kept is None:
            self._kept = done - 1  # episodes of an earlier run took no time in this one
        now = time.monotonic()
        spent_s = now - self._begin
        left_s = spent_s * (1.0 - share) / (share * (done - self._kept) / done)
        if not self.is_drawn:
            if now - self._told >= _EVERY_S and done < total:
                self._told = now
                self.stream.write(f"fleetgym: {self.what}: {done} of {total}, {clock(left_s)} left\n")
                self.stream.flush()
            return
        filled = _WIDTH * done // total
        bar = "#" * filled + "." * (_WIDTH - filled)
        self.stream.write(f"\r{self.what} [{bar}] {done}/{total}  {clock(left_s)} left \x1b[K")
        if done == total:
            self.stream.write(f"\r{self.what}: {total} episodes in {clock(spent_s)}\x1b[K\n")
        self.stream.flush()
