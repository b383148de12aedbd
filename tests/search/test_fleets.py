"""Pools of whole fleets: what they propose can be had, and leads to cheap episodes."""

from __future__ import annotations

import numpy as np
import pytest
from toys import random_actions, random_instance, random_scenario

from fleetgym.bounds.exact import optimal_fleets
from fleetgym.model.actions import ActionSpace
from fleetgym.model.conditions import Conditions
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance, load_scenarios
from fleetgym.model.scenario import Scenario
from fleetgym.reference import replay
from fleetgym.scoring.comparison import nominal_actions, optimal_actions
from fleetgym.search.fleets import FleetPools
from fleetgym.search.improvement import _Sequence
from fleetgym.search.rollouts import KnownScenario

SEEDS = range(24)
TOYS = ["budget-pool", "drop", "group", "heterogeneous", "regions", "startup", "two-pools"]


def searched(
    instance: Instance, scenario: Scenario, actions: np.ndarray, rounds: int
) -> tuple[_Sequence, list[np.ndarray]]:
    """Return an episode after some rounds of pools alone, and what each proposed."""
    found, proposed = _Sequence(instance, scenario, actions), []
    pools, rng = FleetPools(found.known), np.random.default_rng(1)
    for _ in range(rounds):
        before_usd = found.cost_usd
        proposed.append(pools.propose(rng, found.track.serving))
        won = found.follow(proposed[-1])
        assert found.cost_usd < before_usd if won else found.cost_usd == before_usd
    return found, proposed


@pytest.mark.parametrize("seed", SEEDS)
def test_what_they_propose_can_be_had(seed: int) -> None:
    """Replicas there are, on GPUs that are available; the same each time."""
    instance = random_instance(seed, num_windows=6)
    scenario, actions = random_scenario(instance, seed), np.array(random_actions(instance, seed))
    found, proposed = searched(instance, scenario, actions, 12)
    most = [c.max_replicas for c in instance.configurations]
    for path in proposed:
        assert path.shape == (6, instance.num_configurations)
        assert np.all(path >= 0)
        assert np.all(path <= most)
        for t, fleet in enumerate(path):
            assert np.all(np.array(instance.gpu_use) @ fleet <= Conditions.of(scenario, t).available_gpus)
    again, same = searched(instance, scenario, actions, 12)
    assert np.array_equal(proposed, same)
    assert np.array_equal(found.actions, again.actions)
    assert found.cost_usd == pytest.approx(
        sum(step["cost"] for step in replay(instance, scenario, found.actions.tolist())), rel=1e-9
    )


@pytest.mark.parametrize("toy", TOYS)
def test_they_alone_come_near_the_optimum(toy: str) -> None:
    """From the nominal fleet, in 40 rounds."""
    name = f"fleet-v0/toy/{toy}"
    instance, scenario = load_instance(name), load_scenarios(name)[0]
    found, _ = searched(instance, scenario, nominal_actions(name), 40)
    optimum = optimal_fleets(instance, scenario).cost
    assert optimum * (1 - 1e-9) <= found.cost_usd <= 1.25 * optimum


@pytest.mark.parametrize("toy", ["group", "heterogeneous", "two-pools"])
def test_the_first_round_joins_halves_of_two_episodes(toy: str) -> None:
    """One is optimal in even windows, one in odd ones."""
    name = f"fleet-v0/toy/{toy}"
    instance, scenario = load_instance(name), load_scenarios(name)[0]
    nominal, best = nominal_actions(name), optimal_actions(name, 0)
    is_odd = np.arange(len(best))[:, None] % 2 == 1
    found = _Sequence(instance, scenario, np.where(is_odd, nominal, best))
    other = found.serving_in(np.where(is_odd, best, nominal))
    pools = FleetPools(found.known, [other])
    found.follow(pools.propose(np.random.default_rng(0), found.track.serving))
    assert found.cost_usd == pytest.approx(_Sequence(instance, scenario, best).cost_usd, rel=1e-9)


def test_a_start_costs_its_fee_and_the_rent_of_its_wait() -> None:
    """In window 0 it serves at once; it cannot be asked for before window 1."""
    name = "fleet-v0/toy/startup"
    instance, scenario = load_instance(name), load_scenarios(name)[0]
    known = KnownScenario(instance, scenario)
    for t in range(instance.num_windows):
        for c, configuration in enumerate(instance.configurations):
            wait = configuration.startup_windows if t else 0
            rent = sum(known.hold_usd[s, c] for s in range(max(0, t - wait), t))
            late = wait > 0 and t - wait < 1
            expected = np.inf if late else configuration.startup_usd + rent
            assert known.start_usd[t, c] == pytest.approx(expected, rel=1e-12)


def test_actions_let_what_is_wanted_serve() -> None:
    """Asked for early by the wait, a path with room for it serves, or more does."""
    name = "fleet-v0/toy/startup"
    instance, scenario = load_instance(name), load_scenarios(name)[0]
    found = _Sequence(instance, scenario, nominal_actions(name))
    path = np.zeros_like(found.track.serving)
    path[4:, 0] = 1
    track = found.known.new_track()
    targets = ActionSpace(instance).to_fleets(found.responder.asked(path))
    found.known.play(targets, 0, instance.num_windows, np.inf, found.known.new_track(), track)
    assert np.all(track.serving >= path)


def test_the_empty_fleet_is_priced() -> None:
    """It is priced like any other when it is tried first."""
    name = "fleet-v0/toy/two-pools"
    instance, scenario = load_instance(name), load_scenarios(name)[0]
    found = _Sequence(instance, scenario, nominal_actions(name))
    pools, rng = FleetPools(found.known), np.random.default_rng(0)
    serving = np.ones_like(found.track.serving)
    pools.propose(rng, serving)
    pools._add(serving.astype(np.int32)[:, None], [np.zeros_like(serving, dtype=np.int32)[:, None]])
    assert np.all(np.isfinite(pools.operating_usd[:, -1]))
