"""Apply the rule `margin` in many episodes side by side, with margins of a learner and features for it.

Nothing here depends on where a workload, a slot or a pool stands in an instance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fleetgym.agents.forecasters import KalmanBatch
from fleetgym.agents.sizing import FleetSizer
from fleetgym.kernels.records import PackedConditions
from fleetgym.kernels.sizing import BUDGET_USD, PAYBACK, RENT_FACTOR
from fleetgym.model.actions import ActionSpace
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.window import window_model

#: Multiple of the forecast demand for which replicas are added; they are kept while useful at `GAP` more.
LOWER, GAP = 1.05, 0.1
#: Windows in which a replica must pay for its start, and how far queue servers are loaded (see `FleetSizer`).
PAYBACK_WINDOWS, RISK = 12, 0.4
#: Cost of a window, at most, over the budget left per coming window.
PACE = 1.25

#: What is known of each workload, then of the fleet, in the order of `Margins.features`.
FEATURES = (
    "level",  # log of the forecast over the nominal rate
    "drift",  # log of the forecast when what is added serves, over that of the next window
    "surprise",  # log of what was seen over its forecast, in standard deviations
    "volatility",  # standard deviation of that forecast's log error
    "season",  # log of the seasonal forecast over this one
    "severity",  # log of what not serving costs over the least that serving costs
    "served",  # how many times the forecast the fleet serves, up to twice, minus one
    "unserved",  # share of the last window
    "missed",  # share of the last window
    "weight",  # share of the workload in what not serving everything costs
    "available",  # share of all GPUs
    "scarcest",  # the least share of a pool
    "price",  # mean log of the price factors
    "left",  # windows to come, up to twelve, over twelve
    "sine",
    "cosine",  # of the time of day
    "tightness",  # cost of holding the fleet over what the budget allows, 0 without one
    "wait",  # windows until what is added serves, over four
    "fee",  # mean start-up fee over the cost of a window
    "size",  # log of the cost of holding the fleet over the least that serving everything costs
)

_OF_WORKLOADS = 10  # of them; the others are the fleet's

#: By how much the ends of an action's range, -1 and 1, change the logarithms of a lower margin and of a gap.
REACH = np.array([0.4, 1.6])

_MOST = 2.0  # times the forecast that the fleet is asked to serve
_TINY = 1e-12


def window_budget_usd(
    instances: Sequence[Instance], which: np.ndarray, spent_usd: np.ndarray, left: np.ndarray
):
    """Return what holding the fleet may cost in the coming window, (n,) USD: budgets for the day are paced.

    Parameters
    ----------
    instances : sequence of Instance
    which : ndarray of int64, shape (n,)
        Each window's instance.
    spent_usd : ndarray, shape (n,)
        Spent on holding so far.
    left : ndarray of int64, shape (n,)
        Windows to come.

    Returns
    -------
    ndarray
    """
    usd = np.array([window_model(instance).budget_usd(0.0) for instance in instances])[which]
    paced = np.array([i.budget is not None and i.budget.kind == "pool" for i in instances])[which]
    if not paced.any():
        return usd
    rest = np.maximum(0.0, usd - spent_usd) * np.minimum(1.0, PACE / np.maximum(1, left))
    return np.where(paced, rest, usd)


def margins_of(action: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower margins and the gaps, each (..., I), that actions (..., I, 2) stand for, cut off at ±1.

    Examples
    --------
    >>> [float(margin[0]) for margin in margins_of(np.zeros((1, 2)))] == [LOWER, GAP]
    True
    """
    factor = np.exp(REACH * np.clip(np.asarray(action, dtype=np.float64), -1.0, 1.0))
    return LOWER * factor[..., 0], GAP * factor[..., 1]


class Margins:
    """The rule `margin` in n episodes, of one instance or of several of one shape.

    Parameters
    ----------
    instances : sequence of Instance
    which : sequence of int, shape (n,)
        The instance of each episode.

    Examples
    --------
    >>> import fleetgym
    >>> from fleetgym.envs.fleet_alloc import FleetAllocEnv
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> env = FleetAllocEnv(instance)
    >>> _, info = env.reset(seed=0)
    >>> rule = Margins([instance], [0])
    >>> rule.see({name: np.asarray(info[name])[None] for name in Margins.SEEN})
    >>> rule.features().shape == (1, 1, len(FEATURES)), rule.actions(rule.targets()).tolist()
    (True, [[1, 0]])
    """

    #: What `see` takes, of a batch's infos.
    SEEN = (*Conditions.FIELDS, "running", "starting", "window", "spent_usd", "unserved_share", "miss_share")

    def __init__(self, instances: Sequence[Instance], which: Sequence[int] | np.ndarray):
        self.instances, self._which = tuple(instances), np.asarray(which, dtype=np.int64)
        self.count = len(self._which)
        self._sizer = FleetSizer(self.instances, RISK)
        self._spaces = [ActionSpace(instance) for instance in self.instances]
        self._rows = [self._which == m for m in range(len(self.instances))]
        models = [window_model(instance) for instance in self.instances]
        waits = [max(c.startup_windows for c in one.configurations) for one in self.instances]
        lead = np.array([one.lead for one in self.instances])
        self._lead, self._ahead = lead[self._which], (lead + waits)[self._which]
        self._aheads = np.unique(self._ahead).tolist()
        self._is_ahead = {k: np.tile(self._ahead == k, 2)[:, None] for k in self._aheads}
        seasonal = [is_seasonal for is_seasonal in (False, True) for _ in self.instances]
        twice = np.concatenate((self._which, self._which + len(self.instances)))
        self._forecasts = KalmanBatch(self.instances * 2, twice, seasonal)  # then the seasonal ones
        nominal = [Conditions.nominal(instance) for instance in self.instances]
        self._nominal_rps = np.array([c.rate_rps for c in nominal])[self._which]
        self._caps = np.maximum(1, [c.available_gpus for c in nominal])[self._which]
        self._windows = np.array([one.num_windows for one in self.instances])[self._which]
        self._turn = np.array([2.0 * np.pi * one.window_s / 86_400.0 for one in self.instances])[self._which]
        fees = [
            np.mean(m.problem.startup_usd / np.maximum(_TINY, m.hold_usd(c.price_factor)))
            for m, c in zip(models, nominal, strict=True)
        ]
        self._fee = np.minimum(fees, 12.0)[self._which] / 12.0
        self._money = np.ones((self.count, 3))
        self._money[:, BUDGET_USD], self._money[:, RENT_FACTOR] = np.inf, 1.0
        self._is_budgeted = any(instance.budget is not None for instance in self.instances)
        self._fleet_features = np.zeros((len(FEATURES) - _OF_WORKLOADS, self.count))
        self._next_rps = np.ones_like(self._nominal_rps)
        self._surprise = np.zeros_like(self._nominal_rps)
        self._everyone = np.ones(self.count, dtype=np.bool_)

    def see(self, seen: Mapping[str, np.ndarray], rows: np.ndarray | None = None) -> None:
        """Take in what a window brought.

        Parameters
        ----------
        seen : mapping of str to ndarray
            Infos of `FleetAlloc-v0`, those in `SEEN`, each (n, ...). An episode at window 0 begins.
        rows : ndarray of bool, shape (n,), optional
            Episodes in which something has happened; by default all.
        """
        rows = self._everyone if rows is None else rows
        window, rate = np.asarray(seen["window"]), np.asarray(seen["rate_rps"], dtype=np.float64)
        begun = rows & (window == 0)
        if begun.any():
            self._forecasts.begin(np.concatenate((begun, begun)))
            self._surprise[begun] = 0.0
            self._next_rps[begun] = np.nan
        news = rows & ((window > 0) | (self._lead == 0))
        if news.any():
            deviation = self._forecasts.deviation(1)[: self.count]
            self._forecasts.take(np.concatenate((rate, rate)), np.concatenate((news, news)))
            floor = 0.05 * self._nominal_rps
            surprise = np.log(np.maximum(rate, floor) / np.maximum(self._next_rps, floor)) / deviation
            known = news[:, None] & np.isfinite(surprise)
            self._surprise = np.where(known, surprise, self._surprise)
        self._study_windows(seen)

    def memory(self) -> tuple[np.ndarray, ...]:
        """Return a copy of what is remembered of earlier windows; see `recall`."""
        return *self._forecasts.memory(), self._surprise.copy()

    def recall(self, memory: tuple[np.ndarray, ...], seen: Mapping[str, np.ndarray]) -> None:
        """Go back to where `memory` was taken, when `seen` was taken in last."""
        *forecasts, surprise = memory
        self._forecasts.recall(forecasts)
        self._surprise = surprise.copy()
        self._study_windows(seen)

    def _study_windows(self, seen: Mapping[str, np.ndarray]) -> None:
        """Forecast demand, and find what it asks of the fleets."""
        window, rate = np.asarray(seen["window"]), np.asarray(seen["rate_rps"], dtype=np.float64)
        self._next_rps, self._rate, self._season_rate = self._forecast(rate)
        self._seen, left = seen, self._windows - window
        if self._is_budgeted:
            budget_usd = window_budget_usd(self.instances, self._which, seen["spent_usd"], left)
            self._money[:, BUDGET_USD] = budget_usd
        self._money[:, PAYBACK] = np.clip(left, 1, PAYBACK_WINDOWS)
        self._fleet = np.ascontiguousarray(seen["running"] + seen["starting"].sum(axis=2), dtype=np.int64)
        self._available = np.ascontiguousarray(seen["available_gpus"], dtype=np.int64)
        workload = np.stack([self._rate, *(seen[name] for name in Conditions.WORKLOAD_FIELDS[1:])], axis=1)
        price = np.ascontiguousarray(seen["price_factor"], dtype=np.float64)
        self._study = self._sizer.study(
            PackedConditions(workload, self._available, price),
            self._fleet,
            self._money,
            which=self._which,
            at_once=window == 0,
            most=_MOST,
        )

    def _forecast(self, rate: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rates of the coming window, of that in which what is added serves, and the seasonal ones of it.

        Where what is added serves in the coming window, that is the rates that were seen.
        """
        coming = self._forecasts.predict(1)
        found = coming
        for ahead in self._aheads:
            if ahead != 1:
                some = self._forecasts.predict(ahead) if ahead else np.concatenate((rate, rate))
                found = np.where(self._is_ahead[ahead], some, found)
        return coming[: self.count], found[: self.count], found[self.count :]

    def targets(self, lower: np.ndarray | float = LOWER, gap: np.ndarray | float = GAP) -> np.ndarray:
        """Return the fleets to hold, int64 (n, C), for margins that broadcast to (n, I)."""
        margin = np.empty((self.count, 2, self._nominal_rps.shape[1]))
        margin[:, 0] = lower
        margin[:, 1] = np.asarray(lower) + gap
        return self._sizer.size_studied(self._available, self._fleet, margin, self._money, self._which)

    def actions(self, targets: np.ndarray) -> np.ndarray:
        """Return the options of `FleetAlloc-v0`, int64 (n, slots), whose targets are some fleets (n, C)."""
        if len(self._spaces) == 1:
            return self._spaces[0].from_fleets(targets)
        actions = np.empty((len(targets), self._spaces[0].nvec.size), dtype=np.int64)
        for space, rows in zip(self._spaces, self._rows, strict=True):
            actions[rows] = space.from_fleets(targets[rows])
        return actions

    def features(self) -> np.ndarray:
        """Return what is known of each workload, float32 (n, I, len(FEATURES)), see `FEATURES`; all within ±5."""
        seen, study = self._seen, self._study
        out = np.empty((len(FEATURES), *self._rate.shape))
        rate, unserved = np.maximum(self._rate, _TINY), np.maximum(study.unserved_usd, _TINY)
        serving = np.where(np.isfinite(study.serving_usd), study.serving_usd, unserved)
        np.divide(rate, self._nominal_rps, out=out[0])
        np.divide(rate, np.maximum(self._next_rps, _TINY), out=out[1])
        np.divide(np.maximum(self._season_rate, _TINY), rate, out=out[4])
        np.divide(unserved, np.maximum(serving, _TINY), out=out[5])
        for logs in (out[:2], out[4:6]):
            np.log(logs, out=logs)
        out[1] *= 4.0
        out[2] = self._surprise
        np.multiply(3.0, self._forecasts.deviation(self._aheads[-1])[: self.count], out=out[3])
        out[4] *= 2.0
        out[5] /= 4.0
        np.subtract(study.served, 1.0, out=out[6])
        out[7], out[8] = seen["unserved_share"], seen["miss_share"]
        np.divide(unserved, unserved.sum(axis=1, keepdims=True), out=out[9])
        out[_OF_WORKLOADS:] = self._of_fleets(serving)[:, :, None]
        np.minimum(np.maximum(out, -5.0, out=out), 5.0, out=out)
        return np.ascontiguousarray(out.transpose(1, 2, 0), dtype=np.float32)

    def _of_fleets(self, serving: np.ndarray) -> np.ndarray:
        """Return what is known of the fleet, (features, n), for the least that serving each workload costs (n, I)."""
        seen, budget, out = self._seen, self._money[:, BUDGET_USD], self._fleet_features
        window = np.asarray(seen["window"])
        turn, share = self._turn * window, self._available / self._caps
        hold_usd = (self._study.hold_usd * self._fleet).sum(axis=1)
        out[0] = self._available.sum(axis=1) / self._caps.sum(axis=1)
        out[1] = share.min(axis=1)
        out[2] = np.log(np.maximum(seen["price_factor"], _TINY)).mean(axis=1)
        out[3] = np.minimum(1.0, (self._windows - window) / 12.0)
        out[4], out[5] = np.sin(turn), np.cos(turn)
        if self._is_budgeted:
            with np.errstate(divide="ignore", invalid="ignore"):
                tightness = hold_usd / np.maximum(budget, _TINY)
            out[6] = np.where(budget < np.inf, tightness, 0.0)
        out[7], out[8] = self._ahead / 4.0, self._fee
        out[9] = np.log(np.maximum(hold_usd, _TINY) / np.maximum(serving.sum(axis=1), _TINY))
        return out
