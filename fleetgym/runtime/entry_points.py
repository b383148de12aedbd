"""Find what installed packages bring under a name: agents, studies, families and sets.

Entry points are frozen at install time, so in a checkout its own ``pyproject.toml`` is read as well.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import importlib.metadata
import tomllib
from typing import Any

from fleetgym.files.errors import FleetgymError
from fleetgym.runtime.places import checkout

OUR_DISTRIBUTION = "fleetgym"


@dataclasses.dataclass(frozen=True)
class Entry:
    """One thing that can be called by its name."""

    name: str
    target: str  # module:attribute
    distribution: str  # the package that brought it

    @property
    def is_reference(self) -> bool:
        """Whether it came with fleetgym itself."""
        return self.distribution == OUR_DISTRIBUTION

    def load(self) -> Any:
        """Import the module and return its attribute."""
        module, _, attributes = self.target.partition(":")
        value: Any = importlib.import_module(module)
        for attribute in attributes.split("."):
            value = getattr(value, attribute)
        return value


def named_entries(group: str, what: str) -> dict[str, Entry]:
    """Return all entry points of a group by their names, sorted.

    Parameters
    ----------
    group : str
        Such as ``"fleetgym.agents"``.
    what : str
        What one of them is, for the message.

    Returns
    -------
    dict of str to Entry

    Raises
    ------
    FleetgymError
        If two packages give different things the same name; ours keep theirs.

    Examples
    --------
    >>> named_entries("fleetgym.agents", "agent")["hold"].is_reference
    True
    """
    found = dict(_checkout_entries(group))
    points = _installed(group)
    # Once for each package: reading its name parses a file.
    packages = {package: _name(package) for package in {point.dist for point in points}}
    ranked = sorted(points, key=lambda p: (packages[p.dist] != OUR_DISTRIBUTION, packages[p.dist], p.name))
    for point in ranked:
        entry = Entry(point.name, point.value.replace(" ", ""), packages[point.dist])
        known = found.setdefault(entry.name, entry)
        if known.distribution not in (OUR_DISTRIBUTION, entry.distribution):
            raise FleetgymError(
                f"the {what} name {entry.name!r} is claimed by {known.distribution} and {entry.distribution}; "
                f"uninstall one, or call the {what} by module:Class"
            )
    return dict(sorted(found.items()))


def _installed(group: str) -> importlib.metadata.EntryPoints:
    try:
        return importlib.metadata.entry_points(group=group)
    except Exception:  # Python does not say whose: one of any installed package
        for package in importlib.metadata.distributions():
            try:
                package.entry_points  # noqa: B018
            except Exception as error:
                where = package.locate_file("")
                raise FleetgymError(
                    f"the entry points of {_name(package)}, a package in {where}, cannot be read ({error}); "
                    "install it anew, or uninstall it"
                ) from None
        raise


def _name(distribution: importlib.metadata.Distribution | None) -> str:
    try:
        name = None if distribution is None else distribution.name
    except Exception:  # of metadata that cannot be read
        name = None
    return name or "an unnamed package"


@functools.cache
def _checkout_entries(group: str) -> dict[str, Entry]:
    """Entry points of the checkout that this file lies in; none in an installed package."""
    root = checkout()
    if root is None:
        return {}
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8")).get("project", {})
    if project.get("name") != OUR_DISTRIBUTION:
        return {}
    targets = project.get("entry-points", {}).get(group, {})
    return {name: Entry(name, target, OUR_DISTRIBUTION) for name, target in targets.items()}
