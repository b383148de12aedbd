"""Play `chc`, committed horizon control: the mean of several plans, each of which is kept for some windows.

Source: Chen, Comden, Liu, Gandhi and Wierman, "Using predictions in online optimization: looking forward with an eye
on the past", SIGMETRICS 2016. CHC(w, v) runs v copies of fixed horizon control. Each copy plans w windows ahead and
keeps its plan for v windows, and the copies plan in turn, one in each window. What is played is the mean of the copies.
With v = 1 this is receding horizon control (`mpc`), with v = w averaging fixed horizon control (Lin, Liu, Wierman and
Andrew, IGCC 2012). The mean cancels forecast errors that are independent from window to window; a commitment of one
window is best where they are strongly correlated.
Adapted:

- the program of a copy is that of `mpc`: fleets for several drawn paths;
- a copy plans from the running fleet, not from its own last one, since starts are paid for what really runs;
- the mean is rounded to whole replicas as in `mpc`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import View
from fleetgym.planning import whole_at_least

from .mpc import Mpc, PathsProgram


class CommittedHorizon(Mpc):
    """Average plans that were made in the last windows.

    Parameters
    ----------
    windows : int
        How far each program looks: the paper's w.
    commitment : int
        Windows for which a plan is kept, at most `windows`: the paper's v.
    paths, judges, shortlist : int
        As for `Mpc`.

    Raises
    ------
    FleetgymError
        For a number below 1.
    """

    def __init__(
        self, windows: int = 5, commitment: int = 3, paths: int = 2, judges: int = 12, shortlist: int = 1
    ):
        super().__init__(windows, paths, judges, shortlist, every=1)
        whole_at_least(1, commitment=commitment)
        self.commitment = min(commitment, windows)

    def reset(self, view: View, *, seed: int) -> None:
        """Begin before the first window."""
        super().reset(view, seed=seed)
        self.plans: list[tuple[int, np.ndarray]] = []  # when each was made, and its fleets, (windows, C)

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the rounded mean of the plans that are kept."""
        view = self.view
        seen = view.window - view.instance.lead
        if seen >= 0:
            self.belief.update(seen, view.conditions)
        among = np.union1d(self.candidates, np.flatnonzero(view.fleet + self.target))
        windows = min(self.ahead, view.instance.num_windows - view.window)
        starting = np.asarray(info["starting"])
        program = PathsProgram(view, self.belief, among, self.paths, windows, starting, self.seed)
        program.solve(self.solver)
        self.plans.append((view.window, planned_fleets(program, self.solver)))
        self.plans = self.plans[-self.commitment :]
        mean = np.mean([fleets[view.window - made] for made, fleets in self.plans], axis=0)
        self.target = self._rounded(mean, windows)
        return view.fleet_to_action(self.target)


def planned_fleets(program: PathsProgram, solver: Any) -> np.ndarray:
    """Return the fleets of all windows of a program that was solved, (windows, C); nothing where there is no plan."""
    values = np.array(solver.getSolution().col_value)
    fleets = np.zeros((len(program.held), program.size))
    if values.size:
        fleets[:, program.among] = np.maximum(0.0, values[np.array(program.held)])
    return fleets
