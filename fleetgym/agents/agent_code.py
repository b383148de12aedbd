"""Find the files that an agent consists of, and one checksum of them: its code, and data that its code names."""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib
import importlib.util
import os
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from fleetgym.files.documents import canonical_hash, file_sha256
from fleetgym.files.errors import FleetgymError

#: Longer texts are no names of files.
_LONGEST_NAME = 200
#: More bytes than this are no agent's: it has 8 GB of memory.
_MOST_BYTES = 2**34


def neighbours(path: Path, texts: dict[Path, bytes] | None = None) -> dict[str, Path]:
    """Return the modules beside a file that it imports, and those that they import, by their names.

    Parameters
    ----------
    path : Path
        A Python file.
    texts : dict, optional
        Cache of the text of each file; new files are added.

    Returns
    -------
    dict of str to Path
        Without the file itself; of a package, its ``__init__.py``.
    """
    found: dict[str, Path] = {}
    texts = {} if texts is None else texts
    files = [path]
    while files:
        for name in _imported(files.pop(), texts):
            beside = path.parent / name / "__init__.py"
            beside = beside if beside.is_file() else path.parent / f"{name}.py"
            if name not in found and name != "fleetgym" and beside != path and beside.is_file():
                found[name] = beside
                files.append(beside)
    return found


def _nodes(path: Path, texts: dict[Path, bytes]) -> list[ast.AST]:
    """Return the syntax of a file, which is read once; nothing if it has none."""
    if path not in texts:
        texts[path] = path.read_bytes()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the import will give them
            return list(ast.walk(ast.parse(texts[path])))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []  # the import will say what is wrong


def _imported(path: Path, texts: dict[Path, bytes]) -> set[str]:
    """Return the top-level modules that a file names in its imports."""
    nodes = _nodes(path, texts)
    whole = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    parts = [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0]
    return {name.partition(".")[0] for name in whole + parts}


def _data(path: Path, texts: dict[Path, bytes]) -> set[Path]:
    """Return the files in a Python file's folder, or below it, that it names in a text of its own."""
    found = {
        node.value
        for node in _nodes(path, texts)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    names = [PurePath(text) for text in found if len(text) <= _LONGEST_NAME and text.isprintable()]
    inside = [name for name in names if not name.is_absolute() and ".." not in name.parts]
    return {path.parent / name for name in inside if os.path.isfile(path.parent / name)}


def code_sha256(place: str) -> str | None:
    """Return one checksum of an agent's own code and of the data files that it names, wherever its folder lies.

    Parameters
    ----------
    place : str
        A Python file, or the name of a module; of a package all its Python files count.

    Returns
    -------
    str or None
        None for a module without a file, and for fleetgym's own, which its version names.

    Raises
    ------
    FleetgymError
        If its files hold over 16 GiB.

    Examples
    --------
    >>> code_sha256("fleetgym.baselines.gh") is None
    True
    """
    if place.endswith(".py"):
        return _checksum(Path(place))
    top = place.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if top == "fleetgym" or spec is None or not (spec.origin or "").endswith(".py"):
        return None
    return _checksum(Path(str(spec.origin)))


def command_sha256(command: str) -> str | None:
    """Return one checksum of the files that a command names: its program, and arguments that are files.

    Examples
    --------
    >>> command_sha256("no-such-program") is None
    True
    """
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    named = [shutil.which(words[0]) or "", *words[1:]] if words else []
    files = [word for word in named if os.path.isfile(word)]
    _check_size(files)
    return canonical_hash([file_sha256(file) for file in files]) if files else None


def own_files(path: Path, texts: dict[Path, bytes] | None = None) -> list[Path]:
    """Return the files that an agent consists of, as far as its code names them.

    Parameters
    ----------
    path : Path
        Its Python file; any other file is returned alone.
    texts : dict, optional
        As of `neighbours`.

    Returns
    -------
    list of Path
        It, the modules beside it that it imports, and the data in its folder that one of them names.
    """
    texts = {} if texts is None else texts
    files: set[Path] = set()
    for file in (path, *neighbours(path, texts).values()):
        files.update(file.parent.rglob("*.py") if file.name == "__init__.py" else [file])
    return sorted(files.union(*[_data(file, texts) for file in files]))


def _checksum(path: Path) -> str:
    texts: dict[Path, bytes] = {}  # what says which files belong to it is what is hashed
    named = sorted((file.relative_to(path.parent).as_posix(), file) for file in own_files(path, texts))
    _check_size(file for _, file in named)
    return canonical_hash(
        [
            [name, hashlib.sha256(texts[file]).hexdigest() if file in texts else file_sha256(file)]
            for name, file in named
        ]
    )


def _check_size(files: Iterable[str | os.PathLike[str]]) -> None:
    """Raise if files hold more than an agent could load, such as a disk's image: reading them would take for ever."""
    total = 0
    for file in files:
        total += os.stat(file).st_size
        if total > _MOST_BYTES:
            raise FleetgymError(
                f"{file}: with it, an agent's files hold over {_MOST_BYTES / 2**30:g} GiB; "
                "put the agent into a folder of its own"
            )


# -- all files of a folder

#: A folder with more files than this holds more than an agent.
_MOST_FILES = 2000


def folder_sha256(folder: str | os.PathLike[str]) -> str:
    """Return one checksum of all files below a folder: of their relative names and their bytes.

    Raises
    ------
    FleetgymError
        As `code_files`.
    """
    return canonical_hash([[name, file_sha256(Path(folder) / name)] for name in code_files(folder)])


def code_files(folder: str | os.PathLike[str]) -> list[str]:
    """Return the relative names of the files that code consists of; what Python has compiled is no part of it.

    Raises
    ------
    FleetgymError
        If it is no folder, holds anything but files and folders, or over 16 GiB.
    """
    root = Path(folder)
    if not root.is_dir():
        raise FleetgymError(f"{folder} is no folder")
    found = []
    for path in sorted(root.rglob("*")):
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise FleetgymError(f"{path} is a link or a device; code is submitted as files")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            found.append(path.relative_to(root).as_posix())
    _check_size(root / name for name in found)
    return found


def own_folder_sha256(place: str, apart: Iterable[str | os.PathLike[str]] = ()) -> str | None:
    """Return one checksum of all files of the folder that an agent's file lies in: it may load each of them.

    Parameters
    ----------
    place : str
        The agent's Python file.
    apart : iterable of path-like
        Files that do not belong to the agent, such as the run's results.

    Returns
    -------
    str or None
        None for a module, and for a folder that holds more than an agent: the home folder, that for temporary files,
        one with a file of `apart`, with links, with over 2,000 files or over 16 GiB.
    """
    if not place.endswith(".py"):
        return None
    folder = Path(os.path.realpath(place)).parent
    shared = {os.path.realpath(path) for path in ("/", os.path.expanduser("~"), tempfile.gettempdir())}
    if str(folder) in shared or any(Path(os.path.realpath(path)).is_relative_to(folder) for path in apart):
        return None
    if any(count > _MOST_FILES for count, _ in enumerate(folder.rglob("*"))):
        return None
    try:
        return folder_sha256(folder)
    except FleetgymError:  # a link, a device, or too many bytes
        return None


# -- reference agents

#: The package of the reference agents. Their rows name a checksum of its modules that they consist of.
REFERENCES = "fleetgym.baselines"


def reference_sha256(target: str, arguments: Mapping[str, Any]) -> str:
    """Return one checksum of a reference agent: of its modules in `REFERENCES`, of their data, and of its settings.

    Docstrings, comments and layout do not count. fleetgym's other packages are covered by replaying sampled tasks.

    Parameters
    ----------
    target : str
        ``module:attribute``.
    arguments : mapping
        What the agent is made with.

    Returns
    -------
    str

    Examples
    --------
    >>> checksum = reference_sha256("fleetgym.baselines.gh:gh", {})
    >>> checksum == reference_sha256("fleetgym.baselines.gh:gh", {"margin": 0.2})
    False
    """
    root = Path(importlib.import_module(REFERENCES).__path__[0])
    files: dict[Path, list[Any] | str] = {}
    waiting = _module_files(root, target.partition(":")[0].removeprefix(f"{REFERENCES}.").split("."))
    while waiting:
        path = waiting.pop()
        if path not in files and path.suffix == ".py":
            files[path], imported = _module(path, root, path.read_bytes())
            waiting += [file for parts in imported for file in _module_files(root, parts)]
            waiting += _data_beside(path, root)
        elif path not in files:
            files[path] = file_sha256(path)
    named = sorted((path.relative_to(root).as_posix(), state) for path, state in files.items())
    return canonical_hash([target, sorted((name, repr(value)) for name, value in arguments.items()), named])


@functools.lru_cache(maxsize=256)
def _module(path: Path, root: Path, text: bytes) -> tuple[list[Any], list[list[str]]]:
    """Return what a module's code means, and what it imports below `root`."""
    tree = ast.parse(text)
    return _meaning(tree), list(_inner_imports(path, root, tree))


def _module_files(root: Path, parts: Sequence[str]) -> list[Path]:
    """Return the files that Python runs to import a module below a folder: packages on the way, and its own."""
    ways = [root.joinpath(*parts[: k + 1]) for k in range(len(parts))]
    return [f for way in ways for f in (way / "__init__.py", way.with_suffix(".py")) if f.is_file()]


def _inner_imports(path: Path, root: Path, tree: ast.Module) -> Iterator[list[str]]:
    """Yield the modules below `root` that a module imports, and what it imports from them, as parts of names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".") if node.module else []
            if node.level:
                module = [*path.parents[node.level - 1].relative_to(root).parts, *module]
            elif module[:2] == REFERENCES.split("."):
                module = module[2:]
            else:
                continue
            yield from ([*module, alias.name] for alias in node.names)
        elif isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
            yield from (name[2:] for name in names if name[:2] == REFERENCES.split("."))


def _data_beside(path: Path, root: Path) -> list[Path]:
    """Return the files beside a module that are no Python code; all that lies in a package may be loaded by it."""
    files = [] if path.parent == root else path.parent.iterdir()
    return [file for file in files if file.is_file() and file.suffix not in (".py", ".pyc")]


def _meaning(node: Any) -> Any:
    """Return a syntax tree as lists, the same for every version of Python, without docstrings."""
    if isinstance(node, list):
        return [_meaning(item) for item in node]
    if not isinstance(node, ast.AST):
        return node if isinstance(node, str) else repr(node)
    fields = dict(ast.iter_fields(node))
    if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node) is not None:
        fields["body"] = node.body[1:]
    if isinstance(node, ast.JoinedStr):  # Python 3.12 adds empty texts
        fields["values"] = [part for part in node.values if not isinstance(part, ast.Constant) or part.value]
    told = {
        name: value for name, value in fields.items() if value not in (None, []) and name != "type_params"
    }
    return [type(node).__name__, *([name, _meaning(value)] for name, value in sorted(told.items()))]
