"""Judge the paper's claims by the tables of the page.

The verdicts read the page's own tables. So they hold for sections that were computed now and for those that were kept.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Mapping

from fleetgym.files.markdown import rows

HOLDS, PART, FAILS, OPEN = "holds", "in part", "does not hold", "cannot be told"
#: The sections that verdicts read.
COSTS, SCARCE, SPREAD = (
    "## Hourly cost over Coral's",
    "## Scarce availability",
    "## Tensor parallelism decides",
)
SOLVING, RULES, MIXING = "## Solve times", "## Sensitivity to (N_max, rho)", "## Figure 1: what mixing brings"

HELIX = "## Helix's single cluster"

_SPREAD_OF = re.compile(r"([\d.]+) \(([\d.]+)–([\d.]+)\)")


@dataclasses.dataclass(frozen=True)
class Spread:
    """A median and the least and the largest value over seeds."""

    median: float
    low: float
    high: float

    def holds(self, published: float) -> bool:
        """Return whether the published value is among the seeds' or below them."""
        return published <= self.high


def spread_of(text: str) -> Spread | None:
    """Return the spread that a cell of the page shows, or None.

    Examples
    --------
    >>> spread_of("1.15 (1.07–1.36)")
    Spread(median=1.15, low=1.07, high=1.36)
    """
    found = _SPREAD_OF.fullmatch(text)
    return None if found is None else Spread(*map(float, found.groups()))


def claims(parts: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """Return where a claim stands, the claim, what was measured, and the verdict; those whose tables are there."""
    found = []
    for judge in (_cost, _scarce, _solving, _plateau, _mixing, _spectrum):
        found += judge(parts)
    if found:
        found.append(
            (
                "6.6",
                "21 % cheaper and 26 % faster than Helix on its largest cluster",
                "Helix's own throughput there comes from its simulator, which is not run here"
                + _single_cluster(parts),
                OPEN,
            )
        )
    return found


def _single_cluster(parts: Mapping[str, str]) -> str:
    """Return what the templates gain on Helix's single cluster."""
    found = {row[0]: row for row in rows(parts.get(HELIX, ""))}
    one = found.get("templates")
    return (
        ""
        if one is None
        else f"; on its single cluster the templates' placement has {one[1]} tokens/s ({one[2]})"
    )


Judge = Callable[[Mapping[str, str]], list[tuple[str, str, str, str]]]


def _cost(parts: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    found = []
    strongest = {row[0].rpartition(", a = ")[0]: row for row in rows(parts.get(SPREAD, ""))}
    for name, _, homo, one, _, cauchy, ours in rows(parts.get(COSTS, "")):
        first, second = spread_of(one), spread_of(ours)
        if first is None or second is None:
            continue
        both = first.holds(float(homo)), second.holds(float(cauchy))
        verdict = HOLDS if all(both) else PART if min(first.low, second.low) > 1.0 else FAILS
        text = f"{one} over Homo-1, {ours} over Cauchy"
        last = strongest.get(name.partition(",")[0]) if name.endswith("default") else None
        if last:
            text += f"; with {last[0].rpartition(', ')[2]}: {last[3]} and {last[5]}"
        if verdict == PART:
            verdict += ": cheaper in every seed, by less"
        found.append(
            ("6.3, 6.5", f"{name}: {homo} times cheaper than Homo, {cauchy} than Cauchy", text, verdict)
        )
    return found


def _scarce(parts: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    found = []
    for name, what, _, homo, one, _, cauchy, ours in rows(parts.get(SCARCE, "")):
        first, second = spread_of(one), spread_of(ours)
        if what == "goodput over Coral's" and first is not None and second is not None:
            more = max(first.median, second.median) <= 1.0
            text = f"goodput over Coral's: Homo-1 {one}, Cauchy {ours}; published {homo} and {cauchy}"
            claim = f"{name}, scarce: Coral serves at least as much as both baselines"
            found.append(("6.4", claim, text, HOLDS if more else FAILS))
    return found


def _solving(parts: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    found = []
    for name, _, stated, mean, *_ in rows(parts.get(SOLVING, "")):
        if stated != "–":
            times = float(mean.split()[0]) / float(stated.split()[0])
            claim = f"{name}: the allocation is solved in {stated} on average, on 32 cores"
            verdict = (
                HOLDS if times <= 1.0 else f"{PART}: {times:.1f} times longer" if times <= 32.0 else FAILS
            )
            found.append(("6.3, 6.4", claim, f"{mean} on one core", verdict))
    return found


def _plateau(parts: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    best = {row[0]: float(row[4].split()[0]) for row in rows(parts.get(RULES, ""))}
    if "6, 12" not in best:
        return []
    first = next(name for name, share in best.items() if share > 99.9)
    verdict = HOLDS if best["6, 12"] > 99.9 else FAILS
    text = f"the best template at (6, 12) has {best['6, 12']:.1f} % of the largest; the plateau begins at ({first})"
    return [("6.7", "Cost efficiency does not grow beyond (N_max, rho) = (6, 12)", text, verdict)]


def _mixing(parts: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    found = [row for row in rows(parts.get(MIXING, "")) if row[0].startswith("a = ")]
    if not found:
        return []
    gains = [float(row[4].split()[0]) for row in found]
    text = "; ".join(
        f"{row[0]}: mixed {row[4]} against pure H100, {row[5]} against one node of it" for row in found
    )
    verdict = HOLDS if min(gains) > 0.0 else PART if max(gains) > 0.0 else FAILS
    return [("Figure 1(a)", "A mixed L40S/H100 pipeline beats every pure H100 set-up by 9 %", text, verdict)]


def _spectrum(parts: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    found = {row[0]: row for row in rows(parts.get(MIXING, "")) if len(row) == 4}
    if "all" not in found:
        return []
    gaps = {name: float(row[3].split()[0]) for name, row in found.items()}
    text = f"the largest gap is {gaps['one node']:g} % for one node, {gaps['one type']:g} % for one type, "
    text += f"{gaps['all']:g} % for all"
    narrow = gaps["all"] < 0.5 * gaps["one type"]
    verdict = HOLDS if narrow else f"{PART}: against single nodes, not against several nodes of one type"
    return [("Figure 1(b)", "Mixed node sets fill the gaps between throughputs of pure ones", text, verdict)]
