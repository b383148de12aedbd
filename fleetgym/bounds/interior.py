"""A linear program over an episode's windows in, its solution out: an interior-point method that knows the structure.

General solvers see a sparse matrix. Here the Newton system is taken apart along the program: routings of draws are
eliminated by compiled kernels (`fleetgym.bounds.eliminate`), and what is left couples windows near each other only, so
that it is a band. Predictor and corrector are those of Mehrotra (On the implementation of a primal-dual interior point
method, SIAM Journal on Optimization 1992).

The result need not be exact: bounds are certified from its prices, whatever these are.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse

from fleetgym.bounds.eliminate import Entries, Places, backward, empty_factors, factor, forward
from fleetgym.runtime.threads import one_thread

#: Columns that are fixed at 0 have this weight.
_FIXED = 1e20
#: Share of the way to the nearest limit that a step takes.
_STEP = 0.995


class Program(NamedTuple):
    """min cost · v with 0 ≤ v ≤ upper, A v = b in rows that are equations and A v ≤ b in others."""

    cost: np.ndarray  # (N,)
    upper: np.ndarray  # (N,) inf where there is no limit; columns with 0 stay there
    matrix: scipy.sparse.csr_matrix  # (M, N)
    side: np.ndarray  # (M,) b
    is_equation: np.ndarray  # (M,) bool


@dataclasses.dataclass(frozen=True, eq=False)
class Structure:
    """Where the program's parts are."""

    places: Places
    entries: Entries
    ready: np.ndarray  # (T, n) columns by which routings depend on fleets
    order: np.ndarray  # (W,) columns of fleets, window by window
    dense: np.ndarray  # rows over all windows


class Solution(NamedTuple):
    """A point, its prices, and how it was found."""

    value: np.ndarray  # (N,)
    dual: np.ndarray  # (M,) at least 0 where rows are no equations
    reduced: np.ndarray  # (N,) cost + A' dual
    cost: float
    iterations: int
    is_optimal: bool  # up to the tolerance


class _Newton:
    """Solves [Θ A'; A -E] [v; λ] = [f; g]."""

    def __init__(self, program: Program, structure: Structure):
        self.program, self.structure = program, structure
        places = structure.places
        count, (windows, n) = program.cost.size, structure.ready.shape
        self.factors = empty_factors(places)
        at = np.full(count, -1)
        at[structure.order] = np.arange(structure.order.size)
        local = np.concatenate([rows.ravel() for rows in (places.kept, places.capacity, places.whole)])
        local = np.concatenate([local, places.link.ravel(), places.lossy.ravel(), structure.dense])
        shared = np.ones(program.side.size, dtype=bool)
        shared[local[local >= 0]] = False
        self.shared = np.flatnonzero(shared)
        self.fleet_rows = program.matrix[self.shared][:, structure.order].tocsr()
        self.fleet_columns = self.fleet_rows.T.tocsr()
        self.dense = program.matrix[structure.dense][:, structure.order].toarray()
        self._pairs()
        self.ready_at = at[structure.ready]
        self.reduced = np.empty((windows, n, n))
        lower = np.tril_indices(n)
        first = np.maximum(self.ready_at[:, lower[0]], self.ready_at[:, lower[1]])
        second = np.minimum(self.ready_at[:, lower[0]], self.ready_at[:, lower[1]])
        self.lower, self.block = lower, (first - second) * structure.order.size + second
        self.band_rows = max(self.pair_rows, int((first - second).max()) + 1)

    def _pairs(self) -> None:
        """Find the places that products of entries of the same row have in the band."""
        rows = self.fleet_rows
        lengths = np.diff(rows.indptr)
        places, products, of = [], [], []
        for length in np.unique(lengths[lengths > 0]):
            which = np.flatnonzero(lengths == length)
            span = rows.indptr[which][:, None] + np.arange(length)
            column, value = rows.indices[span], rows.data[span]
            i, j = np.tril_indices(length)
            high, low = np.maximum(column[:, i], column[:, j]), np.minimum(column[:, i], column[:, j])
            places.append(((high - low) * rows.shape[1] + low).ravel())
            products.append((value[:, i] * value[:, j]).ravel())
            of.append(np.repeat(which, i.size))
        self.pair_at, self.pair_of = np.concatenate(places), np.concatenate(of)
        self.pair_product = np.concatenate(products)
        self.pair_rows = int(self.pair_at.max()) // rows.shape[1] + 1

    def factor(self, theta: np.ndarray, rows: np.ndarray) -> None:
        """Factor the system for these Θ and E."""
        with np.errstate(divide="ignore"):
            self.theta, self.rows = 1.0 / theta, 1.0 / rows  # those of equations do not matter
        structure, width = self.structure, self.structure.order.size
        self.reduced[:] = 0.0
        factor(structure.places, structure.entries, self.theta, self.rows, self.factors, self.reduced)
        weights = self.pair_product * self.rows[self.shared][self.pair_of]
        band = np.bincount(self.pair_at, weights, minlength=self.band_rows * width)
        band += np.bincount(
            self.block.ravel(),
            self.reduced[:, self.lower[0], self.lower[1]].ravel(),
            minlength=band.size,
        )
        band = band.reshape(self.band_rows, width)
        band[0] += theta[structure.order]
        self.band = scipy.linalg.cholesky_banded(band, overwrite_ab=True, lower=True, check_finite=False)
        if structure.dense.size:
            self.through = self._band(np.ascontiguousarray(self.dense.T))
            self.outer = np.diag(rows[structure.dense]) + self.dense @ self.through

    def _band(self, sides: np.ndarray) -> np.ndarray:
        found: np.ndarray = scipy.linalg.cho_solve_banded((self.band, True), sides, check_finite=False)
        return found

    def solve(self, f: np.ndarray, g: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return v and λ."""
        structure = self.structure
        value, dual = np.zeros(f.size), np.zeros(g.size)
        replicas = np.zeros(structure.ready.shape)
        parts = (structure.places, structure.entries, self.factors, self.theta, self.rows, f, g)
        forward(*parts, replicas)
        scaled = g[self.shared] * self.rows[self.shared]
        side = f[structure.order] + self.fleet_columns @ scaled
        np.add.at(side, self.ready_at.ravel(), replicas.ravel())
        fleet = self._band(side)
        if structure.dense.size:
            price = np.linalg.solve(self.outer, self.dense @ fleet - g[structure.dense])
            fleet -= self.through @ price
            dual[structure.dense] = price
        value[structure.order] = fleet
        dual[self.shared] = (self.fleet_rows @ fleet) * self.rows[self.shared] - scaled
        backward(*parts, value[structure.ready], value, dual)
        return value, dual


def solve(program: Program, structure: Structure, tolerance: float, most_iterations: int) -> Solution:
    """Solve a program up to a relative tolerance.

    Parameters
    ----------
    program : Program
    structure : Structure
    tolerance : float
        Of the gap between costs, relative; limits are kept as well as that, too.
    most_iterations : int
    """
    with one_thread():  # bands are narrow: more threads take more CPU time, and are no faster
        method, iteration = _Method(program, structure), 0
        while not (is_optimal := method.is_done(tolerance)) and iteration < most_iterations and method.step():
            iteration += 1
    return method.solution(iteration, is_optimal)


class _Point:
    """Columns and slacks, each beside what limits it; sums of products measure how far the point is from the best."""

    def __init__(self, parts: list[np.ndarray]):
        self.v, self.w, self.h, self.z, self.y, self.q = parts

    @property
    def parts(self) -> list[np.ndarray]:
        return [self.v, self.w, self.h, self.z, self.y, self.q]

    def moved(self, by: _Point, forth: float, back: float) -> _Point:
        """Return the point after a step of point and prices."""
        lengths = (forth, forth, forth, back, back, back)
        return _Point([a + k * d for a, d, k in zip(self.parts, by.parts, lengths, strict=True)])

    @property
    def products(self) -> list[np.ndarray]:
        return [self.v * self.z, self.w * self.y, self.h * self.q]


class _Method:
    """A point and how it moves. Fixed columns, absent limits and slacks of equations have products of 0."""

    def __init__(self, program: Program, structure: Structure):
        self.program, self.newton = program, _Newton(program, structure)
        self.transposed = program.matrix.T.tocsr()
        self.free = program.upper > 0.0
        self.bounded = self.free & np.isfinite(program.upper)
        self.unequal = ~program.is_equation
        self.fixed_weight = np.where(self.free, 0.0, _FIXED)
        self.upper = np.where(self.bounded, program.upper, 0.0)
        self.count = int(self.free.sum() + self.bounded.sum() + self.unequal.sum())
        self.point = self._start()

    def _start(self) -> _Point:
        """Return the start of Mehrotra: least squares, moved away from the limits."""
        program, free, bounded, unequal = self.program, self.free, self.bounded, self.unequal
        self.newton.factor(np.where(free, 1.0, _FIXED), unequal.astype(float))
        value, slack = self.newton.solve(np.zeros(program.cost.size), program.side)
        _, price = self.newton.solve(-program.cost, np.zeros(program.side.size))
        reduced = program.cost + self.transposed @ price
        v = np.where(bounded, np.minimum(np.maximum(value, 0.1), 0.5 * program.upper), np.maximum(value, 0.1))
        v = np.where(free, v, 0.0)
        usual = max(float(np.abs(reduced[free]).mean()), 1e-3)
        z = np.where(free, np.maximum(reduced, usual), 0.0)
        return _Point(
            [
                v,
                np.where(unequal, np.maximum(-slack, 0.1), 0.0),
                np.where(bounded, self.upper - v, 1.0),
                z,
                np.where(unequal, np.maximum(price, usual), price),
                np.where(bounded, np.maximum(z - reduced, usual), 0.0),
            ]
        )

    def is_done(self, tolerance: float) -> bool:
        """Return whether costs agree and limits are kept."""
        program, at = self.program, self.point
        self.reduced = program.cost + self.transposed @ at.y
        self.row_rest = program.side - program.matrix @ at.v - at.w
        self.column_rest = np.where(self.free, at.z - at.q - self.reduced, 0.0)
        self.upper_rest = np.where(self.bounded, self.upper - at.v - at.h, 0.0)
        self.cost = float(program.cost @ at.v)
        dual = -float(program.side @ at.y) - float(self.upper @ at.q)
        gap = abs(self.cost - dual) / max(1.0, abs(self.cost))
        rows = float(np.abs(self.row_rest).max()) / (1.0 + float(np.abs(program.side).max()))
        columns = float(np.abs(self.column_rest).max()) / (1.0 + float(np.abs(program.cost).max()))
        return max(gap, rows, columns) < tolerance

    def step(self) -> bool:
        """Move; return whether the system could be solved."""
        at = self.point
        self.v = np.where(self.free, at.v, 1.0)  # what to divide by
        self.y = np.where(self.unequal, at.y, 1.0)
        try:
            self.newton.factor(at.z / self.v + at.q / at.h + self.fixed_weight, at.w / self.y)
        except np.linalg.LinAlgError:
            return False
        products = at.products
        mean = _total(products) / self.count
        predicted = self._direction([-p for p in products])
        after = _total(at.moved(predicted, *self._lengths(predicted)).products) / self.count
        target = mean * (after / mean) ** 3
        wanted = zip((self.free, self.unequal, self.bounded), products, predicted.products, strict=True)
        by = self._direction([np.where(mask, target - p - d, 0.0) for mask, p, d in wanted])
        if not all(np.all(np.isfinite(part)) for part in by.parts):
            return False
        forth, back = self._lengths(by)
        self.point = at.moved(by, min(1.0, _STEP * forth), min(1.0, _STEP * back))
        return True

    def _direction(self, wanted: list[np.ndarray]) -> _Point:
        """Return the Newton step that changes products by what is wanted."""
        at = self.point
        pv, pw, ph = wanted
        f = self.column_rest + pv / self.v - np.where(self.bounded, ph - at.q * self.upper_rest, 0.0) / at.h
        v, y = self.newton.solve(f, self.row_rest - pw / self.y)
        v = np.where(self.free, v, 0.0)
        h = np.where(self.bounded, self.upper_rest - v, 0.0)
        w = np.where(self.unequal, (pw - at.w * y) / self.y, 0.0)
        return _Point([v, w, h, (pv - at.z * v) / self.v, y, (ph - at.q * h) / at.h])

    def _lengths(self, by: _Point) -> tuple[float, float]:
        """Return how far point and prices may go, at most 1."""
        at, price = self.point, np.where(self.unequal, by.y, 0.0)
        forth = min(_length(at.v, by.v), _length(at.w, by.w), _length(at.h, by.h))
        return forth, min(_length(at.z, by.z), _length(self.y, price), _length(at.q, by.q))

    def solution(self, iterations: int, is_optimal: bool) -> Solution:
        """Return where the method is."""
        return Solution(self.point.v, self.point.y, self.reduced, self.cost, iterations, is_optimal)


def _total(products: list[np.ndarray]) -> float:
    return sum(float(p.sum()) for p in products)


def _length(value: np.ndarray, change: np.ndarray) -> float:
    """Return how far a step may go until something is 0, at most 1."""
    most = float(np.max(-change / np.where(value > 0.0, value, 1.0), initial=1.0))
    return 1.0 / most
