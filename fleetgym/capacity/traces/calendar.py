"""Lay requests per window over calendar days, and report days and hours that have none."""

from __future__ import annotations

import dataclasses
import datetime
import itertools

import numpy as np

from fleetgym.families.demand import DAY

_HOUR = 12  # windows
_HOURS = DAY // _HOUR
_DENSE = 20.0  # requests in an hour, of which a hole of an hour is no chance
_MOST_TOLD = 6


@dataclasses.dataclass(frozen=True)
class Calendar:
    """Which windows count, and of which days they are."""

    is_there: np.ndarray  # (windows,) bool: not of a calendar day without any request
    dates: tuple[str, ...]  # of the calendar days that have a window, without the missing ones
    notes: tuple[str, ...]


def lay_calendar(start_ns: int | None, first_window: int, requests: np.ndarray) -> Calendar:
    """Return the calendar of a trace.

    A whole calendar day without a request is missing: whoever records a service that nobody uses for a day
    is rarer than one who does not record. Shorter holes count as no demand, and are told where demand is dense
    otherwise.

    Parameters
    ----------
    start_ns : int, optional
        Nanoseconds since 1970 at which the first window begins; None where the trace names no dates.
    first_window : int
        Window of the day with which the trace begins.
    requests : ndarray, shape (windows,)
        Requests in each window.

    Returns
    -------
    Calendar
    """
    days = -(-(first_window + len(requests)) // DAY)
    grid = np.full(days * DAY, np.nan)
    grid[first_window : first_window + len(requests)] = requests
    by_day = grid.reshape(days, DAY)
    is_missing = np.all(by_day == 0.0, axis=1)
    names = [_date(start_ns, day) for day in range(days)]
    kept = [name for name, missing in zip(names, is_missing, strict=True) if not missing]
    notes = []
    if is_missing.any():
        count = int(is_missing.sum())
        notes.append(
            f"{count} calendar day{'s' * (count > 1)} without any request left out, as missing rather than quiet: "
            f"{_told(_runs(names, is_missing))}"
        )
    hours = by_day[~is_missing].reshape(-1, _HOURS, _HOUR).sum(axis=2)  # NaN where the trace covers a part
    notes += _holes(hours, kept)
    there = np.repeat(~is_missing, DAY)[first_window : first_window + len(requests)]
    return Calendar(there, tuple(kept), tuple(notes))


def _date(start_ns: int | None, day: int) -> str:
    if start_ns is None:
        return f"day {day + 1}"
    epoch = datetime.date(1970, 1, 1)
    return (epoch + datetime.timedelta(days=start_ns // (86400 * 10**9) + day)).isoformat()


def _runs(names: list[str], chosen: np.ndarray) -> list[str]:
    """Return names that are chosen, those that follow each other as one.

    Examples
    --------
    >>> _runs(["a", "b", "c", "d"], np.array([True, True, False, True]))
    ['a to b', 'd']
    """
    found = []
    for is_chosen, group in itertools.groupby(range(len(names)), key=lambda k: bool(chosen[k])):
        first, *_, last = [*group] * 2
        if is_chosen:
            found.append(names[first] if first == last else f"{names[first]} to {names[last]}")
    return found


def _told(parts: list[str]) -> str:
    more = len(parts) - _MOST_TOLD
    return ", ".join(parts[:_MOST_TOLD]) + (f" and {more} more" if more > 0 else "")


def _holes(hours: np.ndarray, dates: list[str]) -> list[str]:
    """Return what to say of hours without a request; (days, 24), NaN where the trace covers only a part of one."""
    empty, busy, known = hours == 0.0, hours > 0.0, ~np.isnan(hours)
    notes = []
    is_dense = busy.any() and float(hours[busy].mean()) >= _DENSE
    is_usual = is_dense & (empty.sum(axis=0) > known.sum(axis=0) / 2)
    if is_usual.any():
        # Hours that follow each other are one hole if they are empty on the same days.
        keys = [(bool(is_usual[h]), empty[:, h].tobytes(), known[:, h].tobytes()) for h in range(_HOURS)]
        holes = []
        for (usual, _, _), group in itertools.groupby(range(_HOURS), key=lambda h: keys[h]):
            first, *_, last = [*group] * 2
            if usual:
                share = f"{empty[:, first].sum()} of {known[:, first].sum()} days"
                holes.append(f"between {first:02d}:00 and {last + 1:02d}:00 on {share}")
        notes.append(f"no requests {_told(holes)}: counted as no demand")
    usually = hours.sum(axis=0, where=busy) / np.maximum(busy.sum(axis=0), 1)
    is_odd = empty & ~is_usual & (usually >= _DENSE)
    if is_odd.any():
        found = [
            f"{count} h of {date}" for date, count in zip(dates, is_odd.sum(axis=1), strict=True) if count
        ]
        notes.append(f"no requests in {_told(found)}, while other days have some then: counted as no demand")
    return notes
