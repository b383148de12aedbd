"""Make a submission from a results file: one agent's episodes, a declaration, and a README to fill in."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from fleetgym.agents.agent_code import code_files, code_sha256, folder_sha256, own_files
from fleetgym.agents.registry import PROGRAM, parse_agent
from fleetgym.evaluation.results import Results, hash_jobs, header_line, read_results
from fleetgym.evaluation.results_format import BRIEF_FORMAT, EpisodeResult
from fleetgym.files.documents import naming
from fleetgym.files.errors import DataError, FleetgymError, UnknownNameError
from fleetgym.files.schema import read_object
from fleetgym.leaderboard.replay import check_one_shot
from fleetgym.leaderboard.submission import (
    DECLARATION,
    EPISODES,
    README,
    SUBMISSION_FORMAT,
    Submission,
    check_identity,
    submission_id,
    suite_sha256,
)
from fleetgym.model.library import find_entry, list_tasks, suites, task_name
from fleetgym.model.sets import unknown
from fleetgym.scoring.best_known import load_best_known

#: Files that no checksum of a run needs to cover.
_DOCUMENTS = (".md", ".rst", "LICENSE", "LICENSE.txt", "pyproject.toml", ".gitignore")

_README = """\
# {name}

What the agent does, in a few sentences, with a reference:

How it was tuned, on what data (the scored scenarios must not be part of it):

How to run it, for `fleetgym rerun` (code, versions, licence):
"""


def submit(
    results: str | os.PathLike[str] | Results,
    out: str | os.PathLike[str],
    *,
    date: str,
    division: str,
    time_class: str | None = None,
    agent: str | None = None,
    suite: str | None = None,
    code: str | os.PathLike[str] | None = None,
    card: Mapping[str, str] | None = None,
) -> Submission:
    """Write a submission.

    Parameters
    ----------
    results : path-like or Results
        A complete run on a suite.
    out : path-like
        The folder to make; its name is the submission's, such as ``2026-11-21-agh``.
    date : str
        YYYY-MM-DD.
    division : str
        One of `DIVISIONS`.
    time_class : str, optional
        One of `TIME_CLASSES`; by default that of the official run, ``"online"`` if it was none.
    agent : str, optional
        Which agent of the run; needed if there are several.
    suite : str, optional
        By default the one in the results' header.
    code : path-like, optional
        Folder with the agent's code and nothing else; its checksum is declared. Of a Python file, what the agent
        consists of is copied to such a folder, `out` with ``-code`` behind its name: see `left_out`.
    card : mapping, optional
        Further fields of `AgentCard`: ``name``, ``authors``, ``contact``, ``description``, ``code_url``, ``variant``.

    Returns
    -------
    Submission

    Raises
    ------
    FleetgymError
        If the folder exists, the run is not one agent's on a whole suite as it is stored here, it was an official
        one of another time class, or `code` is not what played.
    """
    target = Path(os.path.abspath(out))
    submission_id(target)
    if target.exists():
        raise FleetgymError(f"{target} exists; choose another folder")
    run = results if isinstance(results, Results) else read_results(results)
    told = target, date, division, time_class, agent, suite
    if code is None or not (os.fspath(code).endswith(".py") and os.path.isfile(code)):
        folder = None if code is None else Path(code)
        if folder is not None:
            _check_folder_of_code(folder, target, None if isinstance(results, Results) else Path(results))
        return _submit(run, *told, folder, folder, card)
    file, folder = Path(os.path.realpath(code)), Path(f"{target}-code")
    if folder.exists():
        raise FleetgymError(f"{folder} exists; choose another folder")
    try:
        _copy_alone(file, folder)
        # The checksum of the run is that of the file's folder, of which the rest stays there.
        header = dataclasses.replace(run.header, folder_sha256=None)
        return _submit(dataclasses.replace(run, header=header), *told, folder, file.parent, card)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


#: Files beside an agent's that are no data of it: code, results and their times, and what describes them.
_NO_DATA = (".py", ".pyc", ".jsonl", ".md", ".toml", ".html")


def left_out(file: str | os.PathLike[str]) -> list[str]:
    """Return the names of data beside an agent's file that its code does not name, so `submit` does not copy them."""
    path = Path(os.path.realpath(file))
    kept = {os.path.realpath(own) for own in own_files(path)}
    beside = [p for p in sorted(path.parent.iterdir()) if p.is_file() and not p.name.startswith(".")]
    return [p.name for p in beside if p.suffix not in _NO_DATA and os.path.realpath(p) not in kept]


def _copy_alone(file: Path, folder: Path) -> None:
    """Copy an agent's file, the modules beside it that it imports, and the data that these name, to a new folder."""
    for path in own_files(file):
        copy = folder / path.relative_to(file.parent)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)


def _submit(
    run: Results,
    target: Path,
    date: str,
    division: str,
    time_class: str | None,
    agent: str | None,
    suite: str | None,
    code: Path | None,
    base: Path | None,
    card: Mapping[str, str] | None,
) -> Submission:
    """Write the submission of a run; the agent's file is named relative to `base`, and lies in the folder `code`."""
    if run.header.in_process:
        raise FleetgymError(
            "this run's agents played in the evaluator's own process (isolate='never'), where an agent can reach the "
            "evaluator; play it anew without that"
        )
    name = _the_agent(run, agent)
    suite = suite or run.header.suite
    if suite not in suites():
        raise unknown("suite", suite, suites())
    entry = public_entry(name, base)
    code_checksum = "" if code is None else _check_code(run, name, entry, code)
    played = _episodes(run, name, suite)
    if division == "one-shot":
        _check_one_shot(run, played)
    episodes = [dataclasses.replace(e, agent=entry, cost_per_window_usd=None) for e in played]
    lines = _lines(run, episodes, suite)
    official = None if run.header.official is None else run.header.official.time_class
    if None not in (official, time_class) and official != time_class:
        raise FleetgymError(
            f"this was an official run of the class {official}; it cannot be submitted as {time_class}"
        )
    packed = gzip.compress("".join(lines).encode(), compresslevel=9, mtime=0)
    declared = {
        "format": SUBMISSION_FORMAT,
        "date": date,
        "agent": {
            "name": entry.removeprefix(entry.partition("(")[0].rpartition("/")[0]).removeprefix("/"),
            "entry": entry,
            "division": division,
            "time_class": time_class or official or "online",
            **(card or {}),
            "code_sha256": code_checksum,
            "agent_sha256": parse_agent(entry).reference_sha256 or ""
            if ":" not in entry.partition("(")[0]
            else "",
        },
        "run": {
            "fleetgym": run.header.version,
            "suite": suite,
            "suite_sha256": suite_sha256(suite),
            "best_known": load_best_known([suite]).name,
            "episodes": len(episodes),
            "seed": episodes[0].seed,
        },
        "files": {"episodes_sha256": hashlib.sha256(packed).hexdigest()},
    }
    submission = read_object(Submission, declared)
    check_identity(submission, target.parents[1])
    _write(target, submission, packed)
    return submission


def public_entry(agent: str, code: str | os.PathLike[str] | None) -> str:
    """Return how an agent is named to others: its file relative to the code's folder, without the folders above.

    Examples
    --------
    >>> public_entry("somewhere/agents/mine.py:Agent(margin=0.1)", None)
    'mine.py:Agent(margin=0.1)'
    >>> public_entry("agh-rolling(margin=0.3)", None)
    'agh-rolling(margin=0.3)'
    """
    head, bracket, arguments = agent.partition("(")
    place, _, attribute = head.rpartition(":")
    if not place.endswith(".py"):
        return agent
    relative = Path(place).name
    if code is not None:
        try:
            relative = Path(os.path.realpath(place)).relative_to(os.path.realpath(code)).as_posix()
        except ValueError:
            raise FleetgymError(f"{place} is not in the code's folder {code}") from None
    return f"{relative}:{attribute}{bracket}{arguments}"


def longest_s(episodes: Iterable[EpisodeResult]) -> float | None:
    """Return the reference CPU seconds of the decisions of the episode that took longest; None if one is not timed."""
    times = [None if e.timing is None else e.timing.acting_s for e in episodes]
    return None if None in times else max((time for time in times if time is not None), default=0.0)


def _check_folder_of_code(code: Path, target: Path, results: Path | None) -> None:
    """Refuse what is no folder, or one whose checksum the submission itself, or its results, would be a part of."""
    if not code.is_dir():
        raise FleetgymError(f"{code} is no folder; name the one that holds the agent's code and nothing else")
    for path in (target, results):
        if path is not None and Path(os.path.realpath(path)).is_relative_to(os.path.realpath(code)):
            raise FleetgymError(
                f"{path} lies in the code's folder {code}, all of which is in the declared checksum; "
                "give the agent's code a folder of its own"
            )


def _check_one_shot(run: Results, episodes: Iterable[EpisodeResult]) -> None:
    for episode in episodes:
        ends = None if episode.failure is None else episode.failure.window
        try:
            check_one_shot(run.actions(episode)[:ends])
        except DataError as error:
            raise FleetgymError(f"{task_name(*episode.task)}: {error.message}") from None


def _check_code(run: Results, agent: str, entry: str, code: Path) -> str:
    """Return the checksum of the code's folder; refuse code that is not what played."""
    if entry.startswith(PROGRAM):
        raise FleetgymError(
            "a command does not say where its files will be: name the program in a Python file of the code's folder, "
            "as docs/agent-protocol.md shows, and play that"
        )
    with tempfile.TemporaryDirectory(prefix="fleetgym-code-") as copy:  # what is compared is what is declared
        copy_code(code, copy)
        played = (run.header.code_sha256 or {}).get(agent)
        if played is not None:
            _check_played(entry, code, Path(copy), played, (run.header.folder_sha256 or {}).get(agent))
        return folder_sha256(copy)


def _check_played(entry: str, code: Path, copy: Path, played: str, folder: str | None) -> None:
    """Refuse a copy of code whose agent, or anything that it could load, has another checksum than what played."""
    place = entry.partition("(")[0].rpartition(":")[0]
    top = place.partition(".")[0]
    names = [place] if place.endswith(".py") else [f"{top}/__init__.py", f"{top}.py"]
    found = next((name for name in names if (copy / name).is_file()), None)
    if found is None:
        raise FleetgymError(f"there is no {' or '.join(names)} in the code's folder {code}")
    if code_sha256(str(copy / found)) != played:
        raise FleetgymError(
            f"{code / found}, or a file beside it, is not what it was in this run: play it again, or name the folder "
            "with the code that played"
        )
    if folder is not None and folder != folder_sha256((copy / found).parent):
        raise FleetgymError(
            f"a file in {(code / found).parent} is not what it was in this run: play it again"
        )
    known = {file.relative_to(copy).as_posix() for file in own_files(copy / found)}
    more = [name for name in code_files(copy) if name not in known and not name.endswith(_DOCUMENTS)]
    if folder is None and more:
        raise FleetgymError(
            f"this run says nothing of {code / more[0]}, which the agent may load by a name that it computes: play it "
            "again with the results in another folder than the code's"
        )


def _the_agent(run: Results, agent: str | None) -> str:
    if agent is None and len(run.agents) > 1:
        raise FleetgymError(f"a submission has one agent, this run has several: {', '.join(run.agents)}")
    if agent is not None and agent not in run.agents:
        raise UnknownNameError("agent of this run", agent, run.agents)
    return agent or run.agents[0]


def _episodes(run: Results, agent: str, suite: str) -> list[EpisodeResult]:
    """Return the agent's episodes in the suite's order."""
    played = {e.task: e for e in run.episodes if e.agent == agent}
    tasks = list_tasks(suite)
    missing = [task_name(*task) for task in tasks if task not in played]
    if missing:
        held = f"{len(tasks) - len(missing)} of the {len(tasks)} tasks of {suite}"
        raise FleetgymError(f"{agent} has played {held}; missing: {missing[0]}")
    if len({episode.seed for episode in played.values()}) > 1:
        raise FleetgymError("the episodes have several seeds")
    return [played[task] for task in tasks]


def _lines(run: Results, episodes: list[EpisodeResult], suite: str) -> list[str]:
    """Return the lines of the agent's own results file."""
    names = dict.fromkeys(episode.instance for episode in episodes)
    for name in names:
        if run.header.instances[name].content_hash != find_entry(name).content_hash:
            message = f"{name} has changed since this run; play it again"
            raise DataError(message, "$[0].instances", run.source)
    header = dataclasses.replace(
        run.header,
        format=BRIEF_FORMAT,
        suite=suite,
        num_jobs=len(episodes),
        jobs_hash=hash_jobs(episode.key for episode in episodes),
        instances={name: run.header.instances[name] for name in names},
        code_sha256=None,  # the declaration has that of the whole folder
    )
    return [header_line(header), *(episode.to_line() for episode in episodes)]


def _write(target: Path, submission: Submission, packed: bytes) -> None:
    """Fill a temporary folder and move it to its place: never half a submission."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
    try:
        readme = _README.format(name=submission.agent.name)
        for name, data in ((DECLARATION, submission.to_toml()), (README, readme), (EPISODES, packed)):
            with naming(target / name):
                (folder / name).write_bytes(data if isinstance(data, bytes) else data.encode())
        folder.chmod(0o755)
        folder.rename(target)
    except BaseException:
        shutil.rmtree(folder)
        raise


def copy_code(code: str | os.PathLike[str], target: str | os.PathLike[str]) -> None:
    """Copy the files that code consists of, with their modes, into an empty folder, each read once."""
    for name in code_files(code):
        path = Path(target, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(Path(code, name), path)
