"""`mpc`: valid on any instance, equal to itself, the program against a fleet-by-fleet twin, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from test_agents import demand, play
from toys import configuration, make_instance, pool, random_instance

from fleetgym import Belief, View, load_instance
from fleetgym.baselines.mpc import Mpc, PathsProgram, rounded_fleets
from fleetgym.runtime.highs import make_solver


def test_a_fleet_that_is_cheapest_is_found_and_kept() -> None:
    """On demand that stays, the fleet is soon the cheapest of all, and nothing changes any more."""
    instance = make_instance(
        [pool("cheap", 2), pool("dear", 8, price_usd_per_gpu_h=24.0)],
        [configuration("a", {"cheap": 1}), configuration("b", {"dear": 1})],
    )
    targets, _ = play(Mpc(every=1), instance, demand(instance, [30.0]))
    view, rate = View(instance), {"rate_rps": np.array([30.0])}
    fleets = list(itertools.product(range(3), range(5)))
    usd = [view.steady_cost_usd(fleet, conditions=rate) for fleet in fleets]
    assert targets[-3:] == [list(fleets[int(np.argmin(usd))])] * 3


@pytest.mark.parametrize("seed", range(8))
def test_the_program_costs_at_most_what_a_kept_fleet_costs(seed: int) -> None:
    """No fleet that is held all along, and that pools have room for on every path, is cheaper in the same program."""
    instance = random_instance(seed)
    view = View(instance)
    among = np.arange(instance.num_configurations)
    plan = PathsProgram(view, Belief(instance), among, 2, 3, np.zeros((among.size, 1), dtype=np.int64), 0)
    free = make_solver(random_seed=1)
    plan.solve(free)
    assert free.modelStatusToString(free.getModelStatus()) == "Optimal"
    best = free.getInfo().objective_function_value
    most = view.snapshot().max_replicas
    for fleet in ([*np.zeros_like(most)], [*np.minimum(1, most)]):
        fixed = make_solver(random_seed=1)
        fixed.passModel(free.getLp())
        for held in plan.held:
            for column, count in zip(held, fleet, strict=True):
                fixed.changeColBounds(int(column), float(count), float(count))
        fixed.run()
        if fixed.modelStatusToString(fixed.getModelStatus()) == "Optimal":
            assert best <= fixed.getInfo().objective_function_value + 1e-6


@pytest.mark.parametrize("limit", [0, 3, 10, 30, 100, 300])
@pytest.mark.parametrize("name", ["fleet-v0/dev/drop-s-001", "fleet-v0/dev/fastllm-4-4-5-001"])
def test_a_program_that_stops_early_gives_fleets_that_actions_can_ask_for(name: str, limit: int) -> None:
    """The solver's last point may break rows and bounds; day 0 of `fleet-v2/test/ou-v2-m-06` once failed by it."""
    view = View(load_instance(name))
    among = np.arange(view.fleet.size)
    plan = PathsProgram(
        view, Belief(view.instance), among, 1, 6, np.zeros((among.size, 1), dtype=np.int64), 0
    )
    for fleet in rounded_fleets(
        view.snapshot(), plan.solve(make_solver(random_seed=1, simplex_iteration_limit=limit))
    ):
        assert view.actions.check_fleet(fleet).tolist() == fleet.tolist()


@pytest.mark.parametrize("seed", range(20))
def test_rounded_fleets_keep_the_limits_of_any_point(seed: int) -> None:
    """Whatever shares there are: far beyond the most replicas, several in one slot, none."""
    rng = np.random.default_rng(seed)
    for view in (View(random_instance(seed)), View(load_instance("fleet-v0/dev/fastllm-4-4-5-001"))):
        size = view.fleet.size
        share = rng.exponential(10.0 ** rng.integers(-2, 4), size) * (rng.random(size) < 0.5)
        for fleet in rounded_fleets(view.snapshot(), share):
            assert view.actions.check_fleet(fleet).tolist() == fleet.tolist()


def test_what_starts_late_is_ordered_early() -> None:
    """Where replicas take two windows to start, none of them serves before in the program."""
    instance = make_instance(
        [pool("p", 8)], [configuration("a", {"p": 1}, startup_windows=2, max_replicas=8)], nominal=[1]
    )
    targets, _ = play(Mpc(every=1), instance, demand(instance, [5.0, 30.0]))
    assert targets[1][0] < 4 <= targets[2][0]
