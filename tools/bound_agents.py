"""Bound what agents without the future can cost, and play agents on the same days: how much nobody can know.

For each instance days are drawn. Each day has a cost that somebody who knows it pays at least (hindsight), its term of
the bound for everybody who does not, and what agents pay. With --penalty the law behind the bound is checked instead:
what an agent's fleets cost to operate with real demand, minus what they cost with redrawn demand, is 0 in the mean.
"""

from __future__ import annotations

import argparse
import dataclasses
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import fleetgym
from fleetgym.bounds.nonanticipative import bounded_day, day_and_redraws
from fleetgym.cli.words import of
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.played import played_windows
from fleetgym.files.finished_cells import keep, read
from fleetgym.files.markdown import rewrite, table
from fleetgym.files.quantities import COUNT
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import FleetState, WindowModel, window_model
from fleetgym.runtime.programs import program

FAMILIES = ("ou", "drop", "budget", "tail", "multi", "grw")
INSTANCES = tuple(f"fleet-v1/dev/{family}-s-{number}" for family in FAMILIES for number in (101, 102, 103))
AGENTS = ("lookahead", "margin", "descent")
PENALTY_AGENTS = ("hold", "margin", "autoscale", "descent")
BLOCK_DAYS = 25  # of a finished cell of penalties
PAGE = Path("docs/bounds.md")


def day_of(instance: Instance, day: int) -> Scenario:
    """Return a day that is drawn; bounds and agents are compared on these."""
    return day_and_redraws(instance, day, 1, seed=0)[0]


def play_cell(name: str, agent: str, day: int) -> float:
    """Return what an agent pays in a day, USD."""
    instance = fleetgym.load_instance(name)
    played = played_windows(
        FleetAllocEnv(instance), fleetgym.make_agent(agent), day_of(instance, day), seed=day
    )
    return float(sum(info["cost"] for _, info in played))


def bound_cell(name: str, samples: int, day: int, solver: str) -> dict[str, float]:
    """Return a day's parts of the bounds, USD, and how long they took."""
    start = time.process_time()
    found = bounded_day(fleetgym.load_instance(name), day, samples=samples, solver=solver)
    return {
        "hindsight": found.hindsight_usd,
        "bound": found.term_usd,
        "cpu_s": time.process_time() - start,
    }


def operating_usd(model: WindowModel, fleet: np.ndarray, conditions: Conditions) -> float:
    """Return what a fleet costs to operate in a window if nothing else changes."""
    state = model.initial_state()
    state.replicas[:, 0] = fleet
    free = dataclasses.replace(conditions, available_gpus=np.full(conditions.available_gpus.size, 10**9))
    result = model.step(FleetState(state.replicas), np.array(fleet), free, model.new_router())
    return float(result.cost_usd - fleet @ model.hold_usd(conditions.price_factor))


def penalty_cell(name: str, samples: int, agent: str, first: int) -> list[float]:
    """Return by day what an agent's fleets cost with real demand minus with redrawn demand, USD."""
    instance = fleetgym.load_instance(name)
    model, lag = window_model(instance), instance.lead + 1
    made, env = fleetgym.make_agent(agent), FleetAllocEnv(instance)
    totals = []
    for k in range(first, first + BLOCK_DAYS):
        day, redraws = day_and_redraws(instance, k, samples, seed=1)
        total = 0.0
        for t, (view, _) in enumerate(played_windows(env, made, day, seed=k)):
            here, fleet = Conditions.of(day, t), np.array(view.running)
            rates, weights = redraws.draw(t, lag)
            other = [operating_usd(model, fleet, dataclasses.replace(here, rate_rps=rate)) for rate in rates]
            total += operating_usd(model, fleet, here) - float(weights @ other)
        totals.append(total)
    return totals


def _mean(values: Sequence[float] | np.ndarray) -> str:
    return f"{np.mean(values):,.1f}"


def _error(values: Sequence[float] | np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def compute(call: argparse.Namespace, agents: Sequence[str]) -> None:
    """Compute what is missing, a day of all instances at a time."""

    def cell(key: str, function: Callable[..., Any], *arguments: Any) -> None:
        if key not in done:
            keep(call.cells, key, function(*arguments))

    done = read(call.cells)
    for day in range(0, call.days, BLOCK_DAYS if call.penalty else 1):
        for name in call.instances:
            for agent in agents:
                if call.penalty:
                    key = f"penalty {name} {call.samples} {agent} {day}"
                    cell(key, penalty_cell, name, call.samples, agent, day)
                else:
                    cell(f"play {name} {agent} {day}", play_cell, name, agent, day)
            if not call.penalty and not call.plays:
                key = f"bound {name} {call.samples} {day}"
                cell(key, bound_cell, name, call.samples, day, call.solver)


def bound_table(cells: Mapping[str, Any], samples: int) -> str:
    """Return the bounds and agents, an instance a row, over the days that all have finished.

    The gap is that between hindsight and the cheapest agent.
    """
    bounds: dict[str, dict[int, Any]] = defaultdict(dict)
    plays: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for key, value in cells.items():
        kind, name, *rest = key.split()
        if kind == "bound" and int(rest[0]) == samples:
            bounds[name][int(rest[1])] = value
        elif kind == "play":
            plays[name][rest[0]][int(rest[1])] = value
    agents = [a for a in AGENTS if bounds and all(a in plays[name] for name in bounds)]
    families: dict[str, list[float]] = defaultdict(list)
    rows = []
    for name, found in bounds.items():
        days = sorted(set(found).intersection(*(plays[name][a] for a in agents)))
        if not days:
            continue
        paid = [np.array([plays[name][a][day] for day in days]) for a in agents]
        hindsight, bound, cpu_s = (
            np.array([found[day][part] for day in days]) for part in ("hindsight", "bound", "cpu_s")
        )
        best = min(paid, key=lambda usd: float(usd.mean())) if paid else np.full(len(days), np.nan)
        closed = (bound.mean() - hindsight.mean()) / (best.mean() - hindsight.mean())
        families[name.rpartition("/")[2].partition("-")[0]].append(closed)
        rows.append(
            [
                f"`{name}`",
                len(days),
                _mean(hindsight),
                _mean(bound),
                f"{_error(bound - hindsight):.1f}",
                *map(_mean, paid),
                f"{_error(best - bound):.1f}",
                f"{100 * closed:.0f} %",
                f"{cpu_s.mean():.1f}",
            ]
        )
    head = ["instance", "days", "hindsight", "bound", "±", *(f"`{a}`" for a in agents)]
    means = [[family, f"{100 * np.mean(closed):.0f} %"] for family, closed in families.items()]
    return (
        table([*head, "±", "gap closed", "CPU s a day"], rows)
        + "\n"
        + table(["family", "mean gap closed"], means)
    )


def penalty_table(cells: Mapping[str, Any], samples: int) -> str:
    """Return mean penalties with their standard errors, an instance and agent a row."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for key, value in cells.items():
        kind, name, *rest = key.split()
        if kind == "penalty" and int(rest[0]) == samples:
            found[name, rest[1]] += value
    rows = [
        [
            f"`{name}`",
            f"`{agent}`",
            len(days),
            f"{np.mean(days):.2f}",
            f"{_error(days):.2f}",
            f"{np.mean(days) / _error(days):.1f}",
        ]
        for (name, agent), days in found.items()
    ]
    return table(["instance", "agent", "days", "mean penalty, USD a day", "±", "standard errors"], rows, 2)


def smoke(folder: Path) -> None:
    """Bound one day of a toy, and check the law on others."""
    cells = str(folder / "cells.jsonl")
    small = ["--instances", "fleet-v0/dev/ou-s-001", "--days", "1", "--samples", "1", "--agents", "hold"]
    main([*small, "--cells", cells])
    main([*small, "--cells", cells, "--penalty"])


def main(argv: Sequence[str] | None = None) -> None:
    """Read the call, compute what is missing, print the tables."""
    parser = program(
        __doc__,
        writes="Finished cells to --cells, and with --page the tables of docs/bounds.md.",
        takes="Half a CPU minute a day and instance of size s; it goes on where it stopped.",
        smoke=smoke,
    )
    parser.add_argument("--instances", nargs="+", default=INSTANCES)
    parser.add_argument("--days", type=of(COUNT), default=30)
    parser.add_argument(
        "--samples", type=of(COUNT), default=4, help="demands that are drawn anew for each window"
    )
    parser.add_argument("--agents", nargs="+", help=f"default: {' '.join(AGENTS)}")
    parser.add_argument("--solver", choices=("ipx", "hipo"), default="ipx", help="of the linear programs")
    parser.add_argument("--plays", action="store_true", help="play the agents only")
    parser.add_argument(
        "--penalty", action="store_true", help=f"check the law instead, {BLOCK_DAYS} days at a time"
    )
    parser.add_argument("--cells", type=Path, default=Path("docs/data/bounds.jsonl"))
    parser.add_argument("--page", action="store_true", help="write the page from finished cells")
    call = parser.parse_args(argv)
    if not call.page:
        compute(call, call.agents or (PENALTY_AGENTS if call.penalty else AGENTS))
    done = read(call.cells)
    written = f"{bound_table(done, call.samples)}\n{penalty_table(done, call.samples)}"
    if call.page:
        PAGE.write_text(rewrite(PAGE, written), encoding="utf-8")
    else:
        print(written)


if __name__ == "__main__":
    main()
