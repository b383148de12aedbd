"""Solve one linear program over all windows of a relaxed episode, and return its prices."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from fleetgym.bounds.certificate import LimitPrices, WindowPrices
from fleetgym.bounds.programs import routing_rows, window_program
from fleetgym.bounds.relaxation import EpisodeRelaxation, WindowRelaxation
from fleetgym.runtime.highs import make_solver
from fleetgym.runtime.linear_programs import LinearProgram

#: Interior-point methods of HiGHS for the linear program.
SOLVERS = ("ipx", "hipo")
#: An average window without service costs this many units in the solver.
SCALE = 1000.0
#: The interior-point method stops here at the latest; prices that are not optimal are valid too.
MAX_ITERATIONS = 200
#: Or here, relative: what is left is far less than what rounding replicas costs.
TOLERANCE = 1e-4
#: Start-ups make replicas more expensive than their rent: a guess which are used looks at these multiples of it.
RENT_FACTORS = (1.0, 1.3, 1.8)


@dataclasses.dataclass(frozen=True, eq=False)
class HorizonSolution:
    """The linear relaxation of an episode, solved over some configurations."""

    windows: tuple[tuple[WindowPrices, ...], ...]  # of every draw
    shared: LimitPrices
    serving: np.ndarray  # (T, C) replicas, not whole
    cost_usd: float  # the solver's


class _Draw(NamedTuple):
    """Where the variables of one demand's routing are."""

    x: np.ndarray  # (routes,)
    unserved: np.ndarray  # (m,)
    delay: np.ndarray  # (m,)
    error: np.ndarray  # (m,)
    late: np.ndarray  # (n,) cost of late requests
    left: np.ndarray  # (n,) replicas that losses leave; empty where there are none


class _Columns(NamedTuple):
    """Where a window's variables are."""

    draws: tuple[_Draw, ...]
    ready: np.ndarray  # (n,) replicas that are routed to
    serving: np.ndarray  # (n,) replicas that pay; the same columns, unless the problem is ahead and t > 0
    arrivals: np.ndarray  # (n,) replicas that serve from this window on


class HorizonProgram:
    """The linear program of an episode over the configurations `among`; the others serve nothing.

    Parameters
    ----------
    problem : EpisodeRelaxation
    among : ndarray of int, shape (n,)
        Ascending.
    """

    def __init__(self, problem: EpisodeRelaxation, among: np.ndarray):
        self.problem, self.among = problem, among
        self.program = LinearProgram()
        self.hold = problem.hold_usd[:, among]
        self.waits = problem.startup_windows[among]
        self.columns = [self._columns(t) for t in range(len(problem.windows))]
        self.numbers = [self._window_rows(t) for t in range(len(problem.windows))]
        self._linking_rows()
        use, available = problem.gpu_use[:, among], [w.available_gpus for w in problem.windows]
        self.gpu_rows = self._held_rows([use] * len(available), available)
        self.rate_rows = self._rate_rows()
        self.pool_row = self._pool_row()
        self._slot_rows()

    # -- columns

    def _columns(self, t: int) -> _Columns:
        problem, most, take = self.problem, self.problem.windows[t].most[self.among], self.program.columns
        late = (self.waits > 0) & (t > 0) & (t <= self.waits)  # granted before the episode: impossible
        routing = problem.routings[t]
        draws = tuple(self._draw(*pair) for pair in zip(routing.draws, routing.weights, strict=True))
        is_apart = problem.is_ahead and t > 0
        # Who serves is ready, so that one limit holds both; a second one would take a part of its price.
        serving = take(self.hold[t], np.inf if is_apart else most)
        return _Columns(
            draws=draws,
            ready=take(np.zeros(most.size), most) if is_apart else serving,
            serving=serving,
            arrivals=take(
                problem.startup_usd[self.among] + self._starting_usd(t), np.where(late, 0.0, np.inf)
            ),
        )

    def _draw(self, window: WindowRelaxation, weight: float) -> _Draw:
        workload, route = np.nonzero(window.is_open[:, self.among])
        penalty, take = weight * window.unserved_usd, self.program.columns
        return _Draw(
            x=take(weight * window.route_usd[workload, self.among[route]], 1.0),
            unserved=take(penalty, 1.0),
            delay=take(penalty, np.inf),
            error=take(penalty, np.inf),
            late=take(weight * window.late_usd[self.among], np.inf),
            left=take(np.zeros(self.among.size), window.most[self.among])
            if window.is_lossy
            else np.empty(0, dtype=np.int64),
        )

    def _starting_usd(self, t: int) -> np.ndarray:
        """Return the rent that a replica that serves from t on has paid before, (n,)."""
        before = [np.where(k <= self.waits, self.hold[t - k], 0.0) for k in self._waits_before(t)]
        return np.sum(before, axis=0) if before else np.zeros(self.among.size)

    def _waits_before(self, t: int) -> range:
        return range(1, min(t, int(self.waits.max(initial=0))) + 1)

    # -- rows

    def _window_rows(self, t: int) -> tuple[dict[str, np.ndarray], ...]:
        pairs = zip(self.problem.routings[t].draws, self.columns[t].draws, strict=True)
        return tuple(self._draw_rows(window, at, self.columns[t].ready) for window, at in pairs)

    def _draw_rows(self, window: WindowRelaxation, at: _Draw, ready: np.ndarray) -> dict[str, np.ndarray]:
        flows, left = (at.x, at.unserved, at.delay, at.error, at.late), at.left
        if not window.is_lossy:
            return routing_rows(self.program, window, *flows, ready, self.among)
        numbers = routing_rows(self.program, window, *flows, left, self.among)
        each = np.arange(left.size)
        numbers["left"] = self.program.rows(left.size, [(each, left, 1.0), (each, ready, -1.0)], high=0.0)
        pool, column = np.nonzero(window.lossy_use[:, self.among])
        use = window.lossy_use[:, self.among][pool, column]
        numbers["lossy"] = self.program.rows(
            window.lossy_gpus.size, [(pool, left[column], use)], high=window.lossy_gpus
        )
        return numbers

    def _linking_rows(self) -> None:
        """Require that replicas that are ready served before, or arrive."""
        each = np.arange(self.among.size)
        for t, at in enumerate(self.columns):
            entries = [(each, at.ready, 1.0), (each, at.arrivals, -1.0)]
            if t:
                entries.append((each, self.columns[t - 1].serving, -1.0))
            self.program.rows(each.size, entries, high=0.0 if t else self.problem.nominal[self.among])
            if at.ready is not at.serving:
                self.program.rows(each.size, [(each, at.serving, 1.0), (each, at.ready, -1.0)], high=0.0)

    def _held_rows(self, use: Iterable[np.ndarray], limits: Iterable[Any]) -> np.ndarray:
        """Add rows Σ use · held ≤ limit in every window, use (rows, n); return their numbers, (T, rows)."""
        pairs = enumerate(zip(use, limits, strict=True))
        return np.array([self.program.rows(len(u), self._held(u, t), high=limit) for t, (u, limit) in pairs])

    def _held(self, use: np.ndarray, t: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return the entries of what is held in a window, for use (rows, n)."""
        row, column = np.nonzero(use)
        entries = [(row, self.columns[t].serving[column], use[row, column])]
        for k in range(1, int(self.waits.max(initial=0)) + 1):
            if t + k < len(self.columns):
                waits = self.waits[column] >= k
                arrivals = self.columns[t + k].arrivals[column[waits]]
                entries.append((row[waits], arrivals, use[row[waits], column[waits]]))
        return entries

    def _rate_rows(self) -> np.ndarray | None:
        limit = self.problem.rate_budget_usd
        if not np.isfinite(limit) or limit <= 0.0:
            return None
        return self._held_rows(self.hold[:, None, :] / limit, np.ones(len(self.columns)))[:, 0]

    def _pool_row(self) -> int | None:
        limit = self.problem.pool_budget_usd
        if not np.isfinite(limit) or limit <= 0.0:
            return None
        entries = []
        for t, at in enumerate(self.columns):
            fee = self.problem.startup_usd[self.among] + self._starting_usd(t)
            entries += [(0, at.serving, self.hold[t] / limit), (0, at.arrivals, fee / limit)]
        return int(self.program.rows(1, entries, high=1.0)[0])

    def _slot_rows(self) -> None:
        for members in self.problem.exclusive:
            use = np.isin(self.among, members)[None, :]
            if use.sum() > 1:
                self._held_rows([use] * len(self.columns), np.ones(len(self.columns)))

    # -- solution

    def solve(self, method: str = "ipx", tolerance: float = TOLERANCE) -> HorizonSolution:
        """Solve the program by an interior-point method, whose prices lie in the middle of the best ones.

        Parameters
        ----------
        method : str
            One of `SOLVERS`.
        tolerance : float
            Of feasibility and of the optimum, relative.

        Raises
        ------
        FleetgymError
            If HiGHS, as installed, has no such method.
        """
        unit = SCALE / max(float(np.mean([w.unserved_usd.sum() for w in self.problem.windows])), 1e-300)
        solver = make_solver(
            random_seed=1,
            solver=method,
            run_crossover="off",
            ipm_iteration_limit=MAX_ITERATIONS,
            kkt_tolerance=tolerance,
        )
        solver.passModel(self.program.model(unit))
        solver.run()
        found = solver.getSolution()
        dual, reduced, value = (np.array(x) for x in (found.row_dual, found.col_dual, found.col_value))
        if dual.size != self.program.num_rows or not np.all(np.isfinite(dual)):
            dual = np.zeros(self.program.num_rows)
            reduced = value = np.zeros(self.program.num_columns)
        cost_usd = float(solver.getInfo().objective_function_value) / unit
        return self._read(dual / unit, reduced / unit, value, cost_usd)

    def _read(
        self, dual: np.ndarray, reduced: np.ndarray, value: np.ndarray, cost_usd: float
    ) -> HorizonSolution:
        problem, shape = self.problem, self.problem.hold_usd.shape
        dual = np.append(dual, 0.0)  # of the rows that were left out: they have number -1
        limit = {"rate": problem.rate_budget_usd, "pool": problem.pool_budget_usd}
        rate = np.zeros(shape[0])
        if self.rate_rows is not None:
            rate = np.maximum(0.0, -dual[self.rate_rows]) / limit["rate"]
        pool = 0.0 if self.pool_row is None else max(0.0, -dual[self.pool_row]) / limit["pool"]
        serving, room = np.zeros(shape), np.zeros(shape)
        for t, at in enumerate(self.columns):
            serving[t, self.among] = value[at.serving]
            room[t, self.among] = np.maximum(0.0, -reduced[at.ready])
        gpus = np.maximum(0.0, -dual[self.gpu_rows])
        windows = tuple(self._window_prices(t, dual, reduced) for t in range(shape[0]))
        return HorizonSolution(windows, LimitPrices(gpus, room, rate, pool), serving, cost_usd)

    def _window_prices(self, t: int, dual: np.ndarray, reduced: np.ndarray) -> tuple[WindowPrices, ...]:
        routing = self.problem.routings[t]
        of = zip(routing.draws, self.numbers[t], self.columns[t].draws, routing.weights, strict=True)
        return tuple(
            self._draw_prices(window, numbers, dual / weight, reduced[at.left] / weight)
            for window, numbers, at, weight in of
        )

    def _draw_prices(
        self,
        window: WindowRelaxation,
        numbers: dict[str, np.ndarray],
        dual: np.ndarray,
        reduced_left: np.ndarray,
    ) -> WindowPrices:
        capacity = np.zeros(window.missing_usd.shape)
        capacity[:, self.among] = -dual[numbers["capacity"]]
        whole = np.zeros(window.route_usd.shape)
        workload, route = np.nonzero(window.is_tight[:, self.among])
        whole[workload, self.among[route]] = -dual[numbers["whole"]]
        room = np.zeros(window.hold_usd.size)
        if window.is_lossy:
            room[self.among] = -reduced_left
        return WindowPrices(
            served=dual[numbers["served"]],
            delay=-dual[numbers["delay"]],
            error=-dual[numbers["error"]],
            capacity=capacity,
            whole=whole,
            lossy=-dual[numbers["lossy"]] if window.is_lossy else np.empty(0),
            room=room,
        )


def likely_configurations(problem: EpisodeRelaxation, every: int) -> np.ndarray:
    """Return the nominal configurations and those that some windows would use at some `RENT_FACTORS`, (n,)."""
    used = problem.nominal > 0
    solver = make_solver(random_seed=1)
    for window in problem.windows[::every]:
        for factor in RENT_FACTORS:
            used |= _linear_fleet(solver, problem, window, factor) > 1e-6
    return np.flatnonzero(used)


def _linear_fleet(solver: Any, problem: EpisodeRelaxation, window: Any, factor: float) -> np.ndarray:
    """Return the fleet, not whole, that a window alone would have at `factor` times the rent."""
    program, serving = window_program(window, problem.gpu_use, factor * window.hold_usd)
    solver.passModel(program.model(SCALE / max(float(window.unserved_usd.sum()), 1e-300)))
    solver.run()
    values = np.array(solver.getSolution().col_value)
    return values[serving] if values.size else np.zeros(serving.size)
