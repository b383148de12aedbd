"""Independent replications in, estimates with confidence intervals and the decision to stop out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator

import numpy as np


@dataclasses.dataclass(frozen=True, eq=False)
class Estimate:
    """A mean over replications, and how far the truth may be from it at the stated confidence."""

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
        """Tell whether every half width is within the larger of two tolerances; NaN, nothing seen, counts as tight."""
        allowed = np.maximum(absolute, relative * np.abs(self.mean))
        return bool(np.all(np.isnan(self.mean) | (self.half_width <= allowed)))


def student_t(confidence: float, degrees: int) -> float:
    """Return the two-sided quantile of Student's t.

    Examples
    --------
    >>> round(student_t(0.95, 9), 3)
    2.262
    """
    from scipy.special import stdtrit

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
        width is then that of so many independent trials: 1 - (1 - confidence)^(1/n).

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
