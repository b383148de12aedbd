"""`FleetAlloc-v0`: the Gymnasium environment that steps through demand windows."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fleetgym.actions import ActionSpace
from fleetgym.dynamics.scenario import draw_scenario
from fleetgym.envs.rendering import render_ansi
from fleetgym.instance import Instance, Scenario
from fleetgym.library import load_instance, load_scenarios
from fleetgym.window import COST_TERMS, Outcome, WindowResult, window_model

#: Most that the demand of a workload may differ from nominal in an observation, as a natural logarithm.
MAX_LOG_RATIO = 5.0
MAX_PRICE_FACTOR = 100.0


class FleetAllocEnv(gymnasium.Env):
    """Rent GPUs to serve LLM requests, window by window.

    ## Description
    A provider holds a fleet of replicas. Every window (5 minutes) demand moves and capacity may vanish. The agent
    says which fleet it wants; what availability and budget allow is admitted, demand is routed at least cost, and
    the window is paid for. `docs/model.md` defines every number.

    ## Action space
    `MultiDiscrete`, one component per slot of the instance. For an exclusive slot option 0 is off and option o the
    slot's o-th configuration; otherwise the option is the number of replicas. Actions are targets:
    repeating one changes nothing. `action_masks()` (flat) and ``info["action_mask"]`` tell which options
    fit the availability and budget seen last, all else released.

    ## Observation space
    A flat `Dict` of float32 boxes (I workloads, C configurations, G pools), as of the last window:

    | key | shape | meaning |
    |---|---|---|
    | `demand` | (I,) | log(rate / nominal rate), clipped to ±5 |
    | `input_scale`, `output_scale` | (I,) | log(mean length / nominal), clipped to ±5 |
    | `delay_factor`, `error_factor` | (I,) | log of the factors, clipped to ±5 |
    | `availability` | (G,) | available GPUs / cap |
    | `price` | (G,) | price / list price, at most 100 |
    | `running`, `starting`, `draining` | (C,) | replicas |
    | `denied`, `lost` | (C,) | replicas that were not granted, and that were taken away |
    | `clock` | (2,) | sine and cosine of the time of day |
    | `progress` | (1,) | share of the episode that is over |
    | `budget_left` | (1,) | share of a `pool` budget that is left; 1 without one |

    ## Rewards
    Minus the window's cost in USD: rental, model storage, data storage, delay, elastic SLO excess, unserved, late
    requests and start-up fees.

    ## Starting state
    The instance's nominal fleet runs. ``reset(seed=...)`` draws a scenario from the instance's processes;
    ``reset(options={"scenario": k})`` plays the k-th stored one.

    ## Episode end
    Terminated after ``num_windows`` windows; never truncated.

    ## Info
    The same keys after every step and reset: the cost terms and ``cost`` (zero at reset), `unserved_share`,
    `miss_share`, the outcome seen last (`rate_rps`, `input_scale`, `output_scale`, `delay_factor`,
    `error_factor`, `available_gpus`, `price_factor`), the fleet (`running`, `starting` and `draining` by
    windows left, `granted`, `denied`, `lost`, `forced_outage`), `window` (the coming one), `spent_usd`,
    `scenario` and `action_mask`.

    ## Arguments
    ``gymnasium.make("FleetAlloc-v0", instance="fleet-v0/dev/ou-s-001", render_mode=None)``: `instance` is an id of the
    standard set, the path of an instance file, or an `Instance`.

    ## Version history
    * v0: initial version
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}

    def __init__(self, instance: str | Instance = "fleet-v0/dev/ou-s-001", render_mode: str | None = None):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(
                f"render_mode must be one of {self.metadata['render_modes']}, got {render_mode!r}"
            )
        self.render_mode = render_mode
        self.source = None if isinstance(instance, Instance) else instance
        self.instance = instance if isinstance(instance, Instance) else load_instance(instance)
        self.actions = ActionSpace(self.instance)
        self._model = window_model(self.instance)
        self._nominal = Outcome.nominal(self.instance)
        self.action_space = spaces.MultiDiscrete(self.actions.nvec)
        self.observation_space = self._observation_space()
        self._scenario: Scenario | None = None
        self._result: WindowResult | None = None
        self._masked_limits: tuple[bytes, bytes, float] | None = None

    def _observation_space(self) -> spaces.Dict:
        count_w, count_g = self.instance.num_workloads, self.instance.num_pools
        log = spaces.Box(-MAX_LOG_RATIO, MAX_LOG_RATIO, (count_w,), np.float32)
        most = np.array([c.max_replicas for c in self.instance.configurations], dtype=np.float32)
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
            ``{"scenario": k}`` plays the k-th stored scenario, ``{"scenario": Scenario(...)}`` a given one.

        Returns
        -------
        observation : dict of ndarray
        info : dict
        """
        super().reset(seed=seed)
        self._scenario = self._choose_scenario(dict(options or {}))
        self._state = self._model.initial_state()
        self._router = self._model.new_router()
        self._result = None
        self._seen = self._last_seen()
        return self._observe(), self._info()

    def _choose_scenario(self, options: dict[str, Any]) -> Scenario:
        chosen = options.pop("scenario", None)
        if options:
            raise ValueError(f"unknown reset options {sorted(options)}; expected 'scenario'")
        if chosen is None:
            return draw_scenario(self.instance, self.np_random, "drawn")
        if isinstance(chosen, Scenario):
            return chosen.check(self.instance)
        stored = load_scenarios(self.source) if self.source is not None else ()
        if isinstance(chosen, bool) or not isinstance(chosen, (int, np.integer)):
            raise ValueError(f"expected the number of a stored scenario or a Scenario, got {chosen!r}")
        if not 0 <= chosen < len(stored):
            raise ValueError(f"{self.instance.id!r} has {len(stored)} stored scenarios, got number {chosen}")
        return stored[int(chosen)]

    def step(self, action: np.ndarray) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """Let one window happen.

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
        if self._state.window >= self.instance.num_windows:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset()")
        target = self.actions.to_fleet(action)
        outcome = Outcome.of(self._scenario, self._state.window)
        self._result = self._model.step(self._state, target, outcome, self._router)
        self._seen = self._last_seen()
        terminated = self._state.window >= self.instance.num_windows
        return self._observe(), -self._result.cost_usd, terminated, False, self._info()

    def action_masks(self) -> np.ndarray:
        """Return which options fit the availability and budget seen last: bool (sum of nvec,)."""
        seen, budget_usd = self._seen, self._model.budget_usd(self._state.spent_usd)
        limits = (seen.available_gpus.tobytes(), seen.price_factor.tobytes(), budget_usd)
        if limits != self._masked_limits:  # they seldom change from one window to the next
            hold_usd = self._model.hold_usd(seen.price_factor)
            self._mask = self.actions.mask(seen.available_gpus, hold_usd, budget_usd)
            self._masked_limits = limits
        return self._mask.copy()

    def render(self) -> str | None:
        """Return the window just played as text, for ``render_mode="ansi"``."""
        if self.render_mode is None:
            gymnasium.logger.warn("render() without a render_mode: make the env with render_mode='ansi'")
            return None
        return render_ansi(self.instance, self._state, self._seen, self._result)

    # -- what the agent sees ------------------------------------------------------------------------------

    def _last_seen(self) -> Outcome:
        """Return the outcome that is known before the coming window."""
        assert self._scenario is not None
        window = self._state.window - self.instance.lead
        if window < 0:
            return self._nominal
        return Outcome.of(self._scenario, min(window, self.instance.num_windows - 1))

    def _observe(self) -> dict[str, np.ndarray]:
        seen, state, result = self._seen, self._state, self._result
        none = np.zeros(self.instance.num_configurations)
        day = 2.0 * np.pi * state.window * self.instance.window_s / 86400.0
        caps = np.maximum(1, self._nominal.available_gpus)
        values = {
            "demand": _log_ratio(seen.rate_rps, self._nominal.rate_rps),
            "input_scale": _log_ratio(seen.input_scale, 1.0),
            "output_scale": _log_ratio(seen.output_scale, 1.0),
            "delay_factor": _log_ratio(seen.delay_factor, 1.0),
            "error_factor": _log_ratio(seen.error_factor, 1.0),
            "availability": seen.available_gpus / caps,
            "price": np.minimum(seen.price_factor, MAX_PRICE_FACTOR),
            "running": state.running,
            "starting": state.starting.sum(axis=1),
            "draining": state.draining.sum(axis=1),
            "denied": none if result is None else result.admission.denied,
            "lost": none if result is None else result.admission.lost,
            "clock": np.array([np.sin(day), np.cos(day)]),
            "progress": np.array([state.window / self.instance.num_windows]),
            "budget_left": np.array([self._budget_left_share()]),
        }
        return {name: np.asarray(value, dtype=np.float32) for name, value in values.items()}

    def _budget_left_share(self) -> float:
        budget = self.instance.budget
        if budget is None or budget.kind != "pool" or budget.usd <= 0.0:
            return 1.0
        return min(1.0, max(0.0, 1.0 - self._state.spent_usd / budget.usd))

    def _info(self) -> dict[str, Any]:
        result, state = self._result, self._state
        counts = np.zeros(self.instance.num_configurations, dtype=np.int64)
        shares = np.zeros(self.instance.num_workloads)
        return {
            **(dict.fromkeys((*COST_TERMS, "cost"), 0.0) if result is None else result.costs()),
            "unserved_share": shares if result is None else result.unserved_share,
            "miss_share": shares.copy() if result is None else result.miss_share,
            **self._seen.as_dict(),
            "running": state.running.copy(),
            "starting": state.starting.copy(),
            "draining": state.draining.copy(),
            "granted": counts if result is None else result.admission.granted,
            "denied": counts.copy() if result is None else result.admission.denied,
            "lost": counts.copy() if result is None else result.admission.lost,
            "forced_outage": 0 if result is None else result.admission.forced_outage,
            "window": state.window,
            "spent_usd": state.spent_usd,
            "scenario": self._scenario.id if self._scenario is not None else "",
            "action_mask": self.action_masks(),
        }


def _log_ratio(value: np.ndarray, nominal: np.ndarray | float) -> np.ndarray:
    with np.errstate(divide="ignore"):
        return np.clip(np.log(value / nominal), -MAX_LOG_RATIO, MAX_LOG_RATIO)
