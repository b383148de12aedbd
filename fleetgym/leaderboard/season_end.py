"""End a season: publish its seed, its rows' actions and its best-known costs, so that anybody can check them."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from fleetgym.files.documents import file_sha256, read_text, write_atomically
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.leaderboard.open_rows import RECORDS, OpenRow, open_path, read_open_rows
from fleetgym.leaderboard.record import Record, read_record, write_record
from fleetgym.leaderboard.registers import Season, read_registers
from fleetgym.leaderboard.season import (
    ACTIONS,
    best_known_command,
    fresh_suite,
    published_best_known,
    read_seed,
)
from fleetgym.leaderboard.standings import rows_sha256


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
    rows = read_open_rows(public, season)
    whole = [_whole(row, private / RECORDS / f"{row.id}.json.gz") for row in rows]
    shutil.copytree(actions, public / "best_known" / suite, dirs_exist_ok=True)
    write_atomically(published_best_known(public, season), best_known.read_bytes())
    for record in whole:
        write_record(public / "fresh" / season.name, record)
    _reveal(public, season, seed, rows_sha256(public, season.name))
    for row in rows:
        open_path(public / "fresh" / season.name, row.id).unlink()
    return [record.id for record in whole]


def _whole(row: OpenRow, path: Path) -> Record:
    if not path.is_file():
        raise FleetgymError(f"{path} is missing: it holds what {row.id} did; run `fleetgym rerun` again")
    if file_sha256(path) != row.record_sha256:
        raise DataError("is not the record that the row on the board was made from", source=str(path))
    return read_record(path)


def _reveal(board: Path, season: Season, seed: str, rows: str) -> None:
    """Write the seed and the rows' checksum into the season's table of `seasons.toml`, and leave all other lines."""
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
            done += [f'seed = "{seed}"', f'rows_sha256 = "{rows}"']
    before = path.read_bytes()
    write_atomically(path, ("\n".join(done) + "\n").encode())
    if seed not in {entry.seed for entry in read_registers(board).seasons}:
        write_atomically(path, before)
        raise FleetgymError(f'{path}: found no place for the seed; write seed = "{seed}" into its table')
