"""From instances and fresh scenarios to a verdict: does a family tell good agents from trivial ones.

    python tools/check_families.py                         # ou, drop, trace: 20 fresh scenarios an instance
    python tools/check_families.py --quick                 # one instance a size, 3 scenarios, short grids

Gates (design, section 7): the fleet that never changes, its margin tuned, is at least 8 % dearer than the best agent;
replanning on the last window's demand, its margin tuned, at least 5 %; serving nobody costs 4 to 12 times the best.
A family that fails is shown, but no part of the headline: *reproduction* (fastllm, grw) or *diagnostic*.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym.dynamics import draw_scenario
from fleetgym.evaluation.jobs import play_actions
from fleetgym.evaluation.run import evaluate
from fleetgym.files import write_json
from fleetgym.instance import SCENARIO_FORMAT, Instance
from fleetgym.library import entries, load_instance
from fleetgym.schema import to_jsonable

HOLD = tuple(f"agh(margin={margin})" for margin in (0.0, 0.15, 0.3, 0.5, 0.75)) + ("hold",)
LAST = tuple(
    f"agh-rolling(forecaster='last', every={every}, margin={margin})"
    for every in (1, 3)
    for margin in (0.0, 0.15, 0.3)
)
QUICK_HOLD = (HOLD[0], HOLD[2], "hold")
QUICK_LAST = (LAST[0], LAST[4])
OTHERS = ("descent", "autoscale", "agh-rolling(every=3, margin=0.1)")
LABELS = {"fastllm": "reproduction", "grw": "reproduction", "warp": "diagnostic"}
GATES = {"hold": 0.08, "last": 0.05, "empty": (4.0, 12.0)}
BOOTSTRAP = 2000


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What the gates say about one family; shares are above the best agent, intervals at 95 %."""

    family: str
    instances: int
    scenarios: int
    hold: float
    hold_interval: tuple[float, float]
    last: float
    last_interval: tuple[float, float]
    empty: float
    best: str

    @property
    def passes(self) -> bool:
        """Whether all gates hold at the point estimate."""
        low, high = GATES["empty"]  # type: ignore[misc]
        return self.hold >= GATES["hold"] and self.last >= GATES["last"] and low <= self.empty <= high  # type: ignore[operator]

    @property
    def label(self) -> str:
        """Where the family is shown."""
        if self.family in LABELS:
            return LABELS[self.family]
        return "headline" if self.passes else "diagnostic"


def main(argv: list[str] | None = None) -> int:
    """Print a table with a line per family; 1 if a headline family fails."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--families", nargs="+", default=["ou", "drop", "trace"])
    parser.add_argument("--sizes", nargs="+", help="by default all")
    parser.add_argument("--instances", type=int, default=99, help="at most so many of each family and size")
    parser.add_argument("--scenarios", type=int, default=20, help="fresh ones an instance")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--quick", action="store_true", help="a first look in minutes: no verdict to rely on")
    parser.add_argument("--json", type=Path, help="write all costs here")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.instances, arguments.scenarios = 1, min(3, arguments.scenarios)
    agents = (*QUICK_HOLD, *QUICK_LAST, *OTHERS) if arguments.quick else (*HOLD, *LAST, *OTHERS)
    verdicts, costs = [], {}
    for family in arguments.families:
        names = chosen(family, arguments.sizes, arguments.instances)
        if not names:
            parser.error(f"no stored instance of family {family!r}")
        found = family_costs(names, agents, arguments.scenarios, arguments.seed, arguments.workers)
        verdicts.append(judge(family, found, np.random.default_rng(arguments.seed)))
        costs[family] = {name: {a: v.tolist() for a, v in table.items()} for name, table in found.items()}
        print(line(verdicts[-1]), flush=True)
    if arguments.json:
        write_json(
            arguments.json, {"costs_usd": costs, "verdicts": [dataclasses.asdict(v) for v in verdicts]}
        )
    failed = [v.family for v in verdicts if not v.passes and v.family not in LABELS]
    return 1 if failed else 0


def chosen(family: str, sizes: Sequence[str] | None, most: int) -> list[str]:
    """Return the dev instances of a family."""
    found: dict[str, list[str]] = {}
    for name, entry in entries().items():
        if "/dev/" in name and entry.family == family and (sizes is None or entry.size in sizes):
            found.setdefault(entry.size, []).append(name)
    return [name for group in found.values() for name in group[:most]]


def family_costs(
    names: Sequence[str], agents: Sequence[str], scenarios: int, seed: int, workers: int
) -> dict[str, dict[str, np.ndarray]]:
    """Return USD per episode by instance and agent: (scenarios,) each; ``empty`` serves nobody."""
    costs = {}
    for name in names:
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            path = fresh(load_instance(name), scenarios, seed, Path(folder))
            results = evaluate(agents, str(path), workers=workers)
            table: dict[str, list[float]] = {}
            for episode in results.episodes:
                if episode.failure is not None:
                    raise SystemExit(f"{episode.agent} failed on {name}: {episode.failure.message}")
                table.setdefault(episode.agent, []).append(episode.cost_usd)
            table["empty"] = [empty(str(path), k) for k in range(scenarios)]
        costs[name] = {agent: np.array(values) for agent, values in table.items()}
        print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
        for agent, values in sorted(costs[name].items(), key=lambda item: float(item[1].mean())):
            print(f"  {values.mean():12.2f}  {agent}", file=sys.stderr)
    return costs


def fresh(instance: Instance, scenarios: int, seed: int, folder: Path) -> Path:
    """Write the instance and newly drawn scenarios into a folder; return the instance's path."""
    drawn = [
        draw_scenario(instance, np.random.default_rng([seed, k]), f"fresh-{k}") for k in range(scenarios)
    ]
    stored = {
        "format": SCENARIO_FORMAT,
        "instance": instance.id,
        "instance_hash": instance.content_hash,
        "scenarios": [to_jsonable(scenario) for scenario in drawn],
    }
    path = folder / f"{instance.id}.json"
    write_json(path, instance.to_dict())
    write_json(folder / f"{instance.id}.scenarios.json", stored)
    return path


def empty(path: str, scenario: int) -> float:
    """Return what serving nobody costs."""
    instance = load_instance(path)
    actions = np.zeros((instance.num_windows, len(instance.slots)), dtype=np.int64)
    return play_actions(path, scenario, actions).cost_usd


def judge(family: str, costs: dict[str, dict[str, np.ndarray]], rng: np.random.Generator) -> Verdict:
    """Return the family's verdict; margins are tuned per instance, scenarios are resampled for the intervals.

    Tuning and judging on the same scenarios flatters the trivial policies, so the gates are strict.
    """
    count = len(next(iter(next(iter(costs.values())).values())))
    point = gaps(costs, np.arange(count))
    draws = np.array([gaps(costs, rng.integers(0, count, count))[:2] for _ in range(BOOTSTRAP)])
    low, high = np.quantile(draws, 0.025, axis=0), np.quantile(draws, 0.975, axis=0)
    wins = [min(rivals(table), key=lambda agent: float(table[agent].mean())) for table in costs.values()]
    return Verdict(
        family=family,
        instances=len(costs),
        scenarios=count,
        hold=point[0],
        hold_interval=(float(low[0]), float(high[0])),
        last=point[1],
        last_interval=(float(low[1]), float(high[1])),
        empty=point[2],
        best=max(sorted(set(wins)), key=wins.count),
    )


def rivals(table: dict[str, np.ndarray]) -> list[str]:
    """Return the agents that may be the best: all but the empty fleet."""
    return [agent for agent in table if agent != "empty"]


def gaps(costs: dict[str, dict[str, np.ndarray]], rows: np.ndarray) -> tuple[float, float, float]:
    """Return hold and last-value above the best agent, and the empty fleet over the best: geometric means."""
    logs = []
    for table in costs.values():
        mean = {agent: float(values[rows].mean()) for agent, values in table.items()}
        best = min(mean[agent] for agent in rivals(table))
        logs.append(
            [
                math.log(min(mean[agent] for agent in HOLD if agent in mean) / best),
                math.log(min(mean[agent] for agent in LAST if agent in mean) / best),
                math.log(mean["empty"] / best),
            ]
        )
    hold, last, nothing = np.exp(np.mean(logs, axis=0))
    return float(hold) - 1.0, float(last) - 1.0, float(nothing)


def line(v: Verdict) -> str:
    """Return one row of the table."""
    verdict = "PASS" if v.passes else "FAIL"
    return (
        f"{v.family:8s} {verdict} {v.label:12s} instances {v.instances}, scenarios {v.scenarios} | "
        f"hold +{100 * v.hold:.1f} % [{100 * v.hold_interval[0]:.1f}, {100 * v.hold_interval[1]:.1f}] | "
        f"last +{100 * v.last:.1f} % [{100 * v.last_interval[0]:.1f}, {100 * v.last_interval[1]:.1f}] | "
        f"empty {v.empty:.1f} x | best {v.best}"
    )


if __name__ == "__main__":
    sys.exit(main())
