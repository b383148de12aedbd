"""Wrap `FleetAlloc-v0` for learners: margins as actions, features as observations, rewards near one.

`for_learning` suits most learners, for one environment or a batch. It follows Gymnasium's rules, so it composes
with Gymnasium's own wrappers. Its constants come from the instance and not from running statistics. So the same window
looks the same in training and in an evaluation, and only the weights have to be stored with a policy.

To learn from the environment's own actions and observations, use Gymnasium's wrappers:

Examples
--------
>>> import gymnasium
>>> from gymnasium.wrappers import FlattenObservation, FrameStackObservation, TransformReward
>>> env = gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/toy/two-pools")
>>> env = FrameStackObservation(FlattenObservation(env), stack_size=3)
>>> env = TransformReward(env, lambda reward: reward / 100.0)
>>> observation, info = env.reset(seed=0)
>>> observation.shape
(3, 23)
>>> observation, reward, terminated, truncated, info = env.step([1, 0])
>>> reward == -info["cost"] / 100.0
True
"""

from __future__ import annotations

from fleetgym.envs.wrappers.learning import LearningEnv, LearningVectorEnv, for_learning

__all__ = ["LearningEnv", "LearningVectorEnv", "for_learning"]
