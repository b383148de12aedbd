"""A README and boards in, the README with the boards' tables between its two marks out."""

from __future__ import annotations

from collections.abc import Sequence

from fleetgym.leaderboard.columns import columns, fresh_columns
from fleetgym.leaderboard.html_tables import DASH, Column, markdown_table
from fleetgym.leaderboard.standings import Board

_BEGIN, _END = "<!-- table: begin -->", "<!-- table: end -->"


def with_tables(readme: str, boards: Sequence[Board]) -> str:
    """Return a README whose part between the two marks is the boards' tables."""
    parts = [f"### {board.suite}\n\n{_markdown(board)}" for board in boards]
    block = f"{_BEGIN}\n{''.join(parts)}{_END}"
    before, begin, rest = readme.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    return f"{before}{block}{after}" if begin and end else f"{readme.rstrip()}\n\n{block}\n"


def _markdown(board: Board) -> str:
    found = ""
    wanted = {
        "rank",
        "place",
        "agent",
        "score %",
        "95 % interval",
        "fresh vs public",
        "division",
        "time class",
        "id",
        "agent of",
        "CVaR-10 % USD",
    }
    certified = f"Certified costs (replayed), relative to {board.release}"
    tables = [(certified, board.certified, columns(board, board.certified))]
    if board.season is not None:
        ranked = f"Ranked, season {board.season} (fresh), relative to the best known of its own tasks"
        tables.insert(0, (ranked, board.fresh, fresh_columns(board)))
    for title, table, shown in tables:
        heads = wanted | {table.head(family) for family in table.families}
        kept = [_without_markup(c, board) for c in shown if c.head in heads]
        found += f"**{title}**, {table.num_tasks} tasks\n\n{markdown_table(kept, table.rows)}\n"
    return found


def _without_markup(column: Column, board: Board) -> Column:
    """Return a column whose cells are plain text."""
    if column.head == "agent":
        records = {**board.certified_records, **board.fresh_records}
        return Column("agent", lambda r: records[r.key].submission.agent.title, kind="name")
    if column.head == "id":
        return Column(column.head, lambda r: r.key, kind="text")
    if column.head == "fresh vs public":
        shifts = board.shifts
        return Column(
            column.head,
            lambda r: (
                f"{shifts[r.key].mean:+.1f}{' flagged' if shifts[r.key].is_flagged else ''}"
                if r.key in shifts
                else DASH
            ),
        )
    return column
