"""Check an ended season: draw its tasks again, and replay the actions of its rows and best-known costs."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fleetgym.evaluation.changes import decode_actions
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.best_known import check_best_known
from fleetgym.leaderboard.record import Record, VerifiedEpisode
from fleetgym.leaderboard.registers import Season
from fleetgym.leaderboard.replay import OTHER_INSTANCE, why_not_confirmed
from fleetgym.leaderboard.season import draw_season, instances_from, published_best_known, revealed_seed
from fleetgym.leaderboard.standings import read_records
from fleetgym.leaderboard.workers import in_order
from fleetgym.model.actions import ActionSpace
from fleetgym.model.instance import Instance
from fleetgym.model.library import task_name
from fleetgym.scoring.best_known import read_best_known

#: What the cause may be where an instance is drawn that nobody played.
_KERNELS = (
    "or this processor's sums, by OpenBLAS, have flipped a draw: OPENBLAS_CORETYPE=SkylakeX draws it as it was, where "
    "the processor has AVX-512"
)


def check_season(
    board: str | os.PathLike[str],
    season: Season,
    *,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, str]:
    """Draw a season's tasks from its revealed seed, and replay what its fresh rows and best-known costs say was done.

    Parameters
    ----------
    board : path-like
        The leaderboard's folder.
    season : Season
        Ended: its seed is revealed.
    workers : int
        Processes.
    progress : callable, optional
        Called with the numbers of replayed and of all episodes, best-known ones included.

    Returns
    -------
    dict of str to str
        What is wrong, by row (or ``best known``) and task; empty if every cost is confirmed.

    Raises
    ------
    FleetgymError
        If the seed is not revealed, or the season has no rows.
    FileNotFoundError
        If its best-known costs were not published.
    """
    seed = revealed_seed(season)
    records = [record for record in read_records(board, "fresh") if record.season == season.name]
    if not records:
        raise FleetgymError(f"season {season.name} has no rows in {Path(board) / 'fresh'}")
    rows = [(record, episode) for record in records for episode in record.episodes]
    published = published_best_known(board, season)
    best = [(published.parents[1], *known) for known in read_best_known(published).tasks.items()]
    names = [f"{record.id} {task_name(*episode.task)}" for record, episode in rows]
    names += [f"best known {task}" for _, task, _ in best]
    wrong = {}
    with tempfile.TemporaryDirectory() as folder:
        drawn = Path(folder) / "season"
        draw_season(season, seed, drawn)
        with instances_from(drawn):
            replays = itertools.chain(
                in_order(_reason, rows, workers), in_order(check_best_known, best, workers)
            )
            for k, (name, reason) in enumerate(zip(names, replays, strict=True)):
                if reason is not None:
                    wrong[name] = reason
                if progress is not None:
                    progress(k + 1, len(names))
    return wrong


def _reason(row: tuple[Record, VerifiedEpisode]) -> str | None:
    """Return why an episode is not confirmed, or None."""
    record, episode = row
    changes = episode.actions
    if changes is None:
        return "the record keeps no actions"

    def read(instance: Instance) -> np.ndarray:
        return decode_actions(changes, instance.num_windows, ActionSpace(instance).nvec.tolist())

    played = record.instances[episode.instance].content_hash
    reason = why_not_confirmed(*episode.task, played, episode.cost_usd, read)
    return f"{reason}; {_KERNELS}" if reason == OTHER_INSTANCE else reason
