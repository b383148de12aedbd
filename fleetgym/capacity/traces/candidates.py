"""List the deployments that may serve each workload, and their performance on its requests."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import NoReturn

import numpy as np

from fleetgym.capacity.traces.labels import DEFAULT_MODELS
from fleetgym.capacity.traces.objectives import Slo
from fleetgym.capacity.traces.prices import Offer, pool_ids
from fleetgym.capacity.traces.recipe import Recipe
from fleetgym.families import draft as parts
from fleetgym.families.static import Allocation, Columns
from fleetgym.families.text import six
from fleetgym.files.errors import FleetgymError
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations import homogeneous
from fleetgym.hardware.configurations.homogeneous import Column, TierType
from fleetgym.hardware.configurations.limits import Demand, Lengths, limited
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import (
    Capacity,
    Deployment,
    PairPerformance,
    performance_table,
)
from fleetgym.hardware.performance.delay import error_share
from fleetgym.model.instance import NO_LIMIT_S, Performance, Use

BASE_ERROR = 0.04  # of an 8 B model at 16 bit, assumed as in FastLLM's regime
_DEGREES = (1, 2, 4, 8)  # of tensor parallelism
_STAGES = (1, 2, 3, 4, 6, 8)  # nodes of one replica, at most as many as it needs
TOLERANCE = 1e-6

#: The engine of a plan; between nodes, Ethernet of 100 Gbit/s is assumed.
ENGINE = roofline.RooflineOptions(coefficients=3, network_s=1e-4, network_gb_per_s=12.5)
_ANY_CAPACITY = Capacity(
    compute_tflops=1.0, kv_capacity_gb=1.0, kv_gb_per_token=1.0, max_concurrency=1, label=""
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PricedPool(parts.PoolPlan):
    """A pool whose price comes from an `Offer`: rent, power and cooling."""

    name: str
    usd_per_gpu_h: float

    @property
    def id(self) -> str:
        """Name of the pool; a list may have several offers of a GPU, market and region."""
        return self.name

    @property
    def price_usd_per_gpu_h(self) -> float:
        """The offer's price."""
        return self.usd_per_gpu_h

    @property
    def is_committed(self) -> bool:
        """Never: how many reserved GPUs to commit to is what a plan decides, so their price is in the instance."""
        return False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Candidates:
    """Deployments that may serve I workloads; arrays are (I,), or (I, 4)."""

    plan: parts.SizePlan
    lengths: np.ndarray
    columns: Sequence[Column]
    problem: Columns
    table: Performance
    delay_slo: np.ndarray
    error_slo: np.ndarray
    names: tuple[str, ...]


def longest_requests(
    models: Sequence[str] | None,
    bound: Sequence[str | None],
    offers: Sequence[Offer],
    context: int | None = None,
) -> np.ndarray:
    """Return the most tokens of a request of each label that what serves it holds, (L,); (1,) without labels.

    The requests must fit the offers' memory; `bound` says what serves each label, `context` is a limit of the user's.

    Raises
    ------
    FleetgymError
        If a model that is needed fits no GPU.
    """
    names = tuple(dict.fromkeys([*(models or DEFAULT_MODELS), *filter(None, bound)]))
    holds = dict.fromkeys(names, 0)
    for column in _fitting(
        _size_plan((), offers, names),
        lambda deployment: _ANY_CAPACITY if roofline.most_tokens(deployment, ENGINE) else None,
    ):
        model = column.deployment.model.name
        holds[model] = max(holds[model], roofline.most_tokens(column.deployment, ENGINE))
    any_model = max(holds[name] for name in models or DEFAULT_MODELS)
    found = np.array([holds[m] if m else any_model for m in bound or (None,)])
    if not found.all():
        missing = [m for m in bound if m and not holds[m]] or list(models or DEFAULT_MODELS)
        raise FleetgymError(
            f"none of {', '.join(dict.fromkeys(missing))} fits {', '.join(dict.fromkeys(o.gpu for o in offers))}, "
            "whatever the precision, or the number of GPUs or nodes of a replica: give other --models or --gpus"
        )
    return found if context is None else np.minimum(found, context)


def smallest_replica(gpu: str, models: Sequence[str]) -> int | None:
    """Return the fewest GPUs of a type that hold one of the models; None if none fits.

    Examples
    --------
    >>> smallest_replica("L40S", ["Llama-3.1-70B"]), smallest_replica("H200", ["Llama-3.1-8B"])
    (2, 1)
    """
    fitting = _fitting(
        _size_plan((), [Offer(gpu=gpu, usd_per_gpu_h=1.0)], tuple(models)),
        lambda deployment: _ANY_CAPACITY if roofline.most_tokens(deployment, ENGINE) else None,
    )
    return min((column.deployment.gpus for column in fitting), default=None)


def with_default_errors(
    slos: Sequence[Slo], are_stated: Sequence[bool], models: Sequence[str] | None, own: Sequence[str | None]
) -> tuple[Slo, ...]:
    """Return SLOs whose default error gives way to the best model at any precision.

    Parameters
    ----------
    slos : sequence of Slo
        By workload.
    are_stated : sequence of bool
        Whether the user stated the error, which then stays.
    models : sequence of str, optional
        The candidates.
    own : sequence of str, optional
        By workload, the model that its label names.

    Returns
    -------
    tuple of Slo
    """
    every = _candidates(models, own)
    served = [(name,) if name else every for name in own] if own else [every] * len(slos)
    return tuple(
        slo if stated else dataclasses.replace(slo, error=max(slo.error, min(map(_largest_error, names))))
        for slo, stated, names in zip(slos, are_stated, served, strict=True)
    )


def _largest_error(name: str) -> float:
    """Return the assumed error of a model at the coarsest precision that it may have here, rounded up."""
    known = catalog.published(name).precisions or ("fp8",)
    size = parts.effective_params_b(name)
    return math.ceil(1e4 * max(error_share(BASE_ERROR, size, p) for p in known)) / 1e4


def _candidates(models: Sequence[str] | None, own: Sequence[str | None]) -> tuple[str, ...]:
    named = list(dict.fromkeys(name for name in own if name is not None))
    if models is None:
        models = named if named and None not in own else [*named, *DEFAULT_MODELS]
    for name in models:
        catalog.published(name)
    missing = [name for name in named if name not in models]
    if missing:
        raise FleetgymError(
            f"the trace asks for {', '.join(missing)}, which the models given leave out; name them, too, or say what "
            "serves their labels with --bind LABEL=MODEL"
        )
    return tuple(dict.fromkeys(models))


def _size_plan(names: tuple[str, ...], offers: Sequence[Offer], models: tuple[str, ...]) -> parts.SizePlan:
    four_bits = ("int4",) if any("int4" in catalog.published(name).precisions for name in models) else ()
    pools = tuple(
        PricedPool(
            name=name,
            gpu=o.gpu,
            provider="",
            market=o.market,
            region=o.region,
            precisions=("fp16", "int8" if catalog.gpu(o.gpu).fp8_tflops is None else "fp8", *four_bits),
            usd_per_gpu_h=o.usd_per_gpu_h + o.power_usd_per_gpu_h,
            gpus_per_node=o.gpus_per_node,
        )
        for name, o in zip(pool_ids(offers), offers, strict=True)
    )
    return parts.SizePlan(classes=names, models=models, pools=pools, gpus=0.0)


def _fitting(plan: parts.SizePlan, capacity: Callable[[Deployment], Capacity | None]) -> list[Column]:
    """Return the deployments that fit: within a node, or over several where one is too small."""
    found: list[Column] = []
    for pool in plan.pools:
        gpu = catalog.gpu(pool.gpu)
        node = pool.gpus_per_node if pool.gpus_per_node > 1 else gpu.gpus_per_node
        degrees = tuple(n for n in _DEGREES if n <= node)
        for precision in pool.precisions:
            tier = TierType(
                id=f"{pool.id}-{precision}", gpu=gpu, precision=precision, tensor_parallel=degrees
            )
            for name in plan.models:
                model = catalog.published(name)
                if model.precisions and precision not in model.precisions:
                    continue
                for stages in _STAGES:
                    columns = homogeneous.columns(
                        [model],
                        [tier],
                        pipeline_parallel=(stages,),
                        capacity=capacity,
                        startup=homogeneous.startup_windows,
                    )
                    if stages > 1:  # whole nodes, one stage each
                        columns = [c for c in columns if c.deployment.tensor_parallel == degrees[-1]]
                    if columns:
                        found += columns
                        break
    return found


def _packed(column: Column, node: int) -> Column:
    """Return a replica that is rented alone, or the node that a number of them fill; the rest of it lies idle."""
    stages, gpus = column.deployment.pipeline_parallel, column.deployment.gpus
    if node == 1 or stages > 1:
        return column
    one, several = column.configuration, node // gpus
    filled = dataclasses.replace(
        one,
        id=one.id if several == 1 else f"{one.id}x{several}",
        uses=(Use(tier=column.tier, gpus=node),),
        compute_tflops=several * one.compute_tflops,
        kv_capacity_gb=several * one.kv_capacity_gb,
        max_concurrency=several * one.max_concurrency,
        model_storage_usd_per_h=several * one.model_storage_usd_per_h,
    )
    return dataclasses.replace(column, configuration=filled)


def _workloads_of(recipe: Recipe, deployment: Deployment) -> np.ndarray:
    """Return the workloads that a deployment may serve: those that it is bound to, and can hold, (I,) bool."""
    may = np.array([model in (None, deployment.model.name) for model in recipe.served_by])
    return may & (recipe.held.longest <= roofline.most_tokens(deployment, ENGINE))


def find_candidates(recipe: Recipe, slos: Sequence[Slo]) -> Candidates:
    """Return the deployments for these SLOs, one of each workload.

    Raises
    ------
    FleetgymError
        If nothing can serve a workload, or not within its TTFT SLO.
    """
    plan = _size_plan(recipe.names, recipe.offers, _candidates(recipe.models or None, recipe.served_by))
    steps = recipe.step_times

    @functools.cache  # pools share deployments
    def engine(deployment: Deployment) -> tuple[np.ndarray, roofline.RooflineOptions | None]:
        served = _workloads_of(recipe, deployment)
        if not served.any():
            return served, None
        held = recipe.held.of(served)
        longest = int(held.longest.max())
        return served, dataclasses.replace(ENGINE, context_limit=longest, held=held, steps=steps)

    @functools.cache
    def capacity(deployment: Deployment) -> Capacity | None:
        _, options = engine(deployment)
        return None if options is None else roofline.capacity(deployment, options)

    fitting = _fitting(plan, capacity)
    if not fitting:
        raise FleetgymError(
            f"none of {', '.join(plan.models)} fits {', '.join(pool.gpu for pool in plan.pools)} with a request of "
            f"{recipe.held.longest.min():,.0f} tokens"
        )
    lengths = six(recipe.lengths)

    def pair_at(i: int, column: Column, at_once: int) -> PairPerformance | None:
        served, options = engine(column.deployment)
        if options is None or not served[i]:
            return None
        return _pair(column, lengths[i], recipe.computed[i], options, at_once)

    demands = [
        Demand(name=name, slo=slos[i], lengths=_lengths(recipe, i), pair_at=functools.partial(pair_at, i))
        for i, name in enumerate(recipe.names)
    ]
    columns, is_kept = limited(fitting, demands)
    pairs: list[list[PairPerformance | None]] = []
    for i, name in enumerate(recipe.names):
        row = [
            pair_at(i, column, column.configuration.max_concurrency) if kept else None
            for column, kept in zip(columns, is_kept[i], strict=True)
        ]
        pairs.append(_in_time(name, row, lengths[i], slos[i].ttft))
    nodes = {f"{pool.id}-{p}": pool.gpus_per_node for pool in plan.pools for p in pool.precisions}
    columns = [_packed(column, nodes[column.tier]) for column in columns]
    table = performance_table(pairs)
    at = parts.at_lengths(table, lengths)
    error_slo = six([slo.error for slo in slos])
    delay_slo = six([slo.delay or slo.e2e or NO_LIMIT_S for slo in slos])
    return Candidates(
        plan=plan,
        lengths=lengths,
        columns=columns,
        problem=parts.make_problem(plan, columns, table, at, lengths, delay_slo, error_slo, exclusive=False),
        table=table,
        delay_slo=delay_slo,
        error_slo=error_slo,
        names=recipe.names,
    )


def _lengths(recipe: Recipe, i: int) -> Lengths:
    return Lengths(
        input_tokens=float(recipe.lengths[i, 0]),
        output_tokens=float(recipe.lengths[i, 1]),
        output_values=recipe.output_values,
        output_shares=recipe.output_shares[i],
    )


def _pair(
    column: Column,
    lengths: np.ndarray,
    computed: np.ndarray,
    options: roofline.RooflineOptions,
    at_once: int,
) -> PairPerformance | None:
    """Return what a configuration does to requests of which it computes a part of the prompt only."""
    computed_in, computed_cv2, correlation = (float(v) for v in computed)
    model = column.deployment.model
    assert options.held is not None
    requests = parts.requests_of(
        lengths,
        BASE_ERROR,
        model.name,
        column.deployment.precision,
        computed_share=min(1.0, computed_in / float(lengths[0])),
        input_cv2=computed_cv2,
        correlation=correlation,
        storage_usd=0.0,  # nobody said what storing the text costs
    )
    context = options.held.context(model)
    return roofline.pair(column.deployment, requests, options, context_tokens=context, at_once=at_once)


def _in_time(
    name: str, row: list[PairPerformance | None], lengths: np.ndarray, ttft_s: float
) -> list[PairPerformance | None]:
    """Return the pairs whose prefill leaves a fifth of the TTFT SLO for waiting."""
    first = [math.inf if p is None else p.prefill_s.at(lengths[0], lengths[1]) for p in row]
    if min(first) == math.inf:
        raise FleetgymError(
            f"no candidate can serve workload {name!r}, whose mean request has {lengths[0]:,.0f} + {lengths[1]:,.0f} "
            "tokens: its context, or its model on these GPUs, is out of reach; give other --models or --gpus"
        )
    if min(first) > parts.LONGEST_PREFILL * ttft_s:
        raise FleetgymError(
            f"the SLO ttft={ttft_s:g} of workload {name!r} is out of reach: a prompt of {lengths[0]:,.0f} tokens "
            f"alone takes {min(first):.2f} s on the fastest configuration, and a fifth of the SLO is for waiting"
        )
    return [p if s <= parts.LONGEST_PREFILL * ttft_s else None for p, s in zip(row, first, strict=True)]


def check_slos(found: Candidates, served: Allocation) -> None:
    """Raise where even unlimited GPUs, at any price, break a mean SLO or leave requests unserved to keep it.

    `served` is what they do for a demand that is light for them.
    """
    problem = found.problem
    means = (
        ("delay", problem.delay_s, problem.mean_delay_slo_s),
        ("error", problem.error, problem.error_slo),
    )
    for i, name in enumerate(found.names):
        for what, value, slo in means:
            best = float(value[i][problem.compatible[i]].min())
            if best > slo[i]:
                _out_of_reach(name, f"{what}={slo[i]:g}", f"the best configuration has {best:.4g}")
        broken = max(float(served.routing[i] @ (value[i] / slo[i] - 1.0)) for _, value, slo in means)
        if broken > TOLERANCE or served.unserved[i] > TOLERANCE:
            both = " and ".join(f"{what}={slo[i]:g}" for what, _, slo in means)
            _out_of_reach(name, both, "each can be kept, but not both together")


def _out_of_reach(workload: str, slo: str, why: str) -> NoReturn:
    raise FleetgymError(
        f"the SLO {slo} of workload {workload!r} is out of reach: {why}; loosen it, or give other --models or --gpus"
    )
