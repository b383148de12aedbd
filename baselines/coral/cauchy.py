"""Solve Coral's baseline Cauchy: combinations of one prefill node and several decode nodes, by an integer program.

Source: Coral, section 6.1, on Zhang et al.'s Cauchy (2025): prefill and decode may use different GPU
configurations, each replica being one node; Coral's extension lets a prefill replica feed several decode
replicas. Our reading of "cost efficiency in the objective": the least rent at which the combinations cover the
demand, unserved demand first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fleetgym.planning import LinearProgram

from .homo import homogeneous_templates
from .problem import Allocation, CoveringProblem, evaluate

#: Branch-and-bound nodes and gap at which the search ends.
NODE_LIMIT, GAP = 5_000, 1e-3


@dataclasses.dataclass(frozen=True, eq=False)
class _Combinations:
    """One entry per combination and region."""

    parts: list[tuple[tuple[int, int], ...]]  # (template, replicas)
    region: np.ndarray
    group: np.ndarray
    share: np.ndarray  # of the group's demand
    use: np.ndarray  # (P, K)
    rent: np.ndarray  # (P,)


def cauchy(
    problem: CoveringProblem, groups: Sequence[Sequence[int]], allowed: np.ndarray | None = None
) -> Allocation:
    """Return the cheapest allocation of combinations.

    Parameters
    ----------
    problem : CoveringProblem
        The epoch.
    groups : sequence of sequences of int
        The rows of each model: prefill and decode, or one row whose replicas serve both.
    allowed : (N,) bool array, optional
        The single-node templates, where `use` does not tell.

    Returns
    -------
    Allocation
        Replicas of single-node templates, without a bound.
    """
    if allowed is None:
        allowed = homogeneous_templates(problem, single_node=True)
    found = _combinations(problem, groups, allowed & (problem.throughput_rps > 0.0))
    none = np.zeros(0, dtype=np.int64)
    if not found.parts:
        return evaluate(problem, none, none, none)
    program = LinearProgram()
    scale = float(found.rent.max())
    short = program.columns(np.full(len(groups), problem.unserved_usd_per_h / scale), 1.0)
    count = program.columns(found.rent / scale, np.ceil(1.0 / found.share), whole=True)
    g = np.arange(len(groups))
    active = np.array([max(problem.demand_rps[list(rows)]) > 0.0 for rows in groups])
    covered = [(g, short, np.ones(g.size)), (found.group, count, found.share)]
    program.rows(g.size, covered, low=active.astype(float))
    kinds = problem.available.shape[1]
    cell = found.region[:, None] * kinds + np.arange(kinds)
    program.rows(problem.available.size, [(cell, count[:, None], found.use)], high=problem.available.ravel())
    answer = program.solve({"mip_max_nodes": NODE_LIMIT, "mip_rel_gap": GAP})
    if answer.values is None:
        return evaluate(problem, none, none, none)
    chosen = np.rint(answer.values[count]).astype(np.int64)
    replicas = [
        (template, int(found.region[c]), int(chosen[c]) * number)
        for c in np.flatnonzero(chosen)
        for template, number in found.parts[c]
    ]
    parts = np.array(replicas, dtype=np.int64).reshape(-1, 3)
    return evaluate(problem, parts[:, 0], parts[:, 1], parts[:, 2])


def _combinations(
    problem: CoveringProblem, groups: Sequence[Sequence[int]], usable: np.ndarray
) -> _Combinations:
    """Return one prefill node with 1, 2, ... decode nodes, up to what its throughput or the demand asks for."""
    entries: list[tuple[int, tuple[tuple[int, int], ...], float]] = []
    for g, rows in enumerate(groups):
        demand = float(problem.demand_rps[rows[0]])
        if demand <= 0.0:
            continue
        options = [np.flatnonzero(usable & (problem.row == row)) for row in rows]
        for first in options[0]:
            ahead = min(float(problem.throughput_rps[first]), demand)
            if len(rows) == 1:
                entries.append((g, ((int(first), 1),), ahead / demand))
                continue
            for second in options[1]:
                each = float(problem.throughput_rps[second])
                for k in range(1, int(np.ceil(ahead / each - 1e-9)) + 1):
                    entries.append((g, ((int(first), 1), (int(second), k)), min(ahead, k * each) / demand))
    parts: list[tuple[tuple[int, int], ...]] = []
    region, group, share, use, rent = [], [], [], [], []
    for g, part, served in entries:
        nodes = sum(problem.use[t].astype(float) * n for t, n in part)
        for r in range(problem.available.shape[0]):
            if np.all(nodes <= problem.available[r]):
                parts.append(part)
                region.append(r)
                group.append(g)
                share.append(served)
                use.append(nodes)
                rent.append(float(nodes @ problem.price_usd_per_h[r]))
    return _Combinations(
        parts, np.array(region), np.array(group), np.array(share), np.array(use), np.array(rent)
    )
