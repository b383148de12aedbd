"""What nobody can know stands beside scores: by family, in units of lower bounds, only where it was measured."""

from __future__ import annotations

import dataclasses

import pytest
from test_bound_agents import CELLS

from fleetgym.evaluation.results_format import COST_TERMS, Costs
from fleetgym.leaderboard.report import figures
from fleetgym.leaderboard.unknown_table import NOBODY, unknown_numbers
from fleetgym.scoring.table import Played, make_table
from fleetgym.scoring.unknown import unknown
from tools.bound_agents import measured, unknown_csv


def played(
    family: str, number: int, cost: float, bound: float | None, suite: str = "fleet-v1/test"
) -> Played:
    """Return a task whose best-known cost is 110."""
    costs = Costs(**dict.fromkeys(COST_TERMS, 0.0))
    return Played(family, f"{suite}/{family}-s-{number}", 0, cost, 110.0, bound, costs, 0.0, 0.0, False, None)


def test_what_an_agent_leaves_is_the_rest() -> None:
    """An agent 40 % above the lower bounds leaves what is beyond the measured share."""
    table = make_table({"mine": [played("ou", k, 140.0, 100.0) for k in range(3)]})
    known = unknown()["fleet-v1", "ou"].percent
    assert table.unknown_percent == {"ou": known}
    head, nobody, mine = unknown_numbers(table)
    assert head == ["row", "ou_percent"]
    assert nobody == [NOBODY, known]
    assert mine == ["mine", pytest.approx(40.0 - known)]
    assert "unknown" in [figure.name for figure in figures(table)]


@pytest.mark.parametrize(
    "task",
    [
        played("ou", 1, 140.0, None),
        played("trace", 1, 140.0, 100.0),
        played("ou", 1, 140.0, 100.0, "fleet-v0/dev"),
    ],
    ids=["no bound", "no known law", "another set"],
)
def test_nothing_is_told_where_nothing_was_measured(task: Played) -> None:
    """Tasks without a bound, families without a law, and sets that were not bounded."""
    table = make_table({"mine": [task]})
    assert table.unknown_percent == {}
    assert "unknown" not in [figure.name for figure in figures(table)]


def test_seasons_have_their_own_instances() -> None:
    """Tasks of two sets in one family tell nothing."""
    tasks = [played("ou", 1, 140.0, 100.0), played("ou", 1, 140.0, 100.0, "fresh-2026-12/dev")]
    assert make_table({"mine": tasks}).unknown_percent == {}


def test_the_shipped_file_is_what_cells_say() -> None:
    """Mean and standard error, percent of hindsight, by the family's whole name."""
    newer = {
        f"raised fleet-v2/dev/ou-v2-s-01 4 {day}": {
            "hindsight": 90.0,
            "raised": 100.0,
            "bound": 115.0 + 10.0 * day,
            "cpu_s": 1.0,
        }
        for day in (0, 1)
    } | {f"play fleet-v2/dev/ou-v2-s-01 margin {day}": 140.0 for day in (0, 1)}
    assert unknown_csv(measured(CELLS | newer), fewest=2).splitlines() == [
        "set,family,instances,days,percent,standard_error",
        "fleet-v1,ou,1,2,20.00,10.00",
        "fleet-v2,ou-v2,1,2,20.00,5.00",
    ]
    assert len(unknown_csv(measured(CELLS)).splitlines()) == 1  # two days are too few
    assert all(dataclasses.astuple(found)[0] >= 0.0 for found in unknown().values())
