"""Play SageServe's LT-UA: an integer program for each hour's forecast, corrected where the forecast fails.

Source: Jaiswal et al., "SageServe: Optimizing LLM Serving on Cloud Data Centers with Forecast Aware Auto-Scaling",
Proc. ACM Meas. Anal. Comput. Syst. 9(3), 2025 (arXiv:2502.14617), the strategy LT-UA. Every hour the load of the next
one is forecast. Its largest value from 20 min on has to be served. Of all changes of replicas that do, an integer
program takes the cheapest, rent and start-ups counted. Replicas are added up to that target only while those that run
are busy, and taken away only while they are idle. Where the load seen is far from the forecast, the target is left.
Adapted:

- Models and regions are those of `fleetgym.baselines.services`: the program chooses among a model's configurations
  in all regions at once. What no pool has room for counts as unserved.
- A replica serves what keeps deadlines: its queue servers at their safe utilisation.
- The forecast is one of `fleetgym.agents.forecasters`. Leaving the target is planning again, from the load seen.
- Thresholds of use and of the forecast's failure are arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import Snapshot, View
from fleetgym.planning import LinearProgram, above, make_forecaster, positive_share, whole_at_least

from .services import Room, Services, safe_shares, supply

#: Branch and bound stops here.
LIMITS = {"mip_rel_gap": 0.01, "mip_max_nodes": 50}


class SageServe:
    """SageServe's LT-UA: a target for each hour, approached by use.

    Parameters
    ----------
    every : int
        Windows between two plans.
    first_window : int
        Windows ahead from which, up to `every` ahead, the largest forecast counts.
    busy, idle : float
        Replicas are added towards the target while use is above `busy`, and go while it is below `idle`; in (0, 1].
    gap : float
        The target is left where load is more than `gap` times the forecast, or less than one `gap`-th of it; above 1.
    forecaster : str
        Name of a forecaster.

    Raises
    ------
    UnknownNameError
        If there is no such forecaster.
    FleetgymError
        For a number out of range.
    """

    def __init__(
        self,
        every: int = 12,
        first_window: int = 4,
        busy: float = 0.5,
        idle: float = 0.25,
        gap: float = 2.0,
        forecaster: str = "seasonal",
    ):
        whole_at_least(1, every=every, first_window=first_window)
        positive_share(busy=busy, idle=idle)
        above(1, gap=gap)
        self.every, self.first_window, self.busy, self.idle, self.gap = every, first_window, busy, idle, gap
        self.forecaster = make_forecaster(forecaster)

    def reset(self, view: View, *, seed: int) -> None:
        """Study the history."""
        import highspy  # noqa: F401

        self.view, self.services = view, Services(view.instance)
        self.forecaster.reset(view.instance)
        self.target = view.fleet

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the action for the coming window, (slots,) options."""
        view, services = self.view, self.services
        if view.window > 0 or view.instance.lead == 0:
            self.forecaster.update(np.asarray(info["rate_rps"], dtype=float))
        snapshot = view.snapshot()
        shares = safe_shares(snapshot, view.fleet)
        loads = services.loads(snapshot, shares)
        if view.window % self.every == 0:
            ahead = range(min(self.first_window, self.every), self.every + 1)
            self.forecast = np.max([self.forecaster.predict(k) for k in ahead], axis=0)
            self._plan(self.forecast, shares)
        elif self._is_off(snapshot.rate_rps):
            self.forecast = snapshot.rate_rps
            self._plan(self.forecast, shares)
        room, more = Room(snapshot, services.own(view.fleet)), self.target - view.fleet
        use = [1.0 / held if (held := supply(view.running, load)) > 0 else np.inf for load in loads]
        for share, variants in zip(use, services.variants, strict=True):
            if share < self.idle:
                for c in np.flatnonzero(variants & (more < 0)):
                    room.remove(int(c), int(-more[c]))
        for share, variants in zip(use, services.variants, strict=True):
            if share > self.busy:
                for c in np.flatnonzero(variants & (more > 0)):
                    room.add(int(c), int(more[c]))
        return view.fleet_to_action(room.fleet)

    def _is_off(self, rate_rps: np.ndarray) -> bool:
        """Check whether some service's load is far from its forecast."""
        for numbers in self.services.workloads:
            seen, expected = rate_rps[numbers].sum(), self.forecast[numbers].sum()
            if seen > self.gap * expected or seen * self.gap < expected:
                return True
        return False

    def _plan(self, rate_rps: np.ndarray, shares: np.ndarray) -> None:
        snapshot = self.view.snapshot(rate_rps=rate_rps)
        waits = np.array([c.startup_windows for c in snapshot.instance.configurations])
        start_usd = snapshot.startup_usd + (waits if self.view.window else 0) * snapshot.hold_usd
        loads = self.services.loads(snapshot, shares)
        self.target = cheapest_change(snapshot, self.services, loads, start_usd, self.every)


def cheapest_change(
    snapshot: Snapshot, services: Services, loads: np.ndarray, start_usd: np.ndarray, windows: int
) -> np.ndarray:
    """Return the fleet that serves all services' demand with the least rent and start-ups, int64 (C,).

    Parameters
    ----------
    snapshot : Snapshot
        Says what is held and available.
    services : Services
    loads : ndarray, shape (services, C)
        Replicas that would serve all of a service's demand.
    start_usd : ndarray, shape (C,)
        What one replica more costs once, USD.
    windows : int
        For which rent is paid.
    """
    count = snapshot.hold_usd.size
    usable = np.isfinite(loads).any(axis=0)
    most = np.where(usable, snapshot.max_replicas, 0)
    unserved = np.array([windows * snapshot.unserved_usd[numbers].sum() for numbers in services.workloads])
    unit = max(float(unserved.sum()), 1e-9)
    program = LinearProgram()
    held = program.columns(windows * snapshot.hold_usd / unit, most, whole=True)
    grown = program.columns(start_usd / unit, np.inf)
    left = program.columns(unserved / unit, 1.0)
    s, c = np.nonzero(np.isfinite(loads) & (loads > 0))
    rows = np.flatnonzero((np.isfinite(loads) & (loads > 0)).any(axis=1))
    at = np.searchsorted(rows, s)
    program.rows(
        rows.size, [(at, held[c], 1.0 / loads[s, c]), (np.arange(rows.size), left[rows], 1.0)], low=1.0
    )
    every = np.arange(count)
    program.rows(count, [(every, grown, 1.0), (every, held, -1.0)], low=-snapshot.fleet.astype(float))
    g, c = np.nonzero(snapshot.gpu_use)
    program.rows(
        snapshot.gpu_use.shape[0], [(g, held[c], snapshot.gpu_use[g, c])], high=snapshot.available_gpus
    )
    if np.isfinite(snapshot.budget_usd):
        program.rows(1, [(0, held, snapshot.hold_usd / unit)], high=snapshot.budget_usd / unit)
    for members in snapshot.instance.exclusive_groups:
        program.rows(1, [(0, held[list(members)], 1.0)], high=1.0)
    answer = program.solve(LIMITS)
    if answer.values is None:
        return np.array(snapshot.fleet, dtype=np.int64)
    return np.rint(answer.values[held]).astype(np.int64)
