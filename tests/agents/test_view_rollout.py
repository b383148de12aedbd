"""`View.rollout` against steps: random states with starts, drains, drops and budgets; limits; what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from toys import random_instance, random_scenario

from fleetgym import Belief, Conditions, View
from fleetgym.agents.beliefs.belief import Paths
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.instance import Instance
from fleetgym.model.library import load_instance
from fleetgym.model.window import FleetState, window_model

PATHS, WINDOWS = 3, 4


def random_target(instance: Instance, rng: np.random.Generator) -> np.ndarray:
    """Return a fleet that an action can want, whether it fits or not."""
    target = np.zeros(instance.num_configurations, dtype=np.int64)
    for slot, members in zip(instance.slots, instance.slot_members, strict=True):
        c = rng.choice(members) if slot.exclusive else members[0]
        most = instance.configurations[c].max_replicas
        target[c] = rng.integers(0, min(most, 4) + 1) if rng.random() < 0.6 else 0
    return target


def random_paths(instance: Instance, rng: np.random.Generator) -> Paths:
    """Return windows of random scenarios, which have drops, and random weights."""
    rows = []
    for _ in range(PATHS):
        scenario = random_scenario(instance, int(rng.integers(10**6)))
        start = int(rng.integers(instance.num_windows - WINDOWS))
        rows.append([Conditions.of(scenario, start + t).packed() for t in range(WINDOWS)])
    fields = [np.array([[each[k] for each in row] for row in rows]) for k in range(3)]
    return Paths(*fields, rng.dirichlet(np.ones(PATHS)))


def played(view: View, paths: Paths, target: np.ndarray) -> float:
    """Return the same by steps, with a router that knows nothing of the rollouts."""
    model, total = window_model(view.instance), 0.0
    router = model.new_router()
    for p, weight in enumerate(paths.weight):
        state = FleetState(view._state.replicas.copy(), view.window, view._state.spent_usd)
        for t in range(min(WINDOWS, view.instance.num_windows - view.window)):
            result = model.step(state, target, paths.conditions(p, t), router)
            total += weight * result.cost_usd
    return total


def walk(instance: Instance, rng: np.random.Generator, windows: int) -> View:
    """Return a view after some windows of random targets: replicas start, run and drain."""
    view, model = View(instance), window_model(instance)
    state, router = model.initial_state(), model.new_router()
    scenario = random_scenario(instance, int(rng.integers(10**6)))
    for t in range(windows):
        model.step(state, random_target(instance, rng), Conditions.of(scenario, t), router)
    view._state = state
    return view


@pytest.mark.parametrize(
    "states", [200, pytest.param(2000, marks=pytest.mark.slow)], ids=["two hundred", "two thousand"]
)
def test_rollouts_are_steps_on_random_states(states: int) -> None:
    """To 1e-12 of the cost: kept bases change round-off only."""
    kinds = set()
    for seed in range(states // 20):
        rng = np.random.default_rng(seed)
        instance = random_instance(seed)
        for _ in range(20):
            view = walk(instance, rng, int(rng.integers(0, instance.num_windows)))
            paths = random_paths(instance, rng)
            targets = [random_target(instance, rng) for _ in range(2)]
            found = view.rollout(targets, paths)
            for usd, target in zip(found, targets, strict=True):
                assert usd == pytest.approx(played(view, paths, target), rel=1e-12, abs=1e-12)
            kinds |= {
                *(["starts"] if view._state.starting.any() else []),
                *(["drains"] if view._state.draining.any() else []),
                *(["drops"] if np.any(paths.available < [p.cap_gpus for p in instance.pools]) else []),
                instance.budget.kind if instance.budget else "none",
            }
    assert kinds == {"starts", "drains", "drops", "none", "rate", "pool"}


@pytest.mark.parametrize("name", ["ou-s-101", "drop-m-101", "tail-s-101", "multi-s-101"])
def test_rollouts_are_steps_on_stored_instances(name: str) -> None:
    """One view that is used again and again, whose bases come from other targets."""
    instance = load_instance(f"fleet-v1/dev/{name}")
    rng = np.random.default_rng(1)
    view, belief = View(instance), Belief(instance)
    nominal = view.fleet
    for t in range(4):
        belief.update(t, Conditions.nominal(instance))
        paths = belief.sample(PATHS, WINDOWS, rng)
        change = rng.integers(-1, 2, (3, nominal.size)) * (nominal > 0)
        targets = list(np.clip(nominal + change, 0, [c.max_replicas for c in instance.configurations]))
        for usd, target in zip(view.rollout(targets, paths), targets, strict=True):
            assert usd == pytest.approx(played(view, paths, target), rel=1e-12)


def test_what_is_remembered_of_paths_is_forgotten_with_them() -> None:
    """Targets come back, also after the same arrays were given other demand; the answers are those of steps."""
    instance = load_instance("fleet-v1/dev/multi-s-101")
    view, rng = View(instance), np.random.default_rng(1)
    belief = Belief(instance)
    belief.update(0, Conditions.nominal(instance))
    paths = belief.sample(PATHS, WINDOWS, rng)
    targets = [random_target(instance, rng) for _ in range(12)]
    order = np.concatenate((np.arange(12), rng.permutation(12)))
    for factor in (1.0, 1.3, 0.6):
        paths.workload[:, :, 0] *= factor
        found = np.array([view.rollout([targets[k]], paths)[0] for k in order])
        assert found == pytest.approx([played(view, paths, targets[k]) for k in order], rel=1e-12)


def test_paths_need_not_be_writeable() -> None:
    """Arrays that cannot be written to, such as mapped files, are played like any others."""
    view = View("fleet-v0/toy/two-pools")
    paths = Belief(view.instance).sample(2, 2, np.random.default_rng(0))
    usd = view.rollout([[1, 1]], paths)
    for field in paths:
        field.flags.writeable = False
    assert np.array_equal(view.rollout([[1, 1]], paths), usd)


def test_preview_is_a_rollout_of_one_window() -> None:
    """The cost of a preview is that of one path of one window."""
    view = View("fleet-v0/toy/drop")
    packed = view.conditions.packed()
    one = Paths(*(field[None, None] for field in packed), np.ones(1))
    assert view.rollout([[1, 1]], one)[0] == pytest.approx(view.preview([1, 1])["cost"], rel=1e-12)


def test_limits_give_up_only_what_costs_more() -> None:
    """Costs at or below the limit are unchanged, those beyond are infinite, on instances with budgets and drops."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        instance = random_instance(seed)
        view = walk(instance, rng, 2)
        paths = random_paths(instance, rng)
        targets = [random_target(instance, rng) for _ in range(8)]
        free = view.rollout(targets, paths)
        limit = float(np.median(free)) * (1 + 1e-9)
        limited = view.rollout(targets, paths, limit=limit)
        assert np.array_equal(np.isinf(limited), free > limit)
        assert limited[free <= limit] == pytest.approx(free[free <= limit], rel=1e-12)


def never_late(instance: Instance) -> Instance:
    """Return an instance on which no first token is late, so that the routing LP charges all that is charged."""
    workloads = [{**w, "late_usd": 0.0} for w in instance.to_dict()["workloads"]]
    return instance.replace(workloads=workloads)


def test_estimates_are_bounds_where_nothing_is_late() -> None:
    """Weak duality: the duals of one fleet bound what any other costs, from states with starts, drains and drops."""
    equal = below = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        instance = never_late(random_instance(seed))
        for _ in range(5):
            view = walk(instance, rng, int(rng.integers(0, instance.num_windows)))
            paths = random_paths(instance, rng)
            targets = [random_target(instance, rng) for _ in range(5)]
            found, usd = view.estimate(targets, paths), view.rollout(targets, paths)
            assert found[0] == pytest.approx(usd[0], rel=1e-12, abs=1e-12)
            slack = 1e-5 * np.maximum(usd, usd[0])  # the LP's tie-breaking is not charged
            assert np.all(found <= usd + slack), (seed, found, usd)
            equal += np.count_nonzero(found[1:] >= usd[1:] - slack[1:])
            below += np.count_nonzero(found[1:] < usd[1:] - slack[1:])
    assert equal > 100 < below


def test_estimates_of_paths_with_equal_pools_are_those_of_each() -> None:
    """What fleets hold is played once for paths of the same GPUs and prices; the sum is that of single paths."""
    instance = load_instance("fleet-v1/dev/drop-s-101")
    view, belief, rng = View(instance), Belief(instance), np.random.default_rng(2)
    belief.update(0, Conditions.nominal(instance))
    paths = belief.sample(6, WINDOWS, rng)
    paths.available[3:] = paths.available[:3]
    paths.available[1, 2, 0] = 0
    targets = [view.fleet, *(random_target(instance, rng) for _ in range(6))]
    several = view.estimate(targets, paths)
    ones = [view.estimate(targets, Paths(*(f[p : p + 1] for f in paths[:3]), np.ones(1))) for p in range(6)]
    assert several == pytest.approx(paths.weight @ np.array(ones), rel=1e-12)
    weights = np.array([0.0, 1.0, 0.0, 0.0, 2.0, 0.0])
    some = view.estimate(targets, paths, weights=weights)
    assert some == pytest.approx(weights @ np.array(ones), rel=1e-12)


@pytest.mark.parametrize("name", ["ou-s-101", "drop-s-101", "multi-s-101"])
def test_estimates_tell_most_worse_neighbours(name: str) -> None:
    """One replica more or less: what is estimated to help includes what helps, and leaves out half of what does not."""
    instance = load_instance(f"fleet-v1/dev/{name}")
    view, belief, rng = View(instance), Belief(instance), np.random.default_rng(3)
    belief.update(0, Conditions.nominal(instance))
    paths = belief.sample(PATHS, WINDOWS, rng)
    most = [c.max_replicas for c in instance.configurations]
    neighbours = [view.fleet + sign * row for row in np.eye(len(most), dtype=np.int64) for sign in (-1, 1)]
    fleets = [view.fleet, *(n for n in neighbours if n.min() >= 0 and np.all(n <= most))]
    gain = view.rollout(fleets, paths) - view.rollout(fleets[:1], paths)
    estimated = view.estimate(fleets, paths) - view.estimate(fleets[:1], paths)
    assert np.all(estimated[gain < -1e-9 * abs(gain).max()] < 0.0)
    worse = gain > 1e-9 * abs(gain).max()
    assert np.mean(estimated[worse] > 0.0) >= 0.5


def test_what_is_refused() -> None:
    """Fleets that no action wants, other shapes, weights below zero, and an episode that is over."""
    view = View("fleet-v0/toy/two-pools")
    paths = Belief(view.instance).sample(2, 2, np.random.default_rng(0))
    with pytest.raises(DataError):
        view.rollout([[-1, 0]], paths)
    with pytest.raises(DataError, match=r"expected the shape \(2, 2, 2\)"):
        view.rollout([[1, 0]], paths._replace(price=paths.price[:, :1]))
    with pytest.raises(DataError, match="expected 2 weights"):
        view.rollout([[1, 0]], paths, weights=np.array([1.0, -1.0]))
    view._state.window = view.instance.num_windows
    with pytest.raises(FleetgymError, match="the episode is over"):
        view.rollout([[1, 0]], paths)
