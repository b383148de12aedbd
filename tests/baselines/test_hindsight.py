"""`chc`, `hindsight` and `right-sizing`: means of plans, bounds of futures, idle rent, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from test_agents import demand, play
from toys import configuration, make_instance, pool, random_instance

from fleetgym import Belief, View
from fleetgym.baselines.committed_horizon import CommittedHorizon
from fleetgym.baselines.hindsight import Future, Hindsight
from fleetgym.baselines.mpc import Mpc
from fleetgym.baselines.right_sizing import RightSizing
from fleetgym.model.instance import Instance


def one_pool() -> Instance:
    """Return replicas of one configuration; one serves ten requests/s."""
    return make_instance([pool("p", 8)], [configuration("a", {"p": 1}, max_replicas=8)], nominal=[3])


def test_a_commitment_of_one_window_is_receding_horizon_control() -> None:
    """`chc` then does what `mpc` does that plans in every window."""
    instance = one_pool()
    day = demand(instance, [10.0, 30.0, 5.0])
    assert play(CommittedHorizon(commitment=1), instance, day) == play(Mpc(every=1), instance, day)


@pytest.mark.parametrize("seed", range(4))
def test_cuts_are_bounds_that_are_exact_where_a_fleet_was_priced(seed: int) -> None:
    """Before a fleet is priced its bound is no higher than afterwards, and no other fleet's falls."""
    instance = random_instance(seed)
    view = View(instance)
    drawn = Belief(instance).sample(2, 3, np.random.default_rng(0))
    among = np.arange(instance.num_configurations)
    starting = np.zeros((among.size, 1), dtype=np.int64)
    future = Future(view, drawn, 1, among, starting)
    fleets = np.array([np.zeros_like(view.fleet), view.fleet])
    before = future.bounds(fleets)
    for fleet in fleets:
        future.price(fleet)
    after = future.bounds(fleets)
    scale = 1e-6 * np.abs(after).max()
    assert np.all(before <= after + scale)
    future.price(fleets[0])
    assert future.bounds(fleets) == pytest.approx(after, abs=scale)


def test_hindsight_finds_a_fleet_for_demand_that_stays() -> None:
    """It serves steady demand with what that needs, and then changes nothing."""
    instance = one_pool()
    targets, _ = play(Hindsight(every=1), instance, demand(instance, [20.0]))
    assert targets[-3:] == [targets[-1]] * 3
    assert 2 <= targets[-1][0] <= 4


def test_idle_replicas_stay_until_their_rent_is_worth_a_start() -> None:
    """As published, with ever more patience they stay longer, and at last for good."""
    slow = configuration("a", {"p": 1}, startup_windows=1, max_replicas=8)
    instance = make_instance([pool("p", 8)], [slow], nominal=[3])
    day = demand(instance, [30.0, 30.0, 2.0])
    held = [
        sum(fleet[0] for fleet in play(RightSizing(share=0.0, patience=patience), instance, day)[0])
        for patience in (0.0, 2.0, 1e6)
    ]
    assert held[0] <= held[1] <= held[2]
    assert held[0] < held[2]
    targets, _ = play(RightSizing(share=0.0, patience=1e6), instance, day)
    assert targets[-1] == max(targets)
