"""Agents and a suite in, results out: the list of jobs, played by many workers, written in order."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetgym.errors import FleetgymError, UnknownNameError
from fleetgym.evaluation.agent_process import Limits
from fleetgym.evaluation.agent_runner import load_kernels
from fleetgym.evaluation.executors import play
from fleetgym.evaluation.jobs import Job
from fleetgym.evaluation.official import make_rules
from fleetgym.evaluation.recording import JobPlayer, Recording
from fleetgym.evaluation.recording import make_header as make_header
from fleetgym.evaluation.results import Results
from fleetgym.library import (
    InstanceSource,
    Task,
    entries,
    is_path,
    list_instances,
    list_tasks,
    load_instance,
    load_scenarios,
    samples,
    suites,
    task_name,
)
from fleetgym.registry import make_planner, parse_agent

if TYPE_CHECKING:
    from fleetgym.planning import Plan, Planner

DEFAULT_SUITE = "fleet-v0/dev"


def make_jobs(
    agents: str | Sequence[str],
    suite: str | Sequence[str] = DEFAULT_SUITE,
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
    names = _listed(agents)
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


def full_suite(suite: str | Sequence[str]) -> str | list[str]:
    """Return suites by their full names: a split alone means that of the default suite's set.

    Examples
    --------
    >>> full_suite("toy"), full_suite(["fleet-v0/dev"])
    ('fleet-v0/toy', ['fleet-v0/dev'])
    """
    if isinstance(suite, Iterable) and not isinstance(suite, (str, os.PathLike)):
        return [str(full_suite(part)) for part in suite]
    if is_path(suite):
        return str(suite)
    name = str(suite).strip("/")
    full = f"{DEFAULT_SUITE.partition('/')[0]}/{name}"
    return full if full in suites() else name


def tasks_of(part: str) -> list[Task]:
    """Return the tasks that a suite (see `full_suite`), the id of an instance, or a path stands for.

    Examples
    --------
    >>> tasks_of("fleet-v0/toy/two-pools")
    [('fleet-v0/toy/two-pools', 0)]
    """
    if is_path(part):
        return [(str(part), number) for number in range(len(load_scenarios(part)))]
    if part in entries():
        return [(part, number) for number in range(entries()[part].scenarios)]
    refuse_other_file(part)
    if part.strip("/").count("/") > 1:
        raise UnknownNameError("instance", part, list_instances())
    return list_tasks(str(full_suite(part)))


def instances_of(part: str) -> list[str]:
    """Return the instances of `tasks_of`, each once.

    Examples
    --------
    >>> instances_of("fleet-v0/toy/two-pools")
    ['fleet-v0/toy/two-pools']
    """
    if is_path(part):
        return [str(part)]
    return list(dict.fromkeys(instance for instance, _ in tasks_of(part)))


def refuse_other_file(part: str) -> None:
    """Raise FleetgymError for a file that is no instance file, such as the trace that one is to be made of."""
    if Path(part).is_file():
        raise FleetgymError(
            f"{part} is no instance file (.json or .json.gz); if it is a trace of requests, "
            f"`fleetgym import-trace {part}` makes one of it"
        )


def evaluate(
    agents: str | Sequence[str],
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
    official : str, optional
        A time class, ``"reflex"``, ``"online"`` or ``"offline"``: every agent plays each episode in a process of its
        own under a budget of reference CPU seconds (docs/official-runs.md); then `isolate` and `limits` say nothing.
    progress : callable, optional
        Called with the numbers of finished and of all episodes.

    Returns
    -------
    Results
        With CPU seconds in each episode's `timing`.

    Raises
    ------
    FleetgymError
        For names that do not exist, an agent that cannot be made, or a results file that belongs to other jobs.

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
    suite = full_suite(suite)
    jobs = make_jobs(agents, suite, scenarios, seed)
    player = JobPlayer(isolate, limits or Limits(), None if official is None else make_rules(official))
    path = resume if resume is not None else out
    recording = Recording(jobs, suite, player, path, resume=resume is not None)
    try:
        if workers > 1 and len(recording.todo) > 1:
            load_kernels(load_instance(jobs[0].instance))  # or every worker would compile them
        recording.check_speed("before")
        for episode in play(player, recording.todo, executor=executor, workers=workers):
            recording.add(episode)
            if progress is not None:
                progress(len(recording.episodes), len(jobs))
        recording.check_speed("after")
        return recording.results()
    finally:
        recording.close()


# -- one plan


def plan(instance: InstanceSource, planner: Planner | str = "agh") -> Plan:
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

    solver = make_planner(planner) if isinstance(planner, str) else planner
    return solver.plan(View(instance).snapshot())
