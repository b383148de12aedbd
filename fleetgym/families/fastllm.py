"""Make instances in a regime in which FastLLM's experiments can be repeated.

The paper (section 4.1) prints ranges and leaves units, token lengths and error rates open; this regime is ours,
found so that its magnitudes are near the paper's. Money follows the paper: rho in USD per millisecond and phi in
USD per unserved fraction, both per 24 h and without the arrival rate.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from fleetgym.families.demand import DAY, WINDOW_S, history_rps, walk
from fleetgym.families.static import Columns, allocate, restrict
from fleetgym.families.text import six, tie_break
from fleetgym.hardware import catalog
from fleetgym.hardware.performance import delay
from fleetgym.hardware.performance.coefficients import Coefficients
from fleetgym.model.instance import INSTANCE_FORMAT, Instance

#: Workloads, models, tiers.
SIZES = {
    "4-4-5": (4, 4, 5),
    "6-6-10": (6, 6, 10),
    "10-10-10": (10, 10, 10),
    "15-15-10": (15, 15, 10),
    "20-20-20": (20, 20, 20),
}
#: Budget in USD per 24 h.
_BUDGET_USD = {4: 100.0, 6: 100.0, 10: 120.0, 15: 150.0, 20: 180.0}
_SIGMAS = (0.02, 0.04, 0.01, 0.03, 0.05)
_TP, _PP = (1, 2, 4, 8), (1, 2, 4)
_POOL_GPUS = 256  # never binding: the budget is what binds


@dataclasses.dataclass(frozen=True)
class _Type:
    """A query type: token lengths, requests/h, SLOs, error at 8 B FP16, overheads, penalties, KB per token."""

    id: str
    input_tokens: float
    output_tokens: float
    rate_per_h: tuple[float, float]
    delay_slo_s: float
    error_slo: float
    error: float
    overhead: float  # tau
    compute: float  # kappa
    delay_usd_per_ms: tuple[float, float]
    unserved_usd: tuple[float, float]
    storage_kb: tuple[float, float]


_TEXT = ((1e3, 1.5e3), (10.0, 14.0))
_TYPES = (
    _Type("summarization", 512, 256, (18e3, 25e3), 5.0, 0.05, 0.030, 1.0, 1, (1e-4, 3e-4), *_TEXT),
    _Type("code", 256, 256, (10e3, 15e3), 4.0, 0.04, 0.030, 1.2, 2, (3e-4, 5e-4), *_TEXT),
    _Type("translation", 128, 128, (12e3, 18e3), 1.5, 0.03, 0.020, 1.0, 1, (1e-4, 3e-4), *_TEXT),
    _Type("math", 64, 256, (5e3, 9e3), 4.0, 0.04, 0.050, 1.3, 2, (5e-4, 8e-4), *_TEXT),
    _Type("image", 32, 512, (2e3, 5e3), 12.0, 0.06, 0.045, 2.0, 6, (5e-4, 1e-3), (2e3, 3e3), (40.0, 60.0)),
    _Type("video", 48, 768, (1e3, 3e3), 25.0, 0.08, 0.060, 4.0, 12, (5e-4, 1e-3), (2e3, 3e3), (80.0, 120.0)),
)

#: (GPU, precision, USD/h) in the order in which sizes take them.
_TEN_TIERS = (
    ("fastllm-A6000", "fp16", 0.65),
    ("fastllm-A6000", "int8", 0.60),
    ("fastllm-A6000", "int4", 0.55),
    ("fastllm-RTX-4090", "fp16", 0.45),
    ("fastllm-RTX-4090", "int8", 0.40),
    ("fastllm-RTX-4090", "int4", 0.35),
    ("fastllm-A100-40GB", "fp16", 1.30),
    ("fastllm-A100-40GB", "int8", 1.20),
    ("fastllm-H100", "fp16", 2.50),
    ("fastllm-H100", "int8", 2.20),
)
_FIVE_TIERS = tuple(_TEN_TIERS[k] for k in (1, 3, 5, 7, 8))
_TWENTY_TIERS = (
    *_TEN_TIERS,
    ("fastllm-A100-40GB", "int4", 1.10),
    ("fastllm-H100", "int4", 2.00),
    ("A100-80GB", "fp16", 1.80),
    ("A100-80GB", "int8", 1.70),
    ("A100-80GB", "int4", 1.60),
    ("L40S", "fp16", 1.00),
    ("L40S", "int8", 0.95),
    ("L40S", "int4", 0.90),
    ("A10", "fp16", 0.40),
    ("A10", "int8", 0.38),
)
_TIERS = {5: _FIVE_TIERS, 10: _TEN_TIERS, 20: _TWENTY_TIERS}
_PRICE_RANGE = (0.35, 2.5)

#: Layers and hidden size by billions of parameters (Llama's shapes; between them interpolated on logarithms).
_SHAPES = {
    1.0: (16, 2048),
    3.0: (28, 3072),
    8.0: (32, 4096),
    11.0: (40, 4096),
    31.0: (60, 6656),
    70.0: (80, 8192),
}
_KV_MICRO_GB = {1.0: 30.5, 3.0: 107.0, 8.0: 122.0, 70.0: 305.0}
_SIX_SIZES = (1.0, 3.0, 8.0, 11.0, 31.0, 70.0)
_MORE_SIZES = (2.0, 4.0, 5.0, 7.0, 9.0, 13.0, 15.0, 20.0, 24.0, 27.0, 34.0, 40.0, 47.0, 60.0)


@dataclasses.dataclass(frozen=True)
class _Model:
    id: str
    params_b: float
    quality: float  # multiplies the error

    @property
    def weight_gb(self) -> float:
        return min(2.0 * self.params_b, 140.0)

    @property
    def kv_gb_per_token(self) -> float:
        return 1e-6 * _interpolated(_KV_MICRO_GB, self.params_b)

    @property
    def layers(self) -> int:
        return round(_interpolated({size: shape[0] for size, shape in _SHAPES.items()}, self.params_b))

    @property
    def hidden(self) -> int:
        return round(_interpolated({size: shape[1] for size, shape in _SHAPES.items()}, self.params_b))


@dataclasses.dataclass(frozen=True)
class _Tier:
    id: str
    gpu: catalog.GpuType
    precision: str
    price: float


@dataclasses.dataclass(frozen=True)
class _Column:
    model: _Model
    tier: _Tier
    tp: int
    pp: int

    @property
    def id(self) -> str:
        return f"{self.model.id}@{self.tier.id}:tp{self.tp}pp{self.pp}"

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    @property
    def kv_capacity_gb(self) -> float:
        return delay.free_memory_gb(
            self.tier.gpu.memory_gb, self.model.weight_gb, self.tier.precision, self.gpus
        )

    @property
    def compute_tflops(self) -> float:
        gpu = self.tier.gpu
        # Where a table has no rate for a precision, the next wider one does the work.
        wider = {"int4": gpu.int4_tflops or gpu.int8_tflops, "int8": gpu.int8_tflops}
        rate = wider.get(self.tier.precision) or gpu.fp16_tflops
        return self.gpus * rate * delay.compute_efficiency(self.pp)


def _interpolated(table: dict[float, float], size: float) -> float:
    sizes = sorted(table)
    return math.exp(np.interp(math.log(size), np.log(sizes), np.log([table[s] for s in sizes])))


def build(size: str, seed: int, rng: np.random.Generator) -> Instance:
    """Return an instance of the regime.

    Parameters
    ----------
    size : str
        A key of `SIZES`: workloads, models, tiers.
    seed : int
        Part of the id; also picks the random walk's volatility from .01 to .05.
    rng : numpy.random.Generator
        Source of randomness.

    Returns
    -------
    Instance
        One exclusive slot per (model, tier), whose options are (TP, PP); lead 0, no start-up time, no TTFT SLO.
    """
    count, num_models, num_tiers = SIZES[size]
    types = _jittered(rng, count)
    models = _models(rng, num_models)
    tiers = [
        _Tier(f"{gpu.removeprefix('fastllm-')}-{precision}", catalog.gpu(gpu), precision, _price(rng, price))
        for gpu, precision, price in _TIERS[num_tiers]
    ]
    storage_usd = float(f"{rng.uniform(0.0005, 0.001):.6g}")
    columns = _columns(models, tiers)
    rate = np.array([rng.uniform(*t.rate_per_h) for t in types]) / 3600.0
    sigma = _SIGMAS[(seed - 1) % len(_SIGMAS)]
    plan = walk(rng, count, sigma)
    history = six(history_rps(plan, rng, rate))
    rate = history.mean(axis=0)
    money = np.array([(rng.uniform(*t.delay_usd_per_ms) * 1e3, rng.uniform(*t.unserved_usd)) for t in types])
    footprint = np.array([rng.uniform(*t.storage_kb) * 1e-6 for t in types])  # GB per token
    performance = _performance(types, columns, storage_usd, footprint)
    fleet = _nominal_fleet(types, columns, performance, rate, money, storage_usd, _BUDGET_USD[count])
    data = {
        "format": INSTANCE_FORMAT,
        "id": f"fastllm-{size}-{seed:03d}",
        "family": "fastllm",
        "size": size,
        "description": "FastLLM's problem in a regime of ours: exclusive (model, tier) groups under a budget.",
        "num_windows": DAY,
        "window_s": WINDOW_S,
        "lead": 0,
        "penalty_basis": "day",
        "workloads": [_workload(t, k, rate, money) for k, t in enumerate(types)],
        "pools": _pools(tiers),
        "tiers": [
            {"id": t.id, "pool": _pool_name(t), "precision": t.precision, "price_usd_per_gpu_h": t.price}
            for t in tiers
        ],
        "configurations": [_configuration(c, storage_usd) for c in columns],
        "slots": _slots(columns),
        "performance": _as_json(performance, types, columns, f"fastllm-{size}-{seed:03d}"),
        "nominal_fleet": fleet,
        "budget": {"kind": "rate", "usd": float(f"{_BUDGET_USD[count] / 24.0:.6g}")},
        "dynamics": {
            "demand": plan.process,
            **{
                name: {"kind": "constant", "parameters": {}}
                for name in ("tokens", "factors", "availability", "prices")
            },
        },
        "history": {"rate_rps": history.tolist()},
        "provenance": _provenance(sigma),
    }
    return Instance.from_dict(data)


def _jittered(rng: np.random.Generator, count: int) -> list[_Type]:
    """Return the query types, repeated and varied: more where there are more than six."""
    many = count > 6
    length, slo, error = (0.3, 0.2, 0.1) if many else (0.1, 0.07, 0.03)

    def vary(value: float, spread: float) -> float:
        return float(f"{value * rng.uniform(1 - spread, 1 + spread):.6g}")

    found = []
    for k in range(count):
        t = _TYPES[k % len(_TYPES)]
        found.append(
            dataclasses.replace(
                t,
                id=t.id if k < len(_TYPES) else f"{t.id}-{k // len(_TYPES) + 1}",
                input_tokens=float(max(1, round(vary(t.input_tokens, length)))),
                output_tokens=float(max(1, round(vary(t.output_tokens, length)))),
                delay_slo_s=min(max(vary(t.delay_slo_s, length), 1.5), 25.0),
                error_slo=min(max(vary(t.error_slo, slo), 0.02), 0.08),
                error=vary(t.error, error),
            )
        )
    return found


def _models(rng: np.random.Generator, count: int) -> list[_Model]:
    if count == 4:
        return [_Model(f"llama-{size:g}b", size, 1.0) for size in (1.0, 3.0, 8.0, 31.0)]
    sizes = sorted(_SIX_SIZES + _MORE_SIZES[: count - len(_SIX_SIZES)])
    return [
        _Model(
            f"llama-{size:g}b", size, 1.0 if size in _SIX_SIZES else round(float(rng.uniform(0.95, 1.05)), 4)
        )
        for size in sizes
    ]


def _price(rng: np.random.Generator, price: float) -> float:
    return round(float(np.clip(price * rng.uniform(0.9, 1.1), *_PRICE_RANGE)), 4)


def _columns(models: list[_Model], tiers: list[_Tier]) -> list[_Column]:
    """Return every (model, tier, TP, PP) whose weights leave room for a KV cache; ties on TP x PP start with TP."""
    options = sorted(((n, m) for n in _TP for m in _PP), key=lambda o: (o[0] * o[1], -o[0]))
    found = [
        _Column(model, tier, n, m)
        for model in models
        for tier in tiers
        for n, m in options
        if n <= _tp_limit(tier)
    ]
    return [c for c in found if c.kv_capacity_gb > 0.0]


def _tp_limit(tier: _Tier) -> int:
    # Without NVLink between all GPUs of a node, TP beyond four gains nothing.
    return 8 if "100" in tier.gpu.name else 4


def _coefficients(t: _Type, c: _Column) -> tuple[Coefficients, Coefficients]:
    """Return delay and prefill of a request."""
    gpu = c.tier.gpu
    compute = delay.compute_s_per_token(
        c.model.weight_gb, c.tier.precision, gpu.bandwidth_gb_per_s, t.overhead
    )
    link = delay.communication_s_per_token(c.model.layers, c.model.hidden, gpu.peer_gb_per_s)
    return delay.delay_coefficients(compute, link, c.tp, c.pp), delay.prefill_coefficients(compute, c.tp)


def _performance(
    types: list[_Type], columns: list[_Column], storage_usd: float, footprint: np.ndarray
) -> dict[str, np.ndarray]:
    """Return coefficients by name: (I, C) each."""
    found = {
        name: np.zeros((len(types), len(columns)))
        for name in ("in", "out", "prefill", "work", "error", "storage")
    }
    for i, t in enumerate(types):
        for c, column in enumerate(columns):
            total, prefill = _coefficients(t, column)
            found["in"][i, c], found["out"][i, c] = total.per_input_token, total.per_output_token
            found["prefill"][i, c] = prefill.per_input_token
            found["work"][i, c] = delay.work_tflop_per_token(column.model.params_b, t.compute)
            share = delay.error_share(t.error, column.model.params_b, column.tier.precision)
            found["error"][i, c] = share * column.model.quality
        # The requests of an hour are stored for that hour, in every hour of the day.
        found["storage"][i] = storage_usd * footprint[i] * (t.input_tokens + t.output_tokens)
    return {name: six(value) for name, value in found.items()}


def _as_json(
    performance: dict[str, np.ndarray], types: list[_Type], columns: list[_Column], name: str
) -> dict[str, Any]:
    shape = (len(types), len(columns))
    zero = np.zeros(shape).tolist()

    def affine(per_input: Any, per_output: Any) -> dict[str, Any]:
        return {"base": zero, "per_input_token": per_input, "per_output_token": per_output}

    values = {key: value.tolist() for key, value in performance.items()}
    return {
        "compatible": np.ones(shape, dtype=bool).tolist(),
        "delay_s": affine(values["in"], values["out"]),
        "work_tflop": affine(values["work"], values["work"]),
        "service_s": affine(zero, zero),
        "prefill_s": affine(values["prefill"], zero),
        "service_cv2": zero,
        "error": values["error"],
        "storage_usd": values["storage"],
        "tie_break": [[tie_break(name, t.id, c.id) for c in columns] for t in types],
    }


def _workload(t: _Type, k: int, rate: np.ndarray, money: np.ndarray) -> dict[str, Any]:
    return {
        "id": t.id,
        "rate_rps": float(f"{rate[k]:.6g}"),
        "input_tokens": t.input_tokens,
        "output_tokens": t.output_tokens,
        "mean_delay_slo_s": t.delay_slo_s,
        "error_slo": t.error_slo,
        "unserved_usd": float(f"{money[k, 1]:.6g}"),
        "delay_usd_per_s": float(f"{money[k, 0]:.6g}"),
    }


def _pool_name(tier: _Tier) -> str:
    return tier.gpu.name.removeprefix("fastllm-")


def _pools(tiers: list[_Tier]) -> list[dict[str, Any]]:
    first: dict[str, _Tier] = {}
    for tier in tiers:
        first.setdefault(_pool_name(tier), tier)
    return [
        {"id": name, "gpu_type": name, "price_usd_per_gpu_h": tier.price, "cap_gpus": _POOL_GPUS}
        for name, tier in first.items()
    ]


def _configuration(c: _Column, storage_usd: float) -> dict[str, Any]:
    return {
        "id": c.id,
        "model": c.model.id,
        "uses": [{"tier": c.tier.id, "gpus": c.gpus}],
        "compute_tflops": float(f"{c.compute_tflops:.6g}"),
        "kv_capacity_gb": float(f"{c.kv_capacity_gb:.6g}"),
        "kv_gb_per_token": float(f"{c.model.kv_gb_per_token:.6g}"),
        "max_concurrency": 10**6,
        "model_storage_usd_per_h": float(f"{storage_usd * c.model.weight_gb:.6g}"),
        "tensor_parallel": c.tp,
        "pipeline_parallel": c.pp,
    }


def _slots(columns: list[_Column]) -> list[dict[str, Any]]:
    """Return a group per (model, tier), cheapest compute first."""
    groups: dict[tuple[str, str], list[_Column]] = {}
    for column in columns:
        groups.setdefault((column.model.id, column.tier.id), []).append(column)
    rank = sorted(
        groups.values(),
        key=lambda g: g[0].model.params_b * g[0].tier.price / g[0].compute_tflops * g[0].gpus,
    )
    return [{"configurations": [c.id for c in group], "exclusive": True} for group in rank]


def _nominal_fleet(
    types: list[_Type],
    columns: list[_Column],
    performance: dict[str, np.ndarray],
    rate: np.ndarray,
    money: np.ndarray,
    storage_usd: float,
    budget_usd: float,
) -> list[int]:
    """Return a good fleet for nominal demand: the relaxation picks at most 40 columns, a small MILP among them.

    Above six workloads only the smallest option of each group is considered.
    """
    problem = _problem(types, columns, performance, rate, money, storage_usd, budget_usd)
    some = np.arange(len(columns))
    if len(types) > 6:
        some = np.array([members[0] for members in problem.groups])
        problem = restrict(problem, some)
    day = 86400.0
    unserved = money[:, 1] / day / rate  # USD per request that cost as much per second
    relaxed = allocate(problem, rate, unserved)
    used = np.argsort(-relaxed.replicas, kind="stable")[:40]
    groups = {_group(columns[some[c]]) for c in used if relaxed.replicas[c] > 1e-6}
    keep = np.array([k for k, c in enumerate(some) if _group(columns[c]) in groups])
    small = restrict(problem, keep)
    whole = allocate(small, rate, unserved, integer=True, gap=0.02, node_limit=300)
    fleet = [0] * len(columns)
    for k, replicas in zip(keep, whole.replicas, strict=True):
        fleet[int(some[k])] = int(replicas)
    return fleet


def _group(column: _Column) -> tuple[str, str]:
    return column.model.id, column.tier.id


def _problem(
    types: list[_Type],
    columns: list[_Column],
    performance: dict[str, np.ndarray],
    rate: np.ndarray,
    money: np.ndarray,
    storage_usd: float,
    budget_usd: float,
) -> Columns:
    tokens_in = np.array([t.input_tokens for t in types])[:, None]
    tokens_out = np.array([t.output_tokens for t in types])[:, None]
    delay_s = performance["in"] * tokens_in + performance["out"] * tokens_out
    kv = np.array([c.model.kv_gb_per_token for c in columns])
    route = money[:, :1] * delay_s / 86400.0 + rate[:, None] * performance["storage"]
    price = np.array([c.tier.price * c.gpus + storage_usd * c.model.weight_gb for c in columns])
    groups: dict[tuple[str, str], list[int]] = {}
    for k, column in enumerate(columns):
        groups.setdefault((column.model.id, column.tier.id), []).append(k)
    return Columns(
        compatible=np.ones(delay_s.shape, dtype=bool),
        delay_s=delay_s,
        service_s=np.zeros(delay_s.shape),
        work_tflop=performance["work"] * (tokens_in + tokens_out),
        kv_gb_s=kv * (tokens_in + tokens_out) * delay_s,
        error=performance["error"],
        route_usd_per_s=route,
        mean_delay_slo_s=np.array([t.delay_slo_s for t in types]),
        error_slo=np.array([t.error_slo for t in types]),
        compute_tflops=np.array([c.compute_tflops for c in columns]),
        kv_capacity_gb=np.array([c.kv_capacity_gb for c in columns]),
        max_concurrency=np.full(len(columns), 1e6),
        max_replicas=np.ones(len(columns)),
        gpu_use=np.array([[float(c.gpus) for c in columns]]),
        hold_usd_per_s=price / 3600.0,
        groups=tuple(tuple(members) for members in groups.values()),
        budget_usd_per_s=budget_usd / 86400.0,
    )


def _provenance(sigma: float) -> dict[str, str]:
    return {
        "all": "assumed: a regime of ours for FastLLM section 4.1, which prints ranges and leaves units, token lengths "
        "and error rates open; magnitudes are near the paper's",
        "demand": f"assumed: the paper's geometric random walk, sigma {sigma} per window, Poisson counts",
        "money": "assumed: rho USD/ms and phi USD per unserved fraction, both per 24 h and without the arrival rate",
        "tiers": "assumed: memory, bandwidth and rates of fleetgym/data/gpus.csv (fastllm-*), rents within the "
        "paper's 0.35 to 2.50 USD/h",
        "performance": "modelled: fleetgym.performance.delay with its defaults (KV by Little's law, quantised "
        "weights, pipeline bubble, compute not scaled by precision)",
    }
