"""Executors: serial, spawned workers and Dask write the same bytes, also when a worker is killed in the middle."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from places import TESTS
from sample_agents import agent

from fleetgym.cli import main
from fleetgym.evaluation import agreement
from fleetgym.evaluation.agreement import checked
from fleetgym.evaluation.dask_cluster import dask_executor
from fleetgym.evaluation.executors import play_on
from fleetgym.evaluation.recording import JobPlayer
from fleetgym.evaluation.run import evaluate, make_jobs
from fleetgym.files.errors import FleetgymError

AGENTS = ["hold", agent("Slow"), "agh-rolling"]
SUITE = ["fleet-v0/toy/drop", "fleet-v0/toy/group", "fleet-v0/toy/budget-pool"]


class KilledWorker(Exception):
    """Named as the error with which Dask gives a job up."""


class Deadly:
    """Plays numbers; 3 kills its worker unless it is isolated, 5 does so even then."""

    def __init__(self, isolated: bool = False):
        self.is_isolated = isolated

    def __call__(self, job: int) -> str:
        """Return what was played, and how."""
        if job == 5 or (job == 3 and not self.is_isolated):
            raise KilledWorker
        return f"{job} isolated" if self.is_isolated else str(job)

    def isolated(self) -> Deadly:
        """Return the careful one."""
        return Deadly(True)


def test_a_job_that_kills_workers_is_isolated() -> None:
    """It alone is played again; a job that kills even so stops the run with its name."""
    with ThreadPoolExecutor(2) as executor:
        assert sorted(play_on(executor, Deadly(), range(5))) == ["0", "1", "2", "3 isolated", "4"]
        with pytest.raises(FleetgymError, match="5 ends its worker even with the agent in its own process"):
            list(play_on(executor, Deadly(), [5]))


def test_an_error_that_is_no_lost_worker_is_not_hidden() -> None:
    """A mistake of ours is raised as it is."""

    class Wrong(Deadly):
        def __call__(self, job: int) -> str:
            raise ZeroDivisionError

    with ThreadPoolExecutor(1) as executor, pytest.raises(ZeroDivisionError):
        list(play_on(executor, Wrong(), [1]))


def test_an_executor_that_lets_go_of_its_jobs() -> None:
    """A scheduler that is gone cancels what it had: the run ends with the advice to resume."""

    class Gone(Executor):
        def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.cancel()
            return future

    with pytest.raises(FleetgymError, match="resume the results file"):
        list(play_on(Gone(), Deadly(), [1]))


def test_long_jobs_go_first_and_each_comes_when_it_is_ready() -> None:
    """Nothing waits for its turn, so that a crash loses what is under way alone."""
    given: list[int] = []

    class Stuck(Executor):
        def submit(self, function: Any, /, *arguments: Any, **_: Any) -> Future[Any]:
            given.append(arguments[0])
            future: Future[Any] = Future()
            if arguments[0] != 2:
                future.set_result(function(*arguments))
            return future if arguments[0] != 2 else first

    first: Future[Any] = Future()
    results = play_on(Stuck(), Deadly(), [0, 1, 2], length=float)
    assert [next(results), next(results)] == ["1", "0"]
    assert given == [2, 1, 0]
    first.set_result("2")
    assert list(results) == ["2"]


def test_a_worker_with_something_else_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever hands jobs out and whenever the worker joined: it says who it is and what differs."""
    jobs = make_jobs("hold", "fleet-v0/toy/drop")
    player = checked(JobPlayer(), jobs)
    assert player(jobs[0]) == evaluate("hold", "fleet-v0/toy/drop").episodes[0]
    there = {**agreement.package_versions(), "numpy": "0.9"}
    monkeypatch.setattr(agreement, "package_versions", lambda: there)
    with pytest.raises(FleetgymError, match=r"^the worker .*, process \d+ has numpy 0\.9, the run has "):
        player(jobs[0])


def test_a_worker_with_another_state_of_the_agent_refuses(tmp_path: Path) -> None:
    """An agent's file that is not the run's on that machine is no plausible answer."""
    path = tmp_path / "mine.py"
    path.write_text("class Agent:\n    pass\n")
    (job,) = make_jobs(f"{path}:Agent", "fleet-v0/toy/drop")
    player = checked(JobPlayer(), [job])
    path.write_text("class Agent:\n    other = 1\n")
    with pytest.raises(FleetgymError, match=r"has .*mine\.py:Agent \w{12}, the run has \w{12}; end it"):
        player(job)


def test_a_cluster_that_is_not_there(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address is named, on the command line too; without Dask, what to install."""
    monkeypatch.setattr("fleetgym.evaluation.dask_cluster._START_WAIT_S", 1)
    assert main(["evaluate", "hold", "--suite", "fleet-v0/toy", "--dask", "tcp://127.0.0.1:9"]) == 2
    assert "no Dask scheduler answers at 'tcp://127.0.0.1:9'" in capsys.readouterr().err
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    with (
        pytest.raises(FleetgymError, match=r"pip install 'fleetgym\[dask\]'"),
        dask_executor("tcp://127.0.0.1:9"),
    ):
        pass


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("foo", "missing port number in address 'foo'"),
        ("bad://x:1", "unknown address scheme 'bad'"),
        ("x.json", "there is no scheduler file 'x.json'"),
    ],
)
def test_an_address_that_is_none(monkeypatch: pytest.MonkeyPatch, address: str, message: str) -> None:
    """It is refused before a client is made, which would wait, or not close what it has opened."""
    monkeypatch.setattr("distributed.Client", lambda **_: pytest.fail("a client was made"))
    with pytest.raises(FleetgymError, match=message), dask_executor(address):
        pass


# -- a real cluster


@pytest.fixture(scope="module")
def expected() -> str:
    """The results file of one process."""
    return evaluate(AGENTS, SUITE).to_text()


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Two workers on this machine, restarted when they die."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, preload=[]
    ) as made:
        yield made


def _pids(cluster: Any) -> list[int]:
    from distributed import Client

    with Client(cluster.scheduler_address, set_as_default=False) as client:
        return list(client.run(os.getpid).values())


@pytest.mark.slow
def test_dask_with_a_worker_killed_in_the_middle(cluster: Any, expected: str, tmp_path: Path) -> None:
    """Its jobs are played by the other: the bytes of one process, and of two spawned workers."""
    killed: list[int] = []

    def kill_one(done: int, total: int, share: float) -> None:
        if done == 3:
            killed.append(_pids(cluster)[0])
            os.kill(killed[0], signal.SIGKILL)

    path = tmp_path / "dask.jsonl"
    with dask_executor(cluster.scheduler_address) as executor:
        evaluate(AGENTS, SUITE, executor=executor, out=path, progress=kill_one)
    assert killed
    assert killed[0] not in _pids(cluster)
    assert path.read_text() == expected
    assert evaluate(AGENTS, SUITE, workers=2).to_text() == expected


@pytest.mark.slow
def test_dask_with_an_agent_that_kills_its_workers(cluster: Any) -> None:
    """Without isolation it takes worker after worker along, and becomes one failed episode like anywhere else."""
    names = [agent("Good"), agent("KillsItself"), agent("Dice")]
    with dask_executor(cluster.scheduler_address) as executor:
        results = evaluate(names, SUITE[0], executor=executor, isolate="never")
    assert [e.agent for e in results.failures] == [agent("KillsItself")]
    assert results.episodes == evaluate(names, SUITE[0], isolate="always").episodes


@pytest.mark.slow
def test_dask_with_a_job_that_loses_two_workers(cluster: Any, tmp_path: Path) -> None:
    """Dask gives it to a third one: the bytes of one process, and no agent is blamed."""
    names = [agent(f"KillsTwice(file={str(tmp_path / 'count')!r})"), agent("Good")]
    with dask_executor(cluster.scheduler_address) as executor:
        results = evaluate(names, SUITE, executor=executor, isolate="never")
    assert (tmp_path / "count").read_text() == "xx"
    assert results.failures == ()
    assert results.to_text() == evaluate(names, SUITE, isolate="never").to_text()


@pytest.mark.slow
def test_dask_with_a_slow_worker(cluster: Any) -> None:
    """The other one plays more; the bytes are those of one process."""
    from distributed import Client

    names = [agent("SlowHere"), agent("Good")]
    with Client(cluster.scheduler_address, set_as_default=False) as client:
        first = next(iter(client.run(os.getpid)))
        client.run(lambda: os.environ.update(SLOW_HERE="0.1"), workers=[first])
        with dask_executor(cluster.scheduler_address) as executor:
            results = evaluate(names, "fleet-v0/toy", executor=executor)
    assert results.to_text() == evaluate(names, "fleet-v0/toy").to_text()


@pytest.mark.slow
def test_official_runs_on_dask(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers play by the rules of the header: the bytes of one process."""
    from fleetgym.evaluation import run
    from fleetgym.evaluation.isolation import official

    monkeypatch.setattr("fleetgym.evaluation.isolation.calibration.speed", lambda: 1.0)
    monkeypatch.setattr("fleetgym.evaluation.isolation.calibration.drift", lambda reference: 0.0)
    rules = official.make_rules("online")
    monkeypatch.setattr(run, "make_rules", lambda time_class, agents: rules)
    names = ["gh", agent("Raises")]
    with dask_executor(cluster.scheduler_address) as executor:
        results = evaluate(names, SUITE[0], executor=executor, official="online")
    assert results.header.official == rules
    assert results.to_text() == evaluate(names, SUITE[0], official="online").to_text()


@pytest.mark.slow
def test_dask_from_the_command_line(cluster: Any, expected: str, tmp_path: Path) -> None:
    """`--dask ADDRESS` is all it takes; a worker of another version is refused."""
    path = tmp_path / "r.jsonl"
    call = ["evaluate", *AGENTS, "--suite", *SUITE, "--out", str(path), "--dask", cluster.scheduler_address]
    assert main(call) == 0
    assert path.read_text() == expected
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("fleetgym.evaluation.agreement.__version__", "9.9")
        with (
            pytest.raises(FleetgymError, match=r"Dask worker tcp://.* has fleetgym .*, the run has 9\.9$"),
            dask_executor(cluster.scheduler_address),
        ):
            pass


# -- a scheduler that goes away


class Dask:
    """A scheduler and workers, each started by its own command."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.processes: list[subprocess.Popen[bytes]] = []

    def _start(self, what: str, *arguments: str, **environment: str) -> None:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", *arguments, "--no-dashboard"]
        self.processes.append(
            subprocess.Popen(
                command,
                cwd=TESTS,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **environment},
            )
        )

    def start_scheduler(self) -> None:
        """Start a scheduler."""
        self._start("scheduler", "--host", "127.0.0.1", "--port", str(self.port))

    def start_worker(self, **environment: str) -> None:
        """Start one worker."""
        self._start("worker", self.address, "--nthreads", "1", "--no-nanny", **environment)

    def start(self) -> None:
        """Start a scheduler and one worker."""
        self.start_scheduler()
        self.start_worker()

    def kill(self) -> None:
        """Kill all."""
        for process in self.processes:
            process.kill()
            process.wait()
        self.processes.clear()

    @contextlib.contextmanager
    def executor(self, when_given: Callable[[], None]) -> Iterator[Executor]:
        """Return an executor whose worker hangs; something happens when it has the jobs of `AGENTS` on `SUITE`."""
        pytest.importorskip("distributed")
        self.start()
        try:
            with dask_executor(self.address) as executor, pytest.MonkeyPatch.context() as patch:
                os.kill(self.processes[-1].pid, signal.SIGSTOP)
                submit, given = executor.submit, []

                def counting(*arguments: Any) -> Future[Any]:
                    given.append(submit(*arguments))
                    if len(given) == len(AGENTS) * len(SUITE):
                        threading.Timer(1, when_given).start()  # when the scheduler has them
                    return given[-1]

                patch.setattr(executor, "submit", counting)
                yield executor
        finally:
            self.kill()


@pytest.mark.slow
def test_a_dask_scheduler_that_is_gone_for_good(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One line says so; nothing waits for it for ever."""
    monkeypatch.setattr("fleetgym.evaluation.dask_cluster._START_WAIT_S", 10)
    dask = Dask()
    said = r"^the executor broke.*; resume the results file"
    with dask.executor(dask.kill) as executor, pytest.raises(FleetgymError, match=said):
        evaluate(AGENTS, SUITE, executor=executor, out=tmp_path / "r.jsonl")


@pytest.mark.slow
def test_a_dask_worker_that_is_too_old_to_read_a_job(expected: str, tmp_path: Path) -> None:
    """One that joins late ends itself, and the others play its jobs; one that is there is named."""
    (tmp_path / "fleetgym").mkdir()
    (tmp_path / "fleetgym" / "__init__.py").write_text('__version__ = "0.0.1"\n')
    dask = Dask()
    dask.start()
    try:
        with dask_executor(dask.address) as executor:
            good = dask.processes[-1]
            os.kill(good.pid, signal.SIGSTOP)  # so that the old one gets jobs
            dask.start_worker(PYTHONPATH=str(tmp_path))
            executor._client.wait_for_workers(2, timeout=300)  # type: ignore[attr-defined]
            old = dask.processes[-1]
            go_on = threading.Thread(target=lambda: (old.wait(), os.kill(good.pid, signal.SIGCONT)))
            go_on.start()
            assert evaluate(AGENTS, SUITE, executor=executor).to_text() == expected
            go_on.join()
            assert old.returncode is not None
            client = executor._client  # type: ignore[attr-defined]
            before = set(client.scheduler_info()["workers"])
            good.kill()
            dask.start_worker(PYTHONPATH=str(tmp_path))
            for _ in range(600):  # until the scheduler knows that one is gone and one has come
                workers = set(client.scheduler_info()["workers"])
                if len(workers) == 1 and not workers & before:
                    break
                time.sleep(0.1)
        said = r"the Dask worker tcp://.* does not say what it has .*; install fleetgym \S+ there"
        with pytest.raises(FleetgymError, match=said), dask_executor(dask.address):
            pass
    finally:
        dask.kill()
