"""Scores: the formula by hand, its interval, best-known costs and how they get better."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

from fleetgym.bounds.exact import optimal_fleets
from fleetgym.evaluation.jobs import play_actions
from fleetgym.evaluation.results import Results, hash_jobs
from fleetgym.evaluation.results_format import Costs, EpisodeResult, Header, InstanceFacts, Timing
from fleetgym.evaluation.run import evaluate
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.leaderboard.report import played_rows
from fleetgym.model.library import list_instances, load_instance, load_scenarios
from fleetgym.scoring.best_known import (
    BEST_KNOWN_FORMAT,
    BestKnown,
    BestKnownSet,
    best_known_path,
    load_best_known,
    offer,
    read_actions,
    read_best_known,
    verified_cost_usd,
    without_sum,
    write_actions,
    write_best_known,
)
from fleetgym.scoring.comparison import compare, nominal_actions, optimal_actions, reference_rows
from fleetgym.scoring.score import score
from fleetgym.scoring.statistics import FamilyMean, cluster_means, family_means
from fleetgym.scoring.table import make_table
from fleetgym.search.improvement import improve

HASH = "0" * 64
TOYS = list_instances("fleet-v0/toy")


def episode(agent: str, instance: str, scenario: int, cost_usd: float, **changes: object) -> EpisodeResult:
    """Return an episode of two windows that costs rent only."""
    base = EpisodeResult(
        agent=agent,
        instance=instance,
        scenario=scenario,
        scenario_id=f"s{scenario}",
        seed=0,
        actions=((0, 0, 1),),
        costs=Costs(**{**dict.fromkeys(Costs.__dataclass_fields__, 0.0), "rental": cost_usd}),
        cost_usd=cost_usd,
        cost_per_window_usd=(cost_usd / 2, cost_usd / 2),
        miss_share=0.1,
        unserved_share=0.05,
        forced_outages=0,
        denied=0,
        lost=0,
        failure=None,
        timing=Timing(reset_cpu_s=1.0, act_cpu_s=(0.004, 0.006)),
    )
    return dataclasses.replace(base, **changes)  # type: ignore[arg-type]


def run(*episodes: EpisodeResult, families: dict[str, str]) -> Results:
    """Return the results of these episodes."""
    facts = {
        name: InstanceFacts(content_hash=HASH, family=family, num_windows=2, options=(2,))
        for name, family in families.items()
    }
    header = Header(
        format="fleetgym-results-1",
        version="0",
        suite="made-up",
        num_jobs=len(episodes),
        jobs_hash=hash_jobs(e.key for e in episodes),
        instances=facts,
    )
    return Results(header, episodes)


def known(**values: float) -> BestKnownSet:
    """Return best-known costs; ``a0`` is scenario 0 of instance ``a``."""
    tasks = {
        f"{name[:-1]}#{name[-1]}": BestKnown(
            instance_hash=HASH,
            value_usd=usd,
            bound_usd=None,
            method="made up",
            date="2026-11-01",
            proven=False,
        )
        for name, usd in values.items()
    }
    return BestKnownSet(format=BEST_KNOWN_FORMAT, name="bks-2026-11", tasks=tasks)


FAMILIES = {"a": "ou", "b": "ou", "c": "drop"}
TASKS = [("a", 0, 2.0), ("a", 1, 4.0), ("b", 0, 1.0), ("c", 0, 8.0)]  # instance, scenario, best-known


def episodes(agent: str, *ratios: float) -> list[EpisodeResult]:
    """Return an agent's episodes on `TASKS` at multiples of best-known."""
    return [episode(agent, i, k, b * r) for (i, k, b), r in zip(TASKS, ratios, strict=True)]


BEST = known(a0=2.0, a1=4.0, b0=1.0, c0=8.0)


# -- the formula


def test_headline_by_hand() -> None:
    """Scenarios within an instance, instances within a family, families: each level a geometric mean."""
    table = score(run(*episodes("x", 1.0, 4.0, 8.0, 1.5), families=FAMILIES), BEST)
    a, b = math.sqrt(1.0 * 4.0), 8.0
    ou, drop = math.sqrt(a * b), 1.5
    (row,) = table.rows
    assert row.families == pytest.approx({"drop": 50.0, "ou": 100 * (ou - 1)})
    assert row.score == pytest.approx(100 * (math.sqrt(ou * drop) - 1))
    assert row.cost_usd == pytest.approx(2 + 16 + 8 + 12)
    assert (row.miss_share, row.unserved_share, row.failures) == (pytest.approx(0.1), pytest.approx(0.05), 0)
    assert row.cpu_ms_per_decision == pytest.approx(5.0)
    assert row.reset_cpu_s == pytest.approx(1.0)
    first, *rest = episodes("x", 1.0, 4.0, 8.0, 1.5)
    (torn,) = score(run(dataclasses.replace(first, timing=None), *rest, families=FAMILIES), BEST).rows
    assert (torn.score, torn.cpu_ms_per_decision, torn.reset_cpu_s) == (row.score, None, None)
    assert (table.num_tasks, table.families, table.best_known) == (4, ("drop", "ou"), "bks-2026-11")


def test_merged_families_count_as_one() -> None:
    """Their instances are those of one family, in scores, tables and shares; each has a column of its own."""
    ratio = {"week": 2.0, "market": 8.0, "tail-v2": 3.0, "split": 5.0}
    names = {family: f"fleet-v2/dev/{family}-s-01" for family in ratio}
    best = known(**{f"{name}0": 1.0 for name in names.values()})
    played = [episode("x", names[f], 0, ratio[f]) for f in ratio] + [
        episode("y", n, 0, 1.0) for n in names.values()
    ]
    results = run(*played, families={name: family for family, name in names.items()})
    table = score(results, best)
    expected = 100 * (math.exp((math.log(2) + math.log(8) + math.log(3 * 5) / 2) / 3) - 1)
    assert table.scored == ("market", "split", "tail-v2", "week")
    assert table.row("x").score == pytest.approx(expected)
    assert table.row("x").families == pytest.approx({f: 100 * (r - 1) for f, r in ratio.items()})
    other = make_table(played_rows(results, "best-in-run")[1])
    assert [row.score for row in other.rows] == pytest.approx([0.0, expected])
    assert other.rows[1].families == pytest.approx(table.row("x").families)
    assert set(other.counts_as.values()) == {"week+ou-v2", "drop-v2+market", "budget-v2+tail-v2+split"}
    total = sum(other.rows[1].breakdown.values())
    assert total == pytest.approx((2 + 8 + (3 + 5) / 2) / 3)


def test_families_that_are_shown_only() -> None:
    """Where a set names the families of its score the others have a column; alone, they are all that there is."""
    names = {"a": "fleet-v1/dev/trace-m-101", "b": "fleet-v1/dev/grw-s-101", "c": "fleet-v1/dev/drop-s-101"}
    families = {names["a"]: "trace", names["b"]: "grw", names["c"]: "drop"}
    ratios, usd = {"a": 2.0, "b": 16.0, "c": 8.0}, {"a": 3.0, "b": 5.0, "c": 7.0}
    best = known(**{f"{names[k]}0": usd[k] for k in names})
    played = [episode("x", names[k], 0, usd[k] * ratios[k]) for k in names]
    table = score(run(*played, families=families), best)
    (row,) = table.rows
    assert (table.families, table.scored) == (("drop", "grw", "trace"), ("drop", "trace"))
    assert row.families == pytest.approx({"drop": 700.0, "grw": 1500.0, "trace": 100.0})
    assert row.score == pytest.approx(100 * (math.sqrt(2.0 * 8.0) - 1))
    assert row.cost_usd == pytest.approx(3.0 * 2.0 + 7.0 * 8.0)
    text = str(table)
    assert "(grw)" in text.splitlines()[0]
    assert "Families in (brackets)" in text
    alone = score(run(played[1], families={names["b"]: "grw"}), best)
    assert alone.scored == ("grw",)
    assert alone.rows[0].score == pytest.approx(1500.0)
    assert "bracket" not in str(alone)


def test_the_interval_is_of_the_families_that_count() -> None:
    """A family that is shown only widens nothing, however far its instances are apart."""
    families = {
        f"fleet-v1/dev/{family}-s-10{k}": family for family in ("drop", "grw", "trace") for k in (1, 2, 3)
    }
    best = known(**{f"{name}0": 1.0 for name in families})
    played = [episode("x", name, 0, 1.0 + k**3) for k, name in enumerate(families)]
    every = score(run(*played, families=families), best).rows[0]
    counted = [e for e in played if families[e.instance] != "grw"]
    assert every.interval == score(run(*counted, families=families), best).rows[0].interval
    assert every.interval is not None


def test_best_known_itself_scores_zero_and_cheaper_is_negative() -> None:
    """Nothing is clipped: an agent that beats a best-known cost shows it."""
    results = run(*episodes("best", 1, 1, 1, 1), *episodes("better", 1, 1, 1, 0.9), families=FAMILIES)
    table = score(results, BEST)
    assert [row.agent for row in table.rows] == ["better", "best"]
    assert table.row("best").score == 0.0
    assert table.row("better").score < 0.0


def test_scores_do_not_depend_on_money_or_size() -> None:
    """Multiplying an instance's costs by any factor, or repeating its scenarios, changes no score."""
    rng = np.random.default_rng(3)
    sizes = {("f", "a"): 3, ("f", "b"): 2, ("g", "c"): 4}
    logs = [(cluster, value) for cluster, size in sizes.items() for value in rng.random(size)]
    once, repeated = cluster_means(logs), cluster_means(logs * 3)
    assert FamilyMean.of(once).mean == pytest.approx(FamilyMean.of(repeated).mean)
    assert family_means(once)["g"] == pytest.approx(np.mean([v for c, v in logs if c == ("g", "c")]))


def test_the_interval_is_of_the_means_of_instances() -> None:
    """Scenarios of an instance count as one number; the bounds are those of the mean ln ratio, in percent."""
    ratios = {"x": [1.1], "y": [1.5], "z": [1.2, 1.8], "u": [1.0], "v": [2.7]}
    family = {"x": "a", "y": "a", "z": "a", "u": "b", "v": "b"}
    played = [episode("x", name, k, 100.0 * r) for name, of in ratios.items() for k, r in enumerate(of)]
    row = score(
        run(*played, families=family), known(**{f"{e.instance}{e.scenario}": 100.0 for e in played})
    ).rows[0]
    means = {(family[name], name): float(np.mean(np.log(of))) for name, of in ratios.items()}
    expected = FamilyMean.of(means).interval()
    assert expected is not None
    assert row.interval == pytest.approx(100.0 * np.expm1(expected))


def test_no_interval_from_one_instance() -> None:
    """A family with a single instance says nothing about its spread."""
    assert score(run(*episodes("x", 1, 1, 1, 1), families=FAMILIES), BEST).rows[0].interval is None


def test_a_results_file_is_scored_by_its_name(tmp_path: Path) -> None:
    """Who has a file need not read it first."""
    results = evaluate(["hold"], "fleet-v0/toy/two-pools", out=tmp_path / "run.jsonl")
    assert score(tmp_path / "run.jsonl") == score(str(tmp_path / "run.jsonl")) == score(results)


def test_what_cannot_be_scored() -> None:
    """Missing values, changed instances, incomplete runs: an error that says what to do."""
    results = run(*episodes("x", 1, 1, 1, 1), families=FAMILIES)
    with pytest.raises(FleetgymError, match="no best-known cost of c#0"):
        score(results, known(a0=2.0, a1=4.0, b0=1.0))
    changed = dataclasses.replace(BEST.tasks["a#0"], instance_hash="1" * 64)
    with pytest.raises(FleetgymError, match="a is not the one that bks-2026-11"):
        score(results, dataclasses.replace(BEST, tasks={**BEST.tasks, "a#0": changed}))
    partial = Results(dataclasses.replace(results.header, num_jobs=5), results.episodes)
    with pytest.raises(FleetgymError, match="4 of 5 episodes are done"):
        score(partial, BEST)
    uneven = run(*episodes("x", 1, 1, 1, 1), *episodes("y", 1, 1, 1, 1)[:2], families=FAMILIES)
    with pytest.raises(FleetgymError, match="y has not played b#0"):
        score(uneven, BEST)
    with pytest.raises(FleetgymError, match="best-known, best-in-run"):
        score(results, BEST, relative_to="nothing")


def test_best_in_run_needs_no_values() -> None:
    """Tasks without best-known costs are scored against the cheapest agent, reference_rows apart."""
    results = run(*episodes("x", 1, 2, 1, 1), *episodes("y", 2, 1, 1, 1), families=FAMILIES)
    table = score(results, relative_to="best-in-run", extra=episodes("ruler", 0.5, 0.5, 0.5, 0.5))
    assert table.best_known == "best-in-run"
    assert table.row("x").score == pytest.approx(100 * (2 ** (1 / 8) - 1))
    assert table.row("ruler").score == pytest.approx(-50 - 0, abs=15)
    assert table.row("ruler").is_reference


def test_table_lines_up_and_is_plain_data() -> None:
    """Every line of numbers has the head's width, and the table survives JSON."""
    results = run(*episodes("x", 1, 2, 1, 1), *episodes("a-longer-name", 2, 1, 1, 100), families=FAMILIES)
    table = score(results, BEST, extra=episodes("ruler", 3, 3, 3, 3))
    lines = str(table).splitlines()
    rows = lines[: 2 + len(table.rows)]
    assert len({len(line) for line in rows}) == 1
    assert "(ruler)" in lines[3] or "(ruler)" in lines[4]
    assert json.loads(json.dumps(table.to_dict(), allow_nan=False))["rows"][0]["agent"] == "x"


# -- best-known costs


@pytest.mark.parametrize("name", TOYS)
def test_toy_values_are_proven_optima(name: str) -> None:
    """The file that is published holds the dynamic program's optimum of every toy."""
    best = load_best_known([name])
    for k, scenario in enumerate(load_scenarios(name)):
        value = best.find(name, k, load_instance(name).content_hash)
        assert value.proven
        assert value.value_usd == pytest.approx(optimal_fleets(load_instance(name), scenario).cost, rel=1e-9)


def test_published_actions_cost_what_is_claimed() -> None:
    """Every toy's stored actions, replayed by both implementations, give the value in the file."""
    folder = ROOT / "leaderboard" / "best_known"
    best = read_best_known(best_known_path("fleet-v0"))
    for name in TOYS:
        actions = read_actions(folder, name, 0)
        value = best.tasks[f"{name}#0"].value_usd
        assert verified_cost_usd(name, 0, actions, by_reference=True) == pytest.approx(value, rel=1e-9)


def test_offer_takes_only_what_is_cheaper() -> None:
    """A dearer sequence is refused, a cheaper one accepted, and nothing beats a proof."""
    name = "fleet-v0/toy/drop"
    poor, good = nominal_actions(name), optimal_actions(name, 0)
    task = {"instance": name, "scenario": 0, "method": "test", "date": "2026-11-02"}
    first = offer(None, actions=poor, **task)  # type: ignore[arg-type]
    assert first is not None
    assert not first.proven
    second = offer(first, actions=good, by_reference=True, proven=True, **task)  # type: ignore[arg-type]
    assert second is not None
    assert second.value_usd < first.value_usd
    assert second.bound_usd == second.value_usd
    assert offer(second, actions=poor, **task) is None  # type: ignore[arg-type]
    wrong = dataclasses.replace(second, value_usd=second.value_usd * 2, bound_usd=second.value_usd * 2)
    with pytest.raises(FleetgymError, match="less than the proven optimum"):
        offer(wrong, actions=good, **task)  # type: ignore[arg-type]


def test_a_proof_above_what_was_achieved_is_no_proof() -> None:
    """Actions that are said to be optimal and cost more than what is known: one of the two is wrong."""
    task = {"instance": "fleet-v0/toy/drop", "scenario": 0, "method": "test", "date": "2026-11-02"}
    known = offer(None, actions=optimal_actions("fleet-v0/toy/drop", 0), **task)
    worse = nominal_actions("fleet-v0/toy/drop")
    with pytest.raises(FleetgymError, match=r"is said to cost at least .*, but 34\..* was achieved"):
        offer(known, actions=worse, proven=True, **task)
    assert offer(known, actions=worse, **task) is None


def test_best_known_files_are_checked(tmp_path: Path) -> None:
    """Round trip; a bound above its value and an unproven proof are refused with their place."""
    path = tmp_path / "best_known.json"
    named = dataclasses.replace(BEST, tasks={f"set/dev/{task}": best for task, best in BEST.tasks.items()})
    write_best_known(path, named)
    found = read_best_known(path)
    assert {task: without_sum(best) for task, best in found.tasks.items()} == {
        task: without_sum(best) for task, best in named.tasks.items()
    }
    assert all(best.sha256 == best.checksum(named.name, task) for task, best in found.tasks.items())
    for changes, where in (({"bound_usd": 9.0}, "bound_usd"), ({"proven": True}, "proven")):
        bad = dataclasses.replace(BEST.tasks["a#0"], **changes)
        write_best_known(path, dataclasses.replace(BEST, tasks={"set/dev/a#0": bad}))
        with pytest.raises(DataError, match=where):
            read_best_known(path)


def test_stored_actions_belong_to_their_instance(tmp_path: Path) -> None:
    """Actions made for another version of the instance are refused."""
    name = "fleet-v0/toy/drop"
    best = offer(
        None, instance=name, scenario=0, actions=nominal_actions(name), method="m", date="2026-11-02"
    )
    assert best is not None
    write_actions(tmp_path, name, 0, best, nominal_actions(name))
    assert np.array_equal(read_actions(tmp_path, name, 0), nominal_actions(name))
    write_actions(tmp_path, name, 0, dataclasses.replace(best, instance_hash=HASH), nominal_actions(name))
    with pytest.raises(DataError, match="another version"):
        read_actions(tmp_path, name, 0)


# -- improvement


@pytest.mark.parametrize("name", TOYS)
def test_local_search_improves_towards_the_optimum(name: str) -> None:
    """It never gets dearer than it started, never beats the proof, and its cost is that of a replay."""
    instance, scenario = load_instance(name), load_scenarios(name)[0]
    found = improve(instance, scenario, nominal_actions(name), max_steps=1500)
    optimum = optimal_fleets(instance, scenario).cost
    assert optimum * (1 - 1e-9) <= found.cost_usd <= found.start_usd
    assert found.cost_usd <= 1.25 * optimum
    assert play_actions(name, 0, found.actions).cost_usd == pytest.approx(found.cost_usd, rel=1e-12)


@pytest.mark.parametrize("name", TOYS)
def test_local_search_finds_slots_that_its_start_does_not_use(name: str) -> None:
    """From an episode that asks for nothing, one answer of every slot to the others comes near the optimum."""
    instance, scenario = load_instance(name), load_scenarios(name)[0]
    nothing = np.zeros_like(nominal_actions(name))
    found = improve(instance, scenario, nothing, max_steps=150)
    assert found.cost_usd <= 1.25 * optimal_fleets(instance, scenario).cost


def test_local_search_is_seeded_and_bounded() -> None:
    """The same seed finds the same actions, within the number of windows allowed."""
    name = "fleet-v0/toy/group"
    instance, scenario = load_instance(name), load_scenarios(name)[0]
    start, other = nominal_actions(name), optimal_actions(name, 0)
    once, twice = (improve(instance, scenario, start, max_steps=400, seed=4) for _ in range(2))
    assert np.array_equal(once.actions, twice.actions)
    assert once.steps <= 400 + 17 * instance.num_windows  # options of the last answer
    helped = improve(instance, scenario, start, others=[other], max_steps=4000)
    assert helped.cost_usd == pytest.approx(optimal_fleets(instance, scenario).cost)


# -- reference_rows


def test_reference_rows_frame_the_agents() -> None:
    """On toys the clairvoyant scores 0 and nobody is below it; nominal-static equals holding the nominal fleet."""
    _, table = compare(["hold", "random", "gh"], "fleet-v0/toy", scenarios=(k for k in [0]))
    assert table.row("clairvoyant").score == pytest.approx(0.0, abs=1e-7)
    assert table.rows[0].agent == "clairvoyant"
    assert table.row("nominal-static").score == pytest.approx(table.row("hold").score)
    assert table.row("nominal-static").is_reference
    results = evaluate("hold", "fleet-v0/toy/drop")
    assert {e.agent for e in reference_rows(results)} == {"nominal-static"}


def test_compare_asks_for_best_known_costs_first(tmp_path: Path) -> None:
    """Nothing is played when the scores could not be computed in the end."""
    with pytest.raises(FleetgymError, match="no best-known cost of fleet-v0/toy/drop#0"):
        compare("hold", "fleet-v0/toy/drop", best_known=BEST, out=tmp_path / "r.jsonl")
    assert not (tmp_path / "r.jsonl").exists()
    _, table = compare("hold", "fleet-v0/toy/drop", relative_to="best-in-run", out=tmp_path / "r.jsonl")
    assert table.row("hold").score == 0.0
