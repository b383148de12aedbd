"""Observation wrappers: the `Dict` observation in; normalised, with a forecast, with a memory, or flat out."""

from __future__ import annotations

import abc
import copy
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs

from fleetgym.agents.arguments import is_number, whole_at_least
from fleetgym.agents.forecasters import Forecaster, make_forecaster
from fleetgym.envs.fleet_alloc import MAX_LOG_RATIO, FleetAllocEnv
from fleetgym.envs.wrappers.layers import refuse_below
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.model.instance import Instance

_REPLICAS = ("running", "starting", "draining", "denied", "lost")
_LEAST_SPREAD = 0.1  # of log demand: below this, noise would be blown up


def _boxes(env: gymnasium.Env[Any, Any], who: str) -> dict[str, spaces.Box]:
    """Return the boxes of a `Dict` observation."""
    if not isinstance(env.observation_space, spaces.Dict):
        raise FleetgymError(f"{who} needs the Dict observation: put it inside FlattenDict, not around it")
    return {name: box for name, box in env.observation_space.items() if isinstance(box, spaces.Box)}


def _instance(env: gymnasium.Env[Any, Any], who: str) -> Instance:
    instance = getattr(env.unwrapped, "instance", None)
    if not isinstance(instance, Instance):
        raise FleetgymError(f"{who} needs an environment of fleetgym, got {env.unwrapped}")
    return instance


class _ObservationWrapper(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs, abc.ABC):
    """Calls `observation` on what the environment shows; wrappers with a memory override `begin`, too."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; see the environment."""
        observation, info = self.env.reset(seed=seed, options=options)
        self.begin(observation, info)
        return self.observation(observation), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Let one window happen; see the environment."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.remember(observation, info)
        return self.observation(observation), reward, terminated, truncated, info

    def begin(self, observation: Any, info: Mapping[str, Any]) -> None:
        """Forget the last episode."""

    def remember(self, observation: Any, info: Mapping[str, Any]) -> None:
        """Take in what a step brought."""

    @abc.abstractmethod
    def observation(self, observation: Any) -> Any:
        """Return what is shown instead of `observation`."""


class NormalizeByInstance(_ObservationWrapper):
    """Bring every part of the observation to the order of one, by constants of the instance.

    | keys | become |
    |---|---|
    | `demand`, `forecast` | divided by the history's standard deviation (at least 0.1), clipped to ±5 |
    | `price` | its natural logarithm, clipped to ±5 |
    | `running`, `starting`, `draining`, `denied`, `lost` | divided by `max_replicas` |
    | all others | unchanged: they are shares, sines, or logarithms of ratios near one |

    Parameters
    ----------
    env : gymnasium.Env
        An environment of this package with its `Dict` observation.

    Raises
    ------
    FleetgymError
        If the observation is not a `Dict`, or is normalised already.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> env = NormalizeByInstance(gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/toy/two-pools"))
    >>> observation, info = env.reset(seed=0)
    >>> observation["price"].tolist(), observation["running"].tolist()
    ([0.0, 0.0], [1.0, 0.0])
    """

    def __init__(self, env: gymnasium.Env[Any, Any]):
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        boxes, instance = _boxes(env, "NormalizeByInstance"), _instance(env, "NormalizeByInstance")
        refuse_below(env, (NormalizeByInstance,), "has normalised the observation already: once is enough")
        most = np.array([c.max_replicas for c in instance.configurations], dtype=np.float32)
        spread = np.maximum(_LEAST_SPREAD, _log_rates(instance).std(axis=0)).astype(np.float32)
        self._divisor = {
            **dict.fromkeys(_REPLICAS, np.maximum(1.0, most)),
            "demand": spread,
            "forecast": spread,
        }
        self.observation_space = spaces.Dict({name: self._new_box(name, box) for name, box in boxes.items()})

    def _new_box(self, name: str, box: spaces.Box) -> spaces.Box:
        return spaces.Box(self._apply(name, box.low), self._apply(name, box.high), dtype=np.float32)

    def observation(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the normalised observation."""
        return {name: self._apply(name, value) for name, value in observation.items()}

    def _apply(self, name: str, value: np.ndarray) -> np.ndarray:
        if name == "price":
            with np.errstate(divide="ignore"):
                value = np.clip(np.log(value), -MAX_LOG_RATIO, MAX_LOG_RATIO)
        elif name in self._divisor:
            value = value / self._divisor[name]
            if name not in _REPLICAS:
                value = np.clip(value, -MAX_LOG_RATIO, MAX_LOG_RATIO)
        return value.astype(np.float32)


def _log_rates(instance: Instance) -> np.ndarray:
    """Return the history's log rates relative to nominal, (windows, I); empty windows count as the lowest ones."""
    nominal = np.array([w.rate_rps for w in instance.workloads])
    with np.errstate(divide="ignore"):
        return np.clip(np.log(instance.history.rate_rps / nominal), -MAX_LOG_RATIO, MAX_LOG_RATIO)


class ForecastFeatures(_ObservationWrapper):
    """Add the key `forecast`: what a forecaster expects of the coming windows' demand.

    ``forecast[k, i]`` is the log of the expected rate of workload i over its nominal rate, clipped to ±5, for
    the window `windows_ahead[k]` after the coming one. The forecaster studies the instance's history and the
    windows seen so far, as the agents' do.

    Parameters
    ----------
    env : gymnasium.Env
        `FleetAlloc-v0` with its `Dict` observation.
    forecaster : str or Forecaster
        ``"last"``, ``"ewma"``, ``"kalman"``, ``"quantile"``, or an object, of which the wrapper takes a copy.
    windows_ahead : sequence of int
        Which windows; 0 is the coming one.

    Raises
    ------
    FleetgymError
        If the environment is not `FleetAlloc-v0`, the observation is not a `Dict`, or a window is no whole number
        of at least 0.
    UnknownNameError
        If no forecaster has the name.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> env = gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/dev/ou-s-001")
    >>> env = ForecastFeatures(env, forecaster="ewma", windows_ahead=(0, 2, 6))
    >>> env.reset(seed=0)[0]["forecast"].shape
    (3, 4)
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        forecaster: str | Forecaster = "kalman",
        windows_ahead: Sequence[int] = (0, 2),
    ):
        RecordConstructorArgs.__init__(self, forecaster=forecaster, windows_ahead=tuple(windows_ahead))
        super().__init__(env)
        boxes = _boxes(env, "ForecastFeatures")
        self.windows_ahead = tuple(windows_ahead)
        if not self.windows_ahead or not all(is_number(w, whole=True) and w >= 0 for w in self.windows_ahead):
            raise FleetgymError(f"windows_ahead must be whole numbers of at least 0, got {windows_ahead!r}")
        self._instance = _instance(env, "ForecastFeatures")
        if not isinstance(env.unwrapped, FleetAllocEnv):
            raise FleetgymError("ForecastFeatures needs FleetAlloc-v0: one window has nothing to forecast")
        self._forecaster = copy.deepcopy(make_forecaster(forecaster))
        self._nominal = np.array([w.rate_rps for w in self._instance.workloads])
        shape = (len(self.windows_ahead), self._nominal.size)
        box = spaces.Box(-MAX_LOG_RATIO, MAX_LOG_RATIO, shape, np.float32)
        self.observation_space = spaces.Dict({**boxes, "forecast": box})

    def begin(self, observation: Any, info: Mapping[str, Any]) -> None:
        """Study the history."""
        self._forecaster.reset(self._instance)
        self._seen = np.asarray(info["rate_rps"], dtype=float)
        if self._instance.lead == 0:
            self._forecaster.update(self._seen)

    def remember(self, observation: Any, info: Mapping[str, Any]) -> None:
        """Take in the window seen last."""
        self._seen = np.asarray(info["rate_rps"], dtype=float)
        self._forecaster.update(self._seen)

    def observation(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the observation with the forecast."""
        leads = [self._instance.lead + ahead for ahead in self.windows_ahead]
        rates = [self._forecaster.predict(lead) if lead > 0 else self._seen for lead in leads]
        with np.errstate(divide="ignore"):
            ratio = np.clip(np.log(np.array(rates) / self._nominal), -MAX_LOG_RATIO, MAX_LOG_RATIO)
        return {**observation, "forecast": ratio.astype(np.float32)}


class FrameHistory(_ObservationWrapper):
    """Show the last few values of some keys, oldest first: a box (n,) becomes (frames, n).

    Gymnasium's `FrameStackObservation` stacks everything; here the parts that say nothing new about the past
    need not be repeated. After a reset the first observation fills the history.

    Parameters
    ----------
    env : gymnasium.Env
        An environment of this package with its `Dict` observation.
    frames : int
        How many values, at least 1.
    keys : sequence of str
        Of which keys.

    Raises
    ------
    FleetgymError
        If the observation is not a `Dict`, or `frames` is no whole number of at least 1.
    UnknownNameError
        If the observation has no such key.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> env = FrameHistory(gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/toy/two-pools"), frames=3)
    >>> env.reset(seed=0)[0]["demand"].tolist()
    [[0.0], [0.0], [0.0]]
    """

    def __init__(self, env: gymnasium.Env[Any, Any], frames: int = 4, keys: Sequence[str] = ("demand",)):
        RecordConstructorArgs.__init__(self, frames=frames, keys=tuple(keys))
        super().__init__(env)
        boxes = _boxes(env, "FrameHistory")
        whole_at_least(1, frames=frames)
        for key in keys:
            if key not in boxes:
                raise UnknownNameError("observation key", key, boxes)
        self._frames: dict[str, deque[np.ndarray]] = {key: deque(maxlen=frames) for key in keys}
        for key in self._frames:
            low, high = (np.stack([bound] * frames) for bound in (boxes[key].low, boxes[key].high))
            boxes[key] = spaces.Box(low, high, dtype=np.float32)
        self.observation_space = spaces.Dict(dict(boxes))

    def begin(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> None:
        """Fill the history with the first observation."""
        for key, frames in self._frames.items():
            frames.extend([observation[key]] * (frames.maxlen or 1))

    def remember(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> None:
        """Add one observation to the history."""
        for key, frames in self._frames.items():
            frames.append(observation[key])

    def observation(self, observation: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the observation with the history of the chosen keys."""
        return {**observation, **{key: np.stack(frames) for key, frames in self._frames.items()}}


class FlattenDict(_ObservationWrapper):
    """Put all boxes of the observation into one vector, in the order of the space's keys.

    The vector is that of Gymnasium's `FlattenObservation`, which cannot be pickled and does not say what lies
    where.

    Parameters
    ----------
    env : gymnasium.Env
        An environment with a `Dict` of boxes as observation.

    Attributes
    ----------
    parts : dict of str to slice
        Where each key lies.

    Raises
    ------
    FleetgymError
        If the observation is not a `Dict`.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> env = FlattenDict(gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/toy/two-pools"))
    >>> observation, info = env.reset(seed=0)
    >>> observation[env.parts["running"]].tolist()
    [1.0, 0.0]
    """

    def __init__(self, env: gymnasium.Env[Any, Any]):
        RecordConstructorArgs.__init__(self)
        super().__init__(env)
        boxes = _boxes(env, "FlattenDict")
        sizes = [int(np.prod(box.shape)) for box in boxes.values()]
        ends = np.cumsum(sizes).tolist()
        self.parts = {
            name: slice(end - size, end) for name, size, end in zip(boxes, sizes, ends, strict=True)
        }
        low, high = (
            np.concatenate([getattr(box, side).ravel() for box in boxes.values()]) for side in ("low", "high")
        )
        self.observation_space = spaces.Box(low, high, dtype=np.float32)

    def observation(self, observation: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the vector."""
        return np.concatenate([observation[name].ravel() for name in self.parts])
