"""The relaxation behind the MILP planner: bounds and reduced costs against HiGHS on the whole program."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from problems import snapshot_of
from toys import random_instance

import fleetgym
from baselines.milp import MilpPlanner
from baselines.milp.lagrangian_kernels import price
from baselines.milp.problem import Modes, Problem, make_problem
from baselines.milp.pruning import prune
from baselines.milp.relaxation import is_binary, relax
from baselines.milp.root import solve_root
from baselines.milp.routing import best_routing, nothing
from baselines.milp.tight import tight_program
from fleetgym.generate import generate

SLOS = ("elastic", "mean", "served-mean", "per-route")


def binary_problem(seed: int, slo: str) -> Problem:
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
