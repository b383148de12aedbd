"""From agents and stored episodes to Kendall's tau: do environment and simulator rank agents by cost alike.

    python -m tools.check_fidelity                      # 30 dev episodes, six agents, about a quarter of an hour
    python -m tools.check_fidelity --episodes 6 --windows 3
    python -m tools.check_fidelity --arrival-cv2 4      # the same instances, newly drawn days, bursts

Prints one line per episode, then of each family the mean tau, how much dearer the fleets are by simulation, and the
share of requests that are late, predicted and simulated; fails where a tau is below 0.8.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym.capacity.simulation.fidelity import EpisodeRanking, mean_tau, rank_fidelity
from fleetgym.cli.process import run_program
from fleetgym.cli.text_tables import align
from fleetgym.cli.words import of
from fleetgym.files.documents import write_json
from fleetgym.files.quantities import COUNT, CV2, NUMBER, REPLICATIONS, SEED
from fleetgym.files.schema import to_jsonable
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.library import entries, list_instances, load_instance
from fleetgym.model.scenario import SCENARIO_FORMAT
from fleetgym.runtime.programs import program

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


def with_bursts(episodes: Sequence[tuple[str, int]], cv2: float, folder: Path) -> list[tuple[str, int]]:
    """Write copies of the instances whose arrivals have another cv2, with a new day each; return their episodes."""
    found = []
    for number, (name, scenario) in enumerate(episodes):
        data = load_instance(name).to_dict()
        for workload in data["workloads"]:
            workload["arrival_cv2"] = cv2
        instance = Instance.from_dict(data)
        day = draw_scenario(instance, np.random.default_rng([number, scenario]), "bursts")
        stored = {
            "format": SCENARIO_FORMAT,
            "instance": instance.id,
            "instance_hash": instance.content_hash,
            "scenarios": [to_jsonable(day)],
        }
        path = folder / f"{number}.json"
        write_json(path, instance.to_dict())
        write_json(folder / f"{number}.scenarios.json", stored)
        found.append((str(path), 0))
    return found


def row(family: str, tau: float, rankings: Sequence[EpisodeRanking]) -> list[str]:
    """Return a family's line: costs as a geometric mean over episodes and agents, late shares as plain ones."""
    mine = [r for r in rankings if r.family == family]
    logs = [math.log(r.simulated_usd[a] / usd) for r in mine for a, usd in r.environment_usd.items()]
    late = [
        np.mean([share for r in mine for share in shares(r).values()])
        for shares in (lambda r: r.late_predicted, lambda r: r.late_simulated)
    ]
    verdict = "ok" if tau >= TARGET else "LOW"
    dearer = f"{100.0 * math.expm1(float(np.mean(logs))):+.1f}"
    worst = f"{100.0 * math.expm1(max(logs, key=abs)):+.1f}"
    return [
        family,
        str(len(mine)),
        f"{tau:.2f}",
        dearer,
        worst,
        *(f"{100.0 * share:.2f}" for share in late),
        verdict,
    ]


def show(ranking: EpisodeRanking) -> None:
    """Print what an episode gave."""
    costs = "  ".join(
        f"{agent} {usd:.3f}/{ranking.simulated_usd[agent]:.3f}"
        for agent, usd in ranking.environment_usd.items()
    )
    print(f"{ranking.instance}#{ranking.scenario}: tau {ranking.tau:.2f} | {costs}", flush=True)


def smoke(folder: Path) -> None:
    """Rank two agents on one window of one episode, whatever their order; once more with bursts."""
    few = ["--episodes", "1", "--windows", "1", "--replications", "2", "--agents", "hold", "autoscale"]
    main(few)
    main([*few, "--arrival-cv2", "4"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the comparison; 1 if a family's tau is below the target."""
    parser = program(__doc__, writes="No file.", takes="A quarter of an hour.", smoke=smoke)
    parser.add_argument("--suite", default="fleet-v0/dev")
    parser.add_argument("--episodes", type=of(NUMBER), default=30)
    parser.add_argument("--windows", type=of(COUNT), default=5, help="simulated per episode (default: 5)")
    parser.add_argument(
        "--replications", type=of(REPLICATIONS), default=2, help="of each window (default: 2)"
    )
    parser.add_argument("--law", default="lognormal", help="of the service times (default: lognormal)")
    parser.add_argument("--arrival-cv2", type=of(CV2), help="of all arrivals (default: as stored)")
    parser.add_argument("--seed", type=of(SEED), default=0)
    parser.add_argument("--agents", nargs="+", default=list(AGENTS))
    a = parser.parse_args(argv)
    begin = time.process_time()
    print("cost of the sampled windows in USD, by the environment / by simulation", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        episodes = choose_episodes(a.suite, a.episodes)
        if a.arrival_cv2 is not None:
            episodes = with_bursts(episodes, a.arrival_cv2, Path(folder))
        rankings = rank_fidelity(
            a.agents,
            episodes,
            windows=a.windows,
            replications=a.replications,
            law=a.law,
            seed=a.seed,
            progress=show,
        )
    taus = mean_tau(rankings)
    head = [
        "family",
        "episodes",
        "mean tau",
        "dearer %",
        "largest %",
        "late, predicted %",
        "simulated %",
        "",
    ]
    rows = [row(family, tau, rankings) for family, (tau, _) in taus.items()]
    print("\n" + align(head, rows))
    print(f"\n{time.process_time() - begin:.0f} CPU-seconds")
    return 0 if all(tau >= TARGET for tau, _ in taus.values()) else 1


if __name__ == "__main__":
    run_program(main)
