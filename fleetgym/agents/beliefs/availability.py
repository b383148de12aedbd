"""Sample availability: how long a drop that has begun still lasts, and which pools drop next."""

from __future__ import annotations

import numpy as np

from fleetgym.model.dynamics.scenario import drops_of
from fleetgym.model.instance import Instance


class ConstantAvailability:
    """Predict that the GPUs seen last stay available."""

    def __init__(self, instance: Instance):
        self.available = np.array([pool.cap_gpus for pool in instance.pools], dtype=np.int64)

    def update(self, available_gpus: np.ndarray) -> None:
        """Take in the GPUs (G,) of one more window."""
        self.available = np.array(available_gpus, dtype=np.int64)

    def sample(self, paths: int, windows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return GPUs, int64 (paths, windows, G), and the paths' weights, (paths,)."""
        still = np.broadcast_to(self.available, (paths, windows, self.available.size))
        return still.copy(), np.full(paths, 1.0 / paths)


class DropsBelief:
    """Track ``drops`` from the GPUs that were available.

    A current drop lasts for the rest of a lognormal time, given its age. New drops begin as in the process, alike in
    pools that drop together. A few paths would rarely contain a drop, so a third of them do, with less weight.

    Parameters
    ----------
    instance : Instance
        Its availability is of this kind.
    """

    SHARE = 1.0 / 3.0  # of the paths that hold a new drop, where that is seldom
    TRIES = 16  # paths that are drawn for each that is kept
    LONGEST = 2000  # windows of a drop

    def __init__(self, instance: Instance):
        self.drops, self.window_s = drops_of(instance), instance.window_s
        self.caps = self.drops.nodes * self.drops.gpus_per_node
        self.threshold = self.drops.threshold(self.window_s)
        quantiles = np.random.default_rng(0).standard_normal(20_000)
        self.lengths = np.sort(np.minimum(self.drops.durations(quantiles, self.window_s), self.LONGEST))
        self.available = self.caps.copy()
        self.age = np.zeros(self.caps.size, dtype=np.int64)  # windows for which a pool is in a drop

    def update(self, available_gpus: np.ndarray) -> None:
        """Take in the GPUs (G,) of one more window."""
        down = available_gpus < self.caps
        is_new = (self.age > 1) & (available_gpus != self.available)  # one drop followed upon another
        self.age = np.where(down, np.where(is_new, 1, self.age + 1), 0)
        self.available = np.array(available_gpus, dtype=np.int64)

    def sample(self, paths: int, windows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return GPUs, int64 (paths, windows, G), and the paths' weights, (paths,)."""
        drawn, is_new = self._drawn(paths * self.TRIES, windows, rng)
        rare, usual = np.flatnonzero(is_new), np.flatnonzero(~is_new)
        share = rare.size / len(drawn)
        if rare.size == 0 or share >= self.SHARE or paths < 3:
            return drawn[:paths], np.full(paths, 1.0 / paths)
        few = max(1, round(self.SHARE * paths))
        picked = np.concatenate((usual[: paths - few], np.resize(rare, few)))
        weight = np.concatenate(
            (np.full(paths - few, (1 - share) / (paths - few)), np.full(few, share / few))
        )
        order = rng.permutation(paths)
        return drawn[picked[order]], weight[order]

    def _drawn(self, paths: int, windows: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return GPUs of paths, and whether a pool begins to drop in each."""
        drops, pools = self.drops, self.caps.size
        latent = drops.normals(rng, paths * windows).reshape(paths, windows, pools)
        durations = drops.durations(drops.normals(rng, paths * windows), self.window_s).reshape(latent.shape)
        depths = np.maximum(1, np.rint(rng.beta(drops.depth_a, drops.depth_b, latent.shape) * drops.nodes))
        lost = np.zeros(latent.shape, dtype=np.int64)
        left, deep = self._under_way(paths, rng)
        is_new = np.zeros(paths, dtype=bool)
        for t in range(windows):
            begins = (left <= 0) & (latent[:, t] < self.threshold)
            is_new |= begins.any(axis=1)
            left = np.where(begins, durations[:, t], left)
            deep = np.where(begins, depths[:, t], deep)
            first = np.maximum(1, (drops.first_window_share * deep + rng.random(deep.shape)).astype(np.int64))
            lost[:, t] = np.where(left > 0, np.where(begins, first, deep), 0)
            left = left - 1
        lost = np.minimum(lost, drops.nodes)
        return (drops.nodes - lost) * drops.gpus_per_node, is_new

    def _under_way(self, paths: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return for how many windows the drops under way last, and how many nodes they take, (paths, G)."""
        left = np.zeros((paths, self.caps.size), dtype=np.int64)
        gone = (self.caps - self.available) // self.drops.gpus_per_node
        deep = np.broadcast_to(gone, left.shape).copy()
        for g in np.flatnonzero(self.age):
            longer = np.searchsorted(self.lengths, self.age[g])  # those that may be the one under way
            picks = longer + (rng.permutation(paths) + rng.random(paths)) / paths * (
                self.lengths.size - longer
            )
            lengths = self.lengths[np.minimum(picks.astype(int), self.lengths.size - 1)]
            left[:, g] = lengths - self.age[g]
            if self.age[g] == 1:  # its first window takes a share of what it takes afterwards
                whole = np.rint(gone[g] / max(self.drops.first_window_share, 1e-9))
                deep[:, g] = np.minimum(np.maximum(gone[g], whole), self.drops.nodes[g])
        return left, deep
