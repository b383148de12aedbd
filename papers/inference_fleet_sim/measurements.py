"""Compute one cell per table: the paper's rules, without their errors, and by simulation."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fleetgym.capacity.simulation.fleet import Pool, Workload
from fleetgym.capacity.simulation.run import simulate
from fleetgym.capacity.studies import alternatives
from fleetgym.capacity.studies.disaggregation import decode_queue, prefill_queue, size_disaggregated
from fleetgym.capacity.studies.pools import PoolQueue, Slos
from fleetgym.capacity.studies.verification import judge, simulate_pool
from fleetgym.hardware.performance.profiles import PROFILES, Profile, measured_profiles

from . import fleet_sim, published, settings
from .settings import A100, AGENT, AZURE, H100, LMSYS, THRESHOLD, Effort, Setting

Row = dict[str, Any]

#: The pair of the two rules that shows how far they are apart: servers, arrivals, a server's rate, cv2.
EXAMPLE = (8, 6.0, 1.0, 3.0)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _verdict(queue: PoolQueue, replicas: int, slos: Slos, effort: Effort, seeds: int | None = None) -> Row:
    """Return the simulator's word on a pool, and the queue's."""
    found = judge(queue, replicas, slos, seeds=seeds or effort.seeds, requests=effort.requests)
    return {
        "replicas": replicas,
        "utilization": queue.utilization(replicas),
        "analytic_ms": _finite(1e3 * queue.ttft_p99_s(replicas)),
        "p99_ms": _finite(1e3 * found.ttft_p99_s),
        "low_ms": _finite(1e3 * found.ttft_p99_low_s),
        "high_ms": _finite(1e3 * found.ttft_p99_high_s),
        "late_share": found.late_share,
        "late_high": found.late_share_high,
        "within": found.seeds_within,
        "seeds": found.seeds,
        "prefill_p99_ms": 1e3 * queue.prefill_quantile_s(0.99),
        "smallest": queue.smallest(slos),
    }


def _tool(setting: Setting, short: Profile, long: Profile, threshold: int, moments: str = "drawn") -> Row:
    """Return the tool's sizes of two pools, or of one where the threshold is the whole context."""
    found = setting.two_pools(short, long, threshold, moments=moments)
    return {
        "short": found.short_gpus,
        "long": found.long_gpus,
        "gpus": found.gpus,
        "kusd": found.usd_per_year / 1e3,
        "share": 100.0 * fleet_sim.cumulative_share(setting.breakpoints, threshold),
        "short_ms": 1e3 * found.short_ttft_s,
        "long_ms": 1e3 * found.long_ttft_s,
        "kept": found.meets_slo,
    }


def _fleet(setting: Setting, short: Profile, long: Profile, threshold: int, effort: Effort) -> Row:
    """Return the tool's fleet, the same with exact moments, ours, and the simulator's word on the tool's."""
    tool = _tool(setting, short, long, threshold)
    whole = threshold >= setting.context
    ranges = [(short, 0, min(threshold, setting.context), tool["short"])]
    ranges += [] if whole else [(long, threshold, setting.context, tool["long"])]
    verdicts = [_verdict(setting.queue(p, a, b), n, setting.slos, effort) for p, a, b, n in ranges]
    ours = [verdict["smallest"] for verdict in verdicts]
    costs = [profile.usd_per_h * 8.76 for profile, *_ in ranges]
    kusd = None if None in ours else sum(n * c for n, c in zip(ours, costs, strict=True))
    exact = _tool(setting, short, long, threshold, "exact")
    return {"tool": tool, "exact": exact, "ours": ours, "ours_kusd": kusd, "pools": verdicts}


def table_1(effort: Effort) -> Row:
    """Split thresholds."""
    rows = [
        {"published": row, **_fleet(LMSYS, A100, A100, row["threshold"], effort)} for row in published.TABLE_1
    ]
    return {"rows": rows, "homogeneous": _fleet(LMSYS, A100, A100, LMSYS.context, effort)}


def table_2(effort: Effort) -> Row:
    """The agent fleet, and every seed's P99."""
    one = AGENT.queue(H100, 0, AGENT.context)
    found = simulate_pool(one, 24, AGENT.slos, seeds=effort.many_seeds, requests=effort.requests)
    each = sorted(1e3 * float(r.ttft_p99_s[0]) for r in found.replications)
    two = [
        _verdict(AGENT.queue(H100, a, b), n, AGENT.slos, effort)
        for a, b, n in ((0, 4096, 2), (4096, 65536, 23))
    ]
    homogeneous = _verdict(one, 24, AGENT.slos, effort, effort.many_seeds)
    return {
        "each_ms": each,
        "homogeneous": homogeneous,
        "two_pools": two,
        "tool": _tool(AGENT, H100, H100, 65536),
    }


def table_3(effort: Effort) -> Row:
    """GPU types and layouts."""
    rows = []
    for row in published.TABLE_3:
        profile, threshold = PROFILES[row["gpu"]], THRESHOLD if row["pools"] == 2 else AZURE.context
        rows.append({"published": row, **_fleet(AZURE, profile, profile, threshold, effort)})
    limits = [512, 1024, 1536, 2048, 3072, 4096, 6144, 8192]
    return {
        "rows": rows,
        "best": alternatives.gpu_layouts(AZURE.demand, list(PROFILES.values()), limits, most_pools=3),
    }


def table_4(effort: Effort) -> Row:
    """Steps as traffic grows."""
    rows = []
    for row in published.TABLE_4:
        setting = dataclasses.replace(AZURE, rate_rps=float(row["rate"]))
        fleet = _fleet(setting, H100, H100, THRESHOLD, effort)
        pools = [(H100, fleet["tool"]["short"], THRESHOLD), (H100, fleet["tool"]["long"], AZURE.context)]
        at_end = None
        if row["until"] is not None:
            end = dataclasses.replace(AZURE, rate_rps=float(row["until"]))
            ranges = ((0, THRESHOLD), (THRESHOLD, AZURE.context))
            at_end = [
                _verdict(end.queue(H100, a, b), n, end.slos, effort)
                for (a, b), (_, n, _) in zip(ranges, pools, strict=True)
            ]
        steps = {"most_rate": alternatives.most_rate(setting.demand, pools)}
        uncapped = dataclasses.replace(setting.demand, utilization_cap=1.0)
        rows.append(
            {
                "published": row,
                **fleet,
                **steps,
                "most_rate_slo": alternatives.most_rate(uncapped, pools),
                "at_end": at_end,
            }
        )
    return {"rows": rows}


def table_5(effort: Effort) -> Row:
    """Routers."""
    pools = [(H100, 2, 4096), (H100, 23, 65536)]
    found = alternatives.compare_routers(
        pools, AGENT.lengths, AGENT.rate_rps, AGENT.slos, seeds=effort.seeds, requests=effort.requests
    )
    for row in found:
        row.update({key: _finite(row[key]) for key in ("ttft_p99_s", "low_s", "high_s")})
    return {"rows": [{"published": p, **row} for p, row in zip(published.TABLE_5, found, strict=True)]}


def _mixed(setting: Setting, rows: Sequence[Row], effort: Effort) -> Row:
    return {
        "rows": [
            {
                "published": row,
                **_fleet(setting, PROFILES[row["short"]], PROFILES[row["long"]], THRESHOLD, effort),
            }
            for row in rows
        ]
    }


def table_6(effort: Effort) -> Row:
    """Mixed GPU types on Azure."""
    return _mixed(AZURE, published.TABLE_6, effort)


def table_7(effort: Effort) -> Row:
    """Mixed GPU types on LMSYS, and the same for one pool at any threshold."""
    return _mixed(LMSYS, published.TABLE_7, effort)


def table_8(effort: Effort) -> Row:
    """Disaggregation."""
    slos = Slos(ttft_s=0.5, tpot_s=0.1)
    rows = []
    for row in published.TABLE_8:
        prefill, decode = PROFILES[row["prefill"]], PROFILES[row["decode"]]
        tool = fleet_sim.disaggregated(
            prefill,
            decode,
            input_tokens=1450,
            output_tokens=483,
            most_tokens=8192,
            rate_rps=100.0,
            ttft_slo_s=slos.ttft_s,
            tpot_slo_s=slos.tpot_s,
        )
        assert tool is not None
        ours = size_disaggregated(prefill, decode, AZURE.lengths, 100.0, slos, context_tokens=8192)
        assert ours is not None
        first = prefill_queue(prefill, AZURE.lengths, 100.0)
        second = decode_queue(decode, AZURE.lengths, 100.0, 8192, slos.tpot_s)
        rows.append(
            {
                "published": row,
                "tool": {
                    "counts": [tool.prefill_gpus, tool.decode_gpus],
                    "kusd": tool.usd_per_h * 8.76,
                    "ttft_ms": 1e3 * tool.ttft_s,
                    "tpot_ms": 1e3 * tool.tpot_s,
                },
                "ours": {
                    "counts": [ours.prefill_replicas, ours.decode_replicas],
                    "kusd": ours.usd_per_h * 8.76,
                    "ttft_ms": 1e3 * ours.ttft_p99_s,
                    "tpot_ms": 1e3 * ours.tpot_p99_s,
                },
                "load": [first.utilization(tool.prefill_gpus), second.utilization(tool.decode_gpus)],
                "simulated": [
                    _verdict(first, ours.prefill_replicas, slos, effort),
                    _verdict(second, ours.decode_replicas, Slos(ttft_s=slos.tpot_s), effort),
                ],
            }
        )
    aggregated = [
        {"published": row, **_fleet(AZURE, PROFILES[row["gpu"]], PROFILES[row["gpu"]], AZURE.context, effort)}
        for row in published.TABLE_8_AGGREGATED
    ]
    return {"rows": rows, "aggregated": aggregated}


def table_9(effort: Effort) -> Row:
    """Grid flexibility: a steady state where there is one, and the tool's event of 15,000 requests from empty."""
    setting = dataclasses.replace(AZURE, rate_rps=200.0)
    full = setting.queue(H100, 0, AZURE.context)
    rows = []
    for row in published.TABLE_9:
        tool = fleet_sim.grid_flex(
            setting.breakpoints, 200.0, profile=H100, gpus=40, most_tokens=8192, flex=row["flex"] / 100.0
        )
        capped = dataclasses.replace(full, slots=tool.batch)
        stable = capped.utilization(40) < 1.0
        event = judge(capped, 40, setting.slos, seeds=effort.seeds, requests=15_000, is_event=True)
        rows.append(
            {
                "published": row,
                "tool": {
                    "batch": tool.batch,
                    "gpu_w": tool.gpu_w,
                    "kw": tool.fleet_kw,
                    "p99_ms": _finite(1e3 * tool.ttft_p99_s),
                },
                "steady": _verdict(capped, 40, setting.slos, effort) if stable else None,
                "utilization": capped.utilization(40),
                "event_ms": 1e3 * event.ttft_p99_s,
                "event_low_ms": 1e3 * event.ttft_p99_low_s,
                "event_high_ms": 1e3 * event.ttft_p99_high_s,
            }
        )
    return {"rows": rows}


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


def beyond(effort: Effort) -> Row:
    """What the tables do not show: real deployments, and the error of 3,000 draws."""
    setting = dataclasses.replace(AZURE, rate_rps=20.0, ttft_s=2.0)
    layouts = alternatives.gpu_layouts(
        setting.demand, list(measured_profiles("Llama-3.1-70B")), [1024, 2048, 4096, 8192]
    )
    errors = {p.name: p.fit_error for p in measured_profiles("Llama-3.1-70B")}
    # The error of 3,000 draws against the exact sums, over the pools of Table 1.
    draws = []
    for row in published.TABLE_1:
        threshold = row["threshold"]
        pairs = [
            [fleet_sim.short_calibration(LMSYS.breakpoints, threshold, A100, m) for m in ("drawn", "exact")],
            [
                fleet_sim.long_calibration(LMSYS.breakpoints, threshold, 65536, A100, m)
                for m in ("drawn", "exact")
            ],
        ]
        draws += [exact.gpu_rate / drawn.gpu_rate - 1.0 for drawn, exact in pairs]
    return {
        "measured": layouts[:8],
        "fit_errors": errors,
        "mean_service_error": [float(np.min(draws)), float(np.max(draws))],
        "seeds": effort.seeds,
        "requests": effort.requests,
    }


CELLS: dict[str, Callable[[Effort], Row]] = {
    "table-1": table_1,
    "table-2": table_2,
    "table-3": table_3,
    "table-4": table_4,
    "table-5": table_5,
    "table-6": table_6,
    "table-7": table_7,
    "table-8": table_8,
    "table-9": table_9,
    "wait-rule": wait_rule,
    "beyond": beyond,
}


def names(quick: bool) -> list[str]:
    """Return every cell; a quick run has the same ones, with less simulation."""
    return list(CELLS)


def compute(name: str, quick: bool) -> Row:
    """Return a cell's numbers."""
    return CELLS[name](settings.QUICK if quick else settings.FULL)
