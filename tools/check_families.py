"""Check whether a family tells good agents from trivial ones.

    python -m tools.check_families                          # headline families of fleet-v1/dev, 20 scenarios each
    python -m tools.check_families --quick                  # one instance a size, 3 scenarios, short grids
    python -m tools.check_families --families multi --sizes s --instances 4 --quick-grids --bounds 1
    python -m tools.check_families --families mine --generate 4   # a family that a package brings

Gates (design, section 7): the fleet that never changes, its margin tuned, costs at least 8 % more than the best agent;
replanning on the last window's demand, its margin tuned, at least 5 %; serving nobody costs 4 to 12 times the best
known, which is searched for with the whole day in sight where the best agent's cost does not settle it. An instance
passes if these hold, a family if at least 70 % of its instances do. How far the best agent is above the hindsight bound
is told beside it (`--bounds`): 5 to 40 % is wanted, and judged over the family, for it takes many scenarios and the
best of agents. A family that fails is shown, but no part of the headline: *reproduction* (fastllm, grw) or
*diagnostic*. Families of fleet-v2 with questions of one kind are merged; the label says with which.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetgym.bounds import hindsight_bound
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.evaluation.jobs import play_actions
from fleetgym.evaluation.run import evaluate
from fleetgym.families.generate import SEEDS, families, generate
from fleetgym.files.documents import canonical_json, read_json, write_atomically
from fleetgym.files.errors import UnknownNameError
from fleetgym.files.quantities import COUNT, NUMBER, SEED, WORKERS
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.instance_files import write_instance
from fleetgym.model.library import entries, load_instance, with_law
from fleetgym.model.scenario import Scenario
from fleetgym.runtime.programs import program
from fleetgym.search.hindsight import plan_in_hindsight
from tools.family_statistics import HEADLINE
from tools.make_instances import MERGED

HOLD = tuple(f"agh(margin={margin})" for margin in (0.0, 0.15, 0.3, 0.5, 0.75)) + ("hold",)
LAST = tuple(
    f"agh-rolling(forecaster='last', every={every}, margin={margin})"
    for every in (1, 3)
    for margin in (0.0, 0.15, 0.3)
)
QUICK_HOLD = (HOLD[0], HOLD[2], "hold")
QUICK_LAST = (LAST[0], LAST[4])
OTHERS = ("descent", "ppo", "autoscale", "agh-rolling(every=3, margin=0.1)")
LABELS = {"fastllm": "reproduction", "grw": "reproduction", "warp": "diagnostic"}
GATES = {"hold": 0.08, "last": 0.05, "empty": (4.0, 12.0), "bound": (0.05, 0.40)}
PASSING = 0.70  # of a family's instances
BOOTSTRAP = 2000
SEARCH_STEPS = 100_000  # windows a scenario


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
    passing: int  # instances
    bound: float | None  # best agent above the hindsight bound, where that was computed

    @property
    def passes(self) -> bool:
        """Whether enough instances pass."""
        return self.passing >= PASSING * self.instances

    @property
    def near_bound(self) -> bool | None:
        """Whether the best agent is as far above the bound as is wanted; None where there is no bound."""
        least, most = GATES["bound"]  # type: ignore[misc]
        return None if self.bound is None else least <= self.bound <= most

    @property
    def label(self) -> str:
        """Where the family is shown."""
        if self.family in LABELS:
            return LABELS[self.family]
        if not self.passes:
            return "diagnostic"
        others = ", ".join(f"`{family}`" for family in merged_with(self.family))
        return f"headline, merged with {others}" if others else "headline"


def merged_with(family: str) -> tuple[str, ...]:
    """Return the families with which one counts as one in the score of its set.

    Examples
    --------
    >>> merged_with("market"), merged_with("multi")
    (('drop-v2',), ())
    """
    return tuple(other for group in MERGED if family in group for other in group if other != family)


def smoke(folder: Path) -> None:
    """Judge a toy by one scenario with its bound, whatever the verdict."""
    few = ["--suite", "fleet-v0/toy", "--families", "toy", "--quick", "--scenarios", "1", "--bounds", "1"]
    main([*few, "--search-steps", "1000", "--json", str(folder / "costs.json")])


def main(argv: list[str] | None = None) -> int:
    """Print a table with a line per family; 1 if a headline family fails."""
    parser = program(
        __doc__,
        writes="The file of --json, if it is given.",
        takes="Hours; with --quick some minutes.",
        smoke=smoke,
    )
    parser.add_argument("--suite", default="fleet-v1/dev")
    parser.add_argument(
        "--generate",
        type=of(NUMBER),
        metavar="N",
        help="generate N instances of each family and size, from train seeds, instead of taking a suite's",
    )
    parser.add_argument("--families", nargs="+", default=list(HEADLINE))
    parser.add_argument("--sizes", nargs="+", help="by default all")
    parser.add_argument(
        "--instances", type=of(COUNT), default=99, help="at most this many of each family and size"
    )
    parser.add_argument("--scenarios", type=of(COUNT), default=20, help="fresh ones an instance")
    parser.add_argument(
        "--bounds", type=of(NUMBER), default=0, metavar="N", help="bound N scenarios of each instance"
    )
    parser.add_argument(
        "--search-steps", type=of(COUNT), help=f"windows a scenario (default: {SEARCH_STEPS:,})"
    )
    parser.add_argument("--quick-grids", action="store_true", help="short grids of margins")
    parser.add_argument(
        "--also", nargs="+", default=[], metavar="AGENT", help="more agents that may be the best"
    )
    parser.add_argument("--workers", type=of(WORKERS), default=1)
    parser.add_argument("--seed", type=of(SEED), default=20261121)
    parser.add_argument("--quick", action="store_true", help="a first look in minutes: no verdict to rely on")
    parser.add_argument("--json", type=Path, help="keep all costs here, and go on from them")
    arguments = parser.parse_args(argv)
    if arguments.quick:
        arguments.instances, arguments.scenarios = 1, min(3, arguments.scenarios)
    quick = arguments.quick or arguments.quick_grids
    grids = (*QUICK_HOLD, *QUICK_LAST) if quick else (*HOLD, *LAST)
    agents = (*grids, *OTHERS, *arguments.also)
    known = read_costs(arguments.json)
    verdicts = []
    for family in arguments.families:
        if arguments.generate is not None:
            names = to_generate(family, arguments.sizes, arguments.generate)
        else:
            names = chosen(arguments.suite, family, arguments.sizes, arguments.instances)
        if not names:
            where = "nothing is generated" if arguments.generate is not None else arguments.suite
            parser.error(f"{where}: no instance of family {family!r}; sizes: {arguments.sizes or 'all'}")
        found = {}
        for name in names:
            table = usable(known.get(name, {}), name, arguments.scenarios)
            count = len(table.get("empty", range(arguments.scenarios)))
            if lacking := [agent for agent in agents if agent not in table]:
                costs = instance_costs(name, lacking, count, arguments.seed, arguments.workers)
                table = {**table, **costs}
            if needs_best_known(table):
                table["known"] = best_known(name, table, arguments.seed, arguments.search_steps)
            if np.isfinite(table.get("bound", np.zeros(0))).sum() < arguments.bounds:
                table["bound"] = bounds(name, count, arguments.seed, arguments.bounds)
            known[name] = table
            write_costs(arguments.json, known)
            found[name] = {agent: values for agent, values in table.items() if agent != "hash"}
        verdicts.append(judge(family, found, np.random.default_rng(arguments.seed)))
        print(line(verdicts[-1]), flush=True)
    failed = [v.family for v in verdicts if not v.passes and v.family not in LABELS]
    return 1 if failed else 0


def read_costs(path: Path | None) -> dict[str, dict[str, Any]]:
    """Return the costs that an earlier run stored, by instance and agent."""
    if path is None or not path.is_file():
        return {}
    return {
        name: {agent: v if agent == "hash" else np.array(v, dtype=float) for agent, v in table.items()}
        for name, table in read_json(path).items()
    }


def write_costs(path: Path | None, known: dict[str, dict[str, Any]]) -> None:
    """Store costs to the cent, one line an instance."""
    if path is None:
        return
    lines = []
    for name, table in sorted(known.items()):
        rounded = {
            agent: v if agent == "hash" else [None if math.isnan(x) else round(float(x), 2) for x in v]
            for agent, v in table.items()
        }
        lines.append(f'"{name}":{canonical_json(rounded)}')
    write_atomically(path, ("{\n" + ",\n".join(lines) + "\n}\n").encode())


def usable(table: dict[str, Any], name: str, scenarios: int) -> dict[str, Any]:
    """Return stored costs, or nothing if they are of another version of the instance, or of fewer scenarios."""
    same = table.get("hash") == instance_of(name).content_hash and len(table["empty"]) >= scenarios
    return table if same else {}


def chosen(suite: str, family: str, sizes: Sequence[str] | None, most: int) -> list[str]:
    """Return the first instances of a family in a suite, at most `most` of each size."""
    found: dict[str, list[str]] = {}
    for name, entry in entries().items():
        if entry.suite == suite and entry.family == family and (sizes is None or entry.size in sizes):
            found.setdefault(entry.size, []).append(name)
    return [name for group in found.values() for name in group[:most]]


def to_generate(family: str, sizes: Sequence[str] | None, count: int) -> list[str]:
    """Return the names of instances to generate: family, size and a train seed.

    Examples
    --------
    >>> to_generate("multi", ["s"], 2)
    ['multi-s-1000', 'multi-s-1001']
    """
    seeds = SEEDS["train"][:count]
    known = families()
    if family not in known:
        raise UnknownNameError("family", family, known)
    wanted = [size for size in known[family].sizes if sizes is None or size in sizes]
    return [f"{family}-{size}-{seed}" for size in wanted for seed in seeds]


@functools.cache
def instance_of(name: str) -> Instance:
    """Return a stored instance by its id, or generate the one that a name of `to_generate` stands for."""
    if name in entries():
        return load_instance(name)
    family_and_size, _, seed = name.rpartition("-")
    family = max((f for f in families() if family_and_size.startswith(f"{f}-")), key=len)
    return generate(family, family_and_size.removeprefix(f"{family}-"), int(seed))


def instance_costs(
    name: str, agents: Sequence[str], scenarios: int, seed: int, workers: int
) -> dict[str, Any]:
    """Return USD per episode by agent, (scenarios,) each, and the instance's hash.

    ``empty`` serves nobody.
    """
    began = time.perf_counter()
    instance = instance_of(name)
    with tempfile.TemporaryDirectory() as folder:
        path = fresh(instance, scenarios, seed, Path(folder))
        results = evaluate(agents, str(path), workers=workers)
        costs: dict[str, list[float]] = {}
        for episode in results.episodes:
            if episode.failure is not None:
                raise SystemExit(f"{episode.agent} failed on {name}: {episode.failure.message}")
            costs.setdefault(episode.agent, []).append(episode.cost_usd)
        costs["empty"] = [empty(str(path), k) for k in range(scenarios)]
    print(f"{name}: {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)
    for agent, values in sorted(costs.items(), key=lambda item: float(np.mean(item[1]))):
        print(f"  {np.mean(values):12.2f}  {agent}", file=sys.stderr)
    return {"hash": instance.content_hash, **{agent: np.array(v) for agent, v in costs.items()}}


def fresh(instance: Instance, scenarios: int, seed: int, folder: Path) -> Path:
    """Write the instance and newly drawn scenarios into a folder; return the instance's path."""
    days = [drawn(instance, seed, k) for k in range(scenarios)]
    law = None if instance.law == "told" else with_law(instance).dynamics
    return write_instance(folder / f"{instance.id}.json", instance, days, law=law)[0]


def drawn(instance: Instance, seed: int, k: int) -> Scenario:
    """Return the k-th scenario, drawn from the law of the instance's stored ones."""
    return draw_scenario(with_law(instance), np.random.default_rng([seed, k]), f"fresh-{k}")


def empty(path: str, scenario: int) -> float:
    """Return what serving nobody costs."""
    instance = load_instance(path)
    actions = np.zeros((instance.num_windows, len(instance.slots)), dtype=np.int64)
    return play_actions(path, scenario, actions).cost_usd


def bounds(name: str, scenarios: int, seed: int, most: int) -> np.ndarray:
    """Return what nobody undercuts, (scenarios,) USD; NaN from scenario `most` on."""
    instance, found = instance_of(name), np.full(scenarios, math.nan)
    for k in range(min(most, scenarios)):
        found[k] = hindsight_bound(instance, drawn(instance, seed, k)).bound_usd
        print(f"{name}: scenario {k} costs at least {found[k]:.2f} USD", file=sys.stderr, flush=True)
    return found


def needs_best_known(table: dict[str, Any]) -> bool:
    """Return whether serving nobody costs too little beside the best agent, and nothing cheaper was searched for."""
    best = min(float(table[agent].mean()) for agent in rivals(table))
    return "known" not in table and float(table["empty"].mean()) < GATES["empty"][0] * best  # type: ignore[index]


def best_known(name: str, table: dict[str, Any], seed: int, steps: int | None = None) -> np.ndarray:
    """Return what each scenario costs at best with the whole day in sight, (scenarios,) USD.

    The best agent's episode and the relaxation, rounded, are improved by search.
    """
    instance, count = instance_of(name), len(table["empty"])
    best = min(rivals(table), key=lambda agent: float(table[agent].mean()))
    found = np.empty(count)
    with tempfile.TemporaryDirectory() as folder:
        path = fresh(instance, count, seed, Path(folder))
        results = evaluate([best], str(path))
        for k, episode in enumerate(results.episodes):
            scenario = drawn(instance, seed, k)
            serving = hindsight_bound(instance, scenario).serving
            starts = [results.actions(episode)]
            plan = plan_in_hindsight(
                instance, scenario, serving, starts=starts, max_steps=steps or SEARCH_STEPS
            )
            found[k] = plan.cost_usd
            print(f"{name}: scenario {k} can cost {found[k]:.2f} USD", file=sys.stderr, flush=True)
    return found


def judge(family: str, costs: dict[str, dict[str, np.ndarray]], rng: np.random.Generator) -> Verdict:
    """Return the family's verdict; margins are tuned per instance, scenarios are resampled for the intervals.

    Of all instances together: the same random numbers draw the k-th scenario of each.

    Tuning and judging on the same scenarios flatters the trivial policies, so the gates are strict.
    """
    count = min(len(usd) for table in costs.values() for usd in table.values())  # what all have played
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
        passing=sum(passes(table, np.arange(count)) for table in costs.values()),
        bound=bound_gap(costs.values()),
    )


def rivals(table: dict[str, np.ndarray]) -> list[str]:
    """Return the agents that may be the best: not the empty fleet, the clairvoyant or the bound."""
    return [agent for agent in table if agent not in ("hash", "empty", "known", "bound")]


def passes(table: dict[str, np.ndarray], rows: np.ndarray) -> bool:
    """Return whether the gates hold for one instance."""
    hold, last, nothing = gaps({"": table}, rows)
    low, high = GATES["empty"]  # type: ignore[misc]
    return hold >= GATES["hold"] and last >= GATES["last"] and low <= nothing <= high  # type: ignore[operator]


def bound_gap(tables: Iterable[dict[str, np.ndarray]]) -> float | None:
    """Return how far the best agent is above the bound, where there is one: a geometric mean."""
    logs = []
    for table in tables:
        bounded = np.isfinite(table.get("bound", np.array([math.nan])))
        if bounded.any():
            best = min(rivals(table), key=lambda agent, table=table: float(table[agent].mean()))
            logs.append(math.log(float(table[best][bounded].mean() / table["bound"][bounded].mean())))
    return math.exp(float(np.mean(logs))) - 1.0 if logs else None


def gaps(costs: dict[str, dict[str, np.ndarray]], rows: np.ndarray) -> tuple[float, float, float]:
    """Return hold and last-value above the best agent, and the empty fleet over the best known: geometric means."""
    logs = []
    for table in costs.values():
        mean = {agent: float(values[rows].mean()) for agent, values in table.items()}
        best = min(mean[agent] for agent in rivals(table))
        logs.append(
            [
                math.log(min(mean[agent] for agent in HOLD if agent in mean) / best),
                math.log(min(mean[agent] for agent in LAST if agent in mean) / best),
                math.log(mean["empty"] / mean.get("known", best)),
            ]
        )
    hold, last, nothing = np.exp(np.mean(logs, axis=0))
    return float(hold) - 1.0, float(last) - 1.0, float(nothing)


def line(v: Verdict) -> str:
    """Return one row of the table."""
    verdict = "PASS" if v.passes else "FAIL"
    wanted = "" if v.near_bound else " (5 to 40 % wanted)"
    bounded = "" if v.bound is None else f" | best +{100 * v.bound:.1f} % on the bound{wanted}"
    return (
        f"{v.family:9s} {verdict} {v.label:12s} instances {v.instances}, scenarios {v.scenarios} | "
        f"hold +{100 * v.hold:.1f} % [{100 * v.hold_interval[0]:.1f}, {100 * v.hold_interval[1]:.1f}] | "
        f"last +{100 * v.last:.1f} % [{100 * v.last_interval[0]:.1f}, {100 * v.last_interval[1]:.1f}] | "
        f"empty {v.empty:.1f} x | best {v.best}{bounded} | {v.passing} of {v.instances} instances pass"
    )


if __name__ == "__main__":
    run_program(main)
