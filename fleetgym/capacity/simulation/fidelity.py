"""Agents and episodes in; whether environment and simulator rank the agents alike, out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fleetgym.capacity.simulation.window import Verdict, check_window, played_windows
from fleetgym.model.library import load_instance


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class EpisodeRanking:
    """What an episode's sampled windows cost each agent, USD, by the environment and by simulation."""

    instance: str
    scenario: int
    family: str
    windows: tuple[int, ...]
    environment_usd: dict[str, float]  # by agent
    simulated_usd: dict[str, float]
    late_predicted: dict[str, float]  # share of requests that are served late, by agent
    late_simulated: dict[str, float]

    @property
    def tau(self) -> float:
        """Kendall's tau-b between both rankings."""
        agents = list(self.environment_usd)
        return kendall_tau([self.environment_usd[a] for a in agents], [self.simulated_usd[a] for a in agents])


def kendall_tau(x: Sequence[float], y: Sequence[float]) -> float:
    """Return Kendall's tau-b; values within 1e-9 of each other, relative, are tied. 1 where both tie everything.

    Source: Kendall, "The treatment of ties in ranking problems", Biometrika 33 (1945).

    Examples
    --------
    >>> kendall_tau([1, 2, 3, 4], [1, 2, 4, 3])
    0.6666666666666666
    """
    a, b = _signs(x), _signs(y)
    pairs = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    if pairs == 0.0:
        return 1.0 if np.array_equal(a, b) else 0.0
    return float((a * b).sum()) / pairs


def _signs(values: Sequence[float]) -> np.ndarray:
    v = np.asarray(values, dtype=float)
    i, j = np.triu_indices(len(v), 1)
    tied = np.abs(v[i] - v[j]) <= 1e-9 * np.maximum(np.abs(v[i]), np.abs(v[j]))
    return np.where(tied, 0.0, np.sign(v[i] - v[j]))


def rank_fidelity(
    agents: Sequence[str],
    episodes: Sequence[tuple[str, int]],
    *,
    windows: int = 5,
    replications: int = 2,
    max_requests: int = 250_000,
    law: str = "lognormal",
    seed: int = 0,
    progress: Callable[[EpisodeRanking], object] | None = None,
) -> list[EpisodeRanking]:
    """Play agents, simulate some windows of their fleets, and compare the two rankings by cost.

    All agents of an episode are simulated in the same windows with the same random numbers; a replication's cost is
    noisy, but its noise is shared.

    Parameters
    ----------
    agents : sequence of str
        Names of agents.
    episodes : sequence of (str, int)
        Instance and number of a stored scenario.
    windows : int
        Windows to simulate per episode, drawn from the seed.
    replications : int
        Of each window, at least 2.
    max_requests : int
        Most requests of a replication, about.
    law : str
        Of the service times.
    seed : int
        Of agents, windows and simulations.
    progress : callable, optional
        Called with each episode's result.

    Returns
    -------
    list of EpisodeRanking
    """
    found = []
    for number, (instance, scenario) in enumerate(episodes):
        problem = load_instance(instance)
        rng = np.random.default_rng([0x66696465, seed, number])
        chosen = rng.choice(problem.num_windows, size=min(windows, problem.num_windows), replace=False)
        sample = tuple(sorted(int(window) for window in chosen))
        options: dict[str, Any] = {
            "law": law,
            "seed": seed,
            "max_requests": max_requests,
            "min_replications": replications,
            "max_replications": replications,
        }
        verdicts = {
            agent: [
                check_window(p, **options) for p in played_windows(instance, agent, scenario, sample, seed)
            ]
            for agent in agents
        }
        ranking = EpisodeRanking(
            instance=instance,
            scenario=scenario,
            family=problem.family,
            windows=sample,
            environment_usd={a: sum(v.played.result.cost_usd for v in vs) for a, vs in verdicts.items()},
            simulated_usd={a: sum(v.cost_usd for v in vs) for a, vs in verdicts.items()},
            late_predicted={a: _late(vs, simulated=False) for a, vs in verdicts.items()},
            late_simulated={a: _late(vs, simulated=True) for a, vs in verdicts.items()},
        )
        found.append(ranking)
        if progress is not None:
            progress(ranking)
    return found


def _late(verdicts: Sequence[Verdict], *, simulated: bool) -> float:
    """Return the share of all requests that are served late."""
    late = total = 0.0
    for v in verdicts:
        rate = v.played.conditions.rate_rps
        missed = v.simulated.mean if simulated else v.predicted
        late += float(rate @ np.nan_to_num(missed - v.played.result.unserved_share))
        total += float(rate.sum())
    return late / total if total > 0.0 else 0.0


def mean_tau(rankings: Sequence[EpisodeRanking]) -> dict[str, tuple[float, int]]:
    """Return the mean tau and the number of episodes of each family."""
    families = dict.fromkeys(r.family for r in rankings)
    taus = {f: [r.tau for r in rankings if r.family == f] for f in families}
    return {f: (float(np.mean(values)), len(values)) for f, values in taus.items()}
