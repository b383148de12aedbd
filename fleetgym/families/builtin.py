"""List the families that come with fleetgym, as the entry points of ``fleetgym.families`` name them."""

from __future__ import annotations

import numpy as np

from fleetgym.families import demand, finish, fitted, plans, serving
from fleetgym.families import fastllm as regime
from fleetgym.families.family import Family, stream
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.processes import Process
from fleetgym.model.scenario import Scenario


def _serving(name: str, *, replays: bool = False) -> Family:
    """Return a family of `fleetgym.families.serving`."""

    def build(size: str, seed: int, rng: np.random.Generator) -> Instance:
        return serving.build(name, size, seed, rng)

    made = tuple(plans.MULTI_SIZES) if name == "multi" else ()
    sizes = made or tuple(size for other, size in plans.SIZES if other == name)
    return Family(
        sizes,
        build,
        _replayed_days if replays else None,
        replays,
        _public if plans.FAMILIES[name].days else None,
    )


def _public(instance: Instance) -> Instance:
    """Return what agents know of an instance of `fleet-v2`."""
    size = plans.SIZES[instance.family, instance.size]
    told = finish.supply(plans.FAMILIES[instance.family], size.pools)
    return fitted.public_part(
        instance,
        lambda rng: serving.demand_plan(instance.family, size.classes, 0, rng),
        **{name: Process(**process) for name, process in told.items()},
    )


def _replayed_days(instance: Instance, seed: int, count: int) -> list[Scenario]:
    """Return the stored days of an instance that replays real demand."""
    family, size = instance.family, instance.size
    classes = plans.SIZES[family, size].classes
    plan = serving.demand_plan(family, classes, seed, stream(family, size, seed, 0))
    return [_replayed(instance, plan, seed, k) for k in range(min(count, len(plan.scored)))]


def _replayed(instance: Instance, plan: demand.DemandPlan, seed: int, k: int) -> Scenario:
    """Return a stored day of the plan at the instance's rates."""
    level, input_scale, output_scale = plan.scored[k]
    nominal = np.array([w.rate_rps for w in instance.workloads])
    rng = stream(instance.family, instance.size, seed, 1 + k)
    rate = demand.counted(rng, level, nominal, plan.dispersion)
    drawn = draw_scenario(instance, rng)
    return Scenario(
        id=f"stored-{k}",
        rate_rps=rate,
        input_scale=input_scale,
        output_scale=output_scale,
        delay_factor=np.ones((1, len(nominal))),
        error_factor=np.ones((1, len(nominal))),
        available_gpus=drawn.available_gpus,
        price_factor=drawn.price_factor,
    ).check(instance)


fastllm = Family(tuple(regime.SIZES), regime.build)
grw = _serving("grw")
ou = _serving("ou")
drop = _serving("drop")
budget = _serving("budget")
tail = _serving("tail")
multi = _serving("multi")
trace = _serving("trace", replays=True)
warp = _serving("warp", replays=True)
week = _serving("week")
ou_v2 = _serving("ou-v2")
drop_v2 = _serving("drop-v2")
budget_v2 = _serving("budget-v2")
tail_v2 = _serving("tail-v2")
market = _serving("market")
split = _serving("split")
