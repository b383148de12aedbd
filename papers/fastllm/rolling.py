"""Compare static and replanned fleets over a day of 288 windows (Table 4).

Plans are computed once per trial and volatility; every way of costing reads the same plans.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym.agents.view import View
from fleetgym.capacity.two_stage import VIOLATION, SecondStage
from fleetgym.model.instance import Instance
from fleetgym.model.planning import Plan

from .batch import Batch
from .regime import BASE, WINDOWS, fresh, planner

SIGMAS = (0.01, 0.02, 0.03, 0.04, 0.05)
#: A replica granted after the first window pays the rent of this many windows; the paper charges nothing.
STARTUP_WINDOWS = 3
#: A planner that minds start-up changes its fleet if that pays within an hour.
PAYBACK_WINDOWS = 12
#: Groups of policies: (method, windows between plans). DM's are slow, so they are cells of their own.
GROUPS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "greedy": (("GH", WINDOWS), ("AGH", WINDOWS), ("DM", WINDOWS), ("GH", 1), ("AGH", 1)),
    "dm-hourly": (("DM", 12),),
    "dm-5min": (("DM", 1),),
}
_STREAM = 0x77616C6B


@dataclasses.dataclass(frozen=True)
class Policy:
    """How plans are used."""

    method: str
    every: int  # windows between plans
    sees_now: bool = True  # judges by the coming window's demand, as the paper; else by the last one's
    minds_startup: bool = False

    @property
    def name(self) -> str:
        """As in Table 4: method and period; then what differs from the paper."""
        period = {WINDOWS: "24h", 12: "1h", 1: "5min"}[self.every]
        last, mind = "" if self.sees_now else ", sees last", ", minds start-up" if self.minds_startup else ""
        return f"{self.method}-{period}{last}{mind}"


def policies(method: str, every: int) -> list[Policy]:
    """Return the ways in which one series of plans is used."""
    if every == WINDOWS:
        return [Policy(method, every)]
    return [
        Policy(method, every),
        Policy(method, every, minds_startup=True),
        Policy(method, every, sees_now=False),
        Policy(method, every, sees_now=False, minds_startup=True),
    ]


def demand(instance: Instance, trial: int, sigma: float, windows: int) -> np.ndarray:
    """Return arrivals per second, (windows, I): lambda(t+1) = lambda(t) exp(N(0, sigma)) from the nominal rates.

    A trial's normals are the same for every sigma.
    """
    rng = np.random.default_rng([_STREAM, trial])
    steps = rng.standard_normal((windows, instance.num_workloads))
    steps[0] = 0.0
    rate = np.array([w.rate_rps for w in instance.workloads])
    return rate * np.exp(sigma * np.cumsum(steps, axis=0))


def plans(
    instance: Instance, method: str, every: int, rates: np.ndarray, **arguments: Any
) -> dict[int, Plan]:
    """Return a plan for every window in which one is due, each for that window's own demand."""
    solver, view = planner(method, instance, **arguments), View(instance)
    return {t: solver.plan(view.snapshot(rate_rps=rates[t])) for t in range(0, len(rates), every)}


class Day:
    """A day's demand on an instance; remembers what each fleet costs in each window."""

    def __init__(self, instance: Instance, rates: np.ndarray, routes: str):
        self.instance, self.rates, self.routes = instance, rates, routes
        self._stages: dict[bytes, SecondStage] = {}
        self._known: dict[tuple[bytes, int], tuple[float, float]] = {}
        self._hold_usd = View(instance).snapshot().hold_usd

    def key(self, plan: Plan) -> bytes:
        """Return what tells plans apart: the fleet, and its routes if these are frozen."""
        routes = plan.eligible.tobytes() if self.routes == "frozen" else b""
        return np.asarray(plan.fleet).tobytes() + routes

    def cost(self, plan: Plan, t: int) -> tuple[float, float]:
        """Return the window's cost in USD and its violation rate."""
        key = self.key(plan)
        if (key, t) not in self._known:
            if key not in self._stages:
                self._stages[key] = SecondStage(self.instance, plan, routes=self.routes)
            routed = self._stages[key].solve(self.rates[t : t + 1])
            violated = np.mean(routed.unserved_share > VIOLATION)
            self._known[key, t] = (float(routed.terms_usd.sum()) / WINDOWS, float(violated))
        return self._known[key, t]

    def startup_usd(self, old: Plan, new: Plan) -> float:
        """Return the fee for the replicas that `new` adds."""
        grants = np.maximum(0, new.fleet - old.fleet)
        return STARTUP_WINDOWS * float(grants @ self._hold_usd)

    def play(self, series: Mapping[int, Plan], policy: Policy) -> dict[str, float]:
        """Return the day's cost, start-up fees, violations and changes under keep-best."""
        now, usd, fees, violated, changes = series[0], 0.0, 0.0, 0.0, 0
        for t in range(len(self.rates)):
            seen = t if policy.sees_now else max(0, t - 1)
            new = series.get(seen)  # what is seen a window late is planned for a window late
            if t > 0 and new is not None and self.key(new) != self.key(now):
                fee = self.startup_usd(now, new)
                saved = self.cost(now, seen)[0] - self.cost(new, seen)[0]
                if saved * PAYBACK_WINDOWS > (fee if policy.minds_startup else 0.0):
                    now, fees, changes = new, fees + fee, changes + 1
            window = self.cost(now, t)
            usd, violated = usd + window[0], violated + window[1]
        return {
            "cost_usd": usd,
            "startup_usd": fees,
            "violation": 100.0 * violated / len(self.rates),
            "changes": changes,
        }


@functools.lru_cache(maxsize=16)
def _static(method: str, trial: int, size: str) -> Plan:
    """Return the plan for nominal demand, with which every day of a trial begins."""
    instance = _instance(trial, size)
    rates = demand(instance, trial, 0.0, 1)
    return plans(instance, method, WINDOWS, rates, **_limits(method))[0]


def _instance(trial: int, size: str) -> Instance:
    return fresh(size, 2000 + trial)


def _limits(method: str) -> dict[str, Any]:
    return {"gap": 0.005, "node_limit": 500} if method == "DM" else {}


def _trial(group: str, trial: int, sigma: float, windows: int, size: str) -> dict[str, Any]:
    instance = _instance(trial, size)
    rates = demand(instance, trial, sigma, windows)
    days = {routes: Day(instance, rates, routes) for routes in ("frozen", "deployed")}
    value: dict[str, Any] = {}
    for method, every in GROUPS[group]:
        series: dict[int, Plan] = {0: _static(method, trial, size)}
        if every < WINDOWS:
            series = plans(instance, method, every, rates, **_limits(method))
        used = policies(method, every)
        for policy in used:
            for routes, day in days.items():
                value[f"{policy.name} | {routes}"] = day.play(series, policy)
        fleets = {plan.fleet.tobytes() for plan in series.values()}
        value[f"fleets {used[0].name}"] = len(fleets)
    return value


def rolling_batch(
    group: str, sigmas: tuple[float, ...], trials: int, windows: int = WINDOWS, size: str = BASE
) -> Batch:
    """Return the cells of a group of Table 4's rows."""
    keys = [
        {"group": group, "trial": trial, "sigma": sigma, "windows": windows, "size": size}
        for trial in range(trials)
        for sigma in sigmas
    ]
    return Batch("rolling", keys, _trial)
