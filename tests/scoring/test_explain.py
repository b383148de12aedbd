"""`explain`: parts add up to the difference of scores, the worst day is found, and unfit files are refused."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from fleetgym.cli.parser import main
from fleetgym.evaluation.results import Results
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.words import text
from fleetgym.scoring.explain import Day, Pair, explain
from fleetgym.scoring.score import score

TASKS = ["fleet-v1/test/ou-s-201", "fleet-v1/test/drop-s-201", "fleet-v1/test/drop-s-202"]


@pytest.fixture(scope="module")
def run() -> Results:
    """Return three quick agents on three tasks of two families."""
    return evaluate(["hold", "gh", "autoscale"], TASKS, isolate="never")


def test_parts_add_up_to_the_difference_of_scores(run: Results) -> None:
    """Terms, families and hours each, and the three kinds of demand; without any best-known cost."""
    found = explain([run], "autoscale", "hold")
    table = score(run)
    ratio = (100.0 + table.row("autoscale").score) / (100.0 + table.row("hold").score)
    assert found.percent == pytest.approx(100.0 * (ratio - 1.0))
    for parts in (found.terms, found.families, found.hours, found.windows[:3]):
        assert sum(part.points for part in parts) == pytest.approx(found.percent)
    for part in (*found.terms, *found.hours, *found.windows):
        assert part.mine - part.other == pytest.approx(part.points)


def test_the_worst_day_is_the_one_of_the_largest_ratio(run: Results) -> None:
    """Its costs are those of the file."""
    found = explain([run], "hold", "gh")
    costs = {(e.agent, e.instance): e.cost_usd for e in run.episodes if e.scenario == 0}
    ratios = {name: costs["hold", name] / costs["gh", name] for name in TASKS}
    assert math.exp(found.worst.log_ratio) >= max(ratios.values()) - 1e-9
    assert found.worst.mine.cost_usd == pytest.approx(
        next(
            e.cost_usd
            for e in run.episodes
            if e.agent == "hold" and e.task == (found.worst.instance, found.worst.scenario)
        )
    )


def test_the_stretch_is_where_the_difference_is() -> None:
    """Windows 2 and 3 hold all of it."""
    usd = np.zeros((6, 8))
    usd[:, 0] = 1.0
    mine = usd.copy()
    mine[2:4, 5] = 3.0
    days = [Day(terms, np.zeros((6, 1)), np.zeros(6), None) for terms in (mine, usd)]
    pair = Pair("ou", "x", 0, *days)
    assert pair.stretch() == (2, 4)
    assert pair.parts.sum() == pytest.approx(math.log(2.0))
    assert pair.parts[:, 5].sum() == pytest.approx(math.log(2.0))
    same = Pair("ou", "x", 0, days[1], days[1])
    assert not same.parts.any()


def test_words_name_terms_families_and_pools(run: Results) -> None:
    """A reader learns what, where and when."""
    found = explain([run], "hold", "gh")
    for interval, is_open in ((-1.0, 2.0), True), ((1.0, 2.0), False):
        told = text(dataclasses.replace(found, interval=interval))
        assert ("do not tell which costs less" in told) == is_open
    assert "hold costs" in told
    assert "Worst day: fleet-v1/test/" in told
    assert "The largest gap is in" in told
    assert "of a window's requests" in told


def test_what_does_not_fit_is_refused(run: Results) -> None:
    """Each with what would be valid."""
    with pytest.raises(FleetgymError, match="did you mean 'hold'"):
        explain([run], "holt", "gh")
    with pytest.raises(FleetgymError, match="compared with itself"):
        explain([run], "gh", "gh")
    with pytest.raises(FleetgymError, match="name one of these files only"):
        explain([run, run], "hold", "gh")
    few = dataclasses.replace(run, episodes=tuple(e for e in run.episodes if e.instance != TASKS[1]))
    alone = evaluate(["random"], TASKS[1], isolate="never")
    with pytest.raises(FleetgymError, match=f"gh has not played {TASKS[1]}"):
        explain([few, alone], "random", "gh")
    first = run.episodes[0]
    changed = dataclasses.replace(first, cost_usd=2.0 * first.cost_usd)
    with pytest.raises(FleetgymError, match="but its actions cost"):
        explain([dataclasses.replace(run, episodes=(changed, *run.episodes[1:]))], "hold", "gh")
    facts = dataclasses.replace(run.header.instances[TASKS[0]], content_hash="0" * 64)
    header = dataclasses.replace(run.header, instances={**run.header.instances, TASKS[0]: facts})
    with pytest.raises(FleetgymError, match="was another instance when it was played"):
        explain([dataclasses.replace(run, header=header)], "hold", "gh")


def test_a_header_of_other_options_is_refused_by_the_files_name(run: Results) -> None:
    """Its actions do not fit the instance, which the refusal says, with the run's file."""
    facts = {
        name: dataclasses.replace(f, options=(*f.options, 2)) for name, f in run.header.instances.items()
    }
    header = dataclasses.replace(run.header, instances=facts)
    other = dataclasses.replace(run, header=header, source="r.jsonl")
    with pytest.raises(
        FleetgymError, match=r"^r\.jsonl: .* on .*: \$\.action: expected whole numbers of shape"
    ):
        explain([other], run.episodes[0].agent, run.episodes[-1].agent)


def test_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It explains one file or two, draws a picture, prints JSON, and says how to get what is missing."""
    monkeypatch.chdir(tmp_path)
    evaluate(["hold"], "fleet-v0/toy", out="mine.jsonl", isolate="never")
    assert main(["explain", "mine.jsonl", "--against", "gh"]) == 2
    assert "fleetgym evaluate gh --suite fleet-v0/toy --out other.jsonl" in capsys.readouterr().err
    evaluate(["gh"], "fleet-v0/toy", out="gh.jsonl", isolate="never")
    assert main(["explain", "mine.jsonl", "--against", "gh.jsonl"]) == 0
    assert "hold costs" in capsys.readouterr().out
    evaluate(["gh", "agh"], "fleet-v0/toy", out="other.jsonl", isolate="never")
    assert main(["explain", "mine.jsonl", "--against", "other.jsonl"]) == 2
    assert "other.jsonl has episodes of gh, agh" in capsys.readouterr().err
    files = ["explain", "mine.jsonl", "other.jsonl", "--against", "gh"]
    assert main(files) == 2
    assert "name one: --agent NAME" in capsys.readouterr().err
    pytest.importorskip("matplotlib")
    assert main([*files, "--agent", "hold", "--plot", "worst.png", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["agent"] == "hold"
    assert sum(part["points"] for part in found["terms"]) == pytest.approx(found["percent"])
    assert (tmp_path / "worst.png").read_bytes().startswith(b"\x89PNG")
