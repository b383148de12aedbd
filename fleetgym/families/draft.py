"""Assemble the parts of a serving instance: pools, columns, and the draft that holds them.

Generated families (`fleetgym.families.serving`) and imported traces (`fleetgym.capacity.traces`) are put together
from these.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any, Protocol

import numpy as np

from fleetgym.families import demand
from fleetgym.families.static import Columns, allocate
from fleetgym.families.text import six, tie_break
from fleetgym.files.schema import to_jsonable
from fleetgym.hardware import catalog
from fleetgym.hardware.performance import delay
from fleetgym.hardware.performance.coefficients import Requests
from fleetgym.model.facts import Facts
from fleetgym.model.instance import Affine, Configuration, Performance, Slot

LONGEST_PREFILL = 0.8  # of the TTFT SLO: the rest is for waiting
STORAGE_USD_PER_GB_H = 0.00075  # the middle of FastLLM's range of cloud object storage
TEXT_GB_PER_TOKEN = 2e-6  # assumed: text and logs, kept for an hour


@functools.cache
def fits() -> dict[str, Any]:
    """Return the shipped calibration."""
    with resources.as_file(resources.files("fleetgym") / "data" / "demand_fits.json") as path:
        return json.loads(path.read_text(encoding="utf-8"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """A pool before its cap is known; `precisions` become its tiers."""

    gpu: str
    provider: str
    market: str  # in the instance
    region: str
    precisions: tuple[str, ...]
    price_region: str = "global"
    price_factor: float = 1.0  # on the price table's, for a region that it lacks
    gpus_per_node: int = 1  # whole nodes are rented
    offer: str = "on-demand"  # in the price table
    warned: bool = False  # of drops, a window ahead

    @property
    def is_committed(self) -> bool:
        """Whether its GPUs are paid for all day, used or not."""
        return self.market == "reserved"

    @property
    def id(self) -> str:
        """Name of the pool."""
        return f"{self.gpu}-{self.market}-{self.region}".lower()

    @property
    def price_usd_per_gpu_h(self) -> float:
        """Cheapest offer of this provider and region in the price table."""
        offers = [
            p.usd_per_gpu_h
            for p in catalog.prices()
            if (p.gpu, p.provider, p.region, p.market)
            == (self.gpu, self.provider, self.price_region, self.offer)
        ]
        return round(self.price_factor * min(offers), 4)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SizePlan:
    """What a size of a family fixes."""

    classes: tuple[str, ...]
    models: tuple[str, ...]
    pools: tuple[PoolPlan, ...]
    gpus: float  # of the mean fleet


@dataclasses.dataclass
class Draft:
    """Everything about an instance that is being made; arrays are (I,), (C,), (I, C) or (G,)."""

    plan: SizePlan
    family: str
    demand: demand.DemandPlan
    lengths: np.ndarray  # (I, 4): input and output means, their squared coefficients of variation
    columns: Sequence[Candidate]
    problem: Columns
    table: Performance
    delay_slo: np.ndarray
    error_slo: np.ndarray
    names: tuple[str, ...]  # ids of the workloads
    provenance: Mapping[str, str] = dataclasses.field(default_factory=dict)  # where it is not the usual one
    stated: Facts | None = None  # with laws of lengths


class Candidate(Protocol):
    """What may become a configuration of the instance."""

    @property
    def configuration(self) -> Configuration:
        """As in the instance, before its replicas and fee are known."""
        ...

    @property
    def label(self) -> str:
        """How its capacities are known."""
        ...


def effective_params_b(name: str) -> float:
    """Return the size, in billions of parameters, of the dense model with the same quality."""
    # Assumed: a mixture of experts answers like a dense model of the geometric mean of its two sizes.
    model = catalog.model(name)
    return float((model.params_b * model.active_params_b) ** 0.5)


def requests_of(
    lengths: np.ndarray, base_error: float, model: str, precision: str, **more: float
) -> Requests:
    """Return a workload's requests as a model at a precision answers them, with the storage of their text.

    Parameters
    ----------
    lengths : ndarray, shape (4,)
        Means of input and output, and their squared coefficients of variation.
    base_error : float
        Error of a model of eight billion parameters at 16 bit.
    model, precision : str
    **more : float
        Fields of `Requests`, instead of what follows from `lengths`.
    """
    tokens_in, tokens_out, in_cv2, out_cv2 = (float(v) for v in lengths)
    stored_usd = STORAGE_USD_PER_GB_H * TEXT_GB_PER_TOKEN * (tokens_in + tokens_out)
    known = {"input_cv2": in_cv2, "output_cv2": out_cv2, "storage_usd": stored_usd} | more
    return Requests(
        input_tokens=tokens_in,
        output_tokens=tokens_out,
        error=delay.error_share(base_error, effective_params_b(model), precision),
        **known,
    )


def at_lengths(table: Performance, lengths: np.ndarray) -> dict[str, np.ndarray]:
    """Return the affine quantities at nominal lengths: (I, C) each."""

    def at(quantity: Affine) -> np.ndarray:
        return (
            quantity.base
            + quantity.per_input_token * lengths[:, :1]
            + quantity.per_output_token * lengths[:, 1:2]
        )

    return {name: at(getattr(table, name)) for name in ("delay_s", "service_s", "work_tflop", "prefill_s")}


def make_problem(
    plan: SizePlan,
    found: Sequence[Candidate],
    table: Performance,
    at: dict[str, np.ndarray],
    lengths: np.ndarray,
    delay_slo: np.ndarray,
    error_slo: np.ndarray,
    exclusive: bool,
) -> Columns:
    """Return the columns with their coefficients at nominal lengths, as `fleetgym.families.static` takes them."""
    pool_of = {f"{pool.id}-{p}": g for g, pool in enumerate(plan.pools) for p in pool.precisions}
    use = np.zeros((len(plan.pools), len(found)))
    for c, column in enumerate(found):
        for part in column.configuration.uses:
            use[pool_of[part.tier], c] += part.gpus
    price = np.array([pool.price_usd_per_gpu_h for pool in plan.pools])

    def field(name: str) -> np.ndarray:
        return np.array([getattr(column.configuration, name) for column in found], dtype=float)

    groups: dict[tuple[str, str], list[int]] = {}
    for c, column in enumerate(found):
        groups.setdefault((column.configuration.model, column.configuration.uses[0].tier), []).append(c)
    tokens = lengths[:, :1] + lengths[:, 1:2]
    return Columns(
        compatible=table.compatible,
        delay_s=at["delay_s"],
        service_s=at["service_s"],
        work_tflop=at["work_tflop"],
        kv_gb_s=field("kv_gb_per_token") * tokens * at["delay_s"],
        error=table.error,
        route_usd_per_s=np.zeros(table.error.shape),
        mean_delay_slo_s=delay_slo,
        error_slo=error_slo,
        compute_tflops=field("compute_tflops"),
        kv_capacity_gb=field("kv_capacity_gb"),
        max_concurrency=field("max_concurrency"),
        max_replicas=np.full(len(found), 1.0 if exclusive else 10_000.0),
        gpu_use=use,
        hold_usd_per_s=(price @ use + field("model_storage_usd_per_h")) / 3600.0,
        groups=tuple(tuple(members) for members in groups.values()) if exclusive else (),
    )


def dear_penalties(problem: Columns, rate: np.ndarray) -> np.ndarray:
    """Return penalties so high that demand is served wherever it can be: (I,) USD per request."""
    dearest = float(problem.hold_usd_per_s.max()) or 1e-3  # where everything is free, any price is high
    return np.full(len(rate), 1e4 * dearest / rate.min())


def pools_alone(
    problem: Columns, rate: np.ndarray, unserved_usd: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return GPUs that each pool would need to do the mean work alone, and the cost of doing so: (G,) both.

    Parameters
    ----------
    problem : Columns
        The problem.
    rate : ndarray, shape (I,)
        Demand.
    unserved_usd : ndarray, shape (I,), optional
        USD per unserved request. By default leaving the rarest workload unserved costs the rent of 30 of the dearest
        replicas, so that whatever takes more of them is left unserved.
    """
    if unserved_usd is None:
        unserved_usd = np.full(len(rate), 30.0) * problem.hold_usd_per_s.max() / rate.min()
    gpus, cost = [], []
    for use in problem.gpu_use:
        mine = use > 0
        only = dataclasses.replace(problem, compatible=problem.compatible & mine)
        found = allocate(only, rate, unserved_usd)
        work = 1.0 - found.unserved.mean()
        gpus.append(float(use @ found.replicas) / max(work, 0.1))
        cost.append(float(problem.hold_usd_per_s @ found.replicas) / max(work, 0.1))
    return np.array(gpus), np.array(cost)


def pool_dict(pool: PoolPlan, gpus: int) -> dict[str, Any]:
    """Return a pool with its cap in GPUs, as in an instance file; committed GPUs have no further price."""
    return {
        "id": pool.id,
        "gpu_type": pool.gpu,
        "price_usd_per_gpu_h": 0.0 if pool.is_committed else pool.price_usd_per_gpu_h,
        "cap_gpus": gpus,
        "region": pool.region,
        "market": pool.market,
        "gpus_per_node": pool.gpus_per_node,
    }


def configuration_dict(column: Candidate, replicas: int, fee: float, hold_usd_per_s: float) -> dict[str, Any]:
    """Return a configuration, rounded, as in an instance file; its start-up `fee` is in windows of rent."""
    data = to_jsonable(column.configuration)
    for name in ("compute_tflops", "kv_capacity_gb", "kv_gb_per_token", "model_storage_usd_per_h"):
        data[name] = float(f"{data[name]:.6g}")
    startup_usd = float(f"{fee * hold_usd_per_s * demand.WINDOW_S:.4g}")
    return {**data, "max_replicas": replicas, "startup_usd": startup_usd}


def slot_dicts(
    problem: Columns, found: Sequence[Candidate], marginal: np.ndarray, exclusive: bool
) -> list[dict[str, Any]]:
    """Return the slots in order of value per dollar."""
    value = _value_per_dollar(problem, marginal)
    members: dict[Any, list[int]] = {}
    for c, column in enumerate(found):
        key = (column.configuration.model, column.configuration.uses[0].tier) if exclusive else c
        members.setdefault(key, []).append(c)
    slots = list(members.values())
    order = sorted(range(len(slots)), key=lambda s: (-value[slots[s]].max(), s))
    return [
        to_jsonable(
            Slot(configurations=tuple(found[c].configuration.id for c in slots[s]), exclusive=exclusive)
        )
        for s in order
    ]


def _value_per_dollar(problem: Columns, marginal: np.ndarray) -> np.ndarray:
    """Return what the best single workload is worth on a fully used replica, per dollar of holding it: (C,)."""
    tiny = 1e-30
    rate = np.minimum(
        problem.compute_tflops / np.maximum(problem.work_tflop, tiny),
        np.minimum(
            problem.kv_capacity_gb / np.maximum(problem.kv_gb_s, tiny),
            problem.max_concurrency / np.maximum(problem.service_s, tiny),
        ),
    )
    # An excess over a mean SLO of 100 % costs as much as not serving at all.
    excess = np.maximum(problem.error / problem.error_slo[:, None] - 1.0, 0.0)
    excess += np.maximum(problem.delay_s / problem.mean_delay_slo_s[:, None] - 1.0, 0.0)
    worth = np.where(problem.compatible, rate * marginal[:, None] * np.maximum(1.0 - 5.0 * excess, 0.01), 0.0)
    return worth.max(axis=0) / np.maximum(problem.hold_usd_per_s, 1e-300)


def performance_dict(
    table: Performance, columns: Sequence[Candidate], workloads: Sequence[str], keep: np.ndarray, name: str
) -> dict[str, Any]:
    """Return the table's columns `keep`, rounded, with hash-derived tie-breaking weights."""

    def part(value: Any) -> Any:
        if isinstance(value, Affine):
            return {f.name: part(getattr(value, f.name)) for f in dataclasses.fields(value)}
        return value[:, keep].tolist() if value.dtype == bool else six(value[:, keep]).tolist()

    data = {f.name: part(getattr(table, f.name)) for f in dataclasses.fields(table)}
    data["tie_break"] = [
        [tie_break(name, workload, columns[c].configuration.id) for c in keep] for workload in workloads
    ]
    return data
