"""Whatever an agent does, it costs one flagged episode, and the rest of the run is unharmed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from places import TESTS
from sample_agents import WINDOW, agent

from fleetgym.evaluation.isolation.agent_process import Limits
from fleetgym.evaluation.jobs import Job, close_agents, play_actions, run_job
from fleetgym.evaluation.results import Results
from fleetgym.evaluation.run import evaluate, make_jobs, play_jobs
from fleetgym.files.errors import FleetgymError

TOY = "fleet-v0/toy/startup"

#: agent, kind of failure, part of the message
FAILURES = [
    ("Raises", "raised", "ValueError: no idea what to do with <object object at 0x...> (sample_agents.py:"),
    ("SaysNan", "invalid-action", "expected an option from 0 to"),
    ("SaysTooMuch", "invalid-action", "expected an option from 0 to"),
    ("SaysNothing", "invalid-action", "whole numbers"),
    ("WrongShape", "invalid-action", "whole numbers"),
    ("Ragged", "invalid-action", "not an array"),
    ("Sleeps", "timeout", "took over 2 s of wall time for one answer"),
    ("Exits", "died", "exit code 3"),
    ("ExitsPolitely", "raised", "SystemExit: 4"),
    ("KillsItself", "died", "SIGKILL"),
    ("EatsMemory", "raised", "MemoryError"),
]


@pytest.fixture(scope="module")
def run() -> Results:
    """One run with every bad agent, and good ones before, between and after; all are known to be made."""
    names = [agent(name) for name, _, _ in FAILURES]
    names = [agent("Good"), *names[:5], agent("Dice"), *names[5:], agent("make_good")]
    return play_jobs(make_jobs(names, TOY), TOY, limits=Limits(act_wall_s=2.0, memory_gb=8.0))


@pytest.mark.parametrize(("name", "kind", "message"), FAILURES)
def test_each_failure_is_one_flagged_episode(run: Results, name: str, kind: str, message: str) -> None:
    """The kind, the window and the cause are in the result."""
    (episode,) = [e for e in run.episodes if e.agent == agent(name)]
    assert episode.failure is not None
    assert (episode.failure.window, episode.failure.kind) == (WINDOW, kind)
    assert message in episode.failure.message


def test_the_others_are_unharmed(run: Results) -> None:
    """Good agents in the same run fail nowhere, and cost what they cost alone."""
    assert len(run.failures) == len(FAILURES)
    (good,) = [e for e in run.episodes if e.agent == agent("Good")]
    assert good.cost_usd == run_job(Job(agent("Good"), TOY, 0), isolate="never").cost_usd


def test_a_failed_agent_runs_the_empty_fleet(run: Results) -> None:
    """From the failure on every option is 0, and the cost is that of those actions."""
    episode = next(e for e in run.episodes if e.agent == agent("Raises"))
    actions = run.actions(episode)
    assert actions[:WINDOW].any()
    assert not actions[WINDOW:].any()
    assert play_actions(TOY, 0, actions).cost_usd == episode.cost_usd


def test_failures_are_the_same_in_this_process(run: Results) -> None:
    """An agent that raises or answers nonsense gives the same bytes with and without isolation."""
    isolated = {episode.agent: episode for episode in run.episodes}
    isolated[agent("FailsInReset")] = run_job(Job(agent("FailsInReset"), TOY, 0), "always")
    close_agents()
    for name in ("Raises", "SaysNan", "SaysNothing", "WrongShape", "Ragged", "ExitsPolitely", "FailsInReset"):
        alone = run_job(Job(agent(name), TOY, 0), "never")
        assert alone.to_line() == isolated[agent(name)].to_line(), name


def test_failure_in_reset_costs_the_whole_episode() -> None:
    """The empty fleet runs from window 0."""
    episode = run_job(Job(agent("FailsInReset"), TOY, 0), "never")
    assert episode.failure is not None
    assert (episode.failure.window, episode.actions) == (0, ())


def test_an_agent_that_cannot_be_made_is_refused_before_the_run(tmp_path: Path) -> None:
    """It would fail every episode: the error says why and where, nothing is written, and an edit is seen."""
    out, broken = tmp_path / "r.jsonl", tmp_path / "broken.py"
    broken.write_text("import no_such_module\n")
    with pytest.raises(
        FleetgymError, match=r"broken\.py:Agent'.*No module named 'no_such_module' \(broken\.py:1"
    ):
        evaluate([agent("Good"), f"{broken}:Agent"], TOY, out=out)
    assert not out.exists()
    broken.write_text((TESTS / "sample_agents.py").read_text())
    assert evaluate(f"{broken}:Good", TOY, out=out).failures == ()
    with pytest.raises(FleetgymError, match="marginn"):
        evaluate("gh(marginn=1)", TOY)


def test_an_import_error_where_the_agent_plays_is_a_failed_episode(tmp_path: Path) -> None:
    """As on a worker that lacks a package."""
    (tmp_path / "broken.py").write_text("import no_such_module\n")
    failure = run_job(Job(f"{tmp_path}/broken.py:Agent", TOY, 0), "always").failure
    close_agents()
    assert failure is not None
    assert "No module named 'no_such_module' (broken.py:1" in failure.message


def test_prints_do_not_break_the_protocol() -> None:
    """Standard output is the agent's own: what it prints goes to stderr."""
    chatty, good = (run_job(Job(agent(name), TOY, 0), "always") for name in ("Chatty", "Good"))
    assert chatty.failure is None
    assert chatty.cost_usd == good.cost_usd
    close_agents()


def test_a_vandal_harms_nobody_but_itself() -> None:
    """An agent that overwrites whatever public names reach changes neither the episode nor its record, nor the next."""
    good, vandal, after = (run_job(Job(agent(name), TOY, 0), "never") for name in ("Good", "Vandal", "Good"))
    assert vandal.failure is None
    assert (vandal.costs, vandal.miss_share) == (good.costs, good.miss_share)
    assert after.to_line() == good.to_line()


@pytest.mark.slow
def test_every_episode_has_a_fresh_agent_and_a_dead_one_is_replaced() -> None:
    """One process serves all episodes of an agent; each gets a new object; after a death a new process starts."""
    run = evaluate([agent("Hoarder"), agent("Picky")], "fleet-v0/toy")
    failed = [(e.agent, e.instance) for e in run.failures]
    assert failed == [(agent("Picky"), "fleet-v0/toy/drop")]


def test_episode_limit_counts_all_answers() -> None:
    """Answers that are each in time may together take too long."""
    episode = run_job(Job(agent("Busy"), TOY, 0), "always", Limits(episode_wall_s=0.2))
    close_agents()
    assert episode.failure is not None
    assert episode.failure.kind == "timeout"
    assert "for the episode" in episode.failure.message


@pytest.mark.slow
def test_a_worker_that_dies_costs_one_episode() -> None:
    """Without isolation the agent takes its worker along: only its own episode is marked, the others are replayed."""
    names = [agent("Good"), agent("KillsItself"), agent("Dice")]
    crashed = evaluate(names, TOY, isolate="never", workers=2)
    isolated = evaluate(names, TOY, isolate="always")
    assert [e.agent for e in crashed.failures] == [agent("KillsItself")]
    assert crashed.episodes == isolated.episodes


def test_the_agents_process_ends_with_its_parent(tmp_path: Path) -> None:
    """Killing the run leaves no agent behind, even one that hangs."""
    file = tmp_path / "pid"
    script = (
        "from fleetgym.evaluation.jobs import *;"
        f"run_job(Job({agent('TellsPid')!r} + '(file={str(file)!r})', {TOY!r}, 0))"
    )
    script = script.replace(f"(file={str(file)!r})", f'(file="{file}")')
    parent = subprocess.Popen([sys.executable, "-c", script])
    try:
        _until(lambda: file.exists() and file.read_text() != "", 120)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    pid = int(file.read_text())
    _until(lambda: not _runs(pid), 10)


def _until(holds, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rpartition(")")[2].split()[0] == "Z")


def test_cpu_seconds_are_measured_not_wall_seconds() -> None:
    """An agent that computes for 20 ms and sleeps for 20 ms has used about 20 ms per decision."""
    for isolate in ("never", "always"):
        timing = run_job(Job(agent("Busy"), TOY, 0), isolate).timing
        assert timing is not None
        assert len(timing.act_cpu_s) == 10
        assert 0.019 <= np.median(timing.act_cpu_s) <= 0.035
    close_agents()


def test_answers_ahead_of_questions_are_a_failure() -> None:
    """Nobody can know a question's number before it is asked; a line that nobody asked for ends the episode."""
    failure = run_job(Job(agent("AnswersAhead"), TOY, 0), isolate="always").failure
    assert failure is not None
    assert (failure.window, failure.kind) == (0, "protocol")
    assert "does not answer the request" in failure.message
