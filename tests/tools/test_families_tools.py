"""The tools that judge families: gates on synthetic costs, pages from synthetic records."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from places import ROOT

import fleetgym
from fleetgym.files.errors import UnknownNameError
from tools import check_families, family_pages
from tools.family_statistics import FAMILIES


def costs(
    hold: float = 1.2, last: float = 1.1, empty: float = 6.0, bound: float = math.nan
) -> dict[str, np.ndarray]:
    """Return costs of one instance on two scenarios, relative to the best agent."""
    table = {"hold": hold, check_families.LAST[0]: last, "descent": 1.0, "empty": empty, "bound": bound}
    return {agent: np.array([100.0, 200.0]) * value for agent, value in table.items()}


@pytest.mark.parametrize(
    ("changes", "passing"),
    [
        ({}, True),
        ({"hold": 1.07}, False),
        ({"last": 1.04}, False),
        ({"empty": 3.9}, False),
        ({"empty": 12.1}, False),
    ],
)
def test_each_gate_decides(changes: dict[str, float], passing: bool) -> None:
    """One number past its gate is enough to fail."""
    assert check_families.passes(costs(**changes), np.arange(2)) is passing


def test_serving_nobody_is_compared_with_the_best_known() -> None:
    """Which is searched for once, and only where the best agent leaves it open."""
    table = costs(empty=3.9)
    assert check_families.needs_best_known(table)
    assert not check_families.needs_best_known(costs(empty=4.1))
    table["known"] = 0.9 * table["descent"]
    assert not check_families.needs_best_known(table)
    assert check_families.passes(table, np.arange(2))
    assert "known" not in check_families.rivals(table)
    assert check_families.gaps({"": table}, np.arange(2)) == pytest.approx((0.2, 0.1, 3.9 / 0.9))


def test_stored_costs_are_gone_on_from() -> None:
    """Unless they are of another version of the instance, or of fewer scenarios."""
    name = "fleet-v1/dev/tail-s-110"
    table = {"hash": check_families.entries()[name].content_hash, **costs()}
    assert check_families.usable(table, name, 2) is table
    assert check_families.usable(table, name, 3) == {}
    assert check_families.usable({**table, "hash": "0" * 64}, name, 2) == {}
    assert check_families.usable({}, name, 2) == {}


@pytest.mark.slow
def test_the_best_known_is_a_day_s_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found from the best agent's episode on the same fresh scenario: no dearer, and not below the bound."""
    monkeypatch.setattr(check_families, "SEARCH_STEPS", 2_000)
    name, agents = "fleet-v1/dev/tail-s-110", ("hold", "agh-rolling(every=3)")
    table = check_families.instance_costs(name, agents, 1, 7, 1)
    known = check_families.best_known(name, table, 7)
    best = min(check_families.rivals(table), key=lambda agent: float(table[agent].mean()))
    bounds = check_families.bounds(name, 1, 7, 1)
    assert np.all(known <= table[best])
    assert np.all(known >= bounds)


def test_a_family_passes_with_seven_of_ten_instances() -> None:
    """70 % is enough, 60 % is not; a reproduction keeps its label."""
    rng = np.random.default_rng(1)
    for good, label in ((7, "headline"), (6, "diagnostic")):
        tables = {f"i{k}": costs(hold=1.2 if k < good else 1.0) for k in range(10)}
        verdict = check_families.judge("ou", tables, rng)
        assert (verdict.passing, verdict.label) == (good, label)
    assert check_families.judge("grw", {"i": costs()}, rng).label == "reproduction"


def test_two_of_three_instances_are_not_enough() -> None:
    """70 % is meant, not two thirds."""
    tables = {f"i{k}": costs(hold=1.2 if k else 1.0) for k in range(3)}
    assert check_families.judge("ou", tables, np.random.default_rng(1)).label == "diagnostic"


def test_policies_that_never_change_are_tuned() -> None:
    """The best margin of each kind counts, and the best agent may be one of them."""
    table = costs(hold=1.2, last=1.1)
    table[check_families.HOLD[0]], table[check_families.LAST[1]] = 1.5 * table["hold"], 1.5 * table["hold"]
    assert check_families.gaps({"": table}, np.arange(2))[:2] == pytest.approx((0.2, 0.1))


def test_the_interval_of_three_scenarios_is_their_range() -> None:
    """One draw in 27 is the cheapest scenario three times, and another the dearest: both more than 2.5 %."""
    ratios = np.array([1.1, 1.3, 1.8])
    table = {
        "hold": 100.0 * ratios,
        check_families.LAST[0]: np.full(3, 110.0),
        "descent": np.full(3, 100.0),
        "empty": np.full(3, 500.0),
    }
    verdict = check_families.judge("ou", {"i": table}, np.random.default_rng(1))
    assert verdict.hold == pytest.approx(0.4)
    assert verdict.hold_interval == pytest.approx((0.1, 0.8))
    assert verdict.last_interval == pytest.approx((0.1, 0.1))


def test_only_bounded_scenarios_are_compared_with_their_bounds() -> None:
    """A dear scenario without a bound says nothing of the others' distance."""
    table = costs(bound=0.8)
    table["bound"][1] = math.nan
    assert check_families.bound_gap([table]) == pytest.approx(0.25)


def test_the_page_names_families_that_fall_short() -> None:
    """A family that does not pass has its number of passing instances and another label."""
    rng = np.random.default_rng(1)
    text = family_pages.measured({"tail": check_families.judge("tail", {"i": costs(hold=1.01)}, rng)})
    assert "| 0 of 1 | diagnostic |" in text


def test_the_bound_is_judged_over_the_family() -> None:
    """25 % above it is wanted, 43 % and 3 % are not; without a bound nothing is said."""
    rng = np.random.default_rng(1)
    for bound, wanted in ((0.8, True), (0.7, False), (0.97, False), (math.nan, None)):
        verdict = check_families.judge("ou", {"i": costs(bound=bound)}, rng)
        assert verdict.near_bound is wanted
        assert verdict.bound is None or verdict.bound == pytest.approx(1.0 / bound - 1.0)
        assert verdict.label == "headline"


def test_bounds_are_of_the_scenarios_that_are_played(tmp_path: Path) -> None:
    """The first scenarios get one, which no agent undercuts; the others get none."""
    name = "fleet-v0/toy/two-pools"
    found = check_families.bounds(name, 3, 7, 2)
    assert np.isfinite(found).tolist() == [True, True, False]
    path = check_families.fresh(fleetgym.load_instance(name), 3, 7, tmp_path)
    for episode in fleetgym.evaluate(["hold"], str(path)).episodes[:2]:
        assert episode.cost_usd >= found[episode.scenario]


def test_costs_are_kept_to_the_cent_and_read_back(tmp_path: Path) -> None:
    """Unknown bounds become null, and NaN again."""
    path = tmp_path / "costs.json"
    check_families.write_costs(path, {"x": {"hash": "h", **costs()}})
    found = check_families.read_costs(path)
    assert found["x"]["hash"] == "h"
    np.testing.assert_allclose(found["x"]["hold"], [120.0, 240.0])
    assert np.isnan(found["x"]["bound"]).all()


def test_every_family_has_a_card() -> None:
    """The page names all of them, and what was measured."""
    verdict = check_families.judge("ou", {"i": costs()}, np.random.default_rng(1))
    text = family_pages.measured({"ou": verdict})
    assert "| `ou` | +20.0 %" in text
    page = (ROOT / "docs" / "families.md").read_text()
    assert all(f"### `{family}` (" in page for family in FAMILIES)


def test_a_family_can_be_checked_that_no_suite_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """Its instances are generated from train seeds, so that a package's family needs no file and no edit here."""
    names = check_families.to_generate("ou", ["s", "m"], 2)
    assert names == ["ou-s-1000", "ou-s-1001", "ou-m-1000", "ou-m-1001"]
    assert check_families.instance_of("fastllm-4-4-5-1000").id == "fastllm-4-4-5-1000"
    with pytest.raises(UnknownNameError, match="unknown family 'storm'"):
        check_families.to_generate("storm", None, 1)
    with pytest.raises(SystemExit):
        check_families.main(["--families", "ou", "--sizes", "xl", "--generate", "1"])
    assert "nothing is generated: no instance of family 'ou'" in capsys.readouterr().err
