"""Make an agent that `fleetgym compare` can play from a policy that was trained behind wrappers."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import NormalizeObservation

from fleetgym.agents.view import View
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.wrappers import LearningEnv, for_learning
from fleetgym.envs.wrappers.layers import layers
from fleetgym.files.errors import FleetgymError
from fleetgym.model.instance import Instance

Policy = Callable[[Any, np.ndarray | None], Any]


@dataclasses.dataclass(frozen=True)
class Statistics:
    """How `VecNormalize` of stable-baselines3 normalised observations at the end of the training."""

    mean: np.ndarray
    variance: np.ndarray
    epsilon: float
    most: float

    @classmethod
    def of(cls, normalize: Any) -> Statistics | None:
        """Return the statistics of a `VecNormalize`; None if it leaves observations as they are.

        Raises
        ------
        FleetgymError
            For an object of another type, and for one that normalises some keys of a `Dict`.
        """
        if not hasattr(normalize, "norm_obs") or not hasattr(normalize, "clip_obs"):
            raise FleetgymError(f"normalize is {normalize!r}; expected a VecNormalize of stable-baselines3")
        if not normalize.norm_obs:
            return None
        if not hasattr(getattr(normalize, "obs_rms", None), "mean"):
            raise FleetgymError(
                "VecNormalize has statistics of each part of a Dict, and PolicyAgent takes those of one box: train "
                "behind gymnasium.wrappers.FlattenObservation, or behind for_learning without masks in observations"
            )
        told = normalize.obs_rms
        return cls(
            np.array(told.mean), np.array(told.var), float(normalize.epsilon), float(normalize.clip_obs)
        )

    def __call__(self, seen: np.ndarray) -> np.ndarray:
        """Return a normalised observation."""
        scaled = (seen - self.mean) / np.sqrt(self.variance + self.epsilon)
        return np.clip(scaled, -self.most, self.most).astype(np.float32)


class _Model:
    """A model of stable-baselines3 as a callable, with its memory of the episode."""

    def __init__(self, model: Any):
        self._model = model
        self._takes_masks = "action_masks" in inspect.signature(model.predict).parameters
        self.begin()

    def begin(self) -> None:
        self._memory, self._first = None, np.ones(1, dtype=bool)

    def __call__(self, seen: Any, mask: np.ndarray | None) -> Any:
        more = {"action_masks": mask} if self._takes_masks else {}
        action, self._memory = self._model.predict(
            seen, state=self._memory, episode_start=self._first, deterministic=True, **more
        )
        self._first = np.zeros(1, dtype=bool)
        return action


def _own_normalization(model: Any) -> Any:
    find = getattr(model, "get_vec_normalize_env", None)
    return None if find is None else find()


def _shape(space: gymnasium.Space[Any]) -> str:
    """Return what a space's shape is called in an error."""
    if isinstance(space, gymnasium.spaces.Dict):
        return "{" + ", ".join(f"{name}: {_shape(part)}" for name, part in sorted(space.items())) + "}"
    if isinstance(space, gymnasium.spaces.Discrete):
        return f"0 to {int(space.n) - 1}"
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return f"of options {space.nvec.tolist()}"
    return str(space.shape)


#: What to do with a policy of the environment's own observations and actions.
_BARE = (
    "These are the features of for_learning; a policy that was trained on FleetAlloc-v0 as it is needs "
    "PolicyAgent(policy, wrap=lambda env: env)"
)


class PolicyAgent:
    """Plays a policy that was trained in `FleetAlloc-v0` behind wrappers.

    The same wrappers wrap an environment that simulates nothing and repeats the agent's observations. So the
    policy sees in an evaluation what it saw in training, forecasts and history included, and knows nothing more. Every
    wrapper is asked once per window, so those that remember actions or draw numbers play as in training, too.

    Parameters
    ----------
    policy : callable, or a model of stable-baselines3
        A callable gets an observation of the wrapped environment and its action mask, and returns an action of it. A
        model is asked for its likeliest action, with masks if it takes them, and with its memory if it has one.
    wrap : callable
        Puts the wrappers around the environment, as in training. Those that change actions are
        `gymnasium.ActionWrapper`s: what one does to them in its own ``step`` is refused, since a policy must answer
        before the step is taken. A `gymnasium.wrappers.NormalizeObservation` needs the statistics of the training,
        and ``update_running_mean = False``.
    normalize : Statistics or VecNormalize of stable-baselines3, optional
        How observations were normalised in training; by default as the model's own environment does, if it has one.
    trained_on : sequence of str
        Ids of instances on which the policy was trained; ``fleetgym check-agent`` plays one of them.

    Raises
    ------
    FleetgymError
        For a policy that is neither a callable nor a model, and for statistics that are missing.

    Examples
    --------
    A policy of stable-baselines3 in a file that ``fleetgym compare mine.py:agent`` plays; `fleetgym.envs.sb3` says more
    of `save_policy` and `load_policy`::

        from fleetgym.envs.sb3 import load_policy

        def agent():
            return load_policy("mine.zip")

    >>> import fleetgym
    >>> agent = PolicyAgent(lambda seen, mask: np.zeros((1, 2)))
    >>> agent.reset(View(fleetgym.load_instance("fleet-v0/toy/two-pools")), seed=0)
    """

    def __init__(
        self,
        policy: Any,
        wrap: Callable[[gymnasium.Env[Any, Any]], gymnasium.Env[Any, Any]] = for_learning,
        normalize: Any = None,
        trained_on: Sequence[str] = (),
    ):
        self._spaces: tuple[gymnasium.Space[Any], gymnasium.Space[Any]] | None = None
        if callable(getattr(policy, "predict", None)):
            self._spaces = policy.observation_space, policy.action_space
            normalize = normalize or _own_normalization(policy)
            policy = _Model(policy)
        if not callable(policy):
            raise FleetgymError(
                f"policy is {policy!r}; expected a callable of observation and mask, such as "
                "lambda seen, mask: np.zeros((4, 2)), or a model with `predict`"
            )
        self.policy, self.wrap, self.trained_on = policy, wrap, tuple(trained_on)
        self.statistics = normalize if isinstance(normalize, Statistics | None) else Statistics.of(normalize)

    def misfit(self, instance: Instance) -> str | None:
        """Return why a model does not play an instance: both shapes, if they differ; None if it does."""
        return self._misfit(self.wrap(_ShownEnv(instance)), instance)

    def _misfit(self, env: gymnasium.Env[Any, Any], instance: Instance) -> str | None:
        if self._spaces is None:
            return None
        own = [_shape(space) for space in self._spaces]
        theirs = [_shape(space) for space in (env.observation_space, env.action_space)]
        if own == theirs:
            return None
        hint = ""
        if self.wrap is for_learning and isinstance(self._spaces[0], gymnasium.spaces.Dict):
            hint = f". {_BARE}"
        return (
            f"the policy was trained with observations {own[0]} and actions {own[1]}; "
            f"{instance.id} has observations {theirs[0]} and actions {theirs[1]}{hint}"
        )

    def reset(self, view: View, *, seed: int) -> None:
        """Forget the last episode.

        Raises
        ------
        FleetgymError
            If a wrapper would normalise by what it sees in this episode instead of in training, and if the policy was
            trained for other shapes.
        """
        self._shown = _ShownEnv(view.instance)
        self._env = self.wrap(self._shown)
        if why := self._misfit(self._env, view.instance):
            raise FleetgymError(why)
        if isinstance(self.policy, _Model):
            self.policy.begin()
        for layer in layers(self._env):
            if isinstance(layer, NormalizeObservation) and layer.update_running_mean:
                raise FleetgymError(
                    "NormalizeObservation would begin every episode with fresh statistics: let `wrap` set `obs_rms` "
                    "to those of the training and `update_running_mean = False`"
                )
        self._translations = [*_translations(self._env)]
        self._last: Any = None

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the target of the policy's action, (slots,) options.

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
        if self.statistics is not None:
            seen = self.statistics(seen)
        action = self._last = self._asked(seen, told.get("action_mask"))
        for layer, translate in self._translations:
            action = translate(action)
            if isinstance(layer, gymnasium.ActionWrapper):  # its `step` repeats this, and asks no second time
                layer.action = _always(action)  # type: ignore[method-assign]
        self._answer = np.array(action)
        return self._answer.copy()

    def _asked(self, seen: Any, mask: np.ndarray | None) -> Any:
        """Return the policy's action; say what it was shown if it cannot read that."""
        try:
            return self.policy(seen, mask)
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            hint = f". {_BARE}" if self.wrap is for_learning else ""
            raise FleetgymError(
                f"the policy raised {type(error).__name__} ({error}) for observations "
                f"{_shape(self._env.observation_space)}{hint}"
            ) from error

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

    def action_masks(self, env: Any = None) -> np.ndarray:
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
