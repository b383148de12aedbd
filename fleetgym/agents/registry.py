"""Make agents by name, from entry points that reference agents and third parties share.

A name is an entry point of the group ``fleetgym.agents``, or ``module:Class``, or ``path/to/file.py:Class``;
each may carry arguments, as in ``agh-rolling(every=6, margin=0.2)``.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import hashlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from fleetgym.agents.agent_code import code_sha256, command_sha256, neighbours, reference_sha256
from fleetgym.agents.arguments import check_arguments
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.files.schema import from_text
from fleetgym.runtime.entry_points import Entry, named_entries

if TYPE_CHECKING:
    from fleetgym.agents.agent import Agent
    from fleetgym.model.planning import Planner

GROUP = "fleetgym.agents"
#: Environment variable: folders in which agents' processes look for modules, and no other process does.
AGENT_PATH = "FLEETGYM_AGENT_PATH"
PROGRAM = "fleetgym.evaluation.isolation.program:Program"  # an agent of any language
#: Stands for the module of agents that were given as classes or objects.
_HERE = "__given__"
#: These agents by their names; only this process has them.
_given: dict[str, Any] = {}


@dataclasses.dataclass(frozen=True)
class AgentSpec:
    """The parts of an agent's name."""

    text: str  # as given
    target: str  # module:attribute or file.py:attribute
    arguments: Mapping[str, Any]
    is_reference: bool

    @property
    def is_here(self) -> bool:
        """Whether only this process can make the agent: it was given as a class or object, or is in ``__main__``."""
        return self.target.partition(":")[0] in (_HERE, "__main__")

    @property
    def reference_sha256(self) -> str | None:
        """Checksum of a reference agent's code and settings; None of a third party's (see `code_sha256`)."""
        return reference_sha256(self.target, self.arguments) if self.is_reference else None

    @property
    def code_sha256(self) -> str | None:
        """Checksum of a third party's code (see `fleetgym.agents.agent_code.code_sha256`); None of a reference agent.

        For a program in another language it covers the files that its command names.
        """
        if self.is_reference:
            return None
        if self.target == PROGRAM:
            return command_sha256(str(self.arguments.get("command", "")))
        return code_sha256(self.target.rpartition(":")[0])


def agent_entries() -> dict[str, Entry]:
    """Return every agent with a name, sorted by it.

    Returns
    -------
    dict of str to Entry

    Raises
    ------
    FleetgymError
        If two packages give different agents the same name; ours keep theirs.
    """
    return named_entries(GROUP, "agent")


def give_names(agents: Sequence[Any]) -> list[str]:
    """Return a name for each agent by which this process can make it: its own, or that of its class.

    Parameters
    ----------
    agents : sequence
        Names stay. A class of an importable module becomes ``module:Class``. Another class, a function that returns an
        agent, and an agent itself are kept under the name of the class, until another one takes it.

    Returns
    -------
    list of str

    Raises
    ------
    FleetgymError
        If one is none of these.

    Examples
    --------
    >>> from fleetgym.baselines.margin import Margin
    >>> give_names(["hold", Margin, Margin()])
    ['hold', 'fleetgym.baselines.margin:Margin', 'Margin']
    """
    names: list[str] = []
    for agent in agents:
        if isinstance(agent, str) or not _can_play(agent):
            names.append(agent)  # `parse_agent` says what is wrong with it
        elif _is_importable(agent):
            names.append(f"{agent.__module__}:{agent.__qualname__}")
        else:
            own = getattr(agent, "__name__", type(agent).__name__)
            tries = (own if number == 1 else f"{own}-{number}" for number in range(1, len(agents) + 2))
            name = next(each for each in tries if each not in {*names, *agent_entries()})
            _given[name] = agent
            names.append(name)
    return names


def _can_play(agent: Any) -> bool:
    """Return whether this is an agent, a planner, or something that may make one."""
    return callable(agent) or any(callable(getattr(agent, name, None)) for name in ("act", "plan"))


def _is_importable(agent: Any) -> bool:
    """Return whether another process finds this class or function by module and name."""
    name = str(getattr(agent, "__qualname__", ""))
    module = sys.modules.get(str(getattr(agent, "__module__", "")))
    spec = getattr(module, "__spec__", None)  # None of ``__main__``, and of a file that was run by its path
    return (
        spec is not None
        and importlib.util.find_spec(spec.name) is not None
        and vars(module).get(name) is agent
    )


def parse_agent(text: str) -> AgentSpec:
    """Parse an agent's name without importing it.

    Parameters
    ----------
    text : str
        A registered name, ``module:Class`` or ``file.py:Class``, optionally with keyword arguments.

    Returns
    -------
    AgentSpec

    Raises
    ------
    UnknownNameError
        If no agent has the name.
    FleetgymError
        If the text is malformed, or its file or module does not exist.

    Examples
    --------
    >>> spec = parse_agent("json:JSONDecoder(strict=False)")
    >>> spec.target, dict(spec.arguments)
    ('json:JSONDecoder', {'strict': False})
    """
    if not isinstance(text, str):
        raise FleetgymError(
            f"expected an agent: its name, its class or an object with reset and act; got {text!r}"
        )
    head, arguments = split_arguments(text.strip())
    if ":" not in head:
        known = agent_entries()
        if head.endswith(".py"):
            raise FleetgymError(f"{head!r} is a file; name the class in it too, as in {head}:MyAgent")
        if head not in known and os.path.isfile(head):
            raise FleetgymError(
                f"{head!r} is no agent; name the code that makes an agent of the file, as in mine.py:agent"
            )
        if head in _given:
            return AgentSpec(text, f"{_HERE}:{head}", arguments, is_reference=False)
        if head not in known:
            raise UnknownNameError("agent", head, known, _meant(head, known))
        return AgentSpec(text, known[head].target, arguments, known[head].is_reference)
    place, _, attribute = head.rpartition(":")
    if not place or not all(part.isidentifier() for part in attribute.split(".")):
        raise FleetgymError(
            f"cannot read the agent {text!r}; expected a name, module:Class or file.py:Class, and its settings in "
            "brackets, as in 'gh(margin=0.2)'"
        )
    found = _find_place(place)
    return AgentSpec(text, f"{found}:{attribute}", arguments, is_reference=False)


def _meant(head: str, known: Iterable[str]) -> str:
    """Return what to do about the name of a suite or an instance, or of a class of the user's own; else nothing."""
    if "/" in head:
        return f"suites, instances and files follow --suite, as in --suite {head}"
    if head[:1].isupper() and not any(head.lower() == name.lower() for name in known):
        return f"name a class with its file, as in path/to/file.py:{head}"
    return ""


def split_arguments(text: str) -> tuple[str, dict[str, Any]]:
    """Parse ``name(key=value, ...)``.

    Raises
    ------
    FleetgymError
        If the brackets hold anything but keywords with plain values.

    Examples
    --------
    >>> split_arguments("gh(margin=0.2)")
    ('gh', {'margin': 0.2})
    """
    head, bracket, _ = text.partition("(")
    if not bracket:
        return text, {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SyntaxWarning)  # of numbers such as 1in
            call = ast.parse(f"f{text[len(head) :]}", mode="eval").body
        if not isinstance(call, ast.Call) or call.args or any(k.arg is None for k in call.keywords):
            raise ValueError
        for part in ast.walk(call):  # numbers as everywhere, where Python would take 1_0, 0x10, 1e999 and 1j
            if isinstance(part, ast.Constant) and isinstance(part.value, (int, float, complex)):
                source = ast.get_source_segment(f"f{text[len(head) :]}", part) or ""
                if not isinstance(part.value, bool) and isinstance(from_text(source), str):
                    raise ValueError
        return head.strip(), {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise FleetgymError(
            f"cannot read the arguments of {text!r}; expected keywords with plain values, as in name(every=6)"
        ) from None


def _find_place(place: str) -> str:
    """Return a module, or the path of a file; agents' own folders come first, and need not be named."""
    if place.endswith(".py"):
        ways = [os.path.join(folder, place) for folder in agent_places()] + [place]
        found = next((way for way in ways if os.path.isfile(way)), None)
        if found is None:
            raise FleetgymError(f"there is no file {place!r}")
        return found
    top = place.partition(".")[0]
    if top not in sys.modules and importlib.util.find_spec(top) is None and not _lies_in(agent_places(), top):
        raise FleetgymError(
            f"there is no module {top!r} on the path; a file is named as path/to/{top}.py:Class"
        )
    return place


def agent_places() -> list[str]:
    """Return the folders of `AGENT_PATH`; nothing in them is ever imported in this process."""
    return [place for place in os.environ.get(AGENT_PATH, "").split(os.pathsep) if place]


def _lies_in(folders: list[str], module: str) -> bool:
    """Return whether a top-level module lies in one of some folders, without importing anything."""
    importlib.invalidate_caches()
    return importlib.machinery.PathFinder.find_spec(module, folders) is not None


def load_target(target: str) -> Callable[..., Any]:
    """Import the class or factory that a target names.

    Parameters
    ----------
    target : str
        ``module:attribute`` or ``file.py:attribute``.

    Raises
    ------
    FleetgymError
        If the module has no such attribute.
    """
    place, _, attribute = target.rpartition(":")
    if place == _HERE:
        return _maker(_given[attribute])
    module = _import_file(place) if place.endswith(".py") else importlib.import_module(place)
    value: Any = module
    for part in attribute.split("."):
        if not hasattr(value, part):
            named = [n for n in dir(module) if not n.startswith("_") and callable(getattr(module, n))]
            raise UnknownNameError(f"attribute of {place}", attribute, named)
        value = getattr(value, part)
    if not callable(value):
        raise FleetgymError(f"{target} is {type(value).__name__}, expected a class or a factory")
    return value


def _maker(given: Any) -> Callable[..., Any]:
    """Return a factory of a new agent for each episode: a class or function itself; for an agent, its copies."""
    is_agent = any(callable(getattr(given, name, None)) for name in ("act", "plan"))
    return given if inspect.isclass(given) or not is_agent else lambda: copy.deepcopy(given)


def summary(target: str) -> str:
    """Return the first line of the docstring of a class or factory, or why it cannot be imported.

    Examples
    --------
    >>> summary("fleetgym.agents.rolling:Static")
    'Plan once, for nominal demand with a margin, and keep the fleet for the whole episode.'
    """
    try:
        documentation = load_target(target).__doc__
    except Exception as error:  # whatever a foreign module does when it is imported
        return f"cannot be imported: {error}"
    return inspect.cleandoc(documentation or "").partition("\n")[0]


#: The state of each file's code when it was imported, by the module's name.
_imported_state: dict[str, str | None] = {}


def refuse_edited(target: str) -> None:
    """Raise if an agent's code is no longer what this process has imported.

    Parameters
    ----------
    target : str
        ``file.py:attribute``; what names a module is not looked at.

    Raises
    ------
    FleetgymError
        If the file, or one that it uses of those beside it, was edited since.
    """
    place = target.rpartition(":")[0]
    name = _module_name(Path(place))
    if name in _imported_state and _imported_state[name] != code_sha256(place):
        raise FleetgymError(
            f"{place} was edited since it was imported here: start Python anew, or let the agent play in a process "
            "of its own (isolate='always')"
        )


def _module_name(path: Path) -> str:
    """Return what an imported file is called, which messages and the agent see: the same in every process and copy."""
    real = Path(os.path.realpath(path))
    copies = [place for place in map(os.path.realpath, agent_places()) if real.is_relative_to(place)]
    told = real.relative_to(copies[0]) if copies else real
    return f"fleetgym_agent_{path.stem}_{hashlib.sha256(os.fsencode(told)).hexdigest()[:8]}"


def _import_file(place: str) -> ModuleType:
    """Import a file by its path, once; its folder comes first on the path, so it finds its neighbours."""
    path = Path(os.path.realpath(place))
    name = _module_name(path)
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    _check_neighbours(path)
    if str(path.parent) != sys.path[0]:
        sys.path.insert(0, str(path.parent))
    sys.modules[name] = module
    _imported_state[name] = code_sha256(place)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    if code_sha256(place) != _imported_state[name]:  # else the checksum may be of code that was not run
        del sys.modules[name]
        raise FleetgymError(
            f"{place}, or what it uses beside it, was edited while it was imported; try again"
        )
    return module


def _check_neighbours(path: Path) -> None:
    """Refuse a file that means a module beside it where another of that name has been imported already."""
    for name, beside in neighbours(path).items():
        other = getattr(sys.modules.get(name), "__file__", None)
        if name in sys.modules and (other is None or os.path.realpath(other) != os.path.realpath(beside)):
            raise FleetgymError(
                f"{path.name} imports {name!r}, but not the {beside.name} beside it would come: "
                f"{other or 'another module'} has that name already; rename it, or give each agent its own "
                "process (--isolate always)"
            )


def make_agent(name: str, **arguments: Any) -> Agent:
    """Return a new agent.

    Parameters
    ----------
    name : str
        A registered name (see ``fleetgym list agents``), ``module:Class`` or ``path/to/file.py:Class``; a
        function that returns an agent also works. Arguments may follow in parentheses.
    **arguments
        Passed to the class or factory; they override those in parentheses.

    Returns
    -------
    Agent
        A planner is wrapped in `Static`: it plans once and keeps the fleet.

    Raises
    ------
    UnknownNameError
        If no agent has the name, or it has no such argument.
    FleetgymError
        If what was found is neither an agent nor a planner, or does not take an argument's value.

    Examples
    --------
    >>> type(make_agent("gh")).__name__
    'Static'
    """
    return as_agent(_make(name, arguments), name)


def _make(name: str, arguments: Mapping[str, Any]) -> Any:
    """Call what a name stands for. Annotations bind ours only: others' may say less than is true."""
    spec = parse_agent(name)
    target, given = load_target(spec.target), {**spec.arguments, **arguments}
    check_arguments(target, given, typed=spec.is_reference)
    return target(**given)


def as_agent(made: Any, name: str = "this object") -> Agent:
    """Return `made` if it is an agent, `Static(made)` if it is a planner; raise otherwise."""
    from fleetgym.agents.rolling import Static

    if callable(getattr(made, "act", None)):
        if not callable(getattr(made, "reset", None)):
            raise FleetgymError(f"{name} has act but no reset(view, *, seed)")
        return made
    if callable(getattr(made, "plan", None)):
        return Static(made)
    raise FleetgymError(
        f"{name} made an object of {type(made).__name__}, neither an agent (reset and act) nor a planner (plan)"
    )


def make_planner(name: str, **arguments: Any) -> Planner:
    """Return the planner of a named agent that plans, such as ``agh``.

    Raises
    ------
    FleetgymError
        If the agent has no planner.
    """
    made = _make(name, arguments)
    planner = made if hasattr(made, "plan") else getattr(made, "planner", None)
    if planner is None:
        raise FleetgymError(f"the agent {name!r} is no planner: it acts window by window; try `fleetgym run`")
    return planner
