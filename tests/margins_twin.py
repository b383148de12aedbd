"""Say what `Margins` says in plain NumPy: the slow twin of `fleetgym.agents.margin_kernels`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fleetgym.agents.forecasters import KalmanBatch
from fleetgym.agents.margins import FEATURES, GAP, LOWER, PACE, PAYBACK_WINDOWS, RISK
from fleetgym.agents.sizing import FleetSizer
from fleetgym.kernels.sizing import BUDGET_USD, PAYBACK, RENT_FACTOR, size_studied, study_windows
from fleetgym.model.actions import ActionSpace
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.window import window_model

_OF_WORKLOADS = 10
_MOST = 2.0  # times the forecast that the fleet is asked to serve
_TINY = 1e-12


def window_budget_usd(
    instances: Sequence[Instance], which: np.ndarray, spent_usd: np.ndarray, left: np.ndarray
) -> np.ndarray:
    """Return what holding the fleet may cost in the coming window, (n,) USD: budgets for the day are paced."""
    usd = np.array([window_model(instance).budget_usd(0.0) for instance in instances])[which]
    paced = np.array([i.budget is not None and i.budget.kind == "pool" for i in instances])[which]
    if not paced.any():
        return usd
    rest = np.maximum(0.0, usd - spent_usd) * np.minimum(1.0, PACE / np.maximum(1, left))
    return np.where(paced, rest, usd)


class SlowMargins:
    """`Margins`, an array at a time."""

    def __init__(self, instances: Sequence[Instance], which: Sequence[int] | np.ndarray):
        self.instances, self._which = tuple(instances), np.asarray(which, dtype=np.int64)
        self.count = len(self._which)
        self._sizer = FleetSizer(self.instances, RISK)
        self._working = self._sizer.working_space(self.count)
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
        """Take in what a window brought."""
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
        rates = self._rate, *(seen[name] for name in Conditions.WORKLOAD_FIELDS[1:])
        workload = np.ascontiguousarray(np.stack(rates, axis=1))
        price = np.ascontiguousarray(seen["price_factor"], dtype=np.float64)
        self._study = np.empty((self.count, 3, workload.shape[2]))
        study_windows(
            *(self._sizer.problems, self._which, workload, self._available, price, self._fleet),
            *(np.full(workload.shape[2], _MOST), self._money, window == 0, RISK, self._working, self._study),
        )

    def _forecast(self, rate: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rates of the coming window, of that in which what is added serves, and seasonal ones of it."""
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
        target = np.empty_like(self._fleet)
        size_studied(
            *(self._sizer.problems, self._which, self._available, self._fleet, margin, self._money),
            *(self._sizer.most, RISK, self._working, target),
        )
        return target

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
        seen, (told_unserved, told_serving, served) = self._seen, self._study.transpose(1, 0, 2)
        out = np.empty((len(FEATURES), *self._rate.shape))
        rate, unserved = np.maximum(self._rate, _TINY), np.maximum(told_unserved, _TINY)
        serving = np.where(np.isfinite(told_serving), told_serving, unserved)
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
        np.subtract(served, 1.0, out=out[6])
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
        hold_usd = (self._working.rent[:, 0] * self._fleet).sum(axis=1)
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
