"""Evaluation: the same job gives the same bytes wherever it is played, and a stopped run goes on as if it never was."""

from __future__ import annotations

import collections
import dataclasses
import importlib.metadata
import json
import math
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
from sample_agents import agent
from threadpoolctl import threadpool_info, threadpool_limits

import fleetgym
from fleetgym.agents.agent_code import code_sha256
from fleetgym.agents.registry import load_target
from fleetgym.baselines.margin import Margin
from fleetgym.capacity.plan import plan
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.evaluation.isolation.agent_process import decode, encode
from fleetgym.evaluation.jobs import Job, close_agents, play_actions, run_job
from fleetgym.evaluation.recording import _Work
from fleetgym.evaluation.results import read_results, timings_path
from fleetgym.evaluation.results_format import COST_TERMS
from fleetgym.evaluation.run import evaluate, make_jobs
from fleetgym.files.documents import canonical_json
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.model.planning import Plan, Snapshot
from fleetgym.reference import replay
from fleetgym.runtime.threads import THREADS, one_thread

AGENTS = ["hold", "random", "agh-rolling"]
SUITE = ["fleet-v0/toy/drop", "fleet-v0/toy/group", "fleet-v0/toy/budget-pool"]


@pytest.fixture(scope="module")
def expected() -> str:
    """The results file of one uninterrupted run in this process."""
    return evaluate(AGENTS, SUITE).to_text()


# -- one job


def test_same_job_same_bytes() -> None:
    """Twice in this process and once in another: one line of text."""
    job = Job(agent("Dice"), "fleet-v0/toy/group", 0, seed=5)
    lines = {run_job(job, isolate).to_line() for isolate in ("never", "never", "always", "always")}
    close_agents()
    assert len(lines) == 1


@pytest.mark.parametrize("isolate", ["never", "always"])
def test_linear_algebra_takes_one_thread(isolate: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here as in a process of the agent's own; the caller's number of threads comes back."""
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    close_agents()
    with threadpool_limits(2, user_api="blas"):
        assert run_job(Job(agent("WantsOneThread"), "fleet-v0/toy/group", 0), isolate).failure is None
        assert {p["num_threads"] for p in threadpool_info() if p["user_api"] == "blas"} == {2}


def test_jobs_in_threads_share_the_limit() -> None:
    """It holds until the last of them is through, whoever came first, and goes with it."""

    def now() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    with threadpool_limits(2, user_api="blas"):
        first, second = one_thread(), one_thread()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert now() == {1}
        second.__exit__(None, None, None)
        assert now() == {2}


def test_seeds_differ_from_job_to_job() -> None:
    """Every part of a job changes the agent's seed, and with it what a random agent does."""
    job = Job("random", "fleet-v0/toy/group", 0, 0)
    others = [
        dataclasses.replace(job, agent="hold"),
        dataclasses.replace(job, instance="fleet-v0/toy/drop"),
        dataclasses.replace(job, scenario=1),
        dataclasses.replace(job, seed=1),
    ]
    assert len({j.agent_seed for j in [job, *others]}) == 5
    assert run_job(job).actions != run_job(others[-1]).actions


def test_result_is_what_the_judge_says() -> None:
    """Costs per term and in all equal those of the independent implementation, replayed from the actions."""
    results = evaluate(["random"], SUITE)
    for episode in results.episodes:
        instance = fleetgym.load_instance(episode.instance)
        scenario = fleetgym.load_scenarios(episode.instance)[episode.scenario]
        steps = replay(instance, scenario, results.actions(episode).tolist())
        for name, usd in vars(episode.costs).items():
            assert usd == pytest.approx(sum(s[name] for s in steps), rel=1e-9, abs=1e-12)
        assert episode.cost_usd == pytest.approx(sum(s["cost"] for s in steps), rel=1e-9)
        requests = scenario.expanded(instance.num_windows).rate_rps
        for name in ("miss_share", "unserved_share"):
            missed = sum(float(r @ np.asarray(s[name])) for r, s in zip(requests, steps, strict=True))
            assert getattr(episode, name) == pytest.approx(missed / requests.sum(), abs=1e-9)
        assert episode.denied == sum(int(np.sum(s["denied"])) for s in steps)
        assert episode.lost == sum(int(np.sum(s["lost"])) for s in steps)


def test_played_actions_cost_the_same() -> None:
    """The actions in a result, played again, give the result."""
    episode = run_job(Job("random", "fleet-v0/toy/group", 0))
    results = evaluate("random", "fleet-v0/toy/group")
    again = play_actions("fleet-v0/toy/group", 0, results.actions(results.episodes[0]), "random")
    assert again.to_line() == episode.to_line()


def test_agents_never_get_the_future() -> None:
    """What crosses the pipe is the last window's conditions and the fleet: nothing has a row per window."""
    seen: dict[str, object] = {}
    instance = fleetgym.load_instance("fleet-v0/toy/drop")

    def note(frame: str) -> None:
        seen["frame"] = frame

    run_job(Job("hold", "fleet-v0/toy/drop", 0), watch=note)
    assert "window 10/10" in str(seen["frame"])
    env = FleetAllocEnv("fleet-v0/toy/drop")
    _, info = env.reset(options={"scenario": 0})
    assert all(np.shape(v)[:1] != (instance.num_windows,) for k, v in encode(info).items() if k != "array")


def test_observations_cross_the_pipe_bit_for_bit() -> None:
    """Types, shapes and every bit survive, odd values included."""
    values = {
        "f4": np.array([0.1, -0.0, 1e-45], dtype=np.float32),
        "f8": np.array([[0.1, 5e-324, 1.7976931348623157e308]]),
        "i8": np.array([-(2**62), 2**62]),
        "flag": np.array([True, False]),
        "plain": 0.1,
        "text": "ü",
    }
    back = decode(encode(values))
    for name, value in values.items():
        if isinstance(value, np.ndarray):
            assert (back[name].dtype, back[name].tobytes()) == (value.dtype, value.tobytes())
        else:
            assert back[name] == value


# -- many jobs


@pytest.mark.slow
def test_one_and_two_workers_write_the_same_bytes(tmp_path: Path) -> None:
    """The file of two workers is that of one, and timings lie beside it, not in it."""
    agents, texts = [*AGENTS, agent("Dice")], []
    for workers in (1, 2):
        path = tmp_path / f"{workers}.jsonl"
        evaluate(agents, SUITE, workers=workers, out=path)
        texts.append(path.read_text())
        assert len(timings_path(path).read_text().splitlines()) == len(agents) * len(SUITE)
        assert all(e.timing is not None for e in read_results(path).episodes)
    assert texts[0] == texts[1]
    assert "cpu" not in texts[0]


def test_any_executor_gives_the_same_bytes(expected: str) -> None:
    """The seam is `concurrent.futures.Executor`: here, threads."""
    with ThreadPoolExecutor(2) as executor:
        assert evaluate(AGENTS, SUITE, executor=executor).to_text() == expected


XDIST = """
import pytest
from pathlib import Path
from fleetgym.evaluation.run import make_jobs
from fleetgym.evaluation.jobs import run_job

JOBS = make_jobs({agents!r}, {suite!r})

@pytest.mark.parametrize("k", range(len(JOBS)))
def test_job(k):
    Path({folder!r}, f"{{k:03d}}").write_text(run_job(JOBS[k]).to_line())
"""


@pytest.mark.slow
@pytest.mark.parametrize("processes", [0, 2])
def test_xdist_gives_the_same_bytes(expected: str, tmp_path: Path, processes: int) -> None:
    """The same jobs as test items, on any number of xdist's workers."""
    test = tmp_path / "test_jobs.py"
    (tmp_path / "lines").mkdir()
    test.write_text(XDIST.format(agents=AGENTS, suite=SUITE, folder=str(tmp_path / "lines")))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        str(processes),
        "-p",
        "no:cacheprovider",
        str(test),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    lines = "".join(path.read_text() for path in sorted((tmp_path / "lines").iterdir()))
    assert lines == expected.partition("\n")[2]


def test_the_share_of_work_counts_what_agents_take() -> None:
    """Ten quick episodes and one slow one of ten: a tenth of the work is done, although half of the jobs are."""
    whole, past = _Work(), _Work()
    for _ in range(10):
        whole.add("quick", 100)
        whole.add("slow", 100)
        past.add("quick", 100, cpu_s=0.01)
    past.add("slow", 100, cpu_s=9.0)
    assert past.seconds(past) / whole.seconds(past) == pytest.approx(0.1, rel=0.2)


def test_progress_counts_to_the_end() -> None:
    """Every finished episode is told once."""
    told: list[tuple[int, int]] = []
    evaluate("hold", SUITE, progress=lambda done, total, share: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_calls_that_are_wrong_say_so() -> None:
    """Names, numbers and settings are checked before anything is played."""
    with pytest.raises(UnknownNameError, match="did you mean 'agh'"):
        evaluate("aghh", SUITE)
    with pytest.raises(UnknownNameError, match="did you mean 'fleet-v0/toy'"):
        evaluate("hold", "fleet-v0/tooy")
    with pytest.raises(UnknownNameError, match="fleet-v0/toy/drop"):
        evaluate("hold", "fleet-v0/toy/dropp")
    with pytest.raises(FleetgymError, match="1 stored scenarios"):
        evaluate("hold", SUITE, scenarios=[3])
    with pytest.raises(FleetgymError, match="the agent hold is named twice|the task .* is named twice"):
        evaluate(["hold", "hold"], SUITE)
    with pytest.raises(FleetgymError, match="at least 1"):
        evaluate("hold", SUITE, workers=0)
    with pytest.raises(FleetgymError, match="auto, always, never"):
        evaluate("hold", SUITE, isolate="maybe")
    with pytest.raises(FleetgymError, match="its class or an object"):
        evaluate([object()], SUITE)


def test_classes_and_objects_play() -> None:
    """A class, a function and an object play like the same agent by its name, as long as they stay in this process."""

    class Mine(Margin):
        """Is found in no module."""

    given = [Margin, Mine, Mine(), lambda: Margin(), "margin"]
    results = evaluate(given, "fleet-v0/toy/drop")
    names = ["fleetgym.baselines.margin:Margin", "Mine", "Mine-2", "<lambda>", "margin"]
    assert list(results.agents) == names
    frame = results.to_frame().set_index("agent")
    assert frame.failure.isna().all()
    assert frame.cost_usd.nunique() == 1
    assert results.header.in_process  # so nobody can submit it
    for options in ({"workers": 2}, {"isolate": "always"}, {"official": "reflex"}, {"resume": "night.jsonl"}):
        with pytest.raises(FleetgymError, match=r"Mine plays in this process only: .*file\.py:Mine$"):
            evaluate([Mine], "fleet-v0/toy/drop", **options)


def test_an_object_forgets_between_episodes() -> None:
    """Each episode has a copy; the caller's object is as it was."""

    class Counts:
        seen = 0

        def reset(self, view: fleetgym.View, *, seed: int) -> None:
            self.nothing = 0 * view.nvec

        def act(self, observation: object, info: object) -> np.ndarray:
            assert self.seen < 8  # windows of a toy
            self.seen += 1
            return self.nothing

    mine = Counts()
    assert not evaluate(mine, ["fleet-v0/toy/two-pools", "fleet-v0/toy/budget-pool"]).failures
    assert mine.seen == 0


def test_tables_of_results() -> None:
    """Results and scores print as tables, and become data frames with all that they hold."""
    results = evaluate(["hold", "gh"], SUITE)
    frame, table = results.to_frame(), fleetgym.score(results)
    assert len(frame) == len(results.episodes) == str(results).count("fleet-v0/toy/")
    assert frame.cost_usd.sum() == pytest.approx(sum(e.cost_usd for e in results.episodes))
    assert np.allclose(frame[list(COST_TERMS)].sum(axis=1), frame.cost_usd)
    assert list(table.to_frame().index) == [row.agent for row in table.rows]
    assert list(table.to_frame().score) == [row.score for row in table.rows]
    assert repr(table) == str(table)
    assert "6 of 6 episodes of hold, gh" in repr(results)
    for shown in (results, table):
        assert shown._repr_html_().startswith("<table")


def test_plan_works_on_the_nominal_window() -> None:
    """A planner by name, and an object."""
    from fleetgym.agents.registry import make_planner

    assert plan("fleet-v0/toy/drop", "gh").fleet.tolist() == [2, 0]
    assert plan("fleet-v0/toy/drop", make_planner("agh")).fleet.tolist() == [2, 0]
    with pytest.raises(FleetgymError, match="is no planner"):
        plan("fleet-v0/toy/two-pools", "hold")


@pytest.mark.parametrize("fleet", [[3, 0], [-1, 0], [1], [0.5, 0]])
def test_a_planner_whose_fleet_no_action_reaches_is_refused(fleet: list[float]) -> None:
    """More replicas than an action can ask for, fewer than none, a part of one, or of another instance."""

    class Wrong:
        def plan(self, snapshot: Snapshot) -> Plan:
            return Plan(fleet=np.array(fleet))

    with pytest.raises(DataError, match=r"\$\.fleet"):
        plan("fleet-v0/toy/drop", Wrong())


# -- stopping and going on


def test_resume_keeps_what_is_done(expected: str, tmp_path: Path) -> None:
    """From every possible torn length the file is completed to the same bytes."""
    path = tmp_path / "r.jsonl"
    random_lengths = random.Random(1)
    for length in [0, 10, len(expected), *(random_lengths.randrange(len(expected)) for _ in range(3))]:
        path.write_text(expected[:length])
        played: list[tuple[float, ...]] = []
        evaluate(AGENTS, SUITE, resume=path, progress=lambda *counts, into=played: into.append(counts))
        assert path.read_text() == expected
        assert len(played) == len(AGENTS) * len(SUITE) - max(0, expected[:length].count("\n") - 1)


def test_resume_keeps_the_timings_of_what_is_done(tmp_path: Path) -> None:
    """A run that was killed while it wrote a timing goes on: each episode has one, those done that they had."""
    path = tmp_path / "r.jsonl"
    done = evaluate(AGENTS, SUITE, out=path).episodes
    timings, lines = timings_path(path), path.read_text().splitlines(keepends=True)
    of_hold = [line for line in timings.read_text().splitlines(keepends=True) if '"hold"' in line]
    timings.write_text("".join(of_hold[:2]) + '{"act_cpu_s":[0.0')
    path.write_text("".join(lines[:3]))
    evaluate(AGENTS, SUITE, resume=path)
    found = read_results(path).episodes
    assert all(episode.timing is not None for episode in found)
    assert [episode.timing for episode in found[:2]] == [episode.timing for episode in done[:2]]


def test_resume_refuses_another_run(expected: str, tmp_path: Path) -> None:
    """Other jobs, another version, other instances: the file is left as it is."""
    path = tmp_path / "r.jsonl"
    path.write_text(expected)
    with pytest.raises(DataError, match="another list of jobs"):
        evaluate(AGENTS, SUITE, resume=path, seed=1)
    with pytest.raises(FleetgymError, match="exists"):
        evaluate(AGENTS, SUITE, out=path)
    path.write_text(expected.replace('"version":"', '"version":"9', 1))
    with pytest.raises(DataError, match="another version"):
        evaluate(AGENTS, SUITE, resume=path)
    hashes = fleetgym.load_instance(SUITE[0]).content_hash
    path.write_text(expected.replace(hashes, "0" * 64))
    with pytest.raises(DataError, match="another instances"):
        evaluate(AGENTS, SUITE, resume=path)
    installed = importlib.metadata.version("highspy")
    path.write_text(expected.replace(f'"highspy":"{installed}"', '"highspy":"1.0"', 1))
    with pytest.raises(DataError, match=rf"another set of libraries \(highspy 1\.0; this run: {installed}\)"):
        evaluate(AGENTS, SUITE, resume=path)
    header, _, episodes = expected.partition("\n")
    stated = json.loads(header)
    assert set(stated.pop("packages")) == {"numpy", "scipy", "numba", "highspy"}
    path.write_text(f"{canonical_json(stated)}\n{episodes}")  # as files were before headers said so
    assert evaluate(AGENTS, SUITE, resume=path).to_text().partition("\n")[2] == episodes


def test_edited_agents_do_not_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file holds episodes of one state of the code: the agent's file, modules that it imports, data they name."""
    monkeypatch.setattr("fleetgym.evaluation.run.preflight", lambda *_: None)  # which makes each state of it
    folder, path = tmp_path / "code", tmp_path / "r.jsonl"
    (folder / "parts").mkdir(parents=True)
    files = {
        "edited_agent.py": "import edited_helper\nMine, DATA = edited_helper.Mine, 'weights.txt'\n",
        "edited_helper.py": "from parts.hold import Mine\n",
        "parts/__init__.py": "",
        "parts/hold.py": "from fleetgym.baselines.hold import HoldAgent as Mine\n\nTABLE = 'table.csv'\n",
        "parts/table.csv": "1,2\n",
        "weights.txt": "0.5\n",
        "unused.py": "",
        "unused.txt": "",
    }
    for name, text in files.items():
        (folder / name).write_text(text)
    agent = f"{folder}/edited_agent.py:Mine"
    evaluate([agent], SUITE, out=path)
    whole = path.read_text()
    for name in files:
        path.write_text(whole[:-10])
        (folder / name).write_text(files[name] + "# edited\n")
        part = (
            "folder" if name.startswith("unused") else "code"
        )  # which the agent may load by a computed name
        with pytest.raises(DataError, match=rf"{part}_sha256: .* state of the (agents' code|files in)"):
            evaluate([agent], SUITE, resume=path)
        assert path.read_text() == whole[:-10]
        (folder / name).write_text(files[name])
    folder.rename(tmp_path / "moved")
    assert code_sha256(f"{tmp_path}/moved/edited_agent.py") in whole


@pytest.mark.slow
def test_an_edited_agent_plays_as_it_is_now(tmp_path: Path) -> None:
    """In a process that was kept, the new code plays; in this one, which cannot forget the old, it is refused."""
    path = tmp_path / "edited_between.py"
    text = (
        "import numpy as np\n\n\nclass Mine:\n    def reset(self, view, *, seed): self.view = view\n"
        "    def act(self, observation, info): return np.full(self.view.nvec.size, WANTED)\n\n\nWANTED = "
    )
    agent, played = f"{path}:Mine", {}
    with ThreadPoolExecutor(1) as pool:  # whose thread outlives a run
        for wanted in (0, 1):
            path.write_text(f"{text}{wanted}\n")
            (episode,) = evaluate([agent], "fleet-v0/toy/drop", executor=pool).episodes
            assert episode.failure is None
            played[wanted] = episode.actions
        pool.submit(close_agents).result()
    assert played[0] == ()
    assert played[1]
    evaluate([agent], "fleet-v0/toy/drop", isolate="never")
    path.write_text(f"{text}0\n")
    with pytest.raises(FleetgymError, match=r"edited_between\.py was edited since it was imported here"):
        evaluate([agent], "fleet-v0/toy/drop", isolate="never")


def test_agent_that_is_edited_while_it_is_imported(tmp_path: Path) -> None:
    """The checksum is never that of other code than what runs."""
    place = tmp_path / "edits_itself.py"
    place.write_text(
        "from pathlib import Path\n\nwith Path(__file__).open('a') as file:\n    file.write('# more')\n"
    )
    with pytest.raises(FleetgymError, match=r"edits_itself\.py, or what it uses beside it, was edited while"):
        load_target(f"{place}:Agent")


def test_what_is_parsed_is_what_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Python file is read once for its checksum, so that no other one is looked through."""
    place, beside = tmp_path / "reads_once.py", tmp_path / "beside_it.py"
    place.write_text("import beside_it\n")
    beside.write_text("")
    read, count = Path.read_bytes, collections.Counter[str]()

    def counted(path: Path) -> bytes:
        count[path.name] += 1
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", counted)
    monkeypatch.setattr(
        "fleetgym.agents.agent_code.file_sha256", lambda path: pytest.fail(f"{path} is read again")
    )
    assert code_sha256(str(place))
    assert count == {"reads_once.py": 1, "beside_it.py": 1}


def test_one_run_at_a_time_writes_a_file(expected: str, tmp_path: Path) -> None:
    """A second one is refused at once, and harms nothing."""
    path = tmp_path / "r.jsonl"

    def second(done: int, total: int, share: float) -> None:
        with pytest.raises(FleetgymError, match="is being written by another run"):
            evaluate(AGENTS, SUITE, resume=path)

    evaluate(AGENTS, SUITE, resume=path, progress=second)
    assert path.read_text() == expected


def test_a_file_in_any_order_is_finished_in_the_jobs_order(expected: str, tmp_path: Path) -> None:
    """Episodes stand in the order in which they came, until the run ends; no matter which are there."""
    path = tmp_path / "r.jsonl"
    header, *lines = expected.splitlines(keepends=True)
    for kept in (lines[2:] + lines[:1], lines[::-1]):
        path.write_text("".join([header, *kept]))
        assert len(read_results(path, allow_incomplete=True).episodes) == len(kept)
        with pytest.raises(DataError, match="finish .* with --resume"):
            read_results(path)
        evaluate(AGENTS, SUITE, resume=path)
        assert path.read_text() == expected
    path.write_text(header + lines[0].replace('"seed":0', '"seed":1'))
    with pytest.raises(FleetgymError, match="line 2 is no episode of this run"):
        evaluate(AGENTS, SUITE, resume=path)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_killed_run_goes_on_to_the_same_bytes(tmp_path: Path, workers: int) -> None:
    """SIGKILL at a random moment, several times over, then finish: an uninterrupted run's bytes."""
    agents, path = [agent("Slow"), "random", agent("Slow") + "()"], tmp_path / "r.jsonl"
    whole = evaluate(agents, SUITE).to_text()
    script = tmp_path / "run.py"
    script.write_text(
        "from fleetgym.evaluation.run import evaluate\n"
        f"if __name__ == '__main__':\n    evaluate({agents!r}, {SUITE!r}, resume={str(path)!r}, workers={workers})\n"
    )
    moments = random.Random(workers)
    for _ in range(3):
        run = subprocess.Popen([sys.executable, str(script)], start_new_session=True)
        time.sleep(moments.uniform(1.0, 4.0))
        os.kill(run.pid, signal.SIGKILL)
        run.wait()
    subprocess.run([sys.executable, str(script)], check=True)
    assert path.read_text() == whole


def test_jobs_are_in_canonical_order() -> None:
    """By agent, instance, scenario, as given."""
    jobs = make_jobs(["random", "hold"], SUITE)
    assert [(j.agent, j.instance) for j in jobs] == [(a, i) for a in ("random", "hold") for i in SUITE]
    assert math.prod((2, len(SUITE))) == len(jobs)


def test_one_command_lists_jobs_and_makes_agents_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many of its steps need them."""
    from fleetgym.cli import main
    from fleetgym.evaluation import run
    from fleetgym.evaluation.isolation import preflight

    listed, made = Mock(wraps=run.make_jobs), Mock(wraps=preflight._make_here)
    monkeypatch.setattr(run, "make_jobs", listed)
    monkeypatch.setattr(preflight, "_make_here", made)
    assert main(["compare", "hold", "gh", "--suite", SUITE[0], "--out", str(tmp_path / "r.jsonl")]) == 0
    assert (listed.call_count, made.call_count) == (1, 2)
