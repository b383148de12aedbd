"""Implement the remaining subcommands: each calls one public function."""

from __future__ import annotations

import argparse
import importlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fleetgym.cli import calibrate, instance_verbs, pages, run_options, submissions, trace_options
from fleetgym.cli.checks import tell_checks
from fleetgym.cli.named import instance_name, tell_reserved
from fleetgym.cli.output import note, tell
from fleetgym.cli.pictures import check_picture
from fleetgym.cli.progress import ProgressBar
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.runtime.text_tables import align, number
from fleetgym.runtime.variables import environment_variable

_MOST_FAILURES = 5


# -- looking


def list_things(arguments: argparse.Namespace) -> int:
    """List suites, agents, instances, or the arguments of an agent."""
    if arguments.agent is not None:
        if arguments.what != "agents":
            raise FleetgymError(
                f"only an agent's name may follow, as in `fleetgym list agents agh`; got {arguments.agent} after "
                f"{arguments.what}"
            )
        _list_arguments(arguments)
    elif arguments.what == "agents":
        _list_agents(arguments)
    elif arguments.what == "suites":
        _list_suites(arguments)
    else:
        _list_instances(arguments)
    return 0


def _list_instances(arguments: argparse.Namespace) -> None:
    from fleetgym.model.library import entries, list_tasks, samples
    from fleetgym.model.sets import unknown
    from fleetgym.model.suites import full_suite

    suite = str(full_suite(arguments.what))
    try:
        tasks = list_tasks(suite)
    except UnknownNameError as error:
        raise unknown("suite", suite, {"agents", "suites", *error.known}) from None
    scenarios: dict[str, list[int]] = {}
    for name, scenario in tasks:
        scenarios.setdefault(name, []).append(scenario)
    found = [(entries()[name], numbers) for name, numbers in scenarios.items()]
    sample = samples().get(suite)
    facts = ("id", "family", "size", "scenarios", "content_hash")
    played = [{} if sample is None else {"played": numbers} for _, numbers in found]
    shown = [str(len(n)) if sample is None else ", ".join(f"#{k}" for k in n) for _, n in found]
    rows = [[e.id, e.family, e.size, text] for (e, _), text in zip(found, shown, strict=True)]
    table = align(["instance", "family", "size", "scenarios"], rows, left=3)
    tell(
        arguments,
        [{**{n: getattr(e, n) for n in facts}, **p} for (e, _), p in zip(found, played, strict=True)],
        table if sample is None else f"{sample.id}: {sample.about}\n\n{table}",
    )


def _list_agents(arguments: argparse.Namespace) -> None:
    from fleetgym.agents.registry import agent_entries, summary

    rows = [[e.name, e.target, e.distribution, summary(e.target)] for e in agent_entries().values()]
    table = align(["agent", "from", "what it is"], [[name, *rest] for name, _, *rest in rows], left=3)
    hint = "`fleetgym list agents NAME` lists what goes in parentheses, as in 'agh-rolling(every=3)'."
    facts = [dict(zip(("name", "target", "package", "summary"), row, strict=True)) for row in rows]
    tell(arguments, facts, f"{table}\n\n{hint}")


def _list_arguments(arguments: argparse.Namespace) -> None:
    from fleetgym.agents.arguments import written
    from fleetgym.agents.registry import load_target, parse_agent, summary

    name = arguments.agent
    spec = parse_agent(name)
    about = summary(spec.target)
    try:
        settings = written(load_target(spec.target), typed=spec.is_reference)
    except Exception:  # whatever a foreign module does when it is imported
        raise FleetgymError(f"{name} {about}") from None
    table = align(["argument", "default"], list(settings.items()), left=2) if settings else "no arguments"
    facts = {"name": name, "target": spec.target, "summary": about, "arguments": settings}
    tell(arguments, facts, f"{name}: {about} ({spec.target})\n\n{table}")


def _list_suites(arguments: argparse.Namespace) -> None:
    from fleetgym.model.library import list_instances, suites

    facts = {
        suite: {"instances": len(list_instances(suite)), "tasks": len(tasks)}
        for suite, tasks in suites().items()
    }
    table = align(["suite", "instances", "tasks"], [[s, *map(str, n.values())] for s, n in facts.items()])
    hint = "`fleetgym list SUITE` lists its instances, `fleetgym list agents` the agents."
    tell(arguments, facts, f"{table}\n\n{hint}")


def show(arguments: argparse.Namespace) -> int:
    """Print an instance."""
    from fleetgym.cli.describe import describe_instance
    from fleetgym.model.library import load_instance, load_scenarios

    name = instance_name(arguments.instance)
    instance = load_instance(name)
    try:
        scenarios = () if arguments.json else load_scenarios(name)
    except FileNotFoundError:  # an instance of one's own need not have any
        scenarios = ()
    tell(arguments, instance.to_dict(), describe_instance(instance, scenarios))
    return 0


# -- planning


def import_trace(arguments: argparse.Namespace) -> int:
    """Make an instance from a trace."""
    from fleetgym.capacity.traces.importing import id_from_name
    from fleetgym.capacity.traces.importing import import_trace as make
    from fleetgym.capacity.traces.importing import instance_name as name_for
    from fleetgym.cli.trace_report import describe_trace, trace_facts
    from fleetgym.model.instance_files import output_files

    chosen = trace_options.given(arguments)
    target = Path(arguments.out or name_for(arguments.trace[0]))
    if os.path.realpath(target) in map(os.path.realpath, arguments.trace):
        raise FleetgymError(
            f"{target} is of the trace; expected another name for the instance, as in --out day.json"
        )
    out, _ = output_files(target, force=arguments.force)  # before the work
    name = id_from_name(out.name.removesuffix(".gz").removesuffix(".json"))
    made = make(arguments.trace, name=name, **chosen)
    instance, scenarios = made.write(out, force=arguments.force)
    files = str(instance), str(scenarios)
    tell(arguments, trace_facts(made, files), describe_trace(made, files))
    return 0


# -- playing


def run(arguments: argparse.Namespace) -> int:
    """Play one episode and print its windows."""
    from fleetgym.evaluation.isolation.agent_runner import TRACEBACK
    from fleetgym.evaluation.isolation.preflight import preflight
    from fleetgym.evaluation.jobs import Job, close_agents, run_job, stored_scenario

    frames = print if arguments.render == "ansi" and not arguments.json else None
    job = Job(arguments.agent, instance_name(arguments.instance), arguments.scenario, arguments.seed)
    stored_scenario(job.instance, job.scenario)
    tell_reserved([job.instance])
    preflight([job.agent])
    with environment_variable(TRACEBACK, "1"):  # one agent, one episode: whoever watches wants to know
        episode = run_job(job, watch=frames)
        close_agents()
    if arguments.json:
        print(episode.to_line(), end="")
    else:
        terms = {**vars(episode.costs), "cost": episode.cost_usd}
        rows = [[name, number(usd, 2)] for name, usd in terms.items() if usd or name == "cost"]
        print(
            f"\n{arguments.agent} on {arguments.instance}, scenario {episode.scenario} ({episode.scenario_id})"
        )
        print(align(["term", "USD"], rows))
        print(
            f"missed {100 * episode.miss_share:.2f} % of the requests, {100 * episode.unserved_share:.2f} % unserved"
        )
    return _report_failures([episode])


def simulate(arguments: argparse.Namespace) -> int:
    """Simulate one window of an agent's episode, or the hour around it."""
    from fleetgym.capacity.running import read_running
    from fleetgym.capacity.simulation import referee
    from fleetgym.capacity.simulation.window import check_window, held_windows, played_windows
    from fleetgym.cli.simulate_report import (
        describe_simulation,
        plot_simulation,
        replay_facts,
        simulate_facts,
    )
    from fleetgym.evaluation.isolation.preflight import preflight
    from fleetgym.evaluation.jobs import stored_scenario
    from fleetgym.model.library import load_instance

    check_picture(arguments.plot)
    by_token = arguments.engine == "dynamo"
    if by_token:
        if arguments.law is not None:
            raise FleetgymError(
                "--law is of --engine slots: dynamo draws lengths, and service follows from them"
            )
        referee.check_referee()
    law = arguments.law or "gamma"
    instance = instance_name(arguments.instance)
    scenario = stored_scenario(instance, arguments.scenario)
    busiest = int(scenario.rate_rps.sum(axis=1).argmax())
    window = busiest if arguments.window is None else arguments.window
    windows = referee.hour_around(window, len(scenario.rate_rps)) if by_token else (window,)
    if arguments.plan is None:
        player = arguments.agent or "agh"
        preflight([player])
        played = played_windows(instance, player, arguments.scenario, windows, arguments.seed)
    elif arguments.agent is not None:
        raise FleetgymError("--plan holds the fleet of a plan, and --agent plays: give one of them")
    else:
        player = str(arguments.plan)
        fleet = read_running(arguments.plan, load_instance(instance))
        played = held_windows(instance, fleet, arguments.scenario, windows)
    if by_token:
        warmup = min(referee.WARMUP, len(played) - 1)
        found = referee.replay(
            played,
            warmup=warmup,
            seed=arguments.seed,
            max_replications=arguments.replications or 8,
            progress=ProgressBar("replaying, at most"),
        )
        facts = replay_facts(played[warmup:], found)
    else:
        verdict = check_window(
            played[0],
            law=law,
            seed=arguments.seed,
            max_requests=300_000,
            min_replications=min(8, arguments.replications or 32),
            max_replications=arguments.replications or 32,
        )
        facts = simulate_facts(verdict, law)
    facts = {"agent": player, **facts}
    if arguments.plot is not None:
        plot_simulation(facts, arguments.plot)
    tell(arguments, facts, describe_simulation(facts, player, arguments.scenario))
    return 0


def evaluate(arguments: argparse.Namespace) -> int:
    """Play agents on a suite."""
    from fleetgym.evaluation.run import play_jobs
    from fleetgym.scoring.comparison import is_known

    run_options.check(arguments)
    jobs = run_options.jobs(arguments)
    with run_options.executor(arguments) as executor:
        options = run_options.given(arguments) | {"executor": executor}
        results = play_jobs(jobs, arguments.suite, **options)
    costs = {a: sum(e.cost_usd for e in results.episodes if e.agent == a) for a in results.agents}
    where = str(arguments.resume or arguments.out)
    table = align(["agent", "cost USD"], [[agent, number(usd, 2)] for agent, usd in costs.items()])
    how = "" if is_known(results) else " --relative-to best-in-run"
    tell(
        arguments,
        {"results": where, "cost_usd": costs, "failures": len(results.failures)},
        f"{table}\n\nnext: fleetgym score {where}{how}",
    )
    return _report_episodes(results)


def compare(arguments: argparse.Namespace) -> int:
    """Play agents on a suite and score them."""
    from fleetgym.scoring import comparison

    run_options.check(arguments)
    run_options.choose_relative(arguments)
    jobs = run_options.jobs(arguments)  # names first, files after
    known = comparison.best_known_of(jobs) if arguments.relative_to == "best-known" else None
    with run_options.executor(arguments) as executor:
        options = run_options.given(arguments) | {"executor": executor, "relative_to": arguments.relative_to}
        jobs = run_options.fitting(arguments, jobs)
        results, table = comparison.compare_jobs(jobs, arguments.suite, known, **options)
    tell(arguments, table.to_dict(), str(table))
    if arguments.relative_to == "best-known":
        _report_cheaper(results, str(arguments.resume or arguments.out))
    return _report_episodes(results)


def _report_episodes(results: Any) -> int:
    """Tell what a run's episodes and speed checks hold; the exit code is 1 if an agent failed."""
    spent = [e for e in results.episodes if e.budget_spent_at_window is not None]
    if spent:
        episodes = f"{len(spent)} episode{'s' if len(spent) > 1 else ''}"
        agents = ", ".join(dict.fromkeys(e.agent for e in spent))
        note(f"budget spent in {episodes}, whose fleet then stayed: {agents}")
    for check in results.speed_checks:
        if not check.is_within:
            speed = f"the machine's speed was {check.drift:+.0%} from its calibration"
            note(f"marked: {check.moment} the run {speed}")
    differing = [f"{c.agent} on {c.instance}#{c.scenario}" for c in results.repeat_checks if not c.is_same]
    if differing:
        episodes = f"{len(differing)} of {len(results.repeat_checks)} episodes"
        note(f"marked: did something else when {episodes} were played again: {', '.join(differing[:3])}")
    return _report_failures(results.episodes)


def _report_cheaper(results: Any, file: str) -> None:
    """Say so if an episode costs less than the best known."""
    from fleetgym.scoring.best_known import load_best_known

    known = load_best_known(results.header.instances)
    tasks = set()
    for e in results.episodes:
        best = known.find(e.instance, e.scenario, results.header.instances[e.instance].content_hash)
        if e.cost_usd < best.value_usd * (1.0 - 1e-6):
            tasks.add(e.task)
    if tasks:
        count = f"{len(tasks)} task{'s' if len(tasks) > 1 else ''}"
        note(f"cheaper than best known in {count}: `fleetgym best-known propose {file}` says where")


def _report_failures(episodes: Sequence[Any]) -> int:
    failed = [episode for episode in episodes if episode.failure is not None]
    for episode in failed[:_MOST_FAILURES]:
        failure = episode.failure
        where = f"{episode.agent} on {episode.instance}#{episode.scenario}, window {failure.window}"
        note(f"failed: {where}: {failure.kind}: {failure.message}")
    if len(failed) > _MOST_FAILURES:
        note(f"... and {len(failed) - _MOST_FAILURES} more failed episodes")
    return 1 if failed else 0


def check_agent(arguments: argparse.Namespace) -> int:
    """Validate an agent on toys."""
    from fleetgym.cli import check_agent as battery

    found = battery.check_agent(arguments.agent, arguments.suite, official=arguments.official)
    return tell_checks(arguments, found)


# -- keeping


def score(arguments: argparse.Namespace) -> int:
    """Score a results file."""
    from fleetgym.evaluation.results import read_results
    from fleetgym.scoring.score import score as score_of

    results = read_results(arguments.results)
    table = score_of(results, relative_to=arguments.relative_to)
    tell(arguments, table.to_dict(), str(table))
    if arguments.relative_to == "best-known":
        _report_cheaper(results, arguments.results)
    return 0


def doctor(arguments: argparse.Namespace) -> int:
    """Check the installation."""
    from fleetgym.cli import doctor as examination

    return tell_checks(arguments, examination.doctor())


def warmup(arguments: argparse.Namespace) -> int:
    """Compile the kernels."""
    from fleetgym.cli import doctor as examination

    folder = examination.warmup()
    tell(arguments, {"cache": folder}, f"kernels are compiled: {folder}")
    return 0


def _later(module: str) -> Callable[[argparse.Namespace], int]:
    """Return the verb of a module, which is imported only when the verb is called."""
    return lambda arguments: int(importlib.import_module(f"fleetgym.cli.{module}").run(arguments))


VERBS: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": list_things,
    "check": instance_verbs.check,
    "generate": instance_verbs.generate,
    "show": show,
    "import-trace": import_trace,
    "plan": _later("plan_verb"),
    "run": run,
    "simulate": simulate,
    "study": _later("study"),
    "evaluate": evaluate,
    "compare": compare,
    "check-agent": check_agent,
    "score": score,
    "explain": _later("explain"),
    "best-known": _later("best_known"),
    "submit": submissions.submit,
    "verify": submissions.verify,
    "season": submissions.season,
    "rerun": submissions.rerun,
    "leaderboard": pages.leaderboard,
    "report": pages.report,
    "calibrate": calibrate.run,
    "doctor": doctor,
    "warmup": warmup,
}
