"""A plan and its risk in; what it deploys, where requests go, what that costs and risks, as text or values, out."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetgym.capacity.risk import MARGINS, Risk
from fleetgym.capacity.traces.objectives import Slo, stated_slos
from fleetgym.capacity.traces.token_times import limit_of
from fleetgym.cli.text_tables import NOTHING, align, number, share
from fleetgym.model.instance import Configuration, Instance
from fleetgym.model.planning import Plan

_MUCH_UNSERVED = 0.02
#: Branch and bound nodes for a window's lower bound.
BOUND_NODES = 200


def plan_facts(
    instance: Instance, plan: Plan, *, margin: float = 0.0, risk: Risk | None = None
) -> dict[str, Any]:
    """Return what a plan deploys and what a window costs with all of it serving, as plain values.

    Parameters
    ----------
    instance : Instance
        The problem.
    plan : Plan
        For a window of (1 + margin) times nominal demand.
    margin : float
        What the planner was told.
    risk : Risk, optional
        Of the plan's fleet, or of the agent that plans.

    Returns
    -------
    dict
        ``cost`` in USD per window, start-up left out; ``bound``, which no fleet is below in that window, whoever
        plans it (`fleetgym.bounds.window_bound`); ``gap`` = 1 - bound / cost; ``fleet`` by configuration; ``gpus`` by
        pool; ``budget`` with ``kind``, ``usd`` and what the fleet takes of it, ``held_usd``, per hour (rate) or per
        episode (pool), None without one; ``costs_usd`` by term; ``routing`` by workload, with the slack of its SLOs;
        ``risk``.

    Raises
    ------
    DataError
        If no action wants the plan's fleet.
    """
    from fleetgym.agents.view import View
    from fleetgym.bounds import Effort, window_bound
    from fleetgym.capacity.risk import window_to_plan
    from fleetgym.model.window import COST_TERMS, window_model

    model, view = window_model(instance), View(instance)
    fleet = view.actions.check_fleet(plan.fleet)
    window = window_to_plan(view, margin)
    conditions = type(view.conditions).from_mapping({"rate_rps": window.rate_rps}, view.conditions)
    terms, unserved, miss, routing = model.operate(fleet, conditions, model.new_router())
    costs = {name: float(usd) for name, usd in zip(COST_TERMS, terms, strict=True)}
    costs["rental"] = float(fleet @ model.rent_usd(conditions.price_factor))
    costs["model_storage"] = float(fleet @ model.model_storage_usd)
    cost, bound = sum(costs.values()), window_bound(window, Effort(nodes=BOUND_NODES)).bound_usd
    names = [c.id for c in instance.configurations]
    slos = stated_slos(instance.provenance, [w.id for w in instance.workloads])
    return {
        "instance": instance.id,
        "status": plan.status,
        "margin": margin,
        "window_s": instance.window_s,
        "cost": cost,
        "bound": bound,
        "gap": 1.0 - bound / cost if cost > 0.0 else 0.0,
        "fleet": {names[c]: int(fleet[c]) for c in np.flatnonzero(fleet)},
        "gpus": _gpus(instance, fleet),
        "budget": _budget(instance, costs["rental"] + costs["model_storage"]),
        "costs_usd": {**costs, "cost": cost},
        "routing": {
            w.id: {
                "rate_rps": float(window.rate_rps[i]),
                "to": {names[c]: float(routing[i, c]) for c in np.flatnonzero(routing[i] > 0)},
                "unserved": float(unserved[i]),
                "miss": float(miss[i]),
                "delay_s": _mean(routing[i], window.delay_s[i]),
                "delay_slo_s": w.mean_delay_slo_s,
                "error": _mean(routing[i], window.error[i]),
                "error_slo": w.error_slo,
                "slo": None if slos is None else slos[i].words,
                "missed_at_most": None if slos is None else _missed_at_most(slos[i]),
            }
            for i, w in enumerate(instance.workloads)
        },
        "risk": None if risk is None else risk.summary(),
    }


def _missed_at_most(slo: Slo) -> float | None:
    """Return the share of requests whose first token may be late; None where no percentile was asked for."""
    return None if slo.ttft_percentile is None else 1.0 - slo.ttft_percentile / 100.0


def _mean(shares: np.ndarray, values: np.ndarray) -> float | None:
    """Return the mean over what is served; None where that is nothing."""
    return float(shares @ values / shares.sum()) if shares.sum() > 1e-12 else None


def _gpus(instance: Instance, fleet: np.ndarray) -> dict[str, dict[str, float]]:
    held, rent = instance.gpu_use @ fleet, instance.rental_usd_per_h @ fleet
    return {
        pool.id: {"held": int(held[g]), "cap": pool.cap_gpus, "usd_per_h": float(rent[g])}
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
    return f"{1.0 + facts['margin']:g} times nominal demand" if facts["margin"] else "nominal demand"


# -- text


def describe_plan(
    instance: Instance, facts: dict[str, Any], agent: str, plays: bool = False, is_best_margin: bool = False
) -> str:
    """Return a plan as text.

    Parameters
    ----------
    instance : Instance
        The problem.
    facts : dict
        From `plan_facts`.
    agent : str
        Who planned.
    plays : bool
        Whether the risk is that of an agent that plans again and again.
    is_best_margin : bool
        Whether the margin is the best of those tried.

    Returns
    -------
    str
    """
    numbers = {name: f"#{k}" for k, name in enumerate(_in_order(instance, facts["fleet"]), start=1)}
    parts = [
        f"{instance.id}: plan of {agent} for a window of {planned_demand(facts)}"
        + (", which it is given here and forecasts when it plays" if plays else "")
        + (f" (the best of {len(MARGINS)} margins tried)" if is_best_margin else ""),
        f"fleet\n{_fleet(instance, facts, numbers)}",
        f"routing and SLOs\n{_routes(facts['routing'], numbers)}",
        f"cost with all of it serving, start-up left out\n{_costs(facts)}",
    ]
    if facts["risk"] is not None:
        what = f"{agent} playing" if plays else "this fleet held"
        hours = instance.num_windows * instance.window_s / 3600.0
        parts.append(f"risk: {what}\n{describe_risk(facts['risk'], hours)}")
    parts += _advice(instance, facts, may_have_margin=not (plays or is_best_margin or facts["margin"]))
    return "\n\n".join(parts)


def _advice(instance: Instance, facts: dict[str, Any], may_have_margin: bool) -> list[str]:
    """Return what to look at where much is unserved: at the planned demand, or on generated days only."""
    rates = np.array([route["rate_rps"] for route in facts["routing"].values()])
    unserved = rates @ [route["unserved"] for route in facts["routing"].values()] / max(rates.sum(), 1e-300)
    full = _used_up(instance, facts)
    if unserved > _MUCH_UNSERVED:
        why = full or (
            "there is room for more replicas, so look at penalties (unserved_usd, --penalty), at SLOs that no route "
            "keeps, and at other agents"
        )
        return [f"{100 * unserved:.1f} % is unserved already at {planned_demand(facts)}: {why}."]
    risk = facts["risk"]
    if not may_have_margin or risk is None or risk["unserved_share"]["mean"] <= _MUCH_UNSERVED:
        return []
    loses = instance.dynamics.availability.kind != "constant"
    when = f"when demand is above nominal{' or replicas are lost' if loses else ''}"
    return [f"Much is unserved {when}{f', and {full}' if full else ': try --margin best'}."]


def _used_up(instance: Instance, facts: dict[str, Any]) -> str | None:
    """Return what leaves no room for another replica, in words; None if there is room."""
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


def _fleet(instance: Instance, facts: dict[str, Any], numbers: dict[str, str]) -> str:
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
                " + ".join(dict.fromkeys(tier.precision for tier in tiers)),
                f"{configuration.tensor_parallel} x {configuration.pipeline_parallel}",
                str(replicas),
                str(replicas * _gpus_each(configuration)),
                number(replicas * float(instance.rental_usd_per_h[:, c].sum()), 2),
            ]
        )
    head = ["", "pool", "model", "precision", "TP x PP", "replicas", "GPUs", "USD/h"]
    table = align(head, rows, left=4) if rows else "(empty)"
    held = ", ".join(f"{pool} {g['held']}/{g['cap']}" for pool, g in facts["gpus"].items())
    rent = sum(g["usd_per_h"] for g in facts["gpus"].values())
    text = f"{table}\nGPUs held: {held}; rent {number(rent, 2)} USD/h"
    if (budget := facts["budget"]) is not None:
        per = "h" if budget["kind"] == "rate" else "episode"
        taken = number(budget["held_usd"], 2)
        text += f"\nbudget: {number(budget['usd'], 2)} USD/{per}, of which this fleet takes {taken}"
    return text


def _gpus_each(configuration: Configuration) -> int:
    return sum(use.gpus for use in configuration.uses)


def _routes(routing: dict[str, Any], numbers: dict[str, str]) -> str:
    head = [
        "workload",
        "req/s",
        "unserved %",
        "missed %",
        "delay s",
        "SLO",
        "slack %",
        "error",
        "SLO",
        "slack %",
    ]
    rows, prose = [], []
    for name, route in routing.items():
        rows.append(
            [
                name,
                number(route["rate_rps"], 3),
                share(route["unserved"]),
                share(route["miss"]),
                *_slack(route["delay_s"], route["delay_slo_s"], 2),
                *_slack(route["error"], route["error_slo"], 4),
            ]
        )
        prose.append(", ".join(f"{100 * x:.1f} % {numbers[c]}" for c, x in route["to"].items()) or "nowhere")
    lines = align(head, rows).split("\n")
    # The last column is prose, so it stands apart from the aligned numbers.
    table = [f"{a}  {b}".rstrip() for a, b in zip(lines, ["routed to", "---------", *prose], strict=True)]
    return "\n".join([*table, *_percentiles(routing), *_limits(numbers)])


def _percentiles(routing: dict[str, Any]) -> list[str]:
    """Return for each percentile of the first token that was asked for whether this window keeps it."""
    found = []
    for name, route in routing.items():
        most = route["missed_at_most"]
        if most is not None:
            verdict = "kept" if route["miss"] <= most else "BROKEN"
            asked = f"at most {100 * most:.3g} % asked for by ttft.p{100 - 100 * most:.6g}"
            found.append(f"{name}: {share(route['miss'])} % unserved or late, {asked}: {verdict}")
    return found


def _limits(numbers: dict[str, str]) -> list[str]:
    """Return what engines are to be told, so that times per token and end-to-end latencies are kept."""
    told = {label: limit_of(name) for name, label in numbers.items()}
    return [
        f"{label}: at most {limit} requests at once on a replica (in vLLM --max-num-seqs), which keeps tpot and e2e"
        for label, limit in told.items()
        if limit is not None
    ]


def _slack(value: float | None, slo: float, digits: int) -> list[str]:
    slack = NOTHING if value is None else f"{round(100.0 * (1.0 - value / slo), 1) + 0.0:.1f}"
    return [number(value, digits), f"{slo:.4g}", slack]


def _costs(facts: dict[str, Any]) -> str:
    per_h = 3600.0 / facts["window_s"]
    rows = [
        [name, number(usd, 4), number(usd * per_h, 2), number(usd * per_h * 24.0, 2)]
        for name, usd in facts["costs_usd"].items()
        if usd >= 5e-5 or name == "cost"
    ]
    bound = facts["bound"]
    rows.append(["bound", number(bound, 4), number(bound * per_h, 2), number(bound * per_h * 24.0, 2)])
    table = align(["term", "USD/window", "USD/h", "USD/24 h"], rows)
    saved = facts["gap"] * facts["cost"] * per_h
    return (
        f"{table}\ngap {100.0 * facts['gap']:.2f} %: no fleet serves this window for less than the bound, so another "
        f"one can save at most {number(saved, 2)} USD/h"
    )


def describe_risk(risk: dict[str, Any], hours: float) -> str:
    """Return a risk summary as text; an episode lasts so many hours."""
    day = "day" if abs(hours - 24.0) < 1e-9 else f"episode of {hours:g} h"
    measures = ("mean", "p95", "worst_decile")
    rows = [
        [f"cost USD per {day}", *(number(risk["cost_usd"][m], 2) for m in measures)],
        ["missed %", *(share(risk["miss_share"][m]) for m in measures)],
        ["unserved %", *(share(risk["unserved_share"][m]) for m in measures)],
    ]
    terms = ", ".join(f"{name} {number(usd, 2)}" for name, usd in risk["terms_usd"].items() if usd >= 5e-3)
    drawn = f"{risk['days']} generated {'days' if day == 'day' else 'episodes'}, seed {risk['seed']}"
    table = align([drawn, "mean", "P95", "worst decile"], rows)
    return f"{table}\nmean by term: {terms or 'nothing'}"
