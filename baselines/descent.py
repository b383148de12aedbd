"""Play `descent`: local search over fleets, judged by the exact routing of the environment.

The methods of the papers plan for one demand forecast on a simplified second stage. This agent of ours keeps the
exact one: every few windows it starts from its running fleet (in the first window also from AGH's plan) and tries one
replica more, one less, and one exchanged, judged by the routing LP with its tail costs (`View.steady_cost_usd`) on a
few demand samples: a forecast times errors that the same forecaster made on the history, which also says which
forecaster to trust. What a move costs in start-up fees, and in rent while replicas start, is spread over the windows
in which it must pay for itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from fleetgym import Belief, Conditions, Instance, View
from fleetgym.planning import Forecaster, make_forecaster, whole_at_least

from .agh import AdaptiveGreedyHeuristic

FORECASTERS = ("last", "ewma", "kalman")

_LARGEST_ERROR = 1.5  # a log error beyond this is a tenant that comes or goes, not a forecast
_FLOOR = 0.05  # of the nominal rate, where a logarithm is taken


class Descent:
    """Stochastic local search on the exact second-stage cost.

    Parameters
    ----------
    every : int
        Windows between two searches; a lost or denied replica starts one at once.
    samples : int
        Demand samples that a fleet is judged by.
    payback_windows : int
        Windows over which the cost of a change is spread.
    forecaster : str
        Centre of the samples; ``"auto"`` takes the one with the smallest squared log error on the history. With
        ``"belief"`` samples are no errors around one forecast: each is a window of a path that `fleetgym.Belief` draws,
        from the next window to the `horizon`-th.
    shortlist : int
        Configurations per workload and pool that may be added.
    exchanges : int
        Most exchanges tried between two accepted moves, drawn at random.
    max_moves : int
        Most accepted moves per search.
    horizon : int
        How far samples of ``"belief"`` look, windows.

    Raises
    ------
    UnknownNameError
        If there is no such forecaster.
    FleetgymError
        For a count that is too small.

    Notes
    -----
    Work is bounded by counts, never by a clock, so that results do not depend on the machine.
    """

    def __init__(
        self,
        every: int = 3,
        samples: int = 6,
        payback_windows: int = 12,
        forecaster: str = "auto",
        shortlist: int = 1,
        exchanges: int = 40,
        max_moves: int = 30,
        horizon: int = 6,
    ):
        whole_at_least(1, every=every, samples=samples, payback_windows=payback_windows, horizon=horizon)
        whole_at_least(0, shortlist=shortlist, exchanges=exchanges, max_moves=max_moves)
        self.every, self.samples, self.payback_windows = every, samples, payback_windows
        self.shortlist, self.exchanges, self.max_moves = shortlist, exchanges, max_moves
        self.names, self.horizon = candidates(forecaster), horizon

    def reset(self, view: View, *, seed: int) -> None:
        """Study the history and choose which configurations are worth adding."""
        self.view, self.rng = view, np.random.default_rng(seed)
        # Each sample has a view of its own: its routing starts from where that sample's last one ended.
        self.evaluators = [View(view.instance) for _ in range(self.samples)]
        snapshot = view.snapshot()
        self.candidates = shortlist(snapshot, self.shortlist)
        self.max_replicas, self.gpu_use = snapshot.max_replicas, snapshot.gpu_use
        self.wait = np.array([c.startup_windows for c in view.instance.configurations])
        self.exclusive = [np.array(members) for members in view.instance.exclusive_groups]
        self.group = np.full(view.instance.num_configurations, -1)
        for g, members in enumerate(self.exclusive):
            self.group[members] = g
        self.ahead = int(self.wait.max()) + view.instance.lead + self.every // 2
        self.seed, self.target = seed, view.fleet
        self.belief = Belief(view.instance) if self.names == ("belief",) else None
        if self.belief is not None:
            return
        studies = [study(view.instance, name, self.ahead) for name in self.names]
        self.forecaster, self.errors = min(studies, key=lambda pair: float(np.mean(pair[1] ** 2)))
        self.forecaster.reset(view.instance)

    def act(self, observation: Mapping[str, np.ndarray], info: Mapping[str, Any]) -> np.ndarray:
        """Return the running target, or search for a better one."""
        view = self.view
        seen = view.window - view.instance.lead
        if self.belief is not None and seen >= 0:
            self.belief.update(seen, view.conditions)
        elif seen >= 0:
            self.forecaster.update(np.asarray(info["rate_rps"], dtype=float))
        disturbed = bool(np.any(info["lost"])) or bool(np.any(info["denied"]))
        if view.window % self.every == 0 or disturbed:
            self.target = self._search(self._start())
        return view.fleet_to_action(self.target)

    # -- the search -------------------------------------------------------------------------------------

    def _start(self) -> np.ndarray:
        """Return the fleet that runs, cut down to what is available."""
        fleet, available = self.view.fleet, self.view.conditions.available_gpus
        for g in range(self.gpu_use.shape[0]):
            while self.gpu_use[g] @ fleet > available[g]:
                fleet[np.flatnonzero((self.gpu_use[g] > 0) & (fleet > 0))[-1]] -= 1
        return fleet

    def _search(self, fleet: np.ndarray) -> np.ndarray:
        """Return what a descent finds; in the first window also from AGH's plan, whichever is better."""
        snapshot = self.view.snapshot()
        self.hold_usd, self.available = snapshot.hold_usd, snapshot.available_gpus
        self.budget_usd = snapshot.budget_usd
        self.conditions = self._demand_samples()
        left = max(1, min(self.payback_windows, self.view.instance.num_windows - self.view.window))
        waits = self.wait if self.view.window else np.zeros_like(self.wait)
        self.switch_usd = (snapshot.startup_usd + waits * snapshot.hold_usd) / left
        self.running = self.view.fleet
        self.known: dict[bytes, float] = {}
        found = [self._descend(fleet)]
        if self.view.window == 0:  # what runs by now is near what is needed; at first it may be anything
            planned = AdaptiveGreedyHeuristic().plan(self.view.snapshot(rate_rps=self._forecast())).fleet
            found += [self._descend(planned)] if self._fits(planned) else []
        return min(found, key=lambda pair: pair[1])[0]

    def _descend(self, fleet: np.ndarray) -> tuple[np.ndarray, float]:
        """Take the first move that helps until none does; return the fleet and its cost."""
        best = self._cost(fleet)
        for _ in range(self.max_moves):
            for neighbour in self._neighbours(fleet):
                if not self._fits(neighbour):
                    continue
                cost = self._cost(neighbour, best)
                if cost < best - 1e-9 * abs(best):
                    fleet, best = neighbour, cost
                    break
            else:
                break
        return fleet, best

    def _neighbours(self, fleet: np.ndarray) -> Iterator[np.ndarray]:
        """Yield one replica less, one more, and one exchanged, in a random order of each kind."""
        used = self.rng.permutation(np.flatnonzero(fleet))
        more = self.rng.permutation(self.candidates)
        for c in used:
            yield _changed(fleet, c, -1)
        for c in more:
            yield self._added(fleet, c)
        pairs = used.size * more.size
        for pair in self.rng.choice(pairs, min(self.exchanges, pairs), replace=False):
            c, other = used[pair // more.size], more[pair % more.size]
            if other != c:
                yield self._added(_changed(fleet, c, -1), other)

    def _added(self, fleet: np.ndarray, c: int) -> np.ndarray:
        """Return `fleet` with one more replica of c, which replaces what its exclusive group ran."""
        grown = _changed(fleet, c, 1)
        if self.group[c] >= 0:
            members = self.exclusive[self.group[c]]
            grown[members[members != c]] = 0
        return grown

    def _fits(self, fleet: np.ndarray) -> bool:
        return bool(
            np.all(fleet <= self.max_replicas)
            and np.all(self.gpu_use @ fleet <= self.available)
            and fleet @ self.hold_usd <= self.budget_usd
        )

    def _cost(self, fleet: np.ndarray, limit: float = np.inf) -> float:
        """Return the mean cost of a window over the samples, with the cost of the change spread out.

        Infinite as soon as it is certain to exceed `limit`: no sample costs less than holding the fleet.
        """
        key = fleet.tobytes()
        if key not in self.known:
            switch = float(np.maximum(0, fleet - self.running) @ self.switch_usd)
            hold = float(fleet @ self.hold_usd)
            total = 0.0
            for k, (evaluator, conditions) in enumerate(zip(self.evaluators, self.conditions, strict=True)):
                if (total + hold * (self.samples - k)) / self.samples + switch >= limit:
                    total = np.inf
                    break
                total += evaluator.steady_cost_usd(fleet, conditions=conditions)
            self.known[key] = total / self.samples + switch
        return self.known[key]

    # -- demand -----------------------------------------------------------------------------------------

    def _forecast(self) -> np.ndarray:
        if self.belief is not None:
            return np.mean([c.rate_rps for c in self.conditions], axis=0)
        return self.forecaster.predict(self.ahead) if self.ahead else self.view.conditions.rate_rps

    def _demand_samples(self) -> list[Conditions]:
        """Return conditions around the forecast, highest demand first: past errors, evenly spaced in their sum."""
        if self.belief is not None:
            return self._believed()
        centre = self._forecast()
        drawn = self.errors[self.rng.integers(0, self.errors.shape[0], 16 * self.samples)]
        ranked = drawn[np.argsort(drawn.sum(axis=1), kind="stable")]
        picks = ((np.arange(self.samples) + 0.5) / self.samples * ranked.shape[0]).astype(int)
        last = self.view.conditions
        return [dataclasses.replace(last, rate_rps=centre * np.exp(error)) for error in ranked[picks[::-1]]]

    def _believed(self) -> list[Conditions]:
        """Return a window of each path, highest demand first, as they are spread over the horizon.

        Random numbers are the same in every window: a fleet that follows the luck of samples is restless. What is
        available stays what was seen last.
        """
        assert self.belief is not None
        drawn = self.belief.sample(self.samples, self.horizon, np.random.default_rng(self.seed))
        windows = np.arange(self.samples) * self.horizon // self.samples
        last = self.view.conditions
        found = [
            dataclasses.replace(drawn.conditions(k, int(t)), available_gpus=last.available_gpus)
            for k, t in enumerate(windows)
        ]
        return sorted(found, key=lambda conditions: -float(conditions.rate_rps.sum()))


def candidates(forecaster: str) -> tuple[str, ...]:
    """Return the names of the forecasters to choose from: the one given, or for ``"auto"`` those of `FORECASTERS`.

    Raises
    ------
    UnknownNameError
        If there is no such forecaster.
    """
    if forecaster == "auto":
        return FORECASTERS
    make_forecaster(forecaster)
    return (forecaster,)


def study(instance: Instance, name: str, ahead: int) -> tuple[Forecaster, np.ndarray]:
    """Return a forecaster and the log errors it makes on an instance's history.

    Parameters
    ----------
    instance : Instance
        Its history is played to the forecaster window by window; the first day only warms it up.
    name : str
        Name of the forecaster.
    ahead : int
        Windows between the last update and the window forecast.

    Returns
    -------
    forecaster : Forecaster
    errors : ndarray, shape (windows, I)
        Log of what came over what was forecast, all workloads of a window together; clipped.
    """
    forecaster = make_forecaster(name)
    forecaster.reset(instance)
    history = instance.history.rate_rps
    floor = _FLOOR * np.array([w.rate_rps for w in instance.workloads])
    errors = []
    for t in range(history.shape[0] - ahead):
        forecaster.update(history[t])
        expected = np.maximum(forecaster.predict(ahead), floor)
        errors.append(np.log(np.maximum(history[t + ahead], floor) / expected))
    warm = min(288, len(errors) // 2)
    usable = np.array(errors[warm:]) if errors else np.zeros((1, instance.num_workloads))
    return forecaster, np.clip(usable, -_LARGEST_ERROR, _LARGEST_ERROR)


def _changed(fleet: np.ndarray, c: int, by: int) -> np.ndarray:
    changed = fleet.copy()
    changed[c] += by
    return changed


def shortlist(snapshot: Any, per_pool: int) -> np.ndarray:
    """Return the configurations that serve some workload cheapest in some set of pools.

    The price of serving is rent per request at the configuration's tightest capacity, and what delay and storage
    cost. Configurations that break an SLO come last.
    """
    late = snapshot.delay_s > np.array([[w.mean_delay_slo_s] for w in snapshot.instance.workloads])
    wrong = snapshot.error > np.array([[w.error_slo] for w in snapshot.instance.workloads])
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = np.minimum(
            snapshot.compute_tflops / snapshot.work_tflop, snapshot.kv_capacity_gb / snapshot.kv_gb_s
        )
        rates = np.fmin(rates, snapshot.max_concurrency / snapshot.service_s)
        usd = snapshot.hold_usd / rates + snapshot.route_usd / np.maximum(1e-12, snapshot.rate_rps[:, None])
    usd = np.where(snapshot.compatible, usd * np.where(late | wrong, 10.0, 1.0), np.inf)
    pools = [tuple(np.flatnonzero(column)) for column in snapshot.gpu_use.T]
    chosen: set[int] = set(np.flatnonzero(snapshot.fleet).tolist())
    for row in usd:
        taken: dict[tuple[int, ...], int] = {}
        for c in np.argsort(row, kind="stable"):
            if np.isfinite(row[c]) and taken.get(pools[c], 0) < per_pool:
                taken[pools[c]] = taken.get(pools[c], 0) + 1
                chosen.add(int(c))
    return np.array(sorted(chosen), dtype=np.int64)
