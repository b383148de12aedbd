"""Assign one window's requests to a fleet's replicas so that all are done as soon as possible: a linear program."""

from __future__ import annotations

import numpy as np

from fleetgym.planning import LinearProgram, make_solver


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
    scale = np.maximum(1.0, relative)  # an optimal share is at most 1 / relative
    program = LinearProgram()
    share = program.columns(np.zeros(row.size), np.inf)
    longest = program.columns(np.ones(1), np.inf)
    program.rows(workloads, [(row, share, 1.0 / scale)], 1.0, 1.0)
    program.rows(count, [(column, share, relative / scale), (np.arange(count), longest, -1.0)], high=0.0)
    solver = make_solver(presolve="off", primal_feasibility_tolerance=1e-10, dual_feasibility_tolerance=1e-10)
    solver.passModel(program.model())
    solver.run()
    status = solver.modelStatusToString(solver.getModelStatus())
    if status != "Optimal":
        raise RuntimeError(f"the assignment was not solved: {status}")
    return np.maximum(0.0, np.array(solver.getSolution().col_value)[share] / scale)
