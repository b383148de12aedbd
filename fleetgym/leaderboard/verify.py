"""Verify a submission: replay every action, and record the recomputed numbers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from fleetgym.evaluation.results import hash_jobs
from fleetgym.evaluation.results_format import Header, stated
from fleetgym.files.documents import parse_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.schema import read_object
from fleetgym.leaderboard.identity import confirm_reference, read_references, write_reference
from fleetgym.leaderboard.record import (
    RECORD_FORMAT,
    InstanceMark,
    Record,
    VerifiedEpisode,
    other_claim,
    read_record,
    write_record,
)
from fleetgym.leaderboard.replay import Claim, replay_claim
from fleetgym.leaderboard.submission import (
    DECLARATION,
    EPISODES,
    EPISODES_FORMATS,
    Submission,
    SubmissionFiles,
    open_submission,
)
from fleetgym.leaderboard.workers import in_order
from fleetgym.model.library import find_entry, list_tasks, load_instance
from fleetgym.runtime.version import __version__


def verify(
    folder: str | os.PathLike[str],
    *,
    workers: int = 1,
    out: str | os.PathLike[str] | None = None,
    all_tasks: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Record:
    """Replay every episode of a submission through the reference evaluator.

    Work and memory are bounded: lines are read one by one, and what does not belong to the suite is refused unplayed.

    Parameters
    ----------
    folder : path-like
        The submission.
    workers : int
        Processes that replay; the record is the same. Scripts that use more than one need
        ``if __name__ == "__main__":``.
    out : path-like, optional
        Folder to write the record into, as ``<id>.json.gz``. Without it, a record that the board has must be equal.
        A reference agent's row also gets its line in the register of references, in the folder above `submissions`.
    all_tasks : bool
        Play every task of a reference agent's row again, not only some.
    progress : callable, optional
        Called with the numbers of replayed and of all episodes.

    Returns
    -------
    Record
        The reference evaluator's numbers.

    Raises
    ------
    DataError
        With the reason why it is rejected: file, line and path.
    FileNotFoundError
        If there is no such folder.
    """
    if workers < 1:
        raise FleetgymError(f"workers must be at least 1, got {workers}")
    files = open_submission(folder)
    try:
        episodes = _replayed(files, workers, progress)
    except DataError as error:
        raise error if error.source else error.in_file(Path(folder) / EPISODES) from None
    board = Path(os.path.abspath(folder)).parents[1]
    try:
        reference = confirm_reference(files, read_references(board).get(files.id), all_tasks=all_tasks)
    except DataError as error:
        raise error if error.source else error.in_file(Path(folder) / DECLARATION) from None
    record = make_record(files, episodes)
    there = board / "verified" / f"{files.id}.json.gz"
    if out is None and there.is_file():
        _check_same(record, read_record(there), there)
    if out is not None:
        write_record(out, record)
        if reference is not None:
            write_reference(board, reference)
    return record


def _check_same(record: Record, stored: Record, path: Path) -> None:
    """Raise if a stored record holds something else than the replay; processors round sums differently."""
    told = "is not what the replay found; write it anew with --out"
    if [e.task for e in stored.episodes] != [e.task for e in record.episodes]:
        raise DataError(f"the record {told}", "$.episodes", str(path))
    if (stored.suite, stored.instances) != (record.suite, record.instances):
        raise DataError(f"the record {told}", "$.instances", str(path))
    for k, (mine, theirs) in enumerate(zip(record.episodes, stored.episodes, strict=True)):
        if wrong := other_claim(stated(theirs), stated(mine)):
            raise DataError(f"the record {told}", f"$.episodes[{k}]{wrong.removeprefix('$')}", str(path))


def make_record(files: SubmissionFiles, episodes: Sequence[VerifiedEpisode]) -> Record:
    """Return the record of a replayed submission."""
    submission = files.submission
    return Record(
        format=RECORD_FORMAT,
        kind="replayed",
        id=files.id,
        submission=submission,
        declaration_sha256=files.declaration_sha256,
        version=__version__,
        suite=submission.run.suite,
        instances={e.instance: mark(e.instance) for e in episodes},
        episodes=tuple(episodes),
    )


def mark(instance: str) -> InstanceMark:
    """Return what a record says of an instance."""
    problem = load_instance(instance)
    return InstanceMark(content_hash=problem.content_hash, family=problem.family)


def _replayed(
    files: SubmissionFiles, workers: int, progress: Callable[[int, int], None] | None
) -> list[VerifiedEpisode]:
    submission = files.submission
    tasks = list_tasks(submission.run.suite)
    lines = files.lines(1 + len(tasks))
    _check_header(next(lines), submission, tasks)
    numbered = enumerate(zip(lines, tasks, strict=True), start=1)
    claims = (Claim(k, line, *task, submission) for k, (line, task) in numbered)
    found = []
    for episode in in_order(replay_claim, claims, workers):
        found.append(episode)
        if progress is not None:
            progress(len(found), len(tasks))
    return found


def _check_header(line: str, submission: Submission, tasks: Sequence[tuple[str, int]]) -> None:
    """Compare the first line with what the declaration and the suite make of it."""
    try:
        header = read_object(Header, parse_json(line), "$[0]")
    except DataError as error:
        raise DataError(error.message, error.path if error.path != "$" else "$[0]") from None
    if header.format != EPISODES_FORMATS[submission.format]:
        message = (
            f"expected {EPISODES_FORMATS[submission.format]}, as {submission.format} in {DECLARATION} says"
        )
        raise DataError(message, "$[0].format")
    if header.in_process:
        message = "the agent played in the evaluator's own process; expected one of its own"
        raise DataError(message, "$[0].in_process")
    keys = [(submission.agent.entry, name, k, submission.run.seed) for name, k in tasks]
    if header.jobs_hash != hash_jobs(keys):
        raise DataError("does not belong to this agent's episodes of the suite, in order", "$[0].jobs_hash")
    if header.num_jobs != len(tasks):
        raise DataError(f"expected {len(tasks)} episodes, got {header.num_jobs}", "$[0].num_jobs")
    if header.suite != submission.run.suite:
        raise DataError(f"expected {submission.run.suite}, as in {DECLARATION}", "$[0].suite")
    hashes = {name: facts.content_hash for name, facts in header.instances.items()}
    if hashes != {name: find_entry(name).content_hash for name, _ in tasks}:
        raise DataError("expected the instances of the suite, as they are stored here", "$[0].instances")
    if header.version != submission.run.fleetgym:
        raise DataError(f"expected {submission.run.fleetgym}, as in {DECLARATION}", "$[0].version")
