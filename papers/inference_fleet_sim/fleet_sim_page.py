"""Write docs/reproduce-fleet-sim.md from finished cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fleetgym.files.markdown import table

from . import further_sections
from .insights import insights
from .published import HOMOGENEOUS_1, TABLE_2

Row = dict[str, Any]

_HEAD = """# inference-fleet-sim, reproduced

Chen et al., *inference-fleet-sim: A Queueing-Theory-Grounded Fleet Capacity Planner for LLM Inference* (2026): its
nine tables, beside what its own rules give, what they give without their errors, and what a simulator with several
seeds says. This page is written by `python -m fleetgym.papers.inference_fleet_sim`.

**Columns.** *Published* is what the paper prints. *Tool* is `fleetgym.papers.inference_fleet_sim.fleet_sim`, the
rules of its published tool, here computed anew. *Exact* uses the same rules, but moments summed over every length
instead of 3,000 draws.
*Ours* is `fleetgym.capacity.studies.sizing`: exact moments, utilisation of at most 85 %, and at most 1 %
of a pool's requests later than the SLO, each with its own prefill; a dash where no number of GPUs achieves that,
because prefill alone takes longer for more than 1 % of the pool's requests. *P99* is the simulated 99th percentile
of the TTFT of the *tool's* fleet, mean over {seeds} seeds of {requests:,} requests in steady state, with a 95 %
interval; pools are separated by a slash, short requests first. Profiles, prices and length distributions are the
paper's throughout, except in the last section; annual costs in thousand USD.
"""

_CHANGE = """## What would change our verdict

- **Profiles.** All verdicts rest on the paper's profiles: an 8-GPU group is priced as one GPU, and prompts need no
  compute. Measured profiles move every cost (see *Real deployments*).
- **A published trace with arrivals.** Arrivals are Poisson here as there. Burstier ones need larger fleets.
- **Insight 2.** A second seed of the authors' own run would do: over 40 seeds the median is far below the SLO.
- **Insights 5 and 8.** The published simulator divides service by the slots and has a server for each slot. Its
  rankings would have to hold once that is mended. They do not.
- **Insight 7.** Prefill that needs no compute is what makes disaggregation cheap. A measured prefill rate decides it.
"""


def page(cells: dict[str, Any], images: Sequence[str]) -> str:
    """Return the page; tables whose cells are missing are named as missing."""
    beyond = cells.get("beyond", {"seeds": "?", "requests": 0})
    parts = [_HEAD.format(seeds=beyond["seeds"], requests=beyond["requests"])]
    if all(name in cells for name in _SECTIONS):
        parts.append("## Verdicts\n\n" + _table(("insight", "verdict", "why"), insights(cells)))
        parts.append(_CHANGE)
    for name, (title, write) in _SECTIONS.items():
        body = write(cells[name]) if name in cells else "Not computed yet.\n"
        parts.append(f"## {title}\n\n{body}")
        parts += [f"![{title}](images/{image})\n" for image in images if _IMAGE_OF.get(image) == name]
    return "\n".join(parts)


_IMAGE_OF = {
    "fleet-sim-seeds.png": "table-2",
    "fleet-sim-layouts.png": "table-3",
    "fleet-sim-routers.png": "table-5",
    "fleet-sim-flex.png": "table-9",
}


# -- cells of a table -----------------------------------------------------------------------------------------------


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    return table(heads, list(rows), text_columns=len(heads))


def _ms(value: float | None) -> str:
    if value is None:
        return "∞"
    return f"{value:,.0f}" if value >= 10.0 else f"{value:.1f}"


def p99(verdict: Row) -> str:
    """Return a simulated percentile with its interval, in ms."""
    low = max(0.0, verdict["low_ms"]) if verdict["low_ms"] is not None else None
    return f"{_ms(verdict['p99_ms'])} [{_ms(low)}, {_ms(verdict['high_ms'])}]"


def _pools(row: Row, show: Callable[[Row], str]) -> str:
    return " / ".join(show(verdict) for verdict in row["pools"])


def _counts(pair: Sequence[int | None]) -> str:
    return " + ".join("–" if n is None else str(n) for n in pair)


def _fleet_cells(row: Row) -> tuple[str, ...]:
    tool, exact = row["tool"], row["exact"]
    two = len(row["pools"]) == 2
    sizes = [[f["short"], f["long"]] if two else [f["short"]] for f in (tool, exact)]
    ours = _counts(row["ours"]) + (f", ${row['ours_kusd']:.0f}K" if row["ours_kusd"] is not None else "")
    return (
        f"{_counts(sizes[0])}, ${tool['kusd']:.0f}K",
        f"{_counts(sizes[1])}, ${exact['kusd']:.0f}K",
        ours,
        " / ".join(f"{_ms(v)}" for v in ([tool["short_ms"], tool["long_ms"]] if two else [tool["short_ms"]])),
        _pools(row, p99),
        _pools(row, lambda v: f"{100 * v['late_share']:.2f} %"),
    )


_FLEET_HEADS = ("tool", "exact", "ours", "tool's TTFT, ms", "P99, ms", "later than the SLO")


# -- sections -------------------------------------------------------------------------------------------------------


def _table_1(cell: Row) -> str:
    rows = []
    for row in [*cell["rows"], cell["homogeneous"]]:
        known = row.get("published")
        name = f"{known['threshold']:,}" if known else "one pool"
        share = f"{known['share']} %, {row['tool']['share']:.1f} %" if known else "–"
        printed = (
            f"{known['short']} + {known['long']}, ${known['kusd']}K"
            if known
            else f"{HOMOGENEOUS_1['gpus']}, ${HOMOGENEOUS_1['kusd']}K"
        )
        rows.append((name, share, printed, *_fleet_cells(row)))
    return (
        "LMSYS, 100 requests/s, A100, P99 TTFT 500 ms.\n\n"
        + _table(("threshold", "short share: published, tool", "published", *_FLEET_HEADS), rows)
        + "\nFrom 4,096 tokens on, the published fleets keep the SLO by their rule only: it adds the *mean* prefill,"
        "\nand more than 1 % of the prompts of a pool that holds only the longest take longer than the SLO alone.\n"
    )


def _table_2(cell: Row) -> str:
    each, one = cell["each_ms"], cell["homogeneous"]
    two = cell["two_pools"]
    printed = TABLE_2
    rows = [
        (
            printed[0]["name"],
            24,
            "$845K",
            "1,052 ms",
            f"{printed[0]['tool_ms'][0]:,} ms",
            p99(one),
            f"{one['within']} of {one['seeds']}",
        ),
        (
            printed[1]["name"],
            25,
            "$880K",
            "17 / 147 ms",
            "17.3 / 146.9 ms",
            " / ".join(p99(v) for v in two),
            " / ".join(f"{v['within']} of {v['seeds']}" for v in two),
        ),
    ]
    middle = each[len(each) // 2]
    return (
        "Agent-heavy, 20 requests/s, H100, P99 TTFT 1,000 ms. *Tool* is its value at its seed.\n\n"
        + _table(
            ("fleet", "GPUs", "published cost", "published P99", "tool", "P99, ms", "seeds within"), rows
        )
        + f"\nOver {len(each)} seeds the P99 of one run has a median of {middle:,.0f} ms,"
        f" from {each[0]:,.0f} to {each[-1]:,.0f} ms."
        f"\nUtilisation is {100 * one['utilization']:.0f} %, not 30 %;"
        f" the M/G/c formula gives {_ms(one['analytic_ms'])} ms.\n"
    )


def _fleets(cell: Row, name: Callable[[Row], str]) -> str:
    rows = []
    for row in cell["rows"]:
        known = row["published"]
        printed = f"{known['gpus']}, ${known['kusd']}K; {' / '.join(map(str, known['p99_ms']))} ms"
        if "tool" in known:
            printed += f" (its tool today: {known['tool'][0]}, ${known['tool'][1]}K)"
        rows.append((name(known), printed, *_fleet_cells(row)))
    return _table(("fleet", "published", *_FLEET_HEADS), rows)


def _table_3(cell: Row) -> str:
    best = [
        (
            r["gpu"],
            r["pools"],
            ", ".join(map(str, r["thresholds"])) or "–",
            _counts(r["replicas"]),
            f"${r['usd_per_h'] * 8.76:.0f}K",
        )
        for r in cell["best"]
    ]
    return (
        "Azure, 100 requests/s, P99 TTFT 500 ms; two pools are split at 4,096 tokens.\n\n"
        + _fleets(cell, lambda k: f"{k['gpu']}, {k['pools']} pool{'s' * (k['pools'] > 1)}")
        + "\nWith the best thresholds (ours):\n\n"
        + _table(("GPU", "pools", "thresholds", "GPUs", "cost a year"), best)
    )


def _table_4(cell: Row) -> str:
    rows = []
    for row in cell["rows"]:
        known, end = row["published"], row["at_end"]
        at_end = (
            "–" if end is None else " / ".join(f"{p99(v)}, busy {100 * v['utilization']:.0f} %" for v in end)
        )
        rows.append(
            (
                known["rate"],
                f"{known['gpus']}, ${known['kusd']}K",
                *_fleet_cells(row)[:3],
                known["until"] or "–",
                f"{row['most_rate']:.0f}, {row['most_rate_slo']:.0f}",
                at_end,
            )
        )
    heads = (
        "requests/s",
        "published",
        "tool",
        "exact",
        "ours",
        "published: add before",
        "ours: runs out at",
        "P99 there, ms",
    )
    return (
        "Azure, H100 in two pools at 4,096 tokens, P99 TTFT 500 ms. *Runs out at*: the rate at which the tool's"
        "\nfleet reaches 85 % utilisation or misses the SLO, and at which it misses the SLO whatever the utilisation."
        "\nThe last column simulates the fleet at the rate up to which the paper says it lasts.\n\n"
        + _table(heads, rows)
    )


def _table_5(cell: Row) -> str:
    rows = [
        (
            row["router"],
            f"{row['published']['p99_ms']} ms, {row['published']['within']} %",
            f"{row['published']['tool_ms']} ms",
            _interval_s(row),
            _within(row),
            " / ".join(f"{100 * u:.0f} %" for u in row["utilization"]),
        )
        for row in cell["rows"]
    ]
    return (
        "Agent-heavy, 20 requests/s, 2 + 23 H100, P99 TTFT 1,000 ms, all requests together. Random chooses"
        "\namong the pools whose context limit is enough: 4,096 tokens cannot hold a longer request. *Tool* at"
        "\n30,000 requests.\n\n"
        + _table(("router", "published", "tool", "P99, ms", "within the SLO", "busy"), rows)
    )


def _within(row: Row) -> str:
    found, low, high = (100.0 * min(1.0, 1.0 - row[key]) for key in ("late_share", "late_high", "late_low"))
    return f"{found:.2f} % [{low:.2f}, {high:.2f}]"


def _interval_s(row: Row) -> str:
    values = [None if row[k] is None else 1e3 * max(0.0, row[k]) for k in ("ttft_p99_s", "low_s", "high_s")]
    return f"{_ms(values[0])} [{_ms(values[1])}, {_ms(values[2])}]"


def _mixed(text: str) -> Callable[[Row], str]:
    return lambda cell: text + "\n\n" + _fleets(cell, lambda k: f"{k['short']} + {k['long']}")


def _table_8(cell: Row) -> str:
    aggregated = _fleets(
        {
            "rows": [
                {**r, "published": {**r["published"], "p99_ms": [r["published"]["ttft_ms"]]}}
                for r in cell["aggregated"]
            ]
        },
        lambda k: f"{k['gpu']} aggregated",
    )
    rows = []
    for row in cell["rows"]:
        known, tool, ours = row["published"], row["tool"], row["ours"]
        rows.append(
            (
                f"{known['prefill']} prefill, {known['decode']} decode",
                f"{_counts(known['counts'])}, ${known['kusd']}K, {known['ttft_ms']} ms, {known['tpot_ms']} ms",
                f"{_counts(tool['counts'])}, ${tool['kusd']:.0f}K, {tool['ttft_ms']:.0f} ms, {tool['tpot_ms']:.0f} ms",
                f"{_counts(ours['counts'])}, ${ours['kusd']:.0f}K, {ours['ttft_ms']:.0f} ms, {ours['tpot_ms']:.0f} ms",
                " / ".join(f"{load:.1f}" for load in row["load"]),
                p99(row["simulated"][0]),
                p99(row["simulated"][1]),
            )
        )
    heads = (
        "fleet",
        "published",
        "tool",
        "ours",
        "load of the tool's fleet",
        "P99 TTFT (ours), ms",
        "P99 decode wait (ours), ms",
    )
    return (
        "Azure, 100 requests/s, TTFT 500 ms, TPOT 100 ms.\n\n"
        + aggregated
        + "\n"
        + _table(heads, rows)
        + _DISAGGREGATED
    )


_DISAGGREGATED = """
The tool lets one prefill worker do as many prompts at a time as it has slots, at no cost in compute, and decodes as if
the prompt had left no context to attend to. In ours a prompt has the worker to itself, the KV cache crosses a link of
50 GB/s at 0.33 MB a token, and decoding attends to the whole sequence. A load above 1 is a fleet that falls behind for
ever.
"""


def _table_9(cell: Row) -> str:
    rows = []
    for row in cell["rows"]:
        known, tool = row["published"], row["tool"]
        rows.append(
            (
                f"{known['flex']} %",
                f"{known['batch']}, {known['gpu_w']} W, {known['kw']} kW",
                f"{tool['batch']}, {tool['gpu_w']:.0f} W, {tool['kw']:.1f} kW",
                f"{_ms(known['analytic_ms'])}, {_ms(known['des_ms']) if known['des_ms'] else '≫ SLO'}",
                f"{_ms(tool['p99_ms'])}, {known['consistent_ms']:,}",
                f"{100 * row['utilization']:.0f} %",
                p99(row["steady"]) if row["steady"] else "no steady state",
                f"{_ms(row['event_ms'])} [{_ms(row['event_low_ms'])}, {_ms(row['event_high_ms'])}]",
            )
        )
    heads = (
        "power given up",
        "published",
        "tool",
        "published P99: analytical, simulated",
        "tool: analytical, simulated with consistent slots",
        "busy",
        "P99 in steady state, ms",
        "P99 of 15,000 requests from empty, ms",
    )
    return "40 H100, Azure, 200 requests/s, P99 TTFT 500 ms.\n\n" + _table(heads, rows)


def _beyond(cell: Row) -> str:
    energy = [
        (
            r["gpu"],
            r["replicas"],
            f"{100 * r['utilization']:.0f} %",
            f"{r['gpu_w']:.0f} W",
            f"{r['tokens_per_joule']:.2f}",
            f"${r['usd_per_million']:.3f}",
        )
        for r in cell["energy"]
    ]
    reserves = [
        (r["name"], f"{r['availability']:.4f}", r["average"], r["confident"]) for r in cell["reserves"]
    ]
    measured = [
        (
            r["gpu"],
            f"{100 * cell['fit_errors'][r['gpu']]:.0f} %",
            _counts(r["replicas"]),
            ", ".join(map(str, r["thresholds"])) or "–",
            f"${r['usd_per_h'] * 8.76:.0f}K",
            _ms(1e3 * r["ttft_p99_s"]),
        )
        for r in cell["measured"]
    ]
    low, high = cell["mean_service_error"]
    return (
        f"**Moments.** Over the pools of Table 1, the mean service time of 3,000 draws is off by"
        f" {100 * low:+.0f} to {100 * high:+.0f} %.\n\n"
        "**Output tokens per joule** (Azure, 100 requests/s, one pool, our sizes; power curves are the paper's, and\n"
        "only the H100's was fitted to measurements):\n\n"
        + _table(("GPU", "GPUs", "busy", "power of a GPU", "tokens per joule", "per million tokens"), energy)
        + "\n**Nodes under repair** (24 needed): the paper's n/A is enough on average, about half of the time.\n\n"
        + _table(("failures", "availability", "enough on average", "enough 99 % of the time"), reserves)
        + "\n**Real deployments.** Llama-3.1-70B where its time per output token was measured,\n"
        "all GPUs of a replica paid for, prompts at their measured speed; Azure, 20 requests/s, P99 TTFT 2 s:\n\n"
        + _table(("replica", "fit error", "replicas", "threshold", "cost a year", "P99 TTFT, ms"), measured)
    )


_SECTIONS: dict[str, tuple[str, Callable[[Row], str]]] = {
    "table-1": ("Table 1: where to split", _table_1),
    "table-2": ("Table 2: the agent fleet", _table_2),
    "table-3": ("Table 3: GPU type and layout", _table_3),
    "table-4": ("Table 4: when to add GPUs", _table_4),
    "table-5": ("Table 5: routers", _table_5),
    "table-6": (
        "Table 6: mixed GPU types, Azure",
        _mixed("Azure, 100 requests/s, split at 4,096 tokens, P99 TTFT 500 ms."),
    ),
    "table-7": (
        "Table 7: mixed GPU types, LMSYS",
        _mixed(
            "LMSYS, 100 requests/s, split at 4,096 of 65,536 tokens, P99 TTFT 500 ms. Published P99s: one seed."
        ),
    ),
    "table-8": ("Table 8: disaggregation", _table_8),
    "table-9": ("Table 9: power given up", _table_9),
    "wait-rule": ("Which rule of the P99 wait", further_sections.wait_rule),
    "compress": ("Compress-and-route as a sizing study", further_sections.compress),
    "day": ("Failed nodes and power caps over a day", further_sections.day),
    "beyond": ("Beyond the tables", _beyond),
}
