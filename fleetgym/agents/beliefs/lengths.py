"""Sample token lengths and performance factors."""

from __future__ import annotations

import numpy as np

from fleetgym.agents.beliefs.draws import mirrored_normals
from fleetgym.model.dynamics.scenario import parameter
from fleetgym.model.instance import Instance


class LengthsBelief:
    """Track token lengths: ``drift``, an observed mean-reverting log scale, or ``constant``.

    Parameters
    ----------
    instance : Instance
    """

    def __init__(self, instance: Instance):
        process, count = instance.dynamics.tokens, 2 * instance.num_workloads
        self.sd, self.phi = np.zeros(count), np.zeros(count)
        if process.kind == "drift":
            self.sd = np.tile(parameter(process, "log_sd", instance.num_workloads), 2)
            time_min = np.tile(parameter(process, "time_min", instance.num_workloads), 2)
            self.phi = np.exp(-instance.window_s / 60.0 / time_min)
        self.level, self.spread = np.zeros(count), self.sd  # before anything is seen: the stationary law

    def update(self, scales: np.ndarray) -> None:
        """Take in the scales of input and output lengths, (2, I), of one more window."""
        self.level = np.log(np.maximum(scales.ravel(), 1e-12)) + 0.5 * self.sd**2
        self.spread = np.zeros_like(self.sd)

    def sample(self, paths: int, windows: int, rng: np.random.Generator) -> np.ndarray:
        """Return scales of the windows that follow, (paths, windows, 2, I)."""
        shocks = mirrored_normals(rng, paths, windows, self.sd.size)
        spread = np.sqrt(self.phi**2 * self.spread**2 + self.sd**2 * (1.0 - self.phi**2))
        levels = np.empty(shocks.shape)
        level = self.phi * self.level
        for t in range(windows):
            level = level + spread * shocks[:, t]
            levels[:, t] = level
            level, spread = self.phi * level, self.sd * np.sqrt(1.0 - self.phi**2)
        return np.exp(levels - 0.5 * self.sd**2).reshape(paths, windows, 2, -1)


class FactorsBelief:
    """Factors on delays and errors: ``lognormal`` ones are independent in each window; or they are ``constant``."""

    def __init__(self, instance: Instance):
        process, count = instance.dynamics.factors, instance.num_workloads
        self.sd = np.zeros((2, count))
        if process.kind == "lognormal":
            self.sd = np.array([parameter(process, name, count) for name in ("delay_sd", "error_sd")])

    def sample(self, paths: int, windows: int, rng: np.random.Generator) -> np.ndarray:
        """Return factors of the windows that follow, (paths, windows, 2, I)."""
        return np.exp(self.sd * mirrored_normals(rng, paths, windows, *self.sd.shape) - 0.5 * self.sd**2)
