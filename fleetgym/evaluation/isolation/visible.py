"""List the folders and files that an agent of an official run may see, and those that stay hidden inside them."""

from __future__ import annotations

import os
import shlex
import shutil
import site
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from fleetgym.agents.agent_code import own_files
from fleetgym.agents.registry import PROGRAM, agent_places, parse_agent
from fleetgym.evaluation.isolation.agent_process import module_path
from fleetgym.files.errors import FleetgymError
from fleetgym.model.library import is_path
from fleetgym.model.sets import set_folders
from fleetgym.runtime.places import PACKAGE, checkout, reference_agents

#: Folders and files to hide beside our own, separated as in PATH; and folders and files that the agent may read.
HIDE_VARIABLE, SHOW_VARIABLE = "FLEETGYM_HIDE", "FLEETGYM_SHOW"
#: Programs and libraries of the system, and the files of /etc without which they do not run.
_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SETTINGS = (
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime"),
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf"),
)
#: More files than this are no agent's own.
_MOST_FILES = 1000


def hidden_files(instance: str | None = None) -> list[str]:
    """Return folders and files that an agent must not read: stored scenarios, results, the leaderboard.

    An agent sees none of them unless they lie in a folder that it may see, such as Python's packages. There they are
    empty. More, such as a season's private seed, may be named in the environment variable ``FLEETGYM_HIDE``.

    Parameters
    ----------
    instance : str, optional
        Id or path of the instance that is played: of a path, the scenarios beside it are hidden.
    """
    found, root = [*set_folders(), PACKAGE / "_instances"], checkout()
    # An editable installation leaves a copy among the packages.
    found += [Path(place) / "fleetgym" / "_instances" for place in sys.path]
    if root is not None:
        found += [root / name for name in ("instances", "leaderboard", "results", "dist", "build", ".git")]
    found += map(Path, _named(HIDE_VARIABLE))
    if instance is not None and is_path(instance):
        stem = Path(instance).name.removesuffix(".gz").removesuffix(".json")
        found += [Path(instance).parent / f"{stem}.scenarios.json{packed}" for packed in ("", ".gz")]
    places = {path.resolve() for path in found if path.exists()}
    return sorted(str(place) for place in places if place != place.parent)  # all there is cannot be hidden


def visible_files(agent: str | None, hidden: Iterable[str]) -> list[str]:
    """Return the folders and files that an agent may see; nothing else exists for it.

    They are the system's programs and libraries, Python and its installed packages, fleetgym, the agent's own files,
    what ``FLEETGYM_SHOW`` names, and the compiled kernels. Other folders of the module path, such as a script's own or
    those of ``PYTHONPATH``, are not shown. Sockets, pipes and devices beside an agent are no files of its own.

    Parameters
    ----------
    agent : str, optional
        As for `fleetgym.make_agent`.
    hidden : iterable of str
        See `hidden_files`.

    Returns
    -------
    list of str
        Absolute paths that exist. None lies in another, unless that one is, or lies in, a hidden one.

    Raises
    ------
    FleetgymError
        If an agent lies in what is hidden, or its folder holds too many files to be the agent's alone.
    """
    from fleetgym.kernels.compile import cache_folder

    kept = [os.path.realpath(place) for place in hidden]
    folders = [*_SYSTEM, *_SETTINGS, *_python(), *_shared_libraries(), str(PACKAGE), str(reference_agents())]
    folders += [place for place in _packages_elsewhere() if not _hidden_around(place, kept)]
    folders += _named(SHOW_VARIABLE)
    if (cache := cache_folder()) is not None:
        folders.append(str(cache))
    shown = [os.path.abspath(place) for place in folders]
    shown += [os.path.realpath(place) for place in shown if not _is_top_link(place)]
    shown += _files_of(agent, kept) if agent is not None else []
    return _without_repeats([place for place in dict.fromkeys(shown) if os.path.exists(place)], kept)


def _named(variable: str) -> list[str]:
    return [place for place in os.environ.get(variable, "").split(os.pathsep) if place]


def _python() -> list[str]:
    places = [sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix, *_site_folders()]
    places += [*sysconfig.get_paths().values(), os.path.dirname(os.path.realpath(sys.executable))]
    return [place for place in places if place not in ("/", os.path.expanduser("~"))]


def _site_folders() -> list[str]:
    users = [site.USER_SITE] if site.ENABLE_USER_SITE and site.USER_SITE else []
    return [*site.getsitepackages(), *users]


def _packages_elsewhere() -> Iterator[str]:
    """Yield the packages and modules in folders that a ``.pth`` file names, and nothing else that lies there.

    These are packages installed in place. Beside them, their folders hold whatever a developer keeps there.
    """
    for site_folder in _site_folders():
        for path in sorted(Path(site_folder).glob("*.pth")):
            try:
                lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:  # Python passes it over, too
                continue
            for folder in (os.path.join(site_folder, line.strip()) for line in lines if line.strip()):
                if os.path.basename(folder) in ("site-packages", "dist-packages"):
                    yield folder
                elif os.path.isdir(folder):
                    yield from (str(each) for each in sorted(Path(folder).iterdir()) if _is_module(each))


def _is_module(path: Path) -> bool:
    if path.is_dir():
        return (path / "__init__.py").is_file()
    return path.is_file() and path.suffix in (".py", ".so")


def _shared_libraries() -> list[str]:
    return [place for place in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if place]


def _is_shared(place: str, hidden: list[str]) -> bool:
    """Return whether a folder holds more than modules: something hidden, or whatever lies about."""
    real = os.path.realpath(place)
    common = {os.path.realpath(p) for p in ("/", os.getcwd(), os.path.expanduser("~"), tempfile.gettempdir())}
    return real in common or any(Path(path).is_relative_to(real) for path in hidden)


def _hidden_around(path: str, hidden: list[str]) -> str | None:
    """Return what is hidden and holds a path; None if nothing does."""
    real = Path(os.path.realpath(path))
    return next((place for place in hidden if real.is_relative_to(place)), None)


def _is_top_link(place: str) -> bool:
    return os.path.dirname(place) == "/" and os.path.islink(place)


def _files_of(agent: str, hidden: list[str]) -> Iterator[str]:
    """Yield an agent's own files: those of its folder, or where that holds more than an agent, those it names."""
    spec = parse_agent(agent)
    if spec.is_reference:
        return
    for place in agent_places():
        yield from _own(_folder_files(place), place, hidden)
    for file in _roots(spec.target, str(spec.arguments.get("command", ""))):
        folder = os.path.dirname(file)
        if around := _hidden_around(file, hidden):
            raise FleetgymError(
                f"{file} lies in {around}, which is hidden from agents; put it into a folder of its own elsewhere"
            )
        if _is_shared(folder, hidden):
            yield from _own(map(str, own_files(Path(file))), folder, hidden)
        elif not any(Path(folder).is_relative_to(place) for place in (*_SYSTEM, *_python())):
            yield from _own(_folder_files(folder), folder, hidden)


def _own(files: Iterable[str], folder: str, hidden: list[str]) -> Iterator[str]:
    """Drop stored scenarios, whatever is hidden, and links that lead out of the folder: to a scenario, or a key."""
    root = os.path.realpath(folder)
    for file in files:
        real = Path(os.path.realpath(file))
        is_secret = ".scenarios.json" in real.name or _hidden_around(file, hidden)
        if real.is_relative_to(root) and not is_secret:
            yield file


def _roots(target: str, command: str) -> Iterator[str]:
    """Yield the absolute paths of the files by which an agent is found."""
    if target == PROGRAM:
        try:
            words = shlex.split(command)
        except ValueError:
            return
        named = [shutil.which(word) if number == 0 else word for number, word in enumerate(words)]
        yield from (os.path.abspath(word) for word in named if word and os.path.isfile(word))
        return
    place = target.rpartition(":")[0]
    if place.endswith(".py"):
        yield os.path.abspath(place)
        return
    top = place.partition(".")[0]
    for folder in module_path():
        for name in (f"{top}.py", os.path.join(top, "__init__.py")):
            if os.path.isfile(os.path.join(folder, name)):
                yield os.path.abspath(os.path.join(folder, name))
                return


def _folder_files(folder: str) -> Iterator[str]:
    """Yield the regular files of a folder and below, but for other environments and what begins with a dot."""
    count = 0
    for place, folders, names in os.walk(folder):
        folders[:] = [
            name
            for name in folders
            if not name.startswith(".")
            and name != "__pycache__"
            and not os.path.exists(os.path.join(place, name, "pyvenv.cfg"))
        ]
        for path in (os.path.join(place, name) for name in names):
            if not os.path.isfile(path):
                continue
            yield path
            count += 1
            if count > _MOST_FILES:
                raise FleetgymError(
                    f"{folder} holds over {_MOST_FILES} files, and the agent in it would see them all; "
                    "put it into a folder of its own"
                )


def _without_repeats(places: list[str], hidden: list[str]) -> list[str]:
    """Drop what lies in a folder that is shown, unless something hidden lies between."""
    shown = set(places)

    def is_shown(place: str) -> bool:
        for parent in map(str, Path(place).parents):
            if os.path.realpath(parent) in hidden:
                return False
            if parent in shown:
                return True
        return False

    return [place for place in places if not is_shown(place)]
