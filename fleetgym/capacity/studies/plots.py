"""Draw what a planner has to weigh."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .sizing import HOURS_PER_YEAR

Row = Mapping[str, Any]

#: Okabe and Ito: apart in grey and for colour-blind readers.
BLUE, ORANGE, GREEN, RED = "#0072B2", "#E69F00", "#009E73", "#D55E00"


def _axes(title: str, x: str, y: str) -> tuple[Figure, Axes]:
    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)
    return figure, axes


def _kusd(usd_per_h: float) -> float:
    return usd_per_h * HOURS_PER_YEAR / 1000.0


def threshold_pareto(rows: Sequence[Row]) -> Figure:
    """Draw cost against P99 TTFT by split threshold; efficient ones are filled."""
    figure, axes = _axes("Split thresholds", "cost, thousand USD a year", "P99 TTFT, ms")
    for row in rows:
        if row["is_kept"]:
            x, y = _kusd(row["usd_per_h"]), 1e3 * row["ttft_p99_s"]
            axes.plot(x, y, "o", color=BLUE, fillstyle="full" if row["is_efficient"] else "none")
            axes.annotate(
                str(row["threshold"]), (x, y), xytext=(5, 4), textcoords="offset points", fontsize=8
            )
    axes.set_yscale("log")
    axes.margins(0.12)
    return figure


def layouts(rows: Sequence[Row], name: str = "gpu") -> Figure:
    """Draw the annual cost of GPU types and layouts, cheapest on top."""
    figure, axes = _axes("GPU types and layouts", "cost, thousand USD a year", "")
    for k, row in enumerate(rows):
        axes.barh(k, _kusd(row["usd_per_h"]), color=(BLUE, ORANGE, GREEN)[min(row["pools"], 3) - 1])
        axes.text(_kusd(row["usd_per_h"]), k, f"  {sum(row['replicas'])} replicas", va="center", fontsize=8)
    axes.set_yticks(
        range(len(rows)),
        [f"{row[name]}, {row['pools']} pool{'s' * (row['pools'] > 1)}" for row in rows],
        fontsize=8,
    )
    axes.margins(x=0.18)
    axes.invert_yaxis()
    return figure


def steps(rows: Sequence[Row]) -> Figure:
    """Draw replicas by arrival rate, and where each fleet runs out."""
    figure, axes = _axes("When to add GPUs", "arrivals, requests/s", "replicas")
    counts = [sum(row["replicas"]) for row in rows]
    axes.plot([row["rate_rps"] for row in rows], counts, "o", color=BLUE, label="cheapest fleet")
    for row, count in zip(rows, counts, strict=True):
        axes.plot([row["rate_rps"], row["most_rate_rps"]], [count, count], color=BLUE, lw=1)
        axes.plot(row["most_rate_rps"], count, "|", color=RED, ms=10)
    axes.plot([], [], "|", color=RED, ms=10, label="it runs out here")
    axes.legend()
    return figure


def routers(rows: Sequence[Row], slo_s: float) -> Figure:
    """Draw the simulated P99 TTFT of each router with its 95 % interval."""
    figure, axes = _axes("Routers on one fleet", "P99 TTFT, ms", "")
    for k, row in enumerate(rows):
        spread = [[1e3 * (row["ttft_p99_s"] - row["low_s"])], [1e3 * (row["high_s"] - row["ttft_p99_s"])]]
        axes.errorbar(1e3 * row["ttft_p99_s"], k, xerr=spread, fmt="o", color=BLUE, capsize=4)
    axes.axvline(1e3 * slo_s, color=RED, lw=1, label="SLO")
    axes.set_yticks(range(len(rows)), [row["router"] for row in rows])
    axes.set_xscale("log")
    axes.legend()
    return figure


def pairs(rows: Sequence[Row], first: str, second: str) -> Figure:
    """Draw the cost of pairs of GPU types, short and long or prefill and decode; grey: the SLO cannot be kept."""
    names = list(dict.fromkeys([*(row[first] for row in rows), *(row[second] for row in rows)]))
    figure, axes = _axes(f"Pairs of GPU types: {first}, {second}", f"{second}", f"{first}")
    costs = [[float("nan")] * len(names) for _ in names]
    for row in rows:
        usd = row["usd_per_h"]
        i, j = names.index(row[first]), names.index(row[second])
        if usd is not None:
            costs[i][j] = _kusd(usd)
        axes.text(j, i, "-" if usd is None else f"{_kusd(usd):.0f}", ha="center", va="center")
    axes.grid(False)
    axes.set_facecolor("#dddddd")
    figure.colorbar(axes.imshow(costs, cmap="YlGnBu", alpha=0.45), label="thousand USD a year")
    axes.set_xticks(range(len(names)), names)
    axes.set_yticks(range(len(names)), names)
    return figure


def transfer_costs(rows: Sequence[Row]) -> Figure:
    """Draw the cost of each pair of types for prefill and decode against the link's speed, beside one pool."""
    figure, axes = _axes("Prefill and decode apart", "link, GB/s", "cost, thousand USD a year")
    pairs = dict.fromkeys((row["prefill"], row["decode"]) for row in rows)
    for k, (prefill, decode) in enumerate(pairs):
        mine = [row for row in rows if (row["prefill"], row["decode"]) == (prefill, decode)]
        kept = [row for row in mine if row["usd_per_h"] is not None]
        color = f"C{k}"
        if prefill is None and kept:
            axes.axhline(_kusd(kept[0]["usd_per_h"]), color=color, ls="--", label=f"{decode}, one pool")
        elif kept:
            x, y = [row["link_gb_per_s"] for row in kept], [_kusd(row["usd_per_h"]) for row in kept]
            axes.plot(x, y, "o-", color=color, label=f"{prefill} to {decode}")
    axes.set_xscale("log")
    axes.set_ylim(bottom=0.0)
    figure.legend(loc="outside lower center", ncols=3, fontsize=8)
    return figure


def grid_flex(rows: Sequence[Row], slo_s: float) -> Figure:
    """Draw power and P99 TTFT against the share of power given up; unstable points have no TTFT."""
    figure, axes = _axes(
        "Power given up to the grid", "share of nominal power given up, %", "fleet power, kW"
    )
    flex = [100.0 * row["flex"] for row in rows]
    axes.plot(flex, [row["fleet_kw"] for row in rows], "o-", color=BLUE, label="power")
    other = axes.twinx()
    stable = [
        (f, 1e3 * row["ttft_p99_s"]) for f, row in zip(flex, rows, strict=True) if row["utilization"] < 1.0
    ]
    other.plot(*zip(*stable, strict=True), "s-", color=ORANGE, label="P99 TTFT")
    other.axhline(1e3 * slo_s, color=RED, lw=1, label="SLO")
    unstable = [f for f, row in zip(flex, rows, strict=True) if row["utilization"] >= 1.0]
    if unstable:
        other.axvspan(min(unstable), max(flex), color=RED, alpha=0.1, label="no steady state")
    other.set(ylabel="P99 TTFT, ms", yscale="log")
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)
    return figure


def energy(rows: Sequence[Row]) -> Figure:
    """Draw output tokens per joule against USD per million tokens."""
    figure, axes = _axes("Energy and money", "USD per million output tokens", "output tokens per joule")
    for row in rows:
        axes.plot(row["usd_per_million"], row["tokens_per_joule"], "o", color=BLUE)
        axes.annotate(
            row["gpu"],
            (row["usd_per_million"], row["tokens_per_joule"]),
            xytext=(6, 4),
            textcoords="offset points",
        )
    axes.margins(0.3)
    return figure


def reserves(rows: Sequence[Row], confidence: float = 0.99) -> Figure:
    """Draw the nodes to buy for each availability: on average, and with a confidence."""
    figure, axes = _axes("Nodes under repair", "nodes to buy", "")
    enough = f"enough {100.0 * confidence:g} % of the time"
    for k, row in enumerate(rows):
        axes.barh(
            k - 0.2, row["average"], height=0.4, color=BLUE, label="enough on average" if k == 0 else None
        )
        axes.barh(k + 0.2, row["confident"], height=0.4, color=ORANGE, label=enough if k == 0 else None)
    axes.set_yticks(range(len(rows)), [row["name"] for row in rows], fontsize=8)
    figure.legend(loc="outside lower center", ncols=2, fontsize=8)
    return figure
