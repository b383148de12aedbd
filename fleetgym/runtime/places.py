"""Locate the package, and the checkout around it, if there is one."""

from __future__ import annotations

from pathlib import Path

#: The package's own folder.
PACKAGE = Path(__file__).resolve().parents[1]


def checkout() -> Path | None:
    """Return the folder of the checkout that the package lies in; None for an installed package.

    Examples
    --------
    >>> found = checkout()
    >>> found is None or (found / "pyproject.toml").is_file()
    True
    """
    folder = PACKAGE.parent
    return folder if (folder / "pyproject.toml").is_file() and (folder / "baselines").is_dir() else None


def reference_agents() -> Path:
    """Return the folder of the reference agents: the checkout's `baselines`, or the installed package's."""
    root = checkout()
    return PACKAGE / "baselines" if root is None else root / "baselines"
