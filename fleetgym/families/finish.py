"""Finish a draft with rates and limits as a validated instance: prices, penalties, fleet, provenance."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleetgym.families import budget, demand, engines, market
from fleetgym.families.draft import (
    Draft,
    PoolPlan,
    configuration_dict,
    dear_penalties,
    performance_dict,
    pool_dict,
    slot_dicts,
)
from fleetgym.families.plans import FAMILIES, FamilyPlan, request_class
from fleetgym.families.static import allocate, restrict
from fleetgym.families.text import six
from fleetgym.files.schema import to_jsonable
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations import homogeneous
from fleetgym.model.facts import Facts
from fleetgym.model.instance import INSTANCE_FORMAT, Instance

#: Requests that come in bunches wait as if the bunches were no larger than this.
MOST_BURSTY = 20.0


def finish(
    name: str, size: str, draft: Draft, rate: np.ndarray, cap: np.ndarray, rng: np.random.Generator
) -> Instance:
    """Return the instance of a draft.

    Parameters
    ----------
    name, size : str
        Id and size of the instance.
    draft : Draft
        Columns, demand, SLOs.
    rate : ndarray of float, shape (I,)
        Nominal arrivals per second; the history's mean replaces them.
    cap : ndarray of float, shape (G,)
        GPUs.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    Instance
        Validated.
    """
    family = FAMILIES[draft.family]
    exclusive = family.exclusive
    history = six(demand.history_rps(draft.demand, rng, rate))
    rate = history.mean(axis=0)
    relaxed = dataclasses.replace(draft.problem, groups=(), max_replicas=np.full(len(draft.columns), 1e4))
    marginal = np.abs(allocate(relaxed, rate, dear_penalties(relaxed, rate), cap).marginal_usd)
    windows = np.round(rng.uniform(*family.windows, len(rate)), 1)
    unserved = six(windows * marginal)
    late = six(unserved * rng.uniform(*family.late_share, len(rate)))
    use = draft.problem.gpu_use
    replicas = np.array(
        [
            1 if exclusive else int((cap[use[:, c] > 0] // use[use[:, c] > 0, c]).min())
            for c in range(len(draft.columns))
        ]
    )
    fits_cap = np.array([np.all(use[:, c] <= cap) for c in range(len(draft.columns))])
    keep = np.flatnonzero(fits_cap & (replicas > 0) & draft.table.compatible.any(axis=0))
    problem = restrict(dataclasses.replace(draft.problem, max_replicas=replicas.astype(float)), keep)
    limit = None
    if family.budget:
        limit = budget.draw(relaxed, draft.demand.level, rate, cap, rng, family.budget)
    if limit is not None:
        problem = dataclasses.replace(problem, budget_usd_per_s=limit.usd_per_s)
    paid = np.array([pool.price_usd_per_gpu_h * pool.is_committed for pool in draft.plan.pools]) / 3600.0
    to_hold = problem.hold_usd_per_s - paid @ problem.gpu_use
    start = dataclasses.replace(problem, hold_usd_per_s=to_hold)
    fleet = allocate(start, rate, unserved, cap, integer=True, gap=0.02, node_limit=100).replicas
    found = [draft.columns[int(c)] for c in keep]
    fee = round(float(rng.uniform(*family.fee)), 2)
    data: dict[str, Any] = {
        "format": INSTANCE_FORMAT,
        "id": name,
        "family": draft.family,
        "size": size,
        "description": family.description,
        "num_windows": draft.demand.windows,
        "window_s": demand.WINDOW_S,
        "lead": 1,
        "penalty_basis": "request",
        "workloads": _workloads(draft, rate, unserved, late),
        "pools": [pool_dict(pool, int(gpus)) for pool, gpus in zip(draft.plan.pools, cap, strict=True)],
        "tiers": [
            {"id": f"{pool.id}-{p}", "pool": pool.id, "precision": p}
            for pool in draft.plan.pools
            for p in pool.precisions
        ],
        "configurations": [
            configuration_dict(column, int(replicas[c]), fee, draft.problem.hold_usd_per_s[c])
            for c, column in zip(keep, found, strict=True)
        ],
        "slots": slot_dicts(problem, found, marginal, exclusive),
        "performance": performance_dict(draft.table, draft.columns, draft.names, keep, name),
        "nominal_fleet": [int(y) for y in fleet],
        "dynamics": _dynamics(draft, rng),
        "history": {"rate_rps": history.tolist()},
        "provenance": _provenance(draft, cap, windows, fee),
    }
    if draft.stated is not None:
        data["facts"] = _stated(draft.stated, [column.configuration.id for column in found])
    if limit is not None:
        data["budget"] = {"kind": limit.kind, "usd": limit.usd}
        data["provenance"]["budget"] = limit.provenance
    return Instance.from_dict(data)


def _workloads(
    draft: Draft, rate: np.ndarray, unserved: np.ndarray, late: np.ndarray
) -> list[dict[str, Any]]:
    cv2 = _arrival_cv2(draft, rate) if FAMILIES[draft.family].bursty else np.ones(len(rate))
    return [
        {
            "id": name,
            "rate_rps": float(f"{rate[i]:.6g}"),
            "input_tokens": float(draft.lengths[i, 0]),
            "output_tokens": float(draft.lengths[i, 1]),
            "mean_delay_slo_s": float(draft.delay_slo[i]),
            "error_slo": float(draft.error_slo[i]),
            "unserved_usd": float(unserved[i]),
            "late_usd": float(late[i]),
            "ttft_slo_s": request_class(draft.plan.classes[i]).ttft_slo_s,
            "arrival_cv2": min(float(cv2[i]), MOST_BURSTY),
            **(_laws(draft.lengths[i]) if draft.stated is not None else {}),
        }
        for i, name in enumerate(draft.names)
    ]


def _laws(lengths: np.ndarray) -> dict[str, Any]:
    prompts, outputs = engines.laws(lengths)
    return {"input_law": to_jsonable(prompts), "output_law": to_jsonable(outputs)}


def _stated(facts: Facts, kept: list[str]) -> dict[str, Any]:
    """Return the facts of the configurations that were kept."""
    return to_jsonable(
        dataclasses.replace(
            facts,
            engine_limits=tuple(limit for limit in facts.engine_limits if limit.configuration in kept),
            memory=tuple(memory for memory in facts.memory if memory.configuration in kept),
        )
    )


def _arrival_cv2(draft: Draft, rate: np.ndarray) -> np.ndarray:
    """Return how dispersed arrivals are at the scale at which queues live: a law's, at a request's residency; (I,)."""
    laws = draft.demand.bursts
    if not laws:
        return draft.demand.dispersion
    pairs = zip(laws, rate, draft.delay_slo, strict=True)
    return six([law.dispersion(float(rps), float(scale_s)) for law, rps, scale_s in pairs])


def _dynamics(draft: Draft, rng: np.random.Generator) -> dict[str, Any]:
    family, pools = FAMILIES[draft.family], draft.plan.pools
    constant: dict[str, Any] = {"kind": "constant", "parameters": {}}
    return {
        "demand": draft.demand.process,
        "tokens": draft.demand.tokens,
        "factors": constant,
        "availability": constant,
        "prices": constant,
        **supply(family, pools, rng if family.days else None),
    }


def supply(
    family: FamilyPlan, pools: Sequence[PoolPlan], rng: np.random.Generator | None = None
) -> dict[str, Any]:
    """Return the processes of availability and prices that are not constant.

    Parameters
    ----------
    family : FamilyPlan
        Whether spot pools drop, and whether their prices move.
    pools : sequence of PoolPlan
        The instance's.
    rng : numpy.random.Generator, optional
        Draws the numbers of each pool; without it they are the family's, which are told.

    Returns
    -------
    dict
        By their names in an instance's ``dynamics``.
    """
    found = {}
    if family.drops:
        found["availability"] = market.drops(pools, warned=family.moving_prices, rng=rng)
    if family.moving_prices:
        found["prices"] = market.prices(pools, rng=rng)
    return found


def _provenance(draft: Draft, cap: np.ndarray, windows: np.ndarray, fee: float) -> dict[str, str]:
    labels = sorted({column.label for column in draft.columns})
    named = ", ".join(f"{n} {w:g}" for n, w in zip(draft.names, windows, strict=True))
    providers = sorted({pool.provider for pool in draft.plan.pools})
    found = {
        "demand": draft.demand.provenance,
        "tokens": "measured means and variability of token lengths: Azure (CC-BY-4.0), ServeGen, Mooncake, Vidur "
        "and Helix snapshots (Apache-2.0, MIT); see fleetgym/data/SOURCES-demand.md",
        "performance": f"{' and '.join(labels)}: calibrated roofline of fleetgym.performance.roofline, measured step "
        "times where there is a fit (fleetgym/data/SOURCES.md)",
        "error": "assumed: FastLLM's regime, base error at 8 B times (P/8)^-0.35, times 1.15 at 8 bit, 1.35 at 4",
        "prices": f"measured: {', '.join(providers)} on 2026-10-10, ewyluda/gpu-price-index @ ab49c80",
        "caps": "assumed: usable capacity 1.15 to 1.35 times the p99 demand, the cheapest pool at most 58 % of the "
        "mean work",
        "penalties": f"assumed: an unserved request costs this many times the rent that serves it: {named}; a late "
        "one at most half of that",
        "startup": "assumed: 1 window up to 14 B parameters, 2 up to 70 B, 3 above"
        + (f", all times {slower}" if (slower := FAMILIES[draft.family].slower) != 1 else "")
        + f"; a fee of {fee:g} windows of rent",
    }
    if FAMILIES[draft.family].moving_prices:
        found |= market.provenance(draft.plan.pools, cap)
    if FAMILIES[draft.family].drops:
        hedging = _hedging(draft, windows)
        found["availability"] = (
            "modelled: semi-Markov drops with parameters fitted to public spot traces (no licence, so nothing "
            "but fitted parameters is shipped)"
            + (
                ""
                if FAMILIES[draft.family].moving_prices
                else "; the marketplace's prices stand in for spot prices"
            )
            + (
                "; hedging number drops/day (delay + 1) P / (288 (on-demand/spot - 1)) by pool: " + hedging
                if hedging
                else ""
            )
        )
    if FAMILIES[draft.family].bursty:
        found["arrivals"] = (
            "modelled: as dispersed as a burst law says at the scale of a request's residency "
            f"(fleetgym.families.bursts, fitted to an hour of Azure's requests), at most {MOST_BURSTY:g}: "
            + ", ".join(f"{n} {law.kind}" for n, law in zip(draft.names, draft.demand.bursts, strict=True))
            if draft.demand.bursts
            else "modelled: within a window as dispersed as the counts of windows, measured on ServeGen and Azure "
            f"traces, at most {MOST_BURSTY:g}"
        )
    if draft.stated is not None:
        limits = ", ".join(
            f"{n} {1e3 * slo.tpot:g}"
            for n, slo in zip(draft.names, draft.stated.slos, strict=True)
            if slo.tpot
        )
        found["performance"] = (
            "modelled: roofline with rates of measured operators (docs/calibration.md); a request's mates in a batch "
            "are like itself"
        )
        found["token_slos"] = (
            f"assumed: engines serve at most so many requests at once that a token takes, in ms: {limits}; also on "
            f"days whose mean lengths differ by {engines.DRIFT:g} of their standard deviations, for the worse"
        )
    return {**found, **draft.provenance}


def _hedging(draft: Draft, windows: np.ndarray) -> str:
    """Return the hedging number of each spot pool: what a drop costs over what holding a spare all day costs."""
    wait = 1.0 + float(np.mean([homogeneous.startup_windows(catalog.model(m)) for m in draft.plan.models]))
    prices = {(p.gpu, p.market): p.price_usd_per_gpu_h for p in draft.plan.pools}
    found = []
    for pool in draft.plan.pools:
        safe = prices.get((pool.gpu, "on-demand"))
        if pool.market == "spot" and safe is not None:
            premium = safe / pool.price_usd_per_gpu_h - 1.0
            number = market.DROPS_PER_DAY * wait * float(windows.mean()) / (demand.DAY * premium)
            found.append(f"{pool.id} {number:.2f}")
    return ", ".join(found)
