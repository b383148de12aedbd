"""Rows and columns in, a linear program for the solver out; the rows of a window's routing."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetgym.bounds.relaxation import HARD, Window


class Rows:
    """Rows of a linear program as they are collected."""

    def __init__(self) -> None:
        self.count = 0
        self.lower: list[np.ndarray] = []
        self.upper: list[np.ndarray] = []
        self.entries: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def begin(self, count: int, lower: float | np.ndarray, upper: float | np.ndarray) -> int:
        """Open `count` rows and return the first one's number."""
        first = self.count
        self.count += count
        self.lower.append(np.broadcast_to(np.asarray(lower, dtype=float), (count,)))
        self.upper.append(np.broadcast_to(np.asarray(upper, dtype=float), (count,)))
        return first

    def begin_some(self, chosen: np.ndarray, lower: float, upper: float) -> np.ndarray:
        """Open a row for each that is chosen and return their numbers, -1 for the others; same shape."""
        first = self.begin(int(chosen.sum()), lower, upper)
        return np.where(chosen, first + np.cumsum(chosen) - 1, -1)

    def put(self, rows: np.ndarray, columns: np.ndarray, values: np.ndarray) -> None:
        """Set entries; no place twice."""
        self.entries.append((rows, columns, values))

    def add(self, matrix: np.ndarray, columns: np.ndarray, lower: float, upper: float) -> None:
        """Add the rows of a small dense matrix over some columns."""
        first = self.begin(len(matrix), lower, upper)
        row, column = np.nonzero(matrix)
        self.put(first + row, columns[column], matrix[row, column])


def routing_rows(
    rows: Rows,
    window: Window,
    x: np.ndarray,
    unserved: np.ndarray,
    delay: np.ndarray,
    error: np.ndarray,
    late: np.ndarray | None,
    replicas: np.ndarray,
    among: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Add the rows of a window's routing and return their numbers; -1 for a row that others imply, which is left out.

    Parameters
    ----------
    rows : Rows
    window : Window
    x, unserved, delay, error, late, replicas : ndarray of int
        Columns of the open routes, row by row; of u, s and s'; of late costs; and of the replicas.
        Without columns for late costs, their rows are left out.
    among : ndarray of int, shape (n,), optional
        The configurations that `late` and `replicas` stand for; by default all.
    """
    among = np.arange(window.hold_usd.size) if among is None else among
    workload, route = np.nonzero(window.is_open[:, among])
    at = workload, among[route]
    every, ones = np.arange(unserved.size), np.ones(unserved.size)
    numbers = {}
    serve = rows.begin(unserved.size, 1.0, 1.0)
    rows.put(serve + workload, x, np.ones(x.size))
    rows.put(serve + every, unserved, ones)
    numbers["served"] = serve + every
    slos = {
        "delay": (window.may_be_late, window.delay_excess, delay),
        "error": (window.may_be_wrong, window.error_excess, error),
    }
    for name, (may_miss, excess, slack) in slos.items():
        numbers[name] = rows.begin_some(may_miss, -np.inf, 0.0)
        some = may_miss[workload]
        rows.put(numbers[name][workload[some]], x[some], excess[at][some])
        rows.put(numbers[name][may_miss], slack[may_miss], -ones[may_miss])
    limits = window.is_limiting[: HARD if late is None else None, among]
    numbers["capacity"] = np.empty((len(limits), among.size), dtype=np.int64)
    for k, limiting in enumerate(limits):
        numbers["capacity"][k] = rows.begin_some(limiting, -np.inf, 0.0)
        some = limiting[route]
        rows.put(numbers["capacity"][k, route[some]], x[some], window.need[k][at][some])
        rows.put(numbers["capacity"][k, limiting], replicas[limiting], -np.ones(replicas[limiting].size))
        if late is not None and k >= HARD:
            rows.put(numbers["capacity"][k, limiting], late[limiting], -np.ones(late[limiting].size))
    tight = np.flatnonzero(window.is_tight[at])
    first = rows.begin(tight.size, -np.inf, 0.0)
    rows.put(first + np.arange(tight.size), x[tight], np.ones(tight.size))
    rows.put(first + np.arange(tight.size), replicas[route[tight]], -np.ones(tight.size))
    numbers["whole"] = first + np.arange(tight.size)
    return numbers


def linear_program(cost: np.ndarray, upper: np.ndarray, rows: Rows, integers: np.ndarray) -> Any:
    """Return a `highspy.HighsLp` over columns from 0 to `upper`."""
    import highspy

    row, column, value = (np.concatenate(part) for part in zip(*rows.entries, strict=True))
    keep = value != 0.0
    row, column, value = row[keep], column[keep], value[keep]
    order = np.lexsort((row, column))
    program = highspy.HighsLp()
    program.num_col_, program.num_row_ = cost.size, rows.count
    program.col_cost_, program.col_lower_, program.col_upper_ = cost, np.zeros(cost.size), upper
    program.row_lower_, program.row_upper_ = np.concatenate(rows.lower), np.concatenate(rows.upper)
    matrix = program.a_matrix_
    matrix.format_ = highspy.MatrixFormat.kColwise
    matrix.start_ = np.searchsorted(column[order], np.arange(cost.size + 1)).astype(np.int32)
    matrix.index_, matrix.value_ = row[order].astype(np.int32), value[order]
    if integers.size:
        kinds = [highspy.HighsVarType.kContinuous] * cost.size
        for column_ in integers:
            kinds[column_] = highspy.HighsVarType.kInteger
        program.integrality_ = kinds
    return program
