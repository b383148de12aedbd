"""Record the episodes of a run as they come, for `evaluate` and the pytest plugin."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import os
from collections.abc import Iterable, Sequence

from fleetgym.agents.agent_code import own_folder_sha256
from fleetgym.agents.registry import parse_agent
from fleetgym.evaluation.agreement import package_versions
from fleetgym.evaluation.isolation.agent_process import Limits
from fleetgym.evaluation.isolation.rules import Rules
from fleetgym.evaluation.jobs import Job, Key, close_agents, run_job
from fleetgym.evaluation.results import RepeatCheck, Results, ResultsWriter, SpeedCheck, hash_jobs
from fleetgym.evaluation.results_format import RESULTS_FORMAT, EpisodeResult, Header, InstanceFacts
from fleetgym.files.documents import canonical_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.quantities import SEED
from fleetgym.files.schema import NAME
from fleetgym.model.actions import ActionSpace
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance
from fleetgym.runtime.version import __version__


@dataclasses.dataclass(frozen=True)
class JobPlayer:
    """`run_job` with its settings, in a form that can be sent to another process."""

    isolate: str = "auto"
    limits: Limits = Limits()
    official: Rules | None = None

    def __call__(self, job: Job) -> EpisodeResult:
        """Return the job's episode."""
        return run_job(job, self.isolate, self.limits, official=self.official)

    @property
    def plays_in_process(self) -> bool:
        """Whether every agent plays in the evaluator's own process, where it could reach what it must not."""
        return self.official is None and self.isolate == "never"

    def isolated(self) -> JobPlayer:
        """Return the same, but every agent in its own process: for a job that has killed its worker."""
        return dataclasses.replace(self, isolate="always")


#: About what the environment itself takes for an episode.
_STEPPING_S = 0.1


class _Work:
    """Counts the work of a run: of each agent its episodes, their lengths, and the CPU seconds that they took."""

    def __init__(self) -> None:
        self.episodes: collections.Counter[str] = collections.Counter()
        self.length: collections.Counter[str] = collections.Counter()
        self.cpu_s: dict[str, float] = collections.defaultdict(float)

    def add(self, agent: str, length: int, cpu_s: float = 0.0) -> None:
        """Add an episode."""
        self.episodes[agent] += 1
        self.length[agent] += length
        self.cpu_s[agent] += cpu_s

    def seconds(self, at: _Work) -> float:
        """Return the CPU seconds of this work at the speeds of other work; new agents are as slow as the slowest."""
        speeds = {agent: at.cpu_s[agent] / length for agent, length in at.length.items()}
        slowest = max(speeds.values(), default=0.0)
        return sum(
            _STEPPING_S * count + speeds.get(agent, slowest) * self.length[agent]
            for agent, count in self.episodes.items()
        )


class Recording:
    """A run in progress: finished jobs, jobs to play, and the results file.

    Parameters
    ----------
    jobs : sequence of Job
        In their canonical order.
    suite : str or sequence of str
        What the header calls them.
    player : JobPlayer
        How they are played.
    path : path-like, optional
        Results file to write.
    resume : bool
        Continue that file if it exists.

    Raises
    ------
    FleetgymError
        If the file exists and shall not be resumed, or belongs to other jobs or rules.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        suite: str | Sequence[str],
        player: JobPlayer,
        path: str | os.PathLike[str] | None = None,
        *,
        resume: bool = False,
    ):
        self.jobs, self.player = list(jobs), player
        _check_names(jobs)
        beside = () if path is None else (path,)
        header = make_header(jobs, suite, player.official, in_process=player.plays_in_process, beside=beside)
        self._writer = None if path is None else ResultsWriter(path, header, resume=resume)
        self.header = header if self._writer is None else self._writer.header
        #: Episodes by job, in the order in which they came.
        self.done: dict[Key, EpisodeResult] = {} if self._writer is None else self._writer.done
        keys = {job.key for job in jobs}
        for number, key in enumerate(self.done, start=2):
            if key not in keys:
                self.close()
                raise FleetgymError(f"{path}: line {number} is no episode of this run; choose another file")
        # Each agent's first job goes first: then it is known how long the others take.
        first = {job.agent: job.key for job in reversed(jobs)}
        todo = [job for job in jobs if job.key not in self.done]
        self.todo = sorted(todo, key=lambda job: job.key != first[job.agent])
        self._all, self._past = _Work(), _Work()
        for job in self.jobs:
            self._all.add(job.agent, self.length(job))
        for episode in self.done.values():
            self._count(episode)
        self.speed_checks: list[SpeedCheck] = []
        self.repeat_checks: list[RepeatCheck] = [] if self._writer is None else [*self._writer.repeat_checks]

    def check_speed(self, moment: str) -> None:
        """Measure the machine ``"before"`` or ``"after"`` an official run; nothing for other runs."""
        from fleetgym.evaluation.isolation.calibration import MAX_DRIFT, drift

        if self.player.official is None or not self.todo:
            return
        found = drift(self.player.official.speed)
        load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
        check = SpeedCheck(moment=moment, drift=found, is_within=abs(found) <= MAX_DRIFT, load=load)
        self.speed_checks.append(check)
        if self._writer is not None:
            self._writer.note(check)

    def add(self, episode: EpisodeResult) -> None:
        """Take over an episode."""
        if self._writer is not None:
            self._writer.append(episode)
        self.done[episode.key] = episode
        self._count(episode)

    def _count(self, episode: EpisodeResult) -> None:
        cpu_s = 0.0 if episode.timing is None else episode.timing.total_s
        self._past.add(episode.agent, self.length(episode), cpu_s)

    @property
    def share_done(self) -> float:
        """The share of the work that is done, by the CPU seconds that each agent has taken so far."""
        return self._past.seconds(self._past) / self._all.seconds(self._past)

    @property
    def to_repeat(self) -> list[Job]:
        """Jobs that an official run plays a second time: a tenth of each agent's, by a hash of its code and the job."""
        if self.player.official is None:
            return []
        noted = {(check.agent, check.instance, check.scenario) for check in self.repeat_checks}
        found: list[Job] = []
        for agent in dict.fromkeys(job.agent for job in self.jobs):
            code = (self.header.code_sha256 or {}).get(agent, self.header.version)
            mine = [job for job in self.jobs if job.agent == agent]
            mine.sort(key=lambda job: hashlib.sha256(canonical_json([code, *job.key]).encode()).digest())
            found += mine[: max(1, len(mine) // 10)]
        return [job for job in found if job.key[:3] not in noted]

    def compare(self, again: EpisodeResult) -> None:
        """Record whether an episode repeats when it is played again; episodes cut short by a budget are skipped."""
        first = self.done[again.key]
        if first.budget_spent_at_window is None and again.budget_spent_at_window is None:
            same = (first.actions, first.failure) == (again.actions, again.failure)
            check = RepeatCheck(
                agent=again.agent, instance=again.instance, scenario=again.scenario, is_same=same
            )
            self.repeat_checks.append(check)
            if self._writer is not None:
                self._writer.note(check)

    def length(self, job: Job | EpisodeResult) -> int:
        """Return a measure of a job's time: its decisions times the options of each."""
        facts = self.header.instances[job.instance]
        return facts.num_windows * len(facts.options)

    def finish(self) -> Results:
        """Measure the machine once more, sort a complete file, and return the results in the jobs' order."""
        self.check_speed("after")
        episodes = tuple(self.done[job.key] for job in self.jobs if job.key in self.done)
        results = Results(self.header, episodes, tuple(self.speed_checks), tuple(self.repeat_checks))
        if self._writer is not None and results.is_complete:
            self._writer.sort(results)
        return results

    def close(self) -> None:
        """Close the file, and end agents that wait for their next job."""
        close_agents()
        if self._writer is not None:
            self._writer.close()


def make_header(
    jobs: Sequence[Job],
    suite: str | Sequence[str],
    official: Rules | None = None,
    *,
    in_process: bool = False,
    beside: Iterable[str | os.PathLike[str]] = (),
) -> Header:
    """Return the header of the results file of these jobs.

    Parameters
    ----------
    jobs, suite, official
        As of `Recording`.
    in_process : bool
        Whether no agent has a process of its own.
    beside : iterable of path-like
        Files of the run, which belong to no agent.
    """
    parts = [suite] if isinstance(suite, str) else [str(part) for part in suite]
    name = ", ".join(parts)
    if len(parts) > 3 or len(name) > NAME.maximum:
        name = f"{len(parts)} selected parts"
    instances = {job.instance: None for job in jobs}
    agents = {agent: parse_agent(agent) for agent in dict.fromkeys(job.agent for job in jobs)}
    code = {agent: found.code_sha256 for agent, found in agents.items()}
    folders = {
        agent: own_folder_sha256(found.target.rpartition(":")[0], beside)
        for agent, found in agents.items()
        if not found.is_reference
    }
    is_marked = any(found.is_here or (in_process and not found.is_reference) for found in agents.values())
    return Header(
        format=RESULTS_FORMAT,
        version=__version__,
        suite=name,
        num_jobs=len(jobs),
        jobs_hash=hash_jobs(job.key for job in jobs),
        instances={name: _facts(load_instance(name)) for name in instances},
        official=official,
        code_sha256={agent: checksum for agent, checksum in code.items() if checksum is not None} or None,
        folder_sha256={agent: checksum for agent, checksum in folders.items() if checksum is not None}
        or None,
        in_process=is_marked or None,
        packages=package_versions(),
    )


def _check_names(jobs: Sequence[Job]) -> None:
    """Refuse what a results file could not be read back with."""
    for kind, what in (("agent", NAME), ("instance", NAME), ("seed", SEED)):
        for value in dict.fromkeys(getattr(job, kind) for job in jobs):
            try:
                what.read(value, "$")
            except DataError as error:
                raise FleetgymError(f"the {kind} cannot stand in a results file: {error.message}") from None


def _facts(instance: Instance) -> InstanceFacts:
    return InstanceFacts(
        content_hash=instance.content_hash,
        family=instance.family,
        num_windows=instance.num_windows,
        options=tuple(ActionSpace(instance).nvec.tolist()),
    )
