"""Tell in which windows an agent costs more than another: high or low demand, few GPUs."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from fleetgym.evaluation.jobs import stored_scenario
from fleetgym.evaluation.results import Results
from fleetgym.evaluation.results_format import EpisodeResult
from fleetgym.model.library import load_instance
from fleetgym.scoring.statistics import Cluster, cluster_means, counted, family_means

#: Demand is busy above, quiet below this share of the nominal, each request weighted with the price of not serving it.
BUSY, QUIET = 1.1, 0.9
#: A pool is short when it offers less than this share of its cap.
SHORT = 0.5
KINDS = ("busy", "ordinary", "quiet", "short")


@functools.lru_cache(maxsize=4096)
def windows(instance: str, scenario: int) -> Mapping[str, np.ndarray]:
    """Return which windows are of which kind, (windows,) bool each: one of the first three, and perhaps the last."""
    problem = load_instance(instance)
    day = stored_scenario(instance, scenario).expanded(problem.num_windows)
    price = np.array([w.unserved_usd for w in problem.workloads])
    nominal = float(price @ [w.rate_rps for w in problem.workloads])
    level = day.rate_rps @ price / nominal
    caps = np.maximum(1, np.array([pool.cap_gpus for pool in problem.pools]))
    busy, quiet = level > BUSY, level < QUIET
    short = (day.available_gpus < SHORT * caps).any(axis=1)
    return {"busy": busy, "ordinary": ~busy & ~quiet, "quiet": quiet, "short": short}


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
        kind: float(more[mask].sum()) for kind, mask in windows(episode.instance, episode.scenario).items()
    }
