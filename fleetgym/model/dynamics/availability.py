"""Sample the GPUs available in each window from drop statistics of spot GPUs.

A pool is either whole or in a drop. Drops start at random windows, take nearly all nodes, most of them at
once, and last a lognormal time; a Gaussian copula makes pools drop together, more so within a region.
Calibration: `fleetgym/data/SOURCES-demand.md`; the copula's parameters are fitted so that simulated availability
correlates as measured (`fleetgym/data/SOURCES-demand.md`).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from fleetgym.files.errors import FleetgymError

#: Windows that are simulated before the episode, so that it may begin in the middle of a drop.
BURN_IN_WINDOWS = 288

#: Correlation of two pools of a region up to which the chance that a drop begins is integrated.
MOST_ALIKE = 0.99

_QUANTILES = 4096
_BATCH = 512
_GRID = np.linspace(-9.0, 9.0, 721)
_DENSITY = np.exp(-0.5 * _GRID**2) * (_GRID[1] - _GRID[0]) / math.sqrt(2.0 * math.pi)


class LostNodes(NamedTuple):
    """Nodes that pools have lost in each window, int64 (windows, pools) each; 0 where a pool is whole."""

    beginning: np.ndarray  # to drops that begin in the window
    going_on: np.ndarray  # to drops that began before


@dataclasses.dataclass(frozen=True)
class Drops:
    """Semi-Markov drops of several pools: parameters in minutes, shares and drops per day."""

    drops_per_day: np.ndarray  # (pools,) 0 where a pool never drops
    nodes: np.ndarray  # (pools,) int64, nodes of a whole pool
    gpus_per_node: np.ndarray  # (pools,) int64
    region: np.ndarray  # (pools,) int64, index of the pool's region
    depth_a: float  # share of the nodes lost: Beta(a, b)
    depth_b: float
    duration_log_mean_min: float
    duration_log_sd: float
    first_window_share: float  # of the loss, strikes in the first window; the rest follows in the second
    copula_same_region: float
    copula_other_region: float

    def draw(self, rng: np.random.Generator, windows: int, window_s: float) -> np.ndarray:
        """Draw the GPUs that are available.

        Parameters
        ----------
        rng : numpy.random.Generator
            Source of randomness.
        windows : int
            Length.
        window_s : float
            Length of a window in seconds.

        Returns
        -------
        ndarray of int64, shape (windows, pools)
            Whole multiples of the GPUs per node.
        """
        parts = self.parts(rng, windows, window_s)
        return self.gpus_without(parts.beginning + parts.going_on)

    def parts(self, rng: np.random.Generator, windows: int, window_s: float) -> LostNodes:
        """Draw the nodes that are lost; parameters are those of `draw`."""
        total = BURN_IN_WINDOWS + windows
        latent = self.normals(rng, total)
        starts, pools = np.nonzero(latent < self.threshold(window_s))
        # One more set of normals, for the windows with a candidate only: pools that drop together last alike.
        rows, row = np.unique(starts, return_inverse=True)
        durations = self.durations(self.normals(rng, len(rows))[row, pools], window_s)
        depths = rng.beta(self.depth_a, self.depth_b, len(starts))
        dice = rng.random(len(starts))
        beginning, going_on = np.zeros((2, total, len(self.nodes)), dtype=np.int64)
        up_again = [0] * len(self.nodes)
        columns = (starts, pools, durations, depths, dice)
        for start, pool, duration, depth, die in zip(*(c.tolist() for c in columns), strict=True):
            if start < up_again[pool]:
                continue  # the pool is in a drop already
            up_again[pool] = start + duration
            nodes = max(1, round(depth * float(self.nodes[pool])))
            going_on[start + 1 : start + duration, pool] = nodes
            beginning[start, pool] = self._lost_at_once(nodes, die)
        return LostNodes(beginning[BURN_IN_WINDOWS:], going_on[BURN_IN_WINDOWS:])

    def _lost_at_once(self, nodes: int, die: float) -> int:
        """Return what the first window of a drop takes; random rounding keeps the mean where a pool has few nodes."""
        return max(1, int(self.first_window_share * nodes + die))

    def gpus_without(self, lost: np.ndarray) -> np.ndarray:
        """Return the GPUs that are left; a pool without nodes has none to lose.

        Parameters
        ----------
        lost : ndarray of int64, shape (..., pools)
            Nodes.

        Returns
        -------
        ndarray of int64, shape (..., pools)
        """
        left: np.ndarray = (self.nodes - np.minimum(lost, self.nodes)) * self.gpus_per_node
        return left

    def chance_to_begin(self, whole: tuple[bool, ...], window_s: float) -> float:
        """Return how likely at least one of the pools that are `whole` begins to drop in a window.

        Given the normals of the regions pools drop apart, so it is an integral over these. The trapezoidal rule is
        exact to round-off here, for the integrand is smooth as long as pools of a region are not alike.

        Raises
        ------
        FleetgymError
            If `copula_same_region` is above `MOST_ALIKE`.
        """
        if self.copula_same_region > MOST_ALIKE:
            raise FleetgymError(
                f"copula_same_region is {self.copula_same_region}; expected at most {MOST_ALIKE} to integrate"
            )
        some = np.flatnonzero(whole)
        return _chance_to_begin(
            tuple(self.threshold(window_s)[some].tolist()),
            tuple(self.region[some].tolist()),
            self.copula_same_region,
            self.copula_other_region,
        )

    def begin(self, rng: np.random.Generator, whole: np.ndarray, window_s: float) -> np.ndarray:
        """Draw which of the pools that are `whole` begin to drop in a window, given that some do: nodes lost, (pools,).

        The chance of that, see `chance_to_begin`, decides how long this takes.
        """
        thresholds = np.where(whole, self.threshold(window_s), -np.inf)
        while True:
            begins = self.normals(rng, _BATCH) < thresholds
            some = np.flatnonzero(begins.any(axis=1))
            if some.size:
                break
        lost = np.zeros(whole.size, dtype=np.int64)
        for pool in np.flatnonzero(begins[some[0]]):
            nodes = max(1, round(rng.beta(self.depth_a, self.depth_b) * float(self.nodes[pool])))
            lost[pool] = self._lost_at_once(nodes, rng.random())
        return lost

    def normals(self, rng: np.random.Generator, rows: int) -> np.ndarray:
        """Draw standard normals that correlate by region: shape (rows, pools)."""
        same, other = self.copula_same_region, self.copula_other_region
        return regional_normals(rng, rows, self.region, same, other)

    def threshold(self, window_s: float) -> np.ndarray:
        """Return the normal quantile below which a pool that is whole starts to drop: shape (pools,)."""
        mean = mean_duration_windows(self.duration_log_mean_min, self.duration_log_sd, window_s)
        per_day = 86400.0 / window_s
        return np.array([_threshold(float(rate), per_day, mean) for rate in self.drops_per_day])

    def durations(self, normals: np.ndarray, window_s: float) -> np.ndarray:
        """Return lengths of drops in windows, int64, by their normal quantiles; any shape."""
        minutes = np.exp(self.duration_log_mean_min + self.duration_log_sd * normals)
        return np.clip(np.rint(minutes * 60.0 / window_s), 1, 2**40).astype(np.int64)


def regional_normals(
    rng: np.random.Generator, rows: int, region: np.ndarray, same: float, other: float
) -> np.ndarray:
    """Draw standard normals of pools that correlate by region: shape (rows, pools).

    Parameters
    ----------
    rng : numpy.random.Generator
        Source of randomness.
    rows : int
        How many draws.
    region : ndarray of int64, shape (pools,)
        Index of each pool's region.
    same, other : float
        Correlation of two pools of one region, and of two regions; other <= same.
    """
    regions = int(region.max()) + 1
    draws = rng.standard_normal((rows, 1 + regions + len(region)))
    return (
        math.sqrt(other) * draws[:, :1]
        + math.sqrt(same - other) * draws[:, 1 + region]
        + math.sqrt(1.0 - same) * draws[:, 1 + regions :]
    )


@functools.lru_cache(maxsize=256)
def _threshold(drops_per_day: float, windows_per_day: float, mean_duration: float) -> float:
    if drops_per_day <= 0.0:
        return -math.inf
    # A cycle is the geometric number of windows before a drop, plus the drop: 1/h - 1 + duration.
    hazard = 1.0 / max(windows_per_day / drops_per_day - mean_duration + 1.0, 1.0 + 1e-9)
    return NormalDist().inv_cdf(hazard)


@functools.lru_cache(maxsize=1024)
def _chance_to_begin(
    thresholds: tuple[float, ...], regions: tuple[int, ...], same: float, other: float
) -> float:
    from scipy.special import ndtr  # to import the library stays light

    none = np.ones(_GRID.size)
    for region in sorted(set(regions)):
        stays = np.ones((_GRID.size, _GRID.size))  # by the normal of all regions, and of this one
        for threshold in (t for t, r in zip(thresholds, regions, strict=True) if r == region):
            common = math.sqrt(other) * _GRID[:, None] + math.sqrt(same - other) * _GRID
            stays *= ndtr((common - threshold) / math.sqrt(1.0 - same))
        none *= stays @ _DENSITY
    return float(1.0 - none @ _DENSITY)


@functools.lru_cache(maxsize=64)
def mean_duration_windows(log_mean_min: float, log_sd: float, window_s: float) -> float:
    """Return the mean length of a drop in whole windows.

    Parameters
    ----------
    log_mean_min, log_sd : float
        Parameters of the lognormal duration in minutes.
    window_s : float
        Length of a window in seconds.

    Returns
    -------
    float
        Mean over the duration's quantiles of the rounded length, at least 1.

    Examples
    --------
    >>> mean_duration_windows(math.log(10.0), 0.0, 300.0)
    2.0
    """
    normal = NormalDist()
    total = 0.0
    for k in range(_QUANTILES):
        minutes = math.exp(log_mean_min + log_sd * normal.inv_cdf((k + 0.5) / _QUANTILES))
        total += max(1, round(minutes * 60.0 / window_s))
    return total / _QUANTILES
