"""A state is the whole state: behind `for_learning`, in batches, and with another future."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit

import fleetgym
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.wrappers import for_learning
from fleetgym.files.errors import FleetgymError

OU, DROP, WARNED = "fleet-v0/dev/ou-s-001", "fleet-v0/dev/drop-s-001", "fleet-v2/dev/market-s-01"
HOWS: list[dict[str, Any]] = [
    {},
    {"reference": "margin"},
    {"actions": "discrete", "reference": "margin", "mask_in_observation": True},
    {"flat": True},
]


def made(kind: str, instance: str, **how: Any) -> Any:
    """Return a learning environment, or a batch of three that begin anew within some windows."""
    if kind == "single":
        return for_learning(gymnasium.make("fleetgym:FleetAlloc-v0", instance=instance), **how)
    task = {"num_envs": 3, "instance": instance, "max_episode_steps": 30, "autoreset_mode": kind}
    return for_learning(gymnasium.make_vec("fleetgym:FleetAlloc-v0", **task), **how)


def parts(found: Any) -> list[np.ndarray]:
    """Return the arrays of an observation, and the day's sums of infos."""
    return list(found.values()) if isinstance(found, dict) else [found]


@pytest.mark.parametrize("kind", ["single", "SameStep", "NextStep"])
@pytest.mark.parametrize("how", HOWS)
def test_the_same_actions_from_a_state_bring_the_same(kind: str, how: dict[str, Any]) -> None:
    """Observations, rewards and infos, over the end of days in batches; in another environment, and pickled, too."""
    env, other = made(kind, DROP, **how), made(kind, DROP, **how)
    seen, _ = env.reset(seed=1)
    other.reset(seed=9)
    env.action_space.seed(0)
    for _ in range(10):
        seen = env.step(env.action_space.sample())[0]
    state = env.get_state()
    actions = [env.action_space.sample() for _ in range(40)]
    stories = []
    for one, known in (
        (env, state),
        (env, state),
        (other, state),
        *pickle.loads(pickle.dumps([(env, state)])),
    ):
        back = one.set_state(known)
        assert all(np.array_equal(a, b) for a, b in zip(parts(back), parts(seen), strict=True))
        story = []
        for action in actions:
            found, reward, _, _, info = one.step(action)
            story += [*parts(found), reward, info["day_usd"], info["day_miss_share"], info["cost"]]
        stories.append(story)
    for again in stories[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(stories[0], again, strict=True))


def test_what_is_left_behind_is_refused() -> None:
    """Foreign wrappers inside, states of other arguments, and bare ones; wrappers outside have no such method."""
    inside = for_learning(TimeLimit(FleetAllocEnv(OU), 5))
    inside.reset(seed=0)
    with pytest.raises(FleetgymError, match="TimeLimit"):
        inside.get_state()
    bare, plain, against = FleetAllocEnv(OU), for_learning(FleetAllocEnv(OU)), made("single", OU, **HOWS[1])
    for env in (bare, plain, against):
        env.reset(seed=0)
    with pytest.raises(FleetgymError, match="without for_learning"):
        plain.set_state(bare.get_state())
    with pytest.raises(FleetgymError, match="reference='none'"):
        against.set_state(plain.get_state())
    assert isinstance(bare.set_state(plain.get_state()), dict)
    assert not hasattr(RecordEpisodeStatistics(plain), "get_state")
    batch = made("SameStep", OU)
    batch.reset(seed=0)
    with pytest.raises(FleetgymError, match="expected what get_state returned"):
        batch.set_state(plain.get_state())


@pytest.mark.parametrize("instance", [OU, DROP, WARNED, "fleet-v0/dev/fastllm-4-4-5-001"])
def test_another_future_has_the_same_past(instance: str) -> None:
    """What was seen stays, and so does what is announced; the rest is drawn, and is not the day itself."""
    env = for_learning(FleetAllocEnv(instance), reference="margin")
    env.reset(seed=3)
    zero = np.zeros(env.action_space.shape)
    windows = min(20, env.unwrapped.instance.num_windows - 2)
    for _ in range(windows):
        seen, _, _, _, info = env.step(zero)
    state, rng = env.get_state(), np.random.default_rng(0)
    day = state.scenario.expanded(env.unwrapped.instance.num_windows)
    known = windows + 1 - env.unwrapped.instance.lead
    futures = [env.resample(state, rng) for _ in range(3)]
    for other in futures:
        drawn = other.scenario.check(env.unwrapped.instance)
        assert np.array_equal(drawn.rate_rps[:known], day.rate_rps[:known])
        assert not np.array_equal(drawn.rate_rps[known:], day.rate_rps[known:])
        assert np.array_equal(env.set_state(other), seen)
        assert env.step(zero)[1] == 0.0  # the reference plays the drawn future, too
    assert not np.array_equal(futures[0].scenario.rate_rps, futures[1].scenario.rate_rps)
    if "announced_gpus" in info:
        env.set_state(futures[0])
        assert np.array_equal(env.unwrapped.batch.announced_gpus[0], info["announced_gpus"])


def test_a_batch_draws_futures_of_all_its_days() -> None:
    """Each episode has its own, and the past of each stays."""
    batch = made("SameStep", OU)
    batch.reset(seed=0)
    zero = np.zeros(batch.action_space.shape)
    for _ in range(4):
        seen = batch.step(zero)[0]
    state = batch.get_state()
    other = batch.resample(state, np.random.default_rng(0))
    assert np.array_equal(batch.set_state(other), seen)
    for own, drawn in zip(state.scenarios, other.scenarios, strict=True):
        assert np.array_equal(own.rate_rps[:4], drawn.rate_rps[:4])
        assert not np.array_equal(own.rate_rps[4:], drawn.rate_rps[4:])


@pytest.mark.parametrize("kind", ["single", "SameStep"])
def test_the_day_is_told(kind: str) -> None:
    """At its end infos say what it cost, against the reference, and the share of missed requests."""
    env = made("single", OU, reference="margin") if kind == "single" else made(kind, OU, reference="margin")
    _, info = env.reset(seed=0)
    usd = missed = requests = 0.0
    rng = np.random.default_rng(0)
    for t in range(30):
        _, _, _, _, info = env.step(rng.uniform(-1, 1, env.action_space.shape))
        last = info["final_info"] if kind != "single" and t == 29 else info
        usd = usd + last["cost"]
        missed = missed + (last["rate_rps"] * last["miss_share"]).sum(axis=-1)
        requests = requests + last["rate_rps"].sum(axis=-1)
    assert last["day_usd"] == pytest.approx(usd)
    assert last["day_miss_share"] == pytest.approx(missed / requests)
    assert np.all(np.asarray(last["day_percent"]) != 0.0)
    if kind != "single":
        assert not info["day_usd"].any()


def test_observations_are_in_the_order_of_their_space() -> None:
    """Single ones and batches, of both versions, and behind masks."""
    for name in ("fleetgym:FleetAlloc-v0", "fleetgym:FleetAlloc-v1"):
        env, batch = gymnasium.make(name, instance=OU), gymnasium.make_vec(name, instance=OU, num_envs=2)
        for one in (env, batch, made("single", OU, actions="discrete", mask_in_observation=True)):
            assert list(one.reset(seed=0)[0]) == list(one.observation_space)
    assert fleetgym.load_instance(OU).lead == 1
