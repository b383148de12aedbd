"""Tuning: the grid is one for all, the race keeps the cheap settings, the log makes a second run play nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fleetgym.agents.registry import agent_entries, parse_agent
from fleetgym.families.generate import SEEDS
from fleetgym.files.errors import DataError
from fleetgym.model.library import entries
from tools.tune_agents import race as racing
from tools.tune_agents.__main__ import main, outcomes
from tools.tune_agents.grid import OWN, WRAPPER, grid_of, settings
from tools.tune_agents.race import CONFIRMATION, RACE, SHORT_RACE, SLOW, Log, Round, Unfinished, above, race
from tools.tune_agents.summary import cheapest, gain, page

SHORT = (Round(("ou", "drop"), range(1), 2), Round(("ou",), range(1, 2), 1))
LAST = Round(("ou", "drop"), range(2, 4), 2)


def price(setting: str, task: str) -> float:
    """Return a made-up cost: 100 USD times a factor of the setting, and more where the seed is larger."""
    factors = {"agh(margin=0.1)": 0.9, "agh(margin=0.2)": 1.2, "agh(margin=0.3)": 0.95}
    factor = factors.get(setting, 1.0)
    return 100.0 * factor + int(task.rpartition("-")[2]) / 1e6


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Shorten the race, and let made-up costs stand in for episodes; return what is played."""
    found: list[tuple[str, str]] = []

    def play(setting: str, tasks: list[str], folder: Path) -> dict[str, float]:
        found.extend((setting, task) for task in tasks)
        return {task: price(setting, task) for task in tasks}

    monkeypatch.setattr(racing, "RACE", SHORT)
    monkeypatch.setattr(racing, "CONFIRMATION", LAST)
    monkeypatch.setattr(racing, "play", play)
    return found


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that keeps the generated instances for all tests."""
    return tmp_path_factory.mktemp("tasks")


TRIED = ["agh", "agh(margin=0.1)", "agh(margin=0.2)", "agh(margin=0.3)"]


def test_agents_with_the_same_wrapper_try_the_same_points() -> None:
    """At most a hundred distinct settings, the published one first; names that `make_agent` takes apart."""
    tried = settings("agh-rolling")
    assert tried[0] == "agh-rolling"
    assert len(set(tried)) == len(tried) == 100
    assert [name.replace("agh-", "gh-", 1) for name in tried] == settings("gh-rolling")
    for name in tried[1:]:
        arguments = parse_agent(name).arguments
        assert list(arguments) == list(WRAPPER)
        assert all(value in WRAPPER[argument] for argument, value in arguments.items())


def test_an_agent_gets_what_it_takes() -> None:
    """One that plans once: a margin; a reactive one: its own arguments; one without arguments: nothing."""
    assert grid_of("milp") == {"margin": WRAPPER["margin"]}
    assert grid_of("autoscale") is OWN["autoscale"]
    assert settings("hold") == ["hold"]
    assert len(settings("autoscale")) == 65


@pytest.mark.parametrize("rounds", [RACE, SHORT_RACE])
def test_nothing_is_tuned_on_what_is_scored(rounds: tuple[Round, ...]) -> None:
    """Tasks are of the training seeds, the confirmation's were in no round, and all headline families are in both."""
    stored = {entry.id.rpartition("/")[2] for entry in entries().values()}
    raced = [task for part in rounds for task in part.tasks]
    confirmed = CONFIRMATION.tasks
    assert not set(raced) & set(confirmed)
    assert len(set(raced)) == len(raced)
    assert not stored & {*raced, *confirmed}
    assert all(int(task.rpartition("-")[2]) in SEEDS["train"] for task in (*raced, *confirmed))
    assert {t.split("-")[0] for t in raced} == {t.split("-")[0] for t in confirmed} == set(racing.HEADLINE)


def test_the_race_keeps_the_cheap_settings(
    tmp_path: Path, tasks: Path, played: list[tuple[str, str]]
) -> None:
    """The worst leaves after a round, the published setting stays to the end, both finalists are confirmed."""
    found = race(TRIED, Log(tmp_path / "agh.jsonl", tasks))
    assert found.best == "agh(margin=0.1)"
    assert len(found.raced["agh(margin=0.2)"]) == 2
    assert len(found.raced["agh"]) == len(found.raced["agh(margin=0.3)"]) == 3
    assert list(found.confirmed) == ["agh", "agh(margin=0.1)"]
    assert set(found.confirmed["agh"]) == set(LAST.tasks)
    saved, bounds = gain(found, "agh")
    assert saved == pytest.approx(10.0, abs=0.01)
    assert bounds is not None
    assert bounds[0] <= saved <= bounds[1]


def test_a_log_goes_on_and_a_finished_one_plays_nothing(
    tmp_path: Path, tasks: Path, played: list[tuple[str, str]]
) -> None:
    """A log that was cut off within a line loses that trial alone; the finished file is the same."""
    path = tmp_path / "agh.jsonl"
    whole = race(TRIED, Log(path, tasks))
    text, count = path.read_text(), len(played)
    assert race(TRIED, Log(path)) == whole
    assert len(played) == count
    path.write_text(text[: len(text) - 20])
    with pytest.raises(Unfinished, match="lacks"):
        race(TRIED, Log(path))
    assert race(TRIED, Log(path, tasks)) == whole
    assert len(played) == count + len(LAST.tasks)


@pytest.mark.slow
def test_slow_agents_run_the_shorter_race(tmp_path: Path, tasks: Path, played: list[tuple[str, str]]) -> None:
    """They exist, and all of their settings are tried on the first task; the page says so."""
    assert agent_entries().keys() >= SLOW
    tried = settings("saa")
    assert len(tried) == 100
    found = race(tried, Log(tmp_path / "saa.jsonl", tasks))
    assert {task for _, task in played[:100]} == set(SHORT_RACE[0].tasks)
    assert found.best == tried[0]  # all cost the same: the published one comes first
    text = page({"saa": found})
    assert "**A shorter race**, for `saa`" in text
    assert "1. 1 task (`multi`); 10 stay." in text
    assert "Not tuned**: `agh`" in text


def test_other_instances_are_noticed(tmp_path: Path, tasks: Path, played: list[tuple[str, str]]) -> None:
    """If the generators have changed since, the log is of other tasks: an error that says what to do."""
    path = tmp_path / "agh.jsonl"
    race(TRIED, Log(path, tasks))
    lines = path.read_text().splitlines()
    first = lines[0].replace('"ou-s-9000": "', '"ou-s-9000": "0')
    path.write_text("\n".join([first, *lines[1:2]]) + "\n")
    with pytest.raises(DataError, match="delete the log"):
        race(TRIED, Log(path, tasks))


def test_the_page_shows_published_and_tuned(
    tmp_path: Path, tasks: Path, played: list[tuple[str, str]]
) -> None:
    """One row an agent, relative to the cheapest setting of all agents; unfinished logs are left out."""
    found = race(TRIED, Log(tmp_path / "agh.jsonl", tasks))
    text = page({"agh": found})
    assert "| `agh` | `agh(margin=0.1)` | 4 | 11.1 | 0.0 | 10.0 |" in text
    assert above(found.confirmed["agh(margin=0.1)"], cheapest({"agh": found})) == pytest.approx(0.0)
    (tmp_path / "gh.jsonl").write_text("")
    assert "gh" not in outcomes(tmp_path)


def test_a_real_trial_is_the_same_wherever_it_is_played(
    tmp_path: Path, tasks: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent without arguments through the command line, in two folders: the same log and page, to the byte."""
    monkeypatch.setattr(racing, "RACE", SHORT)
    monkeypatch.setattr(racing, "CONFIRMATION", LAST)
    shutil.copytree(tasks, tmp_path / "elsewhere")
    for name, folder in (("a", tasks), ("b", tmp_path / "elsewhere")):
        logs = tmp_path / name / "logs"
        assert main(["--agent", "random", "--logs", str(logs), "--tasks", str(folder)]) == 0
    for file in ("random.jsonl", "README.md"):
        first, second = ((tmp_path / name / "logs" / file).read_bytes() for name in ("a", "b"))
        assert first == second
    assert b"as published" in (tmp_path / "a" / "logs" / "README.md").read_bytes()
