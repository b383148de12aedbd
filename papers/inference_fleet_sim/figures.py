"""Draw the figures of the page."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from fleetgym.capacity.studies import plots

Cells = dict[str, Any]


def _seeds(cells: Cells) -> Figure:
    """Draw the P99 TTFT of every seed of the agent fleet, and the one that was published."""
    values = cells["table-2"]["each_ms"]
    figure, axes = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
    axes.step(
        values, [100.0 * (k + 1) / len(values) for k in range(len(values))], where="post", color=plots.BLUE
    )
    axes.axvline(1052, color=plots.RED, label="published: one seed")
    axes.axvline(1000, color=plots.ORANGE, ls="--", label="SLO")
    axes.set(
        xlabel="P99 TTFT of a seed, ms",
        ylabel="seeds, %",
        title="24 H100 for agents, 20 requests/s",
        xscale="log",
    )
    axes.legend()
    axes.grid(alpha=0.3)
    return figure


def _flex(cells: Cells) -> Figure:
    rows = [{**row, "ttft_p99_s": row["ttft_p99_s"] or float("inf")} for row in cells["table-9"]["curve"]]
    return plots.grid_flex(rows, 0.5)


_FIGURES: dict[str, tuple[str, Callable[[Cells], Figure]]] = {
    "fleet-sim-seeds.png": ("table-2", _seeds),
    "fleet-sim-layouts.png": ("table-3", lambda cells: plots.layouts(cells["table-3"]["best"])),
    "fleet-sim-routers.png": ("table-5", lambda cells: plots.routers(cells["table-5"]["rows"], 1.0)),
    "fleet-sim-flex.png": ("table-9", _flex),
}


def write(folder: Path, cells: Cells) -> list[str]:
    """Write every figure whose cell is there; return the file names."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for file, (needs, draw) in _FIGURES.items():
        if needs in cells:
            figure = draw(cells)
            figure.savefig(folder / file, dpi=110, metadata={"Software": None})
            plt.close(figure)
            written.append(file)
    return written
