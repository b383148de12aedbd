"""Read and write records, one file per verified row: `verify` and `rerun` write them, the page reads them."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from fleetgym.evaluation.changes import Changes
from fleetgym.evaluation.isolation.rules import FAILURE_KINDS, ISOLATED, Rules
from fleetgym.evaluation.results_format import COST_TERMS, Costs, stated
from fleetgym.files import quantities as q
from fleetgym.files.documents import canonical_hash, parse_json, read_json, write_json
from fleetgym.files.errors import DataError
from fleetgym.files.names import FOLDER_NAME
from fleetgym.files.schema import (
    SHA256,
    Choice,
    Flag,
    Integer,
    Line,
    ListOf,
    MapOf,
    Nested,
    Text,
    read_object,
    spec,
)
from fleetgym.files.toml import SUITE, read_toml
from fleetgym.leaderboard.submission import DECLARATION, EPISODES, Submission, read_lines, read_part
from fleetgym.scoring.best_known import is_same_cost

RECORD_FORMAT = "fleetgym-verified-1"
#: Shares of requests are compared absolutely.
SHARE_TOLERANCE = 1e-7
KINDS = ("replayed", "fresh")
#: Key of a record's checksum of all its other keys. Older fresh records lack it: their season's checksum covers them.
_SEAL = "sha256"


@dataclasses.dataclass(frozen=True, kw_only=True)
class InstanceMark:
    """Which instance was played."""

    content_hash: str = spec(SHA256)
    family: str = spec(Line(1, 80))


@dataclasses.dataclass(frozen=True, kw_only=True)
class FailureMark:
    """That the agent failed, and from which window on the empty fleet ran."""

    window: int = spec(Integer(0, 2015))
    kind: str = spec(Choice(FAILURE_KINDS))


@dataclasses.dataclass(frozen=True, kw_only=True)
class VerifiedEpisode:
    """What the reference evaluator says of one episode."""

    instance: str = spec(Line(1, 200))
    scenario: int = spec(Integer())
    cost_usd: float = spec(q.POSITIVE_COST_USD)
    costs: Costs = spec(Nested(Costs))
    miss_share: float = spec(q.SHARE)
    unserved_share: float = spec(q.SHARE)
    forced_outages: int = spec(Integer())
    denied: int = spec(Integer())
    lost: int = spec(Integer())
    failure: FailureMark | None = spec(Nested(FailureMark, nullable=True))
    cpu_s: float | None = spec(q.TAKEN_S.or_null(), None, doc="measured in a rerun")
    best_known_usd: float | None = spec(q.POSITIVE_COST_USD.or_null(), None, doc="of a fresh task")
    bound_usd: float | None = spec(q.COST_USD.or_null(), None, doc="of a fresh task")
    budget_spent_at_window: int | None = spec(
        Integer(0, 2015), None, doc="from here on the running fleet stayed: CPU time was up"
    )
    actions: tuple[tuple[int, int, int], ...] | None = spec(
        Changes(), None, doc="of a fresh task, as in a results file: whoever has the seed can replay them"
    )

    @property
    def task(self) -> tuple[str, int]:
        """Instance and scenario."""
        return self.instance, self.scenario


@dataclasses.dataclass(frozen=True, kw_only=True)
class Record:
    """One verified row."""

    format: str = spec(Choice((RECORD_FORMAT,)))
    kind: str = spec(Choice(KINDS))
    id: str = spec(FOLDER_NAME, doc="of the submission: its folder's name")
    submission: Submission = spec(Nested(Submission))
    declaration_sha256: str = spec(SHA256, doc="of submission.toml as it was verified")
    version: str = spec(Text(r"\A[0-9A-Za-z.+-]{1,40}\Z"), doc="of the fleetgym that verified")
    suite: str = spec(SUITE, doc="what was played: of a fresh row, the season's")
    instances: Mapping[str, InstanceMark] = spec(MapOf(Nested(InstanceMark)))
    episodes: tuple[VerifiedEpisode, ...] = spec(ListOf(Nested(VerifiedEpisode), 1))
    season: str | None = spec(Text(r"\A[a-z0-9][a-z0-9.-]{0,39}\Z", nullable=True), None)
    rules: Rules | None = spec(Nested(Rules, nullable=True), None, doc="of the official run of a fresh row")
    repeated: int | None = spec(Integer(), None, doc="episodes that the official run played a second time")
    differing: tuple[str, ...] | None = spec(
        ListOf(Line(1, 220)), None, doc="those of them in which the agent did something else"
    )
    drifted: bool | None = spec(
        Flag(), None, doc="whether the machine's speed changed beside the official run"
    )

    @property
    def is_isolated(self) -> bool:
        """Whether the agent could reach and see nothing but its task."""
        held = (
            [] if self.rules is None else [getattr(self.rules, k) in (v, None) for k, v in ISOLATED.items()]
        )
        return bool(held) and all(held)  # None: of a fact that older files do not have


def write_record(folder: str | os.PathLike[str], record: Record) -> Path:
    """Write a record as ``<id>.json.gz`` below a folder; the same verification gives the same bytes."""
    path = Path(folder) / f"{record.id}.json.gz"
    data = {**stated(record), "episodes": [stated(episode) for episode in record.episodes]}
    write_json(path, {**data, _SEAL: canonical_hash(data)})
    return path


def read_record(path: str | os.PathLike[str]) -> Record:
    """Read a record.

    Raises
    ------
    DataError
        With file and JSON path of what is wrong; also if it was edited since `write_record` wrote it.
    """
    try:
        data = read_json(path)
        seal = data.pop(_SEAL, None) if isinstance(data, dict) else None
        found = read_object(Record, data)
        if seal != canonical_hash(data) and (found.kind == "replayed" or seal is not None):
            raise DataError("is not the checksum of the rest; write the record anew with --out", f"$.{_SEAL}")
        if Path(path).name != f"{found.id}.json.gz":
            raise DataError(f"this is the record of {found.id}, under another name", "$.id")
        unknown = {e.instance for e in found.episodes} - set(found.instances)
        if unknown:
            raise DataError(f"no such instance: {min(unknown)}", "$.episodes")
        if len({e.task for e in found.episodes}) < len(found.episodes):
            raise DataError("a task is there twice", "$.episodes")
        for k, e in enumerate(found.episodes):
            if not math.isclose(e.costs.total(), e.cost_usd, rel_tol=1e-9):
                raise DataError(f"its terms add up to {e.costs.total()!r}", f"$.episodes[{k}].cost_usd")
        return found
    except DataError as error:
        raise error.in_file(path) from None


class Declared(Protocol):
    """What repeats a submission's declaration: a record, or the public part of one."""

    @property
    def submission(self) -> Submission:
        """What was declared."""

    @property
    def declaration_sha256(self) -> str:
        """Checksum of the file that declared it."""


def check_unchanged(record: Declared, folder: Path, rewritten: Mapping[str, str]) -> None:
    """Raise if a submission is no longer what was verified.

    Compared are the declaration's checksum, that of the episodes, and what the record repeats of the declaration.

    Parameters
    ----------
    record : Declared
    folder : Path
        The submission's.
    rewritten : mapping of str to str
        Of files that were rewritten in a later format, the new checksum by the one that older records name.

    Raises
    ------
    DataError
        If one of its two files was changed since, or is missing.
    """
    for name, expected in (
        (DECLARATION, record.declaration_sha256),
        (EPISODES, record.submission.files.episodes_sha256),
    ):
        part = read_part(folder, name)
        if part.sha256 not in (expected, rewritten.get(expected)):
            raise DataError("changed since it was verified; run `fleetgym verify` again", source=str(part))
        if name == DECLARATION and not _declares(record, read_toml(Submission, part)):
            raise DataError("the record says something else; run `fleetgym verify` again", source=str(part))


def check_claims(record: Record, folder: Path) -> None:
    """Raise if a replayed row's numbers are not those that its submission claims, which `verify` found to be right.

    Parameters
    ----------
    record : Record
        Of a submission that is unchanged, see `check_unchanged`.
    folder : Path
        The submission's.

    Raises
    ------
    DataError
        With the task, or the number of tasks, that the record was given by somebody else.
    """
    count = record.submission.run.episodes
    lines = read_lines(read_part(folder, EPISODES).data, 1 + count)
    told = "the record says something else; run `fleetgym verify` again"
    source = str(folder / EPISODES)
    if len(record.episodes) != count:
        held = f"{count} episodes, {len(record.episodes)} of them in the record"
        raise DataError(f"{held}: {told}", source=source)
    facts = parse_json(next(lines))["instances"]
    marks = {
        name: InstanceMark(content_hash=f["content_hash"], family=f["family"]) for name, f in facts.items()
    }
    if (record.suite, record.instances) != (record.submission.run.suite, marks):
        raise DataError(told, "$[0].instances", source)
    for k, (line, episode) in enumerate(zip(lines, record.episodes, strict=True), start=1):
        try:
            wrong = other_claim(parse_json(line), stated(episode))
        except (AttributeError, KeyError, TypeError, ValueError):
            wrong = "$"
        if wrong:
            raise DataError(told, f"$[{k}]{wrong.removeprefix('$')}", source)


def other_claim(claim: Any, mine: dict[str, Any]) -> str:
    """Return the path of what an episode's line claims and a record does not say; empty if there is none."""
    for name in ("instance", "scenario", "forced_outages", "denied", "lost", "budget_spent_at_window"):
        if claim.get(name) != mine.get(name):
            return f"$.{name}"
    for part in ("window", "kind"):
        if (claim["failure"] or {}).get(part) != (mine["failure"] or {}).get(part):
            return "$.failure"
    for name in ("miss_share", "unserved_share"):
        if abs(claim[name] - mine[name]) > SHARE_TOLERANCE:
            return f"$.{name}"
    for name in COST_TERMS:
        if not is_same_cost(claim["costs"][name], mine["costs"][name]):
            return f"$.costs.{name}"
    return "" if is_same_cost(claim["cost_usd"], mine["cost_usd"]) else "$.cost_usd"


def _declares(record: Declared, found: Submission) -> bool:
    """Return whether a declaration says what a record repeats of it; its checksum covers format and files."""
    verified = record.submission
    return dataclasses.replace(found, format=verified.format, files=verified.files) == verified
