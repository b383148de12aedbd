"""Report named checks, each with its outcome and what to do about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    passed: bool
    detail: str
    is_warning: bool = False  # not right, but nothing fails because of it

    @property
    def mark(self) -> str:
        """``ok``, ``note`` or ``FAIL``."""
        return "ok" if self.passed else "note" if self.is_warning else "FAIL"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return dataclasses.asdict(self)


def attempt(name: str, look: Callable[[], str]) -> Check:
    """Return the outcome of one check: `look` returns what it found, or raises."""
    try:
        return Check(name, True, look())
    except Exception as error:
        return Check(name, False, f"{type(error).__name__}: {error}")


def all_passed(checks: Iterable[Check]) -> bool:
    """Return whether nothing failed; warnings do not count."""
    return all(check.passed or check.is_warning for check in checks)


def report(checks: Iterable[Check]) -> str:
    """Return one line per check.

    Examples
    --------
    >>> print(report([Check("python", True, "3.11"), Check("cache", False, "not writable")]))
    ok    python  3.11
    FAIL  cache   not writable
    """
    found = list(checks)
    width = max(len(check.name) for check in found)
    return "\n".join(f"{check.mark:<4}  {check.name:<{width}}  {check.detail}" for check in found)
