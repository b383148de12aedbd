"""Compute what a load costs in late requests, as segments that the routing can price (section 3 of the model)."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

from fleetgym.reference.conditions import Book
from fleetgym.reference.tails import Queue, mixture

#: Largest utilisation of servers.
U_MAX = 0.95
#: Share of late requests up to which a load counts as safe.
SAFE_MISS = 0.001
SEGMENTS = 3


@dataclasses.dataclass(frozen=True)
class LateSegments:
    """What a load costs in late requests, piecewise linear in busy servers.

    Attributes
    ----------
    u_safe : float
        Utilisation up to which lateness is free.
    width : float
        Busy servers per segment.
    slopes : tuple of float
        USD per window and busy server, one per segment, not decreasing.
    """

    u_safe: float
    width: float
    slopes: tuple[float, ...]


_NEVER_LATE = LateSegments(U_MAX, 0.0, (0.0,) * SEGMENTS)


def late_segments(book: Book, c: int, replicas: int) -> LateSegments:
    """Section 3 for one configuration and replica count, at nominal rates, lengths and factors."""
    served = [i for i in range(book.num_workloads) if book.compatible[i][c]]
    workloads = [book.workloads[i] for i in served]
    lengths = [(i, c, w.input_tokens, w.output_tokens) for i, w in zip(served, workloads, strict=True)]
    total = math.fsum(w.rate_rps for w in workloads)
    shares = [w.rate_rps / total for w in workloads]
    mean, cv2 = mixture(
        shares, [book.service.at(*a) for a in lengths], [book.service_cv2[i][c] for i in served]
    )
    if (
        mean == 0.0
        or all(w.late_usd == 0.0 for w in workloads)
        or all(w.ttft_slo_s is None for w in workloads)
    ):
        return _NEVER_LATE
    arrival_cv2 = math.fsum(p * w.arrival_cv2 for p, w in zip(shares, workloads, strict=True))
    first = [book.first_token(*a) for a in lengths]
    servers = replicas * book.configurations[c].max_concurrency

    def late_shares(u: float) -> list[float]:
        queue = Queue(servers, u * servers, mean, cv2, arrival_cv2)
        return [(1 - own) * queue.waits_longer(patience) if own < 1 else 0.0 for own, patience in first]

    def miss(u: float) -> float:
        return math.fsum(p * q for p, q in zip(shares, late_shares(u), strict=True))

    def usd(u: float) -> float:
        late = zip(shares, workloads, late_shares(u), strict=True)
        return u * servers / mean * book.window_s * math.fsum(p * w.late_usd * q for p, w, q in late)

    return _segments(_largest(lambda u: miss(u) <= SAFE_MISS, U_MAX), servers, usd)


def _segments(u_safe: float, servers: int, usd: Callable[[float], float]) -> LateSegments:
    """Return the three chords of `usd` between u_safe and u_max, made convex."""
    step = (U_MAX - u_safe) / SEGMENTS
    width = servers * step
    if width == 0.0:
        return _NEVER_LATE
    ends = [usd(u_safe + b * step) for b in range(SEGMENTS)] + [usd(U_MAX)]
    slopes = [0.0]
    for b in range(SEGMENTS):
        slopes.append(max(slopes[-1], (ends[b + 1] - ends[b]) / width))
    return LateSegments(u_safe, width, tuple(slopes[1:]))


def _largest(holds: Callable[[float], bool], upper: float) -> float:
    """Return the largest number up to `upper` for which `holds`, which is true at 0, by bisection."""
    if holds(upper):
        return upper
    low, high = 0.0, upper
    while high - low > 2.0**-40:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
