"""The learning wrappers follow Gymnasium's rules, compose, and keep masks and true costs right."""

from __future__ import annotations

import functools
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import FlattenObservation, NormalizeReward, RecordEpisodeStatistics, TransformReward

import fleetgym
from fleetgym.agents.forecasters import Kalman
from fleetgym.envs.wrappers import (
    FlattenDict,
    ForecastFeatures,
    FrameHistory,
    NormalizeByInstance,
    ScaleReward,
    for_learning,
)
from fleetgym.files.errors import FleetgymError, UnknownNameError

COUNTED = "fleet-v0/dev/drop-s-001"
EXCLUSIVE = "fleet-v0/dev/fastllm-4-4-5-001"  # lead = 0, exclusive slots, a budget
TOYS = [name for name in fleetgym.list_instances("fleet-v0") if "/toy/" in name]
WRAPPERS = (NormalizeByInstance, ForecastFeatures, FrameHistory, FlattenDict, ScaleReward)

LEARNING = (
    for_learning,
    functools.partial(for_learning, reference="margin"),
    functools.partial(for_learning, actions="discrete", mask_in_observation=True),
)


def make(instance: str = COUNTED) -> gymnasium.Env:
    """Return the environment as Gymnasium makes it."""
    return gymnasium.make("FleetAlloc-v0", instance=instance)


def play(env: gymnasium.Env, windows: int = 40, seed: int = 0) -> list[tuple]:
    """Return what random allowed actions bring, reset first."""
    story = [env.reset(seed=seed)]
    env.action_space.seed(seed)
    for _ in range(windows):
        story.append(env.step(env.action_space.sample()))
        if story[-1][2]:
            break
    return story


def same(a: object, b: object) -> bool:
    """Tell whether two observations or infos are equal to the bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)


@pytest.mark.parametrize("instance", [COUNTED, EXCLUSIVE, *TOYS])
@pytest.mark.parametrize("wrapper", [*WRAPPERS, *LEARNING])
def test_gymnasium_check(wrapper: type, instance: str) -> None:
    """Gymnasium's checker has nothing to say but that the environment is wrapped."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(wrapper(make(instance)), skip_render_check=True)


@pytest.mark.parametrize("instance", [COUNTED, EXCLUSIVE, "fleet-v0/toy/drop"])
@pytest.mark.parametrize("wrapper", [*WRAPPERS, *LEARNING])
def test_pickled_wrapper_continues(wrapper: type, instance: str) -> None:
    """A copy through pickle plays on to the same bytes."""
    env = wrapper(make(instance))
    play(env, 3)
    twin = pickle.loads(pickle.dumps(env))
    for _ in range(3):
        action = env.action_space.sample()
        for a, b in zip(env.step(action), twin.step(action), strict=True):
            assert same(a, b)


def test_spec_rebuilds_the_wrappers() -> None:
    """The JSON of a wrapped environment's spec makes the same wrapped environment."""
    env = for_learning(make("fleet-v0/toy/drop"))
    assert env.spec is not None
    spec = gymnasium.envs.registration.EnvSpec.from_json(env.spec.to_json())
    twin = gymnasium.make(spec)
    assert twin.observation_space == env.observation_space
    for a, b in zip(play(env, 5), play(twin, 5), strict=True):
        assert same(a[0], b[0])
        assert same(a[-1], b[-1])


@pytest.mark.parametrize("instance", [COUNTED, EXCLUSIVE])
def test_any_sensible_order_gives_the_same(instance: str) -> None:
    """Wrappers that touch different things commute, and masks and info do not depend on their order."""
    orders = (
        (ForecastFeatures, FrameHistory, NormalizeByInstance, FlattenDict, ScaleReward),
        (ScaleReward, ForecastFeatures, FrameHistory, NormalizeByInstance, FlattenDict),
        (ForecastFeatures, ScaleReward, FrameHistory, NormalizeByInstance, FlattenDict),
    )
    stories = []
    for order in orders:
        env = make(instance)
        for wrapper in order:
            env = wrapper(env)
        story = play(env)
        assert np.array_equal(story[-1][-1]["action_mask"], env.get_wrapper_attr("action_masks")())
        stories.append(story)
    for story in stories[1:]:
        for a, b in zip(stories[0], story, strict=True):
            assert all(same(x, y) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("instance", [COUNTED, EXCLUSIVE])
def test_observations_stay_in_their_space(instance: str) -> None:
    """Over a drawn day the wrapped observation keeps shape, type and bounds, and statistics can be recorded."""
    env = RecordEpisodeStatistics(for_learning(make(instance)))
    story = play(env, 300, seed=1)
    assert all(env.observation_space.contains(entry[0]) for entry in story)
    assert story[-1][2]
    assert story[-1][-1]["episode"]["l"] == len(story) - 1


# -- observations


def test_normalization_uses_the_instance_alone() -> None:
    """Two environments normalise alike, whatever they have seen; replicas are shares, demand is in deviations."""
    fresh, used = NormalizeByInstance(make()), NormalizeByInstance(make())
    play(used, 60, seed=9)
    for a, b in zip(play(fresh, 10), play(used, 10), strict=True):
        assert same(a[0], b[0])
    instance, raw = used.unwrapped.instance, play(make(), 10)[-1][0]
    nominal = np.array([w.rate_rps for w in instance.workloads])
    spread = np.log(instance.history.rate_rps / nominal).std(axis=0)
    shown = play(used, 10)[-1][0]
    assert shown["demand"] == pytest.approx(np.clip(raw["demand"] / spread, -5, 5), rel=1e-5)
    most = [c.max_replicas for c in instance.configurations]
    assert shown["running"] == pytest.approx(raw["running"] / most)
    assert same(shown["availability"], raw["availability"])


def test_normalization_of_the_other_environments() -> None:
    """One-step environments have some of the keys, and are normalised as well."""
    for name in ("FleetMakespan-v0", "FleetPools-v0"):
        env = FlattenDict(NormalizeByInstance(gymnasium.make(name)))
        observation, _ = env.reset(seed=0)
        assert env.observation_space.contains(observation)


@pytest.mark.parametrize(("instance", "lead"), [(COUNTED, 1), (EXCLUSIVE, 0)])
def test_forecast_is_the_agents_forecast(instance: str, lead: int) -> None:
    """The features are what a forecaster says that was told the same windows as an agent's."""
    env = ForecastFeatures(make(instance), "kalman", windows_ahead=(0, 1, 5))
    story = play(env, 20)
    forecaster, nominal = Kalman(), np.array([w.rate_rps for w in env.unwrapped.instance.workloads])
    forecaster.reset(env.unwrapped.instance)
    assert env.unwrapped.instance.lead == lead
    for window, entry in enumerate(story):
        rate = entry[-1]["rate_rps"]
        if window > 0 or lead == 0:
            forecaster.update(rate)
        for k, ahead in enumerate((0, 1, 5)):
            expected = forecaster.predict(lead + ahead) if lead + ahead else rate
            assert entry[0]["forecast"][k] == pytest.approx(
                np.clip(np.log(expected / nominal), -5, 5), rel=1e-5
            )


def test_history_is_what_was_seen() -> None:
    """The frames are the last observations, oldest first, filled up after a reset."""
    env = FrameHistory(make(), frames=3, keys=("demand", "running"))
    for _ in range(2):  # the second reset forgets the first episode
        seen = [entry[0] for entry in play(env, 6)]
        newest = [entry["demand"][-1] for entry in seen]
        for t, entry in enumerate(seen):
            expected = [newest[max(0, t - k)] for k in (2, 1, 0)]
            assert np.array_equal(entry["demand"], expected)
            assert entry["running"].shape == (3, 18)
            assert entry["clock"].shape == (2,)


def test_flat_vector_is_gymnasiums() -> None:
    """The vector equals that of `FlattenObservation`, and `parts` says where each key lies."""
    env, theirs = FlattenDict(make()), FlattenObservation(make())
    for a, b, raw in zip(play(env), play(theirs), play(make()), strict=True):
        assert same(a[0], b[0])
        for key, where in env.parts.items():
            assert np.array_equal(a[0][where], raw[0][key].ravel())
    assert env.observation_space == theirs.observation_space


@pytest.mark.parametrize("wrapper", [NormalizeByInstance, ForecastFeatures, FrameHistory, FlattenDict])
def test_dict_wrappers_say_where_they_belong(wrapper: type) -> None:
    """Around a flat observation they explain what to do."""
    with pytest.raises(FleetgymError, match="inside FlattenDict"):
        wrapper(FlattenDict(make()))


def test_bad_arguments_are_named() -> None:
    """Arguments out of range are refused."""
    for frames in (0, 2.5, "x", True):
        with pytest.raises(FleetgymError, match="frames"):
            FrameHistory(make(), frames=frames)
    with pytest.raises(UnknownNameError, match="demand"):
        FrameHistory(make(), keys=("demnd",))
    for windows_ahead in ((-1,), (0.5,), ("x",), ()):
        with pytest.raises(FleetgymError, match="windows_ahead"):
            ForecastFeatures(make(), windows_ahead=windows_ahead)
    for name in ("FleetMakespan-v0", "FleetPools-v0"):
        with pytest.raises(FleetgymError, match="ForecastFeatures needs FleetAlloc-v0"):
            ForecastFeatures(gymnasium.make(name))
    with pytest.raises(UnknownNameError, match="kalman"):
        ForecastFeatures(make(), "kalmann")
    for scale in (0.0, "x", float("nan")):
        with pytest.raises(FleetgymError, match="scale"):
            ScaleReward(make(), scale=scale)
    with pytest.raises(FleetgymError, match="reference"):
        ScaleReward(make(), reference="best")
    with pytest.raises(FleetgymError, match="scale must be given"):
        ScaleReward(gymnasium.make("FleetMakespan-v0"))
    with pytest.raises(FleetgymError, match="environment of fleetgym"):
        NormalizeByInstance(
            gymnasium.wrappers.TransformObservation(
                gymnasium.make("CartPole-v1"), lambda o: {"x": o}, spaces.Dict({"x": spaces.Box(-5, 5, (4,))})
            )
        )


# -- rewards


@pytest.mark.parametrize("instance", [COUNTED, EXCLUSIVE])
def test_scaled_reward_keeps_the_true_one(instance: str) -> None:
    """The reward is divided, `info` holds the true one, and the cost terms are untouched."""
    env = ScaleReward(make(instance))
    view = fleetgym.View(env.unwrapped.instance)
    assert env.scale == view.steady_cost_usd(view.instance.nominal_fleet)
    for entry, plain in zip(play(env), play(make(instance)), strict=True):
        info = entry[-1]
        assert same({k: v for k, v in info.items() if k != "unscaled_reward"}, plain[-1])
        if len(entry) == 5:
            assert info["unscaled_reward"] == plain[1] == -info["cost"]
            assert entry[1] == pytest.approx(plain[1] / env.scale)


@pytest.mark.parametrize("instance", ["fleet-v0/dev/ou-s-001", EXCLUSIVE])
def test_reference_is_the_nominal_fleet(instance: str) -> None:
    """Whoever holds a nominal fleet that nothing takes away earns exactly zero."""
    env = ScaleReward(make(instance), reference="nominal")
    env.reset(seed=4)
    hold = env.unwrapped.actions.from_fleet(env.unwrapped.instance.nominal_fleet)
    for _ in range(30):
        _, reward, _, _, info = env.step(hold)
        assert info["lost"].sum() == info["denied"].sum() == 0
        assert reward == pytest.approx(0.0, abs=1e-9)
        assert info["unscaled_reward"] < 0.0


def test_rewards_of_the_other_environments() -> None:
    """With a scale of one's own, any reward can be scaled."""
    env = ScaleReward(gymnasium.make("FleetMakespan-v0"), scale=60.0)
    env.reset(seed=0)
    _, reward, _, _, info = env.step(env.action_space.sample())
    assert reward == info["unscaled_reward"] / 60.0


@pytest.mark.parametrize(
    "below", [ScaleReward, NormalizeReward, lambda env: TransformReward(env, lambda r: r - 1.0)]
)
def test_rewards_are_scaled_first(below: object) -> None:
    """Around what has changed the reward, `unscaled_reward` would not be the environment's: it is refused."""
    with pytest.raises(FleetgymError, match="has changed the reward already: put it around ScaleReward"):
        ScaleReward(FlattenDict(below(make())))
    around = TransformReward(ScaleReward(make()), lambda r: r - 1.0)
    around.reset(seed=0)
    _, reward, _, _, info = around.step(around.action_space.sample())
    assert info["unscaled_reward"] == -info["cost"]
    assert reward == pytest.approx(-info["cost"] / around.env.scale - 1.0)


def test_normalizing_once_is_enough() -> None:
    """A second time is refused, wherever it stands."""
    with pytest.raises(FleetgymError, match="once is enough"):
        NormalizeByInstance(FrameHistory(NormalizeByInstance(make())))


def test_environments_do_not_share_a_forecaster() -> None:
    """Each wrapper takes a copy of an object, so that one environment does not see another's demand."""
    shared = Kalman()
    first, second = (ForecastFeatures(make(), shared) for _ in range(2))
    first.reset(seed=0)
    second.reset(seed=1)
    alone = play(ForecastFeatures(make(), Kalman()), 5)
    first.reset(seed=0)
    first.action_space.seed(0)
    for entry in alone[1:]:
        action = first.action_space.sample()
        second.step(action)
        assert same(first.step(action)[0], entry[0])
