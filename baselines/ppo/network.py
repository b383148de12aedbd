"""Evaluate the policy's network in NumPy: two numbers per workload from its features.

Every workload goes through the same two layers. What the others look like reaches it through the mean of all workloads'
first layer. Nothing depends on how many workloads there are.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from fleetgym import FleetgymError
from fleetgym.learning import read_arrays

#: Names and shapes of the weights, for F features, H hidden units and S numbers.
SHAPES = {
    "shift": "F",
    "scale": "F",
    "embed.weight": "HF",
    "embed.bias": "H",
    "actor.0.weight": "HD",
    "actor.0.bias": "H",
    "actor.2.weight": "SH",
    "actor.2.bias": "S",
}


def workload_scores(weights: Mapping[str, np.ndarray], features: np.ndarray) -> np.ndarray:
    """Return S numbers for every workload.

    Parameters
    ----------
    weights : mapping
        Arrays as named in `SHAPES`; D is twice H.
    features : ndarray, shape (I, F)
        From `fleetgym.agents.margins.Margins`.

    Returns
    -------
    ndarray, shape (I, S)
    """
    rows = (features - weights["shift"]) * weights["scale"]
    embedded = np.tanh(rows @ weights["embed.weight"].T + weights["embed.bias"])
    pooled = np.broadcast_to(embedded.mean(axis=0), embedded.shape)
    hidden = np.concatenate((embedded, pooled), axis=1) @ weights["actor.0.weight"].T
    hidden = np.tanh(hidden + weights["actor.0.bias"])
    return hidden @ weights["actor.2.weight"].T + weights["actor.2.bias"]


def load_weights(path: str | os.PathLike[str], num_features: int, num_numbers: int) -> dict[str, np.ndarray]:
    """Read weights that `fleetgym.baselines.ppo.train` wrote.

    Parameters
    ----------
    path : path-like
        An ``.npz`` file.
    num_features, num_numbers : int
        What the caller feeds and expects.

    Raises
    ------
    FleetgymError
        If the file is no such archive, or its arrays do not fit.
    """
    weights = read_arrays(path, SHAPES)
    hidden = weights["embed.bias"].size
    sizes = {"F": num_features, "H": hidden, "D": 2 * hidden, "S": num_numbers}
    for name, letters in SHAPES.items():
        expected = tuple(sizes[letter] for letter in letters)
        if weights[name].shape != expected or not np.all(np.isfinite(weights[name])):
            raise FleetgymError(
                f"{os.fspath(path)}: {name} must be finite and of shape {expected}, got {weights[name].shape}"
            )
    return weights
