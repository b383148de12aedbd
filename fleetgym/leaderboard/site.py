"""The static site of boards: one page that opens from the disk, and the same table in Markdown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetgym.agents.registry import agent_entries
from fleetgym.evaluation.isolation.rules import TIME_CLASSES
from fleetgym.files.documents import write_atomically
from fleetgym.leaderboard.charts import bars_chart, profile_chart
from fleetgym.leaderboard.columns import (
    Links,
    about_columns,
    columns,
    fresh_columns,
    titles,
    with_bars_and_links,
)
from fleetgym.leaderboard.history import history
from fleetgym.leaderboard.html_tables import Column, html_table, number
from fleetgym.leaderboard.markup import Markup, join, page, tag
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
    """Where the files of rows and the guides are, seen from the page in its usual place; only what exists is named."""

    def __init__(self, root: Path, target: Path, boards: Sequence[Board]):
        self._root, self._target = root, target
        records = (r for b in boards for r in (*b.certified_records.values(), *b.fresh_records.values()))
        self._agents = {record.id: record.submission.agent for record in records}

    def row(self, key: str, record: str) -> list[tuple[str, str]]:
        """Return the links of one row, whose record is this file of the board."""
        agent = self._agents[key]
        found = [("code", agent.code_url)] if agent.code_url else []
        entry = agent_entries().get(agent.reference or "")
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
    guide = (
        links.to("How to submit, what is verified, and what ranks", "../docs/leaderboard.md") if links else []
    )
    body = tag(
        "main",
        tag("h1", "fleetgym leaderboard"),
        tag(
            "p",
            "Allocating GPUs to LLM serving. Every number here was recomputed from the submitted actions by an "
            "independent evaluator; only runs on tasks drawn after the code was handed in are ranked.",
            class_="faint",
        ),
        *(tag("p", tag("a", name, href=address)) for name, address in guide),
        _contents(boards, registers),
        _controls(),
        *(part for board in boards for part in _board(board, links)),
        _submit(boards),
        _withdrawn(registers),
        _machines(registers),
        _waiting(waiting),
        tag(
            "footer",
            f"Built by fleetgym {__version__}. Score: percent above best-known cost, geometric mean over "
            "families of the mean over instances; lower is better; families in (brackets) are no part of it. "
            "Intervals: 95 %, Student's, over instances within families; bars of a table share a logarithmic axis. "
            "Rows share a rank if they cannot be told from the first of them at 5 % (Holm); "
            "rows of one rank have one shade.",
        ),
    )
    return page("fleetgym leaderboard", body)


def _heading(text: str) -> Markup:
    return tag("h2", text, id=_anchor(text))


def _anchor(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _titles(board: Board) -> list[str]:
    """Return the headings of a board's parts: ranked, certified, best-known."""
    return [
        f"{board.suite}: {part}" for part in ("ranked, fresh tasks", "certified costs", "best-known costs")
    ]


def _contents(boards: Sequence[Board], registers: Registers) -> Markup:
    """Return links to the parts of the page."""
    parts = ("ranked", "certified costs", "best-known costs")
    lines = [(board.suite, list(zip(parts, _titles(board), strict=True))) for board in boards]
    rest = [*(["Withdrawn"] if registers.withdrawn else []), *(["Machines"] if registers.machines else [])]
    lines.append(("", [(title, title) for title in ("Submit a row", *rest)]))

    def line(name: str, parts: Sequence[tuple[str, str]]) -> Markup:
        made = [tag("a", text, href=f"#{_anchor(title)}") for text, title in parts]
        links = (join(" · " if k else None, link) for k, link in enumerate(made))
        return tag("li", join(tag("b", name), ": ") if name else None, *links)

    return tag("nav", tag("ul", *(line(*each) for each in lines)), aria_label="Contents")


def _submit(boards: Sequence[Board]) -> Markup:
    suite = next((board.suite for board in boards if board.season is not None), boards[0].suite)
    lines = (
        f"fleetgym evaluate my_agent/agent.py:MyAgent --suite {suite} --out mine.jsonl",
        "fleetgym submit mine.jsonl --out leaderboard/submissions/2026-12-01-mine --code my_agent",
        "fleetgym verify leaderboard/submissions/2026-12-01-mine",
    )
    return join(
        _heading("Submit a row"),
        tag("p", "Play the suite, pack the run, check it, and open a pull request with the folder:"),
        tag("pre", "\n".join(lines), tabindex="0"),
    )


def _controls() -> Markup:
    choices = (("division", "Division", DIVISIONS), ("time", "Time class", tuple(TIME_CLASSES)))
    search = tag("label", "Name", tag("input", type="search", data_search="", placeholder="part of it"))
    return tag(
        "div",
        search,
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
        tag("details", tag("summary", "Columns"), tag("div", class_="picker"), class_="columns"),
        class_="controls",
        hidden="",
    )


def _board(board: Board, links: _Links | None) -> list[Markup]:
    sample = samples().get(board.suite)
    which = f" ({sample.about})" if sample else ""
    certified = columns(board, board.certified)
    ranked, costs, best_known = _titles(board)

    def files(key: str) -> Sequence[tuple[str, str]]:
        return links.row(key, f"verified/{key}.json.gz") if links else ()

    return [
        _heading(ranked),
        _fresh(board, links),
        _heading(costs),
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
        _table(costs, board.certified, board.certified_records, certified, files if links else None),
        _unknown(board.certified, board.certified_records),
        _pictures(board.certified, board.certified_records),
        _heading(best_known),
        history(board),
    ]


def _fresh(board: Board, links: _Links | None) -> Markup:
    if board.season is None:
        return tag("p", "No season has been run yet: there is nothing to rank.", class_="faint")
    told = tag(
        "p",
        f"Season {board.season}: {board.fresh.num_tasks} tasks drawn from a seed whose checksum was published before. "
        "Run on the maintainers' machine, without network, other processes, or files that are not needed.",
        class_="faint",
    )

    def files(key: str) -> Sequence[tuple[str, str]]:
        return links.row(key, f"fresh/{board.season}/{key}.json.gz") if links else ()

    shown, title = fresh_columns(board), _titles(board)[0]
    return join(
        told,
        _table(title, board.fresh, board.fresh_records, shown, files if links else None),
        _pictures(board.fresh, board.fresh_records),
    )


def _table(
    title: str, table: Table, records: Mapping[str, Record], shown: Sequence[Column], links: Links | None
) -> Markup:
    def data(row: TableRow) -> dict[str, str]:
        agent = records[row.key].submission.agent
        found = f"{agent.title} {row.key}".lower()
        return {"division": agent.division, "time": agent.time_class, "name": found}

    rows = html_table(
        with_bars_and_links(shown, table, links),
        table.rows,
        data,
        empty="No row is of this name, division and time class.",
        label=title,
        banded=lambda row: row.rank,
    )
    return join(rows, _about(table, records))


def _about(table: Table, records: Mapping[str, Record]) -> Markup:
    """Return what the rows say of themselves, folded away."""
    return tag("details", tag("summary", "What the rows are"), html_table(about_columns(records), table.rows))


def _unknown(table: Table, records: Mapping[str, Record]) -> Markup:
    """Return what each row leaves beyond what nobody can know, folded away."""
    if not table.unknown_percent:
        return join()
    names = dict(zip((row.key for row in table.rows), titles(table.rows, records), strict=True))
    told = tag("p", CAPTION, class_="faint")
    return tag("details", tag("summary", NOBODY.capitalize()), told, unknown_table(table, names))


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
    return join(_heading("Withdrawn"), html_table(shown, registers.withdrawn))


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
    return join(_heading("Machines"), html_table(shown, registers.machines))


def _waiting(names: Sequence[str]) -> Markup | None:
    return tag("p", f"Not verified yet, so not shown: {', '.join(names)}.", class_="faint") if names else None
