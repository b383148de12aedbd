"""Snapshots for the tests, in plain NumPy: an instance in, the problem of one window out."""

from __future__ import annotations

import numpy as np

from fleetgym.model.instance import Affine, Instance
from fleetgym.model.planning import LateSegments, Snapshot


def _affine(quantity: Affine, instance: Instance) -> np.ndarray:
    tokens_in = np.array([[w.input_tokens] for w in instance.workloads])
    tokens_out = np.array([[w.output_tokens] for w in instance.workloads])
    return quantity.base + quantity.per_input_token * tokens_in + quantity.per_output_token * tokens_out


def _segments(instance: Instance, safe: float) -> LateSegments:
    """Return segments with one safe utilisation everywhere and no overload."""
    counts = np.array([c.max_replicas for c in instance.configurations])
    rows = int(counts.sum())
    return LateSegments(
        offsets=np.concatenate(([0], np.cumsum(counts)[:-1])).astype(np.int64),
        safe_utilization=np.full(rows, safe),
        width=np.zeros((rows, 3)),
        slope_usd=np.zeros((rows, 3)),
    )


def snapshot_of(
    instance: Instance,
    rate_scale: float | np.ndarray = 1.0,
    safe: float = 0.95,
    budget_usd: float | None = None,
) -> Snapshot:
    """Return the nominal problem of a window at scaled rates; budgets of kind "rate" only."""
    performance, hours = instance.performance, instance.window_s / 3600
    rate = np.array([w.rate_rps for w in instance.workloads]) * rate_scale
    requests = rate * instance.window_s
    day = instance.penalty_basis == "day"
    weight = np.where(rate > 0, instance.window_s / 86400, 0.0) if day else requests
    delay = _affine(performance.delay_s, instance)
    prefill = _affine(performance.prefill_s, instance)
    tokens = np.array([[w.input_tokens + w.output_tokens] for w in instance.workloads])
    kv_per_token = np.array([c.kv_gb_per_token for c in instance.configurations])
    ttft = np.array([[np.inf if w.ttft_slo_s is None else w.ttft_slo_s] for w in instance.workloads])
    late = np.array([w.late_usd for w in instance.workloads])
    price = np.array([w.delay_usd_per_s for w in instance.workloads])
    if budget_usd is None:
        budget = instance.budget
        budget_usd = np.inf if budget is None or budget.kind == "pool" else budget.usd * hours
    storage = np.array([c.model_storage_usd_per_h for c in instance.configurations])
    return Snapshot(
        instance=instance,
        window=0,
        rate_rps=rate,
        requests=requests,
        delay_s=delay,
        error=np.array(performance.error),
        work_tflop=_affine(performance.work_tflop, instance),
        kv_gb_s=kv_per_token * tokens * delay,
        service_s=_affine(performance.service_s, instance),
        prefill_s=prefill,
        own_late=(prefill >= ttft).astype(float),
        slack_s=ttft - prefill,
        compatible=performance.compatible,
        route_usd=(weight * price)[:, None] * delay
        + requests[:, None] * performance.storage_usd
        + (requests * late)[:, None] * (prefill >= ttft),
        unserved_usd=weight * np.array([w.unserved_usd for w in instance.workloads]),
        hold_usd=(instance.rental_usd_per_h.sum(axis=0) + storage) * hours,
        startup_usd=np.array([c.startup_usd for c in instance.configurations]),
        compute_tflops=np.array([c.compute_tflops for c in instance.configurations]),
        kv_capacity_gb=np.array([c.kv_capacity_gb for c in instance.configurations]),
        max_concurrency=np.array([c.max_concurrency for c in instance.configurations]),
        max_replicas=np.array([c.max_replicas for c in instance.configurations], dtype=np.int64),
        gpu_use=np.array(instance.gpu_use),
        available_gpus=np.array([p.cap_gpus for p in instance.pools]),
        budget_usd=float(budget_usd),
        fleet=np.zeros(instance.num_configurations, dtype=np.int64),
        segments=_segments(instance, safe),
    )
