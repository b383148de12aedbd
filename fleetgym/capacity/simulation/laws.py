"""Draw service-time factors of mean one with a given squared coefficient of variation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from fleetgym.files.errors import FleetgymError, UnknownNameError

_Draw = Callable[[np.random.Generator, int, float], np.ndarray]


def _gamma(rng: np.random.Generator, n: int, cv2: float) -> np.ndarray:
    return rng.standard_exponential(n) if cv2 == 1.0 else rng.gamma(1.0 / cv2, cv2, n)


def _lognormal(rng: np.random.Generator, n: int, cv2: float) -> np.ndarray:
    log_variance = math.log1p(cv2)
    return rng.lognormal(-0.5 * log_variance, math.sqrt(log_variance), n)


def _hyperexponential(rng: np.random.Generator, n: int, cv2: float) -> np.ndarray:
    """Two exponentials, each with half of the work (balanced means)."""
    if cv2 < 1.0:
        raise FleetgymError(f"a hyperexponential law has a cv2 of at least 1, got {cv2}")
    short = 0.5 * (1.0 + math.sqrt((cv2 - 1.0) / (cv2 + 1.0)))
    mean = np.where(rng.random(n) < short, 0.5 / short, 0.5 / (1.0 - short))
    return mean * rng.standard_exponential(n)


def _pareto(rng: np.random.Generator, n: int, cv2: float) -> np.ndarray:
    """Pareto with the tail index that gives the cv2; above cv2 = 1/3 its third moment is infinite."""
    index = 1.0 + math.sqrt(1.0 + 1.0 / cv2)
    return (rng.pareto(index, n) + 1.0) * (index - 1.0) / index


#: Laws by name. A cv2 of 0 is a constant under each of them; gamma with a cv2 of 1 is exponential.
LAWS: Mapping[str, _Draw] = {
    "gamma": _gamma,
    "lognormal": _lognormal,
    "hyperexponential": _hyperexponential,
    "pareto": _pareto,
}


def check_law(name: str) -> None:
    """Raise `UnknownNameError` if there is no law of this name."""
    if name not in LAWS:
        raise UnknownNameError("service law", name, LAWS)


def unit_draws(name: str, rng: np.random.Generator, n: int, cv2: float) -> np.ndarray:
    """Return n independent factors of mean 1.

    Parameters
    ----------
    name : str
        One of `LAWS`.
    rng : Generator
        Source of randomness.
    n : int
        How many.
    cv2 : float
        Squared coefficient of variation.

    Returns
    -------
    ndarray, shape (n,)

    Examples
    --------
    >>> for name in LAWS:
    ...     x = unit_draws(name, np.random.default_rng(0), 400_000, 1.5)
    ...     assert abs(x.mean() - 1.0) < 0.01 and (name == "pareto" or abs(x.var() - 1.5) < 0.1)
    """
    check_law(name)
    return np.ones(n) if cv2 == 0.0 else LAWS[name](rng, n, cv2)
