"""Judge the paper's eight insights by the cells, and give the page what it needs of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..harness import FAILS, HOLDS, PART
from . import published

Cells = Mapping[str, Any]
Verdict = tuple[str, str, str]


def summarise(cells: Cells) -> dict[str, Any]:
    """Return what is committed: the cells as they are."""
    return dict(cells)


def view(cells: Cells) -> dict[str, Any]:
    """Return the variables and functions of the template; ``table-1`` is called ``table_1`` there."""
    functions = {"ms": ms, "interval": interval, "counts": counts, "fleet": fleet}
    named = {name.replace("-", "_"): cell for name, cell in cells.items()}
    exact = _changed_by_exact_moments(cells)
    return {**named, **functions, "exact": exact, "insights": insights(cells), "published": published}


def _changed_by_exact_moments(cells: Cells) -> dict[str, int]:
    """Return how many of the tool's fleets exact moments size otherwise."""
    rows = [row for number in (1, 3, 4, 6, 7) for row in cells[f"table-{number}"]["rows"]]
    rows += [cells["table-1"]["homogeneous"], *cells["table-8"]["aggregated"]]
    sizes = [[(row[rule]["short"], row[rule]["long"]) for rule in ("tool", "exact")] for row in rows]
    return {"fleets": len(rows), "changed": sum(tool != exact for tool, exact in sizes)}


def ms(value: float | None) -> str:
    """Return milliseconds; infinite where there are none.

    Examples
    --------
    >>> ms(8.65), ms(2173.4), ms(None)
    ('8.7', '2,173', '∞')
    """
    if value is None:
        return "∞"
    return f"{value:,.0f}" if value >= 10.0 else f"{value:.1f}"


def interval(row: Mapping[str, Any], mean: str = "p99_ms", low: str = "low_ms", high: str = "high_ms") -> str:
    """Return a simulated percentile in ms, with its interval where that is not a single value when rounded."""
    found = ms(row[mean])
    ends = [ms(None if row[low] is None else max(0.0, row[low])), ms(row[high])]
    return found if ends == [found, found] else f"{found} [{', '.join(ends)}]"


def counts(pair: Sequence[int | None], kusd: float | None = None) -> str:
    """Return GPUs by pool, and what they cost a year.

    Examples
    --------
    >>> counts([2, 13], 290.4), counts([2, None])
    ('2+13, $290K', '2+–')
    """
    text = "+".join("–" if n is None else str(n) for n in pair if n != 0)
    return text if kusd is None else f"{text}, ${kusd:.0f}K"


def fleet(row: Mapping[str, Any], printed: str = "") -> str:
    """Return the columns of a fleet: the tool's and ours; P99 and late share of the tool's.

    Parameters
    ----------
    row : mapping
        From a cell.
    printed : str
        What the paper prints, if that is not what its tool gives.
    """
    tool, pools = row["tool"], row["pools"]
    columns = (
        counts([tool["short"], tool["long"]][: len(pools)], tool["kusd"])
        + (f" ({printed})" if printed else ""),
        counts(row["ours"], row["ours_kusd"]),
        " / ".join(map(interval, pools)),
        " / ".join(f"{100 * pool['late_share']:.2f}" for pool in pools),
    )
    return " | ".join(columns)


def _verdict(*holds: bool) -> str:
    return HOLDS if all(holds) else PART if any(holds) else FAILS


def _split(cells: Cells) -> Verdict:
    rows = cells["table-1"]["rows"]
    one = cells["table-1"]["homogeneous"]["ours_kusd"]
    costs = {row["published"]["threshold"]: row["ours_kusd"] for row in rows}
    kept = {t: c for t, c in costs.items() if c is not None}
    best = min(kept, key=lambda t: (kept[t], t))
    differs = max(kept.values()) > 1.2 * min(kept.values())
    same_best = best == 4096
    lost = ", ".join(f"{t:,}" for t, c in costs.items() if c is None)
    return (
        "1. The best threshold cannot be read off the CDF; 4,096 is optimal",
        _verdict(differs, same_best),
        f"costs differ between thresholds, but the cheapest that keeps the SLO is {best:,} (${kept[best]:.0f}K;"
        f" one pool ${one:.0f}K);"
        f" the long pool misses the SLO, whatever its size, at {lost}",
    )


def _agents(cells: Cells) -> Verdict:
    each, one = cells["table-2"]["each_ms"], cells["table-2"]["homogeneous"]
    median = each[len(each) // 2]
    return (
        "2. 24 H100 at 30 % utilisation fail (1,052 ms), and the queueing model approves broken fleets",
        _verdict(median > 1000.0, one["utilization"] < 0.5),
        f"one seed: the median of {len(each)} is {median:.0f} ms, {one['within']} keep the SLO;"
        f" utilisation is {100 * one['utilization']:.0f} %",
    )


def _types(cells: Cells) -> Verdict:
    best = cells["table-3"]["best"]
    cheapest, single = (
        best[0],
        min(row["usd_per_h"] for row in best if row["gpu"].startswith("H100") and row["pools"] == 1),
    )
    is_slow = cheapest["gpu"] == "A10G" and cheapest["pools"] >= 2
    a10g = [row for row in best if row["gpu"] == "A10G"]
    helps = min(r["usd_per_h"] for r in a10g if r["pools"] > 1) < min(
        r["usd_per_h"] for r in a10g if r["pools"] == 1
    )
    return (
        "3. A10G in two pools is the cheapest; cost depends on the layout",
        _verdict(is_slow, helps),
        f"with its profiles: {cheapest['gpu']} in {cheapest['pools']} pools at ${8.76 * cheapest['usd_per_h']:.0f}K,"
        " one pool of H100 at "
        f"${8.76 * single:.0f}K. A Llama-70B does not fit on an A10G",
    )


def _steps(cells: Cells) -> Verdict:
    rows = cells["table-4"]["rows"]
    counts = [sum(row["ours"]) for row in rows]
    growth = counts[-1] / counts[0]
    ratio = rows[-1]["published"]["rate"] / rows[0]["published"]["rate"]
    early = [
        r["published"]["rate"]
        for r in rows
        if r["published"]["until"] and r["most_rate"] < r["published"]["until"] - 0.5
    ]
    return (
        "4. GPUs grow more slowly than traffic (5.75 times for 16 times), with exact step thresholds",
        _verdict(growth < 0.9 * ratio, not early),
        f"ours grow {growth:.1f} times ({counts[0]} to {counts[-1]}): the published factor comes from its minimum"
        " of two GPUs per pool at 25 requests/s;"
        f" {len(early)} of 6 fleets pass 85 % utilisation before the published rate",
    )


def _routers(cells: Cells) -> Verdict:
    rows = {row["router"]: row for row in cells["table-5"]["rows"]}
    length, squeeze, chance = (rows[name] for name in ("length", "compress-and-route", "random"))
    fails = squeeze["late_low"] > 0.01 and length["late_high"] <= 0.01
    ranked = chance["high_s"] < length["low_s"] if chance["high_s"] and length["low_s"] else False
    p99 = ", ".join(f"{name} {1e3 * row['ttft_p99_s']:.0f} ms" for name, row in rows.items())
    return (
        "5. Compress-and-route fails where length passes; random is fastest",
        _verdict(fails, ranked),
        f"with consistent slots: {p99}",
    )


def _mixing(cells: Cells) -> Verdict:
    first, mixed, wrong = cells["table-7"]["rows"]
    saves = first["tool"]["kusd"] > mixed["tool"]["kusd"]
    heals = None not in mixed["ours"] and None in wrong["ours"]
    late = 100.0 * wrong["pools"][1]["late_share"]
    return (
        "6. Mixing types can save money, and the wrong type for long requests cannot be healed by number",
        _verdict(saves, heals),
        f"A10G + H100 keeps the SLO at ${mixed['tool']['kusd']:.0f}K; with A100s {late:.1f} % of the long pool's"
        f" requests are late, and prefill alone takes {wrong['pools'][1]['prefill_p99_ms']:.0f} ms at its P99",
    )


def _disaggregation(cells: Cells) -> Verdict:
    rows = cells["table-8"]["rows"]
    costs = {(r["published"]["prefill"], r["published"]["decode"]): r["ours"]["kusd"] for r in rows}
    best = min(costs, key=lambda pair: costs[pair])
    whole = min(r["ours_kusd"] for r in cells["table-8"]["aggregated"])
    load = max(max(r["load"]) for r in rows)
    saves = costs[best] < whole
    return (
        "7. Disaggregation saves 35 to 46 %, with the expensive GPU on decode and the cheap one on prefill",
        _verdict(saves, best == ("A100-80GB", "H100-80GB")),
        f"the published fleets carry up to {load:.1f} times their capacity once prompts need compute and decoding"
        f" its context; of those, sized to stand, the cheapest is {best[0]} prefill + {best[1]} decode at"
        f" ${costs[best]:.0f}K, aggregated ${whole:.0f}K",
    )


def _power(cells: Cells) -> Verdict:
    rows = {row["published"]["flex"]: row for row in cells["table-9"]["rows"]}
    sustained = rows[30]["steady"] is not None and rows[30]["steady"]["high_ms"] < 500.0
    short = rows[40]["event_high_ms"] < 500.0
    return (
        "8. 40 H100 give up 30 % of their power for hours, 40 % for minutes",
        _verdict(sustained, short),
        f"30 %: {rows[30]['steady']['p99_ms']:.0f} ms in steady state;"
        f" 40 %: {rows[40]['event_ms'] / 1e3:.1f} s within 75 s, not 190 ms",
    )


def insights(cells: Cells) -> list[Verdict]:
    """Return (insight, verdict, why) for each of the eight."""
    judges = (_split, _agents, _types, _steps, _routers, _mixing, _disaggregation, _power)
    return [judge(cells) for judge in judges]
