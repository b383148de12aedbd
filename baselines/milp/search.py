"""Search for a better fleet and a lower bound, within limits."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetgym.planning import ALLOWANCE, Answer

from .mccormick import McCormick, mccormick_program
from .problem import PlacementProblem
from .pruning import prune
from .root import solve_root, tighten
from .routing import Solution, best_routing, is_feasible
from .tight import Tight, tight_program

#: Options of the restricted searches, tried while they are fewer than this share of what is left.
CORES, CORE_SHARE = (40, 120), 0.5
#: Limits of a restricted search: nodes, relative gap, and share of the time left.
CORE_NODES, CORE_GAP, CORE_TIME = 5, 1e-3, 0.25
#: Large-neighbourhood search: while so many options are left, most rounds, how many in vain, and options among which
#: to choose anew.
MANY, ROUNDS, FRUITLESS, NEIGHBOURS = 400, 12, 4, 120
#: How far costs of the same plan may differ that were added up in another order.
ROUND_OFF = 1e-9
#: A relative gap that counts as none: the allowance, and room for the round-off of the plan's own cost.
PROVEN = 2e-6


@dataclasses.dataclass
class Limits:
    """When to stop, and the trace of what was found by when."""

    time_s: float | None
    nodes: int | None
    gap: float
    threads: int
    clock: Callable[[], float]
    started: float
    incumbents: list[tuple[float, float]] = dataclasses.field(default_factory=list)  # (seconds, USD)

    @classmethod
    def starting_now(cls, clock: Callable[[], float], **rest: Any) -> Limits:
        """Return limits whose clock starts now."""
        return cls(clock=clock, started=clock(), **rest)

    def elapsed_s(self) -> float:
        """Return the seconds since the start."""
        return self.clock() - self.started

    def left_s(self) -> float:
        """Return the seconds left; infinite without a limit."""
        return np.inf if self.time_s is None else max(0.0, self.time_s - self.elapsed_s())

    def note(self, cost_usd: float) -> None:
        """Remember a cost if it is the lowest so far."""
        if not self.incumbents or cost_usd < self.incumbents[-1][1]:
            self.incumbents.append((self.elapsed_s(), cost_usd))

    def options(self) -> dict[str, Any]:
        """Return HiGHS's options for what is left."""
        options: dict[str, Any] = {"threads": self.threads, "mip_rel_gap": self.gap}
        if self.nodes is not None:
            options["mip_max_nodes"] = self.nodes
        return options

    def until(self, share: float = 1.0) -> Callable[[], bool] | None:
        """Return a function that tells whether a share of the time left from now is over; None without a limit."""
        if self.time_s is None:
            return None
        end = self.clock() + share * self.left_s()
        return lambda: self.clock() >= end


@dataclasses.dataclass(frozen=True, eq=False)
class Result:
    """The best fleet of a problem, a lower bound on its optimal cost, and the nodes that took."""

    best: Solution
    bound_usd: float
    nodes: int


def solve_mccormick(problem: PlacementProblem, start: Solution, limits: Limits) -> Result:
    """Solve the paper's program as HiGHS does it."""
    unit_usd = _unit_usd(start)
    m = mccormick_program(problem, unit_usd)
    return _with_highs(problem, m, start, limits, unit_usd)


def solve_tight(problem: PlacementProblem, start: Solution, limits: Limits) -> Result:
    """Solve the tight program: relax, search among promising options, then among all that can matter."""
    limits.note(start.cost_usd)
    unit_usd = _unit_usd(start)
    pruned = prune(problem)
    if pruned.columns.size == 0:
        return Result(start, start.cost_usd, 0)
    pruned = pruned.take(np.argsort(pruned.group, kind="stable"))
    search = _Search(pruned, _within(pruned, problem, start), limits, unit_usd)
    bound_usd = search.run()
    best = start
    if search.best.cost_usd < start.cost_usd:
        best = best_routing(problem, pruned.fleet_of(search.best.replicas)[problem.columns])
    return Result(best, bound_usd - float(pruned.left_out_usd.sum()), search.nodes)


def _within(pruned: PlacementProblem, problem: PlacementProblem, solution: Solution) -> Solution:
    """Return a solution's fleet, as far as pruning left it, in the pruned problem."""
    replicas = problem.fleet_of(solution.replicas)[pruned.columns]
    return best_routing(pruned, np.minimum(replicas, pruned.max_replicas))


class _Search:
    """The anytime search for the best fleet of a pruned problem."""

    def __init__(self, problem: PlacementProblem, start: Solution, limits: Limits, unit_usd: float):
        self.problem, self.best, self.limits, self.unit_usd = problem, start, limits, unit_usd
        self.nodes = 0
        self.root = solve_root(problem, start.cost_usd, unit_usd)

    def run(self) -> float:
        """Search until proof or limits; return the lower bound."""
        for size in CORES:
            if size >= CORE_SHARE * self._alive().sum() or self._is_over():
                break
            self._branch(self._nearest(size), core=True)
            self._tighten()
        self._improve()
        self._tighten()
        bound_usd, alive = min(self.root.bound_usd, self.best.cost_usd), self._alive()
        if not alive.any() or self._is_over():
            return bound_usd
        return max(self._branch(alive, core=False), bound_usd)

    def _is_over(self) -> bool:
        """Check whether the time is over, or the relaxation proves enough."""
        enough_usd = self.best.cost_usd * (1.0 - max(self.limits.gap, PROVEN))
        return self.limits.left_s() < 0.1 or self.root.bound_usd >= enough_usd

    def _improve(self) -> None:
        """Large-neighbourhood search: give up half of the fleet, at least two options, and fill the gap anew."""
        rng = np.random.default_rng(0)
        waited = 0
        for _ in range(ROUNDS):
            mine = np.flatnonzero(self._chosen())
            few = self._alive().sum() < MANY
            if mine.size < 3 or waited >= FRUITLESS or few or self._is_over():
                return
            before = self.best.cost_usd
            kept = np.zeros(self.problem.options.column.size, dtype=bool)
            kept[rng.permutation(mine)[max(2, mine.size // 2) :]] = True
            self._branch(self._nearest(NEIGHBOURS) | kept, core=True, kept=kept)
            waited = 0 if self.best.cost_usd < before else waited + 1

    def _tighten(self) -> None:
        if self._is_over():
            return
        self.root = tighten(self.root, self.problem, self.best, self.unit_usd, self.limits.until())

    def _chosen(self) -> np.ndarray:
        """Return which options the best fleet runs, (O,) bool."""
        return self.problem.options.run_by(self.best.replicas)

    def _alive(self) -> np.ndarray:
        """Return which options a cheaper solution may have, (O,) bool."""
        return self.root.alive(self.best.cost_usd)

    def _nearest(self, size: int) -> np.ndarray:
        """Return which are so many alive options of least reduced cost, (O,) bool."""
        near = np.zeros(self.problem.options.column.size, dtype=bool)
        near[np.argsort(self.root.reduced_usd, kind="stable")[:size]] = True
        return near & self._alive()

    def _branch(self, options: np.ndarray, *, core: bool, kept: np.ndarray | None = None) -> float:
        """Branch and bound over some options and the best fleet's; return a lower bound for these.

        A `core` search is a short one; `kept` options must be run.
        """
        taken = options | self._chosen()
        part = self.problem.take_options(taken)
        most_lost = self.root.most_lost(self.problem, self.best)
        t = tight_program(part, self.unit_usd, most_lost=most_lost)
        lower = np.zeros(t.program.num_columns)
        if kept is not None:
            lower[t.option] = kept[taken]
        settings = self.limits.options()
        if not core and options.sum() >= NEIGHBOURS:
            settings["mip_heuristic_effort"] = 0.0  # the restricted searches have found what there is
        if core:
            settings["mip_max_nodes"] = min(CORE_NODES, settings.get("mip_max_nodes", CORE_NODES))
            settings["mip_rel_gap"] = max(CORE_GAP, self.limits.gap)
        answer = t.program.solve(
            settings,
            start=_start_values(part, t, self.problem.fleet_of(self.best.replicas)[part.columns]),
            lower=lower,
            on_solution=lambda objective, values: self._settle(part, t, values),
            is_over=self.limits.until(CORE_TIME if core else 1.0),
        )
        self.nodes += answer.nodes
        if answer.values is not None:
            self._settle(part, t, answer.values)
        return answer.bound * self.unit_usd * (1.0 - ALLOWANCE)

    def _settle(self, part: PlacementProblem, t: Tight, values: np.ndarray) -> None:
        """Route the demand over a fleet that was found, and keep it if it is the cheapest."""
        replicas = part.fleet_of(t.replicas(part, values))[self.problem.columns]
        if np.array_equal(replicas, self.best.replicas) or not is_feasible(self.problem, replicas):
            return
        found = best_routing(self.problem, replicas)
        if found.cost_usd < self.best.cost_usd:
            self.best = found
            self.limits.note(found.cost_usd)


def _start_values(problem: PlacementProblem, t: Tight, replicas: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return indices and values of the fleet's variables."""
    o = problem.options
    chosen = o.run_by(replicas)
    free = o.counted
    number = (chosen * replicas[o.column])[free]
    return np.concatenate([t.option, t.count[free]]), np.concatenate([chosen.astype(float), number])


def _unit_usd(start: Solution) -> float:
    return start.cost_usd / 100.0 or 1.0


def _with_highs(
    problem: PlacementProblem, model: McCormick, start: Solution, limits: Limits, unit_usd: float
) -> Result:
    """Let HiGHS branch and bound, and settle the routing of what it finds."""
    limits.note(start.cost_usd)
    answer: Answer = model.program.solve(
        limits.options(),
        on_solution=lambda objective, values: limits.note(objective * unit_usd),
        is_over=limits.until(),
    )
    best = start
    if answer.values is not None:
        replicas = model.replicas(problem, answer.values)
        if is_feasible(problem, replicas):
            best = min(best, best_routing(problem, replicas), key=lambda s: s.cost_usd)
    bound_usd = answer.bound * unit_usd
    bound_usd -= ALLOWANCE * abs(bound_usd) + float(problem.left_out_usd.sum())
    return Result(best, bound_usd, answer.nodes)
