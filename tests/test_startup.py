"""What a newcomer waits for: a light import, a cached first step, kernels that never go stale."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import fleetgym.library

PACKAGE = Path(fleetgym.__file__).parent
HEAVY = ("numba", "pandas", "scipy", "matplotlib", "highspy")
FIRST_STEP = """
import gymnasium, fleetgym
env = gymnasium.make("FleetAlloc-v0", instance="fleet-v0/toy/two-pools")
env.reset(options={"scenario": 0})
print("cost", env.step(env.action_space.nvec * 0)[4]["cost"])
"""


def python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, in the folder of the package to be tried (`-c` puts it first)."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        cwd=environment.get("PYTHONPATH"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_import_is_light() -> None:
    """`import fleetgym` loads none of the heavy libraries."""
    run = python(f"import sys, fleetgym; print([m for m in {HEAVY!r} if m in sys.modules])")
    assert run.stdout.strip() == "[]", run.stderr


def test_instances_load_without_compiling() -> None:
    """Looking at the standard set needs no kernels either."""
    run = python(
        "import sys, fleetgym; fleetgym.load_instance('fleet-v0/toy/two-pools');"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    assert run.stdout.strip() == "[]", run.stderr


def test_public_names_resolve() -> None:
    """Every name in `__all__` can be had."""
    assert all(hasattr(fleetgym, name) for name in fleetgym.__all__)


def test_warm_first_step_is_silent() -> None:
    """Once compiled, a fresh process neither compiles nor talks."""
    python(FIRST_STEP)
    run = python(FIRST_STEP)
    assert run.returncode == 0, run.stderr
    assert "compiling" not in run.stderr


def copy_of_package(folder: Path) -> Path:
    """Return a folder that holds a copy of the package and its instances."""
    shutil.copytree(PACKAGE, folder / "fleetgym", ignore=shutil.ignore_patterns("__pycache__"))
    instances = Path(fleetgym.library.instances_folder())
    shutil.copytree(instances, folder / "instances")
    return folder


@pytest.mark.slow
def test_compilation_is_announced_and_an_edit_is_seen(tmp_path: Path) -> None:
    """A cold cache is announced by one line; an edit of a callee in another kernel file changes the result."""
    root = copy_of_package(tmp_path)
    environment = {"PYTHONPATH": str(root), "FLEETGYM_CACHE_DIR": str(tmp_path / "cache")}
    cold = python(FIRST_STEP, **environment)
    assert cold.stderr.count("\n") == 1, cold.stderr
    assert "compiling kernels" in cold.stderr
    warm = python(FIRST_STEP, **environment)
    assert warm.stderr == ""
    assert warm.stdout == cold.stdout
    source = root / "fleetgym" / "kernels" / "economics.py"
    text = source.read_text()
    edited = text.replace("SECONDS_PER_DAY = 86400.0", "SECONDS_PER_DAY = 86401.0")
    assert edited != text
    source.write_text(edited)
    assert "compiling kernels" in python(FIRST_STEP, **environment).stderr
    where = python("import fleetgym; print(fleetgym.__file__)", **environment).stdout
    assert Path(where.strip()).is_relative_to(root), "the copy was tried, not the checkout"


@pytest.mark.slow
def test_read_only_install_without_a_home(tmp_path: Path) -> None:
    """A package folder that cannot be written, and no home directory, are no obstacle."""
    root = copy_of_package(tmp_path)
    for path in (root / "fleetgym").rglob("*"):
        if path.is_dir():
            path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    (root / "fleetgym").chmod(stat.S_IRUSR | stat.S_IXUSR)
    environment = {
        "PYTHONPATH": str(root),
        "HOME": "/nonexistent",
        "XDG_CACHE_HOME": "/nonexistent/cache",
        "FLEETGYM_CACHE_DIR": "/proc/nothing/here",
        "TMPDIR": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    try:
        run = python(FIRST_STEP, **environment)
    finally:
        for path in (root / "fleetgym", *(root / "fleetgym").rglob("*")):
            if path.is_dir():
                path.chmod(stat.S_IRWXU)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("cost")
