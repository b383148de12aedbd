"""The pytest plugin: one item per job, and the results file of `evaluate`, whoever plays the items."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from places import ROOT
from sample_agents import agent

from fleetgym.evaluation.results import read_results, timings_path
from fleetgym.evaluation.run import evaluate

AGENTS = ["hold", agent("Dice"), agent("Raises")]
SUITE = ["fleet-v0/toy/drop", "fleet-v0/toy/group"]

_INSTALLED = any(p.name == "fleetgym" for p in importlib.metadata.entry_points(group="pytest11"))


def run_pytest(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Return what pytest did in a folder of its own."""
    plugin = [] if _INSTALLED else ["-p", "fleetgym.evaluation.pytest_plugin"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """Call pytest in this process, in an empty folder; return exit code and all that it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> tuple[int, str]:
        plugin = [] if _INSTALLED else ["-p", "fleetgym.evaluation.pytest_plugin"]
        code = pytest.main(["-q", "-p", "no:cacheprovider", "-p", "no:xdist", *plugin, *words])
        return int(code), "".join(capfd.readouterr())

    return run


def options(path: Path, *agents: str, way: str = "out") -> list[str]:
    """Return the words that play agents on `SUITE` into a file."""
    return [
        *(f"--fleetgym-agent={name}" for name in agents or AGENTS),
        *(f"--fleetgym-suite={part}" for part in SUITE),
        f"--fleetgym-{way}={path}",
    ]


@pytest.fixture(scope="module")
def expected() -> str:
    """The results file of `evaluate`."""
    return evaluate(AGENTS, SUITE).to_text()


def test_it_is_an_entry_point() -> None:
    """Where fleetgym is installed, pytest knows its options without being told."""
    import tomllib

    project = ROOT / "pyproject.toml"
    points = tomllib.loads(project.read_text())["project"]["entry-points"]["pytest11"]
    assert points == {"fleetgym": "fleetgym.evaluation.pytest_plugin"}


def test_one_process_writes_the_bytes_of_evaluate(expected: str, tmp_path: Path) -> None:
    """Failed episodes are failed items with their reason, and in the file; tests that lie around are not run."""
    (tmp_path / "test_other.py").write_text("def test_other():\n    assert False\n")
    path = tmp_path / "r.jsonl"
    done = run_pytest(tmp_path, *options(path))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 4 passed" in done.stdout
    assert "window 2: raised: ValueError: no idea what to do" in done.stdout
    assert f"6 of 6 episodes are in {path}" in done.stdout
    assert "test_other" not in done.stdout
    assert "\nagent  " in done.stdout
    assert "2 tasks, 1 family (toy); percent above" in done.stdout
    assert path.read_text() == expected
    assert len(timings_path(path).read_text().splitlines()) == 6
    assert all(e.timing is not None for e in read_results(path).episodes)


@pytest.mark.slow
def test_two_workers_of_xdist_write_the_bytes_of_evaluate(expected: str, tmp_path: Path) -> None:
    """Whoever finishes first, the controller writes in the jobs' order."""
    path = tmp_path / "r.jsonl"
    done = run_pytest(tmp_path, "-n", "2", *options(path))
    assert "2 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    assert path.read_text() == expected


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_stopped_run_goes_on(expected: str, tmp_path: Path, processes: str) -> None:
    """What is in the file is not played again; what was torn is."""
    path = tmp_path / "r.jsonl"
    lines = expected.splitlines(keepends=True)
    path.write_text("".join(lines[:4]) + lines[4][:20])
    done = run_pytest(tmp_path, "-n", processes, *options(path, way="resume"))
    assert "2 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert path.read_text() == expected


@pytest.mark.slow
def test_a_worker_that_dies_costs_one_episode(tmp_path: Path) -> None:
    """The job that took its worker along is played again, isolated, as `evaluate` does."""
    names = [agent("Good"), agent("KillsItself"), agent("Dice")]
    path = tmp_path / "r.jsonl"
    done = run_pytest(tmp_path, "-n", "2", "--fleetgym-isolate=never", *options(path, *names))
    assert "2 failed, 4 passed" in done.stdout, done.stdout + done.stderr
    isolated = evaluate(names, SUITE, isolate="always").to_text()
    marked = isolated.replace('"instances":', '"in_process":true,"instances":', 1)  # as the option asks
    assert path.read_text() == marked


def test_a_split_alone_is_that_of_the_default_set(
    call: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    """`--fleetgym-suite=toy` collects what `fleet-v0/toy` holds; collecting writes nothing."""
    _, said = call("--fleetgym-agent=hold", "--fleetgym-suite=toy", "--collect-only")
    assert "hold@fleet-v0/toy/two-pools#0" in said
    assert "7 tests collected" in said
    assert not list(tmp_path.iterdir())


def test_calls_that_are_wrong_say_so(call: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """Names, numbers and files: one line, exit code 4, nothing played."""
    taken = tmp_path / "taken.jsonl"
    taken.write_text("{}\n")
    for words, message in (
        (["--fleetgym-agent=holdd"], "did you mean 'hold'"),
        ([f"--fleetgym-agent={agent('Goood')}", "--fleetgym-suite=toy"], "did you mean 'Good'"),
        (["--fleetgym-agent=hold", "--fleetgym-suite=tooy"], "tooy"),
        (["--fleetgym-agent=hold", "--fleetgym-scenarios=a"], "expects numbers"),
        (["--fleetgym-agent=hold", "--fleetgym-suite=toy", f"--fleetgym-out={taken}"], "exists"),
    ):
        code, said = call(*words)
        assert code == 4, said
        assert message in said


def test_without_agents_pytest_is_as_ever(call: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    """Tests are collected and run."""
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n")
    assert "1 passed" in call()[1]


def test_the_example_file_passes(call: Callable[..., tuple[int, str]]) -> None:
    """Anybody's tests of an agent of their own."""
    code, said = call("-s", str(ROOT / "examples" / "test_my_agent.py"))
    assert code == 0, said
    assert "MyAgent" in said
