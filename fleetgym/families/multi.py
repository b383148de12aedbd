"""Draft instances of several regions, models and GPU types whose replicas are Coral's serving templates.

Every region has pools of several GPU types and users of its own; a template spans nodes of one region, and serves
users of another one a round trip later. Per model and set of GPU types two templates are taken, see
`fleetgym.hardware.configurations.templates.selection`, and at most 512 configurations in all.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from fleetgym.families import demand
from fleetgym.families.draft import (
    LONGEST_PREFILL,
    STORAGE_USD_PER_GB_H,
    Draft,
    SizePlan,
    at_lengths,
    fits,
    make_problem,
    requests_of,
)
from fleetgym.families.plans import TEMPLATE_PRECISION, request_class
from fleetgym.families.slos import delay_slos, error_slos
from fleetgym.families.text import six
from fleetgym.hardware import catalog
from fleetgym.hardware.configurations import homogeneous
from fleetgym.hardware.configurations.templates import generate, replicas, select
from fleetgym.hardware.configurations.templates.selection import LIMIT
from fleetgym.hardware.performance.coefficients import Coefficients, PairPerformance, performance_table
from fleetgym.hardware.performance.replica import NodeType, Service
from fleetgym.model.instance import Configuration

#: Users get up so much later.
LATER_H = {"region-1": 0.0, "region-2": 12.0, "region-3": 6.0}
#: Assumed: a round trip between two regions.
ROUND_TRIP_S = 0.15
#: Assumed: what a template is planned for, besides the deadlines of its workloads.
DECODE_SLO_S = 0.08
NODE_SIZES = (1, 2, 4)
MAX_NODES = 3
_COMMON = 0.2  # of the swings of demand: users of different continents do not act together


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReplicaColumn:
    """A template in a region, before its replicas and fee are known."""

    configuration: Configuration
    replica: replicas.Replica
    region: str
    label: str = "modelled"


def draft(plan: SizePlan, rng: np.random.Generator) -> Draft:
    """Return the draft of an instance.

    Parameters
    ----------
    plan : SizePlan
        Its workloads' ids end in a dot and the region of their users.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    Draft
    """
    homes = [name.partition(".")[2] for name in plan.classes]
    later = np.array([LATER_H[home] for home in homes])
    process = demand.calibrated(rng, len(plan.classes), later, _COMMON)
    lengths = _lengths(plan, rng)
    found = columns(plan, lengths)
    pairs = [
        [_pair(name, home, row, column) for column in found]
        for name, home, row in zip(plan.classes, homes, lengths, strict=True)
    ]
    table = performance_table(pairs)
    at = at_lengths(table, lengths)
    error_slo = error_slos(plan, TEMPLATE_PRECISION)
    delay_slo = delay_slos(table, at["delay_s"], error_slo, rng)
    problem = make_problem(plan, found, table, at, lengths, delay_slo, error_slo, exclusive=False)
    provenance = {
        "performance": "modelled: Coral's serving templates by exact enumeration over a calibrated roofline "
        f"(fleetgym.performance.replica), at most {MAX_NODES} nodes of {', '.join(map(str, NODE_SIZES))} GPUs; "
        f"assumed: a round trip of {ROUND_TRIP_S:g} s between regions",
        "prices": "measured: RunPod's list prices on 2026-10-10, ewyluda/gpu-price-index @ ab49c80; assumed: regions "
        "differ as AWS's H100 does between Virginia, Tokyo and Sao Paulo (1 : 1.25 : 1.68)",
    }
    return Draft(
        plan=plan,
        family="multi",
        demand=process,
        lengths=lengths,
        columns=found,
        problem=problem,
        table=table,
        delay_slo=delay_slo,
        error_slo=error_slo,
        names=plan.classes,
        provenance=provenance,
    )


def _lengths(plan: SizePlan, rng: np.random.Generator) -> np.ndarray:
    """Return mean lengths, a little different by region, and their squared coefficients of variation: (I, 4)."""
    rows = []
    for name in plan.classes:
        token = fits()["tokens"][request_class(name).tokens]
        factor = rng.uniform(0.9, 1.1, 2)
        means = (factor[0] * token["input_tokens"], factor[1] * token["output_tokens"])
        rows.append((*means, token["input_cv2"], token["output_cv2"]))
    return six(rows)


def columns(plan: SizePlan, lengths: np.ndarray) -> list[ReplicaColumn]:
    """Return the templates of all regions.

    Parameters
    ----------
    plan : SizePlan
        Models and pools; a region has one pool of each GPU type.
    lengths : ndarray of float, shape (I, 4)
        Mean input and output tokens first.

    Returns
    -------
    list of ReplicaColumn
        By region, then by model.
    """
    regions = list(dict.fromkeys(pool.region for pool in plan.pools))
    gpus = list(dict.fromkeys(pool.gpu for pool in plan.pools))
    nodes = [NodeType(catalog.gpu(gpu), n) for gpu in gpus for n in NODE_SIZES]
    libraries = [
        generate(_service(plan, name, lengths), nodes, "both", max_nodes=MAX_NODES) for name in plan.models
    ]
    price = _list_prices(plan)
    made = [
        replicas.replica(libraries[c.library], c.rank)
        for c in select(libraries, price, LIMIT // len(regions))
    ]
    return [_column(replica, region, _tiers(plan, region)) for region in regions for replica in made]


def _service(plan: SizePlan, model: str, lengths: np.ndarray) -> Service:
    return Service(
        model=catalog.model(model),
        precision=TEMPLATE_PRECISION,
        input_tokens=float(lengths[:, 0].mean()),
        output_tokens=float(lengths[:, 1].mean()),
        prefill_slo_s=LONGEST_PREFILL * min(request_class(name).ttft_slo_s for name in plan.classes),
        decode_slo_s=DECODE_SLO_S,
    )


def _tiers(plan: SizePlan, region: str) -> dict[str, str]:
    return {p.gpu: f"{p.id}-{TEMPLATE_PRECISION}" for p in plan.pools if p.region == region}


def _list_prices(plan: SizePlan) -> dict[str, float]:
    return {pool.gpu: pool.price_usd_per_gpu_h / pool.price_factor for pool in plan.pools}


def _column(replica: replicas.Replica, region: str, tiers: Mapping[str, str]) -> ReplicaColumn:
    model = replica.model
    configuration = replicas.configuration(
        replica, tiers, max_replicas=1, startup_windows=homogeneous.startup_windows(model), region=region
    )
    storage = STORAGE_USD_PER_GB_H * model.weight_gb(TEMPLATE_PRECISION)
    return ReplicaColumn(
        configuration=dataclasses.replace(configuration, model_storage_usd_per_h=storage),
        replica=replica,
        region=region,
    )


def _pair(name: str, home: str, lengths: np.ndarray, column: ReplicaColumn) -> PairPerformance | None:
    """Return the performance of one workload on one template, or None where the first token is too slow."""
    request, model = request_class(name), column.replica.model
    requests = requests_of(lengths, request.base_error, model.name, TEMPLATE_PRECISION)
    found = replicas.pair(column.replica, requests)
    if column.region != home:
        found = dataclasses.replace(found, delay_s=_later(found.delay_s), prefill_s=_later(found.prefill_s))
    too_late = (
        found.prefill_s.at(requests.input_tokens, requests.output_tokens)
        > LONGEST_PREFILL * request.ttft_slo_s
    )
    return None if too_late else found


def _later(time_s: Coefficients) -> Coefficients:
    return dataclasses.replace(time_s, base=time_s.base + ROUND_TRIP_S)
