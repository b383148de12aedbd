"""Reruns: fresh rows are the reference evaluator's costs, isolated, ranked in their own season."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from fresh_season import SEASON, SEED
from submissions import RULES, SUITE, declare, make_good, submitted

from fleetgym.cli import main
from fleetgym.evaluation.isolation import official
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.leaderboard.columns import fresh_columns
from fleetgym.leaderboard.open_rows import RECORDS, read_open_rows
from fleetgym.leaderboard.record import read_record, write_record
from fleetgym.leaderboard.rerun import rerun
from fleetgym.leaderboard.season import (
    draw_season,
    fresh_suite,
    instances_from,
)
from fleetgym.leaderboard.site import build_site
from fleetgym.leaderboard.standings import make_boards


def test_fresh_rows_are_ranked(board: Path) -> None:
    """Two tables: the fresh one has ranks, CPU time and the shift against the certified one."""
    (made,) = make_boards(board)
    assert made.season == "t"
    assert made.fresh.num_tasks == 2 * made.certified.num_tasks
    assert all(row.cpu_s is not None for row in made.fresh.rows)
    assert set(made.shifts) == {"2026-11-21-gh", "2026-11-21-hold"}
    page = build_site(board).read_text(encoding="utf-8")
    assert "Season t: 14 tasks" in page
    assert "fresh vs public" in page


def test_the_page_says_how_often_the_budget_was_spent(board: Path, tmp_path: Path) -> None:
    """Of the ranked rows: an agent that runs out of CPU time looks bad for another reason than its plans."""
    own = Path(shutil.copytree(board, tmp_path / "board"))
    record = read_record(own / "fresh" / "t" / "2026-11-21-gh.json.gz")
    spent = [dataclasses.replace(e, budget_spent_at_window=k) for k, e in enumerate(record.episodes[:3])]
    write_record(own / "fresh" / "t", dataclasses.replace(record, episodes=(*spent, *record.episodes[3:])))
    (made,) = make_boards(own)
    (column,) = (column for column in fresh_columns(made) if column.head == "budget spent")
    shown = {row.key: (column.show(row), column.sort(row)) for row in made.fresh.rows if column.sort}
    assert shown == {"2026-11-21-gh": ("3 of 14", 3), "2026-11-21-hold": ("0 of 14", 0)}


def test_fresh_costs_are_the_judges(board: Path, private: Path) -> None:
    """A fresh record's costs are those of playing the agent, replayed; none is below the proven optimum."""
    record = read_record(board / "fresh" / "t" / "2026-11-21-gh.json.gz")
    with instances_from(private):
        played = evaluate(["gh"], fresh_suite(SEASON))
    assert record.kind == "fresh"
    assert record.season == "t"
    for verified, episode in zip(record.episodes, played.episodes, strict=True):
        assert verified.cost_usd == pytest.approx(episode.cost_usd, rel=1e-9)
        assert verified.best_known_usd is not None
        assert verified.cost_usd >= verified.best_known_usd * (1 - 1e-9)


def test_one_shot_rows_hold_their_first_action(private: Path, tmp_path: Path) -> None:
    """A division that can be checked is, in what was played."""
    folder = make_good(tmp_path / "2026-11-21-gh-rolling", "gh-rolling")
    declare(folder, "agent.division", "one-shot")
    with pytest.raises(DataError, match="one-shot"):
        rerun(folder, SEASON, private, official=False)


def test_only_isolated_runs_of_open_seasons_are_ranked(
    board: Path, private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An ended season and a system without the box end the call; a record of such a run is not ranked."""
    folder = board / "submissions" / "2026-11-21-gh"
    with pytest.raises(FleetgymError, match="season t has ended"):
        rerun(folder, dataclasses.replace(SEASON, seed=SEED), private)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FleetgymError, match="install bubblewrap`; --unofficial plays without it"):
        rerun(folder, SEASON, private)
    own = Path(shutil.copytree(board, tmp_path / "board"))
    record = read_record(own / "fresh" / "t" / "2026-11-21-gh.json.gz")
    for rules in (None, dataclasses.replace(RULES, files="open")):
        write_record(own / "fresh" / "t", dataclasses.replace(record, rules=rules))
        (made,) = make_boards(own)
        assert set(made.fresh_records) == {"2026-11-21-hold"}


def test_records_say_what_the_submission_says(board: Path, tmp_path: Path) -> None:
    """A record with another name, or costs that do not add up, is not believed."""
    own = Path(shutil.copytree(board, tmp_path / "board"))
    record = read_record(own / "verified" / "2026-11-21-gh.json.gz")
    agent = dataclasses.replace(record.submission.agent, name="WINNER")
    forged = dataclasses.replace(record, submission=dataclasses.replace(record.submission, agent=agent))
    write_record(own / "verified", forged)
    with pytest.raises(DataError, match="the record says something else"):
        make_boards(own)
    cheaper = dataclasses.replace(record.episodes[0], cost_usd=0.5 * record.episodes[0].cost_usd)
    write_record(own / "verified", dataclasses.replace(record, episodes=(cheaper, *record.episodes[1:])))
    with pytest.raises(DataError, match="add up"):
        make_boards(own)


def test_rows_lie_in_their_seasons_folder(board: Path, tmp_path: Path) -> None:
    """A record that was moved is not ranked in another season."""
    own = Path(shutil.copytree(board, tmp_path / "board"))
    (own / "fresh" / "t").rename(own / "fresh" / "u")
    with pytest.raises(DataError, match="in the folder of another"):
        make_boards(own)


def test_best_known_costs_are_needed(board: Path, private: Path, tmp_path: Path) -> None:
    """Without best-known costs of the fresh tasks nothing is played."""
    bare = Path(shutil.copytree(private, tmp_path / "bare"))
    (bare / "fresh-t" / "best_known.json").unlink()
    with pytest.raises(FleetgymError, match="no best-known costs: FLEETGYM_INSTANCES=.* fresh-t/toy --name"):
        rerun(board / "submissions" / "2026-11-21-gh", SEASON, bare, official=False)


def test_changed_tasks_are_noticed(board: Path, private: Path, tmp_path: Path) -> None:
    """A byte of a fresh scenario: the manifest says no."""
    changed = Path(shutil.copytree(private, tmp_path / "changed"))
    path = changed / "fresh-t" / "toy" / "two-pools.scenarios.json.gz"
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match="the file was changed"):
        rerun(board / "submissions" / "2026-11-21-gh", SEASON, changed, official=False)


def test_tasks_of_another_seed_are_noticed(board: Path, private: Path, tmp_path: Path) -> None:
    """What is played was drawn from the seed that was announced."""
    draw_season(SEASON, "00" * 32, tmp_path / "other")
    shutil.copytree(private / "fresh-t", tmp_path / "other" / "fresh-t", dirs_exist_ok=True)
    for folder in (tmp_path / "other", Path(shutil.copytree(private, tmp_path / "bare"))):
        if folder.name == "bare":
            (folder / "season.json").unlink()
        with pytest.raises(FleetgymError, match="not drawn from the seed announced for t"):
            rerun(board / "submissions" / "2026-11-21-gh", SEASON, folder, official=False)


def test_a_bad_submission_ends_nothing_for_the_others(
    board: Path, private: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of several gets its row or is named; those that have one are not played again."""
    good, bad = (board / "submissions" / f"2026-11-21-{agent}" for agent in ("gh", "hold"))
    broken = Path(shutil.copytree(bad, tmp_path / "2026-11-21-broken"))
    (broken / "submission.toml").write_text("nothing")
    words = ["rerun", str(broken), str(good), "--season", "t", "--board", str(board)]
    words += ["--instances", str(private), "--unofficial", "--out", str(tmp_path / "fresh")]
    assert main(words) == 1
    told = capsys.readouterr()
    assert "2 of 2 submissions to play" in told.out
    assert "2026-11-21-broken: " in told.err
    assert "1 of 2 submissions have no row" in told.err
    assert (tmp_path / "fresh" / "2026-11-21-gh.json.gz").is_file()
    assert main([words[0], str(good), str(bad), *words[3:]]) == 0
    assert "1 of 2 submissions to play" in capsys.readouterr().out


def test_command_line(board: Path, private: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Seed, draw from the revealed seed, rerun."""
    assert main(["season", "seed", str(tmp_path / "seed"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["seed_sha256"]) == 64
    out = tmp_path / "drawn"
    assert main(["season", "draw", "t", "--board", str(board), "--out", str(out)]) == 0
    assert (out / "manifest.json").read_bytes() == (private / "manifest.json").read_bytes()
    assert main(["season", "draw", "unknown", "--board", str(board), "--out", str(out)]) == 2
    words = ["rerun", str(board / "submissions" / "2026-11-21-gh"), "--season", "t", "--board", str(board)]
    words += ["--instances", str(private), "--unofficial", "--out", str(tmp_path / "fresh"), "--json"]
    capsys.readouterr()
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out)["episodes"] == 14
    assert (tmp_path / "fresh" / "2026-11-21-gh.json.gz").is_file()


@pytest.mark.slow
def test_official_rerun(
    private: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under the rules of an official run the row says which, and costs the same; caches are dropped if possible."""
    monkeypatch.setattr(official, "_DROP", tmp_path / "drop_caches")
    (tmp_path / "drop_caches").touch()
    folder = submitted(evaluate(["gh"], SUITE), tmp_path / "submissions" / "2026-11-21-gh")
    record = rerun(folder, SEASON, private, out=tmp_path / "fresh" / "t")
    assert record.rules is not None
    assert (record.rules.time_class, record.rules.caches) == ("reflex", "dropped")
    plain = rerun(folder, SEASON, private, official=False)
    assert [e.cost_usd for e in record.episodes] == [e.cost_usd for e in plain.episodes]
    assert read_record(private / RECORDS / "2026-11-21-gh.json.gz") == record
    (public,) = read_open_rows(tmp_path, dataclasses.replace(SEASON, name="t"))
    assert (public.id, public.is_isolated) == (record.id, True)
    assert (record.repeated, record.differing) == (1, None)
    assert (tmp_path / "drop_caches").read_text() == "3"
    assert "caches are kept" not in capsys.readouterr().err
    (tmp_path / "drop_caches").unlink()
    again = rerun(folder, SEASON, private)
    assert again.rules is not None
    assert again.rules.caches == "kept"
    assert [e.actions for e in again.episodes] == [e.actions for e in record.episodes]
    assert "the kernel's caches are kept" in capsys.readouterr().err
