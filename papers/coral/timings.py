"""Write the sections of the page that are about time."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import Any

from fleetgym.files.markdown import table

from . import published
from .measurements import PLACEMENT_LIMIT_S, RULES


def solving(records: list[dict[str, Any]], keys: list[tuple[str, str]]) -> list[str]:
    """Return the section on the allocator's solve times, by set-up and case."""
    lines = [
        "",
        "## Solve times",
        "",
        "CPU-seconds on one core of a shared machine; the paper's mean, with Gurobi on 32 cores. Scarce epochs end "
        "after 60 s of wall-clock time.",
        "",
    ]
    rows = []
    for setup, case in keys:
        mine = [r for r in records if (r["setup"], r["case"], r["method"]) == (setup, case, "coral")]
        s = [r["cpu_s"] for r in mine]
        paper_s = published.SOLVE_S.get((setup, case))
        mixed = sum(r["mixed_replicas"] for r in mine) / max(1, sum(r["replicas"] for r in mine))
        proven = sum(r["status"] == "optimal" for r in mine)
        stated = "–" if paper_s is None else f"{paper_s:.2f} s"
        gaps, gpus = [r["gap"] for r in mine], [r["gpus"] for r in mine]
        rows.append(
            [
                f"{setup}, {case}",
                len(mine),
                stated,
                f"{statistics.fmean(s):.2f} s",
                f"{statistics.median(s):.2f} s",
                f"{max(s):.1f} s",
                proven,
                sum(gap <= 0.03 for gap in gaps),
                _percent(max(gaps)),
                f"{min(gpus)}–{max(gpus)}",
                f"{100 * mixed:.0f} %",
            ]
        )
    head = [
        "set-up, case",
        "epochs",
        "published mean",
        "mean",
        "median",
        "most",
        "proven optimal",
        "gap up to 3 %",
    ]
    return [*lines, table([*head, "largest gap", "GPUs", "mixed replicas"], rows).rstrip()]


def plain(cells: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the section on the whole program in HiGHS, by set-up and seed."""
    if not cells:
        return []
    lines = [
        "",
        "## The same program in plain HiGHS",
        "",
        "First epoch of a seed, default availability: every template in every region that has its nodes, handed to "
        "HiGHS at its default settings, one thread, relative gap 0.01 %, within a limit of CPU-seconds.",
        "",
    ]
    rows = []
    for name, both in cells.items():
        highs, ours = both["highs"], both["ours"]
        cut = highs["status"] == "cut off"
        rows.append(
            [
                name.replace(" ", ", "),
                f"{both['columns']:,}",
                _or_dash(highs["usd_per_h"]),
                _percent(highs["gap"]),
                f"{'cut off at ' if cut else ''}{highs['cpu_s']:.1f} s",
                f"{ours['usd_per_h']:.2f}",
                _percent(ours["gap"]),
                f"{ours['cpu_s']:.2f} s",
                f"{'over ' if cut else ''}{highs['cpu_s'] / ours['cpu_s']:.1f}",
            ]
        )
    head = ["set-up, seed", "columns", "plain HiGHS: USD/h", "gap", "CPU", "ours: USD/h", "gap", "CPU"]
    lines.append(table([*head, "times faster"], rows).rstrip())
    if any(both["highs"]["status"] == "cut off" for both in cells.values()):
        lines += [
            "",
            "*Cut off*: the limit passed in presolve, which looks at no clock; there was no allocation.",
        ]
    if not any(name.startswith("extended ") for name in cells):
        lines += ["", "Not computed: the extended set-up."]
    return lines


def _or_dash(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.2f} %"


def placement(cells: Mapping[str, dict[str, Any]]) -> list[str]:
    """Return the section on the paper's ILP and the enumeration, by set of nodes."""
    if not cells:
        return []
    times = [c["ilp_cpu_s"] / c["own_cpu_s"] for c in cells.values()]
    lines = [
        "",
        "## One placement: the ILP and the enumeration",
        "",
        f"The ILP of section 4.2 as printed, in HiGHS (limit {PLACEMENT_LIMIT_S:g} s for each number of stages), and "
        "the exact enumeration, on the same sets of nodes in the same run: Phi4-14B, prefill, sets of two and three "
        "nodes drawn from the core set-up's.",
        "",
    ]
    rows = [
        [
            c["nodes"],
            f"{c['ilp_rps']:.4f}",
            "yes" if c["proven"] else "no",
            f"{c['ilp_cpu_s']:.1f} s",
            f"{c['own_rps']:.4f}",
            f"{1e6 * c['own_cpu_s']:.1f} µs",
            f"{ratio:,.0f}",
        ]
        for c, ratio in zip(cells.values(), times, strict=True)
    ]
    head = ["nodes", "ILP: requests/s", "proven", "CPU", "enumeration: requests/s", "CPU", "times faster"]
    lines.append(table(head, rows).rstrip())
    wrong = sum(
        c["own_rps"] < c["ilp_rps"] * (1 - 1e-6) or (c["proven"] and c["own_rps"] > c["ilp_rps"] * (1 + 1e-6))
        for c in cells.values()
    )
    return [
        *lines,
        "",
        f"At least {min(times):,.0f} times, in the median {statistics.median(times):,.0f} times faster; the "
        f"enumeration is below the ILP, or above its proven optimum, in {wrong} of {len(times)} sets.",
    ]


def libraries(cells: Mapping[str, dict[str, float]]) -> list[str]:
    """Return the section on generating the libraries, by set-up."""
    lines = [
        "",
        "## Libraries",
        "",
        "One core, dominance included; memory is the whole process's peak. The paper: a few hours on 384 cores for all "
        "models.",
        "",
    ]
    rows = [
        [
            name,
            f"{v['templates']:,.0f}",
            f"{v['undominated']:,.0f}",
            f"{v['cpu_s']:.1f} s",
            f"{v['peak_gb']:.2f} GB",
        ]
        for name, v in cells.items()
    ]
    return (
        [*lines, table(["set-up", "templates", "undominated", "CPU", "memory"], rows).rstrip()]
        if cells
        else []
    )


def sensitivity(cells: Mapping[str, dict[str, float]]) -> list[str]:
    """Return the section on (N_max, rho)."""
    if not cells:
        return []
    best = max(r["best_requests_per_usd"] for r in cells.values())
    lines = [
        "",
        "## Sensitivity to (N_max, rho)",
        "",
        "Prefill of GPT-OSS 120B, all 20 node types. The paper's plateau begins at (6, 12), on 384 cores and in "
        "hours.",
        "",
    ]
    rows = [
        [
            name.replace(" ", ", "),
            f"{r['templates']:,}",
            f"{r['undominated']:,}",
            f"{r['cpu_s']:.2f} s",
            f"{100 * r['best_requests_per_usd'] / best:.1f} %",
        ]
        for name, r in cells.items()
    ]
    head = ["N_max, rho", "templates", "undominated", "CPU", "best requests/USD, share of the largest"]
    lines.append(table(head, rows).rstrip())
    left = [f"({most}, {ratio:g})" for most, ratio in RULES if f"{most} {ratio:g}" not in cells]
    return [*lines, "", f"Not computed: {', '.join(left)}."] if left else lines
