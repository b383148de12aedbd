"""Search for better best-known costs: ``fleetgym best-known search``."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetgym.cli.options import add_seed, add_workers
from fleetgym.cli.output import note, print_json
from fleetgym.cli.words import of
from fleetgym.files import quantities as q
from fleetgym.files.errors import FleetgymError
from fleetgym.runtime.places import checkout

if TYPE_CHECKING:
    from fleetgym.search.best_known_search import Campaign, Found


def add(actions: argparse._SubParsersAction[Any]) -> argparse.ArgumentParser:
    """Return the parser of the search, with its options."""
    p = actions.add_parser(
        "search",
        help="search for cheaper episodes with the whole day known, and write them as best-known costs",
        description="Search for cheaper episodes with the whole day known, and write them as best-known costs.\n"
        "Each result is replayed before it is written. The same call gives the same result.",
        epilog="examples:\n"
        "  fleetgym best-known search fleet-v0/toy --out mine\n"
        "  fleetgym best-known search fleet-v1/dev --agents hold agh-rolling --out mine --resume mine/done.jsonl\n"
        "  fleetgym best-known search fleet-v1/test --no-bounds --receding 12 --probe 40",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    p.add_argument("suite", nargs="+", help="suites or instances, such as fleet-v0/dev")
    p.add_argument(
        "--agents", nargs="*", default=[], help="agents to play first; the search starts from the best"
    )
    p.add_argument("--files", nargs="*", default=[], help="results or actions files to start from")
    p.add_argument(
        "--steps",
        type=of(q.NUMBER),
        default=3_000_000,
        help="windows of search per task; 0: only bounds and episodes (default: 3000000, 18 CPU s at size s, 45 at m)",
    )
    p.add_argument(
        "--receding",
        type=of(q.NUMBER),
        default=0,
        metavar="WINDOWS",
        help="also start from a receding-horizon plan that knows this many windows, such as 12 (default: 0, no plan)",
    )
    p.add_argument(
        "--no-bounds",
        action="store_true",
        help="compute no lower bounds, which take minutes a task of size m",
    )
    p.add_argument(
        "--solver",
        choices=["ipx", "hipo"],
        default="ipx",
        help="solver of the bounds; hipo needs fleetgym[bounds]",
    )
    p.add_argument(
        "--probe",
        type=of(q.NUMBER),
        default=0,
        metavar="N",
        help="search only N tasks, drawn by --seed; report how much cheaper they become, and write nothing",
    )
    add_seed(p, "random seed of the search")
    add_workers(p)
    p.add_argument("--judge", action="store_true", help="replay with the reference implementation too")
    p.add_argument(
        "--time-limit", type=of(q.LIMIT_S), metavar="S", help="start no task after this many seconds"
    )
    p.add_argument(
        "--resume",
        type=Path,
        metavar="FILE",
        help="skip the searches that this file lists as finished, or create it",
    )
    p.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="folder for SUITE/best_known.json and the actions (default, in a checkout: the set's own files)",
    )
    p.add_argument(
        "--name", help="name of the set of values (default: the present one or, if that is frozen, the next)"
    )
    p.add_argument("--date", help="date of the values, YYYY-MM-DD (default: today)")
    return p


def search(arguments: argparse.Namespace) -> int:
    """Search tasks for cheaper episodes; write what is found, or with --probe only report it."""
    from fleetgym.evaluation.run import evaluate
    from fleetgym.model.suites import tasks_of
    from fleetgym.search.best_known_search import Campaign, Searcher, cheapest
    from fleetgym.search.propose import Candidate, candidates_of, read_candidates

    tasks = [task for part in arguments.suite for task in tasks_of(part)]
    candidates: list[Candidate] = []
    for path in arguments.files:
        candidates = cheapest([*candidates, *read_candidates(path)])
    if arguments.agents:
        candidates += candidates_of(evaluate(arguments.agents, arguments.suite, workers=arguments.workers))
    date = arguments.date or f"{datetime.date.today():%Y-%m-%d}"
    solver = None if arguments.no_bounds else arguments.solver
    searcher = Searcher(arguments.steps, arguments.seed, date, arguments.judge, solver, arguments.receding)
    found: list[Found] = []

    def report(one: Found) -> None:
        found.append(one)
        if not arguments.json:
            print(one, flush=True)

    left = 0
    for suite in sorted({name.partition("/")[0] for name, _ in tasks}):
        campaign = Campaign(suite, searcher, *_places(arguments, suite), candidates)
        wanted = [task for task in tasks if task[0].startswith(f"{suite}/")]
        if arguments.probe:
            _probe(campaign, wanted, arguments, report)
        else:
            left += campaign.update(
                wanted,
                _set_name(arguments, campaign, date),
                report,
                workers=arguments.workers,
                seconds=arguments.time_limit,
                resume=arguments.resume,
            )
    if arguments.json:
        facts = [{"task": one.task, **dataclasses.asdict(one.best)} for one in found]
        print_json(facts)
    if left:
        note(f"{left} tasks were not started within --time-limit")
    return 0


def _places(arguments: argparse.Namespace, suite: str) -> tuple[Path, Path]:
    """Return the file of values and the folder of actions that the search writes."""
    from fleetgym.scoring.best_known import best_known_path

    if arguments.out:
        return arguments.out / suite / "best_known.json", arguments.out / "actions"
    if (root := checkout()) is None:
        raise FleetgymError("--out FOLDER: name a folder for what is found")
    return best_known_path(suite), root / "leaderboard" / "best_known"


def _set_name(arguments: argparse.Namespace, campaign: Campaign, date: str) -> str:
    """Return the name of the set of values that is written; a frozen one is refused."""
    from fleetgym.leaderboard.registers import read_registers
    from fleetgym.scoring.best_known import SET_NAME
    from fleetgym.search.best_known_search import next_name

    root, suite = checkout(), campaign.suite
    releases = () if root is None else read_registers(root / "leaderboard").releases
    frozen = {release.name for release in releases if release.suite == suite}
    if root is None and not campaign.values.is_file() and campaign.known is not None:
        frozen.add(campaign.known.name)  # the values of an installed set are frozen
    name = arguments.name or next_name(campaign.known, frozen, date)
    if name in frozen:
        raise FleetgymError(f"{name} of {suite} is frozen; new values need a new name")
    SET_NAME.read(name, "--name")
    return name


def _probe(
    campaign: Campaign,
    wanted: Sequence[tuple[str, int]],
    arguments: argparse.Namespace,
    report: Callable[[Found], None],
) -> None:
    """Report how much cheaper some tasks become."""
    begin = _cpu_s()
    gains = campaign.probe(wanted, arguments.probe, report, workers=arguments.workers)
    if not arguments.json:
        mean, median, most = (100 * f(gains) for f in (statistics.fmean, statistics.median, max))
        spent = (_cpu_s() - begin) / len(gains)
        print(
            f"{len(gains)} tasks: {mean:.2f} % cheaper in the mean, {median:.2f} % in the"
            f" median, {most:.2f} % at most; {spent:.0f} CPU s a task"
        )


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its workers that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system
