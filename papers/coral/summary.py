"""Judge the paper's claims by the tables of the page, which are made here of the cells of a run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..harness import FAILS, HOLDS, OPEN, PART, fixed
from . import published
from .evaluation import METHODS
from .measurements import PLACEMENT_SETS, RULES, SETUPS, SPREAD_LOSSES
from .setup import PHASES

Cells = Mapping[str, Any]
Records = Sequence[Mapping[str, Any]]
Claim = tuple[str, str, str, str]
BASELINES = METHODS[1:]


# -- what is committed of a run


def summarise(cells: Cells) -> dict[str, Any]:
    """Return the tables of the page as plain numbers; a spread is a median with the least and the largest."""
    played = {(setup, case): _records(cells, f"seed {setup} {case} ") for setup, case in published.COST}
    spread = {
        (setup, a): _records(cells, f"spread {setup} {a:g} ") for setup in SETUPS for a in SPREAD_LOSSES
    }
    return {
        "costs": [
            {"setup": setup, "case": case, **_ratios(records, "cost_usd_per_h")}
            for (setup, case), records in played.items()
            if case != "scarce"
        ],
        "scarce": [{"setup": setup, **_scarce(played[setup, "scarce"])} for setup in SETUPS],
        "spread": [
            {"setup": setup, "a": a, **_ratios(records, "cost_usd_per_h")}
            for (setup, a), records in spread.items()
        ],
        "rent": [row for setup in SETUPS for row in _rent(setup, spread[setup, 0.0])],
        "solving": [
            {"setup": setup, "case": case, **_solving(records)} for (setup, case), records in played.items()
        ],
        "plain": [_plain(cell) for name, cell in cells.items() if name.startswith("plain ")],
        "placement": [_placement(cells[f"placement {number}"]) for number in range(PLACEMENT_SETS)],
        "library": {setup: cells[f"library {setup}"] for setup in SETUPS},
        "rule": _rules(cells),
        "mixing": {f"{a:g}": cells[f"mixing {a:g}"] for a in SPREAD_LOSSES},
        "spectrum": cells["spectrum"],
        "helix": cells["helix"],
    }


def _records(cells: Cells, prefix: str) -> list[Mapping[str, Any]]:
    return [record for name, cell in cells.items() if name.startswith(prefix) for record in cell]


def _ratios(records: Records, field: str) -> dict[str, Any]:
    """Return the spread over seeds of each baseline's mean over epochs, over Coral's."""
    seeds = sorted({r["seed"] for r in records})

    def mean(method: str, seed: int) -> float:
        return statistics.fmean(r[field] for r in records if (r["method"], r["seed"]) == (method, seed))

    found: dict[str, Any] = {"seeds": len(seeds)}
    for method in BASELINES:
        ratios = [mean(method, seed) / mean("coral", seed) for seed in seeds]
        found[method] = [statistics.median(ratios), min(ratios), max(ratios)]
    return found


def _scarce(records: Records) -> dict[str, Any]:
    over = [r["availability_over_need"] for r in records]
    return {
        "availability": [min(over), max(over)],
        "cost": _ratios(records, "cost_usd_per_h"),
        "goodput": _ratios(records, "share_of_demand"),
        "served": _ratios(records, "served_without_scaling"),
    }


def _rent(setup: str, records: Records) -> list[dict[str, Any]]:
    """Return each model's rent by phase, Coral's in USD/h and the baselines' over it: Figures 7(b) and 7(d)."""
    rent = {
        method: [
            statistics.fmean(column)
            for column in zip(*(r["rent_by_row"] for r in records if r["method"] == method), strict=True)
        ]
        for method in METHODS
    }
    rows = []
    for m, model in enumerate(SETUPS[setup].models):
        mine = slice(len(PHASES) * m, len(PHASES) * (m + 1))
        coral = rent["coral"][mine]
        phases = [other / own for other, own in zip(rent["homo-1"][mine], coral, strict=True)]
        row: dict[str, Any] = {"setup": setup, "model": model, "coral": coral, "homo-1 by phase": phases}
        rows.append(row | {method: sum(rent[method][mine]) / sum(coral) for method in BASELINES})
    return rows


def _solving(records: Records) -> dict[str, Any]:
    mine = [r for r in records if r["method"] == "coral"]
    seconds, gaps, gpus = ([r[key] for r in mine] for key in ("cpu_s", "gap", "gpus"))
    return {
        "epochs": len(mine),
        "mean_s": statistics.fmean(seconds),
        "median_s": statistics.median(seconds),
        "most_s": max(seconds),
        "proven": sum(r["status"] == "optimal" for r in mine),
        "gap": max(gaps),
        "gpus": [min(gpus), max(gpus)],
        "mixed": sum(r["mixed_replicas"] for r in mine) / max(1, sum(r["replicas"] for r in mine)),
    }


def _plain(both: Mapping[str, Any]) -> dict[str, Any]:
    return {**both, "times": both["highs"]["cpu_s"] / both["ours"]["cpu_s"]}


def _placement(cell: Mapping[str, Any]) -> dict[str, Any]:
    """Return a set of nodes with how much faster the enumeration is, and whether it contradicts the ILP."""
    below = cell["own_rps"] < cell["ilp_rps"] * (1 - 1e-6)
    above = cell["proven"] and cell["own_rps"] > cell["ilp_rps"] * (1 + 1e-6)
    return {**cell, "times": cell["ilp_cpu_s"] / cell["own_cpu_s"], "wrong": bool(below or above)}


def _rules(cells: Cells) -> list[dict[str, Any]]:
    found = [(f"{most}, {ratio:g}", cells[f"rule {most} {ratio:g}"]) for most, ratio in RULES]
    best = max(cell["best_requests_per_usd"] for _, cell in found)
    return [{"rule": rule, **cell, "share": cell["best_requests_per_usd"] / best} for rule, cell in found]


# -- what the page needs


def view(cells: Cells) -> dict[str, Any]:
    """Return the variables and functions of the template."""
    times = [row["times"] for row in cells["plain"]]
    placed = [row["times"] for row in cells["placement"]]
    return {
        **cells,
        "published": published,
        "spread_text": spread_text,
        "claims": claims(cells),
        "plain_same": sum(_is_same(row) for row in cells["plain"]),
        "plain_times": [min(times), statistics.median(times), max(times)],
        "placed_times": [min(placed), statistics.median(placed)],
    }


def _is_same(both: Mapping[str, Any]) -> bool:
    """Return whether HiGHS and the allocator found the same cost within their gaps."""
    usd_per_h = both["highs"]["usd_per_h"]
    return usd_per_h is not None and abs(usd_per_h / both["ours"]["usd_per_h"] - 1) < 1e-3


def spread_text(values: Sequence[float]) -> str:
    """Return a median with the least and the largest value over seeds.

    Examples
    --------
    >>> spread_text([1.153, 1.07, 1.36])
    '1.15 (1.07–1.36)'
    """
    median, low, high = values
    return f"{median:.2f} ({low:.2f}–{high:.2f})"


def claims(cells: Cells) -> list[Claim]:
    """Return where a claim stands, the claim, what was measured, and the verdict."""
    judges: tuple[Callable[[Cells], list[Claim]], ...]
    judges = (_cost, _goodput, _time, _plateau, _mixing, _spectrum, _helix)
    return [claim for judge in judges for claim in judge(cells)]


def _cost(cells: Cells) -> list[Claim]:
    found = []
    for row in cells["costs"]:
        homo, cauchy = published.COST[row["setup"], row["case"]]
        first, second = row["homo-1"], row["cauchy"]
        several = spread_text(row["homo-m"])
        text = f"{spread_text(first)} over Homo-1, {spread_text(second)} over Cauchy, {several} over Homo-M"
        if row["case"] == "default":
            last = [other for other in cells["spread"] if other["setup"] == row["setup"]][-1]
            text += (
                f"; with a = {last['a']:g}: {spread_text(last['homo-1'])} and {spread_text(last['cauchy'])}"
            )
            text += " over the first two"
        verdict = FAILS
        if homo <= round(first[2], 2) and cauchy <= round(second[2], 2):
            verdict = HOLDS
        elif min(first[1], second[1]) > 1.0:
            verdict = f"{PART}: cheaper in every seed, by less"
        claim = f"{row['setup']}, {row['case']}: {homo:.2f} times cheaper than Homo, {cauchy:.2f} than Cauchy"
        found.append(("6.3, 6.5", claim, text, verdict))
    return found


def _goodput(cells: Cells) -> list[Claim]:
    found = []
    for row in cells["scarce"]:
        homo, cauchy = (1 / times for times in published.GOODPUT[row["setup"]])
        ours = row["goodput"]
        text = f"goodput over Coral's: Homo-1 {spread_text(ours['homo-1'])}, Cauchy {spread_text(ours['cauchy'])}"
        text += f"; published {homo:.2f} and {cauchy:.2f}"
        claim = f"{row['setup']}, scarce: Coral serves at least as much as both baselines"
        verdict = HOLDS if max(ours["homo-1"][0], ours["cauchy"][0]) <= 1.0 else FAILS
        found.append(("6.4", claim, text, verdict))
    return found


def _time(cells: Cells) -> list[Claim]:
    """Judge solve times by seconds where one core is as fast as 32, else by core-seconds."""
    found = []
    for row in cells["solving"]:
        stated = published.SOLVE_S.get((row["setup"], row["case"]))
        if stated is None:
            continue
        times = row["mean_s"] / stated
        claim = f"{row['setup']}, {row['case']}: the allocation is solved in {stated:.2f} s on average, on 32 cores"
        text, verdict = f"{row['mean_s']:.2f} s on one core", HOLDS if times <= 32.0 else FAILS
        if verdict == HOLDS and times > 1.0:
            text += f": {times:.1f} times the seconds on a 32nd of the cores"
            verdict += ", in core-seconds"
        found.append(("6.3, 6.4", claim, text, verdict))
    return found


def _plateau(cells: Cells) -> list[Claim]:
    shares = {row["rule"]: row["share"] for row in cells["rule"]}
    first = next(rule for rule, share in shares.items() if share > 0.999)
    share = shares["6, 12"]
    text = f"the best template at (6, 12) has {fixed(share, '.1%')} of the largest; the plateau begins at ({first})"
    claim = "Cost efficiency does not grow beyond (N_max, rho) = (6, 12)"
    return [("6.7", claim, text, HOLDS if share > 0.999 else FAILS)]


def _mixing(cells: Cells) -> list[Claim]:
    parts, gains = [], []
    for a, best in cells["mixing"].items():
        gain, over_one = (
            best["L40S and H100"] / best[other] - 1 for other in ("pure H100", "pure H100, one node")
        )
        gains.append(gain)
        parts.append(
            f"a = {a}: mixed {fixed(gain, '+.1%')} against pure H100, {fixed(over_one, '+.1%')} against one node of it"
        )
    verdict = HOLDS if min(gains) > 0.0 else PART if max(gains) > 0.0 else FAILS
    claim = "A mixed L40S/H100 pipeline beats every pure H100 set-up by 9 %"
    return [("Figure 1(a)", claim, "; ".join(parts), verdict)]


def _spectrum(cells: Cells) -> list[Claim]:
    gaps = {name: found["largest_gap"] for name, found in cells["spectrum"].items()}
    text = "the largest gap is " + ", ".join(
        f"{fixed(gaps[name], '.2%')} for {name}" for name in ("one node", "one type", "all")
    )
    verdict = HOLDS
    if gaps["all"] >= 0.5 * gaps["one type"]:
        verdict = f"{PART}: against single nodes, not against several nodes of one type"
    return [("Figure 1(b)", "Mixed node sets fill the gaps between throughputs of pure ones", text, verdict)]


def _helix(cells: Cells) -> list[Claim]:
    found = cells["helix"]
    text = (
        "Helix's own throughput there comes from its simulator, which is not run here; on its single cluster the "
        f"templates' placement has {found['tokens_per_s']:.1f} tokens/s "
        f"({fixed(found['tokens_per_s'] / found['published'] - 1, '+.1%')})"
    )
    return [("6.6", "21 % cheaper and 26 % faster than Helix on its largest cluster", text, OPEN)]
