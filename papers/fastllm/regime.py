"""Generate instances of the paper's regime, and planners as published."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np

from fleetgym.agents.view import View
from fleetgym.baselines.agh import AdaptiveGreedyHeuristic
from fleetgym.baselines.gh import GreedyHeuristic
from fleetgym.baselines.milp import MilpPlanner
from fleetgym.families.generate import generate
from fleetgym.model.instance import Instance
from fleetgym.model.planning import Plan, Planner, Snapshot

BASE = "6-6-10"
SIZES = ("4-4-5", "6-6-10", "10-10-10", "15-15-10", "20-20-20")
#: Windows of a day: money in the paper's regime is per 24 h, an instance's per window.
WINDOWS = 288
#: DM as printed bounds mean delays; "per-route" obeys what GH and AGH obey (6). "+ headroom" plans for 20 % more
#: demand and SLOs that are tighter by a factor of 1.25: the worst of the scenarios without stress.
METHODS = ("GH", "AGH", "DM", "DM per-route", "AGH + headroom", "DM + headroom")
HEADROOM = {"demand": 1.2, "slo": 1.0 / 1.25}


@functools.lru_cache(maxsize=8)
def fresh(size: str, seed: int) -> Instance:
    """Return an instance that no stored set holds: seeds start at 1000."""
    return generate("fastllm", size, seed)


def nominal(instance: Instance) -> Snapshot:
    """Return the first-stage problem at nominal parameters."""
    return View(instance).snapshot()


def storage_limit_usd_per_h(instance: Instance) -> float:
    """Return C_s p_s of (5h): 1000 GB for up to six workloads and in proportion beyond, at the storage price."""
    first = instance.configurations[0]
    params_b = float(first.model.removeprefix("llama-").removesuffix("b"))
    usd_per_gb_h = first.model_storage_usd_per_h / min(2.0 * params_b, 140.0)
    return 1000.0 * max(1.0, instance.num_workloads / 6.0) * usd_per_gb_h


def planner(method: str, instance: Instance, **arguments: Any) -> Planner:
    """Return a method as published: hard SLOs, and the storage limit (5h)."""
    arguments["storage_usd_per_h"] = storage_limit_usd_per_h(instance)
    if method == "DM":
        return MilpPlanner(slo="mean", **arguments)
    make = {"GH": GreedyHeuristic, "AGH": AdaptiveGreedyHeuristic, "DM per-route": MilpPlanner}[method]
    return make(slo="per-route", **arguments)


def first_stage(method: str, instance: Instance, snapshot: Snapshot | None = None, **arguments: Any) -> Plan:
    """Plan for the snapshot, by default the nominal one; with headroom for a harder one."""
    if method.endswith(" + headroom"):
        instance = variant(instance, delay_slo=HEADROOM["slo"], error_slo=HEADROOM["slo"])
        view = View(instance)
        snapshot = view.snapshot(rate_rps=HEADROOM["demand"] * view.conditions.rate_rps)
        method = method.removesuffix(" + headroom")
    return planner(method, instance, **arguments).plan(nominal(instance) if snapshot is None else snapshot)


def plan_usd(plan: Plan) -> float:
    """Return the first-stage objective (5a) per 24 h."""
    return plan.objective_usd * WINDOWS


def holding_usd(plan: Plan, snapshot: Snapshot) -> float:
    """Return the payment per 24 h: rent and model storage."""
    return float(plan.fleet @ snapshot.hold_usd) * WINDOWS


def variant(
    instance: Instance,
    *,
    budget_usd: float | None = None,
    media_penalty: float = 1.0,
    delay_slo: float = 1.0,
    error_slo: float = 1.0,
) -> Instance:
    """Return the instance with another budget per 24 h, and with penalties or SLOs multiplied.

    `media_penalty` multiplies phi of image and video workloads, as in scenarios S4 and S5.
    """
    workloads = [
        dataclasses.replace(
            w,
            unserved_usd=w.unserved_usd * (media_penalty if w.id.startswith(("image", "video")) else 1.0),
            mean_delay_slo_s=w.mean_delay_slo_s * delay_slo,
            error_slo=w.error_slo * error_slo,
        )
        for w in instance.workloads
    ]
    budget = instance.budget
    if budget_usd is not None:
        budget = dataclasses.replace(budget, usd=budget_usd / 24.0)
    return dataclasses.replace(instance, workloads=tuple(workloads), budget=budget)


def broken_rows(plan: Plan, snapshot: Snapshot) -> list[str]:
    """Return which of the first stage's constraints a plan breaks, each route's delay being one of them."""
    instance, x = snapshot.instance, np.asarray(plan.diagnostics["x"])
    used = x > 1e-9
    delay_slo = np.array([[w.mean_delay_slo_s] for w in instance.workloads])
    error_slo = np.array([w.error_slo for w in instance.workloads])
    rate = snapshot.rate_rps[:, None]
    hours = instance.window_s / 3600.0
    stored = np.array([c.model_storage_usd_per_h for c in instance.configurations]) @ plan.fleet * hours
    data = (snapshot.requests[:, None] * instance.performance.storage_usd * x).sum()
    rows = {
        "delay": (np.where(used, snapshot.delay_s, 0.0), delay_slo),
        "error": ((snapshot.error * x).sum(axis=1), error_slo),
        "compute": ((rate * snapshot.work_tflop * x).sum(axis=0), snapshot.compute_tflops * plan.fleet),
        "memory": ((rate * snapshot.kv_gb_s * x).sum(axis=0), snapshot.kv_capacity_gb * plan.fleet),
        "budget": (plan.fleet @ snapshot.hold_usd, snapshot.budget_usd),
        "storage": (stored + data, storage_limit_usd_per_h(instance) * hours),
    }
    return [row for row, (value, limit) in rows.items() if np.any(value > limit * (1 + 1e-6) + 1e-12)]
