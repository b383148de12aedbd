"""Build the static site of boards: one page that opens from the disk, and the same tables in Markdown."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetgym.agents.registry import agent_entries
from fleetgym.evaluation.isolation.rules import TIME_CLASSES
from fleetgym.files.documents import write_atomically
from fleetgym.leaderboard.charts import bars_chart, profile_chart
from fleetgym.leaderboard.columns import about_columns, columns, fresh_columns, open_columns, titles
from fleetgym.leaderboard.history import history
from fleetgym.leaderboard.pages import Column, html_table, number, render_page
from fleetgym.leaderboard.readme import with_tables
from fleetgym.leaderboard.record import Record
from fleetgym.leaderboard.registers import Registers, read_registers
from fleetgym.leaderboard.standings import Board, make_boards, unverified
from fleetgym.leaderboard.submission import DIVISIONS
from fleetgym.leaderboard.unknown_table import CAPTION, NOBODY, unknown_table
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
    links = _Links(root, target, boards) if out is None else None
    write_atomically(target / "index.html", render(boards, registers, unverified(root), links).encode())
    readme = root / "README.md"
    if readme.is_file() and out is None and release is None:
        write_atomically(readme, with_tables(readme.read_text(encoding="utf-8"), boards).encode())
    return target / "index.html"


class _Links:
    """Links from the page, in its usual place, to the files of rows and to the guide, if they exist."""

    def __init__(self, root: Path, target: Path, boards: Sequence[Board]):
        self._root, self._target = root, target
        records = (r for b in boards for r in (*b.certified_records.values(), *b.fresh_records.values()))
        self._agents = {record.id: record.submission.agent for record in records}
        self._owners = {key: owner for board in boards for key, owner in board.owners.items()}

    def row(self, key: str, record: str) -> list[tuple[str, str]]:
        """Return the links of one row, whose record is this file of the board."""
        agent = self._agents[key]
        found = [("code", agent.code_url)] if agent.code_url else []
        is_ours = self._owners[key].startswith("fleetgym")
        entry = agent_entries().get(agent.reference or "") if is_ours else None
        if entry is not None and entry.target.startswith("fleetgym.baselines."):
            module = entry.target.partition(":")[0].removeprefix("fleetgym.baselines.").replace(".", "/")
            found += self.to("code", f"../baselines/{module}.py") or self.to("code", f"../baselines/{module}")
        for name, path in (
            ("README", f"submissions/{key}/README.md"),
            ("actions", f"submissions/{key}/episodes.jsonl.gz"),
            ("record", record),
        ):
            found += self.to(name, path)
        return found

    def to(self, name: str, path: str) -> list[tuple[str, str]]:
        """Return a link to a file of the board's folder, or none if there is none."""
        place = self._root / path
        found = os.path.relpath(place.resolve(), self._target.resolve()).replace(os.sep, "/")
        return [(name, found)] if place.exists() else []


def render(
    boards: Sequence[Board],
    registers: Registers,
    waiting: Sequence[str] = (),
    links: _Links | None = None,
) -> str:
    """Return the page."""
    guide = links.to("guide", "../docs/leaderboard.md") if links else []
    told = _registers(registers)
    return render_page(
        "leaderboard.html",
        title="fleetgym leaderboard",
        guide=guide[0][1] if guide else None,
        boards=[_board(board, links) for board in boards],
        contents=[(title, title) for title in ("Submit a row", *(title for title, _ in told))],
        filters=[("division", "Division", DIVISIONS), ("time", "Time class", tuple(TIME_CLASSES))],
        open_suite=next((board.suite for board in boards if board.season is not None), boards[0].suite),
        registers=told,
        waiting=waiting,
        nobody=NOBODY.capitalize(),
        unknown_caption=CAPTION,
        version=__version__,
    )


def _board(board: Board, links: _Links | None) -> dict[str, Any]:
    """Return what the template shows of a board."""

    def to(folder: str) -> Any:
        return (lambda key: links.row(key, f"{folder}/{key}.json.gz")) if links else None

    sample = samples().get(board.suite)
    has_ranked = bool(board.season or board.open_rows)
    best_known_title = f"{board.suite}: best-known costs"
    certified = columns(board, board.certified, to("verified"))
    ranked = fresh_columns(board, to(f"fresh/{board.season}")) if board.season else []
    ranked_part = _part(f"{board.suite}: ranked, fresh tasks", board.fresh, board.fresh_records, ranked)
    certified_part = _part(
        f"{board.suite}: certified costs", board.certified, board.certified_records, certified
    )
    contents = [("ranked", ranked_part["title"])] if has_ranked else []
    contents += [("certified costs", certified_part["title"]), ("best-known costs", best_known_title)]
    return {
        "suite": board.suite,
        "contents": contents,
        "has_ranked": has_ranked,
        "season": board.season,
        "release": board.release,
        "is_frozen": board.is_frozen,
        "newer": board.newer,
        "which": f" ({sample.about})" if sample else "",
        "open": _open(board),
        "ranked": ranked_part,
        "certified": certified_part,
        "unknown": _unknown(board.certified, board.certified_records),
        "best_known_title": best_known_title,
        "history": history(board),
    }


def _open(board: Board) -> dict[str, Any] | None:
    """Return what the template shows of the season that is open, if it has rows."""
    if not board.open_rows:
        return None
    season = board.open_rows[0].season
    return {
        "season": season,
        "table": html_table(open_columns(board), board.open_rows, label=f"Season {season}"),
    }


def _part(title: str, table: Table, records: Mapping[str, Record], shown: Sequence[Column]) -> dict[str, Any]:
    """Return a table of rows, what the rows say of themselves, and pictures."""

    def data(row: TableRow) -> dict[str, str]:
        agent = records[row.key].submission.agent
        found = f"{agent.title} {row.key}".lower()
        return {"division": agent.division, "time": agent.time_class, "name": found}

    rows = html_table(
        shown,
        table.rows,
        data,
        empty="No row is of this name, division and time class.",
        label=title,
        banded=lambda row: row.rank,
    )
    named = dict(zip(titles(table.rows[:MOST_CURVES], records), table.rows, strict=False))
    curves = {name: row.profile for name, row in named.items()}
    terms = {name: row.breakdown for name, row in named.items()}
    told = "Performance profile: share of tasks whose cost is at most so far above best-known"
    drawn = [(told, profile_chart(curves)), ("What the cost is made of", bars_chart(terms))] if named else []
    return {
        "title": title,
        "num_tasks": table.num_tasks,
        "table": rows,
        "about": html_table(about_columns(records), table.rows),
        "pictures": drawn,
    }


def _unknown(table: Table, records: Mapping[str, Record]) -> str:
    """Return what each row leaves beyond what nobody can know, if that was measured."""
    if not table.unknown_percent:
        return ""
    return unknown_table(
        table, dict(zip((row.key for row in table.rows), titles(table.rows, records), strict=True))
    )


def _registers(registers: Registers) -> list[tuple[str, str]]:
    """Return the titles and tables of what is kept by hand, as far as there is any."""
    withdrawn = [
        Column("submission", lambda e: e.id, kind="name"),
        Column("withdrawn", lambda e: e.date, kind="text"),
        Column("why", lambda e: e.reason, kind="wrap"),
    ]
    machines = [
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
    parts: list[tuple[str, list[Column], Sequence[Any]]] = [
        ("Withdrawn", withdrawn, registers.withdrawn),
        ("Machines", machines, registers.machines),
    ]
    return [(title, html_table(shown, rows)) for title, shown, rows in parts if rows]
