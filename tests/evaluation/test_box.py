"""The box of official runs: every door is tried from inside; all CPU time is counted; nobody is root in it."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import time
from pathlib import Path

import pytest
from without_rights import ROOT, run_without_rights

from fleetgym.evaluation.isolation import doors, sandbox, visible
from fleetgym.evaluation.isolation.doors import Targets
from fleetgym.evaluation.isolation.process_tree import ProcessTree, Usage
from fleetgym.evaluation.isolation.sandbox import Sandbox, probe_isolation
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.record import ISOLATED
from fleetgym.model.sets import set_folders
from tools.check_cpu_count.__main__ import WAYS as COUNTS
from tools.check_cpu_count.__main__ import measure
from tools.check_isolation.__main__ import WAYS, try_doors

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="official runs need Linux")

_AGENT = "from fleetgym.baselines.hold import hold as Mine\n"


@pytest.fixture(scope="module")
def box() -> None:
    """Skip where the system allows no box."""
    if "open" in (found := probe_isolation()).values():
        pytest.skip(f"this system does not allow a box: {found}")


@pytest.mark.parametrize("way", WAYS)
def test_every_door_is_shut(way: str, box: None) -> None:
    """Of at least forty doors none gives way, whatever makes the box; outside most do."""
    if way == "bubblewrap" and sandbox.bubblewrap() is None:
        pytest.skip("bubblewrap is not installed, or can make no namespaces here")
    found = try_doors(way)
    assert len(found) >= 40
    assert {title: got for title, (is_open, got) in found.items() if is_open} == {}


def test_outside_the_doors_are_open() -> None:
    """The list of doors proves something: without a box, most of what matters gives way."""
    found = try_doors(None)
    page = (ROOT / "docs" / "official-runs.md").read_text(encoding="utf-8")
    assert f"tries {len(found)} doors" in page
    for title in (
        "TCP to a port of this machine",
        "Unix socket beside the agent",
        "abstract Unix socket",
        "FIFO beside the agent",
        "lock a read-only file",
        "stored scenarios in a wheel",
        "shared memory of another process (/dev/shm)",
        "signal to the run",
        "a password in the environment",
    ):
        assert found[title][0], (title, found[title])


def test_facts_are_tried() -> None:
    """A process that is kept from nothing finds the doors open, one by one."""
    with Targets() as targets:
        assert doors.facts(targets.as_dict(), [], []) == doors.OPEN


@pytest.mark.parametrize("name", [sandbox.NO_BUBBLEWRAP, sandbox.NO_CONTROL_GROUPS])
def test_ranked_runs_need_neither_bubblewrap_nor_control_groups(
    name: str, box: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Namespaces, and a filter where no group counts, keep what a ranked run promises."""
    monkeypatch.setenv(name, "1")
    assert probe_isolation() == ISOLATED


def test_no_agent_is_root(box: None) -> None:
    """Its user has no rights, in the box's user namespace and outside it."""
    with Sandbox(["sh", "-c", "id -u; cat /proc/self/uid_map; read line"], 2e9, []) as agent:
        assert agent.process.stdout is not None
        assert int(agent.process.stdout.readline()) != 0
        pids = agent.tree.processes()
        lines = Path(f"/proc/{pids[-1]}/status").read_text().splitlines()
        user = next(line.split()[1:5] for line in lines if line.startswith("Uid:"))
    assert "0" not in user


def test_an_agent_sees_its_own_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its folder without sockets, pipes and scenarios; in a folder that others share, what its code names."""
    own = tmp_path / "own"
    (own / "data").mkdir(parents=True)
    (own / "agent.py").write_text(_AGENT)
    (own / "data" / "weights").write_text("1")
    (own / "x.scenarios.json").write_text("{}")
    os.mkfifo(own / "fifo")
    (tmp_path / "key").write_text("secret")
    (own / "link").symlink_to(tmp_path / "key")
    (own / "stored").symlink_to(own / "x.scenarios.json")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(own / "door"))
        shown = set(visible.visible_files(f"{own}/agent.py:Mine", []))
    assert {path for path in shown if path.startswith(str(own))} == {
        f"{own}/agent.py",
        f"{own}/data/weights",
    }
    monkeypatch.chdir(own)
    shown = set(visible.visible_files("agent.py:Mine", []))
    assert {path for path in shown if path.startswith(str(own))} == {f"{own}/agent.py"}


def test_stored_scenarios_are_never_visible() -> None:
    """No set lies in what an agent sees, unless it is hidden there."""
    hidden = visible.hidden_files()
    for folder in map(str, set_folders()):
        assert os.path.realpath(folder) in hidden
    for place in visible.visible_files(None, hidden):
        assert place not in hidden


def test_an_agent_in_what_is_hidden_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not be seen; whoever put it there is told where not. A module folder in there is just not shown."""
    own = tmp_path / "results" / "mine"
    own.mkdir(parents=True)
    (own / "an_agent.py").write_text(_AGENT)
    monkeypatch.syspath_prepend(str(own))
    hidden = [str(tmp_path / "results")]
    for name in (f"{own}/an_agent.py:Mine", "an_agent:Mine"):
        with pytest.raises(
            FleetgymError, match=rf"{own}/an_agent\.py lies in {tmp_path}/results, which is hidden"
        ):
            visible.visible_files(name, hidden)
    assert str(own) in visible.visible_files(None, [])
    assert str(own) not in visible.visible_files(None, hidden)


def test_a_folder_of_everything_is_refused(tmp_path: Path) -> None:
    """Over a thousand files are no agent's own."""
    (tmp_path / "agent.py").write_text(_AGENT)
    for number in range(1001):
        (tmp_path / f"{number}").touch()
    with pytest.raises(FleetgymError, match="put it into a folder of its own"):
        visible.visible_files(f"{tmp_path}/agent.py:Mine", [])


@pytest.mark.parametrize("groups", [True, False])
def test_an_agent_is_charged_from_its_start(groups: bool, box: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the run takes to read the clock, also without a control group."""
    if not groups:
        monkeypatch.setenv("FLEETGYM_NO_CONTROL_GROUPS", "1")

    class Late(ProcessTree):
        def usage(self) -> Usage:
            time.sleep(0.5)
            return super().usage()

    monkeypatch.setattr(sandbox, "ProcessTree", Late)
    burn = "import time\nwhile time.process_time() < 0.3: pass\nprint(0, flush=True)\ninput()"
    with Sandbox([sys.executable, "-I", "-S", "-c", burn], 2e9, []) as made:
        assert made.process.stdout is not None
        assert made.process.stdout.readline() == "0\n"
        assert made.usage().cpu_s >= 0.28


@pytest.mark.slow
@pytest.mark.parametrize("way", COUNTS)
@pytest.mark.parametrize(
    "pattern",
    [
        "children of 1 ms, one at a time, ignored",
        "children of 4 ms, two at a time, waited for",
        "grandchildren of 2 ms that a child of 12 ms ignores",
        "a child that works after the answer",
    ],
)
def test_all_cpu_time_is_charged(pattern: str, way: str, box: None) -> None:
    """At most 5 % of what was burnt is missed, and at most 2 % is charged beside it."""
    burnt_s, charged_s = measure(pattern, way, 1.0)
    assert charged_s >= 0.95 * burnt_s
    assert (
        charged_s <= 1.02 * burnt_s + 0.02 or burnt_s < 0.5
    )  # clocks alone miss how processes start and end


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ["-m", "tools.check_isolation", "--quiet"],
        [
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "not slow",
            "tests/evaluation/test_official.py",
        ],
    ],
)
def test_the_same_as_a_user_without_rights(words: list[str], tmp_path: Path) -> None:
    """What holds for root's runs holds for anybody's."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("this is a user without rights, or one that cannot become one")
    done = run_without_rights([sys.executable, *words], tmp_path, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


def test_root_without_a_box_is_refused_where_nobody_may_run_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root's agents become the user nobody, or do not start."""
    if os.geteuid() != 0:
        pytest.skip("this is not root")
    monkeypatch.setenv(sandbox.NO_NAMESPACES, "1")
    with pytest.raises(FleetgymError, match="cannot be run by the user nobody"):
        Sandbox(["/no-such-program"], 2e9, [])
