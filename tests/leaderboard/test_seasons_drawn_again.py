"""Seasons are drawn to equal hashes for ever, whatever happens to the generators."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence

import numpy as np
import pytest
from fresh_season import SEASON, SEED
from places import ROOT, SHARED

from fleetgym.families import versions
from fleetgym.families.builtin import drop, ou
from fleetgym.families.text import significant
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.record import read_record
from fleetgym.leaderboard.registers import Season, read_registers
from fleetgym.leaderboard.season import draw_season, new_instance, new_scenarios, read_seed, revealed_seed
from fleetgym.model.instance import Instance
from fleetgym.model.library import find_entry, list_instances
from fleetgym.model.scenario import Scenario

#: By season and task: the instance's content hash, and the hash of its days. They never change.
DRAWN = json.loads((ROOT / "tests" / "golden" / "seasons.json").read_text())
SEASONS = {season.name: season for season in read_registers(ROOT / "leaderboard").seasons}
PRIVATE = SHARED / "season-2026-12.seed"


def days_hash(scenarios: Sequence[Scenario]) -> str:
    """Return a hash of scenarios to nine digits, so that the last bit of a logarithm does not count."""
    digest = hashlib.sha256()
    for scenario in scenarios:
        for field in dataclasses.fields(scenario):
            value = getattr(scenario, field.name)
            is_array = isinstance(value, np.ndarray)
            digest.update(significant(value, 9).tobytes() if is_array else str(value).encode())
    return digest.hexdigest()[:16]


def drawn(season: Season, seed: str, name: str) -> list[str]:
    """Return what `DRAWN` says of a task, from the generators that the season names."""
    made: tuple[Instance, Sequence[Scenario]]
    if season.draws == "instances":
        kind, _, k = name.rpartition("-")
        entries = map(find_entry, list_instances(season.suite))
        alike = [entry for entry in entries if f"{entry.family}-{entry.size}" == kind]
        made = new_instance(season, seed, alike[int(k)], int(k))
    else:
        made = new_scenarios(season, seed, f"{season.suite}/{name}")
    return [made[0].content_hash, days_hash(made[1])]


def seed_of(season: Season) -> str:
    """Return a season's seed: revealed, or from its private file where that is at hand."""
    return revealed_seed(season) if season.seed else read_seed(PRIVATE, season)


TASKS = [
    pytest.param(
        season,
        name,
        marks=pytest.mark.skipif(
            season == "2026-12" and not SEASONS[season].seed and not PRIVATE.is_file(),
            reason="the seed is not revealed yet (set FLEETGYM_SHARED to its folder)",
        ),
    )
    for season, tasks in DRAWN.items()
    for name in tasks
]


@pytest.mark.parametrize(("season", "name"), TASKS)
def test_seasons_are_drawn_again(season: str, name: str) -> None:
    """An instance of each family and size, and its days, are those that were drawn first."""
    assert drawn(SEASONS[season], seed_of(SEASONS[season]), name) == DRAWN[season][name]


def test_rows_were_played_on_what_is_drawn() -> None:
    """The hashes are those that the season's records state."""
    record = read_record(ROOT / "leaderboard" / "fresh" / "2026-11b" / "2026-11-23-v1-hold.json.gz")
    for name, (content_hash, _) in DRAWN["2026-11b"].items():
        assert record.instances[f"fresh-2026-11b/dev/{name}"].content_hash == content_hash


def test_an_older_season_keeps_the_old_generators(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a family and the drawing of days have changed, version 1 draws as before, and the newest does not."""
    name, first = "ou-s-000", SEASONS["2026-11b"]
    seed, known = revealed_seed(first), DRAWN["2026-11b"][name]

    def other_days(instance: Instance, rng: np.random.Generator, scenario_id: str) -> Scenario:
        rng.random()
        return versions.VERSIONS[1].draw_scenario(instance, rng, scenario_id)

    def build(size: str, seed: int, rng: np.random.Generator) -> Instance:
        return drop.build(size, seed, rng).replace(family="ou", id=f"ou-{size}-{seed:03d}")

    changed = versions.Generators(other_days, {"ou": dataclasses.replace(ou, build=build)})
    monkeypatch.setitem(versions.VERSIONS, 9, changed)
    assert drawn(first, seed, name) == known
    second = drawn(dataclasses.replace(first, generators=9), seed, name)
    assert second[0] != known[0]
    assert second[1] != known[1]


def test_an_unknown_version_is_refused(tmp_path: object) -> None:
    """Nothing is drawn with other generators than the season's."""
    with pytest.raises(FleetgymError, match="no generators of version 7, only up to 2: install a newer"):
        draw_season(dataclasses.replace(SEASON, generators=7), SEED, f"{tmp_path}/drawn")
