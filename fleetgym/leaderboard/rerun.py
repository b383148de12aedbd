"""Play a submission's code on a season's private tasks, isolated, and replay what it did: a fresh record.

What is run is a copy of the code folder that the maintainer names, made of the files whose checksum was compared with
the declared one; of the submission itself nothing is executed. Only runs that could see and reach nothing are ranked.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from fleetgym.agents.agent_code import folder_sha256
from fleetgym.agents.registry import AGENT_PATH, parse_agent, split_arguments
from fleetgym.evaluation.isolation.official import DROP_VARIABLE, can_drop_caches
from fleetgym.evaluation.isolation.sandbox import check_box
from fleetgym.evaluation.results_format import EpisodeResult
from fleetgym.evaluation.run import evaluate
from fleetgym.files.documents import file_sha256, write_json
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.files.schema import to_jsonable
from fleetgym.leaderboard.open_rows import DIGITS, OPEN_FORMAT, RECORDS, OpenRow, open_path
from fleetgym.leaderboard.record import (
    RECORD_FORMAT,
    Record,
    VerifiedEpisode,
    write_record,
)
from fleetgym.leaderboard.registers import Season
from fleetgym.leaderboard.replay import check_one_shot, replay_episode, with_end
from fleetgym.leaderboard.season import best_known_command, check_drawn, fresh_suite, instances_from
from fleetgym.leaderboard.standings import fresh_table
from fleetgym.leaderboard.submission import Submission, open_submission
from fleetgym.leaderboard.submit import copy_code
from fleetgym.leaderboard.verify import mark
from fleetgym.leaderboard.workers import in_order
from fleetgym.model.library import task_name
from fleetgym.runtime.variables import environment_variable
from fleetgym.runtime.version import __version__
from fleetgym.scoring.best_known import best_known_path, is_same_cost, load_best_known


def rerun(
    folder: str | os.PathLike[str],
    season: Season,
    instances: str | os.PathLike[str],
    *,
    code: str | os.PathLike[str] | None = None,
    workers: int = 1,
    official: bool = True,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int, float], None] | None = None,
) -> Record:
    """Play a submission's agent on a season's tasks and have the reference evaluator replay it.

    Parameters
    ----------
    folder : path-like
        The submission.
    season : Season
    instances : path-like
        What `draw_season` made, with best-known costs beside it (`fleetgym best-known search` finds them).
    code : path-like, optional
        The agent's code; its checksum must be the declared one. Not needed for reference agents.
    workers : int
        Processes. With one, as root, an official run drops the kernel's caches before each episode.
    official : bool
        Play under the rules of the declared time class: CPU and memory limits, and everything that is not needed out
        of the agent's sight and reach. Without them the agent runs in a process of its own only, and the row is not
        ranked.
    out : path-like, optional
        Folder to write the record into. While the season is open, one number a family is written there: the whole
        record is kept beside the tasks, see `fleetgym.leaderboard.open_rows`.
    progress : callable, optional
        Called with the numbers of finished and of all episodes.

    Returns
    -------
    Record
        Of kind ``fresh``.

    Raises
    ------
    FleetgymError
        If the code is not what was declared, the tasks are of another seed, or a best-known cost is missing; in an
        official run also if the season's seed is public already, or the system cannot isolate agents.
    DataError
        If the submission is malformed, or the reference evaluator does not confirm an episode.
    """
    if official:
        _check_may_rank(season)
    check_drawn(season, instances)
    files = open_submission(folder)
    submission = files.submission
    with (
        _agent(submission, code) as agent,
        instances_from(instances),
        _apart(workers) if official else contextlib.nullcontext(),
    ):
        suite = fresh_suite(season)
        if not best_known_path(suite.partition("/")[0]).is_file():
            raise FleetgymError(
                f"{instances} has no best-known costs: {best_known_command(season, instances)}"
            )
        known = load_best_known([suite])
        results = evaluate(
            [agent],
            suite,
            workers=workers,
            seed=submission.run.seed,
            isolate="always",
            official=submission.agent.time_class if official else None,
            progress=progress,
        )
        one_shot = submission.agent.division == "one-shot"
        replays = (Replay(episode, results.actions(episode), one_shot) for episode in results.episodes)
        replayed = list(in_order(confirm, replays, workers))
        episodes = []
        for played, verified in zip(results.episodes, replayed, strict=True):
            content_hash = results.header.instances[played.instance].content_hash
            best = known.find(played.instance, played.scenario, content_hash)
            fresh = dataclasses.replace(
                verified,
                best_known_usd=best.value_usd,
                bound_usd=best.bound_usd,
                cpu_s=played.timing.total_s if official and played.timing else None,
                actions=played.actions,
            )
            episodes.append(fresh)
        marks = {e.instance: mark(e.instance) for e in episodes}
    record = Record(
        format=RECORD_FORMAT,
        kind="fresh",
        id=files.id,
        submission=submission,
        declaration_sha256=files.declaration_sha256,
        version=__version__,
        suite=suite,
        instances=marks,
        episodes=tuple(episodes),
        season=season.name,
        rules=results.header.official,
        drifted=results.has_drifted or None,
        repeated=len(results.repeat_checks) if official else None,
        differing=tuple(
            task_name(check.instance, check.scenario) for check in results.repeat_checks if not check.is_same
        )
        or None,
    )
    if out is not None and season.seed:
        write_record(out, record)
    elif out is not None:
        publish(out, record, season, instances)
    return record


def publish(
    out: str | os.PathLike[str], record: Record, season: Season, private: str | os.PathLike[str]
) -> Path:
    """Keep a whole record beside a season's tasks, and write what is public of it.

    Parameters
    ----------
    out : path-like
        Folder of the season's public rows.
    record : Record
        Of kind ``fresh``.
    season : Season
        Open.
    private : path-like
        What `draw_season` made.

    Returns
    -------
    Path
        The public file.
    """
    whole = write_record(Path(private) / RECORDS, record)
    (row,) = fresh_table({record.id: record}, season.suite).rows
    public = OpenRow(
        format=OPEN_FORMAT,
        id=record.id,
        season=season.name,
        submission=record.submission,
        declaration_sha256=record.declaration_sha256,
        version=record.version,
        is_isolated=record.is_isolated,
        score=round(row.score, DIGITS),
        families={family: round(value, DIGITS) for family, value in row.families.items()},
        record_sha256=file_sha256(whole),
    )
    path = open_path(out, record.id)
    write_json(path, to_jsonable(public))
    return path


def _check_may_rank(season: Season) -> None:
    """Raise unless a run here and now can be ranked."""
    if season.seed:
        raise FleetgymError(
            f"season {season.name} has ended: its seed is public, so that nothing more is ranked; --unofficial plays it"
        )
    try:
        check_box()
    except FleetgymError as error:
        raise FleetgymError(f"{error}; --unofficial plays without it, and its rows are not ranked") from None


@contextlib.contextmanager
def _apart(workers: int) -> Iterator[None]:
    """Let the kernel forget each episode before the next, or say on standard error why it will not."""
    if workers == 1 and can_drop_caches():
        with environment_variable(DROP_VARIABLE, "1"):
            yield
        return
    need = "one worker" if workers > 1 else "root"
    print(
        f"fleetgym: the kernel's caches are kept, by which episodes and submissions can tell each other what they saw; "
        f"dropping them needs {need}",
        file=sys.stderr,
    )
    yield


@contextlib.contextmanager
def _agent(submission: Submission, code: str | os.PathLike[str] | None) -> Iterator[str]:
    """Yield the name by which the agent is made: one of ours, or one in a copy of its code, which is as declared."""
    entry = submission.agent.entry
    if code is None:
        if ":" in entry.partition("(")[0] or not parse_agent(entry).is_reference:
            raise FleetgymError(f"{entry!r} is no reference agent: name the folder with its code")
        yield entry
        return
    with tempfile.TemporaryDirectory(prefix="fleetgym-code-") as copy:
        copy_code(code, copy)
        for path in Path(copy).rglob("*"):  # which the user nobody may read, too
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)
        if folder_sha256(copy) != submission.agent.code_sha256:
            raise FleetgymError(f"{code} is not the declared code: its checksum is another")
        for place in (code, copy):
            check_nothing_of(place)
        _check_inside(entry, copy)
        with environment_variable(AGENT_PATH, copy):  # where the entry is found, whatever the copy is called
            yield entry
        for place in (code, copy):
            check_nothing_of(place)


def _check_inside(entry: str, copy: str) -> None:
    """Raise unless an agent's file or module lies in the copy of its code."""
    place, _, attribute = split_arguments(entry)[0].rpartition(":")
    if place.endswith(".py"):
        path = os.path.realpath(os.path.join(copy, place))
        if os.path.commonpath([path, os.path.realpath(copy)]) != os.path.realpath(copy) or not os.path.isfile(
            path
        ):
            raise FleetgymError(f"{entry!r} lies outside the code's folder")
        return
    top = place.partition(".")[0] if attribute else ""
    importlib.invalidate_caches()
    own = importlib.machinery.PathFinder.find_spec(top, [copy]) if top else None
    if own is None or top in sys.builtin_module_names or importlib.util.find_spec(top) is not None:
        raise FleetgymError(
            f"{entry!r} lies outside the code's folder, or has the name of an installed module"
        )


def check_nothing_of(folder: str | os.PathLike[str] | None) -> None:
    """Raise if this process looks for modules in a folder, or has imported one from it.

    A submission's code runs in its agent's process and nowhere else. So the folder is on no other process's module
    path, where a file of it could take the place of a module that an installed package imports if it is there.

    Raises
    ------
    FleetgymError
        With the module, or the entry of the module path.
    """
    if folder is None:
        return
    inside = os.path.realpath(folder)
    for place in sys.path:
        if _is_inside(place or os.getcwd(), inside):
            raise FleetgymError(
                f"this process looks for modules in {place!r}, a submission's code: nothing was ranked"
            )
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file and _is_inside(file, inside):
            raise FleetgymError(
                f"this process has imported {name!r} from a submission's code: nothing was ranked"
            )


def _is_inside(path: str, folder: str) -> bool:
    return f"{os.path.realpath(path)}{os.sep}".startswith(f"{folder}{os.sep}")


@dataclasses.dataclass(frozen=True)
class Replay:
    """An episode that was just played, for the reference evaluator."""

    episode: EpisodeResult
    actions: np.ndarray  # (windows, slots)
    one_shot: bool = False


def confirm(replay: Replay) -> VerifiedEpisode:
    """Return the reference evaluator's numbers of an episode; raise if its cost is another."""
    played = replay.episode
    replayed, _ = replay_episode(*played.task, replay.actions)
    if not is_same_cost(played.cost_usd, replayed.cost_usd):
        task = task_name(played.instance, played.scenario)
        raise DataError(f"{task}: played at {played.cost_usd!r} USD, the replay says {replayed.cost_usd!r}")
    if replay.one_shot:
        check_one_shot(replay.actions[: None if played.failure is None else played.failure.window])
    return with_end(replayed, played)
