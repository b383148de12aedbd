"""Play `hindsight`, hindsight planning: the fleet with which drawn futures cost least if all that follows is optimal.

Source: Sinclair et al., "Hindsight learning for MDPs with exogenous inputs", ICML 2023 (arXiv 2207.06272), its
hindsight planning, also called the Bayes selector (Vera and Banerjee, "The Bayesian prophet", SIGMETRICS 2019). For
each candidate action and each drawn path it takes the cost of this window plus that of the best actions afterwards on
that path, known in full. It plays the candidate whose mean over paths is least. So a fleet may recover on each path
after its first window, where `lookahead` holds it. That is optimistic: the later actions know the path.
Adapted:

- the best actions of a path are those of the linear program of `mpc` on that path alone, in which replicas need not be
  whole; a candidate is its fleet of the first window;
- a program solved at a fleet gives its cost there, and by its duals a bound at all others. The candidate that is
  cheapest by these bounds is priced exactly, until the cheapest one is (Benders' cuts);
- `holding` weighs the optimism against its opposite: this share of the cost is that of holding the fleet
  (`View.rollout`). 0 is as published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import Belief, View
from fleetgym.planning import FleetSizer, Paths, make_solver, positive_share, whole_at_least

from .committed_horizon import planned_fleets
from .descent import shortlist
from .mpc import MAX_ITERATIONS, SCALE, PathsProgram, planned_windows, rounded_fleets
from .services import Room

#: Margin of the packer's fleet, which is a candidate, and how often the cheapest candidate is priced exactly at most.
MARGIN, ROUNDS = 1.05, 3


class Hindsight:
    """Choose the fleet of least mean hindsight cost.

    Parameters
    ----------
    windows, paths : int
        How far the futures go (two windows beyond the longest start-up, if that is more), and how many are drawn.
    holding : float
        Share of a candidate's cost that is the cost of holding it, from 0 (as published) to 1.
    every : int
        Windows between two choices.
    shortlist : int
        Configurations per workload and pool that may be added.

    Raises
    ------
    FleetgymError
        For a number out of range.
    """

    def __init__(
        self, windows: int = 5, paths: int = 4, holding: float = 0.5, every: int = 2, shortlist: int = 1
    ):
        whole_at_least(1, windows=windows, paths=paths, every=every, shortlist=shortlist)
        if holding:
            positive_share(holding=holding)
        self.windows, self.paths, self.holding = windows, paths, holding
        self.every, self.shortlist = every, shortlist

    def reset(self, view: View, *, seed: int) -> None:
        """Begin before the first window."""
        self.view, self.seed = view, seed
        self.belief, self.sizer = Belief(view.instance), FleetSizer(view.instance)
        self.candidates = shortlist(view.snapshot(), self.shortlist)
        self.ahead = planned_windows(view.instance, self.windows)
        self.target = view.fleet

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the last target, or the candidate that is cheapest in hindsight."""
        view = self.view
        seen = view.window - view.instance.lead
        if seen >= 0:
            self.belief.update(seen, view.conditions)
        if view.window % self.every == 0:
            windows = min(self.ahead, view.instance.num_windows - view.window)
            drawn = self.belief.sample(self.paths, windows, np.random.default_rng(self.seed))
            packed = self._packed(drawn)
            among = np.union1d(self.candidates, np.flatnonzero(view.fleet + self.target + packed))
            starting = np.asarray(info["starting"])
            futures = [Future(view, drawn, p, among, starting) for p in range(self.paths)]
            mean = drawn.mean(np.array([future.best for future in futures]))
            fleets = self._fleets(packed, mean)
            self.target = fleets[self._cheapest(fleets, futures, drawn)]
        return view.fleet_to_action(self.target)

    def _packed(self, drawn: Paths) -> np.ndarray:
        """Return the packer's fleet for the mean of the paths when what starts now will serve."""
        rates = drawn.mean(drawn.workload[:, min(2, drawn.workload.shape[1] - 1), 0])
        return self.sizer.target(self.view, rates, MARGIN, MARGIN, budget_usd=self.view.budget_left_usd)

    def _fleets(self, packed: np.ndarray, mean: np.ndarray) -> np.ndarray:
        """Return candidates: kept fleets, the packer's, the mean of the paths' optima rounded, and their neighbours."""
        view, snapshot = self.view, self.view.snapshot()
        found = [view.fleet, self.target, packed, *rounded_fleets(snapshot, mean)]
        for c in np.flatnonzero(view.fleet):
            less = view.fleet.copy()
            less[c] -= 1
            found.append(less)
        for c in self.candidates:
            room = Room(snapshot, view.fleet)
            if np.array_equal(room.fleet, view.fleet) and room.add(int(c), 1):
                found.append(room.fleet)
        return np.unique(np.array(found), axis=0)

    def _cheapest(self, fleets: np.ndarray, futures: list[Future], drawn: Paths) -> int:
        """Return the number of the candidate whose cost is least, pricing few of them exactly."""
        held = self.holding * self.view.rollout(fleets, drawn) if self.holding else np.zeros(len(fleets))
        exact: set[int] = set()
        best = 0
        for _ in range(ROUNDS):
            usd = drawn.mean(np.array([future.bounds(fleets) for future in futures]))
            best = int(np.argmin((1.0 - self.holding) * usd + held))
            if best in exact:
                break
            exact.add(best)
            for future in futures:
                future.price(fleets[best])
        return best


class Future:
    """One path, and bounds on what it costs in hindsight from any fleet.

    Parameters
    ----------
    view : View
        The present state.
    drawn : Paths
    path : int
        Which of them.
    among : ndarray of int, shape (n,)
        Configurations that may be held.
    starting : ndarray of int, shape (C, K)
        Replicas that start, by windows left.
    """

    def __init__(self, view: View, drawn: Paths, path: int, among: np.ndarray, starting: np.ndarray):
        at = slice(path, path + 1)
        one = Paths(drawn.workload[at], drawn.available[at], drawn.price[at], np.ones(1))
        told: Any = _Told(one)
        windows = one.workload.shape[1]
        self.program = PathsProgram(view, told, among, 1, windows, starting, 0)
        self.solver = make_solver(random_seed=1, simplex_iteration_limit=MAX_ITERATIONS)
        self.program.solve(self.solver)
        self.best = planned_fleets(self.program, self.solver)[0]
        self.unit = SCALE / max(self.program.unserved_usd, 1e-9)
        self.cuts: list[tuple[float, np.ndarray]] = []  # cost of no fleet by the cut, and slopes, USD
        self._cut(self.best[among])

    def price(self, fleet: np.ndarray) -> None:
        """Solve the program with the first fleet given, and keep its cost and slopes."""
        held = fleet[self.program.among].astype(float)
        columns = self.program.held[0].astype(np.int32)
        self.solver.changeColsBounds(columns.size, columns, held, held)
        self.solver.run()
        self._cut(held)

    def _cut(self, held: np.ndarray) -> None:
        solution = self.solver.getSolution()
        if len(solution.col_dual):
            slopes = np.array(solution.col_dual)[self.program.held[0]] / self.unit
            usd = self.solver.getInfo().objective_function_value / self.unit
            self.cuts.append((usd - float(slopes @ held), slopes))

    def bounds(self, fleets: np.ndarray) -> np.ndarray:
        """Return what fleets cost at least on this path, (n,): exact where the program was solved."""
        held = fleets[:, self.program.among]
        return np.max([usd + held @ slopes for usd, slopes in self.cuts], axis=0, initial=-np.inf)


class _Told:
    """A belief that draws one path for certain."""

    def __init__(self, path: Paths):
        self.path = path

    def sample(self, paths: int, windows: int, rng: np.random.Generator) -> Paths:
        """Return the path."""
        return self.path
