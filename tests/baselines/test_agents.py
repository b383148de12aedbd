"""The agents `hold`, `random` and `autoscale`, and the planner `homogeneous`, on small instances made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import gymnasium
import numpy as np
import pytest
from checker import violations
from problems import snapshot_of
from toys import (
    affine,
    configuration,
    make_instance,
    nominal_scenario,
    pool,
    random_instance,
    workload,
)

from fleetgym.agents.view import View
from fleetgym.baselines.agh import AdaptiveGreedyHeuristic
from fleetgym.baselines.autoscale import autoscale
from fleetgym.baselines.hold import hold
from fleetgym.baselines.homogeneous import HomogeneousPlanner, gpu_type_masks
from fleetgym.baselines.random_agent import random
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario


def play(agent, instance: Instance, scenario: Scenario, seed: int = 0) -> tuple[list[list[int]], float]:
    """Return the targets (fleets) of an episode and its total cost."""
    env = gymnasium.make("fleetgym:FleetAlloc-v0", instance=instance).unwrapped
    observation, info = env.reset(options={"scenario": scenario})
    view = View(instance)
    view.update(info)
    agent.reset(view, seed=seed)
    targets, cost, over = [], 0.0, False
    while not over:
        action = agent.act(observation, info)
        targets.append(view.action_to_fleet(action).tolist())
        observation, reward, over, _, info = env.step(action)
        view.update(info)
        cost -= reward
    return targets, cost


def demand(instance: Instance, rates: Sequence[float]) -> Scenario:
    """Return a scenario in which each window has the given rate of the only workload, the last one held."""
    held = [*rates, *[rates[-1]] * (instance.num_windows - len(rates))]
    return nominal_scenario(instance, rate_rps=[[rate] for rate in held])


def test_hold_keeps_the_nominal_fleet() -> None:
    """Also when demand vanishes."""
    instance = make_instance([pool("p", 8)], [configuration("a", {"p": 1})], nominal=[3])
    targets, _ = play(hold(), instance, demand(instance, [1.0, 0.0, 9.0]))
    assert targets == [[3]] * instance.num_windows


def test_random_obeys_the_mask_and_its_seed() -> None:
    """Options that do not fit alone are never taken; another seed gives other actions."""
    instance = make_instance([pool("p", 2)], [configuration("a", {"p": 1}), configuration("b", {"p": 2})])
    scenario = nominal_scenario(instance)
    targets, _ = play(random(), instance, scenario, seed=1)
    assert {a for a, _ in targets} == {0, 1, 2}
    assert {b for _, b in targets} == {0, 1}
    assert play(random(), instance, scenario, seed=2)[0] != targets


# -- autoscale


def one_pool(cap: int = 8, **changes) -> Instance:
    """Return replicas of ten queue servers and one second of service: 6 requests/s each at 60 %."""
    return make_instance([pool("p", cap)], [configuration("a", {"p": 1}, max_replicas=8)], **changes)


def test_autoscale_grows_at_once_and_shrinks_late() -> None:
    """One window after the demand it grows; it shrinks when that was possible for two windows and a third."""
    instance = one_pool()
    agent = autoscale(target_utilization=0.6, cooldown_windows=2)
    targets, _ = play(agent, instance, demand(instance, [6.0, 18.0, 18.0, 6.0]))
    assert [fleet[0] for fleet in targets] == [1, 1, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1]


def test_autoscale_spills_to_the_next_cheapest() -> None:
    """Two cheap replicas take 12 requests/s; the third goes to the dearer pool."""
    instance = make_instance(
        [pool("cheap", 2), pool("dear", 8, price_usd_per_gpu_h=24.0)],
        [configuration("a", {"cheap": 1}), configuration("b", {"dear": 1})],
    )
    targets, _ = play(autoscale(), instance, demand(instance, [18.0]))
    assert targets[1:] == [[2, 1]] * (instance.num_windows - 1)


def test_autoscale_obeys_slo_budget_and_slots() -> None:
    """The cheap configuration is too slow; the budget pays for two replicas of the other; a slot has one option."""
    slow_and_fast = {
        "performance": {"delay_s": affine([[20.0, 1.0]])},
        "budget": {"kind": "rate", "usd": 48.0},
    }
    options = [configuration("slow", {"p": 1}), configuration("fast", {"p": 2})]
    instance = make_instance([pool("p", 16)], options, **slow_and_fast)
    assert play(autoscale(), instance, demand(instance, [18.0]))[0][1:] == [[0, 2]] * 11
    options = [
        configuration("small", {"p": 1}, max_replicas=1),
        configuration("large", {"p": 2}, max_replicas=1),
    ]
    instance = make_instance([pool("p", 16)], options, ["small|large|"])
    for fleet in play(autoscale(), instance, demand(instance, [18.0]))[0]:
        assert sum(fleet) <= 1


# -- homogeneous


def two_types() -> Instance:
    """Return a cheap GPU type that serves one workload only, a dear one that serves both, and a mixed replica."""
    return make_instance(
        [
            pool("cheap", 8, gpu_type="L4"),
            pool("dear", 8, gpu_type="H100", price_usd_per_gpu_h=36.0),
            pool("dear-far", 8, gpu_type="H100", price_usd_per_gpu_h=30.0),
        ],
        [
            configuration("l4", {"cheap": 1}),
            configuration("h100", {"dear": 1}),
            configuration("h100-far", {"dear-far": 1}),
            configuration("mixed", {"cheap": 1, "dear": 1}),
        ],
        workloads=[workload("easy"), workload("hard")],
        performance={"compatible": [[True, True, True, True], [False, True, True, True]]},
    )


def test_gpu_type_masks() -> None:
    """A type has the configurations of all its regions, and none that needs another type too."""
    masks = gpu_type_masks(two_types())
    assert {name: mask.tolist() for name, mask in masks.items()} == {
        "L4": [True, False, False, False],
        "H100": [False, True, True, False],
    }


def test_homogeneous_takes_the_cheapest_type() -> None:
    """One H100 for both workloads at 2.5 USD beats one L4 and an unserved workload at 30 USD."""
    snapshot = snapshot_of(two_types())
    plan = HomogeneousPlanner().plan(snapshot)
    assert plan.diagnostics["gpu_type"] == "H100"
    assert plan.fleet.tolist() == [0, 0, 1, 0]
    assert plan.diagnostics["by_gpu_type"] == pytest.approx({"L4": 31.0, "H100": 2.5})


@pytest.mark.parametrize("seed", range(12))
def test_homogeneous_obeys_the_constraints(seed: int) -> None:
    """On random instances too, where all pools have one type: then it is AGH without mixed replicas."""
    snapshot = snapshot_of(random_instance(seed))
    plan = HomogeneousPlanner().plan(snapshot)
    assert violations(snapshot, plan) == []
    assert plan.objective_usd == pytest.approx(AdaptiveGreedyHeuristic().plan(snapshot).objective_usd)
    assert np.array_equal(plan.fleet, AdaptiveGreedyHeuristic().plan(snapshot).fleet)
