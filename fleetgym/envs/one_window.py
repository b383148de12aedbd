"""What environments of one step have in common: a scenario's window to be served in, text and observations out."""

from __future__ import annotations

import abc
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fleetgym.agents.arguments import is_number
from fleetgym.envs.base import PortableEnv
from fleetgym.envs.rendering import checked_render_mode, has_render_mode, render_ansi
from fleetgym.envs.scenarios import ScenarioChoice, reset_options
from fleetgym.files.errors import FleetgymError
from fleetgym.kernels.batch import MAX_LOG_RATIO, MAX_PRICE_FACTOR
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import Admission, FleetState, window_model


class OneWindowEnv(PortableEnv, gymnasium.Env, abc.ABC):
    """An episode is one step: a fleet for one window, starting from none.

    Parameters
    ----------
    choice : ScenarioChoice
        Where scenarios come from.
    instance : Instance
        Its instance, which may have been changed.
    render_mode : str, optional
        ``"ansi"``: text.

    Raises
    ------
    FleetgymError
        For another render mode.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(self, choice: ScenarioChoice, instance: Instance, render_mode: str | None):
        self.render_mode = checked_render_mode(render_mode, self.metadata["render_modes"])
        self.instance = instance
        self._choice, self._model = choice, window_model(instance)
        self._nominal = Conditions.nominal(instance)
        self._most = np.array([c.max_replicas for c in instance.configurations], dtype=np.int64)
        self.observation_space = self._observation_space()
        self._scenario: Scenario | None = None
        self._granted: Admission | None = None

    def _observation_space(self) -> spaces.Dict:
        count_w, count_g = self.instance.num_workloads, self.instance.num_pools
        log = spaces.Box(-MAX_LOG_RATIO, MAX_LOG_RATIO, (count_w,), np.float32)
        most = self._most.astype(np.float32)
        return spaces.Dict(
            {
                **dict.fromkeys(("demand", "input_scale", "output_scale", "delay_factor"), log),
                "availability": spaces.Box(0.0, 1.0, (count_g,), np.float32),
                "price": spaces.Box(0.0, MAX_PRICE_FACTOR, (count_g,), np.float32),
                "running": spaces.Box(np.zeros_like(most), most, dtype=np.float32),
            }
        )

    # -- what the environments differ in

    @abc.abstractmethod
    def _begin(self) -> None:
        """Forget the last window; `_conditions`, `_state` and `_snapshot` are the new one's."""

    @abc.abstractmethod
    def _serve(self, action: np.ndarray) -> float:
        """Admit the fleet that an action wants, serve the window with it, and return the reward."""

    @abc.abstractmethod
    def _mask(self) -> np.ndarray:
        """Return which options are of use: bool (sum of nvec,)."""

    @abc.abstractmethod
    def _own_info(self) -> dict[str, Any]:
        """Return what an info holds besides the window."""

    @abc.abstractmethod
    def _result(self) -> str:
        """Return how the window went, in a line."""

    # -- Gymnasium's interface

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Choose the window to be served.

        Parameters
        ----------
        seed : int, optional
            Seeds the generator from which scenario and window are drawn.
        options : dict, optional
            ``{"scenario": k}`` or its id takes the k-th stored scenario, ``{"scenario": Scenario(...)}`` a given one;
            ``{"window": t}`` its window t.

        Returns
        -------
        observation : dict of ndarray
        info : dict

        Raises
        ------
        FleetgymError
            For options that do not exist; nothing has happened then.
        DataError
            For a scenario that does not fit the instance.
        """
        named, window = self._named(options)
        super().reset(seed=seed)
        self._scenario = self._choice.choose(named, self.np_random)
        if named is None and window is None:
            window = int(self.np_random.integers(self.instance.num_windows))
        self.window = window or 0
        self._conditions = Conditions.of(self._scenario, self.window)
        self._state = FleetState(np.zeros_like(self._model.initial_state().replicas))
        self._snapshot = self._model.snapshot(self._state, self._conditions)
        self._granted = None
        self._begin()
        return self._observe(), self._info()

    def _named(self, options: dict[str, Any] | None) -> tuple[int | Scenario | None, int | None]:
        """Return the scenario and the window that options name."""
        given = reset_options(options, "scenario", "window")
        window, count = given.get("window"), self.instance.num_windows
        if window is not None and not (is_number(window, whole=True) and 0 <= window < count):
            raise FleetgymError(f"expected a window from 0 to {count - 1}, got {window!r}")
        named = self._choice.named({"scenario": given.get("scenario")})
        return named, None if window is None else int(window)

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Rent the fleet, and serve the window.

        Parameters
        ----------
        action : array_like of int
            One option per component of the action space.

        Returns
        -------
        observation : dict of ndarray
        reward : float
        terminated : bool
            Always True.
        truncated : bool
            Always False.
        info : dict

        Raises
        ------
        DataError
            If the action is not valid.
        ResetNeeded
            Before the first reset, and after a step.
        """
        if self._scenario is None or self._granted is not None:
            raise gymnasium.error.ResetNeeded("an episode is one step: call reset() before step()")
        reward = self._serve(action)
        return self._observe(), reward, True, False, self._info()

    def action_masks(self) -> np.ndarray:
        """Return which options are of use: bool (sum of nvec,); the environment's page says which these are."""
        if self._scenario is None:
            raise gymnasium.error.ResetNeeded("call reset() before action_masks()")
        return self._mask()

    def _fitting(self) -> tuple[np.ndarray, np.ndarray, float]:
        """Return what limits the fleet: GPUs of each pool, USD per replica, and USD in all, none of it spent yet."""
        return self._conditions.available_gpus, self._snapshot.hold_usd, self._model.budget_usd(0.0)

    def render(self) -> str | None:
        """Return the fleet and how the window went as text, for ``render_mode="ansi"``."""
        if not has_render_mode(self.render_mode):
            return None
        if self._scenario is None:
            raise gymnasium.error.ResetNeeded("call reset() before render()")
        state = FleetState(self._state.replicas, self.window)
        return f"{render_ansi(self.instance, state, self._conditions)}\n{self._result()}"

    # -- what the agent sees

    def _observe(self) -> dict[str, np.ndarray]:
        seen = self._conditions
        values = {
            "demand": _log_ratio(seen.rate_rps, self._nominal.rate_rps),
            "input_scale": _log_ratio(seen.input_scale, 1.0),
            "output_scale": _log_ratio(seen.output_scale, 1.0),
            "delay_factor": _log_ratio(seen.delay_factor, 1.0),
            "availability": seen.available_gpus / np.maximum(1, self._nominal.available_gpus),
            "price": np.minimum(seen.price_factor, MAX_PRICE_FACTOR),
            "running": self._state.running,
        }
        return {name: np.asarray(value, dtype=np.float32) for name, value in values.items()}

    def _info(self) -> dict[str, Any]:
        return {
            **self._own_info(),
            "cost_usd_per_h": self._cost_usd_per_h(),
            **self._conditions.as_dict(),
            "window": self.window,
            "scenario": self._scenario.id if self._scenario is not None else "",
            "action_mask": self.action_masks(),
        }

    def _cost_usd_per_h(self) -> float:
        """Return rent and model storage of what was granted."""
        return float(self._state.running @ self._snapshot.hold_usd / self._model.hours)


def _log_ratio(value: np.ndarray, nominal: np.ndarray | float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.clip(np.log(value / nominal), -MAX_LOG_RATIO, MAX_LOG_RATIO)
