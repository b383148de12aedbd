"""Record the windows of an episode for pictures."""

from __future__ import annotations

import numpy as np

from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.window import COST_TERMS, WindowResult


class EpisodeRecord:
    """The windows of one episode so far.

    Parameters
    ----------
    instance : Instance
        The problem.

    Attributes
    ----------
    windows : int
        Number of windows played.
    held : ndarray, shape (windows of the episode, C)
        Replicas running, starting or draining after the window.
    available_gpus : ndarray, shape (windows, G)
    rate_rps, unserved_share, miss_share : ndarray, shape (windows, I)
    terms_usd : ndarray, shape (windows, 8)
        In the order of `COST_TERMS`.

    Examples
    --------
    >>> import fleetgym
    >>> record = EpisodeRecord(fleetgym.load_instance("fleet-v0/toy/two-pools"))
    >>> record.windows, record.held.shape[1]
    (0, 2)
    """

    def __init__(self, instance: Instance):
        self.instance, self.windows = instance, 0
        count, workloads = instance.num_windows, instance.num_workloads
        self.held = np.zeros((count, instance.num_configurations), dtype=np.int64)
        self.available_gpus = np.zeros((count, instance.num_pools), dtype=np.int64)
        self.rate_rps, self.unserved_share, self.miss_share = np.zeros((3, count, workloads))
        self.terms_usd = np.zeros((count, len(COST_TERMS)))

    def add(self, played: Conditions, result: WindowResult) -> None:
        """Note the window just played.

        Parameters
        ----------
        played : Conditions
            What it brought.
        result : WindowResult
            What it cost.
        """
        t = self.windows
        self.held[t] = result.held
        self.available_gpus[t], self.rate_rps[t] = played.available_gpus, played.rate_rps
        self.unserved_share[t], self.miss_share[t] = result.unserved_share, result.miss_share
        self.terms_usd[t] = result.terms_usd
        self.windows = t + 1
