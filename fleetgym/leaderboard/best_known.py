"""Check a suite's best-known costs: replay the actions that achieve them through the reference evaluator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.replay import why_not_confirmed
from fleetgym.leaderboard.workers import in_order
from fleetgym.model.library import list_tasks, parse_task, task_name
from fleetgym.scoring.best_known import (
    BestKnown,
    actions_folder,
    best_known_path,
    read_actions,
    read_best_known,
)

#: Folder of the actions, task, and what it is said to cost.
Item = tuple[Path, str, BestKnown]


def replay_best_known(
    suite: str, *, workers: int = 1, progress: Callable[[int, int], None] | None = None
) -> dict[str, str]:
    """Replay the stored actions of a suite's best-known costs through the reference evaluator.

    Parameters
    ----------
    suite : str
        Such as ``fleet-v0`` or ``fleet-v0/dev``.
    workers : int
        Processes.
    progress : callable, optional
        Called with the numbers of replayed and of all tasks.

    Returns
    -------
    dict of str to str
        What is wrong, by task; empty if every value is confirmed.

    Raises
    ------
    FleetgymError
        If the actions are not at hand: an installed package does not carry them.
    """
    folder = actions_folder()
    if folder is None:
        raise FleetgymError("the actions of best-known costs are in the project's checkout only")
    wanted = {task_name(*task) for task in list_tasks(suite)}
    known = read_best_known(best_known_path(suite))
    items = [(folder, task, best) for task, best in known.tasks.items() if task in wanted]
    wrong = {}
    for k, reason in enumerate(in_order(check_best_known, items, workers)):
        if reason is not None:
            wrong[items[k][1]] = reason
        if progress is not None:
            progress(k + 1, len(items))
    return wrong


def check_best_known(item: Item) -> str | None:
    """Return why the reference evaluator does not confirm a best-known cost, or None."""
    folder, task, best = item
    name, number = parse_task(task)
    return why_not_confirmed(
        name, number, best.instance_hash, best.value_usd, lambda _: read_actions(folder, name, number)
    )
