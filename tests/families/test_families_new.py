"""Families `multi`, `budget` and `tail` hold what their question needs: templates, limits that bind, deadlines."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from fleetgym.families import demand
from fleetgym.families.generate import SEEDS, families, generate, stored_scenarios
from fleetgym.families.multi import ROUND_TRIP_S
from fleetgym.hardware.configurations.templates.selection import LIMIT
from fleetgym.model.dynamics import draw_scenario
from fleetgym.model.instance import Instance


@pytest.fixture(scope="module")
def multi() -> Instance:
    """Return a small instance of several regions."""
    return generate("multi", "s", 1001)


@pytest.fixture(scope="module")
def tail() -> Instance:
    """Return a small instance with deadlines."""
    return generate("tail", "s", 1001)


@pytest.mark.parametrize("family", ["multi", "budget", "tail"])
def test_the_same_seed_gives_the_same_instance(family: str) -> None:
    """Everything derives from family, size and seed; the instance survives its file form."""
    instance = generate(family, "s", 1002)
    assert generate(family, "S", 1002).content_hash == instance.content_hash
    assert generate(family, "s", 1003).content_hash != instance.content_hash
    assert Instance.from_dict(instance.to_dict()) == instance
    assert len(stored_scenarios(instance, 1002, 3)) == 3


def test_multi_has_replicas_of_several_gpu_types_within_a_region(multi: Instance) -> None:
    """Some templates need two pools; none spans regions; there are at most 512."""
    region = np.array([int(pool.region[-1]) for pool in multi.pools])
    pools = [np.flatnonzero(use) for use in multi.gpu_use.T]
    assert max(len(p) for p in pools) >= 2
    assert all(len(set(region[p])) == 1 for p in pools)
    assert all(
        c.id.endswith(multi.pools[p[0]].region) for c, p in zip(multi.configurations, pools, strict=True)
    )
    assert multi.num_configurations <= LIMIT
    assert max(c.max_replicas for c in multi.configurations) >= 2


def test_multi_prices_and_distance_differ_by_region(multi: Instance) -> None:
    """The second region is a quarter dearer; a template serves the other region's users a round trip later."""
    price = {(p.gpu_type, p.region): p.price_usd_per_gpu_h for p in multi.pools}
    for (gpu, region), usd in price.items():
        if region == "region-2":
            assert usd == pytest.approx(1.25 * price[gpu, "region-1"], rel=1e-3)
    home = np.array([[w.id.partition(".")[2]] for w in multi.workloads])
    away = home != np.array([[c.id.rpartition(":")[2] for c in multi.configurations]])
    prefill = multi.performance.prefill_s
    for c, column in enumerate(multi.configurations):
        twin = column.id.replace("region-1", "region-2")
        if twin != column.id and twin in multi.configuration_index:
            other = multi.configuration_index[twin]
            sign = np.where(away[:, other], 1.0, -1.0)
            difference = prefill.base[:, other] - prefill.base[:, c]
            np.testing.assert_allclose(difference, sign * ROUND_TRIP_S, rtol=1e-4)


def test_multi_demand_peaks_by_region_and_spot_pools_drop(multi: Instance) -> None:
    """Peaks are half a day apart; availability falls below the cap in spot pools only."""
    peaks = np.array(multi.dynamics.demand.parameters["daily_peak_h"])
    east = np.array([w.id.endswith("region-1") for w in multi.workloads])
    assert np.all((peaks[east] >= 11.0) & (peaks[east] <= 18.0))
    assert np.all((peaks[~east] >= 23.0) | (peaks[~east] <= 6.0))
    scenario = draw_scenario(multi, np.random.default_rng(4))
    caps = np.array([p.cap_gpus for p in multi.pools])
    spot = np.array([p.market == "spot" for p in multi.pools])
    assert np.all(scenario.available_gpus[:, ~spot] == caps[~spot])
    assert (scenario.available_gpus[:, spot] < caps[spot]).any()


def test_budgets_bind_and_allow_the_nominal_fleet() -> None:
    """A limit is below the rent of all caps, and above that of the nominal fleet; both kinds are drawn."""
    kinds = set()
    for seed in range(1001, 1006):
        instance = generate("budget", "s", seed)
        assert instance.budget is not None
        held = float(instance.rental_usd_per_h.sum(axis=0) @ instance.nominal_fleet)
        most = sum(p.cap_gpus * p.price_usd_per_gpu_h for p in instance.pools)
        hours = 1.0 if instance.budget.kind == "rate" else 24.0
        assert held * hours <= instance.budget.usd * (1 + 1e-9)
        assert instance.budget.usd < 0.95 * most * hours
        assert "times" in instance.provenance["budget"]
        kinds.add(instance.budget.kind)
    assert kinds == {"rate", "pool"}


def test_tail_has_deadlines_bursts_and_two_context_limits(tail: Instance) -> None:
    """Arrivals are bursty, late requests dear; only long-context columns take long prompts, and slow GPUs miss out."""
    assert all(1.0 < w.arrival_cv2 <= 20.0 for w in tail.workloads)
    assert all(0.44 < w.late_usd / w.unserved_usd <= 0.5 + 1e-6 for w in tail.workloads)
    long = np.array([c.id.endswith(":ctx32k") for c in tail.configurations])
    names = [w.id for w in tail.workloads]
    compatible = tail.performance.compatible
    assert not compatible[names.index("retrieval")][~long].any()
    assert compatible[names.index("retrieval")][long].any()
    assert not compatible.all(axis=1)[names.index("copilot")]
    servers = np.array([c.max_concurrency for c in tail.configurations])
    assert servers[long].min() < servers[~long].min()


def test_trace_days_of_training_are_rolled_and_stretched() -> None:
    """Seeds of fleet-v0 keep their tenants; later ones draw them, and from 1000 on change the days."""
    assert demand.trace_days(2, 6).keys == demand.TRACES[1]
    drawn = demand.trace_days(150, 6)
    assert not drawn.powers
    assert len(set(drawn.keys)) == 6
    changed = demand.trace_days(1000, 6)
    assert len(changed.powers) == 6
    plain = demand.trace(np.random.default_rng(0), dataclasses.replace(changed, powers=(), roll=0))
    other = demand.trace(np.random.default_rng(0), changed)
    assert plain.level.shape == other.level.shape == (7 * 288, 6)
    assert not np.allclose(plain.level, other.level)
    np.testing.assert_allclose(other.level.mean(axis=0), 1.0)


def test_every_family_has_sizes_and_splits_do_not_overlap() -> None:
    """Sizes go by letters or counts; seed ranges are disjoint."""
    assert {"multi", "budget", "tail"} <= set(families())
    assert "l" in families()["ou"].sizes
    assert "l" in families()["multi"].sizes
    ranges = sorted(SEEDS.values(), key=lambda r: r.start)
    assert all(a.stop <= b.start for a, b in zip(ranges, ranges[1:], strict=False))


@pytest.mark.slow
@pytest.mark.parametrize(("family", "size"), [("ou", "l"), ("multi", "l")])
def test_large_instances_generate(family: str, size: str) -> None:
    """Hundreds of GPUs, at most 512 configurations; the nominal fleet fits the caps."""
    instance = generate(family, size, 1001)
    held = instance.gpu_use @ instance.nominal_fleet
    assert 300 <= held.sum() <= 800
    assert np.all(held <= [p.cap_gpus for p in instance.pools])
    assert instance.num_configurations <= LIMIT
