"""Convert columns of times, dates or numbers of any unit, to nanoseconds, and find entries that are neither."""

from __future__ import annotations

import dataclasses
import math
import re
from typing import Any

import numpy as np

from fleetgym.capacity.traces.header import UNITS
from fleetgym.files.errors import FleetgymError

_YEARS = (1678, 2261)  # as fit nanoseconds since 1970 in 64 bits
_MOST_NS = 9e18
_RELATIVE_DATES = ("now", "today")  # pandas knows them; no trace does
_NOT_OF_A_NUMBER = re.compile(r"[^0-9.eE+\- \t]")  # and of blanks around one

#: Dates beside ISO 8601 that are no other date when read otherwise: those of web servers, and of mail and HTTP.
_FORMATS = ("%d/%b/%Y:%H:%M:%S %z", "%d %b %Y %H:%M:%S %z", "%d %b %Y %H:%M:%S %Z")
_WEEKDAY = r"^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? "

#: Dates of which the first may be the day or the month, or that are seldom: the user says which.
_OTHERS = (
    *("%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M"),
    *(
        "%m/%d/%Y, %I:%M:%S.%f %p",
        "%d/%m/%Y, %I:%M:%S.%f %p",
        "%m/%d/%Y %I:%M:%S %p",
        "%m/%d/%Y, %I:%M:%S %p",
    ),
    *("%d.%m.%Y %H:%M:%S", "%d-%m-%Y %H:%M:%S", "%d/%m/%Y %H:%M:%S.%f", "%m/%d/%Y %H:%M:%S.%f"),
    *("%b %d, %Y %H:%M:%S", "%d %b %Y %H:%M:%S", "%b %d, %Y @ %H:%M:%S.%f", "%Y-%m-%d_%H-%M-%S"),
)
_ZONE = r"(?:Z|z|UTC|GMT|[+-]\d\d:?\d\d)\s*$"
_NAMED_UTC = r"\s+(?:UTC|GMT)$"  # after a date of ISO 8601, as BigQuery and others write it
_LOOKED_AT = 1000  # rows, of which all or none should have a zone

#: Seconds since 1970 of any date are smaller, and so on: what a number of today's time must be, whatever its unit.
_SINCE_1970 = ((9e17, "ns"), (9e14, "us"), (9e11, "ms"))  # from 1998 on: in between are other epochs' numbers


@dataclasses.dataclass(frozen=True)
class Times:
    """How a column of times is read."""

    format: str | None  # of dates; None for numbers
    unit: str = "s"  # of numbers
    is_stated: bool = False  # whether names or the user say the unit
    may_be: tuple[str, ...] = ()  # formats of dates that fit the first one, where none is told

    @property
    def is_clock(self) -> bool:
        """Whether the times are dates."""
        return self.format is not None

    def read(self, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
        """Return nanoseconds, which entries are no times, and what was expected."""
        return self._dates(entries) if self.is_clock else self._numbers(entries)

    def _dates(self, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
        import pandas

        texts = pandas.Series(entries, dtype=object).astype(str)
        if self.format in _FORMATS:
            texts = _bare(texts)
        elif self.format == "ISO8601" and texts[:_LOOKED_AT].str.contains(_NAMED_UTC).any():
            texts = texts.str.replace(_NAMED_UTC, "Z", regex=True)
        stamps = pandas.to_datetime(texts, format=self.format, utc=True, errors="coerce")
        wrong = ~stamps.dt.year.between(*_YEARS) | texts.isin(_RELATIVE_DATES)
        expected = "a time such as 2023-11-16 18:17:03.9799600"
        if self.format != "ISO8601":
            expected = f"a time as {self.format}"
        elif 0.0 < texts[:_LOOKED_AT].str.contains(_ZONE).mean() < 1.0:
            wrong |= ~texts.str.contains(_ZONE)
            expected = "a time with its zone, as other rows have, such as 2023-11-16T18:17:03Z"
        how = " or ".join(f"'{form}'" for form in self.may_be)
        return (
            np.asarray(stamps.mask(wrong).dt.as_unit("ns").astype("int64")),
            np.asarray(wrong),
            f"{expected}, of the years {_YEARS[0]} to {_YEARS[1]} (or seconds in all rows; or say how with "
            f"--time-format{' ' * bool(how)}{how})",
        )

    def _numbers(self, entries: np.ndarray) -> tuple[np.ndarray, np.ndarray, str]:
        values = numbers(entries)
        scale = UNITS[self.unit]
        wrong = ~(np.abs(values) < _MOST_NS / scale)
        safe = np.where(wrong, 0.0, values)
        step = min(
            scale, 1000
        )  # to the microsecond: seconds since 1970 have no more digits in floating point
        found = np.rint(safe * (scale / step)).astype(np.int64) * step
        word = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}[self.unit]
        return (
            found,
            wrong,
            f"{word}, fewer than {_MOST_NS / scale:g} (or a time such as 2023-11-16 18:17:03 in all rows)",
        )


def _bare(texts: Any) -> Any:
    """Return dates without brackets and weekdays around them."""
    return texts.str.strip().str.strip("[]").str.replace(_WEEKDAY, "", regex=True)


_LARGEST = 2**1000


def numbers(entries: np.ndarray) -> np.ndarray:
    """Return entries as floats; NaN for what is none."""
    if entries.dtype.kind in "iuf":
        return entries.astype(float)
    import pandas

    try:
        values = np.array(
            pandas.to_numeric(pandas.Series(entries, dtype=object), errors="coerce"), dtype=float
        )
    except OverflowError:  # a whole number beyond floating point, from JSON
        return numbers(
            np.array(
                [np.nan if isinstance(e, int) and abs(e) > _LARGEST else e for e in entries], dtype=object
            )
        )
    if _NOT_OF_A_NUMBER.search("".join(e for e in entries if isinstance(e, str))):
        # pandas takes more than `from_text` does
        values[[isinstance(e, str) and bool(_NOT_OF_A_NUMBER.search(e)) for e in entries]] = np.nan
    return values


def how_written(first: Any, unit: str | None, layout_unit: str | None, given: str | None) -> Times:
    """Return how times are read, from the first entry and what is known.

    The user's unit goes before that of the file's format or the column's name. `given` is a format of dates, as of
    `datetime.datetime.strptime`.

    Raises
    ------
    FleetgymError
        If `given` is no format.

    Examples
    --------
    >>> how_written("1700000000123", None, None, None)
    Times(format=None, unit='ms', is_stated=True, may_be=())
    >>> how_written("02/Mar/2026:09:00:00 +0000", None, None, None).format
    '%d/%b/%Y:%H:%M:%S %z'
    """
    import pandas

    if given is not None:
        try:
            pandas.to_datetime(pandas.Series(["2026"]), format=given, utc=True, errors="coerce")
        except (ValueError, KeyError, TypeError, re.error) as error:
            raise FleetgymError(
                f"cannot read times as {given!r} says ({error}); expected directives of strptime, such as "
                "%Y-%m-%dT%H:%M:%S"
            ) from None
        return Times(given)
    try:
        value = math.nan if first is None else float(first)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if math.isfinite(value):
        if known := unit or layout_unit:
            return Times(None, known, True)
        large = next((name for least, name in _SINCE_1970 if abs(value) >= least), None)
        return Times(None, large or "s", large is not None or abs(value) > 1e8)
    text = pandas.Series([str(first)])
    for pattern in ("ISO8601", *_FORMATS):
        bare = _bare(text) if pattern in _FORMATS else text.str.replace(_NAMED_UTC, "Z", regex=True)
        if pandas.to_datetime(bare, format=pattern, utc=True, errors="coerce").notna().all():
            return Times(pattern)
    may_be = [
        form for form in _OTHERS if pandas.to_datetime(text, format=form, errors="coerce").notna().all()
    ]
    return Times("ISO8601", may_be=tuple(may_be))
