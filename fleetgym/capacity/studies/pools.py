"""Compute waits, late shares, percentiles and GPU counts of one pool, a queue of slots."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math

import numpy as np

from fleetgym.files.errors import FleetgymError
from fleetgym.hardware.performance.lengths import Lengths
from fleetgym.hardware.performance.profiles import Profile
from fleetgym.kernels.queueing import wait_exceeds, wait_percentile

TAIL = 0.01  # share of requests beyond a P99
UTILIZATION_CAP = 0.85  # inference-fleet-sim, section 3.1
MOST_REPLICAS = 5000
_BISECTIONS = 60


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Slos:
    """What at least 99 % of the requests shall get; infinite for no bound."""

    ttft_s: float = math.inf
    tpot_s: float = math.inf

    def __post_init__(self) -> None:
        if not (self.ttft_s > 0.0 and self.tpot_s > 0.0):
            raise FleetgymError(f"expected SLOs above 0 s, got TTFT {self.ttft_s} and TPOT {self.tpot_s}")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PoolQueue:
    """An M/G/c queue whose servers are the KV slots of a pool's replicas.

    Service times are those at full slots, as inference-fleet-sim assumes; the first token comes after the wait and a
    prefill at batch 1, which depends on the prompt. Moments are sums over every length.

    Parameters
    ----------
    profile : Profile
        Of a replica.
    lengths : Lengths
        Of the requests that come here.
    rate_rps : float
        How many, per second.
    slots : int
        Requests that one replica serves at once.

    Examples
    --------
    >>> from fleetgym.hardware.performance.lengths import published
    >>> from fleetgym.hardware.performance.profiles import PROFILES
    >>> pool = PoolQueue(profile=PROFILES["H100-80GB"], lengths=published("azure"), rate_rps=100.0, slots=128)
    >>> pool.smallest(Slos(ttft_s=0.5)), round(pool.ttft_p99_s(7), 4)
    (7, 0.0259)
    """

    profile: Profile
    lengths: Lengths
    rate_rps: float
    slots: int

    @functools.cached_property
    def _moments(self) -> tuple[float, float]:
        return self.profile.service_moments(self.lengths, self.slots)

    @property
    def mean_service_s(self) -> float:
        """E[S]."""
        return self._moments[0]

    @property
    def service_cv2(self) -> float:
        """Squared coefficient of variation of S."""
        return self._moments[1]

    @functools.cached_property
    def _prefill(self) -> tuple[np.ndarray, np.ndarray]:
        """Distinct prefill times, rising, and their probabilities."""
        density = self.lengths.input_density
        tokens = np.flatnonzero(density)
        times, place = np.unique(self.profile.prefill_seconds(tokens), return_inverse=True)
        return times, np.bincount(place, weights=density[tokens])

    def at_rate(self, rate_rps: float) -> PoolQueue:
        """Return the same pool at another arrival rate, with what is already known of its requests."""
        other = copy.copy(self)
        object.__setattr__(other, "rate_rps", rate_rps)
        return other

    def prefill_quantile_s(self, share: float) -> float:
        """Return the prefill time that at least `share` of the requests do not exceed."""
        times, shares = self._prefill
        place = int(np.searchsorted(np.cumsum(shares), share * shares.sum() - 1e-12))
        return float(times[min(place, times.size - 1)])

    @property
    def tpot_p99_s(self) -> float:
        """99th percentile of the time per output token, all slots in use."""
        return self.profile.step_s(self.slots, self.lengths.quantile(1.0 - TAIL))

    def utilization(self, replicas: int) -> float:
        """Return the busy share of the slots; at least 1 is unstable."""
        servers = replicas * self.slots
        return self.rate_rps * self.mean_service_s / servers if servers else math.inf

    def wait_p99_s(self, replicas: int) -> float:
        """Return the wait that 1 % of the requests exceed; infinite where the queue is unstable."""
        servers = replicas * self.slots
        if servers == 0:
            return math.inf
        return float(
            wait_percentile(servers, self.rate_rps, self.mean_service_s, self.service_cv2, 1.0, TAIL)
        )

    def late_share(self, replicas: int, ttft_s: float) -> float:
        """Return P(wait + prefill > `ttft_s`), over the law of the prompts."""
        servers = replicas * self.slots
        if servers == 0:
            return 1.0
        times, shares = self._prefill
        offered = self.rate_rps * self.mean_service_s
        if offered >= servers:
            return 1.0
        waiting = wait_exceeds(servers, self.rate_rps, self.mean_service_s, self.service_cv2, 1.0, 0.0)
        decay = 2.0 * (servers - offered) / (self.mean_service_s * (1.0 + self.service_cv2))
        slack = ttft_s - times
        late = np.where(slack < 0.0, 1.0, waiting * np.exp(-decay * np.maximum(slack, 0.0)))
        return float(late @ shares / shares.sum())

    def ttft_p99_s(self, replicas: int) -> float:
        """Return the 99th percentile of wait plus prefill; infinite where the queue is unstable."""
        if self.utilization(replicas) >= 1.0:
            return math.inf
        low, high = 0.0, self.wait_p99_s(replicas) + float(self._prefill[0][-1])
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            low, high = (low, middle) if self.late_share(replicas, middle) <= TAIL else (middle, high)
        return high

    def smallest(
        self, slos: Slos, utilization_cap: float = UTILIZATION_CAP, most: int = MOST_REPLICAS
    ) -> int | None:
        """Return the fewest replicas that keep the SLOs and the utilisation cap, or None where none do.

        None, too, if prefill alone is too late for more than 1 % of the requests, which no GPU count heals.
        """
        if self.rate_rps <= 0.0:
            return 0
        if (
            self.slots < 1
            or self.tpot_p99_s > slos.tpot_s
            or self.prefill_quantile_s(1.0 - TAIL) > slos.ttft_s
        ):
            return None
        count = max(1, math.ceil(self.rate_rps * self.mean_service_s / (utilization_cap * self.slots) - 1e-9))
        while count <= most and self.late_share(count, slos.ttft_s) > TAIL:
            count += 1
        return count if count <= most else None


def slots_within(profile: Profile, lengths: Lengths, context_tokens: int, tpot_s: float) -> int:
    """Return the most slots of a replica whose P99 time per output token keeps a bound; 0 where none do.

    An engine's cap on sequences: fewer in the batch make every step faster.

    Examples
    --------
    >>> from fleetgym.hardware.performance.lengths import published
    >>> from fleetgym.hardware.performance.profiles import PROFILES
    >>> slots_within(PROFILES["A100-80GB"], published("azure"), 8192, 0.05)
    72
    """
    most, length = profile.slots(context_tokens), lengths.quantile(1.0 - TAIL)
    each = profile.step_s(1, length) - profile.step_s(0, length)
    if each <= 0.0 or math.isinf(tpot_s):
        return most if profile.step_s(most, length) <= tpot_s else 0
    found = min(most, int((tpot_s - profile.step_s(0, length)) / each + 1e-9))
    return max(0, found)
