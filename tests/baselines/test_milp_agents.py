"""The agents on the MILP: critical quantiles, two-stage optima, lazy capacity, and whole episodes."""

from __future__ import annotations

import dataclasses
import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from toys import affine, configuration, make_instance, pool, random_instance, workload

from fleetgym import FleetgymError, Rolling, View
from fleetgym.baselines.agents import milp_rolling
from fleetgym.baselines.columns import ColumnPool, useful_columns
from fleetgym.baselines.lazy_capacity import LazyBounds, lcp, proportional_levels, within_limits
from fleetgym.baselines.milp import MilpPlanner, Modes
from fleetgym.baselines.newsvendor import NewsvendorForecaster, critical_ratios, critical_rise
from fleetgym.baselines.saa import at_rates, plan_for, stratified

# -- whole episodes


def test_switching_stays_when_a_change_does_not_pay() -> None:
    """A cheaper configuration saves 1 USD in each of the 11 windows left, and costs 20 USD to start, or 2."""

    class Recorder:
        def plan(self, snapshot):
            recorded.append(snapshot.startup_usd)
            return inner.plan(snapshot)

    for fee, moves in ((20.0, False), (2.0, True)):
        instance = make_instance(
            [pool("cheap", 1), pool("dear", 1, price_usd_per_gpu_h=24.0)],
            [configuration("a", {"cheap": 1}, startup_usd=fee), configuration("b", {"dear": 1})],
            nominal=[0, 1],
        )
        recorded: list[np.ndarray] = []
        inner = milp_rolling(samples=0).planner
        agent = Rolling(Recorder(), switch_cost=1.0, keep_best=False)
        view = View(instance)
        agent.reset(view, seed=0)
        action = agent.act({}, {"rate_rps": view.conditions.rate_rps})
        assert recorded[0].tolist() == [fee / 12, 0.0]  # twelve windows to pay for itself
        assert view.action_to_fleet(action).tolist() == ([1, 0] if moves else [0, 1])


# -- configurations worth considering


def test_columns_are_those_of_optima_and_of_the_nominal_fleet() -> None:
    """The cheapest pool serves all demand there ever is; the dearest is never used, but where it runs."""
    instance = make_instance(
        [
            pool("cheap", 8),
            pool("dear", 8, price_usd_per_gpu_h=24.0),
            pool("dearest", 8, price_usd_per_gpu_h=36.0),
        ],
        [
            configuration("a", {"cheap": 1}),
            configuration("b", {"dear": 1}),
            configuration("c", {"dearest": 1}),
        ],
        nominal=[0, 0, 1],
    )
    assert useful_columns(instance, 2) == (0, 2)


def test_column_pool_passes_them_on() -> None:
    """Zero samples allow everything; otherwise the useful ones."""
    instance = make_instance(
        [pool("cheap", 8), pool("dear", 8, price_usd_per_gpu_h=24.0)],
        [configuration("a", {"cheap": 1}), configuration("b", {"dear": 1})],
    )
    for samples, allowed in ((0, [True, True]), (1, [True, False])):
        pooled = ColumnPool(MilpPlanner(), samples)
        pooled.prepare(View(instance).snapshot())
        assert pooled._restricted.allowed.tolist() == allowed


# -- newsvendor


def test_critical_ratio_by_hand() -> None:
    """A replica at 1 USD serves 10 requests/s, 1/3000 USD a request; not serving costs 0.01 USD, or less."""
    instance = make_instance(
        [pool("p", 8)],
        [configuration("a", {"p": 1}, compute_tflops=10.0)],
        workloads=[workload("dear", unserved_usd=0.01), workload("worthless", unserved_usd=0.0003)],
        performance={"service_s": affine(0.1), "delay_s": affine(1.0), "work_tflop": affine(1.0)},
    )
    ratios = critical_ratios(View(instance).snapshot())
    assert ratios == pytest.approx([1 - (1 / 3000) / 0.01, 0.0], rel=1e-4)


def test_critical_quantile_of_a_known_distribution() -> None:
    """Of ten equally likely rises, a ratio of 0.7 takes the seventh, which has the least expected cost."""
    demand = np.arange(1.0, 11.0)
    over, under = 3.0, 7.0
    rise = critical_rise(np.log(demand)[:, None], np.array([under / (under + over)]))
    cost = [np.mean(over * np.maximum(0, q - demand) + under * np.maximum(0, demand - q)) for q in demand]
    assert rise == pytest.approx([demand[int(np.argmin(cost))]]) == [7.0]


def test_newsvendor_forecast_is_the_quantile_of_past_changes() -> None:
    """Rates that double or halve in turn: the last value, doubled after an odd number of windows."""
    rates = [[1.0], [2.0]] * 300
    instance = make_instance(
        [pool("p", 8)],
        [configuration("a", {"p": 1})],
        workloads=[workload("w", 1.5)],
        history={"rate_rps": rates},
    )
    forecaster = NewsvendorForecaster("last", wait_windows=0)
    forecaster.reset(instance)
    assert forecaster.ratio[0] > 0.5
    forecaster.update(np.array([3.0]))
    assert forecaster.predict(1) == pytest.approx([6.0])
    assert forecaster.predict(2) == pytest.approx([3.0])
    with pytest.raises(FleetgymError, match="at least 0"):
        NewsvendorForecaster(wait_windows=-1)


# -- sample average approximation


@pytest.mark.parametrize("seed", range(6))
def test_at_rates_is_the_views_snapshot(seed: int) -> None:
    """Whatever the penalty basis."""
    view = View(random_instance(seed))
    snapshot = view.snapshot()
    rates = snapshot.rate_rps * np.linspace(0.5, 2.0, snapshot.rate_rps.size)
    changed, expected = at_rates(snapshot, rates), view.snapshot(rate_rps=rates)
    for field in dataclasses.fields(changed):
        if isinstance(getattr(changed, field.name), np.ndarray):
            assert getattr(changed, field.name) == pytest.approx(
                getattr(expected, field.name), rel=1e-9, abs=1e-5
            )


def test_scenarios_keep_means_and_dependence() -> None:
    """Each workload's factors average to those of all errors; workloads that err together do so in the scenarios."""
    rng = np.random.default_rng(0)
    common = rng.normal(0.0, 0.5, 600)
    errors = np.column_stack([common, 0.3 * common, -common])
    factors = stratified(errors, 6, np.random.default_rng(1))
    assert factors.mean(axis=0) == pytest.approx(np.exp(errors).mean(axis=0))
    order = np.argsort(factors[:, 0])
    assert np.all(np.diff(factors[order, 1]) > 0)
    assert np.all(np.diff(factors[order, 2]) < 0)


@pytest.mark.parametrize(("low", "high"), [(0.2, 1.0), (0.5, 3.0), (1.0, 1.0), (0.1, 6.0)])
@pytest.mark.parametrize("fee", [0.0, 1.0])
def test_two_stage_optimum_by_enumeration(low: float, high: float, fee: float) -> None:
    """Every fleet of two configurations, judged by the routing in both demands."""
    instance = make_instance(
        [pool("p", 3), pool("q", 2, price_usd_per_gpu_h=17.0)],
        [
            configuration("a", {"p": 1}, max_replicas=3, startup_usd=fee),
            configuration("b", {"q": 1}, max_replicas=2, max_concurrency=18, startup_usd=fee),
        ],
        workloads=[workload("w", 12.0, unserved_usd=0.001)],
        nominal=[1, 0],
    )
    view = View(instance)
    factors = np.array([[low], [high]])
    plan = plan_for(view.snapshot(), factors, Modes(late="segments", switch_weight=1.0))
    costs = {}
    for fleet in itertools.product(range(4), range(3)):
        demands = [view.steady_cost_usd(fleet, conditions={"rate_rps": f * 12.0}) for f in factors]
        costs[fleet] = np.mean(demands) + fee * (max(0, fleet[0] - 1) + fleet[1])
    assert plan.status == "optimal"
    assert costs[tuple(plan.fleet.tolist())] == pytest.approx(min(costs.values()), rel=1e-5)
    assert plan.objective_usd == pytest.approx(min(costs.values()), rel=1e-5)


def test_hedging_differs_from_planning_for_the_mean() -> None:
    """Demand of 0 or 2 replicas' worth, unserved at ten times the rent: two replicas; at the mean, one would do."""
    instance = make_instance(
        [pool("p", 4)], [configuration("a", {"p": 1})], workloads=[workload("w", 9.0, unserved_usd=0.005)]
    )
    snapshot, modes = View(instance).snapshot(), Modes(late="segments")
    assert plan_for(snapshot, np.array([[1e-3], [2.0]]), modes).fleet.tolist() == [2]
    assert plan_for(snapshot, np.array([[1.0]]), modes).fleet.tolist() == [1]


# -- lazy capacity provisioning


def brute_force_bounds(beta: np.ndarray, costs: np.ndarray) -> tuple[int, int]:
    """Return X^L and X^U by their definition: the best of all paths that start at 0."""
    way = np.concatenate(([0.0], np.cumsum(beta)))
    best: dict[str, tuple[float, int]] = {"L": (np.inf, 0), "U": (np.inf, 0)}
    for path in itertools.product(range(way.size), repeat=len(costs)):
        operating = sum(costs[t, x] for t, x in enumerate(path))
        steps = np.diff(np.concatenate(([0.0], way[list(path)])))
        up = operating + np.maximum(0, steps).sum()
        down = operating + np.maximum(0, -steps).sum()
        best["L"] = min(best["L"], (round(up, 9), path[-1]))
        best["U"] = min(best["U"], (round(down, 9), -path[-1]))
    return best["L"][1], -best["U"][1]


@pytest.mark.parametrize("seed", range(20))
def test_lazy_bounds_by_brute_force(seed: int) -> None:
    """On five windows, four capacities and whole-numbered costs, so that ties occur."""
    rng = np.random.default_rng(seed)
    beta = rng.integers(0, 5, 3).astype(float)
    costs = rng.integers(0, 9, (5, 4)).astype(float)
    bounds = LazyBounds(beta)
    for t in range(5):
        ahead = bounds.ahead(costs[t])
        bounds.update(costs[t])
        assert (ahead.lower, ahead.upper) == (bounds.lower, bounds.upper)
        assert (bounds.lower, bounds.upper) == brute_force_bounds(beta, costs[: t + 1])


def test_lazy_capacity_on_a_series_by_hand() -> None:
    """One unit costs 3 to switch on and 1 to hold, and saves 3 when busy.

    Two busy windows cost 6 without it and 5 with it: on. After three idle ones holding cost 3, as much as switching
    off and on; after the fourth more: off. One busy window does not bring it back.
    """
    bounds, level, levels = LazyBounds(np.array([3.0])), 0, []
    for busy in (1, 1, 1, 0, 0, 0, 0, 1):
        bounds.update(np.array([3.0 * busy, 1.0]))
        level = min(max(level, bounds.lower), bounds.upper)
        levels.append(level)
    assert levels == [0, 1, 1, 1, 1, 1, 0, 0]


def test_levels_grow_in_proportion_and_keep_the_limits() -> None:
    """Each level has one replica more than the one before; what pools and budget cannot hold is taken off."""
    levels = proportional_levels(np.array([2, 4]))
    assert levels.tolist() == [[0, 0], [0, 1], [1, 1], [1, 2], [1, 3], [2, 3], [2, 4]]
    instance = make_instance(
        [pool("p", 4), pool("q", 4)],
        [configuration("a", {"p": 1}), configuration("b", {"q": 2})],
        budget={"kind": "rate", "usd": 60.0},
    )
    snapshot = View(instance).snapshot()
    assert within_limits(np.array([4, 3]), snapshot).tolist() == [4, 0]  # pool: 2 of b; budget: 5 USD
    assert within_limits(np.array([0, 0]), snapshot).tolist() == [0, 0]


def test_limits_take_off_one_replica_after_the_other() -> None:
    """The same fleet as of the plain loop: pools in turn, then the budget, each from the last configuration on."""
    rng = np.random.default_rng(3)
    for _ in range(300):
        pools, count = rng.integers(1, 4), rng.integers(1, 6)
        fleet = rng.integers(0, 40, count)
        snapshot = SimpleNamespace(
            gpu_use=rng.integers(0, 5, (pools, count)),
            available_gpus=rng.integers(0, 200, pools),
            hold_usd=rng.choice([0.0, 0.1, 0.3, 1e-9, 7.0], count),
            budget_usd=rng.choice([0.0, 0.3, 1.2, 2.1, 40.0, np.inf]),
        )
        expected = fleet.copy()
        for use, most in zip(snapshot.gpu_use, snapshot.available_gpus, strict=True):
            while use @ expected > most:
                expected[max(c for c in range(count) if use[c] and expected[c])] -= 1
        while snapshot.hold_usd @ expected > snapshot.budget_usd * (1 + 1e-9):
            expected[max(c for c in range(count) if snapshot.hold_usd[c] and expected[c])] -= 1
        assert within_limits(fleet, snapshot).tolist() == expected.tolist()  # type: ignore[arg-type]


def test_lcp_arguments() -> None:
    """Values out of range are refused."""
    with pytest.raises(FleetgymError, match="peak"):
        lcp(peak=1.5)
