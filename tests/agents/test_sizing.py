"""Fleets between two margins: the kernel against its twin, batches, hysteresis, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from sizing_twin import SlowSizer
from toys import configuration, make_instance, pool, random_instance, random_scenario, with_laws

from fleetgym import Conditions, View
from fleetgym.agents.sizing import FleetSizer
from fleetgym.files.errors import FleetgymError
from fleetgym.kernels.records import PackedConditions
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance

STORED = (
    "ou-s-101",
    "drop-s-101",
    "tail-s-101",
    "budget-s-106",
    "multi-s-101",
    "grw-s-101",
    "fastllm-4-4-5-101",
)


def seen(instance: Instance, rng: np.random.Generator, window: int) -> View:
    """Return a view in the middle of an episode that a generator made up."""
    view = View(instance)
    scenario = random_scenario(instance, int(rng.integers(1000)))
    info = Conditions.of(scenario, int(rng.integers(instance.num_windows))).as_dict()
    replicas = np.zeros((instance.num_configurations, view._state.starting.shape[1]), dtype=np.int64)
    most = np.array([c.max_replicas for c in instance.configurations])
    running = rng.integers(0, np.minimum(most, 4) + 1) * (rng.random(most.size) < 0.4)
    for slot, members in zip(instance.slots, instance.slot_members, strict=True):
        if slot.exclusive:
            running[list(members[1:])] = 0
    view.update(
        {
            **info,
            "running": running,
            "starting": replicas,
            "draining": replicas,
            "window": window,
            "spent_usd": 0.0,
        }
    )
    return view


def both(view: View, rng: np.random.Generator) -> tuple[list[int], list[int]]:
    """Return what the kernel and its twin want at random margins."""
    count = view.instance.num_workloads
    rate = view.conditions.rate_rps * rng.lognormal(0.0, 0.5, count)
    lower = rng.uniform(0.2, 1.6, count)
    upper = lower + rng.uniform(0.0, 0.5, count)
    money = {
        "budget_usd": float(rng.choice([np.inf, rng.uniform(0.0, 2.0) * (view.snapshot().hold_usd.max())])),
        "rent_factor": float(rng.choice([1.0, 2.5])),
        "payback_windows": float(rng.integers(1, 20)),
    }
    risk = float(rng.choice([0.0, 0.5, 1.0]))
    found = FleetSizer(view.instance, risk).target(view, rate, lower, upper, **money)
    twin = SlowSizer(view.snapshot(rate_rps=rate), risk=risk, **money)
    return found.tolist(), twin.target(lower, upper)


@pytest.mark.parametrize("seed", range(40))
def test_the_kernel_is_its_twin_on_random_instances(seed: int) -> None:
    """Exclusive slots, several pools, start-ups, drops, budgets."""
    rng = np.random.default_rng(seed)
    instance = random_instance(seed)
    if seed % 2:
        instance = with_laws(instance, seed)
    for _ in range(5):
        found, expected = both(seen(instance, rng, int(rng.integers(2))), rng)
        assert found == expected


@pytest.mark.parametrize("name", STORED)
def test_the_kernel_is_its_twin_on_stored_instances(name: str) -> None:
    """The same on an instance of each family; the twin takes seconds where there are many configurations."""
    rng = np.random.default_rng(7)
    instance = load_instance(f"fleet-v1/dev/{name}")
    for _ in range(1 if instance.num_configurations > 100 else 3):
        found, expected = both(seen(instance, rng, 5), rng)
        assert found == expected


def test_a_batch_is_its_windows_one_by_one() -> None:
    """Windows of several instances of one shape, in one call."""
    rng = np.random.default_rng(3)
    instances = [load_instance(f"fleet-v1/dev/ou-s-{k}") for k in (101, 102)]
    views = [seen(instances[k], rng, 5) for k in (0, 1, 1, 0, 1)]
    lower, upper = rng.uniform(0.5, 1.5, (5, 4)), rng.uniform(1.5, 2.0, (5, 4))
    packed = [view.conditions.packed() for view in views]
    together = FleetSizer(instances).targets(
        PackedConditions(*(np.array(field) for field in zip(*packed, strict=True))),
        np.array([view.fleet for view in views]),
        lower,
        upper,
        which=np.array([0, 1, 1, 0, 1]),
    )
    for k, view in enumerate(views):
        alone = FleetSizer(view.instance).target(view, view.conditions.rate_rps, lower[k], upper[k])
        assert together[k].tolist() == alone.tolist()


def test_between_the_margins_nothing_changes() -> None:
    """A fleet grows when the lower margin asks for it, and shrinks when the upper one does not need it."""
    instance = make_instance([pool("p", 16)], [configuration("a", {"p": 1}, max_replicas=16)])
    view, sizer = View(instance), FleetSizer(instance, risk=0.0)
    sizes = {}
    for held in (0, 16):
        info = Conditions.nominal(instance).as_dict()
        none = np.zeros((1, 1), dtype=np.int64)
        view.update(
            {
                **info,
                "running": np.array([held]),
                "starting": none,
                "draining": none,
                "window": 3,
                "spent_usd": 0.0,
            }
        )
        sizes[held] = [int(sizer.target(view, np.array([60.0]), *m)[0]) for m in ((1.0, 1.0), (1.0, 1.5))]
    assert sizes[0][0] == sizes[0][1] == sizes[16][0] < sizes[16][1]


def test_what_is_refused() -> None:
    """Shapes, shares and counts that cannot be, with what would be valid."""
    instance = load_instance("fleet-v0/toy/two-pools")
    with pytest.raises(FleetgymError, match="one shape"):
        FleetSizer([instance, load_instance("fleet-v1/dev/ou-s-101")])
    with pytest.raises(FleetgymError, match="at most 1"):
        FleetSizer(instance, risk=1.5)
    sizer, view = FleetSizer(instance), View(instance)
    with pytest.raises(FleetgymError, match=r"lower has the shape \(3,\); expected \(1, 1\)"):
        sizer.target(view, view.conditions.rate_rps, np.ones(3), 1.0)
    with pytest.raises(FleetgymError, match="payback_windows is 0; expected at least 1"):
        sizer.target(view, view.conditions.rate_rps, 1.0, 1.0, payback_windows=0)
    one = PackedConditions(*(field[None] for field in view.conditions.packed()))
    with pytest.raises(FleetgymError, match="names instance 1; there are 1"):
        sizer.targets(one, view.fleet[None], 1.0, 1.0, which=np.array([1]))
