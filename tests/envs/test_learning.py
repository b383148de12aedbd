"""The learning interface: zeros are `margin` to the bit, batches are single environments, nothing knows slots."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import fleetgym
from fleetgym.agents.forecasters import Kalman, KalmanBatch, Seasonal
from fleetgym.agents.margins import FEATURES
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.vector import FleetAllocVectorEnv
from fleetgym.envs.wrappers import for_learning
from fleetgym.envs.wrappers.learning import LEVELS
from fleetgym.files.errors import DataError, FleetgymError

OU = "fleet-v0/dev/ou-s-001"


def margin_costs(instance: str, scenario: int, windows: int) -> list[float]:
    """Return what the agent `margin` pays in each window of a stored day."""
    env, agent = FleetAllocEnv(instance), fleetgym.make_agent("margin")
    observation, info = env.reset(options={"scenario": scenario})
    view, costs = fleetgym.View(env.instance), []
    view.update(info)
    agent.reset(view, seed=0)
    for _ in range(windows):
        observation, _, _, _, info = env.step(agent.act(observation, info))
        view.update(info)
        costs.append(info["cost"])
    return costs


@pytest.mark.parametrize(
    ("instance", "windows"),
    [
        (OU, 288),
        ("fleet-v0/dev/drop-s-001", 288),
        ("fleet-v0/dev/grw-s-001", 100),
        ("fleet-v0/dev/fastllm-4-4-5-001", 4),
        ("fleet-v0/dev/trace-m-001", 60),
        ("fleet-v1/dev/budget-s-101", 288),
        ("fleet-v1/dev/tail-s-101", 100),
        ("fleet-v1/dev/multi-s-101", 100),
    ],
)
def test_zero_is_margin(instance: str, windows: int) -> None:
    """All zeros, and discrete action 0, cost what `margin` costs, to the bit; against it they earn nothing."""
    windows = min(windows, fleetgym.load_instance(instance).num_windows)
    expected = margin_costs(instance, 0, windows)
    single = for_learning(FleetAllocEnv(instance), reference="margin")
    discrete = for_learning(FleetAllocEnv(instance), actions="discrete")
    for env in (single, discrete):
        observation, _ = env.reset(options={"scenario": 0})
        for usd in expected:
            assert env.observation_space.contains(observation)
            observation, reward, _, _, info = env.step(np.zeros(env.action_space.shape, dtype=int))
            assert info["cost"] == usd
            if env is single:
                assert reward == 0.0


@pytest.mark.parametrize("mode", ["SameStep", "NextStep"])
@pytest.mark.parametrize("actions", ["margins", "discrete"])
def test_a_batch_is_single_environments(mode: str, actions: str) -> None:
    """Observations, rewards, ends and masks are those of single environments, over ends of episodes, to the bit."""
    instances = ["fleet-v0/dev/drop-s-001", "fleet-v0/dev/drop-s-002"]
    rng, count, steps = np.random.default_rng(0), 3, 60
    batch = for_learning(
        gymnasium.make_vec(
            "fleetgym:FleetAlloc-v0",
            num_envs=count,
            instance=instances,
            autoreset_mode=mode,
            max_episode_steps=25,
        ),
        actions=actions,
        reference="margin",
    )
    singles = [
        for_learning(FleetAllocEnv(instances[k % 2]), actions=actions, reference="margin")
        for k in range(count)
    ]
    seen, infos = batch.reset(seed=4)
    for k, env in enumerate(singles):
        assert np.array_equal(env.reset(seed=4 + k)[0], seen[k])
    assert seen.shape == (count, 4, len(FEATURES))
    begins, played = np.zeros(count, dtype=bool), np.zeros(count, dtype=int)
    for _ in range(steps):
        action = (
            rng.integers(len(LEVELS), size=count)
            if actions == "discrete"
            else rng.uniform(-1.2, 1.2, (count, 4, 2)).astype(np.float32)
        )
        seen, rewards, terminated, truncated, infos = batch.step(action)
        for k, env in enumerate(singles):
            if begins[k]:
                own = env.reset()[0]
                assert rewards[k] == 0.0
                played[k] = 0
                begins[k] = False
            else:
                own, reward, ended, _, info = env.step(action[k])
                played[k] += 1
                assert reward == rewards[k]
                assert truncated[k] == (played[k] == 25)
                if truncated[k] or ended:
                    if mode == "SameStep":
                        assert np.array_equal(infos["final_obs"][k], own)
                        own, _ = env.reset()
                        played[k] = 0
                    else:
                        begins[k] = True
            assert np.array_equal(seen[k], own)
            if actions == "discrete":
                assert np.array_equal(batch.action_masks()[k], env.action_masks())
    batch.close()


def test_some_episodes_of_a_batch_begin_anew() -> None:
    """A reset of some leaves the others where they are, the reference and the forecasts included."""
    batch = for_learning(FleetAllocVectorEnv(2, OU, autoreset_mode="Disabled"), reference="margin")
    singles = [for_learning(FleetAllocEnv(OU), reference="margin") for _ in range(2)]
    rng = np.random.default_rng(0)
    batch.reset(seed=3)
    for k, env in enumerate(singles):
        env.reset(seed=3 + k)
    own: list = []
    for t in range(12):
        if t == 6:
            seen, _ = batch.reset(options={"reset_mask": np.array([False, True])})
            assert np.array_equal(seen[0], own[0])
            assert np.array_equal(seen[1], singles[1].reset()[0])
        action = rng.uniform(-1, 1, (2, 4, 2))
        seen, rewards, _, _, _ = batch.step(action)
        played = [env.step(one) for env, one in zip(singles, action, strict=True)]
        assert rewards.tolist() == [each[1] for each in played]
        own = [each[0] for each in played]
        assert np.array_equal(seen, own)
    batch.close()


@pytest.mark.parametrize("kind", [Kalman, Seasonal])
def test_filters_side_by_side_are_single_ones(kind: type[Kalman]) -> None:
    """Every row of a batch of filters equals a filter of its own, to the bit, also where rows begin anew or rest."""
    instances = [fleetgym.load_instance(f"fleet-v0/dev/drop-s-00{k}") for k in (1, 2)]
    which, rng = np.array([0, 1, 1, 0, 1]), np.random.default_rng(1)
    several = KalmanBatch(instances, which, [kind is Seasonal] * 2)
    single = [kind() for _ in which]
    for m, one in zip(which, single, strict=True):
        one.reset(instances[m])
    for _ in range(80):
        rates = rng.uniform(0.0, 30.0, (5, 4))
        rows, begun = rng.random(5) < 0.7, rng.random(5) < 0.1
        several.begin(begun)
        several.take(rates, rows)
        for k, one in enumerate(single):
            if begun[k]:
                one.reset(instances[which[k]])
            if rows[k]:
                one.update(rates[k])
            for ahead in (1, 2, 4):
                assert np.array_equal(several.predict(ahead)[k], one.predict(ahead))


def test_nothing_depends_on_the_order_of_slots_and_workloads() -> None:
    """Slots turned round: the same features, and the same costs of the same margins."""
    instance = fleetgym.load_instance(OU)
    turned = instance.replace(slots=instance.slots[::-1])
    day, costs = fleetgym.load_scenarios(OU)[0], []
    for each in (instance, turned):
        env, rng = for_learning(FleetAllocEnv(each)), np.random.default_rng(0)
        seen, _ = env.reset(options={"scenario": day})
        costs.append([])
        for _ in range(40):
            seen, _, _, _, info = env.step(rng.uniform(-1, 1, (4, 2)))
            costs[-1].append((info["cost"], seen))
    for (usd, seen), (other_usd, other) in zip(*costs, strict=True):
        assert usd == pytest.approx(other_usd, rel=1e-12)
        np.testing.assert_allclose(seen, other, rtol=1e-6, atol=1e-6)


def test_masks_rule_out_the_same_fleets() -> None:
    """Allowed discrete actions lead to different fleets, each other one to that of an allowed one; 0 is allowed."""
    env = for_learning(FleetAllocEnv(OU), actions="discrete", mask_in_observation=True)
    observation, info = env.reset(seed=3)
    for k in range(30):
        mask = env.action_masks()
        assert np.array_equal(mask, info["action_mask"])
        assert np.array_equal(mask, observation["action_mask"].astype(bool))
        assert mask[0]
        fleets = [tuple(env.target(a)) for a in range(len(LEVELS))]
        allowed = [fleet for fleet, fits in zip(fleets, mask, strict=True) if fits]
        assert len(set(allowed)) == len(allowed) == len(set(fleets))
        observation, _, _, _, info = env.step(int(np.flatnonzero(mask)[k % mask.sum()]))


def test_what_is_refused() -> None:
    """Other environments and actions, and arguments that do not exist, with what would be valid."""
    env = for_learning(FleetAllocEnv(OU))
    with pytest.raises(FleetgymError, match="needs FleetAlloc-v0 with its own actions"):
        for_learning(env)
    with pytest.raises(FleetgymError, match="actions"):
        for_learning(FleetAllocEnv(OU), actions="steps")
    with pytest.raises(FleetgymError, match="reference"):
        for_learning(FleetAllocVectorEnv(2, OU), reference="nominal")
    with pytest.raises(FleetgymError, match="needs actions='discrete'"):
        for_learning(FleetAllocEnv(OU), mask_in_observation=True)
    env.reset(seed=0)
    with pytest.raises(DataError, match=r"shape \(4, 2\), got float64 of shape \(3,\)"):
        env.step(np.zeros(3))
    with pytest.raises(DataError, match="finite"):
        env.step(np.full((4, 2), np.nan))
    with pytest.raises(FleetgymError, match="no masks of margins"):
        env.action_masks()
    discrete = for_learning(FleetAllocEnv(OU), actions="discrete")
    discrete.reset(seed=0)
    with pytest.raises(DataError, match="from 0 to 8, got 9"):
        discrete.step(9)


@pytest.mark.parametrize("instance", ["fleet-v0/dev/drop-s-001", "fleet-v0/dev/grw-s-001"])
def test_many_fleets_are_turned_into_actions_at_once(instance: str) -> None:
    """`from_fleets` is `from_fleet` for each, and refuses what it refuses."""
    actions = fleetgym.ActionSpace(fleetgym.load_instance(instance))
    drawn = np.random.default_rng(0).integers(actions.nvec, size=(20, actions.nvec.size))
    fleets = actions.to_fleets(drawn)
    assert np.array_equal(actions.from_fleets(fleets), [actions.from_fleet(fleet) for fleet in fleets])
    for wrong in (fleets - 1, fleets + 1000, np.ones_like(fleets) * (actions.nvec.size < fleets.shape[1])):
        if wrong.any():
            with pytest.raises(DataError):
                actions.from_fleets(wrong)


@pytest.mark.parametrize("instance", [OU, "fleet-v1/dev/multi-s-101", "fleet-v1/dev/budget-s-101"])
def test_infos_tell_whose_requests_were_missed(instance: str) -> None:
    """What workloads' misses cost adds up to the window's terms, whatever the fleet."""
    single, rng = for_learning(FleetAllocEnv(instance)), np.random.default_rng(0)
    batch = for_learning(FleetAllocVectorEnv(2, instance))
    assert single.reset(seed=0)[1]["missed_usd"].tolist() == [0.0] * single.observation_space.shape[0]
    batch.reset(seed=0)
    total = np.zeros(2)
    for _ in range(min(40, single.unwrapped.instance.num_windows - 1)):
        action = rng.choice([-1.0, 1.0]) * np.ones(single.action_space.shape)
        info = single.step(action)[4]
        infos = batch.step(np.stack([action, action]))[4]
        assert np.array_equal(infos["missed_usd"][0], info["missed_usd"])
        assert np.isclose(info["missed_usd"].sum(), info["unserved"] + info["late"], rtol=1e-9, atol=1e-9)
        total += info["unserved"], info["late"]
    assert total.min() >= 0.0 < total[0]
