"""Report named checks, each with its outcome and what to do about it."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence

from fleetgym.cli.output import tell


@dataclasses.dataclass(frozen=True)
class Check:
    """One check with its outcome."""

    name: str
    passed: bool
    detail: str
    is_warning: bool = False  # not right, but nothing fails because of it

    @property
    def mark(self) -> str:
        """``ok``, ``note`` or ``FAIL``."""
        return "ok" if self.passed else "note" if self.is_warning else "FAIL"


def attempt(name: str, look: Callable[[], str]) -> Check:
    """Return the outcome of one check: `look` returns what it found, or raises."""
    try:
        return Check(name, True, look())
    except Exception as error:
        return Check(name, False, f"{type(error).__name__}: {error}")


def tell_checks(arguments: argparse.Namespace, checks: Sequence[Check]) -> int:
    """Print the outcomes; return the exit code, which is 1 if one failed that is more than a warning."""
    tell(arguments, [dataclasses.asdict(check) for check in checks], report(checks))
    return 0 if all(check.passed or check.is_warning for check in checks) else 1


def report(checks: Sequence[Check]) -> str:
    """Return one line per check.

    Examples
    --------
    >>> print(report([Check("python", True, "3.11"), Check("cache", False, "not writable")]))
    ok    python  3.11
    FAIL  cache   not writable
    """
    width = max(len(check.name) for check in checks)
    return "\n".join(f"{check.mark:<4}  {check.name:<{width}}  {check.detail}" for check in checks)
