"""`FleetPools-v0`: Gymnasium's checks, rewards by hand, denial, and the worst value."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from toys import configuration, make_instance, nominal_scenario, pool, random_instance, workload

import fleetgym
from fleetgym.envs.pools import pool_serves
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.kernels.queueing import late_probability


def made(instance, **arguments):
    """Return the bare environment."""
    return gymnasium.make("fleetgym:FleetPools-v0", instance=instance, **arguments).unwrapped


@pytest.mark.parametrize("pools", [1, 2, 3])
@pytest.mark.parametrize("name", ["fleet-v0/toy/two-pools", "fleet-v0/dev/ou-s-001"])
def test_gymnasium_accepts_it(name: str, pools: int) -> None:
    """The environment checker has nothing to say."""
    check_env(made(name, pools=pools), skip_render_check=True)


def exhaustive(env) -> dict[tuple[int, ...], float]:
    """Return the reward of every action in the nominal window."""
    scenario = nominal_scenario(env.instance)
    rewards = {}
    for action in np.ndindex(*env.action_space.nvec):
        env.reset(options={"scenario": scenario})
        rewards[action] = env.step(np.array(action))[1]
    return rewards


@pytest.fixture
def two_kinds():
    """Return a short and a long workload, a cheap configuration that only fits short ones, and a dear one.

    One dear replica has ten servers, the two workloads keep 10.2 busy.
    """
    return make_instance(
        [pool("cheap", 4, price_usd_per_gpu_h=1.0), pool("dear", 4, price_usd_per_gpu_h=5.0)],
        [configuration("small", {"cheap": 1}), configuration("large", {"dear": 1})],
        workloads=[
            workload("short", 9.2, input_tokens=10.0, output_tokens=10.0),
            workload("long", input_tokens=900.0, output_tokens=100.0),
        ],
        performance={"compatible": [[True, True], [False, True]]},
    )


def test_the_best_split(two_kinds) -> None:
    """The cheapest action sends short requests to the cheap pool and long ones to the dear pool."""
    env = made(two_kinds)
    rewards = exhaustive(env)
    best = max(rewards.values())
    action = np.array(next(a for a, r in rewards.items() if r == best))
    env.reset(options={"scenario": nominal_scenario(two_kinds)})
    info = env.step(action)[4]
    assert not info["unserved"].any()
    assert best == -info["cost_usd_per_h"] == pytest.approx(-6.0)
    assert info["threshold_tokens"][action[0]] == 20.0
    assert info["pool"].tolist() == [0, 1]


def test_an_unserved_workload_costs_the_worst(two_kinds) -> None:
    """Nothing bought: both workloads are unserved, and serving one more always pays."""
    env = made(two_kinds)
    rewards = exhaustive(env)
    env.reset(options={"scenario": nominal_scenario(two_kinds)})
    info = env.step(np.array([1, 0, 1, 0, 0]))[4]
    worst = info["worst_usd_per_h"]
    assert rewards[(1, 0, 1, 0, 0)] == -2.0 * worst
    assert worst > max(-r % worst for r in rewards.values())


def test_what_does_not_fit_is_denied(two_kinds) -> None:
    """Two pools of one configuration share its replicas; the first pool is granted first."""
    env = made(two_kinds)
    env.reset(options={"scenario": nominal_scenario(two_kinds)})
    _, _, terminated, truncated, info = env.step(np.array([1, 1, 1, 3, 3]))
    assert info["replicas"].tolist() == [3, 1]
    assert info["denied"].tolist() == [0, 2]
    assert terminated
    assert not truncated
    assert info["cost_usd_per_h"] == pytest.approx(20.0)


@pytest.mark.parametrize("kind", ["rate", "pool"])
def test_masks_say_what_is_granted(two_kinds, kind: str) -> None:
    """A configuration is allowed if one replica of it alone is granted, a number if so many of one are."""
    hours = two_kinds.window_s / 3600.0
    usd = 11.0 * (1.0 if kind == "rate" else hours)  # enough for four of the cheap ones, or two of the dear
    instance = two_kinds.replace(budget={"kind": kind, "usd": usd})
    env, scenario = made(instance, pools=1), nominal_scenario(instance)

    def granted(action: list[int]) -> np.ndarray:
        env.reset(options={"scenario": scenario})
        return env.step(np.array(action))[4]["granted"]

    mask = env.reset(options={"scenario": scenario})[1]["action_mask"].tolist()
    assert mask[:2] == [bool(granted([c, 1])[c]) for c in (0, 1)] == [True, True]
    assert mask[2:] == [any(granted([c, n])[c] == n for c in (0, 1)) for n in range(len(mask) - 2)]
    dear = made(instance.replace(budget={"kind": kind, "usd": usd * 4.0 / 11.0}), pools=1)
    assert dear.reset(options={"scenario": nominal_scenario(dear.instance)})[1]["action_mask"].tolist()[
        :2
    ] == [True, False]


@pytest.mark.parametrize("seed", range(10))
def test_rewards_add_up_on_random_instances(seed: int) -> None:
    """Caps hold, the reward is rent plus worst values, and the same action gives the same bytes."""
    instance = random_instance(seed)
    env, rng = made(instance, pools=2), np.random.default_rng(seed)
    for _ in range(20):
        action = np.array([rng.integers(n) for n in env.action_space.nvec])
        found = []
        for _ in range(2):
            env.reset(seed=seed)
            _, reward, _, _, info = env.step(action)
            found.append(reward)
        assert found[0] == found[1]
        assert reward == pytest.approx(
            -info["cost_usd_per_h"] - info["worst_usd_per_h"] * info["unserved"].sum()
        )
        assert np.all(instance.gpu_use @ info["granted"] <= info["available_gpus"])
        assert np.all(info["granted"] <= [c.max_replicas for c in instance.configurations])
        assert info["replicas"].sum() == info["granted"].sum()
        assert info["action_mask"].size == env.action_space.nvec.sum()


def test_pool_serves_by_the_queue() -> None:
    """At the number of replicas where the late probability of the kernel passes the bound, service begins."""
    instance = fleetgym.load_instance("fleet-v0/dev/ou-s-001")
    snapshot = fleetgym.View(instance).snapshot()
    i = next(i for i, w in enumerate(instance.workloads) if w.ttft_slo_s is not None)
    usable = snapshot.compatible[i] & (snapshot.delay_s[i] <= instance.workloads[i].mean_delay_slo_s)
    usable &= snapshot.error[i] <= instance.workloads[i].error_slo
    usable &= snapshot.prefill_s[i] < instance.workloads[i].ttft_slo_s
    c = int(np.flatnonzero(usable)[0])
    served = [bool(pool_serves(snapshot, np.array([i]), c, n, 0.01)[0]) for n in range(60)]
    first = served.index(True)
    assert all(served[first:])
    assert first > 0

    def late(n: int) -> float:
        return late_probability(
            int(n * snapshot.max_concurrency[c]),
            float(snapshot.rate_rps[i]),
            float(snapshot.service_s[i, c]),
            float(instance.performance.service_cv2[i, c]),
            instance.workloads[i].arrival_cv2,
            instance.workloads[i].ttft_slo_s,
            float(snapshot.prefill_s[i, c]),
        )

    assert late(first) <= 0.01


@pytest.mark.parametrize(
    "action", [[0, 0, 0, 0], [0, 0, 0, 0, 99], [0.5, 0, 0, 0, 0], [-1, 0, 0, 0, 0], ["a"] * 5]
)
def test_invalid_actions_are_refused(action) -> None:
    """Wrong shape, option or type."""
    env = made("fleet-v0/toy/two-pools")
    env.reset(seed=0)
    with pytest.raises(DataError):
        env.step(action)


def test_one_step_only() -> None:
    """A second step needs a reset; bad arguments are named."""
    env = made("fleet-v0/toy/two-pools")
    env.reset(seed=0)
    env.step(env.action_space.sample())
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(env.action_space.sample())
    for arguments in ({"pools": 0}, {"miss_share": 1.0}):
        with pytest.raises(FleetgymError):
            made("fleet-v0/toy/two-pools", **arguments)


@pytest.mark.parametrize(
    "wrong", [{"pools": True}, {"pools": 2.0}, {"miss_share": "x"}, {"miss_share": True}], ids=str
)
def test_arguments_are_numbers(wrong: dict) -> None:
    """Truth values, text and fractions of pools are named."""
    with pytest.raises(FleetgymError, match=f"{next(iter(wrong))} is .*; expected"):
        gymnasium.make("FleetPools-v0", **wrong)
