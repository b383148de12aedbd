"""Draw how well `fleetgym.Belief` is calibrated: where what came fell among its paths, a histogram for each family.

Demand one to three windows ahead has a rank among 99 paths: how many of them lie below it (the probability integral
transform). For a perfect belief all hundred ranks are as frequent, and each bar, of ten ranks, has the height 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from fleetgym import Belief, Conditions, load_instance
from fleetgym.cli.pictures import new_figure, save_picture
from fleetgym.cli.process import run_program
from fleetgym.model.dynamics.scenario import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_scenarios
from fleetgym.model.scenario import Scenario
from fleetgym.runtime.programs import program

SUITE = "fleet-v1/dev"
INSTANCES = {
    "ou": ("ou-s-101", "ou-s-102"),
    "drop": ("drop-s-101", "drop-s-102"),
    "budget": ("budget-s-101", "budget-s-102"),
    "tail": ("tail-s-101", "tail-s-102"),
    "multi": ("multi-s-101", "multi-s-102"),
    "trace": ("trace-m-101", "trace-m-102", "trace-m-103", "trace-m-104", "trace-m-105", "trace-m-106"),
    "warp": ("warp-s-101", "warp-s-102"),
    "grw": ("grw-s-101", "grw-s-102"),
}
#: Windows ahead, paths, windows between two looks, days of an instance whose process can be drawn, bars.
AHEAD, PATHS, EVERY, DAYS, BARS = 3, 99, 6, 3, 10
#: Windows of a day before the first look.
WARM = 12


def seen(instance: Instance, scenario: Scenario, paths: int, every: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the last window seen, and rates of the windows after it, (paths, AHEAD, I)."""
    belief = Belief(instance)
    for t in range(instance.num_windows - AHEAD):
        belief.update(t, Conditions.of(scenario, t))
        if t % every == 0 and t >= WARM:
            yield t, belief.sample(paths, AHEAD, np.random.default_rng(t)).workload[:, :, 0]


def days(name: str, count: int) -> tuple[Instance, list[Scenario]]:
    """Return an instance of `SUITE` and days: drawn ones, or where real days are resampled, those that are stored."""
    instance = load_instance(f"{SUITE}/{name}")
    if instance.dynamics.demand.kind == "resampled-history":
        return instance, list(load_scenarios(f"{SUITE}/{name}"))[:count]
    return instance, [draw_scenario(instance, np.random.default_rng(seed)) for seed in range(count)]


def ranks(name: str, count: int, every: int = EVERY) -> np.ndarray:
    """Return where demand fell among the paths, between 0 and 1: (looks, AHEAD, I)."""
    instance, scenarios = days(name, count)
    found = []
    for scenario in scenarios:
        for t, rates in seen(instance, scenario, PATHS, every):
            came = scenario.rate_rps[t + 1 : t + 1 + AHEAD]
            below = (rates < came).sum(axis=0) + (rates <= came).sum(axis=0)
            found.append((0.5 * below + 0.5) / (PATHS + 1))
    return np.array(found)


def draw(found: Mapping[str, np.ndarray], path: Path) -> None:
    """Write the histograms of ranks by family."""
    columns = 4
    rows = -(-len(found) // columns)
    figure = new_figure(2.6 * columns, 2.0 * rows)
    axes = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axis in axes.flat[len(found) :]:
        axis.set_axis_off()
    for axis, (family, values) in zip(axes.flat, found.items(), strict=False):
        axis.hist(values.ravel(), bins=BARS, range=(0, 1), density=True, color="#4878a8", edgecolor="white")
        axis.axhline(1.0, color="black", linewidth=0.8, linestyle="--")
        axis.set_title(f"{family} ({values.size:,} ranks)", fontsize=9)
        axis.set_xlim(0, 1)
    for axis in axes[-1]:
        axis.set_xlabel("rank among paths")
    for axis in axes[:, 0]:
        axis.set_ylabel("density")
    save_picture(figure, str(path))


def smoke(folder: Path) -> None:
    """Draw one family from a few looks."""
    draw({"ou": ranks("ou-s-101", 1, every=60)}, folder / "calibration.png")


def main(argv: Sequence[str] | None = None) -> None:
    """Measure all families, draw, and print the shares of ranks that are low and high."""
    parser = program(__doc__, writes="The picture of --out.", takes="A CPU minute.", smoke=smoke)
    parser.add_argument("--out", type=Path, default=Path("docs/images/calibration.png"))
    out = parser.parse_args(argv).out
    found = {}
    for family, names in INSTANCES.items():
        every = [ranks(name, DAYS).ravel() for name in names]
        found[family] = np.concatenate(every)
        low, high = np.mean(found[family] < 0.1), np.mean(found[family] > 0.9)
        print(f"{family:8} {found[family].size:7,} ranks, below 0.1: {low:.3f}, above 0.9: {high:.3f}")
    draw(found, out)


if __name__ == "__main__":
    run_program(main)
