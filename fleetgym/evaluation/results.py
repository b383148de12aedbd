"""Write and read results files: strict JSON lines, in which every number is checked.

The first line is a header: format, version, suite, the jobs' number and hash, and of each instance its hash, windows
and options. Then follows one line per episode: in the order of the jobs once the run has ended, before that in any.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from fleetgym.evaluation.changes import decode_actions
from fleetgym.evaluation.results_format import BRIEF_FORMAT, EpisodeResult, Header, Timing, stated
from fleetgym.files.documents import (
    append,
    canonical_hash,
    canonical_json,
    lock,
    parse_json,
    read_text,
    write_atomically,
)
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.quantities import DRIFT, SEED
from fleetgym.files.schema import NAME, Choice, Flag, Integer, Nested, Number, read_object, spec, to_jsonable
from fleetgym.runtime.text_tables import NOTHING, align, number, share

if TYPE_CHECKING:
    import pandas

_TOLERANCE = 1e-9  # relative, of sums that must add up

#: A results file that is, or unpacks to, more than this is not read: twenty stochastic agents on fleet-v1/test.
MAX_RESULTS_BYTES = 4 * 2**30


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Results:
    """A results file in memory; prints as a table of its episodes.

    Examples
    --------
    >>> import fleetgym
    >>> results = fleetgym.evaluate("hold", "fleet-v0/toy/two-pools")
    >>> results.to_frame()[["agent", "scenario", "cost_usd", "failure"]]
      agent  scenario  cost_usd failure
    0  hold         0      31.4    None
    """

    header: Header
    episodes: tuple[EpisodeResult, ...]
    speed_checks: tuple[SpeedCheck, ...] = ()  # of an official run
    repeat_checks: tuple[RepeatCheck, ...] = ()  # of an official run
    source: str = ""  # the file, if it was read from one

    @property
    def has_drifted(self) -> bool:
        """Whether the machine's speed changed by more than the bound beside an official run."""
        return not all(check.is_within for check in self.speed_checks)

    @functools.cached_property
    def agents(self) -> tuple[str, ...]:
        """Agents in the order of the jobs."""
        return tuple(dict.fromkeys(episode.agent for episode in self.episodes))

    @property
    def failures(self) -> tuple[EpisodeResult, ...]:
        """Episodes whose agent failed."""
        return tuple(episode for episode in self.episodes if episode.failure is not None)

    @property
    def is_complete(self) -> bool:
        """Whether every job is done."""
        return len(self.episodes) == self.header.num_jobs

    def actions(self, episode: EpisodeResult) -> np.ndarray:
        """Return the actions of an episode.

        Parameters
        ----------
        episode : EpisodeResult
            One of `episodes`.

        Returns
        -------
        ndarray of int64, shape (windows, slots)
            One option per window and slot.
        """
        facts = self.header.instances[episode.instance]
        return decode_actions(episode.actions, facts.num_windows, facts.options)

    def to_text(self) -> str:
        """Return the results file."""
        return header_line(self.header) + "".join(episode.to_line() for episode in self.episodes)

    def to_frame(self) -> pandas.DataFrame:
        """Return a data frame with one row for each episode, in the order of the jobs.

        Returns
        -------
        pandas.DataFrame
            Columns: `agent`, `instance`, `family`, `scenario`, `seed`; `cost_usd` and its terms; the shares of
            requests `miss_share` and `unserved_share`; the counts `forced_outages`, `denied` and `lost`; `failure`, a
            kind of failure or None; and `cpu_s`, the agent's CPU seconds, NaN where they were not measured.
        """
        import pandas

        counts = ("miss_share", "unserved_share", "forced_outages", "denied", "lost")
        return pandas.DataFrame(
            {
                "agent": e.agent,
                "instance": e.instance,
                "family": self.header.instances[e.instance].family,
                "scenario": e.scenario,
                "seed": e.seed,
                "cost_usd": e.cost_usd,
                **dataclasses.asdict(e.costs),
                **{name: getattr(e, name) for name in counts},
                "failure": None if e.failure is None else e.failure.kind,
                "cpu_s": math.nan if e.timing is None else e.timing.total_s,
            }
            for e in self.episodes
        )

    def __str__(self) -> str:
        head = ("agent", "instance", "scenario", "cost USD", "SLO miss %", "failure")
        rows = [
            (
                e.agent,
                e.instance,
                str(e.scenario),
                number(e.cost_usd, 2),
                share(e.miss_share),
                NOTHING if e.failure is None else e.failure.kind,
            )
            for e in self.episodes
        ]
        return align(head, rows, left=2)

    def __repr__(self) -> str:
        return (
            f"<Results: {len(self.episodes)} of {self.header.num_jobs} episodes of {', '.join(self.agents)}>"
        )

    def _repr_html_(self) -> str:
        """Show the data frame in notebooks."""
        return str(self.to_frame().to_html(float_format="{:,.4g}".format))


def header_line(header: Header) -> str:
    """Return the first line of a results file."""
    return canonical_json(stated(header)) + "\n"


def hash_jobs(keys: Iterable[Sequence[Any]]) -> str:
    """Return the SHA-256 of a list of (agent, instance, scenario, seed)."""
    return canonical_hash([list(key) for key in keys])


# -- reading


def read_results(path: str | os.PathLike[str], *, allow_incomplete: bool = False) -> Results:
    """Read and check a results file; with its timings if they lie beside it.

    Parameters
    ----------
    path : path-like
        A ``.jsonl`` or ``.jsonl.gz`` file.
    allow_incomplete : bool
        Accept a file whose run was stopped; a last line that was cut short is dropped.

    Returns
    -------
    Results

    Raises
    ------
    DataError
        With file, line and JSON path of the first thing that is wrong; ``$[0]`` is the header.
    FileNotFoundError
        If there is no such file.
    """
    text = read_text(path, MAX_RESULTS_BYTES)
    results, _ = parse_results(text, str(path), allow_incomplete=allow_incomplete)
    timings, speed_checks, repeat_checks = read_timings(timings_path(path))
    episodes = tuple(dataclasses.replace(e, timing=timings.get(e.key)) for e in results.episodes)
    return dataclasses.replace(
        results, episodes=episodes, speed_checks=speed_checks, repeat_checks=repeat_checks
    )


def parse_results(text: str, source: str = "", *, allow_incomplete: bool = False) -> tuple[Results, int]:
    """Return the results in `text`, and how many of its characters are whole lines."""
    lines = text.split("\n")
    torn = lines.pop()
    if torn and not allow_incomplete:
        _fail("the last line is cut short; finish the run with --resume", len(lines), source)
    if not lines and not torn:
        _fail("the file is empty; expected a header line", 0, source)
    if not lines or '"format"' not in lines[0]:
        _fail(
            "this is not a results file: expected a header, as `fleetgym evaluate` and `compare` write it",
            0,
            source,
        )
    header = _read_line(Header, lines[0], 0, source)
    episodes = [_read_line(EpisodeResult, line, k, source) for k, line in enumerate(lines[1:], start=1)]
    seen: dict[tuple[str, str, int, int], int] = {}
    for k, episode in enumerate(episodes, start=1):
        if episode.key in seen:
            _fail(f"the same job as in line {seen[episode.key] + 1}", k, source)
        seen[episode.key] = k
        try:
            _check_episode(episode, header)
        except DataError as error:
            raise _located(error, k, source) from None
    _check_count(header, episodes, len(lines), source, allow_incomplete)
    return Results(header, tuple(episodes), source=source), len(text) - len(torn)


def _read_line(cls: type[Any], line: str, number: int, source: str) -> Any:
    try:
        return read_object(cls, parse_json(line))
    except DataError as error:
        raise _located(error, number, source) from None


def _located(error: DataError, number: int, source: str) -> DataError:
    """Put the line into the error's place: element `number` of the file, line `number` + 1."""
    where = f"{source}:{number + 1}" if source else f"line {number + 1}"
    return DataError(error.message, f"$[{number}]{error.path.removeprefix('$')}", where)


def _fail(message: str, number: int, source: str) -> NoReturn:
    raise _located(DataError(message), number, source)


def _check_count(
    header: Header, episodes: Sequence[EpisodeResult], lines: int, source: str, allow_incomplete: bool
) -> None:
    if len(episodes) > header.num_jobs:
        _fail(
            f"the header announces {header.num_jobs} episodes, this is one more", header.num_jobs + 1, source
        )
    if len(episodes) < header.num_jobs:
        if not allow_incomplete:
            held = f"holds {len(episodes)} of {header.num_jobs} episodes"
            _fail(f"{held}; finish the run with --resume", lines - 1, source)
        return
    if hash_jobs(episode.key for episode in episodes) != header.jobs_hash and not allow_incomplete:
        message = (
            "does not belong to these episodes in this order; if the run was stopped, finish it with --resume"
        )
        raise _located(DataError(message, "$.jobs_hash"), 0, source)


def _check_episode(episode: EpisodeResult, header: Header) -> None:
    """Check what no single field can check."""
    facts = header.instances.get(episode.instance)
    if facts is None:
        raise DataError(f"the header knows no instance {episode.instance!r}", "$.instance")
    actions = decode_actions(episode.actions, facts.num_windows, facts.options)
    check_windows(episode, header.format, facts.num_windows)
    _check_sum(episode.costs.total(), episode.cost_usd, "$.costs")
    if episode.cost_per_window_usd is not None:
        _check_sum(math.fsum(episode.cost_per_window_usd), episode.cost_usd, "$.cost_per_window_usd")
    if episode.unserved_share > episode.miss_share + _TOLERANCE:
        raise DataError(
            "an unserved request is a missed one, so expected at least unserved_share", "$.miss_share"
        )
    if episode.failure is not None:
        if episode.failure.window >= facts.num_windows:
            raise DataError(f"expected a window from 0 to {facts.num_windows - 1}", "$.failure.window")
        if actions[episode.failure.window :].any():
            raise DataError("expected the empty fleet from the failure on", "$.actions")
    if episode.budget_spent_at_window is not None:
        _check_budget_spent(episode, header)


def check_windows(episode: EpisodeResult, format: str, num_windows: int) -> None:
    """Raise `DataError` unless an episode has the cost of each window, or of none in the brief format."""
    windows, path = episode.cost_per_window_usd, "$.cost_per_window_usd"
    if (windows is None) != (format == BRIEF_FORMAT):
        raise DataError("missing" if windows is None else f"expected no such key in {format}", path)
    if windows is not None and len(windows) != num_windows:
        raise DataError(f"expected {num_windows} windows, got {len(windows)}", path)


def _check_budget_spent(episode: EpisodeResult, header: Header) -> None:
    window, path = episode.budget_spent_at_window, "$.budget_spent_at_window"
    if header.official is None:
        raise DataError("the header names no rules of an official run, so there is no budget to spend", path)
    if episode.failure is not None:
        raise DataError("an agent that failed has not spent its budget", path)
    if window is not None and window >= header.instances[episode.instance].num_windows:
        raise DataError(
            f"expected a window from 0 to {header.instances[episode.instance].num_windows - 1}", path
        )


def _check_sum(parts: float, whole: float, path: str) -> None:
    if abs(parts - whole) > _TOLERANCE * max(1.0, whole):
        raise DataError(f"adds up to {parts!r}, but cost_usd is {whole!r}", path)


# -- timings


def timings_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the timings of a results file: ``x.jsonl`` has ``x.timings.jsonl``."""
    name = os.fspath(path).removesuffix(".gz").removesuffix(".jsonl")
    return Path(f"{name}.timings.jsonl")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _TimingLine:
    agent: str = spec(NAME)
    instance: str = spec(NAME)
    scenario: int = spec(Integer())
    seed: int = spec(SEED)
    timing: Timing = spec(Nested(Timing))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpeedCheck:
    """The machine's speed before the first or after the last episode of an official run."""

    moment: str = spec(Choice(("before", "after")))
    drift: float = spec(DRIFT, doc="speed relative to that of the header, minus 1")
    is_within: bool = spec(Flag(), doc="whether the drift is within the bound")
    load: float | None = spec(
        Number(0.0, 1e6, nullable=True),
        None,
        doc="processes that wanted a processor, mean of the last minute",
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RepeatCheck:
    """Whether an agent repeated its actions when an official run played an episode again."""

    agent: str = spec(NAME)
    instance: str = spec(NAME)
    scenario: int = spec(Integer())
    is_same: bool = spec(Flag(), doc="actions and failure are equal")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _SpeedLine:
    speed_check: SpeedCheck = spec(Nested(SpeedCheck))


@dataclasses.dataclass(frozen=True, kw_only=True)
class _RepeatLine:
    repeat_check: RepeatCheck = spec(Nested(RepeatCheck))


def timing_line(episode: EpisodeResult) -> str:
    """Return an episode's line of the timings file."""
    names = ("agent", "instance", "scenario", "seed")
    line = {name: getattr(episode, name) for name in names}
    return canonical_json({**line, "timing": stated(episode.timing)}) + "\n"


def read_episode(line: str, timing: str) -> EpisodeResult:
    """Return the episode of a line of a results file and its line of the timings file."""
    episode = _read_line(EpisodeResult, line, 0, "")
    return dataclasses.replace(episode, timing=_read_line(_TimingLine, timing, 0, "").timing)


#: What a timings file holds: timings by job, and the checks of an official run.
Timings = tuple[dict[tuple[str, str, int, int], Timing], tuple[SpeedCheck, ...], tuple[RepeatCheck, ...]]


def read_timings(path: str | os.PathLike[str]) -> Timings:
    """Return timings by job, of a job run twice the later one, and the checks; a missing file holds none.

    Raises
    ------
    DataError
        With file, line and JSON path. A last line that was cut short is passed over: its job will run again.
    """
    lines = read_text(path, MAX_RESULTS_BYTES).split("\n")[:-1] if os.path.exists(path) else []
    found = [_read_line(_line_type(line), line, k, str(path)) for k, line in enumerate(lines)]
    return (
        {(f.agent, f.instance, f.scenario, f.seed): f.timing for f in found if isinstance(f, _TimingLine)},
        tuple(f.speed_check for f in found if isinstance(f, _SpeedLine)),
        tuple(f.repeat_check for f in found if isinstance(f, _RepeatLine)),
    )


def _line_type(line: str) -> Any:
    kinds = {'{"speed_check"': _SpeedLine, '{"repeat_check"': _RepeatLine}
    return next((kind for start, kind in kinds.items() if line.startswith(start)), _TimingLine)


# -- writing


def new_results_path(suite: Sequence[str]) -> Path:
    """Return a name in the folder ``results`` that no file has: a run never overwrites another."""
    name = Path(suite[0]).name.partition(".")[0] if "." in suite[0] else suite[0].replace("/", "-")
    stamp = f"{datetime.datetime.now():%Y%m%d-%H%M%S}"
    path, number = Path("results") / f"{name}-{stamp}.jsonl", 1
    while path.exists():
        number += 1
        path = path.with_name(f"{name}-{stamp}-{number}.jsonl")
    return path


class ResultsWriter:
    """Append episodes to a results file, each flushed to the disk as one whole line.

    Parameters
    ----------
    path : path-like
        The file; its folder is created.
    header : Header
        Written first if the file is new, compared if it is not.
    resume : bool
        Continue an existing file: a last line that was cut short is dropped.

    Raises
    ------
    FleetgymError
        If the file exists and `resume` is False, it belongs to other jobs, another run is writing it, or its name
        says that it is packed.
    """

    def __init__(self, path: str | os.PathLike[str], header: Header, *, resume: bool = False):
        self.path, self.header = Path(path), header
        self.done: dict[tuple[str, str, int, int], EpisodeResult] = {}
        self.repeat_checks: tuple[RepeatCheck, ...] = ()  # that the file holds already
        if self.path.suffix == ".gz":
            raise FleetgymError(
                f"{path}: a run writes line by line, so not packed; name it {self.path.with_suffix('')}, and run "
                "gzip on it afterwards"
            )
        timings = timings_path(path)
        for file in (self.path, timings):
            if file.exists() and not file.is_file():  # to open a pipe would wait for a reader
                what = "pipe" if file.is_fifo() else "folder" if file.is_dir() else "device or a socket"
                raise FleetgymError(f"{file} is a {what}; a run needs a file that it can read back")
        if not resume and not self.path.exists() and timings.exists() and timings.stat().st_size > 0:
            raise FleetgymError(
                f"{timings} holds the timings of another run, whose results are gone: delete it, or choose another name"
            )
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = [file for file in (self.path, timings) if not file.exists()]
        self._stream = open(self.path, "ab", buffering=0)  # noqa: SIM115
        try:
            lock(self._stream)
            if self.path.stat().st_size > 0:
                if not resume:
                    raise FleetgymError(
                        f"{path} exists: resume it, choose another name, or delete it and {timings.name}"
                    )
                self._continue(header)
            self._timings = self._open_timings()
            if self.path.stat().st_size == 0:
                append(self._stream, header_line(header).encode())
        except BaseException:
            self._stream.close()
            for file in new:
                file.unlink(missing_ok=True)
            raise

    def _continue(self, header: Header) -> None:
        """Take over the finished episodes and cut off what was torn."""
        text = read_text(self.path, MAX_RESULTS_BYTES)
        if header_line(header).startswith(text):  # stopped within the header: nothing is lost
            os.truncate(self.path, 0)
            return
        results, length = parse_results(text, str(self.path), allow_incomplete=True)
        _check_same(results.header, header, str(self.path))
        self.header = results.header  # what it does not say of its episodes, this run does not know
        os.truncate(self.path, len(text[:length].encode()))
        timings, _, self.repeat_checks = read_timings(timings_path(self.path))
        for episode in results.episodes:
            self.done[episode.key] = dataclasses.replace(episode, timing=timings.get(episode.key))

    def _open_timings(self) -> io.FileIO:
        path = timings_path(self.path)
        if path.exists():
            whole = path.read_bytes()
            os.truncate(path, whole.rfind(b"\n") + 1 if self.done else 0)
        return open(path, "ab", buffering=0)

    def append(self, episode: EpisodeResult) -> None:
        """Write the next episode."""
        if episode.timing is not None:
            append(self._timings, timing_line(episode).encode())
        append(self._stream, episode.to_line().encode())
        self.done[episode.key] = episode

    def sort(self, results: Results) -> None:
        """Replace the file at once by one in the order of these results, if it is in another; nothing follows."""
        if list(self.done) != [episode.key for episode in results.episodes]:
            self._stream.close()  # some systems replace no open file
            write_atomically(os.path.realpath(self.path), results.to_text().encode())

    def note(self, check: SpeedCheck | RepeatCheck) -> None:
        """Write a check of the machine's speed, or of an agent that played again, to the timings."""
        name = "speed_check" if isinstance(check, SpeedCheck) else "repeat_check"
        append(self._timings, f"{canonical_json({name: to_jsonable(check)})}\n".encode())

    def close(self) -> None:
        """Close both files."""
        self._stream.close()
        self._timings.close()


def _check_same(found: Header, wanted: Header, source: str) -> None:
    """Refuse to resume a file that belongs to another run."""
    names = {
        "format": "format",
        "version": "version of fleetgym",
        "suite": "suite",
        "jobs_hash": "list of jobs (other agents, scenarios or seed)",
        "instances": "instances",
        "official": "set of rules",
        "code_sha256": "state of the agents' code or data, which were edited since",
        "folder_sha256": "state of the files in the agents' folders, which may be loaded by any name",
        "in_process": "way of keeping agents apart",
        "packages": "set of libraries",
    }
    for name, meaning in names.items():
        theirs, ours = getattr(found, name), getattr(wanted, name)
        if name in ("packages", "folder_sha256") and theirs is None:  # files of earlier versions do not say
            continue
        if theirs != ours:
            which = "" if name == "jobs_hash" else _contrast(theirs, ours)
            message = f"belongs to another {meaning}{which}, so it cannot be resumed; choose another file"
            raise _located(DataError(message, f"$.{name}"), 0, source)


def _contrast(theirs: object, ours: object) -> str:
    """Return two texts, or the first entry in which two mappings of texts differ, in parentheses."""
    if isinstance(theirs, str):
        return f" ({theirs}; this run: {ours})"
    if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
        for name in sorted({*theirs, *ours}):
            old, new = theirs.get(name, "none"), ours.get(name, "none")
            if old != new and isinstance(old, str) and isinstance(new, str) and len(old + new) <= 80:
                return f" ({name} {old}; this run: {new})"
    return ""
