"""GH and AGH against an independent checker, an exact optimum, and the mechanisms that the paper describes."""

from __future__ import annotations

import numpy as np
import pytest
from checker import cost_usd, excess, storage_usd_per_h, violations
from optimum import optimum_usd
from problems import snapshot_of
from toys import affine, configuration, make_instance, pool, random_instance, workload

from fleetgym.baselines.agh import AdaptiveGreedyHeuristic, adaptive_starts
from fleetgym.baselines.gh import GreedyHeuristic
from fleetgym.baselines.orderings import ORDERINGS, ordering
from fleetgym.files.errors import FleetgymError
from fleetgym.model.instance import Instance
from fleetgym.model.planning import Planner, Snapshot

SLOS = ("elastic", "per-route", "mean", "served-mean")


def random_snapshot(seed: int) -> Snapshot:
    """Return a random problem; some have no demand, some far too much."""
    rng = np.random.default_rng(seed)
    instance = random_instance(seed)
    present = rng.random(instance.num_workloads) > 0.1
    return snapshot_of(
        instance, rate_scale=present * rng.choice([0.0, 0.3, 1.0, 3.0], p=[0.05, 0.3, 0.4, 0.25])
    )


def day_usd(plan) -> float:
    """Return a plan's objective in USD per day."""
    return 288 * plan.objective_usd


# -- any problem


@pytest.mark.parametrize("slo", SLOS)
@pytest.mark.parametrize("seed", range(40))
def test_plans_obey_every_constraint(seed: int, slo: str) -> None:
    """No constraint is broken, the objective is what the checker computes, and AGH never costs more than GH."""
    snapshot = random_snapshot(seed)
    greedy, adaptive = (
        planner(slo=slo).plan(snapshot) for planner in (GreedyHeuristic, AdaptiveGreedyHeuristic)
    )
    for plan in (greedy, adaptive):
        assert violations(snapshot, plan, slo) == []
        cost = cost_usd(snapshot, plan, slo)
        assert plan.objective_usd == pytest.approx(cost, rel=1e-9, abs=1e-12)
    assert adaptive.objective_usd <= greedy.objective_usd * (1 + 1e-9)


@pytest.mark.parametrize("seed", range(24))
def test_agh_is_never_better_than_the_optimum(seed: int) -> None:
    """HiGHS proves a lower bound for the same problem with hard SLOs."""
    snapshot = random_snapshot(seed)
    bound = optimum_usd(snapshot)
    found = AdaptiveGreedyHeuristic(slo="served-mean").plan(snapshot).objective_usd
    assert found >= bound - 1e-5 * snapshot.unserved_usd.sum()


def test_agh_is_optimal_in_most_tiny_problems() -> None:
    """The gap is zero in more than half of forty problems, and small in all against serving nothing."""
    gaps = []
    for seed in range(40):
        snapshot = random_snapshot(seed)
        nothing = snapshot.unserved_usd.sum()
        if nothing > 0:
            found = AdaptiveGreedyHeuristic(slo="served-mean").plan(snapshot).objective_usd
            gaps.append((found - optimum_usd(snapshot)) / nothing)
    assert np.mean(np.array(gaps) < 1e-5) > 0.5
    assert np.mean(gaps) < 0.1


@pytest.mark.parametrize("planner", [GreedyHeuristic(), AdaptiveGreedyHeuristic(seed=3)])
def test_same_problem_same_plan(planner: Planner) -> None:
    """Plans depend on the snapshot and the seed alone, not on what was planned before."""
    first = [planner.plan(random_snapshot(seed)) for seed in range(8)]
    again = [planner.plan(random_snapshot(seed)) for seed in reversed(range(8))][::-1]
    for one, two in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.fleet, two.fleet)
        np.testing.assert_array_equal(one.diagnostics["x"], two.diagnostics["x"])
        assert one.objective_usd == two.objective_usd


def test_storage_limit() -> None:
    """(5h) binds when it is set to what GH would use, less a little."""
    for seed in range(12):
        snapshot = random_snapshot(seed)
        used = storage_usd_per_h(snapshot, GreedyHeuristic().plan(snapshot))
        plan = GreedyHeuristic(storage_usd_per_h=0.9 * used).plan(snapshot)
        assert storage_usd_per_h(snapshot, plan) <= 0.9 * used * (1 + 1e-9)


def test_no_demand_no_fleet() -> None:
    """Without arrivals nothing is switched on, and nothing counts as unserved."""
    plan = AdaptiveGreedyHeuristic().plan(snapshot_of(random_instance(1), rate_scale=0.0))
    assert plan.status == "empty"
    assert plan.objective_usd == 0.0
    assert not plan.diagnostics["unserved"].any()


# -- small problems with known answers


def one_group(delays: list[float], slo_s: float = 2.0, **changes) -> Instance:
    """Return one workload and one exclusive slot of options with 1, 2, .. GPUs and the given delays."""
    names = [f"tp{n}" for n in range(1, len(delays) + 1)]
    return make_instance(
        [pool("p", 16)],
        [configuration(name, {"p": n}, max_replicas=1) for n, name in enumerate(names, start=1)],
        ["|".join([*names, ""])],
        [workload("chat", mean_delay_slo_s=slo_s)],
        {"delay_s": affine([delays])},
        **changes,
    )


def test_m1_takes_the_smallest_option_that_keeps_the_slo() -> None:
    """Delays 3, 2.5, 1.9, 1 against an SLO of 2 s: three GPUs; without M1 one, which is too slow."""
    snapshot = snapshot_of(one_group([3.0, 2.5, 1.9, 1.0]))
    only_phase_2 = {"slo": "per-route", "coverage_budget_share": 0.0}
    assert GreedyHeuristic(**only_phase_2).plan(snapshot).fleet.tolist() == [0, 0, 1, 0]
    without = GreedyHeuristic(**only_phase_2, m1=False).plan(snapshot)
    assert without.fleet.tolist() == [1, 0, 0, 0]
    assert "delay of each route (6)" in violations(snapshot, without, "per-route")


def test_options_of_equal_size_go_to_the_larger_tensor_parallelism() -> None:
    """Of TP 1 x PP 2 and TP 2 x PP 1, two GPUs each, the latter is tried first."""
    options = [
        configuration("pp", {"p": 2}, max_replicas=1, tensor_parallel=1, pipeline_parallel=2),
        configuration("tp", {"p": 2}, max_replicas=1, tensor_parallel=2),
    ]
    snapshot = snapshot_of(make_instance([pool("p", 2)], options, ["pp|tp|"]))
    assert GreedyHeuristic().plan(snapshot).fleet.tolist() == [0, 1]


def two_speeds() -> Snapshot:
    """Return a group with two options, a patient workload with more demand, and a hasty one.

    The patient one is served first, by one GPU; the hasty one needs the option with two.
    """
    return snapshot_of(
        make_instance(
            [pool("p", 4)],
            [
                configuration("small", {"p": 1}, max_replicas=1),
                configuration("large", {"p": 2}, max_replicas=1),
            ],
            ["small|large|"],
            [workload("patient", 2.0, mean_delay_slo_s=10.0), workload("hasty", 1.0, mean_delay_slo_s=1.5)],
            {"delay_s": affine([[2.0, 1.0], [2.0, 1.0]])},
        )
    )


def test_m3_upgrades_an_active_option() -> None:
    """With M3 the active option grows for the hasty workload; without it that one is served too late."""
    snapshot = two_speeds()
    only_phase_2 = {"slo": "per-route", "coverage_budget_share": 0.0, "ordering": "rate-desc"}
    assert GreedyHeuristic(**only_phase_2).plan(snapshot).fleet.tolist() == [0, 1]
    without = GreedyHeuristic(**only_phase_2, m3=False).plan(snapshot)
    assert without.fleet.tolist() == [1, 0]
    assert "delay of each route (6)" in violations(snapshot, without, "per-route")


def test_m3_keeps_the_slo_of_those_already_there() -> None:
    """An upgrade that would be too slow for the first workload is not made; the second stays unserved."""
    instance = make_instance(
        [pool("p", 4)],
        [configuration("small", {"p": 1}, max_replicas=1), configuration("large", {"p": 2}, max_replicas=1)],
        ["small|large|"],
        [workload("first", 2.0, mean_delay_slo_s=1.5), workload("second", 1.0, mean_delay_slo_s=1.5)],
        {"delay_s": affine([[1.0, 2.0], [2.0, 1.0]])},
    )
    plan = GreedyHeuristic(slo="per-route", coverage_budget_share=0.0).plan(snapshot_of(instance))
    assert plan.fleet.tolist() == [1, 0]
    assert plan.diagnostics["unserved"].tolist() == [0.0, 1.0]


def test_m3_is_one_replica_more_in_a_counted_slot() -> None:
    """A rate of 25/s of 1 s each needs three replicas of ten servers at 95 %; without M3 the second cannot grow."""
    instance = make_instance(
        [pool("p", 4)], [configuration("a", {"p": 1})], ["a"], [workload("x", 15.0), workload("y", 10.0)]
    )
    snapshot = snapshot_of(instance)
    assert GreedyHeuristic().plan(snapshot).fleet.tolist() == [3]
    without = GreedyHeuristic(m3=False).plan(snapshot)
    assert without.fleet.tolist() == [1]  # what phase 1 switched on
    assert violations(snapshot, without) == []


def test_m2_prefers_full_coverage() -> None:
    """A cheap route that errs too much to take all comes after a dearer one that can; raw cost reverses that."""
    instance = make_instance(
        [pool("p", 8)],
        [configuration("cheap", {"p": 1}), configuration("good", {"p": 2})],
        workloads=[workload("chat", error_slo=0.1, unserved_usd=1.0)],
        performance={"error": [[0.2, 0.05]]},
    )
    snapshot = snapshot_of(instance)
    rules = {"slo": "mean", "coverage_budget_share": 0.0}
    assert GreedyHeuristic(**rules).plan(snapshot).fleet.tolist() == [0, 1]
    without = GreedyHeuristic(**rules, m2=False).plan(snapshot)
    assert without.fleet[0] == 1
    assert without.objective_usd > GreedyHeuristic(**rules).plan(snapshot).objective_usd
    assert violations(snapshot, without, "mean") == []


def test_phase_1_respects_its_share_of_the_budget() -> None:
    """Covering both workloads by the dear option would take 90 % of the budget: with 80 % phase 1 passes it over."""
    instance = make_instance(
        [pool("p", 20)],
        [configuration("both", {"p": 9}), configuration("one", {"p": 5})],
        workloads=[workload("a", 2.0, unserved_usd=1.0), workload("b", 1.0, unserved_usd=1.0)],
        performance={"compatible": [[True, True], [True, False]]},
    )
    snapshot = snapshot_of(instance, budget_usd=10.0)
    assert GreedyHeuristic(coverage_budget_share=0.95).plan(snapshot).fleet.tolist() == [1, 0]
    assert GreedyHeuristic(coverage_budget_share=0.8).plan(snapshot).fleet.tolist() == [0, 1]


def test_consolidation_closes_what_phase_1_left_idle() -> None:
    """GH pays for a cheap option that nobody uses; AGH closes it."""
    instance = make_instance(
        [pool("p", 8)],
        [configuration("slow", {"p": 1}), configuration("fast", {"p": 2})],
        workloads=[workload("chat", 1.0, delay_usd_per_s=0.05, unserved_usd=1.0)],
        performance={"delay_s": affine([[5.0, 0.1]])},
    )
    snapshot = snapshot_of(instance)
    assert GreedyHeuristic().plan(snapshot).fleet.tolist() == [1, 1]
    plan = AdaptiveGreedyHeuristic().plan(snapshot)
    assert plan.fleet.tolist() == [0, 1]
    assert plan.objective_usd == pytest.approx(optimum_usd(snapshot), rel=1e-6)


def test_elastic_slos_are_paid_for() -> None:
    """A lone option 1 % too slow serves everything and pays 1 %; a hard SLO lets it serve nothing."""
    snapshot = snapshot_of(one_group([2.02]))
    plan = AdaptiveGreedyHeuristic().plan(snapshot)
    assert plan.diagnostics["unserved"].tolist() == [0.0]
    assert plan.objective_usd == pytest.approx(1.0 + 0.01 * snapshot.unserved_usd[0])
    assert AdaptiveGreedyHeuristic(slo="served-mean").plan(snapshot).status == "empty"
    assert excess(snapshot, plan.diagnostics["x"])[0] == pytest.approx(0.01)


# -- orders and arguments


def test_orderings() -> None:
    """Each name sorts by its key; ties keep the workloads' order; permutations pass through."""
    instance = make_instance(
        [pool("p", 1)],
        [configuration("a", {"p": 1})],
        workloads=[
            workload("x", 1.0, error_slo=0.3, unserved_usd=0.9),
            workload("y", 3.0, error_slo=0.1, unserved_usd=0.1),
            workload("z", 1.0, error_slo=0.2, unserved_usd=0.2),
        ],
        performance={"storage_usd": [[2.0], [1.0], [0.5]]},
    )
    snapshot = snapshot_of(instance)
    assert ordering(snapshot, "rate-desc").tolist() == [1, 0, 2]
    assert ordering(snapshot, "rate-asc").tolist() == [0, 2, 1]
    assert ordering(snapshot, "unserved-desc").tolist() == [0, 1, 2]
    assert ordering(snapshot, "storage-asc").tolist() == [2, 0, 1]
    assert ordering(snapshot, "error-asc").tolist() == [1, 2, 0]
    assert ordering(snapshot, [2, 0, 1]).tolist() == [2, 0, 1]
    assert len(ORDERINGS) == 8
    with pytest.raises(FleetgymError, match="permutation"):
        ordering(snapshot, [0, 0, 1])
    with pytest.raises(FleetgymError, match="rate-desc"):
        ordering(snapshot, "size-desc")


def test_random_starts_follow_remark_1() -> None:
    """R = 20, 10, 5, 3 as the number of candidates passes 500, 2,000 and 5,000."""
    sizes = (500, 501, 2000, 2001, 5000, 5001)
    assert [adaptive_starts(n) for n in sizes] == [20, 10, 10, 5, 5, 3]


# -- the paper's regime


@pytest.mark.parametrize(
    "size", ["4-4-5", "6-6-10", "10-10-10", "15-15-10", pytest.param("20-20-20", marks=pytest.mark.slow)]
)
def test_fastllm_instances_are_solved_without_violations(size: str) -> None:
    """Four seeds of each of the paper's sizes."""
    generate = pytest.importorskip("fleetgym.families.generate").generate
    for seed in range(4):
        snapshot = snapshot_of(generate("fastllm", size, seed))
        for slo in SLOS:
            for planner in (GreedyHeuristic(slo=slo), AdaptiveGreedyHeuristic(slo=slo)):
                assert violations(snapshot, planner.plan(snapshot), slo) == []
