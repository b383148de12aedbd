"""Bound what agents without the future can cost, and play agents on the same days: how much nobody can know.

For each instance days are drawn. Each day has a cost that somebody who knows it pays at least (hindsight), its term of
the bound for everybody who does not, and what agents pay. With --penalty the law behind the bound is checked instead:
what an agent's fleets cost to operate with real demand, minus what they cost with redrawn demand, is 0 in the mean.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

import fleetgym
from fleetgym.agents.agent import Agent
from fleetgym.agents.view import View
from fleetgym.bounds import nonanticipative_bound
from fleetgym.bounds.nonanticipative import day_and_redraws
from fleetgym.cli.words import of
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.files.finished_cells import keep, read
from fleetgym.files.markdown import rewrite, table
from fleetgym.files.quantities import COUNT
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import FleetState, WindowModel, window_model
from fleetgym.runtime.programs import program

FAMILIES = ("ou", "drop", "budget", "tail", "multi")
INSTANCES = tuple(f"fleet-v1/dev/{family}-s-{number}" for family in FAMILIES for number in (101, 102, 103))
AGENTS = ("lookahead", "margin", "descent")
PENALTY_AGENTS = ("hold", "margin", "autoscale", "descent")
PAGE = Path("docs/bounds.md")


def play(instance: Instance, agent: Agent, scenario: Scenario, seed: int) -> tuple[float, np.ndarray]:
    """Return what an agent pays in a day, USD, and the fleets that stand before its windows, (T, C)."""
    env, view, cost, fleets = FleetAllocEnv(instance), View(instance), 0.0, []
    observation, info = env.reset(seed=0, options={"scenario": scenario})
    view.update(info)
    agent.reset(view, seed=seed)
    for _ in range(instance.num_windows):
        fleets.append(np.array(view.running))
        observation, reward, _, _, info = env.step(np.asarray(agent.act(observation, info)))
        view.update(info)
        cost -= float(reward)
    return cost, np.array(fleets)


def bound_cell(name: str, days: int, samples: int, agents: Sequence[str]) -> dict[str, list[float] | float]:
    """Return the days' bounds, and what agents pay on them."""
    instance, start = fleetgym.load_instance(name), time.process_time()
    found = nonanticipative_bound(instance, days, samples=samples)
    cell: dict[str, list[float] | float] = {
        "cpu_s": (time.process_time() - start) / days,
        "hindsight": found.hindsight_usd.tolist(),
        "bound": found.days_usd.tolist(),
    }
    for agent in agents:
        made = fleetgym.make_agent(agent)
        cell[agent] = [play(instance, made, day, k)[0] for k, day in enumerate(found.scenarios)]
    return cell


def operating_usd(model: WindowModel, fleet: np.ndarray, conditions: Conditions) -> float:
    """Return what a fleet costs to operate in a window if nothing else changes."""
    state = model.initial_state()
    state.replicas[:, 0] = fleet
    free = dataclasses.replace(conditions, available_gpus=np.full(conditions.available_gpus.size, 10**9))
    result = model.step(FleetState(state.replicas), np.array(fleet), free, model.new_router())
    return float(result.cost_usd - fleet @ model.hold_usd(conditions.price_factor))


def penalty_cell(name: str, days: int, samples: int, agents: Sequence[str]) -> dict[str, list[float]]:
    """Return by agent and day: what its fleets cost with real demand minus with redrawn demand, USD."""
    instance = fleetgym.load_instance(name)
    model, lag = window_model(instance), instance.lead + 1
    cell: dict[str, list[float]] = {agent: [] for agent in agents}
    made = {agent: fleetgym.make_agent(agent) for agent in agents}
    for k in range(days):
        day, redraws = day_and_redraws(instance, k, samples, seed=1)
        drawn = [redraws.draw(t, lag) for t in range(instance.num_windows)]
        for agent in agents:
            total = 0.0
            for t, fleet in enumerate(play(instance, made[agent], day, k)[1]):
                here = Conditions.of(day, t)
                other = [
                    operating_usd(model, fleet, dataclasses.replace(here, rate_rps=rate))
                    for rate in drawn[t][0]
                ]
                total += operating_usd(model, fleet, here) - float(drawn[t][1] @ other)
            cell[agent].append(total)
    return cell


def _mean(values: Sequence[float]) -> str:
    return f"{np.mean(values):,.1f}"


def _error(values: Sequence[float]) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def bound_table(cells: Mapping[str, Mapping[str, list[float]]], agents: Sequence[str]) -> str:
    """Return the bounds and agents, an instance a row; the gap is that between hindsight and the best agent."""
    rows = []
    for name, cell in cells.items():
        best = min(float(np.mean(cell[agent])) for agent in agents)
        hindsight, bound = np.array(cell["hindsight"]), np.array(cell["bound"])
        closed = (bound.mean() - hindsight.mean()) / (best - hindsight.mean())
        rows.append(
            [
                f"`{name}`",
                len(bound),
                _mean(hindsight),
                _mean(bound),
                f"{_error(bound - hindsight):.1f}",
                *(_mean(cell[agent]) for agent in agents),
                f"{100 * closed:.0f} %",
                f"{cell['cpu_s']:.1f}",
            ]
        )
    head = ["instance", "days", "hindsight", "bound", "± of the difference", *(f"`{a}`" for a in agents)]
    return table([*head, "gap closed", "CPU s a day"], rows)


def penalty_table(cells: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Return mean penalties with their standard errors, an instance and agent a row."""
    rows = [
        [f"`{name}`", f"`{agent}`", len(found), f"{np.mean(found):.2f}", f"{_error(found):.2f}"]
        for name, cell in cells.items()
        for agent, found in cell.items()
    ]
    return table(["instance", "agent", "days", "mean penalty, USD a day", "±"], rows, 2)


def smoke(folder: Path) -> None:
    """Bound one day of a toy, and check the law on another."""
    cells = str(folder / "cells.jsonl")
    small = ["--instances", "fleet-v0/dev/ou-s-001", "--days", "1", "--samples", "1", "--agents", "hold"]
    main([*small, "--cells", cells])
    main([*small, "--cells", cells, "--penalty"])


def main(argv: Sequence[str] | None = None) -> None:
    """Read the call, compute what is missing, print the table."""
    parser = program(
        __doc__,
        writes="Finished instances to --cells, and with --page the tables of docs/bounds.md.",
        takes="Half a CPU minute a day and instance of size s; it goes on where it stopped.",
        smoke=smoke,
    )
    parser.add_argument("--instances", nargs="+", default=INSTANCES)
    parser.add_argument("--days", type=of(COUNT), default=30)
    parser.add_argument(
        "--samples", type=of(COUNT), default=4, help="demands that are drawn anew for each window"
    )
    parser.add_argument("--agents", nargs="+", help=f"default: {' '.join(AGENTS)}")
    parser.add_argument("--penalty", action="store_true", help="check the law instead")
    parser.add_argument("--cells", type=Path, default=Path("docs/data/bounds.jsonl"))
    parser.add_argument("--page", action="store_true", help="write the page from finished cells")
    call = parser.parse_args(argv)
    agents = call.agents or (PENALTY_AGENTS if call.penalty else AGENTS)
    if not call.page:
        compute = penalty_cell if call.penalty else bound_cell
        for name in call.instances:
            key = f"{'penalty' if call.penalty else 'bound'} {call.samples} {name}"
            if key not in read(call.cells):
                keep(call.cells, key, compute(name, call.days, call.samples, agents))
    done = read(call.cells)
    bounds = {k.split()[-1]: v for k, v in done.items() if k.startswith("bound")}
    penalties = {k.split()[-1]: v for k, v in done.items() if k.startswith("penalty")}
    written = (
        bound_table(bounds, [a for a in agents if all(a in c for c in bounds.values())]) if bounds else ""
    )
    written += f"\n{penalty_table(penalties)}" if penalties else ""
    if call.page:
        PAGE.write_text(rewrite(PAGE, written), encoding="utf-8")
    else:
        print(written)


if __name__ == "__main__":
    main()
