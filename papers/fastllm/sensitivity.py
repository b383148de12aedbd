"""Vary two parameters of AGH's plan (Figure 2 (d)-(f))."""

from __future__ import annotations

from typing import Any

import numpy as np

from fleetgym.agents.view import View

from .batch import Batch
from .regime import BASE, first_stage, fresh, plan_usd, variant

FACTORS = (0.6, 0.8, 1.0, 1.25, 1.5)
BUDGETS_USD = (60.0, 75.0, 100.0, 125.0, 150.0)
#: Surface: its two axes, (name, values) each.
SURFACES = {
    "slo": (("delay_slo", FACTORS), ("error_slo", FACTORS)),
    "budget": (("budget_usd", BUDGETS_USD), ("price", FACTORS)),
    "price": (("price", FACTORS), ("delay_slo", FACTORS)),
}


def _point(surface: str, first: float, second: float, seed: int, size: str) -> dict[str, Any]:
    (name_1, _), (name_2, _) = SURFACES[surface]
    changes = {name_1: first, name_2: second}
    price = changes.pop("price", 1.0)
    instance = variant(fresh(size, seed), **changes)
    snapshot = View(instance).snapshot(conditions={"price_factor": np.full(instance.num_pools, price)})
    plan = first_stage("AGH", instance, snapshot)
    gpus = instance.gpu_use.sum(axis=0) * plan.fleet
    tensor = np.array([c.tensor_parallel for c in instance.configurations])
    rented = max(1, int(gpus.sum()))
    return {
        "cost_usd": plan_usd(plan),
        "unserved": float(plan.diagnostics["unserved"].sum()),
        "gpus": int(gpus.sum()),
        "groups": int(plan.fleet.sum()),
        "tensor_parallel": float(tensor @ gpus) / rented,
        "tflops_per_gpu": float(snapshot.compute_tflops @ plan.fleet) / rented,
    }


def sensitivity_batch(seeds: range, size: str = BASE) -> Batch:
    """Return the cells of Figure 2 (d)-(f)."""
    keys = [
        {"surface": surface, "first": first, "second": second, "seed": seed, "size": size}
        for seed in seeds
        for surface, ((_, firsts), (_, seconds)) in SURFACES.items()
        for first in firsts
        for second in seconds
    ]
    return Batch("sensitivity", keys, _point)
