"""Sizing of pools by queueing, and the rows and pictures of `fleetgym study`: exhaustive search, the simulator."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest

import fleetgym.kernels.queueing
from fleetgym.capacity.studies import alternatives, plots
from fleetgym.capacity.studies.disaggregation import size_disaggregated
from fleetgym.capacity.studies.pools import TAIL, PoolQueue, Slos, slots_within
from fleetgym.capacity.studies.sizing import Demand, cheapest_fleets, pool_queue
from fleetgym.capacity.studies.verification import judge, simulate_pool
from fleetgym.files.errors import FleetgymError
from fleetgym.hardware.performance.lengths import Lengths
from fleetgym.hardware.performance.profiles import PROFILES

A10G, A100, H100 = (PROFILES[name] for name in ("A10G", "A100-80GB", "H100-80GB"))


# -- one pool -------------------------------------------------------------------------------------------------------


@pytest.fixture
def demand() -> Demand:
    """Return a small mixed demand."""
    law = Lengths.from_histogram(
        [(1, 400, 1, 60, 8.0), (401, 1500, 20, 300, 2.0), (1000, 3000, 50, 500, 0.5)]
    )
    return Demand(lengths=law, rate_rps=40.0, slos=Slos(ttft_s=0.4))


def test_late_share_counts_every_prompt(demand: Demand) -> None:
    """The share equals the sum over all prompt lengths, and its percentile inverts it."""
    queue = PoolQueue(profile=A10G, lengths=demand.lengths, rate_rps=40.0, slots=A10G.slots(4096))
    replicas = queue.smallest(Slos(ttft_s=10.0), 0.99)
    assert replicas is not None
    servers, offered = replicas * queue.slots, 40.0 * queue.mean_service_s
    density = demand.lengths.input_density
    prefill = A10G.prefill_seconds(np.arange(density.size))
    decay = 2.0 * (servers - offered) / (queue.mean_service_s * (1.0 + queue.service_cv2))
    waiting = fleetgym.kernels.queueing.erlang_c(servers, offered)
    for slo in (0.02, 0.1, 0.3):
        late = np.where(prefill > slo, 1.0, waiting * np.exp(-decay * np.maximum(0.0, slo - prefill)))
        assert queue.late_share(replicas, slo) == pytest.approx(density @ late, rel=1e-9)
    p99 = queue.ttft_p99_s(replicas)
    assert queue.late_share(replicas, p99 * (1 + 1e-9)) <= TAIL < queue.late_share(replicas, p99 * (1 - 1e-6))


def test_the_smallest_pool_is_smallest(demand: Demand) -> None:
    """One replica fewer breaks the cap or the SLO."""
    for profile, cap in itertools.product((A10G, A100, H100), (0.5, 0.85, 0.99)):
        queue = PoolQueue(profile=profile, lengths=demand.lengths, rate_rps=300.0, slots=profile.slots(4096))
        count = queue.smallest(demand.slos, cap)
        assert count is not None
        assert queue.utilization(count) <= cap + 1e-12
        assert queue.late_share(count, demand.slos.ttft_s) <= TAIL
        less = count - 1
        assert less == 0 or queue.utilization(less) > cap or queue.late_share(less, demand.slos.ttft_s) > TAIL


def test_what_no_count_heals() -> None:
    """Prompts that take longer than the SLO, and steps that take longer than the bound per token."""
    law = Lengths([6000], [6000], [10], [10], [1.0])
    queue = PoolQueue(profile=A10G, lengths=law, rate_rps=1.0, slots=8)
    assert queue.smallest(Slos(ttft_s=0.2)) is None
    assert queue.smallest(Slos(ttft_s=10.0, tpot_s=0.001)) is None
    assert slots_within(A10G, law, 8192, 0.001) == 0
    assert slots_within(A10G, law, 8192, math.inf) == A10G.slots(8192)
    with pytest.raises(FleetgymError):
        Slos(ttft_s=0.0)


def test_slots_keep_the_time_per_token(demand: Demand) -> None:
    """One slot more would break the bound."""
    for bound in (0.02, 0.03, 0.05):
        slots = slots_within(A100, demand.lengths, 4096, bound)
        queue = PoolQueue(profile=A100, lengths=demand.lengths, rate_rps=1.0, slots=slots)
        more = dataclasses.replace(queue, slots=slots + 1)
        assert queue.tpot_p99_s <= bound
        assert slots == A100.slots(4096) or more.tpot_p99_s > bound


# -- several pools --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gamma", [1.0, 1.3])
@pytest.mark.parametrize("most_pools", [1, 2, 3])
def test_cheapest_pools_by_exhaustion(demand: Demand, most_pools: int, gamma: float) -> None:
    """The shortest path finds what trying every split and GPU type finds."""
    limits, profiles = [256, 512, 1024, 2048, 4096], [A10G, H100]
    found = cheapest_fleets(demand, profiles, limits, most_pools=most_pools, gammas=[gamma])
    for fleet in found:
        count, best = len(fleet.pools), math.inf
        for cut in itertools.combinations(limits[:-1], count - 1):
            ends = [0, *cut, 4096]
            usd = 0.0
            for k, (a, b) in enumerate(itertools.pairwise(ends)):
                options = []
                for profile in profiles:
                    one = gamma if count > 1 else 1.0
                    queue, _ = pool_queue(
                        demand, profile, above=a, context_tokens=b, gamma=one, is_last=k == count - 1
                    )
                    size = None if queue is None else queue.smallest(demand.slos)
                    options.append(math.inf if size is None else size * profile.usd_per_h)
                usd += min(options)
            best = min(best, usd)
        assert fleet.usd_per_h == pytest.approx(best)
    assert found == sorted(found, key=lambda fleet: fleet.usd_per_h)


@pytest.mark.parametrize("gamma", [1.0, 1.5, 2.0])
def test_every_request_has_a_pool(demand: Demand, gamma: float) -> None:
    """Shares add up to one, with compression too, and no pool gets what it cannot hold."""
    for cut in ((4096,), (512, 4096), (256, 1024, 4096)):
        total = 0.0
        for k, (a, b) in enumerate(itertools.pairwise((0, *cut))):
            queue, share = pool_queue(
                demand, H100, above=a, context_tokens=b, gamma=gamma, is_last=k == len(cut) - 1
            )
            total += share
            assert queue is None or queue.lengths.most_tokens <= b
        assert total == pytest.approx(1.0)


def test_availability_and_caps(demand: Demand) -> None:
    """Fewer working nodes, or a lower cap, never cost less; impossible demands are refused."""

    def cost(**changes: float) -> float:
        return cheapest_fleets(dataclasses.replace(demand, **changes), [A100], [1024, 4096])[0].usd_per_h

    assert cost(availability=0.95) >= cost()
    assert cost(utilization_cap=0.5) >= cost()
    with pytest.raises(FleetgymError, match="longest request"):
        cheapest_fleets(demand, [A100], [1024])
    with pytest.raises(FleetgymError):
        dataclasses.replace(demand, availability=0.0)
    with pytest.raises(FleetgymError):
        cheapest_fleets(demand, [], [4096])
    assert cheapest_fleets(dataclasses.replace(demand, slos=Slos(ttft_s=1e-4)), [A100], [4096]) == []


def test_disaggregated_pools_are_smallest(demand: Demand) -> None:
    """Each pool alone; a slower link never helps; impossible bounds give None."""
    slos = Slos(ttft_s=0.4, tpot_s=0.05)
    fleet = size_disaggregated(A100, H100, demand.lengths, 40.0, slos, context_tokens=4096)
    assert fleet is not None
    assert fleet.prefill.late_share(fleet.prefill_replicas, 0.4) <= TAIL
    assert fleet.ttft_p99_s <= 0.4
    assert fleet.tpot_p99_s <= 0.05
    slow = size_disaggregated(A100, H100, demand.lengths, 40.0, slos, context_tokens=4096, link_gb_per_s=5.0)
    assert slow is None or slow.usd_per_h >= fleet.usd_per_h
    assert (
        size_disaggregated(A100, H100, demand.lengths, 40.0, Slos(ttft_s=1e-3), context_tokens=4096) is None
    )


# -- the simulator --------------------------------------------------------------------------------------------------


def test_the_simulator_agrees_with_the_queue() -> None:
    """A loaded pool with few servers: waits within a fifth of the formula, utilisation within its interval."""
    law = Lengths.from_histogram([(100, 900, 20, 200, 1.0)])
    queue = PoolQueue(profile=dataclasses.replace(H100, max_slots=4), lengths=law, rate_rps=6.0, slots=4)
    replicas = math.ceil(6.0 * queue.mean_service_s / (0.9 * 4))
    found = simulate_pool(queue, replicas, Slos(ttft_s=1.0), seeds=10, requests=20_000)
    assert found.utilization.mean[0] == pytest.approx(queue.utilization(replicas), rel=0.02)
    assert found.ttft_p99_s.mean[0] == pytest.approx(queue.ttft_p99_s(replicas), rel=0.2)
    assert found.unaccounted == 0


def test_a_verdict_is_repeatable(demand: Demand) -> None:
    """Same seed, same bytes; an overloaded pool is found out."""
    queue, _ = pool_queue(demand, A100, above=0, context_tokens=4096)
    assert queue is not None
    size = queue.smallest(demand.slos)
    assert size is not None
    once, again = (judge(queue, size, demand.slos, seeds=4, requests=3_000) for _ in range(2))
    assert once == again
    assert not judge(
        dataclasses.replace(queue, rate_rps=4_000.0), 1, demand.slos, seeds=4, requests=3_000
    ).is_kept


# -- studies --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_studies_and_plots(demand: Demand) -> None:
    """Every study gives rows that its plot takes; what must be monotone is."""
    profiles = [A10G, H100]
    pareto = alternatives.threshold_pareto(demand, A10G, H100, [256, 512, 1024, 2048], 4096)
    assert any(row["is_efficient"] for row in pareto)
    layouts = alternatives.gpu_layouts(demand, profiles, [512, 1024, 4096])
    assert layouts[0]["usd_per_h"] == min(row["usd_per_h"] for row in layouts)
    steps = alternatives.step_rates(demand, profiles, [512, 4096], [10.0, 40.0, 80.0])
    assert all(row["most_rate_rps"] >= row["rate_rps"] * (1 - 1e-9) for row in steps)
    mixed = alternatives.mixed_types(demand, profiles, 1024, 4096)
    apart = alternatives.disaggregated_pairs(
        dataclasses.replace(demand, slos=Slos(ttft_s=0.6, tpot_s=0.1)), profiles, 4096
    )
    queue, _ = pool_queue(demand, H100, above=0, context_tokens=4096)
    assert queue is not None
    flex = alternatives.grid_flex(queue, 2, [0.0, 0.1, 0.3, 0.5], demand.slos)
    assert all(a["fleet_kw"] >= b["fleet_kw"] for a, b in itertools.pairwise(flex))
    assert all(a["utilization"] <= b["utilization"] + 1e-12 for a, b in itertools.pairwise(flex))
    energy = [alternatives.energy(queue, n) for n in (1, 2)]
    reserves = alternatives.reserves(24, {"a": 0.99, "b": 0.95})
    pools = [(H100, 1, 1024), (H100, 1, 4096)]
    routed = alternatives.compare_routers(pools, demand.lengths, 20.0, demand.slos, seeds=3, requests=1_000)
    assert [row["router"] for row in routed] == list(alternatives.ROUTERS)
    figures = [
        plots.threshold_pareto(pareto),
        plots.layouts(layouts),
        plots.steps(steps),
        plots.pairs(mixed, "short", "long"),
        plots.pairs(apart, "prefill", "decode"),
        plots.grid_flex(flex, demand.slos.ttft_s),
        plots.energy(energy),
        plots.reserves(reserves),
        plots.routers(routed, demand.slos.ttft_s),
    ]
    for figure in figures:
        figure.canvas.draw()
        plots.plt.close(figure)
