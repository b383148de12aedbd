"""The reproduction of FastLLM: its small version runs, resumes, and counts what it says it counts."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fleetgym.files.finished_cells import read
from fleetgym.model.planning import Plan
from fleetgym.papers import __main__ as command
from fleetgym.papers import harness
from fleetgym.papers.fastllm import claims, measurements, measures, published, regime, rolling, statistics
from fleetgym.papers.fastllm.measurements import full, small

#: The verdicts of the committed page, in its order.
VERDICTS = (
    "holds|in part|in part|does not hold|in part|in part|in part|in part|holds|does not hold|in part|does not hold|"
    "does not hold|holds|holds|holds|in part|holds|undecided"
)


@pytest.fixture(scope="module")
def quick_run(tmp_path_factory):
    """Return the folder of a finished small run."""
    folder = tmp_path_factory.mktemp("fastllm")
    call = ["run", "fastllm", "--quick", "--kept", str(folder / "cells.jsonl"), "--docs", str(folder)]
    command.main(call)
    return folder


@pytest.mark.slow
def test_a_small_run_from_end_to_end(quick_run):
    """One command writes estimates and page; two instances are not enough for a verdict."""
    page = (quick_run / "reproduce-fastllm.md").read_text(encoding="utf-8")
    assert "nan" not in page
    assert page.count("**undecided: ") > 10
    found, kept = (read(harness.committed("fastllm", docs)) for docs in (quick_run, harness.DOCS))
    assert len(found) > 1000
    wanted = {name for name in kept if name.startswith("stress /") and name.endswith("; mean")}
    assert wanted <= set(found)
    again = harness.render("fastllm", found)
    assert again == page


def test_verdicts_are_the_known_ones():
    """The committed estimates give the verdicts that were published."""
    found = claims.all_claims(measures.Estimates(read(harness.committed("fastllm"))))
    assert [claim.verdict.partition(":")[0].partition(",")[0] for claim in found] == VERDICTS.split("|")


def test_what_is_committed_is_what_was_measured():
    """Estimates that are written and read are the same; one that was not measured is missed."""
    m = measures.Measures({})
    for unit, value in enumerate((1.0, 3.0)):
        m.add(("a", 0.5), unit, value)
        m.add(("b",), unit, 2.0 * value)
    first, change = m.mean("a", 0.5), m.change(("b",), ("a", 0.5))
    kept = measures.Estimates(json.loads(json.dumps(m.committed())))
    assert kept.mean("a", 0.5) == first
    assert kept.change(("b",), ("a", 0.5)).mean == change.mean == pytest.approx(100.0)
    assert math.isnan(kept.change(("b",), ("a", 0.5)).low)  # two pairs have no interval
    with pytest.raises(measures.MissingCell):
        kept.mean("b")


def test_gaps_leave_out_what_is_not_served():
    """A change over instances leaves out those at which another cell is above zero, and needs one to remain."""
    m = measures.Measures({})
    for unit, (new, old, unserved) in enumerate([(2.0, 1.0, 0), (900.0, 1.0, 1), (4.0, 2.0, 0)]):
        m.add(("new",), unit, new)
        m.add(("old",), unit, old)
        m.add(("unserved",), unit, unserved)
    assert m.change(("new",), ("old",)).mean > 1000.0
    assert m.change(("new",), ("old",), ("unserved",)).mean == pytest.approx(100.0)
    with pytest.raises(measures.MissingCell):
        m.change(("new",), ("old",), ("old",))


def test_full_run_has_enough_instances():
    """Every cell of the full page has at least 20 instances, trials or seeds, but the every-window MILP."""
    for batch in full():
        units: dict[str, set[int]] = {}
        for key in batch.keys:
            rest = {k: v for k, v in key.items() if k not in ("seed", "trial")}
            units.setdefault(json.dumps(rest), set()).add(key.get("seed", key.get("trial")))
        least = min(map(len, units.values()))
        assert least >= (3 if batch.keys[0].get("group") == "dm-5min" else 20)
    names = measurements.names(quick=False)
    assert len(names) == len(set(names)) > 2000
    assert {batch.experiment for batch in small()} == {batch.experiment for batch in full()}


def test_intervals_are_the_textbooks():
    """Student's interval, Wilson's, and the bootstrap of a constant ratio."""
    found = statistics.mean([1.0, 2.0, 3.0])
    assert (found.mean, found.n) == (2.0, 3)
    assert found.high == pytest.approx(2.0 + 4.302653 / np.sqrt(3), rel=1e-6)
    wilson = statistics.share([True] * 8 + [False] * 2)
    assert (wilson.low, wilson.high) == pytest.approx((49.02, 94.33), abs=0.01)
    ratio = statistics.change([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])
    assert (ratio.mean, ratio.low, ratio.high) == pytest.approx((100.0, 100.0, 100.0))


def test_too_few_pairs_have_no_interval():
    """Below three pairs there is a difference, but no interval, and no verdict follows."""
    found = statistics.change([2.0, 4.0], [1.0, 2.0])
    assert found.mean == pytest.approx(100.0)
    assert np.isnan(found.low)
    assert not found.low > 0.0
    assert "[" not in found.text()


def test_walk_is_the_papers():
    """Demand starts nominal, its log moves by sigma a window, and trials use the same normals at every sigma."""
    instance = regime.fresh("4-4-5", 1000)
    low, high = (rolling.demand(instance, 3, sigma, 288) for sigma in (0.01, 0.05))
    rate = np.array([w.rate_rps for w in instance.workloads])
    assert np.array_equal(low[0], rate)
    steps = np.diff(np.log(high), axis=0)
    assert steps.std() == pytest.approx(0.05, rel=0.05)
    assert np.allclose(np.log(high / rate), 5.0 * np.log(low / rate))


def test_keep_best_only_changes_for_the_better():
    """A clairvoyant keep-best never pays more in its window than it knew it could; start-up is the rent of grants."""
    instance = regime.fresh("4-4-5", 1001)
    rates = rolling.demand(instance, 0, 0.05, 12)
    day = rolling.Day(instance, rates, "deployed")
    series = rolling.plans(instance, "AGH", 1, rates)
    static = rolling.plans(instance, "AGH", rolling.WINDOWS, rates)
    kept = day.play(series, rolling.Policy("AGH", 1))
    alone = day.play(static, rolling.Policy("AGH", rolling.WINDOWS))
    assert set(static) == {0}
    assert kept["cost_usd"] <= alone["cost_usd"] * (1 + 1e-9) or kept["changes"] > 0
    assert alone["changes"] == alone["startup_usd"] == 0
    none = Plan(fleet=np.zeros(instance.num_configurations, dtype=np.int64))
    hold = regime.nominal(instance).hold_usd
    fleet = series[0].fleet
    assert day.startup_usd(none, series[0]) == pytest.approx(rolling.STARTUP_WINDOWS * float(fleet @ hold))
    assert day.startup_usd(series[0], none) == 0.0
    blind = day.play(series, rolling.Policy("AGH", 1, sees_now=False))
    assert blind["cost_usd"] >= kept["cost_usd"] * (1 - 0.05)


def test_variant_changes_what_it_says():
    """Budget, media penalties and SLOs of a variant are the instance's, changed."""
    instance = regime.fresh("4-4-5", 1000)
    other = regime.variant(instance, budget_usd=72.0, media_penalty=5.0, delay_slo=0.8, error_slo=1.25)
    assert other.budget.usd == pytest.approx(3.0)
    for old, new in zip(instance.workloads, other.workloads, strict=True):
        factor = 5.0 if old.id in ("image", "video") else 1.0
        assert new.unserved_usd == pytest.approx(factor * old.unserved_usd)
        assert new.mean_delay_slo_s == pytest.approx(0.8 * old.mean_delay_slo_s)
        assert new.error_slo == pytest.approx(1.25 * old.error_slo)


@pytest.mark.parametrize("method", ["GH", "AGH", "DM per-route"])
def test_plans_obey_the_first_stage(method):
    """As published, a plan breaks no row; one with everything on the slowest option does."""
    instance = regime.fresh("4-4-5", 1002)
    snapshot = regime.nominal(instance)
    plan = regime.first_stage(method, instance)
    assert regime.broken_rows(plan, snapshot) == []
    x = np.zeros_like(plan.diagnostics["x"])
    slowest = int(np.argmax((snapshot.delay_s / 1.0).sum(axis=0)))
    x[:, slowest] = 1.0
    fleet = np.zeros_like(plan.fleet)
    fleet[slowest] = 1
    broken = regime.broken_rows(Plan(fleet=fleet, diagnostics={"x": x}), snapshot)
    assert "delay" in broken


def test_published_gaps_follow_from_published_costs():
    """The transcription of Tables 2 and 4 agrees with the gaps that the paper prints."""
    for case, (pay, cost, violation) in published.BUDGET_GAPS.items():
        gh, agh = (published.BUDGETS[case, method] for method in ("GH", "AGH"))
        for mine, theirs, printed, slack in zip(
            agh, gh, (pay, cost, violation), (0.1, 1.0, 1.0), strict=True
        ):
            assert 100 * (mine / theirs - 1) == pytest.approx(printed, abs=slack)
    for (new, old), gaps in published.ROLLING_GAPS.items():
        for (a, _), (b, _), printed in zip(published.ROLLING[new], published.ROLLING[old], gaps, strict=True):
            assert 100 * (a / b - 1) == pytest.approx(printed, abs=0.5)
