"""The MILP planner: two formulations against each other, against enumeration, and within its limits."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from checker import cost_usd, storage_usd_per_h, violations
from problems import snapshot_of
from scipy.optimize import linprog
from toys import random_instance

import fleetgym
from fleetgym.baselines.agh import AdaptiveGreedyHeuristic
from fleetgym.baselines.milp import MilpPlanner
from fleetgym.families.generate import generate
from fleetgym.model.planning import Snapshot
from fleetgym.runtime.linear_programs import LinearProgram

SLOS = ("elastic", "mean", "served-mean", "per-route")
TOYS = ("budget-pool", "drop", "group", "heterogeneous", "regions", "startup", "two-pools")


def random_snapshot(seed: int) -> Snapshot:
    """Return a random problem with some workloads absent, scarce GPUs, and servers that are better shared."""
    rng = np.random.default_rng(seed)
    instance = random_instance(seed)
    present = rng.random(instance.num_workloads) > 0.1
    snapshot = snapshot_of(instance, rate_scale=present * rng.choice([0.3, 1.0, 3.0]))
    segments = snapshot.segments
    replica = np.arange(segments.width.shape[0]) - np.repeat(segments.offsets, snapshot.max_replicas) + 1
    safe = np.minimum(0.95, 0.5 + 0.15 * replica)
    width = (0.95 - safe) / 3 * replica * np.repeat(snapshot.max_concurrency, snapshot.max_replicas)
    slope = np.sort(rng.random((width.size, 3)), axis=1) * (width > 0)[:, None] * snapshot.unserved_usd.max()
    changed = dataclasses.replace(
        segments, safe_utilization=safe, width=np.repeat(width[:, None], 3, axis=1), slope_usd=slope
    )
    return dataclasses.replace(snapshot, segments=changed)


def fastllm_snapshot(size: str, seed: int) -> Snapshot:
    """Return the nominal window of a fresh instance of the paper's regime."""
    return snapshot_of(generate("fastllm", size, seed))


# -- the optimum by enumeration


def all_fleets(snapshot: Snapshot):
    """Yield every fleet that keeps slots, pools and budget."""
    instance, ways = snapshot.instance, []
    for slot, members in zip(instance.slots, instance.slot_members, strict=True):
        if slot.exclusive:
            ways.append([(), *(((c, 1),) for c in members)])
        else:
            (c,) = members
            ways.append([(), *(((c, r),) for r in range(1, int(snapshot.max_replicas[c]) + 1))])
    for choice in itertools.product(*ways):
        fleet = np.zeros(instance.num_configurations, dtype=np.int64)
        for c, r in itertools.chain.from_iterable(choice):
            fleet[c] = r
        if (snapshot.gpu_use @ fleet <= snapshot.available_gpus).all() and (
            fleet @ snapshot.hold_usd <= snapshot.budget_usd * (1 + 1e-12)
        ):
            yield fleet


def routing_usd(snapshot: Snapshot, fleet: np.ndarray, slo: str, late: str) -> float:
    """Return what it costs to serve with a fleet: section 4 of the model page as a dense LP over x, u, s, s', o."""
    I, C = snapshot.delay_s.shape  # noqa: E741
    here = np.flatnonzero(fleet)
    n = here.size
    total = I * n + 3 * I + 3 * n
    row = snapshot.segments.offsets[here] + fleet[here] - 1
    cost = np.concatenate(
        [
            snapshot.route_usd[:, here].ravel(),
            *[snapshot.unserved_usd] * 3,
            snapshot.segments.slope_usd[row].ravel(),
        ]
    )
    upper, lower_rows, high = [], [], []
    allowed = np.array(snapshot.compatible[:, here])
    workloads = snapshot.instance.workloads
    delay = snapshot.delay_s[:, here] / np.array([[w.mean_delay_slo_s] for w in workloads])
    error = snapshot.error[:, here] / np.array([[w.error_slo] for w in workloads])
    if slo == "per-route":
        allowed &= delay <= 1
    width = snapshot.segments.width[row] * (late != "safe")
    if late == "omit":
        cost[total - 3 * n :] = 0.0
    upper = np.concatenate([allowed.ravel(), np.full(3 * I, np.inf), width.ravel()]).astype(float)
    if slo != "elastic":
        upper[I * n + I : I * n + 3 * I] = 0.0
    demand = np.zeros((I, total))
    for i in range(I):
        demand[i, i * n : (i + 1) * n] = 1.0
        demand[i, I * n + i] = 1.0
        for k, value in enumerate((delay, error)):
            if slo == "per-route" and k == 0:
                continue
            soft = np.zeros(total)
            soft[i * n : (i + 1) * n] = value[i]
            if slo in ("elastic", "served-mean"):
                soft[i * n : (i + 1) * n] -= 1.0
            soft[I * n + (1 + k) * I + i] = -1.0
            lower_rows.append(soft)
            high.append(0.0 if slo in ("elastic", "served-mean") else 1.0)
    for j, c in enumerate(here):
        for k, (need, give) in enumerate(
            (
                (snapshot.work_tflop, snapshot.compute_tflops[c] * fleet[c]),
                (snapshot.kv_gb_s, snapshot.kv_capacity_gb[c] * fleet[c]),
                (
                    snapshot.service_s,
                    snapshot.segments.safe_utilization[row[j]] * snapshot.max_concurrency[c] * fleet[c],
                ),
            )
        ):
            capacity = np.zeros(total)
            capacity[j : I * n : n] = snapshot.rate_rps * need[:, c]
            if k == 2:
                capacity[I * n + 3 * I + 3 * j : I * n + 3 * I + 3 * j + 3] = -1.0
            scale = max(give, 1e-9)
            lower_rows.append(capacity / scale)
            high.append(give / scale)
    present = (snapshot.rate_rps > 0).astype(float)
    found = linprog(
        cost,
        np.array(lower_rows),
        np.array(high),
        demand,
        present,
        np.column_stack([np.zeros(total), upper]),
        options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
    )
    assert found.status == 0, found.message
    return float(found.fun)


def least_cost(
    snapshot: Snapshot, slo: str = "elastic", late: str = "safe", switch_weight: float = 0.0
) -> float:
    """Return the least cost over all fleets."""
    best = np.inf
    for fleet in all_fleets(snapshot):
        fees = switch_weight * snapshot.startup_usd @ np.maximum(0, fleet - snapshot.fleet)
        hold = fleet @ snapshot.hold_usd + fees
        if hold < best:
            best = min(best, hold + routing_usd(snapshot, fleet, slo, late))
    return float(best)


@pytest.mark.parametrize("formulation", ["tight", "mccormick"])
@pytest.mark.parametrize("toy", TOYS)
def test_toys_by_enumeration(toy: str, formulation: str) -> None:
    """On the toys both formulations find what trying every fleet finds, with fees and without."""
    view = fleetgym.View(fleetgym.load_instance(f"fleet-v0/toy/{toy}"))
    rate = view.conditions.rate_rps
    for scale, weight in ((0.5, 0.0), (2.0, 0.0), (2.0, 0.5)):
        snapshot = view.snapshot(rate_rps=scale * rate)
        plan = MilpPlanner(formulation=formulation, switch_weight=weight).plan(snapshot)
        assert plan.objective_usd == pytest.approx(
            least_cost(snapshot, switch_weight=weight), rel=1e-6, abs=1e-9
        )
        assert plan.status in ("optimal", "empty")


@pytest.mark.parametrize("slo", SLOS)
@pytest.mark.parametrize("seed", range(6))
def test_random_problems_by_enumeration(seed: int, slo: str) -> None:
    """On random small problems the tight formulation finds what trying every fleet finds."""
    snapshot = random_snapshot(seed)
    late = ("safe", "segments", "omit")[seed % 3]
    plan = MilpPlanner(slo=slo, late=late).plan(snapshot)
    expected = least_cost(snapshot, slo, late)
    tie_break = 1e-6 * snapshot.unserved_usd.sum() if late == "omit" else 0.0
    assert plan.objective_usd == pytest.approx(expected, rel=1e-6, abs=1e-9 + tie_break)


# -- the formulations against each other


def assert_equal_optima(snapshot: Snapshot, **modes) -> None:
    """Both formulations are solved to proof, and their costs agree to a millionth."""
    tight, oracle = (MilpPlanner(formulation=f, **modes).plan(snapshot) for f in ("tight", "mccormick"))
    for plan in (tight, oracle):
        assert plan.status in ("optimal", "empty")
        assert plan.bound_usd <= plan.objective_usd
    assert tight.objective_usd == pytest.approx(oracle.objective_usd, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("slo", SLOS)
@pytest.mark.parametrize("kv", ["littles-law", "paper"])
def test_formulations_agree(slo: str, kv: str) -> None:
    """Every reading of the SLOs and of the memory has one optimum."""
    assert_equal_optima(fastllm_snapshot("4-4-5", 102), slo=slo, kv=kv)
    assert_equal_optima(random_snapshot(7), slo=slo, kv=kv)


@pytest.mark.parametrize(
    "modes", [{"storage": "paper"}, {"late": "segments"}, {"late": "omit"}, {"switch_weight": 3.0}]
)
def test_formulations_agree_in_other_modes(modes: dict) -> None:
    """Weights per route, late segments, none at all, and start-up fees."""
    for seed in range(10, 14):
        assert_equal_optima(random_snapshot(seed), **modes)


@pytest.mark.slow
@pytest.mark.parametrize("size", ["4-4-5", "6-6-10"])
@pytest.mark.parametrize(
    "seed", [*range(8), *(pytest.param(seed, marks=pytest.mark.full) for seed in range(8, 50))]
)
def test_formulations_agree_on_fresh_instances(size: str, seed: int) -> None:
    """A hundred instances of the paper's regime, with its mean SLOs; sixteen of them in the slow set."""
    assert_equal_optima(fastllm_snapshot(size, 1000 + seed), slo="mean")


# -- what a plan must keep


@pytest.mark.parametrize("slo", SLOS)
@pytest.mark.parametrize("seed", range(12))
def test_plans_obey_every_constraint(seed: int, slo: str) -> None:
    """The checker agrees with constraints, cost and bound, and AGH is never better than the bound."""
    snapshot = random_snapshot(seed)
    plan = MilpPlanner(slo=slo).plan(snapshot)
    assert violations(snapshot, plan, slo) == []
    assert plan.objective_usd == pytest.approx(cost_usd(snapshot, plan, slo), rel=1e-9, abs=1e-12)
    assert plan.bound_usd <= plan.objective_usd
    assert AdaptiveGreedyHeuristic(slo=slo).plan(snapshot).objective_usd >= plan.bound_usd


def test_storage_limit_binds() -> None:
    """(5h) holds, in both readings of it, when it is less than what the optimum would store."""
    for seed in range(6):
        snapshot = random_snapshot(seed)
        free = MilpPlanner().plan(snapshot)
        limit = 0.8 * storage_usd_per_h(snapshot, free)
        plan = MilpPlanner(storage_usd_per_h=limit).plan(snapshot)
        assert storage_usd_per_h(snapshot, plan) <= limit * (1 + 1e-6)
        assert plan.objective_usd >= free.objective_usd * (1 - 1e-9)
        assert_equal_optima(snapshot, storage_usd_per_h=limit, storage="paper")


@pytest.mark.parametrize("formulation", ["tight", "mccormick"])
def test_serving_nothing_is_always_feasible(formulation: str) -> None:
    """Coefficients of 1e-12 beside 1e6 and no affordable GPU: an answer, never "infeasible" (u = 1 is one)."""
    snapshot = fastllm_snapshot("4-4-5", 3)
    tiny = dataclasses.replace(
        snapshot,
        work_tflop=snapshot.work_tflop * 1e-12,
        kv_gb_s=snapshot.kv_gb_s * 1e-12,
        error=snapshot.error * 1e-9,
    )
    plan = MilpPlanner(formulation=formulation, slo="mean", time_limit_s=60).plan(tiny)
    assert plan.objective_usd < snapshot.unserved_usd.sum()
    hopeless = dataclasses.replace(snapshot, delay_s=snapshot.delay_s * 1e6, error=snapshot.error * 1e3)
    for slo in SLOS:
        plan = MilpPlanner(formulation=formulation, slo=slo).plan(hopeless)
        assert plan.objective_usd <= snapshot.unserved_usd.sum() * (1 + 1e-9)
    poor = dataclasses.replace(snapshot, budget_usd=0.0)
    plan = MilpPlanner(formulation=formulation).plan(poor)
    assert plan.status in ("optimal", "empty")
    assert plan.objective_usd == pytest.approx(snapshot.unserved_usd.sum())


def test_no_demand_no_fleet() -> None:
    """Without arrivals nothing is held, nothing is unserved, nothing costs."""
    plan = MilpPlanner().plan(snapshot_of(random_instance(1), rate_scale=0.0))
    assert not plan.fleet.any()
    assert plan.objective_usd == plan.bound_usd == 0.0
    assert not plan.diagnostics["unserved"].any()


def test_limits_keep_a_plan_and_a_bound() -> None:
    """Stopped after a node or at once, there is a feasible plan at least as good as AGH's, and a valid bound."""
    snapshot = fastllm_snapshot("6-6-10", 5)
    best = MilpPlanner(slo="mean").plan(snapshot)
    greedy = AdaptiveGreedyHeuristic(slo="mean").plan(snapshot)
    for limits in ({"node_limit": 1}, {"time_limit_s": 0.0}, {"gap": 0.2}):
        plan = MilpPlanner(slo="mean", **limits).plan(snapshot)
        assert violations(snapshot, plan, "mean") == []
        assert plan.bound_usd <= best.objective_usd <= plan.objective_usd * (1 + 1e-9)
        assert plan.objective_usd <= greedy.objective_usd * (1 + 1e-9)


def test_same_snapshot_same_plan() -> None:
    """Without a time limit, plans repeat to the last bit."""
    for seed in range(4):
        snapshot = random_snapshot(seed)
        one, two = (MilpPlanner(node_limit=50).plan(snapshot) for _ in range(2))
        np.testing.assert_array_equal(one.fleet, two.fleet)
        np.testing.assert_array_equal(one.diagnostics["x"], two.diagnostics["x"])
        assert (one.objective_usd, one.bound_usd) == (two.objective_usd, two.bound_usd)


def test_allowed_configurations() -> None:
    """Only what is allowed is used."""
    snapshot = fastllm_snapshot("4-4-5", 5)
    allowed = np.arange(snapshot.hold_usd.size) % 2 == 0
    assert not MilpPlanner(allowed=allowed).plan(snapshot).fleet[~allowed].any()


@pytest.mark.slow
def test_bound_without_late_holds_for_the_environment() -> None:
    """No fleet costs less in the environment's own step than the bound of ``late="omit"``."""
    view = fleetgym.View(fleetgym.load_instance("fleet-v0/dev/ou-s-001"))
    snapshot = view.snapshot()
    bound = MilpPlanner(late="omit", node_limit=5).plan(snapshot).bound_usd
    assert bound > 0.5 * view.steady_cost_usd(MilpPlanner(node_limit=5).plan(snapshot).fleet)
    for late in ("safe", "segments", "omit"):
        fleet = MilpPlanner(late=late, node_limit=5).plan(snapshot).fleet
        assert view.steady_cost_usd(fleet) >= bound


def test_negligible_entries_only_relax() -> None:
    """An entry below a millionth of its row is dropped in the direction that allows more."""
    program = LinearProgram()
    big = program.columns(np.array([-1.0]), 1.0)
    small = program.columns(np.array([-1.0]), 1.0, droppable=True)
    program.rows(1, [(0, big, 1.0), (0, small, -1e-7)], high=0.5)
    program.rows(1, [(0, big, 1.0), (0, small, 1e-7)], high=0.75)
    answer = program.solve({})
    assert -1.5 - 1.01e-7 <= answer.objective <= -1.5
