"""Parse the command line of all programs of the checkout: their description, and a small trial run.

A program is a file that ends with ``if __name__ == "__main__": run_program(main)`` (`fleetgym.cli.process`).
Its ``--help`` tells what it writes and how long it takes. Its ``--smoke`` runs the same code on the smallest input.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from fleetgym.files.errors import plain

#: A program's trial run: it gets an empty folder for everything that it writes, and returns the exit code.
Smoke = Callable[[Path], int | None]


class Parser(argparse.ArgumentParser):
    r"""A parser whose complaints are one line of printable characters, whatever was typed.

    Examples
    --------
    >>> import contextlib, io
    >>> with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.suppress(SystemExit):
    ...     Parser(prog="adds").parse_args(["\x1b[2J"])
    >>> said.getvalue().splitlines()[-1]
    'adds: error: unrecognized arguments: \\x1b[2J'
    """

    #: What to say of words that are no choice, where that is better than the nearest choice.
    hints: Mapping[str, str] = {}

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words; ``--option=--``, of which argparse makes an empty list, is refused."""
        words = sys.argv[1:] if args is None else list(args)
        if wrong := next((word for word in words if re.fullmatch("--[^=]+=--", word)), None):
            self.error(f"argument {wrong.removesuffix('=--')}: expected a value, got '--'")
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Print usage and complaint, and exit with 2; of a word that is no choice, say which one is near."""
        if found := re.search(r"(invalid choice: '(.*?)')( \(choose from (.*)\))$", message, flags=re.S):
            known = re.findall(r"[^\s',]+", found[4])
            hint = self.hints.get(found[2]) or nearest(found[2], known)
            message = f"{message[: found.end(1)]}{hint}{found[3]}"
        super().error(plain(message))


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a question after what may have been meant by a word, or nothing.

    Examples
    --------
    >>> nearest("compre", ["compare", "plan"]), nearest("x", ["compare"])
    ("; did you mean 'compare'?", '')
    """
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def program(about: str | None, *, writes: str, takes: str, smoke: Smoke) -> argparse.ArgumentParser:
    """Return a parser with the options ``--help`` and ``--smoke``.

    Parameters
    ----------
    about : str
        What the program does: the docstring of its module.
    writes : str
        The files that it writes, as a sentence.
    takes : str
        How long it takes, as a sentence.
    smoke : callable
        The trial run.

    Examples
    --------
    >>> parser = program("Adds.", writes="Nothing.", takes="No time.", smoke=lambda folder: 0)
    >>> parser.format_help().splitlines()[-2:]
    ['Writes: Nothing.', 'Takes: No time.']
    >>> parser.parse_args(["--smoke"])
    Traceback (most recent call last):
    SystemExit: 0
    """
    parser = Parser(
        description=about,
        epilog=f"Writes: {writes}\nTakes: {takes}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--smoke", action=_Smoke, const=smoke)
    return parser


class _Smoke(argparse.Action):
    """Does the trial run and ends the program, as ``--help`` does: no other argument is needed."""

    def __init__(self, option_strings: list[str], dest: str, const: Smoke):
        text = "try the program on the smallest input, write into a temporary folder only, and exit"
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, const=const, help=text)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        with tempfile.TemporaryDirectory() as folder:
            code = self.const(Path(folder))
        sys.stdout.flush()
        parser.exit(code or 0)
