"""Play agents on a suite: list the jobs, play them on many workers, and record the results."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from typing import Any

from fleetgym.agents.registry import give_names, parse_agent
from fleetgym.evaluation.agreement import checked
from fleetgym.evaluation.executors import play, play_on
from fleetgym.evaluation.isolation.agent_process import Limits
from fleetgym.evaluation.isolation.agent_runner import load_kernels
from fleetgym.evaluation.isolation.official import make_rules
from fleetgym.evaluation.isolation.preflight import preflight
from fleetgym.evaluation.jobs import Job
from fleetgym.evaluation.recording import JobPlayer, Recording
from fleetgym.evaluation.results import Results
from fleetgym.evaluation.results_format import EpisodeResult
from fleetgym.files.errors import FleetgymError
from fleetgym.model.library import (
    Task,
    load_instance,
    samples,
    task_name,
)
from fleetgym.model.suites import DEFAULT_SUITE, full_suite, tasks_of


def make_jobs(
    agents: Any,
    suite: str | Sequence[str] = DEFAULT_SUITE,
    scenarios: Iterable[int] | None = None,
    seed: int = 0,
) -> list[Job]:
    """Return the jobs of an evaluation in their canonical order: by agent, instance, scenario.

    Parameters
    ----------
    agents : str, class, object, or sequence of these
        As for `evaluate`.
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
    names = give_names(_listed(agents))
    for name in names:
        parse_agent(name)
    if scenarios is not None and not isinstance(scenarios, Iterable):
        raise FleetgymError(f"scenarios are several numbers, such as [0, 1]; got {scenarios!r}")
    tasks = list(_tasks(suite, None if scenarios is None else list(scenarios)))
    jobs = [Job(name, instance, scenario, int(seed)) for name in names for instance, scenario in tasks]
    if not jobs:
        raise FleetgymError("nothing to do: name at least one agent and one instance")
    for what, found in (("the agent", names), ("the task", [task_name(*task) for task in tasks])):
        if twice := [name for name, count in Counter(found).items() if count > 1]:
            raise FleetgymError(f"{what} {twice[0]} is named twice")
    return jobs


def _listed(names: Any) -> list[Any]:
    """Return one name, or whatever stands in its place, as a list of one; several as they are."""
    is_one = isinstance(names, (str, os.PathLike)) or not isinstance(names, Iterable)
    return [names] if is_one else list(names)


def _tasks(suite: str | Sequence[str], scenarios: list[int] | None) -> Iterator[Task]:
    for part in _listed(suite):
        stored: dict[str, list[int]] = {}
        for instance, number in tasks_of(part):
            stored.setdefault(instance, []).append(number)
        for instance, numbers in stored.items():
            for number in numbers if scenarios is None else scenarios:
                if number not in numbers:
                    raise FleetgymError(_no_such_scenario(part, instance, numbers, number))
                yield instance, number


def _no_such_scenario(part: str, instance: str, numbers: list[int], number: int) -> str:
    if str(full_suite(part)) in samples():
        return f"{part} has scenario {', '.join(map(str, numbers))} of {instance}; got {number}"
    return f"{instance} has {len(numbers)} stored scenarios, numbered from 0; got {number}"


def evaluate(
    agents: Any,
    suite: str | Sequence[str] = DEFAULT_SUITE,
    *,
    executor: Executor | None = None,
    workers: int = 1,
    scenarios: Iterable[int] | None = None,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    seed: int = 0,
    isolate: str = "auto",
    limits: Limits | None = None,
    official: str | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Results:
    """Play every agent on every stored scenario of a suite.

    Neither the results nor the bytes of the finished file depend on the number of workers or the executor. A failing
    agent never stops the run: its episode is flagged, and continues with the empty fleet.

    Parameters
    ----------
    agents : str, class, object, or sequence of these
        Names as for `make_agent`: ``"agh-rolling"``, ``"mine.py:Agent"``, ``"agh(margin=0.1)"``. A class is made anew
        for each episode, an object is copied. Classes of a script or notebook, and objects, play in this process:
        one worker, no time limits, no leaderboard row. Put the class into a file for these.
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
    official : str, optional
        A time class, ``"reflex"``, ``"online"`` or ``"offline"``: every agent plays each episode in a process of its
        own under a budget of reference CPU seconds (docs/official-runs.md); then `isolate` and `limits` say nothing.
    progress : callable, optional
        Called with the numbers of finished and of all episodes, and with the share of the work that is done: an
        estimate by the CPU seconds that each agent has taken so far.

    Returns
    -------
    Results
        With CPU seconds in each episode's `timing`.

    Raises
    ------
    FleetgymError
        For names that do not exist, an agent that cannot be made, an object that shall leave this process, or a
        results file that belongs to other jobs.

    Examples
    --------
    >>> results = evaluate(["hold"], "fleet-v0/toy/two-pools")
    >>> results.episodes[0].failure is None
    True
    >>> class Nothing:
    ...     def reset(self, view, *, seed):
    ...         self.action = 0 * view.nvec
    ...
    ...     def act(self, observation, info):
    ...         return self.action
    >>> evaluate([Nothing], "fleet-v0/toy/two-pools").to_frame().rental.sum()
    np.float64(0.0)
    """
    suite = full_suite(suite)
    jobs = make_jobs(agents, suite, scenarios, seed)
    _check_stays(
        jobs, workers > 1 or executor is not None or official is not None or isolate == "always" or resume
    )
    if official is None:  # else it may be anybody's code, which runs in its box only
        preflight(dict.fromkeys(job.agent for job in jobs), (limits or Limits()).reset_wall_s)
    return play_jobs(
        jobs,
        suite,
        executor=executor,
        workers=workers,
        out=out,
        resume=resume,
        isolate=isolate,
        limits=limits,
        official=official,
        progress=progress,
    )


def _check_stays(jobs: Sequence[Job], leaves: Any) -> None:
    """Refuse agents that only this process has where another process shall play or continue them."""
    here = [name for name in dict.fromkeys(job.agent for job in jobs) if parse_agent(name).is_here]
    if here and leaves:
        raise FleetgymError(
            f"{here[0]} plays in this process only: leave out workers, executor, official, resume and "
            f"isolate='always', or put it into a file and name it as path/to/file.py:{here[0].rpartition(':')[2]}"
        )


def play_jobs(
    jobs: Sequence[Job],
    suite: str | Sequence[str],
    *,
    executor: Executor | None = None,
    workers: int = 1,
    out: str | os.PathLike[str] | None = None,
    resume: str | os.PathLike[str] | None = None,
    isolate: str = "auto",
    limits: Limits | None = None,
    official: str | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Results:
    """Play jobs whose agents are known to be made without error, as `preflight` checks.

    Parameters
    ----------
    jobs : sequence of Job
        In their canonical order, see `make_jobs`.
    suite : str or sequence of str
        What the results file's header calls them.
    executor, workers, out, resume, isolate, limits, official, progress
        As for `evaluate`.

    Returns
    -------
    Results

    Raises
    ------
    FleetgymError
        If the results file belongs to other jobs.
    """
    if workers < 1:
        raise FleetgymError(f"workers must be at least 1, got {workers}")
    if out is not None and resume is not None:
        raise FleetgymError("give `out` for a new file or `resume` for an old one, not both")
    agents = dict.fromkeys(job.agent for job in jobs)
    player = JobPlayer(
        isolate, limits or Limits(), None if official is None else make_rules(official, agents)
    )
    path = resume if resume is not None else out
    recording = Recording(jobs, suite, player, path, resume=resume is not None)
    try:
        if recording.todo:
            load_kernels(load_instance(jobs[0].instance), agents)  # not between episodes
        recording.check_speed("before")

        def played(some: Sequence[Job]) -> Iterator[EpisodeResult]:
            if executor is None:
                return play(player, some, workers)
            return play_on(executor, checked(player, some), some, recording.length)

        for episode in played(recording.todo):
            recording.add(episode)
            if progress is not None:
                progress(len(recording.done), len(jobs), recording.share_done)
        for episode in played(recording.to_repeat):
            recording.compare(episode)
        return recording.finish()
    finally:
        recording.close()
