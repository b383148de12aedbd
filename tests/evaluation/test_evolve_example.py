"""The example of a task for programs that write heuristics: scores, failures with file and line, no stored day."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from fleetgym.families.generate import SEEDS
from fleetgym.files.errors import FleetgymError

FOLDER = ROOT / "examples" / "evolve"


@pytest.fixture
def evaluator(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the example, which plays without a box and on one day."""
    monkeypatch.setenv("FLEETGYM_EVOLVE_BOX", "0")
    spec = importlib.util.spec_from_file_location("evolve_evaluator", FOLDER / "evaluator.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "STAGES", {1: (("ou",), 1), 2: (("drop",), 1)})
    monkeypatch.setitem(sys.modules, "openevolve.evaluation_result", None)  # plain mappings
    return module


@pytest.mark.slow
def test_the_first_program_is_scored_in_words(evaluator: Any) -> None:
    """It costs more than `margin`, and the artifact says why."""
    result = evaluator.evaluate(str(FOLDER / "initial.py"))
    assert 0.0 < result["combined_score"] < 1.0
    assert "Worst day" in result["artifacts"]["costs"]
    assert str(tempfile.gettempdir()) not in result["artifacts"]["costs"]
    head, *rows = (row.split(",") for row in result["artifacts"]["windows"].split("\n"))
    assert head[:3] == ["window", "mine", evaluator.RIVAL]
    assert len(rows) == 288
    mine, rival = (sum(float(row[k]) for row in rows) for k in (1, 2))
    assert 100.0 * (mine / rival - 1.0) == pytest.approx(result["above_rival_percent"], abs=0.1)
    assert sum(v for name, v in result.items() if name.startswith("points_")) == pytest.approx(
        result["above_rival_percent"]
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def act(self, observation, info):\n        return self.nothing", "(program.py:5 in act)"),
        ("def act(self, observation, info)\n        return 0", "program.py"),
    ],
)
def test_failures_are_told_with_file_and_line(
    evaluator: Any, tmp_path: Path, code: str, message: str
) -> None:
    """A program that raises, and one that is no Python, score nothing and are no error of the search."""
    path = tmp_path / "program.py"
    path.write_text(f"class Agent:\n    def reset(self, view, *, seed):\n        pass\n    {code}\n")
    result = evaluator.evaluate(str(path))
    assert result["combined_score"] == evaluator.FAILED
    assert message in result["artifacts"]["failure"]


@pytest.mark.slow
def test_the_box_changes_nothing_but_what_is_seen(evaluator: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same score; the program sees no other file of the search."""
    outside = evaluator.evaluate_stage1(str(FOLDER / "initial.py"))
    monkeypatch.setenv("FLEETGYM_EVOLVE_BOX", "1")
    try:
        inside = evaluator.evaluate_stage1(str(FOLDER / "initial.py"))
    except FleetgymError as error:  # a machine without the box
        pytest.skip(str(error))
    assert inside == outside


@pytest.mark.slow
def test_written_programs_play(evaluator: Any) -> None:
    """Those of the page; of a day, since failures show at once."""
    programs = sorted((FOLDER / "written").glob("*.py"))
    assert len(programs) == 5
    for program in programs:
        assert evaluator.evaluate_stage1(str(program))["combined_score"] > evaluator.FAILED, program


def test_search_days_are_of_the_training_range(evaluator: Any) -> None:
    """Stages share no instance, and another search has others."""
    seeds = []
    for search in ("0", "1"):
        for stage in (1, 2):
            for file in evaluator.search_days(stage, search):
                seeds.append(int(Path(file).stem.rpartition("-")[2]))
    assert len(set(seeds)) == 4
    assert all(seed in SEEDS["train"] for seed in seeds)


def test_openevolve_loads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package's own evaluator calls the file, and finds the score."""
    config = pytest.importorskip("openevolve.config")
    evaluation = pytest.importorskip("openevolve.evaluator")
    monkeypatch.setenv("FLEETGYM_EVOLVE_BOX", "0")
    settings = config.EvaluatorConfig(cascade_evaluation=False, timeout=300)
    theirs = evaluation.Evaluator(settings, str(FOLDER / "evaluator.py"))
    program = (FOLDER / "initial.py").read_text(encoding="utf-8").replace("def act", "def akt")
    metrics = asyncio.run(theirs.evaluate_program(program, "first"))
    assert metrics["combined_score"] == 0.0
