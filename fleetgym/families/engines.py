"""Choose replicas whose engines keep a time per output token, with times of version 2 of the coefficients.

A workload's times are those in a batch of requests like its own, at their own contexts. What fits the memory is what a
mixture of all workloads holds.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np

from fleetgym.families.draft import LONGEST_PREFILL, STORAGE_USD_PER_GB_H, SizePlan, requests_of
from fleetgym.families.plans import FamilyPlan, RequestClass, request_class
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations import homogeneous
from fleetgym.hardware.configurations.homogeneous import Column, TierType
from fleetgym.hardware.configurations.limits import Demand, Lengths, limited
from fleetgym.hardware.configurations.split import SplitColumn, SplitDemand, split_columns
from fleetgym.hardware.performance import gpu_rates, roofline
from fleetgym.hardware.performance.coefficients import Deployment, PairPerformance, Requests
from fleetgym.hardware.performance.held import HeldCounter, HeldTokens
from fleetgym.hardware.performance.roofline import RooflineOptions
from fleetgym.model.facts import EngineLimit, Facts, ReplicaMemory, Slo
from fleetgym.model.lengths import LengthLaw

#: Most tokens of a sequence.
CONTEXT_LIMIT = 32768
#: Limits between tokens hold while mean lengths are within so many standard deviations of the logarithm.
DRIFT = 2.0
_QUANTILES = 48  # of prompts, and of outputs
_OPTIONS = RooflineOptions(coefficients=2, context_limit=CONTEXT_LIMIT)


Engine = Column | SplitColumn


def objectives(request: RequestClass, family: FamilyPlan) -> Slo:
    """Return what a class's requests are promised in a family."""
    return Slo(ttft=request.ttft_slo_s, tpot=min(request.tpot_slo_s, family.tpot_slo_s))


def engines(
    plan: SizePlan, lengths: np.ndarray, family: FamilyPlan
) -> tuple[list[Engine], list[list[PairPerformance | None]]]:
    """Return the replicas that keep each workload's objectives, and what they do to its requests.

    Parameters
    ----------
    plan : SizePlan
        Classes, models and pools.
    lengths : ndarray, shape (I, 4)
        Means of input and output, and their squared coefficients of variation.
    family : FamilyPlan
        How slowly its replicas start, and how its mean lengths drift. Engines are limited so that limits between tokens
        hold at prompts that are `DRIFT` standard deviations longer, and outputs as much shorter.

    Returns
    -------
    columns : list of Column or SplitColumn
        Deployments, each at one or several limits of its engine; then split ones, where the family has them.
    pairs : (I, C) nested lists
        None where an objective is broken.
    """
    classes = [request_class(name) for name in plan.classes]
    held = dataclasses.replace(_OPTIONS, held=_held(lengths))
    found = homogeneous.columns(
        [catalog.model(name) for name in plan.models],
        [
            TierType(id=f"{pool.id}-{precision}", gpu=catalog.gpu(pool.gpu), precision=precision)
            for pool in plan.pools
            for precision in pool.precisions
        ],
        pipeline_parallel=(1,),
        capacity=lambda deployment: roofline.capacity(deployment, held),
        startup=lambda model: family.slower * homogeneous.startup_windows(model),
        storage_usd_per_gb_h=STORAGE_USD_PER_GB_H,
    )

    @functools.cache  # pools share deployments
    def served(i: int, deployment: Deployment, at_once: int) -> PairPerformance | None:
        requests = requests_of(lengths[i], classes[i].base_error, deployment.model.name, deployment.precision)
        pair = roofline.pair(deployment, requests, _OPTIONS, at_once=at_once)
        if pair is None:
            return None
        first_s = pair.prefill_s.at(requests.input_tokens, requests.output_tokens)
        return None if first_s > LONGEST_PREFILL * classes[i].ttft_slo_s else pair

    def pair_at(i: int, column: Column, at_once: int) -> PairPerformance | None:
        return served(i, column.deployment, at_once)

    demands = [
        Demand(
            name=name,
            slo=objectives(request, family),
            lengths=_drifted(row, family.lengths_log_sd[1]),
            pair_at=functools.partial(pair_at, i),
        )
        for i, (name, request, row) in enumerate(zip(plan.classes, classes, lengths.tolist(), strict=True))
    ]
    columns, is_kept = limited(found, demands, most_limits=2)
    pairs = [
        [
            pair_at(i, column, column.configuration.max_concurrency) if kept else None
            for column, kept in zip(columns, row, strict=True)
        ]
        for i, row in enumerate(is_kept)
    ]
    if not family.split:
        return list(columns), pairs
    more, more_pairs = _split(plan, lengths, family, held)
    return [*columns, *more], [a + b for a, b in zip(pairs, more_pairs, strict=True)]


def _split(
    plan: SizePlan, lengths: np.ndarray, family: FamilyPlan, options: RooflineOptions
) -> tuple[list[SplitColumn], list[list[PairPerformance | None]]]:
    """Return split replicas of every model, and what they do to each workload's requests."""
    longer = math.exp(DRIFT * family.lengths_log_sd[1])
    columns: list[SplitColumn] = []
    rows: list[list[PairPerformance | None]] = [[] for _ in plan.classes]
    tiers = [
        TierType(id=f"{pool.id}-{precision}", gpu=catalog.gpu(pool.gpu), precision=precision)
        for pool in plan.pools
        for precision in pool.precisions
    ]
    demands = []
    for name, row in zip(plan.classes, lengths, strict=True):
        request = request_class(name)

        def answered(
            deployment: Deployment, request: RequestClass = request, row: np.ndarray = row
        ) -> Requests:
            return requests_of(row, request.base_error, deployment.model.name, deployment.precision)

        demands.append(
            SplitDemand(
                lengths=(float(row[0]), float(row[1])),
                requests=answered,
                tpot_s=objectives(request, family).tpot or math.inf,
                first_s=LONGEST_PREFILL * request.ttft_slo_s,
                longer=longer,
            )
        )
    for model in map(catalog.model, plan.models):
        nodes = {
            node: tier.id
            for tier in tiers
            for node in homogeneous.deployments(model, tier, (1,))
            if roofline.capacity(node, options) is not None
        }
        found, pairs = split_columns(
            nodes,
            demands,
            {pool.gpu: pool.price_usd_per_gpu_h for pool in plan.pools},
            options,
            startup_windows=family.slower * homogeneous.startup_windows(model),
            storage_usd_per_gb_h=STORAGE_USD_PER_GB_H,
        )
        columns += found
        rows = [a + b for a, b in zip(rows, pairs, strict=True)]
    return columns, rows


def _drifted(row: list[float], drift_sd: float) -> Lengths:
    """Return the lengths at which limits hold, of which only the means are asked for.

    The prompts of other requests lengthen the time between tokens, the more the fewer tokens there are.
    """
    factor = math.exp(DRIFT * drift_sd)
    prompts, outputs = row[0] * factor, row[1] / factor
    return Lengths(
        input_tokens=prompts,
        output_tokens=outputs,
        output_values=np.array([outputs]),
        output_shares=np.ones(1),
    )


def _held(lengths: np.ndarray) -> HeldTokens:
    """Return what the requests in a batch hold: of every workload as many tokens are generated."""
    counter = HeldCounter(len(lengths))
    middles = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
    for i, row in enumerate(lengths):
        prompts, outputs = (
            mean * np.interp(middles, law.shares, law.factors)
            for mean, law in zip(row, laws(row), strict=False)
        )
        inputs = np.minimum(np.repeat(prompts, _QUANTILES), 0.9 * CONTEXT_LIMIT)
        generated = np.minimum(np.tile(outputs, _QUANTILES), CONTEXT_LIMIT - inputs)
        counter.add(np.full(inputs.size, i), inputs, generated, inputs)
    return counter.total(1.0 / lengths[:, 1])


def laws(lengths: np.ndarray) -> tuple[LengthLaw, LengthLaw]:
    """Return the laws of a workload's prompts and outputs, from its row of means and variability, (4,)."""
    return LengthLaw.lognormal(float(lengths[2])), LengthLaw.lognormal(float(lengths[3]))


def facts(plan: SizePlan, columns: Sequence[Engine], family: FamilyPlan) -> Facts:
    """Return what programs need to know of an instance with these replicas."""
    return Facts(
        slos=tuple(objectives(request_class(name), family) for name in plan.classes),
        coefficients=_OPTIONS.coefficients,
        extrapolated=tuple(
            gpu for gpu in dict.fromkeys(pool.gpu for pool in plan.pools) if gpu_rates.is_extrapolated(gpu)
        ),
        engine_limits=tuple(
            EngineLimit(configuration=column.configuration.id, requests=column.engine_limit)
            for column in columns
            if column.engine_limit is not None
        ),
        memory=tuple(
            ReplicaMemory(
                configuration=column.configuration.id,
                gb=float(f"{_memory_gb(column):.6g}"),
            )
            for column in columns
        ),
    )


def _memory_gb(column: Engine) -> float:
    if isinstance(column, SplitColumn):
        return column.memory_gb
    return roofline.kv_capacity_gb(column.deployment, _OPTIONS)
