"""Assign one window's requests to a fleet's replicas so that all are done as soon as possible: a linear program."""

from __future__ import annotations

import numpy as np

from fleetgym.runtime.highs import make_solver


def best_assignment(
    requests: np.ndarray, busy_s: np.ndarray, replicas: np.ndarray
) -> tuple[float, np.ndarray]:
    """Return the least makespan of a fleet and the assignment that achieves it: a linear program.

    Jiang et al., ICML 2025, (2) and (3) with the counts y fixed: min T such that every workload is assigned and
    sum_w x_cw f_w / h_cw <= y_c T.

    Parameters
    ----------
    requests : (I,) ndarray
        Requests of each workload, f.
    busy_s : (I, C) ndarray
        Seconds of one replica per request, 1/h (`Snapshot.busy_seconds`); inf where it cannot serve the workload.
    replicas : (C,) ndarray of int
        The fleet, y.

    Returns
    -------
    makespan_s : float
        Seconds; inf if some requests cannot be served at all.
    assignment : (I, C) ndarray
        Share of each workload on each configuration; rows of zeros where there are no requests, or no server.

    Examples
    --------
    >>> t, x = best_assignment(np.array([80.0, 20.0]), 1 / np.array([[1.0, 2.4], [1.2, 1.5]]), np.array([1, 1]))
    >>> round(t, 6), x.round(4).tolist()
    (28.431373, [[0.1471, 0.8529], [1.0, 0.0]])
    """
    assignment = np.zeros(busy_s.shape)
    here = np.flatnonzero(replicas > 0)
    able = np.isfinite(busy_s[:, here]).any(axis=1)
    present = np.flatnonzero((requests > 0) & able)
    if present.size:
        load_s = requests[present, None] * busy_s[np.ix_(present, here)]
        makespan_s, shares = _least_makespan(load_s, replicas[here].astype(float))
        assignment[np.ix_(present, here)] = shares
    else:
        makespan_s = 0.0
    return (makespan_s if able[requests > 0].all() else np.inf), assignment


def _least_makespan(load_s: np.ndarray, replicas: np.ndarray) -> tuple[float, np.ndarray]:
    """Return makespan and shares where workload w alone would take ``load_s[w, c]`` on one replica of c.

    HiGHS proposes the shares; they are made to add up to one, and the makespan is computed from them.
    """
    workloads, count = load_s.shape
    row, column = np.nonzero(np.isfinite(load_s))
    alone_s = load_s[row, column] / replicas[column]
    best = [int(np.flatnonzero(row == w)[alone_s[row == w].argmin()]) for w in range(workloads)]
    shares = np.zeros(load_s.shape)
    shares[row[best], column[best]] = 1.0
    unit_s = np.bincount(column[best], weights=alone_s[best], minlength=count).max()
    if unit_s > 0.0:
        relative = alone_s / unit_s
        shares[row, column] = _balance(row, column, relative, workloads, count)
        shares /= shares.sum(axis=1, keepdims=True)
    load = np.zeros(count)
    np.add.at(load, column, shares[row, column] * alone_s)
    return float(load.max()), shares


def _balance(
    row: np.ndarray, column: np.ndarray, relative: np.ndarray, workloads: int, count: int
) -> np.ndarray:
    """Return the shares (pairs,) that minimise the largest sum of share times `relative` over a column's pairs."""
    import highspy  # heavy, and one of the solvers that a process may hold
    from scipy import sparse

    pairs = row.size
    scale = np.maximum(1.0, relative)  # an optimal share is at most 1 / relative
    value = np.concatenate([1.0 / scale, relative / scale, np.full(count, -1.0)])
    index = (
        np.concatenate([row, workloads + column, workloads + np.arange(count)]),
        np.concatenate([np.arange(pairs), np.arange(pairs), np.full(count, pairs)]),
    )
    matrix = sparse.csr_matrix((value, index), shape=(workloads + count, pairs + 1))
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = pairs + 1, workloads + count
    model.col_cost_ = np.append(np.zeros(pairs), 1.0)
    model.col_lower_, model.col_upper_ = np.zeros(pairs + 1), np.full(pairs + 1, np.inf)
    model.row_lower_ = np.append(np.ones(workloads), np.full(count, -np.inf))
    model.row_upper_ = np.append(np.ones(workloads), np.zeros(count))
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_ = matrix.indptr, matrix.indices
    model.a_matrix_.value_ = matrix.data
    solver = make_solver(presolve="off", primal_feasibility_tolerance=1e-10, dual_feasibility_tolerance=1e-10)
    solver.passModel(model)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        raise RuntimeError(f"the assignment was not solved: {solver.getModelStatus()}")
    return np.maximum(0.0, np.array(solver.getSolution().col_value)[:pairs] / scale)
