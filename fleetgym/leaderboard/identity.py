"""Find whose a row is: a reference agent's only if its code is today's, and it does the same when it plays again."""

from __future__ import annotations

import csv
import functools
import io
import os
import random
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from fleetgym.agents.registry import parse_agent
from fleetgym.evaluation.jobs import Job, run_job
from fleetgym.evaluation.results_format import EpisodeResult
from fleetgym.files.documents import parse_json, read_text, write_atomically
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.names import FOLDER_NAME
from fleetgym.files.schema import SHA256, read_object
from fleetgym.leaderboard.record import Record
from fleetgym.leaderboard.submission import AgentCard, SubmissionFiles, open_submission
from fleetgym.model.library import find_entry, task_name
from fleetgym.runtime.places import checkout
from fleetgym.runtime.version import __version__

#: The register of reference rows, in the leaderboard's folder. Pull requests do not bring it: `verify` writes it.
REFERENCES = "references.csv"
#: CPU seconds after which no further task of a row is played again.
SAMPLE_S = 20.0
#: How many tasks are drawn.
DRAWN = 12
#: By how much, relative, a day with other actions may cost something else.
NEAR_COST = 0.005


class Reference(NamedTuple):
    """A row that is known to be a reference agent's."""

    id: str
    declaration_sha256: str
    agent_sha256: str  # of code and settings when the row was last played again; empty if it never was
    tasks: int  # played again then
    as_of: str  # the commit at that time


def read_references(board: str | os.PathLike[str]) -> dict[str, Reference]:
    """Return the register of reference rows by their names; it is empty where there is no file.

    Raises
    ------
    DataError
        With the line that is malformed.
    """
    path = Path(board) / REFERENCES
    found: dict[str, Reference] = {}
    if not path.is_file():
        return found
    for number, line in enumerate(csv.DictReader(read_text(path).splitlines()), start=2):
        try:
            texts = (line["id"], line["declaration_sha256"], line["agent_sha256"])
            row = Reference(*texts, int(line["tasks"]), line["as_of"])
            FOLDER_NAME.read(row.id, "id")
            SHA256.read(row.declaration_sha256, "declaration_sha256")
        except (DataError, KeyError, TypeError, ValueError) as error:
            message = f"line {number}: expected {','.join(Reference._fields)} ({error})"
            raise DataError(message, source=str(path)) from None
        found[row.id] = row
    return found


def write_reference(board: str | os.PathLike[str], row: Reference) -> None:
    """Put a row into the register, in the place of an earlier one of its name."""
    rows = {**read_references(board), row.id: row}
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerows([Reference._fields, *(rows[name] for name in sorted(rows))])
    write_atomically(Path(board) / REFERENCES, text.getvalue().encode())


@functools.lru_cache(maxsize=512)
def todays_sha256(entry: str) -> str | None:
    """Return the checksum of the reference agent that an entry names, as it is installed; None if it names none."""
    if ":" in entry.partition("(")[0]:
        return None
    try:
        return parse_agent(entry).reference_sha256
    except FleetgymError:  # of an agent that is no longer there
        return None


def owner(record: Record, references: Mapping[str, Reference], rewritten: Mapping[str, str]) -> str:
    """Return whose a row is, for the page.

    Parameters
    ----------
    record : Record
    references : mapping
        As `read_references` returns it.
    rewritten : mapping of str to str
        Of declarations that were rewritten in a later format, the new checksum by the old one.

    Returns
    -------
    str
        ``fleetgym (reference)``: today's agent does what the row holds. ``fleetgym, as of COMMIT``: it was a reference
        agent's then, and that agent has changed since or was not played again. Else ``a submitter``.
    """
    known = references.get(record.id)
    declared = record.declaration_sha256
    if known is None or known.declaration_sha256 not in (declared, rewritten.get(declared)):
        return "a submitter"
    return _state(known, record.submission.agent.entry)


def _state(known: Reference, entry: str) -> str:
    is_todays = known.agent_sha256 and known.agent_sha256 == todays_sha256(entry)
    return "fleetgym (reference)" if is_todays else f"fleetgym, as of {known.as_of}"


def confirm_reference(
    files: SubmissionFiles, known: Reference | None, *, all_tasks: bool = False, most_s: float = SAMPLE_S
) -> Reference | None:
    """Play some tasks of a row again with the reference agent that it names, and compare every action.

    Parameters
    ----------
    files : SubmissionFiles
        The submission.
    known : Reference, optional
        What the register says of the row.
    all_tasks : bool
        Play every task, not the drawn ones until `most_s` have passed.
    most_s : float
        CPU seconds after which no further task is begun.

    Returns
    -------
    Reference or None
        What the register is to say; None for a row that is not a reference agent's.

    Raises
    ------
    DataError
        If the row names a reference agent and is not its, and was not known before.
    """
    card = files.submission.agent
    if known is not None and known.declaration_sha256 != files.declaration_sha256:
        known = None
    today = todays_sha256(card.entry)
    if today is None:
        return known
    if known is None and not card.agent_sha256:
        return _unless_named(
            card, "the declaration has no agent_sha256; make the submission anew with `fleetgym submit`"
        )
    if known is None and card.agent_sha256 != today:
        return _unless_named(
            card, "its code or settings have changed since; play it again, and submit a new row"
        )
    if known is not None and known.agent_sha256 == today and not all_tasks:
        return known
    again = _played_again(files, all_tasks, most_s, is_new=known is None)
    if isinstance(again, str):
        return known or _unless_named(card, f"the agent does something else on {again}")
    return Reference(files.id, files.declaration_sha256, today, again, commit())


def confirm_all(
    board: str | os.PathLike[str],
    *,
    all_tasks: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, str]:
    """Play tasks of every row in the register again, and bring the register up to date.

    Parameters
    ----------
    board : path-like
        The leaderboard's folder.
    all_tasks : bool
        Play all tasks of each row, not only some of them for `SAMPLE_S`.
    progress : callable, optional
        Called with the numbers of rows that are done and of all.

    Returns
    -------
    dict of str to str
        What each row is now, as `owner` says it.
    """
    known, found = read_references(board), {}
    for k, (name, row) in enumerate(known.items()):
        files = open_submission(Path(board) / "submissions" / name)
        entry = files.submission.agent.entry
        if all_tasks or row.agent_sha256 != todays_sha256(entry):
            row = confirm_reference(files, row, all_tasks=all_tasks) or row
            write_reference(board, row)
        found[name] = _state(row, entry)
        if progress is not None:
            progress(k + 1, len(known))
    return found


def _unless_named(card: AgentCard, reason: str) -> Reference | None:
    """Return None for a third party's row, which may use a reference agent; raise if it has that agent's name."""
    if card.is_named_as_reference:
        raise DataError(f"this row is not {card.reference}'s: {reason}", "$.agent.entry")
    return None


def _played_again(files: SubmissionFiles, all_tasks: bool, most_s: float, is_new: bool) -> int | str:
    """Return how many tasks were played again with the same actions, or a task on which the agent does something else.

    Tasks are drawn anew each time: who could tell which are played would forge the others. Of a row that was accepted
    before, the smallest are played first.
    The agent plays in a process of its own, since a submission names its arguments. An episode that ended early, by a
    failure or a budget, must end so again. Processors round sums differently, and a program may have several optima.
    So of three tasks one may have other actions, if it costs nearly the same.
    """
    run, entry = files.submission.run, files.submission.agent.entry
    lines = list(files.lines(1 + run.episodes))[1:]
    episodes = [read_object(EpisodeResult, parse_json(line)) for line in lines]
    drawn = episodes if all_tasks else random.SystemRandom().sample(episodes, min(DRAWN, len(episodes)))
    if not is_new:
        drawn.sort(key=lambda e: "sml".find(find_entry(e.instance).size))
    spent_s, same = 0.0, 0
    near: list[str] = []
    for episode in drawn:
        if spent_s > most_s and not all_tasks:
            break
        again = run_job(Job(entry, *episode.task, run.seed), isolate="always")
        spent_s += again.timing.total_s if again.timing else 0.0
        if _ending(again) == _ending(episode) and again.actions == episode.actions:
            same += 1
        elif _ending(again) == _ending(episode) and _is_near(again.cost_usd, episode.cost_usd):
            near.append(task_name(*episode.task))
        else:
            return task_name(*episode.task)
    return same if same >= 2 * len(near) else near[0]


def _ending(episode: EpisodeResult) -> tuple[int | None, int | None]:
    """Return the windows from which on the agent had failed, or had spent its budget."""
    return None if episode.failure is None else episode.failure.window, episode.budget_spent_at_window


def _is_near(cost_usd: float, other_usd: float) -> bool:
    return abs(cost_usd - other_usd) <= NEAR_COST * other_usd


@functools.cache
def commit() -> str:
    """Return the commit of the checkout, or the version where there is none."""
    if (root := checkout()) is None:
        return __version__
    command = ["git", "-C", str(root), "rev-parse", "--short=8", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return __version__
