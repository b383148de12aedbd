"""Read and validate instance files as frozen `Instance` objects.

Units everywhere: requests/s, seconds, tokens, GB, TFLOP, USD, USD/h. `docs/model.md` says what each
number does.
"""

from __future__ import annotations

import dataclasses
import functools
import os
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import numpy as np

from fleetgym.files import quantities as q
from fleetgym.files.documents import canonical_hash, read_json
from fleetgym.files.errors import DataError, FleetgymError, suggestion
from fleetgym.files.schema import (
    ID,
    Array,
    Checked,
    Choice,
    Flag,
    Integer,
    ListOf,
    Nested,
    Text,
    TextMap,
    check_unique_ids,
    documented,
    object_schema,
    read_object,
    spec,
    to_jsonable,
)
from fleetgym.model.facts import Facts
from fleetgym.model.lengths import LengthLaw
from fleetgym.model.processes import Dynamics, check_dynamics

INSTANCE_FORMAT = "fleetgym-instance-1"
IMPORTED = "trace-import"  # the family of instances that are made of a trace

#: A bound on mean delays that bounds nothing.
NO_LIMIT_S = 1e7

_PAIR = ("workload", "configuration")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Workload(Checked):
    """A class of requests: arrival rate, token lengths, SLOs and what breaking them costs."""

    id: str = spec(ID)
    rate_rps: float = spec(q.NOMINAL_RPS, doc="nominal arrivals per second: the mean of the history")
    input_tokens: float = spec(q.TOKENS, doc="nominal mean input length")
    output_tokens: float = spec(q.TOKENS, doc="nominal mean output length")
    mean_delay_slo_s: float = spec(
        q.SLO_S, NO_LIMIT_S, doc="bound on the mean delay of what is served; absent, or 1e7: none"
    )
    error_slo: float = spec(q.POSITIVE_SHARE, doc="bound on the mean error share of what is served")
    unserved_usd: float = spec(
        q.PENALTY_USD, doc="USD per unserved request (per unserved day if penalty_basis is day)"
    )
    delay_usd_per_s: float = spec(q.USD_PER_S, 0.0, doc="USD per second of delay, per request or per day")
    late_usd: float = spec(q.FEE_USD, 0.0, doc="USD per served request whose TTFT exceeds ttft_slo_s")
    ttft_slo_s: float | None = spec(q.SLO_S.or_null(), None, doc="TTFT bound; null: none")
    arrival_cv2: float = spec(q.CV2, 1.0, doc="squared coefficient of variation of interarrival times")
    input_law: LengthLaw | None = spec(
        Nested(LengthLaw, nullable=True),
        None,
        doc="of prompts: of the tokens that are computed, where a prefix cache holds some; null: all alike",
        sparse=True,
    )
    output_law: LengthLaw | None = spec(
        Nested(LengthLaw, nullable=True), None, doc="of answers; no cost depends on it", sparse=True
    )

    @property
    def delay_limit_s(self) -> float | None:
        """The bound on the mean delay; None if there is none."""
        return None if self.mean_delay_slo_s >= NO_LIMIT_S else self.mean_delay_slo_s


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Pool(Checked):
    """Rentable hardware in one region: GPU type, price, and how many GPUs a fleet may hold."""

    id: str = spec(ID)
    gpu_type: str = spec(ID)
    price_usd_per_gpu_h: float = spec(q.USD_PER_GPU_H, doc="list price; scenarios multiply it")
    cap_gpus: int = spec(Integer(0, 10**7), doc="most GPUs the fleet may hold when all are available")
    region: str = spec(ID, "region-1")
    market: str = spec(Choice(("reserved", "on-demand", "spot")), "on-demand")
    gpus_per_node: int = spec(Integer(1, 1024), 1, doc="GPUs are granted in whole multiples of this")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Tier(Checked):
    """GPU type and precision; tiers on the same hardware share its pool."""

    id: str = spec(ID)
    pool: str = spec(ID, doc="id of a pool")
    precision: str = spec(ID, "fp16")
    price_usd_per_gpu_h: float | None = spec(q.USD_PER_GPU_H.or_null(), None, doc="null: the pool's price")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Use(Checked):
    """GPUs of one tier that one replica occupies."""

    tier: str = spec(ID, doc="id of a tier")
    gpus: int = spec(Integer(1, 10**6))


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Configuration(Checked):
    """One deployable replica: model, GPUs, cost, capacity."""

    id: str = spec(ID)
    model: str = spec(ID)
    uses: tuple[Use, ...] = spec(ListOf(Nested(Use), minimum=1, maximum=64))
    compute_tflops: float = spec(q.TFLOPS, doc="TFLOP per second that one replica does")
    kv_capacity_gb: float = spec(q.GB, doc="memory left for the KV cache of one replica")
    kv_gb_per_token: float = spec(q.GB_PER_TOKEN, doc="KV cache of one token")
    max_concurrency: int = spec(
        Integer(1, 10**6), doc="requests one replica serves at a time (queue servers)"
    )
    max_replicas: int = spec(Integer(1, 10**5), 1)
    startup_windows: int = spec(Integer(0, 288), 0, doc="windows from the grant until the replica serves")
    startup_usd: float = spec(q.FEE_USD, 0.0, doc="fee per grant")
    model_storage_usd_per_h: float = spec(q.USD_PER_H, 0.0, doc="weights storage of one replica")
    tensor_parallel: int = spec(Integer(1, 1024), 1)
    pipeline_parallel: int = spec(Integer(1, 1024), 1)


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Slot(Checked):
    """One component of the action: an exclusive group of configurations, or one configuration's replicas."""

    configurations: tuple[str, ...] = spec(ListOf(ID, minimum=1), doc="ids of configurations")
    exclusive: bool = spec(
        Flag(), False, doc="true: option o is the o-th configuration; false: option is a count"
    )


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Affine(Checked):
    """A quantity per workload and configuration that is affine in the mean token lengths."""

    base: np.ndarray = spec(Array(_PAIR, q.PER_REQUEST), doc="of a request")
    per_input_token: np.ndarray = spec(Array(_PAIR, q.PER_TOKEN), doc="of an input token")
    per_output_token: np.ndarray = spec(Array(_PAIR, q.PER_TOKEN), doc="of an output token")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Performance(Checked):
    """What each configuration does to each workload's requests; arrays of (workloads, configurations)."""

    compatible: np.ndarray = spec(Array(_PAIR, Flag(), "bool"))
    delay_s: Affine = spec(Nested(Affine), doc="seconds of residency of a request, D in the model")
    work_tflop: Affine = spec(Nested(Affine), doc="TFLOP of a request")
    service_s: Affine = spec(Nested(Affine), doc="seconds a request holds a queue server, S in the model")
    prefill_s: Affine = spec(Nested(Affine), doc="seconds to first token without waiting, at batch one")
    service_cv2: np.ndarray = spec(Array(_PAIR, q.CV2), doc="squared coefficient of variation of S")
    error: np.ndarray = spec(Array(_PAIR, q.SHARE), doc="error share of a request")
    storage_usd: np.ndarray = spec(Array(_PAIR, q.FEE_USD), doc="data storage of a request")
    tie_break: np.ndarray = spec(Array(_PAIR, q.SHARE), doc="h in [0, 1]: makes routing unique")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class Budget(Checked):
    """A cap on what the fleet costs to hold: per hour in every window, or in all over the episode."""

    kind: str = spec(Choice(("rate", "pool")))
    usd: float = spec(q.BUDGET_USD, doc="USD per hour (rate) or USD per episode (pool)")


@documented
@dataclasses.dataclass(frozen=True, kw_only=True)
class History(Checked):
    """Past demand that agents may study: rows are windows, the last one just before the episode."""

    rate_rps: np.ndarray = spec(Array(("window", "workload"), q.RATE_RPS))  # (windows, workloads)


@documented
@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Instance(Checked):
    """All parameters of one problem, without the realised future.

    Build one with `Instance.from_dict` or `load_instance`; both validate everything. Arrays are read-only.

    Examples
    --------
    >>> import fleetgym
    >>> instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    >>> instance.num_workloads, instance.num_configurations
    (1, 2)
    """

    format: str = spec(Choice((INSTANCE_FORMAT,)))
    id: str = spec(ID)
    family: str = spec(ID)
    size: str = spec(ID)
    description: str = spec(Text())
    num_windows: int = spec(Integer(1, 2016), doc="windows of an episode")
    window_s: float = spec(q.WINDOW_S, doc="length of a window")
    lead: int = spec(Integer(0, 1), 1, doc="0: agents see the coming window's conditions; 1: the last one's")
    penalty_basis: str = spec(
        Choice(("request", "day")), "request", doc="day: delay and unserved are USD per 24 h at full share"
    )
    workloads: tuple[Workload, ...] = spec(ListOf(Nested(Workload), 1, 256))
    pools: tuple[Pool, ...] = spec(ListOf(Nested(Pool), 1, 256))
    tiers: tuple[Tier, ...] = spec(ListOf(Nested(Tier), 1, 512))
    configurations: tuple[Configuration, ...] = spec(ListOf(Nested(Configuration), 1, 4096))
    slots: tuple[Slot, ...] = spec(ListOf(Nested(Slot), 1, 4096), doc="in order of value per dollar")
    performance: Performance = spec(Nested(Performance))
    nominal_fleet: np.ndarray = spec(
        Array(("configuration",), Integer(), "int64"), doc="replicas that run when the episode starts"
    )
    budget: Budget | None = spec(Nested(Budget, nullable=True), None)
    dynamics: Dynamics = spec(Nested(Dynamics))
    history: History = spec(Nested(History))
    provenance: Mapping[str, str] = spec(
        TextMap(), doc="where each group of numbers comes from: for people, no program reads it"
    )
    facts: Facts | None = spec(
        Nested(Facts, nullable=True), None, doc="what it was made of; left out where nobody said", sparse=True
    )
    law: str = spec(
        Choice(("told", "fitted")),
        "told",
        doc="what dynamics are: told, those that draw the days; fitted to the history: the days come from others, "
        "which are stored with them",
        sparse=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        _check(self)

    # -- counts and names

    @property
    def num_workloads(self) -> int:
        """Number of workloads."""
        return len(self.workloads)

    @property
    def num_configurations(self) -> int:
        """Number of configurations."""
        return len(self.configurations)

    @property
    def num_pools(self) -> int:
        """Number of GPU pools."""
        return len(self.pools)

    @functools.cached_property
    def configuration_index(self) -> Mapping[str, int]:
        """Index of each configuration by its id."""
        return {c.id: k for k, c in enumerate(self.configurations)}

    @functools.cached_property
    def slot_members(self) -> tuple[tuple[int, ...], ...]:
        """Configuration indices of each slot, in option order."""
        return tuple(tuple(self.configuration_index[c] for c in slot.configurations) for slot in self.slots)

    @functools.cached_property
    def exclusive_groups(self) -> tuple[tuple[int, ...], ...]:
        """Configuration indices of each exclusive slot; at most one replica of a group may run."""
        pairs = zip(self.slots, self.slot_members, strict=True)
        return tuple(members for slot, members in pairs if slot.exclusive)

    @functools.cached_property
    def gpu_use(self) -> np.ndarray:
        """GPUs that one replica takes from each pool (U in the model), int64 (pools, configurations)."""
        pool_of = {tier.id: tier.pool for tier in self.tiers}
        row = {pool.id: g for g, pool in enumerate(self.pools)}
        use = np.zeros((self.num_pools, self.num_configurations), dtype=np.int64)
        for c, configuration in enumerate(self.configurations):
            for part in configuration.uses:
                use[row[pool_of[part.tier]], c] += part.gpus
        use.setflags(write=False)
        return use

    @functools.cached_property
    def rental_usd_per_h(self) -> np.ndarray:
        """Rent of one replica per pool at list price, USD per hour, (pools, configurations)."""
        tiers = {tier.id: tier for tier in self.tiers}
        row = {pool.id: g for g, pool in enumerate(self.pools)}
        rent = np.zeros((self.num_pools, self.num_configurations))
        for c, configuration in enumerate(self.configurations):
            for part in configuration.uses:
                tier = tiers[part.tier]
                g = row[tier.pool]
                price = tier.price_usd_per_gpu_h
                rent[g, c] += part.gpus * (self.pools[g].price_usd_per_gpu_h if price is None else price)
        rent.setflags(write=False)
        return rent

    # -- files

    @classmethod
    def from_dict(cls, data: Any) -> Instance:
        """Build and validate an instance from parsed JSON.

        Raises
        ------
        DataError
            With the JSON path of the first thing that is wrong.
        """
        return read_object(cls, data)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists and mappings; `from_dict` reads them back to an equal instance."""
        return to_jsonable(self)

    @functools.cached_property
    def content_hash(self) -> str:
        """SHA-256 over the canonical JSON form, the same for every file that holds this instance."""
        return canonical_hash(self.to_dict())

    def replace(self, **changes: Any) -> Instance:
        """Return a copy with some fields changed, read and validated again like a file."""
        return type(self).from_dict({**self.to_dict(), **to_jsonable(changes)})

    @property
    def stated(self) -> Facts | None:
        """The facts; None where nobody stated any.

        Raises
        ------
        FleetgymError
            If a trace was imported by a version that stated them in sentences only.
        """
        if self.facts is None and self.family == IMPORTED:
            raise FleetgymError(
                f"{self.id} was imported by an older version, which kept SLOs, lengths and commitments as sentences: "
                "import the trace again with import-trace"
            )
        return self.facts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Instance) and self.content_hash == other.content_hash

    def __hash__(self) -> int:
        return hash(self.content_hash)


# -- checks across fields


def _check(instance: Instance) -> None:
    """Check references, shapes and rules that no single field can check."""
    for name in ("workloads", "pools", "tiers", "configurations"):
        check_unique_ids(getattr(instance, name), f"$.{name}")
    _check_references(instance)
    _check_slots(instance)
    _check_gpus(instance)
    _check_performance(instance)
    _check_nominal(instance)
    _check_facts(instance)
    counts = {"workload": instance.num_workloads, "pool": instance.num_pools}
    check_dynamics(instance.dynamics, counts, "$.dynamics")
    _check_money(instance)


def _fail(message: str, path: str) -> NoReturn:
    raise DataError(message, path)


def _check_reference(name: str, known: Iterable[str], kind: str, path: str) -> None:
    if name not in known:
        _fail(f"no {kind} has the id {name!r}{suggestion(name, known)}", path)


def _check_references(instance: Instance) -> None:
    pools = {pool.id for pool in instance.pools}
    tiers = {tier.id for tier in instance.tiers}
    for k, tier in enumerate(instance.tiers):
        _check_reference(tier.pool, pools, "pool", f"$.tiers[{k}].pool")
    for c, configuration in enumerate(instance.configurations):
        for k, use in enumerate(configuration.uses):
            _check_reference(use.tier, tiers, "tier", f"$.configurations[{c}].uses[{k}].tier")


def _check_slots(instance: Instance) -> None:
    owner: dict[str, int] = {}
    for s, slot in enumerate(instance.slots):
        for k, name in enumerate(slot.configurations):
            path = f"$.slots[{s}].configurations[{k}]"
            _check_reference(name, instance.configuration_index, "configuration", path)
            if name in owner:
                _fail(f"configuration {name!r} is already in $.slots[{owner[name]}]", path)
            owner[name] = s
            configuration = instance.configurations[instance.configuration_index[name]]
            if slot.exclusive and configuration.max_replicas != 1:
                _fail(f"{name!r} is in an exclusive slot, so its max_replicas must be 1", path)
        if not slot.exclusive and len(slot.configurations) != 1:
            _fail(
                "a slot that is not exclusive holds exactly one configuration", f"$.slots[{s}].configurations"
            )
    for c, configuration in enumerate(instance.configurations):
        if configuration.id not in owner:
            _fail("every configuration belongs to one slot; this one is in none", f"$.configurations[{c}].id")


def _check_gpus(instance: Instance) -> None:
    for g, pool in enumerate(instance.pools):
        if pool.cap_gpus % pool.gpus_per_node:
            _fail(f"expected a multiple of gpus_per_node = {pool.gpus_per_node}", f"$.pools[{g}].cap_gpus")
        for c in np.flatnonzero(instance.gpu_use[g] % pool.gpus_per_node):
            _fail(
                f"uses {instance.gpu_use[g, c]} GPUs of pool {pool.id!r}, which grants whole multiples of "
                f"{pool.gpus_per_node}",
                f"$.configurations[{c}].uses",
            )


def _check_shape(array: np.ndarray, shape: tuple[int, ...], path: str) -> None:
    if array.shape != shape:
        _fail(f"expected shape {shape}, got {array.shape}", path)


def _check_performance(instance: Instance) -> None:
    shape = (instance.num_workloads, instance.num_configurations)
    for field in dataclasses.fields(Performance):
        value, path = getattr(instance.performance, field.name), f"$.performance.{field.name}"
        parts = (
            {f"{path}.{f.name}": getattr(value, f.name) for f in dataclasses.fields(value)}
            if isinstance(value, Affine)
            else {path: value}
        )
        for where, array in parts.items():
            _check_shape(array, shape, where)


def _check_nominal(instance: Instance) -> None:
    fleet, rates = instance.nominal_fleet, instance.history.rate_rps
    _check_shape(fleet, (instance.num_configurations,), "$.nominal_fleet")
    for c, configuration in enumerate(instance.configurations):
        if fleet[c] > configuration.max_replicas:
            _fail(
                f"{fleet[c]} replicas exceed max_replicas = {configuration.max_replicas}",
                f"$.nominal_fleet[{c}]",
            )
    for s, members in enumerate(instance.slot_members):
        if instance.slots[s].exclusive and fleet[list(members)].sum() > 1:
            _fail(f"more than one configuration of the exclusive slot {s} runs", "$.nominal_fleet")
    held = instance.gpu_use @ fleet
    for g, pool in enumerate(instance.pools):
        if held[g] > pool.cap_gpus:
            _fail(
                f"holds {held[g]} GPUs of pool {pool.id!r}, whose cap is {pool.cap_gpus}", "$.nominal_fleet"
            )
    if rates.ndim != 2 or rates.shape[0] < 1 or rates.shape[1] != instance.num_workloads:
        _fail(
            f"expected shape (windows >= 1, {instance.num_workloads}), got {rates.shape}",
            "$.history.rate_rps",
        )
    mean = rates.mean(axis=0)
    for i, workload in enumerate(instance.workloads):
        if abs(mean[i] - workload.rate_rps) > 1e-4 * workload.rate_rps:
            _fail(f"expected the history's mean, {mean[i]:.6g}", f"$.workloads[{i}].rate_rps")


def _check_facts(instance: Instance) -> None:
    if (facts := instance.facts) is None:
        return
    if len(facts.slos) != instance.num_workloads:
        _fail(
            f"expected one SLO per workload, {instance.num_workloads}, got {len(facts.slos)}", "$.facts.slos"
        )
    pools = {pool.id for pool in instance.pools}
    for k, limit in enumerate(facts.engine_limits):
        path = f"$.facts.engine_limits[{k}].configuration"
        _check_reference(limit.configuration, instance.configuration_index, "configuration", path)
    for k, each in enumerate(facts.commitments):
        _check_reference(each.pool, pools, "pool", f"$.facts.commitments[{k}].pool")


def _check_money(instance: Instance) -> None:
    for i, workload in enumerate(instance.workloads):
        if workload.late_usd > workload.unserved_usd:
            _fail("a late request may not cost more than an unserved one", f"$.workloads[{i}].late_usd")
        if workload.late_usd and instance.penalty_basis == "day":
            _fail("must be 0 where penalty_basis is 'day'", f"$.workloads[{i}].late_usd")


def load_instance_file(path: str | os.PathLike[str]) -> Instance:
    """Read an instance from a ``.json`` or ``.json.gz`` file.

    Raises
    ------
    DataError
        With the file and the JSON path of what is wrong.
    FileNotFoundError
        If there is no such file.
    """
    try:
        return Instance.from_dict(read_json(path))
    except DataError as error:
        raise error.in_file(path) from None


def instance_schema() -> dict[str, Any]:
    """Return the JSON Schema of instance files."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": INSTANCE_FORMAT}
    return {**head, **object_schema(Instance)}
