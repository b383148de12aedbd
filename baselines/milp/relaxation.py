"""Convert a problem in which every column is open or closed to the kernels' `Relaxation`."""

from __future__ import annotations

import numpy as np

from .lagrangian_kernels import Relaxation
from .problem import SERVERS, PlacementProblem


def is_binary(problem: PlacementProblem) -> bool:
    """Check that the problem only opens columns: one replica each, no late segments, no paper's z."""
    options = problem.options
    one = (options.low == 1) & (options.high == 1)
    return bool(
        one.all() and not options.width.any() and problem.modes.storage == "deployed" and options.column.size
    )


def binding_limits(problem: PlacementProblem) -> list[tuple[str, int, np.ndarray, float]]:
    """Return the shared limits that may bind: name and number of the row, what each column holds, the limit."""
    limits = [
        *(("pools", g, *pair) for g, pair in enumerate(zip(problem.gpus, problem.available, strict=True))),
        ("budget", 0, problem.hold_usd, problem.budget_usd),
        ("storage", 0, problem.model_usd, problem.storage_usd),
    ]
    return [limit for limit in limits if np.isfinite(limit[3]) and limit[2].sum() > limit[3]]


def relax(problem: PlacementProblem, unit_usd: float) -> Relaxation:
    """Return the relaxation of a problem whose columns are sorted by group, money in units of `unit_usd`.

    Where several capacities may bind in a column, the scarcest is kept: the bound stays valid.
    """
    workloads = problem.workloads.size
    options = problem.options
    load = np.where(problem.open, problem.load, 0.0)
    load[SERVERS] /= np.where(options.servers > 0, options.servers, 1.0)
    scarcest = (load * problem.limit).sum(axis=1).argmax(axis=0)
    load = np.take_along_axis(load, scarcest[None, None, :], axis=0)[0]
    slo = problem.modes.slo
    offset = 1.0 if slo in ("elastic", "served-mean") else 0.0
    right_error = 0.0 if offset else 1.0
    right_delay = 0.0 if slo == "per-route" else right_error
    dearest = np.full(workloads, np.inf)
    if slo == "elastic":
        dearest = problem.unserved_usd / unit_usd
    binding = binding_limits(problem)
    held = np.zeros((len(binding), problem.columns.size))
    for k, (_, _, use, limit) in enumerate(binding):
        held[k] = use / max(limit, 1e-300)
    return Relaxation(
        usd=np.ascontiguousarray(problem.usd.T) / unit_usd,
        delay=np.ascontiguousarray((problem.delay - offset).T) * (slo != "per-route"),
        error=np.ascontiguousarray((problem.error - offset).T),
        load=np.ascontiguousarray(load.T),
        most=np.ascontiguousarray((np.minimum(problem.limit, problem.most) * problem.open).T),
        hold_usd=(options.fixed_usd + options.replica_usd) / unit_usd,
        held=np.ascontiguousarray(held.T),
        first=np.flatnonzero(np.r_[True, np.diff(problem.group) != 0, True]),
        right=np.concatenate([np.repeat([1.0, right_delay, right_error], workloads), np.ones(len(binding))]),
        highest=np.concatenate(
            [
                problem.unserved_usd / unit_usd,
                np.zeros(workloads) if slo == "per-route" else dearest,
                dearest,
                np.full(len(binding), np.inf),
            ]
        ),
    )
