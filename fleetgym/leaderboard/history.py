"""Show the history of a board's best-known sets: their tasks, their distance to the bounds, and how they fell."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection

from markupsafe import Markup

from fleetgym.leaderboard.pages import DASH, Column, html_table, number
from fleetgym.leaderboard.standings import Board
from fleetgym.model.library import list_tasks, task_name
from fleetgym.scoring.best_known import BestKnownSet
from fleetgym.scoring.score import percent


def history(board: Board) -> Markup:
    """Return a table of what the sets say of the board's tasks, and one of every task's value in each of them."""
    wanted = {task_name(*task) for task in list_tasks(board.suite)}
    shown = [(release, _of_tasks(best, wanted)) for release, best in board.history]
    sets = [best for _, best in shown]
    tasks = sorted({task for best in sets for task in best.tasks})
    columns = [
        Column("set", lambda e: e[1].name, kind="name"),
        Column("frozen", lambda e: e[0].date if e[0] else "not yet", kind="text"),
        Column("tasks", lambda e: len(e[1].tasks), lambda e: len(e[1].tasks)),
        Column("proven optimal", lambda e: sum(b.proven for b in e[1].tasks.values())),
        Column("have a bound", lambda e: len(_gaps(e[1])), hint="tasks that are not proven optimal"),
        Column("above it %", lambda e: number(_gap(e[1])), hint="geometric mean over these tasks"),
        Column(
            "below the first set %",
            lambda e: number(_fall(sets[0], e[1])),
            hint="by how much the tasks in both have become cheaper, geometric mean",
        ),
        Column("SHA-256", lambda e: e[0].sha256[:16] if e[0] else DASH, kind="code"),
    ]
    per_task = [
        Column("task", lambda t: t, kind="name"),
        *(_set_column(best) for best in sets),
        Column(
            "bound USD",
            lambda t: number(sets[-1].tasks[t].bound_usd, 2) if t in sets[-1].tasks else DASH,
            lambda t: sets[-1].tasks[t].bound_usd if t in sets[-1].tasks else None,
        ),
        Column("found by", lambda t: sets[-1].tasks[t].method if t in sets[-1].tasks else DASH, kind="wrap"),
    ]
    folded = Markup("{}<details><summary>All {} tasks</summary>{}</details>")
    return folded.format(html_table(columns, shown), len(tasks), html_table(per_task, tasks))


def _of_tasks(best: BestKnownSet, wanted: Collection[str]) -> BestKnownSet:
    """Return what a set says of some tasks."""
    return dataclasses.replace(best, tasks={task: b for task, b in best.tasks.items() if task in wanted})


def _set_column(best: BestKnownSet) -> Column:
    values = {task: known.value_usd for task, known in best.tasks.items()}
    return Column(f"{best.name} USD", lambda t: number(values.get(t), 2), values.get)


def _gaps(best: BestKnownSet) -> list[float]:
    """Return ln(value / bound) of the tasks that have a bound and are not proven."""
    return [math.log(b.value_usd / b.bound_usd) for b in best.tasks.values() if b.bound_usd and not b.proven]


def _gap(best: BestKnownSet) -> float | None:
    logs = _gaps(best)
    return percent(math.fsum(logs) / len(logs)) if logs else None


def _fall(first: BestKnownSet, best: BestKnownSet) -> float | None:
    both = [
        t
        for t in best.tasks
        if t in first.tasks and first.tasks[t].instance_hash == best.tasks[t].instance_hash
    ]
    logs = [math.log(best.tasks[t].value_usd / first.tasks[t].value_usd) for t in both]
    return -percent(math.fsum(logs) / len(logs)) + 0.0 if logs else None
