"""Enumerate every (model, tier, TP, PP) that fits memory, as configurations.

A tier is a GPU type at a precision. TP stays within a node and divides the attention heads; PP divides the layers among
stages.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence

from fleetgym.hardware import catalog
from fleetgym.hardware.catalog import GpuType, ModelType
from fleetgym.hardware.performance import roofline
from fleetgym.hardware.performance.coefficients import Capacity, Deployment
from fleetgym.model.instance import IMPORTED, Configuration, Instance, Use


@dataclasses.dataclass(frozen=True, kw_only=True)
class TierType:
    """A tier of an instance, with the facts about its GPUs."""

    id: str
    gpu: GpuType
    precision: str
    tensor_parallel: tuple[int, ...] = (1, 2, 4, 8)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Column:
    """A configuration together with what it was made from."""

    configuration: Configuration
    deployment: Deployment
    tier: str
    label: str  # how its capacities are known
    engine_limit: int | None = None  # requests at once that an engine is told; None: as many as memory holds


def deployments(
    model: ModelType, tier: TierType, pipeline_parallel: Sequence[int] = (1, 2, 4)
) -> list[Deployment]:
    """Return every way to split a model over a tier's GPUs, whether or not it fits memory.

    Parameters
    ----------
    model : ModelType
        The model.
    tier : TierType
        GPU, precision and the TP degrees allowed.
    pipeline_parallel : sequence of int
        PP depths allowed.

    Returns
    -------
    list of Deployment
        By rising PP, then TP. A TP degree must fit a node and divide the attention heads, and a PP depth must not
        exceed the layers.
    """
    return [
        Deployment(
            model=model, gpu=tier.gpu, precision=tier.precision, tensor_parallel=n, pipeline_parallel=m
        )
        for m in pipeline_parallel
        for n in tier.tensor_parallel
        if n <= tier.gpu.gpus_per_node and model.heads % n == 0 and m <= model.layers
    ]


def startup_windows(model: ModelType) -> int:
    """Return windows from the grant to service by size: 1 up to 14 B parameters, 2 up to about 70 B, then 3.

    Assumed: loading time grows with the weights. A nominal 70 B model has 70.6 B parameters.
    """
    if model.params_b < 15.0:
        return 1
    return 2 if model.params_b < 75.0 else 3


def columns(
    models: Iterable[ModelType],
    tiers: Sequence[TierType],
    *,
    pipeline_parallel: Sequence[int] = (1, 2, 4),
    capacity: Callable[[Deployment], Capacity | None] = roofline.capacity,
    startup: Callable[[ModelType], int] = lambda model: 0,
    storage_usd_per_gb_h: float = 0.0,
) -> list[Column]:
    """Return every homogeneous configuration that fits memory.

    Parameters
    ----------
    models : iterable of ModelType
        The models.
    tiers : sequence of TierType
        The tiers; their ids must be the instance's.
    pipeline_parallel : sequence of int
        PP depths allowed.
    capacity : callable
        What a replica has to give, or None where the model does not fit.
    startup : callable
        Windows from the grant to service, such as `startup_windows`.
    storage_usd_per_gb_h : float
        Price of storing weights.

    Returns
    -------
    list of Column
        By model, tier, PP and TP, in the order given; of each at most one replica.

    Examples
    --------
    >>> from fleetgym.hardware import catalog
    >>> tier = TierType(id="H100-fp8", gpu=catalog.gpu("H100"), precision="fp8")
    >>> found = columns([catalog.model("Llama-3.1-70B")], [tier], pipeline_parallel=(1, 2))
    >>> [column.configuration.id for column in found][:3]
    ['Llama-3.1-70B@H100-fp8:tp2pp1', 'Llama-3.1-70B@H100-fp8:tp4pp1', 'Llama-3.1-70B@H100-fp8:tp8pp1']
    >>> len(found)
    7
    """
    found = []
    for model in models:
        for tier in tiers:
            for deployment in deployments(model, tier, pipeline_parallel):
                replica = capacity(deployment)
                if replica is None:
                    continue
                configuration = _configuration(deployment, tier.id, replica)
                configuration = dataclasses.replace(
                    configuration,
                    startup_windows=startup(model),
                    model_storage_usd_per_h=storage_usd_per_gb_h * deployment.weight_gb,
                )
                found.append(
                    Column(
                        configuration=configuration, deployment=deployment, tier=tier.id, label=replica.label
                    )
                )
    return found


def two_best(found: list[Column], fewest_servers: int = 8) -> list[Column]:
    """Keep the two smallest deployments of each (model, tier) that have at least `fewest_servers` queue servers."""
    kept: dict[tuple[str, str], list[Column]] = {}
    for column in found:
        if column.configuration.max_concurrency >= fewest_servers:
            kept.setdefault((column.configuration.model, column.tier), []).append(column)
    return [
        column for group in kept.values() for column in sorted(group, key=lambda c: c.deployment.gpus)[:2]
    ]


def _configuration(deployment: Deployment, tier: str, replica: Capacity) -> Configuration:
    """Return the instance's form of a deployment."""
    n, m = deployment.tensor_parallel, deployment.pipeline_parallel
    return Configuration(
        id=f"{deployment.model.name}@{tier}:tp{n}pp{m}",
        model=deployment.model.name,
        uses=(Use(tier=tier, gpus=deployment.gpus),),
        compute_tflops=replica.compute_tflops,
        kv_capacity_gb=replica.kv_capacity_gb,
        kv_gb_per_token=replica.kv_gb_per_token,
        max_concurrency=replica.max_concurrency,
        max_replicas=1,
        tensor_parallel=n,
        pipeline_parallel=m,
    )


def deployment_of(instance: Instance, c: int) -> Deployment:
    """Return what an instance's configuration is made of; one of the replicas, where a node holds several.

    Raises
    ------
    UnknownNameError
        If the catalogue lacks its model or its GPU.

    Examples
    --------
    >>> from fleetgym.model.library import load_instance
    >>> found = deployment_of(load_instance("fleet-v0/dev/ou-s-001"), 0)
    >>> found.model.name, found.gpu.name, found.precision, found.gpus
    ('Llama-3.2-3B', 'L40S', 'fp8', 1)
    """
    configuration = instance.configurations[c]
    tier = next(t for t in instance.tiers if t.id == configuration.uses[0].tier)
    pool = next(p for p in instance.pools if p.id == tier.pool)
    known = catalog.published if instance.family == IMPORTED else catalog.model  # generators know sizes alone
    return Deployment(
        model=known(configuration.model),
        gpu=catalog.gpu(pool.gpu_type),
        precision=tier.precision,
        tensor_parallel=configuration.tensor_parallel,
        pipeline_parallel=configuration.pipeline_parallel,
    )
