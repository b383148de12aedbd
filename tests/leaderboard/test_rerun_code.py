"""The code of a rerun: it is what was declared, nothing beside it runs, and it sees nothing but its task."""

from __future__ import annotations

import py_compile
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from fresh_season import SEASON, SEED
from submissions import SUITE, declare, lines_of, write_lines

from fleetgym.agents.agent_code import code_sha256, folder_sha256
from fleetgym.evaluation.isolation.sandbox import check_box
from fleetgym.evaluation.results import Results, hash_jobs, read_results
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.rerun import rerun
from fleetgym.leaderboard.submit import submit
from fleetgym.leaderboard.verify import verify

AGENT = """
class Mine:
    def reset(self, view, *, seed):
        self.view = view

    def act(self, observation, info):
        return self.view.fleet_to_action(self.view.fleet)
"""


def own_code(folder: Path, text: str = AGENT) -> tuple[Path, Path]:
    """Return an agent's code and its submission."""
    code = folder / "code"
    code.mkdir()
    (code / "mine.py").write_text(text)
    results = evaluate([f"{code}/mine.py:Mine"], SUITE)
    return code, submit_code(results, folder, code)


def submit_code(results: Results, folder: Path, code: Path) -> Path:
    """Submit a run of one's own code."""
    target = folder / "submissions" / "2026-11-21-mine"
    submit(results, target, date="2026-11-21", division="open", time_class="online", code=code)
    return target


def rename(folder: Path, entry: str) -> None:
    """Let a submission name another entry."""
    lines = lines_of(folder)
    for line in lines[1:]:
        line["agent"] = entry
    tasks = [(line["instance"], line["scenario"], line["seed"]) for line in lines[1:]]
    lines[0]["jobs_hash"] = hash_jobs([(entry, *task) for task in tasks])
    write_lines(folder, lines)
    declare(folder, "agent.entry", entry)


def test_code_that_is_swapped_once_it_is_compared_is_not_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The declared checksum is of the very bytes that were compared with what played."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "mine.py").write_text(AGENT)
    results, played = evaluate([f"{code}/mine.py:Mine"], SUITE), folder_sha256(code)

    def compare_and_swap(place: str) -> str | None:
        found = code_sha256(place)
        (code / "mine.py").write_text(AGENT + "# edited\n")
        return found

    monkeypatch.setattr("fleetgym.leaderboard.submit.code_sha256", compare_and_swap)
    made = submit(results, tmp_path / "mine", date="2026-11-21", division="open", code=code)
    assert made.agent.code_sha256 == played != folder_sha256(code)


def test_code_must_be_what_was_declared(private: Path, tmp_path: Path) -> None:
    """An agent of one's own is run from the folder whose checksum was declared, and from no other."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "weights.txt").write_text("0.5")
    source = AGENT + "\nWEIGHTS = 'weights.txt'\n"
    (code / "mine.py").write_text(source)
    results = evaluate([f"{code}/mine.py:Mine"], SUITE)
    folder = tmp_path / "2026-11-21-mine"
    for name, text in (("mine.py", source), ("weights.txt", "0.5")):
        (code / name).write_text(text + "# edited\n")
        with pytest.raises(FleetgymError, match="is not what it was in this run"):
            submit(results, folder, date="2026-11-21", division="open", code=code)
        (code / name).write_text(text)
    with pytest.raises(FleetgymError, match=r"weights\.txt is no folder; name the one that holds"):
        submit(results, folder, date="2026-11-21", division="open", code=code / "weights.txt")
    submit(results, folder, date="2026-11-21", division="open", time_class="online", code=code)
    text = (folder / "submission.toml").read_text()
    assert folder_sha256(code) in text
    assert 'entry = "mine.py:Mine"' in text
    assert str(tmp_path) not in text
    assert len(verify(folder).episodes) == 7
    with pytest.raises(FleetgymError, match="name the folder with its code"):
        rerun(folder, SEASON, private, official=False)
    (code / "mine.py").write_text(AGENT + "# changed\n")
    with pytest.raises(FleetgymError, match="not the declared code"):
        rerun(folder, SEASON, private, official=False, code=code)


def test_weights_of_a_computed_name_are_what_played(private: Path, tmp_path: Path) -> None:
    """Whatever lies in the agent's folder may be loaded; a run that cannot say what lay there is refused."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "mine.py").write_text(AGENT + "\nWEIGHTS = f'w{1}.txt'\n")
    (code / "w1.txt").write_text("0.5")
    (code / "README.md").write_text("Mine.")
    results = evaluate([f"{code}/mine.py:Mine"], SUITE)
    evaluate([f"{code}/mine.py:Mine"], SUITE, out=code / "r.jsonl")
    for name in ("r.jsonl", "r.timings.jsonl"):
        (code / name).rename(tmp_path / name)
    unknown = read_results(tmp_path / "r.jsonl")
    with pytest.raises(FleetgymError, match=r"says nothing of .*w1\.txt"):
        submit(unknown, tmp_path / "a", date="2026-11-21", division="open", code=code)
    header, *lines = (tmp_path / "r.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "part.jsonl").write_text(header + lines[-1])  # what goes on is put in order at the end
    gone_on = evaluate([f"{code}/mine.py:Mine"], SUITE, resume=tmp_path / "part.jsonl")
    for still_unknown in (gone_on, read_results(tmp_path / "part.jsonl")):
        with pytest.raises(FleetgymError, match=r"says nothing of .*w1\.txt"):
            submit(still_unknown, tmp_path / "d", date="2026-11-21", division="open", code=code)
    (code / "w1.txt").write_text("0.6")
    with pytest.raises(FleetgymError, match="a file in .* is not what it was in this run"):
        submit(results, tmp_path / "b", date="2026-11-21", division="open", code=code)
    (code / "w1.txt").write_text("0.5")
    submit(results, tmp_path / "c", date="2026-11-21", division="open", code=code)


def test_code_stays_in_its_folder(private: Path, tmp_path: Path) -> None:
    """A file outside the folder is not run, whatever the declaration says; one inside is."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "mine.py").write_text(AGENT)
    (tmp_path / "evil.py").write_text("raise SystemExit('owned')")
    results = evaluate([f"{code}/mine.py:Mine"], SUITE)
    folder = tmp_path / "mine"
    submit(results, folder, date="2026-11-21", division="open", time_class="online", code=code)
    record = rerun(folder, SEASON, private, official=False, code=code)
    assert not [episode for episode in record.episodes if episode.failure]
    declare(folder, "agent.entry", "../evil.py:Mine")
    with pytest.raises(FleetgymError, match="outside the code's folder"):
        rerun(folder, SEASON, private, official=False, code=code)


@pytest.mark.slow
def test_a_rerun_repeats(private: Path, tmp_path: Path) -> None:
    """Name, seed and module's name depend on the submission alone, not on the folder that its code is copied to."""
    text = AGENT.replace(
        "self.view = view",
        "self.view, self.rng = view, __import__('numpy').random.default_rng([seed, *__name__.encode()])",
    )
    text = text.replace("self.view.fleet_to_action(self.view.fleet)", "self.rng.integers(self.view.nvec)")
    code, folder = own_code(tmp_path, text)
    first, second = (rerun(folder, SEASON, private, official=False, code=code) for _ in range(2))
    assert first == second
    assert len({episode.cost_usd for episode in first.episodes}) > 7


def test_what_python_has_compiled_is_not_run(private: Path, tmp_path: Path) -> None:
    """The checksum is of the sources, so nothing else runs, whatever lies beside them."""
    code, folder = own_code(tmp_path)
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')\n{AGENT}")
    cached = code / "__pycache__" / f"mine.{sys.implementation.cache_tag}.pyc"
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(tmp_path / "evil.py"), str(cached), dfile="mine.py", invalidation_mode=unchecked)
    shutil.copy(cached, code / "mine.pyc")
    record = rerun(folder, SEASON, private, official=False, code=code)
    assert not [episode for episode in record.episodes if episode.failure]
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    "entry",
    [
        "subprocess:check_output(args='touch owned', shell=True)",
        "os.path:join",
        "fleetgym.evaluation.isolation.program:Program(command='touch owned')",
        "a.py:d/../../evil.py:Mine",
        "nothing.py:Mine",
        "nothing:Mine",
    ],
)
def test_what_runs_lies_in_the_code(entry: str, private: Path, tmp_path: Path) -> None:
    """Neither an installed module nor a path with a colon in it leads out of the folder."""
    code, folder = own_code(tmp_path)
    (code / "a.py:d").mkdir()
    (tmp_path / "evil.py").write_text("raise SystemExit('owned')")
    rename(folder, entry)
    assert len(verify(folder).episodes) == 7
    with pytest.raises(FleetgymError, match=r"outside the code's folder"):
        rerun(folder, SEASON, private, official=False, code=code)
    assert not (tmp_path / "owned").exists()


def test_a_module_in_the_code_is_run(private: Path, tmp_path: Path) -> None:
    """It may be named by its module, and it leaves no trace in the module path."""
    code = tmp_path / "code"
    (code / "my_agents").mkdir(parents=True)
    (code / "my_agents" / "mine.py").write_text(AGENT)
    before = list(sys.path)
    sys.path.append(str(code))
    results = evaluate(["my_agents.mine:Mine"], SUITE)
    folder = submit_code(results, tmp_path, code)
    sys.path[:] = before
    for name in [name for name in sys.modules if name.startswith("my_agents")]:
        del sys.modules[name]
    record = rerun(folder, SEASON, private, official=False, code=code)
    assert not [episode for episode in record.episodes if episode.failure]
    assert sys.path == before


#: Modules that installed packages import if they are there, and that few environments have.
OPTIONAL = (
    "cffi",
    "coverage",
    "colorama",
    "brotli",
    "simplejson",
    "ujson",
    "rich",
    "dask",
    "numexpr",
    "bottleneck",
)


TRAP = """
import sys

if not any("isolation.agent_server" in word or "isolation.preflight" in word for word in sys.orig_argv):
    open({marker!r}, "a").write({name!r} + "\\n")
raise ImportError({name!r})
"""


def trap(folder: Path, marker: Path) -> None:
    """Write a module of each optional name, which tells if another process than an agent's imports it."""
    for name in OPTIONAL:
        (folder / f"{name}.py").write_text(TRAP.format(marker=str(marker), name=name))


@pytest.mark.slow
def test_nothing_beside_the_agent_is_imported_by_the_run(private: Path, tmp_path: Path) -> None:
    """A submission's modules with names that packages look for are found by no process but the agent's."""
    code, marker = tmp_path / "code", tmp_path / "imported"
    code.mkdir()
    (code / "my_agents").mkdir()
    (code / "my_agents" / "mine.py").write_text(AGENT)
    (code / "mine.py").write_text(AGENT)
    trap(code, marker)
    results = evaluate([f"{code}/mine.py:Mine"], SUITE, isolate="always")
    for entry in ("mine.py:Mine", "my_agents.mine:Mine"):
        folder = tmp_path / entry.partition(":")[0]
        submit(results, folder, date="2026-11-21", division="open", time_class="online", code=code)
        rename(folder, entry)
        marker.unlink(missing_ok=True)
        path, modules = list(sys.path), set(sys.modules)
        record = rerun(folder, SEASON, private, official=False, code=code, workers=2)
        assert not [episode for episode in record.episodes if episode.failure]
        assert sys.path == path
        assert not {name for name in set(sys.modules) - modules if name in OPTIONAL}
        assert not marker.exists(), marker.read_text()


def test_the_run_notices_a_submission_on_the_module_path(private: Path, tmp_path: Path) -> None:
    """Whoever puts the code's folder there, before or meanwhile: nothing is ranked."""
    code, folder = own_code(tmp_path)
    sys.path.append(str(code))
    try:
        with pytest.raises(FleetgymError, match="this process looks for modules in"):
            rerun(folder, SEASON, private, official=False, code=code)
    finally:
        sys.path.remove(str(code))


@pytest.mark.parametrize("words", [["verify", "."], ["score", "."], ["season", "list"], ["leaderboard", "."]])
def test_no_verb_of_a_maintainer_imports_what_lies_in_the_current_folder(
    tmp_path: Path, words: list[str]
) -> None:
    """Neither as a module nor as a command; `python -m` would put the folder first."""
    trap(tmp_path, tmp_path / "imported")
    console = Path(sys.executable).with_name("fleetgym")
    for command in ([sys.executable, "-m", "fleetgym"], [str(console)]):
        subprocess.run([*command, *words], cwd=tmp_path, capture_output=True, check=False)
    assert not (tmp_path / "imported").exists(), (tmp_path / "imported").read_text()


SPY = """
import glob, os, socket

def look():
    seen = [place for place in PLACES if os.path.isfile(place) or glob.glob(place + "/*")]
    assert not seen, f"sees {seen}"
    assert not glob.glob("*.seed"), "sees the current folder"
    assert "SOME_PASSWORD" not in os.environ
    door = socket.socket(socket.AF_UNIX)
    try:
        door.connect(PLACES[0] + "/door")
    except OSError:
        return
    raise AssertionError("a door is open")

look()  # wherever it is imported

class Mine:
    def reset(self, view, *, seed):
        self.view = view
        look()

    def act(self, observation, info):
        return self.view.fleet_to_action(self.view.fleet)
"""


@pytest.mark.slow
def test_ranked_agents_see_nothing_but_their_task(
    private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No seed in the current folder, no submissions, fresh rows or tasks, no passwords, no sockets."""
    try:
        check_box()
    except FleetgymError as error:
        pytest.skip(str(error))
    work = tmp_path / "work"
    for place in ("work/seeds", "board/fresh", "board/submissions"):
        (tmp_path / place).mkdir(parents=True)
    (work / "season.seed").write_text(SEED)
    (tmp_path / "board" / "fresh" / "other.json.gz").write_bytes(b"")
    code = tmp_path / "code"
    code.mkdir()
    places = [
        str(work),
        str(tmp_path / "board" / "fresh"),
        str(tmp_path / "board"),
        str(private),
        str(tmp_path),
    ]
    (code / "mine.py").write_text(f"PLACES = {places!r}\n{SPY}")
    entry = "mine.py:Mine"
    results = evaluate(["gh"], SUITE)
    folder = submit_code(results, tmp_path / "board", code)
    rename(folder, entry)
    declare(folder, "agent.name", "mine")  # the reference agent's name is the reference agent's
    monkeypatch.chdir(work)
    monkeypatch.setenv("SOME_PASSWORD", "secret")
    with socket.socket(socket.AF_UNIX) as door:
        door.bind("door")
        door.listen()
        record = rerun(folder, SEASON, private, code=code, out=tmp_path / "board" / "fresh")
    assert [episode.failure for episode in record.episodes] == [None] * len(record.episodes)
    assert record.is_isolated
