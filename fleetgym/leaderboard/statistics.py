"""Costs of many rows on the same tasks in; intervals, tie groups, tails and profiles out.

Rows are compared in pairs on the same resampled tasks: what makes a day dear for all of them cancels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fleetgym.scoring.bootstrap import LEVEL, Cluster, Resamples

#: Of the tail whose mean is shown, and of ties.
TAIL_SHARE, ALPHA = 0.1, 0.05


def family_interval(
    values: Sequence[float], seed: int = 0, level: float = LEVEL
) -> tuple[float, float] | None:
    """Return the percentile interval of the mean of one family's clusters; None for a single one."""
    names = tuple(("", str(k)) for k in range(len(values)))
    return Resamples(names, seed).interval(np.asarray(values), level)


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


def tie_groups(scores: np.ndarray, draws: Resamples) -> list[int]:
    """Return the rank of every row: rows that cannot be told from the best of their group share its rank.

    Parameters
    ----------
    scores : ndarray, shape (rows, clusters)
        Mean of ln(cost / best-known) by cluster, the best row first.
    draws : Resamples
        Of the clusters.

    Returns
    -------
    list of int
        Rank of each row, from 1; a group's rank is one more than the number of rows before it.
    """
    pairs = [(a, b) for a in range(len(scores)) for b in range(a + 1, len(scores))]
    adjusted = dict(zip(pairs, holm([draws.p_value(scores[a] - scores[b]) for a, b in pairs]), strict=True))
    ranks, leader = [], 0
    for k in range(len(scores)):
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


def paired_interval(
    public: Mapping[Cluster, float], fresh: Mapping[Cluster, float], level: float = 0.99, seed: int = 0
) -> tuple[float, float] | None:
    """Return the interval of what a row scores worse on fresh tasks than on public ones of the same instances.

    Parameters
    ----------
    public, fresh : mapping
        Mean of ln(cost / best-known) by family and instance.
    level : float
    seed : int

    Returns
    -------
    tuple of float, or None
        Of the difference in ln; None if the spread cannot be told, or no instance is in both.
    """
    both = tuple(sorted(set(public) & set(fresh)))
    if not both:
        return None
    difference = np.array([fresh[cluster] - public[cluster] for cluster in both])
    return Resamples(both, seed).interval(difference, level)


def unpaired_interval(
    public: Mapping[Cluster, float], fresh: Mapping[Cluster, float], level: float = 0.99, seed: int = 0
) -> tuple[float, float] | None:
    """Return the interval of what a row scores worse on fresh instances than on public ones of the same families.

    Both are drawn anew, each from its own instances, so that the spreads of both count.

    Parameters
    ----------
    public, fresh : mapping
        Mean of ln(cost / best-known) by family and instance.
    level : float
    seed : int

    Returns
    -------
    tuple of float, or None
        Of the difference in ln; None if a spread cannot be told, or the families are not the same.
    """
    draws = []
    for k, means in enumerate((public, fresh)):
        resamples = Resamples(tuple(sorted(means)), 2 * seed + k)
        if not means or not resamples.tells_spread:
            return None
        draws.append(resamples.weights @ np.array([means[cluster] for cluster in resamples.clusters]))
    if {family for family, _ in public} != {family for family, _ in fresh}:
        return None
    tail = (1.0 - level) / 2.0
    low, high = np.quantile(draws[1] - draws[0], [tail, 1.0 - tail])
    return float(low), float(high)


def family_mean(means: Mapping[Cluster, float]) -> float:
    """Return the mean over families of the mean over their clusters.

    Examples
    --------
    >>> family_mean({("ou", "1"): 1.0, ("ou", "2"): 3.0, ("drop", "1"): 4.0})
    3.0
    """
    names = tuple(sorted(means))
    return float(Resamples(names, resamples=1).plain @ np.array([means[name] for name in names]))
