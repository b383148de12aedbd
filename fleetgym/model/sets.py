"""Find the folders of instance sets: the standard one, and those of packages that bring a set of their own.

A folder holds ``<set>/<split>/<id>.json.gz`` beside ``<id>.scenarios.json.gz``. They are listed in ``manifest.json``,
or in ``<set>/manifest.json``. The standard folder is looked up in the environment variable `FLEETGYM_INSTANCES`, in
the installed package, and in the checkout. A package brings a set by an entry point of the group ``fleetgym.suites``:
its name is the set's, its value the folder that holds ``<set>/manifest.json``.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.runtime.entry_points import named_entries
from fleetgym.runtime.places import PACKAGE

ENVIRONMENT_VARIABLE = "FLEETGYM_INSTANCES"
GROUP = "fleetgym.suites"
MANIFEST = "manifest.json"

#: Sets of ours that come in packages of their own, and how each is installed.
OWN_PACKAGES: Mapping[str, str] = {
    "fleet-v1": "pip install 'fleetgym[fleet-v1]'",
    "fleet-v2": "pip install 'fleetgym[fleet-v2]'",
}


def instances_folder() -> Path:
    """Return the standard folder.

    Returns
    -------
    Path
        `FLEETGYM_INSTANCES` if it is set, else the package's own copy, else the checkout's ``instances``.

    Raises
    ------
    DataError
        If there is no manifest in any of them.
    """
    named = os.environ.get(ENVIRONMENT_VARIABLE)
    candidates = [Path(named)] if named else [PACKAGE / "_instances", PACKAGE.parent / "instances"]
    for folder in candidates:
        if (folder / MANIFEST).is_file():
            return folder
    looked = " or ".join(str(folder) for folder in candidates)
    hint = f"set {ENVIRONMENT_VARIABLE} to the folder that holds it"
    raise DataError(f"no {MANIFEST} in {looked}; {hint}")


@functools.cache
def packaged_folders() -> Mapping[str, Path]:
    """Return the folders of instance sets in installed packages, by the set's name.

    Raises
    ------
    FleetgymError
        If a package's folder cannot be had or lacks its manifest, or two packages bring one set.
    """
    found = {}
    for name, entry in named_entries(GROUP, "set").items():
        who = f"the set {name!r} of the package {entry.distribution}"
        try:
            folder = Path(entry.load())
        except Exception as error:  # whatever a foreign module does when it is imported
            raise FleetgymError(
                f"{who} cannot be loaded ({error}); install or uninstall the package"
            ) from None
        if not (folder / name / MANIFEST).is_file():
            raise FleetgymError(f"{who} lacks {folder / name / MANIFEST}; install the package anew")
        found[name] = folder
    return found


def folder_of(name: str) -> Path:
    """Return the folder of a set: the standard one, unless only a package has the set.

    Parameters
    ----------
    name : str
        A set, or anything in it: ``fleet-v1``, ``fleet-v1/dev``, ``fleet-v1/dev/ou-s-101``.
    """
    standard, own = instances_folder(), name.partition("/")[0]
    if (standard / own).is_dir():
        return standard
    return packaged_folders().get(own, standard)


def set_folders() -> list[Path]:
    """Return every folder that holds a set: the standard one, and those of installed packages."""
    return list(dict.fromkeys([instances_folder(), *packaged_folders().values()]))


def manifest_paths() -> list[Path]:
    """Return the manifests of all sets, those of the standard folder first."""
    standard = instances_folder()
    brought = [
        folder / name / MANIFEST for name, folder in packaged_folders().items() if folder_of(name) != standard
    ]
    return [standard / MANIFEST, *sorted(standard.glob(f"*/{MANIFEST}")), *sorted(brought)]


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Return the error for an unknown name, which tells how to install the set if that is known.

    Parameters
    ----------
    kind : str
        ``"suite"`` or ``"instance"``.
    name : str
        What was asked for.
    known : iterable of str
        The names that there are.

    Examples
    --------
    >>> print(unknown("suite", "fleet-v9/test", ["fleet-v0/dev"]))
    unknown suite 'fleet-v9/test'; did you mean 'fleet-v0/dev'? (known: fleet-v0/dev)
    """
    own, known = name.strip("/").partition("/")[0], list(known)
    is_here = any(other.partition("/")[0] == own for other in known)
    install = None if is_here else OWN_PACKAGES.get(own)
    hint = "" if install is None else f"the set {own} comes in a package of its own; {install}"
    return UnknownNameError(kind, name, known, hint)
