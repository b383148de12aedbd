"""Shrink a problem to an equivalent one, without replicas that nobody needs and dominated options."""

from __future__ import annotations

import dataclasses

import numpy as np

from .problem import COMPUTE, MEMORY, SERVERS, Options, PlacementProblem, most_saved_usd


def prune(problem: PlacementProblem) -> PlacementProblem:
    """Return the problem without columns and replica counts that an optimum can do without.

    Parameters
    ----------
    problem : PlacementProblem
        Any.

    Returns
    -------
    PlacementProblem
        With the same optimal cost.
    """
    enough = _without_surplus(problem.take(_earns(problem)))
    return enough.take(~_dominated(enough)) if enough.columns.size else enough


def _earns(problem: PlacementProblem) -> np.ndarray:
    """Return which columns may save more than a replica costs to hold, (C,) bool."""
    worth_usd = most_saved_usd(
        problem.unserved_usd, problem.usd, problem.delay, problem.error, problem.modes.slo
    )
    share = np.minimum(problem.limit, problem.most)
    saved_usd = np.where(problem.open, worth_usd, 0.0) * np.where(problem.open, share, 0.0)
    return saved_usd.sum(axis=0) + problem.left_out_usd >= problem.hold_usd


def _without_surplus(problem: PlacementProblem) -> PlacementProblem:
    """Drop replicas beyond what the limits allow, or what carries every workload as a whole."""
    options = problem.options
    column = options.column
    high = np.minimum(options.high, _affordable(problem)[column])
    total = np.where(problem.open, problem.load, 0.0).sum(axis=1)[:, column]  # (3, O)
    with np.errstate(divide="ignore", invalid="ignore"):
        servers = np.where(total[SERVERS] > 0, total[SERVERS] / options.servers, 0.0)
    needed = np.ceil(np.maximum(np.maximum(total[COMPUTE], total[MEMORY]), servers) - 1e-9)
    carries = needed <= high
    enough = np.full(problem.columns.size, np.iinfo(np.int64).max)
    np.minimum.at(enough, column[carries], np.maximum(needed, options.low)[carries].astype(np.int64))
    high = np.minimum(high, enough[column])
    lowered = dataclasses.replace(problem, options=dataclasses.replace(options, high=high))
    return lowered.take_options(options.low <= high)


def _affordable(problem: PlacementProblem) -> np.ndarray:
    """Return the most replicas of each column that fit the limits on their own, (C,) int64."""
    pairs = [
        *zip(problem.gpus, problem.available, strict=True),
        (problem.hold_usd, problem.budget_usd * (1 + 1e-9) + 1e-9),
    ]
    if problem.modes.storage == "deployed":
        pairs.append((problem.model_usd, problem.storage_usd * (1 + 1e-9) + 1e-9))
    most = np.full(problem.columns.size, 2.0**31)
    for held, limit in pairs:
        np.minimum(most, np.floor(limit / np.where(held > 0, held, 1e-300)), out=most, where=held > 0)
    return most.astype(np.int64)


def _dominated(problem: PlacementProblem) -> np.ndarray:
    """Return which columns have a sibling in their exclusive slot that is at least as good in everything, (C,)."""
    table = _merits(problem)
    out = np.zeros(problem.columns.size, dtype=bool)
    order = np.argsort(problem.group, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(problem.group[order]) > 0])
    for members in np.split(order, starts[1:]):
        if members.size > 1:
            out[members] = _beaten(table[members])
    return out


def _merits(problem: PlacementProblem) -> np.ndarray:
    """Return what is better the smaller it is, (C, features)."""
    options: Options = problem.options
    first = np.zeros(problem.columns.size, dtype=np.int64)  # exclusive columns have one option
    first[options.column] = np.arange(options.column.size)
    with np.errstate(divide="ignore", invalid="ignore"):
        servers = problem.load[SERVERS] / options.servers[first]
    loads = (problem.load[COMPUTE], problem.load[MEMORY], servers)
    pairs = np.stack([problem.usd, problem.delay, problem.error, problem.data_usd, *loads])
    pairs = np.where(problem.open & ~np.isnan(pairs), pairs, np.where(problem.open, 0.0, np.inf))
    late = np.concatenate([-options.width[first], options.slope_usd[first]], axis=1)
    cost = options.fixed_usd[first] + options.replica_usd[first]
    columns = np.stack([cost, problem.hold_usd, problem.model_usd, *problem.gpus], axis=1)
    return np.concatenate([pairs.reshape(-1, problem.columns.size).T, columns, late], axis=1)


def _beaten(table: np.ndarray) -> np.ndarray:
    """Return which rows are nowhere below some other row; of equal rows the first stays."""
    no_worse = (table[:, None, :] <= table[None, :, :]).all(axis=2)  # [a, b]: a at least as good as b
    equal = no_worse & no_worse.T
    earlier = np.triu(np.ones_like(equal), 1)
    return np.asarray((no_worse & (~equal | earlier)).any(axis=0))
