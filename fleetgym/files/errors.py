"""Define the errors that fleetgym raises: each says what is wrong, where, and what would be valid."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any, TextIO


class FleetgymError(Exception):
    """Base of every error that fleetgym raises on purpose."""


class DataError(FleetgymError):
    """A file or a mapping does not hold what it should.

    Parameters
    ----------
    message : str
        What is wrong and what would be valid.
    path : str
        JSON path of the culprit, such as ``$.pools[2].price_usd_per_gpu_h``.
    source : str
        The file, or an empty string for data that came from memory.
    """

    def __init__(self, message: str, path: str = "$", source: str = ""):
        self.message, self.path, self.source = message, path, source
        super().__init__(f"{source}: {path}: {message}" if source else f"{path}: {message}")

    def __reduce__(self) -> tuple[type[DataError], tuple[str, str, str]]:
        return type(self), (self.message, self.path, self.source)

    def in_file(self, source: object) -> DataError:
        """Return the same error with the name of the file in front.

        Parameters
        ----------
        source : object
            The file's path.

        Returns
        -------
        DataError
            Of the same class.
        """
        return type(self)(self.message, self.path, str(source))


class UnknownNameError(FleetgymError):
    """A name that does not exist; the message suggests the nearest ones.

    Parameters
    ----------
    kind : str
        What the name should have named, such as ``"agent"``.
    name : str
        The name as given.
    known : iterable of str
        The names that exist.
    hint : str, optional
        What to do, where that is known better than which name was meant.

    Examples
    --------
    >>> print(UnknownNameError("agent", "aghh", ["gh", "agh"]))
    unknown agent 'aghh'; did you mean 'agh'? (known: agh, gh)
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], hint: str = ""):
        self.kind, self.name, self.known, self.hint = kind, name, sorted(known), hint
        super().__init__(f"unknown {kind} {name!r}{f': {hint}' if hint else suggestion(name, self.known)}")

    def __reduce__(self) -> tuple[type[UnknownNameError], tuple[str, str, list[str], str]]:
        return type(self), (self.kind, self.name, self.known, self.hint)


def suggestion(name: str, known: Iterable[str], limit: int = 12) -> str:
    """Return ``; did you mean ...? (known: ...)`` for a message about an unknown name.

    Parameters
    ----------
    name : str
        The name as given.
    known : iterable of str
        The names that exist.
    limit : int
        List at most this many of them.

    Returns
    -------
    str
        Text to append to a message.

    Examples
    --------
    >>> suggestion("prices", ["price", "gpus"])
    "; did you mean 'price'? (known: gpus, price)"
    """
    names = sorted(known)
    lower = {known_name.lower(): known_name for known_name in names}
    near = difflib.get_close_matches(name.lower(), lower, n=1)
    hint = f"; did you mean {lower[near[0]]!r}?" if near else ""
    more = ", ..." if len(names) > limit else ""
    return f"{hint} (known: {', '.join(names[:limit])}{more})" if names else ""


def one_line(error: Exception) -> str:
    """Return an error in one line; one of the operating system as what went wrong and with which file.

    Parameters
    ----------
    error : Exception
        Any.

    Returns
    -------
    str
        Without numbers of errors; see `plain`.

    Examples
    --------
    >>> one_line(FileNotFoundError(2, "No such file or directory", "day.json"))
    'No such file or directory: day.json'
    >>> one_line(FileNotFoundError(2, "No such file or directory", ""))
    "No such file or directory: ''"
    """
    text = str(error)
    if isinstance(error, OSError) and error.filename is not None:
        names = (error.filename, error.filename2)
        text = f"{error.strerror}: {' -> '.join(str(name) or repr('') for name in names if name is not None)}"
    return plain(text)


_MOST_CHARS = 800


def plain(text: str) -> str:
    r"""Return a message as one line of printable characters; of a very long one, its two ends.

    Examples
    --------
    >>> print(plain("no file\n 'a\x1b[2K'"))
    no file 'a\x1b[2K'
    >>> len(plain("x" * 5000))
    805
    """
    line = printable(" ".join(text.encode("utf-8", "replace").decode().split()))
    half = _MOST_CHARS // 2
    return line if len(line) <= _MOST_CHARS else f"{line[:half]} ... {line[-half:]}"


def printable(text: str, keep: str = "") -> str:
    r"""Return text that a terminal only prints: what would move its cursor, hide or reorder is escaped.

    Parameters
    ----------
    text : str
        Anything.
    keep : str
        Characters that stay as they are, such as line breaks.

    Examples
    --------
    >>> print(printable("ok \x1b[2K"))
    ok \x1b[2K
    """
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


class PlainStream:
    r"""A text stream on which everything is printed as by `printable`, but for line breaks and tabs.

    Parameters
    ----------
    stream : text file

    Examples
    --------
    >>> import sys
    >>> print("made \x1b[2K", file=PlainStream(sys.stdout))
    made \x1b[2K
    """

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text; return how many characters it has."""
        self._stream.write(printable(text, keep="\n\t"))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
