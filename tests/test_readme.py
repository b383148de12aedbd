"""What the README tells a newcomer to type works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from fleetgym.evaluation.run import evaluate

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.S)


def test_the_ten_line_agent_plays(tmp_path: Path) -> None:
    """The agent of the README plays the toys without a failure."""
    path = tmp_path / "my_agent.py"
    path.write_text(BLOCKS[0])
    lines = [line for line in BLOCKS[0].splitlines() if line.strip() and not line.startswith("#")]
    assert len(lines) <= 16, "a short agent, imports and docstring included"
    results = evaluate([f"{path}:MyAgent"], "fleet-v0/toy", isolate="never")
    assert all(episode.failure is None for episode in results.episodes)


def test_the_gymnasium_lines_run() -> None:
    """The environment is made, reset and stepped as shown."""
    exec(compile(BLOCKS[1], "README.md", "exec"), {})


@pytest.mark.rl
def test_the_ppo_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PPO trains as shown, for fewer steps, in fifteen lines at most."""
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not there")
    monkeypatch.chdir(tmp_path)
    assert len([line for line in BLOCKS[2].splitlines() if line.strip()]) <= 15
    exec(compile(BLOCKS[2].replace("300_000", "64"), "README.md", "exec"), {})
    assert (tmp_path / "mine.zip").exists()


def test_links_lead_somewhere() -> None:
    """Every relative link and picture of the README exists."""
    for target in re.findall(r"\]\(([^)#:]+)\)", README.read_text(encoding="utf-8")):
        assert (README.parent / target).exists(), target
