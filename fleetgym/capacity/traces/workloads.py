"""Measure each workload of a trace: counts in time, token lengths and burstiness.

Workloads come from the trace's label column, or from the length of requests where there is none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fleetgym.capacity.traces.calendar import lay_calendar
from fleetgym.capacity.traces.labels import Bound, one_for_all
from fleetgym.capacity.traces.reader import Trace
from fleetgym.capacity.traces.sorting import Sorting, by_label, by_length, in_one, quantiles
from fleetgym.capacity.traces.source import fail
from fleetgym.families.demand import DAY, WINDOW_S
from fleetgym.files.errors import FleetgymError
from fleetgym.hardware.performance.held import GRID, HeldCounter, HeldTokens
from fleetgym.model.lengths import LengthLaw

BIN_S = 10  # about a request's time in service: the time scale on which bursts make requests wait
BINS = int(WINDOW_S) // BIN_S  # per window
MAX_DAYS = 93
_MANY_REPEATS = 0.02
_LONGEST_TOTAL = 2**20  # tokens; what is longer counts as this when quantiles are taken
_SHARES = (0.01, 0.02, 0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.98, 0.99, 0.995, 0.999, 1.0)
_FEW_REQUESTS = 50
_SINCE_1970_NS = 10**17  # three years: larger numbers of seconds are dates


@dataclasses.dataclass(frozen=True, kw_only=True)
class TraceStatistics:
    """What a trace says about each of its I workloads; times in seconds, lengths in tokens."""

    names: tuple[str, ...]  # ids of the workloads
    rule: str  # how requests became workloads
    models: tuple[
        str | None, ...
    ]  # (I,) what serves each, as its label or the user says; None: any candidate
    requests: int
    too_long: int  # requests that are not among them: no candidate's context holds them
    span_s: float
    first_window: int  # window of the day in which the trace begins
    is_clock: bool  # whether the time of day is known
    dates: tuple[str, ...]  # of the calendar days that have a window, such as 2023-11-16 or "day 1"
    notes: tuple[str, ...]  # what of the times looks wrong, or is missing
    read_as: str = ""  # which columns were read, where names alone do not tell
    bins: (
        np.ndarray
    )  # (30 T, I) requests per 10 s, whole windows only, without calendar days that are missing
    input_mean: np.ndarray  # (T, I) mean lengths in each window; NaN where there is no request
    output_mean: np.ndarray
    lengths: np.ndarray  # (I, 4) input and output means, their squared coefficients of variation
    correlation: np.ndarray  # (I,) of input and output lengths
    computed: (
        np.ndarray
    )  # (I, 3) prompt tokens that no prefix cache holds: mean, cv2, correlation with output
    total_quantiles: tuple[
        tuple[int, float], ...
    ]  # input + output tokens that shares of the requests do not exceed
    output_values: np.ndarray  # (n,) ascending output lengths, at most 2 % above what they stand for
    output_shares: np.ndarray  # (I, n) share of the requests with each
    input_laws: tuple[LengthLaw, ...]  # (I,) of prompt tokens that no prefix cache holds
    prefix_hits_from: str | None  # how it is known what a prefix cache holds; None: nothing is
    held: HeldTokens  # what requests hold of the KV cache while they are served
    arrival_cv2: np.ndarray  # (I,) variance / mean of counts in 10 s, within windows
    dispersion: np.ndarray  # (I,) variance / mean of counts in 5 minutes, from halves of windows; at least 1

    @property
    def counts(self) -> np.ndarray:
        """Requests per window, (T, I)."""
        return self.bins.reshape(-1, BINS, len(self.names)).sum(axis=1)

    @property
    def prefix_hits(self) -> np.ndarray:
        """Share of the prompt tokens that a prefix cache holds, (I,)."""
        return 1.0 - self.computed[:, 0] / self.lengths[:, 0]

    @property
    def num_windows(self) -> int:
        """Whole windows, T."""
        return len(self.bins) // BINS

    @property
    def num_days(self) -> int:
        """Whole days."""
        return self.num_windows // DAY


def study(
    trace: Trace,
    *,
    by: str = "auto",
    buckets: int = 3,
    edges: Sequence[int] | None = None,
    bound: Bound | None = None,
    prefix_hit: float | None = None,
    source: str = "",
) -> TraceStatistics:
    """Sort the requests of a trace into workloads and measure these.

    Parameters
    ----------
    trace : Trace
        From `read_trace`.
    by : {"auto", "label", "length", "one"}
        Workloads are the values of the label column, buckets of input + output tokens, or one for all.
        ``"auto"`` takes labels where there are any, else lengths.
    buckets : int
        Number of length buckets of equally many requests: 2 or 3 are named short, (medium,) long.
    edges : sequence of int, optional
        Bounds between length buckets in tokens, instead of equally many requests.
    bound : Bound, optional
        What serves each label of the trace, from `fleetgym.capacity.traces.labels.bind`; by default any candidate.
    prefix_hit : float, optional
        Share of every prompt that a prefix cache holds, from 0 to 1, whatever the trace says.
    source : str
        The file's name, for messages.

    Returns
    -------
    TraceStatistics

    Raises
    ------
    DataError
        If the trace is too short or too long in time, or has no tokens at all.
    FleetgymError
        For options that contradict the trace.
    """
    clock = _check_span(trace, source)
    totals = _total_histogram(trace)
    if by == "auto":
        by = "label" if trace.pairs else "length"
    bound = bound or Bound((None,) * len(trace.pairs), ())
    if edges is not None and by != "length":
        raise FleetgymError("edges of length buckets need workloads by length")
    if by == "label":
        sorting = by_label(trace, bound.models)
    elif by == "length":
        sorting = by_length(totals, buckets, edges)
    elif by == "one":
        sorting = in_one()
    else:
        raise FleetgymError(f"workloads by {by!r}; expected auto, label, length or one")
    if not sorting.models:
        one = one_for_all(bound, trace.label_counts(), by)
        sorting = dataclasses.replace(sorting, models=(one,) * len(sorting.names))
    return _measure(trace, clock, totals, sorting, prefix_hit, source)


@dataclasses.dataclass(frozen=True)
class _Clock:
    """Where the trace's windows lie."""

    start_ns: int  # of the first bin
    windows: int

    @property
    def first_window(self) -> int:
        """Window of the day in which the first bin lies."""
        return int(self.start_ns // 10**9 % 86400 // WINDOW_S)

    def bins(self, time_ns: np.ndarray) -> np.ndarray:
        """Return the number of the 10 s in which each arrival falls."""
        return (time_ns - self.start_ns) // (BIN_S * 10**9)


def _clock(trace: Trace) -> _Clock:
    """Lay windows over the trace: they begin with it, or shortly before it at a round five minutes.

    A window at an end of the trace is whole if no more of it is missing than three usual gaps between arrivals.
    """
    usual_s = 3.0 * trace.span_s / max(1, trace.num_rows - 1)
    slack_ns = int(min(max(BIN_S, usual_s), WINDOW_S / 2) * 1e9)
    bin_ns, window_ns = BIN_S * 10**9, int(WINDOW_S) * 10**9
    start = trace.first_ns // window_ns * window_ns
    if trace.first_ns - start > slack_ns:
        start = trace.first_ns // bin_ns * bin_ns
    return _Clock(start, (trace.last_ns - start + slack_ns) // window_ns)


def _check_span(trace: Trace, source: str) -> _Clock:
    clock = _clock(trace)
    windows = clock.windows
    if windows < 2:
        fail(
            source,
            "all rows",
            f"the trace spans {trace.span_s:.0f} s; a rate of demand needs at least 2 whole windows of "
            f"{WINDOW_S:.0f} s",
        )
    if windows > MAX_DAYS * DAY:
        fail(
            source,
            "all rows",
            f"the trace spans {trace.span_s / 86400:.0f} days, at most {MAX_DAYS} are read; take a part "
            f"with --last {MAX_DAYS}d, or --from and --to (is a date wrong, or is --time-unit ms meant?)",
        )
    return clock


def _total_histogram(trace: Trace) -> np.ndarray:
    found = np.zeros(_LONGEST_TOTAL + 1, dtype=np.int64)
    for rows in trace.chunks():
        total = rows["input"].astype(np.int64) + rows["output"]
        found += np.bincount(np.minimum(total, _LONGEST_TOTAL), minlength=_LONGEST_TOTAL + 1)
    return found


# -- measuring


def _left_out(trace: Trace) -> list[str]:
    """Return what is left out, and why, in shares of requests and tokens."""
    words = {
        "no call": "rows left out because they are no calls of a model: steps around one, tools",
        "failed": "requests left out because they failed, as the file says",
        "turned away": "requests that were turned away (429, 503): demand that is not planned for, since a retry would "
        "count twice. If they were not sent again, raise --scale",
        "without usage": "requests that did not fail, as far as the file says, and have no tokens in it (as of streams "
        "without usage): demand that is not planned for. Have them logged, or raise --scale",
        "repeated": "rows left out because an earlier request has their id",
        "answered": "requests left out because a cache answered them, so that no GPU saw them",
        "without output": "rows left out because they have no output tokens: failed requests, embeddings",
        "too long": "requests left out because they have more tokens than any candidate holds",
    }
    found = []
    for why, (count, _) in trace.left_out.items():
        if why in words:
            requests, tokens = trace.share_left_out(why)
            told = f"{words[why]}: {count:,} ({requests:.1%} of requests, {tokens:.1%} of tokens)"
            if why in ("turned away", "without usage") and requests < 1.0:
                told += (
                    f"; {trace.num_rows:,} are planned for, {trace.num_rows + count:,} with these: --scale "
                )
                told += f"{1.0 / (1.0 - requests):.3g}"
            found.append(told)
    return found


def _repeated(trace: Trace) -> list[str]:
    """Return a doubt where many rows equal the one before: a log of two events for each request doubles the demand."""
    count = trace.repeats()
    if count < _MANY_REPEATS * trace.num_rows:
        return []
    return [
        f"{count:,} rows ({count / trace.num_rows:.1%}) equal the row before them in time, lengths and label, and are "
        "requests like the others: if the file has each request twice, leave one of them out"
    ]


def _measure(
    trace: Trace,
    clock: _Clock,
    totals: np.ndarray,
    sorting: Sorting,
    prefix_hit: float | None,
    source: str,
) -> TraceStatistics:
    count, windows = len(sorting.names), clock.windows
    bins = np.zeros((windows + 1) * BINS * count)
    sums = np.zeros((2, (windows + 1) * count))  # tokens per window, input and output
    prompts, outputs = np.zeros((2, len(GRID) * count))  # requests by length
    moments, computed = np.zeros((6, count)), np.zeros((6, count))
    held = HeldCounter(count)
    for rows in trace.chunks():
        workload = sorting.classify(rows)
        bin_ = clock.bins(rows["time_ns"])
        bins += np.bincount(bin_ * count + workload, minlength=bins.size)
        a, b = rows["input"].astype(float), rows["output"].astype(float)
        for side, tokens in enumerate((a, b)):
            sums[side] += np.bincount(bin_ // BINS * count + workload, tokens, minlength=sums.shape[1])
        fresh = a - rows["cached"] if prefix_hit is None else (1.0 - prefix_hit) * a
        for tally, tokens in ((prompts, fresh), (outputs, b)):
            tally += np.bincount(_bin(tokens) * count + workload, minlength=tally.size)
        held.add(workload, a, b, fresh)
        for found, inputs in ((moments, a), (computed, fresh)):
            for k, values in enumerate((np.ones_like(a), inputs, b, inputs**2, b * b, inputs * b)):
                found[k] += np.bincount(workload, values, minlength=count)
    per_window = bins.reshape(-1, BINS, count).sum(axis=1)[:windows]
    is_date = trace.is_clock or trace.first_ns > _SINCE_1970_NS
    calendar = lay_calendar(clock.start_ns if is_date else None, clock.first_window, per_window.sum(axis=1))
    there = np.append(calendar.is_there, False)
    bins = bins.reshape(-1, BINS, count)[there].reshape(-1, count)
    per_window = per_window[calendar.is_there]
    means = sums.reshape(2, -1, count)[:, there]
    with np.errstate(divide="ignore", invalid="ignore"):
        means = means / per_window
    _check_tokens(moments, sorting.names, source)
    lengths, correlation = _lengths(moments)
    own_lengths, own_correlation = _lengths(computed)
    counts = outputs.reshape(-1, count)
    seen = counts.any(axis=1)
    return TraceStatistics(
        names=sorting.names,
        rule=sorting.rule,
        models=sorting.models,
        requests=trace.num_rows,
        too_long=trace.left_out.get("too long", (0, 0))[0],
        span_s=trace.span_s,
        first_window=clock.first_window,
        is_clock=is_date,
        dates=calendar.dates,
        read_as=trace.read_as,
        notes=(*trace.notes, *_left_out(trace), *_repeated(trace), *calendar.notes),
        bins=bins,
        input_mean=means[0],
        output_mean=means[1],
        lengths=lengths,
        correlation=correlation,
        computed=np.column_stack((own_lengths[:, [0, 2]], own_correlation)),
        total_quantiles=tuple(dict(zip(quantiles(totals, _SHARES), _SHARES, strict=True)).items()),
        output_values=GRID[seen],
        output_shares=(counts[seen] / counts.sum(axis=0)).T,
        input_laws=tuple(LengthLaw.of_sample(GRID, requests) for requests in prompts.reshape(-1, count).T),
        prefix_hits_from=trace.prefix_hits
        if prefix_hit is None
        else f"assumed, as given: {prefix_hit:.3g} of every prompt",
        held=held.total(per_window.sum(axis=0)),
        arrival_cv2=_dispersion(bins.reshape(-1, BINS, count)),
        dispersion=np.maximum(1.0, _dispersion(bins.reshape(-1, 2, BINS // 2, count).sum(axis=2))),
    )


def _bin(tokens: np.ndarray) -> np.ndarray:
    """Return the places of lengths in `GRID`: the shortest one there that is not below."""
    return np.searchsorted(GRID, tokens)


def _check_tokens(moments: np.ndarray, names: Sequence[str], source: str) -> None:
    for side, total in (("input", moments[1]), ("output", moments[2])):
        if np.any(total <= 0):
            name = names[int(np.argmin(total))]
            fail(source, "all rows", f"the requests of workload {name!r} have no {side} tokens at all")


def _lengths(moments: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return means and squared coefficients of variation, (I, 4), and correlations, (I,); of nothing, 0."""
    n, a, b, aa, bb, ab = moments
    mean_a, mean_b = a / n, b / n
    var_a, var_b = np.maximum(aa / n - mean_a**2, 0.0), np.maximum(bb / n - mean_b**2, 0.0)
    spread = np.sqrt(var_a * var_b)
    correlation = np.where(spread > 0, (ab / n - mean_a * mean_b) / np.where(spread > 0, spread, 1.0), 0.0)
    squares = [np.where(mean > 0, mean, 1.0) ** 2 for mean in (mean_a, mean_b)]
    columns = (mean_a, mean_b, var_a / squares[0], var_b / squares[1])
    return np.column_stack(columns), np.clip(correlation, -1.0, 1.0)


def _dispersion(counts: np.ndarray) -> np.ndarray:
    """Return variance / mean of counts in the parts of windows, the windows' own levels taken out: (I,).

    For a renewal process this tends to the squared coefficient of variation of interarrival times (Cox and
    Lewis, *The Statistical Analysis of Series of Events*, 4.2). 1 where there are too few requests to tell.

    Parameters
    ----------
    counts : ndarray, shape (windows, parts, I)
    """
    parts = counts.shape[1]
    squares = ((counts - counts.mean(axis=1, keepdims=True)) ** 2).sum(axis=(0, 1))
    total = counts.sum(axis=(0, 1))
    known = total >= _FEW_REQUESTS
    return np.where(known, squares * parts / (parts - 1) / np.where(known, total, 1.0), 1.0)
