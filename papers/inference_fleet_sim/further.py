"""Compute cells beside the tables: rules of the P99 wait, compress-and-route, a day of faults."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fleetgym.capacity.simulation.arrivals import Trace
from fleetgym.capacity.simulation.fleet import Pool, Workload
from fleetgym.capacity.simulation.routers import CompressAndRoute, Length, Router
from fleetgym.capacity.simulation.run import simulate
from fleetgym.capacity.studies.pools import PoolQueue, Slos
from fleetgym.capacity.studies.power import node_availability, nodes_for_confidence, nodes_to_buy
from fleetgym.capacity.studies.sizing import cheapest_fleets
from fleetgym.capacity.studies.verification import judge, simulate_routed, workload_of

from . import fleet_sim, published
from .settings import A100, AGENT, AZURE, FULL, H100, LMSYS, THRESHOLD, Effort, Setting

Row = dict[str, Any]

#: The pair of the two rules that shows how far they are apart: servers, arrivals, a server's rate, cv2.
EXAMPLE = (8, 6.0, 1.0, 3.0)
#: Compression factors of the sizing study.
GAMMAS = (1.0, 1.25, 1.5, 1.75, 2.0)
#: The day, a quarter of the paper's demand response: requests per second and GPUs; hours; when something happens.
DAY_RPS, DAY_GPUS, DAY_H, EVENT_AT_H = 50.0, 10, 24.0, 12.0
FAILURES_PER_NODE_DAY, REPAIRS_H, FAILED = 0.0065, (4.0, 48.0), (1, 2)
#: A quick run plays so much of a day.
QUICK_DAY = 0.02
FLEXES, FLEX_HOURS = (0.2, 0.3, 0.4), (0.25, 1.0, 4.0)


def wait_rule(effort: Effort) -> Row:
    """The P99 wait as printed and as the tool computes it: an example, and the fleets that follow from each."""
    rows = []
    cases: list[tuple[str, Setting, Any, int]] = [
        (f"Table 1, split at {row['threshold']:,}", LMSYS, A100, row["threshold"])
        for row in published.TABLE_1
    ]
    cases += [
        ("Table 1, one pool", LMSYS, A100, LMSYS.context),
        ("Table 2, one pool", AGENT, H100, AGENT.context),
    ]
    cases += [("Table 2, two pools", AGENT, H100, THRESHOLD)]
    cases += [
        (
            f"Table 4, {row['rate']} requests/s",
            dataclasses.replace(AZURE, rate_rps=float(row["rate"])),
            H100,
            THRESHOLD,
        )
        for row in published.TABLE_4
    ]
    for name, setting, profile, threshold in cases:
        counts = []
        for rule in (fleet_sim.p99_wait_s, fleet_sim.printed_p99_wait_s):
            found = setting.two_pools(profile, profile, threshold, wait=rule)
            counts.append([found.short_gpus, found.long_gpus])
        rows.append({"name": name, "tool": counts[0], "printed": counts[1]})
    rules = (fleet_sim.printed_p99_wait_s, fleet_sim.p99_wait_s)
    servers, rate, each, cv2 = EXAMPLE
    found = simulate(
        Pool(replicas=1, slots=servers),
        Workload(arrivals=rate, service_s=1.0 / each, service_cv2=cv2, law="gamma", ttft_slo_s=1.0),
        window_s=effort.requests / rate,
        min_replications=effort.seeds,
        max_replications=effort.seeds,
        confidence=0.95,
        percentiles=True,
    ).ttft_p99_s
    return {
        "example": [rule(*EXAMPLE) for rule in rules],
        "simulated": [float(found.mean[0]), float(found.low[0]), float(found.high[0])],
        "rows": rows,
    }


def compress(effort: Effort) -> Row:
    """What compress-and-route saves when it sizes, and what happens to that fleet under either router."""
    rows = []
    for name, setting, profile, thresholds in (
        ("LMSYS, A100", LMSYS, A100, (1024, 2048, 4096)),
        ("agent-heavy, H100", AGENT, H100, (4096, 16384)),
    ):
        for threshold in thresholds:
            for gamma in GAMMAS:
                tool = setting.two_pools(profile, profile, threshold, gamma=gamma)
                fleets = cheapest_fleets(
                    setting.demand, [profile], [threshold, setting.context], gammas=(gamma,)
                )
                ours = next((f for f in fleets if len(f.pools) == 2), None)
                row: Row = {"name": name, "threshold": threshold, "gamma": gamma}
                row |= {"tool": [tool.short_gpus, tool.long_gpus], "tool_kusd": tool.usd_per_year / 1e3}
                row |= {"ours": None if ours is None else [p.replicas for p in ours.pools]}
                row |= {"ours_kusd": None if ours is None else ours.usd_per_year / 1e3, "late": None}
                if ours is not None and gamma in (1.0, 1.5):
                    pools = [(profile, p.replicas, p.context_tokens) for p in ours.pools]
                    row["late"] = [_late(setting, pools, router, effort) for router in _routers(gamma)]
                rows.append(row)
    return {"rows": rows}


def _routers(gamma: float) -> tuple[Router, Router]:
    return Length(), CompressAndRoute(gamma=max(gamma, 1.0))


def _late(setting: Setting, pools: list[tuple[Any, int, int]], router: Router, effort: Effort) -> list[float]:
    """Return the simulated share of late requests with its interval."""
    how = {"seeds": max(4, effort.seeds // 4), "requests": effort.requests}
    late = simulate_routed(pools, setting.lengths, setting.rate_rps, setting.slos, router, **how).miss_share
    return [float(late.mean[0]), max(0.0, float(late.low[0])), float(late.high[0])]


def day(effort: Effort) -> Row:
    """A day with a failed node, and a day with less power for a while, request by request."""
    setting = dataclasses.replace(AZURE, rate_rps=DAY_RPS)
    queue = setting.queue(H100, 0, AZURE.context)
    needed = queue.smallest(setting.slos)
    assert needed is not None
    seeds = max(2, effort.seeds // 10)
    played = 1.0 if effort == FULL else QUICK_DAY
    bought: dict[int, list[str]] = {needed: ["needed"]}
    for repair_h in REPAIRS_H:
        availability = node_availability(FAILURES_PER_NODE_DAY, repair_h)
        for name, count in (("on average", nodes_to_buy), ("99 % of the time", nodes_for_confidence)):
            bought.setdefault(count(needed, availability), []).append(f"enough {name} at {repair_h:g} h")
    failures = []
    for nodes, names in sorted(bought.items()):
        for failed, repair_h in ((0, 0.0), *((f, r) for f in FAILED for r in REPAIRS_H)):
            row: Row = {"nodes": nodes, "names": names, "failed": failed, "repair_h": repair_h}
            row |= {"busy": queue.utilization(nodes - failed) if nodes > failed else None}
            row |= {"late": _day_with_failure(queue, nodes, failed, repair_h, setting.slos, seeds, played)}
            failures.append(row)
    caps = []
    for flex in FLEXES:
        point = fleet_sim.grid_flex(
            setting.breakpoints, DAY_RPS, profile=H100, gpus=DAY_GPUS, most_tokens=AZURE.context, flex=flex
        )
        capped = dataclasses.replace(queue, slots=point.batch)
        for hours in FLEX_HOURS:
            requests = round(DAY_RPS * 3600.0 * hours * played)
            found = judge(capped, DAY_GPUS, setting.slos, seeds=seeds, requests=requests, is_event=True)
            busy = capped.utilization(DAY_GPUS)
            # What has piled up is served at full power beside the new requests; until then all of these are late.
            piled = max(0.0, busy - 1.0) * requests / busy
            recovery = piled / (1.0 / queue.utilization(DAY_GPUS) - 1.0)
            late = (found.late_share + recovery / requests) * hours / DAY_H
            row = {"flex": flex, "hours": hours, "batch": point.batch, "busy": busy, "late": late}
            caps.append({**row, "p99_s": found.ttft_p99_s, "during": found.late_share})
    return {"failures": failures, "caps": caps, "needed": needed}


def _day_with_failure(
    queue: PoolQueue, nodes: int, failed: int, repair_h: float, slos: Slos, seeds: int, shorter: float
) -> list[float]:
    """Return the late share of a day on which nodes fail at noon, and its interval.

    A failed node is a batch of requests that hold its slots until it is repaired or the day ends. What it was
    serving is not lost, so the result is a little mild.
    """
    demand = workload_of(queue.lengths, queue.rate_rps, [queue.profile], [queue.slots], slos.ttft_s)
    begin, lasts = 3600.0 * EVENT_AT_H * shorter, 3600.0 * min(repair_h, DAY_H - EVENT_AT_H) * shorter
    workloads: list[Workload] = [demand]
    if failed:
        blocked = Trace(np.full(failed * queue.slots, begin))
        workloads.append(Workload(name="failure", arrivals=blocked, service_s=lasts, service_cv2=0.0))
    found = simulate(
        Pool(replicas=nodes, slots=queue.slots),
        workloads,
        window_s=3600.0 * DAY_H * shorter,
        warmup_s=0.0,
        min_replications=seeds,
        max_replications=seeds,
        confidence=0.95,
    ).miss_share
    return [float(found.mean[0]), max(0.0, float(found.low[0])), float(found.high[0])]
