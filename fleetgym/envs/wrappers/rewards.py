"""Reward scaling: a reward in USD in, one of the order of one out; the true one stays in `info`."""

from __future__ import annotations

import dataclasses
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.wrappers import NormalizeReward

from fleetgym.agents.arguments import is_number
from fleetgym.agents.view import View
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.wrappers.layers import refuse_below
from fleetgym.files.errors import FleetgymError
from fleetgym.model.conditions import Conditions


class ScaleReward(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Divide the reward by a constant of the instance, and count it from a reference if that is wanted.

    The reward becomes ``(reward + reference) / scale``. ``info["unscaled_reward"]`` keeps the environment's
    own, which is why wrappers that change rewards go around this one, not inside it; the cost terms and
    ``info["cost"]`` are untouched.

    The reference ``"nominal"`` is what the window would have cost if the nominal fleet had served it. No action
    can change it, so the best policy stays the same; but it takes with it most of what demand does to the cost,
    and what is left is what the agent did. It takes one more routing problem per step.

    Parameters
    ----------
    env : gymnasium.Env
        An environment of this package.
    scale : float, optional
        By default, for `FleetAlloc-v0`, the cost of a window with nominal demand and the nominal fleet in USD.
    reference : str
        ``"none"`` or ``"nominal"``; the latter for `FleetAlloc-v0` only.

    Raises
    ------
    FleetgymError
        If `scale` is not positive, or is left out where the environment is not `FleetAlloc-v0`; for another
        `reference`; around a `gymnasium.RewardWrapper`, a `NormalizeReward` or another `ScaleReward`.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> env = ScaleReward(gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/toy/two-pools"), scale=100.0)
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step([1, 0])
    >>> reward == info["unscaled_reward"] / 100.0 == -info["cost"] / 100.0
    True
    """

    def __init__(self, env: gymnasium.Env[Any, Any], scale: float | None = None, reference: str = "none"):
        RecordConstructorArgs.__init__(self, scale=scale, reference=reference)
        super().__init__(env)
        refuse_below(
            env,
            (gymnasium.RewardWrapper, NormalizeReward, ScaleReward),
            "has changed the reward already: put it around ScaleReward, not inside, and scale only once",
        )
        if reference not in ("none", "nominal"):
            raise FleetgymError(f"reference must be 'none' or 'nominal', got {reference!r}")
        self._view: View | None = None
        if isinstance(env.unwrapped, FleetAllocEnv):
            self._view = View(env.unwrapped.instance)
            self._nominal_fleet = np.array(self._view.instance.nominal_fleet)
        elif scale is None or reference == "nominal":
            raise FleetgymError(
                "scale must be given, and reference 'none', where the env is not FleetAlloc-v0"
            )
        self.reference = reference
        if scale is not None and not (is_number(scale) and 0.0 < scale < np.inf):
            raise FleetgymError(f"scale must be a finite number above 0, got {scale!r}")
        self.scale = self._nominal_usd() if scale is None else float(scale)
        self._coming: dict[str, Any] = {}

    def _nominal_usd(self) -> float:
        assert self._view is not None
        return self._view.steady_cost_usd(self._nominal_fleet) or 1.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; ``info["unscaled_reward"]`` is 0."""
        observation, info = self.env.reset(seed=seed, options=options)
        self._coming = info
        return observation, {**info, "unscaled_reward": 0.0}

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Let one window happen; see the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        true = float(reward)
        scaled = (true + self._reference_usd(info)) / self.scale
        self._coming = info
        return observation, scaled, terminated, truncated, {**info, "unscaled_reward": true}

    def _reference_usd(self, info: dict[str, Any]) -> float:
        """Return what the window just played would have cost with the nominal fleet; 0 without a reference."""
        if self.reference == "none" or self._view is None:
            return 0.0
        shown = info if self._view.instance.lead > 0 else self._coming
        played = Conditions(**{field.name: shown[field.name] for field in dataclasses.fields(Conditions)})
        return self._view.steady_cost_usd(self._nominal_fleet, conditions=played)
