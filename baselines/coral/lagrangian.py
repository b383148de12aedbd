"""Bound Coral's program by prices on nodes, and find floors for every template.

With a price on every node the regions and demands fall apart: each demand is an integer covering knapsack,
solved by dynamic programming in units of demand / Q. Units are rounded in the templates' favour, so the bound
holds.
"""

from __future__ import annotations

import dataclasses

import numpy as np

from .covering import cover, replicas, with_one_more
from .problem import CoveringProblem


@dataclasses.dataclass(eq=False)
class Columns:
    """The (template, region) pairs still in play; sorted by demand and by units covered."""

    template: np.ndarray  # (N,) int: index in the problem
    use: np.ndarray  # (N, K) float
    row: np.ndarray  # (N,) int
    units: np.ndarray  # (N,) int
    alive: np.ndarray  # (N, R) bool
    starts: np.ndarray  # first template of each (row, units)

    @classmethod
    def of(cls, problem: CoveringProblem, units: int, alive: np.ndarray) -> Columns:
        """Return the templates with a region in `alive` (N, R), for demands of `units` units."""
        weight = np.ceil(problem.share * units - 1e-9).astype(np.int64)
        used = alive.any(axis=1) & (weight > 0) & (problem.demand_rps[problem.row] > 0.0)
        chosen = np.flatnonzero(used)
        chosen = chosen[np.lexsort((weight[chosen], problem.row[chosen]))]
        key = problem.row[chosen] * (units + 1) + weight[chosen]
        starts = np.flatnonzero(np.diff(key, prepend=-1))
        return cls(
            template=chosen,
            use=problem.use[chosen].astype(float),
            row=problem.row[chosen],
            units=weight[chosen],
            alive=alive[chosen],
            starts=starts,
        )


@dataclasses.dataclass(eq=False)
class Evaluation:
    """What one set of prices says."""

    bound: float
    used: np.ndarray  # (R, K) nodes of the priced optimum
    floor: np.ndarray  # (N, R) bound on allocations with such a new replica
    template: np.ndarray  # (P,) of the priced optimum
    region: np.ndarray
    count: np.ndarray


def relaxed(problem: CoveringProblem, columns: Columns, units: int, prices: np.ndarray) -> Evaluation:
    """Solve the program with prices instead of availability.

    Parameters
    ----------
    problem : CoveringProblem
        The epoch.
    columns : Columns
        Templates in play.
    units : int
        Q, units per demand.
    prices : (R, K) array
        At least 0: USD per hour and node, on top of the rent.

    Returns
    -------
    Evaluation
        Its bound holds for every allocation made of `columns` and running replicas.
    """
    rented = (1.0 + problem.startup_ratio) * problem.price_usd_per_h + prices
    cost = np.where(columns.alive, columns.use @ rented.T, np.inf)
    cheapest = cost.min(axis=1)
    by_units = np.minimum.reduceat(cheapest, columns.starts) if columns.starts.size else np.zeros(0)
    rows, weights = columns.row[columns.starts], columns.units[columns.starts]
    ends = np.append(columns.starts[1:], columns.template.size)
    floor = np.full_like(cost, np.inf)
    total = -float((prices * problem.available).sum())
    parts: list[tuple[int, int, int]] = []
    own = np.zeros(problem.demand_rps.size)
    for m in np.flatnonzero(problem.demand_rps > 0.0):
        here = np.flatnonzero(rows == m)
        table = np.full(units + 1, np.inf)
        table[weights[here]] = by_units[here]
        kept_template, kept_region, kept_units, kept_cost = _kept(problem, int(m), units, prices)
        value, choice = np.empty(units + 1), np.empty(units + 1, dtype=np.int64)
        taken = np.zeros((kept_units.size, units + 1), dtype=np.bool_)
        price = problem.unserved_usd_per_h
        covered = cover(table, kept_units, kept_cost, price, value, choice, taken)
        own[m] = value[covered] + price * (1.0 - covered / units)
        total += own[m]
        new, kept = np.zeros(units + 1, dtype=np.int64), np.zeros(kept_units.size, dtype=np.bool_)
        replicas(covered, choice, taken, kept_units, new, kept)
        parts += [(int(t), int(r), 1) for t, r in zip(kept_template[kept], kept_region[kept], strict=True)]
        for w in np.flatnonzero(new):
            k = here[np.searchsorted(weights[here], w)]
            i = columns.starts[k] + int(np.argmin(cheapest[columns.starts[k] : ends[k]]))
            parts.append((int(columns.template[i]), int(np.argmin(cost[i])), int(new[w])))
        if here.size:
            part = slice(columns.starts[here[0]], ends[here[-1]])
            others = with_one_more(value, price)[columns.units[part]]
            floor[part] = cost[part] + (others - own[m])[:, None]
    template, region, count = (
        (np.array(a, dtype=np.int64) for a in zip(*parts, strict=True))
        if parts
        else (np.zeros(0, dtype=np.int64) for _ in range(3))
    )
    used = np.zeros(problem.available.shape)
    np.add.at(used, region, problem.use[template].astype(float) * count[:, None])
    return Evaluation(total, used, floor + total, template, region, count)


def _kept(
    problem: CoveringProblem, row: int, units: int, prices: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return template, region, units and priced cost of each single running replica of a row."""
    running = problem.running
    here = np.flatnonzero(problem.row[running.template] == row)
    repeated = np.repeat(here, running.count[here])
    template, region = running.template[repeated], running.region[repeated]
    weight = np.ceil(problem.share[template] * units - 1e-9).astype(np.int64) if template.size else template
    cost = ((problem.price_usd_per_h + prices)[region] * problem.use[template]).sum(axis=1)
    return template, region, weight, cost.astype(float)


def cheapest(worth: np.ndarray, row: np.ndarray, number: int) -> list[tuple[int, int]]:
    """Return the (index, region) pairs of least finite worth of each row, one region per index.

    Parameters
    ----------
    worth : (N, R) array
        Less is better; inf: not to be taken.
    row : (N,) int array
        Which demand each index covers.
    number : int
        Most pairs per row.
    """
    best, region = worth.min(axis=1), worth.argmin(axis=1)
    pairs = []
    for m in np.unique(row):
        here = np.flatnonzero((row == m) & np.isfinite(best))
        chosen = here[np.argsort(best[here], kind="stable")[:number]]
        pairs += [(int(i), int(region[i])) for i in chosen]
    return pairs
