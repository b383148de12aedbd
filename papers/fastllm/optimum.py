"""Measure how far GH and AGH are from the optimum, by size and SLO."""

from __future__ import annotations

from typing import Any

from .batch import Batch
from .regime import BASE, SIZES, first_stage, fresh, nominal, plan_usd, variant

#: Factors on all delay and error SLOs at once.
LOOSER = (1.0, 1.5, 2.0, 3.0)
#: Sizes that the exact program solves to proof.
PROVEN = SIZES[:3]
#: AGH with this many random orders, none of which ends the search.
MANY_STARTS = {"random_starts": 500, "patience": 508}
PLANS: dict[str, tuple[str, dict[str, int]]] = {
    "GH": ("GH", {}),
    "AGH": ("AGH", {}),
    "DM": ("DM", {}),
    "AGH, 500 starts": ("AGH", MANY_STARTS),
    "DM per-route": ("DM per-route", {}),
}


def _plans(slo: float, seed: int, size: str) -> dict[str, Any]:
    """Return each method's cost, and the share of the demand that it leaves unserved."""
    instance = variant(fresh(size, seed), delay_slo=slo, error_slo=slo)
    value = {}
    for name, (method, arguments) in PLANS.items():
        if size == BASE or name in ("GH", "AGH", "DM"):
            plan = first_stage(method, instance, nominal(instance), **arguments)
            unserved = float(plan.diagnostics["unserved"].sum()) / instance.num_workloads
            value[name] = {"plan_usd": plan_usd(plan), "unserved": unserved}
    return value


def optimum_batch(seeds: range) -> Batch:
    """Return one cell for each factor and instance."""
    keys = [{"slo": slo, "seed": seed, "size": BASE} for slo in LOOSER for seed in seeds]
    return Batch("optimum", keys, _plans)


def sizes_batch(seeds: range, sizes: tuple[str, ...] = PROVEN) -> Batch:
    """Return one cell for each size and instance, with the SLOs as they are."""
    keys = [{"slo": 1.0, "seed": seed, "size": size} for size in sizes for seed in seeds]
    return Batch("optimum", keys, _plans)
