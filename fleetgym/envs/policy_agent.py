"""A policy that was trained behind wrappers in, an agent out that `fleetgym compare` can play."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import NormalizeObservation

from fleetgym.agents.view import View
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.wrappers import LearningEnv, for_learning
from fleetgym.envs.wrappers.layers import layers
from fleetgym.files.errors import FleetgymError

Policy = Callable[[Any, np.ndarray | None], Any]


class PolicyAgent:
    """Plays a policy that was trained in `FleetAlloc-v0` behind wrappers.

    The same wrappers are put around an environment that simulates nothing and repeats what the agent is shown. So the
    policy sees in an evaluation what it saw in training, forecasts and history included, and knows nothing more. Every
    wrapper is asked once per window, so those that remember actions or draw numbers play as in training, too.

    Parameters
    ----------
    policy : callable
        Called with an observation of the wrapped environment and its action mask, returns an action of it.
    wrap : callable
        Puts the wrappers around the environment, as in training. Those that change actions are
        `gymnasium.ActionWrapper`s: what one does to them in its own ``step`` is refused, since a policy must answer
        before the step is taken. A `gymnasium.wrappers.NormalizeObservation` needs the statistics of the training,
        and ``update_running_mean = False``.

    Examples
    --------
    A policy that always stays, and one of stable-baselines3, in a file that ``fleetgym compare mine.py:agent`` plays::

        model = MaskablePPO.load("mine.zip")

        def agent():
            return PolicyAgent(lambda seen, mask: model.predict(seen, action_masks=mask, deterministic=True)[0])

    >>> import fleetgym
    >>> agent = PolicyAgent(lambda seen, mask: np.zeros(2, dtype=int))
    >>> agent.reset(View(fleetgym.load_instance("fleet-v0/toy/two-pools")), seed=0)
    """

    def __init__(
        self,
        policy: Policy,
        wrap: Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]] = for_learning,
    ):
        if not callable(policy):
            raise FleetgymError(
                f"policy is {policy!r}; expected a callable of observation and mask, such as "
                "lambda seen, mask: model.predict(seen, action_masks=mask)[0]"
            )
        self.policy, self.wrap = policy, wrap

    def reset(self, view: View, *, seed: int) -> None:
        """Forget the last episode.

        Raises
        ------
        FleetgymError
            If a wrapper would normalise by what it sees in this episode instead of in training.
        """
        self._shown = _ShownEnv(view.instance)
        self._env = self.wrap(self._shown)
        for layer in layers(self._env):
            if isinstance(layer, NormalizeObservation) and layer.update_running_mean:
                raise FleetgymError(
                    "NormalizeObservation would begin every episode with fresh statistics: let `wrap` set `obs_rms` "
                    "to those of the training and `update_running_mean = False`"
                )
        self._translations = [*_translations(self._env)]
        self._last: Any = None

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the target that the policy's action stands for, (slots,) options.

        Raises
        ------
        FleetgymError
            If the wrappers let another action through in `step` than was answered in the last window.
        """
        self._shown.show(observation, info)
        if self._last is None:
            seen, told = self._env.reset()
        else:
            seen, _, _, _, told = self._env.step(self._last)
            self._check_received()
        action = self._last = self.policy(seen, told.get("action_mask"))
        for layer, translate in self._translations:
            action = translate(action)
            if isinstance(layer, gymnasium.ActionWrapper):  # its `step` repeats this, and asks no second time
                layer.action = _always(action)  # type: ignore[method-assign]
        self._answer = np.array(action)
        return self._answer.copy()

    def _check_received(self) -> None:
        """Refuse wrappers that let another action through than the one that was answered."""
        received = np.asarray(self._shown.received)
        if not np.array_equal(received, self._answer):
            raise FleetgymError(
                f"the wrappers turn the action {self._answer.tolist()} into {received.tolist()} in `step`; a wrapper "
                "that changes actions must be a gymnasium.ActionWrapper and do so in `action`"
            )


class _ShownEnv(FleetAllocEnv):
    """`FleetAlloc-v0` that repeats what it is given; what is asked of it changes nothing."""

    simulates = False
    received: Any  # the last action that the wrappers let through

    def show(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> None:
        self._now = dict(observation), dict(info)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        return self._now

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        self.received = action
        observation, info = self._now
        return observation, 0.0 - info["cost"], False, False, info

    def action_masks(self) -> np.ndarray:
        return np.asarray(self._now[1]["action_mask"])


def _always(answer: Any) -> Any:
    return lambda action: answer


def _translations(
    env: gymnasium.Env[Any, Any],
) -> Iterator[tuple[gymnasium.Wrapper[Any, Any, Any, Any], Any]]:
    """Return the wrappers that change actions, the outermost first, and what turns each one's into the next's."""
    for layer in layers(env):
        if isinstance(layer, LearningEnv):
            yield layer, layer.target
        elif isinstance(layer, gymnasium.ActionWrapper):
            yield layer, layer.action
