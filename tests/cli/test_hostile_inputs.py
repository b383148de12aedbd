"""What random damage to files and options has found stays mended; `test_damaged_inputs.py` looks for more."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fleetgym.bounds.relaxation import _replicas
from fleetgym.cli import main
from fleetgym.files.documents import read_json, stored_file, write_atomically
from fleetgym.files.errors import DataError, FleetgymError

TOY = "fleet-v0/toy/two-pools"


def refusal(capsys: pytest.CaptureFixture[str], *words: str, code: int) -> str:
    """Return the one line that a call ends with."""
    assert main(list(words)) == code
    said = capsys.readouterr()
    assert said.out == ""
    (line,) = said.err.splitlines()
    assert line.isprintable()
    return line


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names here")
@pytest.mark.parametrize("read", [read_json, stored_file])
def test_a_pipe_is_not_waited_for(read: Callable[[Path], object], tmp_path: Path) -> None:
    """What is no file is refused at once, wherever it lies, and never replaced."""
    pipe = tmp_path / "run.json"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match=r"run.json: \$: a pipe or a device; expected a file"):
        read(pipe)
    with pytest.raises(FleetgymError, match="run.json is a pipe or a device"):
        write_atomically(pipe, b"")
    assert pipe.is_fifo()


def test_timings_that_are_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An error of a file beside the one that was named says which."""
    run = tmp_path / "run.jsonl"
    assert main(["evaluate", "hold", "--suite", TOY, "--isolate", "never", "--out", str(run)]) == 0
    capsys.readouterr()
    (tmp_path / "run.timings.jsonl").write_bytes(b"\xff")
    assert f"{tmp_path}/run.timings.jsonl: $: not UTF-8" in refusal(capsys, "score", str(run), code=1)


@pytest.mark.parametrize("words", [["show", "x" * 5000], ["show", "\x1b[2J\u202e"], ["verify", "x" * 5000]])
def test_words_of_any_kind(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Long words are shortened, and characters that a terminal obeys escaped."""
    assert main(words) in (1, 2)
    assert all(line.isprintable() and len(line) < 2000 for line in capsys.readouterr().err.splitlines())


@pytest.mark.parametrize(
    "words", [["list", "suites", "a", "\x1b[2J"], ["list", "--\x1b[2J"], ["run", TOY, "--seed=\x1b[2J"]]
)
def test_complaints_of_the_parser(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """So are those that argparse repeats."""
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert all(map(str.isprintable, capsys.readouterr().err.splitlines()))


def test_an_option_that_is_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    """Argparse makes an empty list of it, which no verb expects."""
    with pytest.raises(SystemExit, match="2"):
        main(["import-trace", "t.csv", "--leave-out-at-most=--"])
    assert "--leave-out-at-most: expected a value" in capsys.readouterr().err


def test_names_of_files_are_printed_plainly(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where all went well."""
    out = tmp_path / "a\u202eb.jsonl"
    assert main(["evaluate", "hold", "--suite", TOY, "--isolate", "never", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "a\\u202eb.jsonl" in printed
    assert "\u202e" not in printed


@pytest.mark.parametrize(
    ("value", "says"),
    [("[" * 100_000, "nested too deeply"), (str(-(10**400)), "line 2: "), ('"\\ud800"', "surrogate pair")],
    ids=["deep", "large", "surrogate"],
)
def test_lines_of_a_trace(value: str, says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """JSON that Python's reader or floating point cannot hold is refused with its line."""
    trace = tmp_path / "t.jsonl"
    good = [json.dumps({"timestamp": t, "input_tokens": 100, "output_tokens": 10}) for t in range(20)]
    bad = f'{{"timestamp": {value}, "input_tokens": 100, "output_tokens": 10}}'
    trace.write_text("\n".join([good[0], bad, *good[1:]]) + "\n")
    line = refusal(capsys, "import-trace", str(trace), "--out", str(tmp_path / "day.json"), code=1)
    assert f"{trace}: line 2: " in line
    assert says in line


@pytest.mark.parametrize(
    ("file", "data", "says"),
    [
        (
            "entry_points.txt",
            b"[fleetgym.agents]\nmine = a:b\xff\n",
            "the entry points of my-package, a package in",
        ),
        ("METADATA", b"", "an unnamed package"),
    ],
)
def test_plugins_whose_metadata_is_damaged(
    file: str,
    data: bytes,
    says: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Python does not say which package it is; fleetgym does."""
    info = tmp_path / "my_package-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fleetgym.agents]\nmine = a:b\n")
    (info / file).write_bytes(data)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["list", "agents"]) in (0, 2)
    said = capsys.readouterr()
    assert says in said.out + said.err


def test_warnings_of_python_are_not_printed(capfd: pytest.CaptureFixture[str]) -> None:
    """Arguments that only Python's parser warns of are refused."""
    assert main(["plan", TOY, "--days", "0", "--agent", "gh(margin=1in [1])"]) == 2
    assert "SyntaxWarning" not in capfd.readouterr().err


def test_a_capacity_near_nothing(tmp_path: Path, recwarn: pytest.WarningsRecorder) -> None:
    """What takes more replicas than floating point holds takes infinitely many, without a warning."""
    assert _replicas(np.array([1e300]), np.array([1e-300])).tolist() == [np.inf]
    assert not recwarn.list


def test_a_link_to_itself_is_no_submission(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused as anything else that is no folder."""
    (tmp_path / "loop").symlink_to("loop")
    assert main(["verify", str(tmp_path / "loop")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"rejected  {tmp_path}/loop: ")
