"""From a family, a size and a seed to an instance, and to the scenarios that are stored with it.

The standard set is frozen data made by `tools/make_instances.py`; these generators are for training, and for
whoever wants more instances of a family.
"""

from __future__ import annotations

import zlib

import numpy as np

from fleetgym.families import demand, fastllm, plans, serving
from fleetgym.families.text import significant
from fleetgym.files.errors import FleetgymError, UnknownNameError
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario

#: Families and their sizes.
FAMILIES: dict[str, tuple[str, ...]] = {
    "fastllm": tuple(fastllm.SIZES),
    **{
        family: tuple(size for other, size in plans.SIZES if other == family)
        for family in dict.fromkeys(family for family, _ in plans.SIZES)
    },
    "multi": tuple(plans.MULTI_SIZES),
}

STORED_SCENARIOS = 2

#: Seeds of the standard set's splits. Trace instances of train and fresh replay days that are rolled and stretched;
#: fresh seeds follow from a secret (`fleetgym.leaderboard.season`). Train on the range ``train``, and on nothing else.
SEEDS = {
    "fleet-v0": range(1, 100),
    "dev": range(101, 200),
    "test": range(201, 300),
    "train": range(demand.FIRST_TRANSFORMED_SEED, 2**32),
    "fresh": range(2**32, 2**63),
}


def generate(family: str, size: str, seed: int) -> Instance:
    """Make an instance.

    Parameters
    ----------
    family : str
        A key of `FAMILIES`.
    size : str
        One of the family's sizes, such as ``"s"``, ``"m"`` or ``"6-6-10"``; capitals do not matter.
    seed : int
        Not negative. The same arguments give the same instance.

    Returns
    -------
    Instance
        Its id is family, size and seed: ``ou-m-003``.

    Raises
    ------
    UnknownNameError
        For an unknown family or size.

    Examples
    --------
    >>> instance = generate("fastllm", "4-4-5", 1)
    >>> instance.num_workloads, instance.lead, instance.budget.kind
    (4, 0, 'rate')
    """
    if family not in FAMILIES:
        raise UnknownNameError("family", family, FAMILIES)
    size = size.lower()
    if size not in FAMILIES[family]:
        raise UnknownNameError(f"size of {family}", size, FAMILIES[family])
    if seed < 0:
        raise FleetgymError(f"expected a seed of at least 0, got {seed}")
    rng = _rng(family, size, seed, 0)
    if family == "fastllm":
        return fastllm.build(size, seed, rng)
    return serving.build(family, size, seed, rng)


def stored_scenarios(
    instance: Instance, seed: int, count: int = STORED_SCENARIOS, scale_digits: int = 6
) -> tuple[Scenario, ...]:
    """Return the scenarios that are stored with an instance that `generate` made.

    Parameters
    ----------
    instance : Instance
        From `generate`.
    seed : int
        The seed it was made with.
    count : int
        Scenarios to draw; families that replay real days have their own, at most that many.
    scale_digits : int
        Significant digits of token scales.

    Returns
    -------
    tuple of Scenario
        Rounded to six significant digits, as in the files.
    """
    plan = _replay_plan(instance, seed)
    if plan is not None:
        drawn = [_replayed(instance, plan, seed, k) for k in range(min(count, len(plan.scored)))]
    else:
        streams = [_rng(instance.family, instance.size, seed, 1 + k) for k in range(count)]
        drawn = [draw_scenario(instance, rng, f"stored-{k}") for k, rng in enumerate(streams)]
    return tuple(_rounded(scenario, scale_digits).check(instance) for scenario in drawn)


def _rng(family: str, size: str, seed: int, stream: int) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(f"{family}/{size}".encode()), seed, stream])


def _replay_plan(instance: Instance, seed: int) -> demand.DemandPlan | None:
    """Return the demand plan of an instance whose family stores days of its own, else None."""
    if instance.family not in ("trace", "warp"):
        return None
    rng = _rng(instance.family, instance.size, seed, 0)
    return serving.demand_plan(instance.family, instance.num_workloads, seed, rng)


def _replayed(instance: Instance, plan: demand.DemandPlan, seed: int, k: int) -> Scenario:
    """Return a stored day of the plan at the instance's rates."""
    level, input_scale, output_scale = plan.scored[k]
    nominal = np.array([w.rate_rps for w in instance.workloads])
    rng = _rng(instance.family, instance.size, seed, 1 + k)
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


def _rounded(scenario: Scenario, scale_digits: int) -> Scenario:
    def digits(name: str, count: int) -> np.ndarray:
        return significant(getattr(scenario, name), count)

    return Scenario(
        id=scenario.id,
        available_gpus=scenario.available_gpus,
        **{name: digits(name, 6) for name in ("rate_rps", "delay_factor", "error_factor", "price_factor")},
        **{name: digits(name, scale_digits) for name in ("input_scale", "output_scale")},
    )
