"""Tell in words and tables why one agent costs more than another."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fleetgym.evaluation.results_format import COST_TERMS
from fleetgym.files.errors import printable
from fleetgym.model.library import load_instance, task_name
from fleetgym.runtime.text_tables import align, number
from fleetgym.scoring.explain import Day, Explanation, Pair, Part, demand_level, short_pools

#: Hours are named if they make so many times the mean part of the difference.
_PEAK = 1.25
#: Names of cost terms in sentences.
TERMS = {
    "rental": "rent",
    "model_storage": "model storage",
    "data_storage": "data storage",
    "delay": "delay",
    "slo": "missed mean SLOs",
    "unserved": "unserved requests",
    "late": "late requests",
    "startup": "start-ups",
}
_WINDOWS = {
    "busy": "demand above 1.1 times nominal",
    "ordinary": "demand near nominal",
    "quiet": "demand below 0.9 times nominal",
    "short": "a pool that offers less than half its GPUs",
}


def labels(agents: Sequence[str]) -> dict[str, str]:
    """Return what agents are called on the page: without the places of their files, if that tells them apart.

    Examples
    --------
    >>> labels(["gh", "work/mine.py:Mine(every=6)"])
    {'gh': 'gh', 'work/mine.py:Mine(every=6)': 'Mine(every=6)'}
    >>> labels(["one.py:Mine", "two.py:Mine"])
    {'one.py:Mine': 'one.py:Mine', 'two.py:Mine': 'two.py:Mine'}
    """
    parts = {agent: agent.partition("(") for agent in agents}
    short = {agent: "".join((head.rpartition(":")[2], *rest)) for agent, (head, *rest) in parts.items()}
    return short if len(set(short.values())) == len(short) else {agent: agent for agent in agents}


def text(found: Explanation) -> str:
    """Return an explanation as paragraphs and tables."""
    mine, other = _names(found)
    costs = [f"{mine} %", f"{other} %", "points"]
    parts = [
        headline(found, mine, other),
        align(["cost term", *costs], [_row(part, TERMS) for part in found.terms]),
        align(
            ["family", "difference %", "points"],
            [[p.name, number(p.mine), _signed(p.points)] for p in found.families],
        ),
        align(["hours", *costs], [_row(part, {}) for part in found.hours]),
        align(["windows", *costs], [_row(part, _WINDOWS) for part in found.windows]),
        "Columns are in percent of the mean of both costs, mean over families. Points are their difference, and\n"
        f"add up to {_signed(found.percent)} %; the last line of windows overlaps the others.",
        worst_day(found, mine, other),
    ]
    return "\n\n".join(parts)


def summary(found: Explanation) -> str:
    """Return an explanation as one paragraph: the difference, its causes, and the worst day."""
    return f"{headline(found, *_names(found))}\n{worst_day(found, *_names(found))}"


def _names(found: Explanation) -> tuple[str, str]:
    label = labels([found.agent, found.against])
    return printable(label[found.agent]), printable(label[found.against])


def _row(part: Part, names: dict[str, str]) -> list[str]:
    return [names.get(part.name, part.name), number(part.mine), number(part.other), _signed(part.points)]


def _signed(value: float) -> str:
    return f"{value:+.1f}".replace("-0.0", "0.0").replace("+0.0", "0.0")


def _more(percent: float) -> str:
    return f"{number(abs(percent))} % {'more' if percent > 0 else 'less'}"


def headline(found: Explanation, mine: str, other: str) -> str:
    """Return how much more one costs, and of which terms, families, hours and windows that is."""
    interval = ""
    if found.interval is not None:
        low, high = (_signed(bound) for bound in found.interval)
        interval = f" (95 % interval {low} to {high})"
    lines = [
        f"{mine} costs {_more(found.percent)} than {other}{interval}: {found.tasks} tasks of {found.suite}.",
        f"{mine} is cheaper on {found.cheaper} of them.",
    ]
    if found.interval is not None and found.interval[0] <= 0.0 <= found.interval[1]:
        lines[-1] += " The interval holds zero, so these days do not tell which costs less."
    if found.usd_percent * found.percent < 0.0:
        lines[-1] += (
            f" All days together cost {_more(found.usd_percent)}, but the score weighs each family alike, "
            "and days by ratios, not by USD."
        )
    if found.failures:
        lines.append(f"It failed in {found.failures} episodes; from there on no fleet ran.")
    sign = 1.0 if found.percent > 0.0 else -1.0
    causes = sorted(found.terms, key=lambda part: -sign * part.points)
    told = [f"{TERMS[p.name]} ({_signed(p.points)})" for p in causes[:2] if sign * p.points > 0.1]
    against = [f"{TERMS[p.name]} ({_signed(p.points)})" for p in causes[::-1][:1] if sign * p.points < -0.1]
    if told:
        lines.append(
            f"The difference is {' and '.join(told)}"
            + (f", but {against[0]}." if against else ".")
            + _most(found.families, sign, " It is largest in {}")
            + _when(found.hours, sign)
            + _most(found.windows[:3], sign, ", and in windows with {}", _WINDOWS)
            + "."
        )
    return "\n".join(lines)


def _most(parts: Sequence[Part], sign: float, form: str, names: dict[str, str] | None = None) -> str:
    """Return the part that explains most in words."""
    most = max(parts, key=lambda part: sign * part.points)
    named = (names or {}).get(most.name, most.name)
    return form.format(f"{named} ({_signed(most.points)})")


def _when(parts: Sequence[Part], sign: float) -> str:
    """Return the hours that explain most in words, if they explain much more than others."""
    points = [sign * part.points for part in parts]
    is_even = max(points) < _PEAK * sum(points) / len(points)
    return ", at all hours alike" if is_even else _most(parts, sign, ", between {}")


def worst_day(found: Explanation, mine: str, other: str) -> str:
    """Return what happened on the worst day."""
    pair, instance = found.worst, load_instance(found.worst.instance)
    more = pair.mine.terms_usd - pair.other.terms_usd
    begin, end = pair.stretch()
    told = sorted(zip(more.sum(axis=0), COST_TERMS, strict=True), key=lambda item: -abs(item[0]))[:4]
    terms = ", ".join(f"{TERMS[term]} {usd:+,.2f}" for usd, term in told if abs(usd) >= 0.005)
    lines = [
        f"Worst day: {task_name(pair.instance, pair.scenario)}. {mine} costs {number(pair.mine.cost_usd, 2)} USD, "
        f"{other} {number(pair.other.cost_usd, 2)} ({terms} USD).",
        f"Of the difference of {more.sum():+,.2f} USD, {more[begin:end].sum():+,.2f} fall between "
        f"{_clock(begin, instance.window_s)} and {_clock(end, instance.window_s)}.",
    ]
    kind = int(np.argmax(more[begin:end].sum(axis=0)))
    level = demand_level(pair.instance, pair.scenario)[begin:end].mean()
    lines.append(
        f"In these windows, demand is {level:.2f} times nominal{_scarce(found, begin, end)}, and most of the "
        f"difference is {TERMS[COST_TERMS[kind]]}. {mine} {_held(pair.mine, begin, end)}; "
        f"{other} {_held(pair.other, begin, end)}. {_gap(pair, begin, end)}"
    )
    if pair.mine.failure is not None:
        lines.append(f"{mine} failed on this day: {printable(pair.mine.failure)}")
    return "\n".join(lines)


def _clock(window: int, window_s: float) -> str:
    minutes = int(window * window_s) // 60
    day = f"day {minutes // 1440 + 1}, " if minutes > 1440 else ""
    return f"{day}{minutes // 60 % 24 if minutes != 1440 else 24:02d}:{minutes % 60:02d}"


def _scarce(found: Explanation, begin: int, end: int) -> str:
    """Return which pools offer less than `SHORT` of their GPUs in some windows."""
    instance = load_instance(found.worst.instance)
    shares = short_pools(found.worst.instance, found.worst.scenario)[begin:end].mean(axis=0)
    some = [
        f"{pool.id} offers less than half its GPUs in {100.0 * share:.0f} % of them"
        for pool, share in zip(instance.pools, shares, strict=True)
        if share > 0.0
    ]
    return f", {', '.join(some[:3])}" if some else ""


def _held(day: Day, begin: int, end: int) -> str:
    gpus = day.gpus[begin:end].sum(axis=1).mean()
    return f"holds {gpus:.1f} GPUs and misses {100.0 * day.missed[begin:end].mean():.2f} % of a window's requests"


def _gap(pair: Pair, begin: int, end: int) -> str:
    """Return the pool in which the two hold most different numbers of GPUs."""
    mine, other = (day.gpus[begin:end].mean(axis=0) for day in (pair.mine, pair.other))
    g = int(np.argmax(np.abs(mine - other)))
    return f"The largest gap is in {load_instance(pair.instance).pools[g].id}: {mine[g]:.1f} against {other[g]:.1f}."
