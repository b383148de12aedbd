"""Submissions of the reference agents are made alike, declare the class that was kept, and verify."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from sample_agents import agent as sample

from fleetgym.evaluation.results import Results, timings_path
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.submission import read_submission
from fleetgym.leaderboard.verify import verify
from tools.submit_references import class_of, main, submitted

SUITE = "fleet-v0/toy"
TUNED = "gh-rolling(margin=0.2, every=2)"


def played(path: Path, *agents: str) -> Path:
    """Play agents on the toys into a results file; return it."""
    evaluate(agents, SUITE, isolate="never", out=path)
    return path


def test_published_and_tuned_are_submitted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One folder each, named by day, split, agent and variant; they verify; a second call leaves them."""
    files = [str(played(tmp_path / "a.jsonl", "hold")), str(played(tmp_path / "b.jsonl", TUNED))]
    call = [
        *files,
        str(timings_path(files[0])),
        "--suite",
        SUITE,
        "--date",
        "2026-11-21",
        "--out",
        str(tmp_path / "s"),
    ]
    assert main(call) == 0
    names = ["2026-11-21-toy-hold", "2026-11-21-toy-gh-rolling-tuned"]
    assert [Path(line).name for line in capsys.readouterr().out.split()] == names
    published, tuned = (read_submission(tmp_path / "s" / name).agent for name in names)
    assert (published.title, published.division, published.time_class) == (
        "hold as published",
        "one-shot",
        "reflex",
    )
    assert (tuned.title, tuned.entry, tuned.division) == ("gh-rolling tuned", TUNED, "closed")
    assert tuned.description == "GH, planning again and again. Tuned: margin=0.2, every=2."
    readme = tmp_path / "s" / names[1] / "README.md"
    assert f'`fleetgym evaluate "{TUNED}" --suite {SUITE}`' in readme.read_text()
    assert len(verify(tmp_path / "s" / names[1]).episodes) == 7
    readme.write_text("mine")
    assert main(call) == 0
    assert readme.read_text() == "mine"


@pytest.mark.parametrize(
    ("agents", "message"),
    [
        (("hold", "gh"), "holds several agents: hold, gh"),
        ((sample("Good"),), "did not come with fleetgym; use `fleetgym submit`"),
    ],
)
def test_others_are_refused(
    tmp_path: Path, agents: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several agents in a file, or one that is not ours: nothing is made."""
    path = played(tmp_path / "r.jsonl", *agents)
    assert main([str(path), "--suite", SUITE, "--date", "2026-11-21", "--out", str(tmp_path / "s")]) == 1
    assert message in capsys.readouterr().err
    assert not (tmp_path / "s").exists()


def test_the_class_is_the_least_that_every_episode_kept(tmp_path: Path) -> None:
    """One long episode decides, if it is of the suite; the start does not count, and no timing is an error."""
    run = evaluate(["hold"], ["fleet-v0/toy/drop", "fleet-v0/toy/two-pools"])

    def with_seconds(*seconds: float) -> Results:
        pairs = zip(run.episodes, seconds, strict=True)
        timed = [
            (e, dataclasses.replace(e.timing, reset_cpu_s=50.0, act_cpu_s=(s / 2, s / 2))) for e, s in pairs
        ]
        return dataclasses.replace(run, episodes=tuple(dataclasses.replace(e, timing=t) for e, t in timed))

    assert class_of(with_seconds(2.9, 3.0), SUITE) == "reflex"
    assert class_of(with_seconds(2.9, 3.1), SUITE) == "online"
    assert class_of(with_seconds(60.1, 3.1), SUITE) == "offline"
    slow = [
        dataclasses.replace(e, timing=dataclasses.replace(e.timing, speed=0.5))
        for e in with_seconds(4.0, 5.9).episodes
    ]
    assert class_of(dataclasses.replace(run, episodes=tuple(slow)), SUITE) == "reflex"  # reference seconds
    with pytest.raises(FleetgymError, match="took 1801 CPU seconds"):
        class_of(with_seconds(1.0, 1801.0), SUITE)
    with pytest.raises(FleetgymError, match="not timed on every task of fleet-v0/toy"):
        class_of(
            dataclasses.replace(run, episodes=(dataclasses.replace(run.episodes[0], timing=None),)), SUITE
        )


def test_a_run_that_lacks_tasks_is_not_submitted(tmp_path: Path) -> None:
    """Those of the suite; the message says how many are there."""
    path = tmp_path / "r.jsonl"
    evaluate(["hold"], ["fleet-v0/toy/drop"], out=path)
    with pytest.raises(FleetgymError, match="1 of the 7 tasks"):
        submitted(path, SUITE, "2026-11-21", tmp_path / "s")
    assert not (tmp_path / "s").exists()
