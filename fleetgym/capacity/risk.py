"""A fleet or an agent and generated days in; what a day costs and misses, on average and in the worst tenth, out."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from fleetgym.agents.agent import Agent
from fleetgym.agents.arguments import whole_at_least
from fleetgym.agents.registry import make_agent, make_planner, parse_agent
from fleetgym.agents.rolling import Static
from fleetgym.agents.view import View
from fleetgym.capacity.held import MISSED, UNSERVED, HeldFleets, shares
from fleetgym.files.errors import FleetgymError
from fleetgym.model.conditions import Conditions
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.library import InstanceSource, load_instance
from fleetgym.model.planning import Plan, Planner, Snapshot
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import COST_TERMS

#: Margins that `best_margin` tries.
MARGINS = (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0, 1.3, 1.6, 2.0)

_STREAM = 0x7269736B  # so that no stored scenario is among the days

Progress = Callable[[int, int], None]


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class Risk:
    """What happened on generated days: one entry per day.

    A day is an episode of the instance. Shares are of the day's requests.
    """

    seed: int
    terms_usd: np.ndarray  # (days, 8) in the order of COST_TERMS
    miss_share: np.ndarray  # (days,) unserved or late
    unserved_share: np.ndarray  # (days,)

    @property
    def cost_usd(self) -> np.ndarray:
        """Cost of each day, (days,)."""
        return self.terms_usd.sum(axis=1)

    def summary(self) -> dict[str, Any]:
        """Return mean, P95 and worst decile of cost and shares, and the mean of each cost term.

        Returns
        -------
        dict
            ``days``, ``seed``; ``cost_usd``, ``miss_share`` and ``unserved_share`` with ``mean``, ``p95`` and
            ``worst_decile`` each (see `worst_decile`); ``terms_usd`` by name.
        """
        series = {
            "cost_usd": self.cost_usd,
            "miss_share": self.miss_share,
            "unserved_share": self.unserved_share,
        }
        means = {name: float(usd) for name, usd in zip(COST_TERMS, self.terms_usd.mean(axis=0), strict=True)}
        return {
            "days": len(self.terms_usd),
            "seed": self.seed,
            **{name: _measures(values) for name, values in series.items()},
            "terms_usd": means,
        }


def _measures(values: np.ndarray) -> dict[str, float]:
    return {
        "mean": float(values.mean()),
        "p95": float(np.quantile(values, 0.95)),
        "worst_decile": worst_decile(values),
    }


def worst_decile(values: np.ndarray) -> float:
    """Return the mean of the largest tenth, rounded up to whole days: the conditional value at risk at 90 %.

    Source: Rockafellar and Uryasev, "Optimization of conditional value-at-risk", Journal of Risk 2 (2000).

    Parameters
    ----------
    values : ndarray, shape (days,)
        Larger is worse.

    Returns
    -------
    float

    Examples
    --------
    >>> worst_decile(np.arange(1.0, 21.0))
    19.5
    """
    worst = max(1, math.ceil(len(values) / 10))
    return float(np.sort(values)[-worst:].mean())


def generated_days(instance: Instance, days: int, seed: int) -> list[Scenario]:
    """Return days drawn from the instance's processes; day k is the same however many are drawn."""
    whole_at_least(1, days=days)
    whole_at_least(0, seed=seed)
    return [
        draw_scenario(instance, np.random.default_rng([_STREAM, seed, k]), f"risk-{k}") for k in range(days)
    ]


def fleet_risk(
    instance: InstanceSource,
    fleet: Sequence[int] | np.ndarray,
    *,
    days: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> Risk:
    """Play a static fleet over generated days.

    The fleet runs when a day begins, so it pays no start-up; replicas that a drop takes away are wanted back, and
    pay theirs.

    Parameters
    ----------
    instance : Instance, str or path-like
        The problem, its id or its file.
    fleet : array_like of int, shape (C,)
        Replicas per configuration, within caps and budget.
    days : int
        Days to generate.
    seed : int
        Of the days. The same arguments give the same numbers.
    progress : callable, optional
        Called with the numbers of finished and of all days.

    Returns
    -------
    Risk

    Raises
    ------
    FleetgymError
        If the fleet has other than whole numbers of replicas, or more of them than an action can ask for.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> found = fleet_risk(instance, [1, 0], days=5).summary()
    >>> found["cost_usd"]["mean"] <= found["cost_usd"]["worst_decile"]
    True
    """
    instance = load_instance(instance)
    whole_at_least(1, days=days)
    whole_at_least(0, seed=seed)
    held = HeldFleets(instance, [_STREAM, seed])
    for done in range(1, days + 1):
        held.days(fleet, done)
        if progress is not None:
            progress(done, days)
    return _risk(held.days(fleet, days), seed)


def agent_risk(
    instance: InstanceSource,
    agent: Agent,
    *,
    days: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> Risk:
    """Let an agent play generated days, each an episode of its own from the nominal fleet on.

    Parameters
    ----------
    instance : Instance, str or path-like
        The problem, its id or its file.
    agent : Agent
        Reset before every day, with the day's number as its seed.
    days, seed, progress
        As for `fleet_risk`; equal seeds give equal days.

    Returns
    -------
    Risk
    """
    from fleetgym.envs.fleet_alloc import FleetAllocEnv

    instance = load_instance(instance)
    env, ledger = FleetAllocEnv(instance), _Ledger(seed)
    for done, scenario in enumerate(generated_days(instance, days, seed), start=1):
        observation, info = env.reset(seed=0, options={"scenario": scenario})
        view = View(instance)
        view.update(info)
        agent.reset(view, seed=done - 1)
        for window in range(instance.num_windows):
            view.update(info)
            observation, _, _, _, info = env.step(np.asarray(agent.act(observation, info)))
            terms_usd = np.array([info[name] for name in COST_TERMS])
            rate_rps = Conditions.of(scenario, window).rate_rps
            ledger.add(rate_rps, terms_usd, info["miss_share"], info["unserved_share"])
        ledger.end_day()
        if progress is not None:
            progress(done, days)
    return ledger.close()


class _Ledger:
    """Sums windows into days."""

    def __init__(self, seed: int):
        self.seed = seed
        self._days: list[np.ndarray] = []
        self._begin_day()

    def _begin_day(self) -> None:
        self._terms = np.zeros(len(COST_TERMS))
        self._requests = np.zeros(3)  # missed, unserved, all; times seconds per window

    def add(
        self, rate_rps: np.ndarray, terms_usd: np.ndarray, miss: np.ndarray, unserved: np.ndarray
    ) -> None:
        self._terms += terms_usd
        self._requests += rate_rps @ miss, rate_rps @ unserved, rate_rps.sum()

    def end_day(self) -> None:
        self._days.append(np.append(self._terms, shares(self._requests)))
        self._begin_day()

    def close(self) -> Risk:
        return _risk(np.array(self._days), self.seed)


def _risk(days: np.ndarray, seed: int) -> Risk:
    """Return the risk of days (days, 10) as `fleetgym.capacity.held` has them."""
    return Risk(
        seed=seed,
        terms_usd=days[:, : len(COST_TERMS)],
        miss_share=days[:, MISSED],
        unserved_share=days[:, UNSERVED],
    )


def best_margin(
    instance: InstanceSource,
    planner: Planner,
    *,
    days: int = 30,
    seed: int = 0,
    progress: Progress | None = None,
) -> float:
    """Return the margin over nominal demand whose plan costs least on generated days.

    The days are others than those of `fleet_risk` with the same seed, so that what is chosen here is judged fairly
    there.

    Parameters
    ----------
    instance : Instance, str or path-like
        The problem, its id or its file.
    planner : Planner
        Plans for (1 + margin) times nominal demand, for each of `MARGINS`.
    days, seed, progress
        As for `fleet_risk`; progress counts days over all plans that differ.

    Returns
    -------
    float
        One of `MARGINS`; the smallest of equals.
    """
    instance = load_instance(instance)
    view = View(instance)
    fleets: dict[tuple[int, ...], float] = {}
    for margin in MARGINS:
        plan = planner.plan(window_to_plan(view, margin))
        fleets.setdefault(tuple(int(y) for y in plan.fleet), margin)
    total = len(fleets) * days
    costs = []
    for k, fleet in enumerate(fleets):
        report = None if progress is None else _shifted(progress, k * days, total)
        found = fleet_risk(instance, fleet, days=days, seed=seed + 1_000_003, progress=report)
        costs.append(float(found.cost_usd.mean()))
    return list(fleets.values())[int(np.argmin(costs))]


def window_to_plan(view: View, margin: float = 0.0) -> Snapshot:
    """Return the window that a plan is for: (1 + margin) times nominal demand, and whatever is deployed runs already.

    Parameters
    ----------
    view : View
        Of the instance, at its start.
    margin : float
        Above -1.

    Returns
    -------
    Snapshot
        Nothing costs a fee to start.
    """
    window = view.snapshot(rate_rps=(1.0 + margin) * view.conditions.rate_rps)
    return dataclasses.replace(window, startup_usd=np.zeros_like(window.startup_usd))


def _shifted(progress: Progress, before: int, total: int) -> Progress:
    return lambda done, _: progress(before + done, total)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RiskyPlan:
    """A plan, and what became of it on generated days."""

    plan: Plan
    margin: float  # it is for (1 + margin) times nominal demand
    risk: Risk | None
    plays: bool  # whether the risk is that of an agent that plans again and again
    is_best_margin: bool = False  # whether the margin is the best of those tried


def plan_with_risk(
    instance: InstanceSource,
    agent: str = "agh",
    *,
    margin: float | Literal["best"] | None = None,
    days: int = 100,
    seed: int = 0,
    progress: Callable[[str], Progress] | None = None,
) -> RiskyPlan:
    """Plan for an instance, and play the plan over generated days.

    Parameters
    ----------
    instance : Instance, str or path-like
        The problem, its id or its file.
    agent : str
        The name of an agent that has a planner. If it plans again and again, as those named ``-rolling``, the plan
        is its first and the risk that of the agent; otherwise the risk is that of the plan's fleet.
    margin : float or "best", optional
        Plan for (1 + margin) times nominal demand; by default the agent's own margin. ``"best"``: see
        `best_margin`.
    days : int
        Days to play; 0 for none.
    seed : int
        Of the days.
    progress : callable, optional
        Given what is being done, returns what is called with the numbers of finished and of all days.

    Returns
    -------
    RiskyPlan

    Examples
    --------
    >>> import fleetgym
    >>> found = plan_with_risk(fleetgym.load_instance("fleet-v0/toy/drop"), "gh", days=3)
    >>> found.plan.fleet.tolist(), found.risk.summary()["cost_usd"]["mean"]
    ([2, 0], 20.0)
    """
    instance = load_instance(instance)
    made = make_agent(agent)
    planner = make_planner(agent)
    plays = not isinstance(made, Static)
    if margin is not None and plays:
        raise FleetgymError(
            f"{agent!r} plans again and again: give its margin as in 'agh-rolling(margin=0.2)'"
        )
    if margin is not None and "margin" in parse_agent(agent).arguments:
        raise FleetgymError(f"{agent!r} has a margin of its own: leave it, or the other margin, away")

    def bar(what: str) -> Progress | None:
        return None if progress is None else progress(what)

    is_best = margin == "best"
    if margin == "best":
        margin = best_margin(instance, planner, seed=seed, progress=bar("choosing a margin"))
    elif margin is None:
        margin = float(getattr(made, "margin", 0.0))
    if not (math.isfinite(margin) and margin > -1.0):
        raise FleetgymError(f"expected a margin above -1, got {margin!r}")
    plan = planner.plan(window_to_plan(View(instance), margin))
    risk = None
    if days and plays:
        risk = agent_risk(instance, made, days=days, seed=seed, progress=bar("playing days"))
    elif days:
        risk = fleet_risk(instance, plan.fleet, days=days, seed=seed, progress=bar("playing days"))
    return RiskyPlan(plan=plan, margin=margin, risk=risk, plays=plays, is_best_margin=is_best)
