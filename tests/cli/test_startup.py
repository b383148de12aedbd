"""What a newcomer waits for: a light import, a cached first step, kernels that never go stale."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import fleetgym.model.sets

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
        timeout=600,
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
    assert {"evaluate", "read_results", "score"} <= set(fleetgym.__all__)


def test_warm_first_step_is_silent() -> None:
    """Once compiled, a fresh process neither compiles nor talks."""
    python(FIRST_STEP)
    run = python(FIRST_STEP)
    assert run.returncode == 0, run.stderr
    assert "compiling" not in run.stderr


def copy_of_package(folder: Path) -> Path:
    """Return a folder that holds a copy of the package beside the instances."""
    shutil.copytree(PACKAGE, folder / "fleetgym", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "instances").symlink_to(fleetgym.model.sets.instances_folder())
    return folder


#: Two kernels in files of their own: one calls the other, joined to it and by its symbol.
CALLEE = "from fleetgym.kernels.compile import jit\n\n\n@jit\ndef callee(x):\n    return {factor} * x\n"
CALLER = """from fleetgym.kernels.callee import callee
from fleetgym.kernels.compile import extern, jit

extern_callee = extern(callee, 1.0, 1.0)


@jit
def caller(x):
    return callee(x) + extern_callee(x)
"""


def test_an_edit_of_a_callee_is_seen(tmp_path: Path) -> None:
    """What is cached of a caller is not used once a kernel that it calls, in another file, was changed."""
    kernels = copy_of_package(tmp_path) / "fleetgym" / "kernels"
    (kernels / "caller.py").write_text(CALLER)
    call = "from fleetgym.kernels.caller import caller; print(caller(1.0), sum(caller.stats.cache_hits.values()))"
    environment = {"PYTHONPATH": str(tmp_path), "FLEETGYM_CACHE_DIR": str(tmp_path / "cache")}
    for factor, printed in ((2.0, "4.0 0"), (2.0, "4.0 1"), (3.0, "6.0 0")):
        (kernels / "callee.py").write_text(CALLEE.format(factor=factor))
        run = python(call, **environment)
        assert run.stdout.strip() == printed, run.stderr


def test_an_edit_of_any_kernel_file_starts_a_new_cache(tmp_path: Path) -> None:
    """The folder's name changes with each of them, and comes back with the old text."""
    kernels = copy_of_package(tmp_path) / "fleetgym" / "kernels"
    run = python(
        "from pathlib import Path; from fleetgym.kernels import compile; seen = {compile.source_digest()}\n"
        "files = sorted(Path(compile.__file__).parent.glob('*.py'))\n"
        "for path in files:\n"
        "    old = path.read_text()\n"
        "    path.write_text(old + '# edited'); seen.add(compile.source_digest()); path.write_text(old)\n"
        "print(len(files), len(seen), compile.source_digest() in seen, Path(compile.__file__).parent)",
        PYTHONPATH=str(tmp_path),
    )
    files, digests, is_back, where = run.stdout.split()
    assert int(files) >= 9, run.stderr
    assert int(digests) == int(files) + 1
    assert is_back == "True"
    assert Path(where) == kernels, "the copy was tried, not the checkout"


def test_every_installation_has_its_own_cache(tmp_path: Path) -> None:
    """Numba does not find what was compiled in another place, so a folder that holds only that must not look warm."""
    roots = [copy_of_package(tmp_path / name) for name in ("one", "two")]
    code = "from fleetgym.kernels import compile; print(compile.source_digest(), compile.__file__)"
    runs = [python(code, PYTHONPATH=str(root)).stdout.split() for root in (*roots, roots[0])]
    assert [Path(place).is_relative_to(root) for (_, place), root in zip(runs, roots, strict=False)] == [
        True,
        True,
    ]
    assert runs[0] == runs[2]
    assert runs[0][0] != runs[1][0]


@pytest.mark.slow
def test_first_step_without_home_or_writable_install(tmp_path: Path) -> None:
    """A folder that cannot be written and no home are no obstacle; a cold cache is announced, a warm one is not."""
    root = copy_of_package(tmp_path)
    folders = [root / "fleetgym", *(path for path in (root / "fleetgym").rglob("*") if path.is_dir())]
    environment = {
        "PYTHONPATH": str(root),
        "HOME": "/proc/nothing",  # not even root can make a folder there
        "XDG_CACHE_HOME": "/proc/nothing/cache",
        "FLEETGYM_CACHE_DIR": "/proc/nothing/here",
        "TMPDIR": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for path in reversed(folders):
        path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        cold, warm = python(FIRST_STEP, **environment), python(FIRST_STEP, **environment)
    finally:
        for path in folders:
            path.chmod(stat.S_IRWXU)
    assert cold.returncode == 0, cold.stderr
    assert cold.stdout.startswith("cost")
    assert cold.stderr.count("\n") == 1, cold.stderr
    assert "compiling kernels" in cold.stderr
    assert (warm.stdout, warm.stderr) == (cold.stdout, "")
    assert list(tmp_path.glob("fleetgym-*/kernels-*")), "the kernels are kept in a temporary folder"
