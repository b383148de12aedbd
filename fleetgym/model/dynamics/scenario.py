"""Sample a `Scenario` of an instance: every realised number of one episode."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from fleetgym.files.quantities import FACTOR, PRICE_FACTOR, RATE_RPS
from fleetgym.files.schema import Number
from fleetgym.model.dynamics.availability import Drops, LostNodes
from fleetgym.model.dynamics.demand import (
    DiurnalOU,
    LevelProcess,
    draw_counts,
    geometric_random_walk,
    resampled_day,
    stationary_ou,
)
from fleetgym.model.dynamics.prices import PriceWalk
from fleetgym.model.dynamics.weekly import WeeklyOU
from fleetgym.model.instance import Instance
from fleetgym.model.processes import PROFILE, Process
from fleetgym.model.scenario import Scenario

_Draw = Callable[[np.random.Generator], np.ndarray]
_DrawPair = Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]


class ScenarioGenerator:
    """The processes of one instance, their parameters read once.

    Parameters
    ----------
    instance : Instance
        Its `dynamics` name the processes.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> scenario = ScenarioGenerator(instance).draw(np.random.default_rng(7))
    >>> scenario.rate_rps.shape == (instance.num_windows, 1)
    True
    """

    def __init__(self, instance: Instance):
        self._demand = _demand(instance)
        self._tokens = _tokens(instance)
        self._factors = _factors(instance)
        self._availability = _availability(instance)
        self._prices = _prices(instance)
        self._length = instance.num_windows, instance.window_s
        self.drops = None if instance.dynamics.availability.kind == "constant" else drops_of(instance)

    def draw(self, rng: np.random.Generator, scenario_id: str = "drawn") -> Scenario:
        """Draw one scenario; everything random comes from `rng`, in a fixed order.

        Parameters
        ----------
        rng : numpy.random.Generator
            The only source of randomness.
        scenario_id : str
            Id of the scenario.

        Returns
        -------
        Scenario
            Fields that do not vary have a single row.
        """
        rate = self._demand(rng)
        input_scale, output_scale = self._tokens(rng)
        delay_factor, error_factor = self._factors(rng)
        return Scenario(
            id=scenario_id,
            rate_rps=_within(RATE_RPS, rate),
            input_scale=_within(FACTOR, input_scale),
            output_scale=_within(FACTOR, output_scale),
            delay_factor=_within(FACTOR, delay_factor),
            error_factor=_within(FACTOR, error_factor),
            available_gpus=self._availability(rng),
            price_factor=_within(PRICE_FACTOR, self._prices(rng)),
        )

    def draw_drops(self, rng: np.random.Generator) -> LostNodes | None:
        """Draw the drops that `draw` would draw from an equal generator; None if no pool may drop."""
        if self.drops is None:
            return None
        self._demand(rng)
        self._tokens(rng)
        self._factors(rng)
        return self.drops.parts(rng, *self._length)


@functools.lru_cache(maxsize=64)
def _generator(instance: Instance) -> ScenarioGenerator:
    return ScenarioGenerator(instance)


def draw_scenario(instance: Instance, rng: np.random.Generator, scenario_id: str = "drawn") -> Scenario:
    """Draw a scenario from the processes in `instance.dynamics`.

    Equal generators give equal scenarios, in any process; there is no other state.

    Parameters
    ----------
    instance : Instance
        The problem.
    rng : numpy.random.Generator
        The only source of randomness.
    scenario_id : str
        Id of the scenario.

    Returns
    -------
    Scenario
        Rates in requests/s as counts over the window; availability in whole nodes.
    """
    return _generator(instance).draw(rng, scenario_id)


def _within(kind: Number, drawn: np.ndarray) -> np.ndarray:
    """Return what was drawn, held within what a scenario may hold: tails of processes have no end."""
    return np.clip(drawn, kind.minimum, kind.maximum)


# -- parameters


def parameter(process: Process, name: str, length: int) -> np.ndarray:
    """Return a process's parameter that is one number for all, or one per item: shape (length,).

    Examples
    --------
    >>> parameter(Process(kind="grw", parameters={"sigma": 0.1}), "sigma", 2).tolist()
    [0.1, 0.1]
    """
    return np.array(np.broadcast_to(np.asarray(process.parameters[name], dtype=float), (length,)))


def _scalar(process: Process, name: str) -> float:
    value = process.parameters[name]
    return float(value[0] if isinstance(value, tuple) else value)


# -- one drawing function per process


def _demand(instance: Instance) -> _Draw:
    process, length = instance.dynamics.demand, instance.num_workloads
    windows, window_s = instance.num_windows, instance.window_s
    if process.kind == "history":
        return lambda rng: resampled_day(rng, instance.history.rate_rps, windows)
    if process.kind == "resampled-history":
        return _resampled(instance)
    mean = np.array([w.rate_rps for w in instance.workloads]) * window_s
    dispersion = parameter(process, "dispersion", length)
    if process.kind == "grw":
        sigma = parameter(process, "sigma", length)

        def level(rng: np.random.Generator) -> np.ndarray:
            return geometric_random_walk(rng, windows, sigma)
    else:
        ou = level_process(process, length)

        def level(rng: np.random.Generator) -> np.ndarray:
            return ou.log_level(rng, windows, window_s)

    def draw(rng: np.random.Generator) -> np.ndarray:
        with np.errstate(over="ignore"):
            expected = np.minimum(mean * np.exp(level(rng)), RATE_RPS.maximum * window_s)
        return draw_counts(rng, expected, dispersion) / window_s

    return draw


#: Kinds of demand that are a `LevelProcess`.
LEVEL_KINDS = ("diurnal-ou", "weekly-ou")


def level_process(process: Process, length: int) -> LevelProcess:
    """Return a process of one of `LEVEL_KINDS` with one value per workload for each parameter.

    Parameters
    ----------
    process : Process
        Its parameters.
    length : int
        Number of workloads.

    Returns
    -------
    LevelProcess
        Ready to draw from.
    """
    names = ("ou_sd", "ou_time_min", "noise_sd", "jumps_per_day", "jump_log_mean", "jump_hold_min")
    vectors = {name: parameter(process, name, length) for name in names}
    common = _scalar(process, "ou_common")
    if process.kind == "weekly-ou":
        profile = np.array([parameter(process, name, length) for name in PROFILE])
        return WeeklyOU(
            profile=profile, first_day=int(_scalar(process, "first_day")), ou_common=common, **vectors
        )
    daily = {name: parameter(process, name, length) for name in ("daily_amplitude", "daily_peak_h")}
    return DiurnalOU(ou_common=common, **daily, **vectors)


def _resampled(instance: Instance) -> _Draw:
    process, window_s = instance.dynamics.demand, instance.window_s
    roll = int(_scalar(process, "roll_windows"))
    sd = parameter(process, "level_log_sd", instance.num_workloads)

    def draw(rng: np.random.Generator) -> np.ndarray:
        rate = resampled_day(rng, instance.history.rate_rps, instance.num_windows, roll, sd)
        return np.rint(rate * window_s) / window_s

    return draw


def _tokens(instance: Instance) -> _DrawPair:
    process, length = instance.dynamics.tokens, instance.num_workloads
    if process.kind == "constant":
        return lambda rng: (np.ones((1, length)), np.ones((1, length)))
    sd = np.tile(parameter(process, "log_sd", length), 2)
    phi = np.exp(-instance.window_s / 60.0 / np.tile(parameter(process, "time_min", length), 2))

    def draw(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        scale = np.exp(stationary_ou(rng, instance.num_windows, sd, phi) - 0.5 * sd * sd)
        return scale[:, :length].copy(), scale[:, length:].copy()

    return draw


def _factors(instance: Instance) -> _DrawPair:
    process, length = instance.dynamics.factors, instance.num_workloads
    if process.kind == "constant":
        return lambda rng: (np.ones((1, length)), np.ones((1, length)))
    delay, error = parameter(process, "delay_sd", length), parameter(process, "error_sd", length)

    def lognormal(rng: np.random.Generator, sd: np.ndarray) -> np.ndarray:
        return np.exp(sd * rng.standard_normal((instance.num_windows, length)) - 0.5 * sd * sd)

    return lambda rng: (lognormal(rng, delay), lognormal(rng, error))


def _availability(instance: Instance) -> _Draw:
    process = instance.dynamics.availability
    caps = np.array([pool.cap_gpus for pool in instance.pools], dtype=np.int64)
    if process.kind == "constant":
        return lambda rng: caps[None, :].copy()
    drops = drops_of(instance)
    return lambda rng: drops.draw(rng, instance.num_windows, instance.window_s)


def _prices(instance: Instance) -> _Draw:
    process, length = instance.dynamics.prices, instance.num_pools
    if process.kind == "constant":
        return lambda rng: np.ones((1, length))
    names = ("ou_sd", "ou_time_min", "jumps_per_day", "jump_log_mean", "jump_hold_min", "ceiling")
    walk = PriceWalk(
        **{name: parameter(process, name, length) for name in names},
        region=_regions(instance),
        same_region=_scalar(process, "same_region"),
        other_region=_scalar(process, "other_region"),
    )
    return lambda rng: walk.draw(rng, instance.num_windows, instance.window_s)


def _regions(instance: Instance) -> np.ndarray:
    """Return the index of each pool's region among the sorted ones: int64 (G,)."""
    regions = sorted({pool.region for pool in instance.pools})
    return np.array([regions.index(pool.region) for pool in instance.pools], dtype=np.int64)


def warned_pools(instance: Instance) -> np.ndarray:
    """Return which pools announce drops one window ahead, bool (G,)."""
    process = instance.dynamics.availability
    if process.kind != "warned-drops":
        return np.zeros(instance.num_pools, dtype=bool)
    return parameter(process, "warning_windows", instance.num_pools) > 0.0


def drops_of(instance: Instance) -> Drops:
    """Return the drops of an instance whose availability is not constant."""
    process = instance.dynamics.availability
    caps = np.array([pool.cap_gpus for pool in instance.pools], dtype=np.int64)
    per_node = np.array([pool.gpus_per_node for pool in instance.pools], dtype=np.int64)
    names = ("depth_a", "depth_b", "duration_log_mean_min", "duration_log_sd", "first_window_share")
    copula = ("copula_same_region", "copula_other_region")
    scalars = {name: _scalar(process, name) for name in names + copula}
    return Drops(
        drops_per_day=parameter(process, "drops_per_day", instance.num_pools),
        nodes=caps // per_node,
        gpus_per_node=per_node,
        region=_regions(instance),
        **scalars,
    )
