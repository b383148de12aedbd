"""Find the best settings by successive halving with fixed counts.

Every setting plays the first tasks; the best go on to the next ones, judged by all that they have played, until one is
left. It and the published setting then play tasks that no choice depended on. Tasks come from the public generators,
with seeds of the training range and a day each: nothing is tuned on what is scored. Agents whose days take long run a
race of fewer tasks.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fleetgym.evaluation.run import evaluate
from fleetgym.families.generate import SEEDS, generate, stored_scenarios
from fleetgym.files import finished_cells
from fleetgym.files.errors import DataError
from fleetgym.model.instance import Instance
from fleetgym.model.instance_files import write_instance
from fleetgym.model.library import load_instance
from fleetgym.scoring.score import percent
from fleetgym.scoring.statistics import FamilyMean
from tools.family_statistics import HEADLINE

FIRST_SEED = SEEDS["train"].start + 8000
SIZES = {"trace": "m"}  # all others have small instances

Costs = Mapping[str, float]  # USD by task


@dataclasses.dataclass(frozen=True)
class Round:
    """What the settings that are left play, and how many of them stay."""

    families: tuple[str, ...]
    seeds: range  # from FIRST_SEED
    stay: int

    @property
    def tasks(self) -> list[str]:
        """Names of the instances."""
        return [
            f"{family}-{SIZES.get(family, 's')}-{FIRST_SEED + k}"
            for k in self.seeds
            for family in self.families
        ]

    @property
    def name(self) -> str:
        """How the log calls it."""
        return " to ".join(dict.fromkeys([self.tasks[0], self.tasks[-1]]))


#: Successive halving (Jamieson and Talwalkar 2016), a third to two fifths of the settings staying each time.
RACE = (
    Round(("ou", "drop", "multi"), range(1), 40),
    Round(("budget", "tail", "trace"), range(1), 15),
    Round(HEADLINE, range(1, 2), 5),
    Round(HEADLINE, range(2, 4), 1),
)
CONFIRMATION = Round(HEADLINE, range(4, 7), 2)

#: Agents of which 606 days take more than ten CPU minutes, and their race. In it everybody starts on the task whose
#: order of the 100 settings foretells best which one wins: on it alone the setting that had the best mean of six tasks
#: is among the first five with each of the six quick planners that were tuned before.
SLOW = frozenset(
    {
        "chc",
        "coral",
        "hindsight",
        "jiang",
        "melange",
        "milp-hourly",
        "milp-rolling",
        "newsvendor",
        "saa",
        "sageserve",
    }
)
SHORT_RACE = (
    Round(("multi",), range(1), 10),
    Round(("ou", "drop"), range(1), 5),
    Round(("budget", "tail", "trace"), range(1), 2),
    Round(HEADLINE, range(1, 2), 1),
)


def rounds_of(agent: str) -> tuple[Round, ...]:
    """Return the rounds that an agent's settings go through."""
    return SHORT_RACE if agent in SLOW else RACE


class Unfinished(Exception):
    """A log lacks a trial, and there is no folder to play it in."""


class Log:
    """An agent's log: one line for each setting and round that it has played, and the instances' hashes.

    Parameters
    ----------
    path : Path
        JSON lines; created when there is something to note.
    tasks : Path, optional
        Folder of the generated instances. Without it nothing is played.
    """

    def __init__(self, path: Path, tasks: Path | None = None):
        self.path, self.tasks = path, tasks
        self._done = finished_cells.read(path)

    def has(self, setting: str) -> bool:
        """Return whether a setting was played on any round."""
        return any(name.startswith(f"{setting} on ") for name in self._done)

    def costs(self, setting: str, part: Round) -> Costs:
        """Return what a setting costs on a round's tasks, playing them if the log does not say."""
        name = f"{setting} on {part.name}"
        if name not in self._done:
            if self.tasks is None:
                raise Unfinished(f"{self.path} lacks {name}")
            self._check(part, self.tasks)
            self._keep(name, play(setting, part.tasks, self.tasks))
        return self._done[name]

    def _check(self, part: Round, folder: Path) -> None:
        """Note the hashes of a round's instances, or compare them with those that were noted."""
        name = f"instances of {part.name}"
        hashes = {task: made(task, folder).content_hash for task in part.tasks}
        if name not in self._done:
            self._keep(name, hashes)
        elif self._done[name] != hashes:
            raise DataError("the generators make other instances now; delete the log", "$", str(self.path))

    def _keep(self, name: str, numbers: Mapping[str, Any]) -> None:
        finished_cells.keep(self.path, name, numbers)
        self._done[name] = dict(numbers)


def made(task: str, folder: Path) -> Instance:
    """Return a task's instance, writing it and its day into the folder if they are not there."""
    path = folder / f"{task}.json"
    if not path.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        family, size, seed = task.split("-")
        instance = generate(family, size, int(seed))
        write_instance(path, instance, stored_scenarios(instance, int(seed), 1))
    return load_instance(path)


def play(setting: str, tasks: Sequence[str], folder: Path) -> Costs:
    """Return a setting's cost of each task, USD; the folder is no part of an episode's name, nor of its randomness."""
    with contextlib.chdir(folder):
        results = evaluate([setting], [f"{task}.json" for task in tasks])
    for episode in results.failures:
        raise SystemExit(f"{episode.agent} failed on {episode.instance}: {episode.failure}")
    return {episode.instance.removesuffix(".json"): episode.cost_usd for episode in results.episodes}


def above(costs: Costs, reference: Costs) -> float:
    """Return how much dearer costs are than the reference's, in percent: the score's formula on the same tasks."""
    logs = {(task.partition("-")[0], task): math.log(usd / reference[task]) for task, usd in costs.items()}
    return percent(FamilyMean.of(logs).mean)


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a race found: costs on the tasks of the race, and on those of the confirmation."""

    raced: Mapping[str, Costs]  # by setting; those that left early have fewer tasks
    best: str
    confirmed: Mapping[str, Costs]  # of the published setting and the best


def race(settings: Sequence[str], log: Log) -> Outcome:
    """Race settings against each other; the first one is the published one, stays to the end, and may win."""
    published, left = settings[0], list(settings)
    raced: dict[str, dict[str, float]] = {setting: {} for setting in settings}
    for part in rounds_of(published):
        for setting in dict.fromkeys([published, *left]):
            raced[setting].update(log.costs(setting, part))
        left.sort(
            key=lambda setting: above(raced[setting], raced[published])
        )  # stable: ties as they were drawn
        left = left[: part.stay]
    finalists = dict.fromkeys([published, left[0]])
    return Outcome(raced, left[0], {setting: log.costs(setting, CONFIRMATION) for setting in finalists})
