"""Fit an instance's law of demand to its history, as whoever runs a fleet would: days come from another.

The family's generator is public, and the numbers that it drew for one instance are not. So it is asked for many
histories with numbers of their own. A linear regression of the numbers on what these histories look like then gives the
number to expect where a history looks as the instance's does (Beaumont, Zhang and Balding 2002, *Approximate Bayesian
computation in population genetics*, section 2).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from fleetgym.families.demand import DemandPlan, history_rps
from fleetgym.model.dynamics.weekly import basis
from fleetgym.model.instance import Instance
from fleetgym.model.processes import PROFILE, Dynamics, Process

#: Histories that the generator is asked for.
DRAWS = 300
#: Parameters that are positive and differ by factors: their logarithms are regressed.
_FACTORS = ("ou_sd", "ou_time_min", "noise_sd", "dispersion")
_FITTED = (*PROFILE, *_FACTORS, "jumps_per_day", "jump_log_mean", "jump_hold_min")
_LAGS = (1, 2, 3, 6, 12, 24, 48, 96)  # windows
_RIDGE = 1e-3
_DIGITS = 4


def public_part(
    instance: Instance, draw: Callable[[np.random.Generator], DemandPlan], **known: Process
) -> Instance:
    """Return an instance whose processes are what its history and the family tell, and no more.

    Parameters
    ----------
    instance : Instance
        With the law that draws its days. Its demand is ``weekly-ou``, its history whole weeks.
    draw : callable
        ``draw(rng)`` returns demand of the family, with numbers of its own, for the same workloads.
    **known : Process
        What the family tells of other processes, in place of the instance's: ``availability``, ``prices``.

    Returns
    -------
    Instance
        With ``law = "fitted"``. All else is the same, and it depends on nothing that is not public.
    """
    rng = np.random.default_rng(0)
    rates = instance.history.rate_rps
    nominal = rates.mean(axis=0)
    first_day = instance.dynamics.demand.parameters["first_day"]
    looks, numbers, drifts = [], [], []
    for _ in range(DRAWS):
        plan = draw(rng)
        parameters = plan.process["parameters"]
        looks.append(_look(history_rps(plan, rng, nominal), instance.window_s, parameters["first_day"]))
        numbers.append(np.array([np.broadcast_to(parameters[name], nominal.shape) for name in _FITTED]))
        drifts.append(plan.tokens["parameters"]["log_sd"])
    own = _look(rates, instance.window_s, float(np.ravel(first_day)[0]))
    expected = _regressed(np.array(looks), np.array(numbers), own)
    told = {name: tuple(np.round(row, _DIGITS).tolist()) for name, row in zip(_FITTED, expected, strict=True)}
    demand: dict[str, Any] = {**instance.dynamics.demand.parameters, **told}
    tokens = instance.dynamics.tokens.parameters
    dynamics = Dynamics(
        demand=Process(kind="weekly-ou", parameters=demand),
        tokens=Process(kind="drift", parameters={**tokens, "log_sd": round(float(np.mean(drifts)), _DIGITS)}),
        factors=instance.dynamics.factors,
        availability=known.get("availability", instance.dynamics.availability),
        prices=known.get("prices", instance.dynamics.prices),
    )
    return instance.replace(dynamics=dynamics, law="fitted")


def _look(rate_rps: np.ndarray, window_s: float, first_day: float) -> np.ndarray:
    """Return what a history looks like, (I, numbers): its profile, and how far it moves over which time."""
    counts = rate_rps * window_s
    logs = np.log(counts + 0.5) - np.log(counts.mean(axis=0) + 0.5)
    terms, inverse = _terms(len(logs), window_s, first_day)
    profile = inverse @ logs
    rest = logs - terms @ profile
    moves = [np.log(0.5 * np.mean((rest[lag:] - rest[:-lag]) ** 2, axis=0) + 1e-6) for lag in _LAGS]
    smooth = np.median([rest[:-4], rest[1:-3], rest[2:-2], rest[3:-1], rest[4:]], axis=0)
    steps = np.abs(smooth[6:] - smooth[:-6])
    jumps = [np.log(np.quantile(steps, share, axis=0) + 1e-3) for share in (0.9, 0.99, 0.999)]
    return np.vstack([profile, moves, jumps, np.mean(steps > 0.4, axis=0)]).T


@functools.lru_cache(maxsize=16)
def _terms(windows: int, window_s: float, first_day: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the terms of profiles in each window, (windows, terms), and what fits them by least squares."""
    terms = basis(24.0 * first_day + np.arange(windows) * (window_s / 3600.0)).T
    return terms, np.linalg.pinv(terms)


def _regressed(looks: np.ndarray, numbers: np.ndarray, own: np.ndarray) -> np.ndarray:
    """Return the numbers to expect, (numbers, I), where a history has the look `own`; none is beyond what was drawn.

    Looks are (draws, I, looks), numbers (draws, numbers, I).
    """
    logs = np.isin(_FITTED, _FACTORS)
    expected = np.empty(numbers.shape[1:])
    for i in range(own.shape[0]):
        targets = numbers[:, :, i].copy()
        least, most = targets.min(axis=0), targets.max(axis=0)
        targets[:, logs] = np.log(targets[:, logs])
        mean, scale = looks[:, i].mean(axis=0), looks[:, i].std(axis=0) + 1e-9
        features = (looks[:, i] - mean) / scale
        gram = features.T @ features + _RIDGE * len(features) * np.eye(features.shape[1])
        weights = np.linalg.solve(gram, features.T @ (targets - targets.mean(axis=0)))
        found = targets.mean(axis=0) + ((own[i] - mean) / scale) @ weights
        found[logs] = np.exp(found[logs])
        expected[:, i] = np.clip(found, least, most)
    return expected
