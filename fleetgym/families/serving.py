"""From a family, a size and a generator to an instance with realistic models, GPUs, prices and SLOs.

The order of decisions: columns from the catalogue; shares of the fleet per workload; rates, so that the mean
fleet has the size's GPUs; caps, so that the pools together bear a stated multiple of the p99 demand; penalties
in windows of the rent that serves a request; a nominal fleet by a small MILP.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from fleetgym import catalog
from fleetgym.configurations import homogeneous
from fleetgym.configurations.homogeneous import Column, TierType
from fleetgym.families import demand
from fleetgym.families.draft import (
    COPULA,
    DROPS_PER_DAY,
    STORAGE_USD_PER_GB_H,
    TEXT_GB_PER_TOKEN,
    Draft,
    PoolPlan,
    SizePlan,
    at_lengths,
    configuration_dict,
    dear_penalties,
    effective_params_b,
    fits,
    make_problem,
    performance_dict,
    pool_dict,
    pools_alone,
    slot_dicts,
    two_best,
)
from fleetgym.families.static import Columns, allocate, largest_load, restrict
from fleetgym.families.text import six
from fleetgym.instance import INSTANCE_FORMAT, Instance, Performance
from fleetgym.performance import delay, performance_table, roofline

_OPTIONS = roofline.RooflineOptions(context_limit=4096)
_LONGEST_PREFILL = 0.8  # of the TTFT SLO


@dataclasses.dataclass(frozen=True, kw_only=True)
class RequestClass:
    """A workload before its rate is known."""

    id: str
    tokens: str  # a class of `demand_fits.json`, or "" where a trace gives the lengths
    model: str  # the smallest model that is good enough
    base_error: float  # error share of an 8 B model at 16 bit, as FastLLM's regime assumes
    ttft_slo_s: float


_CLASSES = {
    "assistant": RequestClass(
        id="assistant", tokens="sharegpt", model="Llama-3.2-3B", base_error=0.03, ttft_slo_s=0.8
    ),
    "chat": RequestClass(
        id="chat", tokens="azure_conv", model="Llama-3.1-8B", base_error=0.03, ttft_slo_s=1.0
    ),
    "summarise": RequestClass(
        id="summarise", tokens="arxiv_summ", model="gpt-oss-20b", base_error=0.03, ttft_slo_s=2.5
    ),
    "code": RequestClass(id="code", tokens="azure_code", model="Qwen3-32B", base_error=0.04, ttft_slo_s=2.0),
    "reasoning": RequestClass(
        id="reasoning", tokens="reasoning", model="Llama-3.1-70B", base_error=0.05, ttft_slo_s=2.0
    ),
    "agents": RequestClass(
        id="agents", tokens="azure_conv", model="gpt-oss-120b", base_error=0.04, ttft_slo_s=1.5
    ),
}


def _aws(gpu: str, region: str, *precisions: str) -> PoolPlan:
    return PoolPlan(
        gpu=gpu,
        provider="AWS",
        market="on-demand",
        region=region,
        price_region=region,
        precisions=precisions,
    )


def _runpod(gpu: str, market: str, region: str, precision: str) -> PoolPlan:
    # The marketplace can take GPUs back, as spot does; its prices and the secure cloud's are a real pair.
    provider = "RunPod Community" if market == "spot" else "RunPod Secure"
    return PoolPlan(gpu=gpu, provider=provider, market=market, region=region, precisions=(precision,))


_SMALL = ("Llama-3.2-3B", "Llama-3.1-8B", "Qwen3-32B")
_SMALL_CLASSES = ("assistant", "chat", "summarise", "code")
_MEDIUM = ("Llama-3.2-3B", "Llama-3.1-8B", "gpt-oss-20b", "Qwen3-32B", "Llama-3.1-70B", "gpt-oss-120b")
_EAST, _TOKYO = "us-east-1", "ap-northeast-1"
_DEMAND_S = SizePlan(
    classes=_SMALL_CLASSES,
    models=_SMALL,
    pools=(_aws("L40S", _EAST, "fp8"), _aws("A100-40GB", _EAST, "int8"), _aws("H100", _EAST, "fp8")),
    gpus=12.0,
)
_DEMAND_M = SizePlan(
    classes=tuple(_CLASSES),
    models=_MEDIUM,
    pools=(
        _aws("L40S", _EAST, "fp8", "int4"),
        _aws("A100-80GB", _EAST, "fp16", "int8"),
        _aws("H100", _EAST, "fp16", "fp8"),
        _aws("H200", _EAST, "fp8"),
        _aws("L40S", _TOKYO, "fp8"),
        _aws("A100-80GB", _TOKYO, "int8"),
        _aws("H100", _TOKYO, "fp8"),
    ),
    gpus=64.0,
)
_DROP_S = SizePlan(
    classes=_SMALL_CLASSES,
    models=_SMALL,
    pools=(
        _runpod("A100-80GB", "spot", "region-1", "int8"),
        _runpod("L40S", "spot", "region-2", "fp8"),
        _runpod("A100-80GB", "on-demand", "region-1", "int8"),
    ),
    gpus=12.0,
)
_DROP_M = SizePlan(
    classes=tuple(_CLASSES),
    models=_MEDIUM,
    pools=(
        _runpod("A100-80GB", "spot", "region-1", "int8"),
        _runpod("A100-80GB", "spot", "region-2", "int8"),
        _runpod("A100-80GB", "on-demand", "region-1", "int8"),
        _runpod("L40S", "spot", "region-1", "fp8"),
        _runpod("L40S", "spot", "region-2", "fp8"),
        _runpod("L40S", "on-demand", "region-2", "fp8"),
        _runpod("H200", "spot", "region-1", "fp8"),
        _runpod("H200", "spot", "region-2", "fp8"),
        _runpod("H200", "on-demand", "region-1", "fp8"),
        _runpod("H100", "on-demand", "region-2", "fp8"),
    ),
    gpus=64.0,
)

SIZES = {
    ("grw", "s"): _DEMAND_S,
    ("grw", "m"): _DEMAND_M,
    ("ou", "s"): _DEMAND_S,
    ("ou", "m"): _DEMAND_M,
    ("drop", "s"): _DROP_S,
    ("drop", "m"): _DROP_M,
    ("warp", "s"): _DEMAND_S,
    ("trace", "m"): _DEMAND_M,
}


_DESCRIPTIONS = {
    "grw": "FastLLM's random walk on realistic columns in exclusive (model, tier) groups.",
    "ou": "Calibrated demand: a daily term, mean-reverting swings, noise and jumps; capacity is scarce, starting slow.",
    "drop": "Calibrated demand on spot and on-demand GPUs; spot pools vanish almost wholly, regions together.",
    "warp": "One real hour of Azure requests stretched to a day; diagnostic.",
    "trace": "Real ServeGen tenants: seven days of history, the eighth scored.",
}


# -- the parts


def build(family: str, size: str, seed: int, rng: np.random.Generator) -> Instance:
    """Return an instance of a serving family.

    Parameters
    ----------
    family, size : str
        A key of `SIZES`.
    seed : int
        Part of the id; trace instances take their tenants from it.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    Instance
        Validated.
    """
    name = f"{family}-{size}-{seed:03d}"
    draft = _draft(family, SIZES[family, size], seed, rng)
    rate, cap = _rates_and_caps(draft, rng)
    return _finish(name, size, draft, rate, cap, rng)


def _draft(family: str, plan: SizePlan, seed: int, rng: np.random.Generator) -> Draft:
    process = demand_plan(family, len(plan.classes), seed, rng)
    lengths = _lengths(plan, _tenants(family, seed))
    found = _columns(plan, exclusive=family == "grw")
    pairs = [
        [_pair(_CLASSES[k], row, column) for column in found]
        for k, row in zip(plan.classes, lengths, strict=True)
    ]
    table = performance_table(pairs)
    at = at_lengths(table, lengths)
    error_slo = _error_slos(plan)
    delay_slo = _delay_slos(table, at["delay_s"], error_slo, rng)
    problem = make_problem(plan, found, table, at, lengths, delay_slo, error_slo, exclusive=family == "grw")
    keys = _tenants(family, seed)
    names = tuple(f"{model}-{client}" for model, client in keys) or plan.classes
    return Draft(plan, family, process, lengths, found, problem, table, delay_slo, error_slo, names)


def _tenants(family: str, seed: int) -> tuple[tuple[str, int], ...]:
    """Return the tenants of a trace instance; none for the other families."""
    return demand.TRACES[(seed - 1) % len(demand.TRACES)] if family == "trace" else ()


def demand_plan(family: str, count: int, seed: int, rng: np.random.Generator) -> demand.DemandPlan:
    """Return the demand of an instance: the first thing that `build` draws.

    Parameters
    ----------
    family : str
        A serving family.
    count : int
        Number of workloads.
    seed : int
        Picks the random walk's volatility or the tenants.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    DemandPlan
        Relative demand and its process.
    """
    if family == "grw":
        return demand.walk(rng, count, (0.02, 0.05, 0.03, 0.01, 0.04)[(seed - 1) % 5])
    if family == "warp":
        return demand.warp(rng, ("azure_conv", "azure_conv", "azure_code", "azure_code"))
    if family == "trace":
        return demand.trace(rng, _tenants(family, seed))
    return demand.calibrated(rng, count)


def _lengths(plan: SizePlan, keys: tuple[tuple[str, int], ...]) -> np.ndarray:
    """Return mean lengths and their squared coefficients of variation: (I, 4)."""
    rows = []
    for k, name in enumerate(plan.classes):
        token = fits()["tokens"][_CLASSES[name].tokens]
        means = demand.tenant_lengths(keys[k]) if keys else (token["input_tokens"], token["output_tokens"])
        rows.append((*means, token["input_cv2"], token["output_cv2"]))
    return six(rows)


def _columns(plan: SizePlan, exclusive: bool) -> list[Column]:
    tiers = [
        TierType(id=f"{pool.id}-{precision}", gpu=catalog.gpu(pool.gpu), precision=precision)
        for pool in plan.pools
        for precision in pool.precisions
    ]
    found = homogeneous.columns(
        [catalog.model(name) for name in plan.models],
        tiers,
        pipeline_parallel=(1, 2) if exclusive and len(plan.models) < 4 else (1,),
        capacity=lambda deployment: roofline.capacity(deployment, _OPTIONS),
        startup=homogeneous.startup_windows,
        storage_usd_per_gb_h=STORAGE_USD_PER_GB_H,
    )
    return found if exclusive else two_best(found)


def _pair(request: RequestClass, lengths: np.ndarray, column: Column) -> Any:
    """Return the performance of one workload on one column, or None where its prefill is too slow."""
    deployment = column.deployment
    tokens_in, tokens_out, in_cv2, out_cv2 = (float(v) for v in lengths)
    found = roofline.pair(
        deployment,
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        error=delay.error_share(
            request.base_error, effective_params_b(deployment.model.name), deployment.precision
        ),
        context_tokens=1024.0,
        input_cv2=in_cv2,
        output_cv2=out_cv2,
        storage_usd=STORAGE_USD_PER_GB_H * TEXT_GB_PER_TOKEN * (tokens_in + tokens_out),
        options=_OPTIONS,
    )
    if found is None or found.prefill_s.at(tokens_in, tokens_out) > _LONGEST_PREFILL * request.ttft_slo_s:
        return None
    return found


def _error_slos(plan: SizePlan) -> np.ndarray:
    """Return SLOs that the smallest good model keeps at 8 bit, and breaks at 4 bit."""
    slos = []
    for name in plan.classes:
        request = _CLASSES[name]
        wanted = request.model if request.model in plan.models else _substitute(request.model, plan)
        slos.append(1.02 * delay.error_share(request.base_error, effective_params_b(wanted), "fp8"))
    return six(slos)


def _substitute(model: str, plan: SizePlan) -> str:
    """Return the model of the plan whose quality is nearest."""
    target = np.log(effective_params_b(model))
    return min(plan.models, key=lambda name: abs(np.log(effective_params_b(name)) - target))


def _delay_slos(
    table: Performance, delay_s: np.ndarray, error_slo: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return SLOs a little above the median delay of the columns that are good enough."""
    good = table.compatible & (table.error <= error_slo[:, None])
    medians = np.array([np.quantile(delay_s[i][good[i]], 0.5) for i in range(len(delay_s))])
    return six(medians * rng.uniform(1.1, 1.4, len(medians)))


# -- rates and caps


def _rates_and_caps(draft: Draft, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return nominal rates (I,) and caps in GPUs (G,)."""
    count = len(draft.lengths)
    weight = np.ones(count)
    if draft.family == "trace":  # tenants that move get more of the fleet than those that need no planning
        weight = np.clip(demand.daily_movement(draft.demand.level), 0.15, 0.8)
    share = rng.dirichlet(12.0 * weight / weight.mean())
    relaxed = dataclasses.replace(draft.problem, groups=(), max_replicas=np.full(len(draft.columns), 1e4))
    ones = np.ones(count)
    alone = [
        allocate(
            relaxed, np.where(np.arange(count) == i, 1.0, 1e-6), dear_penalties(relaxed, ones)
        ).cost_usd_per_s
        for i in range(count)
    ]
    rate = share / np.array(alone)
    peak = _peak_factor(draft, share)
    margin = rng.uniform(1.15, 1.35)
    spread = rng.uniform(0.8, 1.2, len(draft.plan.pools))
    cap = np.full(len(draft.plan.pools), np.inf)
    gpus = 0.0
    for _ in range(3):  # the mean fleet depends on the caps, and they on the rates
        found = allocate(relaxed, rate, dear_penalties(relaxed, rate), np.minimum(cap, 1e6))
        gpus = float((relaxed.gpu_use @ found.replicas).sum())
        rate = rate * draft.plan.gpus / gpus
        cap = _caps(draft, relaxed, rate, peak, margin, spread)
    return rate, cap


def _peak_factor(draft: Draft, share: np.ndarray) -> float:
    """Return p99 / mean of the demand, weighted by what each workload's share of the fleet costs."""
    total = draft.demand.level @ share
    return float(np.quantile(total, 0.99) / total.mean())


def _caps(
    draft: Draft, problem: Columns, rate: np.ndarray, peak: float, margin: float, spread: np.ndarray
) -> np.ndarray:
    """Return caps at which all pools together bear `margin` times the p99 demand.

    The pool that is used first may hold at most 55 % of the GPUs that it would need to do the mean work alone, the
    others 40 % to 90 % before scaling, so that each binds at some time of the day.
    """
    alone, cost = pools_alone(problem, rate)
    base = np.where(np.arange(len(alone)) == int(np.argmin(cost)), 0.55, 0.65 * spread) * alone
    spot = np.array([pool.market == "spot" for pool in draft.plan.pools])
    crowded = max(1.0, len(alone) / 4.0)  # many pools share the same work
    base = np.where(spot & spot.any(), 0.7, 1.0) * base / crowded
    whole = np.array([max(problem.gpu_use[g][problem.gpu_use[g] > 0].min(), 1.0) for g in range(len(base))])
    first = int(np.argmin(cost))

    def scaled(factor: float) -> np.ndarray:
        grown = base * factor
        grown[first] = min(grown[first], 0.58 * alone[first])
        return np.maximum(np.ceil(grown), 2.0 * whole)

    low, high = 0.4, 4.0
    for _ in range(7):
        middle = (low * high) ** 0.5
        if largest_load(problem, peak * rate, scaled(middle)) < margin:
            low = middle
        else:
            high = middle
    return scaled(high)


# -- the finished instance

_PENALTY_WINDOWS = {"drop": (9.5, 10.0)}  # the others: 7 to 10


def _finish(
    name: str, size: str, draft: Draft, rate: np.ndarray, cap: np.ndarray, rng: np.random.Generator
) -> Instance:
    exclusive = draft.family == "grw"
    history = six(demand.history_rps(draft.demand, rng, rate))
    rate = history.mean(axis=0)
    relaxed = dataclasses.replace(draft.problem, groups=(), max_replicas=np.full(len(draft.columns), 1e4))
    marginal = np.abs(allocate(relaxed, rate, dear_penalties(relaxed, rate), cap).marginal_usd)
    windows = np.round(rng.uniform(*_PENALTY_WINDOWS.get(draft.family, (7.0, 10.0)), len(rate)), 1)
    unserved = six(windows * marginal)
    late = six(unserved * rng.uniform(0.25, 0.5, len(rate)))
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
    fleet = allocate(problem, rate, unserved, cap, integer=True, gap=0.02, node_limit=100).replicas
    found = [draft.columns[c] for c in keep]
    fee = round(float(rng.uniform(1.5, 3.0)), 2)
    data = {
        "format": INSTANCE_FORMAT,
        "id": name,
        "family": draft.family,
        "size": size,
        "description": _DESCRIPTIONS[draft.family],
        "num_windows": demand.DAY,
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
        "performance": performance_dict(draft, keep, name),
        "nominal_fleet": [int(y) for y in fleet],
        "dynamics": _dynamics(draft),
        "history": {"rate_rps": history.tolist()},
        "provenance": _provenance(draft, windows, fee),
    }
    return Instance.from_dict(data)


def _workloads(
    draft: Draft, rate: np.ndarray, unserved: np.ndarray, late: np.ndarray
) -> list[dict[str, Any]]:
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
            "ttft_slo_s": _CLASSES[draft.plan.classes[i]].ttft_slo_s,
        }
        for i, name in enumerate(draft.names)
    ]


def _dynamics(draft: Draft) -> dict[str, Any]:
    constant = {"kind": "constant", "parameters": {}}
    availability: dict[str, Any] = constant
    if draft.family == "drop":
        drops = {name: float(value) for name, value in fits()["drops"].items()}
        per_day = [DROPS_PER_DAY if p.market == "spot" else 0.0 for p in draft.plan.pools]
        availability = {"kind": "drops", "parameters": {**drops, "drops_per_day": per_day, **COPULA}}
    return {
        "demand": draft.demand.process,
        "tokens": draft.demand.tokens,
        "factors": constant,
        "availability": availability,
        "prices": constant,
    }


def _provenance(draft: Draft, windows: np.ndarray, fee: float) -> dict[str, str]:
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
        "startup": f"assumed: 1 window up to 14 B parameters, 2 up to 70 B, 3 above; a fee of {fee:g} windows of rent",
    }
    if draft.family == "drop":
        found["availability"] = (
            "modelled: semi-Markov drops with parameters fitted to public spot traces (no licence, so nothing "
            "but fitted parameters is shipped); the marketplace's prices stand in for spot prices; hedging number "
            f"drops/day (delay + 1) P / (288 (on-demand/spot - 1)) by pool: {_hedging(draft, windows)}"
        )
    return found


def _hedging(draft: Draft, windows: np.ndarray) -> str:
    """Return the hedging number of each spot pool: what a drop costs over what holding a spare all day costs."""
    wait = 1.0 + float(np.mean([homogeneous.startup_windows(catalog.model(m)) for m in draft.plan.models]))
    prices = {(p.gpu, p.market): p.price_usd_per_gpu_h for p in draft.plan.pools}
    found = []
    for pool in draft.plan.pools:
        safe = prices.get((pool.gpu, "on-demand"))
        if pool.market == "spot" and safe is not None:
            premium = safe / pool.price_usd_per_gpu_h - 1.0
            number = DROPS_PER_DAY * wait * float(windows.mean()) / (demand.DAY * premium)
            found.append(f"{pool.id} {number:.2f}")
    return ", ".join(found)
