"""The page of results: runs are merged, ties and winners marked, hand-written reasons kept, families compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fleetgym.evaluation.results import read_results
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import FleetgymError
from fleetgym.scoring.explain import kinds_of_windows
from tools import family_pages, family_statistics, score_suite
from tools.markdown import BEGIN, END, between_marks

TASKS = [f"fleet-v1/test/{name}" for name in ("ou-s-201", "ou-s-202", "drop-s-201", "drop-s-202")]
AGENTS = ("hold", "autoscale", "random")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return results files of three quick agents on four tasks."""
    folder = tmp_path_factory.mktemp("results")
    for agent in AGENTS:
        evaluate([agent], TASKS, scenarios=[0], out=folder / f"{agent}.jsonl")
    return [folder / f"{agent}.jsonl" for agent in AGENTS]


def written(files: Sequence[Path | str], folder: Path) -> str:
    """Return the page that the tool makes of a page with a reason on it."""
    page = folder / "results.md"
    page.write_text(f"# Results\n\n{BEGIN}\nof last week\n{END}\n\nBecause.\n", encoding="utf-8")
    score_suite.main([*map(str, files), "--page", str(page), "--scores", str(folder / "scores.json")])
    return page.read_text(encoding="utf-8")


def test_the_page_ranks_and_keeps_the_reasons(files: list[Path], tmp_path: Path) -> None:
    """Every agent in every table, the winner of a family named, what was written by hand untouched."""
    text = written([*files, *(f.with_suffix(".timings.jsonl") for f in files)], tmp_path)
    assert text.startswith("# Results\n")
    assert text.endswith(f"{END}\n\nBecause.\n")
    assert "of last week" not in text
    assert all(f"| `{agent}` |" in text for agent in AGENTS)
    assert "| winner | `" in text
    assert "4 of " in text
    assert "best-known costs `bks-" in text
    ((about, scores),) = family_statistics.read_scores(tmp_path / "scores.json").items()
    assert about in text
    assert list(scores)[-1] == "random"
    assert set(scores["hold"]) == {"ou", "drop"}


def test_the_picture_shows_who_is_timed(files: list[Path], tmp_path: Path) -> None:
    """It is drawn where it was asked for, the page shows it, and a bad name is refused before the work."""
    picture = tmp_path / "images" / "score.png"
    text = written([*files, "--picture", str(picture)], tmp_path)
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "![Score against CPU seconds](images/score.png)" in text
    with pytest.raises(FleetgymError, match="expected a name that ends in"):
        written([*files, "--picture", "score.txt"], tmp_path)


def cells(text: str, heading: str, agent: str) -> list[str]:
    """Return an agent's cells in the first table below a heading."""
    part = text.partition(f"### {heading}\n")[2]
    line = next(line for line in part.splitlines() if line.startswith(f"| `{agent}` |"))
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


def test_what_the_tables_of_the_page_say(files: list[Path], tmp_path: Path) -> None:
    """The lowest in bold, and costs that add up to the ratio."""
    text = written(files, tmp_path)
    run = score_suite.merged([read_results(path) for path in files])
    _, rows = score_suite.compared(run)
    by_family = score_suite.tables_by_family(rows)
    shown = {agent: dict(zip(by_family, cells(text, "By family", agent), strict=True)) for agent in AGENTS}
    for family, found in by_family.items():
        lowest = min(found.rows, key=lambda row: row.score).key
        assert [agent for agent in AGENTS if shown[agent][family].startswith("**")] == [lowest]
    assert {1, 3} <= {row.rank for found in by_family.values() for row in found.rows}
    winners = next(line for line in text.splitlines() if line.startswith("| winner |"))
    means = score_suite.family_scores(rows)
    best = [min(AGENTS, key=lambda agent, of=family: means[agent][of]) for family in by_family]
    assert winners == f"| winner | {' | '.join(f'`{agent}`' for agent in best)} |"
    for agent in AGENTS:
        terms = [float(cell.replace(",", "")) for cell in cells(text, "What the cost is made of", agent)[:6]]
        ratio = 100.0 * np.mean([task.ratio for task in rows[agent]])
        assert sum(terms) == pytest.approx(ratio, abs=6 * 0.05)


def test_without_best_known_costs_agents_are_compared_with_the_cheapest(
    files: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the page says that such scores hold within it only."""
    monkeypatch.setattr(score_suite, "is_known", lambda run: False)
    text = written(files, tmp_path)
    assert "cheapest of these agents" in text
    assert "best-known costs `" not in text


def test_unfinished_agents_are_named_and_left_out(files: list[Path], tmp_path: Path) -> None:
    """A run that was stopped has no score; the page says how far it came."""
    cut = tmp_path / "random.jsonl"
    cut.write_text("".join(files[2].read_text().splitlines(keepends=True)[:3]))
    text = written([*files[:2], cut], tmp_path)
    assert "`random` (2 of 4 episodes)" in text
    assert "| `random` |" not in text


def test_slower_agents_are_ranked_on_a_sample(files: list[Path], tmp_path: Path) -> None:
    """They are ranked among all on the tasks that all of them played, and stand in no other table."""
    some, other = tmp_path / "gh.jsonl", tmp_path / "agh.jsonl"
    evaluate(["gh"], [TASKS[0], TASKS[2]], scenarios=[0], out=some)
    evaluate(["agh"], TASKS[1:], scenarios=[0], out=other)
    none = tmp_path / "homo.jsonl"
    evaluate(["homo"], [TASKS[3]], scenarios=[0], out=none)
    text = written([*files, "--sample", some], tmp_path)
    before, heading, after = text.partition("### Slower agents, on a sample")
    assert heading
    assert "`gh`" not in before
    assert "2 of " in after
    assert len(family_statistics.read_scores(tmp_path / "scores.json")) == 2
    assert "ranked among all 4 agents" in after
    assert "| `gh` |" in after
    assert not any(f"| `{agent}` |" in after for agent in AGENTS)
    assert "1 of " in written([*files, "--sample", some, other], tmp_path).partition("### Slower agents")[2]
    with pytest.raises(FleetgymError, match="no task that all agents"):
        written([*files, "--sample", some, none], tmp_path)


def test_a_sample_is_ranked_with_tuned_settings_and_timed(files: list[Path], tmp_path: Path) -> None:
    """Settings count in ranks, families are compared without them."""
    some, setting = tmp_path / "gh.jsonl", tmp_path / "tuned.jsonl"
    evaluate(["gh"], [TASKS[0], TASKS[2]], scenarios=[0], out=some)
    evaluate(["autoscale(target_utilization=1.0)"], TASKS, scenarios=[0], out=setting)
    text = written([*files, "--sample", some, "--sample-tuned", setting], tmp_path)
    after = text.partition("### Slower agents, on a sample")[2]
    assert "2 of " in after
    line = next(row for row in after.splitlines() if "| `gh` |" in row)
    found = [cell.strip() for cell in line.strip("|").split("|")]
    run = read_results(some)
    (played,) = score_suite.compared(run)[1].values()
    logs = [np.log(task.cost_usd / task.best_usd) for task in played]  # one task of each family
    assert found[2] == f"{100.0 * np.expm1(np.mean(logs)):.1f}"
    times = [episode.timing.total_s for episode in run.episodes if episode.timing is not None]
    assert float(found[-1]) == pytest.approx(np.mean(times), abs=0.0051)
    assert "ranked among all 5 agents and" in after
    scores = family_statistics.read_scores(tmp_path / "scores.json")
    assert [sorted(agents) for agents in scores.values()] == [sorted(AGENTS), sorted([*AGENTS, "gh"])]
    with pytest.raises(SystemExit):
        written([*files, "--sample-tuned", setting], tmp_path)
    with pytest.raises(FleetgymError, match="autoscale is in two results files of tuned"):
        score_suite.with_names(["autoscale"], {"autoscale(every=2)": [], "autoscale(every=3)": []})
    with pytest.raises(FleetgymError, match="autoscale as published is not among"):
        score_suite.with_names(["hold"], {"hold": [], "autoscale(every=2)": []})


def test_runs_that_do_not_belong_together_are_refused(files: list[Path]) -> None:
    """An agent twice; an instance in two versions."""
    runs = [read_results(path) for path in files]
    with pytest.raises(FleetgymError, match="two results files"):
        score_suite.merged([runs[0], runs[0]])
    facts = {
        name: dataclasses.replace(found, content_hash="0" * 64)
        for name, found in runs[1].header.instances.items()
    }
    changed = dataclasses.replace(runs[1], header=dataclasses.replace(runs[1].header, instances=facts))
    with pytest.raises(FleetgymError, match="not the same instance"):
        score_suite.merged([runs[0], changed])


def test_windows_of_each_kind_are_all_windows() -> None:
    """A window is busy, ordinary or quiet; it is short only where pools drop."""
    kinds = kinds_of_windows(TASKS[2], 0)
    assert np.array_equal(kinds["busy"] + kinds["ordinary"] + kinds["quiet"], np.ones(288))
    assert kinds["short"].any()
    assert not kinds_of_windows(TASKS[0], 0)["short"].any()


def test_a_whole_suite_is_called_so() -> None:
    """What was played is said in detail only if something was left out."""
    run = evaluate(["hold"], "fleet-v0/toy")
    assert score_suite.played_tasks(run) == "all 7 tasks of `fleet-v0/toy`"
    assert score_suite.is_known(run)
    elsewhere = dataclasses.replace(run.episodes[0], scenario=99)
    assert not score_suite.is_known(dataclasses.replace(run, episodes=(elsewhere,)))
    part = dataclasses.replace(run, episodes=run.episodes[:2])
    assert score_suite.played_tasks(part).startswith("2 of 7 tasks of `fleet-v0/toy` (")


SCORES = {
    "a": {"ou": 0.0, "drop": 0.0, "grw": 0.5},
    "b": {"ou": 0.1, "drop": 0.4, "grw": 0.0},
    "c": {"ou": 0.2, "drop": 0.8, "grw": 0.0},
    "random": {"ou": 9.0, "drop": 1.0, "grw": 0.0},
}


def test_families_are_compared_without_the_floor() -> None:
    """A spread four times another and a rank correlation of one are said to miss what is wanted."""
    text = family_statistics.section(SCORES)
    assert "the widest is 4.0 times the narrowest (**not met**)" in text
    assert "not met by `ou` and `drop` (1.00)" in text
    assert "random" not in text
    assert "grw" not in text
    near = {**SCORES, "c": {**SCORES["c"], "drop": 0.2}}
    assert "the narrowest (met)" in family_statistics.section(near)
    assert "all are below; the largest is 0.500, of `ou` and `drop`." in family_statistics.section(near)


def test_ranks_without_a_family_say_what_rests_on_it() -> None:
    """An agent that is first because of one family is not first without it."""
    scores = {"a": {"ou": 0.0, "drop": 0.9}, "b": {"ou": 0.2, "drop": 0.1}, "c": {"ou": 0.5, "drop": 0.5}}
    assert family_statistics.ranks(scores) == {"b": 1, "a": 2, "c": 3}
    assert family_statistics.ranks(scores, "drop") == {"a": 1, "b": 2, "c": 3}
    text = family_statistics.section(scores)
    assert "rank by score is 1:\n`c` has rank 3 with all families, and 2 without `ou`." in text
    last = {**scores, "a": {"ou": 0.0, "drop": 3.0}}
    assert family_statistics.ranks(last) == {"b": 1, "c": 2, "a": 3}
    assert "rank by score is 2:" in family_statistics.section(last)


def test_the_cards_show_how_families_tell_agents_apart(tmp_path: Path) -> None:
    """From the stored scores, which are read back as they were written."""
    path = tmp_path / "scores.json"
    stored = {"4 of 9 tasks of `x`": SCORES, "2 of 9 tasks of `x`": SCORES}
    family_statistics.write_scores(path, stored)
    assert family_statistics.read_scores(path) == stored
    text = family_pages.disagreement(path)
    assert all(f"agents, {about}\n" in text for about in stored)
    assert "4.0 times the narrowest" in text


def test_the_distance_to_the_bound_is_explained_with_what_is_known() -> None:
    """Best-known costs are nearer to their bounds than any agent tried, and never below."""
    known = family_pages.best_known_above_bound()
    assert {"ou", "drop"} <= set(known)
    assert all(above >= 0.0 for above in known.values())


def test_a_page_without_marks_is_refused() -> None:
    """Nothing is overwritten that was not made by the tool."""
    assert between_marks(f"a{BEGIN}x{END}b", "y") == f"a{BEGIN}\ny\n{END}b"
    with pytest.raises(ValueError, match="no part between"):
        between_marks(f"a{END}{BEGIN}", "y")
