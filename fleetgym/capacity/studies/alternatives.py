"""Compute rows of plain numbers for a fleet planner's questions, one per alternative.

`fleetgym.capacity.studies.plots` draws them. Everything here is analytical but `compare_routers`;
`fleetgym.capacity.studies.verification` has the simulator's word on any pool.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from fleetgym.capacity.simulation.routers import CompressAndRoute, Length, Router
from fleetgym.files.errors import FleetgymError
from fleetgym.hardware.performance.lengths import Lengths
from fleetgym.hardware.performance.profiles import PowerCurve, Profile

from .disaggregation import size_disaggregated
from .pools import TAIL, PoolQueue, Slos
from .power import nodes_for_confidence, nodes_to_buy
from .sizing import Demand, PoolFleet, cheapest_fleets, pool_queue, sized_pool
from .verification import RandomFitting, simulate_routed

Row = dict[str, Any]
_BISECTIONS = 40


def two_pools(demand: Demand, short: Profile, long: Profile, threshold: int, context_tokens: int) -> Row:
    """Return the sizes of two pools of given types, split at a threshold; None for counts that no size heals."""
    ranges = ((short, 0, threshold, False), (long, threshold, context_tokens, True))
    pools = [sized_pool(demand, [p], above=a, context_tokens=b, is_last=last) for p, a, b, last in ranges]
    sized = [pool for pool in pools if pool is not None]
    kept = len(sized) == len(pools)
    return {
        "threshold": threshold,
        "short": short.name,
        "long": long.name,
        "short_share": demand.lengths.share_up_to(threshold),
        "short_replicas": pools[0].replicas if pools[0] else None,
        "long_replicas": pools[1].replicas if pools[1] else None,
        "usd_per_h": sum(pool.usd_per_h for pool in sized) if kept else None,
        "ttft_p99_s": max(pool.ttft_p99_s for pool in sized) if kept else None,
        "is_kept": kept,
    }


def threshold_pareto(
    demand: Demand, short: Profile, long: Profile, thresholds: Sequence[int], context_tokens: int
) -> list[Row]:
    """Return a row per split threshold, and whether none is cheaper and no slower, or faster and no dearer (puzzle 1).

    Examples
    --------
    >>> from fleetgym.hardware.performance.lengths import published
    >>> from fleetgym.hardware.performance.profiles import PROFILES
    >>> demand = Demand(lengths=published("lmsys"), rate_rps=100.0, slos=Slos(ttft_s=1.0))
    >>> h100 = PROFILES["H100-80GB"]
    >>> rows = threshold_pareto(demand, h100, h100, [512, 4096], 65536)
    >>> [(row["threshold"], row["short_replicas"], row["long_replicas"], row["is_efficient"]) for row in rows]
    [(512, 1, 6, True), (4096, 1, 3, True)]
    """
    rows = [two_pools(demand, short, long, threshold, context_tokens) for threshold in thresholds]
    kept = [row for row in rows if row["is_kept"]]
    for row in rows:
        row["is_efficient"] = row["is_kept"] and not any(_beats(other, row) for other in kept)
    return rows


def _beats(one: Row, other: Row) -> bool:
    """Return whether a fleet is nowhere worse than another, and somewhere better."""
    cost, wait = one["usd_per_h"] - other["usd_per_h"], one["ttft_p99_s"] - other["ttft_p99_s"]
    return max(cost, wait) <= 0.0 and min(cost, wait) < 0.0


def gpu_layouts(
    demand: Demand, profiles: Sequence[Profile], limits: Sequence[int], most_pools: int = 2
) -> list[Row]:
    """Return the cheapest fleet of every GPU type alone and number of pools (puzzle 3), cheapest first."""
    rows = [
        {"gpu": profile.name, **_fleet_row(fleet)}
        for profile in profiles
        for fleet in cheapest_fleets(demand, [profile], limits, most_pools=most_pools)
    ]
    return sorted(rows, key=lambda row: row["usd_per_h"])


def _fleet_row(fleet: PoolFleet) -> Row:
    return {
        "pools": len(fleet.pools),
        "thresholds": list(fleet.thresholds),
        "replicas": [pool.replicas for pool in fleet.pools],
        "usd_per_h": fleet.usd_per_h,
        "ttft_p99_s": max(pool.ttft_p99_s for pool in fleet.pools),
    }


def mixed_types(
    demand: Demand, profiles: Sequence[Profile], threshold: int, context_tokens: int
) -> list[Row]:
    """Return a row per pair of GPU types for the short and the long pool (puzzle 6)."""
    pairs = itertools.product(profiles, repeat=2)
    return [two_pools(demand, short, long, threshold, context_tokens) for short, long in pairs]


def most_rate(demand: Demand, pools: Sequence[tuple[Profile, int, int]], highest: float = 1e5) -> float:
    """Return the highest arrival rate that a fleet serves within SLOs and utilisation cap (puzzle 4).

    Parameters
    ----------
    demand : Demand
        Lengths and bounds; its rate is ignored.
    pools : sequence of (profile, replicas, context limit)
        The fleet, shortest context first.
    highest : float
        Where the search ends.

    Examples
    --------
    >>> from fleetgym.hardware.performance.lengths import published
    >>> from fleetgym.hardware.performance.profiles import PROFILES
    >>> demand = Demand(lengths=published("lmsys"), rate_rps=1.0, slos=Slos(ttft_s=1.0))
    >>> round(most_rate(demand, [(PROFILES["H100-80GB"], 8, 65536)]), 1)
    124.0
    """
    served = []
    for above, (profile, replicas, context) in zip((0, *(c for _, _, c in pools)), pools, strict=False):
        queue, share = pool_queue(
            demand, profile, above=above, context_tokens=context, is_last=context == pools[-1][2]
        )
        if queue is not None:
            served.append(_most_pool_rate(queue, replicas, demand, highest * share) / share)
    return min(served, default=highest)


def _most_pool_rate(queue: PoolQueue, replicas: int, demand: Demand, highest: float) -> float:
    if queue.tpot_p99_s > demand.slos.tpot_s:
        return 0.0
    low, high = 0.0, highest
    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        trial = queue.at_rate(middle)
        kept = trial.utilization(replicas) <= demand.utilization_cap
        kept = kept and trial.late_share(replicas, demand.slos.ttft_s) <= TAIL
        low, high = (middle, high) if kept else (low, middle)
    return low


def step_rates(
    demand: Demand, profiles: Sequence[Profile], limits: Sequence[int], rates: Sequence[float]
) -> list[Row]:
    """Return the cheapest fleet at every rate, and the rate at which it runs out (puzzle 4)."""
    rows = []
    for rate in rates:
        fleets = cheapest_fleets(dataclasses.replace(demand, rate_rps=rate), profiles, limits)
        if not fleets:
            raise FleetgymError(f"no fleet keeps the SLOs at {rate:g} requests/s")
        best = fleets[0]
        pools = [(pool.queue.profile, pool.needed, pool.context_tokens) for pool in best.pools]
        rows.append({"rate_rps": rate, **_fleet_row(best), "most_rate_rps": most_rate(demand, pools)})
    return rows


ROUTERS: Mapping[str, Router] = {
    "length": Length(),
    "compress-and-route": CompressAndRoute(gamma=1.5),
    "random": RandomFitting(),
}


def compare_routers(
    pools: Sequence[tuple[Profile, int, int]], lengths: Lengths, rate_rps: float, slos: Slos, **how: int
) -> list[Row]:
    """Return P99 TTFT and late share of the same fleet under each router, simulated with the same seeds (puzzle 5)."""
    rows = []
    for name, router in ROUTERS.items():
        found = simulate_routed(pools, lengths, rate_rps, slos, router, **how)
        p99, late = found.ttft_p99_s, found.miss_share
        rows.append(
            {
                "router": name,
                "ttft_p99_s": float(p99.mean[0]),
                "low_s": float(p99.low[0]),
                "high_s": float(p99.high[0]),
                "late_share": float(late.mean[0]),
                "late_low": max(0.0, float(late.low[0])),
                "late_high": float(late.high[0]),
                "utilization": found.utilization.mean.tolist(),
            }
        )
    return rows


def disaggregated_pairs(
    demand: Demand, profiles: Sequence[Profile], context_tokens: int, **transfer: float
) -> list[Row]:
    """Return a row per pair of GPU types for prefill and decode (puzzle 7); None where the SLOs cannot be kept."""
    rows: list[Row] = []
    for prefill, decode in itertools.product(profiles, repeat=2):
        fleet = size_disaggregated(
            prefill,
            decode,
            demand.lengths,
            demand.rate_rps,
            demand.slos,
            context_tokens=context_tokens,
            **transfer,
        )
        rows.append(
            {
                "prefill": prefill.name,
                "decode": decode.name,
                "prefill_replicas": fleet.prefill_replicas if fleet else None,
                "decode_replicas": fleet.decode_replicas if fleet else None,
                "usd_per_h": fleet.usd_per_h if fleet else None,
                "ttft_p99_s": fleet.ttft_p99_s if fleet else None,
                "tpot_p99_s": fleet.tpot_p99_s if fleet else None,
            }
        )
    return rows


def transfer_costs(
    demand: Demand,
    profiles: Sequence[Profile],
    context_tokens: int,
    links_gb_per_s: Sequence[float],
    kv_gb_per_token: float,
) -> list[Row]:
    """Return the pairs of `disaggregated_pairs` over links of several speeds, then one pool of each type (puzzle 7).

    ``link_gb_per_s`` is None where prefill and decode share a pool; ``handover_s`` is the mean time that a prompt's KV
    cache is on the link.

    Examples
    --------
    >>> from fleetgym.hardware.performance.lengths import published
    >>> from fleetgym.hardware.performance.profiles import PROFILES
    >>> demand = Demand(lengths=published("azure"), rate_rps=50.0, slos=Slos(ttft_s=0.5, tpot_s=0.1))
    >>> rows = transfer_costs(demand, [PROFILES["H100-80GB"]], 8192, [1.0, 50.0], 3.3e-4)
    >>> [(row["link_gb_per_s"], row["prefill_replicas"], row["decode_replicas"]) for row in rows]
    [(1.0, None, None), (50.0, 1, 3), (None, None, 4)]
    """
    rows: list[Row] = []
    for link in links_gb_per_s:
        handover_s = kv_gb_per_token * demand.lengths.mean_input / link
        pairs = disaggregated_pairs(
            demand, profiles, context_tokens, kv_gb_per_token=kv_gb_per_token, link_gb_per_s=link
        )
        rows += [{**pair, "link_gb_per_s": link, "handover_s": handover_s} for pair in pairs]
    for profile in profiles:
        pool = sized_pool(demand, [profile], above=0, context_tokens=context_tokens, is_last=True)
        rows.append(
            {
                "prefill": None,
                "decode": profile.name,
                "prefill_replicas": None,
                "decode_replicas": pool.replicas if pool else None,
                "usd_per_h": pool.usd_per_h if pool else None,
                "ttft_p99_s": pool.ttft_p99_s if pool else None,
                "tpot_p99_s": pool.queue.tpot_p99_s if pool else None,
                "link_gb_per_s": None,
                "handover_s": None,
            }
        )
    return rows


def grid_flex(queue: PoolQueue, replicas: int, shares: Sequence[float], slos: Slos) -> list[Row]:
    """Return batch, power and P99 TTFT when a share of the nominal power is given up (puzzle 8).

    The batch is the largest whose power keeps to what is left; service times are those of the smaller batch.
    """
    power = _power(queue.profile)
    rows = []
    for share in shares:
        watts = max(power.idle_w, power.nominal_w * (1.0 - share))
        batch = power.largest_batch(watts, queue.slots)
        capped = dataclasses.replace(queue, slots=batch)
        gpu_w = power.watts(batch)
        rows.append(
            {
                "flex": share,
                "batch": batch,
                "gpu_w": gpu_w,
                "fleet_kw": replicas * queue.profile.gpus * gpu_w / 1000.0,
                "utilization": capped.utilization(replicas),
                "ttft_p99_s": capped.ttft_p99_s(replicas),
                "is_kept": capped.utilization(replicas) < 1.0
                and capped.late_share(replicas, slos.ttft_s) <= TAIL,
            }
        )
    return rows


def energy(queue: PoolQueue, replicas: int) -> Row:
    """Return output tokens per joule and USD per million of them, at the mean batch of a pool."""
    power = _power(queue.profile)
    utilization = min(1.0, queue.utilization(replicas))
    gpu_w = power.watts(utilization * queue.slots)
    tokens_per_s = queue.rate_rps * queue.lengths.mean_output
    return {
        "gpu": queue.profile.name,
        "replicas": replicas,
        "utilization": utilization,
        "batch": utilization * queue.slots,
        "gpu_w": gpu_w,
        "tokens_per_joule": tokens_per_s / (replicas * queue.profile.gpus * gpu_w),
        "usd_per_million": replicas * queue.profile.usd_per_h / 3600.0 / tokens_per_s * 1e6,
    }


def _power(profile: Profile) -> PowerCurve:
    if profile.power is None:
        raise FleetgymError(
            f"profile {profile.name!r} has no power curve; published ones are of A10G, A100-80GB and H100"
        )
    return profile.power


def reserves(needed: int, availabilities: Mapping[str, float], confidence: float = 0.99) -> list[Row]:
    """Return the nodes to buy for each availability: on average, and so that enough work with a confidence.

    Examples
    --------
    >>> [(row["average"], row["confident"]) for row in reserves(24, {"5 %": 0.95})]
    [(26, 29)]
    """
    return [
        {
            "name": name,
            "availability": share,
            "average": nodes_to_buy(needed, share),
            "confident": nodes_for_confidence(needed, share, confidence),
        }
        for name, share in availabilities.items()
    ]
