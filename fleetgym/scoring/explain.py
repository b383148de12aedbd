"""Compare two agents' episodes window by window: which families, hours and cost terms make the difference.

Every episode is played again, so each window's terms are known. A task's ln(cost / other's cost) is split over windows
and terms in proportion to their differences in USD. These parts add up to the difference of the two scores, whatever
the best-known costs are (the logarithmic mean Divisia index: Ang 2004, *Decomposition analysis for policymaking in
energy*).
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fleetgym.evaluation.jobs import stored_scenario
from fleetgym.evaluation.results import Results
from fleetgym.evaluation.results_format import COST_TERMS, EpisodeResult
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.model.library import load_instance, task_name
from fleetgym.scoring.score import percent, percents, scored_families
from fleetgym.scoring.statistics import FamilyMean, cluster_means, counted

#: Demand is busy above, quiet below this share of the nominal, each request weighted with the price of not serving it.
BUSY, QUIET = 1.1, 0.9
#: A pool is short when it offers less than this share of its cap.
SHORT = 0.5
KINDS = ("busy", "ordinary", "quiet", "short")
#: Hours of the day are shown in blocks of so many.
BLOCK_H = 4
#: Relative, between a cost in a file and that of the episode played again.
_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True)
class Day:
    """One agent's episode, played again; T windows, G pools."""

    terms_usd: np.ndarray  # (T, 8), in the order of `COST_TERMS`
    gpus: np.ndarray  # (T, G) held
    missed: np.ndarray  # (T,) share of requests
    failure: str | None

    @property
    def cost_usd(self) -> float:
        """Return the cost of the day."""
        return float(self.terms_usd.sum())


@dataclasses.dataclass(frozen=True)
class Pair:
    """The same task, played by both agents."""

    family: str
    instance: str
    scenario: int
    mine: Day
    other: Day

    @property
    def log_ratio(self) -> float:
        """Return ln of my cost over the other's."""
        return math.log(self.mine.cost_usd / self.other.cost_usd)

    @property
    def middle_usd(self) -> float:
        """Return the logarithmic mean of both costs: their difference over it is `log_ratio`."""
        a, b = self.mine.cost_usd, self.other.cost_usd
        return (a - b) / self.log_ratio if abs(a - b) > 1e-9 * b else b

    @property
    def parts(self) -> np.ndarray:
        """Return the share of each window and term in `log_ratio`, (T, 8)."""
        return (self.mine.terms_usd - self.other.terms_usd) / self.middle_usd

    def stretch(self) -> tuple[int, int]:
        """Return the windows, first and one past the last, whose difference exceeds the day's mean by most in all."""
        best, found, begin, run = -math.inf, (0, 1), 0, 0.0
        more = (self.mine.terms_usd - self.other.terms_usd).sum(axis=1)
        for t, above in enumerate(more - more.mean()):
            if run <= 0.0:
                begin, run = t, 0.0
            run += above
            if run > best:
                best, found = run, (begin, t + 1)
        return found


@dataclasses.dataclass(frozen=True)
class Part:
    """The part of the difference due to one term, family, or kind of window.

    `mine` and `other` are costs in percent of the mean of both agents' costs, and `points` their difference. Of a
    family, `mine` is how many percent more I cost there, and `other` is 0.
    """

    name: str
    points: float  # of the difference in percent
    mine: float
    other: float


@dataclasses.dataclass(frozen=True)
class Explanation:
    """The reasons why one agent costs more than another, or less."""

    agent: str
    against: str
    suite: str
    tasks: int  # that count
    percent: float  # how much more the agent costs, by the formula of scores
    interval: tuple[float, float] | None
    usd_percent: float  # how much more all days together cost
    cheaper: int  # tasks on which the agent is cheaper
    failures: int
    terms: tuple[Part, ...]
    families: tuple[Part, ...]
    hours: tuple[Part, ...]
    windows: tuple[Part, ...]
    worst: Pair = dataclasses.field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; of the worst day its task and costs."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "worst"}
        for name in ("terms", "families", "hours", "windows"):
            fields[name] = [dataclasses.asdict(part) for part in fields[name]]
        worst = self.worst
        usd = {"cost_usd": worst.mine.cost_usd, "against_cost_usd": worst.other.cost_usd}
        return {**fields, "worst_day": {"instance": worst.instance, "scenario": worst.scenario, **usd}}


def explain(runs: Sequence[Results], agent: str, against: str) -> Explanation:
    """Compare two agents on the tasks of the first.

    Parameters
    ----------
    runs : sequence of Results
        Each agent's episodes are in one of them.
    agent, against : str
        As the results call them.

    Returns
    -------
    Explanation

    Raises
    ------
    FleetgymError
        If an agent is in none of the results or in several, the other one lacks a task, or an episode does not cost
        now what its file says.

    Examples
    --------
    >>> import fleetgym
    >>> found = explain([fleetgym.evaluate(["hold", "gh"], "fleet-v0/toy/two-pools")], "hold", "gh")
    >>> [(part.name, round(float(part.points), 1)) for part in found.terms]
    [('unserved', 97.5), ('rental', -66.7)]
    """
    if agent == against:
        raise FleetgymError(f"{agent!r} would be compared with itself; name two agents")
    mine, other = run_of(runs, agent), run_of(runs, against)
    pairs = _pairs(mine, agent, other, against)
    counts_as = scored_families({pair.instance: pair.family for pair in pairs})
    scored = [pair for pair in pairs if pair.family in counts_as]
    logs = cluster_means(((pair.family, pair.instance), pair.log_ratio) for pair in pairs)
    headline = FamilyMean.of(counted(logs, counts_as))
    scale = 100.0 * (math.expm1(headline.mean) / headline.mean if abs(headline.mean) > 1e-12 else 1.0)
    weights = _weights(scored, counts_as)
    usd = [math.fsum(getattr(pair, who).cost_usd for pair in scored) for who in ("mine", "other")]
    return Explanation(
        agent=agent,
        against=against,
        suite=mine.header.suite,
        tasks=len(scored),
        percent=percent(headline.mean),
        interval=percents(headline.interval()),
        usd_percent=100.0 * (usd[0] / usd[1] - 1.0),
        cheaper=sum(pair.log_ratio < 0.0 for pair in scored),
        failures=sum(pair.mine.failure is not None for pair in pairs),
        terms=_terms(scored, weights, scale),
        families=_families(scored, weights, scale),
        hours=_hours(scored, weights, scale),
        windows=_kinds(scored, weights, scale),
        worst=max(scored, key=lambda pair: pair.log_ratio),
    )


def run_of(runs: Sequence[Results], agent: str) -> Results:
    """Return the results that hold an agent's episodes.

    Raises
    ------
    FleetgymError
        If none does, or several do.
    """
    found = [run for run in runs if agent in run.agents]
    if not found:
        raise UnknownNameError("agent of these results", agent, [name for run in runs for name in run.agents])
    if len(found) > 1:
        raise FleetgymError(
            f"{agent} is in {found[0].source} and in {found[1].source}; name one of these files only"
        )
    return found[0]


# -- episodes


def _pairs(mine: Results, agent: str, other: Results, against: str) -> list[Pair]:
    """Return my tasks, each with the episode of the same seed if the other has several of a task."""
    theirs: dict[tuple[str, int], list[EpisodeResult]] = {}
    for episode in other.episodes:
        if episode.agent == against:
            theirs.setdefault(episode.task, []).append(episode)
    pairs = []
    for episode in (e for e in mine.episodes if e.agent == agent):
        if episode.task not in theirs:
            raise FleetgymError(f"{against} has not played {task_name(*episode.task)}")
        same = sorted(theirs[episode.task], key=lambda found: found.seed != episode.seed)[0]
        family = mine.header.instances[episode.instance].family
        days = _played(mine, episode), _played(other, same)
        pairs.append(Pair(family, *episode.task, *days))
    return pairs


def _played(run: Results, episode: EpisodeResult) -> Day:
    """Play an episode again."""
    from fleetgym.envs.fleet_alloc import FleetAllocEnv

    name, instance = task_name(*episode.task), load_instance(episode.instance)
    where = f"{run.source}: " if run.source else ""
    if instance.content_hash != run.header.instances[episode.instance].content_hash:
        raise FleetgymError(f"{where}{name} was another instance when it was played; play it again")
    env = FleetAllocEnv(instance)
    env.reset(seed=0, options={"scenario": stored_scenario(episode.instance, episode.scenario)})
    try:
        infos = [env.step(action)[-1] for action in run.actions(episode)]
    except DataError as error:  # the header says that the instance has other options
        raise FleetgymError(f"{where}{episode.agent} on {name}: {error}") from None
    rates = np.array([info["rate_rps"] for info in infos])
    missed = (rates * [info["miss_share"] for info in infos]).sum(axis=1)
    day = Day(
        terms_usd=np.array([[info[term] for term in COST_TERMS] for info in infos]),
        gpus=np.array([info["held"] for info in infos]) @ instance.gpu_use.T,
        missed=missed / np.maximum(rates.sum(axis=1), 1e-12),
        failure=None if episode.failure is None else episode.failure.message,
    )
    if abs(day.cost_usd - episode.cost_usd) > _TOLERANCE * episode.cost_usd:
        raise FleetgymError(
            f"{where}{episode.agent} on {name} says {episode.cost_usd:.4f} USD, but its actions cost "
            f"{day.cost_usd:.4f}; play it again with this version of fleetgym"
        )
    return day


def demand_level(name: str, scenario: int) -> np.ndarray:
    """Return demand of each window over the nominal, requests weighted with the price of not serving them, (T,)."""
    instance = load_instance(name)
    day = stored_scenario(name, scenario).expanded(instance.num_windows)
    price = np.array([workload.unserved_usd for workload in instance.workloads])
    nominal = float(price @ [workload.rate_rps for workload in instance.workloads])
    return np.asarray(day.rate_rps @ price / nominal)


def short_pools(name: str, scenario: int) -> np.ndarray:
    """Return which pools offer less than `SHORT` of their cap in each window, bool (T, G)."""
    instance = load_instance(name)
    day = stored_scenario(name, scenario).expanded(instance.num_windows)
    caps = np.maximum(1, np.array([pool.cap_gpus for pool in instance.pools]))
    return np.asarray(day.available_gpus < SHORT * caps)


def kinds_of_windows(name: str, scenario: int) -> Mapping[str, np.ndarray]:
    """Return which windows are of which kind, (T,) bool each: one of the first three of `KINDS`, and perhaps the last.

    Examples
    --------
    >>> {kind: int(of.sum()) for kind, of in kinds_of_windows("fleet-v0/toy/drop", 0).items()}
    {'busy': 0, 'ordinary': 10, 'quiet': 0, 'short': 3}
    """
    level = demand_level(name, scenario)
    busy, quiet = np.asarray(level > BUSY), np.asarray(level < QUIET)
    short = np.any(short_pools(name, scenario), axis=1)
    return {"busy": busy, "ordinary": ~busy & ~quiet, "quiet": quiet, "short": np.asarray(short)}


# -- parts


def _weights(pairs: Sequence[Pair], counts_as: Mapping[str, str]) -> list[float]:
    """Return how much each task counts in the headline: a mean over families, instances and tasks in turn."""
    heads = [counts_as[pair.family] for pair in pairs]
    instances = [(head, pair.instance) for head, pair in zip(heads, pairs, strict=True)]
    of_family, of_instance = Counter(head for head, _ in set(instances)), Counter(instances)
    families = len(of_family)
    return [1.0 / (families * of_family[head] * of_instance[head, name]) for head, name in instances]


def _terms(pairs: Sequence[Pair], weights: Sequence[float], scale: float) -> tuple[Part, ...]:
    mine, other = (
        scale
        * sum(
            w * getattr(pair, who).terms_usd.sum(axis=0) / pair.middle_usd
            for w, pair in zip(weights, pairs, strict=True)
        )
        for who in ("mine", "other")
    )
    found = (Part(*row) for row in zip(COST_TERMS, mine - other, mine, other, strict=True))
    return _sorted(part for part in found if part.mine or part.other)


def _families(pairs: Sequence[Pair], weights: Sequence[float], scale: float) -> tuple[Part, ...]:
    found = []
    for family in sorted({pair.family for pair in pairs}):
        some = [(w, pair) for w, pair in zip(weights, pairs, strict=True) if pair.family == family]
        log = math.fsum(w * pair.log_ratio for w, pair in some)
        found.append(Part(family, scale * log, percent(log / math.fsum(w for w, _ in some)), 0.0))
    return _sorted(found)


def _hours(pairs: Sequence[Pair], weights: Sequence[float], scale: float) -> tuple[Part, ...]:
    masks = []
    for pair in pairs:
        clock_h = np.arange(len(pair.mine.missed)) * load_instance(pair.instance).window_s / 3600.0 % 24.0
        masks.append({f"{h:02d}-{h + BLOCK_H:02d} h": clock_h // BLOCK_H == h // BLOCK_H for h in _BLOCKS})
    return _by_mask(pairs, weights, scale, masks)


_BLOCKS = range(0, 24, BLOCK_H)


def _kinds(pairs: Sequence[Pair], weights: Sequence[float], scale: float) -> tuple[Part, ...]:
    return _by_mask(pairs, weights, scale, [kinds_of_windows(pair.instance, pair.scenario) for pair in pairs])


def _by_mask(
    pairs: Sequence[Pair],
    weights: Sequence[float],
    scale: float,
    masks: Sequence[Mapping[str, np.ndarray]],
) -> tuple[Part, ...]:
    """Return the parts of windows."""
    found = []
    for name in masks[0]:
        rows = [(w, pair, mask[name]) for w, pair, mask in zip(weights, pairs, masks, strict=True)]
        mine, other = (
            scale
            * sum(float(w * getattr(pair, who).terms_usd[of].sum()) / pair.middle_usd for w, pair, of in rows)
            for who in ("mine", "other")
        )
        found.append(Part(name, mine - other, mine, other))
    return tuple(part for part in found if part.mine or part.other)


def _sorted(parts: Any) -> tuple[Part, ...]:
    return tuple(sorted(parts, key=lambda part: -abs(part.points)))
