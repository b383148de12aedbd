"""The tables of bounds: days that everything has finished, means, shares of the gap, and what agents leave."""

from __future__ import annotations

import pytest

from fleetgym.bounds.hindsight import hindsight_bound
from fleetgym.bounds.nonanticipative import day_and_redraws
from fleetgym.model.library import load_instance
from tools.bound_agents import bound_table, measured, penalty_table, play_cell, split_table

NAME = "fleet-v1/dev/ou-s-101"
CELLS = {
    f"bound {NAME} 4 0": {"hindsight": 100.0, "bound": 110.0, "cpu_s": 1.0},
    f"bound {NAME} 4 1": {"hindsight": 100.0, "bound": 130.0, "cpu_s": 3.0},
    f"bound {NAME} 4 2": {"hindsight": 1.0, "bound": 1.0, "cpu_s": 1.0},  # no agent has played this day
    f"bound {NAME} 2 0": {"hindsight": 7.0, "bound": 7.0, "cpu_s": 1.0},  # of fewer draws
    f"bound {NAME} 2 1": {"hindsight": 7.0, "bound": 7.0, "cpu_s": 1.0},
    f"bound {NAME} 8 0": {"hindsight": 7.0, "bound": 7.0, "cpu_s": 1.0},  # of more draws, but fewer days
    f"play {NAME} margin 0": 140.0,
    f"play {NAME} margin 1": 140.0,
    f"play {NAME} told-1 0": 120.0,
    f"play {NAME} told-1 1": 130.0,
    f"play {NAME} told-4 0": 105.0,  # and not on the other day
    f"play {NAME} clairvoyant 0": 102.0,
    f"play {NAME} clairvoyant 1": 104.0,
    f"play {NAME} clairvoyant 2": 1.0,
    f"penalty {NAME} 4 hold 0-2": [1.0, -1.0],
    f"penalty {NAME} 4 hold 2-4": [2.0, 2.0],
}


def test_days_that_everything_has_finished_are_compared() -> None:
    """Day 2 has no agent, and `told-4` is not known on both others."""
    found = measured(CELLS)[NAME]
    assert found.bound.tolist() == [110.0, 130.0]
    assert sorted(found.paid) == ["clairvoyant", "margin", "told-1"]
    assert found.closed == pytest.approx(20.0 / 40.0)
    assert found.cpu_s == 2.0
    assert found.samples == 4


def test_raised_bounds_come_first() -> None:
    """Of the same days those with raised planes count."""
    value = {"hindsight": 100.0, "raised": 110.0, "bound": 125.0, "cpu_s": 2.0}
    found = measured(CELLS | {f"raised {NAME} 4 {day}": value for day in (0, 1)})[NAME]
    assert found.bound.tolist() == [125.0, 125.0]
    assert found.closed == pytest.approx(25.0 / 40.0)


def test_distances_are_from_bounds_like_the_stored_ones() -> None:
    """Tasks of `fleet-v2` have bounds with raised planes."""
    newer = "fleet-v2/dev/ou-v2-s-01"
    value = {"hindsight": 100.0, "raised": 110.0, "bound": 125.0, "cpu_s": 2.0}
    cells = {f"raised {newer} 4 {day}": value for day in (0, 1)}
    found = measured(cells | {f"play {newer} margin {day}": 140.0 for day in (0, 1)})[newer]
    assert found.hindsight.tolist() == [110.0, 110.0]
    assert found.closed == pytest.approx(15.0 / 30.0)
    assert "110.0 | 125.0 |" in bound_table({newer: found})


def test_the_larger_mean_is_the_bound() -> None:
    """Whoever knows the day pays at least the raised bound, so those who do not pay it, too."""
    value = {"hindsight": 100.0, "raised": 120.0, "bound": 115.0, "cpu_s": 2.0}
    found = measured(CELLS | {f"raised {NAME} 4 {day}": value for day in (0, 1)})[NAME]
    assert found.bound.tolist() == [120.0, 120.0]


def test_a_single_day_is_not_printed() -> None:
    """The bound is of a mean."""
    assert not measured({k: v for k, v in CELLS.items() if not k.endswith(" 1")})


def test_the_split_adds_up() -> None:
    """20 % that nobody can know, and 20 % that the agent leaves, are its 40 % above hindsight."""
    row = split_table(measured(CELLS)).splitlines()[-1]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "ou",
        "1",
        "2",
        "20.0",
        "3.0",
        "25.0",
        "–",
        "20.0",
        "50 %",
    ]


def test_reference_rows_may_have_fewer_days() -> None:
    """Their days are compared with hindsight on the same days, and counted in brackets."""
    more = {
        f"bound {NAME} 4 3": {"hindsight": 400.0, "bound": 410.0, "cpu_s": 1.0},
        f"play {NAME} margin 3": 500.0,
    }
    row = split_table(measured(CELLS | more)).splitlines()[-1]
    assert [cell.strip() for cell in row.strip("|").split("|")][4:7] == ["3.0 (2)", "25.0 (2)", "–"]


def test_who_knows_the_day_pays_less() -> None:
    """A search that knows a day ends between what it costs at least and what holding the fleet costs."""
    name = "fleet-v1/dev/drop-s-101"
    found = play_cell(name, "clairvoyant", 0, searched=2_000)
    instance = load_instance(name)
    day, _ = day_and_redraws(instance, 0, 1, seed=1)
    least = hindsight_bound(instance, day).bound_usd
    assert least <= found < play_cell(name, "hold", 0)


def test_tables_of_nothing_are_empty() -> None:
    """They have a head only."""
    for text in (bound_table({}), split_table({}), penalty_table({}, 4)):
        assert len(text.splitlines()) == 2


def test_penalties_of_all_blocks_count() -> None:
    """Their mean is 1, over four days."""
    cells = [part.strip() for part in penalty_table(CELLS, 4).splitlines()[-1].strip("|").split("|")]
    assert cells[:4] == [f"`{NAME}`", "`hold`", "4", "1.00"]
