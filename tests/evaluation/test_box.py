"""The box of official runs: every door is tried from inside; all CPU time is charged; nobody is root in it."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import platform
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import box_doors
import cpu_patterns
import pytest
from without_rights import ROOT, run_without_rights

from fleetgym.evaluation.isolation import sandbox, visible
from fleetgym.evaluation.isolation.process_tree import ProcessTree, Usage
from fleetgym.evaluation.isolation.sandbox import Sandbox, check_box
from fleetgym.files.errors import FleetgymError
from fleetgym.kernels.compile import cache_folder
from fleetgym.model.sets import set_folders
from fleetgym.runtime.places import PACKAGE

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="official runs need Linux")

_AGENT = "from fleetgym.baselines.hold import hold as Mine\n"
_TRY = "import sys; sys.path.insert(0, sys.argv[1]); import agent; agent.main()"
_BURN = (
    f"import sys; sys.path.insert(0, {str(Path(cpu_patterns.__file__).parent)!r}); import cpu_patterns;"
    "cpu_patterns.burn(sys.argv[1], float(sys.argv[2]))"
)
_ADD_KEY, _KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}.get(platform.machine(), (0, 0))
_SESSION, _UNLINK = -3, 9  # from <linux/keyctl.h>


@pytest.fixture(scope="module")
def box() -> None:
    """Skip where this machine cannot make the box."""
    try:
        check_box()
    except FleetgymError as error:
        pytest.skip(str(error))


def test_the_interpreter_may_be_named_by_a_way_round(box: None) -> None:
    """As `../../.venv/bin/python` from a folder that the box does not show."""
    here = Path(__file__).parent
    program = "from fleetgym.evaluation.isolation.sandbox import check_box; check_box()"
    command = [os.path.relpath(sys.executable, here), "-c", program]
    done = subprocess.run(command, cwd=here, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@contextlib.contextmanager
def outside() -> Iterator[dict[str, Any]]:
    """Open doors of this process while the context lasts; yield where they are."""
    mark = f"fleetgym-{secrets.token_hex(8)}"
    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.chmod(folder, 0o755)
        beside = folder / "agent"
        beside.mkdir()
        (beside / "agent.py").write_bytes(Path(box_doors.__file__).read_bytes())
        (beside / "startup.scenarios.json").write_text("{}")
        (folder / "secret").write_text("secret")
        (folder / "dist.whl").write_bytes(b"wheel")
        for place in (beside, folder):
            os.mkfifo(place / "fifo")
            stack.callback(os.close, os.open(place / "fifo", os.O_RDONLY | os.O_NONBLOCK))
            os.chmod(place / "fifo", 0o666)
        port, port6 = _serve(stack, socket.AF_INET, ("127.0.0.1", 0))[1], 1
        with contextlib.suppress(OSError):
            port6 = _serve(stack, socket.AF_INET6, ("::1", 0))[1]
        for address in (str(beside / "socket"), str(folder / "socket"), f"\0{mark}"):
            _serve(stack, socket.AF_UNIX, address)
        Path("/dev/shm", mark).write_text("shared")
        stack.callback(os.unlink, f"/dev/shm/{mark}")
        shm_key = secrets.randbelow(2**30) + 1
        libc = ctypes.CDLL(None)
        stack.callback(libc.shmctl, libc.shmget(shm_key, 1, 0o1666), 0, None)
        if _ADD_KEY:
            arguments = (b"user", mark.encode(), b"x", ctypes.c_long(1), ctypes.c_long(_SESSION))
            key = ctypes.c_long(libc.syscall(_ADD_KEY, *arguments))
            stack.callback(libc.syscall, _KEYCTL, ctypes.c_long(_UNLINK), key, ctypes.c_long(_SESSION))
        patch.setenv("SOME_PASSWORD", "secret")
        stack.callback(Path(tempfile.gettempdir(), mark).unlink, missing_ok=True)
        yield {
            "pid": os.getpid(),
            "key": mark,
            "mark": mark,
            "beside": str(beside),
            "words": Path("/proc/self/cmdline").read_bytes().decode(errors="replace"),
            "port": port,
            "port6": port6,
            "socket_beside": str(beside / "socket"),
            "socket": str(folder / "socket"),
            "abstract": mark,
            "fifo_beside": str(beside / "fifo"),
            "fifo": str(folder / "fifo"),
            "secret": str(folder / "secret"),
            "other_scratch": str(folder / "secret"),
            "wheel": str(folder / "dist.whl"),
            "scenarios_beside": str(beside / "startup.scenarios.json"),
            "stored": [str(place) for place in set_folders()],
            "home": os.path.expanduser("~"),
            "package": str(PACKAGE),
            "agent": str(beside / "agent.py"),
            "kernels": str(cache_folder()),
            "temporary": tempfile.gettempdir(),
            "shm": mark,
            "shm_key": shm_key,
            "host": socket.gethostname(),
            "is_boxed": False,
        }


def _serve(stack: contextlib.ExitStack, kind: int, address: Any) -> Any:
    """Answer whoever connects with a word; return the address."""
    server = stack.enter_context(socket.socket(kind))
    server.bind(address)
    server.listen()

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                with server.accept()[0] as visitor:
                    visitor.sendall(b"answer")

    threading.Thread(target=answer, daemon=True).start()
    return server.getsockname()


def _try_doors(places: dict[str, Any], *, boxed: bool) -> dict[str, str]:
    """Return what was got by each door, of all that were tried; nothing for those that are shut."""
    places["is_boxed"] = boxed
    command = [sys.executable, "-I", "-S", "-c", _TRY, places["beside"], json.dumps(places)]
    if boxed:
        with Sandbox(command, 2e9, visible.hidden_files(), f"{places['agent']}:main") as made:
            assert made.process.stdout is not None
            text = made.process.stdout.readline()
    else:
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = {title: said if is_open else "" for title, (is_open, said) in json.loads(text).items()}
    left = "leave a file in the folder for temporary files"
    if not Path(places["temporary"], places["mark"]).exists():
        found[left] = ""
    return found


def test_every_door_is_shut(box: None) -> None:
    """Of all doors none gives way in the box. Outside most of what matters does, or the list would prove nothing."""
    with outside() as places:
        inside, bare = _try_doors(places, boxed=True), _try_doors(places, boxed=False)
    assert list(inside) == list(bare) == [title for title, _ in box_doors.DOORS]
    assert {title: got for title, got in inside.items() if got} == {}
    page = (ROOT / "docs" / "official-runs.md").read_text(encoding="utf-8")
    assert f"try {len(inside)} ways out" in page
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
        "drop a file from the page cache",
        "tell whether the page cache holds a file, by a read that does not wait",
        "tell whether the page cache holds a file, by its mapping",
        "System V shared memory that nobody holds",
    ):
        assert bare[title], title


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
        with contextlib.chdir(own):  # the whole path may be longer than an address may be
            door.bind("door")
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
    assert f"{own}/an_agent.py" in visible.visible_files("an_agent:Mine", [])
    assert not [path for path in visible.visible_files(None, []) if path.startswith(str(own))]


@pytest.mark.slow
def test_the_folder_of_a_script_is_not_visible(box: None, tmp_path: Path) -> None:
    """Python puts it on the module path; the box shows an agent its own files alone, whatever lies about."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "season.seed").write_text("5e" * 32)
    os.mkfifo(own / "fifo")
    door = socket.socket(socket.AF_UNIX)
    with contextlib.chdir(own):  # the whole path may be longer than an address may be
        door.bind("door")
    door.close()  # its name stays
    (own / "helper.py").write_text("X = 1\n")
    (own / "agent.py").write_text(
        "import os, sys\n\n\nclass Mine:\n    def reset(self, view, *, seed):\n        self.view = view\n"
        "        found = [n for p in sys.path for n in ([p] if os.path.isdir(p) else []) for n in os.listdir(n)]\n"
        "        names = {'season.seed', 'fifo', 'door', 'helper.py', 'script.py'}\n"
        "        raise RuntimeError(','.join({*found} & names) or 'none')\n\n"
        "    def act(self, observation, info):\n        return self.view.fleet_to_action(self.view.fleet)\n"
    )
    script = own / "script.py"
    script.write_text(
        "import sys\nfrom fleetgym import evaluate\n"
        "r = evaluate([sys.argv[1]], 'fleet-v0/toy/two-pools', official='reflex')\n"
        "print(r.episodes[0].failure.message)\n"
    )
    (tmp_path / "agent").mkdir()
    shutil.copy(own / "agent.py", tmp_path / "agent")
    command = [sys.executable, str(script), f"{tmp_path}/agent/agent.py:Mine"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=True)
    assert "RuntimeError: none" in done.stdout, done.stdout


def test_packages_that_are_installed_in_place_are_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without what lies beside them."""
    (tmp_path / "site").mkdir()
    (tmp_path / "work" / "package").mkdir(parents=True)
    (tmp_path / "work" / "package" / "__init__.py").touch()
    (tmp_path / "work" / "module.py").touch()
    (tmp_path / "work" / "season.seed").touch()
    (tmp_path / "site" / "work.pth").write_text(f"import sys\n{tmp_path}/work\n")
    monkeypatch.setattr(visible.site, "getsitepackages", lambda: [str(tmp_path / "site")])
    shown = {path for path in visible.visible_files(None, []) if path.startswith(str(tmp_path / "work"))}
    assert shown == {f"{tmp_path}/work/package", f"{tmp_path}/work/module.py"}


def test_a_folder_of_everything_is_refused(tmp_path: Path) -> None:
    """Over a thousand files are no agent's own."""
    (tmp_path / "agent.py").write_text(_AGENT)
    for number in range(1001):
        (tmp_path / f"{number}").touch()
    with pytest.raises(FleetgymError, match="put it into a folder of its own"):
        visible.visible_files(f"{tmp_path}/agent.py:Mine", [])


def test_an_agent_is_charged_from_its_start(box: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long the run takes to read the clock."""

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
@pytest.mark.parametrize("pattern", cpu_patterns.PATTERNS)
def test_all_cpu_time_is_charged(pattern: str, box: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the processes' own clocks say is charged, and at most 2 ms more for the start and end of each process."""
    monkeypatch.setenv("FLEETGYM_SHOW", cpu_patterns.__file__)
    lines: list[str] = []
    with Sandbox([sys.executable, "-I", "-S", "-c", _BURN, pattern, "0.5"], 2e9, []) as made:
        output = made.process.stdout
        assert output is not None
        threading.Thread(target=lambda: lines.extend(iter(output.readline, "")), daemon=True).start()
        end = time.monotonic() + 120
        while len(lines) < 2:
            made.usage()
            time.sleep(0.02)  # as often as an official run looks
            assert time.monotonic() < end, "no end"
        charged_s = made.usage().cpu_s
    burnt = json.loads(lines[1])
    assert burnt["clocks_s"] <= charged_s <= burnt["clocks_s"] + 0.002 * burnt["processes"] + 0.1


@pytest.mark.slow
def test_the_same_as_a_user_without_rights(tmp_path: Path) -> None:
    """What holds for root's runs holds for anybody's."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("this is a user without rights, or one that cannot become one")
    files = [f"tests/evaluation/test_{name}.py" for name in ("box", "official")]
    words = ["-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider", "-m", "not slow", *files]
    done = run_without_rights([sys.executable, *words], tmp_path, cwd=ROOT, timeout=600)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "skipped" not in done.stdout


def test_a_program_that_nobody_may_run_is_refused(box: None) -> None:
    """It is named, before an episode begins."""
    with pytest.raises(FleetgymError, match="/no-such-program cannot be run in the box"):
        Sandbox(["/no-such-program"], 2e9, [])
