"""Our interior-point method solves the linear programs of bounds: its Newton steps are exact, its costs HiGHS'."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from test_bounds import small_problem
from test_nonanticipative import LEVELS, Chain, toy, with_demand
from toys import random_instance, random_scenario

from fleetgym.bounds import hindsight, hindsight_bound, interior
from fleetgym.bounds.horizon import HorizonProgram
from fleetgym.bounds.interior import _Newton
from fleetgym.bounds.nonanticipative import redrawn
from fleetgym.bounds.relaxation import Problem, relax
from fleetgym.bounds.structure import structured
from fleetgym.families.generate import generate
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Budget

KINDS = ("hindsight", "redrawn", "drops", "pool", "rate")


def problem(seed: int, kind: str) -> Problem:
    """Return the relaxation of a random toy: as it is, with demand or drops redrawn, or with a budget."""
    instance, scenario = toy(seed, 1)
    if kind in ("pool", "rate"):
        instance = instance.replace(budget=Budget(kind=kind, usd=3.0 if kind == "rate" else 5.0))
    relaxed = relax(instance, scenario)
    if kind == "hindsight":
        return relaxed
    gpus = None
    if kind == "drops":
        fewer = np.array(scenario.available_gpus)
        node = instance.pools[0].gpus_per_node
        fewer[:, 0] = fewer[:, 0] // 2 // node * node
        gpus = np.array([scenario.available_gpus, fewer])
    path = (0, 1, 1, 0)
    day = with_demand(scenario, LEVELS[list(path)])
    return redrawn(relax(instance, day), day, Chain(scenario.rate_rps, path, gpus))


def every_configuration(problem: Problem) -> HorizonProgram:
    """Return the program over all configurations."""
    return HorizonProgram(problem, np.arange(problem.max_replicas.size))


@pytest.mark.parametrize("seed", [0, 3, 8, 11])
@pytest.mark.parametrize("kind", KINDS)
def test_steps_solve_the_whole_system(seed: int, kind: str) -> None:
    """What is eliminated part by part is a solution of all rows and columns together."""
    program, structure = structured(every_configuration(problem(seed, kind)), 1.0)
    rng = np.random.default_rng(seed)
    theta = np.exp(rng.normal(size=program.cost.size))
    rows = np.where(program.is_equation, 0.0, np.exp(rng.normal(size=program.side.size)))
    f, g = rng.normal(size=theta.size), rng.normal(size=rows.size)
    newton = _Newton(program, structure)
    newton.factor(theta, rows)
    value, dual = newton.solve(f, g)
    np.testing.assert_allclose(theta * value + program.matrix.T @ dual, f, atol=1e-8)
    np.testing.assert_allclose(program.matrix @ value - rows * dual, g, atol=1e-8)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("kind", KINDS)
def test_costs_and_bounds_are_those_of_highs(seed: int, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The method ends by itself, at the same cost, and its prices prove it."""
    relaxed = problem(seed, kind)
    theirs = every_configuration(relaxed).solve("ipx")
    monkeypatch.setattr(HorizonProgram, "_solve_by_highs", None)  # it gets no help
    assert every_configuration(relaxed).solve("block").cost_usd == pytest.approx(
        theirs.cost_usd, rel=2e-3, abs=1e-6
    )
    apart = dataclasses.replace(relaxed, exclusive=())  # certificates let slots drain, programs do not
    ours = every_configuration(apart).solve("block")
    proven = hindsight._certify(apart, ours, np.array([], dtype=np.int64))[0]
    assert proven == pytest.approx(ours.cost_usd, rel=2e-3, abs=1e-6)


@pytest.mark.parametrize("seed", range(0, 80, 4))
def test_bounds_are_below_the_optimum(seed: int) -> None:
    """Prices of our method prove nothing that is wrong."""
    instance, scenario, optimum = small_problem(seed)
    found = hindsight_bound(instance, scenario, solver="block").bound_usd
    assert 0.0 <= found <= optimum + 1e-9 * max(1.0, optimum)


def test_who_gives_up_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without time to converge the method leaves the program to HiGHS; so it does with prices that prove little."""
    instance = random_instance(5, num_windows=6)
    scenario = random_scenario(instance, 5)
    usual = hindsight_bound(instance, scenario, solver="ipx").bound_usd
    solve = interior.solve
    monkeypatch.setattr(interior, "solve", lambda program, structure, *_: solve(program, structure, 1e-4, 1))
    assert hindsight_bound(instance, scenario, solver="block").bound_usd == usual

    def poor(
        program: interior.Program, structure: interior.Structure, tolerance: float, most: int
    ) -> interior.Solution:
        found = solve(program, structure, tolerance, most)
        return found._replace(dual=np.zeros_like(found.dual))

    monkeypatch.setattr(interior, "solve", poor)
    assert hindsight_bound(instance, scenario, solver="block").bound_usd == pytest.approx(usual, rel=1e-3)


def test_slots_that_drain_are_no_reason_for_highs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of exclusive slots costs more than any certificate proves; HiGHS would prove the same."""
    instance = generate("grw", "s", 1002).replace(num_windows=48)
    relaxed = relax(instance, draw_scenario(instance, np.random.default_rng(0), "day"))
    assert relaxed.exclusive
    theirs, among = hindsight.horizon_bound(relaxed, "ipx", worthwhile=0.0)
    monkeypatch.setattr(HorizonProgram, "_solve_by_highs", None)
    ours, _ = hindsight.horizon_bound(relaxed, "block", among, worthwhile=0.0)
    assert ours.bound_usd == pytest.approx(theirs.bound_usd, rel=1e-3)


def test_pools_may_be_empty() -> None:
    """Where nothing may serve for a while, bounds are those of HiGHS."""
    instance = random_instance(5, num_windows=6)
    scenario = random_scenario(instance, 5)
    gpus = np.array(scenario.available_gpus)
    gpus[2:4] = 0
    scenario = dataclasses.replace(scenario, available_gpus=gpus)
    ipx, block = (hindsight_bound(instance, scenario, solver=s).bound_usd for s in ("ipx", "block"))
    assert block == pytest.approx(ipx, rel=1e-3)
