"""A suite's best-known costs in, those out that the reference evaluator does not confirm, one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.replay import replay_episode
from fleetgym.leaderboard.workers import in_order
from fleetgym.model.library import list_tasks, load_instance, load_scenarios, parse_task, task_name
from fleetgym.scoring.best_known import (
    BestKnown,
    actions_folder,
    best_known_path,
    is_same_cost,
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
    for k, reason in enumerate(in_order(why_not_confirmed, items, workers)):
        if reason is not None:
            wrong[items[k][1]] = reason
        if progress is not None:
            progress(k + 1, len(items))
    return wrong


def why_not_confirmed(item: Item) -> str | None:
    """Return why the reference evaluator does not confirm a best-known cost, or None."""
    folder, task, best = item
    name, number = parse_task(task)
    try:
        instance = load_instance(name)
        if best.instance_hash != instance.content_hash:
            return "found on another version of the instance"
        actions = read_actions(folder, name, number)
        replayed, _ = replay_episode(instance, load_scenarios(name)[number], actions, name, number)
    except (FleetgymError, FileNotFoundError, IndexError) as error:
        return str(error)
    if not is_same_cost(best.value_usd, replayed.cost_usd):
        return f"says {best.value_usd!r} USD, the replay {replayed.cost_usd!r}"
    return None
