"""Every verb in a process that is made unhappy: by its terminal, its streams, a full disk, or a signal at any time.

It does its work, or one line says what is missing; nothing is half-written, and nobody sees a traceback.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest
from many_processes import Case, End, in_processes
from sample_agents import agent
from sample_traces import write_azure
from submissions import SUITE, submitted
from test_cli import verbs
from without_rights import run_without_rights

from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.evaluation.isolation.agent_process import agent_command
from fleetgym.evaluation.isolation.wire import reset_message, to_line
from fleetgym.evaluation.results import read_results, timings_path
from fleetgym.evaluation.run import evaluate
from fleetgym.files.documents import write_json
from fleetgym.leaderboard.verify import verify
from fleetgym.model.instance_files import save_edited
from fleetgym.model.library import load_instance

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="processes as Linux has them")

TOY = "fleet-v0/toy/drop"
#: The cheapest call of every verb. `{...}` are inputs; what is written goes into the current folder.
CALLS: dict[str, tuple[str, ...]] = {
    "list": (),
    "show": (TOY,),
    "check": ("{instance}",),
    "generate": ("ou", "--size", "s", "--seed", "7", "--scenarios", "1", "--out", "made"),
    "import-trace": (
        "{trace}",
        "--scenarios",
        "1",
        "--slo",
        "ttft=2,delay=20,error=0.05",
        "--out",
        "day.json",
    ),
    "plan": (TOY, "--agent", "gh", "--days", "0"),
    "run": (TOY, "--agent", "hold"),
    "simulate": (TOY, "--agent", "hold", "--replications", "2"),
    "study": (),
    "evaluate": ("hold", "--suite", TOY, "--out", "r.jsonl"),
    "compare": ("hold", "--suite", TOY, "--out", "r.jsonl"),
    "check-agent": ("hold", "--suite", TOY),
    "score": ("{results}",),
    "explain": ("{results}", "{others}", "--against", "gh"),
    "best-known": ("show", TOY),
    "bks": ("show", TOY),
    "submit": ("{results}", "--out", "2026-11-21-hold"),
    "verify": ("{submission}", "--out", "verified"),
    "season": ("seed", "season.seed"),
    "rerun": (
        *("{season}/submissions/2026-11-21-hold", "--season", "t", "--instances", "{private}"),
        *("--board", "{season}", "--unofficial", "--out", "fresh"),
    ),
    "leaderboard": ("{board}", "--out", "site"),
    "report": ("{results}", "--out", "r.html"),
    "calibrate": ("--rounds", "1"),
    "doctor": (),
    "warmup": (),
}
#: Verbs whose cheapest call takes over half a CPU second: in the slow set.
LONG = {
    "check",
    "generate",
    "import-trace",
    "simulate",
    "check-agent",
    "rerun",
    "calibrate",
    "doctor",
    "warmup",
}
SLOW = pytest.mark.slow

Call = Callable[..., tuple[str, ...]]


def test_every_verb_has_a_call() -> None:
    """A new verb without one is not examined."""
    assert sorted(CALLS) == verbs()


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the inputs of `call`."""
    return tmp_path_factory.mktemp("inputs")


@pytest.fixture(scope="module")
def call(request: pytest.FixtureRequest, inputs: Path) -> Call:
    """Return the words of a verb's cheapest call."""
    folder = inputs
    results = evaluate(["hold"], SUITE, out=folder / "results.jsonl")
    evaluate(["gh"], SUITE, out=folder / "others.jsonl")
    submission = submitted(results, folder / "board" / "submissions" / "2026-11-21-hold")
    verify(submission, out=folder / "board" / "verified")
    write_json(folder / "toy.json", load_instance(TOY).to_dict())
    save_edited(folder / "toy.json")  # draws the days that `check` asks for
    places = {
        "instance": folder / "toy.json",
        "trace": write_azure(folder / "trace.csv", hours=1.0),
        "results": folder / "results.jsonl",
        "others": folder / "others.jsonl",
        "submission": submission,
        "board": folder / "board",
    }

    def words(verb: str) -> tuple[str, ...]:
        seasons = {name: request.getfixturevalue(name) for name in ("private",) if verb == "rerun"}
        if seasons:
            places["season"] = request.getfixturevalue("board")
        return (verb, *(word.format(**places, **seasons) for word in CALLS[verb]))

    return words


#: Conditions under which a command does what it always does.
HARMLESS: dict[str, dict[str, object]] = {
    "a terminal of code page 1252": {"environment": {"PYTHONIOENCODING": "cp1252"}},
    "a terminal of ASCII": {"environment": {"PYTHONIOENCODING": "ascii"}},
    "20 columns": {"environment": {"COLUMNS": "20"}},
    "0 columns": {"environment": {"COLUMNS": "0"}},
    "columns that are no number": {"environment": {"COLUMNS": "nonsense"}},
    "a reader that has gone": {"stdout": "gone"},
    "no standard output": {"stdout": "closed"},
    "no standard error": {"stderr": "closed"},
    "standard error on a full disk": {"stderr": "full"},
    "no temporary folder": {"environment": {"TMPDIR": "/there/is/none"}},
    "no home": {"environment": {"HOME": "/there/is/none", "XDG_CACHE_HOME": ""}},
    "no shared memory": {"shared_memory": "missing"},
}
#: Conditions under which what would be written cannot be, and what the reason is then.
FULL: dict[str, tuple[dict[str, object], str]] = {
    "a limit of the size of files": ({"most_bytes": 0}, "File too large"),
    "a full disk": ({"disk_bytes": 0}, "No space left on device"),
    "a disk that one small file fills": ({"disk_bytes": 4096}, "No space left on device"),
}


Ends = dict[str, dict[str, End]]


def _play(
    conditions: dict[str, dict[str, object]],
    verbs: Collection[str],
    call: Call,
    folder: Path,
    every: int = 1,
) -> Ends:
    """Return how verbs end under conditions, and where nothing is wrong; none prints a traceback.

    Of every so many pairs of a verb and a condition one is played: each verb and each condition is among them.
    """
    wanted = [("usual", verb) for verb in sorted(verbs)]
    for k, name in enumerate(conditions):
        wanted += [(name, verb) for n, verb in enumerate(sorted(verbs)) if (n + k) % every == 0]
    cases = [
        Case(call(verb), str(folder / name.replace(" ", "-") / verb), **conditions.get(name, {}))  # type: ignore[arg-type]
        for name, verb in wanted
    ]
    found: Ends = {}
    for (name, verb), end in zip(wanted, in_processes(cases), strict=True):
        if not end.impossible:  # without rights, no mounts
            found.setdefault(name, {})[verb] = end
            assert "Traceback" not in end.err, (name, verb, end.err)
            assert "Exception ignored" not in end.err, (name, verb, end.err)
    assert {verb: end for verb, end in found["usual"].items() if end.code != 0} == {}
    return found


def _examine_harmless(ends: Ends) -> None:
    """The exit code and the files are the usual ones."""
    usual = ends.pop("usual")
    for name, found in ends.items():
        for verb, end in found.items():
            assert (end.code, end.files) == (usual[verb].code, usual[verb].files), (name, verb, end)
            if "standard output" not in name and "reader" not in name:
                assert len(end.out) > 0, (name, verb)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verbs", "every"), [(set(CALLS) - LONG, 3), pytest.param(LONG, 4, marks=SLOW)], ids=["quick", "long"]
)
def test_what_does_not_matter(verbs: set[str], every: int, call: Call, tmp_path: Path) -> None:
    """Each verb under several conditions that take nothing it needs, and each condition with several verbs."""
    _examine_harmless(_play(HARMLESS, verbs, call, tmp_path, every))


@pytest.mark.slow
def test_standard_output_on_a_full_disk(call: Call, tmp_path: Path) -> None:
    """Whoever prints says so and fails: its answer is lost."""
    ends = _play({"full": {"stdout": "full"}}, set(CALLS) - LONG, call, tmp_path)
    for verb, end in ends["full"].items():
        assert end.code == 2, (verb, end)
        assert end.err.splitlines()[-1] == "fleetgym: No space left on device: standard output", (verb, end)


def _examine_full(ends: Ends) -> None:
    """One line has the reason and the name of what is usually written, and no part of it is left."""
    usual = ends.pop("usual")
    for name, found in ends.items():
        for verb, end in found.items():
            if not usual[verb].files or (end.code == 0 and "small" in name):
                assert (end.code, end.files) == (0, usual[verb].files), (name, verb, end)
                continue
            assert end.code in (1, 2), (name, verb, end)
            said = re.fullmatch(rf"fleetgym: {FULL[name][1]}: (\S+)", end.err.splitlines()[-1])
            assert said, (name, verb, end)
            assert Path(said[1]).name in {part for file in usual[verb].files for part in Path(file).parts}
            # A run that has begun can be resumed: its lines are whole.
            assert set(end.files) <= {"r.jsonl", "r.timings.jsonl"}, (name, verb, end)


@pytest.mark.parametrize(
    "verbs",
    [set(CALLS) - LONG, pytest.param({"import-trace", "rerun", "simulate"}, marks=SLOW)],
    ids=["quick", "long"],
)
def test_nothing_can_be_written(verbs: set[str], call: Call, tmp_path: Path) -> None:
    """What writes nothing works as ever; each verb meets one condition, each condition several verbs."""
    _examine_full(_play({name: how for name, (how, _) in FULL.items()}, verbs, call, tmp_path, every=3))


def test_a_line_that_does_not_fit(call: Call, tmp_path: Path) -> None:
    """It is taken back as a whole, so that the file can be resumed."""
    case = Case(call("evaluate"), str(tmp_path / "run"), most_bytes=600)
    (end,) = in_processes([case])
    assert (end.code, end.err) == (2, "fleetgym: File too large: r.jsonl\n")
    path = tmp_path / "run" / "r.jsonl"
    assert path.read_bytes().count(b"\n") == 1
    assert path.read_bytes().endswith(b"\n")
    assert (
        evaluate(["hold"], TOY, resume=path).to_text()
        == path.read_text()
        == evaluate(["hold"], TOY).to_text()
    )


def test_folders_that_may_not_be_written(call: Call, inputs: Path, tmp_path: Path) -> None:
    """As a user without rights: one line names what is denied."""
    writers = ("evaluate", "submit", "verify", "season", "leaderboard", "report")
    calls = [
        tuple(word.replace(str(inputs), str(tmp_path / "inputs")) for word in call(verb)) for verb in writers
    ]
    shutil.copytree(inputs, tmp_path / "inputs")
    cases = [Case(words, str(tmp_path / words[0])) for words in calls]
    for case in cases:
        os.mkdir(case.folder, 0o555)
    alone = functools.partial(run_without_rights, home=tmp_path) if os.geteuid() == 0 else None
    ends = in_processes(cases, alone)
    for verb, end in zip(writers, ends, strict=True):
        assert end.code == 2, (verb, end)
        assert re.match("fleetgym: Permission denied: .", end.err.splitlines()[-1]), (verb, end)
        assert "Traceback" not in end.err, (verb, end)
        assert end.files == [], (verb, end)


@pytest.mark.slow
@pytest.mark.parametrize("state", ["missing", "read-only"])
def test_workers_without_shared_memory(state: str, call: Call, tmp_path: Path) -> None:
    """What spawns workers says that they need it, and leaves nothing."""
    calls = (
        ("evaluate", "hold", "--suite", "fleet-v0/toy", "--workers", "2", "--out", "r.jsonl"),
        (*call("verify"), "--workers", "2"),
    )
    cases = [Case(words, str(tmp_path / words[0]), shared_memory=state) for words in calls]
    for end in in_processes(cases):
        if end.impossible:
            pytest.skip(f"this system {end.impossible}")
        assert end.code != 0
        assert "the system gives no shared memory, such as /dev/shm" in end.err.splitlines()[-1], end
        assert "Traceback" not in end.err
        assert set(end.files) <= {"r.jsonl", "r.timings.jsonl"}, end


# -- signals


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["list", "evaluate", "submit", "season", "verify"])
def test_a_signal_at_any_time(verb: str, call: Call, tmp_path: Path) -> None:
    """At every twelfth of the calls that a command takes: it says that it was stopped; what it leaves is whole."""
    _examine_signals(verb, 12, call, tmp_path)


@SLOW
@pytest.mark.parametrize("verb", [verb for verb in CALLS if verb not in {"calibrate", "warmup"}])
def test_a_signal_at_any_time_of_any_verb(verb: str, call: Call, tmp_path: Path) -> None:
    """The same for every verb and at more times; the two that are left out only compute for longer."""
    _examine_signals(verb, 30 if verb not in LONG else 6, call, tmp_path)


@SLOW
@pytest.mark.parametrize("package", ["llvmlite", "numba", "importlib"])
def test_a_signal_while_compiled_code_is_loaded(package: str, call: Call, tmp_path: Path) -> None:
    """LLVM's memory, which Python code owns, is not freed twice; a module that starts makes no other error of it."""
    _examine_signals("plan", 40, call, tmp_path, package=package)


def _examine_signals(verb: str, times: int, call: Call, folder: Path, package: str = "") -> None:
    cases = [
        Case(call(verb), str(folder / f"{number.name}-{k}"), signal=number, share=k / times, package=package)
        for k in range(times)
        for number in ((signal.SIGINT, signal.SIGTERM)[k % 2],)
    ]
    for case, end in zip(cases, in_processes(cases), strict=True):
        usual = 130 if case.signal == signal.SIGINT else 143
        # Before the command has begun, and when all is done, a signal just ends the process.
        assert end.code in (usual, -case.signal), (case, end)
        assert end.code == usual or case.share in (0.0, cases[-1].share), (case, end)
        assert "Traceback" not in end.err, (case, end.err)
        assert "Exception ignored" not in end.err, (case, end.err)
        if end.code == usual:
            assert end.err.splitlines()[-1].startswith("fleetgym: stopped"), (case, end)
        assert not [file for file in end.files if Path(file).name.startswith(".") or "torn" in file], (
            case,
            end,
        )


def test_ctrl_c_while_modules_are_imported(tmp_path: Path) -> None:
    """The process ends by the signal, without a word: nothing was begun."""
    module = tmp_path / "gymnasium"
    module.mkdir()
    module.joinpath("__init__.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    for command in (["-m", "fleetgym"], [str(Path(sys.executable).with_name("fleetgym"))]):
        done = subprocess.run(
            [sys.executable, *command, "list"],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            preexec_fn=_listen,
        )
        assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def _listen() -> None:
    """Undo what a process inherits from tests that run in the background."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


# -- workers


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start the command line in a process group of its own, as a shell does; end what is left."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                [sys.executable, "-m", "fleetgym", *words],
                cwd=tmp_path,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                preexec_fn=_listen,
            )
        )
        return started[-1]

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def _members(group: int) -> list[int]:
    """Return the processes of a group that have not ended."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[2]) == group and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def _wait_for(what: Callable[[], object], most_s: float = 120.0) -> None:
    until = time.monotonic() + most_s
    while not what():
        assert time.monotonic() < until
        time.sleep(0.02)


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.slow
def test_workers_after_ctrl_c_and_a_resume(
    command: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Ctrl-C reaches all processes of a terminal: one line, none is left; a resume gives the usual bytes."""
    words = (agent("Slow"), "hold", "--suite", SUITE, "--workers", "2")
    path = tmp_path / "r.jsonl"
    run = command("evaluate", *words, "--out", str(path))
    _wait_for(lambda: _lines(path) >= 3)
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130
    assert err.splitlines() == [f"fleetgym: stopped; --resume {path} goes on"]
    _wait_for(lambda: not _members(run.pid), 10.0)
    resumed = command("evaluate", *words, "--resume", str(path))
    _, err = resumed.communicate(timeout=120)
    assert (resumed.returncode, err) == (0, "")
    assert path.read_text() == evaluate([agent("Slow"), "hold"], SUITE).to_text()
    assert timings_path(path).exists()
    assert read_results(path).failures == ()


def test_an_agent_whose_run_is_gone_says_nothing() -> None:
    """Its answer finds no reader: it ends, without a traceback on the terminal of a run that was stopped."""
    instance = load_instance(TOY)
    message = reset_message(1, agent("Good"), instance, FleetAllocEnv(instance).reset(seed=0)[1], 0)
    process = subprocess.Popen(
        agent_command(None), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    process.stdin.write(to_line(message))
    process.stdin.flush()
    assert process.wait(timeout=60) == 0
    assert process.stderr.read() == ""
    process.stdin.close()
    process.stderr.close()


@SLOW
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_worker_is_no_news(
    number: int, command: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """Its jobs are played again, and nothing is printed."""
    path = tmp_path / "r.jsonl"
    run = command("evaluate", agent("Slow"), "--suite", SUITE, "--workers", "2", "--out", str(path))
    _wait_for(lambda: _lines(path) >= 3)
    workers = [pid for pid in _members(run.pid) if b"--multiprocessing-fork" in _words(pid)]
    assert len(workers) == 2
    os.kill(workers[0], number)
    _, err = run.communicate(timeout=120)
    assert (run.returncode, err) == (0, "")
    assert path.read_text() == evaluate([agent("Slow")], SUITE).to_text()


def _words(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


LOST = """
import os, signal, sys, time, weakref
from fleetgym.cli.process import run

class Thing: pass

def command():
    thing = Thing()
    held = weakref.ref(thing, lambda _: (os.kill(os.getpid(), signal.SIGTERM), time.sleep(0.05)))
    del thing
    time.sleep(0.5)
    return 0

sys.exit(run(command))
"""


def test_a_signal_that_comes_where_nothing_can_be_raised() -> None:
    """What a weak reference's callback raises is lost; the signal is not."""
    done = subprocess.run(
        [sys.executable, "-c", LOST], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (143, "fleetgym: stopped\n")
