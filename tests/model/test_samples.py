"""A sample is a suite: listed, played, submitted and verified as a split is, and nothing else is played."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from places import ROOT

from fleetgym.cli import main
from fleetgym.evaluation.agreement import machine_facts
from fleetgym.evaluation.run import evaluate, make_jobs
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.leaderboard.best_known import replay_best_known
from fleetgym.leaderboard.history import history
from fleetgym.leaderboard.site import build_site
from fleetgym.leaderboard.standings import make_boards
from fleetgym.leaderboard.submission import suite_sha256
from fleetgym.leaderboard.submit import submit
from fleetgym.leaderboard.verify import verify
from fleetgym.model import sets
from fleetgym.model.library import list_instances, list_tasks, suites

INSTANCES = ROOT / "instances"
FEW = "fleet-v0/few"
TASKS = ["fleet-v0/dev/ou-s-001#1", "fleet-v0/toy/drop#0"]


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the manifest of a copy of fleet-v0 with a sample of two tasks."""
    folder = tmp_path / "instances"
    shutil.copytree(INSTANCES / "fleet-v0", folder / "fleet-v0")
    path = folder / "manifest.json"
    content = json.loads((INSTANCES / "manifest.json").read_text())
    content.pop("sha256", None)
    sample = {"id": FEW, "about": "a day and a toy", "tasks": TASKS}
    path.write_text(json.dumps({**content, "samples": [sample]}))
    monkeypatch.setenv(sets.ENVIRONMENT_VARIABLE, str(folder))
    return path


def test_a_sample_is_listed_beside_the_splits(manifest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its tasks in their own order; the set has no task twice for it."""
    assert list_tasks(FEW) == list(suites()[FEW]) == [("fleet-v0/dev/ou-s-001", 1), ("fleet-v0/toy/drop", 0)]
    assert list_instances(f"/{FEW}/") == ["fleet-v0/dev/ou-s-001", "fleet-v0/toy/drop"]
    assert len(list_tasks("fleet-v0")) == len(set(list_tasks("fleet-v0"))) == 55
    with pytest.raises(UnknownNameError, match=f"did you mean '{FEW}'"):
        list_tasks("fleet-v0/fewer")
    assert main(["list", "suites"]) == main(["list", "few"]) == main(["bks", "show", "few"]) == 0
    text = capsys.readouterr().out
    assert "fleet-v0/few: a day and a toy" in text
    assert ("fleet-v0/dev/ou-s-001", "ou", "s", "#1") in {tuple(row.split()) for row in text.splitlines()}
    assert {("fleet-v0/few", "2", "2"), ("fleet-v0/dev", "26", "48")} <= {
        tuple(row.split()) for row in text.splitlines()
    }
    assert "2 tasks" in text
    assert main(["show", FEW]) == 2
    assert "is a suite of 2 instances" in capsys.readouterr().err


def test_its_tasks_are_played_and_no_others(manifest: Path) -> None:
    """Scenarios that it leaves out are refused; the results say which suite was played."""
    assert [(job.instance, job.scenario) for job in make_jobs("hold", FEW)] == list_tasks(FEW)
    for name in (FEW, "few", f"{FEW}/"):
        with pytest.raises(FleetgymError, match=rf"{name} has scenario 1 of fleet-v0/dev/ou-s-001; got 0"):
            make_jobs("hold", name, scenarios=[0])
    with pytest.raises(FleetgymError, match="the task fleet-v0/toy/drop#0 is named twice"):
        make_jobs("hold", [FEW, "toy"])
    results = evaluate(["hold"], "few")
    assert results.header.suite == FEW
    assert [e.key for e in results.episodes] == [("hold", *task, 0) for task in list_tasks(FEW)]


def test_it_has_a_checksum_of_its_own(manifest: Path) -> None:
    """Which scenarios are played is a part of it; that of a split is as before."""
    split = suite_sha256("fleet-v0/dev")
    both = {suite_sha256(FEW)}
    content = json.loads(manifest.read_text())
    content.pop("sha256", None)
    content["samples"][0]["tasks"] = ["fleet-v0/dev/ou-s-001#0", "fleet-v0/toy/drop#0"]
    manifest.write_text(json.dumps(content))
    assert len(both | {suite_sha256(FEW)}) == 2
    content["samples"][0]["tasks"] = [f"{name}#{k}" for name, k in list_tasks("fleet-v0/dev")]
    manifest.write_text(json.dumps(content))
    assert suite_sha256(FEW) == suite_sha256("fleet-v0/dev") == split


def test_a_run_of_it_is_submitted_and_verified(manifest: Path, tmp_path: Path) -> None:
    """Of a run of more tasks, those of the sample are taken; another selection is refused."""
    run = evaluate(["hold"], ["fleet-v0/toy", "fleet-v0/dev/ou-s-001"])
    folder = tmp_path / "2026-11-24-few"
    submit(run, folder, date="2026-11-24", division="one-shot", suite=FEW)
    record = verify(folder)
    assert [episode.task for episode in record.episodes] == list_tasks(FEW)
    assert record.suite == FEW
    content = json.loads(manifest.read_text())
    content.pop("sha256", None)
    content["samples"][0]["tasks"][0] = "fleet-v0/dev/ou-s-001#0"
    manifest.write_text(json.dumps(content))
    with pytest.raises(DataError, match="another version"):
        verify(folder)


def test_its_best_known_costs_are_its_own_tasks(manifest: Path, tmp_path: Path) -> None:
    """The board's history and the replay know the scenarios that are played, and no others."""
    board = tmp_path / "board"
    folder = board / "submissions" / "2026-11-24-few"
    submit(evaluate(["hold"], FEW), folder, date="2026-11-24", division="one-shot")
    verify(folder, out=board / "verified")
    (found,) = make_boards(board)
    assert "All 2 tasks" in str(history(found))
    page = build_site(board, tmp_path / "site").read_text()
    assert "Actions on the 2 public tasks (a day and a toy), replayed." in page
    seen: list[int] = []
    assert replay_best_known(FEW, progress=lambda done, total: seen.append(total)) == {}
    assert seen == [2, 2]


def test_workers_with_another_sample_are_told(manifest: Path) -> None:
    """What a Dask worker says of its standard set covers every manifest, those of the sets too."""
    before = machine_facts()
    own = manifest.parent / "fleet-v0" / "manifest.json"
    own.write_text(manifest.read_text().replace('"entries"', ' "entries"'))
    assert machine_facts() != before


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"id": "fleet-v0/dev"}, r"\$\.samples\[0\]\.id: there is a suite fleet-v0/dev already"),
        ({"id": "few"}, r"\$\.samples\[0\]\.id"),
        (
            {"tasks": ["fleet-v0/toy/drop#1"]},
            r"\$\.samples\[0\]\.tasks\[0\]: fleet-v0/toy/drop#1 is no stored task",
        ),
        ({"tasks": ["fleet-v0/toy/drip#0"]}, r"\$\.samples\[0\]\.tasks\[0\]"),
        ({"tasks": [TASKS[0], TASKS[0]]}, r"\$\.samples\[0\]\.tasks\[1\]"),
        ({"tasks": ["fleet-v0/toy/drop"]}, r"\$\.samples\[0\]\.tasks\[0\]"),
        ({"tasks": []}, r"\$\.samples\[0\]\.tasks"),
    ],
)
def test_what_is_wrong_with_a_sample_is_named(manifest: Path, changed: dict[str, Any], message: str) -> None:
    """A name that is taken or none, tasks that there are not, a task twice, no task: each with its place."""
    content = json.loads(manifest.read_text())
    content.pop("sha256", None)
    content["samples"][0] |= changed
    manifest.write_text(json.dumps(content))
    with pytest.raises(DataError, match=message) as caught:
        suites()
    assert str(manifest) in str(caught.value)
