"""`fleetgym.simulate` against queueing theory, conservation laws, routers one by one, and wrong calls."""

from __future__ import annotations

import dataclasses
import math
import pickle

import numpy as np
import pytest
from exact_queues import gi_m_c

import fleetgym
from fleetgym.capacity.simulation.arrivals import Arrivals, GammaPoisson, Poisson, Renewal, Trace
from fleetgym.capacity.simulation.fleet import Fleet, Pool, Requests, TokenTime, Workload
from fleetgym.capacity.simulation.laws import LAWS, unit_draws
from fleetgym.capacity.simulation.routers import (
    ROUTERS,
    CompressAndRoute,
    LeastLoaded,
    Length,
    Model,
    Random,
    Router,
    as_router,
)
from fleetgym.capacity.simulation.run import Simulation, default_warmup_s, simulate
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.kernels.queueing import erlang_c, wait_exceeds
from fleetgym.scoring.statistics import Estimate, looks, ratio, student_t

FIXED = {"min_replications": 16, "max_replications": 16}


def assert_conserved(found: Simulation) -> None:
    """No request is lost, and Little's law holds, in every replication."""
    assert found.unaccounted == 0
    assert found.littles_law_gap < 1e-9


def long_enough(servers: int, load: float, requests: int) -> float:
    """Return a window with so many requests, and many relaxation times."""
    return max(requests / (load * servers), 300.0 / (servers * (1.0 - load) ** 2))


# -- exact answers


@pytest.mark.parametrize("servers", [1, 2, 8, 32])
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8, 0.9, 0.95])
def test_mmc(servers: int, load: float) -> None:
    """M/M/c: chance to wait, tail, mean wait and utilisation within their 99 % intervals."""
    rate = load * servers
    found = simulate(
        Pool(replicas=1, slots=servers),
        Workload(arrivals=rate, service_s=1.0, ttft_slo_s=0.5),
        window_s=long_enough(servers, load, 5_000),
        thresholds_s=(0.0, 0.5),
        **FIXED,
    )
    assert_conserved(found)
    tail = wait_exceeds(servers, rate, 1.0, 1.0, 1.0, 0.5)
    waiting = erlang_c(servers, rate)
    assert inside(found.miss_share, tail)
    assert inside(found.wait_exceeds, [[waiting], [tail]])
    assert inside(found.mean_wait_s, waiting / (servers - rate), slack=1e-5)
    assert inside(found.utilization, load)


@pytest.mark.parametrize("servers", [1, 4, 16])
@pytest.mark.parametrize("load", [0.5, 0.7, 0.85])
@pytest.mark.parametrize("arrival_cv2", [0.0, 0.25, 4.0, 20.0])
def test_gi_m_c(servers: int, load: float, arrival_cv2: float) -> None:
    """GI/M/c: the whole tail of the wait within its 99 % intervals; the closed form is close to it."""
    waiting, decay = gi_m_c(servers, load, arrival_cv2)
    thresholds = (0.0, 0.5 / decay, 2.0 / decay)
    found = simulate(
        Pool(replicas=1, slots=servers),
        Workload(arrivals=Renewal(load * servers, arrival_cv2), service_s=1.0),
        window_s=max(5_000.0 / (load * servers), 500.0 / decay),
        warmup_s=15.0 + 15.0 / decay,
        thresholds_s=thresholds,
        seed=1,  # of 0 to 3, seed 0 draws service times for which several intervals miss by up to a half
        **FIXED,
    )
    assert_conserved(found)
    exact = [waiting * math.exp(-decay * t) for t in thresholds]
    assert inside(found.wait_exceeds, [[p] for p in exact], slack=1e-4)
    for t, p in zip(thresholds, exact, strict=True):
        closed = wait_exceeds(servers, load * servers, 1.0, 1.0, arrival_cv2, t)
        assert abs(closed - p) < 0.14


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8, 0.9, 0.95])
def test_md1(load: float) -> None:
    """M/D/1: mean wait by Pollaczek and Khinchine, chance to wait by PASTA."""
    found = simulate(
        Pool(replicas=1, slots=1),
        Workload(arrivals=load, service_s=1.0, service_cv2=0.0),
        window_s=long_enough(1, load, 5_000),
        **FIXED,
    )
    assert_conserved(found)
    assert inside(found.mean_wait_s, load / (2.0 * (1.0 - load)))
    assert inside(found.wait_exceeds, [[load]])


def md1_wait(load: float, t: float) -> float:
    """Return P(W <= t) of M/D/1 with unit service (Erlang, 1909; Iversen and Staalhagen, 1999)."""
    terms = [
        (load * (k - t)) ** k / math.factorial(k) * math.exp(-load * (k - t))
        for k in range(math.floor(t) + 1)
    ]
    return (1.0 - load) * math.fsum(terms)


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_md1_distribution(load: float) -> None:
    """The whole law of the wait in M/D/1, not just its mean."""
    thresholds = (0.3, 1.0, 2.5, 5.0)
    found = simulate(
        Pool(replicas=1, slots=1),
        Workload(arrivals=load, service_s=1.0, service_cv2=0.0),
        window_s=30_000.0,
        thresholds_s=thresholds,
        **FIXED,
    )
    assert inside(found.wait_exceeds, [[1.0 - md1_wait(load, t)] for t in thresholds])


@pytest.mark.parametrize(("law", "cv2"), [("gamma", 4.0), ("lognormal", 2.0), ("hyperexponential", 5.0)])
def test_mg1(law: str, cv2: float) -> None:
    """M/G/1: the mean wait depends on the second moment only."""
    found = simulate(
        Pool(replicas=1, slots=1),
        Workload(arrivals=0.6, service_s=1.0, service_cv2=cv2, law=law),
        window_s=40_000.0,
        **FIXED,
    )
    assert inside(found.mean_wait_s, 0.6 * (1.0 + cv2) / (2.0 * 0.4))


def test_erlang_loss() -> None:
    """Without patience it is a loss system: Erlang B, whatever the service law is."""
    offered, servers = 6.0, 8
    blocking = 1.0
    for k in range(1, servers + 1):
        blocking = offered * blocking / (k + offered * blocking)
    for options in ({"patience_s": 0.0}, {"queue_limit": 0}):
        found = simulate(
            Pool(replicas=2, slots=4, **options),
            Workload(arrivals=offered, service_s=1.0, service_cv2=3.0),
            window_s=3000.0,
            **FIXED,
        )
        assert_conserved(found)
        assert inside(found.miss_share, blocking)


def inside(estimate: Estimate, exact: object, slack: float = 0.0) -> bool:
    """Return whether the exact values are within the intervals."""
    return bool(np.all(np.abs(estimate.mean - np.asarray(exact)) <= estimate.half_width + slack))


# -- conservation and hostile input


def test_zero_capacity() -> None:
    """Pools without replicas or slots refuse everything, and say so."""
    found = simulate(
        [Pool(replicas=0, slots=8), Pool(replicas=3, slots=0)],
        Workload(arrivals=5.0, service_s=1.0),
        window_s=50.0,
    )
    assert found.miss_share.mean.tolist() == [1.0]
    assert found.statuses["no_pool"] == sum(found.statuses.values()) > 0
    assert np.all(np.isnan(found.utilization.mean))
    assert_conserved(found)


def test_a_request_larger_than_the_memory() -> None:
    """It is dropped and counted; the others are served."""
    found = simulate(
        Pool(replicas=2, slots=4, kv_tokens=1000),
        [
            Workload(name="large", arrivals=1.0, service_s=1.0, input_tokens=990, output_tokens=11),
            Workload(name="small", arrivals=1.0, service_s=1.0, input_tokens=90, output_tokens=10),
        ],
        window_s=200.0,
    )
    assert found.miss_share.mean.tolist() == [1.0, 0.0]
    assert found.statuses["too_large"] > 0
    assert found.statuses["served"] + found.statuses["too_large"] == sum(found.statuses.values())
    assert_conserved(found)


@pytest.mark.parametrize("drain", [True, False])
@pytest.mark.parametrize("patience_s", [math.inf, 2.0])
@pytest.mark.parametrize("queue_limit", [None, 20])
def test_hopeless_overload(drain: bool, patience_s: float, queue_limit: int | None) -> None:
    """140 times the capacity: it ends, nearly everybody misses, and all are accounted for."""
    found = simulate(
        Pool(replicas=2, slots=5, kv_tokens=300, patience_s=patience_s, queue_limit=queue_limit),
        Workload(arrivals=1400.0, service_s=1.0, ttft_slo_s=1.0, input_tokens=50, output_tokens=50),
        window_s=20.0,
        warmup_s=5.0,
        drain=drain,
        max_replications=8,
    )
    assert found.miss_share.mean[0] > 0.95
    assert_conserved(found)
    if drain:
        assert found.statuses["waiting"] == found.statuses["in_service"] == 0
    elif patience_s == math.inf and queue_limit is None:
        assert found.statuses["waiting"] > 0.95 * sum(found.statuses.values())


def test_a_request_that_never_finishes() -> None:
    """Infinite service times block slots forever; who cannot start has missed its SLO."""
    found = simulate(
        Pool(replicas=1, slots=3), Workload(arrivals=1.0, service_s=math.inf), window_s=100.0, warmup_s=10.0
    )
    assert found.statuses["in_service"] == 3 * len(found.replications)
    assert found.statuses["waiting"] == sum(found.statuses.values()) - found.statuses["in_service"]
    assert found.miss_share.mean[0] > 0.9
    assert found.unaccounted == 0


def test_without_demand() -> None:
    """Nothing arrives, nothing is missed, nothing fails."""
    found = simulate(Pool(replicas=1, slots=1), Workload(arrivals=0.0, service_s=1.0))
    assert np.isnan(found.miss_share.mean[0])
    assert found.is_tight
    assert sum(found.statuses.values()) == 0


@pytest.mark.parametrize("router", sorted(ROUTERS))
def test_every_router_conserves_requests(router: str) -> None:
    """With memory, limits and impatience at once, and a clock that stops."""
    pools = [
        Pool(name="short", replicas=2, slots=6, kv_tokens=900, max_tokens=256, queue_limit=30, model="a"),
        Pool(name="long", replicas=3, slots=3, kv_tokens=1500, max_tokens=1024, patience_s=3.0, model="b"),
        Pool(name="more", replicas=1, slots=4, kv_tokens=700, max_tokens=1024, model="b"),
    ]
    rng = np.random.default_rng(3)
    workloads = [
        Workload(
            name=model,
            arrivals=GammaPoisson(6.0, 3.0, 5.0),
            service_s=TokenTime(0.2, 0.001, 0.004),
            service_cv2=0.3,
            input_tokens=rng.integers(10, 900, 200),
            output_tokens=rng.integers(1, 200, 200),
            ttft_slo_s=1.0,
            model=model,
        )
        for model in ("a", "b")
    ]
    found = simulate(pools, workloads, router=router, window_s=100.0, drain=False, max_replications=8)
    assert_conserved(found)
    assert len([count for count in found.statuses.values() if count > 0]) >= 3
    assert found.statuses["served"] > 1000


# -- reproducibility


def test_the_same_seed_gives_the_same_bytes() -> None:
    """Whatever the batch size; another seed gives others."""

    def run(seed: int, batch: int) -> bytes:
        found = simulate(
            [Pool(replicas=2, slots=3), Pool(replicas=1, slots=8, kv_tokens=50)],
            [
                Workload(
                    arrivals=GammaPoisson(5.0, 4.0, 10.0), service_s=1.2, ttft_slo_s=0.2, input_tokens=9
                ),
                Workload(
                    arrivals=Renewal(3.0, 0.5),
                    service_s=0.7,
                    service_cv2=2.0,
                    law="lognormal",
                    ttft_slo_s=0.5,
                ),
            ],
            window_s=60.0,
            seed=seed,
            batch=batch,
            max_replications=20,
        )
        return pickle.dumps([vars(one) for one in found.replications])

    first = run(1, 1)
    assert run(1, 1) == first
    assert run(1, 3) == first
    assert run(1, 64) == first
    assert run(2, 1) != first


def test_it_stops_when_the_intervals_are_tight() -> None:
    """An easy fleet takes the smallest number of replications, a coarse tolerance fewer than a fine one."""
    pool, workload = Pool(replicas=1, slots=4), Workload(arrivals=3.4, service_s=1.0, ttft_slo_s=1.0)
    coarse = simulate(pool, workload, window_s=300.0, absolute=0.2)
    fine = simulate(pool, workload, window_s=300.0, absolute=0.05, relative=0.0, max_replications=200)
    assert coarse.is_tight
    assert fine.is_tight
    assert len(coarse.replications) == 8 < len(fine.replications) <= 200
    never = simulate(pool, workload, window_s=300.0, absolute=0.0, relative=0.0, max_replications=9)
    assert not never.is_tight
    assert len(never.replications) == 9


# -- routers, one by one


def requests_of(tokens: list[int], workloads: list[int] | None = None) -> Requests:
    """Return requests of given lengths, with 10 output tokens each."""
    n = len(tokens)
    owner = np.zeros(n, dtype=np.int32) if workloads is None else np.array(workloads, dtype=np.int32)
    return Requests(np.arange(n, dtype=float), owner, np.array(tokens) - 10, np.full(n, 10))


def two_pools(second_service_s: float = 1.0) -> Fleet:
    """Return a short and a long pool."""
    pools = (Pool(replicas=1, slots=4, max_tokens=100), Pool(replicas=1, slots=1, max_tokens=400))
    return Fleet(pools, (Workload(arrivals=1.0, service_s=np.array([1.0, second_service_s])),))


def fixed(router: Router, fleet: Fleet, requests: Requests) -> list[int]:
    """Return the pool of each request, which the router fixes."""
    pool = router.route(fleet, requests, np.random.default_rng(0)).fixed_pool
    assert pool is not None
    return pool.tolist()


def test_length_router() -> None:
    """The smallest limit that is enough; beyond the largest one, nowhere."""
    assert fixed(Length(), two_pools(), requests_of([20, 100, 101, 400, 401])) == [0, 0, 1, 1, -1]
    swapped = Fleet(two_pools().pools[::-1], two_pools().workloads)
    assert fixed(Length(), swapped, requests_of([20, 100, 101])) == [1, 1, 0]
    assert fixed(Length(), two_pools(math.nan), requests_of([20, 101])) == [0, -1]


def test_compress_and_route() -> None:
    """The band up to gamma times the limit is shortened to it, prompt first; the rest is as by length."""
    requests = requests_of([100, 101, 150, 151, 400, 600, 601])
    routing = CompressAndRoute(gamma=1.5).route(two_pools(), requests, np.random.default_rng(0))
    assert routing.fixed_pool is not None
    assert routing.fixed_pool.tolist() == [0, 0, 0, 1, 1, 1, -1]
    assert routing.requests.tokens.tolist() == [100, 100, 100, 151, 400, 400, 601]
    plain = CompressAndRoute(gamma=1.5, share=0.0).route(two_pools(), requests, np.random.default_rng(0))
    assert plain.requests.tokens.tolist() == requests.tokens.tolist()
    answers = Requests(np.zeros(1), np.zeros(1, np.int32), np.array([5]), np.array([120]))
    assert fixed(CompressAndRoute(gamma=1.5), two_pools(), answers) == [1]  # an answer cannot be shortened


def test_random_router() -> None:
    """Shares are met, what is missing from 1 is refused, and pools that cannot serve a workload get nothing."""
    fleet = two_pools()
    many = requests_of([20] * 40_000)
    shares = np.bincount(np.array(fixed(Random(np.array([0.3, 0.5])), fleet, many)) + 1, minlength=3) / 40_000
    np.testing.assert_allclose(shares, [0.2, 0.3, 0.5], atol=0.01)
    assert set(fixed(Random(np.array([1.0, 0.0])), fleet, many)) == {0}
    assert set(fixed(Random(np.array([0.0, 0.0])), fleet, many)) == {-1}
    assert set(fixed(Random(), two_pools(math.nan), many)) == {0}
    equal = np.mean(fixed(Random(), fleet, many))
    assert equal == pytest.approx(0.5, abs=0.01)
    with pytest.raises(FleetgymError, match="at most 1"):
        Random(np.array([0.8, 0.3])).route(fleet, many, np.random.default_rng(0))


def test_model_router() -> None:
    """Only pools of the workload's model are candidates."""
    pools = tuple(Pool(replicas=1, slots=1, model=m) for m in ("a", "b", "a"))
    workloads = tuple(Workload(arrivals=1.0, service_s=1.0, model=m) for m in ("a", "b", "c"))
    routing = Model().route(
        Fleet(pools, workloads), requests_of([20] * 3, [0, 1, 2]), np.random.default_rng(0)
    )
    assert routing.candidates[routing.kind].tolist() == [[0, 2, -1], [1, -1, -1], [-1, -1, -1]]


def test_least_loaded_balances_and_spillover_fills() -> None:
    """Light load: least-loaded uses both pools alike, spillover hardly touches the second."""
    pools = [Pool(replicas=1, slots=10), Pool(replicas=1, slots=10)]
    workload = Workload(arrivals=6.0, service_s=1.0)
    balanced = simulate(pools, workload, router=LeastLoaded(), window_s=500.0).utilization.mean
    filled = simulate(pools, workload, router="spillover", window_s=500.0).utilization.mean
    assert abs(balanced[0] - balanced[1]) < 0.05
    assert filled[0] > 5.0 * filled[1]
    assert balanced.sum() == pytest.approx(filled.sum(), rel=0.05)
    with pytest.raises(UnknownNameError, match="did you mean 'spillover'"):
        as_router("spill-over")


# -- arrivals, laws, statistics


def test_arrival_streams() -> None:
    """Rates, dispersion and variability are as asked for; times ascend and stay within the horizon."""
    rng = np.random.default_rng(0)
    for stream in (
        Poisson(20.0),
        Renewal(20.0, 0.25),
        Renewal(20.0, 4.0),
        Renewal(20.0, 0.0),
        GammaPoisson(20.0, 30.0, 10.0),
    ):
        times = stream.draw(rng, 10_000.0)
        assert np.all(np.diff(times) >= 0)
        assert times[0] >= 0.0
        assert times[-1] < 10_000.0
        dispersion = getattr(stream, "dispersion", getattr(stream, "cv2", 1.0))
        assert abs(times.size - 200_000) < 5.0 * math.sqrt(max(1e-3, dispersion) * 200_000) + 2
        gaps, counts = np.diff(times), np.bincount((times / 10.0).astype(int), minlength=1000)
        if isinstance(stream, Renewal):
            assert gaps.var() / gaps.mean() ** 2 == pytest.approx(stream.cv2, abs=0.05 * (1.0 + stream.cv2))
        assert counts.var() / counts.mean() == pytest.approx(dispersion, abs=0.15 * (0.2 + dispersion))
    recorded = Trace(np.array([0.5, 2.0, 2.0, 9.0]))
    assert recorded.draw(rng, 9.0).tolist() == [0.5, 2.0, 2.0]
    for wrong in ([2.0, 1.0], [-1.0], [np.nan], [[1.0]]):
        with pytest.raises(FleetgymError, match="ascending"):
            Trace(np.array(wrong))


@pytest.mark.parametrize(
    "stream",
    [Poisson(0.1), Renewal(0.1, 0.0), GammaPoisson(0.1, 3.0, 10.0)],
    ids=lambda stream: type(stream).__name__,
)
def test_no_request_arrives_after_the_horizon(stream: Arrivals) -> None:
    """A horizon shorter than most gaps sees few arrivals, all within it and as many as the rate says; rate 0 none."""
    drawn = [stream.draw(np.random.default_rng(seed), 2.0) for seed in range(2_000)]
    assert all(np.all((times >= 0.0) & (times < 2.0)) for times in drawn)
    assert sum(times.size for times in drawn) == pytest.approx(400, abs=120)
    assert dataclasses.replace(stream, rate_rps=0.0).draw(np.random.default_rng(0), 2.0).size == 0


def test_a_trace_is_simulated_as_it_is() -> None:
    """A burst of ten at one slot: waits 0 to 9 s; its mean is exact in every replication."""
    found = simulate(
        Pool(replicas=1, slots=1),
        Workload(arrivals=Trace(np.full(10, 1.0)), service_s=1.0, service_cv2=0.0, ttft_slo_s=4.5),
        window_s=20.0,
        warmup_s=0.0,
        percentiles=True,
    )
    assert found.mean_wait_s.mean[0] == pytest.approx(4.5)
    assert found.miss_share.mean[0] == pytest.approx(0.5)
    assert found.ttft_p99_s.mean[0] == pytest.approx(9.0)


def test_over_dispersed_arrivals_wait_longer() -> None:
    """The same rate in bursts misses more."""
    pool = Pool(replicas=1, slots=10)
    calm = simulate(pool, Workload(arrivals=7.0, service_s=1.0, ttft_slo_s=0.5), window_s=1000.0)
    bursts = simulate(
        pool, Workload(arrivals=GammaPoisson(7.0, 10.0, 10.0), service_s=1.0, ttft_slo_s=0.5), window_s=1000.0
    )
    assert bursts.miss_share.low[0] > calm.miss_share.high[0]


def test_laws() -> None:
    """Every law has mean one and its cv2 (a Pareto's converges too slowly to tell); 0 is a constant."""
    rng = np.random.default_rng(0)
    for name in LAWS:
        assert unit_draws(name, rng, 3, 0.0).tolist() == [1.0] * 3
        sample = unit_draws(name, rng, 1_000_000, 2.0)
        assert sample.mean() == pytest.approx(1.0, abs=0.02)
        assert sample.min() > 0.0
        if name != "pareto":
            assert sample.var() == pytest.approx(2.0, rel=0.05)
    light = unit_draws("pareto", rng, 1_000_000, 0.05)
    assert light.var() == pytest.approx(0.05, rel=0.05)
    with pytest.raises(UnknownNameError, match="service law"):
        Workload(arrivals=1.0, service_s=1.0, law="normal")
    with pytest.raises(FleetgymError, match="at least 1"):
        unit_draws("hyperexponential", rng, 5, 0.5)


def test_ratio_intervals_cover() -> None:
    """Of 1,000 intervals of 95 %, about 950 hold the truth; replications of unequal size are weighed."""
    rng = np.random.default_rng(0)
    totals = rng.integers(200, 800, (1000, 12)).astype(float)
    counts = rng.binomial(totals.astype(int), 0.2).astype(float)
    hits = sum(inside(ratio(c, t, 0.95), 0.2) for c, t in zip(counts, totals, strict=True))
    assert 930 <= hits <= 970
    assert student_t(0.99, 10**6) == pytest.approx(2.5758, abs=1e-3)


def test_intervals_of_what_never_happens() -> None:
    """No miss in n requests: the half width is the largest share that would show none with probability 1 %."""
    found = ratio(np.zeros(8), np.full(8, 100.0), 0.99, is_share=True)
    assert (1.0 - float(found.half_width)) ** 800 == pytest.approx(0.01)
    assert np.isinf(ratio(np.zeros(1), np.ones(1), 0.99).half_width)


def test_looks_do_not_depend_on_anything_but_the_bounds() -> None:
    """They ascend to the largest number."""
    assert list(looks(2, 2)) == [2]
    assert list(looks(2, 10)) == [2, 3, 4, 6, 9, 10]


# -- wrong calls


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window_s": 0.0}, "finite window"),
        ({"window_s": math.inf}, "finite window"),
        ({"warmup_s": -1.0}, "finite window"),
        ({"seed": -1}, "seed >= 0"),
        ({"batch": 0}, "batch >= 1"),
        ({"min_replications": 1}, "min_replications"),
        ({"confidence": 1.0}, "confidence"),
        ({"window_s": 1e9}, "shorten the window"),
        ({"router": "best"}, "unknown router"),
    ],
)
def test_wrong_calls(options: dict[str, object], message: str) -> None:
    """Each says what would be valid."""
    with pytest.raises(FleetgymError, match=message):
        fleetgym.simulate(Pool(replicas=1, slots=1), Workload(arrivals=0.5, service_s=1.0), **options)  # type: ignore[arg-type]


def test_wrong_parts() -> None:
    """Pools and workloads check themselves."""
    for make in (
        lambda: Pool(replicas=-1, slots=1),
        lambda: Pool(replicas=1, slots=1, patience_s=math.nan),
        lambda: Workload(arrivals=-1.0, service_s=1.0),
        lambda: Workload(arrivals=1.0, service_s=1.0, service_cv2=-0.1),
        lambda: Workload(
            arrivals=1.0, service_s=1.0, input_tokens=np.array([1, 2]), output_tokens=np.array([1, 2, 3])
        ),
        lambda: Renewal(1.0, -1.0),
        lambda: GammaPoisson(1.0, 0.5, 1.0),
        lambda: Fleet((), ()),
    ):
        with pytest.raises(FleetgymError):
            make()
    with pytest.raises(FleetgymError, match="negative"):
        simulate(
            Pool(replicas=1, slots=1), Workload(arrivals=1.0, service_s=-1.0), window_s=10.0, warmup_s=1.0
        )


def test_default_warmup() -> None:
    """It grows with the load as the relaxation time does, and stays bounded."""

    def warmup(rate: float) -> float:
        fleet = Fleet((Pool(replicas=1, slots=10),), (Workload(arrivals=rate, service_s=1.0),))
        return default_warmup_s(fleet, 300.0)

    assert 10.0 < warmup(1.0) < warmup(9.0) < warmup(9.5) < warmup(9.99) == warmup(20.0) == 3000.0
    assert (
        default_warmup_s(Fleet((Pool(replicas=0, slots=1),), (Workload(arrivals=1.0, service_s=1.0),)), 300.0)
        == 0.0
    )
