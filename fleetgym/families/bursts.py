"""Compute the index of dispersion of bursty arrivals at any scale, and sample such arrivals.

Two laws, because two kinds of traffic differ in what grows with the rate. *Modulated* arrivals are Poisson at a rate
that wanders, so their dispersion grows with the rate: chat. *Clustered* arrivals come in groups, each spread over some
seconds, so their dispersion does not depend on the rate: code, where one user's editor sends many requests at once.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from fleetgym.model.dynamics.demand import stationary_ou


@dataclasses.dataclass(frozen=True)
class BurstLaw:
    """How arrivals bunch."""

    kind: str  # "modulated" or "clustered"
    size: float  # modulated: standard deviation of the rate / mean; clustered: I(infinity) - 1
    time_s: float  # modulated: of the rate's memory; clustered: over which a group is spread

    def dispersion(self, rate_rps: float, scale_s: float) -> float:
        """Return variance over mean of the counts of windows of `scale_s` seconds.

        Examples
        --------
        >>> code = BurstLaw("clustered", 170.0, 8.0)
        >>> round(code.dispersion(2.57, 10.0)), round(code.dispersion(2.57, 300.0))
        (74, 166)
        """
        return 1.0 + self._excess(rate_rps) * settled(scale_s / self.time_s)

    def noise_sd(self, window_s: float) -> float:
        """Return the standard deviation of a window's rate / mean that the wandering rate causes: 0 if clustered."""
        if self.kind == "clustered":
            return 0.0
        return self.size * math.sqrt(2.0 * self.time_s / window_s * settled(window_s / self.time_s))

    def counts(self, rng: np.random.Generator, rate_rps: float, bins: int, bin_s: float) -> np.ndarray:
        """Draw requests per bin, int64 (bins,).

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of randomness.
        rate_rps : float
            Mean arrivals per second.
        bins : int
            How many.
        bin_s : float
            Length of one; well below `time_s`.
        """
        if self.kind == "modulated":
            phi = np.array([math.exp(-bin_s / self.time_s)])
            wander = stationary_ou(rng, bins, np.array([self.size]), phi)[:, 0]
            return rng.poisson(rate_rps * bin_s * np.maximum(0.0, 1.0 + wander))
        # Neyman and Scott: groups of a Poisson number of requests, each at an exponential time after the group's event.
        mean = self._excess(rate_rps)  # I(infinity) = 1 + m: a request of a group sees m others on average
        lead_s = 10.0 * self.time_s
        total_s = lead_s + bins * bin_s
        events = rng.uniform(0.0, total_s, rng.poisson(total_s * rate_rps / mean))
        at = np.repeat(events, rng.poisson(mean, len(events)))
        at = at + rng.exponential(self.time_s, len(at)) - lead_s
        inside = at[(at >= 0.0) & (at < bins * bin_s)]
        return np.bincount((inside / bin_s).astype(np.int64), minlength=bins)[:bins]

    def _excess(self, rate_rps: float) -> float:
        if self.kind == "clustered":
            return self.size
        return 2.0 * rate_rps * self.size**2 * self.time_s


def settled(ratio: float) -> float:
    """Return the share of the excess dispersion that windows of `ratio` times the law's time show.

    Examples
    --------
    >>> round(settled(1.0), 3), round(settled(100.0), 3)
    (0.368, 0.99)
    """
    return 1.0 - (1.0 - math.exp(-ratio)) / ratio


#: Fitted by hand to an hour of Azure's requests, 2023-11-16 (index of dispersion about the means of five minutes, by
#: seconds): chat 1.3 at 2, 1.8 at 10, 5.3 at 60; code 23, 70, 175, and 152 at 300. `tools/demand_statistics.py`.
CHAT = BurstLaw("modulated", 0.122, 120.0)
CODE = BurstLaw("clustered", 170.0, 8.0)


#: Of code's groups, at least: the minutes of Azure's week (28 requests/s) vary so little that its index at 60 s is 14.
LEAST_CODE = 14.0


def drawn(rng: np.random.Generator, law: BurstLaw, calmest: float = 1.0) -> BurstLaw:
    """Return a law whose size and time are up to a third smaller or larger: assumed.

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    law : BurstLaw
        What to start from.
    calmest : float
        The size is multiplied by a factor between this and 1, too, uniform in its logarithm.
    """
    size, time = np.exp(rng.uniform(-0.3, 0.3, 2))
    size *= math.exp(rng.uniform(math.log(calmest), 0.0))
    return dataclasses.replace(law, size=round(law.size * size, 4), time_s=round(law.time_s * time, 1))
