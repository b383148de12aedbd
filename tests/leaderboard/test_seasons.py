"""Seasons: announced seeds, fresh tasks that anybody can draw again, costs that anybody can confirm."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from fresh_season import SEASON, SEED, write_best_actions
from places import ROOT, stored_kernels
from submissions import RULES, SUITE, make_good

import fleetgym
from fleetgym.cli import main
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.leaderboard import season_check
from fleetgym.leaderboard.open_rows import RECORDS, open_path, read_open_rows
from fleetgym.leaderboard.record import read_record, write_record
from fleetgym.leaderboard.registers import Season, read_registers
from fleetgym.leaderboard.rerun import publish, rerun
from fleetgym.leaderboard.season import (
    best_known_command,
    draw_season,
    fresh_suite,
    instances_from,
    new_seed,
    published_best_known,
    read_seed,
    revealed_seed,
    seed_sha256,
)
from fleetgym.leaderboard.season_check import check_season
from fleetgym.leaderboard.season_end import end_season
from fleetgym.leaderboard.site import build_site
from fleetgym.leaderboard.standings import make_boards, read_records, rows_sha256
from fleetgym.leaderboard.verify import verify
from fleetgym.model.library import list_instances, load_instance, load_scenarios, task_name
from fleetgym.model.sets import instances_folder
from fleetgym.scoring.best_known import (
    SET_NAME,
    read_actions,
    read_best_known,
    verified_cost_usd,
    write_best_known,
)


def test_a_seed_is_private_and_announced(tmp_path: Path) -> None:
    """Only its owner can read it; its checksum is what was printed; another seed is refused."""
    checksum = new_seed(tmp_path / "seed")
    assert stat.S_IMODE((tmp_path / "seed").stat().st_mode) == 0o600
    season = Season(name="x", suite=SUITE, scenarios=1, seed_sha256=checksum, opened="2026-11-21")
    assert seed_sha256(read_seed(tmp_path / "seed", season)) == checksum
    with pytest.raises(FleetgymError, match="exists"):
        new_seed(tmp_path / "seed")
    (tmp_path / "seed").write_text(SEED)
    with pytest.raises(FleetgymError, match="not the seed announced"):
        read_seed(tmp_path / "seed", season)
    (tmp_path / "seed").write_bytes(b"\xb6" + SEED.encode())
    with pytest.raises(DataError, match=r"seed: .* not UTF-8 text"):
        read_seed(tmp_path / "seed", season)
    with pytest.raises(FleetgymError, match="not revealed yet"):
        revealed_seed(season)


@pytest.mark.parametrize("name", ["winter", "2026-12", "w"])
def test_best_known_costs_of_any_season_can_be_read_back(name: str) -> None:
    """The command names a set as sets are named."""
    season = dataclasses.replace(SEASON, name=name)
    words = best_known_command(season, "private").split()
    assert SET_NAME.read(words[words.index("--name") + 1], "name").endswith(f"-fresh-{name}")


def test_same_seed_same_tasks(private: Path, tmp_path: Path) -> None:
    """Whoever has the revealed seed draws the same bytes; another seed draws other days."""
    draw_season(SEASON, SEED, tmp_path / "again")
    for path in (tmp_path / "again").rglob("*.json*"):
        assert path.read_bytes() == (private / path.relative_to(tmp_path / "again")).read_bytes()
    assert stat.S_IMODE(private.stat().st_mode) == 0o700


@pytest.mark.slow
def test_every_dev_instance_gets_new_days(tmp_path: Path) -> None:
    """Fresh scenarios are neither the stored ones nor another seed's, in any family."""
    dev = Season(
        name="d", suite="fleet-v0/dev", scenarios=1, seed_sha256=seed_sha256(SEED), opened="2026-11-21"
    )
    days: dict[str, set[bytes]] = {}
    for k, seed in enumerate((SEED, "00" * 32)):
        draw_season(dev, seed, tmp_path / str(k))
        with instances_from(tmp_path / str(k)):
            for name in list_instances("fresh-d/dev"):
                days.setdefault(name.rpartition("/")[2], set()).add(
                    load_scenarios(name)[0].rate_rps.tobytes()
                )
    for name in list_instances("fleet-v0/dev"):
        stored = {scenario.rate_rps.tobytes() for scenario in load_scenarios(name)}
        assert len(days[name.rpartition("/")[2]] | stored) == 2 + len(stored), name


def test_fresh_tasks_are_the_suites_instances(private: Path) -> None:
    """The instances are those that everybody knows, the scenarios are not; names come back to what they were."""
    before = os.environ.get("FLEETGYM_INSTANCES")
    public = {name.rpartition("/")[2]: load_instance(name).content_hash for name in list_instances(SUITE)}
    with instances_from(private):
        names = list_instances(fresh_suite(SEASON))
        assert {name.rpartition("/")[2]: load_instance(name).content_hash for name in names} == public
        assert [scenario.id for scenario in load_scenarios(names[0])] == ["fresh-0", "fresh-1"]
    assert os.environ.get("FLEETGYM_INSTANCES") == before
    assert fleetgym.list_instances(SUITE)


def test_new_instances_do_not_tell_their_seeds(tmp_path: Path) -> None:
    """As many of each family and size, other days, the same bytes again; no name or number leads to the seed."""
    suite = tmp_path / "public" / "some" / "dev"
    suite.mkdir(parents=True)
    keep = {"ou-s-101", "ou-s-102", "warp-s-101", "fastllm-4-4-5-101"}
    manifest = json.loads((instances_folder() / "fleet-v1" / "manifest.json").read_text())
    manifest.pop("sha256", None)
    entries = [e for e in manifest["entries"] if e["id"] in {f"fleet-v1/dev/{name}" for name in keep}]
    for entry in entries:
        for key in ("instance_file", "scenario_file"):
            shutil.copy(instances_folder() / entry[key], suite)
            entry[key] = f"some/dev/{Path(entry[key]).name}"
        entry["id"] = f"some/dev/{entry['id'].rpartition('/')[2]}"
    (tmp_path / "public" / "manifest.json").write_text(
        json.dumps({**manifest, "headline": ["ou"], "entries": entries, "samples": []})
    )
    season = dataclasses.replace(SEASON, suite="some/dev", scenarios=1, draws="instances")
    with instances_from(tmp_path / "public"):
        names = draw_season(season, SEED, tmp_path / "a")
        assert names == draw_season(season, SEED, tmp_path / "b")
        draw_season(season, "00" * 32, tmp_path / "c")
    assert sorted(name.rpartition("/")[2] for name in names) == [
        "fastllm-4-4-5-000",
        "ou-s-000",
        "ou-s-001",
        "warp-s-000",
    ]
    rates = set()
    for folder in "abc":
        with instances_from(tmp_path / folder):
            rates |= {load_scenarios(name)[0].rate_rps.tobytes() for name in names}
            seeds = [_seed_of(name, SEED) for name in names]
            for name in names:
                told = json.dumps(load_instance(name).to_dict())
                assert not [seed for seed in seeds if str(seed) in told]
                assert "rolled" not in told
    assert len(rates) == 2 * len(names)
    for path in (tmp_path / "a").rglob("*.json*"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()
    with pytest.raises(FleetgymError, match="toys"):
        draw_season(dataclasses.replace(season, suite=SUITE), SEED, tmp_path / "none" / "d")
    assert not list((tmp_path / "none").iterdir())


def _seed_of(name: str, secret: str) -> int:
    """Return the seed of a new instance, as the documentation tells it."""
    family, size, number = re.fullmatch(r".*/([a-z]+)-(.+)-(\d+)", name).groups()
    digest = hashlib.sha256(f"{secret}/{family}/{size}/{int(number)}".encode()).hexdigest()
    return 2**32 + int(digest[:12], 16)


def test_an_open_season_keeps_what_was_done_until_it_ends(
    private: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Actions tell what the tasks are, so they wait beside these; the end publishes them, with seed and best-known."""
    board, mine = tmp_path / "board", Path(shutil.copytree(private, tmp_path / "private"))
    folder = make_good(board / "submissions" / "2026-11-21-gh", "gh")
    lines = [
        "# kept",
        "[[season]]",
        'name = "t"',
        f'suite = "{SUITE}"',
        "scenarios = 2",
        'opened = "2026-11-21"',
    ]
    lines += [
        f'seed_sha256 = "{SEASON.seed_sha256}"',
        'seed = ""',
        "[[season]]",
        'name = "u"',
        f'suite = "{SUITE}"',
    ]
    lines += ["scenarios = 2", 'opened = "2026-11-22"', f'seed_sha256 = "{"0" * 64}"', 'seed = ""']
    (board / "seasons.toml").write_text("\n".join(lines) + "\n")
    whole = rerun(folder, SEASON, mine, official=False, out=board / "fresh" / "t")
    assert read_records(board, "fresh") == []
    (public,) = read_open_rows(board, SEASON)
    assert public.score == round(public.score, 1)
    assert all(value == round(value, 1) for value in public.families.values())
    path = open_path(board / "fresh" / "t", public.id)
    told = path.read_text()
    assert not [e for e in whole.episodes if f"{e.cost_usd:.4f}"[:-1] in told or task_name(*e.task) in told]
    assert all(episode.actions is not None for episode in whole.episodes)
    (tmp_path / "seed").write_text(f"{SEED}\n")
    words = ["season", "end", "t", "--board", str(board), "--seed-file", str(tmp_path / "seed")]
    words += ["--instances", str(mine)]
    assert main(words) == 2
    assert "actions" in capsys.readouterr().err
    write_best_actions(mine, mine / "actions")
    write_record(mine / RECORDS, dataclasses.replace(whole, version="9.9"))
    with pytest.raises(DataError, match="is not the record that the row on the board was made from"):
        end_season(board, SEASON, tmp_path / "seed", mine)
    write_record(mine / RECORDS, whole)
    assert main(words) == 0
    assert not path.exists()
    assert read_records(board, "fresh") == [whole]
    ended = (board / "seasons.toml").read_text().splitlines()
    assert ended.pop(8) == f'rows_sha256 = "{rows_sha256(board, "t")}"'
    assert ended == [line if k != 7 else f'seed = "{SEED}"' for k, line in enumerate(lines)]
    for path in (mine / "actions").rglob("*.json.gz"):
        kept = board / "best_known" / path.relative_to(mine / "actions")
        assert kept.read_bytes() == path.read_bytes()
    assert read_best_known(board / "best_known" / "fresh-t" / "best_known.json").name == "bks-2026-11-t"
    assert main(["season", "check", "t", "--board", str(board)]) == 0
    assert main(words) == 2
    assert "has ended already" in capsys.readouterr().err
    first, *rest = whole.episodes
    best = dataclasses.replace(first, cost_usd=first.best_known_usd or 0.0)
    scale = best.cost_usd / first.cost_usd
    costs = {name: scale * usd for name, usd in dataclasses.asdict(first.costs).items()}
    best = dataclasses.replace(best, costs=type(first.costs)(**costs))
    for episodes in ((best, *rest), tuple(rest)):
        write_record(board / "fresh" / "t", dataclasses.replace(whole, episodes=episodes))
        with pytest.raises(DataError, match="are not those that it ended with"):
            read_records(board, "fresh")


def test_a_copier_of_published_rows_has_nothing_to_copy(private: Path, tmp_path: Path) -> None:
    """The page of an open season has one number a row and family, and whole records there are refused."""
    board, mine = tmp_path / "board", Path(shutil.copytree(private, tmp_path / "private"))
    season = dataclasses.replace(SEASON, seed_sha256="0" * 64)
    (board / "submissions").mkdir(parents=True)
    lines = [f'{k} = "{getattr(season, k)}"' for k in ("name", "suite", "opened", "seed_sha256")]
    (board / "seasons.toml").write_text("\n".join(["[[season]]", "scenarios = 2", *lines]) + "\n")
    for agent in ("gh", "hold"):
        folder = make_good(board / "submissions" / f"2026-11-21-{agent}", agent)
        verify(folder, out=board / "verified")
        played = rerun(folder, SEASON, mine, official=False)
        publish(board / "fresh" / "t", dataclasses.replace(played, rules=RULES), season, mine)
    (found,) = make_boards(board)
    assert [row.id for row in found.open_rows] == ["2026-11-21-gh", "2026-11-21-hold"]
    page = build_site(board).read_text()
    assert "Season t, open" in page
    whole = read_record(mine / RECORDS / "2026-11-21-gh.json.gz")
    assert not [e for e in whole.episodes if f"{e.cost_usd:,.0f}" in page and e.cost_usd > 1000]
    write_record(board / "fresh" / "t", whole)
    with pytest.raises(DataError, match="season is open"):
        make_boards(board)


def test_whoever_has_the_seed_can_replay_fresh_rows(
    board: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Tasks are drawn again, the actions in the records replayed; a forged cost is noticed, and a missing action."""
    assert main(["season", "check", "t", "--board", str(board)]) == 0
    assert "every fresh cost is confirmed" in capsys.readouterr().out
    own = Path(shutil.copytree(board, tmp_path / "board"))
    record = read_record(own / "fresh" / "t" / "2026-11-21-gh.json.gz")
    first, second, *rest = record.episodes
    tenth = {name: 0.1 * usd for name, usd in dataclasses.asdict(first.costs).items()}
    first = dataclasses.replace(first, cost_usd=0.1 * first.cost_usd, costs=type(first.costs)(**tenth))
    second = dataclasses.replace(second, actions=None)
    write_record(own / "fresh" / "t", dataclasses.replace(record, episodes=(first, second, *rest)))
    with pytest.raises(DataError, match=f"{task_name(*first.task)} costs less than its lower bound"):
        make_boards(own)
    assert main(["season", "check", "t", "--board", str(own), "--json"]) == 1
    wrong = json.loads(capsys.readouterr().out)
    assert list(wrong) == [f"2026-11-21-gh {task_name(*episode.task)}" for episode in (first, second)]
    assert "the replay" in wrong[f"2026-11-21-gh {task_name(*first.task)}"]
    with pytest.raises(FleetgymError, match="not revealed"):
        check_season(board, SEASON)
    assert main(["season", "check", "t", "--board", str(tmp_path)]) == 2
    assert "seasons.toml" in capsys.readouterr().err


def test_best_known_costs_of_an_ended_season_may_fall(board: Path, tmp_path: Path) -> None:
    """Rows are compared with what is published now; what rose, is missing, or is not achieved is noticed."""
    own = Path(shutil.copytree(board, tmp_path / "board"))
    path = published_best_known(own, SEASON)
    known, ended = read_best_known(path), dataclasses.replace(SEASON, seed=SEED)

    def publish(factor: float) -> None:
        task = min(known.tasks)
        value = known.tasks[task].value_usd * factor
        changed = dataclasses.replace(known.tasks[task], value_usd=value, bound_usd=None, proven=False)
        write_best_known(path, dataclasses.replace(known, tasks={**known.tasks, task: changed}))

    (before,) = make_boards(own)
    publish(0.9)
    (after,) = make_boards(own)
    assert all(a.score > b.score for a, b in zip(after.fresh.rows, before.fresh.rows, strict=True))
    wrong = check_season(own, ended)
    assert list(wrong) == [f"best known {min(known.tasks)}"]
    assert "the replay" in wrong[f"best known {min(known.tasks)}"]
    publish(1.1)
    with pytest.raises(DataError, match="has risen"):
        make_boards(own)
    path.unlink()
    for look in (make_boards, lambda board: check_season(board, ended)):
        with pytest.raises(FileNotFoundError):
            look(own)


OWN = ROOT / "leaderboard"
#: Making a hundred instances takes minutes; days of those that there are, seconds.
ENDED = [
    pytest.param(season, id=season.name, marks=pytest.mark.full if season.draws == "instances" else ())
    for season in read_registers(OWN).seasons
    if season.seed
]


def test_another_processor_is_told_as_a_cause() -> None:
    """Where another instance is drawn than was played, sums in another order may have done it: it says what to try."""
    stored = read_record(OWN / "fresh" / "2026-11b" / "2026-11-23-v1-hold.json.gz")
    mark = dataclasses.replace(next(iter(stored.instances.values())), content_hash="0" * 64)
    name = f"{SUITE}/two-pools"
    episode = dataclasses.replace(stored.episodes[0], instance=name, scenario=0, actions=())
    reason = season_check._reason((dataclasses.replace(stored, instances={name: mark}), episode))
    assert reason is not None
    assert re.match("another version of the instance was played; .* OPENBLAS_CORETYPE=SkylakeX", reason)


@pytest.mark.slow
@pytest.mark.parametrize("announced", ENDED)
def test_our_ended_seasons_can_be_drawn_again(announced: Season, tmp_path: Path) -> None:
    """The revealed seed gives the tasks of the records; the best-known actions achieve what these are compared with."""
    kernels = stored_kernels()
    if announced.draws == "instances" and not kernels:
        pytest.skip("instances were drawn with kernels of OpenBLAS that this processor does not have")
    out = tmp_path / announced.name
    words = ["season", "draw", announced.name, "--board", str(OWN), "--out", str(out)]
    subprocess.run([sys.executable, "-m", "fleetgym", *words], env={**os.environ, **kernels}, check=True)
    suite = fresh_suite(announced)
    kept = OWN / "best_known" / suite.partition("/")[0]
    known = read_best_known(kept / "best_known.json")
    records = [r for r in read_records(OWN, "fresh") if r.season == announced.name]
    assert records
    with instances_from(tmp_path / announced.name):
        for record in records:
            for episode in record.episodes:
                content_hash = load_instance(episode.instance).content_hash
                best = known.find(episode.instance, episode.scenario, content_hash)
                assert episode.best_known_usd is not None
                assert best.value_usd <= episode.best_known_usd  # searched for again since
        for task in sorted(known.tasks)[::10]:
            name, _, number = task.partition("#")
            actions = read_actions(OWN / "best_known", name, int(number))
            cost_usd = verified_cost_usd(name, int(number), actions)
            assert cost_usd == pytest.approx(known.tasks[task].value_usd, rel=1e-9)
