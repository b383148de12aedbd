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


def test_rollouts_are_steps_on_two_thousand_states() -> None:
    """To 1e-12 of the cost: kept bases change round-off only."""
    states, kinds = 0, set()
    for seed in range(100):
        rng = np.random.default_rng(seed)
        instance = random_instance(seed)
        for _ in range(20):
            view = walk(instance, rng, int(rng.integers(0, instance.num_windows)))
            paths = random_paths(instance, rng)
            targets = [random_target(instance, rng) for _ in range(2)]
            found = view.rollout(targets, paths)
            for usd, target in zip(found, targets, strict=True):
                assert usd == pytest.approx(played(view, paths, target), rel=1e-12, abs=1e-12)
            states += 1
            kinds |= {
                *(["starts"] if view._state.starting.any() else []),
                *(["drains"] if view._state.draining.any() else []),
                *(["drops"] if np.any(paths.available < [p.cap_gpus for p in instance.pools]) else []),
                instance.budget.kind if instance.budget else "none",
            }
    assert states == 2000
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
