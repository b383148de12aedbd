"""Wrappers for learning: an environment in, one with other actions, observations or rewards out.

`for_learning` is what most learners want, for one environment or a batch. The others change one thing each, of single
environments. Each follows Gymnasium's rules, so they compose with one another and with Gymnasium's own. Observation
wrappers that name keys need the `Dict` observation and come before `FlattenDict`. Where there is a choice, constants
come from the instance and not from running statistics. So the same window looks the same in training and in an
evaluation, in every copy of the environment, and nothing but the weights has to be stored with a policy.
"""

from __future__ import annotations

from fleetgym.envs.wrappers.learning import LearningEnv, LearningVectorEnv, for_learning
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
    "LearningEnv",
    "LearningVectorEnv",
    "NormalizeByInstance",
    "ScaleReward",
    "for_learning",
]
