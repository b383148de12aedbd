"""The batched environment for stable-baselines3: a Gymnasium vector environment in, SB3's `VecEnv` out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.vec_env import VecEnv

from fleetgym.files.errors import FleetgymError


class BatchedVecEnv(VecEnv):
    """Let stable-baselines3 and sb3-contrib train on ``gymnasium.make_vec("fleetgym:FleetAlloc-v0", ...)``.

    Observations, rewards, ends and masks are those of SB3's `DummyVecEnv` over as many single environments, bit
    for bit.

    Parameters
    ----------
    envs : gymnasium.vector.VectorEnv
        With autoreset mode ``"SameStep"``, which is what SB3 expects.
    info_keys : sequence of str
        Which numbers of the infos each environment's info holds. What is left out costs no time.

    Raises
    ------
    FleetgymError
        If the autoreset mode is another one.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> envs = gymnasium.make_vec("fleetgym:FleetAlloc-v0", num_envs=3, autoreset_mode="SameStep")
    >>> vec_env = BatchedVecEnv(envs)
    >>> vec_env.reset()["demand"].shape, vec_env.env_method("action_masks")[0].shape
    ((3, 4), (159,))
    >>> vec_env.close()
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], info_keys: Sequence[str] = ("cost",)):
        if envs.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
            raise FleetgymError("make the vector environment with autoreset_mode='SameStep'")
        self.envs: Any = envs
        self.info_keys = tuple(info_keys)
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> Any:
        """Start all episodes, with the seeds that `seed` was told and the options that `set_options` was.

        Raises
        ------
        FleetgymError
            For options that differ from environment to environment.
        """
        options = self._options[0]
        if any(other is not options and other != options for other in self._options):
            raise FleetgymError("set_options: the environments of a batch have the same options, got several")
        observation, self.infos = self.envs.reset(seed=list(self._seeds), options=options)
        self.reset_infos = self._split(self.infos)
        self._reset_seeds()
        self._reset_options()
        return observation

    def step_async(self, actions: np.ndarray) -> None:
        """Note the actions, (N, slots)."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Let one window happen; return observations, rewards, dones and a list of infos."""
        observation, rewards, terminated, truncated, self.infos = self.envs.step(self._actions)
        dones, infos = terminated | truncated, self._split(self.infos)
        for k in np.flatnonzero(dones):
            infos[k] = {key: self.infos["final_info"][key][k] for key in self.info_keys}
            infos[k]["terminal_observation"] = self.infos["final_obs"][k]
            infos[k]["TimeLimit.truncated"] = bool(truncated[k] and not terminated[k])
        return observation, rewards.astype(np.float32), dones, infos

    def _split(self, infos: dict[str, Any]) -> list[dict[str, Any]]:
        columns = [infos[key] for key in self.info_keys]
        return [dict(zip(self.info_keys, row, strict=True)) for row in zip(*columns, strict=True)] or [
            {} for _ in range(self.num_envs)
        ]

    def close(self) -> None:
        """Close the vector environment."""
        self.envs.close()

    # -- what SB3 asks of single environments ---------------------------------------------------------------

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return the vector environment's attribute, once per environment; ``"instance"`` is each one's own."""
        own = self.envs.unwrapped.get_attr(attr_name)
        return [own[k] for k in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Give some of the environments an attribute; see `FleetAllocVectorEnv.set_attr`."""
        batch = self.envs.unwrapped
        try:
            own = list(batch.get_attr(attr_name))
        except AttributeError:
            own = [None] * self.num_envs
        for k in self._get_indices(indices):
            own[k] = value
        batch.set_attr(attr_name, own)

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Call a method of the vector environment that returns one row per environment, such as `action_masks`."""
        rows = getattr(self.envs, method_name)(*args, **kwargs)
        return [rows[k] for k in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: type[gymnasium.Wrapper], indices: Any = None) -> list[bool]:
        """Return False for each environment."""
        return [False] * len(list(self._get_indices(indices)))
