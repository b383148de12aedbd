"""From newly made instances to which arguments suit an agent: how much dearer each setting is than the best one.

    python -m tools.tune_agents                                  # the settings below, some ten CPU-minutes
    python -m tools.tune_agents 'lcp(margin=0.1)' 'lcp(margin=0.3)' --families ou --instances 4

Instances come from the public generators, with seeds that no stored instance has, and a newly drawn day each:
nothing is tuned on what is scored. The agents named in one call are compared with each other.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from fleetgym.cli.tables import align
from fleetgym.evaluation.run import evaluate
from fleetgym.generate import generate
from tools.check_families import fresh

SETTINGS = (
    *(f"milp(margin={margin})" for margin in (0.0, 0.2, 0.4, 0.6)),
    *(f"milp-hourly(margin={margin})" for margin in (0.1, 0.2, 0.3, 0.45)),
    *(f"newsvendor(margin={margin})" for margin in (-0.2, -0.1, 0.0)),
    *(f"lcp(margin={margin})" for margin in (0.0, 0.1, 0.2)),
)
FIRST_SEED = 9000


def costs(family: str, size: str, seed: int, agents: Sequence[str]) -> dict[str, float]:
    """Return the cost of a new day of a new instance by agent, in USD."""
    instance = generate(family, size, seed)
    with tempfile.TemporaryDirectory() as folder:
        path = fresh(instance, 1, seed, Path(folder))
        results = evaluate(agents, str(path))
    for episode in results.failures:
        raise SystemExit(f"{episode.agent} failed on {instance.id}: {episode.failure}")
    return {episode.agent: episode.cost_usd for episode in results.episodes}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table: per family and over all, per cent above the best setting of each instance."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("agents", nargs="*", default=list(SETTINGS))
    parser.add_argument("--families", nargs="+", default=["ou", "drop"])
    parser.add_argument("--size", default="s")
    parser.add_argument("--instances", type=int, default=2, help="of each family (default: 2)")
    a = parser.parse_args(argv)
    logs: dict[str, dict[str, list[float]]] = {agent: {f: [] for f in a.families} for agent in a.agents}
    for family in a.families:
        for seed in range(FIRST_SEED, FIRST_SEED + a.instances):
            found = costs(family, a.size, seed, a.agents)
            best = min(found.values())
            for agent, usd in found.items():
                logs[agent][family].append(math.log(usd / best))
            print(f"{family}-{a.size}-{seed}: best {best:.2f} USD", file=sys.stderr, flush=True)
    rows = []
    for agent, by_family in logs.items():
        means = [sum(values) / len(values) for values in by_family.values()]
        cells = [f"{100.0 * math.expm1(mean):.1f}" for mean in (*means, sum(means) / len(means))]
        rows.append([agent, *cells])
    print(align(["agent", *(f"{family} %" for family in a.families), "all %"], rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
