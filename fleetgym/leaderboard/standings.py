"""Compute the tables of a leaderboard from its verified records and a frozen set of best-known costs.

submissions/<id>/      what was submitted
verified/<id>.json.gz  what `fleetgym verify` found, replayed rows
fresh/<season>/<id>.json.gz  what `fleetgym rerun` found, ranked rows
releases.toml, releases/<set>/<bks>.json, withdrawn.toml, machines.toml, seasons.toml
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from fleetgym.families.generate import replayed_families
from fleetgym.files.documents import canonical_hash, file_sha256
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.leaderboard.identity import owner, read_references
from fleetgym.leaderboard.open_rows import OpenRow, read_open_rows
from fleetgym.leaderboard.record import Record, VerifiedEpisode, check_claims, check_unchanged, read_record
from fleetgym.leaderboard.registers import Registers, Release, Season, read_registers, read_releases
from fleetgym.leaderboard.season import published_best_known
from fleetgym.leaderboard.submission import is_submission_id
from fleetgym.model.library import find_entry, samples, task_name
from fleetgym.scoring.best_known import TOLERANCE, BestKnownSet, best_known_path, read_best_known
from fleetgym.scoring.score import percent, percents, scored_families
from fleetgym.scoring.statistics import Cluster, FamilyMean
from fleetgym.scoring.table import Played, Table, counted_means, make_table

#: Of the interval beyond which a fresh row is flagged.
FLAG_LEVEL = 0.99


@dataclasses.dataclass(frozen=True)
class Shift:
    """By how much a row scores worse on fresh tasks than on public ones, in percent, with its 99 % interval."""

    mean: float
    interval: tuple[float, float] | None

    @property
    def is_flagged(self) -> bool:
        """Whether the whole interval lies above zero: the fresh score is worse."""
        return self.interval is not None and self.interval[0] > 0.0


@dataclasses.dataclass(frozen=True)
class Board:
    """One suite's leaderboard: certified costs, and the ranked rows of one season."""

    suite: str
    release: str  # name of the best-known set
    is_frozen: bool
    certified: Table
    certified_records: Mapping[str, Record]
    newer: str | None  # name of a newer set
    newer_scores: Mapping[str, float]  # of certified rows, against it
    season: str | None
    fresh: Table
    fresh_records: Mapping[str, Record]
    shifts: Mapping[str, Shift]
    owners: Mapping[str, str]  # of each row, see `fleetgym.leaderboard.identity.owner`
    open_rows: Sequence[OpenRow]  # of the season that is open
    history: Sequence[
        tuple[Release | None, BestKnownSet]
    ]  # the present set last, without a release if not frozen


def read_records(board: str | os.PathLike[str], kind: str) -> list[Record]:
    """Return the verified rows of one kind that are not withdrawn, each compared with its submission.

    Raises
    ------
    DataError
        If a record is malformed, or its submission has changed or is missing, or an instance has changed.
    """
    root = Path(board)
    registers = read_registers(root)
    gone = {entry.id for entry in registers.withdrawn}
    for season in registers.seasons if kind == "fresh" else ():
        _check_rows(root, season)
    is_open = {season.name for season in registers.seasons if not season.seed}
    files = (
        (root / "verified").glob("*.json.gz") if kind == "replayed" else (root / "fresh").glob("*/*.json.gz")
    )
    found = []
    for path in sorted(files):
        record = read_record(path)
        if record.kind != kind:
            raise DataError(f"expected a {kind} row", "$.kind", str(path))
        if kind == "fresh" and record.season != path.parent.name:
            raise DataError(
                f"a row of season {record.season} in the folder of another", "$.season", str(path)
            )
        if kind == "fresh" and record.season in is_open:
            message = "season is open: its rows show one number a family, see `fleetgym rerun`"
            raise DataError(message, "$.season", str(path))
        if record.id in gone:
            continue
        check_unchanged(record, root / "submissions" / record.id, registers.rewritten)
        if kind == "replayed":
            _check_instances(record, path)
            check_claims(record, root / "submissions" / record.id)
        found.append(record)
    return found


def rows_sha256(board: str | os.PathLike[str], season: str) -> str:
    """Return one checksum of all records of a season, withdrawn ones included."""
    files = sorted((Path(board) / "fresh" / season).glob("*.json.gz"))
    return canonical_hash([[path.name, file_sha256(path)] for path in files])


def _check_rows(board: Path, season: Season) -> None:
    if season.rows_sha256 and season.rows_sha256 != rows_sha256(board, season.name):
        raise DataError(
            f"the records of season {season.name} are not those that it ended with",
            source=str(board / "fresh"),
        )


def fresh_table(rows: Mapping[str, Record], suite: str, known: BestKnownSet | None = None) -> Table:
    """Return the table of fresh rows: families that replay public days are shown, and are no part of the score.

    Parameters
    ----------
    rows : mapping
        Records by the row's key.
    suite : str
        Whose families make up the score.
    known : BestKnownSet, optional
        As of `fresh_tasks`.
    """
    tasks = {key: fresh_tasks(record, known) for key, record in rows.items()}
    return make_table(tasks, suite=suite, without=replayed_families())


def _check_instances(record: Record, path: Path) -> None:
    for name, marked in record.instances.items():
        if find_entry(name).content_hash != marked.content_hash:
            raise DataError(f"{name} has changed since; verify again", "$.instances", str(path))


def unverified(board: str | os.PathLike[str]) -> list[str]:
    """Return the submissions that have no record yet; folders whose names no submission can have are left out."""
    gone = {entry.id for entry in read_registers(board).withdrawn}
    return [
        name
        for name in _folders(board)
        if is_submission_id(name)
        and name not in gone
        and not (Path(board) / "verified" / f"{name}.json.gz").is_file()
    ]


def misnamed(board: str | os.PathLike[str]) -> list[str]:
    """Return the folders beside submissions whose names no submission can have."""
    return [name for name in _folders(board) if not is_submission_id(name)]


def _folders(board: str | os.PathLike[str]) -> list[str]:
    return [path.name for path in sorted((Path(board) / "submissions").glob("*")) if path.is_dir()]


def make_boards(board: str | os.PathLike[str], release: str | None = None) -> list[Board]:
    """Return one leaderboard per suite that somebody has submitted to.

    Suites of the newest set come first. Within a set the sample comes first, since all agents play it.

    Parameters
    ----------
    board : path-like
        The leaderboard's folder.
    release : str, optional
        Name of the best-known set; by default the newest frozen one, or the present one if none is. Only suites
        of which a set of that name was frozen have a board then.

    Raises
    ------
    FleetgymError
        If something is not as it was verified or frozen, or there are no records.
    """
    replayed, fresh = read_records(board, "replayed"), read_records(board, "fresh")
    if not replayed:
        raise FleetgymError(f"there are no verified submissions in {Path(board) / 'verified'}")
    registers = read_registers(board)
    ranked = {season.suite for season in registers.seasons if _has_rows(season.name, fresh)}
    suites = sorted(
        {record.suite for record in replayed},
        key=lambda suite: (suite.partition("/")[0], suite in samples(), suite in ranked, suite),
        reverse=True,
    )
    if release is not None:
        frozen = {(entry.suite, entry.name) for entry in registers.releases}
        suites = [suite for suite in suites if (suite.partition("/")[0], release) in frozen]
        if not suites:
            raise UnknownNameError("release", release, sorted({entry.name for entry in registers.releases}))
    return [_board(board, suite, replayed, fresh, registers, release) for suite in suites]


def _board(
    board: str | os.PathLike[str],
    suite: str,
    replayed: Sequence[Record],
    fresh: Sequence[Record],
    registers: Registers,
    wanted: str | None,
) -> Board:
    history = _history(board, suite)
    frozen = [best for release, best in history if release is not None]
    named = [best for best in frozen if wanted in (None, best.name)]
    newest = (frozen or [history[-1][1]])[-1]
    best, present = (named or [newest])[-1], history[-1][1]
    mine = {record.id: record for record in replayed if record.suite == suite}
    certified = {key: public_tasks(record, best) for key, record in mine.items()}
    newer = present if present.name != best.name else None
    season, ranked = _ranked(fresh, suite, registers)
    known = _published(board, season, registers)
    references = read_references(board)
    drawn = {key: fresh_tasks(record, known) for key, record in ranked.items()}
    still_open = [entry for entry in registers.seasons if entry.suite == suite and not entry.seed]
    open_rows = [row for entry in still_open for row in read_open_rows(board, entry) if row.is_isolated]
    return Board(
        suite=suite,
        release=best.name,
        is_frozen=bool(named),
        certified=make_table(certified),
        certified_records=mine,
        newer=None if newer is None else newer.name,
        newer_scores={}
        if newer is None
        else {
            row.key: row.score
            for row in make_table({k: public_tasks(r, newer) for k, r in mine.items()}).rows
        },
        season=season,
        fresh=fresh_table(ranked, suite, known),
        open_rows=open_rows,
        fresh_records=ranked,
        shifts={
            key: shift(certified[key], drawn[key])
            for key in ranked
            if key in certified and best is newest  # older sets were searched less than the season's
        },
        owners={key: owner(r, references, registers.rewritten) for key, r in {**ranked, **mine}.items()},
        history=history,
    )


def _history(board: str | os.PathLike[str], suite: str) -> list[tuple[Release | None, BestKnownSet]]:
    """Return the frozen sets, and the present one if it is none of them."""
    family = suite.partition("/")[0]
    found: list[tuple[Release | None, BestKnownSet]] = list(read_releases(board, family))
    path = best_known_path(family)
    if path.is_file():
        present = read_best_known(path)
        if present.name not in {best.name for _, best in found}:
            found.append((None, present))
    if not found:
        raise FleetgymError(f"there are no best-known costs for {suite}")
    return found


def _ranked(
    fresh: Sequence[Record], suite: str, registers: Registers
) -> tuple[str | None, dict[str, Record]]:
    """Return the newest season of a suite that has rows of isolated runs, and these."""
    seasons = [season.name for season in registers.seasons if season.suite == suite]
    for name in reversed(seasons):
        if _has_rows(name, fresh):
            return name, {r.id: r for r in fresh if r.season == name and r.is_isolated}
    return None, {}


def _has_rows(season: str, fresh: Sequence[Record]) -> bool:
    """Return whether a season has rows of isolated runs."""
    return any(record.season == season and record.is_isolated for record in fresh)


def _published(
    board: str | os.PathLike[str], season: str | None, registers: Registers
) -> BestKnownSet | None:
    """Return the best-known costs of a season if it has ended."""
    ended = [entry for entry in registers.seasons if entry.name == season and entry.seed]
    return read_best_known(published_best_known(board, ended[0])) if ended else None


def public_tasks(record: Record, best: BestKnownSet) -> list[Played]:
    """Return a replayed row's tasks beside their best-known costs."""
    found = []
    for episode in record.episodes:
        marked = record.instances[episode.instance]
        known = best.find(episode.instance, episode.scenario, marked.content_hash)
        found.append(_played(record, episode, known.value_usd, known.bound_usd))
    return found


def fresh_tasks(record: Record, known: BestKnownSet | None = None) -> list[Played]:
    """Return a fresh row's tasks beside their best-known costs.

    Parameters
    ----------
    record : Record
        Carries the best-known costs of the day on which it was played.
    known : BestKnownSet, optional
        What an ended season published, and improved since.

    Returns
    -------
    list of Played

    Raises
    ------
    DataError
        If a task has no best-known cost, or one that has risen, or costs less than its lower bound.
    """
    found = []
    for episode in record.episodes:
        task, best, bound = task_name(*episode.task), episode.best_known_usd, episode.bound_usd
        if best is None:
            raise DataError(f"{record.id}: {task} has no best-known cost")
        if known is not None:
            now = known.find(*episode.task, record.instances[episode.instance].content_hash)
            if now.value_usd > best * (1.0 + TOLERANCE):
                raise DataError(f"the best-known cost of {task} has risen since {record.id} was played")
            best, bound = now.value_usd, now.bound_usd
        found.append(_played(record, episode, best, bound))
    return found


def _played(record: Record, episode: VerifiedEpisode, best_usd: float, bound_usd: float | None) -> Played:
    if bound_usd is not None and episode.cost_usd < bound_usd * (1.0 - TOLERANCE):
        raise DataError(f"{record.id} on {task_name(*episode.task)} costs less than its lower bound")
    family = record.instances[episode.instance].family
    return Played.of(episode, family, best_usd, bound_usd, episode.cpu_s)


def shift(public: Sequence[Played], fresh: Sequence[Played]) -> Shift:
    """Compare a row's fresh score with its public one in the families that make up the score.

    Instances that are in both are compared one by one. Where the season has instances of its own, family means are
    compared, whose spreads add up. Nothing is said where the families are not the same.
    """
    scored = scored_families({played.instance: played.family for played in public})
    before, after = _short_named(public, scored), _short_named(fresh, scored)
    if both := set(before) & set(after):
        worse = FamilyMean.of({cluster: after[cluster] - before[cluster] for cluster in both})
    elif before and {family for family, _ in before} == {family for family, _ in after}:
        worse = FamilyMean.of(after).minus(FamilyMean.of(before))
    else:
        return Shift(0.0, None)
    return Shift(percent(worse.mean), percents(worse.interval(FLAG_LEVEL)))


def _short_named(tasks: Sequence[Played], counts_as: Mapping[str, str]) -> dict[Cluster, float]:
    """Return cluster means by family and short name: a fresh suite calls its instances as the public one does."""
    means = counted_means(tasks, counts_as)
    return {(family, name.rpartition("/")[2]): mean for (family, name), mean in means.items()}
