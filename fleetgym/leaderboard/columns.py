"""Declare the columns of tables of scores, once for the page of a board, its README and the report of a run."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from fleetgym.evaluation.isolation.rules import TIME_CLASSES
from fleetgym.evaluation.results_format import COST_TERMS
from fleetgym.families.generate import replayed_families
from fleetgym.leaderboard.charts import interval_bar
from fleetgym.leaderboard.open_rows import DIGITS, OpenRow
from fleetgym.leaderboard.pages import DASH, Column, interval, number
from fleetgym.leaderboard.record import Record
from fleetgym.leaderboard.standings import Board, Shift
from fleetgym.leaderboard.submission import AgentCard
from fleetgym.scoring.table import Table, TableRow

#: What a row's key leads to: names and addresses, seen from the page.
Links = Callable[[str], Sequence[tuple[str, str]]]

#: Cost terms that differ by less than this share of the day's cost are near.
NEAR = 5e-3
#: On fewer tasks agents that were written apart may do the same on most, so only equal rows are told.
FEW = 20


def score_columns(table: Table, agent: Column, rank: str = "rank") -> list[Column]:
    """Return the columns of any table of scores; what no row knows is left out.

    Parameters
    ----------
    table : Table
    agent : Column
        Shows the name of a row's agent.
    rank : str
        Head of the first column.
    """
    families = table.families if len(table.families) > 1 else ()
    found = [
        _value(rank, lambda r: r.rank, 0, "rows share one if they cannot be told from the first (Holm, 5 %)"),
        agent,
        _value("score %", lambda r: r.score, 2, "above best-known; lower is better", kind="score"),
        Column(
            "95 % interval",
            lambda r: interval(r.interval),
            lambda r: r.interval and r.interval[0],
            bar=_bar(table),
        ),
        *(_family(table.head(family), family) for family in families),
        _value(
            "above bound %",
            lambda r: r.above_bound,
            hint="percent above the lower bound, which no agent can cost less than",
        ),
        _value(
            "CVaR-10 % USD",
            lambda r: r.tail_usd,
            0,
            "USD above best-known per day, mean of the worst tenth of days",
        ),
        _value("cost USD", lambda r: r.cost_usd, 0, "all tasks together"),
        _value("SLO miss %", lambda r: 100 * r.miss_share, 2),
        _value("unserved %", lambda r: 100 * r.unserved_share, 2),
        _value("failures", lambda r: r.failures, 0),
        _value("CPU s/episode", lambda r: r.cpu_s, 3, "measured, reset included"),
    ]
    return _known(found, table)


def _value(
    head: str, value: Callable[[Any], Any], digits: int = 1, hint: str | None = None, kind: str = ""
) -> Column:
    """Return a column of numbers."""
    return Column(head, lambda r: number(value(r), digits), value, kind=kind, hint=hint)


def _family(head: str, family: str) -> Column:
    told = "percent above best-known" + ("" if head == family else "; no part of the score")
    return _value(head, lambda r: r.families[family], hint=told)


def _known(found: Sequence[Column], table: Table) -> list[Column]:
    """Return the columns in which some row has a value."""
    return [c for c in found if c.sort is None or any(c.sort(row) is not None for row in table.rows)]


def _bar(table: Table) -> Callable[[TableRow], Markup | None]:
    """Return what draws a row's interval on the scale of all rows."""
    ends = [1 + end / 100 for row in table.rows for end in (row.score, *(row.interval or ()))]
    return lambda row: interval_bar(row.score, row.interval, ends) if row.interval else None


# -- columns of boards


def columns(board: Board, table: Table, links: Links | None = None) -> list[Column]:
    """Return the columns of the certified table."""
    found = _board_columns(board, table, board.certified_records, "place", links)
    if board.newer is not None:
        newer = board.newer_scores
        _insert(found, "division", _value(f"{board.newer} %", lambda r: newer[r.key], 2))
    return found


def fresh_columns(board: Board, links: Links | None = None) -> list[Column]:
    """Return the columns of the ranked table."""
    records, shifts = board.fresh_records, board.shifts
    found = _board_columns(board, board.fresh, records, "rank", links)
    shift = Column(
        "fresh vs public",
        lambda r: _shift(shifts.get(r.key)),
        lambda r: shifts[r.key].mean if r.key in shifts else None,
        kind="shift",
        hint="by how many percent the row scores worse on fresh tasks; flagged (⚑) beyond its 99 % interval",
    )
    _insert(found, "division", shift)

    def spent(row: TableRow) -> int:
        return sum(e.budget_spent_at_window is not None for e in records[row.key].episodes)

    budget = Column(
        "budget spent",
        lambda r: f"{spent(r)} of {len(r.tasks)}",
        spent,
        hint="episodes in which the class's CPU seconds ran out: from then on the running fleet stayed",
    )
    return [*found, budget, Column("machine", lambda r: _machine(records[r.key]), kind="text")]


def _insert(found: list[Column], before: str, column: Column) -> None:
    """Put a column before the one of this head."""
    found.insert([other.head for other in found].index(before), column)


def _board_columns(
    board: Board, table: Table, records: Mapping[str, Record], rank: str, links: Links | None
) -> list[Column]:
    def agent(row: TableRow) -> AgentCard:
        return records[row.key].submission.agent

    def kind_of_time(row: TableRow) -> float:
        return TIME_CLASSES[agent(row).time_class]

    twins = _near_copies(table)
    found = score_columns(table, _agent_column(records), rank)
    place = next((k for k, column in enumerate(found) if column.head == "95 % interval"), 2) + 1
    found[place:place] = [
        Column("division", lambda r: agent(r).division, kind="text"),
        Column("time class", lambda r: agent(r).time_class, kind_of_time, kind="text"),
    ]
    found += [
        Column("date", lambda r: records[r.key].submission.date, kind="text"),
        Column("id", lambda r: r.key, kind="code"),
        *([Column("files", lambda r: links(r.key), kind="links")] if links else []),
        Column(
            "agent of",
            lambda r: board.owners[r.key],
            kind="text",
            hint="reference: today's agent of fleetgym does the same; as of: an earlier version of it did",
        ),
        Column(
            "same costs as",
            lambda r: twins.get(r.key, DASH),
            lambda r: twins.get(r.key),
            kind="text",
            hint="nearly the same actions: on half of the tasks or more, every cost term is within 0.5 % of the cost",
        ),
    ]
    return _known(found, table)


def _agent_column(records: Mapping[str, Record]) -> Column:
    def name(row: TableRow) -> tuple[str, str]:
        agent = records[row.key].submission.agent
        return agent.name, agent.variant

    return Column("agent", name, lambda r: name(r)[0], kind="agent")


def _near_copies(table: Table) -> dict[str, str]:
    """Return, for each row, the rows whose days it repeats: on half of the tasks or more every cost term is near.

    Agents that were written apart share 41 % of the tasks at most (all pairs of 109 rows, at commit b96ac88). With all
    rows that it does not repeat, taken together, a row shares 46 % at most (172 rows, at commit e51545ff).
    """
    terms = {
        row.key: np.array([[getattr(task.costs, term) for term in COST_TERMS] for task in row.tasks])
        for row in table.rows
    }
    found: dict[str, str] = {}
    for key, mine in terms.items():
        repeated, near_others = [], np.zeros(len(mine), dtype=bool)
        for other, theirs in terms.items():
            if other == key:
                continue
            apart = np.abs(mine - theirs).max(axis=1)
            near = apart <= NEAR * np.minimum(mine.sum(axis=1), theirs.sum(axis=1))
            if not apart.any():
                repeated.append(other)
            elif _is_half(near):
                repeated.append(f"{other} ({np.count_nonzero(near)} of {len(near)} tasks)")
            else:
                near_others |= near
        if not repeated and _is_half(near_others):
            repeated = [f"several rows ({np.count_nonzero(near_others)} of {len(mine)} tasks)"]
        if repeated:
            found[key] = ", ".join(repeated)
    return found


def _is_half(near: np.ndarray) -> bool:
    return len(near) >= FEW and 2 * int(np.count_nonzero(near)) >= len(near)


def _machine(record: Record) -> str:
    if record.rules is None:
        return DASH
    told = ["its speed changed meanwhile"] if record.drifted else []
    if record.differing:
        told.append(
            f"{len(record.differing)} of {record.repeated} episodes differed when they were played again"
        )
    return f"{record.rules.machine} ({'; '.join(told)})" if told else record.rules.machine


def _shift(shift: Shift | None) -> str | tuple[str, str]:
    if shift is None:
        return DASH
    text = f"{shift.mean:+.1f}"
    return (text, f"⚑ (99 %: {interval(shift.interval)})") if shift.is_flagged else text


def open_columns(board: Board) -> list[Column]:
    """Return the columns of the rows of a season that is open: one number a row and family."""
    rows = board.open_rows
    families = sorted({family for row in rows for family in row.families})
    left_out = replayed_families()
    return [
        Column(
            "agent",
            lambda r: (r.submission.agent.name, r.submission.agent.variant),
            lambda r: r.id,
            kind="agent",
        ),
        _value("score %", lambda r: r.score, DIGITS, "above best-known; lower is better", kind="score"),
        *(
            _value(f"({f})" if f in left_out else f, functools.partial(_percent_of, family=f), DIGITS)
            for f in families
        ),
        Column("division", lambda r: r.submission.agent.division, kind="text"),
        Column("time class", lambda r: r.submission.agent.time_class, kind="text"),
        Column("id", lambda r: r.id, kind="code"),
    ]


def _percent_of(row: OpenRow, family: str) -> float | None:
    return row.families.get(family)


def titles(rows: Sequence[TableRow], records: Mapping[str, Record]) -> list[str]:
    """Return the rows' names and variants; those that are not unique are followed by the submission's name."""
    titles = [records[row.key].submission.agent.title for row in rows]
    named = [
        title if titles.count(title) == 1 else f"{title} ({row.key})"
        for title, row in zip(titles, rows, strict=True)
    ]
    return named if len(set(named)) == len(named) else [row.key for row in rows]


def about_columns(records: Mapping[str, Record]) -> list[Column]:
    """Return the columns of what rows say of themselves."""

    def words(row: TableRow) -> tuple[str, str]:
        agent = records[row.key].submission.agent
        parts = (agent.description, agent.authors, agent.contact)
        return " · ".join(part for part in parts if part), agent.code_url

    return [
        _agent_column(records),
        Column("what it is", words, kind="about"),
        Column("submission", lambda r: r.key, kind="code"),
    ]
