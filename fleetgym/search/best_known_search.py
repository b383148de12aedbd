"""Search tasks for cheaper episodes and write what is found as best-known costs.

The start is the cheapest of the episodes that are given, of the rounded relaxation behind a lower bound, and of a
receding-horizon plan. Search improves it with the whole day known. Every result is replayed before it is written. The
optimum of a toy is computed and proven. Counts limit the work, so a search gives the same result every time.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import numpy as np

from fleetgym.agents.registry import load_target
from fleetgym.bounds.exact import StateSpaceError
from fleetgym.envs.day import play_day
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.evaluation.executors import play
from fleetgym.evaluation.jobs import stored_scenario
from fleetgym.files import finished_cells
from fleetgym.files.documents import canonical_hash
from fleetgym.files.errors import FleetgymError
from fleetgym.model.instance import Instance
from fleetgym.model.library import Task, list_instances, load_instance, task_name
from fleetgym.model.scenario import Scenario
from fleetgym.scoring.best_known import (
    BEST_KNOWN_FORMAT,
    TOLERANCE,
    BestKnown,
    BestKnownSet,
    actions_folder,
    actions_path,
    best_known_path,
    offer,
    read_actions,
    read_best_known,
    verified_cost_usd,
    write_actions,
    write_best_known,
)
from fleetgym.scoring.comparison import nominal_actions, optimal_actions
from fleetgym.search.hindsight import plan_in_hindsight
from fleetgym.search.propose import Candidate
from fleetgym.search.window_bound import best_bound

MAX_STARTS = 2  # episodes that the search starts from, besides the relaxation
MAX_REPLAYED = 3  # of a task's episodes those that claim to be cheapest


@dataclasses.dataclass(frozen=True)
class Search:
    """One task with the episodes to start from."""

    instance: str
    scenario: int
    starts: tuple[tuple[str, np.ndarray], ...]  # who, what; the cheapest first
    known: BestKnown | None


@dataclasses.dataclass(frozen=True)
class Found:
    """What the search of one task has found."""

    instance: str
    scenario: int
    before: BestKnown | None
    best: BestKnown  # may be the value that was known before
    actions: np.ndarray

    @property
    def task(self) -> str:
        """Name of the task."""
        return task_name(self.instance, self.scenario)

    def __str__(self) -> str:
        changed = "new" if self.before is None else f"was {self.before.value_usd:.4f}"
        value, bound = self.best.value_usd, self.best.bound_usd
        gap = f", {100 * (value / bound - 1):.2f} % above the bound" if bound else ""
        return f"{self.task}: {value:.4f} USD ({changed}){gap}; {self.best.method}"


@dataclasses.dataclass(frozen=True)
class Searcher:
    """Bounds and improves one task; can be sent to another process."""

    steps: int  # windows to play or route
    seed: int
    date: str
    judge: bool  # whether the reference implementation replays what is cheaper
    solver: str | None = "ipx"  # of bounds; None: without them
    receding: int = 0  # true windows that a receding-horizon plan to start from sees; 0: none

    def __call__(self, search: Search) -> Found:
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
            problem, scenario, serving, starts=starts, max_steps=self.steps, seed=self.seed
        )
        origin = "rounded relaxation, episodes" if bound else "episodes"
        origin += ", receding horizon" if self.receding else ""
        return self._best(search, bound_usd, found.actions, f"{origin} + local search ({self.steps} windows)")

    def isolated(self) -> Searcher:
        """Return the same: no agent runs here."""
        return self

    def _best(
        self, search: Search, bound_usd: float | None, actions: np.ndarray, method: str, proven: bool = False
    ) -> Found:
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
        best = tightened(better, bound_usd, task_name(search.instance, search.scenario))
        return Found(search.instance, search.scenario, search.known, best, actions)


def receding_actions(instance: Instance, scenario: Scenario, windows: int) -> np.ndarray:
    """Return the actions of `lookahead` if it knows the next windows, int64 (windows, slots)."""
    told = load_target("fleetgym.baselines.told_lookahead:ToldLookahead")
    played = play_day(FleetAllocEnv(instance), told(scenario, windows, paths=1, windows=windows), scenario)
    return np.array([window.action for window in played], dtype=np.int64)


def tightened(best: BestKnown, bound_usd: float | None, task: str) -> BestKnown:
    """Return a value with the larger of its bound and another one; a bound above the value is an error."""
    if bound_usd is None or best.proven:
        return best
    if bound_usd > best.value_usd * (1.0 + TOLERANCE):
        raise FleetgymError(
            f"{task}: the bound {bound_usd!r} exceeds the cost {best.value_usd!r} of an episode"
        )
    return dataclasses.replace(best, bound_usd=max(bound_usd, best.bound_usd or 0.0))


def cheapest(candidates: Iterable[Candidate]) -> list[Candidate]:
    """Return of each task the episodes that claim to be cheapest."""
    kept: dict[str, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda c: c.claimed_usd):
        found = kept.setdefault(candidate.task, [])
        if len(found) < MAX_REPLAYED:
            found.append(candidate)
    return [candidate for found in kept.values() for candidate in found]


def next_name(known: BestKnownSet | None, frozen: Collection[str], date: str) -> str:
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


class Campaign:
    """The search of the tasks of one set such as ``fleet-v0``, and the files that it reads and writes.

    Parameters
    ----------
    suite : str
        The set.
    searcher : Searcher
        How each task is searched.
    values : Path
        File of best-known costs that is written; it is started from the set's own.
    actions : Path
        Folder of the actions that achieve them.
    candidates : list of Candidate
        Episodes to start from.
    """

    def __init__(
        self, suite: str, searcher: Searcher, values: Path, actions: Path, candidates: Sequence[Candidate]
    ):
        self.suite, self.searcher, self.values, self.actions = suite, searcher, values, actions
        path = values if values.is_file() else best_known_path(suite)
        self.known = read_best_known(path) if path.is_file() else None
        self.candidates: dict[str, list[Candidate]] = {}
        for candidate in candidates:
            self.candidates.setdefault(candidate.task, []).append(candidate)

    def is_current(self, name: str, k: int) -> bool:
        """Return whether a cost of the task is known on the present version of its instance."""
        best = None if self.known is None else self.known.tasks.get(task_name(name, k))
        return best is not None and best.instance_hash == load_instance(name).content_hash

    def search_of(self, name: str, k: int) -> Search:
        """Return the search of a task, with the episodes there are to start from, the cheapest first."""
        task = task_name(name, k)
        starts = [(c.method, c.actions) for c in self.candidates.get(task, ())]
        folders = [folder for folder in (self.actions, actions_folder()) if folder is not None]
        found = next((folder for folder in folders if actions_path(folder, name, k).is_file()), None)
        if self.is_current(name, k) and found is not None:
            starts.append(("best-known", read_actions(found, name, k)))
        if not starts:
            starts.append(("nominal-static", nominal_actions(name)))
        costs = {id(actions): verified_cost_usd(name, k, actions) for _, actions in starts}
        starts.sort(key=lambda start: costs[id(start[1])])
        return Search(name, k, tuple(starts), self.known.tasks.get(task) if self.known else None)

    def update(
        self,
        wanted: Sequence[Task],
        name: str,
        report: Callable[[Found], None],
        *,
        workers: int = 1,
        seconds: float | None = None,
        resume: Path | None = None,
    ) -> int:
        """Search tasks and write the set's values under a name, anew after every task; return how many are left.

        Without `resume`, tasks are searched again, from what is known by then.

        Parameters
        ----------
        wanted : sequence of Task
        name : str
            Of the set of best-known values.
        report : callable
            Called with what was found for each task.
        workers : int
            Processes.
        seconds : float, optional
            No task is started later than this after the call.
        resume : Path, optional
            File of finished searches. Tasks that it has are left out; it is started if there is none.
        """
        current = set(list_instances(self.suite))
        known = {} if self.known is None else self.known.tasks
        tasks = {task: best for task, best in known.items() if task.rpartition("#")[0] in current}
        begin, done = time.monotonic(), {} if resume is None else finished_cells.read(resume)
        left = [task for task in wanted if self._key(task) not in done]
        while left and (seconds is None or time.monotonic() - begin < seconds):
            batch = left[: workers if seconds is not None else len(left)]
            todo = [self.search_of(*task) for task in batch]
            for found in play(self.searcher, todo, workers=workers):  # in any order
                report(found)
                best, task = found.best, (found.instance, found.scenario)
                if found.before is None or found.before.value_usd != best.value_usd:
                    write_actions(self.actions, *task, best, found.actions)
                tasks[found.task] = best
                write_best_known(self.values, BestKnownSet(format=BEST_KNOWN_FORMAT, name=name, tasks=tasks))
                if resume is not None:
                    finished_cells.keep(resume, self._key(task), best.value_usd)
            left = left[len(batch) :]
        return len(left)

    def _key(self, task: Task) -> str:
        """Return a name of a task's search: the task, what is searched, and how."""
        how = {**dataclasses.asdict(self.searcher), "date": None}
        facts = [task_name(*task), load_instance(task[0]).content_hash, how]
        return f"{task_name(*task)} {canonical_hash(facts)[:16]}"

    def probe(
        self, wanted: Sequence[Task], count: int, report: Callable[[Found], None], *, workers: int = 1
    ) -> list[float]:
        """Search some tasks, drawn by the searcher's seed, and return by which share each became cheaper.

        Nothing is written.
        """
        wanted = [task for task in wanted if self.is_current(*task)]
        if not wanted:
            raise FleetgymError(f"--probe: {self.suite} has no best-known cost of these tasks")
        drawn = np.random.default_rng(self.searcher.seed).permutation(len(wanted))[:count]
        todo, gains = [self.search_of(*wanted[k]) for k in drawn], []
        for found in play(self.searcher, todo, workers=workers):
            assert found.before is not None
            report(found)
            gains.append(1.0 - found.best.value_usd / found.before.value_usd)
        return gains
