"""Nothing but the sandbox of official runs needs Linux: everything is imported, and used, without what only Unix has.

Libraries keep what they need. A module of the checkout finds no Unix-only module, no Unix-only name in `os`, `signal`,
`select` and `socket`, and a platform that is not Linux. What Windows does otherwise (open files, paths) is not seen.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from places import ROOT

ELSEWHERE = f"""
import builtins, os, select, signal, socket, sys

ROOTS = tuple(os.path.join({str(ROOT)!r}, name) + os.sep for name in ("fleetgym", "baselines", "papers", "tools"))
MODULES = {{"crypt", "fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}}
NAMES = {{
    "os": '''O_CLOEXEC O_NOFOLLOW O_PATH WNOHANG chown fchmod fchown fork forkpty geteuid getegid getgid getgroups
    getloadavg getpgid getpgrp getpriority getsid getuid initgroups kill_pg killpg lchown lockf mkfifo mknod nice
    pidfd_open pread pwrite register_at_fork sched_getaffinity sched_setaffinity sched_yield setgid setpgid setsid
    setuid statvfs sysconf uname wait wait3 wait4 waitid'''.split(),
    "signal": '''SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGUSR1 SIGUSR2 SIGXCPU alarm pause
    pthread_kill pthread_sigmask setitimer sigtimedwait sigwait'''.split(),
    "select": ["epoll", "kqueue", "poll"],
    "socket": ["AF_UNIX", "socketpair"],
    "sys": [],
}}


class Elsewhere:  # what a module of the checkout gets for `import os`
    def __init__(self, module):
        self.__dict__["_module"] = module

    def __getattr__(self, name):
        module = self._module
        if name in NAMES[module.__name__]:
            raise AttributeError(f"module {{module.__name__!r}} has no attribute {{name!r}}")
        return "win32" if (module, name) == (sys, "platform") else getattr(module, name)

    def __setattr__(self, name, value):
        setattr(self._module, name, value)


def import_elsewhere(name, *arguments, real=builtins.__import__, **words):
    if not sys._getframe(1).f_code.co_filename.startswith(ROOTS):
        return real(name, *arguments, **words)
    if name.partition(".")[0] in MODULES:
        raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
    return proxies.get(name) or real(name, *arguments, **words)


proxies = {{name: Elsewhere(sys.modules[name]) for name in NAMES}}
builtins.__import__ = import_elsewhere
"""

PROBE = """
code = "import os, sys\\nprint(hasattr(os, 'fork'), hasattr(os, 'getpid'), sys.platform)\\nimport fcntl"
try:
    exec(compile(code, ROOTS[0] + "probe.py", "exec"), {"__name__": "probe"})
except ModuleNotFoundError as error:
    print(error, hasattr(os, "fork"))
"""

IMPORTS = """
import importlib, pkgutil, warnings
import fleetgym, tools

def reraise(name):
    raise


RL = {"stable_baselines3", "sb3_contrib", "torch"}
count = 0
for package in (fleetgym, tools):
    for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".", reraise):
        if found.name == "fleetgym.__main__":
            continue
        try:
            importlib.import_module(found.name)
            count += 1
        except ModuleNotFoundError as error:
            if error.name not in RL:
                raise
for name in ("fleetgym.baselines.hold", "fleetgym.papers.coral.plain", "tools.croissant", "fleetgym.evaluation.jobs"):
    assert name in sys.modules, name
print("imported", count)
"""

USES = """
import json, pathlib
import fleetgym, gymnasium
from fleetgym.cli import main
from fleetgym.files.errors import FleetgymError

TOY = "fleet-v0/toy/two-pools"
env = gymnasium.make("fleetgym:FleetAlloc-v0", instance=TOY)
env.reset(seed=0)
done = False
while not done:
    _, _, done, _, _ = env.step(env.action_space.sample())
pathlib.Path("mine.py").write_text("from fleetgym.baselines.hold import hold as Mine")
for words in (
    ["evaluate", "hold", "--suite", "fleet-v0/toy", "--out", "run.jsonl"],
    ["evaluate", "hold", "--suite", "fleet-v0/toy", "--resume", "run.jsonl"],  # takes the lock of the file
    ["evaluate", "mine.py:Mine", "--suite", TOY, "--out", "isolated.jsonl"],  # auto: a process of its own
    ["score", "run.jsonl"],
    ["plan", TOY, "--agent", "agh", "--days", "2"],
    ["submit", "run.jsonl", "--agent", "hold", "--name", "toy", "--out", "toy"],
    ["verify", "toy", "--out", "verified"],
    ["doctor"],
):
    print(">>", *words, flush=True)
    assert main(words) == 0, words
kinds = [json.loads(line)["failure"] for line in pathlib.Path("isolated.jsonl").read_text().splitlines()[1:]]
assert kinds and not any(kinds), kinds
print("used")
"""

REFUSALS = """
from fleetgym.cli import main
from fleetgym.evaluation.isolation.sandbox import check_box
from fleetgym.files.errors import FleetgymError

assert main(["evaluate", "hold", "--suite", "fleet-v0/toy/two-pools", "--official", "reflex"]) == 2
try:
    check_box()
except FleetgymError as error:
    print(error, file=sys.stderr)
"""


def elsewhere(folder: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter that has nothing of Unix for the modules of this checkout."""
    return subprocess.run(
        [sys.executable, "-c", ELSEWHERE + code],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_no_extra_is_named_like_a_version() -> None:
    """Pip 24 takes ``extra == "v1"`` for a comparison of versions, and then cannot install the package at all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert [name for name in project["optional-dependencies"] if re.match(r"v?\d", name)] == []


def test_the_system_is_hidden_from_our_modules_only(tmp_path: Path) -> None:
    """What the other tests stand on."""
    done = elsewhere(tmp_path, PROBE)
    assert done.stdout.splitlines() == ["False True win32", "No module named 'fcntl' True"], done.stderr


@pytest.mark.slow
def test_every_module_is_imported(tmp_path: Path) -> None:
    """All rooms, baselines, papers and tools."""
    done = elsewhere(tmp_path, IMPORTS)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[-1]) > 200


@pytest.mark.slow
def test_an_episode_a_score_a_submission_and_a_plan(tmp_path: Path) -> None:
    """Play, evaluate, resume, score, submit, verify and plan; an agent of a user's gets a process of its own."""
    done = elsewhere(tmp_path, USES)
    assert done.stdout.rstrip().endswith("used"), done.stdout + done.stderr


def test_official_runs_say_that_they_need_linux(tmp_path: Path) -> None:
    """They are refused, and so is the sandbox itself."""
    done = elsewhere(tmp_path, REFUSALS)
    assert done.returncode == 0, done.stderr
    assert "official runs need Linux" in done.stderr
    assert "on Linux only" in done.stderr
