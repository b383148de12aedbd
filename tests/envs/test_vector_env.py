"""The batched environment has the numbers of the single one, bit for bit, in every mode."""

from __future__ import annotations

import copy
import dataclasses
import multiprocessing
import pickle
import warnings
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics

import fleetgym
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.vector import FleetAllocVectorEnv
from fleetgym.files.errors import DataError, FleetgymError
from fleetgym.model.instance import Instance
from fleetgym.model.lengths import LengthLaw

TOYS = fleetgym.list_instances("fleet-v0/toy")
DEV = fleetgym.list_instances("fleet-v0/dev")
MODES = list(AutoresetMode)


def sync(
    instances: list[str] | list[Instance], count: int, mode: AutoresetMode, **options: Any
) -> SyncVectorEnv:
    """Return Gymnasium's own vector environment over single ones."""
    makers = [
        lambda k=k: FleetAllocEnv(instances[k % len(instances)], **options)  # type: ignore[misc]
        for k in range(count)
    ]
    return SyncVectorEnv(makers, autoreset_mode=mode)


def assert_same(left: Any, right: Any, path: str = "$") -> None:
    """Hold two results equal to the last bit, in type and in structure."""
    if isinstance(left, dict):
        assert sorted(left) == sorted(right), path
        for name in left:
            assert_same(left[name], right[name], f"{path}.{name}")
    elif isinstance(left, tuple):
        for k, (a, b) in enumerate(zip(left, right, strict=True)):
            assert_same(a, b, f"{path}[{k}]")
    elif left is None or isinstance(left, str):
        assert left == right, path
    else:
        a, b = np.asarray(left), np.asarray(right)
        assert a.dtype == b.dtype, path
        assert a.shape == b.shape, path
        if a.dtype == object:
            for k in range(a.size):
                assert_same(a[k], b[k], f"{path}[{k}]")
        else:
            assert a.tobytes() == b.tobytes(), path


def compare(
    instances: list[str] | list[Instance], count: int, mode: AutoresetMode, windows: int, **options: Any
) -> None:
    """Play the same actions on both and compare everything."""
    ours = FleetAllocVectorEnv(count, instances, autoreset_mode=mode, full_info=True, **options)
    options.pop("num_threads", None)
    theirs = sync(instances, count, mode, **options)
    rng = np.random.default_rng(3)
    assert_same(ours.reset(seed=11), theirs.reset(seed=11))
    actions = np.array([ours.single_action_space.sample() for _ in range(count)])
    for t in range(windows):
        fresh = np.array([theirs.envs[k].action_space.sample() for k in range(count)])
        actions = np.where(rng.random(actions.shape) < (1.0 if t % 5 == 0 else 0.1), fresh, actions)
        actions = np.minimum(actions, [env.action_space.nvec - 1 for env in theirs.envs])
        found, expected = ours.step(actions), theirs.step(actions)
        for k in range(5):
            assert_same(found[k], expected[k], f"$[{t}][{k}]")
        if mode == AutoresetMode.DISABLED and found[2].any():
            assert_same(
                ours.reset(options={"reset_mask": found[2]}), theirs.reset(options={"reset_mask": found[2]})
            )
    ours.close()
    theirs.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("instance", TOYS)
def test_toys_are_equal_over_several_episodes(instance: str, mode: AutoresetMode) -> None:
    """Whole episodes, resets included."""
    windows = fleetgym.load_instance(instance).num_windows
    compare([instance], 3, mode, min(2 * windows + 3, 120))


@pytest.mark.parametrize(
    "instance", ["fleet-v0/dev/ou-s-001", "fleet-v0/dev/grw-m-001", "fleet-v0/dev/drop-m-001"]
)
def test_dev_instances_are_equal(instance: str) -> None:
    """The first windows, drawn scenarios."""
    compare([instance], 3, AutoresetMode.NEXT_STEP, 20)


def test_instances_with_laws_of_prompts_share_a_batch_with_others() -> None:
    """A law of two nodes, one of thirteen, and none."""
    plain = fleetgym.load_instance("fleet-v0/dev/grw-s-001")
    laws = [None, LengthLaw.lognormal(3.0), LengthLaw(shares=(0.0, 1.0), factors=(0.0, 2.0))]
    workloads = [
        [dataclasses.replace(w, input_law=law, ttft_slo_s=w.ttft_slo_s or 1.0) for w in plain.workloads]
        for law in laws
    ]
    compare([plain.replace(workloads=each) for each in workloads], 3, AutoresetMode.NEXT_STEP, 12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instance", "mode"),
    [
        pytest.param(name, MODES[m], marks=() if k % 3 == m else pytest.mark.full)
        for k, name in enumerate(DEV)
        for m in range(3)
    ],
)
def test_dev_episodes_are_equal(instance: str, mode: AutoresetMode) -> None:
    """Whole episodes and the beginning of the next, on every dev instance, in every mode (slow: one mode each)."""
    compare([instance], 2, mode, fleetgym.load_instance(instance).num_windows + 3, scenarios="stored")


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_do_not_matter(threads: int) -> None:
    """One and two threads, several instances of one shape."""
    instances = ["fleet-v0/dev/ou-s-001", "fleet-v0/dev/ou-s-001", "fleet-v0/dev/ou-s-001"]
    compare(instances, 7, AutoresetMode.SAME_STEP, 40, num_threads=threads)


def test_different_instances_share_a_batch() -> None:
    """Instances of one shape whose replica limits differ: each environment is that of its own instance."""
    names = [f"fleet-v0/dev/drop-s-00{k}" for k in (1, 2, 3)]
    ours = FleetAllocVectorEnv(6, names, full_info=True)
    singles = [FleetAllocEnv(names[k % 3]) for k in range(6)]
    ours.reset(seed=5)
    for k, env in enumerate(singles):
        env.reset(seed=5 + k)
    for _ in range(30):
        actions = np.array([env.action_space.sample() for env in singles])
        observations, rewards, _, _, infos = ours.step(actions)
        for k, env in enumerate(singles):
            observation, reward, _, _, info = env.step(actions[k])
            assert reward == rewards[k]
            assert_same({name: values[k] for name, values in observations.items()}, observation)
            assert info["cost"] == infos["cost"][k]
            allowed = [
                part[:n]
                for part, n in zip(
                    np.split(infos["action_mask"][k], np.cumsum(ours.single_action_space.nvec)[:-1]),
                    env.action_space.nvec,
                    strict=True,
                )
            ]
            assert np.array_equal(np.concatenate(allowed), info["action_mask"])


def test_options_of_another_instance_are_masked_and_refused() -> None:
    """In a batch of several instances the action space is the union; what an instance lacks is an error."""
    names = [f"fleet-v0/dev/drop-s-00{k}" for k in (1, 2, 3)]
    envs = FleetAllocVectorEnv(3, names)
    _, infos = envs.reset(seed=0)
    nvecs = np.array([fleetgym.ActionSpace(fleetgym.load_instance(name)).nvec for name in names])
    k, s = np.argwhere(nvecs < nvecs.max(axis=0))[0]
    actions = np.zeros((3, nvecs.shape[1]), dtype=np.int64)
    actions[k, s] = nvecs[k, s]
    start = np.concatenate(([0], np.cumsum(nvecs.max(axis=0))))
    assert not infos["action_mask"][k, start[s] + nvecs[k, s]]
    before = envs._batch.window.copy()
    with pytest.raises(DataError, match=rf"\$\.actions\[{k}\]\[{s}\]"):
        envs.step(actions)
    assert np.array_equal(before, envs._batch.window)


def test_mixed_shapes_are_refused() -> None:
    """Instances of different shapes are several batches."""
    with pytest.raises(FleetgymError, match="different shapes"):
        FleetAllocVectorEnv(2, ["fleet-v0/toy/two-pools", "fleet-v0/dev/ou-s-001"])


def test_make_vec_pickling_and_statistics() -> None:
    """`make_vec` finds it, a copy goes on alike, and Gymnasium's vector wrappers work."""
    envs = gymnasium.make_vec("fleetgym:FleetAlloc-v0", num_envs=4, instance="fleet-v0/toy/two-pools")
    assert isinstance(envs, FleetAllocVectorEnv)
    envs.reset(seed=1)
    actions = np.ones((4, 2), dtype=np.int64)
    envs.step(actions)
    twin = pickle.loads(pickle.dumps(envs))
    for _ in range(5):
        assert_same(envs.step(actions), twin.step(actions))
    recorded = RecordEpisodeStatistics(
        gymnasium.make_vec("FleetAlloc-v0", num_envs=2, instance="fleet-v0/toy/two-pools")
    )
    recorded.reset(seed=1)
    total = np.zeros(2)
    for _ in range(fleetgym.load_instance("fleet-v0/toy/two-pools").num_windows):
        _, rewards, done, _, infos = recorded.step(np.ones((2, 2), dtype=np.int64))
        total += rewards
    assert done.all()
    np.testing.assert_allclose(infos["episode"]["r"], total, rtol=1e-5)


def test_wrong_calls_are_explained() -> None:
    """Each names what is wrong."""
    envs = FleetAllocVectorEnv(2, "fleet-v0/toy/two-pools", autoreset_mode="Disabled")
    with pytest.raises(gymnasium.error.ResetNeeded):
        envs.step(np.zeros((2, 2), dtype=np.int64))
    envs.reset(seed=[3, None])
    for wrong in (np.zeros((2, 3), dtype=np.int64), np.full((2, 2), 0.5), np.full((2, 2), -1), [[0], [0, 0]]):
        with pytest.raises(DataError, match=r"\$\.actions"):
            envs.step(wrong)
    with pytest.raises(FleetgymError, match="reset_mask"):
        envs.reset(options={"reset_mask": [True, False]})
    with pytest.raises(FleetgymError, match="unknown reset options"):
        envs.reset(options={"scenarios": 1})
    with pytest.raises(FleetgymError, match="seed: expected one or 2"):
        envs.reset(seed=[1, 2, 3])
    with pytest.raises(FleetgymError, match="num_threads"):
        FleetAllocVectorEnv(2, num_threads=3)
    with pytest.raises(FleetgymError, match="scenarios must be one of"):
        FleetAllocEnv(scenarios="other")
    for _ in range(fleetgym.load_instance("fleet-v0/toy/two-pools").num_windows):
        envs.step(np.zeros((2, 2), dtype=np.int64))
    with pytest.raises(gymnasium.error.ResetNeeded, match=r"episodes \[0, 1\] are over"):
        envs.step(np.zeros((2, 2), dtype=np.int64))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("instance", "steps"), [(TOYS[0], 5), ("fleet-v0/dev/ou-s-001", 3), (TOYS[0], 10**6)]
)
def test_time_limits_truncate_as_gymnasiums_do(instance: str, steps: int, mode: AutoresetMode) -> None:
    """`make_vec` with `max_episode_steps` gives what single environments behind `TimeLimit` give, in every mode."""
    windows = fleetgym.load_instance(instance).num_windows
    arguments = {"instance": instance, "max_episode_steps": min(steps, windows)}
    ours = gymnasium.make_vec("FleetAlloc-v0", num_envs=3, full_info=True, autoreset_mode=mode, **arguments)
    assert isinstance(ours, FleetAllocVectorEnv)
    theirs = SyncVectorEnv(
        [lambda: gymnasium.make("FleetAlloc-v0", **arguments)] * 3,
        autoreset_mode=mode,
    )
    rng, ends = np.random.default_rng(0), 0
    assert_same(ours.reset(seed=2), theirs.reset(seed=2))
    for t in range(2 * min(steps, windows) + 3):
        if mode == AutoresetMode.DISABLED and t == 2:  # from here on the episodes end at different times
            some = {"reset_mask": np.array([True, False, False])}
            assert_same(ours.reset(options=dict(some)), theirs.reset(options=dict(some)))
        actions = rng.integers(ours.single_action_space.nvec, size=(3, ours.single_action_space.nvec.size))
        found, expected = ours.step(actions), theirs.step(actions)
        for k in range(5):
            assert_same(found[k], expected[k], f"$[{t}][{k}]")
        over = found[2] | found[3]
        ends += int(over.sum())
        if mode == AutoresetMode.DISABLED and over.any():
            with pytest.raises(gymnasium.error.ResetNeeded):
                ours.step(actions)
            assert_same(ours.reset(options={"reset_mask": over}), theirs.reset(options={"reset_mask": over}))
    assert ends >= 3
    ours.close()
    theirs.close()


def test_seeds_are_those_of_the_single_environments() -> None:
    """Seeds and generators can be read as from `SyncVectorEnv`; what seeds nothing there does not here."""
    ours, theirs = FleetAllocVectorEnv(3, TOYS[0]), sync([TOYS[0]], 3, AutoresetMode.NEXT_STEP)
    for seed in (7, [5, 0, 9]):
        for envs in (ours, theirs):
            envs.reset(seed=seed)
        assert ours.np_random_seed == theirs.np_random_seed
        assert [rng.random() for rng in ours.np_random] == [rng.random() for rng in theirs.np_random]
    assert ours.np_random_seed == (5, 0, 9)
    ours.reset(seed=np.int64(7))
    assert ours.np_random_seed == (7, 8, 9)
    ours.reset(seed=[None, 1, None])
    assert ours.np_random_seed == (7, 1, 9)
    fresh = FleetAllocVectorEnv(2, TOYS[0])
    assert all(isinstance(rng, np.random.Generator) for rng in fresh.np_random)
    for seed in (
        1.5,
        "12",
        {0: 1, 1: 2, 2: 3},
        -1,
        [1, -2, 3],
        [1, 2.0, 3],
        ["1", "2", "3"],
        True,
        {1, 2, 3},
    ):
        with pytest.raises(FleetgymError, match="seed: expected"):
            ours.reset(seed=seed)


@pytest.mark.parametrize(
    "wrong",
    [
        {"seed": [1, 2, "x"]},
        {"options": {"scenario": 10**6}},
        {"options": {"scenario": "nobody"}},
        {"options": {"scenarios": 0}},
        {"options": {"scenario": fleetgym.load_scenarios("fleet-v0/toy/drop")[0]}},
        {"options": {"reset_mask": np.zeros(3, dtype=bool)}},
    ],
    ids=str,
)
def test_a_failed_reset_changes_nothing(wrong: dict) -> None:
    """Generators, scenarios and episodes go on as if it had not been called."""
    ours, twin = (FleetAllocVectorEnv(3, "fleet-v0/toy/two-pools", full_info=True) for _ in range(2))
    for envs in (ours, twin):
        envs.reset(seed=1)
    with pytest.raises(FleetgymError):
        ours.reset(**{"seed": [4, 5, 6], **wrong})
    actions = np.ones((3, 2), dtype=np.int64)
    for _ in range(ours.instances[0].num_windows + 3):  # into the episodes that are drawn next
        assert_same(ours.step(actions), twin.step(actions))


@pytest.mark.parametrize(
    "wrong",
    [
        {"num_envs": 2.0},
        {"num_envs": 0},
        {"num_envs": True},
        {"num_threads": 1.0},
        {"full_info": "x"},
        {"max_episode_steps": 0},
        {"max_episode_steps": 2.5},
    ],
    ids=str,
)
def test_arguments_of_another_kind_are_named(wrong: dict) -> None:
    """Fractions of environments, and flags that are none."""
    with pytest.raises(FleetgymError, match=next(iter(wrong))):
        FleetAllocVectorEnv(**{"num_envs": 2, "instance": TOYS[0], **wrong})


def test_views_want_the_whole_info() -> None:
    """A row of a batch's infos updates a view if it holds everything, and says what to do if not."""
    for full in (True, False):
        envs = FleetAllocVectorEnv(2, TOYS[0], full_info=full)
        _, infos = envs.reset(seed=0)
        row = {name: values[1] for name, values in infos.items() if not name.startswith("_")}
        view = fleetgym.View(envs.instances[0])
        if full:
            view.update(row)
            assert np.array_equal(view.running, row["running"])
        else:
            with pytest.raises(FleetgymError, match="lacks running.*full_info=True"):
                view.update(row)


def test_attributes_and_calls_are_those_of_separate_environments() -> None:
    """`call`, `get_attr` and `set_attr` answer as `SyncVectorEnv` does, environment by environment."""
    name = "fleet-v0/dev/drop-s-001"
    ours = FleetAllocVectorEnv(2, name)
    theirs = SyncVectorEnv([lambda: FleetAllocEnv(name)] * 2)
    for envs in (ours, theirs):
        envs.reset(seed=3)
        envs.set_attr("label", ["a", "b"])
        envs.set_attr("level", np.arange(3))
    assert ours.get_attr("label") == theirs.get_attr("label") == ("a", "b")
    assert [level.tolist() for level in ours.call("level")] == [[0, 1, 2]] * 2
    for name in ("np_random_seed", "render_mode", "metadata", "observation_space"):
        assert ours.get_attr(name) == theirs.get_attr(name), name
    assert [one.content_hash for one in ours.get_attr("instance")] == [
        one.content_hash for one in theirs.get_attr("instance")
    ]
    assert [space.nvec.tolist() for space in ours.get_attr("actions")] == [
        space.nvec.tolist() for space in theirs.get_attr("actions")
    ]
    assert np.array_equal(ours.call("action_masks"), theirs.call("action_masks"))
    for envs in (ours, theirs):
        envs.set_attr("np_random", [np.random.default_rng(5), np.random.default_rng(6)])
    assert ours.get_attr("np_random_seed") == theirs.get_attr("np_random_seed") == (-1, -1)
    assert_same(ours.reset()[0], theirs.reset()[0])
    with pytest.raises(AttributeError):
        ours.get_attr("nothing")
    with pytest.raises(ValueError, match="expected 2 values"):
        ours.set_attr("label", ["a"])
    for name in ("instance", "action_space", "step"):
        with pytest.raises(FleetgymError):
            ours.set_attr(name, None)
    with pytest.raises(FleetgymError, match="call the batch's step"):
        ours.call("step", 0)


def test_a_copy_plays_by_itself() -> None:
    """`copy.copy` of a batch or of an environment is a true copy: what one plays, the other does not see."""
    batch, single = FleetAllocVectorEnv(2, "fleet-v0/toy/two-pools"), FleetAllocEnv("fleet-v0/toy/two-pools")
    for env in (batch, single):
        env.reset(seed=1)
        again = copy.copy(env)
        action = env.action_space.sample()
        first = env.step(action)
        env.step(action)
        assert_same(first, again.step(action))


def test_a_specification_can_be_written() -> None:
    """An instance in the arguments becomes its file's content, in a batch as in a single environment."""
    instance = fleetgym.load_instance("fleet-v0/toy/two-pools")
    made = gymnasium.make("fleetgym:FleetAlloc-v0", instance=instance)
    again = gymnasium.make(EnvSpec.from_json(made.spec.to_json()))
    assert again.unwrapped.instance.content_hash == instance.content_hash
    batch = gymnasium.make_vec("fleetgym:FleetAlloc-v0", num_envs=2, instance=[instance, instance])
    again = gymnasium.make_vec(EnvSpec.from_json(batch.spec.to_json()), num_envs=2)
    assert again.instances[1].content_hash == instance.content_hash


def _threaded() -> tuple[FleetAllocVectorEnv, np.ndarray]:
    """Return a batch whose threads run, as those of 256 environments do on two processors; and actions."""
    envs = FleetAllocVectorEnv(256, "fleet-v0/toy/two-pools", num_threads=2)
    envs.reset(seed=1)
    actions = envs.action_space.sample()
    envs.step(actions)
    return envs, actions


def _step_in_child(envs: FleetAllocVectorEnv, actions: np.ndarray, answers: Any) -> None:
    answers.put(envs.step(actions)[1])
    envs.close()


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system does not fork")
def test_threads_are_started_anew_in_a_forked_process() -> None:
    """A child that inherits a batch with threads, as a data loader's worker does, plays on as its parent does."""
    envs, actions = _threaded()
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    child = context.Process(target=_step_in_child, args=(envs, actions, answers))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns of forks beside threads
        child.start()
    try:
        inherited = answers.get(timeout=120)
        child.join(timeout=120)
        assert child.exitcode == 0
    finally:
        child.kill()
    assert np.array_equal(inherited, envs.step(actions)[1])
    envs.close()


@pytest.mark.rl
def test_a_data_loader_steps_a_batch_that_its_worker_inherits() -> None:
    """PyTorch's workers are forks on Linux: each plays on as its parent does, and none hangs."""
    data = pytest.importorskip("torch.utils.data", reason="PyTorch is not there")
    envs, actions = _threaded()

    class Steps(data.Dataset):
        """Rewards of the first step after the fork, and of the next one."""

        def __len__(self) -> int:
            return 2

        def __getitem__(self, k: int) -> np.ndarray:
            return envs.step(actions)[1]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        loader = data.DataLoader(
            Steps(), batch_size=None, num_workers=1, timeout=120, multiprocessing_context="fork"
        )
        played = [np.asarray(rewards) for rewards in loader]
    for rewards in played:
        assert np.array_equal(rewards, envs.step(actions)[1])
    envs.close()


def test_nothing_happens_after_close() -> None:
    """A step of what is closed would be of an episode that nobody began."""
    single = gymnasium.make("fleetgym:FleetAlloc-v0", instance="fleet-v0/toy/two-pools")
    single.reset(seed=0)
    single.close()
    with pytest.raises(gymnasium.error.ResetNeeded):
        single.step(single.action_space.sample())
    batch = gymnasium.make_vec("fleetgym:FleetAlloc-v0", num_envs=2, instance="fleet-v0/toy/two-pools")
    batch.reset(seed=0)
    batch.close()
    for act in (lambda: batch.step(batch.action_space.sample()), batch.reset):
        with pytest.raises(gymnasium.error.ClosedEnvironmentError):
            act()
