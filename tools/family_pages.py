"""Write what is measured of the families into ``docs/families.md``.

python -m tools.check_families --quick-grids --scenarios 4 --bounds 1 --json docs/data/families.json
python -m tools.score_suite results/v1-test/*.jsonl     # how agents score by family on the test split
python -m tools.family_pages
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from fleetgym.cli.process import run_program
from fleetgym.files.documents import write_atomically
from fleetgym.model.library import entries
from fleetgym.runtime.programs import program
from fleetgym.scoring.best_known import best_known_path, read_best_known
from fleetgym.scoring.score import percent
from tools.check_families import Verdict, judge, read_costs
from tools.family_statistics import (
    CLOSEST,
    FAMILIES,
    WIDEST,
    compared,
    read_scores,
    section,
)
from tools.markdown import rewrite, table

DOCS = Path(__file__).resolve().parents[1] / "docs"
DATA = DOCS / "data"
SEED = 20261121


def smoke(folder: Path) -> None:
    """Write the page elsewhere, from few instances."""
    costs = read_costs(DATA / "families.json").items()
    write(folder, {name: usd for name, usd in costs if name.endswith(("/ou-s-101", "/drop-s-101"))})


def main(argv: list[str] | None = None) -> None:
    """Write the page."""
    program(__doc__, writes="docs/families.md, between its marks.", takes="Seconds.", smoke=smoke).parse_args(
        argv
    )
    write(DOCS, read_costs(DATA / "families.json"))


def write(folder: Path, costs: Mapping[str, Mapping]) -> None:
    """Write the page into a folder, from costs by instance."""
    verdicts = judged(costs)
    text = measured(verdicts, sizes(costs), disagreement(DATA / "family_scores.json"))
    write_atomically(folder / "families.md", rewrite(DOCS / "families.md", text).encode())


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

From the [scores](results.md) of the reference agents as published, without `random`. *Spread* is the standard
deviation of agents' mean ln(cost ratio) in a family; the goal is a widest of at most {WIDEST:.0f} times the narrowest.
The goal for the *rank correlation* (Spearman) of agents between two families is below {CLOSEST}.

{chr(10).join(parts)}"""


def best_known_above_bound() -> dict[str, float]:
    """Return how far best-known costs are above the hindsight bounds, in percent by family."""
    logs: dict[str, list[float]] = {}
    for suite in ("fleet-v0", "fleet-v1"):
        for task, best in read_best_known(best_known_path(suite)).tasks.items():
            entry = entries().get(task.partition("#")[0])
            if entry is not None and entry.family in FAMILIES and best.bound_usd:
                logs.setdefault(entry.family, []).append(math.log(best.value_usd / best.bound_usd))
    return {family: percent(sum(values) / len(values)) for family, values in logs.items()}


def measured(verdicts: Mapping[str, Verdict], sizes: str = "", agents: str = "") -> str:
    """Return what ``docs/families.md`` says between its marks."""
    known = best_known_above_bound()
    rows = [row(family, verdicts[family], known.get(family)) for family in FAMILIES if family in verdicts]
    scenarios = " or ".join(str(n) for n in sorted({v.scenarios for v in verdicts.values()}))
    return f"""Measured, with {scenarios} scenarios each: {sizes}.

*Never changes*: the best of the initial fleet and AGH's at several margins, held all day. *Last value*: AGH on the
last window's demand, the best of several margins and periods. Both are tuned in hindsight. Percentages are
above the best agent, with bootstrap intervals over scenarios.

An instance passes if never-changes is at least 8 % and last-value at least 5 % above the best agent, and serving
nobody costs 4 to 12 times the best known. A family is *headline* if at least 70 % of its instances pass.

*Above the bound*: the best agent over the hindsight bound, on the first scenario of each instance, and best-known costs
over it, on all tasks of `fleet-v0` and `fleet-v1` that have a bound. The bound knows the whole day, leaves out late
requests, and allows fractional replicas.

{table(_HEAD, rows)}
{agents}"""


_HEAD = (
    *("family", "never changes", "last value", "serving nobody", "best agent"),
    *("above the bound: best agent", "best known", "instances that pass", "label"),
)


def row(family: str, v: Verdict, known: float | None) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        f"`{family}`",
        share(v.hold, v.hold_interval),
        share(v.last, v.last_interval),
        f"{v.empty:.1f} ×",
        f"`{v.best}`",
        "" if v.bound is None else f"+{100 * v.bound:.1f} %",
        "" if known is None else f"+{known:.0f} %",
        f"{v.passing} of {v.instances}",
        v.label,
    )


def share(value: float, interval: tuple[float, float]) -> str:
    """Return a share with its interval, if there are several scenarios to make one."""
    low, high = interval
    return f"+{100 * value:.1f} %" + (f" [{100 * low:.1f}, {100 * high:.1f}]" if low < high else "")


if __name__ == "__main__":
    run_program(main)
