"""Sample the spot prices of each window from the parameters of a market.

The logarithm of a price returns to its mean. Pools of a region move together. Now and then a price jumps up, and stays
there for a while. There are no bids: AWS changed its mechanism in November 2017, and prices move more smoothly since
(Wolski, George, Krintz and Brevik, UCSB technical report 2018-02).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from fleetgym.model.dynamics.availability import BURN_IN_WINDOWS, regional_normals
from fleetgym.model.dynamics.demand import Jumps, autoregression


@dataclasses.dataclass(frozen=True, eq=False)
class PriceWalk:
    """Spot prices of several pools relative to their list prices; arrays have one number per pool."""

    ou_sd: np.ndarray  # of the log price
    ou_time_min: np.ndarray
    jumps_per_day: np.ndarray
    jump_log_mean: np.ndarray  # of upward jumps, exponential; below 1
    jump_hold_min: np.ndarray
    ceiling: np.ndarray  # of price / list price: what on-demand costs
    region: np.ndarray  # int64, index of the pool's region
    same_region: float  # correlation of the shocks
    other_region: float

    def draw(self, rng: np.random.Generator, windows: int, window_s: float) -> np.ndarray:
        """Draw price / list price.

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
        ndarray of float, shape (windows, pools)
            At most `ceiling`; without the ceiling their mean would be 1.
        """
        phi = np.exp(-window_s / 60.0 / self.ou_time_min)
        shocks = regional_normals(rng, windows, self.region, self.same_region, self.other_region)
        shocks[1:] *= np.sqrt(1.0 - phi * phi)
        log = autoregression(shocks * self.ou_sd, phi) + self._jumps(rng, windows, window_s)
        return np.minimum(np.exp(log - self.log_mean(window_s)), self.ceiling)

    def log_mean(self, window_s: float) -> np.ndarray:
        """Return the log of the mean price factor before it is normalised: shape (pools,)."""
        active = self.jumps_per_day * window_s / 86400.0 / self._stop(window_s)
        return 0.5 * self.ou_sd**2 + active * (1.0 / (1.0 - self.jump_log_mean) - 1.0)

    def _stop(self, window_s: float) -> np.ndarray:
        return np.minimum(1.0, window_s / 60.0 / self.jump_hold_min)

    def _jumps(self, rng: np.random.Generator, windows: int, window_s: float) -> np.ndarray:
        """Return the sum of the jumps that hold, (windows, pools); some began before the episode."""
        total, pools = BURN_IN_WINDOWS + windows, len(self.ou_sd)
        pool = np.repeat(np.arange(pools), rng.poisson(total * self.jumps_per_day * window_s / 86400.0))
        onset = rng.integers(0, total, len(pool))
        end = np.minimum(onset + rng.geometric(self._stop(window_s)[pool]), total)
        size = self.jump_log_mean[pool] * rng.standard_exponential(len(pool))
        return Jumps(pool, onset, end, size).total(total, pools)[BURN_IN_WINDOWS:]
