"""Boards in, the static site out: one page that opens from the disk, and the same table in Markdown."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetgym.evaluation.isolation.rules import TIME_CLASSES
from fleetgym.files.documents import write_atomically
from fleetgym.leaderboard.charts import bars_chart, profile_chart
from fleetgym.leaderboard.columns import about_columns, columns, fresh_columns, titles
from fleetgym.leaderboard.history import history
from fleetgym.leaderboard.html_tables import Column, html_table, number
from fleetgym.leaderboard.markup import Markup, join, page, tag
from fleetgym.leaderboard.readme import with_tables
from fleetgym.leaderboard.record import Record
from fleetgym.leaderboard.registers import Registers, read_registers
from fleetgym.leaderboard.standings import Board, make_boards, unverified
from fleetgym.leaderboard.submission import DIVISIONS
from fleetgym.model.library import samples
from fleetgym.runtime.version import __version__
from fleetgym.scoring.table import Table, TableRow

#: Rows that the pictures show: more lines than this cannot be told apart.
MOST_CURVES = 16


def build_site(
    board: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, release: str | None = None
) -> Path:
    """Write the leaderboard's page, and its table into the folder's README if the page goes to its usual place.

    Parameters
    ----------
    board : path-like
        The leaderboard's folder.
    out : path-like, optional
        Folder of the site; by default ``site`` in it.
    release : str, optional
        Name of the best-known set to score against; by default the newest frozen one.

    Returns
    -------
    Path
        The page.

    Raises
    ------
    FleetgymError
        If a record, a submission or a frozen set was changed.
    """
    root = Path(board)
    boards, registers = make_boards(root, release), read_registers(root)
    target = Path(out) if out is not None else root / "site"
    write_atomically(target / "index.html", render(boards, registers, unverified(root)).encode())
    readme = root / "README.md"
    if readme.is_file() and out is None and release is None:
        write_atomically(readme, with_tables(readme.read_text(encoding="utf-8"), boards).encode())
    return target / "index.html"


def render(boards: Sequence[Board], registers: Registers, waiting: Sequence[str] = ()) -> str:
    """Return the page."""
    body = tag(
        "main",
        tag("h1", "fleetgym leaderboard"),
        tag(
            "p",
            "Allocating GPUs to LLM serving. Every number here was recomputed from the submitted actions by an "
            "independent evaluator; only runs on tasks drawn after the code was handed in are ranked.",
            class_="faint",
        ),
        _controls(),
        *(part for board in boards for part in _board(board)),
        _withdrawn(registers),
        _machines(registers),
        _waiting(waiting),
        tag(
            "footer",
            f"Built by fleetgym {__version__}. Score: percent above best-known cost, geometric mean over "
            "families of the mean over instances; lower is better; families in (brackets) are no part of it. "
            "Intervals: 95 %, Student's, over instances within families. "
            "Rows share a rank if they cannot be told from the first of them at 5 % (Holm).",
        ),
    )
    return page("fleetgym leaderboard", body)


def _controls() -> Markup:
    choices = (("division", "Division", DIVISIONS), ("time", "Time class", tuple(TIME_CLASSES)))
    return tag(
        "div",
        *(
            tag(
                "label",
                label,
                tag(
                    "select",
                    tag("option", "all", value=""),
                    *(tag("option", word, value=word) for word in words),
                    data_filter=name,
                ),
            )
            for name, label, words in choices
        ),
        class_="controls",
    )


def _board(board: Board) -> list[Markup]:
    suite, sample = board.suite, samples().get(board.suite)
    which = f" ({sample.about})" if sample else ""
    return [
        tag("h2", f"{suite}: ranked, fresh tasks"),
        _fresh(board),
        tag("h2", f"{suite}: certified costs"),
        tag(
            "p",
            f"Actions on the {board.certified.num_tasks} public tasks{which}, replayed. "
            "These tasks are known to everybody, so the rows are certified but not ranked for merit. "
            "Scores are relative to ",
            tag("code", board.release),
            "" if board.is_frozen else " (not frozen yet)",
            f"; beside them those relative to the newer {board.newer}." if board.newer else ".",
            class_="faint",
        ),
        _table(board.certified, board.certified_records, columns(board, board.certified)),
        _pictures(board.certified, board.certified_records),
        tag("h2", f"{suite}: best-known costs"),
        history(board),
    ]


def _fresh(board: Board) -> Markup:
    if board.season is None:
        return tag("p", "No season has been run yet: there is nothing to rank.", class_="faint")
    told = tag(
        "p",
        f"Season {board.season}: {board.fresh.num_tasks} tasks drawn from a seed whose checksum was published before. "
        "Run on the maintainers' machine, without network, other processes, or files that are not needed.",
        class_="faint",
    )
    return join(
        told,
        _table(board.fresh, board.fresh_records, fresh_columns(board)),
        _pictures(board.fresh, board.fresh_records),
    )


def _table(table: Table, records: Mapping[str, Record], shown: Sequence[Column]) -> Markup:
    def data(row: TableRow) -> dict[str, str]:
        agent = records[row.key].submission.agent
        return {"division": agent.division, "time": agent.time_class}

    rows = html_table(shown, table.rows, data, empty="No row is of this division and time class.")
    return join(rows, _about(table, records))


def _about(table: Table, records: Mapping[str, Record]) -> Markup:
    """Return what the rows say of themselves, folded away."""
    return tag("details", tag("summary", "What the rows are"), html_table(about_columns(records), table.rows))


def _pictures(table: Table, records: Mapping[str, Record]) -> Markup:
    rows = dict(zip(titles(table.rows[:MOST_CURVES], records), table.rows, strict=False))
    curves = {name: row.profile for name, row in rows.items()}
    pictures = [
        (
            "Performance profile: share of tasks whose cost is at most so far above best-known",
            profile_chart(curves),
        ),
        ("What the cost is made of", bars_chart({name: row.breakdown for name, row in rows.items()})),
    ]
    return tag(
        "div",
        *(tag("figure", tag("figcaption", text), picture) for text, picture in pictures),
        class_="pictures",
    )


def _withdrawn(registers: Registers) -> Markup | None:
    if not registers.withdrawn:
        return None
    shown = [
        Column("submission", lambda e: e.id, kind="name"),
        Column("withdrawn", lambda e: e.date, kind="text"),
        Column("why", lambda e: e.reason, kind="wrap"),
    ]
    return join(tag("h2", "Withdrawn"), html_table(shown, registers.withdrawn))


def _machines(registers: Registers) -> Markup | None:
    if not registers.machines:
        return None
    shown = [
        Column("machine", lambda m: m.name, kind="name"),
        Column("processor", lambda m: m.processor, kind="text"),
        Column("cores", lambda m: m.cores, lambda m: m.cores),
        Column("memory GB", lambda m: number(m.memory_gb, 0), lambda m: m.memory_gb),
        Column(
            "CPU s per reference s",
            lambda m: number(m.cpu_s_per_reference_s, 2),
            lambda m: m.cpu_s_per_reference_s,
        ),
        Column("note", lambda m: m.note, kind="wrap"),
    ]
    return join(tag("h2", "Machines"), html_table(shown, registers.machines))


def _waiting(names: Sequence[str]) -> Markup | None:
    return tag("p", f"Not verified yet, so not shown: {', '.join(names)}.", class_="faint") if names else None
