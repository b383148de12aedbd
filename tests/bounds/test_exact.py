"""The dynamic program against trying every action sequence, and against a hand-computed optimum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import pytest
from toys import (
    action_sizes,
    configuration,
    make_instance,
    nominal_scenario,
    pool,
    random_instance,
    random_scenario,
)

from fleetgym.bounds import exact
from fleetgym.reference import replay


def total(instance, scenario, actions) -> float:
    """Return the reference evaluator's cost of an episode."""
    return math.fsum(step["cost"] for step in replay(instance, scenario, actions))


def seeds() -> Iterator[Any]:
    """Yield seeds of instances with few actions; with more than five, all their sequences take seconds."""
    for seed in range(60):
        actions = math.prod(action_sizes(random_instance(seed)))
        if actions <= 8:
            yield pytest.param(seed, marks=[pytest.mark.slow] if actions > 5 else [])


@pytest.mark.parametrize("seed", seeds())
def test_equals_trying_everything(seed: int) -> None:
    """No sequence of three actions is cheaper, and the plan costs what it says."""
    instance = random_instance(seed, num_windows=3)
    scenario = random_scenario(instance, seed)
    plan = exact.optimal_fleets(instance, scenario)
    single = list(itertools.product(*(range(n) for n in action_sizes(instance))))
    best = min(total(instance, scenario, actions) for actions in itertools.product(single, repeat=3))
    assert plan.cost == pytest.approx(best, rel=1e-12, abs=1e-12)
    assert total(instance, scenario, plan.actions) == pytest.approx(plan.cost, rel=1e-12, abs=1e-12)


def test_starts_ahead_of_demand() -> None:
    """A replica that needs one window to start is granted one window before the demand comes, and stays.

    Window 1 is empty, windows 2 and 3 have 300 requests at 0.1 USD: 1 USD a window from window 1 on.
    """
    part = configuration("A", {"p": 1}, startup_windows=1, max_replicas=1)
    instance = make_instance([pool("p", 1)], [part], num_windows=4)
    scenario = nominal_scenario(instance, rate_rps=[[0.0], [0.0], [1.0], [1.0]])
    plan = exact.optimal_fleets(instance, scenario)
    assert plan.cost == pytest.approx(3.0)
    assert plan.actions == ((0,), (1,), (1,), (1,))


def test_paces_a_budget() -> None:
    """Two USD for two of three windows: they go where unserved requests cost most."""
    part = configuration("A", {"p": 1}, max_replicas=1)
    instance = make_instance([pool("p", 1)], [part], num_windows=3, budget={"kind": "pool", "usd": 2.0})
    scenario = nominal_scenario(instance, rate_rps=[[1.0], [3.0], [2.0]])
    plan = exact.optimal_fleets(instance, scenario)
    assert plan.cost == pytest.approx(30.0 + 2.0)
    assert plan.actions == ((0,), (1,), (1,))


def test_routing_is_solved_once_per_serving_fleet() -> None:
    """Five fleets of one configuration: at most five routings a window, however many states."""
    part = configuration("A", {"p": 1}, startup_windows=2)
    instance = make_instance([pool("p", 4)], [part], num_windows=5)
    plan = exact.optimal_fleets(instance, nominal_scenario(instance))
    assert plan.routings_solved <= 25
    assert plan.states_visited > plan.routings_solved


def test_caps_are_errors() -> None:
    """Beyond a cap there is no answer, and the error says which cap."""
    part = configuration("A", {"p": 1}, startup_windows=2)
    instance = make_instance([pool("p", 4)], [part], num_windows=5)
    scenario = nominal_scenario(instance)
    with pytest.raises(exact.StateSpaceError, match="max_states = 20"):
        exact.optimal_fleets(instance, scenario, max_states=20)
    with pytest.raises(exact.StateSpaceError, match="max_transitions = 30"):
        exact.optimal_fleets(instance, scenario, max_transitions=30)
    with pytest.raises(exact.StateSpaceError, match="5 actions per window"):
        exact.optimal_fleets(instance, scenario, max_transitions=4)


def test_takes_any_model() -> None:
    """The economics are a parameter: free fleets make the empty plan's costs vanish."""

    class Free(exact.ReferenceModel):
        def step(self, state, target, window):
            return super().step(state, target, window)._replace(fixed_usd=0.0)

    part = configuration("A", {"p": 1})
    instance = make_instance([pool("p", 4)], [part], num_windows=2)
    scenario = nominal_scenario(instance)
    assert exact.optimal_fleets(instance, scenario, model=Free(instance, scenario)).cost == 0.0
