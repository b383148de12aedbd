"""A suite's best-known costs in, those out that the judge does not confirm: stored actions replayed, one by one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fleetgym.errors import DataError, FleetgymError
from fleetgym.leaderboard.judging import TOLERANCE, judge
from fleetgym.leaderboard.workers import in_order
from fleetgym.library import list_instances, load_instance, load_scenarios
from fleetgym.scoring.best_known import (
    BestKnown,
    BestKnownSet,
    actions_folder,
    best_known_path,
    read_actions,
    read_best_known,
    task_name,
)

Item = tuple[Path, str, int, BestKnown]


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
    names = set(list_instances(suite))
    items = [
        item for item in best_known_items(read_best_known(best_known_path(suite)), folder) if item[1] in names
    ]
    wrong = {}
    for k, reason in enumerate(in_order(why_not_confirmed, items, workers)):
        if reason is not None:
            wrong[task_name(*items[k][1:3])] = reason
        if progress is not None:
            progress(k + 1, len(items))
    return wrong


def best_known_items(known: BestKnownSet, folder: Path) -> list[Item]:
    """Return what `why_not_confirmed` takes, of every task of a set whose actions lie in a folder."""
    split = [(*task.rpartition("#")[::2], best) for task, best in known.tasks.items()]
    return [(folder, name, int(number), best) for name, number, best in split]


def why_not_confirmed(item: Item) -> str | None:
    """Return why the judge does not confirm a best-known cost, or None."""
    folder, name, number, best = item
    try:
        instance = load_instance(name)
        if best.instance_hash != instance.content_hash:
            return "found on another version of the instance"
        actions = read_actions(folder, name, number)
        judged, _ = judge(instance, load_scenarios(name)[number], actions, name, number)
    except (DataError, FileNotFoundError) as error:
        return str(error)
    if abs(judged.cost_usd - best.value_usd) > TOLERANCE * max(1.0, judged.cost_usd):
        return f"says {best.value_usd!r} USD, the replay {judged.cost_usd!r}"
    return None
