"""The README is short, its agent plays, and its links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

from places import ROOT

from fleetgym.evaluation.run import evaluate

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
MOST_WORDS = 600  # code and the table included


def test_it_is_short() -> None:
    """The README can be read in three minutes."""
    assert len(TEXT.split()) <= MOST_WORDS


def test_the_ten_line_agent_plays(tmp_path: Path) -> None:
    """The agent of the README plays the toys without a failure."""
    path = tmp_path / "my_agent.py"
    path.write_text(re.findall(r"```python\n(.*?)```", TEXT, flags=re.S)[0])
    body = path.read_text().partition('last."""')[2]
    assert len([line for line in body.splitlines() if line.strip()]) <= 10
    results = evaluate([f"{path}:MyAgent"], "fleet-v0/toy", isolate="never")
    assert all(episode.failure is None for episode in results.episodes)


def test_links_lead_somewhere() -> None:
    """Every relative link and picture of the README exists."""
    for target in re.findall(r"\]\(([^)#:]+)\)", TEXT):
        assert (README.parent / target).exists(), target
