"""Numbers of instances by family in, their mean and how far it can be trusted out: intervals and p-values of scores."""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

from scipy.special import stdtr, stdtrit

#: Of intervals.
LEVEL = 0.95

Cluster = tuple[str, str]  # family, instance


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
        Standard error of the mean; None where a family has a single instance, whose spread nobody can tell.
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
        mean = math.fsum(math.fsum(of) / len(of) for of in families.values()) / len(families)
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
        """Return Student's interval of the mean; None where the spread cannot be told."""
        if self.error is None:
            return None
        reach = self.error and self.error * float(stdtrit(self.freedom, (1.0 + level) / 2.0))
        return self.mean - reach, self.mean + reach

    def p_value(self) -> float:
        """Return how likely a mean this far from zero is by chance: Student's test, two-sided.

        One where the spread cannot be told: nothing is known then against chance.
        """
        if self.error is None or self.mean == 0.0:
            return 1.0
        return 2.0 * float(stdtr(self.freedom, -abs(self.mean) / self.error)) if self.error else 0.0


def _combined(parts: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return the error of a sum and its degrees of freedom, from squared errors and degrees of what is added."""
    total = math.fsum(square for square, _ in parts)
    inverse = math.fsum((square / total) ** 2 / freedom for square, freedom in parts) if total else 0.0
    return math.sqrt(total), 1.0 / inverse if inverse else math.inf
