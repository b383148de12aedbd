"""Write the report of a results file: a board of one run as one page, and pictures and tables for a paper."""

from __future__ import annotations

import base64
import csv
import dataclasses
import io
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from fleetgym.evaluation.results import Results, read_results
from fleetgym.evaluation.results_format import COST_TERMS
from fleetgym.files.documents import write_atomically
from fleetgym.files.errors import FleetgymError, printable
from fleetgym.leaderboard.charts import bars_chart, interval_chart, profile_chart, scatter_chart, standalone
from fleetgym.leaderboard.columns import score_columns
from fleetgym.leaderboard.pages import DASH, Column, html_table, interval, number, render_page
from fleetgym.leaderboard.pdf import has_pdf, pdf
from fleetgym.leaderboard.unknown_table import CAPTION, NOBODY, unknown_numbers, unknown_table
from fleetgym.leaderboard.words import TERMS, labels, summary
from fleetgym.scoring.explain import Explanation, explain
from fleetgym.scoring.score import percent, percents, reference_of
from fleetgym.scoring.statistics import pairs_of
from fleetgym.scoring.table import Played, Table, TableRow, counted_means, make_table

Rows = list[list[object]]

_HEADINGS = {"cpu-time": "CPU time", "unknown": NOBODY.capitalize()}
_KINDS = {
    "svg": ("SVG", "image/svg+xml"),
    "csv": ("CSV", "text/csv"),
    "tex": ("LaTeX", "text/x-tex"),
}


@dataclasses.dataclass(frozen=True)
class Figure:
    """One picture, or one table, and the numbers behind it; the first row of numbers is their head."""

    name: str  # of its files
    caption: str
    svg: Markup | None
    numbers: Rows
    has_latex: bool = False
    words: tuple[str, ...] = ()  # paragraphs below it

    def files(self) -> dict[str, bytes]:
        """Return what it is saved as: a file's content by its ending."""
        drawn = {} if self.svg is None else {"svg": standalone(self.svg).encode()}
        table = {"tex": self.latex().encode()} if self.has_latex else {}
        return {**drawn, "csv": self.csv().encode(), **table}

    def csv(self) -> str:
        """Return the numbers as CSV; floats round-trip."""
        stream = io.StringIO()
        csv.writer(stream, lineterminator="\n").writerows(
            [_inert(cell) for cell in row] for row in self.numbers
        )
        return stream.getvalue()

    def latex(self) -> str:
        """Return the numbers as a LaTeX table (package booktabs); shares and percentages have one decimal."""
        head, *body = ([_latex(cell) for cell in row] for row in self.numbers)
        lines = [" & ".join(row) + r" \\" for row in body]
        columns = "".join("l" if isinstance(cell, str) and cell else "r" for cell in self.numbers[-1])
        rule = rf"\begin{{tabular}}{{{columns}}}\toprule"
        end = r"\bottomrule\end{tabular}"
        return "\n".join([rule, " & ".join(head) + r" \\\midrule", *lines, end, ""])


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}


def _latex(cell: object) -> str:
    if isinstance(cell, float):
        if 0.0 < abs(cell) < 0.0005:  # not zero
            return r"$<$0.001" if cell > 0 else r"$>$-0.001"
        return f"{cell:.3f}" if abs(cell) < 1 else f"{cell:,.1f}"
    return re.sub(r"[&%$#_{}\\~^]", lambda sign: _LATEX.get(sign[0], f"\\{sign[0]}"), printable(str(cell)))


def _inert(cell: object) -> object:
    """Return a cell that no spreadsheet takes for a formula; of text, what would end or hide it is escaped."""
    if not isinstance(cell, str):
        return cell
    text = printable(cell)  # a tab or a line break before a formula is none of its letters then
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


def report(
    results: str | os.PathLike[str] | Results,
    out: str | os.PathLike[str],
    *,
    relative_to: str = "best-known",
    files: str | os.PathLike[str] | None = None,
    against: str | None = None,
) -> Path:
    """Write a report of a complete run.

    Parameters
    ----------
    results : path-like or Results
        With timings beside the file, CPU time is drawn too.
    out : path-like
        The HTML file; it needs nothing else.
    relative_to : str
        ``"best-known"`` or ``"best-in-run"``, as for `score`.
    files : path-like, optional
        Folder to write the pictures (SVG; with the extra ``report`` PDF too), their numbers (CSV) and two tables
        (LaTeX) into as well.
    against : str, optional
        An agent of the run: say why each other one costs more than it, or less. Every episode is played again for that.

    Returns
    -------
    Path
        The HTML file.

    Raises
    ------
    FleetgymError
        If the run is not complete, a task has no best-known cost, or `against` is not among several agents.
    """
    run = results if isinstance(results, Results) else read_results(results)
    name, rows = played_rows(run, relative_to)
    table = make_table(rows)
    pictures = figures(table)
    if against is not None:
        others = [name for name in run.agents if name != against]
        if not others:
            raise FleetgymError(f"{against} is the only agent of this run, so there is nothing to compare")
        pictures.append(_differences([explain([run], name, against) for name in others]))
    write_atomically(out, _render(run, name, table, pictures).encode())
    for figure in pictures if files is not None else ():
        contents = figure.files()
        if figure.svg is not None and has_pdf():  # not on the page, whose bytes depend on no extra
            contents["pdf"] = pdf(standalone(figure.svg))
        for ending, content in contents.items():
            write_atomically(Path(str(files)) / f"{figure.name}.{ending}", content)
    return Path(out)


def played_rows(run: Results, relative_to: str = "best-known") -> tuple[str, dict[str, list[Played]]]:
    """Return the name of what costs are compared with, and every agent's played tasks."""
    reference = reference_of(run, relative_to)
    rows: dict[str, list[Played]] = {}
    for episode in run.episodes:
        best_usd, bound_usd = reference.value_usd[episode.task], reference.bound_usd[episode.task]
        family = run.header.instances[episode.instance].family
        cpu_s = None if episode.timing is None else episode.timing.total_s
        rows.setdefault(episode.agent, []).append(Played.of(episode, family, best_usd, bound_usd, cpu_s))
    return reference.name, rows


# -- pictures


def figures(table: Table) -> list[Figure]:
    """Return all pictures of a table of scores; the numbers have the agents' full names."""
    rows = {row.key: row for row in table.rows}
    label = labels(list(rows))
    found = [
        _score_numbers(table),
        _families(table, rows),
        Figure(
            "profile",
            "Performance profile: share of tasks whose cost is at most so far above best-known (Dolan and Moré 2002).",
            profile_chart({label[name]: row.profile for name, row in rows.items()}),
            [
                ["agent", "ratio", "share"],
                *([name, ratio, share] for name, row in rows.items() for ratio, share in row.profile),
            ],
        ),
        Figure(
            "breakdown",
            "What the cost is made of, relative to best-known: mean over families of the mean over instances.",
            bars_chart({label[name]: row.breakdown for name, row in rows.items()}),
            [
                ["agent", *next(iter(rows.values())).breakdown],
                *([name, *row.breakdown.values()] for name, row in rows.items()),
            ],
        ),
    ]
    timed = {name: (row.cpu_s, row.score) for name, row in rows.items() if row.cpu_s is not None}
    if timed:
        found.append(
            Figure(
                "cpu-time",
                "CPU time of an episode (reset and all decisions, one machine) and score.",
                scatter_chart({label[name]: point for name, point in timed.items()}),
                [
                    ["agent", "cpu_s_per_episode", "score_percent"],
                    *([n, *point] for n, point in timed.items()),
                ],
            )
        )
    if table.unknown_percent:
        found.append(Figure("unknown", CAPTION, None, unknown_numbers(table)))
    return [*found, *([_pairs(table)] if len(rows) > 1 else []), _instances(table)]


def _pairs(table: Table) -> Figure:
    numbers: Rows = [
        ["cheaper", "dearer", "difference_percent", "low_95", "high_95", "p_holm", "improvement"]
    ]
    for pair in pairs_of([counted_means(row.tasks, table.counts_as) for row in table.rows]):
        bounds = percents(pair.difference.interval())
        names = [table.rows[pair.first].key, table.rows[pair.second].key]
        told = [percent(pair.difference.mean), *(bounds or ("", "")), pair.p_value, pair.improvement]
        numbers.append([*names, *told])
    caption = (
        "Every pair: by how many percent the second costs more than the first, p-values adjusted for all pairs "
        "(Holm), and the probability that the first is cheaper on a task."
    )
    return Figure("pairs", caption, None, numbers, has_latex=True)


def _families(table: Table, rows: Mapping[str, TableRow]) -> Figure:
    groups = {
        name: {
            "all": (row.score, row.interval),
            **{family: (row.families[family], row.family_intervals[family]) for family in table.families},
        }
        for name, row in rows.items()
    }
    numbers: Rows = [["agent", "family", "score_percent", "low_95", "high_95"]]
    for name, scores in groups.items():
        for family, (score, bounds) in scores.items():
            numbers.append([name, family, score, *(bounds or ("", ""))])
    caption = "Score by family, percent above best-known, with 95 % intervals over instances."
    label = labels(list(rows))
    chart = interval_chart({label[name]: scores for name, scores in groups.items()})
    return Figure("families", caption, chart, numbers)


def _score_numbers(table: Table) -> Figure:
    head = [
        "rank",
        "agent",
        "score_percent",
        "low_95",
        "high_95",
        *(f"{name}_percent" for name in table.families),
    ]
    facts = ["above_bound", "tail_usd", "cost_usd", "miss_share", "unserved_share", "failures", "cpu_s"]
    numbers: Rows = [[*head, *facts]]
    for row in table.rows:
        families = (row.families[name] for name in table.families)
        line = [row.rank, row.key, row.score, *(row.interval or ("", "")), *families]
        numbers.append(
            [*line, *("" if value is None else value for value in (getattr(row, f) for f in facts))]
        )
    caption = "Score, percent above best-known, with its 95 % interval; shares are of requests."
    return Figure("scores", caption, None, numbers, has_latex=True)


def _instances(table: Table) -> Figure:
    numbers: Rows = [
        ["family", "instance", "scenario", "best_usd", "bound_usd", *(row.key for row in table.rows)]
    ]
    for tasks in zip(*(row.tasks for row in table.rows), strict=True):
        first = tasks[0]
        bound = "" if first.bound_usd is None else first.bound_usd
        costs = [played.cost_usd for played in tasks]
        numbers.append([first.family, first.instance, first.scenario, first.best_usd, bound, *costs])
    return Figure("tasks", "Every task: cost of each agent in percent above best-known.", None, numbers)


def _differences(found: Sequence[Explanation]) -> Figure:
    numbers: Rows = [["agent", "difference_percent", "low_95", "high_95", *COST_TERMS]]
    for one in found:
        points = {part.name: float(part.points) for part in one.terms}
        numbers.append(
            [one.agent, one.percent, *(one.interval or ("", "")), *(points.get(t, 0.0) for t in COST_TERMS)]
        )
    against = printable(found[0].against)
    caption = (
        f"How many percent more agents cost than {against}, and the points that each cost term makes of it."
    )
    return Figure("differences", caption, None, numbers, has_latex=True, words=tuple(map(summary, found)))


# -- the page


def _render(run: Results, best: str, table: Table, pictures: Sequence[Figure]) -> str:
    head = run.header
    return render_page(
        "report.html",
        title=f"fleetgym report: {head.suite}",
        suite=head.suite,
        num_tasks=table.num_tasks,
        num_families=len(table.families),
        in_brackets=len(table.scored) < len(table.families),
        reference=best,
        version=head.version,
        jobs=head.jobs_hash[:16],
        sections=[_section(figure, table) for figure in pictures],
    )


def _section(figure: Figure, table: Table) -> dict[str, Any]:
    """Return what the template shows of a figure."""
    files = []
    for ending, content in figure.files().items():
        name, kind = _KINDS[ending]
        address = f"data:{kind};base64,{base64.b64encode(content).decode()}"
        files.append((f"{figure.name}.{ending}", name, address))
    return {
        "name": figure.name,
        "title": _HEADINGS.get(figure.name, figure.name.capitalize()),
        "caption": figure.caption,
        "files": files,
        "picture": figure.svg,
        "words": figure.words,
        "table": "" if figure.svg is not None else _TABLES[figure.name](table, figure),
    }


def _score_table(table: Table, figure: Figure) -> Markup:
    label = labels([row.key for row in table.rows])
    return html_table(score_columns(table, Column("agent", lambda r: label[r.key], kind="name")), table.rows)


def _task_table(table: Table, figure: Figure) -> Markup:
    label = labels([row.key for row in table.rows])
    tasks: list[Any] = list(zip(*(row.tasks for row in table.rows), strict=True))
    shown = [
        Column("task", lambda t: f"{t[0].instance.rpartition('/')[2]}#{t[0].scenario}", kind="name"),
        Column("family", lambda t: t[0].family, kind="text"),
        Column("best-known USD", lambda t: number(t[0].best_usd, 2), lambda t: t[0].best_usd),
        *(_agent(k, label[row.key]) for k, row in enumerate(table.rows)),
    ]
    return html_table(shown, tasks)


def _pair_table(table: Table, figure: Figure) -> Markup:
    label = labels([row.key for row in table.rows])
    shown = [
        Column("cheaper", lambda r: label[r[0]], kind="name"),
        Column("dearer", lambda r: label[r[1]], kind="text"),
        Column("difference %", lambda r: number(r[2], 2), lambda r: r[2]),
        Column("95 % interval", lambda r: interval(None if r[3] == "" else (r[3], r[4])), lambda r: r[3]),
        Column("p (Holm)", lambda r: _p_value(r[5]), lambda r: r[5]),
        Column("first is cheaper %", lambda r: number(100 * r[6]), lambda r: r[6]),
    ]
    rows = figure.numbers[1:]
    if all(row[3] == "" for row in rows):
        shown = [column for column in shown if column.head not in ("95 % interval", "p (Holm)")]
    return html_table(shown, rows)


def _difference_table(table: Table, figure: Figure) -> Markup:
    rows = figure.numbers[1:]
    label = labels([str(row[0]) for row in rows])
    shown = [
        Column("agent", lambda r: label[r[0]], kind="name"),
        Column("difference %", lambda r: number(r[1], 2), lambda r: r[1]),
        Column("95 % interval", lambda r: interval(None if r[2] == "" else (r[2], r[3])), lambda r: r[2]),
        *(_points(k, TERMS[term]) for k, term in enumerate(COST_TERMS, start=4)),
    ]
    return html_table(shown, rows)


def _points(k: int, name: str) -> Column:
    return Column(name, lambda r: number(r[k], 2), lambda r: r[k])


def _p_value(value: float | str) -> str:
    if value == "":
        return DASH
    return "< 0.0001" if float(value) < 1e-4 else number(float(value), 4)


def _agent(k: int, key: str) -> Column:
    return Column(f"{key} %", lambda t: number(100 * (t[k].ratio - 1)), lambda t: t[k].ratio)


def _unknown(table: Table, figure: Figure) -> Markup:
    return unknown_table(table, labels([row.key for row in table.rows]))


_TABLES = {
    "scores": _score_table,
    "tasks": _task_table,
    "pairs": _pair_table,
    "unknown": _unknown,
    "differences": _difference_table,
}
