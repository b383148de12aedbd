"""Draw random numbers in mirrored pairs, so that few paths have nearly the mean of many."""

from __future__ import annotations

import numpy as np


def mirrored_normals(rng: np.random.Generator, paths: int, *shape: int) -> np.ndarray:
    """Return standard normals, (paths, ...): path k and the k-th from the end have opposite numbers.

    Examples
    --------
    >>> drawn = mirrored_normals(np.random.default_rng(0), 3, 2)
    >>> bool((drawn[0] == -drawn[2]).all()), drawn[1].tolist()
    (True, [0.0, 0.0])
    """
    drawn = rng.standard_normal((paths, *shape))
    return (drawn - drawn[::-1]) * np.sqrt(0.5)


def strata(rng: np.random.Generator, paths: int, columns: int) -> np.ndarray:
    """Return uniform numbers, (paths, columns): one in each of `paths` equal parts of (0, 1), in a random order.

    Path k and the k-th from the end add up to one; an odd number of paths has one half in the middle.

    Examples
    --------
    >>> drawn = strata(np.random.default_rng(0), 4, 2)
    >>> np.sort((drawn * 4).astype(int), axis=0).tolist(), drawn[0] + drawn[3]
    ([[0, 0], [1, 1], [2, 2], [3, 3]], array([1., 1.]))
    """
    half, drawn = paths // 2, np.full((paths, columns), 0.5)
    for k in range(columns):
        low = (rng.permutation(half) + rng.random(half)) / paths
        drawn[:half, k] = np.where(rng.random(half) < 0.5, low, 1.0 - low)
    drawn[paths - half :] = 1.0 - drawn[:half][::-1]
    return drawn
