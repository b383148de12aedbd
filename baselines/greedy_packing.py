"""Convert a `Snapshot` to the arrays that the greedy kernels read, and their result to a `Plan`."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fleetgym import Instance, Plan, Snapshot
from fleetgym.planning import at_least, one_of

from . import greedy_kernels as kernels

#: How the SLOs are read, see `Rules`.
SLO_RULES: Mapping[str, float] = {
    "elastic": kernels.ELASTIC,
    "per-route": kernels.PER_ROUTE,
    "mean": kernels.MEAN,
    "served-mean": kernels.SERVED_MEAN,
}


@dataclasses.dataclass(kw_only=True, eq=False)
class Rules:
    """The switches that GH and AGH share.

    Parameters
    ----------
    m1, m2, m3 : bool
        The three mechanisms of section 3.1: feasible options only; ranking by cost per effective coverage;
        upgrades of what is active. Off, they reproduce the ablation of Table 3: without M1 the smallest
        option is taken, without M3 an active option is kept, both whatever the delay.
    slo : str
        What delay and error must obey; M1 and M3 take options that keep the delay SLO in any case.

        - ``"elastic"``, as in the environment: an excess of a mean costs as much as not serving that share.
          M2 ranks candidates that keep the SLOs for the whole workload first; the others compete by unit
          cost, with the excess paid for. Where everything can keep its SLOs this is ``"served-mean"``.
        - ``"per-route"``, as printed in Algorithm 1: each route's delay (6); shares times error as in (5j).
        - ``"mean"``: shares times delay as in (5i), shares times error as in (5j). Both are bounds over all
          requests, so unserved demand relaxes them.
        - ``"served-mean"``: the same means over what is served.
    coverage_budget_share : float
        Share of the budget that phase 1 may spend, beta in the paper.
    storage_usd_per_h : float, optional
        Most that model and data storage may cost: (5h), C_s times the price of storage. None: no such row.

    Raises
    ------
    FleetgymError
        For an unknown `slo`, or a negative share or limit.
    """

    m1: bool = True
    m2: bool = True
    m3: bool = True
    slo: str = "elastic"
    coverage_budget_share: float = 0.8
    storage_usd_per_h: float | None = None

    def __post_init__(self) -> None:
        one_of(SLO_RULES, slo=self.slo)
        at_least(
            0, coverage_budget_share=self.coverage_budget_share, storage_usd_per_h=self.storage_usd_per_h
        )

    def packed(self) -> np.ndarray:
        """Return the switches in the kernels' order."""
        row = np.empty(5)
        row[kernels.SLO] = SLO_RULES[self.slo]
        row[kernels.M1], row[kernels.M2], row[kernels.M3] = self.m1, self.m2, self.m3
        row[kernels.COVERAGE] = self.coverage_budget_share
        return row


@dataclasses.dataclass(frozen=True, eq=False)
class Layout:
    """What an instance's slots, SLOs and storage prices look like to the kernels; the same in every window."""

    instance: Instance
    groups: np.ndarray  # (G, 3) int64: first member, size, whether exclusive
    members: np.ndarray  # (sum of sizes,)
    delay_slo_s: np.ndarray  # (I, 1)
    error_slo: np.ndarray  # (I, 1)
    model_storage_usd: np.ndarray  # (C,) of one replica in a window

    @classmethod
    def of(cls, instance: Instance, allowed: np.ndarray | None = None) -> Layout:
        """Return the layout of an instance, without configurations that `allowed` (C,) rules out."""
        gpus = instance.gpu_use.sum(axis=0)
        tensor = np.array([c.tensor_parallel for c in instance.configurations])
        groups: list[tuple[int, int, bool]] = []
        order: list[int] = []
        for slot, members in zip(instance.slots, instance.slot_members, strict=True):
            kept = [c for c in members if allowed is None or allowed[c]]
            if kept:
                groups.append((len(order), len(kept), slot.exclusive))
                # Ties on the number of GPUs go to the larger tensor parallelism, which is faster.
                order.extend(sorted(kept, key=lambda c: (gpus[c], -tensor[c])))
        storage = np.array([c.model_storage_usd_per_h for c in instance.configurations])
        return cls(
            instance=instance,
            groups=np.array(groups, dtype=np.int64).reshape(-1, 3),
            members=np.array(order, dtype=np.int64),
            delay_slo_s=np.array([[w.mean_delay_slo_s] for w in instance.workloads]),
            error_slo=np.array([[w.error_slo] for w in instance.workloads]),
            model_storage_usd=storage * instance.window_s / 3600.0,
        )


def _pairs(snapshot: Snapshot, layout: Layout) -> np.ndarray:
    """Return the kernels' numbers per workload and configuration."""
    pairs = np.empty((*snapshot.delay_s.shape, kernels.PAIR_COLUMNS))
    rate = snapshot.rate_rps[:, None]
    np.divide(snapshot.delay_s, layout.delay_slo_s, out=pairs[..., kernels.DELAY])
    np.divide(snapshot.error, layout.error_slo, out=pairs[..., kernels.ERROR])
    pairs[..., : kernels.ERROR + 1] -= 1.0
    for k, per_request in enumerate((snapshot.work_tflop, snapshot.kv_gb_s, snapshot.service_s)):
        np.multiply(rate, per_request, out=pairs[..., kernels.LOAD + k])
    pairs[..., kernels.ROUTE] = snapshot.route_usd
    pairs[..., kernels.DATA] = snapshot.requests[:, None] * layout.instance.performance.storage_usd
    pairs[..., kernels.COMPATIBLE] = snapshot.compatible
    return pairs


def _limits(snapshot: Snapshot, layout: Layout, rules: Rules) -> np.ndarray:
    storage = np.inf
    if rules.storage_usd_per_h is not None:
        storage = rules.storage_usd_per_h * layout.instance.window_s / 3600.0
    return np.concatenate(([snapshot.budget_usd, storage], snapshot.available_gpus))


def _groups(snapshot: Snapshot, layout: Layout) -> np.ndarray:
    groups = layout.groups.copy()
    counted = groups[:, kernels.EXCLUSIVE] == 0
    first = layout.members[groups[counted, kernels.START]]
    groups[counted, kernels.TOP] = snapshot.max_replicas[first]
    return groups


def _bound(pairs: np.ndarray, snapshot: Snapshot, layout: Layout, rules: Rules) -> np.ndarray:
    """Return the least that a workload costs in a group that is off, given that it is routed nowhere else."""
    usd = pairs[..., kernels.ROUTE] + snapshot.hold_usd
    usd[pairs[..., kernels.COMPATIBLE] == 0.0] = np.inf
    if rules.slo != "elastic":
        usd[pairs[..., kernels.ERROR] > 0.0] = np.inf
        if rules.m1:
            usd[pairs[..., kernels.DELAY] > 0.0] = np.inf
    if not layout.members.size:
        return np.empty((usd.shape[0], 0))
    return np.minimum.reduceat(usd[:, layout.members], layout.groups[:, kernels.START], axis=1)


def pack(snapshot: Snapshot, layout: Layout, rules: Rules) -> kernels.Problem:
    """Return a snapshot in the kernels' form."""
    config = (
        snapshot.compute_tflops,
        snapshot.kv_capacity_gb,
        snapshot.max_concurrency,
        snapshot.segments.offsets,
        snapshot.hold_usd,
        layout.model_storage_usd,
        *snapshot.gpu_use,
    )
    pairs = _pairs(snapshot, layout)
    return kernels.Problem(
        pairs=pairs,
        unserved_usd=np.array(snapshot.unserved_usd, dtype=np.float64),
        config=np.stack(config, axis=1, dtype=np.float64),
        limits=_limits(snapshot, layout, rules),
        safe=np.array(snapshot.segments.safe_utilization, dtype=np.float64),
        groups=_groups(snapshot, layout),
        members=layout.members,
        bound=_bound(pairs, snapshot, layout, rules),
        rules=rules.packed(),
    )


def empty_states(problem: kernels.Problem, snapshot: Snapshot, count: int) -> tuple[kernels.State, ...]:
    """Return states with nothing switched on; absent workloads lack nothing."""
    groups, workloads, resources = problem.groups.shape[0], problem.unserved_usd.size, problem.limits.size
    shapes = ((groups, workloads), (groups, 3), (workloads, 2), (resources,), (workloads,))
    ends = [0, *itertools.accumulate(math.prod(shape) for shape in shapes)]
    buffer = np.zeros((count, ends[-1]))
    buffer[:, ends[-2] :] = snapshot.rate_rps > 0
    parts = [
        buffer[:, a:b].reshape(count, *shape) for a, b, shape in zip(ends[:-1], ends[1:], shapes, strict=True)
    ]
    level = np.zeros((count, groups), dtype=np.int64)
    rows = zip(buffer, *parts, level, strict=True)
    return tuple(kernels.State._make(row) for row in rows)


def _scratch(problem: kernels.Problem) -> kernels.Scratch:
    groups, workloads = problem.groups.shape[0], problem.unserved_usd.size
    return kernels.Scratch(
        levels=np.zeros((groups, workloads), dtype=np.int64),
        covered=np.zeros(workloads, dtype=np.bool_),
        served=np.zeros(workloads, dtype=np.bool_),
        tried=np.zeros(groups, dtype=np.bool_),
    )


def solve(
    snapshot: Snapshot, layout: Layout, rules: Rules, orders: np.ndarray, passes: int, patience: int
) -> Plan:
    """Run the kernels from each order, (orders, I), and return the best plan.

    Parameters
    ----------
    snapshot, layout, rules
        The problem.
    orders : ndarray of int64, shape (orders, I)
        Permutations of the workloads.
    passes : int
        Rounds of relocation; -1 for construction alone.
    patience : int
        Orders in a row without improvement after which to stop.

    Returns
    -------
    Plan
        ``diagnostics`` has the routing ``x`` (I, C), the share ``unserved`` (I,) and ``starts``, the number
        of orders tried.
    """
    problem = pack(snapshot, layout, rules)
    states = empty_states(problem, snapshot, 4)
    cost, starts = kernels.solve(problem, states, _scratch(problem), orders, passes, patience)
    return _to_plan(states[3], snapshot, layout, cost, {"starts": starts})


def _to_plan(
    state: kernels.State, snapshot: Snapshot, layout: Layout, cost_usd: float, extra: Mapping[str, Any]
) -> Plan:
    fleet = np.zeros(snapshot.hold_usd.size, dtype=np.int64)
    routing = np.zeros(snapshot.delay_s.shape)
    for group in np.flatnonzero(state.level):
        level = int(state.level[group])
        first, _, exclusive = layout.groups[group]
        config = layout.members[first + level - 1 if exclusive else first]
        fleet[config] = 1 if exclusive else level
        routing[:, config] = state.share[group]
    unserved = np.clip(state.unserved, 0.0, 1.0)
    unserved[unserved < 1e-9] = 0.0  # round-off of shares that add up to one
    return Plan(
        fleet=fleet,
        eligible=routing > 0.0,
        objective_usd=float(cost_usd),
        status="feasible" if fleet.any() else "empty",
        diagnostics={"x": routing, "unserved": unserved, **extra},
    )
