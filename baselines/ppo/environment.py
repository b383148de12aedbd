"""The training environment: an instance in, `FleetAlloc-v0` with slot features, targets and quiet rewards out."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces

from fleetgym import FleetgymError, Instance, View

from .features import NUM_FEATURES, TARGETS, SlotFeatures

_LARGEST = 100.0  # of a feature
_LARGEST_REWARD = 3.0  # either way: what a drop costs in its window would drown the rest


class SlotTargets(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Show `SlotFeatures`, a box (slots, features), and let each slot choose one of their targets.

    The reward is what the ideal fleet for the window just played would have cost in it, all of it serving,
    minus the true cost, over the cost of a nominal window with the nominal fleet. The reference hardly depends
    on what the policy does, and takes away most of the noise that demand makes. The true cost stays in
    ``info["cost"]``.

    Parameters
    ----------
    env : gymnasium.Env
        `FleetAlloc-v0`, possibly wrapped, with its own actions; every slot a number of replicas.

    Raises
    ------
    FleetgymError
        If a slot of the instance is an exclusive group of configurations.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]):
        super().__init__(env)
        self._instance: Instance = env.unwrapped.instance  # type: ignore[attr-defined]
        exclusive = [s for s, slot in enumerate(self._instance.slots) if slot.exclusive]
        if exclusive:
            raise FleetgymError(
                f"slots {exclusive} of {self._instance.id!r} are exclusive groups; expected numbers of replicas only, "
                "which families grw and fastllm do not have"
            )
        view = View(self._instance)
        self._scale_usd = view.steady_cost_usd(self._instance.nominal_fleet) or 1.0
        slots = len(self._instance.slots)
        self.observation_space = spaces.Box(-_LARGEST, _LARGEST, (slots, NUM_FEATURES), np.float32)
        self.action_space = spaces.MultiDiscrete(np.full(slots, len(TARGETS)))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode; see the environment."""
        _, info = self.env.reset(seed=seed, options=options)
        self._features = SlotFeatures(View(self._instance))
        return self._observe(info)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, SupportsFloat, bool, bool, dict[str, Any]]:
        """Let one window happen; the action has an index into `TARGETS` per slot."""
        features, view = self._features, self._features.view
        target, before = features.targets[np.arange(features.targets.shape[0]), action], view.conditions
        _, _, terminated, truncated, info = self.env.step(target)
        observation, info = self._observe(info)
        played = view.conditions if self._instance.lead > 0 else before
        saved = view.steady_cost_usd(features.ideal_fleet, conditions=played) - info["cost"]
        reward = float(np.clip(saved / self._scale_usd, -_LARGEST_REWARD, _LARGEST_REWARD))
        return observation, reward, terminated, truncated, info

    def action_masks(self) -> np.ndarray:
        """Return which targets may be chosen: bool (slots * targets,)."""
        return self._features.allowed.ravel()

    def _observe(self, info: dict[str, Any]) -> tuple[np.ndarray, dict[str, Any]]:
        self._features.view.update(info)
        observation = self._features.observe(info)
        return observation, {**info, "action_mask": self.action_masks()}


def make_env(instance: str | Instance) -> gymnasium.Env[Any, Any]:
    """Return the training environment of an instance whose slots are all numbers of replicas (see `SlotTargets`).

    Examples
    --------
    >>> env = make_env("fleet-v0/dev/ou-s-001")
    >>> observation, info = env.reset(seed=0)
    >>> observation.shape, info["action_mask"].shape
    ((18, 33), (90,))
    """
    env = gymnasium.make("fleetgym:FleetAlloc-v0", instance=instance, disable_env_checker=True)
    return SlotTargets(env)
