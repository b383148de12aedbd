"""Every program of the checkout answers ``--help``, and its ``--smoke`` runs within seconds and leaves nothing behind.

A program is a file below `FOLDERS` with ``if __name__ == "__main__":``. Files without it are libraries.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from programs import command, is_guard, module_of, programs

from fleetgym.cli import process

#: CPU seconds that a smoke run may take, with compiled kernels: three times the slowest's, since processors differ.
MOST_CPU_S = 15.0
MOST_S = 300.0  # ends a run that hangs, or compiles every kernel on a busy machine
#: Programs that need fleetgym[rl]; without it they say so. PyTorch alone takes three CPU seconds to import.
NEEDS_RL = {"baselines/ppo/train.py", "tools/train_critic.py"}
MOST_RL_CPU_S = 30.0


def environment() -> dict[str, str]:
    """Return variables without hidden help, and without marks in the checkout."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "PYTHONDONTWRITEBYTECODE": "1"}


def left_behind() -> set[str]:
    """Return what Git sees as changed or new, ignored files included; but for Python's own bytecode."""
    call = ["git", "status", "--porcelain", "--ignored"]
    done = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=False)
    return {line for line in done.stdout.splitlines() if "__pycache__" not in line}


def loaded(path: str) -> Any:
    """Return the module of a program, which is not run."""
    name = module_of(path)
    if name is not None:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(f"program_{Path(path).stem}", ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def children_cpu_s() -> float:
    """Return CPU seconds of the processes that this one has waited for."""
    times = os.times()
    return times.children_user + times.children_system


def test_libraries_and_programs_are_told_apart() -> None:
    """What is known to be a program or a library is taken for one."""
    found = set(programs())
    assert {"tools/tune_agents/__main__.py", "tools/make_instances.py"} <= found
    assert not {"tools/__init__.py", "tools/tune_agents/grid.py"} & found
    benchmarks = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests" / "benchmarks").glob("*.py")}
    assert benchmarks <= found


@pytest.mark.parametrize("path", programs())
def test_help(path: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` says what the program does, what it writes and how long it takes."""
    monkeypatch.setattr(sys, "argv", [path, "--help"])
    with pytest.raises(SystemExit, match="0"):
        loaded(path).main()
    said = capsys.readouterr().out
    assert ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8"))) in said
    assert "--smoke" in said
    assert "\nWrites: " in said
    assert "\nTakes: " in said


@pytest.mark.parametrize("path", programs())
def test_errors_are_told_in_a_line(path: str) -> None:
    """A program ends with `run_program(main)`, so that no wrong input gives a traceback."""
    last = ast.parse((ROOT / path).read_text(encoding="utf-8")).body[-1]
    assert is_guard(last)
    assert ast.unparse(last).splitlines()[1:] == ["    run_program(main)"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["score_suite", "no-such-file.jsonl"], 2, "no-such-file.jsonl"),
        (["score_suite", "pyproject.toml"], 1, "pyproject.toml:1"),
    ],
)
def test_wrong_input_is_a_line(words: list[str], code: int, said: str) -> None:
    """The line begins with the program's name and names what is wrong."""
    call = [sys.executable, "-m", f"tools.{words[0]}", *words[1:]]
    done = subprocess.run(call, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"{words[0]}: ")
    assert said in line
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, process.INTERRUPTED), (signal.SIGTERM, process.TERMINATED)]
)
def test_signals_are_told_in_a_line(number: int, code: int) -> None:
    """A program that is stopped says so, and nothing else."""
    default = f"signal.signal({number}, signal.SIG_DFL)"  # a shell's background jobs ignore Ctrl-C
    source = f"import signal; {default}; from fleetgym.cli.process import run_program"
    call = [sys.executable, "-c", f"{source}; run_program(lambda: signal.raise_signal({number}))"]
    done = subprocess.run(call, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr == "-c: stopped\n"


def test_a_reader_may_have_seen_enough() -> None:
    """A pipe that is closed ends a program quietly."""
    source = "from fleetgym.cli.process import run_program; run_program(lambda: print('x\\n' * 10**6))"
    call = f"{sys.executable} -c {shlex.quote(source)} | head -1"
    done = subprocess.run(
        call, shell=True, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("x\n", "")


@pytest.mark.parametrize("path", programs())
def test_numbers_have_bounds(path: str) -> None:
    """No option takes whatever `int` or `float` takes: `1_0`, `nan`, and numbers without bounds."""
    calls = [
        node
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
    ]
    options = [
        call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"
    ]
    types = {ast.unparse(word.value) for call in options for word in call.keywords if word.arg == "type"}
    assert not types & {"int", "float"}


def smoke(path: str) -> float:
    """Run a program's `--smoke`; return its CPU seconds."""
    begin, call = children_cpu_s(), [*command(path), "--smoke"]
    done = subprocess.run(
        call, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=MOST_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return children_cpu_s() - begin


@pytest.mark.smoke
@pytest.mark.parametrize("path", programs())
def test_smoke(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`--smoke` ends well, soon, and writes nothing into the checkout; `make smoke` prints the time of each."""
    if path in NEEDS_RL and importlib.util.find_spec("sb3_contrib") is None:
        pytest.skip("needs fleetgym[rl]")
    most = MOST_RL_CPU_S if path in NEEDS_RL else MOST_CPU_S
    before, spent = left_behind(), smoke(path)
    if spent > most:
        spent = smoke(path)  # the first run had kernels to compile
    with capsys.disabled():
        print(f"\n{path}: {spent:.1f} of {most:.0f} CPU seconds", end=" ", flush=True)
    assert spent <= most, f"{path} --smoke takes {spent:.1f} CPU seconds with compiled kernels"
    assert left_behind() == before
