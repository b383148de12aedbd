r"""Write ``docs/results.md`` and ``docs/data/family_scores.json`` from results files.

    python -m tools.score_suite results/v1-test/*.jsonl \
        --sample leaderboard/submissions/*-sample-{saa,lcp}/episodes.jsonl.gz \
        --sample-tuned leaderboard/submissions/*-sample-*-tuned/episodes.jsonl.gz --picture docs/images/score-cpu.png

Files that are not complete are named on the page and left out. Agents too slow for all tasks play a sample of them; the
page ranks them there, with all others, and with tuned settings. Scores, intervals, ties and breakdowns are those of the
leaderboard. What stands outside the page's marks, the reasons, is written by hand and stays.
"""

from __future__ import annotations

import dataclasses
import math
import os
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from fleetgym.cli.pictures import check_picture, new_figure, save_picture
from fleetgym.cli.process import run_program
from fleetgym.evaluation.results import Results, hash_jobs, read_results, read_timings, timings_path
from fleetgym.evaluation.results_format import InstanceFacts
from fleetgym.evaluation.run import evaluate
from fleetgym.files.documents import write_atomically
from fleetgym.files.errors import FleetgymError
from fleetgym.leaderboard.pages import interval, number
from fleetgym.leaderboard.report import played_rows
from fleetgym.leaderboard.submission import EPISODES
from fleetgym.model.library import entries, suites
from fleetgym.runtime.programs import program
from fleetgym.scoring.comparison import is_known
from fleetgym.scoring.statistics import counted, family_means
from fleetgym.scoring.table import Played, Table, Task, make_table, mean_log_ratios
from tools.family_statistics import FAMILIES, FamilyScores, write_scores
from tools.make_instances import HEADLINE
from tools.markdown import BEGIN, END, rewrite, table

ROOT = Path(__file__).resolve().parents[1]
#: Of the families' columns, of both sets.
ORDER = (*FAMILIES, *HEADLINE)
PAGE = ROOT / "docs" / "results.md"
#: CPU times of submissions that the page reads.
TIMINGS = ROOT / "leaderboard" / "timings"
SCORES = ROOT / "docs" / "data" / "family_scores.json"

#: Heading of the part about the sample; other pages link to it.
SAMPLE = "Slower agents, on a sample"

#: Terms of cost that are shown, and those that are summed up as "other".
TERMS = ("rental", "unserved", "late", "slo", "startup")

#: Worse scores are not in the picture, percent.
MOST_DRAWN = 150.0

Rows = Mapping[str, Sequence[Played]]


def smoke(folder: Path) -> int:
    """Score three agents, one of them on the sample, on one short instance."""
    page, files = folder / "results.md", []
    page.write_text(f"# Results\n\n{BEGIN}\n{END}\n", encoding="utf-8")
    for agent in ("hold", "gh", "autoscale"):
        files.append(str(folder / f"{agent}.jsonl"))
        evaluate([agent], ["fleet-v0/dev/ou-s-001"], scenarios=[0], isolate="never", out=files[-1])
    out = ["--page", str(page), "--scores", str(folder / "scores.json")]
    return main([*files[:2], "--sample", files[2], *out])


def main(argv: Sequence[str] | None = None) -> int:
    """Write page and scores."""
    parser = program(
        __doc__,
        writes="docs/results.md and docs/data/family_scores.json.",
        takes="20 CPU seconds for fleet-v1/test.",
        smoke=smoke,
    )
    parser.add_argument(
        "results", nargs="+", type=Path, help="results files; timings beside them are passed over"
    )
    parser.add_argument(
        "--sample", nargs="+", type=Path, default=[], help="results of slower agents on some of the tasks"
    )
    parser.add_argument(
        "--sample-tuned",
        nargs="+",
        type=Path,
        default=[],
        help="results of tuned settings on the tasks of --sample",
    )
    parser.add_argument(
        "--picture", help="draw scores against CPU seconds; of the sample, where there is one"
    )
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--scores", type=Path, default=SCORES)
    arguments = parser.parse_args(argv)
    check_picture(arguments.picture)
    if arguments.sample_tuned and not arguments.sample:
        parser.error("--sample-tuned goes with --sample")
    complete, unfinished = read(arguments.results)
    run = merged(complete)
    reference, rows = compared(run)
    about = played_tasks(run)
    text = written(reference, rows, about, unfinished)
    scores = {about: family_scores(rows)}
    drawn: Rows = rows
    of, where = reference, about
    if arguments.sample:
        complete, unfinished = read(arguments.sample)
        slower = merged(complete)
        settings = read(arguments.sample_tuned)[0] if arguments.sample_tuned else []
        both = on_shared_tasks([run, slower, *settings])
        of, all_rows = compared(both)
        as_published = [*run.agents, *slower.agents]
        where = played_tasks(both)
        scores[where] = family_scores({agent: all_rows[agent] for agent in as_published})
        drawn = with_names(as_published, all_rows)
        text += f"\n### {SAMPLE}\n\n{sampled(slower.agents, of, drawn, where, unfinished)}"
    if arguments.picture:
        draw(make_table(drawn), f"Percent above {of}, {where}".replace("`", ""), arguments.picture)
        text += (
            f"\n![Score against CPU seconds]({os.path.relpath(arguments.picture, arguments.page.parent)})\n"
        )
    write_atomically(arguments.page, rewrite(arguments.page, text).encode())
    write_scores(arguments.scores, scores)
    print(f"{len(rows)} agents, {about}, relative to {reference}", file=sys.stderr)
    return 0


def read(files: Iterable[Path]) -> tuple[list[Results], dict[str, str]]:
    """Return the complete results, and how far the others are by agent."""
    complete, unfinished = [], {}
    for path in files:
        if path.name.endswith(timings_path("").name):
            continue
        run = read_results(path, allow_incomplete=True)
        if path.name == EPISODES:
            run = with_timings(run, TIMINGS / f"{path.parent.name}.jsonl.gz")
        if run.is_complete:
            complete.append(run)
        else:
            unfinished[path.stem] = f"{len(run.episodes)} of {run.header.num_jobs}"
    if not complete:
        raise FleetgymError("no results file is complete")
    return complete, unfinished


def with_timings(run: Results, path: Path) -> Results:
    """Return a submission's run with the CPU times that were measured when it was played, if they are at hand."""
    timings, *_ = read_timings(path)
    episodes = (dataclasses.replace(episode, timing=timings.get(episode.key)) for episode in run.episodes)
    return dataclasses.replace(run, episodes=tuple(episodes))


def merged(runs: Sequence[Results]) -> Results:
    """Return runs of several agents as one.

    Raises
    ------
    FleetgymError
        If they played different versions of an instance, or an agent is in two of them.
    """
    instances: dict[str, InstanceFacts] = {}
    for run in runs:
        for name, facts in run.header.instances.items():
            if instances.setdefault(name, facts) != facts:
                raise FleetgymError(f"{name} is not the same instance in all results files")
    episodes = tuple(episode for run in runs for episode in run.episodes)
    if len({episode.key for episode in episodes}) < len(episodes):
        raise FleetgymError("an agent is in two results files")
    header = dataclasses.replace(
        runs[0].header,
        num_jobs=len(episodes),
        jobs_hash=hash_jobs(episode.key for episode in episodes),
        instances=instances,
    )
    return Results(header, episodes)


def compared(run: Results) -> tuple[str, dict[str, list[Played]]]:
    """Return what costs are compared with, best-known if every task has them, and every agent's played tasks."""
    return played_rows(run, "best-known" if is_known(run) else "best-in-run")


def played_tasks(run: Results) -> str:
    """Return which tasks of which suites were played; in detail if not all were."""
    played = {episode.task for episode in run.episodes}
    for name, tasks in suites().items():
        if played == set(tasks):
            return f"all {len(tasks)} tasks of `{name}`"
    splits = sorted({name.rpartition("/")[0] for name, _ in played})
    every = sum(entry.scenarios for entry in entries().values() if entry.suite in splits)
    named = ", ".join(f"`{split}`" for split in splits)
    if len(played) == every:
        return f"all {every} tasks of {named}"
    kinds = Counter(name.rpartition("/")[2].rpartition("-")[0] for name, _ in sorted(played))
    return f"{len(played)} of {every} tasks of {named} ({', '.join(f'{n} `{kind}`' for kind, n in kinds.items())})"


def family_scores(rows: Rows) -> FamilyScores:
    """Return each agent's mean of ln(cost / reference) by family and list of merged ones, the best agent first."""
    found, of_all = {}, make_table(rows)
    for agent in (row.key for row in of_all.rows):
        logs = mean_log_ratios(rows[agent])
        means = family_means(logs)
        found[agent] = {family: means[family] for family in ORDER if family in means}
        found[agent] |= family_means(counted(logs, of_all.counts_as))  # merged families, too
    return found


# -- the page


def written(reference: str, rows: Rows, about: str, unfinished: Mapping[str, str]) -> str:
    """Return what the page says between its marks."""
    headline = make_table(rows)
    by_family = tables_by_family(rows)
    return f"""Played: {about}, by {len(rows)} agents. Scores are percent above
{_stated(reference)}.
{_left_out(unfinished)}

### Scores

The mean over the headline families ({_headline(headline, by_family)}),
with 95 % intervals over instances. **Agents share a rank if they do not differ significantly from the first of them**
(paired differences, Holm's correction, 5 %). Two further down in a group may differ.

{_ranking(headline)}
{_deciding(rows)}
### By family

Percent above the reference. In bold: a family's lowest.

{_families(headline, by_family)}
### What the cost is made of

Percent of the reference cost, headline families: rental; penalties for requests that are not served, late, or outside
their SLOs on average; start-up fees; the rest (storage, delay). The last columns are shares of requests: those that
violate their SLO, and those that are not served.

{_breakdown(headline)}"""


def with_names(published: Collection[str], rows: Rows) -> Rows:
    """Return the rows, of which those of other settings are called "AGENT tuned".

    Raises
    ------
    FleetgymError
        If a setting's agent is not among the published ones, or has two settings.

    Examples
    --------
    >>> list(with_names(["gh"], {"gh": [], "gh(margin=0.2)": []}))
    ['gh', 'gh tuned']
    """
    found: dict[str, Sequence[Played]] = {}
    for key, tasks in rows.items():
        agent = key.partition("(")[0]
        if agent not in published:
            raise FleetgymError(f"{key} is tuned, but {agent} as published is not among the results")
        name = key if key in published else f"{agent} tuned"
        if name in found:
            raise FleetgymError(f"{agent} is in two results files of tuned settings")
        found[name] = tasks
    return found


def sampled(
    slower: Sequence[str],
    reference: str,
    rows: Rows,
    about: str,
    unfinished: Mapping[str, str],
) -> str:
    """Return what the page says of agents that played some of the tasks: they among all.

    Parameters
    ----------
    slower : sequence of str
        Those that have not played all tasks.
    reference : str
        What costs are compared with.
    rows : Rows
        Of all agents, and of tuned settings.
    about : str
        Which tasks they are.
    unfinished : mapping
        How far other agents are.
    """
    return f"""Not played on all tasks, mostly for their time. They are ranked among all {len(rows)} agents and
tuned settings on the tasks that all have played, {about}. Scores are percent above
{_stated(reference)}. [The leaderboard](../leaderboard/README.md)
has the others on the sample, and scores by family.
{_left_out(unfinished)}

{_by_place(make_table(rows), slower)}
{_deciding({agent: rows[agent] for agent in slower})}"""


def on_shared_tasks(runs: Sequence[Results]) -> Results:
    """Return the episodes of all agents on the tasks that all have played.

    Raises
    ------
    FleetgymError
        If there is no such task.
    """
    tasks = shared_tasks(runs)
    if not tasks:
        raise FleetgymError("there is no task that all agents of --sample have played")
    return merged([restricted(run, tasks) for run in runs])


def shared_tasks(runs: Iterable[Results]) -> set[Task]:
    """Return the tasks that every agent of every run has played."""
    played: dict[str, set[Task]] = {}
    for run in runs:
        for episode in run.episodes:
            played.setdefault(episode.agent, set()).add(episode.task)
    return set.intersection(*played.values())


def restricted(run: Results, tasks: Collection[Task]) -> Results:
    """Return the episodes of some tasks, in their order."""
    return dataclasses.replace(run, episodes=tuple(e for e in run.episodes if e.task in tasks))


def tables_by_family(rows: Rows) -> dict[str, Table]:
    """Return a table for every family that was played."""
    return {
        family: make_table({agent: [t for t in tasks if t.family == family] for agent, tasks in rows.items()})
        for family in ORDER
        if any(task.family == family for task in next(iter(rows.values())))
    }


def _headline(found: Table, by_family: Iterable[str]) -> str:
    """Return the names of what counts, the merged ones joined by plus signs."""
    names = dict.fromkeys(found.counts_as[name] for name in by_family if name in found.scored)
    return ", ".join(" + ".join(f"`{family}`" for family in name.split("+")) for name in names)


def _stated(reference: str) -> str:
    if reference != "best-in-run":
        return f"the best-known costs `{reference}`"
    return (
        "the cheapest of these agents on each task, as these tasks have no best-known costs yet; against a\n"
        "better reference every score is larger, and the differences between agents stay"
    )


def _left_out(unfinished: Mapping[str, str]) -> str:
    left = ", ".join(f"`{agent}` ({state} episodes)" for agent, state in unfinished.items())
    return f"Not finished, and left out: {left}." if left else ""


def draw(found: Table, title: str, path: str) -> None:
    """Draw scores against CPU seconds; a line joins the agents that nobody beats in both.

    Parameters
    ----------
    found : Table
        Agents that were not timed are left out.
    title : str
        What is above the picture.
    path : str
        Of the picture.
    """
    points = sorted((row.cpu_s, row.score, row.key) for row in found.rows if row.cpu_s)
    shown = [point for point in points if point[1] <= MOST_DRAWN]
    best = [p for k, p in enumerate(shown) if all(p[1] < other[1] for other in shown[:k])]
    figure = new_figure(9.0, 6.0)
    axes = figure.subplots()
    axes.margins(x=0.12)
    axes.set(xscale="log", xlabel="CPU seconds a day", ylabel="score, % (lower is better)", title=title)
    axes.plot([p[0] for p in best], [p[1] for p in best], color="tab:orange", drawstyle="steps-post")
    axes.scatter([p[0] for p in shown], [p[1] for p in shown], s=18)
    for cpu_s, score, key in shown:
        axes.annotate(key, (cpu_s, score), xytext=(4, 3), textcoords="offset points", fontsize=8)
    axes.grid(alpha=0.3, which="major")
    save_picture(figure, path)


def _ranking(found: Table) -> str:
    head = ["rank", "agent", "score %", "95 % interval", "CVaR-10 % USD", "failures", "CPU s an episode"]
    return table(
        head,
        [
            [
                row.rank,
                f"`{row.key}`",
                number(row.score, 1),
                interval(row.interval),
                number(row.tail_usd, 0),
                row.failures,
                number(row.cpu_s, 2),
            ]
            for row in found.rows
        ],
        text_columns=2,
    )


def _deciding(rows: Rows) -> str:
    """Return how long agents took to decide, all their episodes together, if all were timed."""
    times = [played.cpu_s for tasks in rows.values() for played in tasks]
    if not times or None in times:
        return ""
    hours = math.fsum(seconds for seconds in times if seconds is not None) / 3600.0
    agent = "this agent" if len(rows) == 1 else f"these {len(rows)} agents"
    return f"Deciding in all these episodes took {agent} {hours:.2f} CPU hours.\n"


def _scores(by_family: Mapping[str, Table]) -> dict[tuple[str, str], str]:
    """Return scores by agent and family; a family's lowest is bold."""
    return {
        (row.key, family): f"**{number(row.score)}**" if row.score == lowest else number(row.score)
        for family, found in by_family.items()
        for lowest in [min(row.score for row in found.rows)]
        for row in found.rows
    }


def _by_place(found: Table, shown: Collection[str]) -> str:
    """Return one table of places, scores and CPU times of some of the agents."""
    head = ["rank", "agent", "score %", "95 % interval", "CPU s an episode"]
    rows = [
        [row.rank, f"`{row.key}`", number(row.score, 1), interval(row.interval), number(row.cpu_s, 2)]
        for row in found.rows
        if row.key in shown
    ]
    return table(head, rows, text_columns=2)


def _families(headline: Table, by_family: Mapping[str, Table]) -> str:
    cells = _scores(by_family)
    winners = ["winner", *(f"`{found.rows[0].key}`" for found in by_family.values())]
    rows = [[f"`{row.key}`", *(cells[row.key, family] for family in by_family)] for row in headline.rows]
    return table(["agent", *(f"`{family}`" for family in by_family)], [*rows, winners])


def _breakdown(found: Table) -> str:
    rows = []
    for row in found.rows:
        shown = [row.breakdown[term] for term in TERMS]
        other = sum(row.breakdown.values()) - sum(shown)
        shares = [*shown, other, row.miss_share, row.unserved_share]
        rows.append([f"`{row.key}`", *(number(100.0 * share) for share in shares)])
    return table(["agent", *TERMS, "other", "SLO violations, %", "unserved, %"], rows)


if __name__ == "__main__":
    run_program(main)
