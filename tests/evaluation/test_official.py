"""Official runs: whatever an agent does costs one episode or its budget, and it sees nothing that it must not see."""

from __future__ import annotations

import ctypes
import dataclasses
import json
import mmap
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import official_agents
import plain_agents
import pytest
from law_sets import NAME, make_set
from official_agents import WINDOW, agent
from submissions import RULES

import fleetgym
from fleetgym.evaluation import jobs, run
from fleetgym.evaluation.isolation import calibration_work, official, sandbox
from fleetgym.evaluation.isolation.agent_process import AgentProcess, Limits
from fleetgym.evaluation.isolation.agent_runner import AgentFailure
from fleetgym.evaluation.isolation.calibration import calibration, machine_name
from fleetgym.evaluation.isolation.process_tree import ProcessTree
from fleetgym.evaluation.isolation.rules import ISOLATED, PROTOCOL, Rules
from fleetgym.evaluation.isolation.sandbox import check_box
from fleetgym.evaluation.isolation.wire import MAX_REPLY_CHARS, read_reply
from fleetgym.evaluation.jobs import Job, close_agents, play_actions, run_job
from fleetgym.evaluation.recording import make_header
from fleetgym.evaluation.results import Results, read_results, timings_path
from fleetgym.evaluation.results_format import stated
from fleetgym.files.documents import write_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.schema import read_object, to_jsonable

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="official runs need Linux")

TOY = "fleet-v0/toy/startup"

#: agent, kind of failure (None: its budget is spent), part of the message
BAD: list[tuple[str, str | None, str]] = [
    ("burns", None, ""),
    ("burns_in_children", None, ""),
    ("burns_in_orphans", None, ""),
    ("burns_in_short_children", None, ""),
    ("sleeps", "timeout", "no answer within 3 times the CPU seconds allowed"),
    ("grows_without_end", "resources", "took over 0.5 GB of memory"),
    ("children_grow", "resources", "took over 0.5 GB of memory"),
    ("forks_without_end", "resources", "ran over 64 processes at a time"),
    ("kills_itself", "died", "SIGKILL"),
    ("kills_all", "died", "exit code 7"),
    ("ends_by_an_odd_signal", "died", "signal 37"),
    ("leaves_a_child", "died", "exit code 5"),
]
#: The same for Python agents, which try to write to the pipes of the protocol.
BAD_IN_PYTHON = [
    ("AsksTooMuch", "raised", "MemoryError"),
    ("WritesGarbage", "protocol", "wrote something else"),
    ("GuessesANumber", "protocol", "does not answer the request"),
    ("WritesAHugeLine", "protocol", "a line of over 1048576 characters"),
    ("WritesLinesWithoutEnd", "protocol", "does not answer the request"),
]


@pytest.fixture(scope="module", autouse=True)
def box() -> None:
    """Skip where this machine cannot make the box."""
    try:
        check_box()
    except FleetgymError as error:
        pytest.skip(str(error))


def make_rules(**changes: Any) -> Rules:
    """Return rules under which a bad agent does not take long."""
    rules = Rules(
        protocol=PROTOCOL,
        time_class="reflex",
        cpu_s=1.0,
        reset_cpu_s=30.0,
        wall_factor=30.0,
        memory_gb=0.5,
        machine=machine_name(),
        speed=1.0,
        **ISOLATED,
    )
    return dataclasses.replace(rules, **changes)


def play(name: str, instance: str = TOY, **changes: Any) -> Any:
    """Return the episode of an agent of `official_agents`."""
    return run_job(Job(agent(name), instance, 0), official=make_rules(**changes))


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `evaluate` play by `make_rules`, on a machine whose speed need not be measured."""
    monkeypatch.setattr(run, "make_rules", lambda time_class, agents: make_rules(time_class=time_class))
    monkeypatch.setattr("fleetgym.evaluation.isolation.calibration.drift", lambda reference: 0.01)


# -- misbehaviour


@pytest.mark.parametrize(("name", "kind", "message"), BAD)
def test_misbehaviour_costs_the_episode_or_the_budget(
    name: str, kind: str | None, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told apart, at the right window, and the stored actions give the official cost exactly."""
    monkeypatch.setattr(official, "agent_command", lambda _: _plain(name))
    # where neither the budget nor its multiple of wall time is to end it, a slow machine's does not either
    changes = {None: {}, "timeout": {"wall_factor": 3.0}}.get(kind, {"cpu_s": 10.0})
    _assert_ends(run_job(_plain_job(), official=make_rules(**changes)), kind, message)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0, 4, 8])
def test_load_fails_no_honest_agent(load: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that takes three quarters of its CPU budget now is done within it under load, and waiting is free."""
    begin = time.process_time()
    plain_agents.count(5_000_000)
    steps = int(0.75 * 5_000_000 / (time.process_time() - begin))
    monkeypatch.setattr(official, "agent_command", lambda _: [*_plain("works"), str(steps)])
    spin = [sys.executable, "-I", "-S", "-c", "while True: pass"]
    others = [subprocess.Popen(spin, start_new_session=True) for _ in range(load * (os.cpu_count() or 1))]
    try:
        episode = run_job(_plain_job(), official=make_rules(wall_factor=3.0))
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert episode.failure is None
    assert episode.budget_spent_at_window is None
    assert episode.timing.acting_s > 0.3  # this machine may be loaded already, and at most half is taken off


@pytest.mark.parametrize(("name", "kind", "message"), BAD_IN_PYTHON)
def test_misbehaviour_in_python(name: str, kind: str, message: str) -> None:
    """The channel of the protocol is out of the agent's reach, or what it writes there is told apart."""
    _assert_ends(play(name, cpu_s=10.0), kind, message)


def _plain(name: str) -> list[str]:
    return [sys.executable, "-I", "-S", plain_agents.__file__, name]


def _plain_job() -> Job:
    return Job(f"{plain_agents.__file__}:main", TOY, 0)


def _assert_ends(episode: Any, kind: str | None, message: str) -> None:
    if kind is None:
        assert episode.failure is None
        assert episode.budget_spent_at_window == WINDOW
    else:
        assert episode.budget_spent_at_window is None
        assert (episode.failure.window, episode.failure.kind) == (WINDOW, kind)
        assert message in episode.failure.message
    _assert_replays(episode)


def _assert_replays(episode: Any) -> None:
    instance = fleetgym.load_instance(episode.instance)
    header = make_header([Job(*episode.key)], "toy")
    actions = Results(header, (episode,)).actions(episode)
    again = play_actions(episode.instance, 0, actions)
    assert again.costs == episode.costs
    assert again.cost_per_window_usd == episode.cost_per_window_usd
    assert actions.shape == (instance.num_windows, len(instance.slots))


def test_what_starts_goes_on_when_the_budget_is_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The running fleet stays, and so do replicas that were asked for and do not serve yet."""

    class Spent:
        """Asks for a second replica, which takes two windows to start, and never answers again."""

        speed = 1.0

        def __init__(self, *_: object):
            pass

        def reset(self, *_: object) -> float:
            return 0.0

        def act(self, _: object, info: dict[str, Any]) -> tuple[list[int], float]:
            if info["window"] == 2:
                assert (info["running"].tolist(), info["starting"].sum()) == ([1], 1)
                raise official.BudgetSpent(1.5)
            return [1 + info["window"]], 0.0

        def close(self) -> None:
            pass

    monkeypatch.setattr(jobs, "OfficialAgent", Spent)
    episode = run_job(Job("hold", "fleet-v0/toy/startup", 0), official=RULES)
    assert episode.budget_spent_at_window == 2
    assert episode.actions == ((0, 0, 1), (1, 0, 2))
    assert episode.timing is not None
    assert episode.timing.act_cpu_s == (0.0, 0.0, 1.5)  # what spent the budget counts
    assert episode.decisions(10) == 3


@pytest.mark.slow
def test_a_run_of_bad_agents_leaves_the_good_ones_unharmed(quick: None, tmp_path: Path) -> None:
    """Between bad neighbours a good agent plays what it plays alone, and the file can be read back."""
    names = [agent(n) for n in ("Good", "KillsItself", "PrintsALot")] + ["gh"]
    results = fleetgym.evaluate(names, TOY, official="reflex", out=tmp_path / "r.jsonl")
    assert [e.failure is not None for e in results.episodes] == [False, True, False, False]
    for episode in results.episodes:
        if episode.failure is None:
            assert episode.to_line() == run_job(Job(*episode.key), "never").to_line()
    back = read_results(tmp_path / "r.jsonl")
    assert back.to_text() == results.to_text()
    assert back.header.official == make_rules()
    assert [c.moment for c in back.speed_checks] == ["before", "after"]
    assert not back.has_drifted
    timing = back.episodes[0].timing
    assert timing is not None
    assert 0.5 <= timing.speed <= 1.0


def test_an_agent_that_acts_by_hashes_repeats() -> None:
    """Hashes of words and addresses of objects are the same in every official run."""
    first, second, third = (play("ActsByHashes") for _ in range(3))
    assert first.failure is None
    assert first.actions == second.actions == third.actions


def test_caches_can_be_dropped_before_each_episode(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """If the variable says so; the rules say what was done, and whoever may not drop them is told before the run."""
    monkeypatch.setattr(official, "_DROP", tmp_path / "drop_caches")
    monkeypatch.setattr(official, "find_facts", lambda agents: ISOLATED)
    assert official.make_rules("reflex").caches == "kept"
    play("Good", caches="kept")
    assert not (tmp_path / "drop_caches").exists()
    assert play("Good", caches="dropped").failure is None  # whatever a worker's environment says
    assert (tmp_path / "drop_caches").read_text() == "3"
    monkeypatch.setenv(official.DROP_VARIABLE, "1")
    assert official.make_rules("reflex").caches == "dropped"
    monkeypatch.setattr(official, "_DROP", tmp_path / "nowhere" / "drop_caches")
    with pytest.raises(FleetgymError, match="FLEETGYM_DROP_CACHES needs root: cannot write to"):
        official.make_rules("reflex")


def test_rules_of_before_say_nothing_of_caches() -> None:
    """Their files are read, and written again, as they are."""
    before = to_jsonable(make_rules())
    before.pop("caches", None)
    found = read_object(Rules, before)
    assert found.caches is None
    assert stated(found) == before


@pytest.mark.slow
def test_dropped_caches_tell_nothing(tmp_path: Path) -> None:
    """Neither which files were read, nor which names were asked for that do not exist."""
    if not official.can_drop_caches():
        pytest.skip("only root may drop the kernel's caches")
    file, libc = tmp_path / "read", ctypes.CDLL(None)
    file.write_bytes(bytes(2**20))
    os.sync()

    def kept() -> tuple[int, int]:
        """Return the file's pages and the missing names that the kernel has at hand."""
        with file.open("r+b") as stream, mmap.mmap(stream.fileno(), 0) as pages:
            found = (ctypes.c_ubyte * (len(pages) // mmap.PAGESIZE))()
            start = ctypes.c_void_p(ctypes.addressof(ctypes.c_byte.from_buffer(pages)))
            assert libc.mincore(start, ctypes.c_size_t(len(pages)), found) == 0
            return sum(page & 1 for page in found), int(
                Path("/proc/sys/fs/dentry-state").read_text().split()[4]
            )

    for number in range(5000):
        assert not (tmp_path / f"missing-{number}").exists()
    file.read_bytes()
    pages, names = kept()
    assert pages == 2**20 // mmap.PAGESIZE
    official.drop_caches()
    left_pages, left_names = kept()
    assert left_pages == 0
    assert left_names < names - 4000


def test_when_the_budget_is_spent_the_running_fleet_stays() -> None:
    """From that window on each target is what ran and started before, also when reset took it all."""
    burnt = play("Burns", "fleet-v0/toy/two-pools")
    good = run_job(Job(agent("Good"), "fleet-v0/toy/two-pools", 0), "never")
    assert burnt.budget_spent_at_window == WINDOW
    assert (burnt.actions, burnt.cost_usd) == (good.actions, good.cost_usd)
    in_reset = play("BurnsInReset", "fleet-v0/toy/two-pools", reset_cpu_s=2.0)
    assert in_reset.budget_spent_at_window == 0
    assert in_reset.actions == good.actions


def test_work_behind_the_runs_back_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child that goes on after the answer spends the budget of the windows after."""
    monkeypatch.setattr(official, "agent_command", lambda _: _plain("burns_behind_answers"))
    episode = run_job(_plain_job(), official=make_rules(cpu_s=0.7))
    assert episode.failure is None
    assert episode.budget_spent_at_window > WINDOW


def test_the_budget_is_in_reference_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine six times as fast as the reference, a sixth of the CPU seconds is all there is."""
    monkeypatch.setattr(official, "agent_command", lambda _: _plain("burns"))
    episode = run_job(_plain_job(), official=make_rules(cpu_s=3.0, speed=6.0))
    assert episode.budget_spent_at_window == WINDOW
    assert 0.5 <= sum(episode.timing.act_cpu_s) < 2.0  # with what was used until it was noticed


@pytest.mark.parametrize(
    ("name", "times", "is_spent"),
    [("uses_more", 1.0, True), ("uses_more", 1.5, False), ("burns_behind_answers", 1.5, True)],
)
def test_a_slower_machine_takes_nothing_from_the_budget(
    name: str, times: float, is_spent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CPU seconds count as fewer where the machine is slower than calibrated, unless the agent works meanwhile."""
    monkeypatch.setattr(official, "agent_command", lambda _: _plain(name))
    monkeypatch.setattr(calibration_work, "sample_s", lambda: times * calibration().sample_s)
    monkeypatch.setattr(official, "_COMPARE_EVERY_S", 0.01)
    episode = run_job(_plain_job(), official=make_rules())
    assert (episode.budget_spent_at_window is not None) == is_spent
    if name == "uses_more":
        assert episode.timing.speed == pytest.approx(1.0 / times)


def test_nothing_is_left_when_the_run_is_killed() -> None:
    """SIGKILL to the run ends all that is in the box."""
    rules = dataclasses.asdict(make_rules(cpu_s=100.0))
    script = (
        "from fleetgym.evaluation.isolation import official\n"
        "from fleetgym.evaluation.jobs import *; from fleetgym.evaluation.results_format import Rules\n"
        f"official.agent_command = lambda _: {_plain('sleeps')!r}\n"
        f"run_job({_plain_job()!r}, official=Rules(**{rules!r}))"
    )
    parent = subprocess.Popen([sys.executable, "-c", script])
    tree = ProcessTree(parent.pid)
    try:
        _until(lambda: len(tree.processes()) >= 4, 60)
        started = tree.processes()[1:]
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    _until(lambda: not any(_runs(pid) for pid in started), 10)


def _until(holds: Any, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# -- what an agent can see


def test_more_can_be_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `FLEETGYM_HIDE` names is out of the agent's sight; what is not there is passed over."""
    (seed := tmp_path / "seed").write_text("42")
    monkeypatch.setenv("FLEETGYM_HIDE", f"{seed}:{tmp_path}/nothing:")
    assert str(seed) in official.hidden_files()
    assert str(tmp_path / "nothing") not in official.hidden_files()
    spy = agent("Spy") + f"(secret={str(seed)!r}, parent={os.getpid()})"
    episode = run_job(Job(spy, TOY, 0), official=make_rules())
    assert episode.failure is None


def test_an_agent_finds_no_secrets(tmp_path: Path) -> None:
    """No scenarios, no network, no other process; it may write to its own folder only, and undo nothing of this."""
    instance, scenarios = _own_instance(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        arguments = {"secret": str(scenarios), "port": server.getsockname()[1], "parent": os.getpid()}
        spy = official_agents.Spy(**arguments)  # out here it does find what there is
        assert all(look() for look in (spy.scenarios, spy.file, spy.network, spy.neighbours, spy.signals))
        words = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
        job = Job(f"{agent('Spy')}({words})", str(instance), 0)
        episode = run_job(job, official=make_rules())
        assert not (tmp_path / "written.txt").exists()
        assert episode.failure is None


@pytest.mark.slow
def test_an_agent_finds_no_law(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an instance that hides it: not by the API, in files, in memory or by the generator; out here it does."""
    told, public, _ = make_set(tmp_path, secrets.randbits(60))
    monkeypatch.setenv("FLEETGYM_INSTANCES", str(tmp_path))
    seeker = official_agents.SeeksTheLaw(NAME)
    seeker.view = fleetgym.View(public)
    assert [one.dynamics for one in seeker.by_the_api()] == [told.dynamics] * 2
    assert seeker.days()
    assert seeker.memory()
    rules = make_rules(reset_cpu_s=100.0, memory_gb=2.0)
    episode = run_job(Job(f"{agent('SeeksTheLaw')}(name={NAME!r})", NAME, 0), official=rules)
    assert episode.failure is None


def _own_instance(folder: Path) -> tuple[Path, Path]:
    instance = fleetgym.load_instance(TOY)
    write_json(folder / "mine.json", instance.to_dict())
    scenarios = folder / "mine.scenarios.json"
    stored = fleetgym.model.sets.instances_folder() / "fleet-v0" / "toy" / "startup.scenarios.json"
    scenarios.write_bytes(stored.read_bytes())
    return folder / "mine.json", scenarios


def test_the_wire_carries_the_past_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages have the documented keys, and no number of a window that has not been seen."""
    sent: list[str] = []
    from fleetgym.evaluation.isolation import agent_process

    def note(message: Any) -> str:
        sent.append(json.dumps(message) + "\n")
        return sent[-1]

    monkeypatch.setattr(agent_process, "to_line", note)
    task = "fleet-v0/dev/ou-s-001"
    instance, (scenario, *_) = fleetgym.load_instance(task), fleetgym.load_scenarios(task)
    run_job(Job("hold", task, 0), "always")
    close_agents()
    reset, first, *later = (json.loads(line) for line in sent)
    assert set(reset) == {"do", "id", "protocol", "agent", "instance", "info", "seed"}
    assert reset["instance"] == instance.to_dict()
    assert set(first) == {"do", "id", "observation", "info"}
    assert "scenario" not in {**reset["info"], **first["info"]}
    assert len({m["id"] for m in (reset, first, *later)}) == instance.num_windows + 1
    rates = scenario.expanded(instance.num_windows).rate_rps
    assert instance.lead == 1
    known = _numbers(sent[0])
    for window in range(0, instance.num_windows, 40):
        past, future = (set(part.ravel().tolist()) for part in (rates[:window], rates[window:]))
        assert len(future - past - known) > 10
        assert not (future - past - known) & _numbers(sent[1 + window])
        if window:
            told = json.loads(sent[1 + window])["info"]["rate_rps"]["array"]
            assert told == rates[window - 1].tolist()


def test_ctrl_c_leaves_no_lock_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python's own queues would, if it comes as they take it; closing the agent would then wait for ever."""
    agent = AgentProcess("hold", Limits())
    env = gymnasium.make("FleetAlloc-v0", instance="fleet-v0/toy/two-pools")
    observation, info = env.reset(options={"scenario": 0})
    instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    try:
        agent.reset(instance, info, 0)

        def interrupted(condition: threading.Condition) -> None:
            if threading.current_thread() is threading.main_thread():
                raise AssertionError("Ctrl-C here would leave the lock held")
            enter(condition)

        enter = threading.Condition.__enter__
        monkeypatch.setattr(threading.Condition, "__enter__", interrupted)
        assert agent.act(observation, info)[0]
    finally:
        agent.close()


def _numbers(text: str) -> set[float]:
    return {float(number) for number in re.findall(r"-?[0-9]+(?:\.[0-9]+)?(?:e-?[0-9]+)?", text)}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("", "not JSON"),
        ("[1]", "does not answer the request"),
        ('{"id": 2}', "does not answer the request"),
        ('{"id": true}', "does not answer the request"),
        ('{"id": 1, "cpu_s": -1}', "no number of seconds"),
        ('{"id": 1, "cpu_s": NaN}', "NaN is not a number"),
        ('{"id": 1, "id": 1}', "twice"),
        ("[" * 100_000, "nested too deeply"),
        ("9" * 10_000, "not JSON"),
        ("x" * MAX_REPLY_CHARS, "a line of over"),
    ],
)
def test_replies_that_are_none(line: str, message: str) -> None:
    """Each is a failure of the protocol that says why."""
    with pytest.raises(AgentFailure, match=message) as caught:
        read_reply(line, 1)
    assert caught.value.kind == "protocol"


def test_a_reply_may_say_that_the_agent_failed() -> None:
    """Kinds of failure are those of results files."""
    for kind, read in (("raised", "raised"), ("sulked", "protocol")):
        with pytest.raises(AgentFailure) as caught:
            read_reply(json.dumps({"id": 1, "kind": kind, "message": "m"}), 1)
        assert (caught.value.kind, caught.value.message) == (read, "m")


# -- programs of any language

SHELL_AGENT = r"""#!/bin/sh
while read -r line; do
    id=$(printf '%s' "$line" | sed 's/^{"do": "[a-z]*", "id": \([0-9]*\),.*/\1/')
    echo "{\"id\": $id, \"action\": [1, 1]}"
done
"""


def test_a_shell_script_is_an_agent(tmp_path: Path) -> None:
    """Twenty words of shell play an official episode, and the same without its rules."""
    script = tmp_path / "agent.sh"
    script.write_text(SHELL_AGENT)
    name = f"fleetgym.evaluation.isolation.program:Program(command='sh {script}')"
    task = "fleet-v0/toy/two-pools"
    free = run_job(Job(name, task, 0), "never")
    assert free.failure is None
    assert free.cost_usd == play_actions(task, 0, np.tile([1, 1], (8, 1))).cost_usd
    assert run_job(Job(name, task, 0), official=make_rules()).to_line() == free.to_line()


def test_a_program_that_ends_or_talks_nonsense(tmp_path: Path) -> None:
    """It fails its episode, with what happened and of what kind that is, which it may say itself."""
    (tmp_path / "sorry.sh").write_text(
        SHELL_AGENT.replace(r"\"action\": [1, 1]", r"\"kind\": \"resources\", \"message\": \"gave up\"")
    )
    for command, kind, message in (
        ("false", "died", "the program ended with exit code 1"),
        ("no-such-program-anywhere", "raised", "cannot start"),
        ("yes nonsense", "protocol", "wrote something else"),
        (f"sh {tmp_path}/sorry.sh", "resources", "gave up"),
    ):
        name = f"fleetgym.evaluation.isolation.program:Program(command='{command}')"
        episode = run_job(Job(name, TOY, 0), "never")
        assert episode.failure is not None
        assert episode.failure.kind == kind
        assert message in episode.failure.message


# -- rules and files


def test_official_runs_without_a_box_are_refused(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where bubblewrap or libseccomp is missing, or fails, the run says so; other isolated agents need none of them."""
    from fleetgym.cli import main

    call = ["evaluate", agent("Good"), "--suite", TOY, "--out", str(tmp_path / "r.jsonl")]
    monkeypatch.setattr(run, "make_rules", official.make_rules)
    monkeypatch.setattr(sandbox, "load_seccomp", lambda: ctypes.CDLL("libseccomp-of-nobody.so"))
    assert main([*call, "--official", "reflex"]) == 2
    assert "install it, for example by `apt-get install libseccomp2`" in capsys.readouterr().err
    (tmp_path / "bwrap").write_text("#!/bin/sh\necho 'no permission to make namespaces' >&2\nexit 1\n")
    (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sandbox, "load_seccomp", lambda: None)
    assert main([*call, "--official", "reflex"]) == 2
    assert "(no permission to make namespaces); docs/official-runs.md says" in capsys.readouterr().err
    (tmp_path / "bwrap").unlink()
    assert main([*call, "--official", "reflex"]) == 2
    assert "install it, for example by `apt-get install bubblewrap`" in capsys.readouterr().err
    assert not (tmp_path / "r.jsonl").exists()
    assert main([*call, "--isolate", "always"]) == 0
    assert read_results(tmp_path / "r.jsonl").failures == ()


def test_rules_that_are_wrong_are_refused(quick: None, tmp_path: Path) -> None:
    """No such class; another speed or class when a run is resumed."""
    with pytest.raises(FleetgymError, match="expected one of reflex, online, offline"):
        official.make_rules("relaxed")
    path = tmp_path / "r.jsonl"
    fleetgym.evaluate("hold", TOY, official="reflex", out=path)
    with pytest.raises(DataError, match="another set of rules"):
        fleetgym.evaluate("hold", TOY, official="online", resume=path)
    with pytest.raises(DataError, match="another set of rules"):
        fleetgym.evaluate("hold", TOY, resume=path)


def test_a_budget_needs_rules(tmp_path: Path) -> None:
    """A file that claims a spent budget without an official header, or beside a failure, is refused."""
    results = fleetgym.evaluate(agent("Good"), TOY, isolate="never")
    (episode,) = results.episodes
    header = dataclasses.replace(results.header, official=make_rules())
    spent = dataclasses.replace(episode, budget_spent_at_window=3)
    path = tmp_path / "r.jsonl"
    for bad_header, window, message in (
        (results.header, 3, "names no rules"),
        (header, 2000, "expected a window from 0 to"),
        (header, -1, "whole number"),
    ):
        bad = dataclasses.replace(spent, budget_spent_at_window=window)
        path.write_text(Results(bad_header, (bad,)).to_text())
        with pytest.raises(DataError, match=message):
            read_results(path)
    path.write_text(Results(header, (spent,)).to_text())
    assert read_results(path).episodes == (spent,)


def test_drift_is_marked(quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that is slower after than before: the run says so, wherever its file goes."""
    found = iter([0.0, -0.3])
    monkeypatch.setattr("fleetgym.evaluation.isolation.calibration.drift", lambda reference: next(found))
    path = tmp_path / "r.jsonl"
    results = fleetgym.evaluate("hold", TOY, official="reflex", out=path)
    assert results.has_drifted
    assert read_results(path).has_drifted
    assert '"drift":-0.3' in timings_path(path).read_text()
    fleetgym.evaluate("hold", TOY, official="reflex", resume=path)  # nothing to do: nothing measured


@pytest.mark.slow
def test_the_command_line_plays_officially(
    quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The words are passed on, and a spent budget is told."""
    from fleetgym.cli import main

    out = ["--out", str(tmp_path / "r.jsonl")]
    assert main(["evaluate", agent("Burns"), "--suite", TOY, "--official", "reflex", *out]) == 0
    assert "budget spent in 1 episode, whose fleet then stayed" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["evaluate", "hold", "--official", "relaxed"])


@pytest.mark.slow
def test_an_official_run_from_calibration_to_score(tmp_path: Path) -> None:
    """With this machine's calibration, two workers write the bytes of one."""
    texts = []
    for workers in (1, 2):
        path = tmp_path / f"{workers}.jsonl"
        suite = ["fleet-v0/toy/drop", "fleet-v0/toy/two-pools"]
        fleetgym.evaluate(["gh", agent("Good")], suite, official="online", workers=workers, out=path)
        texts.append(path.read_text())
        assert len(read_results(path).speed_checks) == 2
    assert texts[0] == texts[1]
    assert json.loads(texts[0].split("\n", 1)[0])["official"]["time_class"] == "online"
