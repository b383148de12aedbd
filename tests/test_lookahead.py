"""How long the searches of `lookahead` are, by size."""

from __future__ import annotations

import pytest

from fleetgym import View
from fleetgym.baselines.lookahead import FEW_MOVES, Lookahead
from fleetgym.envs.fleet_alloc import FleetAllocEnv

#: The running fleet, the last target, those of the packer and of an integer program.
STARTS = 4


def after_one_decision(instance: str) -> Lookahead:
    """Return the agent after it chose for the first window of the first stored day."""
    env, view, agent = FleetAllocEnv(instance), View(instance), Lookahead()
    observation, info = env.reset(options={"scenario": 0})
    view.update(info)
    agent.reset(view, seed=0)
    agent.act(observation, info)
    return agent


def test_a_large_instance_has_a_short_search() -> None:
    """A round ends with the first move that helps, taken at most as often as doubling reaches its limit."""
    agent = after_one_decision("fleet-v1/dev/multi-l-101")
    assert agent.is_large
    doublings = int(agent.most.max()).bit_length() + 1
    assert len(agent.known) <= STARTS + FEW_MOVES + doublings


@pytest.mark.parametrize("instance", ["fleet-v1/dev/multi-m-101", "fleet-v1/dev/ou-l-101"])
def test_all_others_have_the_whole_one(instance: str) -> None:
    """Of fleet-v1 no other size has so many candidates."""
    agent = Lookahead()
    agent.reset(View(instance), seed=0)
    assert not agent.is_large
