"""Let learners choose margins per workload instead of replicas, in one environment or a batch.

Replicas are too many, and a single reward for all of them tells too little. So a learner chooses how much of each
workload's demand to be ready for, and the packer of the rule `margin` chooses the replicas. The action of all zeros is
that rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from fleetgym.agents.arguments import flag, one_of
from fleetgym.agents.margins import FEATURES, Margins, margins_of
from fleetgym.agents.view import View
from fleetgym.envs.batch import PLAY, REST, EpisodeBatch
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.vector import FleetAllocVectorEnv
from fleetgym.files.errors import DataError, FleetgymError

#: What each discrete action is in the box, for every workload alike; the first is the rule `margin`.
LEVELS = np.array([(0.0, 0.0), *((a, b) for a in (-0.5, 0.0, 0.5) for b in (-0.5, 0.0, 0.5) if a or b)])

_LARGEST = 5.0  # of a feature


class _Learning:
    """Turns infos of parallel episodes into observations, and margins into actions of `FleetAlloc-v0`."""

    def __init__(self, margins: Margins, discrete: bool, mask_in_observation: bool):
        self.margins, self.discrete, self.mask_in_observation = margins, discrete, mask_in_observation
        self.workloads = margins.instances[0].num_workloads
        box = spaces.Box(-_LARGEST, _LARGEST, (self.workloads, len(FEATURES)), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, (self.workloads, 2), np.float32)
        self.observation_space: spaces.Space[Any] = box
        self.mask: np.ndarray | None = None
        if discrete:
            self.action_space = spaces.Discrete(len(LEVELS))
        if mask_in_observation:
            mask = spaces.Box(0, 1, (len(LEVELS),), np.int8)
            self.observation_space = spaces.Dict({"observation": box, "action_mask": mask})

    def observe(self, seen: Mapping[str, np.ndarray], rows: np.ndarray | None = None) -> Any:
        """Take in what a window brought; return what learners see, a row per episode."""
        self.margins.see(seen, rows)
        features = self.margins.features()
        if self.discrete:
            self._offer()
        if self.mask_in_observation:
            assert self.mask is not None
            return {"observation": features, "action_mask": self.mask.astype(np.int8)}
        return features

    def _offer(self) -> None:
        """Find the fleet of each discrete action, and which of them no earlier action leads to."""
        levels = (np.broadcast_to(level, (self.workloads, 2)) for level in LEVELS)
        offers = np.stack([self.margins.targets(*margins_of(level)) for level in levels])
        same = (offers[:, None] == offers[None]).all(axis=3)  # (levels, levels, n)
        self._offers = offers
        self.mask = np.array([~same[k, :k].any(axis=0) for k in range(len(LEVELS))]).T.copy()

    def targets(self, action: Any) -> np.ndarray:
        """Return the fleets, int64 (n, C), that actions (n, ...) stand for.

        Raises
        ------
        DataError
            If an action has another shape, or is no number, or no whole one from 0 where actions are discrete.
        """
        count = self.margins.count
        given = np.asarray(action)
        shape = (count,) if self.discrete else (count, self.workloads, 2)
        if given.shape != shape or given.dtype.kind not in "iuf" or not np.isfinite(given).all():
            raise DataError(
                f"expected finite numbers of shape {shape[1:]}, got {given.dtype} of shape {given.shape[1:]}",
                "$.action",
            )
        if not self.discrete:
            return self.margins.targets(*margins_of(given))
        chosen = given.astype(np.int64)
        if np.any((chosen != given) | (chosen < 0) | (chosen >= len(LEVELS))):
            raise DataError(
                f"expected a whole number from 0 to {len(LEVELS) - 1}, got {given.tolist()[0]}", "$.action"
            )
        return self._offers[chosen, np.arange(count)]


class _Rule:
    """The rule `margin` on the days that a batch plays."""

    def __init__(self, batch: EpisodeBatch, margins: Margins):
        self._batch, self._margins, self._played = batch.twin(), margins, batch
        self._names = frozenset(Margins.SEEN)

    def begin(self, rows: np.ndarray) -> None:
        """Begin the days in `rows` that the batch has begun."""
        self._batch.follow(self._played, rows)
        self._margins.see(self._batch.info(self._names), rows)

    def play(self, rows: np.ndarray) -> np.ndarray:
        """Let a window happen in `rows`; return what it has cost in each, (n,) USD."""
        actions = self._margins.actions(self._margins.targets())
        self._batch.advance(actions, np.where(rows, PLAY, REST).astype(np.uint8))
        self._margins.see(self._batch.info(self._names), rows)
        return self._batch.cost_usd


def _checked(actions: str, reference: str, mask_in_observation: bool) -> None:
    one_of(("margins", "discrete"), actions=actions)
    one_of(("none", "margin"), reference=reference)
    flag(mask_in_observation=mask_in_observation)
    if mask_in_observation and actions != "discrete":
        raise FleetgymError("mask_in_observation needs actions='discrete': margins have no mask")


def _nominal_usd(instance: Any) -> float:
    return View(instance).steady_cost_usd(instance.nominal_fleet) or 1.0


class LearningEnv(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """`FleetAlloc-v0` with margins as actions and features as observations; see `for_learning`."""

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        actions: str = "margins",
        reference: str = "none",
        mask_in_observation: bool = False,
    ):
        RecordConstructorArgs.__init__(
            self, actions=actions, reference=reference, mask_in_observation=mask_in_observation
        )
        super().__init__(env)
        inner = env.unwrapped
        if not isinstance(inner, FleetAllocEnv) or env.action_space != inner.action_space:
            raise FleetgymError("for_learning needs FleetAlloc-v0 with its own actions")
        _checked(actions, reference, mask_in_observation)
        self._learning = _Learning(Margins([inner.instance], [0]), actions == "discrete", mask_in_observation)
        self.action_space = self._learning.action_space
        self.observation_space = self._learning.observation_space
        self._usd = _nominal_usd(inner.instance)
        self._rule = None
        if reference == "margin" and inner.simulates:
            self._rule = _Rule(inner.batch, Margins([inner.instance], [0]))

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; see the environment."""
        _, info = self.env.reset(seed=seed, options=options)
        if self._rule is not None:
            self._rule.begin(_ONE)
        return self._observe(info)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Let one window happen.

        Parameters
        ----------
        action : array_like, shape (I, 2), or int
            See `for_learning`.

        Raises
        ------
        DataError
            If the action is not valid.
        """
        answer = self.target(action)
        usd = 0.0 if self._rule is None else float(self._rule.play(_ONE)[0])
        _, reward, terminated, truncated, info = self.env.step(answer)
        observation, info = self._observe(info)
        return observation, (usd + float(reward)) / self._usd, terminated, truncated, info

    def target(self, action: Any) -> np.ndarray:
        """Return the environment's own action, int64 (slots,), that an action stands for."""
        learning = self._learning
        return learning.margins.actions(learning.targets(np.asarray(action)[None]))[0]

    def action_masks(self) -> np.ndarray:
        """Return which discrete actions lead to a fleet of their own: bool (actions,)."""
        if self._learning.mask is None:
            raise FleetgymError("there are masks where actions are discrete, after a reset")
        return self._learning.mask[0].copy()

    def _observe(self, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        found = self._learning.observe({name: np.asarray(info[name])[None] for name in Margins.SEEN})
        info = {name: value for name, value in info.items() if name != "action_mask"}
        if self._learning.discrete:
            info["action_mask"] = self.action_masks()
        return _row(found, 0), info


class LearningVectorEnv(VectorWrapper, RecordConstructorArgs):
    """`LearningEnv` for a batch, with the same numbers, bit for bit; see `for_learning`."""

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        actions: str = "margins",
        reference: str = "none",
        mask_in_observation: bool = False,
    ):
        RecordConstructorArgs.__init__(
            self, actions=actions, reference=reference, mask_in_observation=mask_in_observation
        )
        super().__init__(env)
        if not isinstance(env, FleetAllocVectorEnv):
            raise FleetgymError(
                "for_learning needs gymnasium.make_vec('fleetgym:FleetAlloc-v0', ...) as it is"
            )
        _checked(actions, reference, mask_in_observation)
        env.full_info = True
        self._batch, which = env.batch, env.which
        self._learning = _Learning(Margins(env.instances, which), actions == "discrete", mask_in_observation)
        self.single_action_space = self._learning.action_space
        self.single_observation_space = self._learning.observation_space
        self.action_space = batch_space(self.single_action_space, env.num_envs)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._usd = np.array([_nominal_usd(instance) for instance in env.instances])[which]
        self._rule = _Rule(env.batch, Margins(env.instances, which)) if reference == "margin" else None
        self._mode = env.metadata["autoreset_mode"]
        self._over = np.zeros(env.num_envs, dtype=np.bool_)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start episodes; see the batch."""
        _, infos = self.env.reset(seed=seed, options=options)
        rows = infos["_window"]
        self._over = self._over & ~rows
        if not rows.all():  # what infos leave out of the others
            infos = {**infos, **self._batch.info(_SEEN)}
        if self._rule is not None:
            self._rule.begin(rows)
        return self._learning.observe(infos, rows), self._told(infos)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Let one window of every episode happen.

        Parameters
        ----------
        actions : array_like, shape (N, I, 2), or (N,)
            See `for_learning`.

        Raises
        ------
        DataError
            If an action is not valid.
        """
        margins, begun = self._learning.margins, self._over
        usd = np.zeros(len(begun))
        answer = margins.actions(self._learning.targets(actions))
        if self._rule is not None:
            usd = np.where(begun, 0.0, self._rule.play(~begun))
        _, rewards, terminated, truncated, infos = self.env.step(answer)
        self._over = ended = terminated | truncated
        if self._mode == AutoresetMode.SAME_STEP and ended.any():
            final = infos["final_info"]
            last = {
                name: np.where(ended.reshape(-1, *[1] * (np.ndim(infos[name]) - 1)), final[name], infos[name])
                for name in Margins.SEEN
            }
            seen = self._learning.observe(last)
            infos["final_obs"] = np.array(
                [_row(seen, k) if over else None for k, over in enumerate(ended)] + [0], dtype=object
            )[:-1]
            self._over, begun = np.zeros_like(ended), ended
            found = self._learning.observe(infos, ended)
        else:
            found = self._learning.observe(infos)
        if self._rule is not None and begun.any():
            self._rule.begin(begun)
        return found, (usd + rewards) / self._usd, terminated, truncated, self._told(infos)

    def action_masks(self) -> np.ndarray:
        """Return which discrete actions lead to a fleet of their own: bool (N, actions)."""
        if self._learning.mask is None:
            raise FleetgymError("there are masks where actions are discrete, after a reset")
        return self._learning.mask.copy()

    def _told(self, infos: dict[str, Any]) -> dict[str, Any]:
        infos = {name: value for name, value in infos.items() if name not in ("action_mask", "_action_mask")}
        if self._learning.discrete:
            infos["action_mask"], infos["_action_mask"] = (
                self.action_masks(),
                np.ones(self.num_envs, dtype=bool),
            )
        return infos


_ONE = np.ones(1, dtype=np.bool_)
_SEEN = frozenset(Margins.SEEN)


def _row(found: Any, k: int) -> Any:
    return {name: part[k] for name, part in found.items()} if isinstance(found, dict) else found[k]


def for_learning(
    env: Any, *, actions: str = "margins", reference: str = "none", mask_in_observation: bool = False
) -> Any:
    """Wrap `FleetAlloc-v0` for learners, one or a batch: few actions, features per workload, rewards near one.

    **Actions** are margins. ``actions="margins"``: a box (I, 2) from -1 to 1, for I workloads. Replicas are added
    for ``1.05 exp(0.4 a)`` times the forecast, and kept while useful at ``0.1 exp(1.6 b)`` times the forecast more.
    All zeros are the agent `margin`. ``actions="discrete"``: one number from 0 to 8 for all workloads alike; 0 is
    `margin`. Its mask, ``action_masks()`` and ``info["action_mask"]``, rules out actions that lead to the fleet of an
    earlier one.

    **Observations** are features (I, 20) float32, named in `fleetgym.agents.margins.FEATURES`, all within ±5. Nothing
    depends on the order of workloads, slots or pools, so one network that reads workloads can play every instance.

    **Rewards** are minus the window's cost, over that of a nominal window. ``reference="margin"`` adds what the agent
    `margin` pays for the same window of the same day: zero actions get zero rewards.

    Parameters
    ----------
    env : gymnasium.Env or gymnasium.vector.VectorEnv
        `FleetAlloc-v0` with its own actions, or what `gymnasium.make_vec` returns for it.
    actions : {"margins", "discrete"}
        See above.
    reference : {"none", "margin"}
        See above; "margin" plays each day twice.
    mask_in_observation : bool
        Observations are ``{"observation": ..., "action_mask": ...}``, as some libraries want it.

    Returns
    -------
    LearningEnv or LearningVectorEnv
        The true cost of a window is in ``info["cost"]``. Infos of a batch hold everything, as with ``full_info=True``.

    Raises
    ------
    FleetgymError
        For another environment, an argument that does not exist, and a mask of actions that have none.

    Examples
    --------
    >>> import gymnasium, fleetgym
    >>> env = for_learning(gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/dev/ou-s-001"))
    >>> env.observation_space.shape, env.action_space.shape
    ((4, 20), (4, 2))
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step(np.zeros((4, 2)))
    >>> reward < 0.0 < info["cost"]
    True
    """
    kind = LearningVectorEnv if isinstance(env, VectorEnv) else LearningEnv
    return kind(env, actions, reference, mask_in_observation)
