"""Print what `lookahead` would gain from knowing the future: percent above best-known with so many windows told.

The first windows of its paths are those that come; what follows them is drawn as if they had been seen.
`docs/results-agents.md` holds the table.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym import Conditions
from fleetgym.agents.beliefs.belief import Paths
from fleetgym.baselines.lookahead import Lookahead
from fleetgym.cli.process import run_program
from fleetgym.envs.day import play_day
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.files.markdown import table
from fleetgym.model.library import load_scenarios
from fleetgym.model.scenario import Scenario
from fleetgym.runtime.programs import program
from fleetgym.scoring.best_known import load_best_known

INSTANCES = tuple(f"fleet-v1/dev/{family}-s-101" for family in ("ou", "drop", "budget", "tail", "multi"))
TOLD = (0, 1, 3)


class ToldLookahead(Lookahead):
    """Knows some of the windows to come.

    Parameters
    ----------
    scenario : Scenario
        The day that is played.
    told : int
        How many windows are known.
    **settings
        Of `Lookahead`.
    """

    def __init__(self, scenario: Scenario, told: int, **settings: int):
        super().__init__(**settings)
        self.scenario, self.told = scenario, told

    def _paths(self) -> Paths:
        view = self.view
        windows = min(self.windows, view.instance.num_windows - view.window)
        told = min(self.told, windows)
        if told == 0:
            return super()._paths()
        belief, true = copy.deepcopy(self.belief), []
        for t in range(view.window, view.window + told):
            conditions = Conditions.of(self.scenario, t)
            true.append(conditions.packed())
            if t > belief.window:
                belief.update(t, conditions)
        workload, available, price = (
            np.broadcast_to(np.array(rows), (self.paths, told, *rows[0].shape))
            for rows in zip(*true, strict=True)
        )
        if told == windows:
            return Paths(workload, available, price, np.full(self.paths, 1.0 / self.paths))
        drawn = belief.sample(self.paths, windows - told, np.random.default_rng(self.seed))
        return Paths(
            np.concatenate((workload, drawn.workload), axis=1),
            np.concatenate((available, drawn.available), axis=1),
            np.concatenate((price, drawn.price), axis=1),
            drawn.weight,
        )


def played_usd(instance: str, told: int, **settings: int) -> float:
    """Return the cost of the first stored day of an instance."""
    scenario = load_scenarios(instance)[0]
    agent = ToldLookahead(scenario, told, **settings)
    return float(sum(window.info["cost"] for window in play_day(FleetAllocEnv(instance), agent, scenario)))


def smoke(folder: Path) -> None:
    """Play one day of the cheapest settings."""
    main_table(INSTANCES[:1], (1,), paths=1, windows=2, exchanges=0, rounds=1)


def main_table(instances: Sequence[str], told: Sequence[int], **settings: int) -> None:
    """Print a row for each number of windows, and a column for each instance."""
    best = load_best_known(instances).tasks
    rows = []
    for count in told:
        above = [
            100.0 * (played_usd(instance, count, **settings) / best[f"{instance}#0"].value_usd - 1.0)
            for instance in instances
        ]
        rows.append([str(count), *(f"{percent:.1f}" for percent in (np.mean(above), *above))])
    names = [instance.rpartition("/")[2] for instance in instances]
    print(table(["windows told", "mean", *names], rows), end="")


def main(argv: Sequence[str] | None = None) -> None:
    """Print the table."""
    program(__doc__, writes="No file.", takes="Two CPU minutes.", smoke=smoke).parse_args(argv)
    main_table(INSTANCES, TOLD)


if __name__ == "__main__":
    run_program(main)
