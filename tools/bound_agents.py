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
from typing import Any, NamedTuple

import numpy as np

import fleetgym
from fleetgym.baselines.told_lookahead import ToldLookahead
from fleetgym.bounds.horizon import SOLVERS
from fleetgym.bounds.nonanticipative import bounded_day, day_and_redraws
from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.envs.day import play_day
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.files.finished_cells import keep, read
from fleetgym.files.quantities import COUNT
from fleetgym.model.actions import ActionSpace
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.instance_files import write_instance
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import FleetState, Router, WindowModel, window_model
from fleetgym.runtime.programs import program
from fleetgym.scoring.unknown import FILE as UNKNOWN_FILE
from fleetgym.search.hindsight import plan_in_hindsight
from tools.markdown import rewrite, table

FAMILIES = ("ou", "drop", "budget", "tail", "multi", "grw")
INSTANCES = tuple(f"fleet-v1/dev/{family}-s-{number}" for family in FAMILIES for number in (101, 102, 103))
AGENTS = ("lookahead", "margin", "descent")
#: Reference rows, no agents: a search that knows the day, and `lookahead` told so many of the windows to come.
CLAIRVOYANT = "clairvoyant"
TOLD = {"told-1": 1, "told-4": 4}
REFERENCES = (CLAIRVOYANT, *TOLD)
SEARCHED = 1_000_000  # windows that the search plays or routes in a day
PENALTY_AGENTS = ("hold", "margin", "autoscale", "descent")
BLOCK_DAYS = 25  # of a finished cell of penalties
FEWEST_DAYS = 10  # of a family that is told beside scores
RAISED = "fleet-v2/"  # instances whose stored bounds have raised planes
PAGE = Path("docs/bounds.md")
UNKNOWN = Path("fleetgym/data") / UNKNOWN_FILE


def day_of(instance: Instance, day: int) -> Scenario:
    """Return a day that is drawn; bounds and agents are compared on these."""
    return day_and_redraws(instance, day, 1, seed=0)[0]


def play_cell(name: str, agent: str, day: int, searched: int = SEARCHED) -> float:
    """Return what an agent, or a reference row, pays in a day, USD."""
    instance = fleetgym.load_instance(name)
    scenario = day_of(instance, day)
    if agent == CLAIRVOYANT:
        nominal = ActionSpace(instance).from_fleet(instance.nominal_fleet)
        start = np.tile(nominal, (instance.num_windows, 1))
        return plan_in_hindsight(instance, scenario, None, starts=[start], max_steps=searched).cost_usd
    player = ToldLookahead(scenario, TOLD[agent]) if agent in TOLD else fleetgym.make_agent(agent)
    played = play_day(FleetAllocEnv(instance), player, scenario, seed=day)
    return float(sum(window.info["cost"] for window in played))


def bound_cell(name: str, samples: int, day: int, solver: str) -> dict[str, float]:
    """Return a day's parts of the bounds, USD, and how long they took."""
    start = time.process_time()
    found = bounded_day(fleetgym.load_instance(name), day, samples=samples, solver=solver)
    return {
        "hindsight": found.hindsight_usd,
        "raised": found.raised_usd,
        "bound": found.term_usd,
        "cpu_s": time.process_time() - start,
    }


def operating_usd(model: WindowModel, router: Router, fleet: np.ndarray, conditions: Conditions) -> float:
    """Return what a fleet costs to operate in a window, less the rent of all of it, if nothing else changes."""
    state = model.initial_state()
    state.replicas[:, 0] = fleet
    result = model.step(FleetState(state.replicas), np.array(fleet), conditions, router)
    return float(result.cost_usd - fleet @ model.hold_usd(conditions.price_factor))


def penalty_cell(name: str, samples: int, agent: str, days: range) -> list[float]:
    """Return by day what an agent's fleets cost with real demand minus with redrawn demand, USD."""
    instance = fleetgym.load_instance(name)
    model, lag = window_model(instance), instance.lead + 1
    router = model.new_router()
    made, env = fleetgym.make_agent(agent), FleetAllocEnv(instance)
    totals = []
    for k in days:
        day, redraws = day_and_redraws(instance, k, samples, seed=1)
        total = 0.0
        for t, (view, _, _) in enumerate(play_day(env, made, day, seed=k)):
            here, fleet = Conditions.of(day, t), np.array(view.running)
            drawn = redraws.draw(t, lag)
            gpus = (
                [here.available_gpus] * len(drawn.weights)
                if drawn.available_gpus is None
                else drawn.available_gpus
            )
            other = [
                operating_usd(
                    model, router, fleet, dataclasses.replace(here, rate_rps=rate, available_gpus=left)
                )
                for rate, left in zip(drawn.rate_rps, gpus, strict=True)
            ]
            total += operating_usd(model, router, fleet, here) - float(drawn.weights @ other)
        totals.append(total)
    return totals


def _mean(values: Sequence[float] | np.ndarray) -> str:
    return f"{np.mean(values):,.1f}"


def _standard_error(values: Sequence[float] | np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def _error(values: Sequence[float] | np.ndarray) -> str:
    error = _standard_error(values)
    return "–" if np.isnan(error) else f"{error:.1f}"


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
                    days = range(day, min(day + BLOCK_DAYS, call.days))
                    key = f"penalty {name} {call.samples} {agent} {days.start}-{days.stop}"
                    cell(key, penalty_cell, name, call.samples, agent, days)
                else:
                    cell(f"play {name} {agent} {day}", play_cell, name, agent, day)
            if not call.penalty and not call.plays:
                key = f"raised {name} {call.samples} {day}"
                cell(key, bound_cell, name, call.samples, day, call.solver)


class Measured(NamedTuple):
    """What is known of one instance, on the days that everything has finished."""

    hindsight: np.ndarray  # (days,) USD, as all that follow; of the kind that the set's tasks have
    bound: np.ndarray  # without the future; the raised one where its mean is larger, for that is a bound, too
    paid: dict[str, np.ndarray]  # by agent and reference row; nan on days that a reference row lacks
    cpu_s: float  # of a day's bounds
    samples: int  # redraws of the bound

    @property
    def best(self) -> np.ndarray:
        """What the cheapest agent pays."""
        return min((self.paid[a] for a in self.agents), key=lambda usd: float(usd.mean()))

    @property
    def agents(self) -> list[str]:
        """Who of those that paid is no reference row."""
        return [a for a in self.paid if a not in REFERENCES]

    @property
    def closed(self) -> float:
        """Share of the gap between hindsight and the cheapest agent that the bound closes."""
        low = self.hindsight.mean()
        return float((self.bound.mean() - low) / (self.best.mean() - low))

    def above(self, usd: np.ndarray) -> float:
        """Return how much more than hindsight something is on the days that it has, percent."""
        has = np.isfinite(usd)
        return 100.0 * float(usd[has].mean() / self.hindsight[has].mean() - 1.0)


def measured(cells: Mapping[str, Any]) -> dict[str, Measured]:
    """Return by instance what cells of two days at least say.

    Of bounds, those of most days, then the raised ones, then those of most redraws.
    """
    bounds: dict[str, dict[tuple[bool, int], dict[int, Any]]] = defaultdict(lambda: defaultdict(dict))
    plays: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for key, value in cells.items():
        kind, name, *rest = key.split()
        if kind in ("bound", "raised"):
            bounds[name][kind == "raised", int(rest[0])][int(rest[1])] = value
        elif kind == "play":
            plays[name][rest[0]][int(rest[1])] = value
    found = {}
    for name, by_effort in bounds.items():
        agents = [a for a in plays[name] if a not in REFERENCES]
        played = set.intersection(*(set(plays[name][a]) for a in agents)) if agents else set()
        days, effort = max(
            ((sorted(played & set(by_day)), effort) for effort, by_day in by_effort.items()),
            key=lambda known: (len(known[0]), known[1]),
        )
        if len(days) < 2:  # the bound says nothing of a single day
            continue
        by_day = by_effort[effort]
        rows = [row for row in REFERENCES if len(set(days).intersection(plays[name][row])) > 1]
        parts = {part: np.array([by_day[day][part] for day in days]) for part in by_day[days[0]]}
        paid = {row: np.array([plays[name][row].get(day, np.nan) for day in days]) for row in agents + rows}
        cpu_s = float(parts["cpu_s"].mean())
        bound = max((parts[part] for part in ("bound", "raised") if part in parts), key=np.mean)
        hindsight = parts["raised" if name.startswith(RAISED) else "hindsight"]
        found[name] = Measured(hindsight, bound, paid, cpu_s, samples=effort[1])
    return found


def _agents(found: Mapping[str, Measured]) -> list[str]:
    """Return the agents that played everywhere."""
    first = next(iter(found.values()), None)
    return [] if first is None else [a for a in first.agents if all(a in one.paid for one in found.values())]


def bound_table(found: Mapping[str, Measured]) -> str:
    """Return the bounds and agents, an instance a row; the gap is that between hindsight and the cheapest agent."""
    agents = _agents(found)
    rows = [
        [
            f"`{name}`",
            len(one.bound),
            one.samples,
            _mean(one.hindsight),
            _mean(one.bound),
            _error(one.bound - one.hindsight),
            *(_mean(one.paid[a]) for a in agents),
            _error(one.best - one.bound),
            f"{100 * one.closed:.0f} %",
            f"{one.cpu_s:.1f}",
        ]
        for name, one in found.items()
    ]
    head = [
        "instance",
        "days",
        "redraws",
        "hindsight",
        "bound",
        "±",
        *(f"`{a}`" for a in agents),
        "±",
    ]
    return table([*head, "gap closed", "CPU s a day"], rows)


def by_family(found: Mapping[str, Measured]) -> dict[tuple[str, str], list[Measured]]:
    """Return what is known of instances by set and family."""
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for name, one in found.items():
        groups[name.partition("/")[0], fleetgym.load_instance(name).family].append(one)
    return groups


def _reference(members: Sequence[Measured], name: str) -> str:
    """Return how much more than hindsight a reference row pays, and in brackets on how many days if not on all."""
    if not all(name in one.paid for one in members):
        return "–"
    has = sum(int(np.isfinite(one.paid[name]).sum()) for one in members)
    above = np.mean([one.above(one.paid[name]) for one in members])
    return f"{above:.1f}" + (f" ({has})" if has < sum(len(one.bound) for one in members) else "")


def split_table(found: Mapping[str, Measured]) -> str:
    """Return by family, percent above hindsight: what nobody can know, reference rows, and what agents leave."""
    rows, agents = [], _agents(found)
    for (_, family), members in by_family(found).items():
        unknown = np.mean([one.above(one.bound) for one in members])
        row = [family, len(members), sum(len(one.bound) for one in members), f"{unknown:.1f}"]
        row += [_reference(members, name) for name in REFERENCES]
        for name in agents:
            row.append(f"{np.mean([one.above(one.paid[name]) for one in members]) - unknown:.1f}")
        rows.append([*row, f"{100 * np.mean([one.closed for one in members]):.0f} %"])
    head = ["family", "instances", "days", "nobody can know", *(f"({name})" for name in REFERENCES)]
    return table([*head, *(f"`{a}` leaves" for a in agents), "gap closed"], rows)


def unknown_csv(found: Mapping[str, Measured], fewest: int = FEWEST_DAYS) -> str:
    """Return by set and family what nobody can know, percent above hindsight, with its standard error.

    Families of fewer days are left out: beside scores nobody sees how few they are.
    """
    lines = ["set,family,instances,days,percent,standard_error"]
    for (name, family), members in by_family(found).items():
        above = np.mean([one.above(one.bound) for one in members])
        errors = [_standard_error(one.bound - one.hindsight) / one.hindsight.mean() for one in members]
        error = 100.0 * np.sqrt(np.sum(np.square(errors))) / len(members)
        days = sum(len(one.bound) for one in members)
        if days >= fewest:
            lines.append(f"{name},{family},{len(members)},{days},{above:.2f},{error:.2f}")
    return "\n".join(lines) + "\n"


def penalty_table(cells: Mapping[str, Any], samples: int) -> str:
    """Return mean penalties with their standard errors, an instance and agent a row."""
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for key, value in cells.items():
        kind, name, *rest = key.split()
        if kind == "penalty" and int(rest[0]) == samples:
            found[name, rest[1]].update(enumerate(value, start=int(rest[2].partition("-")[0])))
    rows = [
        [
            f"`{name}`",
            f"`{agent}`",
            len(days),
            f"{np.mean(days):.2f}",
            f"{_standard_error(days):.2f}" if len(days) > 1 else "–",
            f"{np.mean(days) / _standard_error(days):.1f}" if len(days) > 1 else "–",
        ]
        for (name, agent), by_day in found.items()
        for days in [list(by_day.values())]
    ]
    return table(["instance", "agent", "days", "mean penalty, USD a day", "±", "standard errors"], rows, 2)


def smoke(folder: Path) -> None:
    """Bound one short day, and check the law on it."""
    cells, short = str(folder / "cells.jsonl"), folder / "short.json"
    instance = fleetgym.load_instance("fleet-v0/dev/ou-s-001").replace(num_windows=48)
    write_instance(short, instance, [day_of(instance, 0)])
    small = ["--instances", str(short), "--days", "1", "--samples", "1", "--agents", "hold"]
    main([*small, "--cells", cells])
    main([*small, "--cells", cells, "--penalty"])


def main(argv: Sequence[str] | None = None) -> None:
    """Read the call, compute what is missing, print the tables."""
    parser = program(
        __doc__,
        writes="Finished cells to --cells; with --page the tables of docs/bounds.md and fleetgym/data/unknown.csv.",
        takes="Half a CPU minute a day and instance of size s; it goes on where it stopped.",
        smoke=smoke,
    )
    parser.add_argument("--instances", nargs="+", default=INSTANCES)
    parser.add_argument("--days", type=of(COUNT), default=30)
    parser.add_argument(
        "--samples", type=of(COUNT), default=4, help="demands that are drawn anew for each window"
    )
    parser.add_argument(
        "--agents", nargs="+", help=f"default: {' '.join(AGENTS)}; also {' '.join(REFERENCES)}"
    )
    parser.add_argument("--solver", choices=SOLVERS, default="ipx", help="of the linear programs")
    parser.add_argument("--plays", action="store_true", help="play the agents only")
    parser.add_argument(
        "--penalty", action="store_true", help=f"check the law instead, {BLOCK_DAYS} days at a time"
    )
    parser.add_argument("--cells", type=Path, default=Path("docs/data/bounds.jsonl"))
    parser.add_argument(
        "--page", action="store_true", help="write the page from finished cells, compute nothing"
    )
    call = parser.parse_args(argv)
    if not call.page:
        compute(call, call.agents or (PENALTY_AGENTS if call.penalty else AGENTS))
    done = read(call.cells)
    found = measured(done)
    families = split_table(found), penalty_table(done, call.samples)
    if call.page:
        PAGE.write_text(rewrite(PAGE, _joined(families)), encoding="utf-8")
        UNKNOWN.write_text(unknown_csv(found), encoding="utf-8")
    print(_joined((bound_table(found), *families)))


def _joined(tables: Sequence[str]) -> str:
    """Return the tables that have rows."""
    return "\n".join(text for text in tables if len(text.splitlines()) > 2) or "Not computed yet.\n"


if __name__ == "__main__":
    run_program(main)
