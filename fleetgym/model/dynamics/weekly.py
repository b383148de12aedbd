"""Compute the expected log of demand at a time of the week, from profiles of working days and weekends.

Each profile is a level and a few harmonics of the day. Around the midnights before Saturday and Monday one passes into
the other over half a day. Both were fitted to a measured week (`fleetgym/data/SOURCES-demand.md`).
"""

from __future__ import annotations

import dataclasses
import math
from typing import ClassVar

import numpy as np

from fleetgym.model.dynamics.demand import LevelProcess
from fleetgym.model.processes import PROFILE

WEEK_H = 168.0
HARMONICS = 4  # of the day: 24, 12, 8 and 6 hours
PASSAGE_H = 12.0  # from one profile to the other, centred at midnight
_TERMS = len(PROFILE) // 2  # parameters of one profile


def weekend_share(hour: np.ndarray) -> np.ndarray:
    """Return the weight of the weekend's profile at hours after Monday, 0:00; any shape.

    Examples
    --------
    >>> weekend_share(np.array([12.0, 117.0, 120.0, 144.0, 168.0])).round(3).tolist()
    [0.0, 0.146, 0.5, 1.0, 0.5]
    """
    from_saturday = np.mod(hour, WEEK_H) - 120.0
    middle = np.mod(from_saturday - 24.0 + 0.5 * WEEK_H, WEEK_H) - 0.5 * WEEK_H  # hours from Sunday, 0:00
    inside = np.clip(0.5 + (24.0 - np.abs(middle)) / PASSAGE_H, 0.0, 1.0)
    return 0.5 - 0.5 * np.cos(math.pi * inside)


def basis(hour: np.ndarray) -> np.ndarray:
    """Return what the parameters of `PROFILE` multiply: shape (len(PROFILE), *hour.shape).

    Parameters
    ----------
    hour : ndarray of float
        Hours after Monday, 0:00; any shape.
    """
    hour = np.asarray(hour, dtype=float)
    rows = [np.ones_like(hour)]
    for k in range(1, HARMONICS + 1):
        angle = (2.0 * math.pi * k / 24.0) * hour
        rows += [np.cos(angle), np.sin(angle)]
    day, weekend = np.stack(rows), weekend_share(hour)
    return np.concatenate([day * (1.0 - weekend), day * weekend])


def later(profile: np.ndarray, hours: np.ndarray) -> np.ndarray:
    """Return profiles whose days run some hours later; the weekend stays where it is.

    Parameters
    ----------
    profile : ndarray of float, shape (len(PROFILE), series)
        One profile of each series.
    hours : ndarray of float, shape (series,)
        How much later.
    """
    moved = np.array(profile, dtype=float)
    for first in (0, _TERMS):
        for k in range(1, HARMONICS + 1):
            cos, sin = profile[first + 2 * k - 1], profile[first + 2 * k]
            angle = (2.0 * math.pi * k / 24.0) * np.asarray(hours)
            moved[first + 2 * k - 1] = cos * np.cos(angle) - sin * np.sin(angle)
            moved[first + 2 * k] = cos * np.sin(angle) + sin * np.cos(angle)
    return moved


@dataclasses.dataclass(frozen=True, eq=False)
class WeeklyOU(LevelProcess):
    """Demand with a profile of working days and one of weekends, mean-reverting deviations, noise and jumps."""

    profile: np.ndarray  # (len(PROFILE), workloads) of log demand
    first_day: int  # in which window 0 begins at midnight; 0: Monday

    WEEK_S: ClassVar = 3600.0 * WEEK_H

    def daily(self, window: np.ndarray | int, window_s: float) -> np.ndarray:
        """Return the profile of log demand in windows (..., 1) or in one: shape (..., workloads)."""
        hour = 24.0 * self.first_day + np.asarray(window, dtype=float) * (window_s / 3600.0)
        total = np.zeros(np.broadcast_shapes(hour.shape, self.profile.shape[1:]))
        for weight, row in zip(self.profile, basis(hour), strict=True):
            total += weight * row  # element by element: no linear algebra library decides the last bit
        return total

    def daily_log_mean(self, window_s: float) -> np.ndarray:
        """Return the log of the mean of exp(profile) over a week: shape (workloads,)."""
        windows = max(1, round(self.WEEK_S / window_s))
        return np.log(np.exp(self.daily(np.arange(windows)[:, None], window_s)).mean(axis=0))
