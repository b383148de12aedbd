"""Draw the figures of the page."""

from __future__ import annotations

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from .measures import Measures
from .rolling import SIGMAS
from .sensitivity import SURFACES
from .two_stage import STRESSES

#: A palette that stays apart in grey and for colour-blind readers (Okabe and Ito).
COLOURS = {
    "GH": "#E69F00",
    "AGH": "#0072B2",
    "DM": "#D55E00",
    "DM per-route": "#CC79A7",
    "AGH + headroom": "#56B4E9",
    "DM + headroom": "#009E73",
}
_TERMS = {
    "rental": "rent",
    "model_storage": "model storage",
    "data_storage": "data storage",
    "delay": "delay",
    "unserved": "unserved",
}
_AXIS = {
    "delay_slo": "delay SLO Δ, factor",
    "error_slo": "error SLO ε, factor",
    "budget_usd": "budget δ, USD per 24 h",
    "price": "rent p, factor",
}


def write_figures(folder: Path, m: Measures) -> list[str]:
    """Write every figure whose cells are there; return the file names."""
    folder.mkdir(parents=True, exist_ok=True)
    figures = {
        "fastllm-stress.png": _stress,
        "fastllm-sensitivity.png": _sensitivity,
        "fastllm-rolling.png": _rolling,
    }
    written = []
    for file, draw in figures.items():
        figure = draw(m)
        if figure is not None:
            figure.savefig(folder / file, dpi=110, metadata={"Software": None})
            plt.close(figure)
            written.append(file)
    return written


def _bars(axis, m: Measures, methods: list[str], routes: str, quantity: str) -> None:
    width = 0.8 / len(methods)
    for k, method in enumerate(methods):
        found = [m.mean("stress", method, routes, stress, quantity) for stress in STRESSES]
        at = np.arange(len(STRESSES)) + (k - (len(methods) - 1) / 2) * width
        centre = [e.mean for e in found]
        error = [[e.mean - e.low for e in found], [e.high - e.mean for e in found]]
        axis.bar(at, centre, width, yerr=error, color=COLOURS[method], label=method, error_kw={"lw": 0.8})
    axis.set_xticks(range(len(STRESSES)), [f"{s:g}x" for s in STRESSES])
    _clean(axis)


def _stress(m: Measures):
    methods = [method for method in COLOURS if m.has("stress", method, "plan_usd")]
    if not methods:
        return None
    figure, axes = plt.subplots(2, 3, figsize=(12.5, 7), constrained_layout=True)
    for row, routes in zip(axes, ("frozen", "deployed"), strict=True):
        _bars(row[0], m, methods, routes, "cost")
        row[0].set_title(f"{routes} routes: expected cost, USD per 24 h", fontsize=10)
        _bars(row[1], m, methods, routes, "violation")
        row[1].set_title("SLO violations, %", fontsize=10)
        _breakdown(row[2], m, methods, routes)
    axes[0, 0].legend(frameon=False, fontsize=8)
    return figure


def _breakdown(axis, m: Measures, methods: list[str], routes: str) -> None:
    colours = plt.get_cmap("tab20c")(np.linspace(0, 1, 20))[[0, 1, 3, 8, 4]]
    bottom = np.zeros(len(methods))
    for (term, label), colour in zip(_TERMS.items(), colours, strict=True):
        usd = np.array([m.mean("stress", method, routes, 1.0, term).mean for method in methods])
        axis.bar(range(len(methods)), usd, bottom=bottom, color=colour, label=label)
        bottom += usd
    axis.set_xticks(range(len(methods)), [method.replace(" ", "\n") for method in methods], fontsize=8)
    axis.set_title("cost without stress by term", fontsize=10)
    _clean(axis)
    axis.set_ylim(top=1.35 * bottom.max())
    axis.legend(frameon=False, fontsize=8, ncols=3, loc="upper left")


def _sensitivity(m: Measures):
    quantities = {"cost_usd": "cost, USD per 24 h", "gpus": "GPUs", "tensor_parallel": "TP degree of a GPU"}
    first, second = SURFACES["slo"][0][1][0], SURFACES["slo"][1][1][0]
    if not m.has("slo", first, second, "cost_usd"):
        return None
    figure, axes = plt.subplots(3, 3, figsize=(12, 10.5), constrained_layout=True)
    for column, (surface, (down, right)) in enumerate(SURFACES.items()):
        for row, (quantity, label) in enumerate(quantities.items()):
            grid = np.array(
                [
                    [
                        np.median(m.values(surface, a, b, quantity))
                        if quantity == "cost_usd"
                        else np.mean(m.values(surface, a, b, quantity))
                        for b in right[1]
                    ]
                    for a in down[1]
                ]
            )
            _heat(axes[row, column], grid, down, right, "median " + label if row == 0 else "mean " + label)
    return figure


def _heat(axis, grid: np.ndarray, down, right, title: str) -> None:
    low, high = float(grid.min()), float(grid.max())
    logarithmic = high > 8 * max(low, 1e-9)
    norm = matplotlib.colors.LogNorm(low, high) if logarithmic else matplotlib.colors.Normalize(low, high)
    image = axis.imshow(grid, cmap="viridis", norm=norm, origin="lower", aspect="auto")
    for (a, b), value in np.ndenumerate(grid):
        colour = "black" if image.norm(value) > 0.6 else "white"
        axis.text(
            b, a, f"{value:.0f}" if high > 20 else f"{value:.1f}", ha="center", va="center", color=colour
        )
    axis.set_yticks(range(len(down[1])), [f"{v:g}" for v in down[1]])
    axis.set_xticks(range(len(right[1])), [f"{v:g}" for v in right[1]])
    axis.set_ylabel(_AXIS[down[0]])
    axis.set_xlabel(_AXIS[right[0]])
    axis.set_title(title, fontsize=10)


def _rolling(m: Measures):
    styles = {
        "GH-24h": ("#E69F00", "--"),
        "GH-5min": ("#E69F00", "-"),
        "AGH-24h": ("#0072B2", "--"),
        "AGH-5min": ("#0072B2", "-"),
        "DM-24h": ("#D55E00", "--"),
        "DM-1h": ("#D55E00", "-"),
    }
    if not m.has("rolling", SIGMAS[0], "frozen", "GH-24h", "cost"):
        return None
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.2), constrained_layout=True)
    for axis, routes in zip(axes, ("frozen", "deployed"), strict=True):
        for k, (name, (colour, line)) in enumerate(styles.items()):
            found = [
                (sigma, m.mean("rolling", sigma, routes, name, "cost"))
                for sigma in SIGMAS
                if m.has("rolling", sigma, routes, name, "cost")
            ]
            if not found:
                continue
            sigmas, means = np.array([s for s, _ in found]), np.array([e.mean for _, e in found])
            error = np.array([[e.mean - e.low for _, e in found], [e.high - e.mean for _, e in found]])
            axis.errorbar(
                sigmas + 0.0004 * (k - 2.5),
                means,
                np.nan_to_num(error),
                color=colour,
                ls=line,
                marker="o",
                ms=4,
                label=name,
                capsize=2,
            )
        axis.set_title(f"{routes} routes", fontsize=10)
        axis.set_xlabel("volatility σ per window")
        axis.set_ylabel("cost of the day, USD")
        axis.set_yscale("log")
        axis.set_yticks([50, 100, 200, 400, 800], ["50", "100", "200", "400", "800"])
        axis.minorticks_off()
        axis.set_xticks(SIGMAS)
        axis.spines[["top", "right"]].set_visible(False)
    axes[0].legend(frameon=False, fontsize=8)
    return figure


def _clean(axis) -> None:
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_ylim(bottom=0)
