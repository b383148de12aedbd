"""The relaxation behind the MILP planner: bounds and reduced costs against HiGHS on the whole program."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from problems import snapshot_of
from toys import random_instance

import fleetgym
from fleetgym.baselines.milp import MilpPlanner
from fleetgym.baselines.milp.covers import find_covers
from fleetgym.baselines.milp.lagrangian_kernels import price
from fleetgym.baselines.milp.problem import Modes, PlacementProblem, make_problem
from fleetgym.baselines.milp.pruning import prune
from fleetgym.baselines.milp.relaxation import is_binary, relax
from fleetgym.baselines.milp.root import solve_root, tighten
from fleetgym.baselines.milp.routing import best_routing, is_feasible, nothing
from fleetgym.baselines.milp.tight import tight_program
from fleetgym.families.generate import generate

SLOS = ("elastic", "mean", "served-mean", "per-route")


def binary_problem(seed: int, slo: str) -> PlacementProblem:
    """Return a small problem of opening columns, sorted by group; odd seeds have scarce GPUs."""
    snapshot = snapshot_of(generate("fastllm", "4-4-5", seed))
    if seed % 2:
        snapshot = dataclasses.replace(snapshot, available_gpus=np.full(snapshot.available_gpus.size, 3))
    problem = prune(make_problem(snapshot, Modes(slo=slo)))
    return problem.take(np.argsort(problem.group, kind="stable"))


@pytest.mark.parametrize("slo", SLOS)
@pytest.mark.parametrize("seed", [3, 4])
def test_root_is_the_linear_relaxation(seed: int, slo: str) -> None:
    """Pricing by columns ends at the bound of the whole program, or just below it."""
    problem = binary_problem(seed, slo)
    assert is_binary(problem)
    unit_usd = problem.unserved_usd.sum() / 1e3
    root = solve_root(problem, nothing(problem).cost_usd, unit_usd)
    whole = tight_program(problem, unit_usd).program.solve({}, relax=True).objective * unit_usd
    # Two capacities that bind in one column are one too many for the knapsack: then the bound is a little lower.
    assert 0.995 * whole <= root.bound_usd <= whole * (1 + 1e-9)


@pytest.mark.parametrize("seed", [3, 4])
def test_reduced_costs_are_what_opening_costs(seed: int) -> None:
    """The relaxation with a column opened costs at least bound plus reduced cost, for every column."""
    problem = binary_problem(seed, "elastic")
    unit_usd = problem.unserved_usd.sum() / 1e3
    root = solve_root(problem, nothing(problem).cost_usd, unit_usd)
    t = tight_program(problem, unit_usd)
    for option in range(problem.options.column.size):
        lower = np.zeros(t.program.num_columns)
        lower[t.option[option]] = 1.0
        opened = t.program.solve({}, relax=True, lower=lower).objective * unit_usd
        assert opened >= (root.bound_usd + root.reduced_usd[option]) * (1 - 1e-9)


def test_any_multipliers_give_a_bound() -> None:
    """Random multipliers never bound the cost of a feasible fleet from the wrong side."""
    rng = np.random.default_rng(0)
    for slo in SLOS:
        problem = binary_problem(5, slo)
        r = relax(problem, 1.0)
        reduced, undecided = np.empty(r.hold_usd.size), np.zeros(r.hold_usd.size, dtype=np.int64)
        costs = [nothing(problem).cost_usd]
        for column in rng.choice(r.hold_usd.size, 5, replace=False):
            costs.append(best_routing(problem, np.eye(r.hold_usd.size, dtype=np.int64)[column]).cost_usd)
        for scale in (0.01, 0.1, 1.0, 10.0):
            highest = np.minimum(r.highest, problem.unserved_usd.max())
            multipliers = rng.random(r.right.size) * np.minimum(highest, scale * highest)
            assert price(r, undecided, multipliers, reduced) <= min(costs) * (1 + 1e-9)


def test_counted_slots_have_reduced_costs_too() -> None:
    """Where replicas are counted, the program's own reduced costs are used."""
    instance = fleetgym.load_instance("fleet-v0/dev/ou-s-001")
    problem = prune(make_problem(fleetgym.View(instance).snapshot(), Modes()))
    problem = problem.take(np.argsort(problem.group, kind="stable"))
    assert not is_binary(problem)
    unit_usd = problem.unserved_usd.sum() / 1e3
    root = solve_root(problem, nothing(problem).cost_usd, unit_usd)
    t = tight_program(problem, unit_usd)
    for option in range(0, problem.options.column.size, 7):
        lower = np.zeros(t.program.num_columns)
        lower[t.option[option]] = 1.0
        opened = t.program.solve({}, relax=True, lower=lower).objective * unit_usd
        assert opened >= (root.bound_usd + root.reduced_usd[option]) * (1 - 1e-9)


def test_pruning_keeps_the_optimum() -> None:
    """What is dropped is not missed: the relaxation's and the program's optimum stay."""
    for seed in range(8):
        problem = make_problem(snapshot_of(random_instance(seed)), Modes())
        smaller = prune(problem)
        assert smaller.columns.size <= problem.columns.size
        if smaller.columns.size:
            before, after = (tight_program(p, 1.0).program.solve({}).objective for p in (problem, smaller))
            assert after == pytest.approx(before, rel=1e-6, abs=1e-9)


def test_columns_that_cannot_earn_their_rent_take_nothing_from_the_bound() -> None:
    """A replica that carries less than 1e-5 of its workloads goes without an allowance, and the plan is proven."""
    snapshot = fleetgym.View(fleetgym.load_instance("fleet-v0/dev/grw-s-001")).snapshot()
    problem = make_problem(snapshot, Modes())
    assert problem.left_out_usd.sum() > 0.0
    pruned = prune(problem)
    assert pruned.left_out_usd.sum() == 0.0
    assert pruned.columns.size < problem.columns.size
    plan = MilpPlanner().plan(snapshot)
    assert plan.status == "optimal"
    assert plan.objective_usd * (1 - 2e-6) <= plan.bound_usd <= plan.objective_usd


def test_free_columns_keep_their_allowance() -> None:
    """Held for nothing, a column with the smallest pairs may be worth having: its allowance stays."""
    snapshot = fleetgym.View(fleetgym.load_instance("fleet-v0/dev/grw-s-001")).snapshot()
    free = dataclasses.replace(snapshot, hold_usd=np.zeros_like(snapshot.hold_usd))
    assert prune(make_problem(free, Modes())).left_out_usd.sum() > 0.0


@pytest.mark.parametrize("slo", SLOS)
@pytest.mark.parametrize("seed", [3, 4, 6])
def test_covers_keep_what_is_cheaper(seed: int, slo: str) -> None:
    """With what an optimum loses as the limit, the covers cut off neither it nor the way from other fleets to it."""
    problem = binary_problem(seed, slo)
    unit_usd = problem.unserved_usd.sum() / 1e3
    t = tight_program(problem, unit_usd)
    optimum = t.program.solve({})
    best = best_routing(problem, t.replicas(problem, optimum.values))
    root = tighten(solve_root(problem, best.cost_usd, unit_usd), problem, best, unit_usd, None)
    assert root.bound_usd <= best.cost_usd * (1 + 1e-9)
    t = tight_program(problem, unit_usd, most_lost=root.most_lost(problem, best))
    assert t.program.solve({}).objective == pytest.approx(optimum.objective, rel=1e-6)


@pytest.mark.parametrize("slo", SLOS)
def test_every_fleet_keeps_the_covers_of_its_own_losses(slo: str) -> None:
    """Random fleets under their cheapest routing: no cover says that they lose more than they do."""
    rng = np.random.default_rng(1)
    for seed in (3, 6, 9):
        problem = binary_problem(seed, slo)
        for number in rng.integers(1, 5, 8):
            replicas = np.zeros(problem.columns.size, dtype=np.int64)
            replicas[rng.choice(replicas.size, number, replace=False)] = 1
            if is_feasible(problem, replicas):
                lost = best_routing(problem, replicas).lost(problem)
                covers = find_covers(problem, np.minimum(1.0, lost + 1e-7))
                opened = covers.sets[:, replicas > 0].any(axis=1)
                assert (opened | (lost[covers.workload] >= covers.loss - 1e-6)).all()


def test_a_cover_by_hand() -> None:
    """Two columns, one too slow and one too inaccurate: every mixture of the SLOs asks for one of them or for both."""
    problem = binary_problem(4, "mean")
    few = problem.take(np.arange(2))
    delay, error = np.full(few.open.shape, 0.5), np.full(few.open.shape, 0.5)
    delay[:, 0], error[:, 1] = 2.0, 1.25
    few = dataclasses.replace(few, delay=delay, error=error, open=np.ones_like(few.open))
    covers = find_covers(few, np.full(few.workloads.size, 0.1))
    assert np.isinf(covers.loss).all()  # 1 - 1 / 1.25 = 0.2 would be lost without the other one
    assert sorted(covers.sets.tolist()) == [[False, True], [True, False]]
    covers = find_covers(few, np.full(few.workloads.size, 0.3))
    soft = covers.take(np.isfinite(covers.loss))
    assert np.isclose(soft.loss, 0.2).any()
    assert soft.sets[np.isclose(soft.loss, 0.2)].tolist() == [[True, False]] * few.workloads.size
