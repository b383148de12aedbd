"""Measure seconds per plan by size (Table 5)."""

from __future__ import annotations

import time
from typing import Any

from .batch import Batch
from .regime import fresh, nominal, plan_usd, planner

#: Plans of GH and AGH are timed over this many repetitions, the shortest counts.
REPEATS = 3


def _runtime(method: str, size: str, seed: int, limit_s: float | None) -> dict[str, Any]:
    instance = fresh(size, seed)
    snapshot = nominal(instance)
    extra: dict[str, Any] = {}
    if limit_s is not None:
        extra = {"time_limit_s": limit_s, "clock": time.process_time}
    if method == "DM McCormick":
        solver = planner("DM", instance, formulation="mccormick", **extra)
    else:
        solver = planner(method, instance, **extra)
    if hasattr(solver, "prepare"):
        solver.prepare(snapshot)
    seconds, plan = [], None
    for _ in range(REPEATS if limit_s is None else 1):
        started = time.process_time()
        plan = solver.plan(snapshot)
        seconds.append(time.process_time() - started)
    assert plan is not None
    value = {"cpu_s": min(seconds), "plan_usd": plan_usd(plan), "status": plan.status}
    value["unserved"] = float(plan.diagnostics["unserved"].sum())
    if plan.bound_usd is not None:
        value["bound_usd"] = plan.bound_usd * 288
        value["incumbents"] = [(s, usd * 288) for s, usd in plan.diagnostics["incumbents"]]
    return value


def runtime_batch(
    methods: tuple[str, ...], sizes: tuple[str, ...], seeds: range, limit_s: float | None = None
) -> Batch:
    """Return cells of Table 5: GH and AGH without a limit, DM and DM McCormick with one."""
    keys = [
        {"method": method, "size": size, "seed": seed, "limit_s": limit_s}
        for seed in seeds
        for size in sizes
        for method in methods
    ]
    return Batch("runtime", keys, _runtime)
