"""Words of the command line in, values out; what is wrong with a word is said in terms of what would be valid."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable


def whole(least: int = 0) -> Callable[[str], int]:
    """Return a reader of whole numbers from `least` on, for ``type=`` of an option.

    Examples
    --------
    >>> whole(1)("2")
    2
    >>> whole(1)("none")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected a whole number of at least 1, got 'none'
    """

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"expected a whole number of at least {least}, got {text!r}"
            ) from None
        return value

    return read


def positive(text: str) -> float:
    """Return a finite number above 0.

    Examples
    --------
    >>> positive("0.5")
    0.5
    >>> positive("nan")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected a number above 0, got 'nan'
    """
    value = _number(text)
    if not (math.isfinite(value) and value > 0.0):
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def margin(text: str) -> float | str:
    """Return a safety margin above -1, or ``"best"``.

    Examples
    --------
    >>> margin("0.3"), margin("best")
    (0.3, 'best')
    >>> margin("30%")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected a number above -1, such as 0.3 for 30 % more, or best; got '30%'
    """
    if text == "best":
        return text
    value = _number(text)
    if not (math.isfinite(value) and value > -1.0):
        raise argparse.ArgumentTypeError(
            f"expected a number above -1, such as 0.3 for 30 % more, or best; got {text!r}"
        )
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def numbers(text: str) -> list[int]:
    """Return whole numbers that stand between commas.

    Examples
    --------
    >>> numbers("0,1")
    [0, 1]
    >>> numbers("0;1")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected whole numbers with commas between, such as 0,1; got '0;1'
    """
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected whole numbers with commas between, such as 0,1; got {text!r}"
        ) from None


def names(text: str) -> list[str]:
    """Return names that stand between commas.

    Examples
    --------
    >>> names("H100, L40S")
    ['H100', 'L40S']
    """
    return [part.strip() for part in text.split(",")]
