"""Write the sections of the cells of `further`."""

from __future__ import annotations

import textwrap
from typing import Any

from fleetgym.files.markdown import table

from .further import DAY_GPUS, DAY_RPS, EXAMPLE, FAILURES_PER_NODE_DAY

Row = dict[str, Any]


def _text(*paragraphs: str) -> str:
    """Return paragraphs with lines of the page's width."""
    return "\n\n".join(textwrap.fill(text, 118, break_long_words=False) for text in paragraphs) + "\n\n"


def _table(heads: tuple[str, ...], rows: list[list[str]]) -> str:
    return table(heads, rows, text_columns=len(heads))


def _pair(counts: list[int] | None) -> str:
    return "–" if counts is None else " + ".join(str(n) for n in counts if n)


def _percent(late: list[float]) -> str:
    mean, low, high = (100.0 * min(1.0, share) for share in late)
    return f"{mean:.2f} % [{low:.2f}, {high:.2f}]"


def wait_rule(cell: Row) -> str:
    """Return the section on the two rules of the P99 wait."""
    printed, tool = cell["example"]
    mean, low, high = cell["simulated"]
    servers, rate, each, cv2 = EXAMPLE
    rows = [[r["name"], _pair(r["tool"]), _pair(r["printed"])] for r in cell["rows"]]
    differ = sum(r["tool"] != r["printed"] for r in cell["rows"])
    before = _text(
        "Equation (2) multiplies the mean wait of all requests by ln(100). The tool takes the percentile among those "
        "who wait: ln(C / 0.01) in the place of C ln(100), C being the chance to wait.",
        f"With {servers} servers, {rate:g} requests/s, a rate of {each:g} per server and a service cv² of {cv2:g}, the "
        f"printed form gives {printed:.2f} s and the tool {tool:.2f} s. Simulated (gamma service): {mean:.2f} s "
        f"[{low:.2f}, {high:.2f}].",
        "Tables 1, 3, 4, 6 and 7 and the analytical column of Table 9 use the tool's rule. The P99s of Tables 2 and 5 "
        "and the simulated ones of Tables 6, 7 and 9 come from its simulator. Table 8 has no queue. The fleets by "
        "either rule:",
    )
    after = _text(
        f"{differ} of {len(rows)} fleets differ. Where every slot is a server hardly anybody waits, and the "
        "utilisation decides."
    )
    return (
        before
        + _table(("fleet", "tool's rule", "equation (2) as printed"), rows)
        + "\n"
        + after.rstrip("\n")
        + "\n"
    )


def compress(cell: Row) -> str:
    """Return the section on compress-and-route as a sizing study."""
    rows = []
    for r in cell["rows"]:
        late = ["–", "–"] if r["late"] is None else [_percent(one) for one in r["late"]]
        ours = "–" if r["ours"] is None else f"{_pair(r['ours'])}, ${r['ours_kusd']:.0f}K"
        tool = f"{_pair(r['tool'])}, ${r['tool_kusd']:.0f}K"
        rows.append([r["name"], f"{r['threshold']:,}", f"{r['gamma']:g}", tool, ours, *late])
    heads = ("workload, GPU", "threshold", "γ", "tool", "ours", "late, by length", "late, compress-and-route")
    before = _text(
        "A request of up to γ times the threshold is compressed into the short pool, three of four such requests. Ours "
        "counts the lengths that they then have. The tool counts them in the share only. *Late*: our fleet simulated "
        "under either router."
    )
    after = _text(
        "The paper advises to size by compress-and-route and to run by length. Such a fleet needs the compression: by "
        "length the borderline requests come to the long pool, which was bought without them."
    )
    return before + _table(heads, rows) + "\n" + after.rstrip("\n") + "\n"


def day(cell: Row) -> str:
    """Return the section on a day with a failed node, and with less power for a while."""
    failures = [
        [
            f"{r['nodes']} ({', '.join(r['names'])})",
            f"{r['failed']}, for {r['repair_h']:g} h" if r["failed"] else "none",
            "–" if r["busy"] is None else f"{100 * r['busy']:.0f} %",
            _percent(r["late"]),
        ]
        for r in cell["failures"]
    ]
    caps = [
        [
            f"{100 * r['flex']:.0f} %",
            f"{60 * r['hours']:.0f} min",
            f"{r['batch']}",
            f"{100 * r['busy']:.0f} %",
            f"{r['p99_s']:,.2f} s",
            f"{100 * r['during']:.2f} %",
            f"{100 * r['late']:.2f} %",
        ]
        for r in cell["caps"]
    ]
    heads = ("nodes", "fail at noon", "busy with the rest", "late over the day")
    cap_heads = (
        "power given up",
        "for",
        "requests per GPU",
        "busy",
        "P99 TTFT",
        "late during it",
        "late over the day",
    )
    return (
        _text(
            f"Azure, {DAY_RPS:g} requests/s, H100, P99 TTFT 500 ms, {cell['needed']} GPUs needed, a GPU a node. Nodes "
            "fail at noon, and come back after their repair, or not on this day. Every request of the day is simulated."
        )
        + _table(heads, failures)
        + "\n"
        + _text(
            f"A node fails {FAILURES_PER_NODE_DAY:g} times a day, so a failure of one is rare, and of two on one day "
            "rarer. The cap of 85 % on utilisation is room for the first in so small a fleet. The second counts.",
            f"Less power for a while, on {DAY_GPUS} H100: a quarter of the paper's fleet at a quarter of its traffic. "
            "The cap on requests per GPU is the tool's. What piles up is served afterwards; the last column counts it.",
        )
        + _table(cap_heads, caps)
    )
