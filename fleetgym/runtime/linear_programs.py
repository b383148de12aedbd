"""Build linear and mixed-integer programs from blocks of columns and rows, and solve them with HiGHS.

`LinearProgram.model` hands a program to HiGHS as it is. `LinearProgram.solve` scales it first. HiGHS's tolerances are
absolute, and numbers of widely different sizes have made it call feasible programs infeasible. So every row is scaled
to a largest coefficient of one. Entries too small to matter are relaxed away, which never cuts off a solution.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fleetgym.runtime.highs import make_solver

#: Entries below this share of their row's largest are dropped from it.
NEGLIGIBLE = 1e-6
#: Feasibility of rows, bounds and integers; duals. HiGHS's own defaults (1e-6, 1e-7) blur a penalty's millionth.
TOLERANCE = 1e-9
#: A bound is taken to be this much of itself less than HiGHS says: more than its tolerances are worth.
ALLOWANCE = 1e-6


@dataclasses.dataclass(frozen=True, eq=False)
class Answer:
    """The solution that HiGHS found, in the program's units."""

    values: np.ndarray | None  # (columns,), None if there is no solution
    objective: float
    bound: float
    status: str  # "optimal" or "stopped"
    nodes: int
    duals: np.ndarray | None = None  # (rows,) of the rows as they were added; LPs only
    reduced: np.ndarray | None = None  # (columns,) reduced costs; LPs only


class LinearProgram:
    """Minimise a linear cost over rows ``low <= a @ v <= high`` and ``0 <= v <= upper``.

    Examples
    --------
    >>> program = LinearProgram()
    >>> v = program.columns(cost=np.array([-1.0, -2.0]), upper=1.0)
    >>> program.rows(1, [(np.zeros(2, int), v, 1.0)], high=1.5).tolist()
    [0]
    >>> answer = program.solve({})
    >>> answer.objective, answer.status
    (-2.5, 'optimal')
    """

    def __init__(self) -> None:
        self._cost: list[np.ndarray] = []
        self._upper: list[np.ndarray] = []
        self._whole: list[np.ndarray] = []
        self._small: list[np.ndarray] = []
        self._entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
        self._low: list[np.ndarray] = []
        self._high: list[np.ndarray] = []
        self.num_columns = 0
        self.num_rows = 0

    def columns(
        self, cost: np.ndarray, upper: Any, *, whole: bool = False, droppable: bool = False
    ) -> np.ndarray:
        """Add variables and return their indices, in the shape of `cost`.

        Parameters
        ----------
        cost : ndarray
            Cost coefficients, of any shape.
        upper : array_like
            Upper bounds; the lower ones are 0.
        whole : bool
            Whether the variables are integers.
        droppable : bool
            Whether `solve` may drop an entry far below its row's largest.
        """
        size = cost.size
        index = self.num_columns + np.arange(size).reshape(cost.shape)
        self._cost.append(cost.ravel().astype(float))
        self._upper.append(np.broadcast_to(upper, cost.shape).ravel().astype(float))
        self._whole.append(np.full(size, whole))
        self._small.append(np.full(size, droppable))
        self.num_columns += size
        return index

    def rows(
        self,
        count: int,
        entries: list[tuple[Any, Any, Any]],
        low: Any = -np.inf,
        high: Any = np.inf,
        *,
        only: np.ndarray | None = None,
    ) -> np.ndarray:
        """Add rows and return their indices.

        Parameters
        ----------
        count : int
            Number of rows.
        entries : list of (row, column, value)
            Arrays that broadcast against each other; rows count from 0 in this call.
        low, high : array_like
            Limits, broadcast to (count,).
        only : ndarray of bool, shape (count,), optional
            Rows to add; the index of a row that is left out is -1.
        """
        only = np.ones(count, dtype=bool) if only is None else only
        index = np.where(only, self.num_rows + np.cumsum(only) - 1, -1)
        for part in entries:
            row, column, value = (np.ravel(a) for a in np.broadcast_arrays(*part))
            used = (value != 0.0) & only[row]
            self._entries.append((index[row[used]], column[used], value[used].astype(float)))
        self._low.append(np.broadcast_to(low, count)[only].astype(float))
        self._high.append(np.broadcast_to(high, count)[only].astype(float))
        self.num_rows += int(only.sum())
        return index

    def model(self, unit: float = 1.0) -> Any:
        """Return the program as a `highspy.HighsLp`, with costs times `unit`."""
        return highs_model(
            np.concatenate(self._cost) * unit,
            self._sparse(*self._joined()),
            np.concatenate(self._low),
            np.concatenate(self._high),
            upper=np.concatenate(self._upper),
            whole=np.concatenate(self._whole),
        )

    def _joined(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        row, column, value = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        return row, column, value

    def _sparse(self, row: np.ndarray, column: np.ndarray, value: np.ndarray) -> Any:
        from scipy import sparse

        return sparse.csr_matrix((value, (row, column)), shape=(self.num_rows, self.num_columns))

    def solve(
        self,
        options: Mapping[str, Any],
        *,
        relax: bool = False,
        start: tuple[np.ndarray, np.ndarray] | None = None,
        lower: np.ndarray | None = None,
        upper: np.ndarray | None = None,
        on_solution: Callable[[float, np.ndarray], None] | None = None,
        is_over: Callable[[], bool] | None = None,
    ) -> Answer:
        """Solve the program with HiGHS.

        Parameters
        ----------
        options : mapping
            HiGHS options that replace the defaults: one thread, seed 0, tight tolerances, no gap.
        relax : bool
            Whether to ignore integrality; the answer then has duals.
        start : (indices, values), optional
            A partial solution; HiGHS completes it.
        lower, upper : ndarray, shape (columns,), optional
            Bounds that replace those of the columns.
        on_solution : callable, optional
            Called with objective and values whenever branch and bound finds a better solution.
        is_over : callable, optional
            Called now and then; HiGHS stops once it returns True.

        Raises
        ------
        RuntimeError
            If HiGHS calls the program infeasible; with unserved demand allowed, none is.
        """
        import highspy  # heavy, and one of the solvers that a process may hold

        settings = {
            "primal_feasibility_tolerance": TOLERANCE,
            "dual_feasibility_tolerance": TOLERANCE,
            "mip_feasibility_tolerance": TOLERANCE,
            "mip_rel_gap": 0.0,
            "mip_abs_gap": 0.0,
        }
        solver = make_solver(**{**settings, **options})
        model, scale = self._scaled(relax, lower, upper)
        solver.passModel(model)
        if start is not None:
            solver.setSolution(start[0].size, start[0].astype(np.int32), start[1].astype(float))
        if on_solution is not None:
            solver.cbMipImprovingSolution.subscribe(
                lambda event: on_solution(
                    event.data_out.objective_function_value, np.array(event.data_out.mip_solution)
                )
            )
        if is_over is not None:
            for ask in (solver.cbMipInterrupt, solver.cbSimplexInterrupt, solver.cbIpmInterrupt):
                ask.subscribe(lambda event: event.interrupt() if is_over() else None)
        solver.run()
        return _answer(highspy, solver, relax, scale)

    def _scaled(
        self, relax: bool, lower: np.ndarray | None, upper: np.ndarray | None
    ) -> tuple[Any, np.ndarray]:
        """Return the model with scaled rows, and the scales, (rows,)."""
        row, column, value = self._joined()
        low, high = np.concatenate(self._low), np.concatenate(self._high)
        bounds = np.concatenate(self._upper) if upper is None else upper
        scale = np.zeros(self.num_rows)
        np.maximum.at(scale, row, np.abs(value))
        scale[scale == 0.0] = 1.0
        value = value / scale[row]
        low, high = low / scale, high / scale
        small = np.concatenate(self._small)[column] & (np.abs(value) < NEGLIGIBLE) & np.isinf(low[row])
        np.add.at(high, row[small], np.maximum(0.0, -value[small]) * bounds[column[small]])
        matrix = self._sparse(row[~small], column[~small], value[~small])
        whole = None if relax else np.concatenate(self._whole)
        cost, least = np.concatenate(self._cost), 0.0 if lower is None else lower
        return highs_model(cost, matrix, low, high, lower=least, upper=bounds, whole=whole), scale


def highs_model(
    cost: np.ndarray,
    matrix: Any,
    low: np.ndarray,
    high: np.ndarray,
    *,
    lower: Any = 0.0,
    upper: Any = np.inf,
    whole: np.ndarray | None = None,
) -> Any:
    """Return a `highspy.HighsLp` that minimises cost @ v over low <= matrix @ v <= high and lower <= v <= upper.

    Parameters
    ----------
    cost : ndarray, shape (columns,)
    matrix : scipy.sparse.csr_matrix, shape (rows, columns)
    low, high : ndarray, shape (rows,)
    lower, upper : array_like
        Bounds, broadcast to (columns,).
    whole : ndarray of bool, shape (columns,), optional
        Columns that are integers; by default none.
    """
    import highspy  # heavy, and one of the solvers that a process may hold

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = cost.size, low.size
    model.col_cost_ = cost
    model.col_lower_, model.col_upper_ = (
        np.broadcast_to(b, cost.shape).astype(float) for b in (lower, upper)
    )
    model.row_lower_, model.row_upper_ = low, high
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_ = matrix.indptr
    model.a_matrix_.index_, model.a_matrix_.value_ = matrix.indices, matrix.data
    if whole is not None and whole.any():
        kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
        model.integrality_ = [kinds[int(w)] for w in whole]
    return model


def _answer(highspy: Any, solver: Any, relax: bool, scale: np.ndarray) -> Answer:
    status = solver.getModelStatus()
    if status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible):
        raise RuntimeError("HiGHS calls a program infeasible that serving nothing satisfies")
    info, solution = solver.getInfo(), solver.getSolution()
    optimal = status == highspy.HighsModelStatus.kOptimal
    integer = info.mip_node_count >= 0
    values = np.array(solution.col_value) if solution.value_valid else None
    objective = info.objective_function_value if values is not None else np.inf
    return Answer(
        values=values,
        objective=objective,
        bound=info.mip_dual_bound if integer else (objective if optimal else -np.inf),
        status="optimal" if optimal else "stopped",
        nodes=max(0, int(info.mip_node_count)),
        duals=np.array(solution.row_dual) / scale if relax and solution.dual_valid else None,
        reduced=np.array(solution.col_dual) if relax and solution.dual_valid else None,
    )
