"""Gymnasium's own tools work on `FleetAlloc-v0` as it is: statistics, flattening, copies in other processes."""

from __future__ import annotations

import functools

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv
from gymnasium.wrappers import FlattenObservation, FrameStackObservation, RecordEpisodeStatistics, TimeLimit

from fleetgym.envs.wrappers import for_learning

TOY = "fleet-v0/toy/drop"


def make(learning: bool = False) -> gymnasium.Env:
    """Return the environment, for learning or as it is; can be called in another process."""
    env = gymnasium.make("fleetgym:FleetAlloc-v0", instance=TOY)
    return for_learning(env) if learning else env


def test_episode_statistics_are_the_cost() -> None:
    """`RecordEpisodeStatistics` adds up minus the dollars of the day, and finds its key free."""
    env = RecordEpisodeStatistics(make())
    env.reset(seed=0)
    usd, done = 0.0, False
    while not done:
        _, _, done, _, info = env.step(env.action_space.sample())
        usd += info["cost"]
    assert info["episode"]["r"] == pytest.approx(-usd)
    assert info["episode"]["l"] == env.unwrapped.instance.num_windows


def test_flattening_stacking_and_time_limits() -> None:
    """Gymnasium's wrappers keep observations in their spaces, around ours or around the bare environment."""
    for env in (FlattenObservation(make()), FrameStackObservation(make(), 3), TimeLimit(make(True), 4)):
        observation, _ = env.reset(seed=0)
        for _ in range(4):
            assert env.observation_space.contains(observation)
            observation, _, _, truncated, _ = env.step(env.action_space.sample())
        assert truncated == isinstance(env, TimeLimit)


@pytest.mark.parametrize(("context", "learning"), [("spawn", False), ("forkserver", True)])
def test_other_processes_play_the_same(context: str, learning: bool) -> None:
    """`AsyncVectorEnv` gives the observations and rewards of `SyncVectorEnv`, however its processes start."""
    makers = [functools.partial(make, learning)] * 2
    stories = []
    for envs in (SyncVectorEnv(makers), AsyncVectorEnv(makers, context=context)):
        observation, _ = envs.reset(seed=3)
        envs.action_space.seed(0)
        story = [observation]
        for _ in range(8):
            observation, reward, _, _, info = envs.step(envs.action_space.sample())
            story += [observation, reward, info["cost"]]
        envs.close()
        stories.append(story)
    for a, b in zip(*stories, strict=True):
        pairs = [(a[key], b[key]) for key in a] if isinstance(a, dict) else [(a, b)]
        assert all(np.array_equal(x, y) for x, y in pairs)
