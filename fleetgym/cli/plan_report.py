"""Report a plan as text or values: what to deploy, where requests go, cost and risk."""

from __future__ import annotations

import dataclasses
import textwrap
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgym.capacity.choice import MARGIN, Choice
from fleetgym.capacity.risk import Risk, RiskyPlan
from fleetgym.capacity.traces.objectives import slo_words
from fleetgym.model.instance import Configuration, Instance
from fleetgym.model.planning import Plan, Snapshot
from fleetgym.runtime.text_tables import align, align_columns, number, share

_MUCH_MISSED = 0.02
_MANY_LONG = 0.01  # of a workload's prompts
_CHANCE = 1.645  # standard errors: what one in twenty seeds exceeds
_WIDTH = 80
_IDLE = 0.005  # a load that is printed as 0 %
_HOURS_A_MONTH = 730.0  # as clouds bill
#: Terms that somebody is paid; the others are penalties, which a plan weighs against them.
_CASH = ("rental", "startup", "model_storage", "data_storage")
#: Branch and bound nodes for a window's lower bound.
BOUND_NODES = 200
_HELPFUL_GAP = 0.05  # a bound further below the plan's cost says more of the search for it than of the plan
_WORTH_TELLING = 0.10  # of a day's cost: what planning every hour must save


def plan_facts(
    instance: Instance, plan: Plan, *, margin: float = 0.0, risk: Risk | None = None
) -> dict[str, Any]:
    """Return what a plan deploys and what a window costs with all of it serving, as plain values.

    The plan is for a window of (1 + margin) times nominal demand.

    Returns
    -------
    dict
        ``cost`` in USD per window, start-up left out; ``bound``, which no fleet is below in that window, whoever
        plans it (`fleetgym.bounds.window_bound`); ``gap`` = 1 - bound / cost; ``fleet`` by configuration; ``gpus`` by
        pool; ``budget`` with ``kind``, ``usd`` and what the fleet takes of it, ``held_usd``, per hour (rate) or per
        episode (pool), None without one; ``busy``, the load of each configuration's replicas at nominal demand, 1
        being full; ``costs_usd`` by term; ``routing`` by workload, with the slack of its SLOs, ``late_by_length``, the
        share of what is served whose prompts alone take longer than the TTFT SLO, and ``missed_on_days``, the mean
        share of its requests that are unserved or late; ``risk``.

    Raises
    ------
    DataError
        If no action wants the plan's fleet.
    """
    from fleetgym.agents.view import View
    from fleetgym.bounds import Effort, window_bound
    from fleetgym.capacity.choice import window_to_plan
    from fleetgym.model.window import COST_TERMS, window_model

    model, view = window_model(instance), View(instance)
    fleet = view.actions.check_fleet(plan.fleet)
    window = window_to_plan(view, margin)
    conditions = type(view.conditions).from_mapping({"rate_rps": window.rate_rps}, view.conditions)
    terms, unserved, miss, routing = model.operate(fleet, conditions, model.new_router())
    costs = {name: float(usd) for name, usd in zip(COST_TERMS, terms, strict=True)}
    costs["rental"] = float(fleet @ model.rent_usd(conditions.price_factor))
    costs["model_storage"] = float(fleet @ model.model_storage_usd)
    nominal = view.snapshot()
    _, _, _, usual = model.operate(fleet, view.conditions, model.new_router())
    cost, bound = sum(costs.values()), window_bound(window, Effort(nodes=BOUND_NODES)).bound_usd
    names = [c.id for c in instance.configurations]
    slos = None if instance.stated is None else instance.stated.slos
    return {
        "instance": instance.id,
        "status": plan.status,
        "margin": margin,
        "window_s": instance.window_s,
        "cost": cost,
        "bound": bound,
        "gap": 1.0 - bound / cost if cost > 0.0 else 0.0,
        "fleet": {names[c]: int(fleet[c]) for c in np.flatnonzero(fleet)},
        "busy": dict(zip(names, _busy(nominal, usual, fleet).tolist(), strict=True)),
        "gpus": _gpus(instance, fleet),
        "budget": _budget(instance, costs["rental"] + costs["model_storage"]),
        "costs_usd": {**costs, "cost": cost},
        "routing": {
            w.id: {
                "rate_rps": float(window.rate_rps[i]),
                "to": {names[c]: float(routing[i, c]) for c in np.flatnonzero(routing[i] > 0)},
                "unserved": float(unserved[i]),
                "miss": float(miss[i]),
                "late_by_length": _mean(routing[i], window.own_late[i]),
                "delay_s": _mean(routing[i], window.delay_s[i]),
                "delay_slo_s": w.delay_limit_s,
                "error": _mean(routing[i], window.error[i]),
                "error_slo": w.error_slo,
                "slo": None if slos is None else slos[i].words,
                "missed_at_most": None if slos is None else slos[i].missed_at_most,
                "missed_on_days": None if risk is None else float(risk.workload_miss_share[:, i].mean()),
            }
            for i, w in enumerate(instance.workloads)
        },
        "risk": None if risk is None else risk.summary(),
    }


def risky_facts(
    instance: Instance, found: RiskyPlan, agent: str, running: np.ndarray | None = None
) -> dict[str, Any]:
    """Return what `plan_facts` does, and how the plan was chosen, what it commits to, and what it changes.

    Returns
    -------
    dict
        Beside what `plan_facts` has: ``agent``; ``risk_of``: "fleet" if it is held, "agent" if that plays, None;
        ``choice``: what the plan was chosen among, None; ``commitments``: by reserved pool GPUs and USD per episode;
        ``switch``: replicas to add and to release, the fees in USD, and the windows until all serve, None.
    """
    facts = plan_facts(instance, found.plan, margin=found.margin, risk=found.risk)
    held = instance.gpu_use @ np.asarray(found.plan.fleet)
    gpus = held if found.committed_gpus is None else found.committed_gpus
    return {
        **facts,
        "agent": agent,
        "risk_of": None if found.risk is None else "agent" if found.plays else "fleet",
        "choice": None if found.choice is None else _choice_facts(instance, found.choice, found.kinds_risk),
        "commitments": _commitments(instance, gpus),
        "switch": None if running is None else _switch(instance, running, np.asarray(found.plan.fleet)),
    }


def _choice_facts(instance: Instance, choice: Choice, risks: Sequence[Risk]) -> dict[str, Any]:
    """Return what a plan was chosen among; the best of each kind with its means on the days of the risk, if any."""
    ids = [c.id for c in instance.configurations]
    means = [(float(risk.cost_usd.mean()), float(risk.miss_share.mean())) for risk in risks]
    means = means or [(tried.cost_usd, tried.miss_share) for tried in choice.kinds]
    return {
        "plans": choice.plans,
        "days": choice.days,
        "refined": choice.refined,
        "kind": choice.best.kind,
        "miss_at_most": choice.limits.miss_at_most,
        "miss_share": choice.best.miss_share,
        "cost_usd": choice.best.cost_usd,
        "best_of_kinds": [
            {
                "kind": tried.kind,
                "fleet": {ids[c]: tried.fleet[c] for c in np.flatnonzero(tried.fleet)},
                "gpus": _gpus(instance, np.array(tried.fleet)),
                "cost_usd": cost_usd,
                "miss_share": miss_share,
                "keeps_limits": tried.keeps_limits,
            }
            for tried, (cost_usd, miss_share) in zip(choice.kinds, means, strict=True)
        ],
    }


def _commitments(instance: Instance, gpus: np.ndarray) -> dict[str, Any]:
    from fleetgym.capacity.commitment import commitment_usd

    only = np.eye(instance.num_pools, dtype=int)
    return {
        pool.id: {"gpus": int(gpus[g]), "usd_per_episode": commitment_usd(instance, gpus * only[g])}
        for g, pool in enumerate(instance.pools)
        if pool.market == "reserved" and gpus[g] > 0
    }


def _switch(instance: Instance, running: np.ndarray, fleet: np.ndarray) -> dict[str, Any]:
    ids, change = [c.id for c in instance.configurations], fleet - running
    added = np.maximum(change, 0)
    starts = [c.startup_windows for c in instance.configurations]
    return {
        "add": {ids[c]: int(change[c]) for c in np.flatnonzero(change > 0)},
        "release": {ids[c]: int(-change[c]) for c in np.flatnonzero(change < 0)},
        "fees_usd": float(added @ [c.startup_usd for c in instance.configurations]),
        "windows": max((starts[c] for c in np.flatnonzero(added)), default=0),
    }


def _busy(window: Snapshot, routing: np.ndarray, fleet: np.ndarray) -> np.ndarray:
    """Return the load of a fleet's replicas: of compute, memory or slots whichever is highest, (C,).

    Replicas that differ in their pool alone share their load evenly, which costs as much as any other way.
    """
    loads = np.vstack(
        [
            *(window.work_tflop, window.kv_gb_s, window.service_s),
            *(window.compute_tflops, window.kv_capacity_gb, window.max_concurrency),
        ]
    )
    _, kind = np.unique(loads, axis=1, return_inverse=True)
    alike = kind.reshape(-1, 1) == kind.reshape(1, -1)
    routed = window.rate_rps[:, None] * routing @ alike * fleet / np.maximum(alike @ fleet, 1)
    load = [
        (routed * window.work_tflop).sum(axis=0) / np.maximum(window.compute_tflops, 1e-12),
        (routed * window.kv_gb_s).sum(axis=0) / np.maximum(window.kv_capacity_gb, 1e-12),
        (routed * window.service_s).sum(axis=0) / window.max_concurrency,
    ]
    return np.max(load, axis=0) / np.maximum(fleet, 1)


def _mean(shares: np.ndarray, values: np.ndarray) -> float | None:
    """Return the mean over what is served; None where that is nothing."""
    return float(shares @ values / shares.sum()) if shares.sum() > 1e-12 else None


def _gpus(instance: Instance, fleet: np.ndarray) -> dict[str, dict[str, Any]]:
    held, rent = instance.gpu_use @ fleet, instance.rental_usd_per_h @ fleet
    return {
        pool.id: {
            "held": int(held[g]),
            "cap": pool.cap_gpus,
            "usd_per_h": float(rent[g]),
            "gpu_type": pool.gpu_type,
            "market": pool.market,
        }
        for g, pool in enumerate(instance.pools)
    }


def _budget(instance: Instance, held_usd: float) -> dict[str, Any] | None:
    """Return the budget and what it pays for a fleet that costs so much to hold in a window."""
    if instance.budget is None:
        return None
    windows = instance.num_windows if instance.budget.kind == "pool" else 3600.0 / instance.window_s
    return {"kind": instance.budget.kind, "usd": instance.budget.usd, "held_usd": held_usd * windows}


def planned_demand(facts: dict[str, Any]) -> str:
    """Return in words the demand that was planned for."""
    if facts["choice"] is not None and facts["choice"]["kind"] != MARGIN:
        return f"generated days: {facts['choice']['kind']}"
    return _multiple(facts)


def _nominal_words(instance: Instance) -> str:
    """Return the nominal demand, by which a user sees whether it is theirs."""
    return f"nominal: {sum(w.rate_rps for w in instance.workloads):.3g} requests/s"


def _multiple(facts: dict[str, Any]) -> str:
    return f"{1.0 + facts['margin']:g} times nominal demand" if facts["margin"] else "nominal demand"


# -- text


def describe_plan(instance: Instance, facts: dict[str, Any], details: bool = False) -> str:
    """Return a plan as text: warnings first, then what to rent, the risk, and what it was compared with.

    Details are how the plan was chosen, its routes and SLOs in a window, and its cost there by term, beside the bound.
    Without generated days there is nothing else to judge the plan by, so these are then always told.
    """
    numbers = {name: f"#{k}" for k, name in enumerate(_in_order(instance, facts["fleet"]), start=1)}
    agent, plays = facts["agent"], facts["risk_of"] == "agent"
    details = details or facts["risk"] is None
    parts = [
        *_warnings(instance, facts),
        wrap(
            f"{instance.id}: plan of {agent} for {planned_demand(facts)} ({_nominal_words(instance)})"
            + (", which it is given here and forecasts when it plays" if plays else "")
        ),
        "\n".join(
            [
                f"buy\n{_fleet(instance, facts, numbers, details)}",
                *_limits(instance, numbers),
                *_idle(facts, numbers),
                *_extrapolated(instance, facts),
                *_long_prompts(facts["routing"]),
            ]
        ),
    ]
    if facts["switch"] is not None:
        parts.append(_switch_words(instance, facts))
    hours = instance.num_windows * instance.window_s / 3600.0
    if facts["risk"] is not None:
        what = f"{agent} playing" if plays else "this fleet held"
        risk = describe_risk(facts["risk"], hours, what, details)
        parts.append(
            "\n".join([risk, *_queue_words(facts), *_limit_words(facts), *percentile_words(facts["routing"])])
        )
    if facts["choice"] is not None and (details or len(facts["choice"]["best_of_kinds"]) > 1):
        parts.append(_choice_words(facts, details))
    parts += [*_hourly_words(facts), *_known_words(instance)]
    if not details:
        several = len({pool.gpu_type for pool in instance.pools}) > 1
        other = "; --why-not each-gpu: other GPUs" * several
        told = f"--details: routes, SLOs, cost by term and its bound; --schedule: fleets by hour{other}"
        parts.append(wrap(told))
        return "\n\n".join(parts)
    window = f"a window of {_multiple(facts)}"
    knows_no = "; the bound knows no drops" if _loses(instance) else ""
    parts += [
        f"{window}: routing and SLOs\n{_routes(facts['routing'], numbers)}",
        f"its cost, start-up left out{knows_no}\n{_costs(facts)}",
    ]
    return "\n\n".join(parts)


def _loses(instance: Instance) -> bool:
    return instance.dynamics.availability.kind != "constant"


@dataclasses.dataclass(frozen=True)
class Missed:
    """Many SLO violations: their share of the requests, and the rest of the warning in words."""

    share: float
    why: str

    def __str__(self) -> str:
        return wrap(f"WARNING: {self.percent()} {self.why}.")

    def percent(self) -> str:
        """Return the share in words."""
        return f"{100 * self.share:.1f} %"


def missed(instance: Instance, facts: dict[str, Any]) -> Missed | None:
    """Return the warning of a plan with many SLO violations, at the planned demand or on generated days only."""
    rates = np.array([route["rate_rps"] for route in facts["routing"].values()])
    unserved = rates @ [route["unserved"] for route in facts["routing"].values()] / max(rates.sum(), 1e-300)
    full = used_up(instance, facts)
    if unserved > _MUCH_MISSED and facts["choice"] is None:
        why = full or (
            "there is room for more replicas, so look at penalties (unserved_usd, --penalty), at SLOs that no route "
            "keeps, and at other agents"
        )
        return Missed(unserved, f"is unserved already at {planned_demand(facts)}: {why}")
    risk = facts["risk"]
    if risk is None:
        return None
    mean, most = risk["miss_share"]["mean"], (facts["choice"] or {}).get("miss_at_most")
    chance = 0.0 if most is None else _CHANCE * risk["miss_share"]["standard_error"]
    if mean - chance <= (_MUCH_MISSED if most is None else most):
        return None
    when = f"when demand is above plan{' or spot GPUs are lost' if _loses(instance) else ''}"
    if full:
        what = full
    elif most is not None:
        what = f"more than the {100 * most:g} % that were allowed and kept on the days of the choice"
    elif facts["choice"] is not None:
        what = "it still is the cheapest plan at these penalties; --miss-at-most 1% asks for a better one"
    else:
        what = "try --margin best" if facts["risk_of"] == "fleet" else "give the agent a margin"
    return Missed(mean, f"of the requests are missed on generated days, {when}: {what}")


def _warnings(instance: Instance, facts: dict[str, Any]) -> list[str]:
    """Return warnings of a plan."""
    found = missed(instance, facts)
    if found is not None:
        return [str(found)]
    if facts["risk"] is None and _loses(instance):
        return ["WARNING: spot GPUs can be lost; --days 100 says what that costs."]
    return []


def _limit_words(facts: dict[str, Any]) -> list[str]:
    """Return how the limit on misses was kept on the days of the choice; nothing without a limit."""
    choice = facts["choice"]
    if choice is None or choice["miss_at_most"] is None:
        return []
    missed, error = (100.0 * facts["risk"]["miss_share"][name] for name in ("mean", "standard_error"))
    return [
        wrap(
            f"limit {100 * choice['miss_at_most']:g} %: kept with 95 % confidence, {share(choice['miss_share'])} % on "
            f"the {choice['days']} days of the choice; the {missed:.2f} % above has a standard error of {error:.2f}"
        )
    ]


def _queue_words(facts: dict[str, Any]) -> list[str]:
    """Return what "missed" assumes, and what a queue makes late that turns nobody away."""
    late = facts.get("late_without_shedding")
    if late is None:
        return []
    return [
        wrap(
            "missed: unserved or late, if a router turns away at once what exceeds the fleet. Without that, a queue "
            f"makes {share(late)} % late (first {facts['late_without_shedding_days']} of these days)"
        )
    ]


def _hourly_words(facts: dict[str, Any]) -> list[str]:
    """Return the savings of planning every hour, if they are large."""
    hourly = facts.get("hourly")
    if hourly is None or hourly["cost_usd"] > (1.0 - _WORTH_TELLING) * hourly["held_usd"]:
        return []
    cost, held = hourly["cost_usd"], hourly["held_usd"]
    return [
        wrap(
            f"PLAN BY THE HOUR: days cost {number(cost, 2)} instead of {number(held, 2)} USD "
            f"({100 * (1 - cost / held):.0f} % less, {hourly['days']} of the days above) if the fleet follows demand: "
            "--schedule"
        )
    ]


def _known_words(instance: Instance) -> list[str]:
    """Return how much history an imported instance has, what that is worth, and what is assumed."""
    facts = instance.stated
    if facts is None or facts.calendar is None:
        return []
    calendar, slos = facts.calendar, facts.slos
    days = len(instance.history.rate_rps) // instance.num_windows
    guessed = f"; assumed: {', '.join(calendar.assumed)}" if calendar.assumed else ""
    if calendar.history == "stated":
        text = f"target rates, no trace: {', '.join(calendar.assumed)}"
    elif calendar.history == "measured":
        ends = " to ".join(dict.fromkeys([calendar.days[0], calendar.days[-1]]))
        seen = f"{days} day{'s' * (days > 1)} of {ends}"
        worth = (
            ""
            if days >= 20
            else f": P95 is a day worse than 19 of 20, more than {days} day{'s' * (days > 1)} can tell"
        )
        text = f"history: {seen}{worth}{guessed}"
    else:
        worth = "so days are as good as what is assumed: import a week first"
        text = f"history: less than a day, {worth}{guessed}"
    unserved, late = ([getattr(w, name) for w in instance.workloads] for name in ("unserved_usd", "late_usd"))
    assumed = any(None in (slo.unserved_usd, slo.late_usd) for slo in slos)
    how = (
        f"assumed where none was given: unserved {facts.penalty}, late a third of that"
        if assumed
        else "as given"
    )
    lines = [
        text,
        f"SLOs {slo_words(slos, [w.id for w in instance.workloads])}",
        f"penalties of {_range(unserved)} USD unserved, {_range(late)} USD late; {how}",
    ]
    return ["\n".join(map(wrap, lines))]


def _range(values: Sequence[float]) -> str:
    """Return the least and the largest value in a few digits.

    Examples
    --------
    >>> _range([0.25, 0.5]), _range([2.0])
    ('0.25 to 0.5', '2')
    """
    return " to ".join(dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values))))


def wrap(text: str) -> str:
    """Return a text in lines of a screen's width."""
    return textwrap.fill(text, _WIDTH, break_long_words=False)


def _switch_words(instance: Instance, facts: dict[str, Any]) -> str:
    switch = facts["switch"]
    lines = [
        f"  {what:<8}{count} x {name}" for what in ("add", "release") for name, count in switch[what].items()
    ]
    if not lines:
        return "from what runs: nothing to change"
    ready = switch["windows"] * instance.window_s / 60.0
    cost = f"costs {number(switch['fees_usd'], 2)} USD once; all of it serves after {ready:g} minutes"
    return "\n".join(["from what runs", *lines, f"  {cost}"])


def _choice_words(facts: dict[str, Any], details: bool) -> str:
    choice = facts["choice"]
    kinds = choice["best_of_kinds"]
    broken = ["" if tried["keeps_limits"] else "; breaks a limit" for tried in kinds]
    table = align_columns(
        [
            ("best of its kind", [tried["kind"] for tried in kinds]),
            ("USD/day", [number(tried["cost_usd"], 2) for tried in kinds]),
            ("missed %", [share(tried["miss_share"]) for tried in kinds]),
            ("GPUs", [short_fleet(t["gpus"]) + why for t, why in zip(kinds, broken, strict=True)]),
        ],
        prose=True,
    )
    chosen = f"chosen on {choice['days']} other generated days"
    if details:
        refined = "; the best of each kind was then refined" if choice["refined"] else ""
        chosen += f", among {choice['plans']} plans{refined}"
    if facts["risk"] is None:
        return f"{table}\n" + wrap(f"means of the {choice['days']} generated days of the choice")
    cheaper = [
        tried["kind"]
        for tried in kinds
        if tried["keeps_limits"] and tried["cost_usd"] < facts["risk"]["cost_usd"]["mean"]
    ]
    why = f"; there {', '.join(cheaper)} cost more than the plan" if cheaper else ""
    return f"{table}\n" + wrap(f"means of the {facts['risk']['days']} days above; {chosen}{why}")


def cash_usd(risk: dict[str, Any]) -> float:
    """Return the mean cash cost of a day."""
    return float(sum(usd for name, usd in risk["terms_usd"].items() if name in _CASH))


def short_fleet(gpus: dict[str, dict[str, Any]]) -> str:
    """Return the GPUs held by pool in a few words, such as ``2 B200 + 2 H100 spot``."""
    words = [
        f"{g['held']} {g['gpu_type']}{'' if g['market'] == 'on-demand' else ' ' + g['market']}"
        for g in gpus.values()
        if g["held"]
    ]
    return " + ".join(words) or "none"


def used_up(instance: Instance, facts: dict[str, Any]) -> str | None:
    """Return in words the limit that allows no further replica; None if there is none."""
    fleet = np.array([facts["fleet"].get(c.id, 0) for c in instance.configurations])
    free = np.array([pool["cap"] - pool["held"] for pool in facts["gpus"].values()])
    fits = np.all(instance.gpu_use <= free[:, None], axis=0)
    fits &= fleet < [c.max_replicas for c in instance.configurations]
    if not fits.any():
        return "no further replica fits the caps"
    budget = facts["budget"]
    if budget is None:
        return None
    hours = 1.0 if budget["kind"] == "rate" else instance.num_windows * instance.window_s / 3600.0
    rent = instance.rental_usd_per_h.sum(axis=0) + [
        c.model_storage_usd_per_h for c in instance.configurations
    ]
    affordable = budget["held_usd"] + hours * rent <= budget["usd"]
    return None if np.any(fits & affordable) else "no further replica fits the budget"


def _in_order(instance: Instance, fleet: dict[str, int]) -> list[str]:
    """Return configurations by pool, then model."""
    place = {tier.id: tier.pool for tier in instance.tiers}
    order = [pool.id for pool in instance.pools]

    def key(name: str) -> tuple[int, str, str]:
        configuration = instance.configurations[instance.configuration_index[name]]
        return order.index(place[configuration.uses[0].tier]), configuration.model, name

    return sorted(fleet, key=key)


def _fleet(instance: Instance, facts: dict[str, Any], numbers: dict[str, str], details: bool) -> str:
    place = {tier.id: tier for tier in instance.tiers}
    rows = []
    for name, label in numbers.items():
        c = instance.configuration_index[name]
        configuration, replicas = instance.configurations[c], facts["fleet"][name]
        tiers = [place[use.tier] for use in configuration.uses]
        rows.append(
            [
                label,
                " + ".join(dict.fromkeys(tier.pool for tier in tiers)),
                configuration.model,
                " + ".join(dict.fromkeys(tier.precision for tier in tiers)) + f" {_parallel(configuration)}",
                str(replicas),
                str(replicas * _gpus_each(configuration)),
                f"{100.0 * facts['busy'][name]:.0f} %",
                number(replicas * float(instance.rental_usd_per_h[:, c].sum()), 2),
            ]
        )
    head = ["", "pool", "model", "TP x PP", "count", "GPUs", "busy", "USD/h"]
    table = align(head, rows, left=4) if rows else "(empty)"
    rent = sum(g["usd_per_h"] for g in facts["gpus"].values())
    hours = instance.num_windows * instance.window_s / 3600.0
    when = ", at first" if facts["risk_of"] == "agent" else " throughout"
    if facts["risk_of"] != "agent" and abs(hours - 24.0) < 1e-9:
        when = f", {number(24.0 * rent, 0)} a day, {number(_HOURS_A_MONTH * rent, 0)} a month (730 h)"
        if any(pool["held"] and pool["market"] == "spot" for pool in facts["gpus"].values()):
            when += " at most"
    text = f"{table}\n" + wrap(f"{short_fleet(facts['gpus'])}: rent {number(rent, 2)} USD/h{when}")
    if details:
        held = ", ".join(f"{pool} {g['held']}/{g['cap']}" for pool, g in facts["gpus"].items() if g["held"])
        text += "\n" + wrap(f"held of the most to be had: {held or 'none'}")
    committed_usd = 0.0
    for pool, paid in facts["commitments"].items():
        usd, n = number(paid["usd_per_episode"], 2), paid["gpus"]
        days = None if instance.stated is None else instance.stated.commitment_days(pool)
        per = "day" if abs(hours - 24.0) < 1e-9 else f"episode of {hours:g} h"
        total = 0.0 if days is None else 24.0 / hours * days * paid["usd_per_episode"]
        term = f", {number(total, 0)} in the {days} days" if days else "; no term was given"
        text += "\n" + wrap(f"of this, committed: {n} {pool}, {usd} USD per {per}, used or not{term}")
        committed_usd += total
    if len(facts["commitments"]) > 1 and committed_usd:
        text += f"\ncommitted in total: {number(committed_usd, 0)} USD"
    if (budget := facts["budget"]) is not None:
        per = "h" if budget["kind"] == "rate" else "episode"
        taken = number(budget["held_usd"], 2)
        text += f"\nbudget: {number(budget['usd'], 2)} USD/{per}, of which this fleet takes {taken}"
    return text


def _parallel(configuration: Configuration) -> str:
    """Return TP x PP; of a node that several replicas fill, also how many."""
    parts = f"{configuration.tensor_parallel}x{configuration.pipeline_parallel}"
    gpus = configuration.tensor_parallel * configuration.pipeline_parallel
    several = _gpus_each(configuration) // gpus
    return f"{several} of {parts}" if len(configuration.uses) == 1 and several > 1 else parts


def _gpus_each(configuration: Configuration) -> int:
    return sum(use.gpus for use in configuration.uses)


def _routes(routing: dict[str, Any], numbers: dict[str, str]) -> str:
    routes = routing.values()
    to = [", ".join(f"{100 * x:.1f} % {numbers[c]}" for c, x in route["to"].items()) for route in routes]
    table = align_columns(
        [
            ("workload", routing),
            ("req/s", [number(route["rate_rps"], 3) for route in routes]),
            ("missed %", [share(route["miss"]) for route in routes]),
            ("unserved %", [share(route["unserved"]) for route in routes]),
            ("delay s", [number(route["delay_s"], 2) for route in routes]),
            ("SLO", [number(route["delay_slo_s"], 2) for route in routes]),
            ("error", [number(route["error"], 4) for route in routes]),
            ("SLO", [f"{route['error_slo']:.4g}" for route in routes]),
            ("routed to", [text or "nowhere" for text in to]),
        ],
        prose=True,
    )
    is_played = any(route["missed_on_days"] is not None for route in routes)
    return "\n".join([table, *([] if is_played else percentile_words(routing))])


def percentile_words(routing: dict[str, Any]) -> list[str]:
    """Return for each percentile of the first token that was asked for whether days, or else the window, keep it."""
    found = []
    for name, route in routing.items():
        most = route["missed_at_most"]
        if most is not None:
            missed = route["miss"] if route["missed_on_days"] is None else route["missed_on_days"]
            verdict = "kept" if missed <= most else "BROKEN"
            asked = f"ttft.p{100 - 100 * most:.6g} asks for at most {100 * most:.3g} %"
            found.append(wrap(f"{name}: {share(missed)} % unserved or late, {asked}: {verdict}"))
    return found


def _limits(instance: Instance, numbers: dict[str, str]) -> list[str]:
    """Return what each engine is to be told: with more requests at once its tokens take longer than was planned."""
    if instance.stated is None:
        return []
    found: dict[str, list[str]] = {}
    for name, label in numbers.items():
        configuration = instance.configurations[instance.configuration_index[name]]
        gpus = configuration.tensor_parallel * configuration.pipeline_parallel
        engines = max(1, _gpus_each(configuration) // gpus)
        limit = instance.stated.engine_limit(name)
        why = "" if limit is None else "for its SLOs, "
        most = limit or configuration.max_concurrency // engines
        told = f"{why}at most {most} requests at once (in vLLM --max-num-seqs)"
        found.setdefault(told, []).append(label)
    return [wrap(f"{', '.join(labels)}: {told}") for told, labels in found.items()]


def _idle(facts: dict[str, Any], numbers: dict[str, str]) -> list[str]:
    """Return what replicas are for that have nothing to do at nominal demand."""
    labels = [label for name, label in numbers.items() if facts["busy"][name] < _IDLE]
    told = f"{', '.join(labels)}: idle at nominal demand; needed where demand is above what the others serve"
    return [wrap(told)] if labels else []


def _extrapolated(instance: Instance, facts: dict[str, Any]) -> list[str]:
    """Return the GPU types in a plan of which nothing was measured."""
    known = () if instance.stated is None else instance.stated.extrapolated
    held = {pool["gpu_type"] for pool in facts["gpus"].values() if pool["held"]}
    return [f"{gpu}: times are extrapolated, nothing was measured on it" for gpu in known if gpu in held]


def _long_prompts(routing: dict[str, Any]) -> list[str]:
    """Return the workloads of which many prompts alone break the TTFT SLO, whatever the load."""
    shares = {name: route["late_by_length"] or 0.0 for name, route in routing.items()}
    return [
        wrap(f"{share(late)} % of {name}'s prompts take longer than its ttft by their length alone")
        for name, late in shares.items()
        if late > _MANY_LONG
    ]


def _costs(facts: dict[str, Any]) -> str:
    per_h = 3600.0 / facts["window_s"]
    rows = [
        [name, number(usd, 4), number(usd * per_h, 2), number(usd * per_h * 24.0, 2)]
        for name, usd in facts["costs_usd"].items()
        if usd >= 5e-5 or name == "cost"
    ]
    head, bound = ["term", "USD/window", "USD/h", "USD/24 h"], facts["bound"]
    if facts["gap"] > _HELPFUL_GAP:
        return align(head, rows)
    rows.append(["bound", number(bound, 4), number(bound * per_h, 2), number(bound * per_h * 24.0, 2)])
    table = align(head, rows)
    saved = facts["gap"] * facts["cost"] * per_h
    return f"{table}\n" + wrap(
        f"gap {100.0 * facts['gap']:.2f} %: no fleet serves this window for less than the bound, so another "
        f"one can save at most {number(saved, 2)} USD/h"
    )


def describe_risk(risk: dict[str, Any], hours: float, what: str, details: bool) -> str:
    """Return the risk of a fleet or an agent as text; details add the costs by term."""
    day = "day" if abs(hours - 24.0) < 1e-9 else f"episode of {hours:g} h"
    measures = ("mean", "p95", "worst_decile")
    rows = [
        [f"USD per {day}, with penalties", *(number(risk["cost_usd"][m], 2) for m in measures)],
        ["missed %", *(share(risk["miss_share"][m]) for m in measures)],
        ["unserved %", *(share(risk["unserved_share"][m]) for m in measures)],
    ]
    terms = ", ".join(f"{name} {number(usd, 2)}" for name, usd in risk["terms_usd"].items() if usd >= 5e-3)
    cash = cash_usd(risk)
    penalties = sum(risk["terms_usd"].values()) - cash
    drawn = f"{risk['days']} generated {'days' if day == 'day' else 'episodes'}, seed {risk['seed']}"
    table = f"risk: {what}\n{align([drawn, 'mean', 'P95', 'worst decile, mean'], rows)}"
    table += "\n" + wrap(
        f"{number(cash, 2)} in cash and {number(penalties, 2)} of penalties; the mean's standard error is "
        f"{number(risk['cost_usd']['standard_error'], 2)}"
    )
    return table + ("\n" + wrap(f"mean by term: {terms or 'nothing'}") if details else "")
