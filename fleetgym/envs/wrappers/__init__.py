"""Wrappers for learning: an environment in, one with other actions, observations or rewards out.

Each follows Gymnasium's rules, so they compose with one another and with Gymnasium's own. Observation wrappers
that name keys need the `Dict` observation and come before `FlattenDict`. Where there is a choice, constants
come from the instance and not from running statistics: the same window then looks the same in training and in
an evaluation, in every copy of the environment, and nothing but the weights has to be stored with a policy.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from fleetgym.envs.wrappers.actions import RelativeActions
from fleetgym.envs.wrappers.observations import (
    FlattenDict,
    ForecastFeatures,
    FrameHistory,
    NormalizeByInstance,
)
from fleetgym.envs.wrappers.rewards import ScaleReward

__all__ = [
    "FlattenDict",
    "ForecastFeatures",
    "FrameHistory",
    "NormalizeByInstance",
    "RelativeActions",
    "ScaleReward",
    "for_learning",
]


def for_learning(
    env: gymnasium.Env[Any, Any],
    *,
    steps: tuple[int, ...] = (0, -1, 1),
    forecaster: str = "kalman",
    frames: int = 4,
) -> gymnasium.Env[Any, Any]:
    """Wrap `FleetAlloc-v0` as most learners want it: small actions, a flat normalised observation, rewards near one.

    Parameters
    ----------
    env : gymnasium.Env
        `FleetAlloc-v0`.
    steps : tuple of int
        As for `RelativeActions`.
    forecaster : str
        As for `ForecastFeatures`.
    frames : int
        Windows of demand that the observation holds.

    Returns
    -------
    gymnasium.Env
        The true cost of a window is in ``info["cost"]``.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> env = for_learning(gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/dev/ou-s-001"))
    >>> env.observation_space.shape, env.action_space.nvec.tolist() == [3] * 18
    ((140,), True)
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step(env.action_space.sample() * 0)
    >>> reward < 0.0 < info["cost"]
    True
    """
    env = RelativeActions(env, steps=steps)
    env = ForecastFeatures(env, forecaster=forecaster)
    env = FrameHistory(env, frames=frames)
    env = NormalizeByInstance(env)
    return ScaleReward(FlattenDict(env))
