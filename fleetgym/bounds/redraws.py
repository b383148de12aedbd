"""Redraw demand and drops of the windows of a day, given what was known before each.

*Known* of demand in a window is what it was made of up to then: jumps, and the noisy level. That is more than anybody
sees, who has counts only. The mean-reverting part of the level is not known; given the noisy one it is Gaussian, by an
exact Kalman filter over all workloads. *Known* of drops is when those end that have begun: more than anybody sees.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
from scipy.special import ndtri

from fleetgym.files.errors import FleetgymError
from fleetgym.files.quantities import RATE_RPS
from fleetgym.model.dynamics.availability import MOST_ALIKE, Drops, LostNodes
from fleetgym.model.dynamics.demand import Jumps, LevelProcess, draw_counts, geometric_random_walk
from fleetgym.model.dynamics.scenario import LEVEL_KINDS, drops_of, level_process, parameter
from fleetgym.model.instance import Instance


class Drawn(NamedTuple):
    """Demand and availability of a window, drawn anew K times."""

    rate_rps: np.ndarray  # (K, I)
    weights: np.ndarray  # (K,) in all one
    available_gpus: np.ndarray | None = None  # (K, G); None as it came


class Redraws(Protocol):
    """Demand and drops of one day, drawn anew window by window."""

    def draw(self, window: int, lag: int) -> Drawn:
        """Return a window by its law, given demand up to `window - lag` and drops up to the window before."""
        ...


class RedrawnDrops:
    """Drops of one day, drawn anew window by window.

    Parameters
    ----------
    drops : Drops
    lost : LostNodes
        Of the day.
    window_s : float
        Length of a window in seconds.
    rng : numpy.random.Generator
        For the draws.
    """

    def __init__(self, drops: Drops, lost: LostNodes, window_s: float, rng: np.random.Generator):
        self.drops, self.lost, self.window_s, self.rng = drops, lost, window_s, rng

    def draw(self, window: int) -> tuple[np.ndarray, np.ndarray | None, float]:
        """Return what is available if no drop begins, what is if some do (or None), and how likely that is."""
        going_on = self.lost.going_on[window]
        whole = tuple(bool(still) for still in going_on == 0)
        chance = self.drops.chance_to_begin(whole, self.window_s)
        same = self.drops.gpus_without(going_on)
        if chance < NEVER:
            return same, None, 0.0
        begun = self.drops.begin(self.rng, np.array(whole), self.window_s)
        return same, self.drops.gpus_without(going_on + begun), chance


#: Drops that are less likely are not drawn: a window without them costs less.
NEVER = 1e-9


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
    drops : RedrawnDrops, optional
        Of the day; without them availability stays as it came.
    """

    def __init__(
        self,
        instance: Instance,
        day: np.random.Generator,
        samples: int,
        rng: np.random.Generator,
        drops: RedrawnDrops | None = None,
    ):
        self.drops = drops
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

    def draw(self, window: int, lag: int) -> Drawn:
        """Return a window by its law, given demand up to `window - lag` and drops up to the window before.

        No drop begins in the first K draws. If one may, another draw has drops that begin, and one of the K demands.
        """
        rates, weights = self._rates(window, lag), np.full(self.samples, 1.0 / self.samples)
        if self.drops is None or window == 0:
            return Drawn(rates, weights)
        same, fewer, chance = self.drops.draw(window)
        if fewer is None:
            return Drawn(rates, weights, np.tile(same, (self.samples, 1)))
        again = rates[int(self.drops.rng.integers(self.samples))]
        return Drawn(
            np.vstack([rates, again]),
            np.append((1.0 - chance) * weights, chance),
            np.vstack([np.tile(same, (self.samples, 1)), fewer]),
        )

    def _rates(self, window: int, lag: int) -> np.ndarray:
        last = window - lag
        level = self._levels(window, last) + self.base[window]
        if self.jumps is not None:
            level += self._jump_totals(*self.jumps, window, last)
        with np.errstate(over="ignore"):
            mean = np.minimum(self.nominal * self.window_s * np.exp(level), RATE_RPS.maximum * self.window_s)
        rates = draw_counts(self.rng, mean, self.dispersion) / self.window_s
        clipped: np.ndarray = np.clip(rates, RATE_RPS.minimum, RATE_RPS.maximum)
        return clipped

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
    instance: Instance,
    day: np.random.Generator,
    samples: int,
    rng: np.random.Generator,
    lost: LostNodes | None = None,
) -> Redraws:
    """Return the redraws of the day that `day` brings; with what it has `lost`, drops are drawn anew, too.

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
    drops = (
        None if lost is None else RedrawnDrops(drops_of(instance), lost, instance.window_s, rng.spawn(1)[0])
    )
    return GaussianRedraws(instance, day, samples, rng, drops)


def drops_are_redrawn(instance: Instance) -> bool:
    """Return whether a window's drops are news to everybody, and their law can be integrated.

    Where a configuration starts at once, a fleet may change in the window of the drop. Where a pool warns, its drop is
    known before.
    """
    availability = instance.dynamics.availability
    if availability.kind != "drops" or any(c.startup_windows == 0 for c in instance.configurations):
        return False
    return bool(parameter(availability, "copula_same_region", 1)[0] <= MOST_ALIKE)
