"""Search for cheaper episodes of a suite's tasks and write its best-known costs.

Agents are played and a lower bound is computed. The cheapest of the episodes, of the rounded relaxation and of a
receding-horizon plan is improved by search with the whole scenario known. What comes out is replayed before it is
written, task by task. Toys are solved to proven optimality. Work is bounded by counts.

    python -m tools.update_best_known fleet-v0/toy fleet-v0/dev --agents hold agh-rolling --steps 200000
    python -m tools.update_best_known fleet-v0/dev --steps 0 --judge        # bounds only
    python -m tools.update_best_known fleet-v1/dev --no-bounds --files FOLDER/*  # from episodes, in seconds a task
    python -m tools.update_best_known fleet-v0 --steps 0 --files FOLDER/*   # what `fleetgym bks propose` found
    python -m tools.update_best_known fleet-v1/test --no-bounds --receding 12 --probe 40  # how far values are from done

A set whose name a release has frozen stays as it is there; what is found goes on under the next name.
"""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import os
import shutil
from pathlib import Path

import numpy as np

from fleetgym.bounds import HindsightBound, hindsight_bound
from fleetgym.bounds.exact import StateSpaceError
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.envs.day import play_day
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.evaluation.executors import play
from fleetgym.evaluation.jobs import stored_scenario
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import FleetgymError
from fleetgym.files.quantities import NUMBER, SEED, WORKERS
from fleetgym.leaderboard.registers import read_registers
from fleetgym.model.instance import Instance
from fleetgym.model.library import Task, list_instances, load_instance, task_name
from fleetgym.model.scenario import Scenario
from fleetgym.model.suites import tasks_of
from fleetgym.runtime.programs import program
from fleetgym.scoring.best_known import (
    BEST_KNOWN_FORMAT,
    SET_NAME,
    TOLERANCE,
    BestKnown,
    BestKnownSet,
    best_known_path,
    offer,
    read_actions,
    read_best_known,
    verified_cost_usd,
    write_actions,
    write_best_known,
)
from fleetgym.scoring.comparison import nominal_actions, optimal_actions
from fleetgym.scoring.hindsight import plan_in_hindsight
from fleetgym.scoring.propose import Candidate, candidates_of, read_candidates
from tools.separable_bound import separable_bound
from tools.tell_lookahead import ToldLookahead

MAX_STARTS = 2  # episodes that the search starts from, besides the relaxation
MAX_REPLAYED = 3  # of a task's episodes those that claim to be cheapest

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
    """Bounds and improves one task; can be sent to another process."""

    steps: int
    seed: int
    date: str
    judge: bool
    solver: str | None = "ipx"  # of bounds; None: without them
    receding: int = 0  # true windows that a receding-horizon plan to start from sees; 0: none

    def __call__(self, search: Search) -> tuple[BestKnown, np.ndarray]:
        """Return the task's value, which may be the old one, and its actions."""
        problem = load_instance(search.instance)
        if problem.family == "toy":
            try:
                actions = optimal_actions(search.instance, search.scenario)
                return self._best(search, None, actions, "dynamic programming", proven=True)
            except StateSpaceError:
                pass
        scenario = stored_scenario(search.instance, search.scenario)
        who, start = search.starts[0]
        bound = best_bound(problem, scenario, self.solver) if self.solver else None
        bound_usd, serving = (bound.bound_usd, bound.serving) if bound else (None, None)
        if self.steps == 0:
            return self._best(search, bound_usd, start, who)
        starts = [actions for _, actions in search.starts[:MAX_STARTS]]
        if self.receding:
            starts.append(receding_actions(problem, scenario, self.receding))
        found = plan_in_hindsight(
            problem,
            scenario,
            serving,
            starts=starts,
            max_steps=self.steps,
            seed=self.seed,
        )
        origin = "rounded relaxation, episodes" if bound else "episodes"
        origin += ", receding horizon" if self.receding else ""
        return self._best(search, bound_usd, found.actions, f"{origin} + local search ({self.steps} windows)")

    def isolated(self) -> Searcher:
        """Return the same: no agent runs here."""
        return self

    def _best(
        self, search: Search, bound_usd: float | None, actions: np.ndarray, method: str, proven: bool = False
    ) -> tuple[BestKnown, np.ndarray]:
        better = offer(
            search.known,
            instance=search.instance,
            scenario=search.scenario,
            actions=actions,
            method=method,
            date=self.date,
            proven=proven,
            by_reference=self.judge,
        )
        if better is None:
            assert search.known is not None  # offer takes anything where nothing is known
            better, actions = search.known, search.starts[0][1]
        return tightened(better, bound_usd, task_name(search.instance, search.scenario)), actions


def receding_actions(instance: Instance, scenario: Scenario, windows: int) -> np.ndarray:
    """Return what `lookahead` does when it is told so many windows to come, int64 (windows, slots)."""
    agent = ToldLookahead(scenario, windows, paths=1, windows=windows)
    played = play_day(FleetAllocEnv(instance), agent, scenario)
    return np.array([window.action for window in played], dtype=np.int64)


def best_bound(instance: Instance, scenario: Scenario, solver: str) -> HindsightBound:
    """Return the bound that is proven in the least time: window by window by our own method where that is possible."""
    found = separable_bound(instance, scenario)
    return hindsight_bound(instance, scenario, solver=solver) if found is None else found


def tightened(best: BestKnown, bound_usd: float | None, task: str) -> BestKnown:
    """Return a value with the larger of its bound and another one; a bound above the value is an error."""
    if bound_usd is None or best.proven:
        return best
    if bound_usd > best.value_usd * (1.0 + TOLERANCE):
        raise FleetgymError(
            f"{task}: the bound {bound_usd!r} exceeds the cost {best.value_usd!r} of an episode"
        )
    return dataclasses.replace(best, bound_usd=max(bound_usd, best.bound_usd or 0.0))


def searches(
    candidates: list[Candidate], tasks: list[Task], known: BestKnownSet | None, folder: Path
) -> list[Search]:
    """Return one search per task, with the episodes there are to start from, the cheapest first."""
    by_task: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        by_task.setdefault(candidate.task, []).append(candidate)
    found = []
    for name, k in tasks:
        starts = [(c.method, c.actions) for c in by_task.get(task_name(name, k), ())]
        if _is_current(known, name, k):
            starts.append(("best-known", read_actions(folder, name, k)))
        if not starts:
            starts.append(("nominal-static", nominal_actions(name)))
        costs = {id(actions): verified_cost_usd(name, k, actions) for _, actions in starts}
        starts.sort(key=lambda start: costs[id(start[1])])
        old = known.tasks.get(task_name(name, k)) if known else None
        found.append(Search(name, k, tuple(starts), old))
    return found


def cheapest(candidates: list[Candidate]) -> list[Candidate]:
    """Return of each task the episodes that claim to be cheapest."""
    kept: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda c: c.claimed_usd):
        found = kept.setdefault(candidate.task, [])
        if len(found) < MAX_REPLAYED:
            found.append(candidate)
    return [candidate for found in kept.values() for candidate in found]


def _is_current(known: BestKnownSet | None, name: str, k: int) -> bool:
    best = None if known is None else known.tasks.get(task_name(name, k))
    return best is not None and best.instance_hash == load_instance(name).content_hash


def update(
    suite: str, wanted: list[Task], candidates: list[Candidate], arguments: argparse.Namespace
) -> None:
    """Search all tasks of one suite such as fleet-v0 and write its file, anew after every task."""
    path = best_known_path(suite)
    known = read_best_known(path) if path.is_file() else None
    current = set(list_instances(suite))
    tasks = {} if known is None else {t: b for t, b in known.tasks.items() if t.rpartition("#")[0] in current}
    frozen = {
        release.name for release in read_registers(ROOT / "leaderboard").releases if release.suite == suite
    }
    name = arguments.name or next_name(known, frozen, arguments.date)
    if name in frozen:
        raise FleetgymError(f"{name} of {suite} is frozen; new values need a new name")
    SET_NAME.read(name, "--name")
    todo = searches(candidates, wanted, known, arguments.actions)
    found = play(searcher_of(arguments), todo, workers=arguments.workers)
    for search, (best, actions) in zip(todo, found, strict=True):
        task = task_name(search.instance, search.scenario)
        print(_line(task, tasks.get(task), best), flush=True)
        if task not in tasks or tasks[task].value_usd != best.value_usd:
            write_actions(arguments.actions, search.instance, search.scenario, best, actions)
        tasks[task] = best
        write_best_known(path, BestKnownSet(format=BEST_KNOWN_FORMAT, name=name, tasks=tasks))


def probe(suite: str, wanted: list[Task], candidates: list[Candidate], arguments: argparse.Namespace) -> None:
    """Search a few tasks of one suite on, and say how much cheaper they become; nothing is written."""
    known = read_best_known(best_known_path(suite))
    wanted = [task for task in wanted if _is_current(known, *task)]
    if not wanted:
        raise FleetgymError(f"--probe: {suite} has no best-known cost of these tasks")
    drawn = np.random.default_rng(arguments.seed).permutation(len(wanted))[: arguments.probe]
    todo = searches(candidates, [wanted[k] for k in drawn], known, arguments.actions)
    begin, gains = _cpu_s(), []
    found = play(searcher_of(arguments), todo, workers=arguments.workers)
    for search, (best, _) in zip(todo, found, strict=True):
        before = known.tasks[task_name(search.instance, search.scenario)]
        print(_line(task_name(search.instance, search.scenario), before, best), flush=True)
        gains.append(1.0 - best.value_usd / before.value_usd)
    print(
        f"{len(gains)} tasks: {100 * np.mean(gains):.2f} % cheaper in the mean, {100 * np.median(gains):.2f} % in the"
        f" median, {100 * max(gains):.2f} % at most; {(_cpu_s() - begin) / len(gains):.0f} CPU s a task"
    )


def searcher_of(arguments: argparse.Namespace) -> Searcher:
    """Return what the call asks for."""
    solver = None if arguments.no_bounds else arguments.solver
    return Searcher(
        arguments.steps, arguments.seed, arguments.date, arguments.judge, solver, arguments.receding
    )


def _cpu_s() -> float:
    """Return the CPU seconds of this process and of its workers that have ended."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def next_name(known: BestKnownSet | None, frozen: set[str], date: str) -> str:
    """Return the present set's name, or the first that is not frozen: bks-2026-11, bks-2026-11b, bks-2026-11c.

    Examples
    --------
    >>> next_name(None, {"bks-2026-11"}, "2026-11-22")
    'bks-2026-11b'
    """
    if known is not None and known.name not in frozen:
        return known.name
    names = (f"bks-{date[:7]}{letter}" for letter in ("", *"bcdefghijklmnopqrstuvwxyz"))
    return next(name for name in names if name not in frozen)


def _line(task: str, before: BestKnown | None, best: BestKnown) -> str:
    changed = "new" if before is None else f"was {before.value_usd:.4f}"
    gap = f", {100 * (best.value_usd / best.bound_usd - 1):.2f} % above the bound" if best.bound_usd else ""
    return f"{task}: {best.value_usd:.4f} USD ({changed}){gap}; {best.method}"


def smoke(folder: Path) -> int:
    """Solve a toy and search a little for one short instance, in a copy of fleet-v0."""
    shutil.copytree(ROOT / "instances" / "fleet-v0", folder / "instances" / "fleet-v0")
    shutil.copy(ROOT / "instances" / "manifest.json", folder / "instances")
    shutil.copytree(ROOT / "leaderboard" / "best_known" / "fleet-v0", folder / "actions" / "fleet-v0")
    os.environ["FLEETGYM_INSTANCES"] = str(folder / "instances")
    tasks = ["fleet-v0/toy/two-pools", "fleet-v0/dev/fastllm-4-4-5-001"]
    effort = ["--agents", "hold", "--steps", "100", "--no-bounds"]
    words = [*tasks, *effort, "--actions", str(folder / "actions")]
    return main([*words, "--probe", "1"]) or main(words)


def main(argv: list[str] | None = None) -> int:
    """Run the tool."""
    parser = program(
        __doc__,
        writes="best_known.json of the suite and leaderboard/best_known.",
        takes="Some CPU minutes for each task; --steps chooses.",
        smoke=smoke,
    )
    parser.add_argument("suite", nargs="+", help="suites or instances of one set, such as fleet-v0/dev")
    parser.add_argument("--agents", nargs="*", default=[], help="agents to play first")
    parser.add_argument(
        "--files", nargs="*", default=[], type=Path, help="results or actions files to start from"
    )
    parser.add_argument(
        "--steps",
        type=of(NUMBER),
        default=3_000_000,
        help="windows of search per task; 0: only bounds and episodes (default 3000000: 18 CPU s at s, 45 at m)",
    )
    parser.add_argument(
        "--receding",
        type=of(NUMBER),
        default=0,
        help="windows that a receding-horizon plan to start from is told, such as 12; 0: no such plan (default)",
    )
    parser.add_argument(
        "--no-bounds",
        action="store_true",
        help="neither bounds nor their relaxations: a minute a task of size m",
    )
    parser.add_argument(
        "--solver", choices=["ipx", "hipo"], default="ipx", help="of bounds; hipo needs fleetgym[bounds]"
    )
    parser.add_argument(
        "--probe",
        type=of(NUMBER),
        default=0,
        help="search only so many tasks, drawn by --seed; say how much cheaper they become, and write nothing",
    )
    parser.add_argument("--seed", type=of(SEED), default=0)
    parser.add_argument("--workers", type=of(WORKERS), default=1)
    parser.add_argument("--judge", action="store_true", help="replay with the reference implementation too")
    parser.add_argument(
        "--name", help="of the set (default: the present one or, if that is frozen, the next)"
    )
    parser.add_argument("--date", default=f"{datetime.date.today():%Y-%m-%d}")
    parser.add_argument("--actions", type=Path, default=ROOT / "leaderboard" / "best_known")
    arguments = parser.parse_args(argv)
    tasks = [task for part in arguments.suite for task in tasks_of(part)]
    candidates: list[Candidate] = []
    for path in arguments.files:
        candidates = cheapest([*candidates, *read_candidates(path)])
    if arguments.agents:
        results = evaluate(arguments.agents, arguments.suite, workers=arguments.workers)
        candidates += candidates_of(results)
    for suite in sorted({name.partition("/")[0] for name, _ in tasks}):
        work = probe if arguments.probe else update
        work(suite, [task for task in tasks if task[0].startswith(f"{suite}/")], candidates, arguments)
    return 0


if __name__ == "__main__":
    run_program(main)
