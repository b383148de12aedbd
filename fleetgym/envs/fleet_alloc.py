"""Define `FleetAlloc-v0`, the Gymnasium environment that steps through windows of demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fleetgym.envs.base import PortableEnv
from fleetgym.envs.batch import BEGIN, PLAY, EpisodeBatch
from fleetgym.envs.rendering import Viewer, checked_render_mode, has_render_mode, render_ansi
from fleetgym.envs.scenarios import ScenarioChoice
from fleetgym.envs.states import EpisodeState, Layer, check_state, resampled
from fleetgym.files.errors import FleetgymError
from fleetgym.kernels.batch import MAX_LOG_RATIO, MAX_PRICE_FACTOR
from fleetgym.model.actions import ActionSpace
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.library import InstanceSource
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import WindowResult


class FleetAllocEnv(PortableEnv, gymnasium.Env):
    """Rent GPUs to serve LLM requests, window by window.

    An operator holds a fleet of replicas. In every window of five minutes demand changes, and spot GPUs may be
    reclaimed. The agent requests a fleet; what availability and budget allow is admitted, demand is routed at the
    lowest cost, and the window is paid for. ``docs/model.md`` defines every number.

    ``gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/dev/ou-s-001")`` makes it.

    Action space
    ------------
    `MultiDiscrete`, one component per slot of the instance. For an exclusive slot option 0 is off and option o the
    slot's o-th configuration; otherwise the option is the number of replicas. Actions are targets: repeating one
    changes nothing. Replicas that do not fit are denied, which is not an error; an option that does not exist is one.

    ``action_masks()`` (flat) and ``info["action_mask"]`` mark the options that fit the availability and budget seen
    last, if everything else is released. ``env.unwrapped.actions`` converts fleets to actions and back, and splits the
    flat mask into one array per slot, as ``action_space.sample(mask=...)`` needs it.

    Observation space
    -----------------
    A flat `Dict` of float32 boxes. I, C and G are the numbers of workloads, configurations and pools, in the
    instance's order. t is the coming window: 0 after `reset`, n after n steps, ``num_windows`` at the end.

    ``demand`` : (I,)
        log(rate / nominal rate) of the last window, clipped to ±5; -5 where the rate is 0
    ``input_scale``, ``output_scale`` : (I,)
        log(mean length / nominal) of the last window, clipped to ±5
    ``delay_factor``, ``error_factor`` : (I,)
        log of the factors of the last window, clipped to ±5
    ``availability`` : (G,)
        GPUs available in the last window / GPU limit; 0 where the limit is 0
    ``price`` : (G,)
        price / list price in the last window, at most 100
    ``running`` : (C,)
        replicas that run after the last window
    ``starting``, ``draining`` : (C,)
        replicas after the last window, summed over the windows left
    ``denied``, ``lost`` : (C,)
        replicas not granted, and replicas reclaimed, in the last window; 0 at reset
    ``clock`` : (2,)
        sine and cosine of 2π t window_s / 86400: day 0 begins at midnight
    ``progress`` : (1,)
        t / num_windows
    ``budget_left`` : (1,)
        1 - spent / budget for a ``pool`` budget, clipped to 0..1; 1 otherwise

    The last window is t - 1. At reset there is none: rates, lengths, GPUs and prices are nominal, all factors 1.
    With ``lead = 0`` the first seven keys show the coming window t instead, and the last one again at the end.

    Rewards
    -------
    Minus the window's cost in USD: rental, model storage, data storage, delay, elastic SLO excess, unserved, late
    requests and start-up fees. The terms are in ``info`` under these keys, and add up to ``cost``.

    Starting state
    --------------
    The instance's nominal fleet runs. ``reset(seed=...)`` draws a scenario from the instance's processes;
    ``reset(options={"scenario": k})`` plays the k-th stored one, as its id does, ``{"scenario": Scenario(...)}`` any
    other. Scores use stored scenarios, not seeds.

    Episode end
    -----------
    Terminated after ``num_windows`` windows; truncated only by ``gymnasium.make(..., max_episode_steps=n)``.

    Info
    ----
    The same keys after every step and reset: the cost terms and ``cost`` (zero at reset), ``unserved_share``,
    ``miss_share``, ``window`` (the coming one), ``spent_usd``, ``scenario`` and ``action_mask``. The conditions seen
    last: ``rate_rps``, ``input_scale``, ``output_scale``, ``delay_factor``, ``error_factor``, ``available_gpus`` and
    ``price_factor``. Replicas by configuration in the last window: ``held`` (paid for: running, starting and
    draining), ``granted``, ``denied``, ``lost``; and ``forced_outage``. The fleet after that window: ``running``,
    ``starting`` and ``draining`` by windows left. If the instance's pools announce their availability, also
    ``announced_gpus``; see `FleetAllocV1Env`.

    Parameters
    ----------
    instance : str, Path, dict or Instance
        An id of the standard set, the path of an instance file, its content, or an `Instance`.
    render_mode : {"ansi", "rgb_array", "human"}, optional
        Text; a picture of the day so far; the same in a window. Pictures need the extra ``fleetgym[render]``.
    scenarios : {"drawn", "stored"}
        Where `reset` finds a scenario that is not named: drawn from the processes, or any stored one.
    law : {"public", "known"}
        The processes that days are drawn from: those that agents know, or the law of the stored days.

    Notes
    -----
    ``env.unwrapped.get_state()`` and ``set_state(state)`` go back to a window in microseconds, for tree search. A state
    holds the day to come; ``resample(state, rng)`` returns one with another future. ``copy.copy(env.unwrapped)``
    returns an independent environment. Use ``copy.deepcopy`` on what `gymnasium.make` returns: its wrappers would
    share the environment.

    ``gymnasium.make_vec("fleetgym:FleetAlloc-v0", num_envs=64, instance=...)`` plays all episodes in one compiled call,
    with the numbers of this environment bit for bit; see `fleetgym.envs.vector.FleetAllocVectorEnv`.
    ``vectorization_mode="sync"`` or ``"async"`` works too, many times slower.
    """

    metadata = {"render_modes": ["ansi", "rgb_array", "human"], "render_fps": 12}

    #: Whether steps play windows; `fleetgym.envs.policy_agent` repeats what it is shown.
    simulates = True

    def __init__(
        self,
        instance: InstanceSource = "fleet-v0/dev/ou-s-001",
        render_mode: str | None = None,
        scenarios: str = "drawn",
        law: str = "public",
    ):
        self.render_mode = checked_render_mode(render_mode, self.metadata["render_modes"])
        self._choice = ScenarioChoice(instance, scenarios, law)
        self.instance = self._choice.instance
        self.actions = ActionSpace(self.instance)
        self.action_space = spaces.MultiDiscrete(self.actions.nvec)
        self.observation_space = observation_space([self.instance])
        self._batch = EpisodeBatch([self.instance], [0], capacity=1)
        self._action = np.zeros((1, self.actions.nvec.size), dtype=np.int64)
        self._scenario: Scenario | None = None
        self._last: tuple[Conditions, WindowResult] | None = None  # the window played last, only to be shown
        self._viewer = Viewer(self.instance, render_mode, self.metadata["render_fps"])
        #: Wrappers of ours whose memory `get_state` keeps, too; each adds itself.
        self.layers: list[Layer] = []

    @property
    def batch(self) -> EpisodeBatch:
        """The episode in arrays, a batch of one."""
        return self._batch

    # -- Gymnasium's interface ----------------------------------------------------------------------------

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Start an episode.

        Parameters
        ----------
        seed : int, optional
            Seeds the generator from which scenarios are drawn.
        options : dict, optional
            ``{"scenario": k}`` or its id plays the k-th stored scenario, ``{"scenario": Scenario(...)}`` a given one.

        Returns
        -------
        observation : dict of ndarray
        info : dict

        Raises
        ------
        FleetgymError
            For options that do not exist; the environment is unchanged then.
        DataError
            For a scenario that does not fit the instance.
        """
        named = self._choice.named(options)
        super().reset(seed=seed)
        self._scenario = self._choice.choose(named, self.np_random)
        self._batch.load(0, self._scenario)
        self._batch.advance(self._action, _BEGIN)
        self._last = None
        self._viewer.begin()
        return self._observation(), self._info()

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Play one window.

        Parameters
        ----------
        action : array_like of int, shape (slots,)
            The target, one option per slot.

        Returns
        -------
        observation : dict of ndarray
        reward : float
            Minus the window's cost in USD.
        terminated : bool
        truncated : bool
            Always False.
        info : dict

        Raises
        ------
        DataError
            If the action is not valid.
        """
        if self._scenario is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        if self._batch.window[0] >= self.instance.num_windows:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset()")
        self._action[0] = self.actions.check(action)
        self._batch.advance(self._action, _PLAY)
        info = self._info()
        if self.render_mode is not None:
            self._show()
        terminated = info["window"] >= self.instance.num_windows
        return self._observation(), 0.0 - info["cost"], terminated, False, info

    def get_state(self) -> EpisodeState:
        """Return the episode's state, for `set_state`: for tree search, in microseconds.

        It contains the memory of `for_learning`, but neither the generator that draws scenarios nor the memory of
        other wrappers. The state holds the day to come, so a search on it is clairvoyant:
        `resample` draws another future.

        Raises
        ------
        ResetNeeded
            Before the first reset.
        FleetgymError
            If `for_learning` wraps a wrapper of another package, whose memory would be lost.

        Examples
        --------
        >>> env = FleetAllocEnv("fleet-v0/toy/two-pools")
        >>> _ = env.reset(seed=0)
        >>> state = env.get_state()
        >>> costs = []
        >>> for _ in range(2):
        ...     costs.append(env.step([1, 1])[4]["cost"])
        ...     observation = env.set_state(state)
        >>> costs[0] == costs[1]
        True
        """
        if self._scenario is None:
            raise gymnasium.error.ResetNeeded("call reset() before get_state()")
        layers = tuple([layer.save() for layer in self.layers])
        return EpisodeState(self.instance, self._scenario, self._batch.save(0), layers)

    def set_state(self, state: EpisodeState) -> dict[str, np.ndarray]:
        """Go back, or forward, to where the episode was at `get_state`, in this environment or another one like it.

        Parameters
        ----------
        state : EpisodeState
            Can be used any number of times.

        Returns
        -------
        dict of ndarray
            The observation there.

        Raises
        ------
        FleetgymError
            For the state of another instance or of another `for_learning`, for an object of another type, and in an
            environment that draws pictures of its day.
        """
        check_state(state, EpisodeState, [self.instance], self.layers)
        if self.render_mode is not None:
            raise FleetgymError("set_state needs render_mode=None: a picture shows the day that was played")
        if state.scenario is not self._scenario:
            self._batch.load(0, state.scenario)
            self._scenario = state.scenario
        self._batch.restore(0, state.carried)
        for layer, saved in zip(self.layers, state.layers, strict=False):
            layer.restore(saved)
        return self._observation()

    def resample(self, state: EpisodeState, rng: np.random.Generator) -> EpisodeState:
        """Return a state with the same past and another future, for a search that is not clairvoyant.

        Parameters
        ----------
        state : EpisodeState
            Of this environment.
        rng : numpy.random.Generator
            Draws the future from the `fleetgym.Belief` of the past: it knows the instance's processes, and not the
            day. Other states of one generator have other futures.

        Raises
        ------
        FleetgymError
            For the state of another instance, and for an object of another type.

        Examples
        --------
        >>> env = FleetAllocEnv("fleet-v0/dev/ou-s-001")
        >>> _ = env.reset(seed=0)
        >>> state = env.get_state()
        >>> rng = np.random.default_rng(0)
        >>> futures = [env.resample(state, rng).scenario.rate_rps[5, 0] for _ in range(2)]
        >>> bool(futures[0] != futures[1])
        True
        """
        check_state(state, EpisodeState, [self.instance])
        window = int(self._batch.window_of(state.carried))
        return state._replace(scenario=resampled(self.instance, state.scenario, window, rng))

    def action_masks(self, env: Any = None) -> np.ndarray:
        """Return which options fit the availability and budget seen last: bool (sum of nvec,).

        Parameters
        ----------
        env : gymnasium.Env, optional
            Not used. sb3-contrib's `ActionMasker` passes the environment.

        Raises
        ------
        FleetgymError
            If `for_learning` wraps the environment: its actions are not options.
        """
        if self.layers:
            raise FleetgymError(
                "these would be masks of replicas, and actions are those of for_learning: ask the wrapped environment "
                "for action_masks(). MaskablePPO finds them without an ActionMasker"
            )
        if self._scenario is None:
            raise gymnasium.error.ResetNeeded("call reset() before action_masks()")
        return self._batch.mask[0]

    def render(self) -> str | np.ndarray | None:
        """Return the episode so far, in the form of `render_mode`: text, an RGB array, or None with a window shown."""
        if not has_render_mode(self.render_mode):
            return None
        if self.render_mode == "ansi":
            if self._scenario is None:
                raise gymnasium.error.ResetNeeded("call reset() before render()")
            return render_ansi(self.instance, self._batch.state(0), self._seen(), self._last)
        return self._viewer.render()

    def close(self) -> None:
        """End the episode, and close the window that ``render_mode="human"`` opened; `reset` begins another."""
        self._scenario = None
        self._viewer.close()

    # -- what there is to see -----------------------------------------------------------------------------

    def _observation(self) -> dict[str, np.ndarray]:
        return self._batch.single_observation()

    def _info(self) -> dict[str, Any]:
        assert self._scenario is not None
        info = self._batch.single_info()
        info["scenario"] = self._scenario.id
        return info

    def _show(self) -> None:
        """Note the window just played, and add it to the picture."""
        assert self._scenario is not None
        played = int(self._batch.window[0]) - 1
        self._last = Conditions.of(self._scenario, played), self._batch.last_result()
        self._viewer.add(*self._last)

    def _seen(self) -> Conditions:
        info = self._batch.single_info()
        return Conditions(**{name: info[name] for name in Conditions.FIELDS})


_BEGIN, _PLAY = (np.full(1, what, dtype=np.uint8) for what in (BEGIN, PLAY))


def observation_space(instances: Sequence[Instance]) -> spaces.Dict:
    """Return the space of one environment's observations that fits several instances of one shape.

    Parameters
    ----------
    instances : sequence of Instance
        Of equal numbers of workloads, configurations and pools.
    """
    count_w, count_g = instances[0].num_workloads, instances[0].num_pools
    log = spaces.Box(-MAX_LOG_RATIO, MAX_LOG_RATIO, (count_w,), np.float32)
    most = np.max([[c.max_replicas for c in one.configurations] for one in instances], axis=0).astype(
        np.float32
    )
    replicas = spaces.Box(np.zeros_like(most), most, dtype=np.float32)
    unit = spaces.Box(0.0, 1.0, (1,), np.float32)
    per_workload = ("demand", "input_scale", "output_scale", "delay_factor", "error_factor")
    per_configuration = ("running", "starting", "draining", "denied", "lost")
    return spaces.Dict(
        {
            **dict.fromkeys(per_workload, log),
            "availability": spaces.Box(0.0, 1.0, (count_g,), np.float32),
            "price": spaces.Box(0.0, MAX_PRICE_FACTOR, (count_g,), np.float32),
            **dict.fromkeys(per_configuration, replicas),
            "clock": spaces.Box(-1.0, 1.0, (2,), np.float32),
            "progress": unit,
            "budget_left": unit,
        }
    )
