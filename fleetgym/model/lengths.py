"""State how the lengths of a workload's requests vary: quantiles, relative to their mean."""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist

import numpy as np

from fleetgym.files import quantities as q
from fleetgym.files.errors import DataError
from fleetgym.files.schema import Checked, ListOf, documented, shown, spec

#: Where the constructors take quantiles: SLOs ask for the tail.
SHARES = (0.0, 0.25, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.998, 0.999, 1.0)
MEAN_TOLERANCE = 1e-6
_NODES = (2, 16)


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class LengthLaw(Checked):
    """A distribution of lengths with mean 1: its quantile function, linear between nodes.

    Equal factors side by side are requests of one length.

    Examples
    --------
    >>> law = LengthLaw(shares=(0, 0.5, 1), factors=(0, 1, 2))
    >>> float(law.survival(1.5)), float(law.mean_below(1.0))
    (0.25, 0.5)
    >>> LengthLaw(shares=(0, 1), factors=(1, 2))
    Traceback (most recent call last):
    ...
    fleetgym.files.errors.DataError: LengthLaw.factors: expected a mean of 1, got 1.5
    """

    shares: tuple[float, ...] = spec(ListOf(q.SHARE, *_NODES), doc="of the requests, ascending from 0 to 1")
    factors: tuple[float, ...] = spec(
        ListOf(q.LENGTH_FACTOR, *_NODES),
        doc="times the mean length, which these shares of the requests do not exceed; their mean is 1",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        shares, factors, where = np.array(self.shares), np.array(self.factors), type(self).__name__
        if shares[0] != 0.0 or shares[-1] != 1.0 or np.any(np.diff(shares) <= 0.0):
            raise DataError(
                f"expected numbers that rise from 0 to 1, got {shown(self.shares)}", f"{where}.shares"
            )
        if shares.size != factors.size or np.any(np.diff(factors) < 0.0):
            raise DataError(
                f"expected {shares.size} numbers, one per share, none below the one before, got "
                f"{shown(self.factors)}",
                f"{where}.factors",
            )
        mean = _mean(shares, factors)
        if not abs(mean - 1.0) <= MEAN_TOLERANCE:
            raise DataError(f"expected a mean of 1, got {mean:.9g}", f"{where}.factors")

    @classmethod
    def lognormal(cls, cv2: float) -> LengthLaw:
        """Return the law of lognormal lengths.

        Parameters
        ----------
        cv2 : float
            Squared coefficient of variation of the lengths, from 0 to 1e6.

        Examples
        --------
        >>> round(float(LengthLaw.lognormal(1.0).survival(2.0)), 3)
        0.103
        """
        q.CV2.read(cv2, "cv2")
        deviation, normal = math.sqrt(math.log1p(cv2)), NormalDist()
        inner = [normal.inv_cdf(share) for share in SHARES[1:-1]]
        quantiles = np.exp(deviation * np.array([inner[0], *inner, inner[-1]]) - 0.5 * deviation**2)
        # Of all tokens, these shares are in the first and in the last requests.
        first, last = normal.cdf(inner[0] - deviation), normal.cdf(deviation - inner[-1])
        return cls._of_quantiles(quantiles, first / SHARES[1], last / (1.0 - SHARES[-2]))

    @classmethod
    def of_sample(cls, lengths: np.ndarray, weights: np.ndarray | None = None) -> LengthLaw:
        """Return the law of measured lengths, whatever their unit.

        Parameters
        ----------
        lengths : ndarray, shape (n,)
            At least 0, and not all of them 0.
        weights : ndarray, shape (n,), optional
            How often each length was seen; by default once.

        Raises
        ------
        DataError
            If there is no length above 0.

        Examples
        --------
        >>> LengthLaw.of_sample(np.array([100, 100, 100])).factors[:3]
        (1.0, 1.0, 1.0)
        """
        values = np.asarray(lengths, dtype=float)
        counts = np.ones(values.size) if weights is None else np.asarray(weights, dtype=float)
        if values.shape != counts.shape or not np.all(values >= 0.0) or not np.all(counts >= 0.0):
            raise DataError("expected lengths and weights of at least 0, one weight per length", "lengths")
        order = np.argsort(values, kind="stable")
        values, counts = values[order], counts[order]
        tokens = float(counts @ values)
        if not 0.0 < tokens < np.inf:
            raise DataError("expected a length above 0", "lengths")
        ends = np.cumsum(counts) / counts.sum()
        # The tokens of the shortest requests, up to each share of them.
        known, sums = np.append(0.0, ends), np.append(0.0, np.cumsum(counts * values)) / counts.sum()
        below = np.interp(SHARES, known, sums)
        at = np.minimum(np.searchsorted(ends, SHARES), values.size - 1)
        first, last = below[1] / SHARES[1], (below[-1] - below[-2]) / (1.0 - SHARES[-2])
        return cls._of_quantiles(values[at], first, last)

    @classmethod
    def _of_quantiles(cls, quantiles: np.ndarray, first: float, last: float) -> LengthLaw:
        """Return the law of quantiles at `SHARES`, but for its ends: these give the first and the last bin's means."""
        factors = quantiles.copy()
        factors[0] = np.clip(2.0 * first - factors[1], 0.0, factors[1])
        factors[-1] = max(2.0 * last - factors[-2], factors[-2])
        factors /= _mean(np.array(SHARES), factors)
        # Few enough digits to be the same on every machine.
        return cls(shares=SHARES, factors=tuple(float(f"{factor:.9g}") for factor in factors))

    def draw(self, rng: np.random.Generator, n: int) -> np.ndarray:
        """Return the factors of n requests, (n,)."""
        return np.interp(rng.random(n), self.shares, self.factors)

    def survival(self, x: float | np.ndarray) -> np.ndarray:
        """Return the share of the requests whose factor exceeds x, in the shape of x."""
        return (1.0 - self._parts(x)) @ np.diff(self.shares)

    def mean_below(self, x: float | np.ndarray) -> np.ndarray:
        """Return the mean factor of the requests whose factor is at most x; the least factor where there are none."""
        parts, low, wide = self._parts(x), np.array(self.factors[:-1]), np.diff(self.factors)
        shares = parts * np.diff(self.shares)
        total = shares.sum(axis=-1)
        mean = (shares * (low + 0.5 * parts * wide)).sum(axis=-1) / np.where(total > 0.0, total, 1.0)
        return np.where(total > 0.0, mean, low[0])

    def _parts(self, x: float | np.ndarray) -> np.ndarray:
        """Return the part of each bin's requests whose factor is at most x, (..., bins)."""
        at, low, wide = (
            np.asarray(x, dtype=float)[..., None],
            np.array(self.factors[:-1]),
            np.diff(self.factors),
        )
        part = np.clip((at - low) / np.where(wide > 0.0, wide, 1.0), 0.0, 1.0)
        return np.where(wide > 0.0, part, at >= low)


def _mean(shares: np.ndarray, factors: np.ndarray) -> float:
    return float(np.diff(shares) @ (0.5 * (factors[1:] + factors[:-1])))
