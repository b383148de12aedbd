"""Costs of many rows on the same tasks in; tie groups, tails and profiles out."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from fleetgym.scoring.statistics import Cluster, FamilyMean

#: Of the tail whose mean is shown, and of ties.
TAIL_SHARE, ALPHA = 0.1, 0.05


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values (Holm 1979): the chance of even one false finding among all is kept.

    Examples
    --------
    >>> [round(p, 6) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = sorted(range(len(p_values)), key=lambda k: p_values[k])
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, k in enumerate(order):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[k]))
        adjusted[k] = largest
    return adjusted


def tie_groups(rows: Sequence[Mapping[Cluster, float]]) -> list[int]:
    """Return the rank of every row: rows that cannot be told from the best of their group share its rank.

    Rows are compared in pairs, instance by instance: what makes a day dear for all of them cancels.

    Parameters
    ----------
    rows : sequence of mapping
        Mean of ln(cost / best-known) by cluster, the best row first.

    Returns
    -------
    list of int
        Rank of each row, from 1; a group's rank is one more than the number of rows before it.

    Examples
    --------
    >>> best = {("ou", "a"): 0.1, ("ou", "b"): 0.9, ("ou", "c"): 0.5}
    >>> tie_groups([best, {key: mean + 0.01 for key, mean in best.items()}])  # a little, but always
    [1, 2]
    """
    p_values = {}
    for a, b in itertools.combinations(range(len(rows)), 2):
        p_values[a, b] = FamilyMean.of({key: rows[b][key] - rows[a][key] for key in rows[a]}).p_value()
    return ranks_of(len(rows), p_values)


def ranks_of(count: int, p_values: Mapping[tuple[int, int], float]) -> list[int]:
    """Return the ranks of rows, best first, from the p-value of each pair.

    Examples
    --------
    >>> ranks_of(3, {(0, 1): 0.2, (0, 2): 0.01, (1, 2): 0.3})  # the third is not told from the second
    [1, 1, 3]
    """
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    ranks, leader = [], 0
    for k in range(count):
        if k > leader and adjusted[leader, k] < ALPHA:
            leader = k
        ranks.append(leader + 1)
    return ranks


def tail_mean(values: Sequence[float], share: float = TAIL_SHARE) -> float:
    """Return the mean of the largest `share` of values (CVaR, Rockafellar and Uryasev 2000), one counted in part.

    Examples
    --------
    >>> tail_mean([1.0, 2.0, 3.0, 4.0, 10.0], 0.3)
    8.0
    """
    ordered = sorted(values, reverse=True)
    room, total = share * len(ordered), 0.0
    for k, value in enumerate(ordered):
        total += value * min(1.0, max(0.0, room - k))
    return total / room


def profile(ratios: Sequence[float]) -> list[tuple[float, float]]:
    """Return the steps (ratio, share of tasks at most this far from best-known): Dolan and Moré 2002.

    Examples
    --------
    >>> profile([1.5, 1.0, 1.5, 3.0])
    [(1.0, 0.25), (1.5, 0.75), (3.0, 1.0)]
    """
    ordered = sorted(ratios)
    steps = {ratio: (k + 1) / len(ordered) for k, ratio in enumerate(ordered)}
    return list(steps.items())
