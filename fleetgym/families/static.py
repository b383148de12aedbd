"""From the columns of a problem and one demand vector to the cheapest fleet that serves it (LP or MILP).

Used while instances are made, for nominal fleets, caps and penalties. It is the second stage of
`docs/model.md` at nominal lengths with the fleet as a variable, without the tails: the queue servers are
loaded to a stated share.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fleetgym.runtime.highs import make_solver

#: Queue servers are planned to this share of their number, so that few requests are late.
PLANNED_UTILIZATION = 0.85


@dataclasses.dataclass(frozen=True, kw_only=True)
class Columns:
    """One window's problem: I workloads, C configurations, G pools; per request or per replica."""

    compatible: np.ndarray  # (I, C) bool
    delay_s: np.ndarray  # (I, C)
    service_s: np.ndarray  # (I, C)
    work_tflop: np.ndarray  # (I, C)
    kv_gb_s: np.ndarray  # (I, C)
    error: np.ndarray  # (I, C)
    route_usd_per_s: np.ndarray  # (I, C) USD per second for routing the whole workload there
    mean_delay_slo_s: np.ndarray  # (I,)
    error_slo: np.ndarray  # (I,)
    compute_tflops: np.ndarray  # (C,)
    kv_capacity_gb: np.ndarray  # (C,)
    max_concurrency: np.ndarray  # (C,)
    max_replicas: np.ndarray  # (C,)
    gpu_use: np.ndarray  # (G, C)
    hold_usd_per_s: np.ndarray  # (C,)
    groups: tuple[tuple[int, ...], ...] = ()  # exclusive ones
    budget_usd_per_s: float = np.inf


@dataclasses.dataclass(frozen=True, kw_only=True)
class Allocation:
    """A solution: replicas, routing, and what the last request of each workload costs."""

    replicas: np.ndarray  # (C,) integers if asked for
    routing: np.ndarray  # (I, C)
    unserved: np.ndarray  # (I,)
    cost_usd_per_s: float
    marginal_usd: np.ndarray  # (I,) USD per request; zeros for a MILP


def allocate(
    columns: Columns,
    rate_rps: np.ndarray,
    unserved_usd: np.ndarray,
    cap_gpus: np.ndarray | None = None,
    *,
    integer: bool = False,
    gap: float = 0.01,
    node_limit: int = 2000,
) -> Allocation:
    """Return the cheapest fleet for a demand vector.

    Parameters
    ----------
    columns : Columns
        The problem.
    rate_rps : ndarray of float, shape (I,)
        Demand.
    unserved_usd : ndarray of float, shape (I,)
        USD per unserved request; an SLO excess of 100 % costs as much.
    cap_gpus : ndarray, shape (G,), optional
        GPUs per pool; unlimited by default.
    integer : bool
        Whole replicas.
    gap, node_limit : float, int
        Where branch and bound stops; never a clock, so that results repeat.

    Returns
    -------
    Allocation
        Unserved demand is always allowed, so there is a solution.
    """
    rows, low, high, cost, upper = _program(columns, rate_rps, unserved_usd, cap_gpus)
    served, count = columns.compatible.shape
    options = {"mip_rel_gap": gap, "mip_max_nodes": node_limit} if integer else {"solver": "simplex"}
    value, dual, objective = _solve(rows, low, high, cost, upper, count if integer else 0, options)
    pairs = int(columns.compatible.sum())
    routing = np.zeros(columns.compatible.shape)
    routing[columns.compatible] = np.clip(value[count : count + pairs], 0.0, 1.0)
    return Allocation(
        replicas=np.rint(value[:count]) if integer else value[:count],
        routing=routing,
        unserved=value[count + pairs : count + pairs + served],
        cost_usd_per_s=objective,
        marginal_usd=np.zeros(served) if integer else dual[:served] / np.where(rate_rps > 0, rate_rps, 1.0),
    )


def _solve(
    rows: Any,
    low: np.ndarray,
    high: np.ndarray,
    cost: np.ndarray,
    upper: np.ndarray,
    whole: int,
    options: dict[str, Any],
) -> tuple[np.ndarray, np.ndarray, float]:
    """Minimise with HiGHS, the first `whole` variables being integers; return values, row duals, objective."""
    import highspy  # heavy, and needed while instances are made only

    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(cost), len(low)
    model.col_cost_, model.col_lower_, model.col_upper_ = cost, np.zeros(len(cost)), upper
    model.row_lower_, model.row_upper_ = low, high
    model.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    model.a_matrix_.start_, model.a_matrix_.index_, model.a_matrix_.value_ = (
        rows.indptr,
        rows.indices,
        rows.data,
    )
    if whole:
        kinds = [highspy.HighsVarType.kInteger] * whole
        model.integrality_ = kinds + [highspy.HighsVarType.kContinuous] * (len(cost) - whole)
    solver = make_solver(**options)
    solver.passModel(model)
    solver.run()
    solution = solver.getSolution()
    if not solution.value_valid:
        status = solver.modelStatusToString(solver.getModelStatus())
        raise RuntimeError(f"no allocation found: {status}")
    return (
        np.array(solution.col_value),
        np.array(solution.row_dual),
        solver.getInfo().objective_function_value,
    )


def _program(columns: Columns, rate: np.ndarray, unserved_usd: np.ndarray, cap_gpus: np.ndarray | None):
    """Return (matrix, low, high, cost, upper bounds) over y, x of compatible pairs, u, s, s'."""
    from scipy import sparse

    workload, configuration = np.nonzero(columns.compatible)
    served, count = columns.compatible.shape
    pairs = len(workload)
    size = count + pairs + 3 * served
    x, u = count + np.arange(pairs), count + pairs
    i, c = workload, configuration
    blocks, low, high = [], [], []

    def rows(number, entries, lower, upper):
        data = np.concatenate([np.broadcast_to(v, np.shape(k)) for _, k, v in entries])
        row = np.concatenate([np.broadcast_to(r, np.shape(k)) for r, k, _ in entries])
        column = np.concatenate([np.asarray(k) for _, k, _ in entries])
        blocks.append(sparse.csr_matrix((data, (row, column)), shape=(number, size)))
        low.append(np.broadcast_to(lower, number))
        high.append(np.broadcast_to(upper, number))

    every, all_c = np.arange(served), np.arange(count)
    rows(served, [(i, x, 1.0), (every, u + every, 1.0)], 1.0, 1.0)
    limits = (
        (columns.work_tflop, columns.compute_tflops),
        (columns.kv_gb_s, columns.kv_capacity_gb),
        (columns.service_s, PLANNED_UTILIZATION * columns.max_concurrency),
    )
    for need, give in limits:
        scale = 1.0 / np.maximum(give, 1e-12)  # rows in replicas: coefficients near one
        rows(count, [(c, x, rate[i] * need[i, c] * scale[c]), (all_c, all_c, -1.0)], -np.inf, 0.0)
    for value, bound, first in (
        (columns.delay_s, columns.mean_delay_slo_s, u + served),
        (columns.error, columns.error_slo, u + 2 * served),
    ):
        excess = (value[i, c] - bound[i]) / bound[i]
        rows(served, [(i, x, excess), (every, first + every, -1.0)], -np.inf, 0.0)
    if cap_gpus is not None:
        g, k = np.nonzero(columns.gpu_use)
        rows(len(cap_gpus), [(g, k, columns.gpu_use[g, k].astype(float))], -np.inf, cap_gpus)
    if columns.groups:
        row = np.concatenate([np.full(len(m), r) for r, m in enumerate(columns.groups)])
        members = np.concatenate([list(m) for m in columns.groups])
        rows(len(columns.groups), [(row, members, 1.0)], -np.inf, 1.0)
    if np.isfinite(columns.budget_usd_per_s):
        scale = 1.0 / columns.budget_usd_per_s
        rows(1, [(np.zeros(count, int), all_c, columns.hold_usd_per_s * scale)], -np.inf, 1.0)
    penalty = rate * unserved_usd
    cost = np.concatenate([columns.hold_usd_per_s, columns.route_usd_per_s[i, c], penalty, penalty, penalty])
    upper = np.concatenate([columns.max_replicas, np.ones(pairs + served), np.full(2 * served, np.inf)])
    return sparse.vstack(blocks).tocsr(), np.concatenate(low), np.concatenate(high), cost, upper


def largest_load(columns: Columns, rate_rps: np.ndarray, cap_gpus: np.ndarray, steps: int = 24) -> float:
    """Return the largest multiple of a demand vector that the capped pools can serve, within 1 %.

    Parameters
    ----------
    columns : Columns
        The problem.
    rate_rps : ndarray of float, shape (I,)
        Demand.
    cap_gpus : ndarray, shape (G,)
        GPUs per pool.
    steps : int
        Bisection steps.

    Returns
    -------
    float
        The multiple; SLOs count as requirements.
    """
    most = _largest_multiple(columns, rate_rps, cap_gpus)
    low, high = 0.0, 64.0
    for _ in range(steps):
        middle = 0.5 * (low + high)
        if middle <= most:
            low = middle
        else:
            high = middle
        if high - low < 0.01 * low:
            break
    return low


def _largest_multiple(columns: Columns, rate_rps: np.ndarray, cap_gpus: np.ndarray) -> float:
    """Return the largest multiple exactly: a linear program whose routes are multiples of the demand."""
    from scipy import sparse

    served, count = columns.compatible.shape
    rows, low, high, cost, upper = _program(columns, rate_rps, np.ones(served), cap_gpus)
    upper[count : -3 * served] = np.inf
    upper[-3 * served :] = 0.0  # everything is served within its SLOs
    multiple = np.zeros((rows.shape[0], 1))
    multiple[:served] = -1.0
    low[:served] = high[:served] = 0.0
    rows = sparse.hstack([rows, sparse.csr_matrix(multiple)]).tocsr()
    cost, upper = np.append(np.zeros(len(cost)), -1.0), np.append(upper, 64.0)
    _, _, objective = _solve(rows, low, high, cost, upper, 0, {"solver": "simplex"})
    return -objective


def restrict(problem: Columns, keep: np.ndarray) -> Columns:
    """Return the problem with the columns `keep` only."""
    index = {int(c): k for k, c in enumerate(keep)}
    changes: dict[str, Any] = {
        f.name: getattr(problem, f.name)[..., keep]
        for f in dataclasses.fields(problem)
        if isinstance(getattr(problem, f.name), np.ndarray)
        and f.name not in ("mean_delay_slo_s", "error_slo")
    }
    groups = [tuple(index[c] for c in members if c in index) for members in problem.groups]
    return dataclasses.replace(problem, groups=tuple(g for g in groups if g), **changes)
