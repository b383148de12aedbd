"""Define the batched `FleetAlloc-v0` behind ``gymnasium.make_vec``."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from fleetgym.agents.arguments import flag, is_number, whole_at_least
from fleetgym.envs.base import PortableEnv
from fleetgym.envs.batch import BEGIN, PLAY, REST, EpisodeBatch
from fleetgym.envs.fleet_alloc import FleetAllocEnv, observation_space
from fleetgym.envs.scenarios import ScenarioChoice, reset_options
from fleetgym.envs.states import BatchState, Layer, check_state, resampled
from fleetgym.files.errors import FleetgymError
from fleetgym.files.schema import shown
from fleetgym.model.actions import ActionSpace, check_options
from fleetgym.model.instance import Instance
from fleetgym.model.library import InstanceSource
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import COST_TERMS

#: What infos hold unless all of it is asked for.
_BRIEF = frozenset(
    (
        *COST_TERMS,
        "cost",
        "spent_usd",
        "unserved_share",
        "miss_share",
        "window",
        "forced_outage",
        "action_mask",
    )
)
#: Attributes of each environment that are the batch's, and what they are called there.
_FIXED = {
    "action_space": "single_action_space",
    "observation_space": "single_observation_space",
    **{name: name for name in ("spec", "render_mode", "metadata", "instance", "actions", "np_random_seed")},
}
_OF_THE_BATCH = ("reset", "step", "render", "close")
_PLAY, _BEGIN, _REST = (np.uint8(what) for what in (PLAY, BEGIN, REST))
_EPISODES_PER_THREAD = 128  # fewer are not worth a thread


class FleetAllocVectorEnv(PortableEnv, VectorEnv):
    """Play many episodes of `FleetAlloc-v0` side by side, with the numbers of the single environment.

    ``gymnasium.make_vec("fleetgym:FleetAlloc-v0", num_envs=64)`` makes it. Spaces, rewards, seeding (environment `k` of
    ``reset(seed=s)`` is seeded ``s + k``) and infos are those of `gymnasium.vector.SyncVectorEnv` over
    `FleetAllocEnv`, bit for bit.

    Parameters
    ----------
    num_envs : int
        Number of episodes side by side.
    instance : str, Instance, or a sequence of these
        What to play. Several instances take turns (environment `k` plays number ``k % len(instance)``); they must
        be of one shape. Where they differ in replica limits, the action space is the union: the masks tell each
        environment's own options, and others are errors.
    scenarios : {"drawn", "stored"}
        Where scenarios come from when `reset` does not name one.
    law : {"public", "known"}
        From which processes they are drawn, see `FleetAllocEnv`.
    autoreset_mode : AutoresetMode or str
        ``"NextStep"``, ``"SameStep"`` or ``"Disabled"``, as for `SyncVectorEnv`.
    full_info : bool
        Whether infos hold everything that the single environment's do. By default they leave out what observations
        show as well: the conditions seen last and the fleet.
    num_threads : int, optional
        Threads to share the work; by default one per 128 environments, and no more than processors. The
        numbers do not depend on it.
    max_episode_steps : int, optional
        Truncate episodes after this number of windows, as `gymnasium.make` does with an argument of this name.
    render_mode : None
        Batches are not rendered.

    Raises
    ------
    FleetgymError
        If an argument is of another kind or out of range, or instances differ in shape.

    Examples
    --------
    >>> import fleetgym, gymnasium
    >>> envs = gymnasium.make_vec("fleetgym:FleetAlloc-v0", num_envs=3, instance="fleet-v0/toy/two-pools")
    >>> observations, infos = envs.reset(seed=7)
    >>> observations["demand"].shape, infos["action_mask"].shape
    ((3, 1), (3, 5))
    >>> observations, rewards, terminations, truncations, infos = envs.step(envs.action_space.sample())
    >>> bool((rewards == -infos["cost"]).all())
    True
    >>> envs.close()
    """

    metadata = {"render_modes": [], "autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(
        self,
        num_envs: int = 1,
        instance: InstanceSource | Sequence[InstanceSource] = "fleet-v0/dev/ou-s-001",
        scenarios: str = "drawn",
        law: str = "public",
        autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
        full_info: bool = False,
        num_threads: int | None = None,
        max_episode_steps: int | None = None,
        render_mode: None = None,
    ):
        whole_at_least(1, num_envs=num_envs)
        flag(full_info=full_info)
        if max_episode_steps is not None:
            whole_at_least(1, max_episode_steps=max_episode_steps)
        if render_mode is not None:
            raise FleetgymError(
                "batches are not rendered: use gymnasium.make, or make_vec with vectorization_mode='sync'"
            )
        if num_threads is None:
            num_threads = max(1, min(os.cpu_count() or 1, num_envs // _EPISODES_PER_THREAD))
        if not is_number(num_threads, whole=True) or not 1 <= num_threads <= num_envs:
            raise FleetgymError(f"num_threads must be a whole number from 1 to num_envs, got {num_threads!r}")
        sources: list[Any] = (
            [instance] if isinstance(instance, str | Instance | Mapping | os.PathLike) else list(instance)
        )
        if not sources:
            raise FleetgymError("instance: expected at least one")
        self.num_envs, self.render_mode = num_envs, None
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {**self.metadata, "autoreset_mode": self.autoreset_mode}
        self.full_info = full_info
        self._choices = [ScenarioChoice(source, scenarios, law) for source in sources]
        self.instances = tuple(choice.instance for choice in self._choices)
        self._which = np.arange(num_envs) % len(sources)
        self._reserve(num_threads)
        self.single_observation_space = self._single_space()
        self.single_action_space = spaces.MultiDiscrete(self._batch.nvec)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        nvecs = np.array([ActionSpace(one).nvec for one in self.instances])
        self._limits = nvecs[self._which].astype(np.uint64)
        self._everyone = np.ones(num_envs, dtype=np.bool_)
        self._everyone.setflags(write=False)
        self._plays = np.full(num_envs, PLAY, dtype=np.uint8)
        self._rngs: list[tuple[np.random.Generator, int] | None] = [None] * num_envs  # with their seeds
        self._given: dict[str, list[Any]] = {}  # attributes that were set, per environment
        self._scenario_ids = np.full(num_envs, None, dtype=object)
        self._scenarios: list[Any] = [None] * num_envs
        self._loaded: list[Any] = [None] * num_envs  # the scenario in each environment's own slot
        #: Wrappers of ours whose memory `get_state` keeps, too; each adds itself.
        self.layers: list[Layer] = []
        #: `EpisodeBatch.blocks` before episodes began anew in the same step.
        self.last_blocks = self._batch.blocks
        self._over = np.ones(num_envs, dtype=np.bool_)  # nothing to play before a reset
        self._begun = False
        self._most_steps = np.inf if max_episode_steps is None else max_episode_steps

    def _single_space(self) -> spaces.Dict:
        """Return the space of one environment's observations."""
        return observation_space(self.instances)

    def _observation(self) -> dict[str, np.ndarray]:
        """Return the observations of all environments."""
        return self._batch.observation()

    def _reserve(self, num_threads: int) -> None:
        """Make space for the stored scenarios of all instances, then for one scenario per environment."""
        counts = [len(choice.stored) for choice in self._choices]
        self._first_slot = np.concatenate(([0], np.cumsum(counts)))
        capacity = int(self._first_slot[-1]) + self.num_envs
        self._batch = EpisodeBatch(self.instances, self._which.tolist(), capacity, num_threads)
        for first, choice in zip(self._first_slot, self._choices, strict=False):
            for k, scenario in enumerate(choice.stored):
                self._batch.load(int(first) + k, scenario)

    @property
    def full_info(self) -> bool:
        """Whether infos hold everything that the single environment's do."""
        return self._names is None

    @full_info.setter
    def full_info(self, full: bool) -> None:
        self._names = None if full else _BRIEF

    @property
    def batch(self) -> EpisodeBatch:
        """The episodes in arrays."""
        return self._batch

    @property
    def which(self) -> np.ndarray:
        """The number of each environment's instance among `instances`, int64 (N,)."""
        return self._which.copy()

    # -- Gymnasium's interface --------------------------------------------------------------------------------

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Start episodes.

        Parameters
        ----------
        seed : int or sequence of int or None, optional
            Seeds each environment's generator: with an int, ``seed + k``.
        options : dict, optional
            ``{"scenario": k}`` as in the single environment, and ``{"reset_mask": ndarray of bool, (N,)}`` to reset
            some of the environments only.

        Returns
        -------
        observations : dict of ndarray
        infos : dict

        Raises
        ------
        FleetgymError
            For options that do not exist, for a mask of the wrong length, and for seeds that are too few, too many,
            negative or no whole numbers. Nothing has happened then.
        DataError
            For a scenario that does not fit the instances; likewise.
        """
        self._check_open()
        options = reset_options(options, "scenario", "reset_mask")
        rows = self._reset_mask(options.pop("reset_mask", None))
        seeds = self._seeds(seed)
        named = {int(which): self._choices[which].named(options) for which in np.unique(self._which[rows])}
        for k in np.flatnonzero(rows).tolist():
            if seeds[k] is not None:
                self._rngs[k] = seeding.np_random(seeds[k])
            self._choose(k, named[int(self._which[k])])
        what = np.where(rows, _BEGIN, _REST)
        self._batch.advance(np.zeros((self.num_envs, self._limits.shape[1])), what)
        self._over[rows] = False
        self._begun = True
        return self._observation(), self._infos(rows)

    def _reset_mask(self, mask: Any) -> np.ndarray:
        if mask is None:
            return self._everyone
        if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (self.num_envs,):
            raise FleetgymError(f"reset_mask: expected an array of {self.num_envs} bools, got {mask!r}")
        if not mask.any():
            raise FleetgymError("reset_mask: expected at least one True")
        if not self._begun and not mask.all():
            raise gymnasium.error.ResetNeeded("reset all environments before some of them")
        return mask

    def _seeds(self, seed: Any) -> list[int | None]:
        """Return the seed of each environment."""
        if seed is None:
            return [None] * self.num_envs
        if is_number(seed, whole=True):
            seeds: list[Any] = [int(seed) + k for k in range(self.num_envs)]
        elif isinstance(seed, Sequence | np.ndarray) and not isinstance(seed, str | bytes):
            seeds = list(seed)
        else:
            raise FleetgymError(
                f"seed: expected a whole number, {self.num_envs} of them or None, got {shown(seed)}"
            )
        if len(seeds) != self.num_envs:
            raise FleetgymError(f"seed: expected one or {self.num_envs}, got {len(seeds)}")
        for own in seeds:
            if own is not None and not (is_number(own, whole=True) and own >= 0):
                raise FleetgymError(f"seed: expected whole numbers of at least 0, got {shown(own)}")
        return [None if own is None else int(own) for own in seeds]

    def _rng(self, k: int) -> tuple[np.random.Generator, int]:
        """Return the generator of environment `k` and its seed, a random one if none was given."""
        found = self._rngs[k] = self._rngs[k] or seeding.np_random()
        return found

    @property  # type: ignore[misc]
    def np_random(self) -> tuple[np.random.Generator, ...]:  # type: ignore[override]
        """The environments' generators."""
        return tuple(self._rng(k)[0] for k in range(self.num_envs))

    @property
    def np_random_seed(self) -> tuple[int, ...]:  # type: ignore[override]
        """The environments' seeds."""
        return tuple(self._rng(k)[1] for k in range(self.num_envs))

    # -- what `SyncVectorEnv` offers of each environment ---------------------------------------------------------

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Call a method of each environment, or return an attribute of each, as `SyncVectorEnv` does.

        Parameters
        ----------
        name : str
            ``"action_masks"``, or what `get_attr` takes.

        Raises
        ------
        FleetgymError
            For calls that a batch makes for all at once: ``"reset"``, ``"step"``, ``"render"`` and ``"close"``.
        AttributeError
            For an attribute that an environment does not have.

        Examples
        --------
        >>> envs = FleetAllocVectorEnv(2, "fleet-v0/toy/two-pools")
        >>> [space.nvec.tolist() for space in envs.call("action_space")]
        [[2, 3], [2, 3]]
        """
        if name in _OF_THE_BATCH:
            raise FleetgymError(
                f"environments of a batch have no {name} of their own; call the batch's {name}"
            )
        if name == "action_masks":
            return tuple(self.action_masks(*args, **kwargs))
        values = self._attributes(name)
        return tuple(value(*args, **kwargs) if callable(value) else value for value in values)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return an attribute of each environment: one set by `set_attr`, or one of `FleetAllocEnv`'s.

        Parameters
        ----------
        name : str
            ``"instance"``, ``"actions"``, ``"action_space"``, ``"observation_space"``, ``"np_random"``,
            ``"np_random_seed"``, ``"spec"``, ``"metadata"``, ``"render_mode"``, or what `set_attr` has set.
        """
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Give each environment an attribute, as `SyncVectorEnv` does.

        Parameters
        ----------
        name : str
            Any name that is not what the batch is played by; ``"np_random"`` replaces the generators.
        values : list, tuple, or anything else
            A list or a tuple holds one value for each environment; anything else is given to all.

        Raises
        ------
        ValueError
            If a list or tuple has another length.
        FleetgymError
            For an attribute that cannot change while the batch lives.
        """
        each = list(values) if isinstance(values, list | tuple) else [values] * self.num_envs
        if len(each) != self.num_envs:
            raise ValueError(f"{name}: expected {self.num_envs} values, one per environment, got {len(each)}")
        if name == "np_random":
            self._rngs = [(rng, -1) for rng in each]  # as in Gymnasium, whoever sets it keeps the seed
        elif name in _FIXED or name in _OF_THE_BATCH or name == "action_masks":
            raise FleetgymError(f"{name} cannot be changed in a batch; make another batch")
        else:
            self._given[name] = each

    def _attributes(self, name: str) -> Sequence[Any]:
        """Return an attribute of each environment."""
        if name in self._given:
            return self._given[name]
        if name in ("np_random", "np_random_seed"):
            return getattr(self, name)
        if name == "instance":
            return [self.instances[which] for which in self._which]
        if name == "actions":
            own = [ActionSpace(one) for one in self.instances]
            return [own[which] for which in self._which]
        if name == "metadata":
            return [FleetAllocEnv.metadata] * self.num_envs
        if name in _FIXED:
            return [getattr(self, _FIXED[name])] * self.num_envs
        raise AttributeError(f"environments of a batch have no attribute {name!r}")

    def _choose(self, k: int, named: int | Scenario | None = None) -> None:
        """Choose the scenario of environment `k`, and store it if it is not."""
        which = self._which[k]
        chosen = self._choices[which].number(named, self._rng(k)[0])
        if isinstance(chosen, int):
            slot, scenario = int(self._first_slot[which]) + chosen, self._choices[which].stored[chosen]
        else:
            slot, scenario = self._load(k, chosen), chosen
        self._batch.choose(k, slot)
        self._scenario_ids[k], self._scenarios[k] = scenario.id, scenario

    def _load(self, k: int, scenario: Scenario) -> int:
        """Store a scenario in the slot of environment `k`, unless it is there; return the slot."""
        slot = int(self._first_slot[-1]) + k
        if self._loaded[k] is not scenario:
            self._batch.load(slot, scenario)
            self._loaded[k] = scenario
        return slot

    def step(
        self, actions: np.ndarray
    ) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Play one window of every episode; finished episodes restart (see `autoreset_mode`).

        Parameters
        ----------
        actions : array_like of int, shape (N, slots)
            Targets, one option per slot.

        Returns
        -------
        observations : dict of ndarray
        rewards : ndarray of float64, shape (N,)
        terminations, truncations : ndarray of bool, shape (N,)
        infos : dict

        Raises
        ------
        DataError
            If an action is not valid; nothing has happened then.
        ResetNeeded
            Before the first reset, and after an episode's end where `autoreset_mode` is ``Disabled``.
        ClosedEnvironmentError
            After `close`.
        """
        if not self._begun:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        self._check_open()
        over = self._over
        any_over = bool(over.any())
        if self.autoreset_mode == AutoresetMode.DISABLED and any_over:
            raise gymnasium.error.ResetNeeded(
                f"episodes {np.flatnonzero(over).tolist()} are over: reset them"
            )
        actions = check_options(actions, self._limits, "$.actions", ignored=over)
        what = self._plays
        if any_over:
            what = np.where(over, _BEGIN, _PLAY)
            for k in np.flatnonzero(over):
                self._choose(int(k))
        self._batch.advance(actions, what)
        rewards = 0.0 - self._batch.cost_usd
        terminations = self._batch.window >= self._batch.shape.windows
        truncations = self._batch.window >= self._most_steps
        ended = terminations | truncations
        final = {}
        if self.autoreset_mode == AutoresetMode.SAME_STEP and ended.any():
            final = self._finish(ended)
            self._over = np.zeros(self.num_envs, dtype=np.bool_)
        else:
            self._over = ended
        return (
            self._observation(),
            rewards,
            terminations,
            truncations,
            {**final, **self._infos(self._everyone)},
        )

    def _finish(self, rows: np.ndarray) -> dict[str, Any]:
        """Begin the episodes that are over; return their last observations and infos."""
        last, info = self._observation(), self._infos(rows)
        money, counts = self._batch.blocks
        self.last_blocks = money.copy(), counts.copy()
        final_obs = np.full(self.num_envs, None, dtype=object)
        for k in np.flatnonzero(rows):
            final_obs[k] = {name: values[k] for name, values in last.items()}
            self._choose(int(k))
        what = np.where(rows, _BEGIN, _REST)
        self._batch.advance(np.zeros((self.num_envs, self._limits.shape[1])), what)
        return {
            "final_obs": final_obs,
            "_final_obs": rows.copy(),
            "final_info": info,
            "_final_info": rows.copy(),
        }

    def _infos(self, rows: np.ndarray) -> dict[str, Any]:
        """Return the infos of the environments in `rows`, in Gymnasium's form: each key with a mask ``_key``."""
        found = self._batch.info(self._names)
        if self._names is None:
            found["scenario"] = self._scenario_ids.copy()
        if rows is not self._everyone:
            for name, values in found.items():
                values[~rows] = None if name == "scenario" else 0
        infos = {}
        for name, values in found.items():
            infos[name], infos[f"_{name}"] = values, rows
        return infos

    def action_masks(self) -> np.ndarray:
        """Return which options fit the availability and budget seen last: bool (N, sum of nvec)."""
        return self._batch.mask

    # -- for tree search ---------------------------------------------------------------------------------------

    def get_state(self) -> BatchState:
        """Return the states of all episodes, with the memory of `for_learning` and the generators of the next days.

        As in `FleetAllocEnv.get_state`, it holds the days to come; `resample` draws others.

        Raises
        ------
        ResetNeeded
            Before the first reset.

        Examples
        --------
        >>> envs = FleetAllocVectorEnv(2, "fleet-v0/toy/two-pools")
        >>> _ = envs.reset(seed=0)
        >>> state = envs.get_state()
        >>> first = envs.step([[1, 1], [1, 0]])[1]
        >>> observations = envs.set_state(state)
        >>> bool((envs.step([[1, 1], [1, 0]])[1] == first).all())
        True
        """
        if not self._begun:
            raise gymnasium.error.ResetNeeded("call reset() before get_state()")
        generators = tuple(rng.bit_generator.state for rng in self.np_random)
        layers = tuple([layer.save() for layer in self.layers])
        playing = self.get_attr("instance"), tuple(self._scenarios), self._batch.save(slice(None))
        return BatchState(*playing, self._over.copy(), generators, layers)

    def set_state(self, state: BatchState) -> dict[str, np.ndarray]:
        """Go back, or forward, to where the episodes were at `get_state`; return the observations there.

        Parameters
        ----------
        state : BatchState
            Of this batch, or of another one like it. Can be used any number of times.

        Raises
        ------
        FleetgymError
            For a state of other instances or another `for_learning`, and for what is none.
        """
        self._check_open()
        check_state(state, BatchState, self.get_attr("instance"), self.layers)
        self._batch.restore(slice(None), state.carried)
        for k, (scenario, generator) in enumerate(zip(state.scenarios, state.generators, strict=True)):
            self._batch.choose(k, self._load(k, scenario))
            self._scenario_ids[k], self._scenarios[k] = scenario.id, scenario
            self._rng(k)[0].bit_generator.state = generator
        self._over, self._begun = state.over.copy(), True
        for layer, saved in zip(self.layers, state.layers, strict=False):
            layer.restore(saved)
        return self._observation()

    def resample(self, state: BatchState, rng: np.random.Generator) -> BatchState:
        """Return a state with the same past and other futures; see `FleetAllocEnv.resample`."""
        instances = self.get_attr("instance")
        check_state(state, BatchState, instances)
        days = zip(instances, state.scenarios, self._batch.window_of(state.carried).tolist(), strict=True)
        return state._replace(scenarios=tuple([resampled(*day, rng) for day in days]))

    def _check_open(self) -> None:
        if self.closed:
            raise gymnasium.error.ClosedEnvironmentError("these environments are closed: make them anew")

    def close_extras(self, **kwargs: Any) -> None:
        """Release the threads."""
        if hasattr(self, "_batch"):  # Gymnasium closes what its constructor has refused, too
            self._batch.close()
