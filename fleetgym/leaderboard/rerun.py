"""A submission's code and a season's private tasks in, a fresh record out: played isolated, replayed by the judge.

What is run is the code folder that the maintainer names, after its checksum was compared with the declared one; of
the submission itself nothing is executed.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

import fleetgym
from fleetgym.errors import DataError, FleetgymError
from fleetgym.evaluation.episode import EpisodeResult
from fleetgym.evaluation.run import evaluate
from fleetgym.files import file_sha256
from fleetgym.leaderboard.judging import TOLERANCE, judge
from fleetgym.leaderboard.record import RECORD_FORMAT, FailureMark, Record, VerifiedEpisode, write_record
from fleetgym.leaderboard.registers import Season
from fleetgym.leaderboard.season import fresh_suite, instances_from
from fleetgym.leaderboard.submission import DECLARATION, Submission, read_submission, submission_id
from fleetgym.leaderboard.submit import folder_sha256
from fleetgym.leaderboard.verify import mark
from fleetgym.leaderboard.workers import in_order
from fleetgym.library import load_instance, load_scenarios
from fleetgym.registry import parse_agent
from fleetgym.scoring.best_known import load_best_known


def rerun(
    folder: str | os.PathLike[str],
    season: Season,
    instances: str | os.PathLike[str],
    *,
    code: str | os.PathLike[str] | None = None,
    workers: int = 1,
    official: bool = True,
    out: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Record:
    """Play a submission's agent on a season's tasks and have the judge replay it.

    Parameters
    ----------
    folder : path-like
        The submission.
    season : Season
    instances : path-like
        What `draw_season` made, with best-known costs beside it (tools/update_best_known.py makes them).
    code : path-like, optional
        The agent's code; its checksum must be the declared one. Not needed for reference agents.
    workers : int
        Processes.
    official : bool
        Play under the rules of the declared time class: CPU and memory limits, scenarios out of the agent's sight.
        Without them the agent runs in a process of its own only, and the row says so.
    out : path-like, optional
        Folder to write the record into.
    progress : callable, optional
        Called with the numbers of finished and of all episodes.

    Returns
    -------
    Record
        Of kind ``fresh``.

    Raises
    ------
    FleetgymError
        If the code is not what was declared, or a best-known cost is missing.
    DataError
        If the submission is malformed, or the judge does not confirm an episode.
    """
    submission = read_submission(folder)
    agent = _agent(submission, code)
    with instances_from(instances):
        suite = fresh_suite(season)
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
        replays = (Replay(episode, results.actions(episode)) for episode in results.episodes)
        judged = list(in_order(confirm, replays, workers))
        episodes = []
        for played, verified in zip(results.episodes, judged, strict=True):
            content_hash = results.header.instances[played.instance].content_hash
            best = known.find(played.instance, played.scenario, content_hash)
            values = {"best_known_usd": best.value_usd, "bound_usd": best.bound_usd, "cpu_s": _cpu_s(played)}
            episodes.append(dataclasses.replace(verified, **values))
        marks = {e.instance: mark(e.instance) for e in episodes}
    record = Record(
        format=RECORD_FORMAT,
        kind="fresh",
        id=submission_id(folder),
        submission=submission,
        declaration_sha256=file_sha256(Path(folder) / DECLARATION),
        version=fleetgym.__version__,
        suite=suite,
        instances=marks,
        episodes=tuple(episodes),
        season=season.name,
        rules=results.header.official,
    )
    if out is not None:
        write_record(out, record)
    return record


def _agent(submission: Submission, code: str | os.PathLike[str] | None) -> str:
    """Return the name by which the agent is made, its code having been compared with what was declared."""
    entry = submission.agent.entry
    if code is None:
        if ":" in entry.partition("(")[0] or not parse_agent(entry).is_reference:
            raise FleetgymError(f"{entry!r} is no reference agent: name the folder with its code")
        return entry
    if folder_sha256(code) != submission.agent.code_sha256:
        raise FleetgymError(f"{code} is not the declared code: its checksum is another")
    root = os.path.abspath(code)
    place = entry.partition(":")[0]
    if place.endswith(".py"):
        path = os.path.realpath(os.path.join(root, place))
        if not path.startswith(os.path.realpath(root) + os.sep):
            raise FleetgymError(f"{entry!r} lies outside the code's folder")
        return path + entry.removeprefix(place)
    sys.path.append(root)
    return entry


def _cpu_s(episode: EpisodeResult) -> float | None:
    timing = episode.timing
    return None if timing is None else (timing.reset_cpu_s + sum(timing.act_cpu_s)) * (timing.speed or 1.0)


@dataclasses.dataclass(frozen=True)
class Replay:
    """An episode that was just played, for the judge."""

    episode: EpisodeResult
    actions: np.ndarray  # (windows, slots)


def confirm(replay: Replay) -> VerifiedEpisode:
    """Return the judge's numbers of an episode; raise if its cost is another."""
    played = replay.episode
    scenario = load_scenarios(played.instance)[played.scenario]
    problem = load_instance(played.instance)
    judged, _ = judge(problem, scenario, replay.actions, played.instance, played.scenario)
    if abs(judged.cost_usd - played.cost_usd) > TOLERANCE * max(1.0, judged.cost_usd):
        task = f"{played.instance}#{played.scenario}"
        raise DataError(f"{task}: played at {played.cost_usd!r} USD, the replay says {judged.cost_usd!r}")
    failure = played.failure
    marked = None if failure is None else FailureMark(window=failure.window, kind=failure.kind)
    spent = played.budget_spent_at_window
    return dataclasses.replace(judged, failure=marked, budget_spent_at_window=spent)
