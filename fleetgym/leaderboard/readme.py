"""Write the tables of boards into a README, between its two marks."""

from __future__ import annotations

from collections.abc import Sequence

from fleetgym.leaderboard.columns import columns, fresh_columns, open_columns
from fleetgym.leaderboard.pages import markdown_table
from fleetgym.leaderboard.standings import Board

_BEGIN, _END = "<!-- table: begin -->", "<!-- table: end -->"
#: Columns that the README shows, beside those of the families.
_SHOWN = {"rank", "place", "agent", "score %", "95 % interval", "fresh vs public", "division", "time class"}
_SHOWN |= {"id", "agent of", "CVaR-10 % USD"}


def with_tables(readme: str, boards: Sequence[Board]) -> str:
    """Return a README whose part between the two marks is the boards' tables."""
    parts = [f"### {board.suite}\n\n{_markdown(board)}" for board in boards]
    block = f"{_BEGIN}\n{''.join(parts)}{_END}"
    before, begin, rest = readme.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    return f"{before}{block}{after}" if begin and end else f"{readme.rstrip()}\n\n{block}\n"


def _markdown(board: Board) -> str:
    certified = f"Certified costs (replayed), relative to {board.release}"
    tables = [(certified, board.certified, columns(board, board.certified))]
    if board.season is not None:
        ranked = f"Ranked, season {board.season} (fresh), relative to the best known of its own tasks"
        tables.insert(0, (ranked, board.fresh, fresh_columns(board)))
    found = ""
    if board.open_rows:
        season = board.open_rows[0].season
        found = f"**Season {season}, open**\n\n{markdown_table(open_columns(board), board.open_rows)}\n"
    for title, table, shown in tables:
        heads = _SHOWN | {table.head(family) for family in table.families}
        kept = [column for column in shown if column.head in heads]
        found += f"**{title}**, {table.num_tasks} tasks\n\n{markdown_table(kept, table.rows)}\n"
    return found
