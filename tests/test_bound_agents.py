"""The tables of bounds: days that everything has finished, means, shares of the gap, and what agents leave."""

from __future__ import annotations

import pytest

from tools.bound_agents import bound_table, measured, penalty_table, split_table

NAME = "fleet-v1/dev/ou-s-101"
CELLS = {
    f"bound {NAME} 4 0": {"hindsight": 100.0, "bound": 110.0, "cpu_s": 1.0},
    f"bound {NAME} 4 1": {"hindsight": 100.0, "bound": 130.0, "cpu_s": 3.0},
    f"bound {NAME} 4 2": {"hindsight": 1.0, "bound": 1.0, "cpu_s": 1.0},  # no agent has played this day
    f"bound {NAME} 2 0": {"hindsight": 7.0, "bound": 7.0, "cpu_s": 1.0},  # of fewer draws
    f"play {NAME} margin 0": 140.0,
    f"play {NAME} margin 1": 140.0,
    f"play {NAME} told-1 0": 120.0,
    f"play {NAME} told-1 1": 130.0,
    f"play {NAME} told-4 0": 105.0,  # and not on the other day
    f"penalty {NAME} 4 hold 0-2": [1.0, -1.0],
    f"penalty {NAME} 4 hold 2-4": [2.0, 2.0],
}


def test_days_that_everything_has_finished_are_compared() -> None:
    """Day 2 has no agent, and `told-4` is not known on both others."""
    found = measured(CELLS, 4)[NAME]
    assert found.bound.tolist() == [110.0, 130.0]
    assert sorted(found.paid) == ["margin", "told-1"]
    assert found.closed == pytest.approx(20.0 / 40.0)
    assert found.cpu_s == 2.0


def test_a_single_day_is_not_printed() -> None:
    """The bound is of a mean."""
    assert not measured({k: v for k, v in CELLS.items() if not k.endswith(" 1")}, 4)


def test_the_split_adds_up() -> None:
    """20 % that nobody can know, and 20 % that the agent leaves, are its 40 % above hindsight."""
    row = split_table(measured(CELLS, 4)).splitlines()[-1]
    assert [cell.strip() for cell in row.strip("|").split("|")] == [
        "ou",
        "1",
        "2",
        "20.0",
        "25.0",
        "–",
        "20.0",
        "50 %",
    ]


def test_tables_of_nothing_are_empty() -> None:
    """They have a head only."""
    for text in (bound_table({}), split_table({}), penalty_table({}, 4)):
        assert len(text.splitlines()) == 2


def test_penalties_of_all_blocks_count() -> None:
    """Their mean is 1, over four days."""
    cells = [part.strip() for part in penalty_table(CELLS, 4).splitlines()[-1].strip("|").split("|")]
    assert cells[:4] == [f"`{NAME}`", "`hold`", "4", "1.00"]
