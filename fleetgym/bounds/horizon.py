"""The relaxed episode and some configurations in, one linear program over all windows solved, its prices out."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import numpy as np

from fleetgym.bounds import interior
from fleetgym.bounds.certificate import Prices, WindowPrices
from fleetgym.bounds.programs import Rows, linear_program, routing_rows
from fleetgym.bounds.relaxation import Problem, Window
from fleetgym.bounds.structure import structured
from fleetgym.runtime.highs import make_solver

#: Methods for the linear program: our own, and two of HiGHS.
SOLVERS = ("block", "ipx", "hipo")
#: An average window without service costs this many units in the solver.
SCALE = 1000.0
#: The interior-point method stops here at the latest; prices that are not optimal are valid too.
MAX_ITERATIONS = 200
#: Or here, relative: what is left is far less than what rounding replicas costs.
TOLERANCE = 1e-4
#: Start-ups make replicas dearer than their rent: a guess which are used looks at these multiples of it.
RENT_FACTORS = (1.0, 1.3, 1.8)


@dataclasses.dataclass(frozen=True, eq=False)
class HorizonSolution:
    """The linear relaxation of an episode, solved over some configurations."""

    windows: tuple[tuple[WindowPrices, ...], ...]  # of every draw
    shared: Prices
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
    problem : Problem
    among : ndarray of int, shape (n,)
        Ascending.
    """

    def __init__(self, problem: Problem, among: np.ndarray):
        self.problem, self.among = problem, among
        self.rows = Rows()
        self.cost: list[np.ndarray] = []
        self.upper: list[np.ndarray] = []
        self.num_columns = 0
        self.hold = problem.hold_usd[:, among]
        self.waits = problem.startup_windows[among]
        self.columns = [self._columns(t) for t in range(len(problem.windows))]
        self.numbers = [self._window_rows(t) for t in range(len(problem.windows))]
        self._linking_rows()
        self.gpu_rows = self._held_rows(
            problem.gpu_use[:, among].astype(float), [w.available_gpus for w in problem.windows]
        )
        self.rate_rows = self._rate_rows()
        self.pool_row = self._pool_row()
        self._slot_rows()

    # -- columns

    def _take(self, cost: np.ndarray, upper: np.ndarray) -> np.ndarray:
        first = self.num_columns
        self.num_columns += cost.size
        self.cost.append(cost)
        self.upper.append(upper)
        return first + np.arange(cost.size)

    def _columns(self, t: int) -> _Columns:
        problem, most = self.problem, self.problem.windows[t].most[self.among]
        late = (self.waits > 0) & (t > 0) & (t <= self.waits)  # granted before the episode: impossible
        routing = problem.routings[t]
        draws = tuple(self._draw(*pair) for pair in zip(routing.draws, routing.weights, strict=True))
        is_apart = problem.is_ahead and t > 0
        # Who serves is ready, so that one limit holds both; a second one would take a part of its price.
        serving = self._take(self.hold[t], np.full(most.size, np.inf) if is_apart else most)
        return _Columns(
            draws=draws,
            ready=self._take(np.zeros(most.size), most) if is_apart else serving,
            serving=serving,
            arrivals=self._take(
                problem.startup_usd[self.among] + self._starting_usd(t), np.where(late, 0.0, np.inf)
            ),
        )

    def _draw(self, window: Window, weight: float) -> _Draw:
        workload, route = np.nonzero(window.is_open[:, self.among])
        penalty, ones = weight * window.unserved_usd, np.ones(window.unserved_usd.size)
        return _Draw(
            x=self._take(weight * window.route_usd[workload, self.among[route]], np.ones(workload.size)),
            unserved=self._take(penalty, ones),
            delay=self._take(penalty, np.inf * ones),
            error=self._take(penalty, np.inf * ones),
            late=self._take(weight * window.late_usd[self.among], np.full(self.among.size, np.inf)),
            left=self._take(np.zeros(self.among.size), window.most[self.among])
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

    def _draw_rows(self, window: Window, at: _Draw, ready: np.ndarray) -> dict[str, np.ndarray]:
        flows, left = (at.x, at.unserved, at.delay, at.error, at.late), at.left
        if not window.is_lossy:
            return routing_rows(self.rows, window, *flows, ready, self.among)
        numbers = routing_rows(self.rows, window, *flows, left, self.among)
        rows = self.rows.begin(left.size, -np.inf, 0.0) + np.arange(left.size)
        self.rows.put(rows, left, np.ones(left.size))
        self.rows.put(rows, ready, -np.ones(left.size))
        numbers["left"] = rows
        first = self.rows.begin(window.lossy_gpus.size, -np.inf, window.lossy_gpus)
        pool, column = np.nonzero(window.lossy_use[:, self.among])
        self.rows.put(first + pool, left[column], window.lossy_use[:, self.among][pool, column])
        numbers["lossy"] = first + np.arange(window.lossy_gpus.size)
        return numbers

    def _linking_rows(self) -> None:
        """Who is ready served before, or arrives."""
        ones = np.ones(self.among.size)
        for t, at in enumerate(self.columns):
            limit = np.zeros(ones.size) if t else self.problem.nominal[self.among]
            rows = self.rows.begin(ones.size, -np.inf, limit) + np.arange(ones.size)
            self.rows.put(rows, at.ready, ones)
            self.rows.put(rows, at.arrivals, -ones)
            if t:
                self.rows.put(rows, self.columns[t - 1].serving, -ones)
            if at.ready is not at.serving:
                rows = self.rows.begin(ones.size, -np.inf, 0.0) + np.arange(ones.size)
                self.rows.put(rows, at.serving, ones)
                self.rows.put(rows, at.ready, -ones)

    def _held_rows(self, use: np.ndarray, limits: list[np.ndarray]) -> np.ndarray:
        """Add rows Σ use · held ≤ limit in every window; return their numbers, (T, rows)."""
        numbers = np.empty((len(self.columns), len(use)), dtype=np.int64)
        for t in range(len(self.columns)):
            first = self.rows.begin(len(use), -np.inf, limits[t])
            numbers[t] = first + np.arange(len(use))
            self._put_held(first, use, t)
        return numbers

    def _put_held(self, first: int, use: np.ndarray, t: int) -> None:
        row, column = np.nonzero(use)
        self.rows.put(first + row, self.columns[t].serving[column], use[row, column])
        for k in range(1, int(self.waits.max(initial=0)) + 1):
            if t + k < len(self.columns):
                waits = self.waits[column] >= k
                arrivals = self.columns[t + k].arrivals[column[waits]]
                self.rows.put(first + row[waits], arrivals, use[row[waits], column[waits]])

    def _rate_rows(self) -> np.ndarray | None:
        limit = self.problem.rate_budget_usd
        if not np.isfinite(limit) or limit <= 0.0:
            return None
        numbers = np.empty(len(self.columns), dtype=np.int64)
        for t in range(len(self.columns)):
            numbers[t] = self.rows.begin(1, -np.inf, 1.0)
            self._put_held(int(numbers[t]), self.hold[t][None, :] / limit, t)
        return numbers

    def _pool_row(self) -> int | None:
        limit = self.problem.pool_budget_usd
        if not np.isfinite(limit) or limit <= 0.0:
            return None
        row = self.rows.begin(1, -np.inf, 1.0)
        for t, at in enumerate(self.columns):
            place = np.full(self.among.size, row)
            fee = self.problem.startup_usd[self.among] + self._starting_usd(t)
            self.rows.put(place, at.serving, self.hold[t] / limit)
            self.rows.put(place, at.arrivals, fee / limit)
        return row

    def _slot_rows(self) -> None:
        for members in self.problem.exclusive:
            use = np.isin(self.among, members).astype(float)[None, :]
            if use.sum() > 1:
                self._held_rows(use, [np.ones(1)] * len(self.columns))

    # -- solution

    def solve(self, method: str = "ipx", tolerance: float = TOLERANCE) -> HorizonSolution:
        """Solve the program by an interior-point method, whose prices lie in the middle of the best ones.

        Parameters
        ----------
        method : str
            One of `SOLVERS`.
        tolerance : float
            Of the optimum, relative.

        Raises
        ------
        FleetgymError
            If HiGHS, as installed, has no such method.
        """
        unit = SCALE / max(float(np.mean([w.unserved_usd.sum() for w in self.problem.windows])), 1e-300)
        if method == "block" and self.among.size:
            found = interior.solve(*structured(self, unit), tolerance, MAX_ITERATIONS)
            if found.is_optimal:
                return self._read(-found.dual / unit, found.reduced / unit, found.value, found.cost / unit)
        return self._solve_by_highs("ipx" if method == "block" else method, unit, tolerance)

    def _solve_by_highs(self, method: str, unit: float, tolerance: float) -> HorizonSolution:
        solver = make_solver(
            random_seed=1,
            solver=method,
            run_crossover="off",
            ipm_iteration_limit=MAX_ITERATIONS,
            ipm_optimality_tolerance=tolerance,
        )
        cost, upper = np.concatenate(self.cost), np.concatenate(self.upper)
        solver.passModel(linear_program(cost * unit, upper, self.rows, np.empty(0, dtype=int)))
        solver.run()
        found = solver.getSolution()
        dual, reduced, value = (np.array(x) for x in (found.row_dual, found.col_dual, found.col_value))
        if dual.size != self.rows.count or not np.all(np.isfinite(dual)):
            dual, reduced = np.zeros(self.rows.count), np.zeros(self.num_columns)
            value = np.zeros(self.num_columns)
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
        return HorizonSolution(windows, Prices(gpus, room, rate, pool), serving, cost_usd)

    def _window_prices(self, t: int, dual: np.ndarray, reduced: np.ndarray) -> tuple[WindowPrices, ...]:
        routing = self.problem.routings[t]
        of = zip(routing.draws, self.numbers[t], self.columns[t].draws, routing.weights, strict=True)
        return tuple(
            self._draw_prices(window, numbers, dual / weight, reduced[at.left] / weight)
            for window, numbers, at, weight in of
        )

    def _draw_prices(
        self, window: Window, numbers: dict[str, np.ndarray], dual: np.ndarray, reduced_left: np.ndarray
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


def likely_configurations(problem: Problem, every: int) -> np.ndarray:
    """Return the nominal configurations and those that some windows would use at some `RENT_FACTORS`, (n,)."""
    used = problem.nominal > 0
    solver = make_solver(random_seed=1)
    for window in problem.windows[::every]:
        for factor in RENT_FACTORS:
            used |= _linear_fleet(solver, problem, window, factor) > 1e-6
    return np.flatnonzero(used)


def _linear_fleet(solver: Any, problem: Problem, window: Any, factor: float) -> np.ndarray:
    """Return the fleet, not whole, that a window alone would have at `factor` times the rent."""
    workload, route = np.nonzero(window.is_open)
    m, n, count = window.unserved_usd.size, workload.size, window.hold_usd.size
    rows, columns = Rows(), np.split(np.arange(n + 3 * m + 2 * count), np.cumsum([n, m, m, m, count]))
    routing_rows(rows, window, *columns)
    for use, available in zip(problem.gpu_use, window.available_gpus, strict=True):
        rows.add(use[None, :].astype(float), columns[-1], -np.inf, available)
    penalty = window.unserved_usd
    unit = SCALE / max(float(penalty.sum()), 1e-300)
    cost = np.concatenate(
        [
            window.route_usd[workload, route],
            *(penalty, penalty, penalty),
            window.late_usd,
            factor * window.hold_usd,
        ]
    )
    upper = np.concatenate([np.ones(n + m), np.full(2 * m + count, np.inf), window.most])
    solver.passModel(linear_program(cost * unit, upper, rows, np.empty(0, dtype=int)))
    solver.run()
    values = np.array(solver.getSolution().col_value)
    return values[-count:] if values.size else np.zeros(count)
