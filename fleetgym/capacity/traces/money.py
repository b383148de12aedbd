"""Convert prices and terms as people write them to USD and days, or say why they are ambiguous."""

from __future__ import annotations

import re
from typing import Any

from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.quantities import TERM_DAYS, USD_PER_GPU_H

_DOLLARS = r"(?:US ?\$|USD|US-?Dollar|\$)"
_NUMBER = re.compile(
    rf"{_DOLLARS}?[ \t]*(?P<number>[+-]?[0-9.,eE+-]*[0-9])[ \t]*{_DOLLARS}?(?:[ \t]*/[ \t]*(?:h|hr|hour))?",
    re.IGNORECASE,
)
_THOUSANDS = r"[+-]?\d{1,3}"


def usd(name: str, value: Any) -> float:
    """Return a price in USD, given as a number, or as text with or without ``$`` or ``USD``; name its column.

    Raises
    ------
    FleetgymError
        For another currency, a number that can be read in two ways, or one out of bounds.

    Examples
    --------
    >>> usd("p", "$2.95"), usd("p", "2,95 USD"), usd("p", "1,234.50"), usd("p", 3)
    (2.95, 2.95, 1234.5, 3.0)
    """
    try:
        if not isinstance(value, str):
            return float(USD_PER_GPU_H.read(value, name) or 0.0)
        found = _NUMBER.fullmatch(value.strip(" \t"))
        return USD_PER_GPU_H.parse(_with_point(name, found["number"]) if found else value.strip(" \t"), name)
    except DataError as error:
        hint = (
            ""
            if not isinstance(value, str) or not re.search(r"[^\d.,\s+-]", value)
            else "; prices are in USD"
        )
        raise FleetgymError(f"{name}: {error.message}{hint}") from None


def _with_point(name: str, text: str) -> str:
    """Return a number with a decimal point and without marks between thousands."""
    if re.fullmatch(_THOUSANDS + r",\d{3}", text):
        raise FleetgymError(
            f"{name}: {text!r} may be {text.replace(',', '.')} or {text.replace(',', '')}; write it so"
        )
    if re.fullmatch(_THOUSANDS + r"(,\d{3})+(\.\d*)?", text):
        return text.replace(",", "")
    if re.fullmatch(_THOUSANDS + r"(\.\d{3})+,\d*", text) or re.fullmatch(r"[+-]?\d+,\d+", text):
        return text.replace(".", "").replace(",", ".")
    return text


def days(name: str, text: str) -> int:
    """Return a term in days.

    Examples
    --------
    >>> days("term", "365"), days("term", "1 Year"), days("term", "36 months"), days("term", "3y")
    (365, 365, 1095, 1095)
    """
    found = re.fullmatch(
        r"(\d{1,4})[ \t]*(d|days?|w|weeks?|mo|months?|y|yrs?|years?)?", text.strip(), re.IGNORECASE
    )
    if not found:
        raise FleetgymError(f"{name}: expected days, or a term such as 1y or 6 months, got {text!r}")
    unit = (found[2] or "d").lower()[0]
    number = int(found[1])
    total = {"d": number, "w": 7 * number, "m": round(number * 365 / 12), "y": 365 * number}[unit]
    try:
        return int(TERM_DAYS.read(total, name) or 0)
    except DataError as error:
        raise FleetgymError(f"{name}: {error.message}") from None
