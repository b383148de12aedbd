"""Play agents as test items of pytest, and write the results file of `evaluate`.

``pytest --fleetgym-agent=agh --fleetgym-suite=dev -n auto`` plays the jobs on all workers of pytest-xdist. The
process that prints the summary writes the file.
"""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fleetgym.evaluation.jobs import Job
    from fleetgym.evaluation.recording import JobPlayer, Recording
    from fleetgym.evaluation.results import Results
    from fleetgym.evaluation.results_format import EpisodeResult
    from fleetgym.scoring.score import ScoreTable

_PROPERTY = "fleetgym"  # of a report: the episode's lines of the results and timings files


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options; without an agent, pytest works as usual."""
    group = parser.getgroup("fleetgym", "fleetgym: play agents instead of collecting tests")
    group.addoption("--fleetgym-agent", action="append", metavar="AGENT", help="may be given several times")
    group.addoption(
        "--fleetgym-suite", action="append", metavar="SUITE", help="suite, instance or file (default: dev)"
    )
    group.addoption("--fleetgym-scenarios", metavar="0,1,..", help="numbers of stored scenarios")
    group.addoption("--fleetgym-seed", default="0", metavar="N", help="of the run (default: 0)")
    group.addoption("--fleetgym-isolate", default="auto", metavar="WHEN", help="auto, always or never")
    group.addoption("--fleetgym-official", metavar="CLASS", help="time class of an official run")
    group.addoption("--fleetgym-out", metavar="FILE", help="results file to write")
    group.addoption("--fleetgym-resume", metavar="FILE", help="results file to go on with")


def pytest_configure(config: pytest.Config) -> None:
    """Take over collection if there are agents to play."""
    if config.getoption("fleetgym_agent"):
        config.pluginmanager.register(_Run(config), "fleetgym-run")


class _Run:
    """What happens in each process of a run; the one that is no worker of xdist keeps the `Recording`."""

    def __init__(self, config: pytest.Config):
        self.config = config
        self.recording: Recording | None = None
        self.results: Results | None = None
        self.lost: set[int] = set()  # jobs whose worker died
        self.path = ""

    @property
    def is_worker(self) -> bool:
        return hasattr(self.config, "workerinput")

    # -- before

    @pytest.hookimpl(tryfirst=True)  # before xdist starts its workers
    def pytest_sessionstart(self) -> None:
        from fleetgym.files.errors import FleetgymError

        try:
            self.jobs = _jobs(self.config)
            if self.is_worker:
                told = self.config.workerinput["fleetgym"]  # type: ignore[attr-defined]
                self.todo, self.player = told["todo"], _player(self.config, told["rules"])
            else:
                self.todo, self.player = list(range(len(self.jobs))), _player(self.config, None)
                if not self.config.option.collectonly:
                    self._start_recording()
        except (FleetgymError, OSError) as error:
            raise pytest.UsageError(f"fleetgym: {error}") from None

    def _start_recording(self) -> None:
        from fleetgym.evaluation.isolation.agent_runner import load_kernels
        from fleetgym.evaluation.isolation.preflight import preflight
        from fleetgym.evaluation.recording import Recording
        from fleetgym.evaluation.results import new_results_path
        from fleetgym.model.library import load_instance

        suite, option = _suite(self.config), self.config.getoption
        self.path = option("fleetgym_resume") or option("fleetgym_out") or str(new_results_path(suite))
        resume = option("fleetgym_resume") is not None
        if self.player.official is None:
            preflight(dict.fromkeys(job.agent for job in self.jobs))
        self.recording = Recording(self.jobs, suite, self.player, self.path, resume=resume)
        done = self.recording.done
        self.todo = [k for k, job in enumerate(self.jobs) if job.key not in done]
        load_kernels(load_instance(self.jobs[0].instance))  # or every worker would compile them
        self.recording.check_speed("before")

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Pass on to a worker of xdist which jobs to play, and by which rules."""
        rules = self.player.official
        told = {"todo": self.todo, "rules": None if rules is None else dataclasses.asdict(rules)}
        node.workerinput["fleetgym"] = told

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool | None:
        """Make an item of every job that is not done; other tests are not looked for."""
        if self.config.pluginmanager.hasplugin("dsession"):
            return None  # the workers of xdist collect
        names = _names(self.jobs)
        session.items = [
            _JobItem.from_parent(session, name=names[k], job=self.jobs[k], player=self.player)
            for k in self.todo
        ]
        session.testscollected = len(session.items)
        report = pytest.CollectReport("", "passed", None, list(session.items))
        self.config.hook.pytest_collectreport(report=report)  # pytest counts by it
        self.config.hook.pytest_collection_finish(session=session)
        return True

    # -- during

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take over an episode."""
        if self.recording is None:
            return
        for name, value in report.user_properties:
            if name == _PROPERTY and report.when == "call":
                self.recording.add(_read(str(value)))
        if report.when not in ("setup", "call", "teardown"):  # xdist's report of a worker that died
            names = {f"::{name}": k for k, name in enumerate(_names(self.jobs))}
            self.lost.add(names[report.nodeid])

    # -- after

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Play what a worker took along when it died, with the agent isolated, as `evaluate` does."""
        if self.recording is None:
            return
        try:
            for job in (self.jobs[k] for k in sorted(self.lost)):
                if job.key not in self.recording.done:
                    self.recording.add(self.player.isolated()(job))
            self.results = self.recording.finish()
        finally:
            self.recording.close()

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Say where the results are, and how the agents score."""
        if self.recording is None:
            return
        done, total = len(self.recording.done), len(self.jobs)
        rest = "" if done == total else f"; go on with --fleetgym-resume={self.path}"
        terminalreporter.write_line(f"fleetgym: {done} of {total} episodes are in {self.path}{rest}")
        if self.results is not None and self.results.is_complete:
            terminalreporter.write_line(f"\n{_scores(self.results)}")
        for check in self.recording.speed_checks:
            if not check.is_within:
                drift = f"{check.drift:+.0%} from its calibration"
                terminalreporter.write_line(f"fleetgym: marked: {check.moment} the run the speed was {drift}")


class _AgentFailed(Exception):
    """An episode whose agent failed; it is in the results file all the same."""


class _JobItem(pytest.Item):
    """One job; its report carries the episode."""

    def __init__(self, *, job: Job, player: JobPlayer, **rest: Any):
        super().__init__(**rest)
        self.job, self.player = job, player

    def runtest(self) -> None:
        from fleetgym.evaluation.results import timing_line

        episode = self.player(self.job)
        self.user_properties.append((_PROPERTY, json.dumps([episode.to_line(), timing_line(episode)])))
        if episode.failure is not None:
            failure = episode.failure
            raise _AgentFailed(f"window {failure.window}: {failure.kind}: {failure.message}")

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, _AgentFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        return self.path, None, self.name


def _jobs(config: pytest.Config) -> list[Job]:
    from fleetgym.evaluation.run import make_jobs
    from fleetgym.files.errors import DataError, FleetgymError
    from fleetgym.files.quantities import NUMBER, SEED

    text = config.getoption("fleetgym_scenarios")
    try:
        scenarios = None if text is None else [NUMBER.parse(part) for part in text.split(",")]
    except DataError:
        raise FleetgymError(f"--fleetgym-scenarios expects numbers as 0,1; got {text!r}") from None
    seed = SEED.parse(config.getoption("fleetgym_seed"), "--fleetgym-seed")
    return make_jobs(config.getoption("fleetgym_agent"), _suite(config), scenarios, seed)


def _scores(results: Results) -> ScoreTable:
    """Return the scores; without best-known costs, relative to the best in the run."""
    from fleetgym.scoring.comparison import is_known
    from fleetgym.scoring.score import score

    return score(results, relative_to="best-known" if is_known(results) else "best-in-run")


def _suite(config: pytest.Config) -> list[str]:
    from fleetgym.model.suites import DEFAULT_SUITE, full_suite

    return list(full_suite(config.getoption("fleetgym_suite") or [DEFAULT_SUITE]))


def _player(config: pytest.Config, rules: dict[str, Any] | None) -> JobPlayer:
    """Return the player of the options; workers get the rules from the process that probed the machine."""
    from fleetgym.evaluation.isolation.official import make_rules
    from fleetgym.evaluation.isolation.rules import Rules
    from fleetgym.evaluation.recording import JobPlayer

    isolate, time_class = config.getoption("fleetgym_isolate"), config.getoption("fleetgym_official")
    if time_class is None:
        return JobPlayer(isolate)
    agents = config.getoption("fleetgym_agent")
    return JobPlayer(isolate, official=make_rules(time_class, agents) if rules is None else Rules(**rules))


def _names(jobs: list[Job]) -> list[str]:
    """Return a name for each job, without what pytest and its reports read as marks."""
    return [f"{j.agent}@{j.instance}#{j.scenario}".replace("::", ":") for j in jobs]


def _read(text: str) -> EpisodeResult:
    from fleetgym.evaluation.results import read_episode

    line, timing = json.loads(text)
    return read_episode(line, timing)
