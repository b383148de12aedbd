"""Declare, check and read the options that `evaluate` and `compare` share."""

from __future__ import annotations

import argparse
import contextlib
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetgym.cli.named import tell_reserved
from fleetgym.cli.options import AGENT_HELP, add_seed, add_workers
from fleetgym.cli.output import note
from fleetgym.cli.progress import ProgressBar
from fleetgym.cli.words import numbers, of
from fleetgym.files import quantities as q
from fleetgym.files.errors import FleetgymError

if TYPE_CHECKING:
    from fleetgym.evaluation.isolation.agent_process import Limits
    from fleetgym.evaluation.jobs import Job


#: What is played where nothing is named.
DEFAULT = ("fleet-v0/dev",)
#: Names every reference agent.
ALL = "all"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare them."""
    parser.add_argument(
        "agents", nargs="*", metavar="AGENT", help=f"{AGENT_HELP}; all: every reference agent"
    )
    parser.add_argument(
        "--suite",
        nargs="+",
        help="suites, instance ids or files (default: fleet-v0/dev); files may also stand among the agents",
    )
    parser.add_argument(
        "--scenarios", type=numbers, metavar="0,1,..", help="numbers of stored scenarios (default: all)"
    )
    add_workers(parser, "processes to play in; the results are the same")
    add_seed(parser, "random seed of the agents")
    parser.add_argument(
        "--isolate",
        choices=("auto", "always", "never"),
        help="run agents in a process of their own (auto, the default: all but the reference agents)",
    )
    for moment, meaning, seconds in (
        ("act", "one answer", "60"),
        ("reset", "its import and reset", "300"),
        ("episode", "all of an episode", "3,600"),
    ):
        parser.add_argument(
            f"--{moment}-limit",
            type=of(q.LIMIT_S),
            metavar="S",
            help=f"wall seconds an isolated agent may take for {meaning} (default: {seconds})",
        )
    parser.add_argument(
        "--official",
        choices=("reflex", "online", "offline"),
        help="enforce a time class: a budget of 3, 60 or 1,800 reference CPU seconds per episode, no network, "
        "limited memory, every agent isolated; it sets the limits (docs/official-runs.md)",
    )
    parser.add_argument(
        "--dask", metavar="ADDRESS", help="play on the workers of this Dask scheduler (needs fleetgym[dask])"
    )
    files = parser.add_mutually_exclusive_group()
    files.add_argument("--out", metavar="FILE", help="results file to write (default: a new one in results/)")
    files.add_argument("--resume", metavar="FILE", help="resume from this results file, or create it")


def agents(arguments: argparse.Namespace) -> list[str]:
    """Return the agents that were named, each once, where `all` stands for every one of ours."""
    from fleetgym.agents.registry import agent_entries

    ours = [name for name, entry in agent_entries().items() if entry.is_reference]
    named = (ours if word == ALL else [word] for word in arguments.agents)
    return list(dict.fromkeys(itertools.chain.from_iterable(named)))


def jobs(arguments: argparse.Namespace) -> list[Job]:
    """Return the jobs that were asked for, once the names in them are found to be good.

    Raises
    ------
    FleetgymError
        For an unknown agent or suite, and where no agent is named.
    """
    from fleetgym.evaluation.run import make_jobs
    from fleetgym.model.suites import full_suite

    arguments.suite = full_suite(arguments.suite)
    if not arguments.agents:
        raise FleetgymError(
            f"name agents, as in `fleetgym {arguments.verb} hold margin agh-rolling`; `all` names every reference "
            "agent, some of which take minutes an episode"
        )
    found = make_jobs(agents(arguments), arguments.suite, arguments.scenarios, arguments.seed)
    tell_reserved(arguments.suite)
    return found


def given(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the options as arguments of `play_jobs`, once the agents are known to be made without error.

    Raises
    ------
    FleetgymError
        For an agent that cannot be made.
    """
    from fleetgym.evaluation.isolation.preflight import preflight
    from fleetgym.evaluation.results import new_results_path

    limits = _limits(arguments)
    preflight(agents(arguments), limits.reset_wall_s, boxed=arguments.official is not None)
    if arguments.out is None and arguments.resume is None:
        arguments.out = new_results_path(arguments.suite)
        note(f"results go to {arguments.out}")
    return {
        "workers": arguments.workers,
        "isolate": arguments.isolate or "auto",
        "limits": limits,
        "official": arguments.official,
        "out": arguments.out,
        "resume": arguments.resume,
        "progress": ProgressBar("playing"),
    }


def fitting(arguments: argparse.Namespace, jobs: list[Job]) -> list[Job]:
    """Return the jobs on instances for which every agent was trained, and report the others; these can be compared.

    Raises
    ------
    FleetgymError
        If that leaves none.
    """
    from fleetgym.evaluation.isolation.preflight import fit_of

    instances, found = list(dict.fromkeys(job.instance for job in jobs)), dict[str, str]()
    for agent in () if arguments.official else agents(arguments):
        fit = fit_of(agent, instances)
        own = fit.misfits
        new = [each for each in instances if each not in (*own, *fit.trained_on)]
        if fit.trained_on and new:
            note(f"{agent} was not trained on {len(new)} of {len(instances)} instances, such as {new[0]}")
        if own:
            first, why = next(iter(own.items()))
            told = f"{agent} does not play {len(own)} of {len(instances)} instances, such as {first}: {why}"
            if len(own | found) == len(instances):
                raise FleetgymError(told)
            note(f"left out: {told}")
        found |= own
    return [job for job in jobs if job.instance not in found]


def _limits(arguments: argparse.Namespace) -> Limits:
    """Return the limits of isolated agents; options that would have no effect are refused."""
    from fleetgym.evaluation.isolation.agent_process import Limits

    seconds = {name: getattr(arguments, f"{name}_limit") for name in ("act", "reset", "episode")}
    words = [f"--{name}-limit" for name, limit in seconds.items() if limit is not None]
    if arguments.official and (words or arguments.isolate):
        raise FleetgymError(
            f"{(words or ['--isolate'])[0]}: --official isolates every agent and sets its limits"
        )
    if words and arguments.isolate == "never":
        raise FleetgymError(
            f"{words[0]} is of isolated agents, and --isolate is never: nothing could end them"
        )
    return Limits(**{f"{name}_wall_s": limit for name, limit in seconds.items() if limit is not None})


def choose_relative(arguments: argparse.Namespace) -> None:
    """By default, score files relative to the best in the run, as they have no best-known cost."""
    from fleetgym.model.library import is_path

    files = [part for part in arguments.suite if is_path(part)]
    if arguments.relative_to is None:
        arguments.relative_to = "best-in-run" if files else "best-known"
        if files:
            note(f"no best-known cost of {files[0]}: scores are relative to the best in this run")


def check(arguments: argparse.Namespace) -> None:
    """Refuse options that have no effect beside others, and agents among the suites; say if there is nothing to resume.

    Instance files among the agents become a part of the suite.

    Raises
    ------
    FleetgymError
        For the first.
    """
    _limits(arguments)
    from fleetgym.agents.registry import agent_entries

    files = [word for word in arguments.agents if word.endswith((".json", ".json.gz"))]
    arguments.agents = [word for word in arguments.agents if word not in files]
    arguments.suite = [*files, *(arguments.suite or (() if files else DEFAULT))]
    for word in arguments.suite[1:]:
        if word.partition("(")[0] in agent_entries() or ".py:" in word:
            raise FleetgymError(
                f"{word!r} is an agent, and --suite takes all words after it; name agents first, as in "
                f"fleetgym {arguments.verb} {word} --suite {arguments.suite[0]}"
            )
    if arguments.resume is not None and not Path(arguments.resume).exists():
        note(f"there is no {arguments.resume} yet: this is a new run")


def executor(arguments: argparse.Namespace) -> contextlib.AbstractContextManager[Any]:
    """Return what enters the executor that was asked for: the workers of a Dask scheduler, or None."""
    if arguments.dask is None:
        return contextlib.nullcontext()
    from fleetgym.evaluation.dask_cluster import dask_executor

    return dask_executor(arguments.dask)
