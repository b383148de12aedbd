"""Mélange: the published example, its program slice by slice, and its planner on instances with limits."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest
from places import SHARED
from problems import snapshot_of
from toys import random_instance

import fleetgym
from fleetgym.baselines.melange import Allocation, MelangePlanner, Workload, allocate
from fleetgym.baselines.melange.allocation import Limits
from fleetgym.files.errors import FleetgymError
from fleetgym.runtime.linear_programs import LinearProgram

PAPERS = SHARED / "fixtures" / "papers.json"
PROFILE = {
    "A10G": {"cost": 1.01, "tputs": [[2, 1], [5, 2]]},
    "A100-80GB": {"cost": 3.67, "tputs": [[20, 20], [40, 20]]},
}
DISTRIBUTION = [[0.2, 0.1], [0.5, 0.2]]


def from_profile(
    distribution: list[list[float]],
    total_rate_rps: float,
    gpus: dict[str, dict[str, object]],
    slices: int = 8,
) -> Workload:
    """Return the workload of the original's input: a distribution over a grid of sizes, and profiles."""
    return Workload(
        rate_rps=total_rate_rps * np.ravel(distribution),
        throughput_rps=np.column_stack([np.ravel(gpu["tputs"]) for gpu in gpus.values()]),
        cost_usd_per_h=np.array([gpu["cost"] for gpu in gpus.values()]),
        names=tuple(gpus),
        slices=slices,
    )


def example(slices: int) -> Workload:
    """Return the input that comes with the published code."""
    return from_profile(DISTRIBUTION, 30.0, PROFILE, slices)


def allocate_slices(workload: Workload) -> Allocation | None:
    """Return the cheapest allocation by the published program, a binary per slice and GPU type: the oracle."""
    present = np.flatnonzero(workload.rate_rps > 0)
    if not np.isfinite(workload.load[present]).any(axis=1).all():
        return None
    load = np.repeat(workload.load[present], workload.slices, axis=0)
    row, gpu = np.nonzero(np.isfinite(load))
    program = LinearProgram()
    put = program.columns(np.zeros(row.size), 1.0, whole=True)
    count = program.columns(workload.cost_usd_per_h, np.inf, whole=True)
    program.rows(len(load), [(row, put, 1.0)], low=1.0, high=1.0)
    program.rows(count.size, [(gpu, put, load[row, gpu]), (np.arange(count.size), count, -1.0)], high=0.0)
    values = program.solve({"mip_rel_gap": 0.0}).values
    slices = np.zeros(workload.load.shape, dtype=np.int64)
    np.add.at(slices, (present[row // workload.slices], gpu), np.round(values[put]).astype(np.int64))
    whole = np.round(values[count]).astype(np.int64)
    return Allocation(count=whole, slices=slices, cost_usd_per_h=float(whole @ workload.cost_usd_per_h))


def random_workload(seed: int, slices: int) -> Workload:
    """Return a small workload in which some GPUs cannot serve some buckets, and some buckets are empty."""
    rng = np.random.default_rng(seed)
    buckets, gpus = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    throughput = np.where(rng.random((buckets, gpus)) < 0.15, 0.0, rng.uniform(1.0, 20.0, (buckets, gpus)))
    return Workload(
        rate_rps=np.where(rng.random(buckets) < 0.15, 0.0, rng.uniform(0.1, 20.0, buckets)),
        throughput_rps=throughput,
        cost_usd_per_h=rng.uniform(0.5, 8.0, gpus).round(2),
        names=tuple("abcd"[:gpus]),
        slices=slices,
    )


def assert_carries_the_load(workload: Workload, found) -> None:
    """Every slice is somewhere, and no GPU type carries more than its GPUs."""
    present = workload.rate_rps > 0
    assert np.all(found.slices.sum(axis=1)[present] == workload.slices)
    load = (found.slices * np.where(found.slices > 0, workload.load, 0.0)).sum(axis=0)
    assert np.all(load <= found.count * (1 + 1e-6) + 1e-9)
    assert found.cost_usd_per_h == pytest.approx(found.count @ workload.cost_usd_per_h)


@pytest.mark.parametrize(
    ("slices", "counts", "cost"), [(1, [3, 1], 6.70), (2, [2, 1], 5.69), (4, [2, 1], 5.69), (8, [2, 1], 5.69)]
)
@pytest.mark.parametrize("solve", [allocate, allocate_slices])
def test_published_example(solve, slices: int, counts: list[int], cost: float) -> None:
    """6.70 USD/h with whole buckets, 5.69 with 2, 4 and 8 slices, in either formulation."""
    found = solve(example(slices))
    assert found.count.tolist() == counts
    assert found.cost_usd_per_h == pytest.approx(cost, abs=1e-9)


def test_example_is_the_stored_one() -> None:
    """The input above is the published file, and so are the costs."""
    if not PAPERS.is_file():
        pytest.skip("the papers' reference values are not here (set FLEETGYM_SHARED to their folder)")
    stored = json.loads(PAPERS.read_text())["melange_example"]
    data = stored["input"]
    assert data["workload_distribution"] == DISTRIBUTION
    assert data["total_request_rate"] == 30.0
    assert {name: data[name] for name in PROFILE} == PROFILE
    assert (stored["slice1"]["cost"], stored["slice2,4,8"]["cost"]) == (6.7, 5.69)


@pytest.mark.parametrize("slices", [1, 2, 3])
@pytest.mark.parametrize("seed", range(15))
def test_aggregated_counts_lose_nothing(seed: int, slices: int) -> None:
    """Counts per bucket cost what binaries per slice cost, and both carry the load."""
    workload = random_workload(seed, slices)
    one, published = allocate(workload), allocate_slices(workload)
    assert (one is None) == (published is None)
    if one is not None:
        assert one.cost_usd_per_h == pytest.approx(published.cost_usd_per_h, rel=1e-9)
        assert_carries_the_load(workload, one)
        assert_carries_the_load(workload, published)


@pytest.mark.parametrize("seed", range(12))
def test_cheapest_by_enumeration(seed: int) -> None:
    """No way of putting whole buckets on GPU types is cheaper."""
    workload = random_workload(seed, 1)
    present = np.flatnonzero(workload.rate_rps > 0)
    best = np.inf
    for choice in itertools.product(range(len(workload.names)), repeat=present.size):
        load = np.bincount(choice, weights=workload.load[present, choice], minlength=len(workload.names))
        if np.isfinite(load).all():
            best = min(best, float(np.ceil(load - 1e-9) @ workload.cost_usd_per_h))
    found = allocate(workload)
    assert (found.cost_usd_per_h if found else np.inf) == pytest.approx(best, rel=1e-9)


def test_finer_slices_are_never_dearer() -> None:
    """Twice as many slices contain every coarser plan."""
    for seed in range(8):
        costs = [allocate(random_workload(seed, slices)) for slices in (1, 2, 4)]
        if costs[0] is not None:
            usd = [found.cost_usd_per_h for found in costs]
            assert usd[2] <= usd[1] + 1e-9 <= usd[0] + 2e-9


def test_single_types() -> None:
    """The best mixture is no dearer than the best single type; each type by hand."""
    workload = example(8)
    singles = {
        name: allocate(from_profile(DISTRIBUTION, 30.0, {name: PROFILE[name]})) for name in workload.names
    }
    assert singles["A100-80GB"].count.tolist() == [2]  # load .3 + .15 + .375 + .3
    assert singles["A10G"].count.tolist() == [12]  # 3 + 3 + 3 + 3
    assert allocate(workload).cost_usd_per_h <= min(s.cost_usd_per_h for s in singles.values())


def test_zero_throughput_means_infeasible() -> None:
    """A GPU that cannot serve a bucket gets none of it; a bucket nobody serves has no answer."""
    blocked = {**PROFILE, "A10G": {"cost": 0.01, "tputs": [[0, 1], [5, 2]]}}
    found = allocate(from_profile(DISTRIBUTION, 30.0, blocked, 4))
    assert found.slices[0].tolist() == [0, 4]
    hopeless = from_profile([[1.0]], 1.0, {"A10G": {"cost": 1.0, "tputs": [[0.0]]}})
    assert allocate(hopeless) is None
    assert allocate_slices(hopeless) is None
    empty = from_profile([[0.0]], 1.0, {"A10G": {"cost": 1.0, "tputs": [[0.0]]}})
    assert allocate(empty).cost_usd_per_h == 0.0


def test_limits_leave_slices_unserved() -> None:
    """With too few GPUs the dearest requests are served, and the rest are not."""
    workload = dataclasses.replace(example(8))
    limits = Limits(
        gpu_use=np.eye(2, dtype=int),
        available_gpus=np.array([1, 0]),
        budget_usd_per_h=np.inf,
        most=np.array([5, 5]),
        groups=(),
        unserved_usd=np.array([1.0, 1.0, 100.0, 1.0]),
    )
    found = allocate(workload, limits)
    assert found.count.tolist() == [1, 0]
    assert found.slices[2].tolist() == [2, 0]  # 15 req/s at 5 per GPU: a third of 8 slices
    assert not found.slices[[0, 1, 3]].any()
    poor = allocate(workload, dataclasses.replace(limits, budget_usd_per_h=1.0))
    assert not poor.count.any()


# -- the planner


@pytest.mark.parametrize("seed", range(8))
def test_plans_keep_every_limit(seed: int) -> None:
    """On random instances, plans keep slots, pools and budget, and each workload has one model."""
    snapshot = snapshot_of(random_instance(seed))
    plan = MelangePlanner().plan(snapshot)
    assert np.all(snapshot.gpu_use @ plan.fleet <= snapshot.available_gpus)
    assert plan.fleet @ snapshot.hold_usd <= snapshot.budget_usd * (1 + 1e-9) + 1e-9
    fleetgym.ActionSpace(snapshot.instance).from_fleet(plan.fleet)
    names = np.array([c.model for c in snapshot.instance.configurations])
    for i, model in enumerate(plan.diagnostics["models"]):
        assert set(names[plan.diagnostics["slices"][i] > 0]) <= {model}


def test_planner_serves_a_standard_instance() -> None:
    """On a dev instance everything is served, at less than twice what AGH pays, and one type costs more."""
    view = fleetgym.View(fleetgym.load_instance("fleet-v0/dev/ou-s-001"))
    snapshot = view.snapshot()
    plan = MelangePlanner().plan(snapshot)
    cost = view.steady_cost_usd(plan.fleet)
    from fleetgym.baselines.agh import AdaptiveGreedyHeuristic

    assert cost < 2.0 * view.steady_cost_usd(AdaptiveGreedyHeuristic().plan(snapshot).fleet)
    assert plan.diagnostics["slices"].sum(axis=1).tolist() == [8] * snapshot.rate_rps.size
    for gpu_type in {pool.gpu_type for pool in view.instance.pools}:
        single = MelangePlanner(gpu_type=gpu_type).plan(snapshot)
        used = {
            p.gpu_type for p, n in zip(view.instance.pools, snapshot.gpu_use @ single.fleet, strict=True) if n
        }
        assert used <= {gpu_type}


def test_same_snapshot_same_plan() -> None:
    """Plans repeat to the last bit."""
    snapshot = snapshot_of(random_instance(1))
    one, two = (MelangePlanner().plan(snapshot) for _ in range(2))
    np.testing.assert_array_equal(one.fleet, two.fleet)


def test_bad_workloads() -> None:
    """Shapes that do not fit, and unknown GPU types, are named."""
    with pytest.raises(FleetgymError, match="throughput_rps has shape"):
        dataclasses.replace(example(1), throughput_rps=np.ones((3, 2)))
    with pytest.raises(FleetgymError, match="rate_rps has a negative"):
        dataclasses.replace(example(1), rate_rps=-np.ones(4))
    snapshot = snapshot_of(random_instance(1))
    with pytest.raises(FleetgymError, match="GPU type"):
        MelangePlanner(gpu_type="none").plan(snapshot)
