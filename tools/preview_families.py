"""From measured costs to whether families of the preview `fleet-v2` earn their place: ``docs/fleet-v2-families.md``.

    python -m tools.check_families --generate 1 --sizes s --quick-grids --scenarios 2 --json docs/data/families_v2.json
    python -m tools.preview_families

The first command takes the names of the families (`--families`) and of further agents (`--also`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fleetgym.files.documents import write_atomically
from fleetgym.files.markdown import table
from fleetgym.runtime.programs import program
from tools.check_families import Verdict, judge, read_costs, rivals
from tools.family_cards import row
from tools.family_statistics import section
from tools.fleet_v2 import HEADLINE

ROOT = Path(__file__).resolve().parents[1]
COSTS = ROOT / "docs" / "data" / "families_v2.json"
PAGE = ROOT / "docs" / "fleet-v2-families.md"
SEED = 20261125
_HEAD = (
    *("family", "never changes", "last value", "serving nobody", "best agent", "above the bound"),
    *("instances that pass", "label"),
)


def smoke(folder: Path) -> int:
    """Write the page elsewhere."""
    return main(["--page", str(folder / "page.md")])


def main(argv: list[str] | None = None) -> int:
    """Write the page."""
    parser = program(__doc__, writes="docs/fleet-v2-families.md.", takes="Seconds.", smoke=smoke)
    parser.add_argument("--costs", type=Path, default=COSTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args(argv)
    costs = by_family(arguments.costs)
    write_atomically(arguments.page, page(costs).encode())
    print(f"{arguments.page} written: {len(costs)} families measured", file=sys.stderr)
    return 0


def by_family(path: Path) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    """Return costs by family, instance and agent, families in the set's order."""
    found: dict[str, dict[str, dict[str, np.ndarray]]] = {family: {} for family in HEADLINE}
    for name, costs in read_costs(path).items():
        family = name.rpartition("/")[2].rsplit("-", 2)[0]
        if family in found:
            found[family][name] = {agent: values for agent, values in costs.items() if agent != "hash"}
    return {family: _cut(instances) for family, instances in found.items() if instances}


def _cut(instances: dict[str, dict[str, np.ndarray]]) -> dict[str, dict[str, np.ndarray]]:
    """Return costs of as many scenarios as all instances have."""
    fewest = min(len(values) for table in instances.values() for values in table.values())
    return {
        name: {agent: values[:fewest] for agent, values in table.items()} for name, table in instances.items()
    }


def scores(costs: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]) -> dict[str, dict[str, float]]:
    """Return each agent's mean ln(cost / the best agent's) by family; agents that all instances have.

    Examples
    --------
    >>> day = {"hold": np.array([2.0]), "gh": np.array([1.0]), "empty": np.array([9.0])}
    >>> {agent: round(by["ou"], 3) for agent, by in scores({"ou": {"ou-s-1": day}}).items()}
    {'gh': 0.0, 'hold': 0.693}
    """
    tables = [table for instances in costs.values() for table in instances.values()]
    agents = sorted(set.intersection(*(set(rivals(dict(table))) for table in tables)))
    found: dict[str, dict[str, float]] = {agent: {} for agent in agents}
    for family, instances in costs.items():
        for agent in agents:
            logs = [
                math.log(float(of[agent].mean()) / min(float(of[other].mean()) for other in agents))
                for of in instances.values()
            ]
            found[agent][family] = float(np.mean(logs))
    return found


def _scenarios(instances: Mapping[str, Mapping[str, np.ndarray]]) -> int:
    """Return of how many scenarios all agents' costs are known."""
    return min(len(values) for table in instances.values() for values in table.values())


def page(costs: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]) -> str:
    """Return the page."""
    verdicts: dict[str, Verdict] = {
        family: judge(family, {name: dict(of) for name, of in instances.items()}, np.random.default_rng(SEED))
        for family, instances in costs.items()
    }
    failed = [f"`{family}`" for family, v in verdicts.items() if not v.passes]
    missing = [f"`{family}`" for family in HEADLINE if family not in verdicts]
    told = (
        f"**Not passed by {', '.join(failed)}**, on these samples."
        if failed
        else "All that were measured pass."
    )
    told += f" **Not measured: {', '.join(missing)}.**" if missing else ""
    samples = ", ".join(f"`{family}` {len(of)} × {_scenarios(of)}" for family, of in costs.items())
    return f"""# Do the families of `fleet-v2` earn their place?

<!-- Made by tools/preview_families.py from docs/data/families_v2.json. -->

The gates are those of [fleet-v1](families.md). The samples are tiny. Generated instances and fresh scenarios of each:
{samples}.
They say whether a family is far from its gates. They do not say by how much. An interval over one scenario is a point.

{told}

{table(_HEAD, [row(family, v) for family, v in verdicts.items()])}
*Never changes*, *last value* and *serving nobody* are explained there.

## How families tell agents apart

Scores are relative to the best agent of each instance, as these generated days have no best-known costs. So few days
make rankings noisy, and noise makes correlations lower than they are. [The results](fleet-v2-results.md) have the same
tables on the stored tasks, and [the families of fleet-v1](families.md) theirs.

{section(scores(costs), HEADLINE)}"""


if __name__ == "__main__":
    sys.exit(main())
