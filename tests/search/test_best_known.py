"""Best-known costs get better: the hindsight search, `fleetgym best-known`, and what a proposal has to survive."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toys import action_sizes, random_actions, random_instance, random_scenario

from fleetgym.bounds import hindsight_bound
from fleetgym.bounds.exact import optimal_fleets
from fleetgym.cli.parser import main
from fleetgym.evaluation.executors import Player, play
from fleetgym.evaluation.jobs import play_actions
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.library import list_instances, load_instance, load_scenarios
from fleetgym.model.sets import instances_folder
from fleetgym.reference import replay
from fleetgym.scoring.best_known import (
    BestKnown,
    best_known_path,
    load_best_known,
    offer,
    read_actions,
    read_best_known,
    write_actions,
    write_best_known,
)
from fleetgym.scoring.comparison import clairvoyant_actions, nominal_actions, optimal_actions
from fleetgym.search.best_known_search import MAX_REPLAYED, cheapest, next_name, receding_actions
from fleetgym.search.hindsight import plan_in_hindsight, rounded_actions
from fleetgym.search.improvement import improve
from fleetgym.search.propose import Candidate, propose, read_candidates, standings

DROP = "fleet-v0/toy/drop"
TOYS = list_instances("fleet-v0/toy")


# -- the search


@pytest.mark.parametrize("name", TOYS)
def test_hindsight_search_solves_toys(name: str) -> None:
    """From the relaxation and the nominal fleet, the search ends within 2 % of the proven optimum."""
    instance, scenario = load_instance(name), load_scenarios(name)[0]
    serving = hindsight_bound(instance, scenario).serving
    found = plan_in_hindsight(instance, scenario, serving, starts=[nominal_actions(name)], max_steps=6_000)
    optimum = optimal_fleets(instance, scenario).cost
    assert optimum * (1 - 1e-9) <= found.cost_usd <= 1.02 * optimum
    assert play_actions(name, 0, found.actions).cost_usd == pytest.approx(found.cost_usd, rel=1e-12)


def test_hindsight_search_starts_from_episodes_alone() -> None:
    """Where no relaxation was solved it starts from what agents did; from nothing it cannot start."""
    instance, scenario = load_instance(DROP), load_scenarios(DROP)[0]
    start = nominal_actions(DROP)
    found = plan_in_hindsight(instance, scenario, None, starts=[start], max_steps=3_000)
    assert found.cost_usd < play_actions(DROP, 0, start).cost_usd
    with pytest.raises(ValueError, match="start from"):
        plan_in_hindsight(instance, scenario, None, max_steps=3_000)


@pytest.mark.parametrize("seed", range(8))
def test_search_tells_the_truth_on_random_instances(seed: int) -> None:
    """Never dearer than the start, valid actions, the reference evaluator's cost, and the same from the same seed."""
    instance = random_instance(seed, num_windows=6)
    scenario = random_scenario(instance, seed)
    start = np.array(random_actions(instance, seed))
    once, twice = (improve(instance, scenario, start, max_steps=600, seed=1) for _ in range(2))
    assert np.array_equal(once.actions, twice.actions)
    assert once.cost_usd <= once.start_usd
    assert np.all((once.actions >= 0) & (once.actions < action_sizes(instance)))
    judged = sum(step["cost"] for step in replay(instance, scenario, once.actions.tolist()))
    assert once.cost_usd == pytest.approx(judged, rel=1e-9, abs=1e-9)


def test_rounding_asks_early_and_once_per_slot() -> None:
    """A replica is asked for as many windows early as it takes to start; an exclusive slot gets one option."""
    startup = load_instance("fleet-v0/toy/startup")  # one configuration, two windows to start
    serving = np.zeros((10, 1))
    serving[5:7] = 1.4
    assert rounded_actions(startup, serving, 0.3)[:, 0].tolist() == [0, 0, 0, 2, 2, 2, 2, 0, 0, 0]
    assert rounded_actions(startup, serving, 0.5)[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 1, 0, 0, 0]
    group = load_instance("fleet-v0/toy/group")
    both = np.tile([0.4, 0.9, 0.0], (10, 1))
    assert rounded_actions(group, both, 0.3)[:, 0].tolist() == [2] * 10


# -- offers


def test_offers_keep_the_bound_and_respect_it() -> None:
    """A better value keeps the bound that is known; a cost below a bound is an error, not a record."""
    task = {"instance": DROP, "scenario": 0, "method": "test", "date": "2026-11-02"}
    poor = offer(None, actions=nominal_actions(DROP), **task)  # type: ignore[arg-type]
    assert poor is not None
    bounded = dataclasses.replace(poor, bound_usd=30.0)
    better = offer(bounded, actions=optimal_actions(DROP, 0), by_reference=True, **task)  # type: ignore[arg-type]
    assert better is not None
    assert (better.value_usd, better.bound_usd) == (pytest.approx(34.0), 30.0)
    wrong = dataclasses.replace(poor, bound_usd=35.0)
    with pytest.raises(FleetgymError, match="less than the lower bound 35"):
        offer(wrong, actions=optimal_actions(DROP, 0), **task)  # type: ignore[arg-type]


@pytest.fixture
def poorer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the instances in which the drop toy's best-known cost is poor and unproven."""
    source, folder = instances_folder(), tmp_path / "instances"
    folder.mkdir()
    (folder / "manifest.json").symlink_to(source / "manifest.json")
    (folder / "fleet-v0").mkdir()
    for part in ("toy", "dev"):
        (folder / "fleet-v0" / part).symlink_to(source / "fleet-v0" / part)
    known = read_best_known(best_known_path("fleet-v0"))
    poor = dataclasses.replace(known.tasks[f"{DROP}#0"], value_usd=40.0, bound_usd=33.0, proven=False)
    monkeypatch.setenv("FLEETGYM_INSTANCES", str(folder))
    write_best_known(
        best_known_path("fleet-v0"), dataclasses.replace(known, tasks={**known.tasks, f"{DROP}#0": poor})
    )
    return folder


def actions_file(folder: Path, actions: np.ndarray, name: str = DROP) -> Path:
    """Return an actions file; the value it claims is a lie, which nobody believes."""
    claim = BestKnown(
        instance_hash=load_instance(name).content_hash,
        value_usd=1e-3,
        bound_usd=None,
        method="x",
        date="2026-11-02",
        proven=False,
    )
    write_actions(folder, name, 0, claim, actions)
    return folder / f"{name}.0.json.gz"


def test_propose_accepts_what_is_cheaper(
    poorer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A cheaper actions file: exit code 0, its cost as replayed, and an actions file as the project keeps them."""
    path, out = actions_file(tmp_path / "mine", optimal_actions(DROP, 0)), tmp_path / "out"
    assert (
        main(["best-known", "propose", str(path), "--out", str(out), "--date", "2026-11-03", "--json"]) == 0
    )
    (found,) = json.loads(capsys.readouterr().out)
    assert found["task"] == f"{DROP}#0"
    assert (found["cost_usd"], found["known_usd"]) == (pytest.approx(34.0), 40.0)
    assert (found["better"]["date"], found["better"]["bound_usd"]) == ("2026-11-03", 33.0)
    assert np.array_equal(read_actions(out, DROP, 0), optimal_actions(DROP, 0))
    assert main(["best-known", "propose", str(path)]) == 0
    assert "cheaper by 15.00 %" in capsys.readouterr().out


def test_propose_refuses_what_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing cheaper: exit code 1. A file that is none: 1 with its name. No file: 2."""
    path = actions_file(tmp_path, nominal_actions(DROP))
    assert main(["best-known", "propose", str(path), "--out", str(tmp_path / "out")]) == 1
    assert "not cheaper" in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert main(["best-known", "propose", str(other)]) == 1
    assert "expected an actions file" in capsys.readouterr().err
    assert main(["best-known", "propose", str(tmp_path / "nothing.json")]) == 2


def test_propose_reads_results(poorer: Path, tmp_path: Path) -> None:
    """Every episode of a run is a candidate; a later one must beat the earlier ones."""
    path = tmp_path / "run.jsonl"
    evaluate(["random", "hold"], DROP, out=path)
    found = propose(read_candidates(path), "2026-11-03")
    assert [proposal.candidate.method for proposal in found] == ["random", "hold"]
    best = np.inf
    for proposal in found:
        assert (proposal.better is not None) == (proposal.cost_usd < min(40.0, best))
        best = min(best, proposal.cost_usd)


def test_actions_of_another_task_are_refused(tmp_path: Path) -> None:
    """A file under the wrong name, of another instance version, or of a scenario that is not there."""
    path = actions_file(tmp_path, nominal_actions(DROP))
    wrong = tmp_path / "fleet-v0/toy/group.0.json.gz"
    wrong.write_bytes(path.read_bytes())
    with pytest.raises(DataError, match="holds fleet-v0/toy/drop#0, not fleet-v0/toy/group#0"):
        read_actions(tmp_path, "fleet-v0/toy/group", 0)


def test_show(capsys: pytest.CaptureFixture[str]) -> None:
    """Every task has a line; JSON has the gap."""
    assert main(["best-known", "show", "fleet-v0/toy"]) == 0
    text = capsys.readouterr().out
    assert all(f"{name}#0" in text for name in TOYS)
    assert "7 tasks, 7 proven optimal" in text
    assert main(["best-known", "show", "fleet-v0/toy", "--json"]) == 0
    assert {row["gap"] for row in json.loads(capsys.readouterr().out)} == {0.0}
    assert main(["best-known", "show", "fleet-v0/nothing"]) == 2
    assert len(standings([("fleet-v0/toy/drop", 0)])) == 1


# -- the clairvoyant


def test_clairvoyant_plays_the_stored_actions() -> None:
    """On dev tasks the clairvoyant achieves exactly the best-known cost, from actions outside the package."""
    name = "fleet-v0/dev/ou-s-001"
    actions = clairvoyant_actions(name, 0, proven=False)
    assert actions is not None
    value = read_best_known(best_known_path("fleet-v0")).tasks[f"{name}#0"].value_usd
    assert play_actions(name, 0, actions).cost_usd == pytest.approx(value, rel=1e-9)


def test_only_the_cheapest_claims_are_replayed() -> None:
    """A few of each task, whichever files they come from."""
    claims = (5.0, 3.0, 2.0, 9.0, 1.0)
    made = [Candidate(DROP, k, np.zeros((1, 1), int), "x", usd) for k in (0, 1) for usd in claims]
    kept = [(c.scenario, c.claimed_usd) for c in cheapest(made)]
    assert sorted(kept) == [(k, usd) for k in (0, 1) for usd in (1.0, 2.0, 3.0)]
    assert len(kept) == 2 * MAX_REPLAYED


def test_a_frozen_name_is_not_used_again() -> None:
    """The present set keeps its name until a release freezes it; then it gets the next one of the month."""
    known = read_best_known(best_known_path("fleet-v0"))
    assert next_name(known, set(), "2026-12-01") == known.name
    assert next_name(None, set(), "2026-12-01") == "bks-2026-12"
    renamed = dataclasses.replace(known, name="bks-2026-11b")
    assert next_name(renamed, {"bks-2026-11", "bks-2026-11b"}, "2026-11-30") == "bks-2026-11c"


def test_a_receding_horizon_plan_is_one_of_the_day() -> None:
    """Told the windows to come, it costs no less than the optimum and less than the fleet of the first window."""
    name = "fleet-v0/toy/two-pools"
    instance, scenario = load_instance(name), load_scenarios(name)[0]
    played = replay(instance, scenario, receding_actions(instance, scenario, 4).tolist())
    told = sum(window["cost"] for window in played)
    held = evaluate(["hold"], name).episodes[0].cost_usd
    optimum = load_best_known([name]).tasks[f"{name}#0"].value_usd
    assert optimum - 1e-9 <= told <= held


# -- fleetgym best-known search

SHORT = "fleet-v0/dev/fastllm-4-4-5-001"
FEW = ("--agents", "hold", "--steps", "100", "--no-bounds")


def test_search_writes_what_it_finds_and_resumes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A toy is proven, a day improved; the same search finds the same bytes; a resumed one has nothing to do."""
    words = ["best-known", "search", "fleet-v0/toy/two-pools", SHORT, *FEW, "--date", "2026-11-27"]
    resume = ["--resume", str(tmp_path / "done.jsonl")]
    for folder in ("a", "b"):
        assert main([*words, "--out", str(tmp_path / folder), *(resume if folder == "a" else [])]) == 0
    printed = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert printed == 2 * [f"{words[2]}#0", f"{SHORT}#0", f"{SHORT}#1"]
    values = [tmp_path / folder / "fleet-v0" / "best_known.json" for folder in ("a", "b")]
    assert values[0].read_bytes() == values[1].read_bytes()
    assert read_best_known(values[0]).tasks[f"{words[2]}#0"].proven
    assert main([*words, "--out", str(tmp_path / "a"), *resume]) == 0
    assert capsys.readouterr().out == ""


@pytest.fixture
def nothing_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give `fleet-v0` without best-known costs."""
    shutil.copytree(instances_folder() / "fleet-v0", tmp_path / "sets" / "fleet-v0")
    shutil.copy(instances_folder() / "manifest.json", tmp_path / "sets")
    (tmp_path / "sets" / "fleet-v0" / "best_known.json").unlink()
    monkeypatch.setenv("FLEETGYM_INSTANCES", str(tmp_path / "sets"))


@pytest.mark.usefixtures("nothing_known")
def test_each_result_reaches_its_own_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers end in any order, and what is written is the same."""

    def backwards(player: Player, jobs: Sequence[Any], workers: int = 1) -> Iterator[Any]:
        return play(player, jobs[::-1], workers)

    def search(folder: Path) -> dict[str, list[bytes] | bytes]:
        words = ["best-known", "search", "fleet-v0/toy/two-pools", SHORT, *FEW, "--date", "2026-11-27"]
        names = ["--name", "bks-2026-11-mine", "--out", str(folder), "--resume", str(folder / "done.jsonl")]
        assert main([*words, *names]) == 0
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.json*")}
        return files | {"done.jsonl": sorted(files["done.jsonl"].splitlines())}

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    forwards = search(tmp_path / "a")
    monkeypatch.setattr("fleetgym.search.best_known_search.play", backwards)
    assert search(tmp_path / "b") == forwards
    assert len(forwards) == 5  # the values, what is done, and the actions of three tasks


@pytest.mark.usefixtures("nothing_known")
def test_search_finds_what_nobody_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without known values the actions that it writes cost what it says."""
    name, out = "fleet-v0/dev/ou-s-001", tmp_path / "out"
    words = ["best-known", "search", name, "--steps", "100", "--no-bounds", "--judge", "--out", str(out)]
    assert main([*words, "--name", "bks-2026-11-mine"]) == 0
    found = read_best_known(out / "fleet-v0" / "best_known.json").tasks[f"{name}#0"]
    actions = read_actions(out / "actions", name, 0)
    assert play_actions(name, 0, actions).cost_usd == pytest.approx(found.value_usd, rel=1e-9)
    assert "(new)" in capsys.readouterr().out


def test_search_keeps_to_its_time_and_its_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is started after the limit; a frozen name is refused; a probe writes nothing."""
    words = ["best-known", "search", SHORT, *FEW, "--out", str(tmp_path / "out")]
    assert main([*words, "--name", "bks-2026-11"]) == 2
    assert "frozen" in capsys.readouterr().err
    assert main([*words, "--probe", "1"]) == 0
    assert "1 tasks: " in capsys.readouterr().out
    assert not (tmp_path / "out").exists()
    assert main([*words, "--time-limit", "0.001"]) == 0  # a task, however long it takes
    assert "1 tasks were not started" in capsys.readouterr().err
    assert main(["best-known", "search", "fleet-v1/dev/ou-s-999"]) == 2
    assert "fleet-v1/dev/ou-s-999" in capsys.readouterr().err
