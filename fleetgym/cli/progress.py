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
    """Shows the progress of a run, and the time that is left.

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
        self._first: tuple[float, float] | None = None  # when the first call came, and its share

    def __call__(self, done: int, total: int, share: float | None = None) -> None:
        """Draw the bar, or write a line if it is time for one; `share` of the work is done, by default done / total.

        What came before the first call tells nothing of the pace: kernels were compiled, or an earlier run did it.
        """
        share = done / total if share is None else share
        now = time.monotonic()
        if self._first is None:
            self._first = now, share
        since, begun = self._first
        left = f", {clock((now - since) * (1.0 - share) / (share - begun))} left" if share > begun else ""
        if not self.is_drawn:
            if now - self._told >= _EVERY_S and done < total:
                self._told = now
                self.stream.write(f"fleetgym: {self.what}: {done} of {total}{left}\n")
                self.stream.flush()
            return
        filled = _WIDTH * done // total
        bar = "#" * filled + "." * (_WIDTH - filled)
        self.stream.write(f"\r{self.what} [{bar}] {done}/{total}{left} \x1b[K")
        if done == total:
            self.stream.write(f"\r{self.what}: {total} in {clock(now - self._begin)}\x1b[K\n")
        self.stream.flush()
