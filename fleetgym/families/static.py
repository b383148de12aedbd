"""Find the cheapest fleet that serves one demand vector, as an LP or a MILP.

Used while instances are made, for nominal fleets, caps and penalties. It is the second stage of
`docs/model.md` at nominal lengths with the fleet as a variable, without the tails: the queue servers are
loaded to a stated share.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fleetgym.runtime.highs import make_solver
from fleetgym.runtime.linear_programs import LinearProgram

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
    program = _program(columns, rate_rps, unserved_usd, cap_gpus, whole=integer)
    served, count = columns.compatible.shape
    options = {"mip_rel_gap": gap, "mip_max_nodes": node_limit} if integer else {"solver": "simplex"}
    value, dual, objective = _solve(program, options)
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


def _solve(program: LinearProgram, options: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, float]:
    """Solve a program with HiGHS; return values, row duals, objective."""
    solver = make_solver(**options)
    solver.passModel(program.model())
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


def _program(
    columns: Columns,
    rate: np.ndarray,
    unserved_usd: np.ndarray,
    cap_gpus: np.ndarray | None,
    *,
    whole: bool = False,
    most_multiple: float | None = None,
) -> LinearProgram:
    """Return the program over y, x of compatible pairs, u, s, s'.

    With `most_multiple` it maximises the multiple of the demand that is served within its SLOs, up to that.
    """
    program = LinearProgram()
    i, c = np.nonzero(columns.compatible)
    served, count = columns.compatible.shape
    every, all_c = np.arange(served), np.arange(count)
    is_multiple, penalty = most_multiple is not None, rate * unserved_usd
    factor = 0.0 if is_multiple else 1.0  # of all costs but that of the multiple
    y = program.columns(factor * columns.hold_usd_per_s, columns.max_replicas, whole=whole)
    x = program.columns(factor * columns.route_usd_per_s[i, c], np.inf if is_multiple else 1.0)
    u = program.columns(factor * penalty, factor)
    late, wrong = (program.columns(factor * penalty, 0.0 if is_multiple else np.inf) for _ in range(2))
    entries, demand = [(i, x, 1.0), (every, u, 1.0)], 1.0
    if is_multiple:
        multiple = program.columns(np.array([-1.0]), most_multiple)
        entries, demand = [*entries, (every, multiple, -1.0)], 0.0
    program.rows(served, entries, demand, demand)
    limits = (
        (columns.work_tflop, columns.compute_tflops),
        (columns.kv_gb_s, columns.kv_capacity_gb),
        (columns.service_s, PLANNED_UTILIZATION * columns.max_concurrency),
    )
    for need, give in limits:
        scale = 1.0 / np.maximum(give, 1e-12)  # rows in replicas: coefficients near one
        program.rows(count, [(c, x, rate[i] * need[i, c] * scale[c]), (all_c, y, -1.0)], high=0.0)
    for value, bound, excess in (
        (columns.delay_s, columns.mean_delay_slo_s, late),
        (columns.error, columns.error_slo, wrong),
    ):
        over = (value[i, c] - bound[i]) / bound[i]
        program.rows(served, [(i, x, over), (every, excess, -1.0)], high=0.0)
    if cap_gpus is not None:
        g, k = np.nonzero(columns.gpu_use)
        program.rows(len(cap_gpus), [(g, y[k], columns.gpu_use[g, k])], high=cap_gpus)
    for members in columns.groups:
        program.rows(1, [(0, y[list(members)], 1.0)], high=1.0)
    if np.isfinite(columns.budget_usd_per_s):
        program.rows(1, [(0, y, columns.hold_usd_per_s * (1.0 / columns.budget_usd_per_s))], high=1.0)
    return program


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
    """Return the largest multiple exactly, by a linear program whose routes are multiples of the demand."""
    unserved = np.ones(rate_rps.size)
    program = _program(columns, rate_rps, unserved, cap_gpus, most_multiple=64.0)
    return -_solve(program, {"solver": "simplex"})[2]


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
