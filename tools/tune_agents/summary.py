"""Write ``leaderboard/tuning/README.md`` from the races of several agents."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from fleetgym.agents.registry import agent_entries
from fleetgym.leaderboard.pages import DASH, interval, number
from tools.family_statistics import cheaper_by
from tools.markdown import table
from tools.tune_agents.grid import MOST_TRIALS, OWN, WRAPPER, grid_of
from tools.tune_agents.race import (
    CONFIRMATION,
    RACE,
    SHORT_RACE,
    SLOW,
    Costs,
    Outcome,
    Round,
    above,
    rounds_of,
)


def page(outcomes: Mapping[str, Outcome]) -> str:
    """Return the page as Markdown."""
    return f"""# Tuned settings of the reference agents

Written by `python -m tools.tune_agents --agent NAME ...` from the logs beside this page. A log holds every trial: one
line for each setting and round, USD by task. A run that was stopped goes on from there.

{_outcomes(outcomes)}
Trials count the setting as published. The numbers after them are of {len(CONFIRMATION.tasks)} tasks on which nothing
was chosen. The first two are percent above the cheapest setting of this table, task by task. The last two say how much
cheaper the tuned setting is than the published one, with a 95 % interval over instances (families are strata).

**Tasks** are newly made instances of the headline families, of their smallest size, with seeds of the training range
and a day each. No stored instance is among them.

**Grid.** All planners run through one wrapper, and its arguments are tuned, in the same grid for all. Where it has more
than {MOST_TRIALS} points, {MOST_TRIALS - 1} are drawn without replacement, the same for all agents. An agent that plans
once takes the margin only. One without the wrapper has the arguments that its docstring names, or none.

{_grid(outcomes)}
{_untuned(outcomes)}
**Race.** After each round the settings are ordered by the score's own formula over all tasks that they have played. The
published setting stays in to the end, and may win.

{_rounds(RACE)}{_short_race(outcomes)}"""


def _outcomes(outcomes: Mapping[str, Outcome]) -> str:
    best = cheapest(outcomes)
    head = ["agent", "tuned setting", "trials", "as published %", "tuned %", "cheaper by %", "95 % interval"]
    rows = []
    for agent, outcome in sorted(outcomes.items(), key=lambda item: above(_tuned(item[1]), best)):
        saved, bounds = gain(outcome, agent)
        rows.append(
            [
                f"`{agent}`",
                "as published" if outcome.best == agent else f"`{outcome.best}`",
                len(outcome.raced),
                number(above(outcome.confirmed[agent], best)),
                number(above(_tuned(outcome), best)),
                DASH if outcome.best == agent else number(saved),
                DASH if outcome.best == agent else interval(bounds),
            ]
        )
    return table(head, rows, text_columns=2)


def _rounds(race: Sequence[Round]) -> str:
    lines = []
    for k, part in enumerate(race, start=1):
        count, families = len(part.tasks), ", ".join(f"`{name}`" for name in part.families)
        tasks, stays = "task" if count == 1 else "tasks", "stays" if part.stay == 1 else "stay"
        lines.append(f"{k}. {count} {tasks} ({families}); {part.stay} {stays}.\n")
    return "".join(lines)


def _short_race(outcomes: Mapping[str, Outcome]) -> str:
    """Return what is to be said of the race of slow agents, if one has run it."""
    slow = ", ".join(f"`{agent}`" for agent in sorted(SLOW & outcomes.keys()))
    if not slow:
        return ""
    return f"""
**A shorter race**, for {slow}, whose days take long. The first task alone decides who goes on. Six quick
planners of the table replan. With each of them, the setting with the best mean of the first six tasks is among the best
five of 100 on that one. The tasks of the last columns are the same for all agents.

{_rounds(SHORT_RACE)}"""


def _days(race: Sequence[Round]) -> int:
    """Return how many days a race of the most trials plays, the confirmation's included."""
    playing = [MOST_TRIALS, *(part.stay for part in race)]
    days = sum(len(part.tasks) * count for part, count in zip(race, playing, strict=False))
    return days + 2 * len(CONFIRMATION.tasks)


def _grid(outcomes: Mapping[str, Outcome]) -> str:
    own = {f"`{agent}`": grid for agent, grid in OWN.items() if agent in outcomes}
    rows = [
        [who, f"`{name}`", ", ".join(map(str, values))]
        for who, grid in {"planners": WRAPPER, **own}.items()
        for name, values in grid.items()
    ]
    return table(["agents", "argument", "values"], rows, text_columns=3)


def _untuned(outcomes: Mapping[str, Outcome]) -> str:
    """Return what is to be said of the agents without a log."""
    left = [name for name, entry in agent_entries().items() if entry.is_reference and name not in outcomes]
    dear = [f"`{name}`" for name in left if grid_of(name)]
    bare = [f"`{name}`" for name in left if not grid_of(name)]
    found = ""
    if dear:
        days = max(_days(rounds_of(name)) for name in left if grid_of(name))
        found += f"**Not tuned**: {', '.join(dear)}. A race plays up to {days} days; theirs are not over.\n"
    if bare:
        found += f"Without any of these arguments: {', '.join(bare)}.\n"
    return found


def _tuned(outcome: Outcome) -> Costs:
    return outcome.confirmed[outcome.best]


def cheapest(outcomes: Mapping[str, Outcome]) -> Costs:
    """Return the cheapest cost of each confirmation task, USD."""
    found: dict[str, float] = {}
    for outcome in outcomes.values():
        for costs in outcome.confirmed.values():
            for task, usd in costs.items():
                found[task] = min(usd, found.get(task, math.inf))
    return found


def gain(outcome: Outcome, published: str) -> tuple[float, tuple[float, float] | None]:
    """Return by how many percent the tuned setting is cheaper than the published one, with its interval."""
    before, after = outcome.confirmed[published], _tuned(outcome)
    return cheaper_by(
        {(task.partition("-")[0], task): math.log(after[task] / before[task]) for task in before}
    )
