"""Compute the cost terms of a window from its fleet and its routing (section 6 of the model)."""

from __future__ import annotations

import math

from fleetgym.reference.admission import Admission
from fleetgym.reference.conditions import Conditions
from fleetgym.reference.routing import Routing

COST_TERMS = (
    "rental",
    "model_storage",
    "data_storage",
    "delay",
    "slo",
    "unserved",
    "late",
    "startup",
)


def operating_costs(
    conditions: Conditions, routing: Routing, late: dict[tuple[int, int], float]
) -> dict[str, float]:
    """Return the terms that depend on the routing."""
    book, share = conditions.book, routing.share
    workloads, weight, requests = book.workloads, conditions.weight, conditions.requests
    return {
        "data_storage": math.fsum(requests[i] * book.storage_usd[i][c] * x for (i, c), x in share.items()),
        "delay": math.fsum(
            weight[i] * workloads[i].delay_usd_per_s * conditions.delay_s(i, c) * x
            for (i, c), x in share.items()
        ),
        "slo": math.fsum(
            conditions.penalty[i] * sum(_excess(conditions, routing, i)) for i in conditions.present
        ),
        "unserved": math.fsum(conditions.penalty[i] * routing.unserved[i] for i in conditions.present),
        "late": math.fsum(
            requests[i] * workloads[i].late_usd * late[i, c] * x for (i, c), x in share.items()
        ),
    }


def _excess(conditions: Conditions, routing: Routing, i: int) -> tuple[float, float]:
    """s_i and s'_i: how far the mean delay and the mean error of what is served exceed their SLOs."""
    workload = conditions.book.workloads[i]
    bound, allowed = workload.mean_delay_slo_s, workload.error_slo
    mine = [(c, x) for (k, c), x in routing.share.items() if k == i]
    slow = math.fsum((conditions.delay_s(i, c) - bound) / bound * x for c, x in mine)
    wrong = math.fsum((conditions.error(i, c) - allowed) / allowed * x for c, x in mine)
    return max(0.0, slow), max(0.0, wrong)


def holding_costs(conditions: Conditions, admission: Admission) -> dict[str, float]:
    """Return the terms that depend on the fleet alone."""
    held = [(c, count) for c, count in enumerate(admission.held) if count]
    return {
        "rental": math.fsum(count * conditions.rent_usd(c) for c, count in held),
        "model_storage": math.fsum(count * conditions.storage_usd(c) for c, count in held),
        "startup": admission.startup_usd,
    }
