"""Search for cheaper episodes of a suite's tasks and write its best-known costs.

Agents are played, the cheapest episode of each task is improved by local search with the whole scenario known, and
what comes out is replayed before it is written. Toys are solved to proven optimality. Work is bounded by counts.

    python tools/update_best_known.py fleet-v0/toy fleet-v0/dev --agents hold agh-rolling --steps 200000
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import sys
from pathlib import Path

import numpy as np

from fleetgym.evaluation.executors import play
from fleetgym.evaluation.jobs import stored_scenario
from fleetgym.evaluation.results import Results, read_results
from fleetgym.evaluation.run import evaluate, instances_of
from fleetgym.exact import StateSpaceError
from fleetgym.library import list_instances, load_instance, load_scenarios
from fleetgym.scoring.best_known import (
    BEST_KNOWN_FORMAT,
    BestKnown,
    BestKnownSet,
    best_known_path,
    offer,
    read_actions,
    read_best_known,
    task_name,
    write_actions,
    write_best_known,
)
from fleetgym.scoring.comparison import nominal_actions, optimal_actions
from fleetgym.scoring.improvement import improve

ROOT = Path(__file__).resolve().parent.parent


@dataclasses.dataclass(frozen=True)
class Search:
    """One task with the episodes to start from."""

    instance: str
    scenario: int
    starts: tuple[tuple[str, np.ndarray], ...]  # who, what; the cheapest first
    known: BestKnown | None


@dataclasses.dataclass(frozen=True)
class Searcher:
    """Improves one task; can be sent to another process."""

    steps: int
    seed: int
    date: str
    judge: bool

    def __call__(self, search: Search) -> tuple[BestKnown, np.ndarray] | None:
        """Return a better value and its actions, or None."""
        problem = load_instance(search.instance)
        if problem.family == "toy":
            try:
                actions = optimal_actions(search.instance, search.scenario)
                return self._offer(search, actions, "dynamic programming", proven=True)
            except StateSpaceError:
                pass
        (who, start), *others = search.starts
        scenario = stored_scenario(search.instance, search.scenario)
        found = improve(
            problem,
            scenario,
            start,
            others=[actions for _, actions in others],
            max_steps=self.steps,
            seed=self.seed,
        )
        method = f"{who} + local search ({found.steps} windows)" if found.accepted else who
        return self._offer(search, found.actions, method)

    def isolated(self) -> Searcher:
        """Return the same: no agent runs here."""
        return self

    def _offer(
        self, search: Search, actions: np.ndarray, method: str, proven: bool = False
    ) -> tuple[BestKnown, np.ndarray] | None:
        better = offer(
            search.known,
            instance=search.instance,
            scenario=search.scenario,
            actions=actions,
            method=method,
            date=self.date,
            proven=proven,
            judge=self.judge,
        )
        return None if better is None else (better, actions)


def searches(
    results: list[Results], instances: list[str], known: BestKnownSet | None, folder: Path
) -> list[Search]:
    """Return one search per task, with every episode there is to start from."""
    found = []
    for name in instances:
        for k in range(len(load_scenarios(name))):
            candidates = (
                [(0.0, "best-known", read_actions(folder, name, k))] if _is_current(known, name, k) else []
            )
            for run in results:
                for episode in run.episodes:
                    same = (
                        run.header.instances[episode.instance].content_hash
                        == load_instance(name).content_hash
                    )
                    if same and (episode.instance, episode.scenario) == (name, k):
                        candidates.append((episode.cost_usd, episode.agent, run.actions(episode)))
            candidates.append((np.inf, "nominal-static", nominal_actions(name)))
            candidates.sort(key=lambda c: c[0])
            old = known.tasks.get(task_name(name, k)) if known else None
            found.append(Search(name, k, tuple((who, actions) for _, who, actions in candidates), old))
    return found


def _is_current(known: BestKnownSet | None, name: str, k: int) -> bool:
    best = None if known is None else known.tasks.get(task_name(name, k))
    return best is not None and best.instance_hash == load_instance(name).content_hash


def update(suite: str, instances: list[str], results: list[Results], arguments: argparse.Namespace) -> None:
    """Search all tasks of one suite such as fleet-v0 and write its file."""
    path = best_known_path(suite)
    known = read_best_known(path) if path.is_file() else None
    tasks = dict(known.tasks) if known else {}
    todo = searches(results, instances, known, arguments.actions)
    searcher = Searcher(arguments.steps, arguments.seed, arguments.date, arguments.judge)
    for search, found in zip(todo, play(searcher, todo, workers=arguments.workers), strict=True):
        task = task_name(search.instance, search.scenario)
        if found is None:
            print(f"{task}: {tasks[task].value_usd:.6f} USD stays")
            continue
        before = f" (was {tasks[task].value_usd:.6f})" if task in tasks else ""
        print(f"{task}: {found[0].value_usd:.6f} USD{before}, {found[0].method}", flush=True)
        tasks[task] = found[0]
        write_actions(arguments.actions, search.instance, search.scenario, *found)
    current = set(list_instances(suite))
    tasks = {task: best for task, best in sorted(tasks.items()) if task.rpartition("#")[0] in current}
    write_best_known(path, BestKnownSet(format=BEST_KNOWN_FORMAT, name=arguments.name, tasks=tasks))


def main(argv: list[str] | None = None) -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("suite", nargs="+", help="suites or instances of one set, such as fleet-v0/dev")
    parser.add_argument("--agents", nargs="*", default=[], help="agents to play first")
    parser.add_argument("--results", nargs="*", default=[], type=Path, help="results files to start from")
    parser.add_argument("--steps", type=int, default=200_000, help="windows of local search per task")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--judge", action="store_true", help="replay with the reference implementation too")
    parser.add_argument("--name", default=f"bks-{datetime.date.today():%Y-%m}")
    parser.add_argument("--date", default=f"{datetime.date.today():%Y-%m-%d}")
    parser.add_argument("--actions", type=Path, default=ROOT / "leaderboard" / "best_known")
    arguments = parser.parse_args(argv)
    instances = [name for part in arguments.suite for name in instances_of(part)]
    results = [read_results(path) for path in arguments.results]
    if arguments.agents:
        results.append(evaluate(arguments.agents, instances, workers=arguments.workers))
    for suite in sorted({name.partition("/")[0] for name in instances}):
        update(suite, [n for n in instances if n.startswith(f"{suite}/")], results, arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
