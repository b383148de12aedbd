"""Find the cheapest routing for a fleet, and the cost of both; every plan passes through here."""

from __future__ import annotations

import dataclasses

import numpy as np

from .problem import COMPUTE, MEMORY, SERVERS, Options, PlacementProblem, within
from .tight import tight_program


@dataclasses.dataclass(frozen=True, eq=False)
class Solution:
    """A fleet with its cheapest routing."""

    replicas: np.ndarray  # (C,) int64
    routing: np.ndarray  # (I, C)
    unserved: np.ndarray  # (I,)
    cost_usd: float

    def lost(self, problem: PlacementProblem) -> np.ndarray:
        """Return what each workload loses, (I,): its unserved share and, with elastic SLOs, its means' excesses."""
        lost = self.unserved.copy()
        if problem.modes.slo == "elastic":
            for value in (problem.delay, problem.error):
                excess = np.where(self.routing > 0.0, (value - 1.0) * self.routing, 0.0).sum(axis=1)
                lost += np.maximum(0.0, excess)
        return lost


def nothing(problem: PlacementProblem) -> Solution:
    """Return the fleet that holds nothing and serves nothing."""
    return Solution(
        replicas=np.zeros(problem.columns.size, dtype=np.int64),
        routing=np.zeros(problem.open.shape),
        unserved=np.ones(problem.workloads.size),
        cost_usd=float(problem.unserved_usd.sum()),
    )


def is_feasible(problem: PlacementProblem, replicas: np.ndarray) -> bool:
    """Check that a fleet, (C,), keeps slots, pools, budget and the storage of its weights."""
    _, slot = np.unique(problem.group, return_inverse=True)
    active = np.bincount(slot, replicas > 0, slot.max(initial=0) + 1)
    held = [(problem.hold_usd, problem.budget_usd)]
    if problem.modes.storage == "deployed":
        held.append((problem.model_usd, problem.storage_usd))
    return bool(
        (active <= 1).all()
        and (replicas <= problem.max_replicas).all()
        and (problem.gpus @ replicas <= problem.available).all()
        and all(within(usd @ replicas, limit) for usd, limit in held)
    )


def best_routing(problem: PlacementProblem, replicas: np.ndarray) -> Solution:
    """Return the cheapest routing for a feasible fleet.

    Parameters
    ----------
    problem : PlacementProblem
        Any.
    replicas : ndarray of int64, shape (C,)
        Replicas per column.

    Returns
    -------
    Solution
        Its shares keep every capacity to round-off, and its cost is computed from them.
    """
    used = replicas > 0
    if not used.any():
        return nothing(problem)
    fixed = _fixed(problem, replicas)
    unit_usd = max(float(problem.unserved_usd.sum()), 1e-300) / 1e3
    t = tight_program(fixed, unit_usd)
    whole = problem.modes.storage == "paper"
    start = np.zeros(t.program.num_columns)
    start[t.option] = 1.0
    answer = t.program.solve({}, relax=not whole, lower=start)
    assert answer.values is not None, "serving nothing is a routing"
    share = np.zeros(fixed.open.shape)
    share[t.workload, t.column] = np.clip(answer.values[t.share], 0.0, 1.0)
    routing = np.zeros(problem.open.shape)
    routing[:, used] = _repaired(fixed, replicas[used], share)
    return solution_of(problem, replicas, routing)


def _fixed(problem: PlacementProblem, replicas: np.ndarray) -> PlacementProblem:
    """Return the problem whose only fleet is `replicas`."""
    o = problem.options
    number = replicas[o.column]
    right = (o.low <= number) & (number <= o.high)
    pinned = dataclasses.replace(o, low=np.where(right, number, o.low), high=np.where(right, number, o.high))
    only = dataclasses.replace(problem, options=pinned.take(right))
    return only.take(replicas > 0)


def _repaired(problem: PlacementProblem, replicas: np.ndarray, share: np.ndarray) -> np.ndarray:
    """Take off what tolerances put on top of demand and capacities; problem and shares of the fleet's columns alone."""
    share[share < 1e-9] = 0.0
    share /= np.maximum(1.0, share.sum(axis=1, keepdims=True))
    options: Options = problem.options
    room = np.empty((3, replicas.size))
    room[COMPUTE], room[MEMORY] = replicas, replicas
    room[SERVERS] = options.servers * replicas + options.width.sum(axis=1)
    load = (problem.load * share).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        over = np.where(load > room, load / room, 1.0).max(axis=0)
    return share / over


def solution_of(problem: PlacementProblem, replicas: np.ndarray, routing: np.ndarray) -> Solution:
    """Return fleet and routing with their cost, all terms of the objective."""
    unserved = np.clip(1.0 - routing.sum(axis=1), 0.0, 1.0)
    unserved[unserved < 1e-12] = 0.0  # round-off of shares that add up to one
    found = Solution(replicas, routing, unserved, np.nan)
    usd = problem.unserved_usd @ found.lost(problem) + (problem.usd * routing).sum()
    return dataclasses.replace(found, cost_usd=float(usd + _fleet_usd(problem, replicas, routing)))


def _fleet_usd(problem: PlacementProblem, replicas: np.ndarray, routing: np.ndarray) -> float:
    """Return what holding, starting and loading the fleet costs."""
    o = problem.options
    number = replicas[o.column]
    chosen = (number > 0) & (o.low <= number) & (number <= o.high)
    usd = (o.fixed_usd + number * o.replica_usd)[chosen].sum()
    busy = (problem.load[SERVERS] * routing).sum(axis=0)[o.column] - o.servers * number
    filled = np.concatenate([np.zeros((busy.size, 1)), np.cumsum(o.width, axis=1)[:, :-1]], axis=1)
    late = np.clip(busy[:, None] - filled, 0.0, o.width)
    usd += (late * o.slope_usd)[chosen].sum()
    if problem.modes.storage == "paper":
        slots, slot = np.unique(problem.group, return_inverse=True)
        weights = np.zeros(slots.size)
        np.maximum.at(weights, slot, problem.model_usd)
        placed = np.zeros((routing.shape[0], slots.size), dtype=bool)
        np.logical_or.at(placed.T, slot, routing.T > 0.0)
        usd += (placed * weights).sum()
    return float(usd)
