"""Solve Coral's online allocation for an epoch, and prove a bound.

1. Column generation solves the linear relaxation; its duals price the nodes.
2. With prices on nodes every demand is a covering knapsack (`fleetgym.baselines.coral.lagrangian`): a bound far above
   the relaxation's. Subgradient steps raise it; what the coverings use joins a small program, whose MIP gives
   allocations.
3. A (template, region) whose use alone lifts the bound to the cost of an allocation in hand is dropped for good.
4. Where an allocation leaves something unserved and much survives, one more program looks for any that serves all, and
   large-neighbourhood search (`fleetgym.baselines.coral.neighbourhoods`) makes it cheaper.
5. A MIP over the survivors proves the optimum, or gives what it found and what is left of the gap.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np

from .lagrangian import Columns, cheapest, relaxed
from .neighbourhoods import improve
from .problem import Allocation, CoveringProblem, evaluate
from .program import Restricted

_CLOSE = 1e-9  # relative: costs this near are equal


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options:
    """Limits of the search, all counts, so that the same problem gives the same allocation.

    Parameters
    ----------
    units : int
        Q: a demand is covered in steps of 1/Q of it.
    steps : int
        Subgradient steps.
    most_columns : int
        Most columns of the last MIP; if more survive, those with the lowest floors go in, and the bound is weaker.
        0: no last MIP.
    presolved_columns : int
        Columns up to which HiGHS presolves the last MIP. With tens of thousands that takes longer than the search.
    attempts : int
        Neighbourhoods to search before the last MIP where something is unserved and it would not be presolved.
    node_limit, first_nodes : int
        Branch-and-bound nodes of the last MIP and of each small one before it.
    gap : float
        Stop when cost and bound differ by at most this share of the cost.
    time_limit_s : float, optional
        Wall-clock limit of the whole, which the last MIP keeps to; None keeps the result reproducible.
    """

    units: int = 2000
    steps: int = 60
    most_columns: int = 200_000
    presolved_columns: int = 4000
    attempts: int = 40
    node_limit: int = 200_000
    first_nodes: int = 2000
    gap: float = 1e-4
    time_limit_s: float | None = None


DEFAULT = Options()
_PART_STEPS = 3  # subgradient steps on a neighbourhood
#: Of the price of leaving a demand unserved: an allocation that is cheaper serves all, or nearly.
_SERVED = 1e-3


def allocate(problem: CoveringProblem, options: Options = DEFAULT) -> Allocation:
    """Solve one epoch.

    Parameters
    ----------
    problem : CoveringProblem
        Templates, prices, availability, demand, and what runs.
    options : Options
        Limits.

    Returns
    -------
    Allocation
        With its bound; ``status`` is ``"optimal"`` where the gap is closed to ``options.gap``. Diagnostics:
        ``relaxation``, ``lagrangian`` (bounds, USD per hour), ``survivors``, ``nodes``.

    Examples
    --------
    Two requests/s; a small node serves one for 1 USD/h, a large one three for 2.50 USD/h.

    >>> import numpy as np
    >>> problem = CoveringProblem(use=np.eye(2, dtype=int), throughput_rps=np.array([1.0, 3.0]), row=np.array([0, 0]),
    ...                   price_usd_per_h=np.array([[1.0, 2.5]]), available=np.array([[9, 9]]),
    ...                   demand_rps=np.array([2.0]), startup_ratio=0.0)
    >>> found = allocate(problem)
    >>> found.cost_usd_per_h, found.count.tolist(), found.status
    (2.0, [2], 'optimal')
    """
    return _Search(problem, options).run()


class _Search:
    """The state of one solve."""

    def __init__(self, problem: CoveringProblem, options: Options):
        self.problem, self.options, self.begun_s = problem, options, time.monotonic()
        regions = problem.available.shape[0]
        fits = np.stack([(problem.use <= problem.available[r]).all(axis=1) for r in range(regions)], axis=1)
        self.alive = (
            fits & (problem.throughput_rps > 0.0)[:, None] & (problem.demand_rps[problem.row] > 0)[:, None]
        )
        self.columns = Columns.of(problem, options.units, self.alive)
        self.floor = np.zeros(self.columns.alive.shape)  # bound on allocations that use each column
        self.pool: set[tuple[int, int]] = set()
        none = np.zeros(0, dtype=np.int64)
        self.best = evaluate(problem, none, none, none)
        self.bound = -np.inf
        self.prices = np.zeros(problem.available.shape)
        self.diagnostics: dict[str, Any] = {}

    # -- what is known

    @property
    def cost(self) -> float:
        return self.best.objective_usd_per_h(self.problem)

    @property
    def closed(self) -> bool:
        return self.cost - self.bound <= self.options.gap * self.cost + _CLOSE

    def _take(self, found: Allocation | None) -> None:
        if found is not None and found.objective_usd_per_h(self.problem) < self.cost:
            self.best = found

    # -- the steps

    def run(self) -> Allocation:
        if self.columns.template.size:
            self.diagnostics["relaxation"] = self._relaxation()
            self._small_mip()
            self._raise_bound()
            self.diagnostics["lagrangian"] = float(self.bound)
        if not self.closed and self.options.most_columns:
            if self.best.unserved.any() and self.columns.alive.sum() > self.options.presolved_columns:
                self._serve()
                self._search_neighbourhoods()
            self._last_mip()
        return dataclasses.replace(
            self.best,
            bound_usd_per_h=float(min(self.bound, self.cost)),
            status="optimal" if self.closed else "feasible",
            diagnostics=self.diagnostics,
        )

    def _relaxation(self) -> float:
        """Solve the LP by column generation; set the nodes' prices; fill the pool with its columns."""
        columns, problem = self.columns, self.problem
        share = problem.share[columns.template]
        rent = (1.0 + problem.startup_ratio) * problem.price_usd_per_h
        cost = np.where(columns.alive, columns.use @ rent.T, np.inf)
        worth = cost / share[:, None]
        value, used = 0.0, np.zeros(0)
        for _ in range(50):
            before = len(self.pool)
            self._add_cheapest(worth, 20)
            if len(self.pool) == before:
                break
            program = self._restricted(self.pool)
            value, demand, nodes, used = program.relax()
            self.prices = nodes
            worth = cost + columns.use @ nodes.T - (demand[columns.row] * share)[:, None]
            worth = np.where(worth < -1e-7 * program.reference_usd, worth, np.inf)
        keep = used[: len(self.pool)] > 1e-9
        self.pool = {pair for pair, kept in zip(sorted(self.pool), keep, strict=True) if kept}
        return value

    def _add_cheapest(self, worth: np.ndarray, number: int) -> None:
        """Add the pairs of least worth of each row to the pool."""
        for i, region in cheapest(worth, self.columns.row, number):
            self.pool.add((int(self.columns.template[i]), region))

    def _restricted(self, pairs: set[tuple[int, int]]) -> Restricted:
        template, region = np.array(sorted(pairs), dtype=np.int64).reshape(-1, 2).T
        return Restricted(self.problem, template, region)

    def _serve(self) -> None:
        """Look for an allocation that serves everything, among columns that are good for their own demand.

        From one that does not, the last MIP may find none in tens of thousands of columns.
        """
        number = self.options.presolved_columns // np.unique(self.columns.row).size
        self._add_cheapest(np.where(self.columns.alive, self.floor, np.inf), number)
        self._small_mip(self.problem.unserved_usd_per_h * _SERVED)

    def _search_neighbourhoods(self) -> None:
        """Make the allocation cheaper, a few demands at a time, and drop what that allows."""
        rule = dataclasses.replace(self.options, steps=_PART_STEPS, most_columns=0)
        templates = np.zeros(self.problem.row.size, dtype=bool)
        templates[self.columns.template] = self.columns.alive.any(axis=1)
        self._take(
            improve(
                self.problem, self.best, templates, lambda part: allocate(part, rule), self.options.attempts
            )
        )
        self._drop(self.floor)

    def _small_mip(self, target_usd_per_h: float = -np.inf) -> None:
        """Look for an allocation among the pool's columns; one that costs no more than a target will do."""
        program = self._restricted(self.pool)
        options = {
            "mip_max_nodes": self.options.first_nodes,
            "mip_rel_gap": self.options.gap,
            "objective_target": target_usd_per_h / program.reference_usd,
        }
        found, _, _ = program.solve(options, start=self.best)
        self._take(found)

    def _raise_bound(self) -> None:
        """Take subgradient steps on the nodes' prices, drop columns, and try what the coverings use."""
        step, stale, best_prices, fresh = 1.0, 0, self.prices, 0
        for number in range(self.options.steps):
            said = relaxed(self.problem, self.columns, self.options.units, self.prices)
            if said.bound > self.bound + 1e-6 * abs(said.bound):
                self.bound, best_prices, stale = said.bound, self.prices, 0
            else:
                stale += 1
            before = len(self.pool)
            self.pool |= set(zip(said.template.tolist(), said.region.tolist(), strict=True))
            fresh += len(self.pool) - before
            if fresh and number in (0, 4, 14, 29, self.options.steps - 1):
                self._add_cheapest(said.floor, 60)  # what coverings could use at the least extra cost
                self._small_mip()
                fresh = 0
            self._drop(said.floor)
            if self.closed or not self.columns.template.size:
                return
            if stale >= 4:
                step, stale, self.prices = step / 2, 0, best_prices
                if step < 1e-3:
                    return
                continue
            slope = said.used - self.problem.available
            slope = np.where((self.prices <= 0.0) & (slope < 0.0), 0.0, slope)
            size = float((slope**2).sum())
            if size == 0.0:
                return
            length = step * max(self.cost - said.bound, 1e-6 * self.cost) / size
            self.prices = np.maximum(0.0, self.prices + length * slope)

    def _drop(self, floor: np.ndarray) -> None:
        """Forget the columns that no allocation cheaper than the best uses, by these floors and by older ones."""
        limit = self.cost - self.options.gap * self.cost * 0.5
        floor = np.maximum(self.floor, floor)
        alive = self.columns.alive & (floor < limit)
        self.floor = np.where(alive, floor, np.inf)
        if alive.sum() < self.columns.alive.sum():
            full = np.zeros_like(self.alive)
            full[self.columns.template] = alive
            self.alive = full
            before = self.columns.template
            self.columns = Columns.of(self.problem, self.options.units, full)
            position = np.full(self.problem.row.size, -1)
            position[before] = np.arange(before.size)
            self.floor = self.floor[position[self.columns.template]]

    def _last_mip(self) -> None:
        """Prove the optimum among the survivors; what was dropped costs at least as much as the best."""
        survivors = np.argwhere(self.columns.alive)
        floors = self.floor[survivors[:, 0], survivors[:, 1]]
        order = np.argsort(floors, kind="stable")
        left_out = floors[order[self.options.most_columns :]]
        chosen = survivors[order[: self.options.most_columns]]
        pairs = set(zip(self.columns.template[chosen[:, 0]].tolist(), chosen[:, 1].tolist(), strict=True))
        options: dict[str, Any] = {
            "mip_max_nodes": self.options.node_limit,
            "mip_rel_gap": self.options.gap / 2,
        }
        if len(pairs) > self.options.presolved_columns:
            options["presolve"] = "off"
        if self.options.time_limit_s is not None:
            options["time_limit"] = max(1.0, self.options.time_limit_s - (time.monotonic() - self.begun_s))
        limit = self.cost * (1.0 - 0.5 * self.options.gap)  # dropped columns cost at least this
        mine = set(zip(self.best.template.tolist(), self.best.region.tolist(), strict=True))
        found, bound, answer = self._restricted(pairs | mine).solve(options, start=self.best)
        self._take(found)
        bound = min(bound, limit, float(left_out.min()) if left_out.size else np.inf)
        self.bound = max(self.bound, bound)
        self.diagnostics |= {"survivors": int(survivors.shape[0]), "nodes": answer.nodes}
