"""A day of demand and what it is made of in, other demand of its windows out, as likely given what was known before.

*Known* in a window is what demand was made of up to then: jumps, and the noisy level. That is more than anybody sees,
who has counts only. The mean-reverting part of the level is not known; given the noisy one it is Gaussian, by an exact
Kalman filter over all workloads.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.special import ndtri

from fleetgym.files.errors import FleetgymError
from fleetgym.files.quantities import RATE_RPS
from fleetgym.model.dynamics.demand import Jumps, LevelProcess, draw_counts, geometric_random_walk
from fleetgym.model.dynamics.scenario import LEVEL_KINDS, level_process, parameter
from fleetgym.model.instance import Instance


class Redraws(Protocol):
    """Demand of one day, drawn anew window by window."""

    def draw(self, window: int, lag: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rates (K, I) of a window by its law given all up to `window - lag`, and their weights (K,)."""
        ...


class GaussianRedraws:
    """Demand of a process of `LEVEL_KINDS` or of the random walk ``grw``, drawn anew.

    Parameters
    ----------
    instance : Instance
        Its demand is of one of these kinds.
    day : numpy.random.Generator
        As it was before the day was drawn from it; it is used up in the same way.
    samples : int
        K, draws of a window.
    rng : numpy.random.Generator
        For the draws. They are spread evenly; each alone has the exact law.
    """

    def __init__(self, instance: Instance, day: np.random.Generator, samples: int, rng: np.random.Generator):
        process, count = instance.dynamics.demand, instance.num_workloads
        self.rng, self.samples, self.window_s = rng, samples, instance.window_s
        self.nominal = np.array([w.rate_rps for w in instance.workloads])
        self.dispersion = parameter(process, "dispersion", count)
        windows = instance.num_windows
        if process.kind == "grw":
            sigma, still = parameter(process, "sigma", count), np.zeros((windows, count))
            self.phi = np.ones(count)
            self.step = np.diag(sigma**2)
            self.start, self.noise = np.zeros((count, count)), np.zeros(count)
            self.level = geometric_random_walk(day, windows, sigma)
            self.base, self.jumps = still, None
        else:
            ou = level_process(process, count)
            self.phi = ou.phi(self.window_s)
            corr = (1.0 - ou.ou_common) * np.eye(count) + ou.ou_common
            scale = ou.ou_sd * np.sqrt(1.0 - self.phi**2)
            self.start, self.step = corr * np.outer(ou.ou_sd, ou.ou_sd), corr * np.outer(scale, scale)
            self.noise = ou.noise_sd**2
            parts = ou.draw(day, windows, self.window_s)
            self.level = parts.swing + parts.noise
            self.base = parts.daily - ou.log_mean(self.window_s)
            self.jumps = ou, parts.jumps
        self._filter()

    def _filter(self) -> None:
        """Keep mean and covariance of the mean-reverting part given the noisy levels up to each window."""
        phi, noise = np.diag(self.phi), np.diag(self.noise)
        mean, cov = np.zeros(self.phi.size), self.start
        self.means, self.covs = [], []
        for t, seen in enumerate(self.level):
            if t:
                mean, cov = self.phi * mean, phi @ cov @ phi + self.step
            gain = cov @ np.linalg.pinv(cov + noise, hermitian=True)
            mean, cov = mean + gain @ (seen - mean), cov - gain @ cov
            self.means.append(mean)
            self.covs.append(0.5 * (cov + cov.T))

    def draw(self, window: int, lag: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rates (K, I) of a window by its law given all up to `window - lag`, and their weights (K,)."""
        last = window - lag
        level = self._levels(window, last) + self.base[window]
        if self.jumps is not None:
            level += self._jump_totals(*self.jumps, window, last)
        with np.errstate(over="ignore"):
            mean = np.minimum(self.nominal * self.window_s * np.exp(level), RATE_RPS.maximum * self.window_s)
        rates = draw_counts(self.rng, mean, self.dispersion) / self.window_s
        return np.clip(rates, RATE_RPS.minimum, RATE_RPS.maximum), np.full(self.samples, 1.0 / self.samples)

    def _levels(self, window: int, last: int) -> np.ndarray:
        """Return noisy levels of a window without its jumps, (K, I)."""
        known = last >= 0
        mean, cov = (self.means[last], self.covs[last]) if known else (np.zeros(self.phi.size), self.start)
        for _ in range(window - max(last, 0)):
            mean, cov = self.phi * mean, cov * np.outer(self.phi, self.phi) + self.step
        values, vectors = np.linalg.eigh(cov + np.diag(self.noise))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return mean + self._normals(self.phi.size) @ root.T

    def _normals(self, columns: int) -> np.ndarray:
        """Return standard normals (K, columns), one in each of K equally likely intervals of every column."""
        rank = self.rng.permuted(np.tile(np.arange(self.samples), (columns, 1)), axis=1).T
        uniform = (rank + self.rng.random(rank.shape)) / self.samples
        return ndtri(np.clip(uniform, 1e-300, 1.0 - 1e-16))

    def _jump_totals(self, ou: LevelProcess, jumps: Jumps, window: int, last: int) -> np.ndarray:
        """Return the sums of jumps that hold in a window, (K, I): of known ones, if they still do, and of new ones."""
        total = np.zeros((self.samples, self.phi.size))
        stop, onset = ou.return_probability(self.window_s), ou.onset_probability(self.window_s)
        if last >= 0:
            held = (jumps.onset <= last) & (last < jumps.end)
            workload, size = jumps.workload[held], jumps.size[held]
            stays = self.rng.random((self.samples, size.size)) < (1.0 - stop[workload]) ** (window - last)
            np.add.at(total.T, workload, (stays * size).T)
            new = sum(onset * (1.0 - stop) ** k for k in range(window - last))
        else:
            new = sum(onset * (1.0 - stop) ** k for k in range(window + 1))
            new = new + ou.held_before(self.window_s) * (1.0 - stop) ** window
        begun = self.rng.poisson(new, total.shape)
        draw, workload = (np.repeat(at, begun.ravel()) for at in np.indices(begun.shape).reshape(2, -1))
        np.add.at(total, (draw, workload), ou.jump_sizes(self.rng, workload))
        return total


def redraws_of(
    instance: Instance, day: np.random.Generator, samples: int, rng: np.random.Generator
) -> Redraws:
    """Return the redraws of the day that `day` brings.

    Raises
    ------
    FleetgymError
        If the law of the instance's demand is not known.
    """
    kind = instance.dynamics.demand.kind
    if kind not in (*LEVEL_KINDS, "grw"):
        raise FleetgymError(
            f"{instance.id}: demand of kind {kind!r} has no law with parameters; "
            f"expected one of {', '.join((*LEVEL_KINDS, 'grw'))} (`hindsight_bound` bounds this one)"
        )
    return GaussianRedraws(instance, day, samples, rng)
