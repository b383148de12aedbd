"""Read what is public of a row while its season is open: one number a family, and a checksum of the rest.

Costs by task would let anybody submit the cheapest published actions of each task. So `rerun` keeps whole records
beside the private tasks until the season ends.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path

from fleetgym.files.documents import read_json
from fleetgym.files.errors import DataError
from fleetgym.files.names import FOLDER_NAME, SEASON_NAME
from fleetgym.files.schema import (
    SHA256,
    Choice,
    Flag,
    Line,
    MapOf,
    Nested,
    Number,
    read_object,
    spec,
)
from fleetgym.leaderboard.record import check_unchanged
from fleetgym.leaderboard.registers import Season, read_registers
from fleetgym.leaderboard.submission import Submission

OPEN_FORMAT = "fleetgym-open-row-1"
#: Where, beside a season's tasks, whole records wait for its end.
RECORDS = "records"
_PERCENT = Number(-100.0, 1e9, "%")
_ENDING = ".open.json"
#: Digits of percent that are public.
DIGITS = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class OpenRow:
    """What is public of a row while its season is open."""

    format: str = spec(Choice((OPEN_FORMAT,)))
    id: str = spec(FOLDER_NAME, doc="of the submission")
    season: str = spec(SEASON_NAME)
    submission: Submission = spec(Nested(Submission))
    declaration_sha256: str = spec(SHA256)
    version: str = spec(Line(1, 40), doc="of the fleetgym that played")
    is_isolated: bool = spec(Flag(), doc="whether it is ranked")
    score: float = spec(_PERCENT, doc="percent above best-known")
    families: Mapping[str, float] = spec(MapOf(_PERCENT), doc="percent above best-known")
    record_sha256: str = spec(SHA256, doc="of the whole record, which is published when the season ends")


def open_path(folder: str | os.PathLike[str], name: str) -> Path:
    """Return where the public part of a row lies."""
    return Path(folder) / f"{name}{_ENDING}"


def read_open_rows(board: str | os.PathLike[str], season: Season) -> list[OpenRow]:
    """Return the rows of an open season that are not withdrawn, the best first.

    Raises
    ------
    DataError
        If a file is malformed, or the submission has changed since it was played.
    """
    registers, found = read_registers(board), []
    gone = {entry.id for entry in registers.withdrawn}
    for path in sorted((Path(board) / "fresh" / season.name).glob(f"*{_ENDING}")):
        try:
            row = read_object(OpenRow, read_json(path))
            if (row.id, row.season) != (path.name.removesuffix(_ENDING), season.name):
                raise DataError(f"this is {row.id} of season {row.season}, in another place", "$.id")
        except DataError as error:
            raise error.in_file(path) from None
        if row.id not in gone:
            check_unchanged(row, Path(board) / "submissions" / row.id, registers.rewritten)
            found.append(row)
    return sorted(found, key=lambda row: (row.score, row.id))
