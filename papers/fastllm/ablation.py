"""Switch off one mechanism of AGH and GH at a time (Table 3)."""

from __future__ import annotations

from typing import Any

import numpy as np

from .batch import Batch
from .regime import BASE, broken_rows, first_stage, fresh, nominal, plan_usd

CASES = ("all", "m1", "m2", "m3")


def _ablation(method: str, without: str, seed: int, size: str) -> dict[str, Any]:
    instance = fresh(size, seed)
    snapshot = nominal(instance)
    switches = {} if without == "all" else {without: False}
    plan = first_stage(method, instance, **switches)
    used = np.flatnonzero(plan.fleet)
    # The paper's grid has TP = PP = 1 for every pair; an instance leaves out options that cannot hold the weights.
    smallest = {s: members[0] for s, members in enumerate(instance.slot_members)}
    slot_of = {c: s for s, members in enumerate(instance.slot_members) for c in members}
    too_small = [c for c in used if instance.gpu_use[:, smallest[slot_of[int(c)]]].sum() > 1]
    return {
        "plan_usd": plan_usd(plan),
        "broken": broken_rows(plan, snapshot),
        "unserved": float(plan.diagnostics["unserved"].max()),
        "groups": int(used.size),
        "groups_single_gpu_too_small": len(too_small),
        "changed": bool(np.any(plan.fleet != first_stage(method, instance).fleet)),
    }


def ablation_batch(seeds: range, size: str = BASE) -> Batch:
    """Return the cells of Table 3."""
    keys = [
        {"method": method, "without": without, "seed": seed, "size": size}
        for seed in seeds
        for method in ("GH", "AGH")
        for without in CASES
    ]
    return Batch("ablation", keys, _ablation)
