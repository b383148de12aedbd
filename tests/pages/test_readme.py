"""The README is short, its agent and its figures are true, as are those of other pages; links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from places import ROOT

from fleetgym.evaluation.run import evaluate
from fleetgym.scoring.best_known import best_known_path, read_best_known
from fleetgym.scoring.score import score

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
MOST_WORDS = 600  # code and the table included


def test_it_is_short() -> None:
    """The README can be read in three minutes."""
    assert len(TEXT.split()) <= MOST_WORDS


def test_the_ten_line_agent_plays(tmp_path: Path) -> None:
    """The agent of the README plays the toys without a failure."""
    path = tmp_path / "my_agent.py"
    path.write_text(next(b for b in re.findall(r"```python\n(.*?)```", TEXT, flags=re.S) if "MyAgent" in b))
    body = path.read_text().partition('demand."""')[2]
    assert len([line for line in body.splitlines() if line.strip()]) <= 10
    results = evaluate([f"{path}:MyAgent"], "fleet-v0/toy", isolate="never")
    assert all(episode.failure is None for episode in results.episodes)


def test_its_agents_score_what_it_says(tmp_path: Path) -> None:
    """The three figures below the agent, on the day that its command plays."""
    path = tmp_path / "my_agent.py"
    path.write_text(next(b for b in re.findall(r"```python\n(.*?)```", TEXT, flags=re.S) if "MyAgent" in b))
    results = evaluate([f"{path}:MyAgent", "hold", "margin"], "fleet-v0/dev/drop-s-001", scenarios=[0])
    mine, holding, margin = (round(score(results).row(agent).score) for agent in results.agents)
    assert f"it scores {mine} %, `hold` {holding} %, `margin` {margin} %." in TEXT


def test_leaders_are_those_of_the_leaderboard() -> None:
    """Each row repeats one of `leaderboard/README.md`, as published; the first of them leads."""
    board = (
        (ROOT / "leaderboard" / "README.md").read_text(encoding="utf-8").partition("### fleet-v2/sample")[2]
    )
    rows = [
        line.split(" | ") for line in board.partition("\n### ")[0].splitlines() if " as published |" in line
    ]
    found = {row[1].removesuffix(" as published"): (float(row[2]), row[3]) for row in rows}
    shown = re.findall(r"^\| `([\w-]+)` \| .* \| \**([\d.]+)\** \| ([\d.]+)–([\d.]+) \|$", TEXT, flags=re.M)
    assert len(shown) > 5
    for agent, percent, low, high in shown:
        assert float(percent) == pytest.approx(found[agent][0], abs=0.0551), agent  # both are rounded
        assert f"{low} to {high}" == found[agent][1], agent
    assert shown[0][0] == min(found, key=lambda agent: found[agent][0])


def test_scores_are_of_todays_best_known_costs() -> None:
    """Pages that show scores of `fleet-v2` name its present set, so a new one asks for them to be printed anew."""
    name = read_best_known(best_known_path("fleet-v2")).name
    for page in ("start", "glossary", "fleet-v2", "results-fleet-v2"):
        assert f"`{name}`" in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), page


def test_links_lead_somewhere() -> None:
    """Every relative link and picture of the README exists."""
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (README.parent / target).exists(), target
