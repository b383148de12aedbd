"""Play `lcp`, lazy capacity provisioning: capacity changes only when it leaves the interval between two offline optima.

Source: Lin, Wierman, Andrew and Thereska, "Dynamic right-sizing for power-proportional data centers", INFOCOM 2011
and IEEE/ACM Trans. Networking 21(5), 2013: the algorithm LCP. With operating costs g_t and a cost beta for each
server switched on, let X^L be the last entry of what would have been optimal for all windows so far, and X^U the
same with beta paid for switching off instead of on. The capacity stays where it is unless it lies outside
[X^L, X^U], and then moves to the nearer end. For convex g_t this costs at most three times the optimum in hindsight.
Adapted:

- one capacity for many configurations: the mix of the MILP's fleet for peak demand (each workload's 99 % quantile in
  the history), put up one replica after another, each configuration in proportion; capacity x is the first x replicas;
- x is an integer (Albers and Quedenfeld, "Optimal algorithms for right-sizing data centers", SPAA 2018, show that LCP
  stays 3-competitive then), and a replica's beta is its configuration's: start-up fee and rent paid while it starts;
- g_t(x) is the environment's cost of a window served by those replicas, routing and tails included, less those that
  the pools or the budget cannot hold; it need not be convex, so the bound of three is not claimed;
- the paper knows g_t when it sets x_t. Here past windows have their real costs, and the one in which new replicas
  would serve is forecast, with a margin.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import FleetgymError, Snapshot, View

from .best_forecaster import BestForecaster
from .milp import MilpPlanner


class LazyBounds:
    """X^L and X^U of LCP on the integers 0..n, updated in O(n) per window.

    Kept is the work function: the least cost of all windows so far that ends at x, with switching paid downwards. Paid
    upwards it is the same plus the way from 0 to x, for a path that starts at 0.

    Parameters
    ----------
    beta_usd : ndarray, shape (n,)
        Cost of switching on the 1st, 2nd, ... unit; not negative.

    Examples
    --------
    >>> bounds = LazyBounds(np.array([3.0, 3.0]))
    >>> bounds.update(np.array([4.0, 2.0, 1.0]))  # two units would save 3, and cost 6 to switch on
    >>> bounds.lower, bounds.upper
    (0, 2)
    """

    def __init__(self, beta_usd: np.ndarray):
        self._way = np.concatenate(([0.0], np.cumsum(beta_usd)))
        self._work = self._way * 0.0
        self._started = False

    def update(self, cost_usd: np.ndarray) -> None:
        """Take in the operating cost of one more window at each capacity, (n + 1,)."""
        self._work = self.ahead(cost_usd)._work
        self._started = True

    def ahead(self, cost_usd: np.ndarray) -> LazyBounds:
        """Return the bounds after one more window; this object stays as it is."""
        after = LazyBounds.__new__(LazyBounds)
        after._way, after._started = self._way, True
        down = np.minimum.accumulate((self._work + self._way)[::-1])[::-1] - self._way
        up = np.minimum.accumulate(self._work)
        after._work = cost_usd + (np.minimum(down, up) if self._started else 0.0)
        return after

    @property
    def lower(self) -> int:
        """X^L: the last capacity of the cheapest path when switching on costs; the smallest of several."""
        return int(np.argmin(self._work + self._way))

    @property
    def upper(self) -> int:
        """X^U: the same when switching off costs; the largest of several."""
        return self._work.size - 1 - int(np.argmin(self._work[::-1]))


class LazyCapacity:
    """Lazy capacity provisioning (Lin et al.) on the MILP's mix.

    Parameters
    ----------
    forecaster : str
        As for `fleetgym.baselines.best_forecaster.BestForecaster`.
    margin : float
        The window to come is taken to have (1 + margin) times the forecast; not if its demand is known already.
    switch_cost : float
        The switching cost beta counts this many times.
    peak : float
        Quantile of each workload's history that the mix is made for.

    Raises
    ------
    FleetgymError
        For a value out of range.
    """

    def __init__(
        self,
        forecaster: str = "auto",
        margin: float = 0.1,
        switch_cost: float = 1.0,
        peak: float = 0.99,
    ):
        if not (margin > -1.0 and switch_cost >= 0.0 and 0.0 <= peak <= 1.0):
            raise FleetgymError("margin must be above -1, switch_cost not negative, and peak in [0, 1]")
        self.forecaster = BestForecaster(forecaster)
        self.margin, self.switch_cost, self.peak = margin, switch_cost, peak

    def reset(self, view: View, *, seed: int) -> None:
        """Make the mix and order its replicas."""
        self.view = view
        self.forecaster.reset(view.instance)
        snapshot = view.snapshot()
        waits = np.array([c.startup_windows for c in view.instance.configurations])
        self.levels = proportional_levels(self._peak_fleet())
        added = np.diff(self.levels, axis=0)
        self.bounds = LazyBounds(
            self.switch_cost * (added @ (snapshot.startup_usd + waits * snapshot.hold_usd))
        )
        self.level = 0

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the target: the old capacity, moved into the bounds."""
        view = self.view
        if view.window > 0 or view.instance.lead == 0:
            self.forecaster.update(np.asarray(info["rate_rps"], dtype=float))
            self.bounds.update(self._costs(view.conditions.rate_rps))
        bounds = self.bounds
        if view.instance.lead + self.forecaster.wait > 0:
            rate_rps = self.forecaster.predict(view.instance.lead)
            bounds = bounds.ahead(self._costs((1.0 + self.margin) * rate_rps))
        self.level = min(max(self.level, bounds.lower), bounds.upper)
        return view.fleet_to_action(self.levels[self.level])

    def _peak_fleet(self) -> np.ndarray:
        instance = self.view.instance
        snapshot = self.view.snapshot(rate_rps=np.quantile(instance.history.rate_rps, self.peak, axis=0))
        planner = MilpPlanner(node_limit=1, gap=0.01)
        return planner.plan(snapshot).fleet

    def _costs(self, rate_rps: np.ndarray) -> np.ndarray:
        """Return what a window costs at each capacity, as far as the limits allow it, (n + 1,)."""
        snapshot, conditions = self.view.snapshot(), {"rate_rps": rate_rps}
        known: dict[bytes, float] = {}
        costs = np.empty(len(self.levels))
        for k, level in enumerate(self.levels):
            held = within_limits(level, snapshot)
            if (name := held.tobytes()) not in known:
                known[name] = self.view.steady_cost_usd(held, conditions=conditions)
            costs[k] = known[name]
        return costs


def proportional_levels(fleet: np.ndarray) -> np.ndarray:
    """Return fleets from none to `fleet`, each with one replica more, each configuration growing in proportion.

    Examples
    --------
    >>> proportional_levels(np.array([3, 0, 1])).tolist()
    [[0, 0, 0], [1, 0, 0], [2, 0, 0], [2, 0, 1], [3, 0, 1]]
    """
    c = np.repeat(np.arange(fleet.size), fleet)
    number = np.concatenate([np.arange(n) for n in fleet]) if c.size else np.zeros(0)
    order = np.argsort((number + 0.5) / fleet[c], kind="stable")
    grown = np.zeros((c.size + 1, fleet.size), dtype=np.int64)
    grown[np.arange(c.size) + 1, c[order]] = 1
    return np.cumsum(grown, axis=0)


def within_limits(fleet: np.ndarray, snapshot: Snapshot) -> np.ndarray:
    """Return the fleet without what pools and budget cannot hold, the last configurations first, (C,)."""
    kept = fleet.copy()
    for use, available in zip(snapshot.gpu_use, snapshot.available_gpus, strict=True):
        _shed(kept, use, available)
    _shed(kept, snapshot.hold_usd, snapshot.budget_usd * (1 + 1e-9))
    return kept


def _shed(kept: np.ndarray, use: np.ndarray, limit: float) -> None:
    """Take replicas away, in place and from the last configurations on, until what they use is within the limit."""
    if use @ kept <= limit:
        return
    for c in np.flatnonzero((use > 0) & (kept > 0))[::-1]:
        most = kept[c]
        kept[c] = 0
        if (room := limit - use @ kept) >= 0.0:  # the rest fits: give back as many of these as do
            kept[c] = min(most, int(room / use[c]) + 1)
            while use @ kept > limit:
                kept[c] -= 1
            return


lcp = LazyCapacity
