"""Read a trace of requests as checked rows: arrival in nanoseconds, input, output and cached tokens, label.

CSV, JSON Lines, JSON and Parquet are told apart by how the file begins, their columns by their names, see
`fleetgym.capacity.traces.header`. Rows are parsed in pieces and spooled as 22 bytes each, so memory stays bounded
however long the trace is.
"""

from __future__ import annotations

import datetime
import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TypedDict

import numpy as np

from fleetgym.capacity.traces.header import (
    COLUMN_NAMES,
    UNITS,
    Layout,
    expected_header,
    plain,
    read_layout,
)
from fleetgym.capacity.traces.rows import (
    MAX_TOKENS,
    PREFIX_CACHE_TOKENS,
    ROW,
    Label,
    Parser,
    may_be_hits,
)
from fleetgym.capacity.traces.source import StrPath, fail
from fleetgym.capacity.traces.tables import Files, Piece, open_tables
from fleetgym.capacity.traces.times import Times, how_written, numbers
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.files.quantities import PREFIX_CACHE
from fleetgym.hardware import catalog
from fleetgym.hardware.model_names import is_hosted, looks_like_a_model

_SPOOL_BYTES = 256 * 2**20
_CHUNK_ROWS = 2**20
_MOST_COUNTED = 50_000_000  # requests that rows of several stand for
_SELDOM_RPS = 0.1
#: Columns that are numbers, or should be.
_NUMERIC = ("time", "input", "output", "cached", "created", "count", "reasoning", "total")
_FEWEST_COUNTED = 20  # rows of a counter: a morning's rates may rise as often as that by chance
_SELDOM_FALLS = 0.05  # of its steps: where what counts was started again
_ABOUT_S = 600.0  # more or less than an hour, between two rows
_LOOKED_AT = 10_000  # rows whose times may be those of totals
_FEWEST_STEPS = 9
#: In names of columns of tokens that are no amounts of a request, or are of parts that are counted.
_NO_AMOUNT = re.compile(
    "max|limit|per|rate|cost|price|usd|_id|time|first|latency|total|cache|budget", re.IGNORECASE
)
_SHOWN = 12  # names of columns in a note
_SAMPLED = 5000  # rows in which is looked for what columns that are not read hold
_MANY_REPEATS = 0.01  # of the ids: more are asked about
_FEW_IDS = 0.01  # of the rows: so few different ones are no ids of requests
_FEW_RATES = 10
#: Words for requests that may wait.
_DEFERRED = frozenset(("batch", "flex", "offline", "async_batch"))


class Trace:
    """The rows of a trace, checked and spooled."""

    def __init__(self) -> None:
        self._spool = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 - closed in __exit__
        self._longest: np.ndarray | None = None  # by label
        self._between = (-(2**62), 2**62)
        self.num_rows, self.tokens = 0, 0
        self.left_out: dict[str, tuple[int, int]] = {}  # requests that are no rows, and their tokens, by why
        #: Earliest and latest arrival, nanoseconds since 1970, or since the trace's zero.
        self.first_ns, self.last_ns = 2**62, -(2**62)
        self.pairs: tuple[
            Label, ...
        ] = ()  # what codes in the column ``label`` stand for; empty without labels
        self.label_name: str | None = None  # how the file calls the column, or both columns
        self.is_clock = True  # whether arrivals are dates; otherwise seconds, whose zero is taken as midnight
        self.format: str | None = None  # the known program whose layout the file has
        self.read_as = ""  # which columns were read, where names alone do not tell
        self.prefix_hits: str | None = None  # how the file tells what of a prompt a prefix cache holds
        self.notes: tuple[str, ...] = ()  # what its user should know of how it was read

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *error: object) -> None:
        self._spool.close()

    @property
    def labels(self) -> tuple[str, ...]:
        """The pairs as texts."""
        return tuple(pair.text for pair in self.pairs)

    def label_counts(self) -> np.ndarray:
        """Return the requests of each label, (L,)."""
        counts = np.zeros(len(self.pairs), dtype=np.int64)
        for rows in self.chunks() if len(counts) else ():
            counts += np.bincount(rows["label"], minlength=len(counts))
        return counts

    def append(self, rows: np.ndarray) -> None:
        """Add rows of dtype `ROW`."""
        self._spool.write(rows.tobytes())
        self._count(rows)

    def leave_out(self, why: str, requests: int, tokens: int) -> None:
        """Count what is not among the rows."""
        if requests:
            before = self.left_out.get(why, (0, 0))
            self.left_out[why] = (before[0] + requests, before[1] + tokens)

    def share_left_out(self, why: str) -> tuple[float, float]:
        """Return the share of requests, and of tokens, that one reason leaves out."""
        requests, tokens = self.left_out.get(why, (0, 0))
        return requests / max(1, requests + self.num_rows), tokens / max(1, tokens + self.tokens)

    def chunks(self) -> Iterator[np.ndarray]:
        """Yield all rows from the first on, at most about a million at a time."""
        self._spool.seek(0)
        first, last = self._between
        while data := self._spool.read(_CHUNK_ROWS * ROW.itemsize):
            rows = np.frombuffer(data, dtype=ROW)
            keep = (rows["time_ns"] >= first) & (rows["time_ns"] < last)
            if self._longest is not None:
                keep &= _tokens(rows) <= self._longest[rows["label"]]
            yield rows if keep.all() else rows[keep]

    def repeats(self) -> int:
        """Return how many rows equal the row before them: in time, lengths and label."""
        found, last = 0, np.empty(0, dtype=ROW)
        for rows in self.chunks():
            joined = np.concatenate([last, rows])
            found += int((joined[1:] == joined[:-1]).sum())
            last = joined[-1:]
        return found

    def leave_out_longer(self, tokens: np.ndarray, why: str) -> None:
        """Leave out, once, the requests with more tokens than this by label, input and output together."""
        for rows in self.chunks():
            long = _tokens(rows) > tokens[rows["label"]]
            self.leave_out(why, int(long.sum()), int(_tokens(rows)[long].sum()))
        self._longest = tokens
        self._count_again()

    def keep_between(self, first_ns: int, last_ns: int) -> None:
        """Keep the arrivals from the first to before the last time only."""
        self._between = (first_ns, last_ns)
        self._count_again()

    def _count_again(self) -> None:
        self.num_rows, self.tokens = 0, 0
        self.first_ns, self.last_ns = 2**62, -(2**62)
        for rows in self.chunks():
            self._count(rows)

    def _count(self, rows: np.ndarray) -> None:
        self.num_rows += len(rows)
        self.tokens += int(_tokens(rows).sum())
        self.first_ns = int(rows["time_ns"].min(initial=self.first_ns))
        self.last_ns = int(rows["time_ns"].max(initial=self.last_ns))

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last arrival."""
        return (self.last_ns - self.first_ns) / 1e9


def _tokens(rows: np.ndarray) -> np.ndarray:
    return rows["input"].astype(np.int64) + rows["output"]


class ReadOptions(TypedDict, total=False):
    """The options of `read_trace`."""

    columns: Mapping[str, str] | None
    time_format: str | None
    time_unit: str | None
    since: str | None
    until: str | None
    last: str | None
    any_order: bool
    unpack_gib: float | None
    prefix_cache_tokens: int
    skip_bad_rows: float | None


def read_trace(
    path: StrPath,
    *,
    columns: Mapping[str, str] | None = None,
    time_format: str | None = None,
    time_unit: str | None = None,
    since: str | None = None,
    until: str | None = None,
    last: str | None = None,
    any_order: bool = False,
    unpack_gib: float | None = None,
    prefix_cache_tokens: int = PREFIX_CACHE_TOKENS,
    skip_bad_rows: float | None = None,
    regions: Collection[str] = (),
) -> Trace:
    """Read and check a whole trace.

    Parameters
    ----------
    path : path-like
        CSV, JSON Lines, JSON or Parquet, or several such files, see `fleetgym.capacity.traces.tables.files`; packed
        if the name ends so, see `fleetgym.capacity.traces.source.PACKED`.
    columns : mapping, optional
        Names of columns by what they hold, a key of `fleetgym.capacity.traces.header.COLUMN_NAMES`.
    time_format : str, optional
        Of dates, as of `datetime.datetime.strptime`.
    time_unit : {"s", "ms", "us", "ns"}, optional
        Of times that are numbers.
    since, until : str, optional
        Keep what arrives from the first on, and before the second: dates, or seconds of a trace without dates.
    last : str, optional
        Keep the last part, such as ``"7d"``, ``"24h"`` or ``"90m"``.
    any_order : bool
        Accept rows that are not in order of time.
    unpack_gib : float, optional
        Most GiB that the file may unpack to, see `fleetgym.capacity.traces.source.Source`.
    prefix_cache_tokens : int
        Size of the prefix cache in which a trace with hashes of its prompts has its hits.
    skip_bad_rows : float, optional
        Share of the rows that may be unreadable, and is then left out; by default the first one is an error.
    regions : collection of str
        Regions of the prices: a trace of several of them is asked about.

    Returns
    -------
    Trace

    Raises
    ------
    DataError
        With file and place of the first thing that is wrong.
    FleetgymError
        For options that cannot be read, or contradict each other.
    """
    if time_unit is not None and time_unit not in UNITS:
        raise UnknownNameError("unit of time", time_unit, UNITS)
    if time_unit is not None and time_format is not None:
        raise FleetgymError("a unit is of numbers and a format of dates; give one of them")
    length_ns = None if last is None else _length_ns(last)
    if last is not None and (since or until):
        raise FleetgymError("the last part of a trace, or from and to; give one of them")
    PREFIX_CACHE.read(prefix_cache_tokens, "prefix_cache_tokens")
    is_lenient = skip_bad_rows is not None
    table = open_tables(path, unpack_gib, expected=expected_header(), pass_over=is_lenient)
    layout = read_layout(path, table.names, columns)
    noted = _look_at_unused(path, layout, unpack_gib, is_lenient, regions)
    trace, parser, before = Trace(), None, -(2**62)
    totals: list[np.ndarray] = []
    are_whole, seen = True, 0
    numeric = {column for role, column in layout.columns.items() if role in _NUMERIC}
    numeric -= {column for role, column in layout.columns.items() if role not in _NUMERIC}
    if time_format is not None:
        numeric.discard(layout.columns["time"])  # digits may be a date
    for piece in table.pieces(sorted(set(layout.columns.values())), numeric):
        size = len(next(iter(piece.columns.values())))
        if not size:
            continue
        if parser is None:
            first = piece.columns[layout.columns["time"]][0]
            times = how_written(first, time_unit, layout.unit, time_format)
            faults: list[DataError] | None = [] if is_lenient else None
            parser = Parser(path, layout, times, prefix_cache_tokens, faults)
            if times.is_clock:
                numeric.discard(layout.columns["time"])
        seen += size
        rows, out = parser.rows(piece)
        are_whole = are_whole and not np.any(rows["time_ns"] % UNITS[times.unit])
        is_free = any_order and "hashes" not in layout.columns
        if layout.format.ordered and not is_free and not isinstance(path, Files):
            before = _check_order(path, piece, rows["time_ns"], before, np.flatnonzero(~parser.wrong))
        kept = np.ones(size, dtype=bool)
        for why, mask in out.items():
            count = int(rows["count"][mask].sum()) if parser.has_totals else int(mask.sum())
            trace.leave_out(why, count, int(_tokens(rows)[mask].sum()))
            kept &= ~mask
        if parser.has_totals:
            totals.append(rows[kept])
        else:
            trace.append(rows[kept])
    if parser is None:
        fail(path, 2, "there is no request after the header")
    unreadable = [*(table.passed_over or []), *(parser.passed_over or [])]
    if skip_bad_rows is not None and unreadable:
        trace.notes += (_skipped(path, unreadable, seen + len(table.passed_over or []), skip_bad_rows),)
    if totals:
        _append_totals(path, trace, np.concatenate(totals), parser, layout)
    if trace.num_rows == 0:
        fail(path, "all rows", f"none of {seen:,} rows is a request with output tokens that did not fail")
    trace.is_clock, trace.format = parser.times.is_clock, layout.format.name or None
    if "label" in layout.columns or "model" in layout.columns:
        trace.pairs = tuple(parser.codes)
        named = [layout.name(role) for role in ("label", "model") if role in layout.columns]
        trace.label_name = " and ".join(named)
    trace.prefix_hits = parser.prefix_hits
    trace.read_as = layout.words
    if layout.format.note:
        trace.notes += (layout.format.note,)
    if thousands := [role for role in ("input", "output") if parser.is_in_thousands(role)]:
        names = " and ".join(repr(layout.name(role)) for role in thousands)
        trace.notes += (f"{names}: read as thousands of tokens, as the name says",)
    if layout.unused:
        rest = len(layout.unused) - _SHOWN
        more = f" and {rest} more" if rest > 0 else ""
        trace.notes += (f"columns that were not read: {', '.join(layout.unused[:_SHOWN])}{more}", *noted)
    _ask_for_unit(path, trace, parser.times, are_whole)
    if not totals:
        _check_totals(path, trace)
    _cut(path, trace, since, until, length_ns)
    return trace


def _skipped(path: StrPath, faults: Sequence[DataError], rows: int, most: float) -> str:
    """Return how many rows were left out since they cannot be read; raise where they are more than accepted."""
    first = f"the first, {faults[0].path}: {faults[0].message}"
    if len(faults) > most * rows:
        fail(
            path,
            "all rows",
            f"{len(faults):,} of {rows:,} rows ({len(faults) / rows:.2%}) cannot be read, more than the {most:.2%} of "
            f"--skip-bad-rows; {first}",
        )
    return f"rows left out because they cannot be read: {len(faults):,} of {rows:,} ({len(faults) / rows:.2%}); {first}"


def _look_at_unused(
    path: StrPath, layout: Layout, unpack_gib: float | None, is_lenient: bool, regions: Collection[str]
) -> tuple[str, ...]:
    """Return what to know of columns that are not read; refuse those that would change the answer."""
    _ask_for_named_models(path, layout)
    unused = [k for k, name in enumerate(layout.names) if name.strip() in layout.unused]
    if not unused or not (isinstance(path, Files) or os.path.isfile(path)):  # a pipe cannot be read twice
        return ()
    table = open_tables(path, unpack_gib, expected=expected_header(), pass_over=is_lenient)
    first = next(iter(table.pieces(unused, set())), None)
    if first is None:
        return ()
    counted, notes = [], []
    _ask_for_models(
        path, {layout.names[k].strip(): _texts(first.columns[k][:_SAMPLED]) for k in unused}, layout
    )
    for k in unused:
        name, entries = layout.names[k].strip(), first.columns[k][:_SAMPLED]
        texts = _texts(entries)
        amounts = numbers(entries)
        _ask_for_regions(path, name, texts, layout, regions)
        _ask_for_hits(path, name, entries, layout)
        _ask_for_samples(path, name, texts, amounts, layout)
        _ask_for_failures(path, name, entries, amounts, layout)
        _ask_for_ids(path, name, first.columns[k], layout)
        mean = float(np.nan_to_num(amounts).mean()) if len(amounts) else 0.0
        if mean > 0.0 and re.search("reason|think|thought", name, re.IGNORECASE):
            _ask_for_reasoning(path, name, layout)
        if mean > 0.0 and re.search("token", name, re.IGNORECASE) and not _NO_AMOUNT.search(name):
            counted.append(f"{name} ({mean:,.0f} a row)")
        if deferred := sorted(text for text in texts if text.lower() in _DEFERRED):
            notes.append(
                f"rows whose {name!r} is {deferred[0]!r} may wait for hours, and are planned like the others: "
                f"label={name} in --columns makes a workload of them"
            )
    if counted:
        notes.append(f"tokens that are not counted: {', '.join(counted[:_SHOWN])}")
    return tuple(notes)


def _is_free(role: str, layout: Layout) -> bool:
    """Return whether no column has the role, and the user said nothing of it."""
    return role not in {*layout.columns, *layout.asked}


def _texts(entries: np.ndarray) -> set[str]:
    """Return the words among entries."""
    return {str(entry).strip() for entry in entries if isinstance(entry, (str, bool))} - {""}


def _ask_for_models(path: StrPath, columns: Mapping[str, set[str]], layout: Layout) -> None:
    if not _is_free("model", layout):
        return
    found = {}
    for name, texts in columns.items():
        known = sorted(text for text in texts if _is_model(text))
        if re.search("model|engine|deployment", name.rpartition(".")[2], re.IGNORECASE):
            known = known or sorted(text for text in texts if looks_like_a_model(text) or is_hosted(text))
        if known and 2 * len(known) >= len(texts):
            found[name] = known[0]
    if found:
        told = "; ".join(
            f"the column {name!r} names models, such as {model!r}" for name, model in found.items()
        )
        options = " or ".join(f"model={name}" for name in found)
        is_read = "is not read" if len(found) == 1 else "none of them is read"
        fail(path, 1, f"{told}, and {is_read}: say --columns {options}, or --columns model=none to leave it")


def _ask_for_named_models(path: StrPath, layout: Layout) -> None:
    """Refuse tokens whose column has a model in its name, as in ``usage.Llama-3.1-8B.prompt_tokens``."""
    name = layout.name("input")
    steps = name.split(".")
    parts = [".".join(steps[i:j]) for i in range(len(steps)) for j in range(i + 1, len(steps) + 1)]
    known = [part for part in parts if _is_model(part) or is_hosted(part)]
    if known and _is_free("model", layout):
        fail(
            path,
            1,
            f"the column {name!r} has the tokens of {known[0]!r}, and no column names models: if that serves all "
            "requests, say --columns model=none and name it with --models; else give a column of models",
        )


def _ask_for_regions(
    path: StrPath, name: str, texts: set[str], layout: Layout, regions: Collection[str]
) -> None:
    priced = sorted(text for text in texts if text in regions)
    if len(texts) > 1 and priced and "region" not in layout.asked:
        fail(
            path,
            1,
            f"the column {name!r} has {len(texts)} regions, and prices are of {priced[0]!r}, too: a plan serves every "
            "request from the GPUs of any region. Import each region apart, with --region; or say --columns "
            f"region=none to put them together, or label={name} to make workloads of them",
        )


def _ask_for_hits(path: StrPath, name: str, entries: np.ndarray, layout: Layout) -> None:
    said = {str(entry).strip().lower() for entry in entries}
    if (
        _is_free("answered", layout)
        and re.search("cache", name, re.IGNORECASE)
        and not re.search("token|enabled|created|ttl", name, re.IGNORECASE)
        and may_be_hits(said)
    ):
        fail(
            path,
            1,
            f"the column {name!r} may say which requests a cache answered, so that no GPU saw them, and is not read: "
            f"say --columns answered={name} to leave them out, or --columns answered=none",
        )


def _ask_for_samples(path: StrPath, name: str, texts: set[str], amounts: np.ndarray, layout: Layout) -> None:
    if not _is_free("sample", layout) or not re.search("sampl|adjusted.?count", name, re.IGNORECASE):
        return
    rates = np.unique(amounts[~np.isnan(amounts)])
    is_rate = 0 < len(rates) <= _FEW_RATES and not set(rates.tolist()) <= {0.0, 1.0, 100.0}
    written = sorted(text for text in texts if re.fullmatch(r"[\d.]+ ?%|1 ?(:|/|in) ?\d+", text))
    if is_rate or written:
        fail(
            path,
            1,
            f"the column {name!r} ({written[0] if written else f'{rates[0]:g}'}) may say that the rows are a sample of "
            "the requests, and is not read: if they are one in N, say --scale N and --columns sample=none; else only "
            "the latter",
        )


def _ask_for_failures(
    path: StrPath, name: str, entries: np.ndarray, amounts: np.ndarray, layout: Layout
) -> None:
    if not _is_free("status", layout):
        return
    codes = amounts[np.isfinite(amounts)]
    are_codes = len(codes) > 0 and bool(((codes >= 100) & (codes < 600) & (codes % 1 == 0)).all())
    said = {str(entry).strip().lower() for entry in entries}
    is_flag = {"false"} < said <= {"true", "false", ""} and re.search("succe|ok$", name, re.IGNORECASE)
    if re.search("status|code|http", name, re.IGNORECASE) and are_codes and (codes >= 400).any() or is_flag:
        fail(
            path,
            1,
            f"the column {name!r} says of some requests that they failed, and is not read: say --columns "
            f"status={name} to leave them out, or --columns status=none",
        )


def _ask_for_ids(path: StrPath, name: str, entries: np.ndarray, layout: Layout) -> None:
    names = {plain(known) for known in COLUMN_NAMES["id"]}
    if not _is_free("id", layout) or plain(name.rpartition(".")[2]) not in names:
        return
    ids = [entry for entry in entries if entry not in (None, "")]
    repeats = len(ids) - len(set(map(str, ids)))
    if _MANY_REPEATS * len(ids) < repeats < (1.0 - _FEW_IDS) * len(ids):
        fail(
            path,
            1,
            f"{repeats / len(ids):.0%} of the first rows have an id in {name!r} that an earlier one has: of the start "
            f"and the end of a request, of its chunks, or of one that was tried again, say --columns id={name} to "
            "count each once; else --columns id=none",
        )


def _ask_for_reasoning(path: StrPath, name: str, layout: Layout) -> None:
    if "reasoning" not in {*layout.columns, *layout.asked}:
        fail(
            path,
            1,
            f"the column {name!r} may hold tokens of reasoning, and is not read: say --columns reasoning={name} to "
            "add them to the output, or --columns reasoning=none if they are a part of it, or no tokens",
        )


def _is_model(text: str) -> bool:
    if not re.search(r"[A-Za-z].*\d", text):
        return False
    try:
        catalog.model_named(text)
    except FleetgymError:
        return False
    return True


def _check_order(path: StrPath, piece: Piece, all_ns: np.ndarray, before: int, readable: np.ndarray) -> int:
    """Return the last arrival of the rows that can be read; raise where one is earlier than the one before."""
    time_ns = all_ns[readable]
    if not len(time_ns):
        return before
    earlier = np.flatnonzero(np.diff(time_ns, prepend=before) < 0)
    if earlier.size:
        fail(
            path,
            piece.place(int(readable[earlier[0]])),
            f"{_how_much_earlier(before, time_ns, int(earlier[0]))}, sort the trace by time, or accept any order with "
            "--unsorted (any_order), which a trace with hashes of its prompts cannot have",
        )
    return int(time_ns[-1])


def _how_much_earlier(before: int, time_ns: np.ndarray, row: int) -> str:
    """Return how a time is before the last one; an hour is what clocks are put back."""
    back_s = ((before if row == 0 else int(time_ns[row - 1])) - int(time_ns[row])) / 1e9
    if abs(back_s - 3600.0) <= _ABOUT_S:
        return (
            "earlier than the row before by an hour, as when clocks are put back: write the times in UTC or with "
            "their zone, else two hours lie on each other. If that is not it"
        )
    return "earlier than the row before"


def _check_totals(path: StrPath, trace: Trace) -> None:
    """Refuse rows that come as regularly as only totals of a period do, without saying how many requests they are."""
    steps = np.diff(np.unique(next(trace.chunks())["time_ns"][:_LOOKED_AT]))
    if len(steps) < _FEWEST_STEPS or (step := int(steps.min())) < 60 * 10**9 or (steps % step).any():
        return
    fail(
        path,
        "all rows",
        f"rows come every {step / 1e9:g} s exactly, as totals of a period do: say which column has the number of "
        "requests, as --columns count=NAME (a total of tokens alone does not tell it)",
    )


def _ask_for_unit(path: StrPath, trace: Trace, times: Times, are_whole: bool) -> None:
    """Refuse whole numbers that may as well be milliseconds: nothing says that they are seconds, and they are few."""
    rate = trace.num_rows / max(trace.span_s, 1.0)
    if times.is_clock or times.is_stated or not are_whole or rate >= _SELDOM_RPS or trace.num_rows < 100:
        return
    fail(
        path,
        "all rows",
        f"the times are whole numbers without a unit: as seconds they are {rate:.2g} requests/s for "
        f"{trace.span_s / 3600:.3g} h, as milliseconds {1000 * rate:.3g} requests/s for {trace.span_s / 1000:.3g} s; "
        "say which with --time-unit s or --time-unit ms",
    )


# -- rows that stand for several requests


def _append_totals(path: StrPath, trace: Trace, rows: np.ndarray, parser: Parser, layout: Layout) -> None:
    """Add the requests of rows that hold counts and totals: even shares, at random moments of the row's time."""
    stamps = np.unique(rows["time_ns"])
    if len(stamps) < 2:
        fail(path, "all rows", "rows that stand for several requests need at least two different times")
    step_ns = int(np.median(np.diff(stamps)))
    count = rows["count"]
    if _are_counters(rows):
        fail(
            path,
            "all rows",
            f"{layout.name('count')!r} and the tokens hardly ever fall: they are counters, which tell all since a "
            "start. Give what each row adds: the difference to the row before. What Prometheus answers to query_range "
            "for the counters themselves, as JSON, is read as it is",
        )
    if count.sum() > _MOST_COUNTED:
        fail(
            path,
            "all rows",
            f"the rows stand for {count.sum():,} requests, at most {_MOST_COUNTED:,} are read; give a shorter part, "
            "or divide the counts and give --scale",
        )
    owner = np.repeat(np.arange(len(rows)), count)
    number = np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count)
    found = np.empty(len(owner), dtype=ROW)
    for name in ("input", "output", "cached"):
        share, rest = np.divmod(rows[name], count)
        each = share[owner] + (number < rest[owner])
        if each.size and each.max() > MAX_TOKENS:
            fail(path, "all rows", f"a row has more than {MAX_TOKENS:,} {name} tokens per request")
        found[name] = each
    moments = np.random.default_rng(0).integers(0, step_ns, len(owner))
    found["time_ns"] = rows["time_ns"][owner] + moments
    found["label"] = rows["label"][owner]
    trace.append(found[np.argsort(found["time_ns"], kind="stable")])
    what = "mean" if parser.is_mean("input") or parser.is_mean("output") else "total"
    trace.notes += (
        f"a row stands for as many requests as {layout.name('count')!r} says, its tokens being their {what}: they are "
        f"shared evenly, and arrive at random in the {step_ns / 1e9:g} s from the row's time on",
    )


def _are_counters(rows: np.ndarray) -> bool:
    """Return whether the totals of every label, of which there are enough rows, rise from row to row."""
    judged = []
    for label in np.unique(rows["label"]):
        of = rows[rows["label"] == label]
        of = of[np.argsort(of["time_ns"], kind="stable")]
        if len(of) >= _FEWEST_COUNTED:
            steps = [np.diff(of[name]) for name in ("count", "input", "output")]
            judged.append(all((d < 0).mean() <= _SELDOM_FALLS and (d > 0).any() for d in steps))
    return bool(judged) and all(judged)


# -- a part of a trace


def _length_ns(text: str) -> int:
    """Return a length of time such as ``7d``.

    Examples
    --------
    >>> _length_ns("90m") == 90 * 60 * 10**9
    True
    """
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)\s*([smhdw])", text.strip(), re.ASCII)
    if not found or float(found[1]) <= 0:
        raise FleetgymError(f"cannot read the length of time {text!r}; expected such as 7d, 24h or 90m")
    seconds = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}[found[2]]
    return int(float(found[1]) * seconds * 1e9)


def _moment_ns(what: str, text: str, is_clock: bool) -> int:
    """Return a moment: a date (UTC if it names no zone), or seconds."""
    try:
        return int(float(text) * 1e9)
    except (ValueError, OverflowError):
        pass
    try:
        date = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise FleetgymError(
            f"cannot read the time {text!r} for {what}; expected a date such as 2026-03-02T09:00, or seconds"
        ) from None
    if not is_clock:
        raise FleetgymError(f"{what} is a date, and the times of the trace are seconds; give seconds")
    date = date if date.tzinfo else date.replace(tzinfo=datetime.UTC)
    return int(date.timestamp() * 1e9)


def _cut(path: StrPath, trace: Trace, since: str | None, until: str | None, length_ns: int | None) -> None:
    if since is None and until is None and length_ns is None:
        return
    is_clock = trace.is_clock or trace.first_ns > 10**17
    first = trace.first_ns if since is None else _moment_ns("--from", since, is_clock)
    end = trace.last_ns + 1 if until is None else _moment_ns("--to", until, is_clock)
    if length_ns is not None:
        first = end - length_ns
    before = trace.num_rows
    trace.keep_between(first, end)
    if trace.num_rows == 0:
        fail(path, "all rows", "no request arrives in the part of the trace that is asked for")
    trace.notes += (
        f"{trace.num_rows:,} of {before:,} requests are in the part of the trace that is asked for",
    )
