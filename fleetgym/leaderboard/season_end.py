"""End a season: publish its seed, its rows' actions and its best-known costs, so that anybody can check them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from fleetgym.files.documents import read_text, write_atomically
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.leaderboard.record import Record, read_record, write_record
from fleetgym.leaderboard.registers import Season, read_registers
from fleetgym.leaderboard.rerun import RECORDS, without_actions
from fleetgym.leaderboard.season import (
    ACTIONS,
    best_known_command,
    fresh_suite,
    published_best_known,
    read_seed,
)
from fleetgym.leaderboard.standings import read_records


def end_season(
    board: str | os.PathLike[str],
    season: Season,
    seed_file: str | os.PathLike[str],
    instances: str | os.PathLike[str],
) -> list[str]:
    """Reveal a season's seed, and publish what was kept back while it was open.

    Everything is read and compared before anything is written, the seed last; a call that was interrupted can be
    made again.

    Parameters
    ----------
    board : path-like
        The leaderboard's folder.
    season : Season
        Open.
    seed_file : path-like
        The private seed.
    instances : path-like
        What `draw_season` made, with best-known costs, their actions and whole records beside the tasks.

    Returns
    -------
    list of str
        Ids of the season's rows.

    Raises
    ------
    FleetgymError
        If the seed is not the announced one, or something that was to be published is missing.
    DataError
        If a row says something else than its whole record.
    """
    seed, private, public = read_seed(seed_file, season), Path(instances), Path(board)
    if season.seed:
        raise FleetgymError(f"season {season.name} has ended already")
    suite = fresh_suite(season).partition("/")[0]
    best_known, actions = private / suite / "best_known.json", private / ACTIONS / suite
    for path in (best_known, actions):
        if not path.exists():
            raise FleetgymError(f"{path} is missing: {best_known_command(season, private)}")
    rows = [record for record in read_records(public, "fresh") if record.season == season.name]
    whole = [_whole(record, private / RECORDS / f"{record.id}.json.gz") for record in rows]
    shutil.copytree(actions, public / "best_known" / suite, dirs_exist_ok=True)
    write_atomically(published_best_known(public, season), best_known.read_bytes())
    for record in whole:
        write_record(public / "fresh" / season.name, record)
    _reveal(public, season, seed)
    return [record.id for record in whole]


def _whole(record: Record, path: Path) -> Record:
    if not path.is_file():
        raise FleetgymError(f"{path} is missing: it holds what {record.id} did; run `fleetgym rerun` again")
    whole = read_record(path)
    if without_actions(whole) != without_actions(record):
        raise DataError("the row on the board says something else", source=str(path))
    return whole


def _reveal(board: Path, season: Season, seed: str) -> None:
    """Write the seed into the season's table of `seasons.toml`, and leave every other line as it is."""
    path, done, name = board / "seasons.toml", [], None
    for line in read_text(path).splitlines():
        if line.lstrip().startswith("["):
            name = None
        if match := re.match(r"""\s*name\s*=\s*["']([^"']*)["']""", line):
            name = match[1]
        if name == season.name and re.match(r"\s*seed\s*=", line):
            continue
        done.append(line)
        if name == season.name and re.match(r"\s*seed_sha256\s*=", line):
            done.append(f'seed = "{seed}"')
    before = path.read_bytes()
    write_atomically(path, ("\n".join(done) + "\n").encode())
    if seed not in {entry.seed for entry in read_registers(board).seasons}:
        write_atomically(path, before)
        raise FleetgymError(f'{path}: found no place for the seed; write seed = "{seed}" into its table')
