"""From measured costs to whether families of the preview `fleet-v2` earn their place: ``docs/fleet-v2-families.md``.

    python -m tools.check_families --generate 1 --sizes s --quick-grids --scenarios 2 --json docs/data/families_v2.json
    python -m tools.preview_families

The first command takes the names of the families (`--families`) and of further agents (`--also`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.files.markdown import table
from fleetgym.runtime.programs import program
from tools.check_families import Verdict, judge, read_costs, rivals, write_costs
from tools.family_cards import COSTS as COSTS_V1
from tools.family_cards import SCORES as SCORES_V1
from tools.family_cards import judged, row
from tools.family_statistics import (
    CLOSEST,
    FamilyScores,
    compared,
    correlation_table,
    correlations,
    read_scores,
    what_counts,
)
from tools.family_statistics import HEADLINE as HEADLINE_V1
from tools.make_instances import HEADLINE, MERGED

ROOT = Path(__file__).resolve().parents[1]
COSTS = ROOT / "docs" / "data" / "families_v2.json"
SCORES = ROOT / "docs" / "data" / "family_scores_v2.json"
PAGE = ROOT / "docs" / "fleet-v2-families.md"
SEED = 20261125
_HEAD = (
    *("family", "never changes", "last value", "serving nobody", "best agent", "above the bound"),
    *("instances that pass", "label"),
)


def smoke(folder: Path) -> int:
    """Write the page elsewhere, of an instance of each family beside two of fleet-v1."""
    known = read_costs(COSTS_V1)
    few = {name: known[name] for name in known if name.endswith(("/ou-s-101", "/drop-s-101"))}
    write_costs(folder / "before.json", few)
    known = read_costs(COSTS)
    write_costs(folder / "costs.json", {name: known[name] for name in known if name.endswith("-1000")})
    files = ["--costs", str(folder / "costs.json"), "--before", str(folder / "before.json")]
    return main([*files, "--page", str(folder / "page.md")])


def main(argv: list[str] | None = None) -> int:
    """Write the page."""
    parser = program(__doc__, writes="docs/fleet-v2-families.md.", takes="Seconds.", smoke=smoke)
    parser.add_argument("--costs", type=Path, default=COSTS)
    parser.add_argument("--before", type=Path, default=COSTS_V1, help="costs of fleet-v1's families")
    parser.add_argument("--page", type=Path, default=PAGE)
    arguments = parser.parse_args(argv)
    costs = by_family(arguments.costs)
    write_atomically(arguments.page, page(costs, arguments.before).encode())
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
    """Return each agent's mean ln(cost / the best agent's) by family and merged ones; agents that all instances have.

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
            for group in (group for group in MERGED if family == group[-1] and set(group) <= set(costs)):
                found[agent]["+".join(group)] = float(np.mean([found[agent][name] for name in group]))
    return found


def _samples(costs: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]) -> str:
    """Return how many generated instances and fresh scenarios there are of each family."""
    kinds: dict[tuple[int, int], list[str]] = {}
    for family, of in costs.items():
        kinds.setdefault((len(of), _scenarios(of)), []).append(f"`{family}`")
    if len(kinds) == 1:
        ((instances, scenarios),) = kinds
        return f"generated instances, {instances} of each family, with {scenarios} fresh scenario of each"
    return "; ".join(f"{n} × {k} of {', '.join(names)}" for (n, k), names in kinds.items())


def _scenarios(instances: Mapping[str, Mapping[str, np.ndarray]]) -> int:
    """Return of how many scenarios all agents' costs are known."""
    return min(len(values) for table in instances.values() for values in table.values())


def page(costs: Mapping[str, Mapping[str, Mapping[str, np.ndarray]]], earlier: Path = COSTS_V1) -> str:
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
        else "All families of `fleet-v2` pass."
    )
    told += f" **Not measured: {', '.join(missing)}.**" if missing else ""
    before = {v.family: v for v in judged(earlier)}
    rows = [
        *(("`fleet-v1`", *row(family, before[family])) for family in HEADLINE_V1 if family in before),
        *(("`fleet-v2`", *row(family, v)) for family, v in verdicts.items()),
    ]
    return f"""# Do the families of `fleet-v2` earn their place?

<!-- Made by tools/preview_families.py from docs/data/families_v2.json and the scores beside it. -->

The gates are those of [fleet-v1](families.md), which explains them. The samples are tiny: {_samples(costs)}.
They say whether a family is far from its gates. They do not say by how much. An interval over one scenario is a point.
{told} A better agent than those tried would raise all three columns.

{table(("set", *_HEAD), rows, text_columns=2)}
{alikeness(SCORES_V1, SCORES, scores(costs))}"""


def alikeness(before: Path, after: Path, here: FamilyScores) -> str:
    """Return the part on how families tell agents apart, before and after.

    Parameters
    ----------
    before, after : Path
        Scores of both sets.
    here : FamilyScores
        Of the gates' agents on the gates' days.
    """
    old, new = read_scores(before), read_scores(after)
    rows = [
        *(_summary(about, found, HEADLINE_V1, ()) for about, found in old.items()),
        *(_summary(about, found, HEADLINE, MERGED) for about, found in new.items()),
        _summary("the days of the gates", here, HEADLINE, MERGED),
    ]
    head = (
        "played",
        "agents",
        f"pairs of families at {CLOSEST} or above",
        "largest, families",
        "largest, what counts",
    )
    return f"""## How families tell agents apart

Rank correlations (Spearman) between two families should be below {CLOSEST}. Families that are joined by a higher
one on all tasks of test are *merged*. They count once in the score, as one family.
`tools.family_statistics.alike` finds them, `merged` in the set's manifest names them, and a test compares the two.

{table(head, rows)}
Fewer tasks make rankings noisy. That moves correlations both ways, so the tasks of all of test decide.
Spreads, ranks without one family and the best agents alone are in [the results](fleet-v2-results.md).

**Before**: {_matrix(old, HEADLINE_V1, ())}
**After**: {_matrix(new, HEADLINE, ())}
**After, by what counts**: {_matrix(new, HEADLINE, MERGED)}"""


def _summary(
    about: str, found: FamilyScores, headline: Sequence[str], merged: Sequence[Sequence[str]]
) -> list[object]:
    families = correlations(compared(found, headline))
    counts = correlations(what_counts(found, headline, merged))
    close = sum(value >= CLOSEST - 1e-9 for value in families.values())
    return [
        about,
        len(compared(found, headline)),
        f"{close} of {len(families)}",
        f"{max(families.values()):.2f}",
        f"{max(counts.values()):.2f}",
    ]


def _matrix(
    stored: Mapping[str, FamilyScores], headline: Sequence[str], merged: Sequence[Sequence[str]]
) -> str:
    about, found = next(iter(stored.items()))
    counts = what_counts(found, headline, merged)
    names = list(next(iter(counts.values())))
    return f"{len(counts)} agents, {about}.\n\n{correlation_table(correlations(counts), names)}"


if __name__ == "__main__":
    run_program(main)
