"""Play `ppo`: a trained network chooses two margins per workload, and the packer of `margin` the replicas.

It was trained on generated instances (`docs/ppo.md`), never on those of the standard sets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fleetgym import View
from fleetgym.learning import FEATURES, Margins, margins_of

from .network import load_weights, workload_scores

WEIGHTS = Path(__file__).with_name("weights.npz")


class PPOAgent:
    """Two margins per workload, by a small network that PPO trained on generated instances.

    Parameters
    ----------
    weights : path-like, optional
        An ``.npz`` file from `fleetgym.baselines.ppo.train`; by default the one that ships.

    Raises
    ------
    FleetgymError
        If the weights cannot be read.
    """

    def __init__(self, weights: str | os.PathLike[str] | None = None):
        self.weights = load_weights(WEIGHTS if weights is None else weights, len(FEATURES), 2)

    def reset(self, view: View, *, seed: int) -> None:
        """Prepare for an episode.

        Parameters
        ----------
        view : View
            The instance.
        seed : int
            Not used.
        """
        self._rule = Margins([view.instance], [0])

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        rule = self._rule
        rule.see({name: np.asarray(info[name])[None] for name in Margins.SEEN})
        lower, gap = margins_of(workload_scores(self.weights, rule.features()[0]))
        return rule.actions(rule.targets(lower, gap))[0]


ppo = PPOAgent
