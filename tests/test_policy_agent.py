"""A policy that was trained behind wrappers plays as an agent what it plays in the wrapped environment."""

from __future__ import annotations

import functools
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import NormalizeObservation

import fleetgym
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.policy_agent import Policy, PolicyAgent
from fleetgym.envs.wrappers import FlattenDict, for_learning
from fleetgym.envs.wrappers.layers import layers
from fleetgym.files.errors import FleetgymError

INSTANCE = "fleet-v0/dev/ou-s-001"


def busy_policy(space: gymnasium.Space) -> Policy:
    """Return a policy of allowed actions that follow from everything that is seen, to the bit."""

    def policy(seen: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        rng = np.random.default_rng(np.frombuffer(np.ascontiguousarray(seen).tobytes(), dtype=np.uint8))
        if isinstance(space, gymnasium.spaces.Box):
            return rng.uniform(space.low, space.high).astype(np.float32)
        assert mask is not None
        if isinstance(space, gymnasium.spaces.Discrete):
            return rng.choice(np.flatnonzero(mask))
        slots = np.split(mask, np.cumsum(space.nvec)[:-1])
        return np.array([rng.choice(np.flatnonzero(allowed)) for allowed in slots])

    return policy


@pytest.mark.parametrize(
    "wrap",
    [
        for_learning,
        functools.partial(for_learning, actions="discrete", reference="margin"),
        FlattenDict,
    ],
    ids=["for_learning", "other-arguments", "own-actions"],
)
def test_a_policy_plays_as_it_was_trained(wrap: Any) -> None:
    """It sees as an agent what the wrapped environment shows, and every window costs the same."""
    plain, wrapped = FleetAllocEnv(INSTANCE), wrap(FleetAllocEnv(INSTANCE))
    policy = busy_policy(wrapped.action_space)
    agent, view = PolicyAgent(policy, wrap), fleetgym.View(plain.instance)
    for scenario in (0, 1):  # the second episode begins afresh
        seen, told = wrapped.reset(options={"scenario": scenario})
        observation, info = plain.reset(options={"scenario": scenario})
        agent.reset(view, seed=0)
        for _ in range(40):
            seen, _, _, _, told = wrapped.step(policy(seen, told.get("action_mask")))
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


class _Sticky(gymnasium.ActionWrapper):
    """Repeats the last action now and then, and lets no slot change by more than one option at once."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.rng, self.last, self.asked = np.random.default_rng(0), None, 0

    def action(self, action: Any) -> np.ndarray:
        self.asked += 1
        action = np.asarray(action)
        if self.last is not None:
            kept = self.rng.random() < 0.3
            action = self.last if kept else np.clip(action, self.last - 1, self.last + 1)
        self.last = action
        return action


@pytest.mark.parametrize("wrap", [lambda env: _Sticky(env), lambda env: _Flip(_Sticky(FlattenDict(env)))])
def test_wrappers_with_a_memory_of_actions_play_as_in_training(wrap: Any) -> None:
    """They are asked once per window, so that their memory and their random numbers are those of training."""
    plain, wrapped = FleetAllocEnv(INSTANCE), wrap(FleetAllocEnv(INSTANCE))

    def policy(seen: Any, mask: np.ndarray | None) -> np.ndarray:
        demand = seen["demand"] if isinstance(seen, dict) else seen
        return np.full(plain.action_space.nvec.size, int(abs(float(demand.sum())) * 1e4) % 4)

    seen, told = wrapped.reset(options={"scenario": 0})
    observation, info = plain.reset(options={"scenario": 0})
    agent = PolicyAgent(policy, wrap)
    agent.reset(fleetgym.View(plain.instance), seed=0)
    for _ in range(40):
        seen, _, _, _, told = wrapped.step(policy(seen, told["action_mask"]))
        observation, _, _, _, info = plain.step(agent.act(observation, info))
        assert info["cost"] == told["cost"]
    sticky = next(layer for layer in layers(agent._env) if isinstance(layer, _Sticky))
    assert sticky.asked == 40


def test_running_statistics_are_those_of_training() -> None:
    """Statistics that begin anew in every episode are refused; fixed ones show what they showed."""
    view = fleetgym.View(FleetAllocEnv("fleet-v0/toy/two-pools").instance)

    def fresh(env: gymnasium.Env) -> gymnasium.Env:
        return NormalizeObservation(FlattenDict(env))

    trained = fresh(FleetAllocEnv("fleet-v0/toy/two-pools"))
    trained.reset(seed=0)
    for _ in range(5):
        trained.step(np.array([1, 0]))
    trained.update_running_mean = False

    def fixed(env: gymnasium.Env) -> gymnasium.Env:
        env = fresh(env)
        env.obs_rms, env.update_running_mean = trained.obs_rms, False
        return env

    shown = []

    def policy(seen: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        shown.append(seen)
        return np.array([1, 0])

    with pytest.raises(FleetgymError, match="update_running_mean = False"):
        PolicyAgent(policy, fresh).reset(view, seed=0)
    agent, plain = PolicyAgent(policy, fixed), FleetAllocEnv("fleet-v0/toy/two-pools")
    for _ in range(2):
        shown.clear()
        agent.reset(view, seed=0)
        agent.act(*plain.reset(options={"scenario": 0}))
        np.testing.assert_array_equal(shown[0], trained.reset(options={"scenario": 0})[0])
