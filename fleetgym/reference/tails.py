"""Compute the probability that a queue's wait exceeds some time (section 5 of the model)."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that an arrival waits in M/M/c.

    Parameters
    ----------
    servers : int
        At least 1.
    load : float
        Offered load in busy servers, at least 0; from `servers` on, everyone waits.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> round(erlang_c(2, 1.0), 12)
    0.333333333333
    """
    if load >= servers:
        return 1.0
    if load <= 0.0:
        return 0.0
    # 1/B(n) = 1 + n / load · 1/B(n-1). Far below the load it forgets where it began.
    begin = max(0, math.floor(load - 10 * math.sqrt(load)))
    inverse_b = 1.0
    for n in range(begin + 1, servers + 1):
        inverse_b = 1.0 + n / load * inverse_b
        if inverse_b > 1e300:
            return 0.0
    return servers / ((servers - load) * inverse_b + load)


def chance_to_wait(servers: int, load: float, arrival_cv2: float) -> float:
    """Return the probability that an arrival waits where arrivals are burstier, or steadier, than Poisson's.

    Parameters
    ----------
    servers : int
        At least 1.
    load : float
        Offered load in busy servers, at least 0.
    arrival_cv2 : float
        Squared coefficient of variation of the times between arrivals, at least 0.

    Returns
    -------
    float
        In [0, 1]: Erlang's C for servers and load divided by the peakedness (1 + arrival_cv2) / 2. Between whole
        numbers of servers log C is linear, at the same utilisation; without servers everyone waits.

    Examples
    --------
    >>> chance_to_wait(6, 3.0, 5.0) == erlang_c(2, 1.0)
    True
    >>> round(chance_to_wait(1, 0.25, 3.0), 12)  # half a server
    0.5
    """
    if load <= 0.0 or load >= servers or arrival_cv2 == 1.0:
        return erlang_c(servers, load)
    u = load / servers
    whole, part = divmod(2 * servers / (1 + arrival_cv2), 1.0)
    below, above = (erlang_c(n, u * n) for n in (int(whole), int(whole) + 1))
    return below ** (1 - part) * above**part


def mixture(shares: Sequence[float], services: Sequence[float], cv2s: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the squared coefficient of variation of a mixture of service times."""
    mean = math.fsum(p * s for p, s in zip(shares, services, strict=True))
    if mean <= 0.0:
        return 0.0, 0.0
    second = math.fsum(p * (1 + v) * s * s for p, s, v in zip(shares, services, cv2s, strict=True))
    # Round-off may take the variance of a constant below zero.
    return mean, max(0.0, second / mean**2 - 1)


@dataclasses.dataclass(frozen=True)
class Queue:
    """A configuration's replicas as one queue."""

    servers: int
    load: float
    mean_service_s: float
    cv2: float  # of service
    arrival_cv2: float

    def waits_longer(self, seconds: float) -> float:
        """P(W > seconds), for seconds of at least 0."""
        if self.mean_service_s <= 0.0 or self.load <= 0.0 or math.isinf(seconds):
            return 0.0
        if self.load >= self.servers:
            return 1.0
        variation = self.arrival_cv2 + self.cv2
        if variation <= 0.0:
            return 0.0
        decay = 2 * (self.servers - self.load) / self.mean_service_s / variation
        return self.chance_to_wait * math.exp(-decay * seconds)

    @functools.cached_property
    def chance_to_wait(self) -> float:
        """P(W > 0), the same for all that queue here."""
        return chance_to_wait(self.servers, self.load, self.arrival_cv2)
