"""The header of an official run says what tries from inside the box have reached, whatever the box is."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetgym.evaluation.isolation import facts, sandbox
from fleetgym.evaluation.isolation.facts import find_facts
from fleetgym.evaluation.isolation.official import make_rules
from fleetgym.evaluation.isolation.rules import ISOLATED, REACHED
from fleetgym.evaluation.isolation.sandbox import bare_command, check_box
from fleetgym.files.errors import FleetgymError

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="official runs need Linux")

_AGENT = "from fleetgym.baselines.hold import hold as Mine\n"


@pytest.fixture(scope="module", autouse=True)
def box() -> None:
    """Skip where this machine cannot make the box."""
    try:
        check_box()
    except FleetgymError as error:
        pytest.skip(str(error))


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that any user may change, and that ``FLEETGYM_SHOW`` shows to agents."""
    folder = tmp_path / "shown"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("FLEETGYM_SHOW", str(folder))
    return folder


def test_nothing_is_reached(shown: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Neither by reference agents nor by others."""
    (shown / "own").mkdir()
    (shown / "own" / "agent.py").write_text(_AGENT)
    assert find_facts(["hold", "gh", f"{shown}/own/agent.py:Mine"]) == ISOLATED
    assert capfd.readouterr().err == ""


def test_without_a_box_everything_is_reached(shown: Path) -> None:
    """Or the tries would prove nothing."""
    os.mkfifo(shown / "fifo")
    (shown / "hidden").mkdir()
    (shown / "hidden" / "day").touch()
    with facts._doors() as doors:
        places = doors | {"hidden": [str(shown / "hidden")], "visible": [str(shown)]}
        done = subprocess.run(bare_command("tries", places), capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert list(found) == list(ISOLATED) == list(REACHED)
    assert all(found.values()), found
    assert len(found["network"]) == 3
    assert found["files"][:2] == [doors["secret"], str(shown / "hidden" / "day")]


def _fifo(shown: Path, _: pytest.MonkeyPatch) -> None:
    os.mkfifo(shown / "fifo")
    (shown / "fifo").chmod(0o666)


def _socket(shown: Path, _: pytest.MonkeyPatch) -> None:
    door = socket.socket(socket.AF_UNIX)
    with contextlib.chdir(shown):  # the whole path may be longer than an address may be
        door.bind("door")
    (shown / "door").chmod(0o777)
    door.listen()
    _OPEN.append(door)


def _doors(shown: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(tempfile, "tempdir", str(shown))


def _changed(change: Callable[[list[str]], list[str]]) -> Callable[[Path, pytest.MonkeyPatch], None]:
    """Return what makes another box, of the words of its command."""
    boxed = sandbox.boxed

    def damage(_: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(sandbox, "boxed", lambda *parts: change(boxed(*parts)))

    return damage


def _unmasked(shown: Path, patch: pytest.MonkeyPatch) -> None:
    boxed = sandbox.boxed
    (shown / "results").mkdir()
    (shown / "results" / "run.jsonl").touch()
    patch.setenv("FLEETGYM_HIDE", str(shown / "results"))
    patch.setattr(sandbox, "boxed", lambda program, visible, _, inside: boxed(program, visible, [], inside))


def _with_all_processes(words: list[str]) -> list[str]:
    where = words.index("--proc")
    return [*words[:where], "--ro-bind", "/proc", *words[where + 1 :]]


_OPEN: list[socket.socket] = []
#: What is wrong with the box, and the facts that it changes.
DAMAGES = {
    "a pipe is shown": (_fifo, "files"),
    "a socket that answers is shown": (_socket, "network"),
    "the folder for temporary files is shown": (_doors, "network files"),
    "nothing is masked": (_unmasked, "files"),
    "what is shown can be changed": (
        _changed(lambda words: ["--bind" if word == "--ro-bind" else word for word in words]),
        "files",
    ),
    "the network is the machine's": (
        _changed(lambda words: [word for word in words if word != "--unshare-net"]),
        "network",
    ),
    "/proc is the machine's": (_changed(_with_all_processes), "processes"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_header_says_what_was_reached(
    damage: str, shown: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """In each box that is not whole: facts of the header are others, and standard error names why."""
    spoil, named = DAMAGES[damage]
    changed = {fact: REACHED[fact] for fact in named.split()}
    spoil(shown, monkeypatch)
    monkeypatch.setattr("fleetgym.evaluation.isolation.calibration.speed", lambda: 1.0)
    try:
        rules = make_rules("reflex")
    finally:
        while _OPEN:
            _OPEN.pop().close()
    found = {name: getattr(rules, name) for name in ISOLATED}
    assert found == ISOLATED | changed
    lines = capfd.readouterr().err.splitlines()
    assert all(line.startswith("fleetgym: in the box an agent reaches ") for line in lines)
    said = [line.partition("; ")[2] for line in lines]
    assert said == [f"the run's header says {fact}: {value}" for fact, value in changed.items()]
