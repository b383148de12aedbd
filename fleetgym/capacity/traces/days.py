"""Make a history and stored days from a trace, measured where it has whole days and modelled otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fleetgym.agents.arguments import one_of
from fleetgym.capacity.traces.process import Fit
from fleetgym.capacity.traces.workloads import TraceStatistics
from fleetgym.families.demand import DAY, HISTORY_DAYS, WINDOW_S, DemandPlan, history_rps
from fleetgym.families.text import six
from fleetgym.files.errors import FleetgymError
from fleetgym.files.quantities import SCALE

EXTENSIONS = ("model", "stretch")
_HOUR = 12  # windows
_FEW_REQUESTS = 20
_TURN_WINDOWS, _LEVEL_LOG_SD = 6, 0.1  # of days that are drawn again, as in the family trace


@dataclasses.dataclass(frozen=True, kw_only=True)
class Days:
    """What the instance and its scenarios get from the trace."""

    plan: DemandPlan  # process of generated days
    history_rps: np.ndarray  # (windows, I)
    scored: tuple[tuple[str, np.ndarray, np.ndarray, np.ndarray], ...]  # id, rates, input and output scales
    history: str  # measured, drawn or stretched, as in `fleetgym.model.facts.Calendar`
    extension: str  # how the trace became days, in words
    fitted: tuple[str, ...]  # what of the process the trace tells
    assumed: tuple[str, ...]  # and what it does not
    notes: tuple[str, ...] = ()  # what its user should know


def make_days(
    found: TraceStatistics, fit: Fit, extend: str, rng: np.random.Generator, scale: float = 1.0
) -> Days:
    """Return history and stored days of a trace.

    A trace of two calendar days or more: the last one is stored, up to seven before it are the history. One day:
    it is both. Fresh days are drawn from the fitted process or, where that does not fit (`Fit.wild`), from the days of
    the history. Less: ``"model"`` draws a history of seven days from the fitted process, at the trace's
    level; ``"stretch"`` makes the trace's course the course of a day, as the family ``warp`` does.
    `scale` multiplies demand; its shape and the dispersion of counts stay.
    """
    one_of(EXTENSIONS, extend=extend)
    SCALE.read(scale, "scale")
    if extend == "stretch" and found.num_days >= 1:
        raise FleetgymError(
            "stretching (--extend stretch) is for traces shorter than a day, and this one has "
            f"{found.num_windows / DAY:.3g} days; leave it out"
        )
    _check_heard(found.names, found.counts)
    if found.num_days >= 1:
        days = _real_days(found, fit, scale)
    elif extend == "stretch":
        days = _stretched(found, fit, scale, rng)
    else:
        days = _modelled(found, fit, scale, rng)
    _check_heard(found.names, days.history_rps)
    if scale != 1.0:
        days = dataclasses.replace(days, extension=f"{days.extension}; demand times {scale:g}")
    return days


def _check_heard(names: Sequence[str], demand: np.ndarray) -> None:
    silent = [name for name, total in zip(names, demand.sum(axis=0), strict=True) if total == 0]
    if silent:
        raise FleetgymError(
            f"no request of {', '.join(silent)} in the days that make the history: its usual rate is unknown; leave it "
            "out of the trace, or sort requests into other workloads (--by)"
        )


def _plan(fit: Fit, level: np.ndarray, dispersion: np.ndarray) -> DemandPlan:
    text = f"fitted to the trace: {', '.join(fit.fitted)}"
    if fit.assumed:
        text += f"; assumed, as typical of ServeGen's models: {', '.join(fit.assumed)}"
    return DemandPlan(
        process=fit.process, tokens=fit.tokens, level=level, dispersion=dispersion, provenance=text
    )


# -- a day or more


def _real_days(found: TraceStatistics, fit: Fit, scale: float) -> Days:
    counts = found.counts
    skip = -found.first_window % DAY
    whole = (len(counts) - skip) // DAY
    if whole >= 2:
        history = counts[skip + max(0, whole - 1 - HISTORY_DAYS) * DAY : skip + (whole - 1) * DAY]
        last, rolled = slice(skip + (whole - 1) * DAY, skip + whole * DAY), 0
        dates = found.dates[bool(skip) :][:whole]
        text = (
            f"{whole} whole calendar days, {dates[0]} to {dates[-1]}: the last one is stored as scenario 'trace-day', "
            f"{'the one before it is' if whole == 2 else f'the {len(history) // DAY} before it are'} the history"
        )
        used = len(history) + DAY
    else:
        # A window of the day is a window of the trace: rolled where the trace does not begin at midnight.
        start = skip if whole == 1 else len(counts) - DAY
        last, rolled = slice(start, start + DAY), (found.first_window + start) % DAY
        history = np.roll(counts[last], rolled, axis=0)
        day_of = found.dates[(found.first_window + start) // DAY :][: 2 if rolled else 1]
        text = f"one day, {' to '.join(day_of)}: it is the history, and stored as scenario 'trace-day'"
        if rolled:
            text += " (turned so that it begins at midnight)"
        used = DAY
    if used < len(counts):
        text += f"; {(len(counts) - used) * WINDOW_S / 3600.0:.3g} hours of the trace are in neither"
    scales = [
        np.roll(_hourly_scale(means[last], counts[last], nominal), rolled, axis=0)
        for means, nominal in (
            (found.input_mean, found.lengths[:, 0]),
            (found.output_mean, found.lengths[:, 1]),
        )
    ]
    day = np.rint(scale * np.roll(counts[last], rolled, axis=0)) / WINDOW_S
    days = Days(
        plan=_plan(fit, history, found.dispersion),
        history_rps=six(scale * history / WINDOW_S),
        history="measured",
        scored=(("trace-day", day, scales[0], scales[1]),),
        extension=text,
        fitted=fit.fitted,
        assumed=fit.assumed,
    )
    return _resampled(days, fit) if fit.wild else days


def _resampled(days: Days, fit: Fit) -> Days:
    """Return days whose fresh ones are those of the history again, a little earlier or later, lower or higher."""
    turn_min = _TURN_WINDOWS * WINDOW_S / 60.0
    assumed = f"that days differ by {100 * _LEVEL_LOG_SD:.0f} % in level and {turn_min:.0f} minutes in when they begin"
    plan = dataclasses.replace(
        days.plan,
        process={
            "kind": "resampled-history",
            "parameters": {"roll_windows": float(_TURN_WINDOWS), "level_log_sd": _LEVEL_LOG_SD},
        },
        provenance=f"days of the history, drawn again; assumed: {assumed}",
    )
    note = (
        f"the demand of {', '.join(fit.wild)} swings more than the process of generated days can follow: generated "
        "days are days of the history drawn again"
    )
    fitted = ("days of the history", "drift of lengths")
    return dataclasses.replace(days, plan=plan, fitted=fitted, assumed=(assumed,), notes=(note,))


def _hourly_scale(means: np.ndarray, counts: np.ndarray, nominal: np.ndarray) -> np.ndarray:
    """Return hourly mean lengths over nominal ones, (288, I); 1 where an hour has few requests."""
    sums = np.where(counts > 0, np.nan_to_num(means) * counts, 0.0).reshape(-1, _HOUR, counts.shape[1])
    n = counts.reshape(-1, _HOUR, counts.shape[1]).sum(axis=1)
    ratio = sums.sum(axis=1) / np.maximum(n, 1.0) / nominal
    return np.repeat(np.where((n >= _FEW_REQUESTS) & (ratio > 0), ratio, 1.0), _HOUR, axis=0)


# -- less than a day


def _span(found: TraceStatistics) -> str:
    minutes = found.num_windows * WINDOW_S / 60.0
    return f"{minutes:.0f} minutes ({found.num_windows} windows) are less than a day"


def _modelled(found: TraceStatistics, fit: Fit, scale: float, rng: np.random.Generator) -> Days:
    level = np.exp(fit.ou.log_level(rng, HISTORY_DAYS * DAY, WINDOW_S))
    plan = _plan(fit, level / level.mean(axis=0), found.dispersion)
    return Days(
        plan=plan,
        history_rps=six(history_rps(plan, rng, scale * found.counts.mean(axis=0) / WINDOW_S)),
        history="drawn",
        scored=(),
        extension=f"{_span(found)}: its mean is taken as the level of every day, its noise as theirs; the history is "
        f"{HISTORY_DAYS} days drawn from the process, the course of a day assumed",
        fitted=fit.fitted,
        assumed=fit.assumed,
        notes=_doubts(fit),
    )


def _doubts(fit: Fit) -> tuple[str, ...]:
    if not fit.wild:
        return ()
    return (
        f"the demand of {', '.join(fit.wild)} swings more than the process of generated days can follow, and a trace "
        "shorter than a day has no day to draw again: do not trust the generated days",
    )


def _stretched(found: TraceStatistics, fit: Fit, scale: float, rng: np.random.Generator) -> Days:
    """Return days with the course of the trace: what took a minute takes many."""
    edges = np.linspace(0.0, len(found.bins), DAY + 1)
    total = np.vstack((np.zeros(len(found.names)), np.cumsum(found.bins, axis=0)))
    at = np.arange(len(total))
    shape = np.column_stack([np.diff(np.interp(edges, at, column)) for column in total.T])
    shape /= shape.mean(axis=0)
    days = [np.roll(shape, int(rng.integers(DAY)), axis=0) for _ in range(HISTORY_DAYS)]
    plan = dataclasses.replace(
        _plan(fit, np.concatenate(days), np.ones(len(found.names))),
        process={"kind": "resampled-history", "parameters": {"roll_windows": 144.0, "level_log_sd": 0.05}},
        provenance="the course of the trace stretched to a day and rolled at random; Poisson counts assumed",
    )
    rate = scale * found.counts.mean(axis=0) / WINDOW_S
    ones = np.ones((1, len(found.names)))
    return Days(
        plan=plan,
        history_rps=six(history_rps(plan, rng, rate)),
        history="stretched",
        scored=(("trace-stretched", np.rint(shape * rate * WINDOW_S) / WINDOW_S, ones, ones),),
        extension=f"{_span(found)}: its course is stretched to a day (burst shape kept, time scale not), rolled at "
        f"random for the {HISTORY_DAYS} days of the history",
        fitted=("course of demand",),
        assumed=("Poisson counts", "that days differ by 5 % in level and in when they begin"),
    )
