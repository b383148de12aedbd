"""A policy that was trained behind wrappers plays as an agent what it plays in the wrapped environment."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
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


class _Flip(gymnasium.ActionWrapper):
    """Lets the other end of each slot's options through."""

    def action(self, action: Any) -> np.ndarray:
        return self.env.action_space.nvec - 1 - np.asarray(action)


class _FlipInStep(gymnasium.Wrapper):
    """The same, where no agent can know it before the step."""

    def step(self, action: Any) -> Any:
        return self.env.step(self.env.action_space.nvec - 1 - np.asarray(action))


def test_wrappers_may_change_actions_where_that_can_be_known() -> None:
    """An `ActionWrapper` plays what it plays in training; one that changes actions in `step` is refused."""
    task = "fleet-v0/toy/two-pools"
    costs = []
    for wrap in (lambda env: env, _Flip, _FlipInStep):
        plain, agent = FleetAllocEnv(task), PolicyAgent(lambda seen, mask: np.zeros(2, dtype=int), wrap)
        observation, info = plain.reset(options={"scenario": 0})
        agent.reset(fleetgym.View(plain.instance), seed=0)
        ended = False
        if wrap is _FlipInStep:
            plain.step(agent.act(observation, info))
            with pytest.raises(FleetgymError, match="must be a gymnasium.ActionWrapper"):
                agent.act(observation, info)
            break
        costs.append(0.0)
        while not ended:
            observation, _, ended, _, info = plain.step(agent.act(observation, info))
            costs[-1] += info["cost"]
    assert costs == [69.0, 40.0]


def test_a_policy_must_be_callable() -> None:
    """A model of stable-baselines3 is none: it has `predict`."""
    with pytest.raises(FleetgymError, match="expected a callable"):
        PolicyAgent(object())  # type: ignore[arg-type]
