"""Agents and a suite in, results out: the list of jobs, played by many workers, written in order."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import TYPE_CHECKING

import fleetgym
from fleetgym.actions import ActionSpace
from fleetgym.errors import FleetgymError, UnknownNameError
from fleetgym.evaluation.agent_process import Limits
from fleetgym.evaluation.episode import RESULTS_FORMAT, EpisodeResult, Header, InstanceFacts
from fleetgym.evaluation.executors import play
from fleetgym.evaluation.jobs import Job, close_agents, run_job
from fleetgym.evaluation.results import Results, ResultsWriter, hash_jobs
from fleetgym.instance import Instance
from fleetgym.library import is_path, list_instances, load_instance, load_scenarios
from fleetgym.registry import make_planner, parse_agent

if TYPE_CHECKING:
    from fleetgym.planning import Plan, Planner


def make_jobs(
    agents: str | Sequence[str],
    suite: str | Sequence[str] = "fleet-v0/dev",
    scenarios: Iterable[int] | None = None,
    seed: int = 0,
) -> list[Job]:
    """Return the jobs of an evaluation in their canonical order: by agent, instance, scenario.

    Parameters
    ----------
    agents : str or sequence of str
        Agents as for `make_agent`.
    suite : str or sequence of str
        A suite, the id of an instance, the path of an instance file, or several of these.
    scenarios : iterable of int, optional
        Numbers of stored scenarios; by default all.
    seed : int
        From which the agents' own randomness is derived.

    Returns
    -------
    list of Job

    Raises
    ------
    FleetgymError
        For a name that does not exist, or one that is given twice.
    """
    names = [agents] if isinstance(agents, str) else list(agents)
    for name in names:
        parse_agent(name)
    tasks = list(_tasks(suite, None if scenarios is None else list(scenarios)))
    jobs = [Job(name, instance, scenario, int(seed)) for name in names for instance, scenario in tasks]
    if not jobs:
        raise FleetgymError("nothing to do: name at least one agent and one instance")
    if len(set(jobs)) < len(jobs):
        raise FleetgymError("an agent, an instance or a scenario is named twice")
    return jobs


def _tasks(suite: str | Sequence[str], scenarios: list[int] | None) -> Iterator[tuple[str, int]]:
    for part in [suite] if isinstance(suite, (str, os.PathLike)) else suite:
        for instance in instances_of(part):
            count = len(load_scenarios(instance))
            for number in range(count) if scenarios is None else scenarios:
                if not 0 <= number < count:
                    raise FleetgymError(
                        f"{instance} has {count} stored scenarios, numbered from 0; got {number}"
                    )
                yield instance, number


def instances_of(part: str) -> list[str]:
    """Return the instances that a suite, the id of an instance, or a path stands for.

    Examples
    --------
    >>> instances_of("fleet-v0/toy/two-pools")
    ['fleet-v0/toy/two-pools']
    """
    if is_path(part) or part in list_instances():
        return [str(part)]
    if part.count("/") > 1:
        raise UnknownNameError("instance", part, list_instances())
    return list_instances(part)


def evaluate(
    agents: str | Sequence[str],
    suite: str | Sequence[str] = "fleet-v0/dev",
    *,
    executor: Executor | None = None,
    workers: int = 1,
    scenarios: Iterable[int] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    seed: int = 0,
    isolate: str = "auto",
    limits: Limits | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Results:
    """Play every agent on every stored scenario of a suite.

    Results do not depend on the number of workers or the executor, and neither does the order in the file. A
    failing agent never stops the run: its episode is flagged, and goes on with the empty fleet.

    Parameters
    ----------
    agents : str or sequence of str
        Agents as for `make_agent`: ``"agh-rolling"``, ``"mine.py:Agent"``, ``"agh(margin=0.1)"``.
    suite : str or sequence of str
        A suite, the id of an instance, the path of an instance file, or several of these.
    executor : concurrent.futures.Executor, optional
        Plays the jobs; by default this process, or `workers` spawned ones.
    workers : int
        Number of processes. Scripts that use more than one need ``if __name__ == "__main__":``.
    scenarios : iterable of int, optional
        Numbers of the stored scenarios to play; by default all.
    out : path-like, optional
        Write the results to this new file, episode by episode, and CPU seconds beside it.
    resume : path-like, optional
        As `out`, but if the file exists its finished episodes are kept and the rest is played.
    seed : int
        From which the agents' own randomness is derived.
    isolate : str
        ``"auto"``, ``"always"`` or ``"never"``, see `run_job`.
    limits : Limits, optional
        Of isolated agents.
    progress : callable, optional
        Called with the numbers of finished and of all episodes.

    Returns
    -------
    Results
        With CPU seconds in each episode's `timing`.

    Raises
    ------
    FleetgymError
        For names that do not exist, or a results file that belongs to other jobs.

    Examples
    --------
    >>> results = evaluate(["hold"], "fleet-v0/toy/two-pools")
    >>> results.episodes[0].failure is None
    True
    """
    if workers < 1:
        raise FleetgymError(f"workers must be at least 1, got {workers}")
    if out is not None and resume is not None:
        raise FleetgymError("give `out` for a new file or `resume` for an old one, not both")
    jobs = make_jobs(agents, suite, scenarios, seed)
    header = make_header(jobs, suite)
    path = resume if resume is not None else out
    writer = None if path is None else ResultsWriter(path, header, resume=resume is not None)
    try:
        done = {} if writer is None else writer.done
        todo = _remaining(jobs, done)
        episodes = [done[job.key] for job in jobs[: len(done)]]
        if workers > 1 and len(todo) > 1:
            _compile_once(todo[0])
        run = _Player(isolate, limits or Limits())
        for episode in play(run, todo, executor=executor, workers=workers):
            if writer is not None:
                writer.append(episode)
            episodes.append(episode)
            if progress is not None:
                progress(len(episodes), len(jobs))
        return Results(header, tuple(episodes))
    finally:
        close_agents()
        if writer is not None:
            writer.close()


def _compile_once(job: Job) -> None:
    """Let one process fill the cache of compiled kernels, or every worker would compile them."""
    from fleetgym.view import View

    view = View(load_instance(job.instance))
    view.preview(view.fleet)


@dataclasses.dataclass(frozen=True)
class _Player:
    """`run_job` with its settings, in a form that can be sent to another process."""

    isolate: str
    limits: Limits

    def __call__(self, job: Job) -> EpisodeResult:
        return run_job(job, self.isolate, self.limits)

    def isolated(self) -> _Player:
        """Return the same, but every agent in its own process: for a job that has killed its worker."""
        return _Player("always", self.limits)


def _remaining(jobs: Sequence[Job], done: dict[tuple[str, str, int, int], EpisodeResult]) -> Sequence[Job]:
    if list(done) != [job.key for job in jobs[: len(done)]]:
        raise FleetgymError("the episodes in the file are not the first of this list of jobs")
    return jobs[len(done) :]


def make_header(jobs: Sequence[Job], suite: str | Sequence[str]) -> Header:
    """Return the header of the results file of these jobs."""
    parts = [suite] if isinstance(suite, str) else [str(part) for part in suite]
    name = ", ".join(parts) if len(parts) <= 3 else f"{len(parts)} selected parts"
    instances = {job.instance: None for job in jobs}
    return Header(
        format=RESULTS_FORMAT,
        version=fleetgym.__version__,
        suite=name,
        num_jobs=len(jobs),
        jobs_hash=hash_jobs(job.key for job in jobs),
        instances={name: _facts(load_instance(name)) for name in instances},
    )


def _facts(instance: Instance) -> InstanceFacts:
    return InstanceFacts(
        content_hash=instance.content_hash,
        family=instance.family,
        num_windows=instance.num_windows,
        options=tuple(ActionSpace(instance).nvec.tolist()),
    )


# -- one plan


def plan(instance: Instance | str | os.PathLike[str], planner: Planner | str = "agh") -> Plan:
    """Plan for an instance's nominal window, from its nominal fleet.

    Parameters
    ----------
    instance : Instance, str or path-like
        An instance, its id or its file.
    planner : Planner or str
        A planner, or the name of an agent that has one.

    Returns
    -------
    Plan
        The fleet, and what the planner knows about it.

    Examples
    --------
    >>> plan("fleet-v0/toy/drop", "gh").fleet.tolist()
    [2, 0]
    """
    from fleetgym.view import View

    problem = instance if isinstance(instance, Instance) else load_instance(instance)
    solver = make_planner(planner) if isinstance(planner, str) else planner
    return solver.plan(View(problem).snapshot())
