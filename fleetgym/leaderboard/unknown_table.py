"""Split, by family, how far rows are above the lower bounds: what nobody can know, and what a row leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from markupsafe import Markup

from fleetgym.leaderboard.pages import Column, html_table, number
from fleetgym.scoring.table import Table

NOBODY = "nobody can know"
CAPTION = (
    "How far an agent is above the lower bounds of somebody who knows the day, in two parts, percent by family. "
    "The first line is what nobody can know: in the mean, every agent without the future is at least so far above "
    "them. It was measured on other days of dev instances of size s. The other lines are what an agent leaves beyond "
    "that."
)


class _Line(NamedTuple):
    name: str
    families: Mapping[str, float | None]  # percent of the lower bounds


def _lines(table: Table, names: Mapping[str, str]) -> list[_Line]:
    def left(above: Mapping[str, float | None]) -> dict[str, float | None]:
        known = {family: above[family] for family in table.unknown_percent}
        return {
            family: None if v is None else v - table.unknown_percent[family] for family, v in known.items()
        }

    rest = [_Line(names[row.key], left(row.families_above_bound)) for row in table.rows]
    return [_Line(NOBODY, table.unknown_percent), *rest]


def unknown_numbers(table: Table) -> list[list[Any]]:
    """Return the lines as numbers, their head first."""
    names = {row.key: row.key for row in table.rows}
    head = ["row", *(f"{family}_percent" for family in table.unknown_percent)]
    return [head, *([line.name, *line.families.values()] for line in _lines(table, names))]


def unknown_table(table: Table, names: Mapping[str, str]) -> Markup:
    """Return the lines as a table; `names` says what rows are called."""
    shown = [
        Column("row", lambda line: line.name, kind="name"),
        *(_family(table.head(family), family) for family in table.unknown_percent),
    ]
    return html_table(shown, _lines(table, names), label=NOBODY)


def _family(head: str, family: str) -> Column:
    return Column(head, lambda line: number(line.families[family]), lambda line: line.families[family])
