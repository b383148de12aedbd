"""Implement the subcommands `submit`, `verify`, `season` and `rerun`."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetgym.cli.options import BOARD, AddVerb, add_board, add_json, add_workers
from fleetgym.cli.output import note, print_json, tell
from fleetgym.cli.progress import ProgressBar
from fleetgym.files.errors import FleetgymError, UnknownNameError, one_line, plain, printable


def add(verb: AddVerb) -> None:
    """Declare the subcommands; `verb(name, text, examples)` makes a parser."""
    _add_submit(verb)
    _add_verify(verb)
    _add_season(verb)
    _add_rerun(verb)


def _add_submit(verb: AddVerb) -> None:
    p = verb(
        "submit",
        "make a submission of one agent's results",
        "  fleetgym submit results/night.jsonl --agent agh-rolling --out submissions/2026-11-21-agh-rolling\n"
        "  fleetgym submit mine.jsonl --out 2026-12-01-mine --division open --time-class online --code my_agent.py",
    )
    p.add_argument("results", help="results file of a complete run")
    p.add_argument(
        "--out", required=True, metavar="FOLDER", help="folder to create; its name is the submission's id"
    )
    p.add_argument("--agent", help="which agent of the run (default: the only one)")
    p.add_argument("--suite", help="suite whose tasks the run contains (default: the run's)")
    p.add_argument(
        "--division", choices=("closed", "open", "one-shot"), default="open", help="division (default: open)"
    )
    p.add_argument(
        "--time-class",
        choices=("reflex", "online", "offline"),
        help="time class (default: that of the official run, else online)",
    )
    p.add_argument(
        "--code",
        metavar="FOLDER",
        help="folder of the agent's code only; its checksum is declared. For a file.py, the agent's files are "
        "copied to OUT-code",
    )
    p.add_argument(
        "--variant", choices=("", "as published", "tuned"), default="", help="settings of a published method"
    )
    p.add_argument("--date", default=f"{datetime.date.today():%Y-%m-%d}", help="YYYY-MM-DD (default: today)")
    for name, text in (
        ("name", "display name (default: the agent's)"),
        ("authors", "displayed authors"),
        ("contact", "displayed contact: a page or an address"),
        ("description", "one or two sentences"),
        ("code-url", "https://..., where the code is"),
    ):
        p.add_argument(f"--{name}", default="", metavar="TEXT", help=text)


def _add_verify(verb: AddVerb) -> None:
    p = verb(
        "verify",
        "recompute submissions with the reference evaluator",
        "  fleetgym verify leaderboard/submissions/2026-11-21-agh --workers 2 --out leaderboard/verified\n"
        "  fleetgym verify --best-known fleet-v0",
    )
    p.add_argument("folders", nargs="*", metavar="FOLDER", help="submissions")
    p.add_argument(
        "--best-known", metavar="SUITE", help="replay the stored actions of its best-known costs instead"
    )
    add_workers(p, "processes; the record is the same")
    p.add_argument("--out", metavar="FOLDER", help="write <id>.json.gz here, for the leaderboard")
    p.add_argument(
        "--references",
        metavar="BOARD",
        help="have the reference agents play some tasks of their rows again, and update BOARD/references.csv",
    )
    p.add_argument(
        "--all-tasks",
        action="store_true",
        help="have a reference agent play every task of its row again, not only some for 20 CPU seconds",
    )


def _add_season(verb: AddVerb) -> None:
    p = verb(
        "season",
        "make a season's private seed, draw its fresh tasks, end it, or check its rows",
        "  fleetgym season seed season.seed\n"
        "  fleetgym season draw 2026-12 --seed-file season.seed --out private-2026-12\n"
        "  fleetgym season end 2026-12 --seed-file season.seed --instances private-2026-12\n"
        "  fleetgym season check 2026-11",
    )
    actions = p.add_subparsers(dest="action", metavar="ACTION", required=True)
    seed = actions.add_parser("seed", help="write a new private seed and print the checksum to publish")
    seed.add_argument("file")
    draw = actions.add_parser("draw", help="draw a season's instances and scenarios into a private folder")
    draw.add_argument("season", help="name, as in seasons.toml")
    draw.add_argument("--seed-file", metavar="FILE", help="the private seed (default: the revealed one)")
    draw.add_argument("--out", required=True, metavar="FOLDER")
    end = actions.add_parser(
        "end", help="publish a season's seed, actions and best-known costs, so that anybody can check it"
    )
    end.add_argument("season", help="name, as in seasons.toml")
    end.add_argument("--seed-file", metavar="FILE", required=True, help="the private seed")
    end.add_argument("--instances", metavar="FOLDER", required=True, help="what `season draw` made")
    check = actions.add_parser("check", help="replay the fresh rows of a season that has ended")
    check.add_argument("season", help="name, as in seasons.toml")
    add_workers(check)
    for part in (seed, draw, end, check):
        add_board(part)
        add_json(part, default=argparse.SUPPRESS)


def _add_rerun(verb: AddVerb) -> None:
    p = verb(
        "rerun",
        "run a submission's code on a season's fresh tasks: the row that is ranked",
        "  fleetgym rerun leaderboard/submissions/2026-11-21-agh --season 2026-12 --instances private-2026-12\n"
        "  fleetgym rerun 2026-12-01-mine --season 2026-12 --instances private-2026-12 --code checkout/my_agent",
    )
    p.add_argument(
        "folders",
        nargs="+",
        metavar="FOLDER",
        help="submissions; of several, those that are withdrawn or have a row of the season are skipped",
    )
    p.add_argument("--season", required=True, help="name, as in seasons.toml")
    p.add_argument(
        "--instances", required=True, metavar="FOLDER", help="what `season draw` made, with best-known costs"
    )
    p.add_argument(
        "--code",
        metavar="FOLDER",
        help="the agent's code, after review; its checksum must equal the declared one",
    )
    p.add_argument(
        "--unofficial",
        action="store_true",
        help="without the rules of an official run: no budget of CPU time",
    )
    add_workers(p)
    add_board(p)
    p.add_argument("--out", metavar="FOLDER", help="folder of the record (default: BOARD/fresh/SEASON)")


# -- what they do


def submit(arguments: argparse.Namespace) -> int:
    """Make a submission."""
    from fleetgym.evaluation.isolation.rules import TIME_CLASSES
    from fleetgym.evaluation.results import read_results
    from fleetgym.files.schema import to_jsonable
    from fleetgym.leaderboard import submit as making
    from fleetgym.model.suites import full_suite

    card = {
        name: getattr(arguments, name)
        for name in ("authors", "contact", "description", "code_url", "variant")
    }
    results = read_results(arguments.results)
    made = making.submit(
        results,
        arguments.out,
        date=arguments.date,
        division=arguments.division,
        time_class=arguments.time_class,
        agent=arguments.agent,
        suite=None if arguments.suite is None else str(full_suite(arguments.suite)),
        code=arguments.code,
        card={**card, **({"name": arguments.name} if arguments.name else {})},
    )
    tell(
        arguments,
        to_jsonable(made),
        f"{arguments.out}: {made.run.episodes} episodes of {made.agent.name} on {made.run.suite}, "
        f"{made.agent.division}, {made.agent.time_class}\n"
        + (
            f"The agent's code is in {arguments.out}-code; publish it.\n"
            if str(arguments.code).endswith(".py")
            else ""
        )
        + f"Fill in {arguments.out}/README.md, then try: fleetgym verify {arguments.out}\n"
        f"A row appears once the folder is in {BOARD}/submissions, `verify` has written its record with "
        f"--out {BOARD}/verified, and `fleetgym leaderboard` has built the page.",
    )
    if str(arguments.code).endswith(".py") and (left := making.left_out(arguments.code)):
        names = ", ".join(left[:5]) + (f" and {len(left) - 5} others" if len(left) > 5 else "")
        note(
            f"left out: {names}. If the agent loads it, name it in {arguments.code} as a text, and play again"
        )
    longest_s = making.longest_s(e for e in results.episodes if arguments.agent in (None, e.agent))
    allowed_s = TIME_CLASSES[made.agent.time_class]
    if longest_s is not None and longest_s > allowed_s:
        seconds = f"{longest_s:.1f} CPU seconds here"
        note(f"an episode took {seconds}; the class {made.agent.time_class} allows {allowed_s:g}")
    failures = [e.failure for e in results.failures if e.failure and arguments.agent in (None, e.agent)]
    if failures:
        first = failures[0]
        count = f"{len(failures)} of these episodes"
        note(f"the agent failed in {count}, first: {first.kind}: {first.message}")
    if ":" in made.agent.entry and not made.agent.code_sha256:
        note("without --code nobody can run it again, so it can be certified but not ranked")
    return 0


def verify(arguments: argparse.Namespace) -> int:
    """Replay submissions, or best-known costs."""
    from fleetgym.leaderboard import verify as judging

    if sum(map(bool, (arguments.folders, arguments.best_known, arguments.references))) != 1:
        raise FleetgymError(
            "name submissions, or --best-known SUITE, or --references BOARD: one of the three"
        )
    if arguments.all_tasks and arguments.best_known:
        raise FleetgymError(
            "--all-tasks is of rows of reference agents; --best-known replays every task anyway"
        )
    if arguments.best_known:
        return _verify_best_known(arguments)
    if arguments.references:
        return _verify_references(arguments)
    _check_apart(arguments.folders)
    if arguments.out:
        Path(arguments.out).mkdir(parents=True, exist_ok=True)
    verdicts = []
    for folder in arguments.folders:
        try:
            record = judging.verify(
                folder,
                workers=arguments.workers,
                out=arguments.out,
                all_tasks=arguments.all_tasks,
                progress=ProgressBar("replaying"),
            )
            cost = sum(episode.cost_usd for episode in record.episodes)
            verdicts.append(
                {
                    "submission": printable(folder),
                    "accepted": True,
                    "episodes": len(record.episodes),
                    "cost_usd": cost,
                    "failures": sum(episode.failure is not None for episode in record.episodes),
                }
            )
        except (FleetgymError, OSError) as error:
            if isinstance(error, OSError) and not Path(error.filename or "").is_relative_to(folder):
                raise  # of what is written: no fault of the submission's
            verdicts.append({"submission": printable(folder), "accepted": False, "reason": one_line(error)})
        if not arguments.json:
            _print_verdict(verdicts[-1])
    if arguments.json:
        print_json(verdicts)
    return 0 if all(verdict["accepted"] for verdict in verdicts) else 1


def _check_apart(folders: Sequence[str]) -> None:
    """Refuse submissions of the same name: their records would be one file."""
    seen: dict[str, str] = {}
    for folder in folders:
        name = os.path.basename(os.path.realpath(folder))  # which takes links to themselves
        if name in seen:
            raise FleetgymError(
                f"{printable(seen[name])} and {printable(folder)} have the same name, and it names the record; "
                "verify one at a time, or rename one"
            )
        seen[name] = folder


def _print_verdict(verdict: dict[str, Any]) -> None:
    if verdict["accepted"]:
        failures = f", {verdict['failures']} of them failures" if verdict["failures"] else ""
        print(
            f"verified  {verdict['submission']}: {verdict['episodes']} episodes{failures}, "
            f"{verdict['cost_usd']:,.2f} USD"
        )
    else:
        print(f"rejected  {plain(verdict['submission'])}: {verdict['reason']}", file=sys.stderr)


def _verify_best_known(arguments: argparse.Namespace) -> int:
    from fleetgym.leaderboard.best_known import replay_best_known
    from fleetgym.model.suites import full_suite

    suite = str(full_suite(arguments.best_known))
    wrong = replay_best_known(suite, workers=arguments.workers, progress=ProgressBar("replaying"))
    verdict = f"{len(wrong)} best-known costs are wrong" if wrong else "every best-known cost is confirmed"
    return _tell_wrong(arguments, wrong, f"{suite}: {verdict}")


def _tell_wrong(arguments: argparse.Namespace, wrong: Mapping[str, str], verdict: str) -> int:
    """Print what is not as it was said, by task, and a verdict; return the exit code."""
    for task, reason in () if arguments.json else wrong.items():
        print(f"wrong  {plain(f'{task}: {reason}')}", file=sys.stderr)
    tell(arguments, wrong, verdict)
    return 1 if wrong else 0


def _verify_references(arguments: argparse.Namespace) -> int:
    from fleetgym.leaderboard.identity import confirm_all

    bar = ProgressBar("playing again")
    found = confirm_all(arguments.references, all_tasks=arguments.all_tasks, progress=bar)
    for name, state in () if arguments.json else found.items():
        print(f"{state}  {plain(name)}")
    if arguments.json:
        print_json(found)
    return 0


def season(arguments: argparse.Namespace) -> int:
    """Make a seed, draw a season's tasks, end the season, or check its rows."""
    from fleetgym.leaderboard import season as seasons

    if arguments.action == "seed":
        checksum = seasons.new_seed(arguments.file)
        tell(arguments, {"seed_sha256": checksum}, f'seed_sha256 = "{checksum}"')
        return 0
    announced = _season(arguments.board, arguments.season)
    if arguments.action == "check":
        return _check_season(arguments, announced)
    if arguments.action == "end":
        return _end_season(arguments, announced)
    seed = (
        seasons.read_seed(arguments.seed_file, announced)
        if arguments.seed_file
        else seasons.revealed_seed(announced)
    )
    made = seasons.draw_season(announced, seed, arguments.out, progress=ProgressBar("drawing"))
    known = seasons.add_best_known(arguments.board, announced, arguments.out)
    rest = (
        "with the best-known costs that were published"
        if known
        else f"best-known costs come from\n  {seasons.best_known_command(announced, arguments.out)}"
    )
    tell(
        arguments,
        {"folder": arguments.out, "instances": made},
        f"{arguments.out}: {len(made)} instances with fresh scenarios; {rest}",
    )
    return 0


def _end_season(arguments: argparse.Namespace, announced: Any) -> int:
    from fleetgym.leaderboard.season_end import end_season

    rows = end_season(arguments.board, announced, arguments.seed_file, arguments.instances)
    board = "" if arguments.board == BOARD else f" --board {arguments.board}"
    tell(
        arguments,
        {"season": announced.name, "rows": rows},
        f"season {announced.name} has ended: {len(rows)} rows; anybody can now run\n"
        f"  fleetgym season check {announced.name}{board}",
    )
    return 0


def _check_season(arguments: argparse.Namespace, announced: Any) -> int:
    from fleetgym.leaderboard.season_check import check_season

    bar = ProgressBar("replaying")
    wrong = check_season(arguments.board, announced, workers=arguments.workers, progress=bar)
    verdict = f"{len(wrong)} episodes are not confirmed" if wrong else "every fresh cost is confirmed"
    return _tell_wrong(arguments, wrong, f"season {announced.name}: {verdict}")


def _season(board: str, name: str) -> Any:
    from fleetgym.leaderboard.registers import read_registers

    seasons = {season.name: season for season in read_registers(board).seasons}
    if name not in seasons:
        if not seasons:
            raise FleetgymError(
                f"there are no seasons in {Path(board) / 'seasons.toml'}; name the folder: --board"
            )
        raise UnknownNameError("season", name, seasons)
    return seasons[name]


def rerun(arguments: argparse.Namespace) -> int:
    """Run the code of submissions on fresh tasks."""
    season = _season(arguments.board, arguments.season)
    out = Path(arguments.out or Path(arguments.board) / "fresh" / season.name)
    several = len(arguments.folders) > 1
    if several and arguments.code:
        raise FleetgymError("--code is the folder of one submission's code; rerun the others by themselves")
    waiting = _to_rerun(arguments, out) if several else list(arguments.folders)
    if several and not arguments.json:
        print(f"{len(waiting)} of {len(arguments.folders)} submissions to play, {_most_hours(waiting)}")
    done, failed = [], []
    for folder in waiting:
        try:
            done.append(_rerun(arguments, folder, season, out))
        except (FleetgymError, OSError) as error:
            if not several:
                raise
            failed.append(folder)
            note(f"{folder}: {one_line(error)}")
    if arguments.json:
        print_json(done if several else done[0])
    if failed:
        note(f"{len(failed)} of {len(waiting)} submissions have no row")
    return 1 if failed else 0


def _to_rerun(arguments: argparse.Namespace, out: Path) -> list[str]:
    """Return the submissions that are not withdrawn and have no row yet."""
    from fleetgym.leaderboard.open_rows import open_path
    from fleetgym.leaderboard.registers import read_registers
    from fleetgym.leaderboard.submission import submission_id

    gone = {entry.id for entry in read_registers(arguments.board).withdrawn}
    names = {folder: submission_id(folder) for folder in arguments.folders}
    there = {
        name
        for name in names.values()
        if open_path(out, name).is_file() or (out / f"{name}.json.gz").is_file()
    }
    return [folder for folder, name in names.items() if name not in gone | there]


def _most_hours(folders: Sequence[str]) -> str:
    """Return how long submissions may take at most, by their time classes and the tasks of their suites."""
    from fleetgym.evaluation.isolation.rules import TIME_CLASSES
    from fleetgym.leaderboard.submission import read_submission

    seconds = 0.0
    for folder in folders:
        try:
            found = read_submission(folder)
        except (FleetgymError, OSError):  # it is told when its turn comes
            continue
        seconds += found.run.episodes * TIME_CLASSES[found.agent.time_class]
    return f"at most {seconds / 3600:,.0f} reference CPU hours by their time classes"


def _rerun(arguments: argparse.Namespace, folder: str, season: Any, out: Path) -> dict[str, Any]:
    """Play one submission, say so, and return its summary."""
    from fleetgym.leaderboard import rerun as running

    begun_s = time.monotonic()
    record = running.rerun(
        folder,
        season,
        arguments.instances,
        code=arguments.code,
        workers=arguments.workers,
        official=not arguments.unofficial,
        out=out,
        progress=ProgressBar("playing"),
    )
    failures = sum(episode.failure is not None for episode in record.episodes)
    if not arguments.json:
        minutes = (time.monotonic() - begun_s) / 60.0
        print(
            f"{out}: {record.id}, {len(record.episodes)} episodes, {failures} failures, {minutes:.1f} minutes"
        )
        if record.differing:
            print(f"  did something else when played again: {', '.join(record.differing[:3])}")
    return {
        "submission": record.id,
        "season": record.season,
        "episodes": len(record.episodes),
        "failures": failures,
    }
