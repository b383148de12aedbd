"""Replicate the simulation of a window independently until its intervals are tight enough."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

import numpy as np

from fleetgym.capacity.simulation import kernel
from fleetgym.capacity.simulation.fleet import Fleet, Pool, Requests, Workload, as_fleet, limit
from fleetgym.capacity.simulation.routers import Router, as_router
from fleetgym.files.errors import FleetgymError
from fleetgym.scoring.statistics import Estimate, looks, ratio

_STREAM = 0x73696D75  # so that no other part of the library draws the same numbers

#: Most requests of one replication: about a gigabyte of memory.
MAX_REQUESTS = 10_000_000


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Replication:
    """What one replication counted. Measured are the requests that arrive after the warm-up; W workloads, P pools."""

    requests: np.ndarray  # (W,) measured
    missed: np.ndarray  # (W,) measured and late, dropped, timed out, or never started
    refused: np.ndarray  # (W,) measured and dropped because no pool may serve it
    started: np.ndarray  # (W,) measured and started
    wait_s: np.ndarray  # (W,) sum over those
    waited_longer: (
        np.ndarray
    )  # (T, W) measured whose wait exceeded each threshold, those never started included
    ttft_p99_s: np.ndarray  # (W,) infinite where over 1 % never started, NaN without requests
    busy_s: np.ndarray  # (P,) slot-seconds within the window
    statuses: np.ndarray  # (7,) all requests, warm-up included, in the order of STATUSES
    unaccounted: int  # arrivals that are neither served, dropped, timed out, nor where the pools say they are
    area_s: (
        float  # integral of the number of requests in the pools over the whole run, kept by the event loop
    )
    time_inside_s: float  # sum of the times that requests spent there, from their records


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Simulation:
    """What the replications say. Estimates are per workload, (W,), unless stated."""

    fleet: Fleet
    window_s: float
    warmup_s: float
    confidence: float
    is_tight: bool  # whether every miss share met its tolerance
    replications: tuple[Replication, ...]
    thresholds_s: tuple[float, ...]

    def _stack(self, name: str) -> np.ndarray:
        return np.array([getattr(one, name) for one in self.replications], dtype=float)

    @property
    def miss_share(self) -> Estimate:
        """Share of requests that were late, dropped, timed out, or never started."""
        return ratio(self._stack("missed"), self._stack("requests"), self.confidence, is_share=True)

    @property
    def routed_miss_share(self) -> Estimate:
        """Miss share of the requests that some pool may serve."""
        refused = self._stack("refused")
        missed, requests = self._stack("missed") - refused, self._stack("requests") - refused
        return ratio(missed, requests, self.confidence, is_share=True)

    @property
    def mean_wait_s(self) -> Estimate:
        """Mean wait of the requests that started."""
        return ratio(self._stack("wait_s"), self._stack("started"), self.confidence)

    @property
    def wait_exceeds(self) -> Estimate:
        """Share of requests whose wait exceeded each of `thresholds_s`, (T, W)."""
        longer = self._stack("waited_longer")
        requests = np.broadcast_to(self._stack("requests")[:, None, :], longer.shape)
        return ratio(longer, requests, self.confidence, is_share=True)

    @property
    def ttft_p99_s(self) -> Estimate:
        """99th percentile of wait plus prefill; infinite where over 1 % never started, NaN without `percentiles`."""
        each = self._stack("ttft_p99_s")
        return ratio(each, np.ones_like(each), self.confidence)

    @property
    def utilization(self) -> Estimate:
        """Busy share of each pool's slots, (P,); NaN for a pool without any."""
        slot_s = np.array([pool.servers * self.window_s for pool in self.fleet.pools])
        busy = self._stack("busy_s")
        return ratio(busy, np.broadcast_to(slot_s, busy.shape), self.confidence)

    @property
    def statuses(self) -> dict[str, int]:
        """Number of requests by status at the end, over all replications, warm-up included."""
        total = self._stack("statuses").sum(axis=0)
        return {name: int(count) for name, count in zip(kernel.STATUSES, total, strict=True)}

    @property
    def unaccounted(self) -> int:
        """Requests that got lost: 0, or the simulator is broken."""
        return sum(one.unaccounted for one in self.replications)

    @property
    def littles_law_gap(self) -> float:
        """Largest relative difference of both sides of L = lambda W: round-off, or the simulator is broken."""
        return max(
            abs(one.area_s - one.time_inside_s) / max(one.area_s, one.time_inside_s, 1e-300)
            for one in self.replications
        )


def simulate(
    pools: Sequence[Pool] | Pool,
    workloads: Sequence[Workload] | Workload,
    *,
    router: Router | str = "least-loaded",
    window_s: float = 300.0,
    warmup_s: float | None = None,
    drain: bool = True,
    seed: int = 0,
    min_replications: int = 8,
    max_replications: int = 64,
    confidence: float = 0.99,
    absolute: float = 0.002,
    relative: float = 0.05,
    thresholds_s: Sequence[float] = (0.0,),
    percentiles: bool = False,
    batch: int = 1,
) -> Simulation:
    """Simulate a fleet request by request.

    Every replication begins with empty pools and a warm-up, whose requests are not measured. Requests that are
    dropped, or give up, miss their SLO.

    Parameters
    ----------
    pools, workloads : sequence of Pool and Workload, or one
        The fleet and its demand.
    router : Router or str
        One of `fleetgym.capacity.simulation.routers.ROUTERS`, or an object.
    window_s : float
        How long arrivals are measured.
    warmup_s : float, optional
        Time before that. By default ten mean service times and ten relaxation times (`default_warmup_s`).
    drain : bool
        Whether everybody who arrived is served after the window; otherwise the clock stops with it, and who has
        not started by then has missed its SLO.
    seed : int
        Replication k depends on the seed and k alone.
    min_replications, max_replications : int
        Replications before the first look, and in all.
    confidence : float
        Of all intervals.
    absolute, relative : float
        It stops when the half width of every miss share is at most the larger of `absolute` and `relative` times
        the share.
    thresholds_s : sequence of float
        For `Simulation.wait_exceeds`.
    percentiles : bool
        Whether to find `Simulation.ttft_p99_s`, which takes a while; otherwise it is NaN.
    batch : int
        Replications at a time, in as many threads. The results are the same.

    Returns
    -------
    Simulation

    Raises
    ------
    FleetgymError
        For a call that makes no sense, or over `MAX_REQUESTS` expected requests in a replication.

    Examples
    --------
    An M/M/4 queue in which a request may wait a second:

    >>> from fleetgym.kernels.queueing import wait_exceeds
    >>> pool = Pool(replicas=1, slots=4)
    >>> found = simulate(pool, Workload(arrivals=3.0, service_s=1.0, ttft_slo_s=1.0), window_s=3000.0)
    >>> bool(abs(found.miss_share.mean[0] - wait_exceeds(4, 3.0, 1.0, 1.0, 1.0, 1.0)) < found.miss_share.half_width[0])
    True
    >>> found.unaccounted, found.littles_law_gap < 1e-9
    (0, True)
    """
    fleet = as_fleet(pools, workloads)
    if not (0.0 < window_s < math.inf and (warmup_s is None or 0.0 <= warmup_s < math.inf)):
        raise FleetgymError(f"expected a finite window and warm-up, got {window_s} and {warmup_s} s")
    if not (
        2 <= min_replications <= max_replications and batch >= 1 and seed >= 0 and 0.0 < confidence < 1.0
    ):
        raise FleetgymError(
            "expected 2 <= min_replications <= max_replications, batch >= 1, seed >= 0, 0 < confidence < 1"
        )
    warmup = default_warmup_s(fleet, window_s) if warmup_s is None else float(warmup_s)
    expected = sum(w.rate_rps for w in fleet.workloads) * (window_s + warmup)
    if expected > MAX_REQUESTS:
        raise FleetgymError(
            f"{expected:.3g} requests in a replication are more than {MAX_REQUESTS:.3g}; "
            f"shorten the window ({window_s:g} s) or the warm-up ({warmup:g} s)"
        )
    one = _Runner(
        fleet, as_router(router), window_s, warmup, drain, seed, tuple(map(float, thresholds_s)), percentiles
    )
    stream = _replications(one, max_replications, batch)
    done: list[Replication] = []
    for count in looks(min_replications, max_replications):
        done.extend(islice(stream, count - len(done)))
        found = Simulation(
            fleet=fleet,
            window_s=window_s,
            warmup_s=warmup,
            confidence=confidence,
            is_tight=False,
            replications=tuple(done),
            thresholds_s=one.thresholds_s,
        )
        if found.miss_share.is_tight(absolute, relative):
            return dataclasses.replace(found, is_tight=True)
    return found


def default_warmup_s(fleet: Fleet, window_s: float) -> float:
    """Return ten mean service times and ten relaxation times of the whole fleet as one queue, at most ten windows.

    A queue forgets its beginning within a few relaxation times, E[S] / (c (1 - sqrt(rho))^2) for Poisson arrivals
    and exponential service (Morse, 1955); the fleet's fastest pools are assumed. Beyond rho = 1 there is no steady
    state.
    """
    servers = sum(pool.servers for pool in fleet.pools)
    busy, rate = 0.0, 0.0
    for w, workload in enumerate(fleet.workloads):
        inputs, outputs = (np.atleast_1d(np.mean(x)) for x in (workload.input_tokens, workload.output_tokens))
        seconds = workload.service_time.seconds(inputs, outputs, len(fleet.pools))[0]
        usable = seconds[fleet.can_serve[w] & np.isfinite(seconds)]
        if usable.size:
            busy += workload.rate_rps * float(usable.min())
            rate += workload.rate_rps
    if servers == 0 or rate == 0.0:
        return 0.0
    mean_s, rho = busy / rate, busy / servers
    relaxation_s = mean_s / (servers * (1.0 - math.sqrt(rho)) ** 2) if rho < 1.0 else math.inf
    return min(10.0 * (mean_s + relaxation_s), 10.0 * window_s)


@dataclasses.dataclass(frozen=True, eq=False)
class _Runner:
    """Runs replications by their numbers."""

    fleet: Fleet
    router: Router
    window_s: float
    warmup_s: float
    drain: bool
    seed: int
    thresholds_s: tuple[float, ...]
    percentiles: bool

    def __call__(self, number: int) -> Replication:
        fleet, stop_s = self.fleet, self.warmup_s + self.window_s
        rng = np.random.default_rng([_STREAM, self.seed, number])
        routing = self.router.route(fleet, fleet.draw(rng, stop_s), rng)
        pool = routing.fixed_pool
        if pool is None:
            service_s = fleet.draw_service_s(routing.requests, rng)
        else:
            service_s = fleet.draw_service_at_s(routing.requests, pool, rng)
        if np.any(service_s < 0.0):
            raise FleetgymError("a service time is negative")
        records = kernel.new_requests(routing.requests.arrival_s, routing.requests.tokens, routing.kind)
        pools = kernel.new_pools(
            [pool.replicas for pool in fleet.pools],
            [pool.slots for pool in fleet.pools],
            [limit(pool.kv_tokens) for pool in fleet.pools],
            [limit(pool.queue_limit) for pool in fleet.pools],
            [pool.patience_s for pool in fleet.pools],
        )
        end_s = math.inf if self.drain else stop_s
        kernel.play(records, service_s, routing.candidates, routing.policy, pools, end_s)
        prefill_s = fleet.draw_prefill_s(routing.requests, rng)
        return self._count(routing.requests, records, service_s, prefill_s, pools)

    def _count(
        self,
        requests: Requests,
        records: np.ndarray,
        service_s: np.ndarray,
        prefill_s: np.ndarray,
        pools: np.ndarray,
    ) -> Replication:
        fleet, count = self.fleet, len(self.fleet.workloads)
        totals = np.zeros((5, count))
        longer = np.zeros((len(self.thresholds_s), count))
        busy_s = np.zeros(len(pools))
        statuses = np.zeros(len(kernel.STATUSES), dtype=np.int64)
        ttft_s = np.empty(len(records))
        time_inside_s = kernel.count(
            records,
            requests.workload,
            service_s,
            prefill_s,
            np.array([w.ttft_slo_s for w in fleet.workloads]),
            self.warmup_s,
            self.warmup_s + self.window_s,
            np.array(self.thresholds_s),
            pools,
            totals,
            longer,
            busy_s,
            statuses,
            ttft_s,
        )
        return Replication(
            **dict(zip(("requests", "missed", "refused", "started", "wait_s"), totals, strict=True)),
            waited_longer=longer,
            ttft_p99_s=self._p99_s(requests, ttft_s) if self.percentiles else np.full(count, np.nan),
            busy_s=busy_s,
            statuses=statuses,
            unaccounted=_unaccounted(records, statuses, pools),
            area_s=float(pools["area_s"].sum()),
            time_inside_s=float(time_inside_s),
        )

    def _p99_s(self, requests: Requests, ttft_s: np.ndarray) -> np.ndarray:
        measured = requests.arrival_s >= self.warmup_s
        return np.array(
            [_p99(ttft_s[measured & (requests.workload == w)]) for w in range(len(self.fleet.workloads))]
        )


def _p99(values: np.ndarray) -> float:
    """Return the value that at most 1 % exceed; NaN of nothing."""
    if values.size == 0:
        return math.nan
    k = math.ceil(0.99 * values.size) - 1
    return float(np.partition(values, k)[k])


def _unaccounted(records: np.ndarray, statuses: np.ndarray, pools: np.ndarray) -> int:
    """Return how many arrivals are neither settled nor in the pool that they are said to be in."""
    inside = statuses[[kernel.IN_SERVICE, kernel.WAITING]]
    held = np.array([pools["busy"].sum(), pools["waiting"].sum()])
    mismatch = 0
    if inside.any() or held.any():
        for name, status in (("busy", kernel.IN_SERVICE), ("waiting", kernel.WAITING)):
            here = records["pool"][records["status"] == status]
            mismatch += int(np.abs(np.bincount(here, minlength=len(pools)) - pools[name]).sum())
    return abs(len(records) - int(statuses.sum() - inside.sum()) - int(held.sum())) + mismatch


def _replications(one: _Runner, most: int, batch: int) -> Iterator[Replication]:
    """Yield replications in order, `batch` at a time."""
    if batch == 1:
        yield from map(one, range(most))
        return
    with ThreadPoolExecutor(batch) as executor:
        for begin in range(0, most, batch):
            yield from executor.map(one, range(begin, min(begin + batch, most)))
