"""Compute means with 95 % intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy import stats


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A mean or a ratio with its interval."""

    mean: float
    low: float
    high: float
    n: int

    def text(self, digits: int = 1) -> str:
        """Return ``mean [low, high]``; the mean alone where there is no interval."""
        interval = "" if math.isnan(self.low) else f" [{self.low:,.{digits}f}, {self.high:,.{digits}f}]"
        return f"{self.mean:,.{digits}f}{interval}"

    def percent(self, unit: str = " %") -> str:
        """Return a change in percent with its sign and interval, if it has one."""
        interval = "" if math.isnan(self.low) else f" [{self.low:+.1f}, {self.high:+.1f}]"
        return f"{self.mean:+.1f}{unit}{interval}"


def mean(values: Sequence[float]) -> Estimate:
    """Return the mean with Student's interval."""
    sample = np.asarray(values, dtype=float)
    centre = float(sample.mean())
    if sample.size < 2:
        return Estimate(centre, math.nan, math.nan, sample.size)
    half = float(stats.t.ppf(0.975, sample.size - 1) * sample.std(ddof=1) / math.sqrt(sample.size))
    return Estimate(centre, centre - half, centre + half, sample.size)


def median(values: Sequence[float]) -> Estimate:
    """Return the median, without an interval."""
    return Estimate(float(np.median(values)), math.nan, math.nan, len(values))


def share(hits: Sequence[bool]) -> Estimate:
    """Return a share in percent with Wilson's interval."""
    n, k = len(hits), int(np.sum(hits))
    z = 1.959964
    centre = (k + z * z / 2) / (n + z * z)
    half = z * math.sqrt(k * (n - k) / n + z * z / 4) / (n + z * z)
    return Estimate(100.0 * k / n, 100.0 * max(0.0, centre - half), 100.0 * min(1.0, centre + half), n)


def change(new: Sequence[float], old: Sequence[float]) -> Estimate:
    """Return by how many percent the mean of `new` differs from that of `old`, which is paired with it.

    The interval is a bootstrap over pairs: 10,000 resamples, seeded; below three pairs there is none.
    """
    pairs = np.column_stack((np.asarray(new, dtype=float), np.asarray(old, dtype=float)))
    if len(pairs) < 3:
        total = pairs.sum(axis=0)
        return Estimate(100.0 * (total[0] / total[1] - 1.0), math.nan, math.nan, len(pairs))
    draws = np.random.default_rng(0).integers(0, len(pairs), (10_000, len(pairs)))
    sums = pairs[draws].sum(axis=1)
    low, high = np.quantile(100.0 * (sums[:, 0] / sums[:, 1] - 1.0), (0.025, 0.975))
    total = pairs.sum(axis=0)
    return Estimate(100.0 * (total[0] / total[1] - 1.0), float(low), float(high), len(pairs))
