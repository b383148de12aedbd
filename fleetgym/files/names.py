"""Check names of agents, people and folders, so that none can be taken for another.

A name is an identity on the leaderboard: it must be told from others by eye, and be a file's name on every system.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

from fleetgym.files.errors import DataError
from fleetgym.files.schema import Line, Text

#: Names that Windows keeps for devices, with any ending.
_RESERVED = r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|\Z)"

#: What a submission's folder, and so its record, may be called.
FOLDER_NAME = Text(rf"\A(?!{_RESERVED})[a-z0-9][a-z0-9._-]{{0,79}}(?<!\.)\Z")

#: What a season may be called; its records lie in a folder of this name.
SEASON_NAME = Text(rf"\A(?!{_RESERVED})[a-z0-9][a-z0-9.-]{{0,39}}(?<!\.)\Z")

_AGENT_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9 ._+()=,:'-]*[A-Za-z0-9)+])?")

#: Letters that show nothing, of Korean and for joining.
_FILLERS = "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u3164\uffa0"
_EAST_ASIAN = ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "CJK", "IDEOGRAPHIC", "HANGUL", "BOPOMOFO")
_ALIKE = str.maketrans("01i", "oll")


class AgentName(Line):
    """A name of ASCII letters, digits and a few marks, which no device of Windows has."""

    def read(self, value: Any, path: str) -> str:
        """Return the text."""
        text = super().read(value, path)
        if not _AGENT_NAME.fullmatch(text):
            raise DataError(
                "expected a name of ASCII letters, digits, spaces and . _ - + ( ) = , : ' that begins with a letter or "
                f"a digit and ends with one, ) or +; got {ascii(text)}",
                path,
            )
        if re.match(_RESERVED, text.lower()):
            raise DataError(f"Windows keeps {text!r} for a device; expected another name", path)
        return text


class PeopleName(Line):
    """One line of letters, marks, digits and punctuation of any language, but no word of two scripts."""

    def read(self, value: Any, path: str) -> str:
        """Return the text."""
        text = super().read(value, path)
        for letter in text:
            allowed = letter == " " or letter.isascii() or unicodedata.category(letter)[0] in "LMNP"
            is_variant = unicodedata.normalize("NFKC", letter) != unicodedata.normalize("NFC", letter)
            is_selector = "VARIATION SELECTOR" in unicodedata.name(letter, "")
            if not allowed or is_variant or is_selector or letter in _FILLERS:
                raise DataError(
                    f"expected letters, digits and punctuation in their plain form, got {ascii(letter)}", path
                )
        if "^^^" in "".join("^" if unicodedata.combining(letter) else "." for letter in text):
            raise DataError("expected at most two accents on a letter", path)
        for word in re.findall(r"[^\W\d_]+", text):
            scripts = sorted({_script(letter) for letter in word if letter.isalpha()})
            if len(scripts) > 1:
                raise DataError(f"expected one script in a word, got {' and '.join(scripts)}", path)
        return text


def _script(letter: str) -> str:
    """Return the script of a letter, by its name in Unicode; those that East Asian words mix are one."""
    first = unicodedata.name(letter, "UNKNOWN").partition(" ")[0]
    return "EAST ASIAN" if first in _EAST_ASIAN else first


def likeness(name: str) -> str:
    """Return what is left of a name when case, marks and digits that look like letters are the same.

    Examples
    --------
    >>> likeness("AGH_Rolling") == likeness("agh-rolling"), likeness("M1LP") == likeness("milp")
    (True, True)
    >>> likeness("gh") == likeness("agh")
    False
    """
    return "".join(letter for letter in name.casefold() if letter.isalnum()).translate(_ALIKE)
