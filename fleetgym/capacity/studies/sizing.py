"""Find the cheapest pools for a demand.

Requests go by total length to the pool with the smallest context limit that is enough. Lengths being drawn
independently, each pool's arrivals are a Poisson stream of their own, so a pool's size depends on its own range of
lengths alone, and the best limits are a shortest path over the candidates: exact for any number of pools.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

from fleetgym.files.errors import FleetgymError
from fleetgym.hardware.performance.lengths import Lengths, mixture
from fleetgym.hardware.performance.profiles import Profile

from .pools import UTILIZATION_CAP, PoolQueue, Slos, slots_within
from .power import nodes_to_buy

HOURS_PER_YEAR = 8760


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Demand:
    """What has to be served.

    Parameters
    ----------
    lengths : Lengths
        Joint law of input and output tokens.
    rate_rps : float
        Poisson arrivals per second.
    slos : Slos
        P99 bounds, in every pool.
    utilization_cap : float
        Most busy share of the slots.
    availability : float
        Share of nodes that work; each pool is bought 1/availability times as large, rounded up.
    compressible : float
        Share of a borderline band that compression can shorten.
    """

    lengths: Lengths
    rate_rps: float
    slos: Slos
    utilization_cap: float = UTILIZATION_CAP
    availability: float = 1.0
    compressible: float = 0.75

    def __post_init__(self) -> None:
        if not 0.0 < self.rate_rps < math.inf:
            raise FleetgymError(f"rate_rps: expected requests per second above 0, got {self.rate_rps}")
        for name in ("utilization_cap", "availability"):
            if not 0.0 < getattr(self, name) <= 1.0:
                raise FleetgymError(f"{name}: expected a share in (0, 1], got {getattr(self, name)}")
        if not 0.0 <= self.compressible <= 1.0:
            raise FleetgymError(f"compressible: expected a share in [0, 1], got {self.compressible}")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class SizedPool:
    """A pool of a fleet; `needed` replicas serve, `replicas` are bought."""

    above: int  # longer requests than this come here
    context_tokens: int  # up to this
    share: float  # of all requests
    queue: PoolQueue
    needed: int
    replicas: int

    @property
    def usd_per_h(self) -> float:
        """Price of the replicas bought."""
        return self.replicas * self.queue.profile.usd_per_h

    @property
    def ttft_p99_s(self) -> float:
        """Analytical P99 TTFT of the replicas that serve."""
        return self.queue.ttft_p99_s(self.needed)


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class PoolFleet:
    """Pools from the shortest context to the longest."""

    pools: tuple[SizedPool, ...]
    gamma: float

    @property
    def usd_per_h(self) -> float:
        """Price of the fleet."""
        return sum(pool.usd_per_h for pool in self.pools)

    @property
    def usd_per_year(self) -> float:
        """Annual cost."""
        return self.usd_per_h * HOURS_PER_YEAR

    @property
    def replicas(self) -> int:
        """Replicas bought, all pools."""
        return sum(pool.replicas for pool in self.pools)

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Context limits of all pools but the last."""
        return tuple(pool.context_tokens for pool in self.pools[:-1])

    def describe(self) -> str:
        """Return the pools in words.

        Examples
        --------
        >>> from fleetgym.hardware.performance.lengths import published
        >>> from fleetgym.hardware.performance.profiles import PROFILES
        >>> demand = Demand(lengths=published("lmsys"), rate_rps=100.0, slos=Slos(ttft_s=0.5))
        >>> cheapest_fleets(demand, [PROFILES["H100-80GB"]], [4096, 65536])[0].describe()
        '1 H100-80GB up to 4096 + 3 H100-80GB up to 65536'
        """
        return " + ".join(f"{p.replicas} {p.queue.profile.name} up to {p.context_tokens}" for p in self.pools)


def pool_queue(
    demand: Demand,
    profile: Profile,
    *,
    above: int,
    context_tokens: int,
    gamma: float = 1.0,
    is_last: bool = True,
) -> tuple[PoolQueue | None, float]:
    """Return the queue of the pool for a range of lengths, and its share of the requests.

    With ``gamma`` > 1, a compressible share of the requests up to gamma times the limit is shortened to the limit
    and served here, *with* the lengths that it then has; the pool for longer requests gets what is left of it.

    Parameters
    ----------
    demand : Demand
        What has to be served.
    profile : Profile
        Of the replicas.
    above, context_tokens : int
        Requests with more than `above` and at most `context_tokens` tokens come here.
    gamma : float
        Compression factor.
    is_last : bool
        Whether nothing longer exists; then nothing is compressed into this pool.

    Returns
    -------
    queue : PoolQueue or None
        None where nobody comes.
    share : float
        Share of all requests.
    """
    lengths, share = _range_law(demand.lengths, above, context_tokens, gamma, is_last, demand.compressible)
    if lengths is None:
        return None, 0.0
    slots = slots_within(profile, lengths, context_tokens, demand.slos.tpot_s)
    return PoolQueue(profile=profile, lengths=lengths, rate_rps=share * demand.rate_rps, slots=slots), share


@functools.lru_cache(maxsize=4096)
def _range_law(
    lengths: Lengths, above: int, up_to: int, gamma: float, is_last: bool, compressible: float
) -> tuple[Lengths | None, float]:
    own_from = int(gamma * above)
    parts = [lengths.between(max(above, own_from), up_to)]
    left_over, share = lengths.between(above, min(own_from, up_to))
    parts.append((left_over, share * (1.0 - compressible)))
    if not is_last:
        band, share = lengths.between(up_to, int(gamma * up_to))
        parts.append((band.shortened_to(up_to) if band is not None else None, share * compressible))
    present = [(law, share) for law, share in parts if law is not None and share > 0.0]
    if not present:
        return None, 0.0
    return mixture(present), sum(share for _, share in present)


def sized_pool(
    demand: Demand,
    profiles: Sequence[Profile],
    *,
    above: int,
    context_tokens: int,
    gamma: float = 1.0,
    is_last: bool = True,
) -> SizedPool | None:
    """Return the cheapest pool for a range of lengths over the profiles; None where none keeps the SLOs."""
    best: SizedPool | None = None
    for profile in profiles:
        queue, share = pool_queue(
            demand, profile, above=above, context_tokens=context_tokens, gamma=gamma, is_last=is_last
        )
        needed = 0 if queue is None else queue.smallest(demand.slos, demand.utilization_cap)
        if queue is None or needed is None:
            continue
        pool = SizedPool(
            above=above,
            context_tokens=context_tokens,
            share=share,
            queue=queue,
            needed=needed,
            replicas=nodes_to_buy(needed, demand.availability),
        )
        if best is None or pool.usd_per_h < best.usd_per_h:
            best = pool
    return best


def cheapest_fleets(
    demand: Demand,
    profiles: Sequence[Profile],
    limits: Sequence[int],
    *,
    most_pools: int = 2,
    gammas: Sequence[float] = (1.0,),
) -> list[PoolFleet]:
    """Return the cheapest fleet for every number of pools and compression factor that keeps the SLOs.

    Parameters
    ----------
    demand : Demand
        What has to be served.
    profiles : sequence of Profile
        GPU types, each pool has one.
    limits : sequence of int
        Candidate context limits; the largest is that of the last pool.
    most_pools : int
        Largest number of pools.
    gammas : sequence of float
        Compression factors, at least 1.

    Returns
    -------
    list of PoolFleet
        Cheapest first; of equals, fewer pools and less compression first. Empty where the SLOs cannot be kept.

    Raises
    ------
    FleetgymError
        If the largest limit is below the longest request.
    """
    ends = sorted(set(limits))
    if not ends or not profiles or most_pools < 1 or any(gamma < 1.0 for gamma in gammas):
        raise FleetgymError(
            "expected limits, profiles, at least one pool, and compression factors of at least 1"
        )
    if ends[-1] < demand.lengths.most_tokens:
        raise FleetgymError(
            f"the largest context limit, {ends[-1]}, is below the longest request, {demand.lengths.most_tokens} tokens"
        )
    found = [
        fleet for gamma in gammas for fleet in _by_pools(demand, tuple(profiles), ends, most_pools, gamma)
    ]
    return sorted(found, key=lambda fleet: (round(fleet.usd_per_h, 9), len(fleet.pools), fleet.gamma))


def _by_pools(
    demand: Demand, profiles: tuple[Profile, ...], ends: list[int], most_pools: int, gamma: float
) -> list[PoolFleet]:
    """Return the cheapest fleet of each number of pools: a shortest path from 0 to the last limit."""
    last = len(ends) - 1

    @functools.cache
    def pool(begin: int, end: int) -> SizedPool | None:
        above = 0 if begin < 0 else ends[begin]
        return sized_pool(
            demand,
            profiles,
            above=above,
            context_tokens=ends[end],
            gamma=gamma if begin >= 0 or end < last else 1.0,
            is_last=end == last,
        )

    # best[k][e]: cheapest pools, k of them, up to limit e; -1 is nothing at all.
    best: dict[int, tuple[float, tuple[SizedPool, ...]]] = {-1: (0.0, ())}
    fleets = []
    for _ in range(min(most_pools, len(ends))):
        following: dict[int, tuple[float, tuple[SizedPool, ...]]] = {}
        for begin, (usd, pools) in best.items():
            for end in range(begin + 1, len(ends)):
                if (one := pool(begin, end)) is None:
                    continue
                if end not in following or usd + one.usd_per_h < following[end][0] - 1e-12:
                    following[end] = (usd + one.usd_per_h, (*pools, one))
        best = following
        if last in best:
            fleets.append(PoolFleet(pools=best[last][1], gamma=gamma))
    return fleets
