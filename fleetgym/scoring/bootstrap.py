"""Means over instances by family in, their spread out: the one bootstrap of scores, reports and the leaderboard."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

RESAMPLES = 10_000
#: Of intervals.
LEVEL = 0.95

Cluster = tuple[str, str]  # family, instance


@dataclasses.dataclass(frozen=True, eq=False)
class Resamples:
    """Draws of clusters with replacement within families, the same for every row.

    Parameters
    ----------
    clusters : sequence of (family, cluster)
        A cluster is an instance: its scenarios share a source day or a process, so they are drawn together.
    seed : int
        The same seed draws the same clusters.

    Attributes
    ----------
    weights : ndarray, shape (resamples, clusters)
        Weight of each cluster in the mean over families of the mean over clusters; rows sum to one.
    plain : ndarray, shape (clusters,)
        The same for the sample itself.
    """

    clusters: tuple[Cluster, ...]
    seed: int = 0
    resamples: int = RESAMPLES
    weights: np.ndarray = dataclasses.field(init=False, repr=False)
    plain: np.ndarray = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        weights = np.zeros((self.resamples, len(self.clusters)))
        plain = np.zeros(len(self.clusters))
        for members in self.by_family().values():
            count, every = len(members), np.arange(self.resamples)[:, None]
            drawn = rng.integers(count, size=(self.resamples, count)) + count * every
            times = np.bincount(drawn.ravel(), minlength=count * self.resamples).reshape(-1, count)
            share = count * len(self.by_family())
            weights[:, members], plain[members] = times / share, 1.0 / share
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "plain", plain)

    def by_family(self) -> dict[str, list[int]]:
        """Return the numbers of each family's clusters; both sorted by name, so that order does not matter."""
        found: dict[str, list[int]] = {}
        for cluster, k in sorted((cluster, k) for k, cluster in enumerate(self.clusters)):
            found.setdefault(cluster[0], []).append(k)
        return found

    @property
    def tells_spread(self) -> bool:
        """Whether every family has two clusters or more; the spread of one cannot be told."""
        return all(len(members) > 1 for members in self.by_family().values())

    def interval(self, values: np.ndarray, level: float = LEVEL) -> tuple[float, float] | None:
        """Return the percentile interval of the mean of values, (clusters,); None if it cannot be told."""
        if not self.tells_spread:
            return None
        tail = (1.0 - level) / 2.0
        low, high = np.quantile(self.weights @ values, [tail, 1.0 - tail])
        return float(low), float(high)

    def p_value(self, difference: np.ndarray) -> float:
        """Return how likely a mean difference this far from zero is by chance: two-sided, normal, bootstrap error.

        One where the spread cannot be told: nothing is known then against chance.
        """
        if not self.tells_spread:
            return 1.0
        mean, error = float(self.plain @ difference), float((self.weights @ difference).std())
        if error == 0.0:
            return 1.0 if mean == 0.0 else 0.0
        return math.erfc(abs(mean) / error / math.sqrt(2.0))
