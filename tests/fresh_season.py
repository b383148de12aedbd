"""A season on the toys, drawn, ended and with two rows: what tests of fresh rows start from."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

from submissions import RULES, SUITE, make_good

from fleetgym.leaderboard.record import write_record
from fleetgym.leaderboard.registers import Season
from fleetgym.leaderboard.rerun import rerun
from fleetgym.leaderboard.season import (
    draw_season,
    fresh_suite,
    instances_from,
    seed_sha256,
)
from fleetgym.leaderboard.verify import verify
from fleetgym.model.library import list_instances, load_instance, task_name
from fleetgym.scoring.best_known import (
    BEST_KNOWN_FORMAT,
    BestKnown,
    BestKnownSet,
    read_best_known,
    verified_cost_usd,
    write_actions,
    write_best_known,
)
from fleetgym.scoring.comparison import optimal_actions

SEED = "5e" * 32
SEASON = Season(name="t", suite=SUITE, scenarios=2, seed_sha256=seed_sha256(SEED), opened="2026-11-21")


def draw_with_best_known(folder: Path) -> Path:
    """Draw the season, with proven best-known costs, and return its folder."""
    draw_season(SEASON, SEED, folder)
    write_optima(SEASON, folder)
    return folder


def write_optima(season: Season, folder: Path) -> None:
    """Write proven best-known costs of a season on the toys that was drawn into a folder."""
    with instances_from(folder):
        suite = fresh_suite(season)
        tasks = {}
        for name in list_instances(suite):
            for k in range(season.scenarios):
                cost = verified_cost_usd(name, k, optimal_actions(name, k))
                tasks[task_name(name, k)] = BestKnown(
                    instance_hash=load_instance(name).content_hash,
                    value_usd=cost,
                    bound_usd=cost,
                    method="dynamic programming",
                    date="2026-11-21",
                    proven=True,
                )
        best = BestKnownSet(format=BEST_KNOWN_FORMAT, name=f"bks-2026-11-{season.name}", tasks=tasks)
        write_best_known(folder / suite.partition("/")[0] / "best_known.json", best)


def write_best_actions(private: Path, folder: Path, season: str = SEASON.name) -> None:
    """Write actions that achieve the best-known costs of a season's tasks."""
    known = read_best_known(private / f"fresh-{season}" / "best_known.json")
    with instances_from(private):
        for task, best in known.tasks.items():
            name, _, number = task.rpartition("#")
            write_actions(folder, name, int(number), best, optimal_actions(name, int(number)))


def make_board(private: Path, root: Path) -> Path:
    """Make a leaderboard with two rows, certified and fresh, of the season that has ended."""
    announced = f'[[season]]\nname = "t"\nsuite = "{SUITE}"\nscenarios = 2\nopened = "2026-11-21"\n'
    (root / "seasons.toml").write_text(f'{announced}seed_sha256 = "{SEASON.seed_sha256}"\nseed = "{SEED}"\n')
    for agent in ("gh", "hold"):
        folder = make_good(root / "submissions" / f"2026-11-21-{agent}", agent)
        verify(folder, out=root / "verified")
        played = rerun(folder, SEASON, private, official=False)
        cpu = tuple(dataclasses.replace(episode, cpu_s=1.0) for episode in played.episodes)
        write_record(root / "fresh" / "t", dataclasses.replace(played, rules=RULES, episodes=cpu))
    shutil.copytree(
        private / "fresh-t", root / "best_known" / "fresh-t", ignore=shutil.ignore_patterns("toy")
    )
    write_best_actions(private, root / "best_known")
    return root
