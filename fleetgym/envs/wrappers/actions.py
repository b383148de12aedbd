"""Relative actions: a change of the running fleet in, the target that it leads to out."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.actions import ActionSpace


def step_mask(
    actions: ActionSpace, options: np.ndarray, steps: np.ndarray, action_mask: np.ndarray
) -> np.ndarray:
    """Return which steps from the slots' present options are allowed.

    Parameters
    ----------
    actions : ActionSpace
        The options of the slots.
    options : ndarray of int64, shape (slots,)
        The present ones.
    steps : ndarray of int64, shape (steps,)
        Changes.
    action_mask : ndarray of bool, shape (sum of nvec,)
        Which options the environment allows.

    Returns
    -------
    ndarray of bool, shape (slots, steps)
        Down and staying wherever the option exists, up where the environment allows it.

    Examples
    --------
    >>> import fleetgym
    >>> actions = fleetgym.ActionSpace(fleetgym.load_instance("fleet-v0/toy/two-pools"))
    >>> step_mask(actions, np.array([1, 0]), np.array([0, -1, 1]), np.ones(actions.nvec.sum(), dtype=bool)).tolist()
    [[True, True, False], [True, False, True]]
    """
    nvec, offsets = actions.nvec[:, None], actions.offsets[:, None]
    wanted = options[:, None] + steps
    exists = (wanted >= 0) & (wanted < nvec)
    return exists & (np.asarray(action_mask)[offsets + np.clip(wanted, 0, nvec - 1)] | (steps <= 0))


class RelativeActions(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Say by how much each slot of `FleetAlloc-v0` shall change, instead of what it shall be.

    The action has one component per slot, an index into `steps`; the target is the slot's present option (what
    runs or starts) plus that step, kept within the slot's options. In an exclusive slot a step moves along its
    list of configurations, option 0 being off. Repeating "no change" keeps what is there; it does not ask again
    for replicas that were lost.

    ``action_masks()`` and ``info["action_mask"]`` follow: staying and stepping down are allowed, as they are
    always admitted, and a step up is allowed if the environment allows the option that it leads to. A step that
    leaves the slot's options is not allowed.

    Parameters
    ----------
    env : gymnasium.Env
        `FleetAlloc-v0`, possibly wrapped, with its own actions.
    steps : sequence of int
        Changes to choose from, among them 0.

    Raises
    ------
    FleetgymError
        If `steps` lacks 0 or repeats a number, or the environment is not `FleetAlloc-v0`.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> env = gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/toy/two-pools")
    >>> env = RelativeActions(env, steps=(0, -1, 1))
    >>> observation, info = env.reset(seed=0)
    >>> info["running"].tolist(), info["action_mask"].tolist()
    ([1, 0], [True, True, False, True, False, True])
    >>> observation, reward, terminated, truncated, info = env.step([0, 2])
    >>> (info["running"] + info["starting"].sum(axis=1)).tolist()
    [1, 1]
    """

    def __init__(self, env: gymnasium.Env[Any, Any], steps: tuple[int, ...] = (0, -1, 1)):
        RecordConstructorArgs.__init__(self, steps=steps)
        super().__init__(env)
        self.steps = np.array(steps, dtype=np.int64)
        if self.steps.ndim != 1 or 0 not in self.steps or np.unique(self.steps).size != self.steps.size:
            raise FleetgymError(f"steps must be different whole numbers with 0 among them, got {steps!r}")
        inner = env.unwrapped
        if not isinstance(inner, FleetAllocEnv) or env.action_space != inner.action_space:
            raise FleetgymError("RelativeActions needs FleetAlloc-v0 with its own actions")
        self._actions = actions = inner.actions
        self.action_space = spaces.MultiDiscrete(np.full(actions.nvec.size, self.steps.size))
        self._options = np.zeros(actions.nvec.size, dtype=np.int64)
        self._mask = np.ones(actions.nvec.size * self.steps.size, dtype=bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; see the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, self._follow(info)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Let one window happen.

        Parameters
        ----------
        action : array_like of int, shape (slots,)
            Indices into `steps`.

        Raises
        ------
        DataError
            If the action is not valid.
        """
        observation, reward, terminated, truncated, info = self.env.step(self.target(action))
        return observation, reward, terminated, truncated, self._follow(info)

    def target(self, action: Any) -> np.ndarray:
        """Return the environment's own action, int64 (slots,), that a relative one stands for."""
        raw = np.asarray(action)
        if raw.shape != self._options.shape or raw.dtype.kind not in "iuf":
            raise DataError(
                f"expected {self._options.size} whole numbers, got {raw.dtype} of shape {raw.shape}",
                "$.action",
            )
        with np.errstate(invalid="ignore"):
            index = raw.astype(np.int64)
        bad = np.flatnonzero((index != raw) | (index < 0) | (index >= self.steps.size))
        if bad.size:
            s = int(bad[0])
            raise DataError(
                f"expected a step from 0 to {self.steps.size - 1}, got {raw[s]}", f"$.action[{s}]"
            )
        return np.clip(self._options + self.steps[index], 0, self._actions.nvec - 1)

    def action_masks(self) -> np.ndarray:
        """Return which steps are allowed: bool (slots * steps,)."""
        return self._mask.copy()

    def _follow(self, info: dict[str, Any]) -> dict[str, Any]:
        """Note the slots' present options and which steps from them are allowed."""
        self._options = self._actions.from_fleet(info["running"] + info["starting"].sum(axis=1))
        self._mask = step_mask(self._actions, self._options, self.steps, info["action_mask"]).ravel()
        return {**info, "action_mask": self._mask.copy()}
