"""The queueing planner: its plans obey every constraint, and it plays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from checker import violations
from problems import snapshot_of
from toys import random_instance

import fleetgym
import fleetgym.envs.fleet_alloc
from fleetgym.baselines.queueing.queueing_planner import QueueingPlanner, queueing, queueing_rolling
from fleetgym.files.errors import FleetgymError


@pytest.mark.parametrize("seed", range(30))
def test_plans_obey_every_constraint(seed: int) -> None:
    """Availability, budget, slots, compute, memory and servers; and the same snapshot gives the same plan."""
    rng = np.random.default_rng(seed)
    instance = random_instance(seed)
    present = rng.random(instance.num_workloads) > 0.1
    scale = present * rng.choice([0.0, 0.3, 1.0, 3.0], p=[0.05, 0.3, 0.4, 0.25])
    snapshot = snapshot_of(instance, rate_scale=scale)
    plan = QueueingPlanner().plan(snapshot)
    assert violations(snapshot, plan) == []
    assert np.array_equal(plan.fleet, QueueingPlanner().plan(snapshot).fleet)


@pytest.mark.parametrize("name", ["fleet-v0/dev/ou-s-001", "fleet-v0/dev/ou-m-001"])
def test_planned_pools_keep_their_miss_share(name: str) -> None:
    """By the tails of the environment: hardly a request is late or unserved at the demand planned for."""
    view = fleetgym.View(fleetgym.load_instance(name))
    snapshot = view.snapshot()
    snapshot = dataclasses.replace(snapshot, startup_usd=np.zeros_like(snapshot.startup_usd))
    plan = QueueingPlanner(miss_share=0.01).plan(snapshot)
    assert plan.diagnostics["unserved"].max() <= 1e-3
    window = view.preview_window(plan.fleet)
    assert float(snapshot.rate_rps @ window.miss_share / snapshot.rate_rps.sum()) <= 0.02


def test_agents_play(small) -> None:
    """Static and rolling, through the environment."""
    for agent in (queueing(), queueing_rolling(every=3)):
        env = fleetgym.envs.fleet_alloc.FleetAllocEnv(small)
        observation, info = env.reset(seed=0)
        view = fleetgym.View(small)
        view.update(info)
        agent.reset(view, seed=0)
        over = False
        while not over:
            observation, _, over, _, info = env.step(agent.act(observation, info))
            view.update(info)
    with pytest.raises(FleetgymError):
        QueueingPlanner(miss_share=0.0)
