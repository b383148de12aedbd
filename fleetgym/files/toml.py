"""Read small hand-written TOML files as dataclasses: bounded in size, strict about every key."""

from __future__ import annotations

import dataclasses
import os
import tomllib
from pathlib import Path
from typing import TypeVar

from fleetgym.files.documents import read_text
from fleetgym.files.errors import DataError
from fleetgym.files.schema import ListOf, Nested, Text, read_object, spec

T = TypeVar("T")

MAX_TOML_BYTES = 2**16

SUITE = Text(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,60}(/[A-Za-z0-9][A-Za-z0-9._-]{0,60})?\Z")


def read_toml(cls: type[T], path: str | os.PathLike[str]) -> T:
    """Read a small TOML file into a dataclass of specs.

    Raises
    ------
    DataError
        With file and path of what is wrong.
    """
    return parse_toml(cls, read_text(path, MAX_TOML_BYTES), path)


def parse_toml(cls: type[T], text: str, path: str | os.PathLike[str]) -> T:
    """Read the text of a TOML file into a dataclass of specs; `path` is for messages."""
    try:
        return read_object(cls, tomllib.loads(text))
    except DataError as error:
        raise error.in_file(path) from None
    except RecursionError:
        raise DataError("nested too deeply", source=str(path)) from None
    except ValueError as error:  # TOMLDecodeError, or an integer of thousands of digits
        raise DataError(f"not TOML: {str(error)[:200]}", source=str(path)) from None


def read_list(cls: type[T], path: Path, key: str) -> tuple[T, ...]:
    """Read a TOML file that holds one array of tables, ``[[key]]``; a missing file holds none."""
    if not path.is_file():
        return ()
    field = (key, tuple, spec(ListOf(Nested(cls)), ()))
    return getattr(read_toml(dataclasses.make_dataclass(key, [field], frozen=True), path), key)
