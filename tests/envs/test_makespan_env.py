"""`FleetMakespan-v0`: Gymnasium's contract, and makespans that hand calculation and another solver confirm."""

from __future__ import annotations

import json
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from scipy.optimize import linprog
from toys import (
    affine,
    configuration,
    make_instance,
    nominal_scenario,
    pool,
    random_instance,
    random_scenario,
    workload,
)

import fleetgym
from fleetgym.envs.makespan import FleetMakespanEnv, best_assignment, busy_seconds, worst_makespan_s
from fleetgym.files.errors import DataError, FleetgymError

TOYS = [name for name in fleetgym.list_instances("fleet-v0") if "/toy/" in name]
SOME = [*TOYS, "fleet-v0/dev/ou-s-001", "fleet-v0/dev/grw-s-001", "fleet-v0/dev/fastllm-4-4-5-001"]
TOY = "fleet-v0/toy/two-pools"


def make(instance: object = TOY, **arguments: object) -> FleetMakespanEnv:
    """Return the bare environment."""
    return gymnasium.make("FleetMakespan-v0", instance=instance, **arguments).unwrapped


def same(a: dict, b: dict) -> bool:
    """Tell whether two observations or infos are equal to the bit."""
    return a.keys() == b.keys() and all(np.array_equal(np.asarray(a[k]), np.asarray(b[k])) for k in a)


@pytest.mark.parametrize("instance_id", SOME)
def test_gymnasium_check(instance_id: str) -> None:
    """Gymnasium's own checker has nothing to say, not even a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(instance_id), skip_render_check=True)


@pytest.mark.rl
@pytest.mark.parametrize("instance_id", SOME)
def test_stable_baselines3_check(instance_id: str) -> None:
    """stable-baselines3's checker has nothing to say, not even a warning."""
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker", reason="stable-baselines3 is not there")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sb3.check_env(make(instance_id), warn=True)


def test_spec_is_json() -> None:
    """The module prefix registers the id, and the spec is JSON."""
    spec = gymnasium.make("fleetgym:FleetMakespan-v0", instance=TOY, budget_usd_per_h=5.0).spec
    assert spec is not None
    json.loads(spec.to_json())


def test_observations_stay_in_their_space() -> None:
    """Before and after the step: the space, the same info keys, one step only."""
    for name in SOME:
        env = make(name)
        env.action_space.seed(0)
        for seed in range(5):
            observation, before = env.reset(seed=seed)
            assert env.observation_space.contains(observation)
            observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
            assert env.observation_space.contains(observation)
            assert (terminated, truncated) == (True, False)
            assert info.keys() == before.keys()
            assert reward == -info["makespan_s"]
            assert 0.0 <= info["makespan_s"] <= info["worst_s"]


def test_same_seed_same_window() -> None:
    """A seed decides everything; another seed gives another window."""
    runs = [make("fleet-v0/dev/ou-s-001").reset(seed=seed) for seed in (3, 3, 4)]
    assert same(runs[0][0], runs[1][0])
    assert same(runs[0][1], runs[1][1])
    assert not same(runs[0][1], runs[2][1])


def test_pickled_environment_continues() -> None:
    """A copy through pickle steps to the same bytes."""
    env = make("fleet-v0/dev/ou-s-001")
    env.reset(seed=5)
    twin = pickle.loads(pickle.dumps(env))
    action = env.action_space.nvec - 1
    assert same(env.step(action)[4], twin.step(action)[4])


def test_step_needs_reset() -> None:
    """An episode is one step."""
    env = make()
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(env.action_space.sample())
    env.reset(options={"scenario": 0})
    env.step(env.action_space.sample())
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(env.action_space.sample())


@pytest.mark.parametrize(
    "options", [{"scenario": 99}, {"scenario": "a"}, {"window": -1}, {"window": 0.5}, {"oops": 1}]
)
def test_bad_reset_options(options: dict) -> None:
    """A bad option says what is possible."""
    with pytest.raises(FleetgymError):
        make().reset(options=options)


@pytest.mark.parametrize("action", [[99, 0], [-1, 0], [0.5, 0], [0], None])
def test_invalid_actions_are_refused(action: object) -> None:
    """An invalid action raises, and the step is still to be had."""
    env = make()
    env.reset(options={"scenario": 0})
    with pytest.raises(DataError):
        env.step(action)
    env.step([1, 0])


def test_bad_budget() -> None:
    """A budget that means nothing is refused."""
    with pytest.raises(FleetgymError, match="usd: expected a number from 1e-6"):
        make(budget_usd_per_h=-1.0)


def two_speeds(**changes: object) -> fleetgym.Instance:
    """Return two workloads on a fast and a slow configuration: 300 and 600 requests in the window."""
    return make_instance(
        [pool("east", 8)],
        [
            configuration("fast", {"east": 2}, max_concurrency=10),
            configuration("slow", {"east": 1}, max_concurrency=5),
        ],
        workloads=[workload("chat", 1.0), workload("code", 2.0)],
        performance={"service_s": affine([[1.0, 1.0], [2.0, 4.0]]), "work_tflop": affine(0.0)},
        **changes,
    )


def test_makespan_by_hand() -> None:
    """One fast and one slow replica share 300 requests at .1/.2 s and 600 at .2/.8 s."""
    instance = two_speeds()
    env = make(instance)
    _, info = env.reset(options={"scenario": nominal_scenario(instance)})
    np.testing.assert_allclose(info["busy_s"], [[0.1, 0.2], [0.2, 0.8]])
    assert info["worst_s"] == pytest.approx(300 * 0.2 + 600 * 0.8)
    info = env.step([1, 1])[4]
    # All of code and some chat on fast: 120 + 30 x = 60 (1 - x) has no x >= 0, so slow takes a little code:
    # 120 (1 - v) = 60 + 480 v.
    share = 60 / 600
    assert info["makespan_s"] == pytest.approx(120 * (1 - share))
    np.testing.assert_allclose(info["assignment"], [[0, 1], [1 - share, share]], atol=1e-9)
    assert info["cost_usd_per_h"] == pytest.approx(36.0)


def test_what_does_not_fit_is_denied() -> None:
    """Availability and budget deny replicas slot by slot; nothing granted is the worst value."""
    instance = two_speeds()
    scenario = nominal_scenario(instance, available_gpus=[[3]])
    env = make(instance)
    env.reset(options={"scenario": scenario})
    info = env.step([4, 4])[4]
    assert info["granted"].tolist() == [1, 1]
    assert info["denied"].tolist() == [3, 3]
    poor = make(instance, budget_usd_per_h=13.0)
    poor.reset(options={"scenario": nominal_scenario(instance)})
    info = poor.step([4, 4])[4]
    assert info["granted"].tolist() == [0, 1]
    broke = make(instance, budget_usd_per_h=1e-6)
    broke.reset(options={"scenario": nominal_scenario(instance)})
    _, reward, _, _, info = broke.step([4, 4])
    assert reward == -info["worst_s"] == -540.0
    assert info["unserved"].all()


def test_an_unserved_workload_is_the_worst_case() -> None:
    """A fleet that cannot serve one workload scores the stated value, whatever else it does."""
    instance = make_instance(
        [pool("east", 8)],
        [configuration("a", {"east": 1}), configuration("b", {"east": 1})],
        workloads=[workload("chat"), workload("code")],
        performance={"compatible": [[True, True], [False, True]]},
    )
    env = make(instance)
    env.reset(options={"scenario": nominal_scenario(instance)})
    info = env.step([4, 0])[4]
    assert info["unserved"].tolist() == [False, True]
    assert info["makespan_s"] == info["worst_s"]


def test_no_requests_no_makespan() -> None:
    """Without arrivals an empty fleet is done at once."""
    instance = two_speeds()
    env = make(instance)
    env.reset(options={"scenario": nominal_scenario(instance, rate_rps=[[0.0, 0.0]])})
    assert env.step([0, 0])[1] == 0.0


def by_linprog(requests: np.ndarray, busy_s: np.ndarray, replicas: np.ndarray) -> float:
    """Return the least makespan from SciPy's solver: min T over x, T."""
    workloads, count = busy_s.shape
    finite = np.isfinite(busy_s)
    load = np.where(finite, requests[:, None] * np.where(finite, busy_s, 0.0), 0.0)
    upper = (finite & (replicas > 0)).astype(float).ravel()
    rows = np.zeros((count, workloads * count + 1))
    for c in range(count):
        rows[c, c : workloads * count : count] = load[:, c]
        rows[c, -1] = -replicas[c]
    demand = np.zeros((workloads, workloads * count + 1))
    for w in range(workloads):
        demand[w, w * count : (w + 1) * count] = 1.0
    bounds = [(0.0, u) for u in upper] + [(0.0, None)]
    found = linprog(
        np.append(np.zeros(workloads * count), 1.0), rows, np.zeros(count), demand, np.ones(workloads), bounds
    )
    return float(found.fun) if found.status == 0 else np.inf


@pytest.mark.parametrize("seed", range(40))
def test_assignment_is_optimal(seed: int) -> None:
    """On random fleets SciPy finds the same makespan, and the assignment achieves it."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 6)), int(rng.integers(1, 8)))
    busy_s = np.where(rng.random(shape) < 0.2, np.inf, 10.0 ** rng.uniform(-3, 1, shape))
    requests, replicas = rng.integers(1, 1000, shape[0]).astype(float), rng.integers(0, 4, shape[1])
    makespan_s, assignment = best_assignment(requests, busy_s, replicas)
    expected = by_linprog(requests, busy_s, replicas)
    assert makespan_s == (pytest.approx(expected, rel=1e-7) if np.isfinite(expected) else np.inf)
    if np.isfinite(expected):
        np.testing.assert_allclose(assignment.sum(axis=1), 1.0, atol=1e-9)
        used = assignment > 0
        assert np.isfinite(busy_s[used]).all()
        load = requests @ (assignment * np.where(used, busy_s, 0.0))
        assert np.all(load <= replicas * makespan_s * (1 + 1e-9) + 1e-12)


@pytest.mark.parametrize("seed", range(20))
def test_no_serving_fleet_is_worse_than_the_worst(seed: int) -> None:
    """Any fleet that serves every workload beats the stated worst value, and more replicas never hurt."""
    instance = random_instance(seed)
    env = make(instance)
    rng = np.random.default_rng(seed)
    env.reset(options={"scenario": random_scenario(instance, seed)})
    view = fleetgym.View(instance)
    busy_s = busy_seconds(view.snapshot())
    requests = view.snapshot().requests
    worst = worst_makespan_s(requests, busy_s, instance.window_s)
    fleet = rng.integers(0, 3, instance.num_configurations)
    makespan_s, _ = best_assignment(requests, busy_s, fleet)
    more_s, _ = best_assignment(requests, busy_s, fleet + rng.integers(0, 2, fleet.size))
    assert makespan_s == np.inf or makespan_s <= worst * (1 + 1e-9)
    assert more_s <= makespan_s * (1 + 1e-9)


def test_mask_follows_limits() -> None:
    """An option is masked iff it alone exceeds availability or budget."""
    instance = two_speeds()
    env = make(instance, budget_usd_per_h=40.0)
    env.reset(options={"scenario": nominal_scenario(instance, available_gpus=[[3]])})
    assert env.action_masks().tolist() == [True, True, False, False, False, True, True, True, True, False]


def test_ansi_rendering() -> None:
    """The text names the pools and the makespan."""
    env = make("fleet-v0/toy/regions", render_mode="ansi")
    env.reset(options={"scenario": 0})
    env.step(env.action_space.nvec - 1)
    text = env.render()
    assert "makespan" in text
    assert all(p.id in text for p in env.instance.pools)
    with pytest.raises(FleetgymError, match="render_mode"):
        FleetMakespanEnv(TOY, render_mode="hologram")


def test_rendering_names_the_window() -> None:
    """The head says which window is served, and when it begins."""
    env = make("fleet-v0/dev/ou-s-001", render_mode="ansi")
    env.reset(options={"scenario": 0, "window": 30})
    assert "window 30/288  02:30" in env.render()


@pytest.mark.parametrize("budget", ["x", True, float("nan"), -1.0])
def test_a_budget_is_a_number(budget: object) -> None:
    """Anything else is named."""
    with pytest.raises(FleetgymError, match="usd: expected a number from 1e-6 to 1e15 USD, got"):
        make(budget_usd_per_h=budget)
