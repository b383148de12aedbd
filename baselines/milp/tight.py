"""Build the tight mixed-integer program: one share per pair, bounded by what its column can take.

Against the paper's formulation (see `fleetgym.baselines.milp.mccormick`): x is gone, being the sum of its v; a
share's bound is what capacity and SLOs leave of 1, times the column's binary; memory is a row per column, linear in v.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym.planning import LinearProgram

from .covers import find_covers
from .problem import COMPUTE, MEMORY, SERVERS, PlacementProblem


@dataclasses.dataclass(frozen=True, eq=False)
class Tight:
    """The program and where its variables are."""

    program: LinearProgram
    workload: np.ndarray  # (P,) of each share
    column: np.ndarray  # (P,)
    share: np.ndarray  # (P,) index of v
    lost: list[np.ndarray]  # (I,) each: unserved share; with elastic SLOs the excess of delay and of error
    option: np.ndarray  # (O,) binaries
    count: np.ndarray  # (O,) replicas; the binary itself where its option has one replica, -1 elsewhere
    replicas_of: np.ndarray  # (O,) replicas per unit of `count`
    rows: dict[str, np.ndarray]  # of demand, delay, error, pools, budget, storage, as far as there are any

    def replicas(self, problem: PlacementProblem, values: np.ndarray) -> np.ndarray:
        """Return whole replicas per column, (C,)."""
        each = np.rint(values[self.count]) * self.replicas_of
        return np.bincount(problem.options.column, each, problem.columns.size).astype(np.int64)


def tight_program(
    problem: PlacementProblem, unit_usd: float, *, most_lost: np.ndarray | None = None
) -> Tight:
    """Return the program of a problem, money in units of `unit_usd`.

    Parameters
    ----------
    problem : PlacementProblem
        Any.
    unit_usd : float
        What counts as one in the objective.
    most_lost : ndarray, shape (I,), optional
        Add cuts, which hold for all solutions that lose at most these shares (see `fleetgym.baselines.milp.covers`).
    """
    program, options = LinearProgram(), problem.options
    i, c = np.nonzero(problem.open)
    free = options.counted
    fixed_usd = options.fixed_usd + np.where(free, 0.0, options.high * options.replica_usd)
    binary = program.columns(fixed_usd / unit_usd, 1.0, whole=True)
    extra = program.columns(options.replica_usd[free] / unit_usd, options.high[free], whole=True)
    count = binary.copy()
    count[free] = extra
    replicas_of = np.where(free, 1, options.high)
    most = np.minimum(problem.limit[i, c], problem.most[i, c] * problem.max_replicas[c])
    v = program.columns(problem.usd[i, c] / unit_usd, most, droppable=True)
    u = program.columns(problem.unserved_usd / unit_usd, 1.0 if most_lost is None else most_lost)
    tight = Tight(program, i, c, v, [u], binary, count, replicas_of, {})
    _fleet_rows(problem, tight)
    _demand_rows(problem, tight, unit_usd, most_lost)
    _capacity_rows(problem, tight, unit_usd)
    _money_rows(problem, tight, unit_usd)
    return tight


def _fleet_rows(problem: PlacementProblem, t: Tight) -> None:
    """One option of each slot, counts within their option, GPUs of each pool."""
    options = problem.options
    slot = np.unique(problem.group[options.column], return_inverse=True)[1]
    t.program.rows(int(slot.max(initial=-1)) + 1, [(slot, t.option, 1.0)], high=1.0)
    free = np.flatnonzero(options.counted)
    k = np.arange(free.size)
    t.program.rows(free.size, [(k, t.count[free], 1.0), (k, t.option[free], -options.high[free])], high=0.0)
    t.program.rows(free.size, [(k, t.count[free], -1.0), (k, t.option[free], options.low[free])], high=0.0)
    use = problem.gpus[:, options.column] * t.replicas_of
    pool, o = np.nonzero(use)
    t.rows["pools"] = t.program.rows(
        problem.available.size, [(pool, t.count[o], use[pool, o])], high=problem.available
    )


def _demand_rows(problem: PlacementProblem, t: Tight, unit_usd: float, most_lost: np.ndarray | None) -> None:
    """(5b), the SLOs as the mode wants them, and covers."""
    workloads = np.arange(problem.workloads.size)
    unserved = t.lost[0]
    whole = [(t.workload, t.share, 1.0), (workloads, unserved, 1.0)]
    t.rows["demand"] = t.program.rows(workloads.size, whole, 1.0, 1.0)
    for name, value in (("delay", problem.delay), ("error", problem.error)):
        ratio = value[t.workload, t.column]
        entries, high = [(t.workload, t.share, ratio - 1.0)], 0.0
        if problem.modes.slo == "elastic":
            excess = t.program.columns(
                problem.unserved_usd / unit_usd, 1.0 if most_lost is None else most_lost
            )
            entries.append((workloads, excess, -1.0))
            t.lost.append(excess)
        elif problem.modes.slo != "served-mean":
            entries, high = [(t.workload, t.share, ratio)], 1.0
        if name == "error" or problem.modes.slo != "per-route":
            t.rows[name] = t.program.rows(workloads.size, entries, high=high)
    if most_lost is not None:
        _cover_rows(problem, t, most_lost)


def _cover_rows(problem: PlacementProblem, t: Tight, most_lost: np.ndarray) -> None:
    """One column of each cover is open, unless its workload loses."""
    covers = find_covers(problem, most_lost)
    hard = np.isinf(covers.loss)
    loss = np.where(hard, 1.0, covers.loss)
    k, option = np.nonzero(covers.sets[:, problem.options.column])
    soft = np.flatnonzero(~hard)
    lost = [(soft, variables[covers.workload[soft]], 1.0) for variables in t.lost]
    t.rows["covers"] = t.program.rows(loss.size, [(k, t.option[option], loss[k]), *lost], low=loss)


def _capacity_rows(problem: PlacementProblem, t: Tight, unit_usd: float) -> None:
    """(5f), (5g), the queue servers, and each share within what its column can take."""
    options, columns = problem.options, problem.columns.size
    for kind in (COMPUTE, MEMORY):
        load = problem.load[kind][t.workload, t.column]
        t.program.rows(
            columns, [(t.column, t.share, load), (options.column, t.count, -1.0 * t.replicas_of)], high=0.0
        )
    servers = options.servers * t.replicas_of
    entries = [
        (t.column, t.share, problem.load[SERVERS][t.workload, t.column]),
        (options.column, t.count, -servers),
    ]
    late, segment = np.nonzero(options.width)
    if late.size:
        busy = t.program.columns(options.slope_usd[late, segment] / unit_usd, options.width[late, segment])
        k = np.arange(late.size)
        t.program.rows(
            late.size, [(k, busy, 1.0), (k, t.option[late], -options.width[late, segment])], high=0.0
        )
        entries.append((options.column[late], busy, -1.0))
    t.program.rows(columns, entries, high=0.0)
    _share_rows(problem, t)


def _share_rows(problem: PlacementProblem, t: Tight) -> None:
    """Each share is at most what the column's option can take of the workload alone."""
    options, at = problem.options, (t.workload, t.column)
    by_column = np.argsort(options.column, kind="stable")
    first = np.searchsorted(options.column[by_column], np.arange(problem.columns.size + 1))
    number = np.diff(first)[t.column]
    row = np.repeat(np.arange(t.share.size), number)
    offset = np.arange(row.size) - np.repeat(np.cumsum(number) - number, number)
    option = by_column[first[t.column[row]] + offset]
    most = np.minimum(problem.limit[at][row], problem.most[at][row] * options.high[option])
    entries = [(np.arange(t.share.size), t.share, 1.0), (row, t.option[option], -most)]
    t.program.rows(t.share.size, entries, high=0.0)


def _money_rows(problem: PlacementProblem, t: Tight, unit_usd: float) -> None:
    """Budget (5c) and storage (5h)."""
    column, each = problem.options.column, t.replicas_of
    data = (0, t.share, problem.data_usd[t.workload, t.column])
    routes = []
    if problem.modes.storage == "paper":
        routes = [_route_entries(problem, t, unit_usd)]
    if np.isfinite(problem.budget_usd):
        stored = [data, *routes] if problem.modes.storage == "paper" else []
        rent = (0, t.count, problem.hold_usd[column] * each)
        t.rows["budget"] = t.program.rows(1, [rent, *stored], high=problem.budget_usd)
    if np.isfinite(problem.storage_usd):
        weights = routes or [(0, t.count, problem.model_usd[column] * each)]
        t.rows["storage"] = t.program.rows(1, [data, *weights], high=problem.storage_usd)


def _route_entries(
    problem: PlacementProblem, t: Tight, unit_usd: float
) -> tuple[int, np.ndarray, np.ndarray]:
    """Add the paper's z, a binary per workload and slot that stores the weights; return its cost entries."""
    slots, slot = np.unique(problem.group, return_inverse=True)
    used, pair = np.unique(t.workload * slots.size + slot[t.column], return_inverse=True)
    weights = np.zeros(slots.size)
    np.maximum.at(weights, slot, problem.model_usd)
    usd = weights[used % slots.size]
    z = t.program.columns(usd / unit_usd, 1.0, whole=True)
    t.program.rows(used.size, [(pair, t.share, 1.0), (np.arange(used.size), z, -1.0)], high=0.0)
    return 0, z, usd
