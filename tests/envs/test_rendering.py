"""Pictures of an episode: an RGB array, a window on the screen, a film; and nothing kept when nobody watches."""

from __future__ import annotations

import pickle
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import RecordVideo

import fleetgym
from fleetgym.envs import picture
from fleetgym.envs.picture import HEIGHT, WIDTH, Picture
from fleetgym.envs.record import EpisodeRecord
from fleetgym.envs.rendering import Viewer
from fleetgym.families.generate import generate
from fleetgym.files.errors import FleetgymError
from fleetgym.model.window import COST_TERMS

pytest.importorskip("PIL", reason="Pillow is not there")

ALL = fleetgym.list_instances("fleet-v0")
SOME = [name for name in ALL if "/toy/" in name or name.endswith("-001")]


def make(instance: str = "fleet-v0/toy/drop", render_mode: str | None = "rgb_array") -> gymnasium.Env:
    """Return the bare environment."""
    return gymnasium.make("FleetAlloc-v0", instance=instance, render_mode=render_mode).unwrapped


def play(env: gymnasium.Env, windows: int = 10**6) -> list[dict]:
    """Hold the nominal fleet for some windows of stored scenario 0; return the infos."""
    env.reset(options={"scenario": 0})
    hold, infos, done = env.actions.from_fleet(env.instance.nominal_fleet), [], False
    while not done and len(infos) < windows:
        _, _, done, _, info = env.step(hold)
        infos.append(info)
    return infos


def has(frame: np.ndarray, colour: tuple[int, ...], rows: tuple[int, int]) -> bool:
    """Return whether a colour occurs in some rows of the panels."""
    area = frame[rows[0] : rows[1], picture._LEFT : picture._RIGHT]
    return bool((area == np.array(colour)).all(axis=2).any())


@pytest.mark.parametrize("instance", SOME)
def test_frames_of_every_kind_of_instance(instance: str) -> None:
    """Before the first reset, after it, in the midst and at the end there is a picture of the same size."""
    env = make(instance)
    frames = [env.render()]
    env.reset(options={"scenario": 0})
    frames.append(env.render())
    play(env, 30)
    frames.append(env.render())
    for frame in frames:
        assert frame.shape == (HEIGHT, WIDTH, 3)
        assert frame.dtype == np.uint8
    assert np.array_equal(frames[0], frames[1])
    assert not np.array_equal(frames[1], frames[2])
    assert np.array_equal(frames[2], env.render())


def test_gymnasium_check_with_rendering() -> None:
    """Gymnasium's checker renders, too, and has nothing to say."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*FleetAlloc-v0 is out of date")
        check_env(make())


def test_same_episode_same_bytes() -> None:
    """Pictures depend on the episode alone."""
    first, second = make(), make()
    play(first)
    play(second)
    assert first.render().tobytes() == second.render().tobytes()


def test_record_is_what_happened() -> None:
    """The record holds the infos' numbers, window by window, and a reset empties it."""
    env = make("fleet-v0/dev/drop-s-001")
    infos, record = play(env, 100), env._viewer._record
    assert record.windows == 100
    for t, info in enumerate(infos):
        assert record.terms_usd[t].tolist() == [info[term] for term in COST_TERMS]
        for name in ("held", "available_gpus", "rate_rps", "unserved_share", "miss_share"):
            assert np.array_equal(getattr(record, name)[t], info[name]), name
    env.reset(options={"scenario": 0})
    assert env._viewer._record.windows == 0


@pytest.mark.parametrize("render_mode", [None, "ansi"])
def test_nothing_is_kept_when_nobody_watches(render_mode: str | None) -> None:
    """Without pictures there is no record."""
    env = make(render_mode=render_mode)
    play(env)
    assert env._viewer._record is None


def test_areas_have_the_height_of_their_numbers() -> None:
    """What is painted measures what it stands for: GPUs held, requests not served, dollars."""
    env = make("fleet-v0/dev/drop-s-001")
    play(env, 200)
    frame, record, drawn = env.render(), env._viewer._record, env._viewer._picture
    panel = frame[picture._FLEET[0] : picture._FLEET[1], picture._LEFT : picture._RIGHT]
    held = (record.held[:200] @ env.instance.gpu_use.T).sum(axis=1)
    top = drawn._top_gpus(held)
    colours = np.array([colour for *_, colour in drawn._layers])
    painted = (panel[:, :, None, :] == colours).all(axis=3).any(axis=2).sum(axis=0)
    for column in range(0, drawn._window_of.size, 7):
        window = drawn._window_of[column]
        expected = panel.shape[0] * held[window] / top if window < 200 else 0.0
        assert abs(painted[column] - expected) <= 4, "a line of two pixels may cross it"


@pytest.mark.parametrize("instance", ["fleet-v0/dev/drop-s-001", "fleet-v0/toy/drop"])
def test_red_is_what_was_not_served(instance: str) -> None:
    """Unserved requests show in red, in the lanes and in the cost; without any there is no red."""
    env = make(instance)
    infos = play(env)
    assert sum(info["unserved"] for info in infos) > 0.0
    assert has(env.render(), picture._UNSERVED, picture._DEMAND)
    calm = make("fleet-v0/dev/ou-s-001")
    calm.reset(options={"scenario": 0})
    most = calm.action_space.nvec - 1
    plenty = np.minimum(most, 2 * calm.actions.from_fleet(calm.instance.nominal_fleet))
    assert sum(calm.step(plenty)[-1]["unserved"] for _ in range(10)) == pytest.approx(0.0, abs=1e-9)
    for rows in (picture._DEMAND, picture._MONEY):
        assert not has(calm.render(), picture._UNSERVED, rows)


def test_axis_ends_are_round_and_large_enough() -> None:
    """An axis ends at a round number at or above the largest value, less than twice as high."""
    for value in (0.02, 0.99, 1.0, 1.01, 7.0, 8.5, 123.0, 4000.1):
        end = picture._nice(value)
        assert value <= end <= 2.0 * value
        assert float(f"{end:.1e}") == end


def test_many_pools_and_workloads_fit() -> None:
    """What does not fit beside the panels is left out, not painted over something else."""
    instance = generate("fastllm", "20-20-20", 1)
    record = EpisodeRecord(instance)
    assert instance.num_workloads > picture._MOST_NAMES
    assert Picture(instance).draw(record).shape == (HEIGHT, WIDTH, 3)


def test_long_names_are_cut() -> None:
    """Names of any length leave the numbers beside them readable."""
    instance = fleetgym.load_instance("fleet-v0/toy/drop")
    long = instance.replace(id="x" * 60)
    frames = [Picture(each).draw(EpisodeRecord(each)) for each in (long, long.replace(id="x" * 50))]
    assert np.array_equal(*frames)
    clock = (slice(0, 50), slice(picture._RIGHT - 70, picture._RIGHT))
    assert np.array_equal(frames[0][clock], Picture(instance).draw(EpisodeRecord(instance))[clock])


# -- a window on the screen


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give pygame a screen that does not exist."""
    pytest.importorskip("pygame", reason="pygame is not there")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    monkeypatch.setenv("SDL_AUDIODRIVER", "dummy")


@pytest.mark.usefixtures("screen")
def test_human_mode_shows_every_step() -> None:
    """The window shows the frame of the array mode after reset and step, closes, and opens again."""
    import pygame

    env, twin = make(render_mode="human"), make()
    env.metadata = {**env.metadata}
    env._viewer._screen.fps = 1000
    for _ in range(2):
        play(env, 3)
        play(twin, 3)
        shown = pygame.surfarray.array3d(env._viewer._screen._window).transpose(1, 0, 2)
        assert np.array_equal(shown, twin.render())
        assert env.render() is None
        env.close()
        assert env._viewer._screen._window is None
    env.close()


@pytest.mark.usefixtures("screen")
def test_human_mode_can_be_pickled() -> None:
    """A copy through pickle has no window until it shows something."""
    env = make(render_mode="human")
    env._viewer._screen.fps = 1000
    play(env, 2)
    twin = pickle.loads(pickle.dumps(env))
    assert twin._viewer._screen._window is None
    twin.step(twin.action_space.nvec * 0)
    assert twin._viewer._screen._window is not None
    twin.close()
    env.close()


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Pillow or pygame the error says what to install; text needs neither."""
    instance = fleetgym.load_instance("fleet-v0/toy/drop")
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "pygame", None)
    picture._word.cache_clear()
    with pytest.raises(FleetgymError, match=r"fleetgym\[render\]"):
        Viewer(instance, "rgb_array", 12)
    Viewer(instance, "ansi", 12).begin()
    monkeypatch.undo()
    picture._word.cache_clear()
    monkeypatch.setitem(sys.modules, "pygame", None)
    viewer = Viewer(instance, "human", 12)
    with pytest.raises(FleetgymError, match=r"pygame.*fleetgym\[render\]"):
        viewer.begin()


def test_record_video(tmp_path: Path) -> None:
    """Gymnasium's `RecordVideo` films an episode."""
    pytest.importorskip("moviepy", reason="moviepy is not there")
    env = gymnasium.make("FleetAlloc-v0", instance="fleet-v0/toy/drop", render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # moviepy's own
        video = RecordVideo(env, str(tmp_path), episode_trigger=lambda episode: True)
        video.reset(options={"scenario": 0})
        done = False
        while not done:
            _, _, done, _, _ = video.step(video.action_space.sample())
        video.close()
    films = list(tmp_path.glob("*.mp4"))
    assert len(films) == 1
    assert films[0].stat().st_size > 5000
