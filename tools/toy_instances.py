"""The toy split: instances so small that their optimum can be found by hand, as plain numbers.

In all of them a request takes 1 TFLOP, a replica of n TFLOP/s serves n requests/s, 12 USD/h is 1 USD per window,
and leaving 1 request/s unserved for a window costs 0.60 USD. `instances/fleet-v0/toy/README.md` explains each optimum.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from fleetgym.files.schema import read_object
from fleetgym.model.instance import INSTANCE_FORMAT, Instance
from fleetgym.model.scenario import Scenario

DOLLAR_PER_WINDOW = 12.0  # USD/h


@dataclasses.dataclass(frozen=True)
class Toy:
    """An instance, its stored scenario, and the cost of the best action sequence."""

    instance: Instance
    scenario: Scenario
    optimum_usd: float


def all_toys() -> tuple[Toy, ...]:
    """Return the toys in the order of the manifest."""
    return (two_pools(), drop(), startup(), group(), budget_pool(), regions(), heterogeneous())


# -- parts


def pool(name: str, usd_per_window: float, cap: int, **more: Any) -> dict:
    """Return a pool of single GPUs."""
    price = usd_per_window * DOLLAR_PER_WINDOW
    return {"id": name, "gpu_type": name, "price_usd_per_gpu_h": price, "cap_gpus": cap, **more}


def configuration(name: str, rps: float, uses: dict[str, int], replicas: int, **more: Any) -> dict:
    """Return a configuration that serves `rps` requests/s per replica; `uses` counts GPUs by tier."""
    return {
        "id": name,
        "model": "toy-model",
        "uses": [{"tier": tier, "gpus": gpus} for tier, gpus in uses.items()],
        "compute_tflops": rps,
        "kv_capacity_gb": 1.0,
        "kv_gb_per_token": 1e-6,
        "max_concurrency": int(2 * rps),
        "max_replicas": replicas,
        **more,
    }


def build(
    name: str,
    description: str,
    demand_rps: list[float],
    history_rps: list[float],
    pools: list[dict],
    configurations: list[dict],
    nominal_fleet: list[int],
    optimum_usd: float,
    *,
    exclusive: bool = False,
    budget: dict | None = None,
    storage_usd: list[float] | None = None,
    available: list[list[int]] | None = None,
    price_factor: list[list[float]] | None = None,
) -> Toy:
    """Return a toy with one workload."""
    count = len(configurations)
    rate = sum(history_rps) / len(history_rps)
    ids = [c["id"] for c in configurations]
    constant = {"kind": "constant", "parameters": {}}
    data = {
        "format": INSTANCE_FORMAT,
        "id": name,
        "family": "toy",
        "size": "toy",
        "description": description,
        "num_windows": len(demand_rps),
        "window_s": 300.0,
        "workloads": [
            {
                "id": "requests",
                "rate_rps": rate,
                "input_tokens": 100.0,
                "output_tokens": 100.0,
                "mean_delay_slo_s": 2.0,
                "error_slo": 0.05,
                "unserved_usd": 0.002,
            }
        ],
        "pools": pools,
        "tiers": [{"id": p["id"], "pool": p["id"]} for p in pools],
        "configurations": configurations,
        "slots": [{"configurations": ids, "exclusive": True}]
        if exclusive
        else [{"configurations": [name]} for name in ids],
        "performance": performance(count, storage_usd or [0.0] * count),
        "nominal_fleet": nominal_fleet,
        "budget": budget,
        "dynamics": {
            "demand": {"kind": "history", "parameters": {}},
            "tokens": constant,
            "factors": constant,
            "availability": constant,
            "prices": constant,
        },
        "history": {"rate_rps": [[value] for value in history_rps]},
        "provenance": {"all": "assumed: round numbers, so that the optimum can be checked by hand"},
    }
    instance = Instance.from_dict(data)
    ones = [[1.0]]
    scenario = {
        "id": "stored-0",
        "rate_rps": [[value] for value in demand_rps],
        "input_scale": ones,
        "output_scale": ones,
        "delay_factor": ones,
        "error_factor": ones,
        "available_gpus": available or [[p["cap_gpus"] for p in pools]],
        "price_factor": price_factor or [[1.0] * len(pools)],
    }
    return Toy(instance, read_object(Scenario, scenario).check(instance), optimum_usd)


def performance(count: int, storage_usd: list[float]) -> dict:
    """Return coefficients of one workload: 1 TFLOP, 1 s of delay and service, no waiting worth mentioning."""

    def affine(base: float) -> dict:
        zero = [[0.0] * count]
        return {"base": [[base] * count], "per_input_token": zero, "per_output_token": zero}

    return {
        "compatible": [[True] * count],
        "delay_s": affine(1.0),
        "work_tflop": affine(1.0),
        "service_s": affine(1.0),
        "prefill_s": affine(0.1),
        "service_cv2": [[1.0] * count],
        "error": [[0.01] * count],
        "storage_usd": [storage_usd],
        "tie_break": [[c / count for c in range(count)]],
    }


# -- the instances


def two_pools() -> Toy:
    """A cheap replica for the quiet hours, a dear one on top for the busy ones."""
    return build(
        "two-pools",
        "One workload, two pools: the cheap GPU serves quiet windows alone, busy ones need a dear GPU as well.",
        demand_rps=[10.0, 10.0, 10.0, 22.0, 22.0, 25.0, 8.0, 8.0],
        history_rps=[10.0, 10.0, 22.0, 22.0, 10.0, 10.0, 8.0, 8.0],
        pools=[pool("cheap", 1.0, 1), pool("fast", 2.0, 2)],
        configurations=[
            configuration("small", 10.0, {"cheap": 1}, 1),
            configuration("large", 15.0, {"fast": 1}, 2),
        ],
        nominal_fleet=[1, 0],
        optimum_usd=14.0,
    )


def drop() -> Toy:
    """Spot GPUs vanish for three windows; the replacement must be started one window ahead."""
    return build(
        "drop",
        "Spot GPUs at half price vanish for three windows; a replacement takes one window to start.",
        demand_rps=[20.0] * 10,
        history_rps=[20.0] * 10,
        pools=[pool("spot", 1.0, 2, market="spot"), pool("on-demand", 2.0, 2)],
        configurations=[
            configuration("spot-replica", 10.0, {"spot": 1}, 2, startup_windows=1),
            configuration("safe-replica", 10.0, {"on-demand": 1}, 2, startup_windows=1),
        ],
        nominal_fleet=[2, 0],
        available=[[0 if t in (3, 4, 5) else 2, 2] for t in range(10)],
        optimum_usd=34.0,
    )


def startup() -> Toy:
    """A surge that pays only if its replicas are granted two windows before."""
    return build(
        "startup",
        "A surge of three windows; replicas take two windows and a fee of 1 USD to start.",
        demand_rps=[10.0] * 5 + [30.0] * 3 + [10.0] * 2,
        history_rps=[10.0] * 8 + [30.0] * 2,
        pools=[pool("gpu", 1.0, 3)],
        configurations=[
            configuration("replica", 10.0, {"gpu": 1}, 3, startup_windows=2, startup_usd=1.0),
        ],
        nominal_fleet=[1],
        optimum_usd=22.0,
    )


def group() -> Toy:
    """One exclusive slot: the step from two GPUs to four does not fit beside what runs."""
    return build(
        "group",
        "One model on 1, 2 or 4 of 5 GPUs: 2 and 4 do not fit side by side, so growing step by step costs an outage.",
        demand_rps=[8.0] * 3 + [20.0] * 3 + [40.0] * 2 + [8.0] * 2,
        history_rps=[8.0] * 7 + [20.0] * 2 + [40.0],
        pools=[pool("gpu", 1.0, 5)],
        configurations=[
            configuration("tp1", 10.0, {"gpu": 1}, 1, startup_windows=1),
            configuration("tp2", 22.0, {"gpu": 2}, 1, startup_windows=1, tensor_parallel=2),
            configuration("tp4", 46.0, {"gpu": 4}, 1, startup_windows=1, tensor_parallel=4),
        ],
        nominal_fleet=[1, 0, 0],
        exclusive=True,
        optimum_usd=30.0,
    )


def budget_pool() -> Toy:
    """10 USD for the episode: whoever serves every quiet window has nothing left for the rush."""
    return build(
        "budget-pool",
        "10 USD must last for the episode, 12 would serve everybody: save in quiet windows for the rush.",
        demand_rps=[6.0] * 5 + [30.0] * 2 + [6.0],
        history_rps=[6.0] * 6 + [30.0] * 2,
        pools=[pool("gpu", 1.0, 3)],
        configurations=[configuration("replica", 10.0, {"gpu": 1}, 3)],
        nominal_fleet=[1],
        budget={"kind": "pool", "usd": 10.0},
        optimum_usd=17.2,
    )


def regions() -> Toy:
    """Prices move in opposite directions in two regions; moving costs a fee, being away costs data storage."""
    return build(
        "regions",
        "Two regions whose prices diverge; a move costs 0.25 USD, and requests served in the west pay data storage.",
        demand_rps=[10.0] * 8,
        history_rps=[10.0] * 8,
        pools=[pool("east", 1.0, 1, region="east"), pool("west", 1.0, 1, region="west")],
        configurations=[
            configuration("in-east", 10.0, {"east": 1}, 1, startup_usd=0.25),
            configuration("in-west", 10.0, {"west": 1}, 1, startup_usd=0.25),
        ],
        nominal_fleet=[1, 0],
        storage_usd=[0.0, 0.0001],
        price_factor=[[1.0, 1.0]] * 3 + [[2.0, 1.0]] * 3 + [[0.5, 1.0]] * 2,
        optimum_usd=8.4,
    )


def heterogeneous() -> Toy:
    """A replica across two pools is cheapest until the smaller pool shrinks."""
    return build(
        "heterogeneous",
        "A replica on one big and one small GPU is cheapest, until most small GPUs vanish for two windows.",
        demand_rps=[20.0] * 5 + [10.0] + [20.0] * 2,
        history_rps=[20.0] * 7 + [10.0],
        pools=[pool("big", 2.0, 3), pool("small", 1.0, 4, market="spot")],
        configurations=[
            configuration("mixed", 10.0, {"big": 1, "small": 1}, 3, pipeline_parallel=2),
            configuration("big-only", 10.0, {"big": 2}, 1, tensor_parallel=2),
            configuration("small-only", 10.0, {"small": 4}, 1, tensor_parallel=4),
        ],
        nominal_fleet=[2, 0, 0],
        available=[[3, 1 if t in (3, 4) else 4] for t in range(8)],
        optimum_usd=47.0,
    )
