"""The rows that bound late costs hold for every fleet, load and mixture; late costs are computed by the reference."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from toys import (
    affine,
    configuration,
    make_instance,
    pool,
    random_instance,
    random_scenario,
    with_laws,
    with_prefill,
    workload,
)

import fleetgym
from fleetgym.bounds import hindsight_bound
from fleetgym.bounds.certificate import WindowPrices
from fleetgym.bounds.late import _erlang_c
from fleetgym.bounds.mixtures import least_of_mixtures
from fleetgym.bounds.nonanticipative import day_and_redraws
from fleetgym.bounds.planes import highest_plane
from fleetgym.bounds.raised import raised
from fleetgym.bounds.relaxation import HARD, EpisodeRelaxation, Routing, WindowRelaxation, relax, relax_window
from fleetgym.model.actions import ActionSpace
from fleetgym.model.instance import Instance
from fleetgym.model.planning import Snapshot
from fleetgym.reference.tails import Queue, erlang_c, mixture
from fleetgym.search.hindsight import plan_in_hindsight


def late_usd(snapshot: Snapshot, c: int, replicas: int, x: np.ndarray) -> float:
    """Return what the routes x, (I,), of a configuration cost in late requests under load, by the reference."""
    instance = snapshot.instance
    rates = snapshot.rate_rps * x
    total = float(rates.sum())
    service = snapshot.service_s[:, c]
    mean, cv2 = mixture(rates / total, service, np.asarray(instance.performance.service_cv2)[:, c])
    arrival = sum(r * w.arrival_cv2 for r, w in zip(rates / total, instance.workloads, strict=True))
    servers = replicas * int(snapshot.max_concurrency[c])
    queue = Queue(servers, float(rates @ service), mean, cv2, arrival)
    usd = 0.0
    for i, w in enumerate(instance.workloads):
        if snapshot.own_late[i, c] < 1.0:
            chance = (1.0 - snapshot.own_late[i, c]) * queue.waits_longer(snapshot.slack_s[i, c])
            usd += snapshot.requests[i] * w.late_usd * x[i] * chance
    return usd


def check(
    window: WindowRelaxation, snapshot: Snapshot, rng: np.random.Generator, points: int
) -> tuple[int, float]:
    """Hold every row against late costs on a grid of utilisations and random mixtures.

    Return how many rows there are, and the largest share of a late cost that one of them found.
    """
    present = np.flatnonzero(snapshot.rate_rps > 0.0)
    is_open, need, price = window.is_open, window.need[HARD], window.missing_usd[HARD]
    rows, best = np.isfinite(price).sum(), 0.0
    for c in np.flatnonzero(np.isfinite(price)):
        open_ = present[is_open[:, c]]
        service = snapshot.service_s[open_, c]
        for _ in range(points):
            replicas = int(rng.integers(1, snapshot.max_replicas[c] + 1))
            u = 0.95 if rng.random() < 0.2 else rng.uniform(0.2, 0.95)
            shares = rng.dirichlet(np.full(open_.size, rng.choice([0.2, 1.0, 5.0])))
            busy = shares * u * replicas * snapshot.max_concurrency[c]
            x = np.zeros(snapshot.rate_rps.size)
            x[open_] = busy / (snapshot.rate_rps[open_] * service)
            x *= min(1.0, 1.0 / x.max())  # demand is what there is
            x *= min(1.0, replicas / (window.need[:HARD, :, c] @ x[present]).max())  # and so is capacity
            if not x.any():
                continue
            exact = late_usd(snapshot, c, replicas, x)
            found = price[c] * (need[:, c] @ x[present] - replicas)
            assert found <= exact * (1.0 + 1e-9) + 1e-15, (c, replicas, u, shares)
            best = max(best, found / exact if exact > 1e-9 else 0.0)
    return int(rows), best


def tailed(seed: int, most: int = 6) -> Instance:
    """Return an instance with one to `most` workloads that may be late, short and long, smooth and bursty."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, most + 1))
    workloads = [
        workload(
            f"w{i}",
            rate_rps=float(rng.uniform(0.5, 30.0)),
            late_usd=float(rng.uniform(1e-3, 1e-2)),
            ttft_slo_s=float(rng.uniform(0.1, 3.0)),
            arrival_cv2=float(rng.choice([0.5, 1.0, 4.0, 20.0])),
        )
        for i in range(count)
    ]
    parts = [
        configuration(n, {"p": 1}, startup_windows=1, max_replicas=9, max_concurrency=k)
        for n, k in (("A", 4), ("B", 60))
    ]
    return make_instance(
        [pool("p", 30)],
        parts,
        ["A", "B"],
        workloads,
        {
            "work_tflop": affine(1e-3),
            "delay_s": affine(0.1),
            "service_s": affine(rng.uniform(0.2, 20.0, (count, 2))),
            "service_cv2": rng.uniform(0.0, 3.0, (count, 2)),
        },
        num_windows=3,
    )


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("has_laws", [False, True])
def test_rows_are_below_late_costs_on_random_instances(seed: int, has_laws: bool) -> None:
    """One to six workloads, smooth and bursty arrivals, few and many servers, prompts alike or not."""
    instance = tailed(seed)
    if has_laws:
        prompts = {"base": 0.02, "per_input_token": 2e-3, "per_output_token": 0.0}
        instance = with_laws(with_prefill(instance, **prompts), seed)
    snapshot = fleetgym.View(instance).snapshot()
    rows, _ = check(relax_window(snapshot), snapshot, np.random.default_rng([seed, 1]), 300)
    assert rows > 0 or min(w.arrival_cv2 for w in instance.workloads) < 1.0


def test_without_late_rows_all_else_is_the_same() -> None:
    """The other rows, and what they limit, do not follow from late requests."""
    snapshot = fleetgym.View(fleetgym.load_instance("fleet-v1/dev/tail-s-101")).snapshot()
    window, plain = relax_window(snapshot), relax_window(snapshot, late=False)
    assert window.need[HARD].any()
    assert not plain.need[HARD].any()
    assert not np.isfinite(plain.missing_usd).any()
    np.testing.assert_array_equal(plain.need[:HARD], window.need[:HARD])
    np.testing.assert_array_equal(plain.is_limiting[:HARD], window.is_limiting[:HARD])
    np.testing.assert_array_equal(plain.is_tight, window.is_tight)


@pytest.mark.parametrize(
    ("name", "least_found"), [("tail-s-101", 0.5), ("grw-s-101", 0.7), ("multi-s-101", 0.0)]
)
def test_rows_are_below_late_costs_on_the_standard_set(name: str, least_found: float) -> None:
    """And find a part of them that matters where late requests do."""
    snapshot = fleetgym.View(fleetgym.load_instance(f"fleet-v1/dev/{name}")).snapshot()
    rows, best = check(relax_window(snapshot), snapshot, np.random.default_rng(0), 60)
    assert rows > 0
    assert best > least_found


def at_random_prices(window: WindowRelaxation, rng: np.random.Generator) -> WindowRelaxation:
    """Return a window whose rows were raised at random prices of serving and of replicas."""
    rows, count = window.missing_usd.shape
    capacity = np.zeros((rows, count))
    capacity[HARD - 1] = rng.uniform(0.3, 4.0, count) * window.hold_usd
    free = np.zeros(window.unserved_usd.size)
    served = np.where(window.is_open, window.route_usd, 0.0).max(axis=1)
    served += window.unserved_usd * 10.0 ** rng.uniform(-5.0, -1.0, free.size)
    whole, nothing = np.zeros(window.is_open.shape), np.zeros(count)
    prices = WindowPrices(served, free, free, capacity, whole, np.empty(0), nothing)
    routing = Routing((window,), np.ones(1))
    problem = EpisodeRelaxation(windows=(window,), routings=(routing,), **dict.fromkeys(OTHERS))  # type: ignore[arg-type]
    return raised(problem, ((prices,),), np.arange(count)).routings[0].draws[0]


#: What `raised` does not ask for.
OTHERS = [f.name for f in dataclasses.fields(EpisodeRelaxation) if f.name not in ("windows", "routings")]


@pytest.mark.parametrize("seed", range(24))
def test_raised_rows_are_below_late_costs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At any prices, on random instances and on one of the standard set; few boxes or many."""
    monkeypatch.setattr("fleetgym.bounds.raised.LIMITS", (1e4, 0.02, (50, 2000)[seed % 2]))
    rng = np.random.default_rng([seed, 2])
    instance = (
        tailed(seed) if seed % 3 else fleetgym.load_instance(f"fleet-v1/dev/tail-s-10{1 + seed // 3 % 3}")
    )
    snapshot = fleetgym.View(instance).snapshot()
    window = at_random_prices(relax_window(snapshot), rng)
    # A plane counts replicas, so that it is held against rent too where nobody is late.
    assert check(window, snapshot, rng, 100 if seed % 3 else 20)[0] > 0


@pytest.mark.parametrize("seed", range(12))
def test_planes_are_as_high_as_they_may_be(seed: int) -> None:
    """One or two workloads: a grid of loads has a point at which the plane lacks no more than some percent."""
    snapshot = fleetgym.View(tailed(seed, 2)).snapshot()
    window, rng = relax_window(snapshot), np.random.default_rng(seed)
    m = window.unserved_usd.size
    worth = rng.uniform(0.0, 1.0, m) * window.hold_usd.max()
    for c in range(window.hold_usd.size):
        price = float(window.hold_usd[c])
        need = window.need[:HARD, :, c]
        found = highest_plane(*window.queues.of(c, np.arange(m)), worth, need, price, (1e4, 0.02, 20_000))
        least = np.inf
        for replicas in range(1, snapshot.max_replicas[c] + 1):
            for x in itertools.product(np.linspace(0.0, 1.0, 41), repeat=m):
                shares = np.array(x)
                if shares.any() and (need @ shares).max() <= replicas:
                    cost = price * replicas + late_usd(snapshot, c, replicas, shares)
                    least = min(least, cost / (worth @ shares))
        assert 0.9 * least < found <= least * (1.0 + 1e-9)


@pytest.mark.slow
def test_raised_rows_raise_the_bound() -> None:
    """Half a day of a standard instance: by some percent, and still below what a search pays."""
    instance = fleetgym.load_instance("fleet-v1/dev/tail-s-101").replace(num_windows=48)
    scenario = day_and_redraws(instance, 0, 1, 0)[0]
    plain, higher = (hindsight_bound(instance, scenario, solver="ipx", rounds=k).bound_usd for k in (0, 1))
    nominal = ActionSpace(instance).from_fleet(instance.nominal_fleet)
    start = np.tile(nominal, (instance.num_windows, 1))
    paid = plan_in_hindsight(instance, scenario, None, starts=[start], max_steps=20_000).cost_usd
    assert 1.03 * plain < higher < paid


def test_delay_formula_is_that_of_the_reference() -> None:
    """At the ends of the intervals, for few servers and many."""
    from fleetgym.bounds.late import UTILISATIONS

    table = _erlang_c(4096)
    for servers, k in itertools.product((1, 2, 7, 64, 500, 4096), range(UTILISATIONS.size - 1)):
        expected = erlang_c(servers, UTILISATIONS[k] * servers)
        assert table[servers, k] == pytest.approx(expected, rel=1e-9, abs=1e-300)


def vertices(cap: np.ndarray) -> list[np.ndarray]:
    """Return the vertices of {w ≥ 0, Σ w = 1, w ≤ cap}."""
    found = []
    for last in range(cap.size):
        for chosen in itertools.product((0.0, 1.0), repeat=cap.size):
            w = cap * chosen
            w[last] = 1.0 - (w.sum() - w[last])
            if not chosen[last] and -1e-9 <= w[last] <= cap[last] + 1e-9:
                found.append(np.maximum(0.0, w))
    return found


@pytest.mark.parametrize("seed", range(20))
def test_the_kernel_looks_at_every_vertex(seed: int) -> None:
    """Of one to four workloads, with little demand and much; of more, at every workload alone."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(1, 6))
    busy, load = rng.uniform(0.1, 3.0, (1, m)), rng.uniform(0.2, 6.0, (1, 3))
    rate, own = rng.uniform(0.1, 5.0, (2, 1, m))
    arriving = rate * rng.uniform(1.0, 9.0, (1, m))
    found, is_reached = np.empty((3, 1, 3)), np.empty((1, 3), dtype=bool)
    least_of_mixtures(load, busy, rate, arriving, own, 4, found, is_reached)
    for u in range(3):
        cap = np.minimum(1.0, busy[0] / load[0, u])
        mixtures = vertices(cap) if m <= 4 else list(np.eye(m)) * int(cap.sum() >= 1.0)
        assert is_reached[0, u] == bool(mixtures)
        each = [(w @ arriving[0] / (w @ rate[0]), w @ rate[0], w @ own[0]) for w in mixtures]
        expected = [(cv2, (cv2 - 1.0) / requests, spread) for cv2, requests, spread in each]
        least = np.min(expected, axis=0) if expected else np.full(3, np.inf)
        np.testing.assert_allclose(found[:, 0, u], least, rtol=1e-9)


def test_hindsight_bound_counts_late_requests() -> None:
    """A toy in which queueing is dear: the bound is above that of the same toy without late costs."""
    instance = tailed(0)
    free = instance.replace(workloads=[dataclasses.replace(w, late_usd=0.0) for w in instance.workloads])
    scenario = random_scenario(instance, 0)
    assert hindsight_bound(instance, scenario).bound_usd > hindsight_bound(free, scenario).bound_usd


@pytest.mark.slow
def test_bounds_are_below_what_is_paid_where_prompts_vary() -> None:
    """No plan that a search finds costs less than the bound, where a part of the prompts is too long."""
    seen = 0
    for seed in range(8):
        plain = with_prefill(tailed(seed), per_input_token=4e-3)
        instance = with_laws(plain, seed)
        scenario = random_scenario(instance, seed)
        found = hindsight_bound(instance, scenario).bound_usd
        nominal = ActionSpace(instance).from_fleet(instance.nominal_fleet)
        start = np.tile(nominal, (instance.num_windows, 1))
        paid = plan_in_hindsight(instance, scenario, None, starts=[start], max_steps=2_000).cost_usd
        assert 0.0 < found <= paid
        own = fleetgym.View(instance).snapshot().own_late
        seen += int(((own > 0.0) & (own < 1.0)).sum())
    assert seen > 20


def test_instances_without_late_costs_have_no_rows() -> None:
    """Nothing to bound, nothing to solve."""
    instance = random_instance(0, num_windows=2)
    free = instance.replace(workloads=[dataclasses.replace(w, late_usd=0.0) for w in instance.workloads])
    for window in relax(free, random_scenario(free, 0)).windows:
        assert np.isinf(window.missing_usd).all()
        assert not window.need[HARD:].any()
