"""Make a table of scores from the tasks that several rows have played; page and report show the same lines."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Container, Mapping, Sequence
from typing import Any

from fleetgym.evaluation.results_format import COST_TERMS, Costs
from fleetgym.files.errors import FleetgymError
from fleetgym.model.library import Task, task_name
from fleetgym.scoring.score import column_head, percent, percents, scored_families
from fleetgym.scoring.statistics import (
    Cluster,
    FamilyMean,
    cluster_means,
    counted,
    profile,
    tail_mean,
    tie_groups,
)
from fleetgym.scoring.unknown import unknown


@dataclasses.dataclass(frozen=True)
class Played:
    """One row's cost on one task, and what it is compared with."""

    family: str
    instance: str
    scenario: int
    cost_usd: float
    best_usd: float
    bound_usd: float | None
    costs: Costs
    miss_share: float
    unserved_share: float
    failed: bool
    cpu_s: float | None  # of the episode, reset included

    @classmethod
    def of(
        cls, episode: Any, family: str, best_usd: float, bound_usd: float | None, cpu_s: float | None
    ) -> Played:
        """Return an episode of a results file, or of a verified record, beside what it is compared with."""
        return cls(
            family=family,
            instance=episode.instance,
            scenario=episode.scenario,
            cost_usd=episode.cost_usd,
            best_usd=best_usd,
            bound_usd=bound_usd,
            costs=episode.costs,
            miss_share=episode.miss_share,
            unserved_share=episode.unserved_share,
            failed=episode.failure is not None,
            cpu_s=cpu_s,
        )

    @property
    def task(self) -> Task:
        """Instance and scenario."""
        return self.instance, self.scenario

    @property
    def ratio(self) -> float:
        """Cost relative to best-known."""
        return self.cost_usd / self.best_usd


@dataclasses.dataclass(frozen=True)
class TableRow:
    """What is shown of one row; without a remark, of the families that make up the score."""

    key: str
    rank: int
    score: float  # percent above best-known
    interval: tuple[float, float] | None  # 95 %
    families: Mapping[str, float]  # percent above best-known, every family
    family_intervals: Mapping[str, tuple[float, float] | None]
    above_bound: float | None  # percent above the lower bounds; None where one is unknown
    families_above_bound: Mapping[str, float | None]  # of every family
    cost_usd: float  # of all tasks together
    tail_usd: float  # above best-known per task, mean of the worst tenth
    miss_share: float
    unserved_share: float
    failures: int  # in every family
    cpu_s: float | None  # per episode
    profile: Sequence[tuple[float, float]]
    breakdown: Mapping[str, float]  # cost terms relative to best-known, mean as in the score
    tasks: Sequence[Played]  # of every family


@dataclasses.dataclass(frozen=True)
class Table:
    """Rows, the best first."""

    rows: Sequence[TableRow]
    families: Sequence[str]
    scored: Sequence[str]  # families that make up the score
    num_tasks: int
    counts_as: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """What each of them counts as: itself, or the families that it is merged with."""
    unknown_percent: Mapping[str, float] = dataclasses.field(default_factory=dict)
    """What nobody can know: percent above the lower bounds, of families where it was measured."""

    def head(self, family: str) -> str:
        """Return the head of a family's column."""
        return column_head(family, self.scored)


def make_table(
    rows: Mapping[str, Sequence[Played]], *, suite: str | None = None, without: Container[str] = ()
) -> Table:
    """Compare rows that have played the same tasks.

    Figures over several families cover those that make up the score; failures count everywhere.

    Parameters
    ----------
    rows : mapping
        Played tasks by the row's key.
    suite : str, optional
        Whose families make up the score: for tasks under another name, such as a season's.
    without : container of str, optional
        Families that are no part of the score, whatever the set says.

    Raises
    ------
    FleetgymError
        If a row lacks a task that another one has.
    """
    if not rows:
        return Table((), (), (), 0)
    every = sorted({played.task for tasks in rows.values() for played in tasks})
    for key, tasks in rows.items():
        if missing := set(every) - {played.task for played in tasks}:
            raise FleetgymError(f"{key} has not played {task_name(*min(missing))}")
    first = next(iter(rows.values()))
    counts_as = scored_families({played.instance: played.family for played in first}, suite)
    counts_as = {family: head for family, head in counts_as.items() if family not in without} or counts_as
    means = {key: mean_log_ratios(tasks) for key, tasks in rows.items()}
    scores = {key: counted(found, counts_as) for key, found in means.items()}
    order = sorted(rows, key=lambda key: (FamilyMean.of(scores[key]).mean, key))
    ranks = tie_groups([scores[key] for key in order])
    return Table(
        rows=tuple(
            _row(key, rank, rows[key], means[key], counts_as) for key, rank in zip(order, ranks, strict=True)
        ),
        families=tuple(sorted({played.family for played in first})),
        scored=tuple(counts_as),
        num_tasks=len(every),
        counts_as=counts_as,
        unknown_percent=_unknown(first),
    )


def mean_log_ratios(tasks: Sequence[Played]) -> dict[Cluster, float]:
    """Return the mean of ln(cost / best-known) by family and instance."""
    return cluster_means(((played.family, played.instance), math.log(played.ratio)) for played in tasks)


def counted_means(tasks: Sequence[Played], counts_as: Mapping[str, str]) -> dict[Cluster, float]:
    """Return the mean of ln(cost / best-known) of each instance of the families that make up the score."""
    return counted(mean_log_ratios(tasks), counts_as)


def _row(
    key: str,
    rank: int,
    tasks: Sequence[Played],
    means: Mapping[Cluster, float],
    counts_as: Mapping[str, str],
) -> TableRow:
    headline = FamilyMean.of(counted(means, counts_as))
    families = {family: FamilyMean.of(counted(means, {family: family})) for family, _ in sorted(means)}
    scored = [played for played in tasks if played.family in counts_as]
    count = len(scored)
    times = [played.cpu_s for played in scored if played.cpu_s is not None]
    return TableRow(
        key=key,
        rank=rank,
        score=percent(headline.mean),
        interval=percents(headline.interval()),
        families={family: percent(found.mean) for family, found in families.items()},
        family_intervals={family: percents(found.interval()) for family, found in families.items()},
        above_bound=_above_bound(scored, counts_as),
        families_above_bound={
            family: _above_bound([played for played in tasks if played.family == family], {family: family})
            for family in families
        },
        cost_usd=math.fsum(played.cost_usd for played in scored),
        tail_usd=tail_mean([played.cost_usd - played.best_usd for played in scored]),
        miss_share=math.fsum(played.miss_share for played in scored) / count,
        unserved_share=math.fsum(played.unserved_share for played in scored) / count,
        failures=sum(played.failed for played in tasks),
        cpu_s=math.fsum(times) / count if len(times) == count else None,
        profile=profile([played.ratio for played in scored]),
        breakdown=_breakdown(scored, counts_as),
        tasks=tuple(sorted(tasks, key=lambda played: played.task)),
    )


def _above_bound(tasks: Sequence[Played], counts_as: Mapping[str, str]) -> float | None:
    """Return the headline with lower bounds in the place of best-known costs."""
    if any(not played.bound_usd for played in tasks):
        return None
    bounded = [dataclasses.replace(played, best_usd=played.bound_usd or 0.0) for played in tasks]
    return percent(FamilyMean.of(counted_means(bounded, counts_as)).mean)


def _unknown(tasks: Sequence[Played]) -> dict[str, float]:
    """Return what nobody can know by family, percent above the lower bounds; only where tasks have them."""
    found = {}
    for family in sorted({played.family for played in tasks}):
        mine = [played for played in tasks if played.family == family]
        sets = {played.instance.partition("/")[0] for played in mine}
        known = unknown().get((min(sets), family))
        if known is not None and len(sets) == 1 and all(played.bound_usd for played in mine):
            found[family] = known.percent
    return found


def _breakdown(tasks: Sequence[Played], counts_as: Mapping[str, str]) -> dict[str, float]:
    """Return each cost term relative to best-known: mean over tasks, instances and families in turn."""
    found = {}
    for term in COST_TERMS:
        shares = cluster_means(
            ((played.family, played.instance), getattr(played.costs, term) / played.best_usd)
            for played in tasks
        )
        found[term] = FamilyMean.of(counted(shares, counts_as)).mean
    return found
