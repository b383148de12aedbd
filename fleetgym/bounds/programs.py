"""Build the linear program of one window, and the rows of its routing for larger programs."""

from __future__ import annotations

import numpy as np

from fleetgym.bounds.relaxation import HARD, WindowRelaxation
from fleetgym.runtime.linear_programs import LinearProgram


def routing_rows(
    program: LinearProgram,
    window: WindowRelaxation,
    x: np.ndarray,
    unserved: np.ndarray,
    delay: np.ndarray,
    error: np.ndarray,
    late: np.ndarray | None,
    replicas: np.ndarray,
    among: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Add the rows of a window's routing and return their numbers; -1 for a row that is left out, as others imply it.

    Parameters
    ----------
    program : LinearProgram
    window : WindowRelaxation
    x, unserved, delay, error, late, replicas : ndarray of int
        Columns of the open routes, row by row; of u, s and s'; of late costs; and of the replicas.
        Without columns for late costs, their rows are left out.
    among : ndarray of int, shape (n,), optional
        The configurations that `late` and `replicas` stand for; by default all.
    """
    among = np.arange(window.hold_usd.size) if among is None else among
    workload, route = np.nonzero(window.is_open[:, among])
    at = workload, among[route]
    every, each = np.arange(unserved.size), np.arange(among.size)
    served = program.rows(unserved.size, [(workload, x, 1.0), (every, unserved, 1.0)], 1.0, 1.0)
    numbers = {"served": served}
    slos = {
        "delay": (window.may_be_late, window.delay_excess, delay),
        "error": (window.may_be_wrong, window.error_excess, error),
    }
    for name, (may_miss, excess, slack) in slos.items():
        entries = [(workload, x, excess[at]), (every, slack, -1.0)]
        numbers[name] = program.rows(unserved.size, entries, high=0.0, only=may_miss)
    limits = window.is_limiting[: HARD if late is None else None, among]
    numbers["capacity"] = np.empty((len(limits), among.size), dtype=np.int64)
    for k, limiting in enumerate(limits):
        entries = [(route, x, window.need[k][at]), (each, replicas, -1.0)]
        if late is not None and k >= HARD:
            entries.append((each, late, -1.0))
        numbers["capacity"][k] = program.rows(among.size, entries, high=0.0, only=limiting)
    tight = np.flatnonzero(window.is_tight[at])
    row = np.arange(tight.size)
    entries = [(row, x[tight], 1.0), (row, replicas[route[tight]], -1.0)]
    numbers["whole"] = program.rows(tight.size, entries, high=0.0)
    return numbers


def window_program(
    window: WindowRelaxation,
    gpu_use: np.ndarray,
    price_usd: np.ndarray,
    penalty_usd: np.ndarray | None = None,
    *,
    whole: bool = False,
    may_hold: bool = True,
) -> tuple[LinearProgram, np.ndarray]:
    """Return the program of one window alone, and the columns of its replicas, (C,).

    Parameters
    ----------
    window : WindowRelaxation
    gpu_use : ndarray, shape (G, C)
    price_usd : ndarray, shape (C,)
        Cost of a serving replica.
    penalty_usd : ndarray, shape (m,), optional
        Cost of not serving a workload; by default the window's.
    whole : bool
        Whether replicas are integers.
    may_hold : bool
        Whether replicas that cost something to hold may serve.
    """
    program = LinearProgram()
    workload, route = np.nonzero(window.is_open)
    penalty_usd = window.unserved_usd if penalty_usd is None else penalty_usd
    most = window.most if may_hold else np.where(window.hold_usd > 0.0, 0.0, window.most)
    x, unserved = (program.columns(usd, 1.0) for usd in (window.route_usd[workload, route], penalty_usd))
    delay, error, late = (program.columns(usd, np.inf) for usd in (penalty_usd, penalty_usd, window.late_usd))
    replicas = program.columns(price_usd, most, whole=whole)
    routing_rows(program, window, x, unserved, delay, error, late, replicas)
    pool, column = np.nonzero(gpu_use)
    program.rows(len(gpu_use), [(pool, replicas[column], gpu_use[pool, column])], high=window.available_gpus)
    return program, replicas
