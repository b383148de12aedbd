"""Write what is measured of the families: part of ``docs/families.md``, and ``docs/fleet-v2-families.md``.

    python -m tools.check_families --quick-grids --scenarios 4 --bounds 1 --json docs/data/families.json
    python -m tools.check_families --generate 1 --sizes s --quick-grids --scenarios 2 --json docs/data/families_v2.json
    python -m tools.score_suite results/v1-test/*.jsonl     # how agents score by family on the test split
    python -m tools.family_pages

The second command takes the names of the families (`--families`) and of further agents (`--also`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.files.markdown import rewrite, table
from fleetgym.model.library import entries
from fleetgym.runtime.programs import program
from fleetgym.scoring.best_known import best_known_path, read_best_known
from fleetgym.scoring.score import percent
from tools.check_families import Verdict, judge, read_costs, rivals
from tools.family_statistics import (
    CLOSEST,
    FAMILIES,
    HEADLINE,
    FamilyScores,
    compared,
    correlation_table,
    correlations,
    read_scores,
    section,
    what_counts,
)
from tools.make_instances import HEADLINE as PREVIEW
from tools.make_instances import MERGED

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA = DOCS / "data"
SEED, PREVIEW_SEED = 20261121, 20261125

#: USD by family, instance and agent.
Costs = Mapping[str, Mapping[str, Mapping[str, np.ndarray]]]


def smoke(folder: Path) -> None:
    """Write both pages elsewhere, from few instances."""
    few = [
        {name: costs for name, costs in read_costs(DATA / file).items() if name.endswith(endings)}
        for file, endings in (("families.json", ("/ou-s-101", "/drop-s-101")), ("families_v2.json", "-1000"))
    ]
    write(folder, *few)


def main(argv: list[str] | None = None) -> None:
    """Write the pages."""
    program(
        __doc__,
        writes="docs/families.md, between its marks, and docs/fleet-v2-families.md.",
        takes="Seconds.",
        smoke=smoke,
    ).parse_args(argv)
    write(DOCS, read_costs(DATA / "families.json"), read_costs(DATA / "families_v2.json"))


def write(folder: Path, costs: Mapping[str, Mapping], of_preview: Mapping[str, Mapping]) -> None:
    """Write both pages into a folder, from costs by instance."""
    verdicts = judged(costs)
    text = measured(verdicts, sizes(costs), disagreement(DATA / "family_scores.json"))
    write_atomically(folder / "families.md", rewrite(DOCS / "families.md", text).encode())
    write_atomically(folder / "fleet-v2-families.md", preview_page(by_family(of_preview)).encode())


# -- fleet-v1


def judged(costs: Mapping[str, Mapping]) -> dict[str, Verdict]:
    """Return a verdict for each family that has been measured on today's instances."""
    found: dict[str, dict[str, dict[str, np.ndarray]]] = {}
    for name, by_agent in costs.items():
        entry = entries().get(name)
        if entry is not None and entry.content_hash == by_agent["hash"]:
            found.setdefault(entry.family, {})[name] = {a: v for a, v in by_agent.items() if a != "hash"}
    return {family: judge(family, of, np.random.default_rng(SEED)) for family, of in found.items()}


def sizes(costs: Mapping[str, Mapping]) -> str:
    """Return how many instances of which families and sizes have been measured."""
    found = Counter(name.rpartition("/")[2].rpartition("-")[0] for name in costs)
    return ", ".join(f"{count} `{kind}`" for kind, count in found.items())


def disagreement(path: Path) -> str:
    """Return the part on how families tell agents apart, from the scores on the test split."""
    parts = [
        f"### {len(compared(scores))} agents, {about}\n\n{section(scores)}"
        for about, scores in read_scores(path).items()
    ]
    return f"""
## How families tell agents apart

From the [scores](results.md) of the reference agents as published, without `random`.

{chr(10).join(parts)}"""


def best_known_above_bound() -> dict[str, tuple[float, int]]:
    """Return how far best-known costs are above the hindsight bounds in percent, and of how many tasks, by family."""
    logs: dict[str, list[float]] = {}
    for suite in ("fleet-v0", "fleet-v1"):
        for task, best in read_best_known(best_known_path(suite)).tasks.items():
            entry = entries().get(task.partition("#")[0])
            if entry is not None and entry.family in FAMILIES and best.bound_usd:
                logs.setdefault(entry.family, []).append(math.log(best.value_usd / best.bound_usd))
    return {family: (percent(sum(values) / len(values)), len(values)) for family, values in logs.items()}


def bound_gate(verdicts: Mapping[str, Verdict]) -> str:
    """Return what is measured of the distance to the bound, and why it is no gate."""
    missed = [f"`{family}`" for family, v in verdicts.items() if v.near_bound is False]
    known = best_known_above_bound()
    rows = [[f"`{name}`", f"{known[name][0]:.0f} %", known[name][1]] for name in HEADLINE if name in known]
    return f"""*Above the bound* is how far the best agent is above the hindsight bound, on the first scenario of each
instance. 5 to 40 % was wanted; outside are {", ".join(missed) or "none"}, so it is no gate. The bound knows the whole
day, leaves out late requests, which are the subject of `tail`, and lets replicas be split. At most so much of the
distance is the bound's own doing, by the best-known costs of `fleet-v0` and `fleet-v1`:

{table(["family", "best-known above the bound", "tasks"], rows)}"""


def measured(verdicts: Mapping[str, Verdict], sizes: str = "", agents: str = "") -> str:
    """Return what ``docs/families.md`` says between its marks."""
    rows = [row(family, verdicts[family]) for family in FAMILIES if family in verdicts]
    scenarios = " or ".join(str(n) for n in sorted({v.scenarios for v in verdicts.values()}))
    return f"""Measured, with {scenarios} scenarios each: {sizes}.

*Never changes*: the best of the initial fleet and AGH's at several margins, held all day. *Last value*: AGH on the
last window's demand, the best of several margins and periods. Both are tuned in hindsight, which flatters them.
Shares are above the best agent tried, with bootstrap intervals over scenarios. Three scenarios make these hardly more
than a range. The k-th scenarios of all instances share random numbers, so more instances are not more days.

An instance passes if never-changes is at least 8 % and last-value at least 5 % above the best agent, and serving
nobody costs 4 to 12 times the best known. A family is *headline* if at least 70 % of its instances pass.

{bound_gate(verdicts)}
{table(_HEAD, rows)}
{short_of_the_gate(verdicts)}{agents}"""


def short_of_the_gate(verdicts: Mapping[str, Verdict]) -> str:
    """Return a paragraph on the families of the headline mean that do not pass their gate, or nothing.

    Examples
    --------
    >>> short_of_the_gate({})
    ''
    """
    short = [(name, v) for name, v in verdicts.items() if name in HEADLINE and not v.passes]
    if not short:
        return ""
    which = ", ".join(f"`{name}` ({v.passing} of {v.instances})" for name, v in short)
    return f"""**Short of 70 % on these samples: {which}.** Headline scores still count what falls short, as the set is
a candidate: before it is frozen such a family is made harder, or leaves the mean.
"""


_HEAD = (
    *("family", "never changes", "last value", "serving nobody", "best agent", "above the bound"),
    *("instances that pass", "label"),
)


def row(family: str, v: Verdict) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        f"`{family}`",
        share(v.hold, v.hold_interval),
        share(v.last, v.last_interval),
        f"{v.empty:.1f} ×",
        f"`{v.best}`",
        "" if v.bound is None else f"+{100 * v.bound:.1f} %",
        f"{v.passing} of {v.instances}",
        v.label,
    )


def share(value: float, interval: tuple[float, float]) -> str:
    """Return a share with its interval, if there are several scenarios to make one."""
    low, high = interval
    return f"+{100 * value:.1f} %" + (f" [{100 * low:.1f}, {100 * high:.1f}]" if low < high else "")


# -- fleet-v2


def by_family(costs: Mapping[str, Mapping]) -> dict[str, dict[str, dict[str, np.ndarray]]]:
    """Return costs by family in the set's order, of as many scenarios as all its instances have."""
    found: dict[str, dict[str, dict[str, np.ndarray]]] = {family: {} for family in PREVIEW}
    for name, by_agent in costs.items():
        family = name.rpartition("/")[2].rsplit("-", 2)[0]
        if family in found:
            found[family][name] = {agent: values for agent, values in by_agent.items() if agent != "hash"}
    for of in found.values():
        fewest = _scenarios(of) if of else 0
        for name, by_agent in of.items():
            of[name] = {agent: values[:fewest] for agent, values in by_agent.items()}
    return {family: of for family, of in found.items() if of}


def scores(costs: Costs) -> dict[str, dict[str, float]]:
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


def _samples(costs: Costs) -> str:
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


def preview_page(costs: Costs) -> str:
    """Return the page of the preview's families."""
    verdicts: dict[str, Verdict] = {
        family: judge(
            family, {name: dict(of) for name, of in instances.items()}, np.random.default_rng(PREVIEW_SEED)
        )
        for family, instances in costs.items()
    }
    failed = [f"`{family}`" for family, v in verdicts.items() if not v.passes]
    missing = [f"`{family}`" for family in PREVIEW if family not in verdicts]
    told = (
        f"**Not passed by {', '.join(failed)}**, on these samples."
        if failed
        else "All families of `fleet-v2` pass."
    )
    told += f" **Not measured: {', '.join(missing)}.**" if missing else ""
    return f"""# Do the families of `fleet-v2` earn their place?

<!-- Made by tools/family_pages.py from docs/data/families_v2.json and the scores beside it. -->

The gates are those of [fleet-v1](families.md), which explains them. The samples are tiny: {_samples(costs)}.
They say whether a family is far from its gates, not by how much. {told}

{table(_HEAD[:-1], [row(family, v)[:-1] for family, v in verdicts.items()])}
{alikeness(scores(costs))}"""


def alikeness(here: FamilyScores) -> str:
    """Return the part on how families tell agents apart; `here` are scores on the gates' days."""
    old, new = (read_scores(DATA / f"family_scores{version}.json") for version in ("", "_v2"))
    rows = [
        *(_summary(about, found, HEADLINE, ()) for about, found in old.items()),
        *(_summary(about, found, PREVIEW, MERGED) for about, found in new.items()),
        _summary("the days of the gates", here, PREVIEW, MERGED),
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
one on all tasks of test are *merged*: they count once in the score, as one family. The tasks of all of test decide, as
fewer tasks make rankings noisy. `tools.family_statistics.alike` finds merged families, and a test compares them with
the set's manifest.

{table(head, rows)}
{_matrix(new)}"""


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


def _matrix(stored: Mapping[str, FamilyScores]) -> str:
    about, found = next(iter(stored.items()))
    scores = compared(found, PREVIEW)
    return f"{len(scores)} agents, {about}.\n\n{correlation_table(correlations(scores), PREVIEW)}"


if __name__ == "__main__":
    run_program(main)
