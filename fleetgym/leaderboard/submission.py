"""Read a submission's folder: check its declaration, and stream its lines in bounded memory. Nothing is executed.

A submission is `submission.toml` (who, what, checksums), `episodes.jsonl.gz` (a results file of one agent: actions and
claimed costs) and, if its author likes, `README.md`. Nothing else may lie in the folder.
"""

from __future__ import annotations

import dataclasses
import datetime
import gzip
import hashlib
import io
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

from fleetgym.agents.registry import agent_entries
from fleetgym.evaluation.isolation.rules import TIME_CLASSES
from fleetgym.evaluation.results_format import BRIEF_FORMAT, RESULTS_FORMAT
from fleetgym.files.documents import StoredFile, as_text, canonical_hash, read_at_most
from fleetgym.files.errors import DataError, suggestion
from fleetgym.files.names import FOLDER_NAME, AgentName, PeopleName, likeness
from fleetgym.files.quantities import SEED
from fleetgym.files.schema import DAY, SHA256, Choice, Integer, Line, Nested, Text, shown, spec, to_jsonable
from fleetgym.files.toml import MAX_TOML_BYTES, SUITE, read_toml
from fleetgym.leaderboard.registers import read_registers
from fleetgym.model.library import entries, list_tasks, suites
from fleetgym.model.sets import unknown
from fleetgym.runtime.places import checkout
from fleetgym.scoring.best_known import SET_NAME, best_known_path, read_best_known

#: The formats of declarations, and of the episodes beside each. Format 1 also claimed the cost of every window.
EPISODES_FORMATS = {"fleetgym-submission-1": RESULTS_FORMAT, "fleetgym-submission-2": BRIEF_FORMAT}
#: The format that `submit` writes.
SUBMISSION_FORMAT = "fleetgym-submission-2"
DECLARATION, EPISODES, README = "submission.toml", "episodes.jsonl.gz", "README.md"

#: closed: the given columns and forecasters; open: anything; one-shot: the first window's action is held all day.
DIVISIONS = ("closed", "open", "one-shot")
VARIANTS = ("", "as published", "tuned")

_MOST_BYTES = {DECLARATION: MAX_TOML_BYTES, README: 2**18, EPISODES: 2**26}
#: An episode's line and all lines together, unpacked; and what an episode may take packed.
MAX_LINE_BYTES, MAX_UNPACKED_BYTES, MAX_PACKED_BYTES = 2**22, 2**28, 2**18

#: No submission is older than the format's first plan.
_FIRST_DAY = datetime.date(2024, 1, 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class AgentCard:
    """The agent that competes."""

    name: str = spec(AgentName(1, 60), doc="as the table shows it")
    entry: str = spec(Line(1, 400), doc="what `rerun` makes, as for make_agent: the agent of the episodes")
    division: str = spec(Choice(DIVISIONS))
    time_class: str = spec(Choice(tuple(TIME_CLASSES)), doc="reference CPU seconds per episode: 3, 60, 1800")
    variant: str = spec(Choice(VARIANTS), "")
    authors: str = spec(PeopleName(), "")
    contact: str = spec(PeopleName(), "", doc="public: a page or an address that may be shown")
    description: str = spec(Line(0, 400), "")
    code_url: str = spec(Text(r"\A(https://[A-Za-z0-9._~/%#?=&+-]{1,200})?\Z"), "")
    code_sha256: str = spec(Text(r"\A([0-9a-f]{64})?\Z"), "", doc="of the code's folder, for `rerun`")
    agent_sha256: str = spec(
        Text(r"\A([0-9a-f]{64})?\Z"), "", doc="of a reference agent's code and settings, when it played"
    )

    @property
    def title(self) -> str:
        """Name and variant."""
        return f"{self.name} {self.variant}".rstrip()

    @property
    def reference(self) -> str | None:
        """The reference agent that the entry names; whether the row is its, `fleetgym.leaderboard.identity` tells."""
        head = self.entry.partition("(")[0].strip()
        found = agent_entries().get(head)
        return head if found is not None and found.is_reference else None

    @property
    def is_named_as_reference(self) -> bool:
        """Whether the row says that it is the reference agent's."""
        same = self.reference is not None and likeness(self.name) == likeness(self.reference)
        return same or self.variant == "as published"


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunCard:
    """What was played."""

    fleetgym: str = spec(Text(r"\A[0-9A-Za-z.+-]{1,40}\Z"), doc="version")
    suite: str = spec(SUITE)
    suite_sha256: str = spec(SHA256, doc="of the suite's checksums, see `suite_sha256`")
    best_known: str = spec(SET_NAME, doc="the set at that time")
    episodes: int = spec(Integer(1, 100_000))
    seed: int = spec(SEED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Checksums:
    """SHA-256 of the files beside the declaration."""

    episodes_sha256: str = spec(SHA256)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Submission:
    """What `submission.toml` declares."""

    format: str = spec(Choice(tuple(EPISODES_FORMATS)))
    date: str = spec(DAY)
    agent: AgentCard = spec(Nested(AgentCard))
    run: RunCard = spec(Nested(RunCard))
    files: Checksums = spec(Nested(Checksums))

    def to_toml(self) -> str:
        """Return the text of `submission.toml`."""
        import tomli_w

        return tomli_w.dumps(to_jsonable(self))


# -- the folder


def submission_id(folder: str | os.PathLike[str]) -> str:
    """Return the name under which a submission is known: that of its folder.

    Raises
    ------
    DataError
        If the name could not be a file's.
    """
    name = Path(os.path.abspath(folder)).name
    if not is_submission_id(name):
        message = (
            "a submission's folder is named by small letters, digits and . _ -, as in 2026-11-21-agh, with no dot at "
            "its end and not as a device of Windows"
        )
        raise DataError(f"{message}; got {shown(name)}", source=str(folder))
    return name


def is_submission_id(name: str) -> bool:
    """Return whether a submission may have this name."""
    try:
        FOLDER_NAME.read(name, "$")
    except DataError:
        return False
    return True


@dataclasses.dataclass(frozen=True)
class SubmissionFiles:
    """The content of a submission's folder, read once. Later changes of the files have no effect."""

    id: str
    submission: Submission
    declaration_sha256: str
    episodes: bytes  # the packed results file, whose checksum is the declared one

    def lines(self, count: int) -> Iterator[str]:
        """Yield the lines of the results file, never holding more than one of them unpacked; see `read_lines`."""
        return read_lines(self.episodes, count)


def read_submission(folder: str | os.PathLike[str]) -> Submission:
    """Check a submission's folder and return what it declares; see `open_submission`."""
    return open_submission(folder).submission


def open_submission(folder: str | os.PathLike[str]) -> SubmissionFiles:
    """Check a submission's folder and read it, each file once.

    Parameters
    ----------
    folder : path-like
        With `submission.toml`, `episodes.jsonl.gz` and perhaps `README.md`, regular files all.

    Returns
    -------
    SubmissionFiles
        The checksum holds, and the suite is the one that is stored here.

    Raises
    ------
    DataError
        With file and path of what is wrong.
    FileNotFoundError
        If there is no such folder.
    """
    name = submission_id(folder)
    _check_folder(Path(folder))
    if (Path(folder) / README).exists():
        _check_text(read_part(folder, README))
    declaration = read_part(folder, DECLARATION)
    found = read_toml(Submission, declaration)
    try:
        check_identity(found, Path(os.path.abspath(folder)).parents[1])
        _check_suite(found.run)
        # Gzip's headers alone could keep a reader busy.
        packed = read_part(folder, EPISODES, found.run.episodes * MAX_PACKED_BYTES)
        if packed.sha256 != found.files.episodes_sha256:
            message = f"{EPISODES} has SHA-256 {packed.sha256[:12]}..., not this one"
            raise DataError(message, "$.files.episodes_sha256")
    except DataError as error:
        raise error if error.source else error.in_file(declaration) from None
    return SubmissionFiles(name, found, declaration.sha256, packed.data)


def _check_text(part: StoredFile) -> None:
    try:
        as_text(part.data)
    except DataError as error:
        raise error.in_file(part) from None


def read_part(folder: str | os.PathLike[str], name: str, limit: int = 2**62) -> StoredFile:
    """Read one of a submission's files once, as a regular file of bounded size, and hash what was read.

    Parameters
    ----------
    folder : path-like
        The submission's.
    name : str
        `DECLARATION`, `EPISODES` or `README`.
    limit : int, optional
        Most bytes, where fewer than a file of this name may have are expected.

    Returns
    -------
    StoredFile

    Raises
    ------
    DataError
        If there is no such file, it is larger, or something else has taken its place.
    """
    path, limit = Path(folder) / name, min(limit, _MOST_BYTES[name])
    flags = (
        os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    )
    try:
        handle = os.open(path, flags)
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror})", source=str(path)) from None
    with os.fdopen(handle, "rb") as stream:
        if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
            raise DataError("expected a regular file, not a link, a folder or a device", source=str(path))
        data = read_at_most(stream, limit)
    if len(data) > limit:
        raise DataError(f"larger than {limit // 2**10} KiB", source=str(path))
    return StoredFile(str(path), hashlib.sha256(data).hexdigest(), data)


def _check_folder(folder: Path) -> None:
    """Accept regular files of known names and bounded size only: no links, pipes, folders or surprises."""
    if not stat.S_ISDIR(os.lstat(folder).st_mode):
        raise DataError(
            "expected the folder of a submission, as `fleetgym submit` makes it of results, and no link",
            source=str(folder),
        )
    with os.scandir(folder) as listing:
        found = {entry.name: entry.stat(follow_symlinks=False) for entry in _at_most(listing, 16)}
    for name, status in sorted(found.items()):
        where = ascii(str(folder / name)).strip("'")
        if name not in _MOST_BYTES:
            raise DataError(f"expected nothing but {', '.join(_MOST_BYTES)} in the folder", source=where)
        if not stat.S_ISREG(status.st_mode):
            raise DataError("expected a regular file, not a link, a folder or a device", source=where)
        if status.st_size > _MOST_BYTES[name]:
            raise DataError(f"larger than {_MOST_BYTES[name] // 2**10} KiB", source=where)
    for name in (DECLARATION, EPISODES):
        if name not in found:
            raise DataError("missing from the submission", source=str(folder / name))


def _at_most(listing: Iterator[os.DirEntry[str]], count: int) -> list[os.DirEntry[str]]:
    return [entry for entry, _ in zip(listing, range(count), strict=False)]


def _check_suite(run: RunCard) -> None:
    if run.suite not in suites():
        raise DataError(str(unknown("suite", run.suite, suites())), "$.run.suite")
    here, count = suite_sha256(run.suite), len(list_tasks(run.suite))
    if run.suite_sha256 != here:
        message = f"made for another version of {run.suite}; here it is {here[:12]}..."
        raise DataError(message, "$.run.suite_sha256")
    if run.episodes != count:
        raise DataError(f"{run.suite} has {count} tasks, got {run.episodes} episodes", "$.run.episodes")


def check_identity(submission: Submission, board: str | os.PathLike[str]) -> None:
    """Check a submission's name, date and best-known set.

    Parameters
    ----------
    submission : Submission
        As it was read.
    board : path-like
        The leaderboard's folder, whose frozen sets are known beside the checkout's and the present one.

    Raises
    ------
    DataError
        With the field that says it.
    """
    agent = submission.agent
    ours = {likeness(name): name for name, entry in agent_entries().items() if entry.is_reference}
    taken = ours.get(likeness(agent.name))
    if taken is not None and taken != agent.reference:
        raise DataError(
            f"{agent.name!r} reads as the reference agent {taken!r}; expected another", "$.agent.name"
        )
    if agent.variant == "as published" and agent.reference is None:
        raise DataError("only a reference agent is 'as published'; expected '' or 'tuned'", "$.agent.variant")
    last = datetime.datetime.now(datetime.UTC).date() + datetime.timedelta(days=1)
    if not _FIRST_DAY <= datetime.date.fromisoformat(submission.date) <= last:
        raise DataError(f"expected a day from {_FIRST_DAY} to {last}, got {submission.date}", "$.date")
    sets = _set_names(submission.run.suite, board)
    if submission.run.best_known not in sets:
        name = submission.run.best_known
        raise DataError(f"there is no set {name}{suggestion(name, sets)}", "$.run.best_known")


def _set_names(suite: str, board: str | os.PathLike[str]) -> set[str]:
    """Return the names of the sets of best-known costs that were ever frozen, and of the present one."""
    root, present = checkout(), best_known_path(suite)
    boards = [board] if root is None else [board, root / "leaderboard"]
    found = {release.name for folder in boards for release in read_registers(folder).releases}
    return found | ({read_best_known(present).name} if present.is_file() else set())


def suite_sha256(suite: str) -> str:
    """Return one checksum of all that a suite's tasks consist of: instances and scenarios, and which of these."""
    played: dict[str, list[int]] = {}
    for name, scenario in list_tasks(suite):
        played.setdefault(name, []).append(scenario)
    parts = []
    for name, scenarios in played.items():
        entry = entries()[name]
        some = [] if scenarios == [*range(entry.scenarios)] else [scenarios]
        parts.append([entry.id, entry.content_hash, entry.scenario_sha256, *some])
    return canonical_hash(parts)


# -- the episodes


def read_lines(packed: bytes, count: int) -> Iterator[str]:
    """Yield the lines of a gzipped file, never holding more than one of them unpacked.

    Parameters
    ----------
    packed : bytes
        The file's content.
    count : int
        Lines that there must be.

    Raises
    ------
    DataError
        With the line (as an element of the file, from 0) of the first thing wrong: a line or a file that is too
        long when unpacked, too many or too few lines, or what is neither gzip nor UTF-8.
    """
    number, total = 0, 0
    try:
        with gzip.open(io.BytesIO(packed), "rb") as stream:
            while raw := stream.readline(MAX_LINE_BYTES + 1):
                total += len(raw)
                if number == count:
                    raise DataError(f"expected {count} lines, this is one more", f"$[{number}]")
                if len(raw) > MAX_LINE_BYTES or total > MAX_UNPACKED_BYTES:
                    raise DataError(_too_large(), f"$[{number}]")
                if not raw.endswith(b"\n"):
                    raise DataError("the line is cut short", f"$[{number}]")
                yield raw.decode("utf-8")
                number += 1
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 text (byte {error.start})", f"$[{number}]") from None
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"not a complete gzip file ({error})", f"$[{number}]") from None
    if number < count:
        raise DataError(f"expected {count} lines, the file ends before", f"$[{number}]")


def _too_large() -> str:
    line, whole = MAX_LINE_BYTES // 2**20, MAX_UNPACKED_BYTES // 2**20
    return f"unpacks to a line of over {line} MiB, or to over {whole} MiB in all"
