"""Read the leaderboard's registers: withdrawn rows, machines, seasons, releases and rewritten files.

A release freezes a set of best-known costs under its name: a copy of the set and the copy's checksum.
"""

from __future__ import annotations

import csv
import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w

from fleetgym.files.documents import canonical_hash, read_text, write_atomically, write_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.names import FOLDER_NAME, SEASON_NAME
from fleetgym.files.quantities import MEMORY_GB, SPEED
from fleetgym.files.schema import DAY, SHA256, Choice, Integer, Line, Text, spec, to_jsonable
from fleetgym.files.toml import SUITE, read_list
from fleetgym.scoring.best_known import (
    SET_NAME,
    TOLERANCE,
    BestKnownSet,
    best_known_path,
    read_best_known,
    without_sum,
)

#: Which files of submissions were rewritten in format 2: their checksums before and after.
REWRITTEN = "format-2.csv"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Withdrawn:
    """A row that is no longer ranked, and why."""

    id: str = spec(FOLDER_NAME)
    date: str = spec(DAY)
    reason: str = spec(Line(1, 400))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine on which fresh rows are run."""

    name: str = spec(Line(1, 80))
    processor: str = spec(Line(1, 120))
    cores: int = spec(Integer(1, 4096))
    memory_gb: float = spec(MEMORY_GB)
    cpu_s_per_reference_s: float = spec(SPEED, 1.0, doc="its CPU seconds for one of the reference machine")
    note: str = spec(Line(0, 400), "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Season:
    """Fresh tasks of one period: announced by the checksum of the seed that draws them."""

    name: str = spec(SEASON_NAME)
    suite: str = spec(SUITE, doc="whose ranked rows the season's are")
    scenarios: int = spec(Integer(1, 100), doc="per instance; families that replay days have fewer")
    seed_sha256: str = spec(SHA256, doc="published before the first submission")
    opened: str = spec(DAY)
    draws: str = spec(
        Choice(("scenarios", "instances")),
        "scenarios",
        doc="what is new: scenarios of the suite's instances, or as many instances of its families and sizes as well",
    )
    seed: str = spec(Text(r"\A([0-9a-f]{64})?\Z"), "", doc="revealed when the season has ended")
    rows_sha256: str = spec(
        Text(r"\A([0-9a-f]{64})?\Z"),
        "",
        doc="of the records that the ended season published, see `rows_sha256`",
    )
    generators: int = spec(
        Integer(1, 10**6), 1, doc="version of what draws the tasks (fleetgym.families.versions)"
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Release:
    """A frozen set of best-known costs."""

    name: str = spec(SET_NAME)
    suite: str = spec(Text(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,60}\Z"))
    date: str = spec(DAY)
    sha256: str = spec(SHA256, doc="of the set's canonical form")


@dataclasses.dataclass(frozen=True)
class Registers:
    """The entries of all registers."""

    withdrawn: tuple[Withdrawn, ...] = ()
    machines: tuple[Machine, ...] = ()
    seasons: tuple[Season, ...] = ()
    releases: tuple[Release, ...] = ()
    rewritten: Mapping[str, str] = dataclasses.field(default_factory=dict)  # new checksums by old ones


def read_registers(board: str | os.PathLike[str]) -> Registers:
    """Read the registers of a leaderboard's folder: four TOML files, and the log of rewritten files.

    Raises
    ------
    DataError
        With file and path; also if a name is there twice.
    """
    folder = Path(board)
    found = Registers(
        read_list(Withdrawn, folder / "withdrawn.toml", "withdrawn"),
        read_list(Machine, folder / "machines.toml", "machine"),
        read_list(Season, folder / "seasons.toml", "season"),
        read_list(Release, folder / "releases.toml", "release"),
        _read_rewritten(folder / REWRITTEN),
    )
    _check_once([entry.id for entry in found.withdrawn], folder / "withdrawn.toml")
    _check_once([entry.name for entry in found.machines], folder / "machines.toml")
    _check_once([entry.name for entry in found.seasons], folder / "seasons.toml")
    _check_once([(entry.suite, entry.name) for entry in found.releases], folder / "releases.toml")
    return found


def _read_rewritten(path: Path) -> dict[str, str]:
    """Return the new checksum of each file that was rewritten, by its old one."""
    lines = csv.DictReader(read_text(path).splitlines()) if path.is_file() else ()
    try:
        found = {line["old_sha256"]: line["new_sha256"] for line in lines}
        for old, new in found.items():
            SHA256.read(old, "old_sha256")
            SHA256.read(new, "new_sha256")
    except (KeyError, csv.Error):
        raise DataError("expected the columns old_sha256 and new_sha256", source=str(path)) from None
    except DataError as error:
        raise error.in_file(path) from None
    return found


def _check_once(names: Sequence[Any], path: Path) -> None:
    for k, name in enumerate(names):
        if name in names[:k]:
            raise DataError(f"{name!r} is there twice", f"$[{k}]", str(path))


# -- releases


def release_path(board: str | os.PathLike[str], release: Release) -> Path:
    """Return where a frozen set lies."""
    return Path(board) / "releases" / release.suite / f"{release.name}.json.gz"


def freeze(board: str | os.PathLike[str], suite: str, date: str) -> Release:
    """Freeze the present best-known costs of a set such as ``fleet-v0`` under their name.

    Raises
    ------
    FleetgymError
        If another set was frozen under this name, or there is no such day.
    """
    DAY.read(date, "date")
    present = read_best_known(best_known_path(suite))
    family = suite.partition("/")[0]
    release = Release(name=present.name, suite=family, date=date, sha256=set_sha256(present))
    known = read_registers(board).releases
    for old in known:
        if (old.suite, old.name) == (family, present.name):
            if old.sha256 == release.sha256:
                return old
            raise FleetgymError(
                f"{present.name} of {family} is frozen already; give the new values a new name"
            )
    write_json(release_path(board, release), to_jsonable(present))
    head = "# Frozen sets of best-known costs, written by `fleetgym leaderboard --freeze`.\n\n"
    text = tomli_w.dumps({"release": [to_jsonable(entry) for entry in (*known, release)]})
    write_atomically(Path(board) / "releases.toml", (head + text).encode())
    return release


def set_sha256(best: BestKnownSet) -> str:
    """Return the SHA-256 of a set's canonical form, without the checksums of its values."""
    tasks = {task: without_sum(known) for task, known in best.tasks.items()}
    return canonical_hash({**to_jsonable(best), "tasks": tasks})


def read_releases(board: str | os.PathLike[str], suite: str) -> list[tuple[Release, BestKnownSet]]:
    """Return the frozen sets of ``fleet-v0`` and the like, the oldest first, each as it was frozen.

    Raises
    ------
    DataError
        If a frozen set was changed, or the present one of the same name is another.
    """
    found = []
    for release in read_registers(board).releases:
        if release.suite != suite:
            continue
        path = release_path(board, release)
        frozen = read_best_known(path)
        if set_sha256(frozen) != release.sha256 or frozen.name != release.name:
            raise DataError("changed since it was frozen", source=str(path))
        found.append((release, frozen))
    path = best_known_path(suite)
    if path.is_file():
        _check_present(read_best_known(path), found, path)
    return sorted(found, key=lambda pair: (pair[0].date, pair[0].name))


def _check_present(present: BestKnownSet, found: list[tuple[Release, BestKnownSet]], path: Path) -> None:
    for release, frozen in found:
        if release.name != present.name or set_sha256(present) == release.sha256:
            continue
        changed = sorted(
            task
            for task in {*present.tasks, *frozen.tasks}
            if len({canonical_hash(without_sum(s.tasks[task])) for s in (present, frozen) if task in s.tasks})
            > 1
            or (task in present.tasks) != (task in frozen.tasks)
        )
        raise DataError(
            f"{release.name} was frozen with another value; give the new set a new name",
            f"$.tasks[{changed[0]!r}]" if changed else "$",
            str(path),
        )
    if found:  # values only ever fall, unless an instance changed
        before = found[-1][1]
        for task, best in present.tasks.items():
            old = before.tasks.get(task)
            same = old is not None and old.instance_hash == best.instance_hash
            if old is not None and same and best.value_usd > old.value_usd * (1.0 + TOLERANCE):
                raise DataError(f"dearer than in {before.name}", f"$.tasks[{task!r}].value_usd", str(path))
