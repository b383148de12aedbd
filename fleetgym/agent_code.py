"""Which files an agent's code consists of, as far as its imports tell: its own and the modules beside it."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

from fleetgym.files import canonical_hash, file_sha256


def neighbours(path: Path) -> dict[str, Path]:
    """Return the modules beside a file that it imports, and those that they import, by their names.

    Parameters
    ----------
    path : Path
        A Python file.

    Returns
    -------
    dict of str to Path
        Without the file itself; of a package, its ``__init__.py``.
    """
    found: dict[str, Path] = {}
    files = [path]
    while files:
        for name in _imported(files.pop()):
            beside = path.parent / name / "__init__.py"
            beside = beside if beside.is_file() else path.parent / f"{name}.py"
            if name not in found and name != "fleetgym" and beside != path and beside.is_file():
                found[name] = beside
                files.append(beside)
    return found


def _imported(path: Path) -> set[str]:
    """Return the top-level modules that a file names in its imports; none if it cannot be read."""
    try:
        nodes = list(ast.walk(ast.parse(path.read_bytes())))
    except (SyntaxError, ValueError):
        return set()  # the import will say what is wrong
    whole = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    parts = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0]
    return {name.partition(".")[0] for name in whole + parts}


def code_sha256(place: str) -> str | None:
    """Return one checksum of an agent's own code, wherever its folder lies.

    Parameters
    ----------
    place : str
        A Python file, or the name of a module; of a package all its Python files count.

    Returns
    -------
    str or None
        None for a module without a file, and for fleetgym's own, which its version names.

    Examples
    --------
    >>> code_sha256("baselines.gh") is None
    True
    """
    if place.endswith(".py"):
        return _checksum(Path(place))
    top = place.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if top in ("fleetgym", "baselines") or spec is None or not (spec.origin or "").endswith(".py"):
        return None
    return _checksum(Path(str(spec.origin)))


def _checksum(path: Path) -> str:
    files: set[Path] = set()
    for file in (path, *neighbours(path).values()):
        files.update(file.parent.rglob("*.py") if file.name == "__init__.py" else [file])
    named = sorted((file.relative_to(path.parent).as_posix(), file) for file in files)
    return canonical_hash([[name, file_sha256(file)] for name, file in named])
