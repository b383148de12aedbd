"""Convert words of the command line to values; errors say what would be valid."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, TypeVar

from fleetgym.files.errors import DataError
from fleetgym.files.quantities import GROWTH, MARGIN, NUMBER, SHARE
from fleetgym.files.schema import Integer, Number

T = TypeVar("T")


def of(kind: Integer | Number) -> Callable[[str], Any]:
    """Return a reader of numbers of a kind, for ``type=`` of an option.

    Examples
    --------
    >>> of(Integer(1, 1024))("2")
    2
    >>> of(Integer(1, 1024))("1_0")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected a whole number from 1 to 1024, got '1_0'
    """

    def read(text: str) -> Any:
        try:
            return kind.parse(text)
        except DataError as error:
            raise argparse.ArgumentTypeError(error.message) from None

    return read


def margin(text: str) -> float | str:
    """Return a safety margin, or ``"best"``.

    Examples
    --------
    >>> margin("0.3"), margin("best")
    (0.3, 'best')
    >>> margin("30%")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected a number from -0.99 to 1000, such as 0.3 for 30 % more, or best; got '30%'
    """
    if text == "best":
        return text
    try:
        return MARGIN.parse(text)
    except DataError:
        raise argparse.ArgumentTypeError(
            f"expected a number {MARGIN.words()}, such as 0.3 for 30 % more, or best; got {text!r}"
        ) from None


def share(text: str) -> float:
    """Return a share, as a number or in percent.

    Examples
    --------
    >>> share("1%"), share("0.25")
    (0.01, 0.25)
    >>> share("3")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected a share from 0 to 1, or in percent, such as 0.01 or 1%; got '3'
    """
    percent = text.removesuffix("%")
    try:
        if percent == text:
            return SHARE.parse(text)
        return Number(0.0, 100.0).parse(percent) / 100.0
    except DataError:
        raise argparse.ArgumentTypeError(
            f"expected a share from 0 to 1, or in percent, such as 0.01 or 1%; got {text!r}"
        ) from None


def shares(text: str) -> list[float]:
    """Return comma-separated shares.

    Examples
    --------
    >>> shares("1%"), shares("0.5%,0.01")
    ([0.01], [0.005, 0.01])
    """
    return [share(part.strip()) for part in text.split(",")]


def growth(text: str) -> list[float]:
    """Return comma-separated factors of demand.

    Examples
    --------
    >>> growth("3x"), growth("1,1.5x,2x")
    ([3.0], [1.0, 1.5, 2.0])
    >>> growth("0x")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected factors from 0.001 to 1000, such as 3x or 1x,2x,4x; got '0x'
    """
    expected = f"factors {GROWTH.words()}, such as 3x or 1x,2x,4x"
    return _listed(text, lambda part: GROWTH.parse(part.removesuffix("x")), expected)


def prices(text: str) -> dict[str, float]:
    """Return prices by GPU type or pool.

    Examples
    --------
    >>> prices("h100=2.10,l40s=0.9")
    {'h100': 2.1, 'l40s': 0.9}
    """
    found = {}
    for part in text.split(","):
        name, _, usd = (piece.strip() for piece in part.partition("="))
        try:
            found[name] = float(usd)
        except ValueError:
            name = ""
        if not name:
            raise argparse.ArgumentTypeError(f"expected GPU=USD, such as h100=2.10,l40s=0.90; got {text!r}")
    return found


def by_name(text: str) -> dict[str, float]:
    """Return numbers above 0 by name; a single one without a name applies to all, ``*``.

    Examples
    --------
    >>> by_name("chat=20,code=3.5"), by_name("250")
    ({'chat': 20.0, 'code': 3.5}, {'*': 250.0})
    """
    found = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.rpartition("="))
        try:
            found[name if equals else "*"] = Number(1e-6, 1e9).parse(value)
        except DataError:
            name = equals = ""
        if (equals and not name) or not found:
            raise argparse.ArgumentTypeError(f"expected NAME=NUMBER, such as chat=20,code=5; got {text!r}")
    return found


def numbers(text: str) -> list[int]:
    """Return comma-separated whole numbers.

    Examples
    --------
    >>> numbers("0,1")
    [0, 1]
    >>> numbers("0;1")
    Traceback (most recent call last):
    argparse.ArgumentTypeError: expected whole numbers from 0 to 1000000000 with commas between, such as 0,1; got '0;1'
    """
    return _listed(text, NUMBER.parse, f"whole numbers {NUMBER.words()} with commas between, such as 0,1")


def _listed(text: str, read: Callable[[str], T], expected: str) -> list[T]:
    try:
        return [read(part.strip(" ")) for part in text.split(",")]
    except DataError:
        raise argparse.ArgumentTypeError(f"expected {expected}; got {text!r}") from None


def names(text: str) -> list[str]:
    """Return comma-separated names.

    Examples
    --------
    >>> names("H100, L40S")
    ['H100', 'L40S']
    """
    return [part.strip() for part in text.split(",")]
