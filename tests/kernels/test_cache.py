"""The folder of compiled kernels: whatever is damaged counts as missing, is compiled again and replaced."""

from __future__ import annotations

import os
import pickle
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleetgym.kernels import cache
from fleetgym.kernels.compile import cache_folder, check_cache

STEP = """
import gymnasium, fleetgym
env = gymnasium.make("FleetAlloc-v0", instance="fleet-v0/toy/two-pools")
env.reset(options={"scenario": 0})
print("cost", env.step(env.action_space.nvec * 0)[4]["cost"])
"""
ROLLOUT = """
import numpy as np, fleetgym
from fleetgym.search.rollouts import KnownScenario
name = "fleet-v0/toy/two-pools"
instance = fleetgym.load_instance(name)
known = KnownScenario(instance, fleetgym.load_scenarios(name)[0])
target = np.tile(instance.nominal_fleet, (instance.num_windows, 1))
old, new = known.new_track(), known.new_track()
known.play(target, 0, instance.num_windows, np.inf, old, new)
print("cost", new.cost_usd.sum())
"""
VIEW = """
import numpy as np, fleetgym
from fleetgym.evaluation.isolation.agent_runner import load_kernels
view = fleetgym.View("fleet-v0/toy/two-pools")
load_kernels(view.instance)
if %s:
    paths = fleetgym.Belief(view.instance).sample(2, 2, np.random.default_rng(0))
    view.rollout([view.fleet], paths)
    view.estimate([view.fleet], paths)
    view.snapshot()
    print("cost", view.steady_cost_usd(view.fleet))
"""
#: Two small kernels: one of them is called by its symbol.
SMALL = """
from fleetgym.kernels.compile import extern, jit

def square(x):
    return x * x

extern_square = extern(square, 1.0, 1.0)

@jit
def fourth_power(x):
    return extern_square(extern_square(x))
"""


#: Three parts that need not wait for one another.
PARTS = """
from fleetgym.kernels import compile
from fleetgym.kernels.compile import entry, extern, jit

compile.num_cores = lambda: 2

def square(x):
    return x * x

def cube(x):
    return x * x * x

extern_square, extern_cube = extern(square, 1.0, 1.0), extern(cube, 1.0, 1.0)

@jit
def both(x):
    return extern_square(x) + extern_cube(x)

entry(both, 1.0)
"""


def python(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new process that keeps its kernels in `folder`."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "FLEETGYM_CACHE_DIR": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=folder,
    )


def kept(folder: Path, suffix: str = ".nb[ic]") -> list[Path]:
    """Return the files of kernels in a folder."""
    return sorted(folder.rglob(f"*{suffix}"))


def truncate(path: Path) -> None:
    """Lose the second half."""
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zero(path: Path) -> None:
    """Keep the length only."""
    path.write_bytes(bytes(path.stat().st_size))


def flip(path: Path) -> None:
    """Change one bit in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    """Keep the name only."""
    path.write_bytes(b"")


def replace_by_folder(path: Path) -> None:
    """Put a folder with a file in it where the file was."""
    path.unlink()
    path.mkdir()
    (path / "something").write_text("else")


def make_unreadable(path: Path) -> None:
    """Leave nobody any right, and as root may read all the same, no seal."""
    path.chmod(0)
    take_seal(path)


def replace_by_foreign(path: Path) -> None:
    """Put a pickle of something else there."""
    path.write_bytes(pickle.dumps({"version": "0.0", "data": list(range(1000))}))


def take_seal(path: Path) -> None:
    """Stop between a file and its seal, as a killed process does."""
    for seals in (place / "seals" for place in path.parents if (place / "seals").is_file()):
        kept = [line for line in seals.read_text().splitlines() if not line.endswith(f" {path.name}")]
        seals.write_text("\n".join(kept))


DAMAGES = (truncate, zero, flip, empty, replace_by_folder, make_unreadable, replace_by_foreign, take_seal)


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """Return a folder with the small kernels, compiled."""
    (tmp_path / "small.py").write_text(SMALL)
    run = python("import small; print('cost', small.fourth_power(2.0))", tmp_path)
    assert run.stdout == "cost 16.0\n", run.stderr
    assert run.stderr.count("\n") == 1
    assert len(kept(tmp_path)) == 4
    return tmp_path


def play_small(folder: Path) -> subprocess.CompletedProcess[str]:
    """Call the small kernels in a new process, and print what it had to compile."""
    code = "import small; from fleetgym.kernels.compile import check_cache\n"
    return python(code + "print(small.fourth_power(2.0), check_cache())", folder)


def test_a_damaged_file_is_replaced(small: Path) -> None:
    """All files are damaged, each in its own way; the kernels are compiled again, once."""
    for damage, path in zip((flip, zero, replace_by_folder, empty), kept(small), strict=True):
        damage(path)
    again, warm = play_small(small), play_small(small)
    assert again.stdout.startswith("16.0 "), again.stderr
    assert "compiling kernels" in again.stderr
    assert "Traceback" not in again.stderr
    assert "compiled=()" in warm.stdout
    assert "sound=4, damaged=()" in warm.stdout
    assert warm.stderr == ""


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_seen(damage: Callable[[Path], None], tmp_path: Path) -> None:
    """What is not as it was sealed is removed; what is sound stays."""
    good, bad = tmp_path / "module.good-1.py311.nbi", tmp_path / "module.bad-1.py311.1.nbc"
    for path in (good, bad):
        path.write_bytes(os.urandom(1000))
    cache.seal(tmp_path, ["module."])
    assert cache.remove_damaged(tmp_path) == []
    damage(bad)
    assert cache.remove_damaged(tmp_path) == [bad]
    assert kept(tmp_path) == [good]


def test_a_file_cannot_take_the_place_of_another(tmp_path: Path) -> None:
    """A sound file under another name is damaged."""
    first, second = tmp_path / "module.first-1.py311.1.nbc", tmp_path / "module.second-1.py311.1.nbc"
    first.write_bytes(b"code")
    cache.seal(tmp_path, ["module.first"])
    shutil.copy(first, second)
    assert cache.remove_damaged(tmp_path) == [second]


def test_what_killed_processes_left_is_removed(tmp_path: Path) -> None:
    """Temporary files go when they are old, since a process may still write to younger ones."""
    old, young = tmp_path / "module.nbi.tmp.1", tmp_path / "module.nbi.tmp.2"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    assert cache.remove_damaged(tmp_path) == []
    assert list(tmp_path.iterdir()) == [young]


def test_only_the_kernels_that_were_compiled_are_sealed(tmp_path: Path) -> None:
    """A file that somebody else put there gets no seal."""
    for name in ("module.mine-1.py311.nbi", "module.other-1.py311.nbi"):
        (tmp_path / name).write_bytes(b"index")
    cache.seal(tmp_path, ["module.mine-"])
    assert cache.remove_damaged(tmp_path) == [tmp_path / "module.other-1.py311.nbi"]


@pytest.mark.skipif(os.name != "posix", reason="Windows has no pipes in folders")
def test_pipes_in_the_folder_keep_nobody(tmp_path: Path) -> None:
    """A reader of a pipe would wait for ever: it is no kernel, no list of seals and no lock."""
    good = tmp_path / "module.good-1.py311.nbi"
    good.write_bytes(b"index")
    cache.seal(tmp_path, ["module."])
    seals = (tmp_path / "seals").read_bytes()
    bad = tmp_path / "module.bad-1.py311.nbi"
    for name in (bad.name, "lock"):
        os.mkfifo(tmp_path / name)
    assert cache.remove_damaged(tmp_path) == [bad]
    with cache.locked(tmp_path, 1.0) as is_free:
        assert is_free
    (tmp_path / "seals").unlink()
    os.mkfifo(tmp_path / "seals")
    assert cache.read_seals(tmp_path) == set()
    cache.seal(tmp_path, ["module."])
    assert (tmp_path / "seals").read_bytes() == seals


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such rights")
def test_seals_that_others_can_write_are_none(tmp_path: Path) -> None:
    """Whoever can write the list can have any code loaded."""
    good = tmp_path / "module.good-1.py311.nbi"
    good.write_bytes(b"index")
    cache.seal(tmp_path, ["module."])
    assert stat.S_IMODE((tmp_path / "seals").stat().st_mode) == 0o600
    (tmp_path / "seals").chmod(0o666)
    assert cache.remove_damaged(tmp_path) == [good]


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can make others' folders"
)
def test_a_folder_in_somebody_elses_is_not_used(tmp_path: Path) -> None:
    """Its owner could put another in its place; one that the user names is the user's word."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    assert not cache._is_ours_and_writable(tmp_path / "theirs" / "kernels", is_named=False)
    assert cache._is_ours_and_writable(tmp_path / "theirs" / "kernels", is_named=True)
    (tmp_path / "ours").mkdir()
    assert cache._is_ours_and_writable(tmp_path / "ours" / "kernels", is_named=False)
    assert stat.S_IMODE((tmp_path / "ours" / "kernels").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("NUMBA_DISABLE_JIT", "1", "kernels run compiled only: unset it"),  # kernels would be plain functions
        ("NUMBA_NUM_THREADS", "0", "Number of threads specified must be > 0."),
        ("NUMBA_NUM_THREADS", "abc", "its associated value 'abc' could not be parsed."),
        ("NUMBA_OPT", "9", "its associated value '9' could not be parsed."),
    ],
)
@pytest.mark.parametrize("words", ["run fleet-v0/toy/two-pools --agent hold --scenario 0", "calibrate"])
def test_settings_that_numba_refuses_are_one_line(name: str, value: str, said: str, words: str) -> None:
    """It names the variable."""
    command = [sys.executable, "-m", "fleetgym", *words.split()]
    done = subprocess.run(command, env={**os.environ, name: value}, capture_output=True, text=True)
    assert done.returncode == 2
    assert name in done.stderr
    assert done.stderr.startswith("fleetgym: ")
    assert done.stderr.endswith(f"{said}\n")
    assert done.stderr.count("\n") == 1


def test_a_full_folder_is_no_obstacle(small: Path) -> None:
    """Where nothing can be written, kernels are compiled and not kept, and one line says so."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))\n"
    run = python(f"{limit}import small; print('cost', small.fourth_power(2.0))", small)
    assert run.stdout == "cost 16.0\n", run.stderr
    assert run.stderr.count("\n") == 1
    assert "no cache folder can be written" in run.stderr


def test_processes_may_compile_at_once(tmp_path: Path) -> None:
    """Four processes that start together all succeed, and the next one finds everything."""
    (tmp_path / "small.py").write_text(SMALL)
    command = [sys.executable, "-c", "import small; print(small.fourth_power(2.0))"]
    environment = {**os.environ, "FLEETGYM_CACHE_DIR": str(tmp_path)}
    runs = [
        subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    assert [run.communicate(timeout=600)[0] for run in runs] == ["16.0\n"] * 4
    play_small(tmp_path)
    assert "compiled=()" in play_small(tmp_path).stdout


def test_a_new_signature_is_kept_too(small: Path) -> None:
    """A kernel that is compiled for other types in another process rewrites its index; both stay warm."""
    more = "import numpy as np, small; from fleetgym.kernels.compile import jit, check_cache\n"
    more += "print(small.fourth_power(np.float32(2)), small.fourth_power(2.0), check_cache().compiled)"
    cold, warm = python(more, small), python(more, small)
    assert "fourth_power" in cold.stdout
    assert warm.stdout == "16.0 16.0 ()\n", warm.stderr
    assert cold.stdout.startswith("16.0 16.0 (")


def test_an_import_does_not_wait_for_a_process_that_compiles(tmp_path: Path) -> None:
    """The folder is known at once, and what is damaged goes as soon as the other process has sealed its files."""
    damaged = tmp_path / "module.one-1.py311.nbi"
    damaged.write_bytes(b"half")
    code = "from fleetgym.kernels import cache; from pathlib import Path; f = Path('.')\n"
    code += "with cache.locked(f, 0.0) as alone: print(alone)\n"
    with cache.locked(tmp_path):
        assert python(code, tmp_path).stdout == "False\n"
        assert damaged.exists()
    assert python(code + "cache._unexamined.append(f); cache.examine(f)", tmp_path).stdout == "True\n"
    assert not damaged.exists()


def play_parts(folder: Path, before: str = "") -> subprocess.CompletedProcess[str]:
    """Call the kernel of three parts, and print its result and what was compiled."""
    (folder / "parts.py").write_text(PARTS)
    code = f"import parts, sys\nfrom fleetgym.kernels import compile\n{before}\n"
    return python(
        code + "print(parts.both(2.0), sorted(compile.check_cache().compiled), compile._is_server)", folder
    )


@pytest.mark.parametrize("how", ["apart", "one core", "no process", "dead process"])
def test_parts_are_compiled_apart_where_that_is_possible(how: str, tmp_path: Path) -> None:
    """Each part is compiled once, by other processes or, where there are none, by this one; one line says so."""
    before = {
        "apart": "",
        "one core": "compile.num_cores = lambda: 1",
        "no process": "sys.executable = '/nowhere'",
        "dead process": "sys.executable = '/bin/false'",
    }[how]
    cold, warm = play_parts(tmp_path, before), play_parts(tmp_path, before)
    assert cold.stdout == "12.0 ['parts.both', 'parts.cube', 'parts.square'] False\n", cold.stderr
    assert cold.stderr.count("\n") == 1
    assert (warm.stdout, warm.stderr) == ("12.0 [] False\n", "")


def test_a_script_may_hold_kernels(tmp_path: Path) -> None:
    """Other processes do not run the script again."""
    (tmp_path / "script.py").write_text(PARTS + "print(both(2.0))\n")
    code = "import runpy; runpy.run_path('script.py', run_name='__main__')"
    assert python(code, tmp_path).stdout == "12.0\n"


# --- the kernels of a step --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the kernels of a step and of a rollout, compiled."""
    folder = tmp_path_factory.mktemp("cache")
    here = cache_folder()
    if here is not None:
        shutil.copytree(here, folder / here.name, ignore=shutil.ignore_patterns("*.tmp.*"))
    for code in (STEP, ROLLOUT):
        assert python(code, folder).returncode == 0
    return folder


def test_nothing_is_said_where_all_is_warm(warm_cache: Path) -> None:
    """Neither a step nor a process that only plays rollouts compiles anything, so no line says so."""
    for code in (STEP, ROLLOUT):
        run = python(code, warm_cache)
        assert run.stdout.startswith("cost "), run.stderr
        assert run.stderr == ""


@pytest.mark.slow
def test_an_agent_compiles_nothing_while_it_plays(tmp_path: Path) -> None:
    """What a view calls is compiled before the first window, so one line says so, and no other process does."""
    assert python(VIEW % False, tmp_path).stderr.count("\n") == 1
    run = python(VIEW % True, tmp_path)
    assert run.stdout.startswith("cost "), run.stderr
    assert run.stderr == ""


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_heals(damage: Callable[[Path], None], suffix: str, warm_cache: Path) -> None:
    """Whatever happened to a file of the kernels of a step, the cost is right, and the next run is warm."""
    right = python(STEP, warm_cache).stdout
    names = ("window.play-", "routing._", "batch.")  # what every step loads
    used = [p for p in kept(warm_cache, suffix) if p.name.startswith(names)]
    path = used[DAMAGES.index(damage) % len(used)]
    damage(path)
    again, warm = python(STEP, warm_cache), python(STEP, warm_cache)
    assert (again.returncode, again.stdout) == (0, right), again.stderr
    assert "Traceback" not in again.stderr
    assert (warm.returncode, warm.stdout, warm.stderr) == (0, right, "")
    assert path.is_file()
    assert path.stat().st_mode & stat.S_IRUSR


def test_the_state_of_the_cache_can_be_asked_for() -> None:
    """Folder and sound files; a file that another process has not sealed yet counts as damaged."""
    state = check_cache()
    assert state.folder == cache_folder()
    assert state.sound >= 0
    assert all(path.suffix in (".nbi", ".nbc") for path in state.damaged)
