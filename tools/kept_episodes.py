"""Keep what agents did beside the leaderboard, and play it again.

A results file says what every window cost, which follows from the actions. Kept without that, an episode takes some
hundred bytes, so that the numbers of a page can be computed again from what was done, and further agents or tasks join
without playing everything again.

    python -m tools.kept_episodes keep results/v1-test/*.jsonl leaderboard/episodes/v1-test
    python -m tools.kept_episodes restore leaderboard/episodes/v1-test results/v1-test

A run that is not finished is kept too; restored, it goes on with `fleetgym evaluate AGENT --resume FILE`. Of CPU times
the sum over the decisions of an episode is kept.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fleetgym.cli.process import run_program
from fleetgym.cli.progress import ProgressBar
from fleetgym.evaluation.changes import Changes, decode_actions
from fleetgym.evaluation.jobs import play_actions
from fleetgym.evaluation.results import (
    Results,
    header_line,
    parse_results,
    read_results,
    timing_line,
    timings_path,
)
from fleetgym.evaluation.results_format import EpisodeResult, Failure, Header, Timing, stated
from fleetgym.evaluation.run import evaluate
from fleetgym.files.documents import canonical_json, parse_json, read_text, write_atomically
from fleetgym.files.errors import DataError, FleetgymError, one_line
from fleetgym.files.quantities import POSITIVE_COST_USD, SEED
from fleetgym.files.schema import NAME, Integer, Nested, read_object, spec
from fleetgym.model.library import load_instance, task_name
from fleetgym.runtime.programs import program
from fleetgym.scoring.best_known import is_same_cost


@dataclasses.dataclass(frozen=True, kw_only=True)
class Episode:
    """What is kept of an episode; all else follows from it."""

    agent: str = spec(NAME)
    instance: str = spec(NAME)
    scenario: int = spec(Integer())
    seed: int = spec(SEED)
    actions: tuple[tuple[int, int, int], ...] = spec(Changes())
    cost_usd: float = spec(POSITIVE_COST_USD, doc="to compare the replay with")
    failure: Failure | None = spec(Nested(Failure, nullable=True))
    budget_spent_at_window: int | None = spec(Integer(0, 2015), default=None)
    timing: Timing | None = spec(
        Nested(Timing, nullable=True), default=None, doc="one number for all decisions"
    )

    def to_line(self) -> str:
        """Return the episode's line."""
        timing = None if self.timing is None else stated(self.timing)
        return canonical_json({**stated(self), "timing": timing}) + "\n"


def smoke(folder: Path) -> int:
    """Keep and restore an agent's episodes of the toys; 1 if they do not come back to the byte."""
    played, kept, back = folder / "hold.jsonl", folder / "kept", folder / "back"
    evaluate(["hold"], "fleet-v0/toy", isolate="never", out=played)
    code = main(["keep", str(played), str(kept)]) or main(["restore", str(kept), str(back)])
    return code or int((back / played.name).read_bytes() != played.read_bytes())


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    parser = program(
        __doc__,
        writes="The files of the folder that is named last.",
        takes="40 CPU seconds to restore a thousand episodes.",
        smoke=smoke,
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    keep_ = verbs.add_parser("keep", help="results files to kept episodes")
    keep_.add_argument("results", nargs="+", type=Path, help="timings beside them are passed over")
    keep_.add_argument("folder", type=Path)
    restore_ = verbs.add_parser("restore", help="kept episodes to results files, replayed")
    restore_.add_argument("kept", type=Path, help="folder")
    restore_.add_argument("folder", type=Path, help="where results files go; those that exist stay")
    arguments = parser.parse_args(argv)
    try:
        if arguments.verb == "keep":
            for path in arguments.results:
                if not path.name.endswith(timings_path("").name):
                    keep(path, arguments.folder)
        else:
            for path in sorted(arguments.kept.glob("*.jsonl.gz")):
                restore(path, arguments.folder)
    except (DataError, FleetgymError, OSError) as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 1
    return 0


def keep(path: Path, folder: Path) -> Path:
    """Write what a results file's agents did to ``folder/NAME.jsonl.gz``; the same file gives the same bytes."""
    run = read_results(path, allow_incomplete=True)
    text = header_line(run.header) + "".join(kept(episode).to_line() for episode in run.episodes)
    target = folder / f"{path.name.removesuffix('.gz').removesuffix('.jsonl')}.jsonl.gz"
    target.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(target, gzip.compress(text.encode(), mtime=0))
    print(f"{target}: {len(run.episodes)} of {run.header.num_jobs} episodes", file=sys.stderr)
    return target


def kept(episode: EpisodeResult) -> Episode:
    """Return what is kept of an episode."""
    found = Episode(**{field.name: getattr(episode, field.name) for field in dataclasses.fields(Episode)})
    if found.timing is None:
        return found
    all_decisions = (math.fsum(found.timing.act_cpu_s),)
    return dataclasses.replace(found, timing=dataclasses.replace(found.timing, act_cpu_s=all_decisions))


def restore(path: Path, folder: Path) -> Path:
    """Replay what was kept; write the results file and its timings, if they are not there yet.

    Raises
    ------
    DataError
        For a line that is no episode, an instance that has changed, or an episode that costs something else now.
    """
    target = folder / path.name.removesuffix(".gz")
    if target.exists():
        return target
    header, all_known = read_kept(path)
    show, episodes = ProgressBar(target.name), []
    for number, known in enumerate(all_known, start=1):
        with located(number, path):
            episodes.append(replayed(known, header))
        show(number, len(all_known))
    target.parent.mkdir(parents=True, exist_ok=True)
    timings = "".join(timing_line(episode) for episode in episodes if episode.timing is not None)
    write_atomically(timings_path(target), timings.encode())
    write_atomically(target, Results(header, tuple(episodes)).to_text().encode())
    return target


def read_kept(path: Path) -> tuple[Header, list[Episode]]:
    """Return the header and the episodes of a file that `keep` wrote.

    Raises
    ------
    DataError
        For a line that is no episode.
    """
    first, *lines = read_text(path).splitlines(keepends=True) or [""]
    header = parse_results(first, str(path), allow_incomplete=True)[0].header
    episodes = []
    for number, line in enumerate(lines, start=1):
        with located(number, path):
            episodes.append(read_object(Episode, parse_json(line)))
    return header, episodes


@contextlib.contextmanager
def located(number: int, path: Path) -> Iterator[None]:
    """Say of which line and file an error speaks."""
    try:
        yield
    except DataError as error:
        raise DataError(error.message, f"$[{number}]{error.path.removeprefix('$')}", str(path)) from None
    except FleetgymError as error:
        raise DataError(str(error), f"$[{number}]", str(path)) from None


def replayed(known: Episode, header: Header) -> EpisodeResult:
    """Return the episode of a results file that was kept."""
    facts = header.instances.get(known.instance)
    if facts is None:
        raise DataError(f"the header knows no instance {known.instance!r}", "$.instance")
    instance = load_instance(known.instance)
    if instance.content_hash != facts.content_hash:
        raise DataError("another version of the instance was played", "$.instance")
    if facts.num_windows != instance.num_windows:
        raise DataError(
            f"the header says {facts.num_windows} windows, the instance has {instance.num_windows}",
            "$.instance",
        )
    actions = decode_actions(known.actions, facts.num_windows, facts.options)
    played = play_actions(known.instance, known.scenario, actions, known.agent, known.seed)
    if not is_same_cost(known.cost_usd, played.cost_usd):
        task = f"{known.agent} on {task_name(known.instance, known.scenario)}"
        raise DataError(
            f"{task} cost {known.cost_usd!r} USD, its replay costs {played.cost_usd!r}", "$.cost_usd"
        )
    spent = known.budget_spent_at_window
    return dataclasses.replace(
        played, failure=known.failure, budget_spent_at_window=spent, timing=known.timing
    )


if __name__ == "__main__":
    run_program(main)
