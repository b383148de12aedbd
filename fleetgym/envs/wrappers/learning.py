"""Let learners choose margins per workload instead of replicas, in one environment or a batch.

Replicas are too many, and a single reward for all of them tells too little. So a learner chooses how much of each
workload's demand to be ready for, and the packer of the rule `margin` chooses the replicas. The action of all zeros is
that rule.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space

from fleetgym.agents.arguments import flag, one_of
from fleetgym.agents.margin_kernels import tell_apart
from fleetgym.agents.margins import FEATURES, GAP, LARGEST, LOWER, Margins, margins_of
from fleetgym.agents.view import View
from fleetgym.envs.batch import PLAY, REST, EpisodeBatch
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.states import BatchState, EpisodeState
from fleetgym.envs.vector import FleetAllocVectorEnv
from fleetgym.envs.wrappers.days import Days
from fleetgym.envs.wrappers.layers import layers
from fleetgym.files.errors import DataError, FleetgymError

#: What each discrete action is in the box, for every workload alike; the first is the rule `margin`.
LEVELS = np.array([(0.0, 0.0), *((a, b) for a in (-0.5, 0.0, 0.5) for b in (-0.5, 0.0, 0.5) if a or b)])

_ONE = np.ones(1, dtype=np.bool_)
_PLAY, _REST = np.uint8(PLAY), np.uint8(REST)
#: Gymnasium's wrappers that remember nothing of an episode.
_PLAIN = (gymnasium.wrappers.OrderEnforcing, gymnasium.wrappers.PassiveEnvChecker)
#: What a state of the learning environments is to a wrapper: how it was made, and what it remembered.
_Saved = tuple["_How", Any]
#: What a window has shown, as in `EpisodeBatch.blocks`.
_Blocks = tuple[np.ndarray, np.ndarray]


@dataclasses.dataclass(frozen=True)
class _How:
    """The arguments of `for_learning`."""

    actions: str
    reference: str
    mask_in_observation: bool
    flat: bool

    def __post_init__(self) -> None:
        one_of(("margins", "discrete"), actions=self.actions)
        one_of(("none", "margin"), reference=self.reference)
        flag(mask_in_observation=self.mask_in_observation, flat=self.flat)
        if self.mask_in_observation and self.actions != "discrete":
            raise FleetgymError("mask_in_observation needs actions='discrete': margins have no mask")

    def check(self, saved: _Saved) -> None:
        """Refuse a state of other arguments."""
        if saved[0] != self:
            raise FleetgymError(
                f"the state is one of {saved[0]}, not of {self}".replace("_How", "for_learning")
            )


class _Learning:
    """Turns infos of parallel episodes into observations, and margins into actions of `FleetAlloc-v0`."""

    def __init__(self, margins: Margins, how: _How):
        self.margins, self.discrete = margins, how.actions == "discrete"
        self._mask_in_observation = how.mask_in_observation
        workloads = margins.instances[0].num_workloads
        self._margins_shape = workloads, 2
        self._seen_shape: tuple[int, ...] = workloads, len(FEATURES)
        self._acted_shape: tuple[int, ...] = self._margins_shape
        if how.flat:
            self._seen_shape, self._acted_shape = (workloads * len(FEATURES),), (workloads * 2,)
        box = spaces.Box(-LARGEST, LARGEST, self._seen_shape, np.float32)
        self.action_space: spaces.Space[Any] = spaces.Box(-1.0, 1.0, self._acted_shape, np.float32)
        self.observation_space: spaces.Space[Any] = box
        self.mask: np.ndarray | None = None
        if self.discrete:
            self.action_space = spaces.Discrete(len(LEVELS))
            levels = np.broadcast_to(LEVELS[:, None, None], (len(LEVELS), margins.count, workloads, 2))
            self._levels, self._everyone = _sized(levels), np.arange(margins.count)
        if how.mask_in_observation:
            mask = spaces.Box(0, 1, (len(LEVELS),), np.int8)
            self.observation_space = spaces.Dict({"observation": box, "action_mask": mask})

    def observe(self, blocks: _Blocks, rows: np.ndarray | None = None) -> Any:
        """Take in what a window brought; return what learners see, a row per episode."""
        self.margins.look(*blocks, rows)
        return self._shown()

    def recall(self, memory: tuple[np.ndarray, ...], blocks: _Blocks) -> Any:
        """Go back to where the `memory` of the margins was taken; return what learners saw there."""
        self.margins.recall(memory, *blocks)
        return self._shown()

    def _shown(self) -> Any:
        features = self.margins.features().reshape(self.margins.count, *self._seen_shape)
        if self.discrete:
            self._offer()
        if self._mask_in_observation:
            assert self.mask is not None
            return {"action_mask": self.mask.astype(np.int8), "observation": features}
        return features

    def _offer(self) -> None:
        """Find the fleet of each discrete action, and which of them no earlier action leads to."""
        targets, self._offers = self.margins.choose(self._levels)
        self.mask = np.empty((self.margins.count, len(LEVELS)), dtype=np.bool_)
        tell_apart(targets, self.mask)

    def masks(self) -> np.ndarray:
        """Return which discrete actions lead to a fleet of their own: bool (n, actions)."""
        if not self.discrete:
            raise FleetgymError(
                "there are no masks of margins: every action of the box is valid. Leave the masker out, or use "
                "for_learning(env, actions='discrete')"
            )
        if self.mask is None:
            raise gymnasium.error.ResetNeeded("call reset() before action_masks()")
        return self.mask.copy()

    def answers(self, action: Any) -> np.ndarray:
        """Return the environment's own actions, int64 (n, slots), that actions (n, ...) stand for.

        Raises
        ------
        DataError
            If an action has another shape, or is no number, or no whole one from 0 where actions are discrete.
        """
        count = self.margins.count
        given = np.asarray(action)
        shape = (count,) if self.discrete else (count, *self._acted_shape)
        if given.shape != shape or given.dtype.kind not in "iuf":
            raise DataError(
                f"expected finite numbers of shape {shape[1:]}, got {given.dtype} of shape {given.shape[1:]}",
                "$.action",
            )
        if not np.isfinite(given).all():
            raise DataError(
                f"expected finite numbers, got {given[~np.isfinite(given)][0]}: has the learner diverged?",
                "$.action",
            )
        if not self.discrete:
            return self.margins.choose(_sized(given.reshape(1, count, *self._margins_shape)))[1][0]
        chosen = given.astype(np.int64)
        if np.any((chosen != given) | (chosen < 0) | (chosen >= len(LEVELS))):
            raise DataError(
                f"expected a whole number from 0 to {len(LEVELS) - 1}, got {given.tolist()[0]}", "$.action"
            )
        return self._offers[chosen, self._everyone]


def _sized(actions: np.ndarray) -> np.ndarray:
    """Return the margins (L, n, 2, I) that `Margins.choose` takes, for actions (L, n, I, 2)."""
    lower, gap = margins_of(actions)
    margins = np.empty((*lower.shape[:2], 2, lower.shape[2]))
    margins[:, :, 0] = lower
    np.add(lower, gap, out=margins[:, :, 1])
    return margins


class _Rule:
    """The rule `margin` on the days that a batch plays."""

    def __init__(self, batch: EpisodeBatch, margins: Margins):
        self._batch, self._margins, self._played = batch.twin(), margins, batch
        self._plain = np.empty((1, margins.count, 2, batch.shape.workloads))
        self._plain[:, :, 0], self._plain[:, :, 1] = LOWER, LOWER + GAP

    def begin(self, rows: np.ndarray) -> None:
        """Begin the days in `rows` that the batch has begun."""
        self._batch.follow(self._played, rows)
        self._margins.look(*self._batch.blocks, rows)

    def play(self, rows: np.ndarray) -> np.ndarray:
        """Play a window in `rows`; return its cost in each, (n,) USD."""
        actions = self._margins.choose(self._plain)[1][0]
        self._batch.advance(actions, np.where(rows, _PLAY, _REST))
        self._margins.look(*self._batch.blocks, rows)
        return self._batch.cost_usd

    def save(self) -> tuple[Any, Any]:
        """Return where the rule is in its days, and what it remembers."""
        return self._batch.save(slice(None)), self._margins.memory()

    def restore(self, saved: tuple[Any, Any]) -> None:
        """Go back to where the rule was at `save`."""
        self._batch.restore(slice(None), saved[0])
        self._batch.choose_as(self._played)
        self._margins.recall(saved[1], *self._batch.blocks)


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
        flat: bool = False,
    ):
        RecordConstructorArgs.__init__(
            self, actions=actions, reference=reference, mask_in_observation=mask_in_observation, flat=flat
        )
        super().__init__(env)
        inner = env.unwrapped
        if not isinstance(inner, FleetAllocEnv) or env.action_space != inner.action_space:
            raise FleetgymError("for_learning needs FleetAlloc-v0 with its own actions")
        self._how, self._inner = _How(actions, reference, mask_in_observation, flat), inner
        self._learning = _Learning(Margins([inner.instance], [0]), self._how)
        self.action_space = self._learning.action_space
        self.observation_space = self._learning.observation_space
        self._usd = _nominal_usd(inner.instance)
        has_rule = reference == "margin" and inner.simulates
        self._rule = _Rule(inner.batch, Margins([inner.instance], [0])) if has_rule else None
        self._day = Days([inner.instance], has_rule)
        self._shown: Any = None
        inner.layers.append(self)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode; see the environment."""
        _, info = self.env.reset(seed=seed, options=options)
        if self._rule is not None:
            self._rule.begin(_ONE)
        blocks = self._blocks(info)
        self._day.begin(blocks[0], _ONE)
        return self._observe(blocks, info)

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Play one window.

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
        paid = None if self._rule is None else self._rule.play(_ONE)
        usd = 0.0 if paid is None else float(paid[0])
        _, reward, terminated, truncated, info = self.env.step(answer)
        blocks = self._blocks(info)
        self._day.add(blocks[0], paid)
        observation, info = self._observe(blocks, info)
        return observation, (usd + float(reward)) / self._usd, terminated, truncated, info

    def target(self, action: Any) -> np.ndarray:
        """Return the environment's own action, int64 (slots,), that an action stands for."""
        return self._learning.answers(np.asarray(action)[None])[0]

    def action_masks(self, env: Any = None) -> np.ndarray:
        """Return which discrete actions lead to a fleet of their own: bool (actions,); `env` is not used."""
        return self._learning.masks()[0]

    def _blocks(self, info: Mapping[str, Any]) -> _Blocks:
        """Return what a window has shown; where nothing is simulated, only infos tell."""
        if self._inner.simulates:
            return self._inner.batch.blocks
        margins = self._learning.margins
        return margins.blocks({name: np.asarray(info[name])[None] for name in Margins.SEEN})

    def _observe(self, blocks: _Blocks, info: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self._shown = _row(self._learning.observe(blocks), 0)
        info = {**info, **self._day.told_of(0)}
        del info["action_mask"]
        if self._learning.discrete:
            info["action_mask"] = self.action_masks()
        return self._shown, info

    # -- for tree search

    def get_state(self) -> EpisodeState:
        """Return where the episode is, with what forecasts and the reference remember; see `FleetAllocEnv.get_state`.

        Raises
        ------
        FleetgymError
            If a foreign wrapper lies between this one and the environment: its memory would be left behind.
        """
        return self._inner.get_state()

    def set_state(self, state: EpisodeState) -> Any:
        """Go back, or forward, to where the episode was at `get_state`; return the observation there."""
        self._inner.set_state(state)
        return self._shown

    def resample(self, state: EpisodeState, rng: np.random.Generator) -> EpisodeState:
        """Return a state with the same past and another future; see `FleetAllocEnv.resample`."""
        return self._inner.resample(state, rng)

    def save(self) -> _Saved:
        """Return what this wrapper remembers, as a part of the environment's state."""
        for layer in layers(self.env):
            if not isinstance(layer, _PLAIN):
                raise FleetgymError(
                    f"get_state: {type(layer).__name__}, inside for_learning, may remember more than a state holds; "
                    "put it around for_learning, and restore it yourself"
                )
        rule = None if self._rule is None else self._rule.save()
        return self._how, (self._learning.margins.memory(), rule, self._day.save())

    def check(self, saved: _Saved) -> None:
        """Refuse what another `for_learning` has saved."""
        self._how.check(saved)

    def restore(self, saved: _Saved) -> None:
        """Remember what this wrapper did at `save`; the environment is there already."""
        memory, rule, day = saved[1]
        if self._rule is not None:
            self._rule.restore(rule)
        self._day.restore(day)
        self._shown = _row(self._learning.recall(memory, self._inner.batch.blocks), 0)


class LearningVectorEnv(VectorWrapper, RecordConstructorArgs):
    """`LearningEnv` for a batch, with the same numbers, bit for bit; see `for_learning`."""

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
        actions: str = "margins",
        reference: str = "none",
        mask_in_observation: bool = False,
        flat: bool = False,
    ):
        RecordConstructorArgs.__init__(
            self, actions=actions, reference=reference, mask_in_observation=mask_in_observation, flat=flat
        )
        super().__init__(env)
        if not isinstance(env, FleetAllocVectorEnv):
            raise FleetgymError(
                f"for_learning needs gymnasium.make_vec('fleetgym:FleetAlloc-v0', ...) as it is, got {env}. With "
                "vectorization_mode='sync' or 'async' it goes around each environment: wrappers=[for_learning]"
            )
        self._how, self._inner = _How(actions, reference, mask_in_observation, flat), env
        env.full_info = True
        self._batch, which = env.batch, env.which
        self._learning = _Learning(Margins(env.instances, which), self._how)
        self.single_action_space = self._learning.action_space
        self.single_observation_space = self._learning.observation_space
        self.action_space = batch_space(self.single_action_space, env.num_envs)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._usd = np.array([_nominal_usd(instance) for instance in env.instances])[which]
        self._rule = _Rule(env.batch, Margins(env.instances, which)) if reference == "margin" else None
        self._day = Days([env.instances[k] for k in which], reference == "margin")
        self._mode = env.metadata["autoreset_mode"]
        self._over = np.zeros(env.num_envs, dtype=np.bool_)
        self._shown: Any = None
        env.layers.append(self)

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start episodes; see the batch."""
        _, infos = self.env.reset(seed=seed, options=options)
        rows = infos["_window"].copy()  # it may be read-only, which kernels take for another type
        self._over = self._over & ~rows
        if self._rule is not None:
            self._rule.begin(rows)
        blocks = self._batch.blocks
        self._day.begin(blocks[0], rows)
        self._shown = self._learning.observe(blocks, rows)
        return self._shown, self._told(infos)

    def step(self, actions: Any) -> tuple[Any, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one window of every episode.

        Parameters
        ----------
        actions : array_like, shape (N, I, 2), or (N,)
            See `for_learning`.

        Raises
        ------
        DataError
            If an action is not valid.
        """
        begun, blocks = self._over, self._batch.blocks
        usd = np.zeros(len(begun))
        answer = self._learning.answers(actions)
        if self._rule is not None:
            usd = np.where(begun, 0.0, self._rule.play(~begun))
        _, rewards, terminated, truncated, infos = self.env.step(answer)
        self._over = ended = terminated | truncated
        if self._mode == AutoresetMode.SAME_STEP and ended.any():
            final, last = infos["final_info"], self._inner.last_blocks
            self._day.add(last[0], usd)
            for name, values in self._day.told().items():
                values[~ended] = 0.0
                final[name], final[f"_{name}"] = values, ended
            seen = self._learning.observe(last)
            infos["final_obs"] = np.array(
                [_row(seen, k) if over else None for k, over in enumerate(ended)] + [0], dtype=object
            )[:-1]
            self._over, begun = np.zeros_like(ended), ended
            self._shown = self._learning.observe(blocks, ended)
        else:
            self._day.add(blocks[0], usd)
            self._shown = self._learning.observe(blocks)
        if begun.any():
            self._day.begin(blocks[0], begun)
            if self._rule is not None:
                self._rule.begin(begun)
        return self._shown, (usd + rewards) / self._usd, terminated, truncated, self._told(infos)

    def action_masks(self) -> np.ndarray:
        """Return which discrete actions lead to a fleet of their own: bool (N, actions)."""
        return self._learning.masks()

    def _told(self, infos: dict[str, Any]) -> dict[str, Any]:
        infos = {name: value for name, value in infos.items() if name not in ("action_mask", "_action_mask")}
        told: dict[str, Any] = self._day.told()
        if self._learning.discrete:
            told["action_mask"] = self.action_masks()
        everyone = np.ones(self.num_envs, dtype=bool)
        for name, values in told.items():
            infos[name], infos[f"_{name}"] = values, everyone
        return infos

    # -- for tree search

    def get_state(self) -> BatchState:
        """Return where the episodes are, with what forecasts and the reference remember; see the batch."""
        return self._inner.get_state()

    def set_state(self, state: BatchState) -> Any:
        """Go back, or forward, to where the episodes were at `get_state`; return the observations there."""
        self._inner.set_state(state)
        return self._shown

    def resample(self, state: BatchState, rng: np.random.Generator) -> BatchState:
        """Return a state with the same past and other futures; see `FleetAllocEnv.resample`."""
        return self._inner.resample(state, rng)

    def save(self) -> _Saved:
        """Return what this wrapper remembers, as a part of the batch's state."""
        rule = None if self._rule is None else self._rule.save()
        return self._how, (self._learning.margins.memory(), rule, self._day.save(), self._over.copy())

    def check(self, saved: _Saved) -> None:
        """Refuse what another `for_learning` has saved."""
        self._how.check(saved)

    def restore(self, saved: _Saved) -> None:
        """Remember what this wrapper did at `save`; the batch is there already."""
        memory, rule, day, over = saved[1]
        if self._rule is not None:
            self._rule.restore(rule)
        self._day.restore(day)
        self._over = over.copy()
        self._shown = self._learning.recall(memory, self._batch.blocks)


def _row(found: Any, k: int) -> Any:
    return {name: part[k] for name, part in found.items()} if isinstance(found, dict) else found[k]


def for_learning(
    env: Any,
    *,
    actions: str = "margins",
    reference: str = "none",
    mask_in_observation: bool = False,
    flat: bool = False,
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
    `margin` pays for the same window of the same day, so zero actions get zero rewards.

    Parameters
    ----------
    env : gymnasium.Env or gymnasium.vector.VectorEnv
        `FleetAlloc-v0` with its own actions, or what `gymnasium.make_vec` returns for it.
    actions : {"margins", "discrete"}
        See above.
    reference : {"none", "margin"}
        See above; "margin" plays each day twice.
    mask_in_observation : bool
        Observations are ``{"action_mask": ..., "observation": ...}``, as some libraries need.
    flat : bool
        Observations (I * 20,) and actions (I * 2,) have one axis, as RLlib needs.

    Returns
    -------
    LearningEnv or LearningVectorEnv
        The true cost of a window is in ``info["cost"]``. Infos of a batch hold everything, as with ``full_info=True``.
        Infos also hold the day so far: ``day_usd``, ``day_miss_share`` (of its requests) and, with a reference,
        ``day_percent`` (USD above the reference). For credit assignment ``missed_usd`` (I,) holds the cost of unserved
        and late requests of each workload in the last window; the rest of the cost is the fleet's and the routing's.
        ``get_state`` and ``set_state`` keep all of that.

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
    return kind(env, actions, reference, mask_in_observation, flat)
