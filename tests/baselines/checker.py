"""Judge a plan by the paper's constraints, in plain NumPy that shares no code with the planners."""

from __future__ import annotations

import numpy as np

from fleetgym.model.planning import Plan, Snapshot

TOLERANCE = 1e-7


def violations(snapshot: Snapshot, plan: Plan, slo: str = "elastic") -> list[str]:
    """Return which constraints a plan breaks, by name; `slo` as in `fleetgym.baselines.greedy_packing.Rules`."""
    y, x, u = plan.fleet, plan.diagnostics["x"], plan.diagnostics["unserved"]
    found = []

    def need(holds: object, name: str) -> None:
        if not np.all(holds):
            found.append(name)

    present = snapshot.rate_rps > 0
    need(np.abs(x.sum(axis=1) + u - present) <= TOLERANCE, "demand (5b)")
    need((x >= 0) & (x <= 1 + TOLERANCE) & ((x == 0) | snapshot.compatible), "routes")
    need((x == 0) | (y > 0), "deployed (5k)")
    need(plan.eligible == (x > 0), "eligible")
    need((y >= 0) & (y <= snapshot.max_replicas), "replicas")
    need(snapshot.gpu_use @ y <= snapshot.available_gpus, "pools")
    need(y @ snapshot.hold_usd <= snapshot.budget_usd * (1 + 1e-9), "budget (5c)")
    for slot, members in zip(snapshot.instance.slots, snapshot.instance.slot_members, strict=True):
        need(not slot.exclusive or y[list(members)].sum() <= 1, "one option a slot (5d)")
    row = snapshot.segments.offsets + np.maximum(y, 1) - 1
    servers = y * snapshot.max_concurrency * snapshot.segments.safe_utilization[row]
    for name, per_request, capacity in (
        ("compute (5g)", snapshot.work_tflop, y * snapshot.compute_tflops),
        ("memory (5f)", snapshot.kv_gb_s, y * snapshot.kv_capacity_gb),
        ("servers", snapshot.service_s, servers),
    ):
        load = (snapshot.rate_rps[:, None] * per_request * x).sum(axis=0)
        need(load <= capacity * (1 + TOLERANCE), name)
    if slo == "elastic":
        return found
    allowed = 0.0 if slo == "served-mean" else u  # unserved demand relaxes (5i) and (5j) as printed
    for part, name in zip(excess(snapshot, x), ("mean delay (5i)", "mean error (5j)"), strict=True):
        need(part <= allowed + TOLERANCE, name)
    if slo == "per-route":
        bound = np.array([[w.mean_delay_slo_s] for w in snapshot.instance.workloads])
        need((x == 0) | (snapshot.delay_s <= bound), "delay of each route (6)")
    return found


def excess(snapshot: Snapshot, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return by how much the means of what is served exceed their SLOs, relative to them: (I,), (I,)."""
    workloads = snapshot.instance.workloads
    delay = np.array([[w.mean_delay_slo_s] for w in workloads])
    error = np.array([[w.error_slo] for w in workloads])
    return (
        ((snapshot.delay_s - delay) / delay * x).sum(axis=1),
        ((snapshot.error - error) / error * x).sum(axis=1),
    )


def cost_usd(snapshot: Snapshot, plan: Plan, slo: str) -> float:
    """Return what a plan costs in the window, late requests aside; elastic SLOs are paid like unserved demand."""
    x, u = plan.diagnostics["x"], plan.diagnostics["unserved"]
    broken = sum(np.maximum(part, 0.0) for part in excess(snapshot, x)) if slo == "elastic" else 0.0
    return float(
        plan.fleet @ snapshot.hold_usd + (x * snapshot.route_usd).sum() + snapshot.unserved_usd @ (u + broken)
    )


def storage_usd_per_h(snapshot: Snapshot, plan: Plan) -> float:
    """Return what model and data storage cost per hour: the left side of (5h) times the price of storage."""
    instance = snapshot.instance
    model = np.array([c.model_storage_usd_per_h for c in instance.configurations])
    data = snapshot.requests[:, None] * instance.performance.storage_usd * plan.diagnostics["x"]
    return float(plan.fleet @ model + data.sum() * 3600 / instance.window_s)
