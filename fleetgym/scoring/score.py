"""Score results against best-known costs.

For a task of cost C and best-known cost B, r = C / B. An instance's score is the mean of ln r over its scenarios, a
family's the mean over its instances, the headline 100 (exp(mean over families) - 1): percent above best-known. A set
may name the families that make up the headline (`fleetgym.model.library.counts_as`); others are shown only.
It may merge some of them. Merged families count as one, whose instances are those of all of them
(`fleetgym.model.library.counts_as`).
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fleetgym.agents.arguments import one_of
from fleetgym.evaluation.results import Results, read_results
from fleetgym.evaluation.results_format import EpisodeResult
from fleetgym.files.errors import FleetgymError
from fleetgym.model.library import Task, counts_as, task_name
from fleetgym.runtime.text_tables import NOTHING, align, number, share
from fleetgym.scoring.best_known import BestKnownSet, load_best_known
from fleetgym.scoring.statistics import FamilyMean, cluster_means, counted, family_means

if TYPE_CHECKING:
    import pandas

RELATIVE_TO = ("best-known", "best-in-run")


def percent(mean_log_ratio: float) -> float:
    """Return a mean of ln r as percent above best-known.

    Examples
    --------
    >>> import math
    >>> round(percent(math.log(1.25)), 9)
    25.0
    """
    return 100.0 * math.expm1(mean_log_ratio)


def percents(interval: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return the bounds of an interval of mean ln ratios in percent; None stays."""
    return None if interval is None else (percent(interval[0]), percent(interval[1]))


def scored_families(instances: Mapping[str, str], suite: str | None = None) -> dict[str, str]:
    """Return the families that make up the headline of a run, sorted, and what each counts as.

    Parameters
    ----------
    instances : mapping
        Family of each instance that was played.
    suite : str, optional
        Whose families count; by default those of the set that an instance's name begins with.

    Returns
    -------
    dict of str
        Those that the sets name; all, if none of them was played. A family counts as itself, or as all that it is
        merged with.

    Examples
    --------
    >>> scored_families({"fleet-v0/dev/ou-s-001": "ou", "fleet-v0/dev/grw-s-001": "grw"})
    {'grw': 'grw', 'ou': 'ou'}
    """
    played = {((suite or name).partition("/")[0], family) for name, family in instances.items()}
    named = {name: counts_as(name) for name, _ in played}
    scored = {f: named[name].get(f, f) for name, f in sorted(played) if not named[name] or f in named[name]}
    return dict(sorted((scored or {family: family for _, family in played}).items()))


def column_head(family: str, scored: Sequence[str]) -> str:
    """Return the head of a family's column: in brackets if it is no part of the score.

    Examples
    --------
    >>> column_head("ou", ["ou"]), column_head("grw", ["ou"])
    ('ou', '(grw)')
    """
    return family if family in scored else f"({family})"


@dataclasses.dataclass(frozen=True)
class ScoreRow:
    """One agent's line of the table; without a remark, of the families that make up the score."""

    agent: str
    score: float  # percent above best-known
    interval: tuple[float, float] | None  # 95 %
    families: Mapping[str, float]  # percent above best-known, every family
    cost_usd: float  # of all episodes together
    miss_share: float | None  # mean over episodes
    unserved_share: float | None
    failures: int  # in every family
    cpu_ms_per_decision: float | None  # None where it was not measured
    reset_cpu_s: float | None  # mean over episodes
    is_reference: bool = False  # a reference row, no agent

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True, repr=False)
class ScoreTable:
    """Scores of all agents of a run, the best first; prints as a table.

    Examples
    --------
    >>> import fleetgym
    >>> table = fleetgym.score(fleetgym.evaluate(["gh", "hold"], "fleet-v0/toy/two-pools"))
    >>> table.to_frame()["score"].round(2).to_dict()
    {'gh': 71.43, 'hold': 124.29}
    """

    rows: tuple[ScoreRow, ...]
    families: tuple[str, ...]
    scored: tuple[str, ...]  # families that make up the score
    num_tasks: int
    suite: str
    best_known: str  # name of the set, or best-in-run
    version: str

    def head(self, family: str) -> str:
        """Return the head of a family's column."""
        return column_head(family, self.scored)

    def row(self, agent: str) -> ScoreRow:
        """Return an agent's row."""
        return next(row for row in self.rows if row.agent == agent)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and mappings."""
        return {**dataclasses.asdict(self), "rows": [row.to_dict() for row in self.rows]}

    def to_frame(self) -> pandas.DataFrame:
        """Return a data frame with one row for each agent, the best first.

        Returns
        -------
        pandas.DataFrame
            Indexed by agent. Columns: `score` and the bounds `low` and `high` of its 95 % interval, and one column
            for each family, all in percent above best-known; then the other attributes of `ScoreRow`.
        """
        import pandas

        lines = []
        for row in self.rows:
            low, high = row.interval or (math.nan, math.nan)
            facts = row.to_dict()
            del facts["interval"], facts["families"], facts["score"]
            lines.append({"score": row.score, "low": low, "high": high, **row.families, **facts})
        return pandas.DataFrame(lines).set_index("agent")

    def __str__(self) -> str:
        several = len(self.families) > 1
        shown = self.families if several else ()
        head = ["agent", "score %", "95 % interval", *map(self.head, shown), "cost USD", "SLO miss %"]
        head += ["unserved %", "failures", "CPU ms/decision"]
        what = f"percent above {self.best_known}; lower is better"
        tasks = f"{self.num_tasks} task{'s' if self.num_tasks != 1 else ''}"
        families = f"{len(self.families)} famil{'ies' if several else 'y'}"
        foot = [f"{self.suite}: {tasks}, {families} ({', '.join(self.families)}); {what}."]
        if len(self.scored) < len(self.families):
            foot.append(
                "Families in (brackets) are shown, and are no part of the score, the cost or the shares."
            )
        if any(row.is_reference for row in self.rows):
            foot.append("Rows in (brackets) are references, not agents.")
        return "\n".join([align(head, [_cells(row, shown) for row in self.rows]), "", *foot])

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        """Show the data frame in notebooks."""
        return str(self.to_frame().to_html(float_format="{:,.2f}".format))


def _cells(row: ScoreRow, families: Sequence[str]) -> list[str]:
    interval = NOTHING if row.interval is None else f"[{number(row.interval[0])}, {number(row.interval[1])}]"
    return [
        f"({row.agent})" if row.is_reference else row.agent,
        number(row.score, 2),
        interval,
        *(number(row.families[family]) for family in families),
        number(row.cost_usd, 2),
        share(row.miss_share),
        share(row.unserved_share),
        NOTHING if row.is_reference else str(row.failures),
        number(row.cpu_ms_per_decision, 2),
    ]


@dataclasses.dataclass(frozen=True)
class Reference:
    """The reference costs of a run's tasks."""

    name: str  # of the best-known set, or best-in-run
    value_usd: Mapping[Task, float]
    bound_usd: Mapping[Task, float | None]


def reference_of(
    results: Results, relative_to: str = "best-known", best_known: BestKnownSet | None = None
) -> Reference:
    """Return the reference of a run.

    Parameters
    ----------
    results : Results
    relative_to, best_known
        As for `score`.

    Raises
    ------
    FleetgymError
        If the run is not complete, or a task has no best-known cost.
    """
    one_of(RELATIVE_TO, relative_to=relative_to)
    if not results.is_complete:
        raise FleetgymError(
            f"{len(results.episodes)} of {results.header.num_jobs} episodes are done; finish the run first"
        )
    if relative_to == "best-in-run":
        cheapest: dict[Task, float] = {}
        for episode in results.episodes:
            cheapest[episode.task] = min(cheapest.get(episode.task, math.inf), episode.cost_usd)
        return Reference(relative_to, cheapest, dict.fromkeys(cheapest))
    known = best_known or load_best_known(results.header.instances)
    hashes = {name: facts.content_hash for name, facts in results.header.instances.items()}
    try:
        found = {e.task: known.find(*e.task, hashes[e.instance]) for e in results.episodes}
    except FleetgymError as error:
        raise FleetgymError(f"{results.source}: {error}" if results.source else str(error)) from None
    return Reference(
        known.name,
        {task: best.value_usd for task, best in found.items()},
        {task: best.bound_usd for task, best in found.items()},
    )


def score(
    results: Results | str | os.PathLike[str],
    best_known: BestKnownSet | None = None,
    *,
    relative_to: str = "best-known",
    extra: Sequence[EpisodeResult] = (),
) -> ScoreTable:
    """Score every agent of a complete run.

    Parameters
    ----------
    results : Results, str or path-like
        As `evaluate` or `read_results` returned them, or their file.
    best_known : BestKnownSet, optional
        By default the set that comes with the suite.
    relative_to : str
        ``"best-known"``, or ``"best-in-run"`` for tasks that have no best-known cost: then scores of different runs
        cannot be compared.
    extra : sequence of EpisodeResult
        Reference rows to show among the agents, such as ``nominal-static``. They set no best in the run.

    Returns
    -------
    ScoreTable

    Raises
    ------
    FleetgymError
        If the run is not complete, or a task has no best-known cost.
    """
    if isinstance(results, (str, os.PathLike)):
        results = read_results(results)
    reference = reference_of(results, relative_to, best_known)
    best = reference.value_usd
    families = {name: facts.family for name, facts in results.header.instances.items()}
    scored = scored_families(families)
    rows = [_row(agent, episodes, results, best, scored) for agent, episodes in _by_agent(results.episodes)]
    for agent, episodes in _by_agent(extra):
        row = _row(agent, episodes, results, best, scored)
        rows.append(dataclasses.replace(row, is_reference=True, cpu_ms_per_decision=None, reset_cpu_s=None))
    return ScoreTable(
        rows=tuple(sorted(rows, key=lambda row: (row.score, row.agent))),
        families=tuple(sorted(set(families.values()))),
        scored=tuple(scored),
        num_tasks=len(best),
        suite=results.header.suite,
        best_known=reference.name,
        version=results.header.version,
    )


def _by_agent(episodes: Sequence[EpisodeResult]) -> list[tuple[str, list[EpisodeResult]]]:
    found: dict[str, list[EpisodeResult]] = {}
    for episode in episodes:
        found.setdefault(episode.agent, []).append(episode)
    return list(found.items())


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _row(
    agent: str,
    episodes: Sequence[EpisodeResult],
    results: Results,
    best: Mapping[Task, float],
    scored: Mapping[str, str],
) -> ScoreRow:
    missing = set(best) - {e.task for e in episodes}
    if missing:
        raise FleetgymError(f"{agent} has not played {task_name(*min(missing))}")
    facts = results.header.instances
    families = {name: found.family for name, found in facts.items()}
    means = cluster_means(
        ((families[e.instance], e.instance), math.log(e.cost_usd / best[e.task])) for e in episodes
    )
    headline = FamilyMean.of(counted(means, scored))
    failures = sum(e.failure is not None for e in episodes)
    episodes = [e for e in episodes if families[e.instance] in scored]
    timings = [e.timing for e in episodes if e.timing is not None]
    decisions = sum(e.decisions(facts[e.instance].num_windows) for e in episodes)
    acting_s = math.fsum(t.acting_s for t in timings)
    measured = len(timings) == len(episodes)
    return ScoreRow(
        agent=agent,
        score=percent(headline.mean),
        interval=percents(headline.interval()),
        families={family: percent(mean) for family, mean in sorted(family_means(means).items())},
        cost_usd=math.fsum(e.cost_usd for e in episodes),
        miss_share=_mean([e.miss_share for e in episodes]),
        unserved_share=_mean([e.unserved_share for e in episodes]),
        failures=failures,
        cpu_ms_per_decision=1e3 * acting_s / decisions if measured and decisions else None,
        reset_cpu_s=_mean([t.reset_cpu_s for t in timings]) if measured else None,
    )
