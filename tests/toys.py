"""Small hand-made and random instances for the tests: a few numbers in, a valid instance or its JSON out."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fleetgym.model.instance import INSTANCE_FORMAT, Instance
from fleetgym.model.lengths import LengthLaw
from fleetgym.model.scenario import Scenario

#: With windows of 300 s, a GPU at this price costs exactly one USD per window.
ONE_USD_PER_WINDOW = 12.0

CONSTANT: dict[str, Any] = {"kind": "constant", "parameters": {}}
DYNAMICS: dict[str, Any] = {
    "demand": {"kind": "history", "parameters": {}},
    "tokens": CONSTANT,
    "factors": CONSTANT,
    "availability": CONSTANT,
    "prices": CONSTANT,
}


def pool(name: str, cap: int, **changes: Any) -> dict[str, Any]:
    """Return a pool whose GPUs cost one USD per window."""
    base = {"id": name, "gpu_type": "gpu", "price_usd_per_gpu_h": ONE_USD_PER_WINDOW, "cap_gpus": cap}
    return {**base, **changes}


def configuration(name: str, uses: Mapping[str, int], **changes: Any) -> dict[str, Any]:
    """Return a configuration that takes `uses[pool]` GPUs of each pool's only tier."""
    base = {
        "id": name,
        "model": "model",
        "uses": [{"tier": f"{where}-tier", "gpus": gpus} for where, gpus in uses.items()],
        "compute_tflops": 1000.0,
        "kv_capacity_gb": 1000.0,
        "kv_gb_per_token": 0.0,
        "max_concurrency": 10,
        "max_replicas": 4,
    }
    return {**base, **changes}


def workload(name: str, rate_rps: float = 1.0, **changes: Any) -> dict[str, Any]:
    """Return a workload that is hard to disappoint."""
    base = {
        "id": name,
        "rate_rps": rate_rps,
        "input_tokens": 100.0,
        "output_tokens": 100.0,
        "mean_delay_slo_s": 10.0,
        "error_slo": 0.1,
        "unserved_usd": 0.1,
    }
    return {**base, **changes}


def affine(base: Any, per_input: Any = 0.0, per_output: Any = 0.0) -> dict[str, Any]:
    """Return an affine quantity; numbers are spread by `instance_data`."""
    return {"base": base, "per_input_token": per_input, "per_output_token": per_output}


def _spread(value: Any, shape: tuple[int, int]) -> Any:
    """Blow one number up to a row per workload and a column per configuration."""
    if isinstance(value, Mapping):
        return {name: _spread(part, shape) for name, part in value.items()}
    return np.broadcast_to(np.asarray(value), shape).tolist()


def instance_data(
    pools: Sequence[Mapping[str, Any]],
    configurations: Sequence[Mapping[str, Any]],
    slots: Sequence[str] | None = None,
    workloads: Sequence[Mapping[str, Any]] | None = None,
    performance: Mapping[str, Any] | None = None,
    nominal: Sequence[int] | None = None,
    **changes: Any,
) -> dict[str, Any]:
    """Return the JSON form of an instance.

    A slot is written ``"A"`` (replicas of A) or ``"A|B"`` / ``"A|"`` (exclusive: off, A or B). Performance
    arrays may be given as one number for all pairs.
    """
    workloads = [workload("chat")] if workloads is None else workloads
    shape = (len(workloads), len(configurations))
    defaults: dict[str, Any] = {
        "compatible": True,
        "delay_s": affine(1.0),
        "work_tflop": affine(1.0),
        "service_s": affine(1.0),
        "prefill_s": affine(0.1),
        "service_cv2": 0.0,
        "error": 0.01,
        "storage_usd": 0.0,
        "tie_break": [[c / (2 * shape[1]) for c in range(shape[1])]] * shape[0],
    }
    names = [c["id"] for c in configurations]
    data = {
        "format": INSTANCE_FORMAT,
        "id": "toy",
        "family": "toy",
        "size": "s",
        "description": "made by hand",
        "num_windows": 12,
        "window_s": 300.0,
        "workloads": list(workloads),
        "pools": list(pools),
        "tiers": [{"id": f"{p['id']}-tier", "pool": p["id"]} for p in pools],
        "configurations": list(configurations),
        "slots": [
            {"configurations": [n for n in slot.split("|") if n], "exclusive": "|" in slot}
            for slot in (names if slots is None else slots)
        ],
        "performance": {k: _spread(v, shape) for k, v in {**defaults, **(performance or {})}.items()},
        "nominal_fleet": [0] * len(names) if nominal is None else list(nominal),
        "budget": None,
        "dynamics": DYNAMICS,
        "history": {"rate_rps": [[w["rate_rps"] for w in workloads]]},
        "provenance": {"all": "made by hand"},
        **changes,
    }
    return copy.deepcopy(data)


def make_instance(*args: Any, **changes: Any) -> Instance:
    """Return the validated instance of `instance_data`."""
    return Instance.from_dict(instance_data(*args, **changes))


def one_pool_data() -> dict[str, Any]:
    """Return the JSON form of a complete small instance: every optional key is present."""
    chat = workload(
        "chat",
        4.0,
        delay_usd_per_s=1e-4,
        late_usd=0.01,
        ttft_slo_s=1.0,
        arrival_cv2=1.5,
    )
    code = workload("code", 2.0, delay_usd_per_s=0.0, late_usd=0.0, ttft_slo_s=None, arrival_cv2=1.0)
    big = configuration("big", {"east": 4}, startup_windows=2, startup_usd=1.5, max_replicas=1)
    small = configuration(
        "small", {"east": 2}, startup_windows=1, model_storage_usd_per_h=0.5, max_replicas=1
    )
    spot = configuration("spot", {"west": 1}, max_replicas=3, kv_gb_per_token=1e-4)
    return instance_data(
        [pool("east", 8, gpus_per_node=2), pool("west", 3, market="spot", price_usd_per_gpu_h=3.0)],
        [big, small, spot],
        ["big|small", "spot"],
        [chat, code],
        {"service_cv2": 0.5, "prefill_s": affine(0.05, 0.001), "storage_usd": 1e-6},
        [0, 1, 2],
        budget={"kind": "rate", "usd": 200.0},
        lead=1,
        penalty_basis="request",
    )


def nominal_scenario(instance: Instance, **changes: Any) -> Scenario:
    """Return the scenario in which every window is nominal; `changes` replaces whole arrays."""
    workloads, pools = instance.num_workloads, instance.num_pools
    arrays: dict[str, Any] = {
        "rate_rps": [[w.rate_rps for w in instance.workloads]],
        "available_gpus": [[p.cap_gpus for p in instance.pools]],
        "price_factor": np.ones((1, pools)),
        **{
            n: np.ones((1, workloads))
            for n in ("input_scale", "output_scale", "delay_factor", "error_factor")
        },
        **changes,
    }
    built = {
        name: np.array(value, dtype=np.int64 if name == "available_gpus" else np.float64)
        for name, value in arrays.items()
    }
    return Scenario(id="nominal", **built).check(instance)


# -- random ones


def _random_pools(rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
    nodes = rng.choice([1, 1, 2, 4], count)
    return [
        pool(
            f"p{g}",
            int(nodes[g] * rng.integers(2, 10)),
            gpus_per_node=int(nodes[g]),
            price_usd_per_gpu_h=float(rng.uniform(0.5, 12)),
        )
        for g in range(count)
    ]


def _random_configuration(
    rng: np.random.Generator, name: str, pools: Sequence[Mapping[str, Any]], most: int
) -> dict[str, Any]:
    chosen = rng.choice(len(pools), size=min(len(pools), int(rng.integers(1, 3))), replace=False)
    uses = {pools[g]["id"]: int(pools[g]["gpus_per_node"] * rng.integers(1, 3)) for g in chosen}
    return configuration(
        name,
        uses,
        compute_tflops=float(rng.choice([0.0, 50.0, 200.0, 1e4], p=[0.05, 0.35, 0.3, 0.3])),
        kv_capacity_gb=float(rng.choice([0.0, 20.0, 100.0, 1e4], p=[0.05, 0.35, 0.3, 0.3])),
        kv_gb_per_token=float(rng.choice([0.0, 1e-3, 1e-2])),
        max_concurrency=int(rng.choice([1, 4, 16, 64])),
        max_replicas=most,
        startup_windows=int(rng.integers(0, 4)),
        startup_usd=float(rng.choice([0.0, 0.5, 3.0])),
        model_storage_usd_per_h=float(rng.choice([0.0, 0.2])),
    )


def _random_workload(rng: np.random.Generator, name: str, day: bool) -> dict[str, Any]:
    unserved = float(10 ** rng.uniform(-3, 0))
    return workload(
        name,
        float(rng.uniform(0.2, 8)),
        input_tokens=float(rng.uniform(20, 3000)),
        output_tokens=float(rng.uniform(20, 800)),
        mean_delay_slo_s=float(rng.uniform(0.5, 15)),
        error_slo=float(rng.uniform(0.01, 0.2)),
        unserved_usd=unserved,
        delay_usd_per_s=float(rng.choice([0.0, 0.01, 0.1])) * unserved,
        late_usd=0.0 if day else float(rng.choice([0.0, 0.5])) * unserved,
        ttft_slo_s=None if rng.random() < 0.25 else float(rng.uniform(0.1, 4)),
        arrival_cv2=float(rng.choice([0.0, 1.0, 4.0])),
    )


def _random_performance(
    rng: np.random.Generator, shape: tuple[int, int], workloads: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    length_in = np.array([w["input_tokens"] for w in workloads])[:, None]
    length_out = np.array([w["output_tokens"] for w in workloads])[:, None]

    def quantity(low: float, high: float) -> dict[str, Any]:
        shares = rng.dirichlet([1.0, 1.0, 1.0], shape)
        total = 10 ** rng.uniform(np.log10(low), np.log10(high), shape)
        parts = total * np.moveaxis(shares, 2, 0)
        return affine(parts[0], parts[1] / length_in, parts[2] / length_out)

    compatible = rng.random(shape) < 0.85
    return {
        "compatible": compatible,
        "delay_s": quantity(0.2, 12),
        "work_tflop": quantity(1, 200),
        "service_s": quantity(0.1, 6),
        "prefill_s": quantity(0.01, 3),
        "service_cv2": rng.choice([0.0, 0.5, 2.0], shape),
        "error": rng.uniform(0, 0.3, shape),
        "storage_usd": rng.choice([0.0, 1e-5], shape),
        "tie_break": rng.random(shape),
    }


def _random_nominal(
    rng: np.random.Generator,
    pools: Sequence[Mapping[str, Any]],
    configurations: Sequence[Mapping[str, Any]],
    order: Sequence[Mapping[str, Any]],
) -> list[int]:
    """Return a fleet that fits: one replica of some slots' first configurations."""
    room = {f"{p['id']}-tier": p["cap_gpus"] for p in pools}
    chosen = set()
    for part in configurations:
        fits = all(room[use["tier"]] >= use["gpus"] for use in part["uses"])
        if part["id"].endswith("a") and fits and rng.random() < 0.5:
            chosen.add(part["id"])
            for use in part["uses"]:
                room[use["tier"]] -= use["gpus"]
    return [int(part["id"] in chosen) for part in order]


def random_instance(seed: int, num_windows: int = 12) -> Instance:
    """Return a small random instance that exercises every rule: shared pools, groups, nodes, budgets."""
    rng = np.random.default_rng(seed)
    pools = _random_pools(rng, int(rng.integers(1, 4)))
    slots: list[str] = []
    configurations: list[dict[str, Any]] = []
    for s in range(int(rng.integers(1, 5))):
        group = rng.random() < 0.5
        names = [f"c{s}{letter}" for letter in "abc"[: int(rng.integers(1, 4)) if group else 1]]
        most = 1 if group else int(rng.integers(1, 5))
        configurations += [_random_configuration(rng, name, pools, most) for name in names]
        slots.append("|".join([*names, ""]) if group else names[0])
    order = [configurations[k] for k in rng.permutation(len(configurations))]
    day = bool(rng.random() < 0.2)
    workloads = [_random_workload(rng, f"w{i}", day) for i in range(int(rng.integers(1, 5)))]
    cap_usd_per_h = sum(p["cap_gpus"] * p["price_usd_per_gpu_h"] for p in pools)
    kind = rng.choice(["none", "rate", "pool"])
    nominal = _random_nominal(rng, pools, configurations, order)
    hours = num_windows / 12 if kind == "pool" else 1.0
    return make_instance(
        pools,
        order,
        slots,
        workloads,
        _random_performance(rng, (len(workloads), len(order)), workloads),
        nominal,
        num_windows=num_windows,
        penalty_basis="day" if day else "request",
        budget=None
        if kind == "none"
        else {"kind": str(kind), "usd": cap_usd_per_h * hours * float(rng.uniform(0.2, 1.0))},
    )


def random_law(rng: np.random.Generator) -> LengthLaw | None:
    """Return a law of lengths of some kind: lognormal, with requests of one length, of two nodes; or none."""
    kind = rng.integers(5)
    if kind == 0:
        return None
    if kind == 1:
        return LengthLaw.lognormal(float(10 ** rng.uniform(-2, 2)))
    nodes = int(2 if kind == 2 else rng.integers(3, 17))
    shares = np.concatenate(([0.0], np.sort(rng.uniform(0.01, 0.99, nodes - 2)), [1.0]))
    factors = np.sort(rng.choice([0.0, 1.0, rng.random(), 50.0 * rng.random()], nodes)) + 1e-3 * rng.random()
    factors /= np.diff(shares) @ (factors[1:] + factors[:-1]) / 2
    return LengthLaw(shares=tuple(shares.tolist()), factors=tuple(factors.tolist()))


def with_laws(instance: Instance, seed: int) -> Instance:
    """Return an instance whose workloads' prompts vary, each by a random law."""
    data, rng = instance.to_dict(), np.random.default_rng([seed, 17])
    for w in data["workloads"]:
        if law := random_law(rng):
            w["input_law"] = law
    return Instance.from_dict(data)


def with_prefill(instance: Instance, **parts: float) -> Instance:
    """Return an instance with these parts of its prefill times, for all pairs alike."""
    data = instance.to_dict()
    shape = (instance.num_workloads, instance.num_configurations)
    data["performance"]["prefill_s"] |= {name: np.full(shape, value) for name, value in parts.items()}
    return Instance.from_dict(data)


def random_scenario(instance: Instance, seed: int) -> Scenario:
    """Return a scenario with empty windows, drops of availability and moving prices."""
    rng = np.random.default_rng(seed)
    shape = (instance.num_windows, instance.num_workloads)
    pools = (instance.num_windows, instance.num_pools)
    rates = np.array([w.rate_rps for w in instance.workloads])
    nodes = np.array([p.gpus_per_node for p in instance.pools])
    caps = np.array([p.cap_gpus for p in instance.pools])
    share = np.where(rng.random(pools) < 0.7, 1.0, rng.random(pools))
    return nominal_scenario(
        instance,
        rate_rps=rates * rng.gamma(2.0, 0.6, shape) * (rng.random(shape) > 0.1),
        input_scale=np.exp(rng.normal(0, 0.2, shape)),
        output_scale=np.exp(rng.normal(0, 0.2, shape)),
        delay_factor=np.exp(rng.normal(0, 0.2, shape)),
        error_factor=np.exp(rng.normal(0, 0.2, shape)),
        available_gpus=np.floor(share * caps / nodes) * nodes,
        price_factor=rng.choice([0.0, 0.5, 1.0, 1.7], pools, p=[0.05, 0.2, 0.6, 0.15]),
    )


def action_sizes(instance: Instance) -> list[int]:
    """Return the number of options of each slot."""
    return [
        len(members) + 1 if slot.exclusive else instance.configurations[members[0]].max_replicas + 1
        for slot, members in zip(instance.slots, instance.slot_members, strict=True)
    ]


def random_actions(instance: Instance, seed: int) -> list[list[int]]:
    """Return one action per window; each slot keeps its option for a while."""
    rng = np.random.default_rng(seed)
    sizes = action_sizes(instance)
    current = [int(rng.integers(n)) for n in sizes]
    actions = []
    for _ in range(instance.num_windows):
        current = [
            int(rng.integers(n)) if rng.random() < 0.45 else o for n, o in zip(sizes, current, strict=True)
        ]
        actions.append(list(current))
    return actions
