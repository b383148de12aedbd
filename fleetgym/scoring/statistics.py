"""Compute means with intervals, ranks and ties."""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
from scipy.special import stdtr, stdtrit

#: Of intervals.
LEVEL = 0.95

#: Of the tail whose mean is shown, and of ties.
TAIL_SHARE, ALPHA = 0.1, 0.05

Cluster = tuple[str, str]  # family, instance


def cluster_means(values: Iterable[tuple[Cluster, float]]) -> dict[Cluster, float]:
    """Return the mean of the numbers of each instance.

    Parameters
    ----------
    values : iterable of (cluster, float)
        A number of each task, after the family and the instance it belongs to.

    Examples
    --------
    >>> cluster_means([(("ou", "a"), 0.0), (("ou", "a"), 0.5), (("ou", "b"), 0.3)])
    {('ou', 'a'): 0.25, ('ou', 'b'): 0.3}
    """
    found: dict[Cluster, list[float]] = {}
    for cluster, value in values:
        found.setdefault(cluster, []).append(value)
    return {cluster: math.fsum(of) / len(of) for cluster, of in found.items()}


def counted(means: Mapping[Cluster, float], counts_as: Mapping[str, str]) -> dict[Cluster, float]:
    """Return the numbers of families that count; merged families become one.

    Parameters
    ----------
    means : mapping
        A number of each instance.
    counts_as : mapping
        What each family counts as; families that are not in it do not count.

    Examples
    --------
    >>> counted({("ou", "a"): 0.1, ("drop", "b"): 0.5, ("grw", "c"): 9.0}, {"ou": "ou+drop", "drop": "ou+drop"})
    {('ou+drop', 'a'): 0.1, ('ou+drop', 'b'): 0.5}
    """
    return {(counts_as[family], name): x for (family, name), x in means.items() if family in counts_as}


def family_means(means: Mapping[Cluster, float]) -> dict[str, float]:
    """Return the mean of each family's instances.

    Examples
    --------
    >>> family_means({("ou", "a"): 0.1, ("ou", "b"): 0.3, ("drop", "c"): 0.5})
    {'ou': 0.2, 'drop': 0.5}
    """
    found: dict[str, list[float]] = {}
    for (family, _), value in means.items():
        found.setdefault(family, []).append(value)
    return {family: math.fsum(of) / len(of) for family, of in found.items()}


@dataclasses.dataclass(frozen=True)
class FamilyMean:
    """Mean over families of the mean over instances, with its standard error.

    An instance counts once, however many scenarios it has: they share a source day or a process. Families are strata,
    whose spreads may differ, so the error's degrees of freedom are those of Satterthwaite (1946) and Welch (1947), and
    intervals and p-values are Student's.

    Parameters
    ----------
    mean : float
    error : float, optional
        Standard error of the mean; None where a family has a single instance, whose spread is unknown.
    freedom : float
        Degrees of freedom of the error.

    Examples
    --------
    >>> found = FamilyMean.of({("ou", "1"): 1.0, ("ou", "2"): 3.0, ("drop", "1"): 4.0, ("drop", "2"): 4.0})
    >>> found.mean, found.error, found.freedom
    (3.0, 0.5, 1.0)
    >>> [round(bound, 2) for bound in found.interval()]
    [-3.35, 9.35]
    >>> round(found.p_value(), 3)
    0.105
    """

    mean: float
    error: float | None
    freedom: float = math.inf

    @classmethod
    def of(cls, values: Mapping[Cluster, float]) -> FamilyMean:
        """Return the mean of one number for each instance; the order of the instances does not matter."""
        families: dict[str, list[float]] = {}
        for (family, _), value in values.items():
            families.setdefault(family, []).append(value)
        mean = math.fsum(family_means(values).values()) / len(families)
        if any(len(of) == 1 for of in families.values()):
            return cls(mean, None)
        parts = [
            (statistics.variance(of) / len(of) / len(families) ** 2, len(of) - 1) for of in families.values()
        ]
        return cls(mean, *_combined(parts))

    def minus(self, other: FamilyMean) -> FamilyMean:
        """Return the difference from another mean, of other instances: the errors of both count."""
        mean = self.mean - other.mean
        if self.error is None or other.error is None:
            return FamilyMean(mean, None)
        parts = [(self.error**2, self.freedom), (other.error**2, other.freedom)]
        return FamilyMean(mean, *_combined(parts))

    def interval(self, level: float = LEVEL) -> tuple[float, float] | None:
        """Return Student's interval of the mean; None where the spread is unknown."""
        if self.error is None:
            return None
        reach = self.error and self.error * float(stdtrit(self.freedom, (1.0 + level) / 2.0))
        return self.mean - reach, self.mean + reach

    def p_value(self) -> float:
        """Return the p-value of a mean of zero: Student's test, two-sided.

        One where the spread is unknown.
        """
        if self.error is None or self.mean == 0.0:
            return 1.0
        return 2.0 * float(stdtr(self.freedom, -abs(self.mean) / self.error)) if self.error else 0.0


def _combined(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the error of a sum and its degrees of freedom, from squared errors and degrees of what is added."""
    total = math.fsum(square for square, _ in parts)
    inverse = math.fsum((square / total) ** 2 / freedom for square, freedom in parts) if total else 0.0
    return math.sqrt(total), 1.0 / inverse if inverse else math.inf


# -- ranks


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values (Holm 1979), which control the family-wise error rate.

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
    """Return the rank of every row: rows that do not differ significantly from the best of their group share its rank.

    Rows are compared in pairs, instance by instance: what makes a day expensive for all of them cancels.

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
    pairs = itertools.combinations(range(len(rows)), 2)
    return ranks_of(len(rows), {(a, b): _difference(rows[a], rows[b]).p_value() for a, b in pairs})


def _difference(a: Mapping[Cluster, float], b: Mapping[Cluster, float]) -> FamilyMean:
    return FamilyMean.of({key: b[key] - a[key] for key in a})


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two rows, compared instance by instance.

    Parameters
    ----------
    first, second : int
        Numbers of the rows.
    difference : FamilyMean
        Of ln(cost of the second / cost of the first).
    p_value : float
        Of no difference, by Student's test; adjusted by Holm's method for all pairs of the table.
    improvement : float
        Probability that the first is cheaper on a task of a family, mean over families; equal costs count half. It is
        the probability of improvement of Agarwal et al. (2021), *Deep RL at the Edge of the Statistical Precipice*,
        eq. (2), with instances paired.
    """

    first: int
    second: int
    difference: FamilyMean
    p_value: float
    improvement: float


def pairs_of(rows: Sequence[Mapping[Cluster, float]]) -> list[Pair]:
    """Return all pairs of rows, each with an earlier and a later one.

    Parameters
    ----------
    rows : sequence of mapping
        Mean of ln(cost / best-known) by cluster.

    Examples
    --------
    >>> rows = [{("ou", "a"): 0.1, ("ou", "b"): 0.2}, {("ou", "a"): 0.3, ("ou", "b"): 0.2}]
    >>> (pair,) = pairs_of(rows)
    >>> round(pair.difference.mean, 3), pair.improvement
    (0.1, 0.75)
    """
    numbers = list(itertools.combinations(range(len(rows)), 2))
    found = [_difference(rows[a], rows[b]) for a, b in numbers]
    adjusted = holm([difference.p_value() for difference in found])
    better = [family_means({k: _half_order(rows[a][k], rows[b][k]) for k in rows[a]}) for a, b in numbers]
    return [
        Pair(a, b, difference, p, math.fsum(shares.values()) / len(shares))
        for (a, b), difference, p, shares in zip(numbers, found, adjusted, better, strict=True)
    ]


def _half_order(a: float, b: float) -> float:
    return 0.5 if a == b else float(a < b)


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


# -- replications


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """A mean over replications, and the half width of its interval at the stated confidence."""

    mean: np.ndarray
    half_width: np.ndarray  # infinite from a single replication

    @property
    def low(self) -> np.ndarray:
        """Lower end of the interval."""
        return self.mean - self.half_width

    @property
    def high(self) -> np.ndarray:
        """Upper end of the interval."""
        return self.mean + self.half_width

    def is_tight(self, absolute: float, relative: float) -> bool:
        """Return whether every half width is within the larger of two tolerances; NaN counts as tight."""
        allowed = np.maximum(absolute, relative * np.abs(self.mean))
        return bool(np.all(np.isnan(self.mean) | (self.half_width <= allowed)))


def student_t(confidence: float, degrees: int) -> float:
    """Return the two-sided quantile of Student's t.

    Examples
    --------
    >>> round(student_t(0.95, 9), 3)
    2.262
    """
    return float(stdtrit(degrees, 0.5 + 0.5 * confidence))


def ratio(counts: np.ndarray, totals: np.ndarray, confidence: float, *, is_share: bool = False) -> Estimate:
    """Estimate E[count] / E[total] from replications: the ratio of sums, its variance by the delta method.

    Source: Law, Simulation Modeling and Analysis (2015), section 9.5.3, the regenerative ratio estimator.

    Parameters
    ----------
    counts, totals : ndarray, shape (replications, ...)
        One row per replication.
    confidence : float
        Of the interval.
    is_share : bool
        Whether `counts` are some of `totals`. If none or all of them are, the replications do not differ; the half
        width is then that of n independent trials: 1 - (1 - confidence)^(1/n).

    Returns
    -------
    Estimate
        NaN where `totals` are all zero.

    Examples
    --------
    >>> found = ratio(np.array([1.0, 2.0, 3.0]), np.array([10.0, 10.0, 10.0]), 0.95)
    >>> round(float(found.mean), 3), round(float(found.half_width), 3)
    (0.2, 0.248)
    """
    n = len(counts)
    total = totals.sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = counts.sum(axis=0) / total
        if n < 2:
            return Estimate(mean, np.full_like(mean, np.inf))
        spread = np.sqrt(((counts - mean * totals) ** 2).sum(axis=0) / (n * (n - 1))) * n / total
        half = student_t(confidence, n - 1) * spread
        if is_share:
            extreme = (mean <= 0.0) | (mean >= 1.0)
            half = np.where(extreme, -np.expm1(math.log1p(-confidence) / total), half)
    return Estimate(mean, half)


def looks(smallest: int, largest: int) -> Iterator[int]:
    """Yield the numbers of replications at which to decide whether to stop: each half again as many as the last.

    Few looks keep the interval close to its confidence; they are the same whatever the batches are.

    Examples
    --------
    >>> list(looks(8, 40))
    [8, 12, 18, 27, 40]
    """
    count = smallest
    while count < largest:
        yield count
        count = max(count + 1, count * 3 // 2)
    yield largest
