"""A policy that was trained behind wrappers plays as an agent what it plays in the wrapped environment."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import fleetgym
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.policy_agent import Policy, PolicyAgent
from fleetgym.envs.wrappers import FlattenDict, for_learning
from fleetgym.errors import FleetgymError

INSTANCE = "fleet-v0/dev/ou-s-001"


def busy_policy(nvec: np.ndarray) -> Policy:
    """Return a policy of allowed actions that follow from everything that is seen, to the bit."""

    def policy(seen: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        assert mask is not None
        rng = np.random.default_rng(np.frombuffer(np.ascontiguousarray(seen).tobytes(), dtype=np.uint8))
        slots = np.split(mask, np.cumsum(nvec)[:-1])
        return np.array([rng.choice(np.flatnonzero(allowed)) for allowed in slots])

    return policy


@pytest.mark.parametrize(
    "wrap",
    [
        for_learning,
        functools.partial(for_learning, steps=(0, -1, 1, 3), frames=2, forecaster="ewma"),
        FlattenDict,
    ],
    ids=["for_learning", "other-arguments", "own-actions"],
)
def test_a_policy_plays_as_it_was_trained(wrap: Any) -> None:
    """It sees as an agent what the wrapped environment shows, and every window costs the same."""
    plain, wrapped = FleetAllocEnv(INSTANCE), wrap(FleetAllocEnv(INSTANCE))
    policy = busy_policy(wrapped.action_space.nvec)
    agent, view = PolicyAgent(policy, wrap), fleetgym.View(plain.instance)
    for scenario in (0, 1):  # the second episode begins afresh
        seen, told = wrapped.reset(options={"scenario": scenario})
        observation, info = plain.reset(options={"scenario": scenario})
        agent.reset(view, seed=0)
        for _ in range(40):
            seen, _, _, _, told = wrapped.step(policy(seen, told["action_mask"]))
            observation, _, _, _, info = plain.step(agent.act(observation, info))
            assert info["cost"] == told["cost"]
            np.testing.assert_array_equal(info["running"], told["running"])


def test_a_policy_must_be_callable() -> None:
    """A model of stable-baselines3 is none: it has `predict`."""
    with pytest.raises(FleetgymError, match="expected a callable"):
        PolicyAgent(object())  # type: ignore[arg-type]
