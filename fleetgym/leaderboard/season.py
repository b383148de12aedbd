"""Draw a season's fresh tasks from a private seed: its checksum is published first, the seed when the season ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fleetgym.families.generate import SEEDS, generate, public_part, replayed_families, stored_scenarios
from fleetgym.families.versions import generators
from fleetgym.files.documents import (
    file_sha256,
    naming,
    read_json,
    read_text,
    write_atomically,
    write_json,
    write_private,
)
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.registers import Season
from fleetgym.model.instance import Instance
from fleetgym.model.library import (
    MANIFEST_FORMAT,
    Entry,
    find_entry,
    headline_of,
    list_instances,
    load_instance,
    sealed,
    with_law,
)
from fleetgym.model.processes import Dynamics
from fleetgym.model.scenario import Scenario, scenario_file_data
from fleetgym.model.sets import ENVIRONMENT_VARIABLE
from fleetgym.runtime.variables import environment_variable

#: Significant digits of the token scales of new instances' scenarios, as in `fleet-v1`.
SCALE_DIGITS = 4
#: Where, beside a season's tasks, the actions of their best-known costs lie.
ACTIONS = "actions"
#: What a folder of drawn tasks says of its origin.
DRAWN = "season.json"


def new_seed(path: str | os.PathLike[str]) -> str:
    """Write a new private seed to a file that only its owner can read; return the checksum to publish.

    Raises
    ------
    FleetgymError
        If the file exists.
    """
    seed = secrets.token_hex(32)
    try:
        write_private(path, f"{seed}\n".encode())
    except FileExistsError:
        raise FleetgymError(f"{path} exists; a seed that is lost ends its season") from None
    return seed_sha256(seed)


def seed_sha256(seed: str) -> str:
    """Return what is published of a seed.

    Examples
    --------
    >>> seed_sha256("0" * 64)[:12]
    '60e05bd1b195'
    """
    return hashlib.sha256(seed.encode()).hexdigest()


def read_seed(path: str | os.PathLike[str], season: Season) -> str:
    """Return a private seed that is the one announced for a season.

    Raises
    ------
    FleetgymError
        If its checksum is another.
    DataError
        If the file is no short text.
    """
    seed = read_text(path, 2**10).strip()
    if seed_sha256(seed) != season.seed_sha256:
        raise FleetgymError(f"{path} is not the seed announced for {season.name}: its SHA-256 is another")
    return seed


def revealed_seed(season: Season) -> str:
    """Return the seed of a season that has ended.

    Raises
    ------
    FleetgymError
        If it is not revealed yet, or is not the one announced.
    """
    if not season.seed:
        raise FleetgymError(
            f"the seed of {season.name} is not revealed yet: only `season draw` and `season end` take its file"
        )
    if seed_sha256(season.seed) != season.seed_sha256:
        raise FleetgymError(f"the seed revealed for {season.name} is not the one announced")
    return season.seed


def fresh_suite(season: Season) -> str:
    """Return the name of the suite of a season's tasks.

    Examples
    --------
    >>> winter = Season(name="w", suite="fleet-v0/dev", scenarios=2, seed_sha256="0" * 64, opened="2026-12-01")
    >>> fresh_suite(winter)
    'fresh-w/dev'
    """
    return f"fresh-{season.name}/{season.suite.partition('/')[2] or 'all'}"


def best_known_command(season: Season, private: str | os.PathLike[str]) -> str:
    """Return the command that searches for the best-known costs of a season's tasks, and keeps their actions.

    Examples
    --------
    >>> winter = Season(name="w", suite="fleet-v0/dev", scenarios=2, seed_sha256="0" * 64, opened="2026-12-01")
    >>> best_known_command(winter, "x")
    'FLEETGYM_INSTANCES=x fleetgym best-known search fresh-w/dev --name bks-2026-12-fresh-w --out x'
    """
    name = f"bks-{season.opened[:7]}-fresh-{season.name}"
    search = f"fleetgym best-known search {fresh_suite(season)} --name {name}"
    return f"FLEETGYM_INSTANCES={os.fspath(private)} {search} --out {os.fspath(private)}"


def published_best_known(board: str | os.PathLike[str], season: Season) -> Path:
    """Return where the best-known costs of a season are published when it ends; their actions lie beside them.

    Examples
    --------
    >>> winter = Season(name="w", suite="fleet-v0/dev", scenarios=2, seed_sha256="0" * 64, opened="2026-12-01")
    >>> published_best_known("leaderboard", winter).as_posix()
    'leaderboard/best_known/fresh-w/best_known.json'
    """
    return Path(board) / "best_known" / fresh_suite(season).partition("/")[0] / "best_known.json"


def draw_season(
    season: Season,
    seed: str,
    folder: str | os.PathLike[str],
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[str]:
    """Draw a season's tasks: new scenarios of a suite's instances, or new instances of the same families and sizes.

    The same seed and the same version of the generators draw the same bytes. So whoever has the revealed seed can
    check what was played. A new instance's name and provenance do not tell its seed: with it, an agent could generate
    the day that it is about to see.

    Parameters
    ----------
    season : Season
    seed : str
        64 hexadecimal digits.
    folder : path-like
        Becomes a folder of instances with a manifest of its own; it must not exist.
    progress : callable, optional
        Called with the numbers of drawn and of all instances.

    Returns
    -------
    list of str
        Ids of the instances.

    Raises
    ------
    FleetgymError
        If the folder exists, the suite has instances that no generator makes, or this release lacks the season's
        version of the generators.
    """
    root = Path(folder)
    if root.exists():
        raise FleetgymError(f"{folder} exists; choose another folder")
    draw = _new_instances if season.draws == "instances" else _new_scenarios
    root.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{root.name}-", dir=root.parent))  # its owner's alone
    try:
        made = []
        for drawn in draw(season, seed):
            with naming(folder):
                made.append(_write(part, fresh_suite(season), *drawn))
            if progress is not None:
                progress(len(made), len(list_instances(season.suite)))
        with naming(folder):
            write_json(
                part / "manifest.json",
                sealed({"format": MANIFEST_FORMAT, **headline_of(season.suite), "entries": made}),
            )
            write_json(part / DRAWN, _drawn(season, seed_sha256(seed), part))
            part.rename(root)
    except BaseException:
        shutil.rmtree(part)
        raise
    return [entry["id"] for entry in made]


def check_drawn(season: Season, folder: str | os.PathLike[str]) -> None:
    """Raise unless a folder's tasks were drawn for a season, from the seed whose checksum was announced.

    Raises
    ------
    FleetgymError
        If they are of another seed, season or version, or were changed since.
    """
    path = Path(folder) / DRAWN
    if not path.is_file() or read_json(path) != _drawn(season, season.seed_sha256, Path(folder)):
        raise FleetgymError(
            f"{folder} was not drawn from the seed announced for {season.name}: draw it with `fleetgym season draw`"
        )


def _drawn(season: Season, checksum: str, folder: Path) -> dict[str, Any]:
    """Return what a folder of drawn tasks says of its origin; the manifest has checksums of all files."""
    manifest = file_sha256(folder / "manifest.json")
    return {
        "season": season.name,
        "generators": season.generators,
        "seed_sha256": checksum,
        "manifest_sha256": manifest,
    }


def add_best_known(board: str | os.PathLike[str], season: Season, folder: str | os.PathLike[str]) -> bool:
    """Copy the best-known costs that an ended season published to where its tasks were drawn; False if there are none.

    Parameters
    ----------
    board : path-like
        The leaderboard's folder.
    season : Season
    folder : path-like
        As for `draw_season`.
    """
    published = published_best_known(board, season)
    if not season.seed or not published.is_file():
        return False
    target = Path(folder) / fresh_suite(season).partition("/")[0] / published.name
    write_atomically(target, published.read_bytes())
    return True


def _write(
    root: Path,
    suite: str,
    entry: Entry,
    instance: Instance,
    scenarios: Sequence[Scenario],
    law: Dynamics | None,
) -> dict[str, Any]:
    """Write an instance, its scenarios and their law, and return their entry in the manifest."""
    stem = f"{suite}/{instance.id}"
    files = f"{stem}.json.gz", f"{stem}.scenarios.json.gz"
    write_json(root / files[0], instance.to_dict())
    write_json(root / files[1], scenario_file_data(instance, scenarios, law))
    return {
        "id": stem,
        "family": entry.family,
        "size": entry.size,
        "scenarios": len(scenarios),
        "content_hash": instance.content_hash,
        "instance_file": files[0],
        "instance_sha256": file_sha256(root / files[0]),
        "scenario_file": files[1],
        "scenario_sha256": file_sha256(root / files[1]),
    }


#: What agents may know of an instance, its days, and their law where they may not know it.
Task = tuple[Instance, Sequence[Scenario], Dynamics | None]
Drawn = Iterator[tuple[Entry, Instance, Sequence[Scenario], Dynamics | None]]


def _new_scenarios(season: Season, seed: str) -> Drawn:
    """Yield the suite's instances with new scenarios from their own processes."""
    for name in list_instances(season.suite):
        yield find_entry(name), *new_scenarios(season, seed, name)


def new_scenarios(season: Season, seed: str, name: str) -> Task:
    """Return one of the suite's instances by its id, and its new scenarios."""
    instance, known, drawn = load_instance(name), with_law(name), []
    for k in range(season.scenarios):
        digest = hashlib.sha256(f"{seed}/{name}/{k}".encode()).digest()
        rng = np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))
        scenario = generators(season.generators).draw_scenario(known, rng, f"fresh-{k}")
        drawn.append(scenario.check(instance))
    return instance, drawn, None if instance.law == "told" else known.dynamics


def _new_instances(season: Season, seed: str) -> Drawn:
    """Yield as many instances of each family and size as the suite has, from seeds that follow from the season's.

    Families that replay published days are left out, unless the season names the first version of the generators.
    """
    count: Counter[str] = Counter()
    left_out = () if generators(season.generators).draws_replays else replayed_families()
    for entry in map(find_entry, list_instances(season.suite)):
        if entry.family in left_out:
            continue
        if entry.family == "toy":
            raise FleetgymError(f"{season.suite} has toys, which no generator makes: draw scenarios of it")
        kind = f"{entry.family}/{entry.size}"
        yield entry, *new_instance(season, seed, entry, count[kind])
        count[kind] += 1


def new_instance(season: Season, seed: str, entry: Entry, k: int) -> Task:
    """Return a new instance in place of `entry`, the k-th of its family and size in the suite, and its scenarios."""
    digest = hashlib.sha256(f"{seed}/{entry.family}/{entry.size}/{k}".encode()).digest()
    number = SEEDS["fresh"].start + int.from_bytes(digest[:6], "big")
    instance = generate(entry.family, entry.size, number, season.generators)
    scenarios = stored_scenarios(instance, number, season.scenarios, SCALE_DIGITS, season.generators)
    public, law = public_part(instance, season.generators)
    public = public.replace(
        id=f"{entry.family}-{entry.size}-{k:03d}",
        provenance={"all": f"as {entry.id}, drawn for season {season.name}"},
    )
    return public, scenarios, law


def instances_from(folder: str | os.PathLike[str]) -> contextlib.AbstractContextManager[None]:
    """Let the names of instances mean those of another folder, in this process and those it starts."""
    return environment_variable(ENVIRONMENT_VARIABLE, os.path.abspath(folder))
