"""The columns that the page and the README show of a table's rows and their records."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from fleetgym.evaluation.isolation.rules import TIME_CLASSES
from fleetgym.leaderboard.charts import interval_bar
from fleetgym.leaderboard.html_tables import DASH, Column, interval, number
from fleetgym.leaderboard.markup import Markup, join, tag
from fleetgym.leaderboard.record import Record
from fleetgym.leaderboard.standings import Board, Shift
from fleetgym.leaderboard.submission import AgentCard
from fleetgym.scoring.table import Table, TableRow

#: What a row's key leads to: names and addresses, seen from the page.
Links = Callable[[str], Sequence[tuple[str, str]]]


def with_bars_and_links(shown: Sequence[Column], table: Table, links: Links | None) -> list[Column]:
    """Return columns whose intervals are drawn too, and one that leads to each row's files."""
    ends = [1 + end / 100 for row in table.rows for end in (row.score, *(row.interval or ()))]

    def bar(row: TableRow) -> Markup:
        text = interval(row.interval)
        return join(interval_bar(row.score, row.interval, ends), text) if row.interval else join(text)

    found = [dataclasses.replace(c, show=bar) if c.head == "95 % interval" else c for c in shown]
    if links is not None:
        place = next(k for k, column in enumerate(found) if column.head == "id") + 1
        found.insert(place, Column("files", lambda r: _anchors(links(r.key)), kind="text"))
    return found


def _anchors(links: Sequence[tuple[str, str]]) -> Markup:
    made = [tag("a", name, href=address, rel="noopener noreferrer nofollow") for name, address in links]
    return (
        join(*(join(" · " if k else None, anchor) for k, anchor in enumerate(made))) if made else join(DASH)
    )


def columns(board: Board, table: Table) -> list[Column]:
    """Return the columns of the certified table."""
    records = board.certified_records
    found = _columns(table, records, "place")
    if board.newer is not None:
        newer = board.newer_scores
        found.insert(4, Column(f"{board.newer} %", lambda r: number(newer[r.key], 2), lambda r: newer[r.key]))
    return found


def fresh_columns(board: Board) -> list[Column]:
    """Return the columns of the ranked table."""
    found = _columns(board.fresh, board.fresh_records, "rank")
    shifts = board.shifts
    found.insert(
        4,
        Column(
            "fresh vs public",
            lambda r: _shift(shifts.get(r.key)),
            lambda r: _mean(shifts.get(r.key)),
            hint="by how much the row scores worse on fresh tasks; flagged beyond its 99 % interval",
        ),
    )
    found.append(
        Column(
            "budget spent",
            lambda r: f"{_spent(board, r)} of {len(r.tasks)}",
            lambda r: _spent(board, r),
            hint="episodes in which the class's CPU seconds ran out: from then on the running fleet stayed",
        )
    )
    found.append(
        Column(
            "CPU s/episode", lambda r: number(r.cpu_s, 2), lambda r: r.cpu_s, hint="measured, reset included"
        )
    )
    found.append(Column("machine", lambda r: _machine(board.fresh_records[r.key]), kind="text"))
    return found


def _spent(board: Board, row: TableRow) -> int:
    """Return in how many episodes of a fresh row the CPU budget ran out."""
    return sum(e.budget_spent_at_window is not None for e in board.fresh_records[row.key].episodes)


def _known(column: Column, table: Table) -> bool:
    """Return whether a column knows anything."""
    return column.sort is None or any(column.sort(row) is not None for row in table.rows)


def _columns(table: Table, records: Mapping[str, Record], place: str) -> list[Column]:
    def agent(row: TableRow) -> AgentCard:
        return records[row.key].submission.agent

    twins = _same_costs(table)
    found = [
        Column(
            place,
            lambda r: r.rank,
            lambda r: r.rank,
            hint="rows share one if they cannot be told from the first of them (Holm, 5 %)",
        ),
        Column("agent", lambda r: _name(agent(r)), lambda r: agent(r).name, kind="name"),
        Column(
            "score %",
            lambda r: number(r.score, 2),
            lambda r: r.score,
            kind="score",
            hint="above best-known; lower is better",
        ),
        Column("95 % interval", lambda r: interval(r.interval), lambda r: r.interval and r.interval[0]),
        Column("division", lambda r: agent(r).division, kind="text"),
        Column(
            "time class",
            lambda r: agent(r).time_class,
            lambda r: TIME_CLASSES[agent(r).time_class],
            kind="text",
        ),
        *(_family_column(table.head(family), family) for family in table.families),
        Column(
            "above bound %",
            lambda r: number(r.above_bound),
            lambda r: r.above_bound,
            hint="percent above the lower bound, which no agent can cost less than",
        ),
        Column(
            "CVaR-10 % USD",
            lambda r: number(r.tail_usd, 0),
            lambda r: r.tail_usd,
            hint="USD above best-known per day, mean of the worst tenth of days",
        ),
        Column("cost USD", lambda r: number(r.cost_usd, 0), lambda r: r.cost_usd, hint="all tasks together"),
        Column("SLO miss %", lambda r: number(100 * r.miss_share, 2), lambda r: r.miss_share),
        Column("unserved %", lambda r: number(100 * r.unserved_share, 2), lambda r: r.unserved_share),
        Column("failures", lambda r: r.failures, lambda r: r.failures),
        Column("date", lambda r: records[r.key].submission.date, kind="text"),
        Column("id", lambda r: tag("code", r.key), lambda r: r.key, kind="text"),
        Column(
            "agent of",
            lambda r: "fleetgym (reference)" if agent(r).reference else "a submitter",
            kind="text",
            hint="reference agents come with fleetgym; what others sent in is theirs",
        ),
        Column(
            "same costs as",
            lambda r: twins.get(r.key, DASH),
            lambda r: twins.get(r.key),
            kind="text",
            hint="every task cost exactly the same: the same actions under two names",
        ),
    ]
    return [column for column in found if _known(column, table)]


def _same_costs(table: Table) -> dict[str, str]:
    """Return, for each row that costs what others cost on every task, the names of these."""
    groups: dict[tuple[float, ...], list[str]] = {}
    for row in table.rows:
        groups.setdefault(tuple(played.cost_usd for played in row.tasks), []).append(row.key)
    return {
        key: ", ".join(other for other in group if other != key)
        for group in groups.values()
        if len(group) > 1
        for key in group
    }


def _machine(record: Record) -> str:
    if record.rules is None:
        return DASH
    return f"{record.rules.machine} (its speed changed meanwhile)" if record.drifted else record.rules.machine


def _family_column(head: str, family: str) -> Column:
    return Column(
        head,
        lambda r: number(r.families[family]),
        lambda r: r.families[family],
        hint="percent above best-known" + ("" if head == family else "; no part of the score"),
    )


def _name(agent: AgentCard) -> Markup:
    return join(agent.name, tag("span", agent.variant, class_="chip") if agent.variant else None)


def _words(agent: AgentCard) -> Markup:
    parts = [text for text in (agent.description, agent.authors, agent.contact) if text]
    link = (
        tag("a", "code", href=agent.code_url, rel="noopener noreferrer nofollow") if agent.code_url else None
    )
    return join(" · ".join(parts), " · " if parts and link else None, link)


def _shift(shift: Shift | None) -> object:
    if shift is None:
        return DASH
    text = f"{shift.mean:+.1f} %"
    return (
        tag("span", f"{text} ⚑", class_="warn", title=f"99 %: {interval(shift.interval)}")
        if shift.is_flagged
        else text
    )


def _mean(shift: Shift | None) -> float | None:
    return None if shift is None else shift.mean


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
    return [
        Column("agent", lambda r: _name(records[r.key].submission.agent), kind="name"),
        Column("what it is", lambda r: _words(records[r.key].submission.agent), kind="wrap"),
        Column("submission", lambda r: tag("code", r.key), kind="text"),
    ]
