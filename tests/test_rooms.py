"""The house cannot decay: every room imports rooms below it only."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

from places import ROOT

#: Rooms from the ground up; each one may import those before it, and itself.
ORDER = (
    "fleetgym/kernels",
    "fleetgym/files",
    "fleetgym/runtime",
    "fleetgym/model",
    "fleetgym/reference",
    "fleetgym/hardware",
    "fleetgym/agents",
    "fleetgym/bounds",
    "fleetgym/families",
    "fleetgym/envs",
    "fleetgym/planning",
    "fleetgym/learning",
    "fleetgym/evaluation/isolation",
    "fleetgym/evaluation",
    "fleetgym/scoring",
    "fleetgym/evaluation/pytest_plugin.py",  # which nothing imports but pytest
    "fleetgym/capacity",
    "fleetgym/leaderboard",
    "fleetgym/search",
    "fleetgym/cli",
    "baselines",
    "papers",
    "tools",
)

#: What the reference agents may import, as anybody's agents do: names in `__all__` of these modules.
PUBLIC = ("fleetgym", "fleetgym.planning", "fleetgym.learning", "fleetgym.cli")

#: What a module may do. A new verb joins the list.
VERBS = frozenset(
    """
    Adapt Add Admit Align Allocate Answer Apply Assemble Assign Average Bind Bound Build Certify Change Charge Check
    Choose Combine Compare Compile Compute Connect Convert Count Create Declare Decorate Define Describe
    Do Draft Draw End Enumerate Evaluate Extend Find Finish Fit Fix Generate Give Handle Hold Implement
    Import Improve Judge Keep Lay Let Limit List Load Locate Make Measure Multiply Parse Pay Place Plan
    Play Predict Price Propose Prove Publish Raise Read Record Redraw Refuse Regenerate Relax Remove Render Replay
    Replicate Report Round Route Run Sample Scale Schedule Score Search Select Serve Set Show Shrink
    Simulate Size Solve Sort Split Start State Store Switch Tell Train Tune Turn Unpack Vary Verify Wrap
    Write
    """.split()  # noqa: SIM905
)

#: The package's front door: it names everything, and imports on demand. Agents use it, as anybody's do.
DOOR = {"fleetgym/__init__.py", "fleetgym/__main__.py"}
MAY_USE_THE_DOOR = {"baselines", "papers", "tools"}


def room_of(path: str) -> str:
    """Return the room of a file or module path: the longest name in `ORDER` that it begins with."""
    found = [room for room in ORDER if path == room or path.startswith(f"{room}/")]
    return max(found, key=len, default="door")


def place_of(module: str) -> str:
    """Return where a module lies; the agents and papers are imported by names inside the package."""
    for name in ("baselines", "papers"):
        if module == f"fleetgym.{name}" or module.startswith(f"fleetgym.{name}."):
            module = module.removeprefix("fleetgym.")
    return module.replace(".", "/")


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and place of everything of ours that a file imports."""
    folder = path.relative_to(ROOT).parent
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, place_of(alias.name)) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = folder
            for _ in range(node.level - 1):
                base = base.parent
            within = node.module or ""
            start = f"{base}/{within.replace('.', '/')}".rstrip("/") if node.level else place_of(within)
            for alias in node.names:
                inside = f"{start}/{alias.name}"
                is_place = (ROOT / inside).is_dir() or (ROOT / f"{inside}.py").is_file()
                yield node.lineno, inside if is_place else start


def arrows() -> Iterator[tuple[str, int, str, str]]:
    """Yield file, line, the file's room and the imported room, for every import of ours by ours."""
    for top in ("fleetgym", "baselines", "papers", "tools"):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name in DOOR:
                continue
            for line, place in imports_of(path):
                if place.split("/")[0] in ("fleetgym", "baselines", "papers", "tools"):
                    yield name, line, room_of(name), room_of(place)


def test_every_file_is_in_a_room() -> None:
    """No file of the package lies beside the rooms, but for its front door and what finds agents in a checkout."""
    outside = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "fleetgym").rglob("*.py")
        if room_of(path.relative_to(ROOT).as_posix()) == "door"
    }
    assert outside == DOOR | {"fleetgym/baselines/__init__.py", "fleetgym/papers/__init__.py"}


def test_imports_point_down() -> None:
    """A room imports rooms below it; only agents, papers and tools come in by the front door."""
    wrong = []
    for name, line, here, there in arrows():
        if there == "door":
            if here not in MAY_USE_THE_DOOR:
                wrong.append(f"{name}:{line} imports the top of the package")
        elif ORDER.index(there) > ORDER.index(here):
            wrong.append(f"{name}:{line} {here} imports {there}, which lies above it")
    assert not wrong, "\n".join(wrong)


def test_reference_agents_use_the_public_interface() -> None:
    """Files in `baselines` import each other, and documented names of public modules."""
    wrong = []
    for path in sorted((ROOT / "baselines").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = {}
            if isinstance(node, ast.Import):
                names = {alias.name: alias.name in PUBLIC for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                public = importlib.import_module(str(node.module)).__all__ if node.module in PUBLIC else ()
                names = {f"{node.module}.{alias.name}": alias.name in public for alias in node.names}
            ours = {
                name
                for name, is_public in names.items()
                if name.split(".")[0] == "fleetgym" and not is_public
            }
            wrong += [f"{path.relative_to(ROOT)}:{node.lineno} imports {name}" for name in sorted(ours)]
    assert not wrong, "\n".join(wrong)


def test_public_modules_document_their_names() -> None:
    """The docstring of each module names everything that it offers."""
    for module in map(importlib.import_module, PUBLIC[1:]):
        missing = [
            name for name in module.__all__ if f"`{name}`" not in str(module.__doc__) and name != "main"
        ]
        assert not missing, f"{module.__name__} does not explain {missing}"


def test_nothing_imports_the_papers() -> None:
    """The evaluations of papers use the rest; tools and agents do not use them."""
    assert not [a for a in arrows() if a[3] == "papers" and a[2] != "papers"]


def test_the_reference_evaluator_and_the_kernels_are_strangers() -> None:
    """Neither imports the other, so that an error in one cannot be in both."""
    pairs = {(here, there) for _, _, here, there in arrows()}
    assert ("fleetgym/reference", "fleetgym/kernels") not in pairs
    assert {there for here, there in pairs if here == "fleetgym/kernels"} == {"fleetgym/kernels"}


def test_modules_say_what_they_do() -> None:
    """The docstring of every module begins with a verb, as those of functions do; a package's says what is in it."""
    found = {}
    for top in ("fleetgym", "baselines", "papers", "tools"):
        for path in sorted((ROOT / top).rglob("*.py")):
            if path.name != "__init__.py":
                text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "Nothing"
                found[path.relative_to(ROOT).as_posix()] = text.split()[0].strip(",:")
    assert {path: word for path, word in found.items() if word not in VERBS} == {}
