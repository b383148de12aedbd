"""The autoscalers of practice: each does on a toy what its published rule says, and is valid on any instance."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from test_agents import demand, play
from toys import (
    configuration,
    make_instance,
    nominal_scenario,
    pool,
    random_instance,
    workload,
)

from fleetgym import View
from fleetgym.baselines.dynamo import Dynamo
from fleetgym.baselines.dynamo_planner import DynamoPlanner
from fleetgym.baselines.heteroscale import HeteroScale
from fleetgym.baselines.knative import Knative
from fleetgym.baselines.llmd import LlmD
from fleetgym.baselines.sageserve import SageServe, cheapest_change
from fleetgym.baselines.services import Room, Services, supply
from fleetgym.baselines.spothedge import SpotHedge
from fleetgym.baselines.tokenscale import TokenScale
from fleetgym.model.instance import Instance

AGENTS = [Dynamo, HeteroScale, Knative, LlmD, SageServe, SpotHedge, TokenScale]


def one_pool(cap: int = 16, **changes) -> Instance:
    """Return replicas of ten queue servers and one second of service: ten requests/s each at most."""
    return make_instance([pool("p", cap)], [configuration("a", {"p": 1}, max_replicas=16)], **changes)


def sizes(agent, instance: Instance, rates: Sequence[float]) -> list[int]:
    """Return how many replicas of the only configuration are wanted in each window."""
    return [fleet[0] for fleet in play(agent, instance, demand(instance, rates))[0]]


@pytest.mark.parametrize("make", AGENTS)
def test_nothing_is_kept_for_nobody(make) -> None:
    """Demand that ends, and replicas of a configuration that no workload goes to, cost nothing for long."""
    configurations = [configuration("a", {"p": 1}), configuration("idle", {"p": 1}, model="other")]
    performance = {"compatible": [[True, False]]}
    instance = make_instance([pool("p", 16)], configurations, performance=performance, nominal=[3, 1])
    agent = make(forecaster="last") if make in (Dynamo, SageServe) else make()
    targets, _ = play(agent, instance, demand(instance, [20.0, 20.0, 0.0]))
    assert targets[0][1] == 0
    assert targets[-1] == [0, 0]


# -- services


def test_services_are_models() -> None:
    """Workloads go to the model that serves them cheapest; its variants are those that all of them can use."""
    instance = make_instance(
        [pool("p", 16)],
        [
            configuration("small", {"p": 1}, model="small"),
            configuration("large", {"p": 4}, model="large"),
            configuration("large-quantised", {"p": 2}, model="large"),
        ],
        workloads=[workload("easy", 5.0), workload("hard", 1.0), workload("harder", 1.0, unserved_usd=9.0)],
        performance={"compatible": [[True, True, True], [False, True, True], [False, True, False]]},
    )
    services = Services(instance)
    assert [numbers.tolist() for numbers in services.workloads] == [[2, 1], [0]]
    assert services.variants.tolist() == [[False, True, False], [True, False, False]]


def test_loads_are_sums_of_what_workloads_need() -> None:
    """Over the workloads of a service, resource by resource; the scarcest counts."""
    instance = random_instance(3)
    snapshot, services = View(instance).snapshot(), Services(instance)
    need, loads = snapshot.replicas_needed(0.5), services.loads(snapshot, 0.5)
    for s, numbers in enumerate(services.workloads):
        for c in range(instance.num_configurations):
            total = max(sum(need[k, i, c] for i in numbers) for k in range(3))
            assert loads[s, c] == (pytest.approx(total) if services.variants[s, c] else np.inf)


def test_room_keeps_pools_budget_and_slots() -> None:
    """What does not fit is not added, and what was removed makes room."""
    options = [configuration("a", {"p": 2}, max_replicas=1), configuration("b", {"p": 1}, max_replicas=1)]
    free = configuration("c", {"p": 1}, max_replicas=9)
    instance = make_instance([pool("p", 6)], [*options, free], ["a|b|", "c"])
    room = Room(View(instance).snapshot(), np.array([1, 0, 2]))
    assert (room.add(1, 1), room.add(2, 9), room.fleet.tolist()) == (0, 2, [1, 0, 4])
    assert (room.remove(0, 5), room.add(1, 1), room.add(2, 9), room.fleet.tolist()) == (1, 1, 1, [0, 1, 5])
    poor = make_instance([pool("p", 6)], [free], budget={"kind": "rate", "usd": 36.0})
    assert Room(View(poor).snapshot(), np.array([5])).fleet.tolist() == [3]


# -- Knative


def test_knative_counts_requests_in_flight() -> None:
    """At 70 % of ten servers a replica takes seven; a window that needs less lets replicas go at once."""
    assert sizes(Knative(), one_pool(), [7.0, 21.0, 22.0, 7.0])[1:5] == [1, 3, 4, 1]


def test_knative_panics() -> None:
    """At twice the ready replicas the last window counts, not the mean; no replica goes while the panic lasts."""
    rates = [7.0, 7.0, 7.0, 28.0, 7.0, 7.0, 7.0]
    calm = sizes(Knative(stable_windows=3, panic_threshold=9.0), one_pool(), rates)
    panic = sizes(Knative(stable_windows=3), one_pool(), rates)
    assert calm[1:8] == [1, 1, 1, 2, 2, 2, 1]
    assert panic[1:8] == [1, 1, 1, 4, 4, 4, 1]


def test_knative_delays_shrinking() -> None:
    """Replicas that were wanted two windows ago stay."""
    rates = [28.0, 28.0, 7.0]
    assert sizes(Knative(delay_windows=2), one_pool(), rates)[1:6] == [4, 4, 4, 4, 1]


# -- llm-d


def test_llmd_holds_demand_between_shares_of_the_supply() -> None:
    """One replica holds ten: at 85 % 34 take four; down to 28 all four are within 70 %, below they are not."""
    rates = [34.0, 34.0, 28.5, 27.9, 20.9]
    assert sizes(LlmD(), one_pool(), rates)[1:6] == [4, 4, 4, 4, 3]
    assert sizes(LlmD(stable_windows=2), one_pool(), [5.0, 34.0, 34.0])[1:4] == [1, 1, 4]


def test_llmd_adds_the_cheapest_and_takes_the_dearest() -> None:
    """A variant that costs twice as much comes last and goes first."""
    instance = make_instance(
        [pool("cheap", 2), pool("dear", 8, price_usd_per_gpu_h=24.0)],
        [configuration("a", {"cheap": 1}), configuration("b", {"dear": 1})],
    )
    targets, _ = play(LlmD(), instance, demand(instance, [30.0, 30.0, 10.0]))
    assert targets[1:4] == [[2, 2], [2, 2], [2, 0]]


# -- Dynamo


def test_dynamo_predicts_a_floor() -> None:
    """Load-based scaling alone would let three of four replicas go; a forecast that still says 30 does not."""

    class Says:
        def reset(self, instance: Instance) -> None: ...

        def update(self, rate_rps: np.ndarray) -> None: ...

        def predict(self, windows_ahead: int = 1) -> np.ndarray:
            return np.array([30.0])

    instance = one_pool()
    expected = sizes(Dynamo(Says()), instance, [40.0, 40.0, 8.0])
    followed = sizes(Dynamo("last"), instance, [40.0, 40.0, 8.0])
    assert expected[3] > followed[3]
    snapshot = View(instance).snapshot(rate_rps=np.array([30.0]))
    assert expected[-1] >= Services(instance).loads(snapshot)[0, 0] == 3.0


def test_dynamo_changes_few_at_a_time() -> None:
    """Replicas go one window after another where only a few may."""
    rates = [80.0, 80.0, 8.0]
    slow, quick = (sizes(Dynamo("last", most_changes=n), one_pool(), rates) for n in (2, 8))
    assert [a - b for a, b in zip(slow[2:5], slow[3:6], strict=True)] == [2, 2, 2]
    assert quick[3] < slow[3]


def test_dynamos_planner_alone_divides_and_rounds_up() -> None:
    """Ten requests/s a replica: 34 predicted take four, 40 take four as well, and nothing is left for queues."""
    found = sizes(DynamoPlanner("last"), one_pool(), [34.0, 34.0, 40.0, 41.0, 41.0])
    assert found[2:6] == [4, 4, 5, 5]


# -- HeteroScale


def test_heteroscale_follows_decoded_tokens() -> None:
    """Of 9.5 requests/s a replica; nothing moves within a tenth, and no replica goes in the window after growth."""
    agent = HeteroScale(target=1.0, late=1.0)
    assert sizes(agent, one_pool(), [45.0, 49.0, 54.0, 61.0, 61.0, 20.0])[1:7] == [5, 5, 6, 6, 6, 3]
    assert sizes(agent, one_pool(), [45.0, 61.0, 20.0, 20.0])[1:5] == [5, 7, 7, 3]


@pytest.mark.parametrize(
    ("agent", "field", "grows"),
    [
        (HeteroScale(late=1.0), "output_scale", True),
        (HeteroScale(late=1.0), "input_scale", False),
        (TokenScale(), "output_scale", True),
        (TokenScale(), "input_scale", True),
    ],
)
def test_tokens_that_are_seen(agent, field: str, grows: bool) -> None:
    """HeteroScale counts decoded tokens alone; TokenScale counts both kinds, here by the memory that they take."""
    scarce = configuration("a", {"p": 1}, max_replicas=16, kv_capacity_gb=1.0, kv_gb_per_token=0.001)
    instance = make_instance([pool("p", 16)], [scarce])
    rates, scale = [[8.0]] * instance.num_windows, [[1.0]] * 6 + [[3.0]] * 6
    targets, _ = play(agent, instance, nominal_scenario(instance, rate_rps=rates, **{field: scale}))
    assert (targets[-1][0] > targets[5][0]) == grows


def test_heteroscale_grows_where_requests_are_late() -> None:
    """By a fifth, whatever the tokens say."""
    pushed = sizes(HeteroScale(target=1.0, late=0.0, growth=0.5), one_pool(4), [10.0, 39.0, 39.0, 39.0])
    assert max(pushed) == 4


# -- TokenScale


def kinds() -> Instance:
    """Return a cheap split replica and a dear one of both phases, of ten requests/s each."""
    return make_instance(
        [pool("cheap", 16), pool("dear", 16, price_usd_per_gpu_h=24.0)],
        [
            configuration("m@1xP+1xD:split", {"cheap": 1}, max_replicas=16),
            configuration("m@1xB", {"dear": 1}, max_replicas=16),
        ],
    )


def test_tokenscale_keeps_convertible_decoders() -> None:
    """A tenth of demand is held by replicas of both phases, the rest by the cheaper split ones."""
    targets, _ = play(TokenScale(), kinds(), demand(kinds(), [38.0, 38.0, 19.0]))
    assert targets[2] == [4, 1]
    assert targets[-1] == [2, 1]
    alone, _ = play(TokenScale(convertible=0.0), kinds(), demand(kinds(), [38.0, 38.0]))
    assert alone[2] == [4, 0]


# -- SpotHedge


def zones(*caps: int) -> Instance:
    """Return spot zones with dearer and dearer GPUs, and an on-demand pool that is dearer still."""
    spot = [pool(f"spot-{k}", cap, market="spot", price_usd_per_gpu_h=12.0 + k) for k, cap in enumerate(caps)]
    pools = [*spot, pool("sure", 16, market="on-demand", price_usd_per_gpu_h=36.0)]
    return make_instance(
        pools, [configuration(p["id"], {p["id"]: 1}, max_replicas=16, startup_windows=1) for p in pools]
    )


def test_spothedge_spreads_over_zones() -> None:
    """One in each zone, the rest in the cheapest, one to spare; on demand as long as spot is not ready."""
    instance = zones(8, 8, 8)
    targets, _ = play(SpotHedge(), instance, demand(instance, [8.0, 40.0]))
    assert targets[2] == [4, 1, 1, 3], "two were ready of five"
    assert targets[3] == targets[-1] == [4, 1, 1, 0]


def test_spothedge_leaves_zones_that_preempt() -> None:
    """After a drop the others get the replicas, and the fallback covers what they cannot yet serve."""
    instance = zones(8, 8, 8)
    available = [[8, 8, 8, 16]] * 6 + [[0, 8, 8, 16]] * 6
    scenario = nominal_scenario(instance, rate_rps=[[40.0]] * instance.num_windows, available_gpus=available)
    targets, _ = play(SpotHedge(), instance, scenario)
    assert targets[6][0] > 0 == targets[7][0]
    assert sum(targets[7][:3]) == 6
    assert targets[7][3] == 3, "two of five are left"
    assert targets[-1][3] == 0


def test_spothedge_shrinks_late() -> None:
    """N falls after four windows that ask for less, and rises after one."""
    instance = zones(16, 16)
    targets, _ = play(SpotHedge(overprovision=0), instance, demand(instance, [64.0, 64.0, 8.0]))
    assert [sum(fleet[:2]) for fleet in targets[2:8]] == [8, 8, 8, 8, 1, 1]


# -- SageServe


def test_sageserve_takes_the_cheapest_change() -> None:
    """Among all fleets that serve demand within pools, start-ups counted: by trying them all."""
    instance = make_instance(
        [pool("p", 5), pool("q", 6, price_usd_per_gpu_h=15.0)],
        [
            configuration("a", {"p": 1}, max_concurrency=9),
            configuration("b", {"p": 2}, max_concurrency=20),
            configuration("c", {"q": 1}, max_concurrency=10),
        ],
        nominal=[0, 0, 2],
    )
    services, start_usd = Services(instance), np.array([1.5, 2.0, 0.5])
    for rate in (5.0, 28.0, 47.0, 61.0):
        snapshot = View(instance).snapshot(rate_rps=np.array([rate]))
        loads = services.loads(snapshot)

        def usd(fleet: np.ndarray, snapshot=snapshot, loads=loads) -> float:
            fits = np.all(snapshot.gpu_use @ fleet <= snapshot.available_gpus)
            serves = supply(fleet, loads[0]) >= 1.0 - 1e-9
            grown = np.maximum(0, fleet - snapshot.fleet) @ start_usd
            return 3 * fleet @ snapshot.hold_usd + grown if fits and serves else np.inf

        fleets = np.stack(np.meshgrid(*[range(5)] * 3), axis=-1).reshape(-1, 3)
        found = cheapest_change(snapshot, services, loads, start_usd, 3)
        assert usd(found) == pytest.approx(min(usd(fleet) for fleet in fleets), rel=0.011)


def test_sageserve_approaches_its_target_by_use() -> None:
    """Idle replicas go only when use is low; where the forecast fails it plans anew before the hour is over."""
    instance = one_pool()
    plans = {"forecaster": "last", "every": 2, "gap": 99.0}
    rates = [40.0, 40.0, 40.0, 18.0]
    kept = sizes(SageServe(**plans), instance, rates)
    let_go = sizes(SageServe(**plans, busy=0.9, idle=0.9), instance, rates)
    assert kept[-1] == kept[3] == let_go[3] > let_go[-1]
    assert sizes(SageServe(**plans), instance, [40.0, 40.0, 40.0, 4.0])[-1] == 1
    surprised = sizes(SageServe(forecaster="last", gap=2.0), instance, [4.0, 4.0, 60.0])
    unmoved = sizes(SageServe(forecaster="last", gap=99.0), instance, [4.0, 4.0, 60.0])
    assert surprised[3] >= 6 > unmoved[3]
