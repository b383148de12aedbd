"""The trained policy as an agent: the likeliest target of every slot, in NumPy alone.

Trained on generated instances (`docs/ppo.md`), never on those of the standard set. Where an instance has
exclusive slots, whose options are no numbers of replicas, the policy has nothing to say and the agent keeps the
first window's fleet.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fleetgym import UnknownNameError, View
from fleetgym.agents.arguments import passes_on

from .features import NUM_FEATURES, TARGETS, SlotFeatures
from .network import load_weights, slot_scores

WEIGHTS = Path(__file__).with_name("weights.npz")


class PPOAgent:
    """Sets each slot to one of a few numbers of replicas, as the policy says.

    Parameters
    ----------
    weights : path-like, optional
        An ``.npz`` file from `fleetgym.baselines.ppo.train`; by default the one that ships.
    always : str, optional
        One of `TARGETS` that every slot takes where it may, whatever the network says: ``"ideal"`` is the rule that
        training starts from.

    Raises
    ------
    FleetgymError
        If the weights cannot be read.
    UnknownNameError
        If there is no such target.
    """

    def __init__(self, weights: str | os.PathLike[str] | None = None, always: str | None = None):
        if always is not None and always not in TARGETS:
            raise UnknownNameError("target", always, TARGETS)
        self.always = always
        self.weights = load_weights(WEIGHTS if weights is None else weights, NUM_FEATURES, len(TARGETS))

    def reset(self, view: View, *, seed: int) -> None:
        """Prepare for an episode.

        Parameters
        ----------
        view : View
            The instance and the fleet.
        seed : int
            Not used.
        """
        self._view, self._first = view, view.fleet_to_action(view.fleet)
        counted = not any(slot.exclusive for slot in view.instance.slots)
        self._features = SlotFeatures(view) if counted else None

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        if self._features is None:
            return self._first.copy()
        scores = slot_scores(self.weights, self._features.observe(info))
        if self.always is not None:
            scores = np.eye(len(TARGETS))[[TARGETS.index(self.always)] * scores.shape[0]]
        best = np.where(self._features.allowed, scores, -np.inf).argmax(axis=1)
        return self._features.targets[np.arange(best.size), best]


@passes_on(PPOAgent)
def ppo(**arguments: Any) -> PPOAgent:
    """A policy trained by MaskablePPO."""
    return PPOAgent(**arguments)
