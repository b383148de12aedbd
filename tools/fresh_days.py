"""Compare agents with one of them on days that are stored nowhere.

    python -m tools.fresh_days ppo hold --generate ou-s drop-s trace-m budget-s tail-s multi-s --days 6
    python -m tools.fresh_days descent hold --instances fleet-v1/dev/ou-s-101 --days 200 --json results/ou.json

With `--generate`, instances are made from train seeds, and a column is a family: its instances are the sample behind
the interval. With `--instances`, a column is an instance, and its days are the sample. All agents play the same days.
Numbers are percent of the cost of `--against`, by the mean logarithm; below zero is cheaper.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.files.errors import FleetgymError
from fleetgym.files.quantities import COUNT, SEED
from fleetgym.runtime.programs import program
from fleetgym.scoring.statistics import FamilyMean
from tools.check_families import instance_costs, instance_of, read_costs, usable, write_costs

#: Seeds of generated instances begin here; `ppo` trains on those from 100,000 on.
FIRST_SEED = 300_000
#: Days are drawn from it, the same for every call.
SEED_OF_DAYS = 20261125


def smoke(folder: Path) -> int:
    """Play two days of a toy."""
    few = ["--instances", "fleet-v0/toy/two-pools", "--days", "2", "--json", str(folder / "costs.json")]
    return main(["hold", *few])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    parser = program(
        __doc__,
        writes="The file of --json, if it is given.",
        takes="What the agents take: a day of a quick one 0.1 CPU seconds.",
        smoke=smoke,
    )
    parser.add_argument("agents", nargs="+", metavar="AGENT")
    parser.add_argument("--against", default="margin", metavar="AGENT", help="default: %(default)s")
    parser.add_argument("--instances", nargs="+", default=[], metavar="ID")
    parser.add_argument("--generate", nargs="+", default=[], metavar="FAMILY-SIZE")
    parser.add_argument("--count", type=of(COUNT), default=8, help="of each family (default: %(default)s)")
    parser.add_argument("--first", type=of(SEED), default=FIRST_SEED, help="seed (default: %(default)s)")
    parser.add_argument("--days", type=of(COUNT), default=20, help="of each instance (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="keep all costs here, and go on from them")
    call = parser.parse_args(argv)
    names = [f"{family}-{call.first + k}" for family in call.generate for k in range(call.count)]
    if bool(names) == bool(call.instances):
        parser.error("give either --instances or --generate")
    try:
        agents = [call.against, *call.agents]
        costs = {name: costs_usd(name, agents, call.days, call.json) for name in names or call.instances}
    except FleetgymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print("\n".join(table(costs, call.agents, call.against, by_family=bool(names))))
    return 0


def costs_usd(
    name: str, agents: Sequence[str], days: int, kept: Path | None = None
) -> Mapping[str, np.ndarray]:
    """Return what each agent pays on each fresh day of an instance, (days,) USD; what is kept is not played again."""
    known = read_costs(kept)
    found = usable(known.get(name, {}), name, days)
    if lacking := [agent for agent in dict.fromkeys(agents) if agent not in found]:
        found = {**found, **instance_costs(name, lacking, days, SEED_OF_DAYS, workers=1)}
        write_costs(kept, {**known, name: found})
    return {agent: found[agent][:days] for agent in agents}


def table(
    costs: Mapping[str, Mapping[str, np.ndarray]], agents: Sequence[str], against: str, *, by_family: bool
) -> list[str]:
    """Return the lines of a Markdown table: a row an agent, a column a family or an instance, and their mean."""
    columns = list(dict.fromkeys(_column(name, by_family) for name in costs))
    heads = [*columns, "mean"] if len(columns) > 1 else columns
    lines = [f"| percent against `{against}` | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for agent in agents:
        logs: dict[tuple[str, str], float] = {}
        for name, usd in costs.items():
            ratio = np.log(usd[agent] / usd[against])
            rows = [float(ratio.mean())] if by_family else ratio.tolist()
            logs |= {(_column(name, by_family), f"{name} {k}"): value for k, value in enumerate(rows)}
        parts = [{key: value for key, value in logs.items() if key[0] == column} for column in columns]
        cells = [cell(FamilyMean.of(part)) for part in [*parts, logs][: len(heads)]]
        lines.append(f"| `{agent}` | {' | '.join(cells)} |")
    return lines


def _column(name: str, by_family: bool) -> str:
    return name.rpartition("-")[0] if by_family else instance_of(name).id


def cell(mean: FamilyMean) -> str:
    """Return a mean of logarithms and its interval in percent.

    Examples
    --------
    >>> cell(FamilyMean.of({("ou", "1"): -0.01, ("ou", "2"): -0.02, ("ou", "3"): -0.03}))
    '-1.98 [-4.39, 0.49]'
    """

    def percent(log: float) -> str:
        return f"{100.0 * np.expm1(log):.2f}"

    interval = mean.interval()
    return percent(mean.mean) + ("" if interval is None else " [{}, {}]".format(*map(percent, interval)))


if __name__ == "__main__":
    run_program(main)
