"""Prove a lower bound on one window's cost, by a mixed-integer program over whole replicas."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fleetgym.bounds.programs import window_program
from fleetgym.bounds.relaxation import WIDENING, WindowRelaxation, relax_window
from fleetgym.files.errors import FleetgymError
from fleetgym.model.planning import Snapshot
from fleetgym.runtime.highs import make_solver
from fleetgym.runtime.linear_programs import LinearProgram

#: Not serving anybody costs this many units in the solver: its tolerances are absolute.
SCALE = 1000.0
#: The solver's feasibility tolerance: this share of the requests may be lost without being counted.
TOLERANCE = 1e-6
#: Where those cost more than this share of the window, penalties are far above the rent, and are cut.
_WORTH = 1e-4
#: Multiple of the cost of the window to which they are cut; little is lost.
_CUT = 1e5
#: How many units that is to the solver, and what its tolerances are then.
_CUT_SCALE, _CUT_TOLERANCE = 1e6, 1e-9
_MOST_CUTS = 4
_TOLERANCES = ("primal_feasibility_tolerance", "dual_feasibility_tolerance", "mip_feasibility_tolerance")


@dataclasses.dataclass(frozen=True)
class WindowBound:
    """The least that one window costs."""

    bound_usd: float  # no fleet costs less
    fleet: np.ndarray  # (C,) int64 serving replicas of the best fleet that was found
    cost_usd: float  # of that fleet, late penalties from below; at the cut penalties, see `minimum`


@dataclasses.dataclass(frozen=True)
class Effort:
    """How much work a mixed-integer program may take; counts, so that the same call gives the same answer."""

    relative_gap: float = 1e-4
    nodes: int = 2000


def window_bound(snapshot: Snapshot, effort: Effort | None = None) -> WindowBound:
    """Return a lower bound on the cost of a window in which every fleet serves at once and starts for nothing.

    What is left out: fees, start-ups and the fleet before. Late penalties that depend on load are bounded from below.

    Parameters
    ----------
    snapshot : Snapshot
        Of `View.snapshot`. A budget of kind ``rate`` holds as it is written there; one of kind ``pool`` does not
        bind: it is for the whole episode, and a fleet may spend more of it in this window than its even share.
    effort : Effort, optional
        When to stop; the bound is valid whenever that is.

    Returns
    -------
    WindowBound

    Examples
    --------
    >>> import fleetgym
    >>> view = fleetgym.View(fleetgym.load_instance("fleet-v0/toy/two-pools"))
    >>> 0.0 < window_bound(view.snapshot()).bound_usd <= view.steady_cost_usd(view.fleet)
    True
    """
    window = relax_window(snapshot)
    exclusive = tuple(np.array(group) for group in snapshot.instance.exclusive_groups if len(group) > 1)
    budget = snapshot.instance.budget
    is_rate = budget is not None and budget.kind == "rate"
    budget_usd = snapshot.budget_usd if is_rate else np.inf
    problem = WindowProgram(window, snapshot.gpu_use, budget_usd, exclusive)
    return problem.minimum(window.hold_usd, effort or Effort())


class WindowProgram:
    """The least of operating + price · S over whole fleets S that a window has room for.

    Parameters
    ----------
    window : WindowRelaxation
    gpu_use : ndarray, shape (G, C)
    budget_usd : float
        Most that serving replicas may cost to hold; inf without a budget.
    exclusive : tuple of ndarray
        Configurations of which one replica may serve.
    """

    def __init__(
        self,
        window: WindowRelaxation,
        gpu_use: np.ndarray,
        budget_usd: float,
        exclusive: tuple[np.ndarray, ...],
    ):
        self.window, self.gpu_use, self.budget_usd, self.exclusive = window, gpu_use, budget_usd, exclusive

    def minimum(self, price_usd: np.ndarray, effort: Effort) -> WindowBound:
        """Return the minimum for a price per serving replica, (C,), at least 0.

        A solver's bound is its dual bound less what its tolerances may hide: a share of the requests, at their
        penalty. Penalties that are far above the cost of the window would make that more than the window costs.
        Smaller ones give a valid bound too, and nearly the same one as long as hardly anybody is left unserved.
        """
        penalty_usd = self.window.unserved_usd
        if not penalty_usd.any():
            return WindowBound(0.0, np.zeros(price_usd.size, dtype=np.int64), 0.0)
        unit = SCALE / max(float(penalty_usd.sum()), 1e-300)
        tolerance, options = TOLERANCE, {"mip_rel_gap": effort.relative_gap, "mip_max_nodes": effort.nodes}
        best = found = self._solve(price_usd, penalty_usd, unit, tolerance, options)
        for _ in range(_MOST_CUTS):
            if tolerance * penalty_usd.sum() <= _WORTH * found.cost_usd or found.cost_usd <= 0.0:
                break
            penalty_usd = np.minimum(penalty_usd, _CUT * found.cost_usd)
            unit, tolerance = _CUT_SCALE / float(penalty_usd.max()), _CUT_TOLERANCE
            options |= dict.fromkeys(_TOLERANCES, tolerance)
            found = self._solve(price_usd, penalty_usd, unit, tolerance, options)
            best = max(best, found, key=lambda f: f.bound_usd)
        return best

    def _solve(
        self,
        price_usd: np.ndarray,
        penalty_usd: np.ndarray,
        unit: float,
        tolerance: float,
        options: dict[str, Any],
    ) -> WindowBound:
        """Solve once, with so many units to the dollar, where a share of the requests (tolerance) may be lost."""
        count = price_usd.size
        solver = make_solver(random_seed=1, **options)
        solver.passModel(self._program(price_usd, penalty_usd).model(unit))
        solver.run()
        info, values = solver.getInfo(), np.array(solver.getSolution().col_value)
        if not np.isfinite(info.mip_dual_bound):
            raise FleetgymError(f"no bound: {solver.modelStatusToString(solver.getModelStatus())}")
        hidden = tolerance * float(penalty_usd.sum())
        serving = (
            np.rint(values[-count:]).astype(np.int64) if values.size else np.zeros(count, dtype=np.int64)
        )
        cost = info.objective_function_value / unit if values.size else float(penalty_usd.sum())
        return WindowBound(max(0.0, info.mip_dual_bound / unit - hidden), serving, cost)

    def _program(self, price_usd: np.ndarray, penalty_usd: np.ndarray) -> LinearProgram:
        window, budget_usd = self.window, self.budget_usd
        program, replicas = window_program(
            window, self.gpu_use, price_usd, penalty_usd, whole=True, may_hold=budget_usd > 0.0
        )
        if np.isfinite(budget_usd) and budget_usd > 0.0:
            program.rows(1, [(0, replicas, window.hold_usd / budget_usd)], high=1.0 + WIDENING)
        for members in self.exclusive:
            program.rows(1, [(0, replicas[members], 1.0)], high=1.0)
        return program
