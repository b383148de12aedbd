"""Define `FleetAlloc-v1`: `FleetAlloc-v0` with the time of the week, forecasts and warnings in its observations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from gymnasium import spaces

from fleetgym.envs.batch import EpisodeBatch
from fleetgym.envs.fleet_alloc import FleetAllocEnv, observation_space
from fleetgym.envs.vector import FleetAllocVectorEnv
from fleetgym.kernels.batch import MAX_LOG_RATIO
from fleetgym.model.instance import Instance
from fleetgym.model.library import InstanceSource

#: Windows after the coming one that a forecast is for.
AHEAD = (0, 12, 72)
_WEEK_S, _DAY_S = 604800.0, 86400.0


class FleetAllocV1Env(FleetAllocEnv):
    """Play `FleetAlloc-v0` with the time of the week, forecasts and announced reclaims in the observations.

    Everything else is as in `FleetAllocEnv`: the same actions cost the same to the bit.

    Instances of ``fleet-v2`` keep the processes of their stored days hidden. The processes that they show are fitted
    to their history, as an operator would do it, and ``reset(seed=...)`` draws from these. With ``law="known"`` it
    draws from the hidden ones.

    ``gymnasium.make("fleetgym:FleetAlloc-v1", instance="fleet-v0/dev/ou-s-001")`` makes it, and
    ``gymnasium.make_vec("fleetgym:FleetAlloc-v1", num_envs=64, instance=...)`` a batch with the same numbers.

    Observation space
    -----------------
    The keys of `FleetAllocEnv`, and these, of the coming window t:

    ``week`` : (2,)
        sine and cosine of 2π (86400 day + t window_s) / 604800: the week begins on Monday at midnight
    ``forecast`` : (3, I)
        log(mean rate / nominal rate) of windows t, t + 12 and t + 72, clipped to ±5
    ``announced`` : (G,)
        GPUs of window t where the pool warns, else of window t - 1, / GPU limit; 1 where the limit is 0

    The day is ``first_day`` of the demand process, and 0 (Monday) if the process has none.

    The mean rate of a window is over the history's windows that lie whole weeks before it. The history ends where the
    episode begins, and only its last whole weeks count. If it is shorter than a week, whole days take their place. If
    it is shorter than a day, the forecast is 0. Windows must divide the week, or the day, exactly.

    A pool warns if ``warning_windows`` is 1 in the process ``warned-drops``. It announces drops, drops that deepen, and
    recoveries. At reset, a pool that does not warn shows 1. At the end all show the last window.

    Info
    ----
    The keys of `FleetAllocEnv`, and ``announced_gpus``: ``announced`` in GPUs, if the instance has pools that warn.
    """

    def __init__(
        self,
        instance: InstanceSource = "fleet-v0/dev/ou-s-001",
        render_mode: str | None = None,
        scenarios: str = "drawn",
        law: str = "public",
    ):
        super().__init__(instance, render_mode, scenarios, law)
        self._more = _More([self.instance])
        self.observation_space = self._more.space(observation_space([self.instance]))

    def _observation(self) -> dict[str, np.ndarray]:
        more = self._more.rows(self._batch, np.zeros(1, dtype=np.int64))
        own = {**super()._observation(), **{name: values[0] for name, values in more.items()}}
        return {name: own[name] for name in sorted(own)}


class FleetAllocV1VectorEnv(FleetAllocVectorEnv):
    """Play many episodes of `FleetAlloc-v1` side by side; see `FleetAllocVectorEnv`.

    Examples
    --------
    >>> import fleetgym, gymnasium
    >>> name = "fleetgym:FleetAlloc-v1"
    >>> envs = gymnasium.make_vec(name, num_envs=3, instance="fleet-v0/toy/two-pools")
    >>> observations, infos = envs.reset(seed=7)
    >>> observations["week"].shape, observations["forecast"].shape
    ((3, 2), (3, 3, 1))
    >>> envs.close()
    """

    def _single_space(self) -> spaces.Dict:
        self._more = _More(self.instances)
        return self._more.space(super()._single_space())

    def _observation(self) -> dict[str, np.ndarray]:
        own = {**super()._observation(), **self._more.rows(self._batch, self._which)}
        return {name: own[name] for name in sorted(own)}


class _More:
    """What observations of this version add, for instances of one shape."""

    def __init__(self, instances: Sequence[Instance]):
        self._tables = np.stack([seasonal_log_ratios(one) for one in instances])
        self._clock = np.array([[one.window_s, 86400.0 * first_day(one)] for one in instances])
        self._caps = np.array([[pool.cap_gpus for pool in one.pools] for one in instances])

    def space(self, known: spaces.Dict) -> spaces.Dict:
        """Return the space of observations with the further keys."""
        rows = (len(AHEAD), self._tables.shape[2])
        return spaces.Dict(
            {
                **known.spaces,
                "week": spaces.Box(-1.0, 1.0, (2,), np.float32),
                "forecast": spaces.Box(-MAX_LOG_RATIO, MAX_LOG_RATIO, rows, np.float32),
                "announced": spaces.Box(0.0, 1.0, self._caps.shape[1:], np.float32),
            }
        )

    def rows(self, batch: EpisodeBatch, which: np.ndarray) -> dict[str, np.ndarray]:
        """Return the further keys of every episode, each float32 (N, ...)."""
        window = batch.window
        angle = (2.0 * math.pi / _WEEK_S) * (self._clock[which, 1] + window * self._clock[which, 0])
        forecast = self._tables[which[:, None], window[:, None] + np.array(AHEAD)]
        caps = self._caps[which]
        announced = np.where(caps > 0, batch.announced_gpus / np.maximum(caps, 1), 1.0)
        return {
            "week": np.stack([np.sin(angle), np.cos(angle)], axis=1).astype(np.float32),
            "forecast": forecast.astype(np.float32),
            "announced": announced.astype(np.float32),
        }


def first_day(instance: Instance) -> int:
    """Return the day of the week on which an episode begins, 0 for Monday, where the process of demand has weeks."""
    return int(np.ravel(instance.dynamics.demand.parameters.get("first_day", 0))[0])


def seasonal_log_ratios(instance: Instance) -> np.ndarray:
    """Return the log ratio of the seasonal mean rate to the nominal one, by window of an episode and some beyond.

    Parameters
    ----------
    instance : Instance
        Its history ends where the episode begins.

    Returns
    -------
    ndarray, shape (num_windows + 1 + max(AHEAD), I)
        log(mean rate at this time of the week or day / nominal rate), clipped.
    """
    rates = instance.history.rate_rps
    nominal = np.array([w.rate_rps for w in instance.workloads])
    windows = np.arange(instance.num_windows + 1 + max(AHEAD))
    for period_s in (_WEEK_S, _DAY_S):
        period = round(period_s / instance.window_s)
        if period * instance.window_s == period_s and len(rates) >= period:
            whole = rates[len(rates) % period :].reshape(-1, period, len(nominal)).mean(axis=0)
            with np.errstate(divide="ignore"):
                return np.clip(np.log(whole / nominal), -MAX_LOG_RATIO, MAX_LOG_RATIO)[windows % period]
    return np.zeros((len(windows), len(nominal)))
