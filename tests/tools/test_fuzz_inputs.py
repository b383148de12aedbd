"""The fuzzer finds what it should, its mutants repeat, and what it has found stays mended."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fleetgym.bounds.relaxation import _replicas
from fleetgym.cli import main
from fleetgym.cli.parser import make_parser
from fleetgym.files.documents import read_json, stored_file, write_atomically
from fleetgym.files.errors import DataError, FleetgymError
from tools.fuzz_inputs import __main__ as fuzzer
from tools.fuzz_inputs import targets as made
from tools.fuzz_inputs.mutations import mutated
from tools.fuzz_inputs.targets import Target

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are not forked here")


def target(**changes: object) -> Target:
    """Return a small target of the program `odd`."""
    given = {
        "name": "t",
        "files": {"a.json": b'{"a": [1, 2.5, "x"]}'},
        "changed": ("a.json",),
        "call": ("odd", "a.json"),
    }
    return Target(**{**given, **changes})  # type: ignore[arg-type]


def _raises(words: list[str]) -> int:
    raise ValueError(words)


def _hidden(words: list[str]) -> int:
    Path(".half").touch()
    print(f"fleetgym: {words[0]} is wrong", file=sys.stderr)
    return 1


def _prints(text: str, code: int = 1) -> Callable[[list[str]], int]:
    def call(words: list[str]) -> int:
        print(text.format(*words), file=sys.stderr)
        return code

    return call


def _ends(words: list[str]) -> int:
    os._exit(9)


def _hogs(words: list[str]) -> int:
    bytearray(2 * fuzzer.MOST_BYTES)
    return 0


def _spins(words: list[str]) -> int:
    while True:
        pass


def _waits(words: list[str]) -> int:
    """Take a pipe that nobody writes to for a file."""
    os.mkfifo("pipe")
    Path("pipe").read_bytes()
    return 0


def _sleeps(words: list[str]) -> int:
    time.sleep(0.6)
    return 0


#: Programs that do what none may, and what is said of it.
BAD = [
    (_raises, "traceback"),
    (_ends, "ended the process: 9"),
    (_hogs, "MemoryError"),
    (_spins, "more than 0.2 CPU seconds"),
    (_waits, "waits for more than 0.4 s"),
    (_hidden, "left behind: .half"),
    (_prints("fleetgym: {0} is wrong", code=5), "exit code 5"),
    (_prints("fleetgym: something is wrong"), "does not name the file"),
    (_prints("fleetgym: {0} \x1b[2J"), "a terminal obeys"),
    (_prints("RuntimeWarning: {0}"), "somebody else's"),
    (_prints(""), "refused without a word"),
    (_prints("fleetgym: {0} " + "x" * 3000), "more than 2000 characters"),
]


@needs_fork
@pytest.mark.parametrize(("call", "says"), BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_what_is_wrong_is_found(
    call: Callable[[list[str]], int], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every promise is held to: the mutant after the bad one is tried as well."""
    monkeypatch.setitem(made.PROGRAMS, "odd", call)
    monkeypatch.setattr(fuzzer, "MOST_CPU_S", 0.2)
    monkeypatch.setattr(fuzzer, "MOST_WAIT_S", 0.4)
    outcomes = [o for found in fuzzer.play(range(2), 1, 1, [target()], tmp_path) for o in found]
    assert sorted(o.number for o in outcomes) == [0, 1]
    assert all(says in o.wrong for o in outcomes), outcomes


@needs_fork
@pytest.mark.parametrize("is_queued", [True, False])
def test_waiting_for_a_processor_does_not_count(
    is_queued: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy machine makes no mutant fail."""
    monkeypatch.setitem(made.PROGRAMS, "odd", _sleeps)
    monkeypatch.setattr(fuzzer, "MOST_WAIT_S", 0.2)
    monkeypatch.setattr(fuzzer, "_queued_s", time.monotonic if is_queued else lambda: 0.0)
    outcomes = [o for found in fuzzer.play(range(2), 1, 1, [target()], tmp_path) for o in found]
    assert [o.code for o in outcomes] == ([0, 0] if is_queued else [-signal.SIGALRM] * 2)


@needs_fork
def test_a_good_refusal_is_not_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that names the file is all that is asked for."""
    monkeypatch.setitem(made.PROGRAMS, "odd", _prints("fleetgym: {0}: $: not JSON"))
    outcomes = [o for found in fuzzer.play(range(3), 1, 2, [target()], tmp_path, block=1) for o in found]
    assert [o.wrong for o in outcomes] == ["", "", ""]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.toml", "a.csv", "a.csv.gz", "a.csv.zip", "a.bin"])
def test_mutants_repeat(name: str) -> None:
    """The same seed makes the same bytes, and another seed mostly others."""
    data = {
        "a.json": b'{"a": [1, {"b": 2}]}',
        "a.jsonl": b'{"a": 1}\n{"a": 2}\n',
        "a.toml": b'a = 1\n[b]\nc = "x"\n',
    }
    content = made.packed(name, data.get(name, b"a,b\n1,2\n3,4\n"))
    first, again = ([mutated(name, content, random.Random(k)) for k in range(60)] for _ in range(2))
    assert first == again
    assert len(set(first)) > 20
    assert sum(mutant == content for mutant in first) < 20


def test_every_verb_is_fuzzed() -> None:
    """A verb that joins the parser needs a small good call."""
    (verbs,) = (action for action in make_parser()._actions if action.dest == "verb")
    assert set(verbs.choices) - {"bks"} == set(made.CALLS)  # type: ignore[arg-type]


@needs_fork
def test_short_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Some hundred mutants of real files and options are all answered as they should; then nothing is left to do."""
    assert fuzzer.main(["--mutants", "300", "--seed", "7", "--out", str(tmp_path)]) == 0, capfd.readouterr()
    assert "300 mutants" in capfd.readouterr().out
    before = (tmp_path / "finished-7.jsonl").read_bytes()
    assert fuzzer.fuzz(range(300), 7, 1, tmp_path) == 0
    assert (tmp_path / "finished-7.jsonl").read_bytes() == before


@needs_fork
def test_failures_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder holds the changed file, what was wrong and how to try it again."""
    monkeypatch.setitem(made.PROGRAMS, "odd", _raises)
    monkeypatch.setattr(made, "targets", lambda folder: [target()])
    monkeypatch.setattr(fuzzer, "_WARM", ())
    assert fuzzer.fuzz(range(1), 1, 1, tmp_path) == 1
    (kept,) = (tmp_path / "failures").iterdir()
    why = (kept / "WHY.txt").read_text(encoding="utf-8")
    assert why.startswith("python -m tools.fuzz_inputs --seed 1 --only 0\n")
    assert "ValueError" in why
    assert (kept / "a.json").exists()


# -- what it has found


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
