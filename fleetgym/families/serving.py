"""Make instances with realistic models, GPUs, prices and SLOs.

The order of decisions: columns from the catalogue; shares of the fleet per workload; rates, so that the mean
fleet has the size's GPUs; caps, so that the pools together bear a stated multiple of the p99 demand; penalties
in windows of the rent that serves a request; a nominal fleet by a small MILP.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from fleetgym.families import demand, engines
from fleetgym.families.caps import rates_and_caps
from fleetgym.families.draft import (
    LONGEST_PREFILL,
    STORAGE_USD_PER_GB_H,
    Candidate,
    Draft,
    SizePlan,
    at_lengths,
    fits,
    make_problem,
    requests_of,
)
from fleetgym.families.finish import finish
from fleetgym.families.plans import FAMILIES, MULTI_SIZES, SIZES, RequestClass, request_class
from fleetgym.families.slos import delay_slos, error_slos
from fleetgym.families.text import six
from fleetgym.families.weekly import weekly
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations import homogeneous
from fleetgym.hardware.configurations.homogeneous import Column, TierType, two_best
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import PairPerformance, performance_table
from fleetgym.hardware.performance.roofline import RooflineOptions
from fleetgym.model.instance import Instance


@dataclasses.dataclass(frozen=True, kw_only=True)
class PlannedColumn(Column):
    """A configuration, and the engine that it runs on."""

    options: RooflineOptions


def build(family: str, size: str, seed: int, rng: np.random.Generator) -> Instance:
    """Return an instance of a serving family.

    Parameters
    ----------
    family, size : str
        A key of `fleetgym.families.plans.SIZES` or of `MULTI_SIZES` there.
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
    if family == "multi":
        from fleetgym.families import multi  # compiled code

        draft = multi.draft(MULTI_SIZES[size], rng)
    else:
        draft = _draft(family, SIZES[family, size], seed, rng)
    rate, cap = rates_and_caps(draft, rng)
    return finish(name, size, draft, rate, cap, rng)


def _draft(family: str, plan: SizePlan, seed: int, rng: np.random.Generator) -> Draft:
    count, exclusive = len(plan.classes), FAMILIES[family].exclusive
    process = demand_plan(family, plan.classes, seed, rng)
    tenants = demand.trace_days(seed, count) if family == "trace" else None
    lengths = _lengths(plan, tenants)
    found: Sequence[Candidate]
    if FAMILIES[family].coefficients == 2:
        found, pairs = engines.engines(plan, lengths, FAMILIES[family])
        stated = engines.facts(plan, found, FAMILIES[family])
    else:
        found, stated = _columns(plan, FAMILIES[family].contexts, exclusive), None
        pairs = [
            [_pair(request_class(k), row, column) for column in found]
            for k, row in zip(plan.classes, lengths, strict=True)
        ]
    table = performance_table(pairs)
    at = at_lengths(table, lengths)
    error_slo = error_slos(plan)
    delay_slo = delay_slos(table, at["delay_s"], error_slo, rng)
    problem = make_problem(plan, found, table, at, lengths, delay_slo, error_slo, exclusive=exclusive)
    keys = tenants.keys if tenants else ()
    names = tuple(f"{model}-{client}" for model, client in keys) or plan.classes
    return Draft(
        plan, family, process, lengths, found, problem, table, delay_slo, error_slo, names, stated=stated
    )


def demand_plan(
    family: str, classes: tuple[str, ...], seed: int, rng: np.random.Generator
) -> demand.DemandPlan:
    """Return the demand of an instance: the first thing that `build` draws.

    Parameters
    ----------
    family : str
        A serving family.
    classes : tuple of str
        Request class of each workload.
    seed : int
        Picks the random walk's volatility or the tenants.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    DemandPlan
        Relative demand and its process.
    """
    count, kind = len(classes), FAMILIES[family]
    if kind.days:
        tokens = tuple(request_class(name).tokens for name in classes)
        return weekly(
            rng,
            tokens,
            kind.days,
            log_sd=kind.lengths_log_sd,
            lengths_time_min=kind.lengths_time_min,
            bursty=kind.bursty,
        )
    if family == "grw":
        return demand.walk(rng, count, (0.02, 0.05, 0.03, 0.01, 0.04)[(seed - 1) % 5])
    if family == "warp":
        return demand.warp(rng, ("azure_conv", "azure_conv", "azure_code", "azure_code"))
    if family == "trace":
        return demand.trace(rng, demand.trace_days(seed, count))
    return demand.calibrated(rng, count)


def _lengths(plan: SizePlan, days: demand.TraceDays | None) -> np.ndarray:
    """Return mean lengths and their squared coefficients of variation: (I, 4)."""
    rows = []
    for k, name in enumerate(plan.classes):
        token = fits()["tokens"][request_class(name).tokens]
        means = (token["input_tokens"], token["output_tokens"])
        if days:
            means = demand.tenant_lengths(days.keys[k], days.days_earlier)
        rows.append((*means, token["input_cv2"], token["output_cv2"]))
    return six(rows)


def _columns(plan: SizePlan, contexts: tuple[tuple[int, int], ...], exclusive: bool) -> list[PlannedColumn]:
    """Return the homogeneous replicas at each context limit, the first of which goes without saying in the id."""
    tiers = [
        TierType(id=f"{pool.id}-{precision}", gpu=catalog.gpu(pool.gpu), precision=precision)
        for pool in plan.pools
        for precision in pool.precisions
    ]
    planned = []
    for k, (limit, fewest_servers) in enumerate(contexts):
        options = RooflineOptions(context_limit=limit)
        found = homogeneous.columns(
            [catalog.model(name) for name in plan.models],
            tiers,
            pipeline_parallel=(1, 2) if exclusive and len(plan.models) < 4 else (1,),
            capacity=lambda deployment, options=options: roofline.capacity(deployment, options),  # type: ignore[misc]
            startup=homogeneous.startup_windows,
            storage_usd_per_gb_h=STORAGE_USD_PER_GB_H,
        )
        for column in found if exclusive else two_best(found, fewest_servers):
            configuration = column.configuration
            if k > 0:
                configuration = dataclasses.replace(
                    configuration, id=f"{configuration.id}:ctx{limit // 1024}k"
                )
            planned.append(
                PlannedColumn(
                    configuration=configuration,
                    deployment=column.deployment,
                    tier=column.tier,
                    label=column.label,
                    options=options,
                )
            )
    return planned


def _pair(request: RequestClass, lengths: np.ndarray, column: PlannedColumn) -> PairPerformance | None:
    """Return the performance of one workload on one column, or None where its prefill is too slow.

    Version 1 charges every workload for contexts of a quarter of the limit.
    """
    model, precision = column.deployment.model.name, column.deployment.precision
    requests = requests_of(lengths, request.base_error, model, precision)
    context = column.options.context_limit / 4.0
    found = roofline.pair(column.deployment, requests, column.options, context_tokens=context)
    if found is None:
        return None
    first_s = found.prefill_s.at(requests.input_tokens, requests.output_tokens)
    return None if first_s > LONGEST_PREFILL * request.ttft_slo_s else found
