"""Check a fleet's P99 TTFT by the request-level simulator."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgym.capacity.simulation.fleet import Fleet, Pool, Requests, TokenTime, Workload
from fleetgym.capacity.simulation.kernel import NONE, SPILLOVER
from fleetgym.capacity.simulation.routers import Router, Routing
from fleetgym.capacity.simulation.run import Simulation, simulate
from fleetgym.hardware.performance.lengths import Lengths
from fleetgym.hardware.performance.profiles import Profile

from .pools import TAIL, PoolQueue, Slos

#: Requests measured in one replication, and the replications of a verdict.
REQUESTS = 20_000
SEEDS = 10


class ProfileTime(TokenTime):
    """Service or prefill times by profile, one per pool, as functions of a request's lengths.

    Parameters
    ----------
    profiles : sequence of Profile
        Of each pool.
    batches : sequence of int
        Slots of each pool's replicas for service times; empty for prefill at batch 1.
    """

    _profiles: tuple[Profile, ...]
    _batches: tuple[int, ...]

    def __init__(self, profiles: Sequence[Profile], batches: Sequence[int] = ()):
        super().__init__(np.nan)  # never used: both methods are replaced
        object.__setattr__(self, "_profiles", tuple(profiles))
        object.__setattr__(self, "_batches", tuple(batches))

    def seconds(self, input_tokens: np.ndarray, output_tokens: np.ndarray, num_pools: int) -> np.ndarray:
        """Return the durations of n requests on each pool, (n, P)."""
        if self._batches:
            pairs = zip(self._profiles, self._batches, strict=True)
            each = [profile.service_seconds(input_tokens, output_tokens, batch) for profile, batch in pairs]
        else:
            each = [profile.prefill_seconds(input_tokens) for profile in self._profiles]
        return np.stack(each, axis=1)

    def on_pool(self, pool: int, num_pools: int) -> ProfileTime:
        """Return the durations on one of the pools."""
        return ProfileTime(self._profiles[pool : pool + 1], self._batches[pool : pool + 1])


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class LengthWorkload(Workload):
    """A workload whose lengths are drawn from a law."""

    law_of_lengths: Lengths

    def draw_lengths(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return input and output lengths of n requests."""
        return self.law_of_lengths.draw(rng, n)


def workload_of(
    lengths: Lengths,
    rate_rps: float,
    profiles: Sequence[Profile],
    batches: Sequence[int],
    ttft_s: float,
) -> LengthWorkload:
    """Return the simulator's workload for a law of lengths on pools of given profiles; times are those of the law."""
    return LengthWorkload(
        arrivals=rate_rps,
        service_s=ProfileTime(profiles, batches),
        service_cv2=0.0,  # all variability is in the lengths
        prefill_s=ProfileTime(profiles),
        input_tokens=np.array([round(lengths.mean_input)]),
        output_tokens=np.array([round(lengths.mean_output)]),
        ttft_slo_s=ttft_s,
        law_of_lengths=lengths,
    )


def simulate_pool(
    queue: PoolQueue,
    replicas: int,
    slos: Slos,
    *,
    seeds: int = SEEDS,
    requests: int = REQUESTS,
    seed: int = 0,
    is_event: bool = False,
) -> Simulation:
    """Simulate one pool: Poisson arrivals, one queue, every slot a server.

    Parameters
    ----------
    queue : PoolQueue
        Demand and profile.
    replicas : int
        Of the pool.
    slos : Slos
        For the miss share.
    seeds, requests : int
        Independent replications, and requests measured in each; the window is at least 20 mean service times.
    seed : int
        First stream.
    is_event : bool
        Whether an empty pool is measured from its first request on, for exactly `requests` at the mean; else a steady
        state, after a warm-up.
    """
    window_s = requests / queue.rate_rps
    if not is_event:
        window_s = max(window_s, 20.0 * queue.mean_service_s)
    demand = workload_of(queue.lengths, queue.rate_rps, [queue.profile], [queue.slots], slos.ttft_s)
    return simulate(
        Pool(replicas=replicas, slots=queue.slots),
        demand,
        window_s=window_s,
        warmup_s=0.0 if is_event else None,
        seed=seed,
        min_replications=seeds,
        max_replications=seeds,
        confidence=0.95,
        percentiles=True,
        router="spillover",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Verdict:
    """What the simulator says of one pool."""

    replicas: int
    ttft_p99_s: float  # mean over the seeds
    ttft_p99_low_s: float  # 95 % interval of that mean
    ttft_p99_high_s: float
    late_share: float
    late_share_high: float  # upper end of its 95 % interval
    seeds_within: int  # seeds whose own P99 keeps the SLO
    seeds: int

    @property
    def is_kept(self) -> bool:
        """Whether at most 1 % are late, at the upper end of the interval."""
        return self.late_share_high <= TAIL


def judge(queue: PoolQueue, replicas: int, slos: Slos, **how: Any) -> Verdict:
    """Return the simulator's verdict on a pool; arguments as for `simulate_pool`."""
    found = simulate_pool(queue, replicas, slos, **how)
    p99, late = found.ttft_p99_s, found.miss_share
    own = np.array([one.ttft_p99_s[0] for one in found.replications])
    return Verdict(
        replicas=replicas,
        ttft_p99_s=float(p99.mean[0]),
        ttft_p99_low_s=float(p99.low[0]),
        ttft_p99_high_s=float(p99.high[0]),
        late_share=float(late.mean[0]),
        late_share_high=float(late.high[0]),
        seeds_within=int((own <= slos.ttft_s).sum()),
        seeds=len(own),
    )


@dataclasses.dataclass(frozen=True)
class RandomFitting:
    """A router: to a pool drawn with equal probability among those whose context limit is enough."""

    def route(self, fleet: Fleet, requests: Requests, rng: np.random.Generator) -> Routing:
        """Return one candidate per request; none fits where a request is too long for all."""
        limits = np.array([np.inf if pool.max_tokens is None else pool.max_tokens for pool in fleet.pools])
        fits = requests.tokens[:, None] <= limits[None, :]
        pick = np.floor(rng.random(len(requests)) * np.maximum(1, fits.sum(axis=1)))
        pool = np.argmax(np.cumsum(fits, axis=1) > pick[:, None], axis=1)
        count = limits.size
        candidates = np.full((count + 1, count), NONE, dtype=np.int32)
        candidates[:count, 0] = np.arange(count)
        return Routing(
            candidates, np.where(fits.any(axis=1), pool, count).astype(np.int32), SPILLOVER, requests
        )


def simulate_routed(
    pools: Sequence[tuple[Profile, int, int]],
    lengths: Lengths,
    rate_rps: float,
    slos: Slos,
    router: Router | str,
    *,
    seeds: int = SEEDS,
    requests: int = REQUESTS,
    seed: int = 0,
) -> Simulation:
    """Simulate a whole fleet under a router.

    Parameters
    ----------
    pools : sequence of (profile, replicas, context limit)
        The fleet.
    lengths, rate_rps, slos
        The demand.
    router : Router or str
        As for `fleetgym.simulate`.
    seeds, requests, seed
        As for `simulate_pool`.
    """
    slots = [profile.slots(context) for profile, _, context in pools]
    fleet = [
        Pool(name=f"up to {context}", replicas=replicas, slots=n, max_tokens=context)
        for (_, replicas, context), n in zip(pools, slots, strict=True)
    ]
    demand = workload_of(lengths, rate_rps, [profile for profile, _, _ in pools], slots, slos.ttft_s)
    return simulate(
        fleet,
        demand,
        router=router,
        window_s=requests / rate_rps,
        seed=seed,
        min_replications=seeds,
        max_replications=seeds,
        confidence=0.95,
        percentiles=True,
    )
