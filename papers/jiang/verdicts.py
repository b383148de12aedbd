"""Judge the paper's claims by the tables of the page.

The verdicts read the page's own tables. So they hold for sections that were computed now and for those that were kept.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fleetgym.files.markdown import rows

HOLDS, PART, FAILS, OPEN = "holds", "in part", "does not hold", "cannot be told"
Claim = tuple[str, str, str, str]


def _percents(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"([+-]?\d+) %", text)]


def claims(parts: Mapping[str, str]) -> list[Claim]:
    """Return where a claim stands, the claim, what was measured, and the verdict; those whose tables are there."""
    tables = {
        name.partition(":")[0].removeprefix("## ").partition(" (")[0]: rows(text)
        for name, text in parts.items()
    }
    found: list[Claim] = []
    for judge in (_example, _gains, _latency, _observations, _ablations, _search, _replanning):
        found += judge(tables)
    if "Helix" in {name.partition(" (")[0].removeprefix("## ") for name in parts}:
        text = "Helix is not run on these GPUs; the paper's two throughputs at 15 and 30 USD/h contradict each other"
        found.append(("Table 3", "25 % more throughput than Helix (7.13 against 5.72 req/s)", text, OPEN))
    return found


def _example(tables: Mapping[str, list[list[str]]]) -> list[Claim]:
    found = tables.get("The example of section 4.2", [])
    worst = max((abs(float(row[2]) - float(row[1])) for row in found if "exact" not in row[0]), default=1.0)
    if not found:
        return []
    text = f"all of them within {worst:.3f} s of what is printed"
    return [("4.2", "Makespans of 44.05, 35.24, 30.94 and 28.67 s", text, HOLDS if worst < 0.01 else FAILS)]


def _gains(tables: Mapping[str, list[list[str]]]) -> list[Claim]:
    found = []
    for row in tables.get("End to end", []):
        if row[0] not in ("70B", "8B", "8B+70B") or len(row) != 5:
            continue
        low, high, *_ = (float(n) for n in re.findall(r"[+-]?\d+", row[2]))
        mean = float(re.search(r"mean ([+-]?\d+)", row[2])[1])  # type: ignore[index]
        verdict = HOLDS if mean >= 20 else PART if high > 0 else FAILS
        if verdict == PART:
            verdict += ": single types have no limit here; at equal availability the plan wins"
        text = f"against the best type without limits {row[2]}; at equal availability {row[3]}"
        found.append(("5.2", f"{row[0]}: gains over homogeneous fleets, {row[1]}", text, verdict))
    return found


def _latency(tables: Mapping[str, list[list[str]]]) -> list[Claim]:
    rows = tables.get("Percentiles", [])
    if not rows:
        return []
    gains = [[float(row[k].split()[0]) for row in rows] for k in (4, 6)]
    means = [sum(found) / len(found) for found in gains]
    free, equal = (
        f"{min(found):+.0f} to {max(found):+.0f} %, mean {mean:+.0f} %"
        for found, mean in zip(gains, means, strict=True)
    )
    text = f"change against the best type without limits {free}; at equal availability {equal}"
    verdict = HOLDS if means[0] <= -15.0 else FAILS
    if verdict == FAILS and means[1] <= -15.0:
        verdict = f"{PART}: single types have no limit here; at equal availability the plan wins"
    return [("5.2", "Percentile latencies fall by up to 54 %, 20 % on average", text, verdict)]


def _observations(tables: Mapping[str, list[list[str]]]) -> list[Claim]:
    found = []
    for row in tables.get("Observations 1 and 2", []):
        printed, most = float(row[1].split()[0]), float(row[2].split()[0])
        verdict = HOLDS if most >= 0.9 * printed else FAILS
        if verdict == HOLDS and row[0].startswith("1"):
            verdict = f"{PART}: by as much, but by other types"
        text = f"up to {row[2]}, in the median {row[3]}; best: {row[4]}"
        found.append(("3", f"Observation {row[0]}: up to {row[1]}", text, verdict))
    return found


def _ablations(tables: Mapping[str, list[list[str]]]) -> list[Claim]:
    found = []
    for name, printed, measured in tables.get("Ablations and HexGen", []):
        there, here = _percents(printed)[-1], _percents(measured)[-1]
        verdict = HOLDS if abs(here - there) <= 7.0 else f"{PART}: more" if here > there else f"{PART}: less"
        found.append(("5.2, 5.3", f"{name}: {printed}", measured, verdict))
    return found


def _search(tables: Mapping[str, list[list[str]]]) -> list[Claim]:
    times = [float(row[-1]) for row in tables.get("Speed", [])]
    if not times:
        return []
    text = f"the search takes {min(times):.1f} to {max(times):.1f} times the exact program's CPU time"
    verdict = FAILS if min(times) > 1.0 else PART
    claim = "Binary search takes a quarter of the MILP's time and loses less than 1 %"
    return [
        (
            "Figure 9",
            claim,
            text,
            f"{verdict}: one linear program without products is faster" if verdict == FAILS else verdict,
        )
    ]


def _replanning(tables: Mapping[str, list[list[str]]]) -> list[Claim]:
    found = {row[0]: row for row in tables.get("Replanning", []) if len(row) == 3}
    if "4 H100 lost: after" not in found:
        return []
    lost, again = (
        found["4 H100 lost: after"],
        [r for name, r in found.items() if name.startswith("the same, replanned")],
    )
    text = f"after the loss {lost[2]}, replanned {again[-1][2]}; published {lost[1]} and {again[-1][1]}"
    better = float(again[-1][2].split()[0]) > float(lost[2].split()[0])
    return [
        (
            "Table 7",
            "Replanning wins back part of what a loss of GPUs costs",
            text,
            HOLDS if better else FAILS,
        )
    ]
