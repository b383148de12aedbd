"""Hostile submissions: each is rejected with its reason, quickly, in little memory, and leaves no trace."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from submissions import HOSTILE, Hostile, bomb, make_good

from fleetgym.cli import main
from fleetgym.files.errors import DataError
from fleetgym.leaderboard.submission import read_lines
from fleetgym.leaderboard.verify import verify

MOST_CPU_S = 10.0
MOST_MEMORY_MB = 400


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a submission that is in order."""
    return make_good(tmp_path_factory.mktemp("good") / "2026-11-21-good")


@pytest.fixture
def folder(good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy to be spoiled, in an empty folder that is the current one too."""
    monkeypatch.chdir(tmp_path)
    return Path(shutil.copytree(good, tmp_path / "2026-11-21-good"))


def everything(root: Path) -> dict[str, object]:
    """Return names and contents of all that lies below a folder."""
    found: dict[str, object] = {}
    for path in sorted(root.rglob("*")):
        status = path.lstat()
        small = path.is_file() and not path.is_symlink() and status.st_size < 2**28
        found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if small else status.st_mode
    return found


def test_the_good_one_is_accepted(folder: Path) -> None:
    """What the hostile ones are made of passes, or their rejection would mean nothing."""
    assert len(verify(folder).episodes) == 7


def test_there_are_enough() -> None:
    """At least thirty attacks, no two alike."""
    assert len({hostile.name for hostile in HOSTILE}) == len(HOSTILE) >= 30


@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda hostile: hostile.name)
def test_hostile_submission_is_rejected(hostile: Hostile, folder: Path, tmp_path: Path) -> None:
    """One error that says why; nothing written, nothing touched, nothing run; bounded work."""
    target = hostile.attack(folder) or folder
    before, began = everything(tmp_path), time.process_time()
    with pytest.raises(DataError) as caught:
        verify(target, out=tmp_path / "verified")
    spent = time.process_time() - began
    assert hostile.says in str(caught.value)
    assert len(str(caught.value)) < 700
    assert str(caught.value).isprintable()
    assert everything(tmp_path) == before
    assert not (tmp_path / "owned").exists()
    assert spent < MOST_CPU_S


@pytest.mark.parametrize(
    "name",
    [
        "a-gigabyte-in-one-line",
        "a-gigabyte-after-the-header",
        "a-gigabyte-after-the-end",
        "deep-nesting",
        "many-actions",
    ],
)
def test_memory_is_bounded(name: str, folder: Path) -> None:
    """A file that unpacks to 1.5 GB, or to what is large in memory, is refused in a small process."""
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not tell how much memory a process took")
    (hostile,) = [hostile for hostile in HOSTILE if hostile.name == name]
    hostile.attack(folder)
    code = (
        "import re, sys\nfrom fleetgym.cli import main\n"
        "code = main(['verify', sys.argv[1]])\n"
        # The peak since this program began: that of `getrusage` counts the process that it was forked from.
        "peak = re.search(r'VmHWM:\\s+(\\d+) kB', open('/proc/self/status').read())\n"
        "print(code, int(peak[1]) // 1024)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert run.returncode == 0, run.stderr
    exit_code, megabytes = map(int, run.stdout.split())
    assert exit_code == 1
    assert run.stderr.startswith("rejected")
    assert megabytes < MOST_MEMORY_MB


def test_ten_gigabytes_are_not_unpacked(tmp_path: Path) -> None:
    """Where a file may be long enough to unpack to 10 GB, its reader stops at the first line that is too long."""
    path = tmp_path / "bomb.gz"
    path.write_bytes(bomb(10.0))
    assert path.stat().st_size < 2**24
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(DataError, match="unpacks to a line"):
        list(read_lines(path.read_bytes(), 1_000))
    assert time.process_time() - began < 5.0
    assert tracemalloc.get_traced_memory()[1] < 64 * 2**20
    tracemalloc.stop()


def test_workers_reject_too(folder: Path) -> None:
    """With workers the first wrong line decides, and the pool ends."""
    (forged,) = [hostile for hostile in HOSTILE if hostile.name == "forged-cost"]
    forged.attack(folder)
    with pytest.raises(DataError, match=r"\$\[1\].cost_usd: claims"):
        verify(folder, workers=2)


def test_the_command_line_says_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 and a reason, as text and as JSON; the good one beside it is still accepted."""
    bad = Path(shutil.copytree(folder, folder.parent / "bad"))
    (bad / "evil.py").write_text("")
    assert main(["verify", str(bad), str(folder), "--json"]) == 1
    verdicts = json.loads(capsys.readouterr().out)
    assert [verdict["accepted"] for verdict in verdicts] == [False, True]
    assert "nothing but" in verdicts[0]["reason"]
    assert main(["verify", str(bad)]) == 1
    assert "rejected" in capsys.readouterr().err
    assert main(["verify", os.fspath(folder), "--out", "verified"]) == 0
    assert [path.name for path in Path("verified").iterdir()] == ["2026-11-21-good.json.gz"]
