"""Compute the cost and SLO violations of a fleet or an agent on generated days: mean and worst decile."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from fleetgym.agents.agent import Agent
from fleetgym.agents.arguments import whole_at_least
from fleetgym.agents.registry import make_agent, make_planner, parse_agent
from fleetgym.agents.rolling import Static
from fleetgym.agents.view import View
from fleetgym.capacity.choice import MARGIN, Choice, Limits, choose, window_to_plan
from fleetgym.capacity.commitment import commitment_usd, committed, reserved_pools
from fleetgym.capacity.held import MISSED, MISSED_OF, UNSERVED, HeldFleets, shares
from fleetgym.files.errors import FleetgymError
from fleetgym.model.conditions import Conditions
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.library import InstanceSource, load_instance
from fleetgym.model.planning import Plan, Planner
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import COST_TERMS

#: Shares of what the plan holds of a reserved pool that are tried as a commitment, on this many days.
COMMITTED_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
COMMITMENT_DAYS = 3

#: Of the days on which plans are judged, so that no stored scenario is among them.
RISK_STREAM = 0x7269736B

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
    workload_miss_share: np.ndarray  # (days, I) of each workload's requests

    @property
    def cost_usd(self) -> np.ndarray:
        """Cost of each day, (days,)."""
        return self.terms_usd.sum(axis=1)

    def summary(self) -> dict[str, Any]:
        """Return mean, P95 and worst decile of cost and shares, and the mean of each cost term.

        Returns
        -------
        dict
            ``days``, ``seed``; ``cost_usd``, ``miss_share`` and ``unserved_share`` with ``mean``, its
            ``standard_error``, ``p95`` and ``worst_decile`` each (see `worst_decile`); ``terms_usd`` by name.
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
        "standard_error": float(values.std() / math.sqrt(len(values))),
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
        draw_scenario(instance, np.random.default_rng([RISK_STREAM, seed, k]), f"risk-{k}")
        for k in range(days)
    ]


def fleet_risk(
    instance: InstanceSource,
    fleet: Sequence[int] | np.ndarray,
    *,
    days: int = 100,
    seed: int = 0,
    running: np.ndarray | None = None,
    progress: Progress | None = None,
) -> Risk:
    """Play a static fleet over generated days.

    If the fleet runs when a day begins, it pays no start-up. Replicas that a drop takes away are wanted back, and
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
    running : ndarray of int, shape (C,), optional
        What runs when a day begins; by default the fleet.
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
    held = HeldFleets(instance, [RISK_STREAM, seed], running)
    return _held_risk(held, fleet, days, seed, progress)


def _held_risk(
    held: HeldFleets, fleet: Sequence[int] | np.ndarray, days: int, seed: int, progress: Progress | None
) -> Risk:
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
    from fleetgym.envs.day import play_day
    from fleetgym.envs.fleet_alloc import FleetAllocEnv

    instance = load_instance(instance)
    env, ledger = FleetAllocEnv(instance), _Ledger(seed, instance.num_workloads)
    for done, scenario in enumerate(generated_days(instance, days, seed), start=1):
        for window, (_, _, info) in enumerate(play_day(env, agent, scenario, seed=done - 1)):
            terms_usd = np.array([info[name] for name in COST_TERMS])
            rate_rps = Conditions.of(scenario, window).rate_rps
            ledger.add(rate_rps, terms_usd, info["miss_share"], info["unserved_share"])
        ledger.end_day()
        if progress is not None:
            progress(done, days)
    return ledger.close()


class _Ledger:
    """Sums windows into days."""

    def __init__(self, seed: int, workloads: int):
        self.seed, self._workloads = seed, workloads
        self._days: list[np.ndarray] = []
        self._begin_day()

    def _begin_day(self) -> None:
        self._terms = np.zeros(len(COST_TERMS))
        self._requests = np.zeros((3, self._workloads))  # missed, unserved, all; times seconds per window

    def add(
        self, rate_rps: np.ndarray, terms_usd: np.ndarray, miss: np.ndarray, unserved: np.ndarray
    ) -> None:
        self._terms += terms_usd
        self._requests += rate_rps * miss, rate_rps * unserved, rate_rps

    def end_day(self) -> None:
        self._days.append(np.append(self._terms, shares(self._requests)))
        self._begin_day()

    def close(self) -> Risk:
        return _risk(np.array(self._days), self.seed)


def _risk(days: np.ndarray, seed: int) -> Risk:
    """Return the risk of days (days, 10 + I) as `fleetgym.capacity.held` has them."""
    return Risk(
        seed=seed,
        terms_usd=days[:, : len(COST_TERMS)],
        miss_share=days[:, MISSED],
        unserved_share=days[:, UNSERVED],
        workload_miss_share=days[:, MISSED_OF:],
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RiskyPlan:
    """A plan, and what became of it on generated days."""

    plan: Plan
    margin: float  # it is for (1 + margin) times nominal demand
    risk: Risk | None
    plays: bool  # whether the risk is that of an agent that plans again and again
    choice: Choice | None = None  # what the plan was chosen among
    kinds_risk: tuple[Risk, ...] = ()  # of the best plan of each kind of the choice, on the days of `risk`
    committed_gpus: np.ndarray | None = None  # (G,) reserved GPUs that are paid all day


def plan_with_risk(
    instance: InstanceSource,
    agent: str = "agh",
    *,
    margin: float | Literal["best"] | None = None,
    days: int = 100,
    seed: int = 0,
    limits: Limits | None = None,
    running: Sequence[int] | np.ndarray | None = None,
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
        Plan for (1 + margin) times nominal demand. ``"best"``: the plan is chosen on generated days, see
        `fleetgym.capacity.choice.choose`. By default the agent's own margin if it has one, else the best; nominal
        demand if no days are played.
    days : int
        Days to play; 0 for none.
    seed : int
        Of the days.
    limits : Limits, optional
        What a plan that is held must keep.
    running : array_like of int, shape (C,), optional
        What runs already; days begin with it. By default the plan runs when a day begins.
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
    made, planner = make_agent(agent), make_planner(agent)
    plays = not isinstance(made, Static)
    if plays and (margin is not None or limits is not None):
        raise FleetgymError(
            f"{agent!r} plans again and again: a margin is given as in 'agh-rolling(margin=0.2)', and limits are for "
            "plans that are held"
        )
    own = "margin" in parse_agent(agent).arguments
    if margin is not None and own:
        raise FleetgymError(f"{agent!r} has a margin of its own: leave it, or the other margin, away")
    if isinstance(margin, float) and not (math.isfinite(margin) and margin > -1.0):
        raise FleetgymError(f"expected a margin above -1, got {margin!r}")
    if running is not None:
        running = np.array(View(instance).actions.check_fleet(np.asarray(running)), dtype=np.int64)
        instance = instance.replace(nominal_fleet=running)

    def bar(what: str) -> Progress | None:
        return None if progress is None else progress(what)

    if plays:
        return _play(instance, made, planner, days, seed, bar)
    fixed = (
        float(getattr(made, "margin", 0.0)) if own else None if margin in (None, "best") else float(margin)
    )
    if not days and margin != "best" and limits is None:
        planned = planner.plan(window_to_plan(View(instance), fixed or 0.0))
        return RiskyPlan(plan=planned, margin=fixed or 0.0, risk=None, plays=False)
    choice = choose(
        instance,
        planner,
        margin=fixed,
        limits=limits,
        seed=seed,
        running=running,
        progress=bar("choosing a plan"),
    )
    found = RiskyPlan(
        plan=_plan_of(choice, instance, planner), margin=choice.margin, risk=None, plays=False, choice=choice
    )
    if not days:
        return found
    held = HeldFleets(instance, [RISK_STREAM, seed], running)
    risk = _held_risk(held, found.plan.fleet, days, seed, bar("playing days"))
    others = tuple(_held_risk(held, tried.fleet, days, seed, None) for tried in choice.kinds)
    return dataclasses.replace(found, risk=risk, kinds_risk=others)


def _plan_of(choice: Choice, instance: Instance, planner: Planner) -> Plan:
    """Return the plan that was chosen, with all that its planner knows if it is the planner's alone."""
    fleet = np.array(choice.best.fleet)
    if choice.best.kind == MARGIN:
        plan = planner.plan(window_to_plan(View(instance), choice.margin))
        if np.array_equal(plan.fleet, fleet):
            return plan
    return Plan(fleet=fleet)


def _play(
    instance: Instance,
    agent: Agent,
    planner: Planner,
    days: int,
    seed: int,
    bar: Callable[[str], Progress | None],
) -> RiskyPlan:
    """Let an agent play; of reserved GPUs, commit to as many as cost least."""
    margin = float(getattr(agent, "margin", 0.0))
    planned = planner.plan(window_to_plan(View(instance), margin))
    found = RiskyPlan(plan=planned, margin=margin, risk=None, plays=True)
    if not days:
        return found
    gpus = best_commitment(instance, agent, planned.fleet, seed, bar("choosing a commitment"))
    risk = committed_risk(instance, agent, gpus, days, seed, bar("playing days"))
    if reserved_pools(instance).any():
        planned = planner.plan(window_to_plan(View(committed(instance, gpus)), margin))
    return dataclasses.replace(found, plan=planned, risk=risk, committed_gpus=gpus)


def committed_risk(
    instance: Instance, agent: Agent, gpus: np.ndarray, days: int, seed: int, progress: Progress | None
) -> Risk:
    """Return an agent's risk with reserved GPUs paid for; the commitment is part of the rent of every day."""
    risk = agent_risk(committed(instance, gpus), agent, days=days, seed=seed, progress=progress)
    terms_usd = risk.terms_usd.copy()
    terms_usd[:, COST_TERMS.index("rental")] += commitment_usd(instance, gpus)
    return dataclasses.replace(risk, terms_usd=terms_usd)


def best_commitment(
    instance: Instance, agent: Agent, fleet: np.ndarray, seed: int, progress: Progress | None
) -> np.ndarray:
    """Return how many GPUs of each reserved pool to commit to, (G,): those with which days cost least."""
    held = instance.gpu_use @ fleet
    is_reserved = reserved_pools(instance)
    found = np.where(is_reserved, held, [pool.cap_gpus for pool in instance.pools])
    pools = np.flatnonzero(is_reserved)
    costs: dict[tuple[int, ...], float] = {}
    for step, (g, share) in enumerate(itertools.product(pools, COMMITTED_SHARES), start=1):
        tried = found.copy()
        tried[g] = min(instance.pools[g].cap_gpus, round(share * held[g]))
        for gpus in (found, tried):
            if tuple(gpus) not in costs:
                risk = committed_risk(instance, agent, gpus, COMMITMENT_DAYS, seed + 1_000_003, None)
                costs[tuple(gpus)] = float(risk.cost_usd.mean())
        found = tried if costs[tuple(tried)] < costs[tuple(found)] else found
        if progress is not None:
            progress(step, len(pools) * len(COMMITTED_SHARES))
    return found
