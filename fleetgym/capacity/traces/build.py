"""Build an instance from a trace's statistics, prices and SLOs.

Columns, coefficients, marginal costs and the nominal fleet are made as for the family ``ou``, by the same functions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fleetgym.capacity.traces.candidates import (
    BASE_ERROR,
    ENGINE,
    TOLERANCE,
    Candidates,
    check_slos,
    find_candidates,
)
from fleetgym.capacity.traces.days import Days
from fleetgym.capacity.traces.objectives import Slo, slo_words
from fleetgym.capacity.traces.penalties import Penalties, penalties
from fleetgym.capacity.traces.prices import Offer, pool_ids
from fleetgym.capacity.traces.recipe import Recipe, recipe_of
from fleetgym.capacity.traces.workloads import TraceStatistics
from fleetgym.families import draft as parts
from fleetgym.families import market
from fleetgym.families.demand import DAY, WINDOW_S
from fleetgym.families.static import Columns, allocate, largest_load, restrict
from fleetgym.families.text import six
from fleetgym.files.documents import canonical_hash
from fleetgym.files.errors import FleetgymError
from fleetgym.files.schema import read_object, to_jsonable
from fleetgym.hardware.configurations.homogeneous import Column
from fleetgym.hardware.performance import gpu_rates, roofline
from fleetgym.hardware.performance.held import DEVIATIONS
from fleetgym.model.facts import (
    Calendar,
    Commitment,
    EngineLimit,
    Facts,
    LengthFacts,
    LengthQuantile,
    MeasuredStep,
    ReplicaMemory,
)
from fleetgym.model.instance import IMPORTED, INSTANCE_FORMAT, Instance
from fleetgym.model.lengths import LengthLaw

DEFAULT_PENALTY = 10.0
_FEE_WINDOWS = 2.0
_ROOM = 2.0  # GPUs of an unlimited pool, relative to what the p99 demand needs of it alone
_LARGEST_POOL = 4096
_CONSTANT: Mapping[str, Any] = {"kind": "constant", "parameters": {}}
_MANY_REPLICAS = 1e4  # of a configuration: as if there were no limit


def build(
    name: str,
    found: TraceStatistics,
    days: Days,
    recipe: Recipe,
    slos: Sequence[Slo],
    *,
    source: str = "",
    prices: str = "given",
) -> tuple[Instance, tuple[str, ...]]:
    """Return the instance of a trace, and what its user should know.

    Parameters
    ----------
    name : str
        Id of the instance.
    found : TraceStatistics
        The trace.
    days : Days
        Its history and process.
    recipe : Recipe
        What serves it, and what failing costs.
    slos : sequence of Slo
        One per workload.
    source, prices : str
        The trace's name, and where the prices come from, for the provenance.

    Raises
    ------
    FleetgymError
        If nothing can serve a workload within its SLOs, or so much demand.
    """
    rate = days.history_rps.mean(axis=0)
    lengths = six(found.lengths)
    stated = _facts(found, days, recipe, slos)
    return _made(
        {
            "format": INSTANCE_FORMAT,
            "id": name,
            "family": IMPORTED,
            "size": "custom",
            "description": "Made from a trace of requests by import-trace.",
            "num_windows": DAY,
            "window_s": WINDOW_S,
            "lead": 1,
            "penalty_basis": "request",
            "workloads": [
                {
                    "id": workload,
                    "rate_rps": float(f"{rate[i]:.6g}"),
                    "input_tokens": float(lengths[i, 0]),
                    "output_tokens": float(lengths[i, 1]),
                    "arrival_cv2": float(six(found.arrival_cv2[i])),
                    "input_law": found.input_laws[i],
                    "output_law": LengthLaw.of_sample(found.output_values, found.output_shares[i]),
                }
                for i, workload in enumerate(found.names)
            ],
            "dynamics": {
                "demand": days.plan.process,
                "tokens": days.plan.tokens,
                "factors": _CONSTANT,
                "availability": _CONSTANT,
                "prices": _CONSTANT,
            },
            "history": {"rate_rps": np.ascontiguousarray(days.history_rps)},
            "facts": stated,
            "provenance": _provenance(found, days, stated, source, prices),
        },
        recipe,
        slos,
    )


def remade(instance: Instance, slos: Sequence[Slo]) -> Instance | None:
    """Return the instance that an import with other SLOs makes; None without a recipe, or where it was changed since.

    Raises
    ------
    FleetgymError
        If nothing can serve a workload within its SLOs.
    """
    recipe = recipe_of(instance)
    if recipe is None or recipe.made != _hash_of_numbers(instance):
        return None
    with recipe.known():
        return _made(instance.to_dict() | {"facts": instance.facts}, recipe, slos)[0]


def _hash_of_numbers(instance: Instance) -> str:
    """Return a hash of what is not for people alone, nor the recipe."""
    data = instance.to_dict() | {"provenance": {}}
    data["facts"].pop("recipe", None)
    return canonical_hash(data)


def _made(fixed: Mapping[str, Any], recipe: Recipe, slos: Sequence[Slo]) -> tuple[Instance, tuple[str, ...]]:
    """Return an instance whose SLOs decide what serves it, and what its user should know.

    `fixed` has what does not depend on SLOs: all but pools, configurations and their performance, and penalties.
    """
    recipe = read_object(Recipe, to_jsonable(recipe))  # as from a file, so that numbers do not differ
    history = np.asarray(fixed["history"]["rate_rps"])
    found, offers = find_candidates(recipe, slos), recipe.offers
    rate = history.mean(axis=0)
    relaxed = dataclasses.replace(found.problem, max_replicas=np.full(len(found.columns), _MANY_REPLICAS))
    light = rate / max(1.0, rate.sum())  # SLOs are within reach at any demand or at none
    check_slos(found, allocate(relaxed, light, parts.dear_penalties(relaxed, light)))
    free = allocate(relaxed, rate, parts.dear_penalties(relaxed, rate))
    if free.unserved.max() > TOLERANCE:
        raise FleetgymError(
            f"{rate.sum():.3g} requests/s are more than {_MANY_REPLICAS:g} replicas of every configuration serve: "
            "lower --scale, or give other --models or --gpus"
        )
    peak = _peak_factor(history, recipe.lengths)
    cap = _caps(relaxed, rate * peak, offers)
    failing = penalties(relaxed, rate, offers, slos, recipe.penalty)
    chosen = _chosen(str(fixed["id"]), found, rate, cap, failing)
    kept = {c["id"] for c in chosen["configurations"]}
    facts = dataclasses.replace(
        fixed["facts"],
        slos=tuple(slos),
        penalty=f"{recipe.penalty:g} times {failing.basis}",
        recipe=None,
        **_engine_facts([c for c in found.columns if c.configuration.id in kept]),
    )
    data = {
        **fixed,
        **chosen,
        "workloads": [
            {
                **to_jsonable(w),
                "mean_delay_slo_s": float(found.delay_slo[i]),
                "error_slo": float(found.error_slo[i]),
                "unserved_usd": float(failing.unserved_usd[i]),
                "late_usd": float(failing.late_usd[i]),
                "ttft_slo_s": slo.ttft,
            }
            for i, (w, slo) in enumerate(zip(fixed["workloads"], slos, strict=True))
        ],
        "dynamics": {**to_jsonable(fixed["dynamics"]), "availability": _availability(found.plan.pools)},
        "provenance": {
            **fixed["provenance"],
            "slo": slo_words(slos, recipe.names),
            "penalties": f"as given, or assumed: unserved {facts.penalty}, late a third of that",
        },
    }
    instance = Instance.from_dict({**data, "facts": facts})
    recipe = dataclasses.replace(recipe, made=_hash_of_numbers(instance))
    facts = dataclasses.replace(facts, recipe=to_jsonable(recipe))
    most = largest_load(relaxed, peak * rate, cap)
    notes = [
        f"{gpu}: nothing was measured on this GPU type; its times are extrapolated from the "
        f"{gpu_rates.stands_in(gpu)}'s"
        for gpu in facts.extrapolated
    ]
    if most < 1.0:
        notes.append(
            f"all GPUs together bear {100 * most:.0f} % of the p99 demand (SLOs kept): raise max_gpus or --caps"
        )
    return dataclasses.replace(instance, facts=facts), tuple(notes)


# -- how much of it, and what it costs to fail


def _peak_factor(history_rps: np.ndarray, lengths: np.ndarray) -> float:
    """Return p99 / mean of the demand in tokens."""
    tokens = history_rps @ (lengths[:, 0] + lengths[:, 1])
    return max(1.0, float(np.quantile(tokens, 0.99) / tokens.mean()))  # below where most windows are empty


def _caps(problem: Columns, rate: np.ndarray, offers: Sequence[Offer]) -> np.ndarray:
    """Return GPUs per pool, whole nodes: the offer's, or twice what the pool would need to serve the rate alone."""
    alone, _ = parts.pools_alone(problem, rate, parts.dear_penalties(problem, rate))
    least = np.array([use[use > 0].max() if np.any(use > 0) else 1.0 for use in problem.gpu_use])
    ample = np.clip(np.ceil(_ROOM * alone), least, _LARGEST_POOL)
    caps = []
    for gpus, offer in zip(ample, offers, strict=True):
        node = offer.gpus_per_node
        if offer.max_gpus is not None and offer.max_gpus < node:
            raise FleetgymError(
                f"at most {offer.max_gpus} GPUs of {offer.gpu} are no whole node of {node}: raise max_gpus or --caps"
            )
        whole = np.ceil(gpus / node) if offer.max_gpus is None else offer.max_gpus // node
        caps.append(float(node * whole))
    return np.array(caps)


# -- the instance


def _chosen(
    name: str, found: Candidates, rate: np.ndarray, cap: np.ndarray, failing: Penalties
) -> dict[str, Any]:
    """Return pools, configurations and their performance, without those that fit no cap or serve nothing."""
    use = found.problem.gpu_use
    replicas = np.array([int((cap[u > 0] // u[u > 0]).min()) for u in use.T])
    keep = np.flatnonzero((replicas > 0) & found.table.compatible.any(axis=0))
    if not len(keep):
        raise FleetgymError("no configuration fits within the caps: raise max_gpus or --caps")
    problem = restrict(dataclasses.replace(found.problem, max_replicas=replicas.astype(float)), keep)
    fleet = allocate(
        problem, rate, failing.unserved_usd, cap, integer=True, gap=0.02, node_limit=100
    ).replicas
    columns = [found.columns[c] for c in keep.tolist()]
    return {
        "pools": [parts.pool_dict(pool, int(gpus)) for pool, gpus in zip(found.plan.pools, cap, strict=True)],
        "tiers": [
            {"id": f"{pool.id}-{p}", "pool": pool.id, "precision": p}
            for pool in found.plan.pools
            for p in pool.precisions
        ],
        "configurations": [
            parts.configuration_dict(column, int(replicas[c]), _FEE_WINDOWS, found.problem.hold_usd_per_s[c])
            for c, column in zip(keep, columns, strict=True)
        ],
        "slots": parts.slot_dicts(problem, columns, failing.unserved_usd, exclusive=False),
        "performance": parts.performance_dict(found.table, found.columns, found.names, keep, name),
        "nominal_fleet": [int(y) for y in fleet],
    }


def _availability(pools: Sequence[parts.PoolPlan]) -> Mapping[str, Any]:
    return market.drops(pools) if any(pool.market == "spot" for pool in pools) else _CONSTANT


def _prefix_words(found: TraceStatistics) -> str:
    """Return what of the prompts a prefix cache holds, how that is known, and what it changes."""
    if found.prefix_hits_from is None:
        return "assumed: none; every prompt is computed whole"
    tokens = found.counts.sum(axis=0) * found.lengths[:, 0]
    share = float(tokens @ found.prefix_hits / tokens.sum())
    return (
        f"{found.prefix_hits_from}; {share:.1%} of the prompt tokens are there, and are not computed again; assumed: "
        "replicas hit as often, and KV memory holds every prompt whole, nothing shared"
    )


def _facts(found: TraceStatistics, days: Days, recipe: Recipe, slos: Sequence[Slo]) -> Facts:
    """Return the facts that do not depend on SLOs, and these."""
    offers = recipe.offers
    total = found.counts.sum(axis=0) @ found.lengths[:, :2]
    return Facts(
        slos=tuple(slos),
        calendar=Calendar(history=days.history, days=found.dates, fitted=days.fitted, assumed=days.assumed),
        lengths=LengthFacts(
            quantiles=tuple(LengthQuantile(tokens=n, share=share) for n, share in found.total_quantiles),
            input_share=round(100.0 * float(total[0] / total.sum()), 2) / 100.0,
        ),
        measured_steps=tuple(
            MeasuredStep(model=model, gpu=gpu, precision=precision, tensor_parallel=degree)
            for model, gpu, precision, degree in recipe.step_times
        ),
        coefficients=ENGINE.coefficients,
        extrapolated=tuple(
            gpu for gpu in dict.fromkeys(offer.gpu for offer in offers) if gpu_rates.is_extrapolated(gpu)
        ),
        commitments=tuple(
            Commitment(pool=pool, days=offer.term_days)
            for pool, offer in zip(pool_ids(offers), offers, strict=True)
            if offer.market == "reserved"
        ),
    )


def _engine_facts(columns: Sequence[Column]) -> dict[str, Any]:
    """Return what is stated of configurations: limits of engines, and memory."""
    return {
        "engine_limits": tuple(
            EngineLimit(configuration=c.configuration.id, requests=c.engine_limit)
            for c in columns
            if c.engine_limit is not None
        ),
        "memory": tuple(
            ReplicaMemory(configuration=c.configuration.id, gb=float(six(_memory_gb(c)))) for c in columns
        ),
    }


def _memory_gb(column: Column) -> float:
    """Return the memory that weights and reserve leave on the GPUs of a replica, or of a node full of replicas."""
    gpus = sum(use.gpus for use in column.configuration.uses)
    several = max(1, gpus // column.deployment.gpus)
    return several * roofline.kv_capacity_gb(column.deployment, ENGINE)


# -- the facts in words, for people


def _length_words(lengths: LengthFacts) -> str:
    listed = ", ".join(f"{point.tokens} of {100.0 * point.share:g}%" for point in lengths.quantiles)
    share = f"{100.0 * lengths.input_share:.2f}% of them are input"
    return f"input + output tokens at most {listed} of the requests; {share}"


def _performance_words(facts: Facts) -> str:
    text = (
        f"modelled: roofline fitted to measured operators, version {facts.coefficients} of the coefficients"
    )
    if facts.extrapolated:
        text += f"; extrapolated: {', '.join(facts.extrapolated)}"
    named = ", ".join(
        f"{s.model} on {s.gpu} at {s.precision}, TP {s.tensor_parallel}" for s in facts.measured_steps
    )
    return f"{text}; measured, as given: {named}" if named else text


def _provenance(
    found: TraceStatistics, days: Days, facts: Facts, source: str, prices: str
) -> Mapping[str, str]:
    context = int(found.held.longest.max())
    assert facts.lengths is not None
    return {
        "trace": f"{source}: {found.requests} requests in {found.span_s:.0f} s; workloads: {found.rule}; "
        f"{days.extension}",
        "demand": days.plan.provenance,
        "tokens": "measured in the trace: means, variability and correlation of lengths",
        "lengths": _length_words(facts.lengths),
        "arrivals": "measured in the trace: variance / mean of counts in 10 s, within windows",
        "prefix cache": _prefix_words(found),
        "performance": _performance_words(facts),
        "KV memory": f"modelled: sequences at once hold what the requests of the trace hold on average while they are "
        f"served, and {DEVIATIONS:g} standard deviations of it fit; the memory of an instance is counted in whole "
        f"requests; the longest request has {context:,} tokens; assumed: a cache of 16 bit, 90 % of the memory "
        f"less {ENGINE.reserve_gb:g} GB, at most {ENGINE.max_num_seqs} sequences a replica",
        "error": f"assumed: {BASE_ERROR:g} at 8 B parameters times (P/8)^-0.35, times 1.15 at 8 bit",
        "slo": slo_words(facts.slos, found.names),
        "prices": prices,
        "penalties": "",
        **_commitment_words(facts.commitments),
        "startup": f"assumed: 1 window up to 14 B parameters, 2 up to 70 B, 3 above; a fee of {_FEE_WINDOWS:g} windows "
        "of rent",
        "availability": "modelled for spot pools: drops as in the family drop; constant for the others",
    }


def _commitment_words(commitments: Sequence[Commitment]) -> Mapping[str, str]:
    """Return how reserved pools are paid; nothing where there is none."""
    if not commitments:
        return {}
    terms = [f"{c.pool}: {'no term given' if c.days is None else f'{c.days} days'}" for c in commitments]
    return {"commitments": "; ".join(["as given: plan pays reserved GPUs all day, used or not", *terms])}
