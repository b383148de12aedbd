"""The two-stage evaluator against HiGHS on the LP as printed, and its promises."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linprog

import fleetgym
from fleetgym.capacity.two_stage import SecondStage, two_stage_evaluate
from fleetgym.families.generate import generate


@pytest.fixture(scope="module")
def instance() -> fleetgym.Instance:
    """Return a small instance of the paper's regime."""
    return generate("fastllm", "4-4-5", 7)


def random_plan(instance: fleetgym.Instance, rng: np.random.Generator) -> fleetgym.Plan:
    """Return a fleet of up to five groups with random routes."""
    fleet = np.zeros(instance.num_configurations, dtype=np.int64)
    for s in rng.choice(len(instance.slots), size=rng.integers(1, 6), replace=False):
        fleet[rng.choice(instance.slot_members[s])] = 1
    routes = rng.random((instance.num_workloads, fleet.size)) < 0.7
    return fleetgym.Plan(fleet=fleet, eligible=routes & (fleet > 0))


def highs(instance, plan, rate, delay_factor, error_factor, routes, slo, memory) -> float:
    """Return the optimum of (12a) over (12b)-(12f) from the instance's own fields, by HiGHS."""
    performance, active = instance.performance, np.flatnonzero(plan.fleet)
    count, width = instance.num_workloads, active.size
    tokens = np.array([(w.input_tokens, w.output_tokens) for w in instance.workloads])

    def affine(part):
        value = part.base + part.per_input_token * tokens[:, :1] + part.per_output_token * tokens[:, 1:]
        return value[:, active]

    delay_s = affine(performance.delay_s) * delay_factor[:, active]
    error = performance.error[:, active] * error_factor[:, active]
    work = affine(performance.work_tflop)
    phi = np.array([w.unserved_usd for w in instance.workloads])
    rho = np.array([[w.delay_usd_per_s] for w in instance.workloads])
    configurations = [instance.configurations[c] for c in active]
    kv = np.array([c.kv_gb_per_token for c in configurations]) * tokens.sum(axis=1)[:, None] * delay_s
    # columns: x (I, A) by workload, u (I), s (I), t (I)
    pairs = count * width
    cost = np.concatenate([(rho * delay_s).ravel(), phi, phi, phi])
    open_ = performance.compatible if routes == "deployed" else plan.eligible
    upper = np.concatenate(
        [open_[:, active].ravel().astype(float), np.ones(count), np.full(2 * count, np.inf)]
    )
    if slo == "mean":
        upper[pairs + count :] = 0.0
    equal = np.zeros((count, cost.size))
    rows, limits = [], []
    for i in range(count):
        equal[i, i * width : (i + 1) * width] = equal[i, pairs + i] = 1.0
        w = instance.workloads[i]
        for k, (value, most) in enumerate(((delay_s, w.mean_delay_slo_s), (error, w.error_slo))):
            row = np.zeros(cost.size)
            row[i * width : (i + 1) * width] = value[i] / most - (0.0 if slo == "mean" else 1.0)
            row[pairs + count * (1 + k) + i] = -1.0
            rows.append(row)
            limits.append(1.0 if slo == "mean" else 0.0)
    for a, c in enumerate(configurations):
        capacities = [(work, c.compute_tflops), (kv, c.kv_capacity_gb)][: 2 if memory else 1]
        for value, most in capacities:
            row = np.zeros(cost.size)
            row[a:pairs:width] = rate * value[:, a] / most
            rows.append(row)
            limits.append(1.0)
    options = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
    bounds = np.column_stack((np.zeros_like(upper), upper))
    found = linprog(cost, rows, limits, equal, np.ones(count), bounds, method="highs", options=options)
    assert found.status == 0, found.message
    return float(found.fun)


@pytest.mark.parametrize("routes", ["frozen", "deployed"])
@pytest.mark.parametrize("slo", ["mean", "elastic"])
@pytest.mark.parametrize("memory", [False, True])
def test_second_stage_is_the_printed_lp(instance, routes, slo, memory):
    """The kernel with an unserved column costs what HiGHS says of eq. 12, to 1e-7 of the unserved cost."""
    rng = np.random.default_rng(3)
    rate = np.array([w.rate_rps for w in instance.workloads])
    scale = sum(w.unserved_usd for w in instance.workloads)
    differing = 0
    for _ in range(25):
        plan = random_plan(instance, rng)
        stage = SecondStage(instance, plan, routes=routes, slo=slo, memory=memory)
        shape = (instance.num_workloads, instance.num_configurations)
        demand = rate * rng.uniform(0.2, 3.0, rate.size)
        factors = rng.uniform(0.7, 2.0, (2, *shape))
        routed = stage.solve(demand[None], *(factor[None][..., stage.active] for factor in factors))
        truth = highs(instance, plan, demand, *factors, routes, slo, memory)
        mine = routed.terms_usd[0, 3:].sum()
        assert abs(mine - truth) <= 1e-7 * scale
        differing += 1e-6 * scale < truth < scale * (1 - 1e-6)
        if slo == "mean":
            assert_hard_rows(instance, routed.routing[0], *factors[..., stage.active], stage.active)
    assert differing >= 5  # neither everything served for nothing nor nothing served at all


def assert_hard_rows(instance, routing, delay_factor, error_factor, active):
    """Check sum D x <= SLO and the same of the error for a routing."""
    snapshot = fleetgym.View(instance).snapshot()
    delay_s, error = snapshot.delay_s[:, active] * delay_factor, snapshot.error[:, active] * error_factor
    for value, name in ((delay_s, "mean_delay_slo_s"), (error, "error_slo")):
        most = np.array([getattr(w, name) for w in instance.workloads])
        assert np.all((value * routing).sum(axis=1) <= most * (1 + 1e-9))


@pytest.mark.parametrize("slo", ["mean", "elastic"])
def test_serving_nothing_is_always_feasible(instance, slo):
    """Where every route breaks the SLO a hundredfold, and where there is no fleet, u = 1 is the answer."""
    penalties = sum(w.unserved_usd for w in instance.workloads)
    none = fleetgym.Plan(fleet=np.zeros(instance.num_configurations, dtype=int))
    found = two_stage_evaluate(instance, none, scenarios=3, routes="deployed", slo=slo)
    assert found.cost_usd == pytest.approx(penalties)
    assert np.all(found.violation == 1.0)
    some = random_plan(instance, np.random.default_rng(0))
    hopeless = SecondStage(instance, some, routes="deployed", slo=slo)
    rate = np.array([w.rate_rps for w in instance.workloads])
    factor = np.full((1, rate.size, hopeless.active.size), 1e3)
    routed = hopeless.solve(1e6 * rate[None], factor, factor)
    assert routed.unserved_share + routed.excess_share == pytest.approx(1.0, abs=0.01)
    assert routed.terms_usd[0, 4:].sum() <= penalties * (1 + 1e-9)


def test_absent_workload_costs_and_misses_nothing(instance):
    """A workload without arrivals leaves the objective and is no violation."""
    plan = random_plan(instance, np.random.default_rng(1))
    rate = np.array([w.rate_rps for w in instance.workloads])
    rate[1] = 0.0
    routed = SecondStage(instance, plan).solve(rate[None])
    assert routed.unserved_share[0, 1] == 0.0
    assert routed.terms_usd[0, 5] <= sum(w.unserved_usd for k, w in enumerate(instance.workloads) if k != 1)


def test_without_demand_only_the_fleet_is_paid(instance):
    """Penalties of a regime by the day are due for workloads that are there only."""
    plan = random_plan(instance, np.random.default_rng(1))
    routed = SecondStage(instance, plan, routes="deployed").solve(np.zeros((1, instance.num_workloads)))
    assert np.all(routed.terms_usd[0, :2] > 0.0)
    assert np.all(routed.terms_usd[0, 2:] == 0.0)
    assert np.all(routed.unserved_share == 0.0)


def test_data_storage_is_paid_by_the_request(instance):
    """A day's requests times the share and the price of each route: it is no part of (12a)."""
    prices = np.random.default_rng(8).random(instance.performance.storage_usd.shape)
    performance = {**instance.to_dict()["performance"], "storage_usd": prices.tolist()}
    stage = SecondStage(
        instance.replace(performance=performance),
        random_plan(instance, np.random.default_rng(1)),
        routes="deployed",
    )
    rate = np.array([[w.rate_rps for w in instance.workloads]])
    routed = stage.solve(rate)
    expected = (86400.0 * rate[0][:, None] * prices[:, stage.active] * routed.routing[0]).sum()
    assert expected > 0.0
    assert routed.terms_usd[0, 2] == pytest.approx(expected, rel=1e-9)


def test_each_spread_spreads_what_it_says(instance):
    """Without errors a spread of errors changes nothing, and one of delays does."""
    performance = instance.to_dict()["performance"]
    performance["error"] = np.zeros_like(instance.performance.error).tolist()
    exact, plan = instance.replace(performance=performance), random_plan(instance, np.random.default_rng(1))
    still = {
        "scenarios": 6,
        "routes": "deployed",
        "delay_spread": 0.0,
        "error_spread": 0.0,
        "arrival_spread": 0.0,
    }
    calm = two_stage_evaluate(exact, plan, **still).terms_usd
    errors = two_stage_evaluate(exact, plan, **{**still, "error_spread": 0.5}).terms_usd
    delays = two_stage_evaluate(exact, plan, **{**still, "delay_spread": 0.01}).terms_usd
    assert np.array_equal(errors, calm)
    assert np.ptp(calm, axis=0) == pytest.approx(0.0, abs=1e-9)
    assert np.ptp(delays[:, 3:].sum(axis=1)) > 0.0


def test_scenarios_are_common_and_reproducible(instance):
    """Scenario k is the same for every plan and count; more routes never cost more in (12a)."""
    plan = random_plan(instance, np.random.default_rng(2))
    few = two_stage_evaluate(instance, plan, scenarios=4, seed=5)
    many = two_stage_evaluate(instance, plan, scenarios=8, seed=5)
    assert np.array_equal(few.terms_usd, many.terms_usd[:4])
    other = two_stage_evaluate(instance, plan, scenarios=8, seed=6)
    assert not np.array_equal(many.terms_usd, other.terms_usd)
    wide = two_stage_evaluate(instance, plan, scenarios=8, seed=5, routes="deployed")
    assert np.all(wide.terms_usd[:, 3:].sum(axis=1) <= many.terms_usd[:, 3:].sum(axis=1) + 1e-9)
    tight = two_stage_evaluate(instance, plan, scenarios=8, seed=5, routes="deployed", memory=True)
    assert np.all(tight.terms_usd[:, 3:].sum(axis=1) >= wide.terms_usd[:, 3:].sum(axis=1) - 1e-9)


def test_summary_is_the_papers_measures(instance):
    """C^a is the mean of all terms, P_viol the share of (scenario, workload) that misses over 1 %."""
    plan = random_plan(instance, np.random.default_rng(4))
    found = two_stage_evaluate(instance, plan, scenarios=50, stress=1.5)
    summary = found.summary()
    assert summary["cost_usd"]["mean"] == pytest.approx(sum(summary["terms_usd"].values()))
    assert summary["violation_rate"]["mean"] == pytest.approx(np.mean(found.unserved_share > 0.01))
    low, high = summary["cost_usd"]["interval"]
    error = np.sqrt(np.sum((found.cost_usd - found.cost_usd.mean()) ** 2) / (50 * 49))
    assert (low + high) / 2 == pytest.approx(summary["cost_usd"]["mean"])
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=1e-9)
    hold = fleetgym.View(instance).snapshot().hold_usd @ plan.fleet * 288
    assert found.terms_usd[:, :2].sum(axis=1) == pytest.approx(hold)


def test_wrong_arguments_say_what_is_valid(instance):
    """Every refusal names the value and what would do."""
    plan = random_plan(instance, np.random.default_rng(5))
    cases = [
        (plan, {"routes": "free"}, "frozen, deployed"),
        (plan, {"slo": "served-mean"}, "mean, elastic"),
        (plan, {"scenarios": 0}, "scenarios is 0; expected a whole number of at least 1"),
        (plan, {"scenarios": 1.5}, "scenarios is 1.5"),
        (plan, {"seed": 0.5}, "seed is 0.5"),
        (plan, {"stress": np.nan}, "stress is nan"),
        (plan, {"stress": np.inf}, "stress is inf"),
        (plan, {"delay_spread": 1.0}, "below 1"),
        (plan, {"error_spread": np.nan}, "below 1"),
        *(
            (fleetgym.Plan(fleet=plan.fleet + change), {"routes": "deployed"}, "replica counts")
            for change in (0.5, np.nan, np.inf, -99)
        ),
        (fleetgym.Plan(fleet=plan.fleet), {}, "names no routes"),
        (fleetgym.Plan(fleet=plan.fleet[:-1]), {"routes": "deployed"}, "replica counts"),
    ]
    for broken, arguments, message in cases:
        with pytest.raises(fleetgym.FleetgymError, match=message):
            two_stage_evaluate(instance, broken, **arguments)
