"""The wrapper for learning follows Gymnasium's rules, and composes with Gymnasium's own wrappers."""

from __future__ import annotations

import functools
import pickle
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordEpisodeStatistics

import fleetgym
from fleetgym.envs.wrappers import for_learning

COUNTED = "fleet-v0/dev/drop-s-001"
EXCLUSIVE = "fleet-v0/dev/fastllm-4-4-5-001"  # lead = 0, exclusive slots, a budget
TOYS = [name for name in fleetgym.list_instances("fleet-v0") if "/toy/" in name]

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
    """Return whether two observations or infos are equal to the bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return np.asarray(a).dtype == np.asarray(b).dtype and np.array_equal(a, b)


@pytest.mark.parametrize("instance", [COUNTED, EXCLUSIVE, *TOYS])
@pytest.mark.parametrize("wrapper", LEARNING)
def test_gymnasium_check(wrapper: type, instance: str) -> None:
    """Gymnasium's checker has nothing to say but that the environment is wrapped."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*FleetAlloc-v0 is out of date")
        warnings.filterwarnings("ignore", message=".*different from the unwrapped version.*")
        check_env(wrapper(make(instance)), skip_render_check=True)


@pytest.mark.parametrize("instance", [COUNTED, EXCLUSIVE, "fleet-v0/toy/drop"])
@pytest.mark.parametrize("wrapper", LEARNING)
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
def test_observations_stay_in_their_space(instance: str) -> None:
    """Over a drawn day the wrapped observation keeps shape, type and bounds, and statistics can be recorded."""
    env = RecordEpisodeStatistics(for_learning(make(instance)))
    story = play(env, 300, seed=1)
    assert all(env.observation_space.contains(entry[0]) for entry in story)
    assert story[-1][2]
    assert story[-1][-1]["episode"]["l"] == len(story) - 1
