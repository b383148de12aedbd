"""Draw ascending arrival times in seconds up to a horizon."""

from __future__ import annotations

import dataclasses
from typing import Protocol

import numpy as np

from fleetgym.files.errors import FleetgymError


class Arrivals(Protocol):
    """A stream of arrivals."""

    @property
    def rate_rps(self) -> float:
        """Mean arrivals per second."""
        ...

    def draw(self, rng: np.random.Generator, until_s: float) -> np.ndarray:
        """Return ascending times in [0, until_s)."""
        ...


def _check_rate(rate_rps: float) -> None:
    if not 0.0 <= rate_rps < np.inf:
        raise FleetgymError(f"expected a rate of at least 0 requests/s, got {rate_rps}")


@dataclasses.dataclass(frozen=True)
class Poisson:
    """Independent arrivals at a constant rate.

    Examples
    --------
    >>> times = Poisson(10.0).draw(np.random.default_rng(0), 1000.0)
    >>> bool(9_500 < times.size < 10_500 and np.all(np.diff(times) >= 0))
    True
    """

    rate_rps: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_rps)

    def draw(self, rng: np.random.Generator, until_s: float) -> np.ndarray:
        """Return ascending times in [0, until_s)."""
        return _renewal(lambda n: rng.standard_exponential(n), self.rate_rps, 1.0, until_s)


@dataclasses.dataclass(frozen=True)
class Renewal:
    """Independent gamma-distributed gaps of a given squared coefficient of variation: 1 is Poisson, 0 is a clock.

    This is what ``arrival_cv2`` of an instance means.
    """

    rate_rps: float
    cv2: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_rps)
        if not 0.0 <= self.cv2 <= 1e4:
            raise FleetgymError(f"expected a cv2 from 0 to 10,000, got {self.cv2}")

    def draw(self, rng: np.random.Generator, until_s: float) -> np.ndarray:
        """Return ascending times in [0, until_s)."""
        if self.cv2 == 0.0:
            phase = rng.random()
            if self.rate_rps == 0.0:
                return np.empty(0)
            times = (phase + np.arange(np.ceil(until_s * self.rate_rps))) / self.rate_rps
            return times[times < until_s]
        shape = 1.0 / self.cv2
        return _renewal(lambda n: rng.gamma(shape, self.cv2, n), self.rate_rps, self.cv2, until_s)


@dataclasses.dataclass(frozen=True)
class GammaPoisson:
    """Poisson arrivals whose rate is drawn anew in every slot: counts per slot are negative binomial.

    Parameters
    ----------
    rate_rps : float
        Mean rate.
    dispersion : float
        Variance over mean of the count in a slot, at least 1.
    slot_s : float
        Length of a slot.

    Examples
    --------
    >>> times = GammaPoisson(5.0, 20.0, 10.0).draw(np.random.default_rng(0), 100_000.0)
    >>> counts = np.bincount((times / 10.0).astype(int))
    >>> bool(18.0 < counts.var() / counts.mean() < 22.0)
    True
    """

    rate_rps: float
    dispersion: float
    slot_s: float

    def __post_init__(self) -> None:
        _check_rate(self.rate_rps)
        if not (self.dispersion >= 1.0 and self.slot_s > 0.0):
            raise FleetgymError(
                f"expected a dispersion of at least 1 and a slot above 0 s, got {self.dispersion} and {self.slot_s}"
            )

    def draw(self, rng: np.random.Generator, until_s: float) -> np.ndarray:
        """Return ascending times in [0, until_s)."""
        slots, mean = int(np.ceil(until_s / self.slot_s)), self.rate_rps * self.slot_s
        if self.dispersion == 1.0 or mean == 0.0:
            return Poisson(self.rate_rps).draw(rng, until_s)
        excess = self.dispersion - 1.0
        counts = rng.poisson(rng.gamma(mean / excess, excess, slots))
        times = (np.repeat(np.arange(slots), counts) + rng.random(counts.sum())) * self.slot_s
        times.sort()
        return times[times < until_s]


@dataclasses.dataclass(frozen=True, eq=False)
class Trace:
    """Recorded arrival times, the same in every replication; they count from the beginning of the warm-up."""

    times_s: np.ndarray

    def __post_init__(self) -> None:
        times = np.asarray(self.times_s, dtype=float)
        if (
            times.ndim != 1
            or not np.all(np.isfinite(times))
            or np.any(times < 0)
            or np.any(np.diff(times) < 0)
        ):
            raise FleetgymError("expected ascending finite times of at least 0 s")
        object.__setattr__(self, "times_s", times)

    @property
    def rate_rps(self) -> float:
        """Mean arrivals per second up to the last one."""
        return (
            float(self.times_s.size / self.times_s[-1]) if self.times_s.size and self.times_s[-1] > 0 else 0.0
        )

    def draw(self, rng: np.random.Generator, until_s: float) -> np.ndarray:
        """Return the times before `until_s`; `rng` is not used."""
        return self.times_s[: np.searchsorted(self.times_s, until_s)]


def _renewal(gaps, rate_rps: float, cv2: float, until_s: float) -> np.ndarray:
    """Return arrivals whose gaps, of unit mean, come from `gaps(n)`."""
    if rate_rps <= 0.0:
        return np.empty(0)
    expected = rate_rps * until_s
    parts, reached = [], 0.0
    while reached < until_s:
        more = int(max(1.0, expected - reached * rate_rps) + 4.0 * np.sqrt(max(1.0, cv2) * expected) + 16)
        times = gaps(more)
        np.cumsum(times, out=times)
        times /= rate_rps
        times += reached
        parts.append(times)
        reached = float(times[-1])
    times = parts[0] if len(parts) == 1 else np.concatenate(parts)
    return times[: np.searchsorted(times, until_s)]
