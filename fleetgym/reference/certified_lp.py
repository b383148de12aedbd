"""Solve a small linear program with a certificate: HiGHS proposes a basis, dense pivots finish it.

Used by the reference evaluator, where a solver's absolute tolerances would be too coarse. Costs that differ by a
millionth of a penalty decide which of two equal replicas serves.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from fleetgym.runtime.highs import make_solver
from fleetgym.runtime.linear_programs import highs_model

#: Relative gap between the vertex and the Lagrangian bound of its duals.
GAP = 1e-11
#: The gap is relative to the objective, or to this share of the start basis' objective if that is larger.
GAP_FLOOR = 1e-4
#: How far a basic variable may lie outside its bounds; variables are scaled to about one.
FEASIBLE = 1e-11
#: A reduced cost below this share of the terms it is the sum of is round-off.
ROUND_OFF = 1e-14
#: A pivot element below this is round-off.
PIVOT = 1e-12
MAX_PIVOTS = 20_000


class CertificateError(RuntimeError):
    """The linear program's solution could not be proven optimal."""


class _Infeasible(Exception):
    """The proposed basis is singular or lies outside the bounds."""


@dataclasses.dataclass(frozen=True)
class LinearProgram:
    """Minimise ``cost @ v`` over ``0 <= v <= upper`` where ``matrix @ v`` equals, or is at most, ``rhs``.

    Attributes
    ----------
    cost, upper, largest : (columns,) float64
        `largest` is a finite value that no optimal solution needs to exceed; only the certificate uses it.
    matrix : (rows, columns) float64
        Scaled: entries are about one or smaller.
    rhs : (rows,) float64
    equality : (rows,) bool
        True where the row is an equation.
    start : (rows,) list of int
        Columns of a feasible basis; ``columns + r`` stands for the slack of row r.
    """

    cost: np.ndarray
    upper: np.ndarray
    largest: np.ndarray
    matrix: np.ndarray
    rhs: np.ndarray
    equality: np.ndarray
    start: list[int]


@dataclasses.dataclass(frozen=True)
class Solution:
    """The optimal vertex with its proof.

    Attributes
    ----------
    values : (columns,) float64
    duals : (rows,) float64
    objective, bound : float
        The Lagrangian bound of `duals` is at most the optimum.
    basis : (rows,) list of int
        As in `LinearProgram.start`.
    at_upper : set of int
        Columns that are not basic and at their upper bound.
    pivots : int
        Pivots that were needed after HiGHS.
    """

    values: np.ndarray
    duals: np.ndarray
    objective: float
    bound: float
    basis: list[int]
    at_upper: set[int]
    pivots: int


def solve(program: LinearProgram) -> Solution:
    """Return the certified optimum of a feasible and bounded program.

    Raises
    ------
    CertificateError
        If primal feasibility, dual feasibility or the gap cannot be shown.
    """
    tableau = _Tableau(program)
    try:
        return tableau.optimise(*_highs_basis(program))
    except (_Infeasible, CertificateError):  # HiGHS may be off where the numbers range widely
        return tableau.optimise(list(program.start), set())


class _Tableau:
    """The program with one slack per row, ``matrix @ v + slack = rhs``; those of equations are fixed at 0."""

    def __init__(self, program: LinearProgram):
        rows = len(program.rhs)
        self.columns = len(program.cost)
        self.matrix = np.hstack([program.matrix, np.eye(rows)])
        self.rhs = program.rhs
        self.cost = np.concatenate([program.cost, np.zeros(rows)])
        self.upper = np.concatenate([program.upper, np.where(program.equality, 0.0, np.inf)])
        self.largest = program.largest
        self.equality = program.equality
        # Residuals are taken in extended precision where the platform has it.
        self.wide = self.matrix.astype(np.longdouble)
        start = self.cost[program.start] @ np.linalg.solve(self.matrix[:, program.start], program.rhs)
        self.floor = GAP_FLOOR * float(start)

    def optimise(self, basis: list[int], at_upper: set[int]) -> Solution:
        """Pivot by Bland's rule from a feasible basis until reduced costs are right up to round-off."""
        for pivots in range(MAX_PIVOTS):
            inverse = self._inverse(basis)
            values = self._basic_values(inverse, basis, at_upper)
            if np.any(values < -FEASIBLE) or np.any(values > self.upper[basis] + FEASIBLE):
                if pivots == 0:
                    raise _Infeasible
                raise CertificateError(f"basis left its bounds by {-values.min():.3g} after {pivots} pivots")
            duals = _refined(inverse.T, self.wide[:, basis].T, self.cost[basis])
            entering = self._entering(duals, basis, at_upper)
            if entering is None:
                solution = self._solution(values, duals, basis, at_upper, pivots)
                _certify(self, solution)
                return solution
            self._pivot(inverse, values, entering, basis, at_upper)
        raise CertificateError(f"no optimum within {MAX_PIVOTS} pivots")

    def _inverse(self, basis: list[int]) -> np.ndarray:
        try:
            inverse = np.linalg.inv(self.matrix[:, basis])
        except np.linalg.LinAlgError:
            raise _Infeasible from None
        if not np.all(np.isfinite(inverse)):
            raise _Infeasible
        return inverse

    def _basic_values(self, inverse: np.ndarray, basis: list[int], at_upper: set[int]) -> np.ndarray:
        rhs = self.rhs.astype(np.longdouble)
        for j in sorted(at_upper):
            rhs = rhs - self.wide[:, j] * self.upper[j]
        return _refined(inverse, self.wide[:, basis], rhs)

    def reduced_costs(self, duals: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return every column's reduced cost, and how much of it may be round-off."""
        reduced = self.cost - self.wide.T @ duals
        size = np.abs(self.cost) + np.abs(self.matrix).T @ np.abs(duals.astype(np.float64))
        return reduced, ROUND_OFF * size

    def _entering(self, duals: np.ndarray, basis: list[int], at_upper: set[int]) -> int | None:
        """Return the first column that would lower the cost (Bland)."""
        reduced, noise = self.reduced_costs(duals)
        up = np.zeros(len(reduced), dtype=bool)
        up[sorted(at_upper)] = True
        wrong = np.where(up, reduced > noise, reduced < -noise) & (self.upper > 0.0)
        wrong[basis] = False
        found = np.flatnonzero(wrong)
        return int(found[0]) if len(found) else None

    def _pivot(
        self, inverse: np.ndarray, values: np.ndarray, entering: int, basis: list[int], at_upper: set[int]
    ) -> None:
        """Exchange a basic column for `entering`, or move `entering` to its other bound; in place."""
        toward = -1.0 if entering in at_upper else 1.0
        slope = toward * _refined(inverse, self.wide[:, basis], self.matrix[:, entering]).astype(np.float64)
        step, leaving, to_upper = float(self.upper[entering]), -1, False
        for k in np.flatnonzero(np.abs(slope) > PIVOT):
            room = float(values[k] if slope[k] > 0 else self.upper[basis[k]] - values[k])
            # Degenerate vertices must tie exactly, or Bland's rule does not prevent cycles.
            ratio = (room if room > 1e-13 else 0.0) / abs(slope[k])
            if ratio < step or (ratio == step and leaving >= 0 and basis[k] < basis[leaving]):
                step, leaving, to_upper = ratio, int(k), bool(slope[k] < 0)
        if math.isinf(step):
            raise CertificateError("the program is unbounded")
        if leaving < 0:
            at_upper ^= {entering}
            return
        at_upper.discard(entering)
        if to_upper:
            at_upper.add(basis[leaving])
        basis[leaving] = entering

    def _solution(
        self, values: np.ndarray, duals: np.ndarray, basis: list[int], at_upper: set[int], pivots: int
    ) -> Solution:
        full = np.zeros(len(self.cost), dtype=np.longdouble)
        for j in at_upper:
            full[j] = self.upper[j]
        full[basis] = values
        objective = float(self.cost @ full)
        bound = self._lagrangian_bound(duals)
        part = full[: self.columns].astype(np.float64)
        return Solution(part, duals.astype(np.float64), objective, bound, basis, at_upper, pivots)

    def _lagrangian_bound(self, duals: np.ndarray) -> float:
        """Return a lower bound on the optimum that holds for any `duals`."""
        # A "<=" row of a minimisation has no positive multiplier.
        multiplier = np.where(self.equality, duals, np.minimum(duals, 0.0))
        reduced = (self.cost - self.wide.T @ multiplier)[: self.columns]
        box = np.minimum(self.largest, self.upper[: self.columns])
        return float(self.rhs @ multiplier + np.minimum(reduced, 0.0) @ box)


def _refined(inverse: np.ndarray, wide: np.ndarray, rhs: np.ndarray) -> np.ndarray:
    """Solve ``wide @ v = rhs`` with an approximate inverse and two corrections."""
    rhs = rhs.astype(np.longdouble)
    value = (inverse @ rhs.astype(np.float64)).astype(np.longdouble)
    for _ in range(2):
        value = value + inverse @ (rhs - wide @ value).astype(np.float64)
    return value


def _certify(tableau: _Tableau, solution: Solution) -> None:
    """Raise unless the vertex satisfies the rows and bounds and meets the bound of its duals."""
    values = solution.values
    slack = tableau.rhs - tableau.wide[:, : tableau.columns] @ values
    outside = max(
        float(np.max(-values, initial=0.0)),
        float(np.max(values - tableau.upper[: tableau.columns], initial=0.0)),
        float(np.max(-slack, initial=0.0)),
        float(np.max(np.abs(slack[tableau.equality]), initial=0.0)),
    )
    if outside > 2 * FEASIBLE:
        raise CertificateError(f"routing is infeasible by {outside:.3g}")
    allowed = GAP * max(abs(solution.objective), tableau.floor)
    gap = solution.objective - solution.bound
    if not abs(gap) <= allowed:
        raise CertificateError(
            f"routing is not proven optimal: objective {solution.objective:.17g}, bound {solution.bound:.17g}"
        )


def _highs_basis(program: LinearProgram) -> tuple[list[int], set[int]]:
    """Return HiGHS's final basis, with slacks numbered after the columns, and the columns at upper bounds."""
    import highspy
    from scipy import sparse

    solver = make_solver(
        presolve="off",  # these programs are tiny
        primal_feasibility_tolerance=1e-10,
        dual_feasibility_tolerance=1e-10,
    )
    low = np.where(program.equality, program.rhs, -np.inf)
    matrix = sparse.csr_matrix(program.matrix)
    solver.passModel(highs_model(program.cost, matrix, low, program.rhs, upper=program.upper))
    solver.run()
    basis = solver.getBasis()
    if not basis.valid:
        raise _Infeasible
    kinds = highspy.HighsBasisStatus
    columns = len(program.cost)
    basic = [j for j, status in enumerate(basis.col_status) if status == kinds.kBasic]
    basic += [columns + r for r, status in enumerate(basis.row_status) if status == kinds.kBasic]
    if len(basic) != len(program.rhs):
        raise _Infeasible
    at_upper = {
        j
        for j, status in enumerate(basis.col_status)
        if status == kinds.kUpper and math.isfinite(program.upper[j])
    }
    return basic, at_upper
