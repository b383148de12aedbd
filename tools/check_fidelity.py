"""From agents and stored episodes to Kendall's tau: do environment and simulator rank agents by cost alike.

    python tools/check_fidelity.py                      # 30 dev episodes, six agents, about a quarter of an hour
    python tools/check_fidelity.py --episodes 6 --windows 3

Prints one line per episode, then the mean tau of each family; fails where it is below 0.8.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence

from fleetgym.cli.tables import align
from fleetgym.library import entries, list_instances
from fleetgym.simulation.fidelity import EpisodeRanking, mean_tau, rank_fidelity

AGENTS = ("hold", "autoscale", "homogeneous-rolling", "gh-rolling", "agh-rolling", "descent")
TARGET = 0.8


def choose_episodes(suite: str, count: int) -> list[tuple[str, int]]:
    """Return episodes of a suite, the families in turn."""
    known = entries()
    by_family: dict[str, list[tuple[str, int]]] = {}
    for name in list_instances(suite):
        by_family.setdefault(known[name].family, []).extend((name, k) for k in range(known[name].scenarios))
    queues = [_spread(queue) for queue in by_family.values()]
    chosen: list[tuple[str, int]] = []
    while len(chosen) < count and any(queues):
        for queue in queues:
            if queue and len(chosen) < count:
                chosen.append(queue.pop(0))
    return chosen


def _spread(queue: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return first scenarios before second ones, so that many instances are seen."""
    return sorted(queue, key=lambda episode: episode[1])


def show(ranking: EpisodeRanking) -> None:
    """Print what an episode gave."""
    costs = "  ".join(
        f"{agent} {usd:.3f}/{ranking.simulated_usd[agent]:.3f}"
        for agent, usd in ranking.environment_usd.items()
    )
    print(f"{ranking.instance}#{ranking.scenario}: tau {ranking.tau:.2f} | {costs}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison; 1 if a family's tau is below the target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", default="fleet-v0/dev")
    parser.add_argument("--episodes", type=int, default=30)
    parser.add_argument("--windows", type=int, default=5, help="simulated per episode (default: 5)")
    parser.add_argument("--replications", type=int, default=2, help="of each window (default: 2)")
    parser.add_argument("--law", default="lognormal", help="of the service times (default: lognormal)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--agents", nargs="+", default=list(AGENTS))
    a = parser.parse_args(argv)
    begin = time.process_time()
    print("cost of the sampled windows in USD, by the environment / by simulation", flush=True)
    rankings = rank_fidelity(
        a.agents,
        choose_episodes(a.suite, a.episodes),
        windows=a.windows,
        replications=a.replications,
        law=a.law,
        seed=a.seed,
        progress=show,
    )
    taus = mean_tau(rankings)
    rows = [[f, str(n), f"{tau:.2f}", "ok" if tau >= TARGET else "LOW"] for f, (tau, n) in taus.items()]
    print("\n" + align(["family", "episodes", "mean tau", ""], rows))
    print(f"\n{time.process_time() - begin:.0f} CPU-seconds")
    return 0 if all(tau >= TARGET for tau, _ in taus.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
