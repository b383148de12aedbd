"""Plan fleets at nominal parameters and judge them over scenarios (Figure 2 (a)-(c), Table 2)."""

from __future__ import annotations

from typing import Any

from fleetgym.capacity.two_stage import two_stage_evaluate
from fleetgym.model.instance import Instance
from fleetgym.model.planning import Plan

from .batch import Batch
from .regime import BASE, first_stage, fresh, holding_usd, nominal, plan_usd, variant

STRESSES = (1.0, 1.2, 1.5)
#: Scenarios of Table 2: budget per 24 h, factor on the penalties of image and video.
BUDGETS = {"S1": (100.0, 1.0), "S2": (75.0, 1.0), "S3": (72.0, 1.0), "S4": (75.0, 5.0), "S5": (72.0, 5.0)}
#: Budgets that bind in every instance: shares of what AGH pays at S1.
TIGHT = {"90 %": 0.9, "80 %": 0.8, "60 %": 0.6}


def _judged(instance: Instance, plan: Plan, scenarios: int, **modes: Any) -> dict[str, Any]:
    found = two_stage_evaluate(instance, plan, scenarios=scenarios, **modes)
    summary = found.summary()
    return {
        "cost_usd": summary["cost_usd"]["mean"],
        "violation": 100.0 * summary["violation_rate"]["mean"],
        "terms_usd": summary["terms_usd"],
    }


def _planned(plan: Plan, instance: Instance) -> dict[str, Any]:
    return {
        "plan_usd": plan_usd(plan),
        "pay_usd": holding_usd(plan, nominal(instance)),
        "unserved": float(plan.diagnostics["unserved"].max()),
    }


def _stress(method: str, seed: int, scenarios: int, size: str) -> dict[str, Any]:
    instance = fresh(size, seed)
    plan = first_stage(method, instance)
    value = _planned(plan, instance)
    for routes in ("frozen", "deployed"):
        for stress in STRESSES:
            modes = {"routes": routes, "stress": stress}
            value[f"{routes} {stress:g}"] = _judged(instance, plan, scenarios, **modes)
    value["elastic 1"] = _judged(instance, plan, scenarios, routes="deployed", slo="elastic")
    value["memory 1"] = _judged(instance, plan, scenarios, routes="deployed", memory=True)
    return value


def _budget(method: str, case: str, seed: int, scenarios: int, size: str) -> dict[str, Any]:
    instance = fresh(size, seed)
    if case in TIGHT:
        pay_usd = holding_usd(first_stage("AGH", instance), nominal(instance))
        budget_usd, media_penalty = TIGHT[case] * pay_usd, 1.0
    else:
        budget_usd, media_penalty = BUDGETS[case]
    instance = variant(instance, budget_usd=budget_usd, media_penalty=media_penalty)
    plan = first_stage(method, instance)
    value = _planned(plan, instance)
    for routes in ("frozen", "deployed"):
        value[routes] = _judged(instance, plan, scenarios, routes=routes)
    return value


def stress_batch(methods: tuple[str, ...], seeds: range, scenarios: int, size: str = BASE) -> Batch:
    """Return the cells of Figure 2 (a)-(c)."""
    keys = [
        {"method": method, "seed": seed, "scenarios": scenarios, "size": size}
        for seed in seeds
        for method in methods
    ]
    return Batch("stress", keys, _stress)


def budget_batch(methods: tuple[str, ...], seeds: range, scenarios: int, size: str = BASE) -> Batch:
    """Return the cells of Table 2 and of tighter budgets."""
    keys = [
        {"method": method, "case": case, "seed": seed, "scenarios": scenarios, "size": size}
        for seed in seeds
        for case in (*BUDGETS, *TIGHT)
        for method in methods
    ]
    return Batch("budgets", keys, _budget)
