"""Tell in which windows an agent costs more than another: high or low demand, few GPUs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fleetgym.evaluation.results import Results
from fleetgym.evaluation.results_format import EpisodeResult
from fleetgym.scoring.explain import KINDS, kinds_of_windows
from fleetgym.scoring.statistics import Cluster, cluster_means, counted, family_means


def excess(
    run: Results, leader: str, best_usd: Mapping[tuple[str, int], float], counts_as: Mapping[str, str]
) -> dict[str, dict[str, float]]:
    """Return how much dearer each agent is than `leader` in windows of each kind.

    Parameters
    ----------
    run : Results
        Agents on the same tasks.
    leader : str
        The agent that others are compared with.
    best_usd : mapping
        What costs are relative to, by instance and scenario.
    counts_as : mapping
        What each family that counts counts as.

    Returns
    -------
    dict
        By agent and kind: percent of the reference cost, mean over families of the mean over instances.
    """
    led = {e.task: e for e in run.episodes if e.agent == leader}
    found = {}
    for agent in run.agents:
        shares: dict[str, list[tuple[Cluster, float]]] = {kind: [] for kind in KINDS}
        for episode in (e for e in run.episodes if e.agent == agent):
            family, task = run.header.instances[episode.instance].family, episode.task
            if family in counts_as:
                for kind, usd in _differences(episode, led[task]).items():
                    shares[kind].append(((family, episode.instance), usd / best_usd[task]))
        found[agent] = {
            kind: 100.0 * float(np.mean(list(family_means(counted(cluster_means(of), counts_as)).values())))
            for kind, of in shares.items()
        }
    return found


def _differences(episode: EpisodeResult, led: EpisodeResult) -> dict[str, float]:
    """Return by how many USD an episode is dearer than another of the same task in windows of each kind."""
    more = np.array(episode.cost_per_window_usd) - np.array(led.cost_per_window_usd)
    return {
        kind: float(more[mask].sum())
        for kind, mask in kinds_of_windows(episode.instance, episode.scenario).items()
    }
