"""Play `mpc`: a linear program over the coming windows on sampled paths, whose first fleet is rounded.

Receding-horizon control (Rawlings, Mayne and Diehl 2017, *Model Predictive Control*, ch. 1) of one plan of fleets for
several paths that `fleetgym.Belief` draws, each path and window with a routing of its own. The routing rows are those
of `fleetgym.bounds`, and load on queue servers costs what its convex late-cost segments say. So this is the exact
counterpart of `lookahead`, but for whole replicas. They come by rounding: the plan's first fleet rounded down, and one
replica more of each configuration in the order of what was cut off. Of these fleets, of the one that runs and of the
last target, the one is taken that costs least when it is held on the paths (`View.rollout`).

Left out of the program, not of the rounding: replicas that drain, and that replicas which a drop takes pay no rent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import Belief, Instance, Snapshot, View
from fleetgym.planning import (
    LinearProgram,
    WindowRelaxation,
    make_solver,
    relax_window,
    routing_rows,
    whole_at_least,
)

from .descent import shortlist
from .margin import PACE
from .services import Room

#: A window without service costs this many units in the solver.
SCALE = 1000.0
#: The solver stops here at the latest.
MAX_ITERATIONS = 20_000


class Mpc:
    """Plan the windows to come by a linear program, and begin with its first fleet, rounded.

    Parameters
    ----------
    windows : int
        How far the program looks: two windows beyond the longest start-up, if that is more.
    paths : int
        Of what may come, in the program.
    judges : int
        Of what may come, on which rounded fleets are compared.
    shortlist : int
        Configurations per workload and pool that may be added.
    every : int
        Windows between two plans.

    Raises
    ------
    FleetgymError
        For a number below 1.

    Notes
    -----
    Work is bounded by counts, never by a clock, so that results do not depend on the machine.
    """

    def __init__(
        self, windows: int = 5, paths: int = 2, judges: int = 12, shortlist: int = 1, every: int = 2
    ):
        whole_at_least(1, windows=windows, paths=paths, judges=judges, shortlist=shortlist, every=every)
        self.windows, self.paths, self.judges = windows, paths, judges
        self.shortlist, self.every = shortlist, every

    def reset(self, view: View, *, seed: int) -> None:
        """Begin before the first window."""
        self.view, self.seed = view, seed
        self.belief = Belief(view.instance)
        self.candidates = shortlist(view.snapshot(), self.shortlist)
        self.solver = make_solver(random_seed=1, simplex_iteration_limit=MAX_ITERATIONS)
        self.ahead = planned_windows(view.instance, self.windows)
        self.target = view.fleet

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the running target, or the plan's first fleet."""
        view = self.view
        seen = view.window - view.instance.lead
        if seen >= 0:
            self.belief.update(seen, view.conditions)
        if view.window % self.every == 0:
            among = np.union1d(self.candidates, np.flatnonzero(view.fleet + self.target))
            windows = min(self.ahead, view.instance.num_windows - view.window)
            starting = np.asarray(info["starting"])
            plan = PathsProgram(view, self.belief, among, self.paths, windows, starting, self.seed)
            self.target = self._rounded(plan.solve(self.solver), windows)
        return view.fleet_to_action(self.target)

    def _rounded(self, fleet: np.ndarray, windows: int) -> np.ndarray:
        """Return the whole fleet near one that is not, or kept as it is, that is cheapest to hold on paths."""
        view = self.view
        found = [view.fleet, self.target, *rounded_fleets(view.snapshot(), fleet)]
        drawn = self.belief.sample(self.judges, windows, np.random.default_rng(self.seed))
        costs = view.rollout(np.array(found), drawn)
        return found[int(np.argmin(costs))]


def planned_windows(instance: Instance, least: int = 5) -> int:
    """Return how far a program looks: two windows beyond the longest start-up, or so many if that is more."""
    return max(least, 2 + max(c.startup_windows for c in instance.configurations))


def rounded_fleets(snapshot: Snapshot, fleet: np.ndarray) -> list[np.ndarray]:
    """Return a fleet of shares of replicas, (C,), rounded down, and with one more of what lost most, two more, ...

    Actions can ask for all of them, also where a solver has stopped at its limit and breaks rows of the program.
    """
    least = np.minimum(np.floor(fleet + 1e-6).astype(np.int64), snapshot.max_replicas)
    for members in snapshot.instance.exclusive_groups:
        kept = max(members, key=lambda c: fleet[c])
        least[[c for c in members if c != kept]] = 0
    room, found = Room(snapshot, least), [least]
    rest = fleet - room.fleet
    for c in np.argsort(-rest, kind="stable"):
        if rest[c] > 1e-6 and room.add(int(c), 1):
            found.append(room.fleet.copy())
    return found


class PathsProgram:
    """The linear program of fleets for the next windows on several paths.

    Parameters
    ----------
    view : View
        The present state.
    belief : Belief
        Draws the paths.
    among : ndarray of int, shape (n,)
        Configurations that may be held.
    paths, windows : int
        How many.
    starting : ndarray of int, shape (C, K)
        Replicas that start, by windows left.
    seed : int
        Of the paths.
    """

    def __init__(
        self,
        view: View,
        belief: Belief,
        among: np.ndarray,
        paths: int,
        windows: int,
        starting: np.ndarray,
        seed: int,
    ):
        self.among, self.size = among, view.fleet.size
        self.program = LinearProgram()
        now, instance = view.snapshot(), view.instance
        self.unserved_usd = float(now.unserved_usd.sum())
        drawn = belief.sample(paths, windows, np.random.default_rng(seed))
        at_once = view.window == 0
        waits = np.array([0 if at_once else c.startup_windows for c in instance.configurations])[among]
        arrived = (
            view.running[among] + np.cumsum(starting[among], axis=1).T
        )  # serving after 1, 2, ... windows
        self.held = []
        for t in range(windows):
            most = drawn.available[:, t].max(axis=0)
            self.held.append(self._fleet(now, most, view.fleet[among] if t == 0 else None))
        self._budget(view, now, windows)
        for members in instance.exclusive_groups:
            some = np.flatnonzero(np.isin(among, members))
            if some.size > 1:
                for held in self.held:
                    self.program.rows(1, [(0, held[some], 1.0)], high=1.0)
        for p in range(paths):
            for t in range(windows):
                conditions = drawn.conditions(p, t)
                if t == 0 and instance.lead == 0:
                    conditions = view.conditions
                snapshot = view.snapshot(conditions=conditions)
                serving = self._serving(snapshot, relax_window(snapshot, late=False), float(drawn.weight[p]))
                # What serves has been held since it started.
                since = [np.flatnonzero(waits >= k) for k in range(t + 1)]
                held_then = [self.held[t - k][some] for k, some in enumerate(since)]
                self._at_most(0.0, serving[np.concatenate(since)], np.concatenate(held_then))
                late = waits > t
                begun = arrived[min(t, len(arrived)) - 1] if t else view.running[among]
                self._at_most(begun[late], serving[late])
                self._within(now.gpu_use[:, among], serving, conditions.available_gpus, drawn.available[:, t])

    def solve(self, solver: Any) -> np.ndarray:
        """Return the fleet of the first window, not whole, (C,); none of it where the solver finds nothing."""
        solver.passModel(self.program.model(SCALE / max(self.unserved_usd, 1e-9)))
        solver.run()
        values = np.array(solver.getSolution().col_value)
        fleet = np.zeros(self.size)
        if values.size == self.program.num_columns:
            fleet[self.among] = np.maximum(0.0, values[self.held[0]])
        return fleet

    # -- columns and rows

    def _at_most(self, limit: np.ndarray | float, columns: np.ndarray, *others: np.ndarray) -> None:
        """Add the rows columns - others <= limit, one for each column."""
        each = np.arange(columns.size)
        less = [(each, other, -1.0) for other in others]
        self.program.rows(columns.size, [(each, columns, 1.0), *less], high=limit)

    def _within(
        self, use: np.ndarray, columns: np.ndarray, limit: np.ndarray, elsewhere: np.ndarray | None = None
    ) -> None:
        """Keep pools that may be short; a limit that is the largest of all paths says nothing new."""
        for g in range(len(use)):
            if elsewhere is None or limit[g] < elsewhere[:, g].max():
                self.program.rows(1, [(0, columns, use[g])], high=limit[g])

    def _fleet(self, now: Snapshot, available: np.ndarray, before: np.ndarray | None) -> np.ndarray:
        """Add the fleet that is held in a window, and what is new in it; return its columns."""
        held = self.program.columns(now.hold_usd[self.among], now.max_replicas[self.among])
        new = self.program.columns(now.startup_usd[self.among], np.inf)
        if before is None:
            self._at_most(0.0, held, new, self.held[-1])
        else:
            self._at_most(before, held, new)
        self._within(now.gpu_use[:, self.among], held, available)
        return held

    def _budget(self, view: View, now: Snapshot, windows: int) -> None:
        budget = view.instance.budget
        if budget is None:
            return
        hold_usd = now.hold_usd[self.among]
        if budget.kind == "rate":
            for held in self.held:
                self.program.rows(1, [(0, held, hold_usd / now.budget_usd)], high=1.0)
            return
        left = view.instance.num_windows - view.window
        usd = max(view.budget_left_usd * min(1.0, PACE * windows / left), 1e-9)
        self.program.rows(1, [(0, np.array(self.held), hold_usd / usd)], high=1.0)

    def _serving(self, snapshot: Snapshot, window: WindowRelaxation, weight: float) -> np.ndarray:
        """Add the routing of a path's window; return the columns of the replicas that serve."""
        among = self.among
        workload, route = np.nonzero(window.is_open[:, among])
        penalty = weight * window.unserved_usd
        x = self.program.columns(weight * window.route_usd[workload, among[route]], 1.0)
        unserved = self.program.columns(penalty, 1.0)
        delay, error = self.program.columns(penalty, np.inf), self.program.columns(penalty, np.inf)
        serving = self.program.columns(np.zeros(among.size), np.inf)
        routing_rows(self.program, window, x, unserved, delay, error, None, serving, among)
        self._late(snapshot, window, workload, route, x, serving, weight)
        return serving

    def _late(
        self,
        snapshot: Snapshot,
        window: WindowRelaxation,
        workload: np.ndarray,
        route: np.ndarray,
        x: np.ndarray,
        serving: np.ndarray,
        weight: float,
    ) -> None:
        """Charge busy servers above the safe load by the segments of as many replicas as run now, a share for each."""
        among, segments = self.among, snapshot.segments
        replicas = np.clip(snapshot.fleet[among], 1, snapshot.max_replicas[among])
        row = segments.offsets[among] + replicas - 1
        servers = snapshot.max_concurrency[among]
        present = np.flatnonzero(snapshot.rate_rps > 0.0)
        busy = (snapshot.rate_rps[:, None] * snapshot.service_s)[present][workload, among[route]]
        each = np.arange(among.size)
        extra = self.program.columns((weight * servers * segments.slope_usd[row].T), np.inf)
        load = [
            (route, x, busy / np.maximum(servers[route], 1e-9)),
            (each, serving, np.where(servers > 0, -segments.safe_utilization[row], 0.0)),
            (each, extra, -1.0),
        ]
        self.program.rows(among.size, load, high=0.0)
        for k, columns in enumerate(extra):
            share = segments.width[row, k] / (replicas * np.maximum(servers, 1e-9))
            self.program.rows(among.size, [(each, columns, 1.0), (each, serving, -share)], high=0.0)
