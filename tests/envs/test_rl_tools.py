"""Learners run unmodified: stable-baselines3's PPO, sb3-contrib's MaskablePPO and a loop in CleanRL's style."""

from __future__ import annotations

import functools
import json
import zipfile
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordEpisodeStatistics

from fleetgym import View, load_scenarios
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.wrappers import for_learning
from fleetgym.files.errors import FleetgymError

pytestmark = pytest.mark.rl

TOY = "fleet-v0/toy/drop"
SMALL = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0, "device": "cpu"}


def make(learning: bool = False, instance: str = TOY, actions: str = "margins") -> gymnasium.Env:
    """Return the environment, for learning or as it is; can be called in another process."""
    env = gymnasium.make("fleetgym:FleetAlloc-v0", instance=instance)
    return for_learning(env, actions=actions) if learning else env


@pytest.mark.parametrize("learning", [False, True])
@pytest.mark.parametrize("instance", [TOY, "fleet-v0/dev/ou-s-001"])
def test_ppo(learning: bool, instance: str) -> None:
    """PPO learns a little from the `Dict` observation and from the wrapped one, and predicts valid actions."""
    sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not there")
    env = make(learning, instance)
    model = sb3.PPO("MlpPolicy" if learning else "MultiInputPolicy", env, **SMALL)
    model.learn(48)
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(model.predict(observation)[0])


def test_maskable_ppo() -> None:
    """MaskablePPO finds the masks of a single environment, and never leaves them."""
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not there")
    env = make(False, "fleet-v0/dev/drop-s-001")
    model = contrib.MaskablePPO("MultiInputPolicy", env, **SMALL)
    model.learn(32)
    observation, info = env.reset(seed=0)
    for _ in range(10):
        mask = env.get_wrapper_attr("action_masks")()
        assert np.array_equal(mask, info["action_mask"])
        action, _ = model.predict(observation, action_masks=mask)
        starts = np.concatenate(([0], np.cumsum(env.action_space.nvec)[:-1]))
        assert mask[starts + action].all()
        observation, _, _, _, info = env.step(action)


@pytest.mark.parametrize("kind", ["DummyVecEnv", "SubprocVecEnv"])
def test_maskable_ppo_vectorised(kind: str) -> None:
    """It finds the masks of several environments, in this process and in others."""
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not there")
    from sb3_contrib.common.maskable.utils import get_action_masks
    from stable_baselines3.common import vec_env

    arguments = {"start_method": "spawn"} if kind == "SubprocVecEnv" else {}
    envs = getattr(vec_env, kind)([functools.partial(make, True, TOY, "discrete")] * 2, **arguments)
    model = contrib.MaskablePPO("MlpPolicy", envs, **SMALL)
    model.learn(64)
    envs.reset()
    assert get_action_masks(envs).shape == (2, envs.action_space.n)
    envs.close()


def test_cleanrl_style_loop() -> None:
    """A plain PPO loop over Gymnasium's vector environment runs, logs episodes and changes its weights."""
    torch = pytest.importorskip("torch", reason="PyTorch is not there")
    from torch.distributions import Normal

    torch.manual_seed(0)
    torch.set_num_threads(1)
    makers = [lambda: RecordEpisodeStatistics(make(True))] * 4
    envs = gymnasium.vector.SyncVectorEnv(makers)
    shape = envs.single_action_space.shape
    width, numbers = int(np.prod(envs.single_observation_space.shape)), int(np.prod(shape))
    body = torch.nn.Sequential(torch.nn.Linear(width, 32), torch.nn.Tanh())
    actor, critic = torch.nn.Linear(32, numbers), torch.nn.Linear(32, 1)
    parameters = [*body.parameters(), *actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, lr=1e-3)
    before = actor.weight.detach().clone()

    def judge(observation: object, action: object = None) -> tuple:
        hidden = body(torch.as_tensor(observation).flatten(1))
        law = Normal(actor(hidden), 0.3)
        action = law.sample() if action is None else action
        return action, law.log_prob(action).sum(dim=1), critic(hidden)[:, 0]

    observation, _ = envs.reset(seed=0)
    returns = []
    for _ in range(2):
        rows = []
        for _ in range(24):
            with torch.no_grad():
                action, log_prob, value = judge(observation)
            next_observation, reward, terminated, truncated, info = envs.step(
                action.numpy().reshape(-1, *shape)
            )
            rows.append((observation, action, log_prob, value, reward, terminated | truncated))
            observation = next_observation
            if "episode" in info:
                returns += info["episode"]["r"][info["_episode"]].tolist()
        advantage, running = [], torch.zeros(4)
        with torch.no_grad():
            next_value = judge(observation)[2]
        for _, _, _, value, reward, done in reversed(rows):
            alive = torch.as_tensor(1.0 - done)
            running = (
                torch.as_tensor(reward) + 0.99 * alive * next_value - value + 0.99 * 0.95 * alive * running
            )
            advantage.append(running)
            next_value = value
        advantage = torch.stack(advantage[::-1]).float().flatten()
        seen = torch.as_tensor(np.concatenate([row[0] for row in rows]))
        action, old, value = (torch.cat([row[k] for row in rows]) for k in (1, 2, 3))
        for _ in range(2):
            _, log_prob, new_value = judge(seen, action)
            ratio = (log_prob - old).exp()
            scaled = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
            policy_loss = -torch.min(ratio * scaled, ratio.clamp(0.8, 1.2) * scaled).mean()
            loss = policy_loss + 0.5 * ((new_value - (advantage + value)) ** 2).mean()
            assert torch.isfinite(loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert returns
    assert all(np.isfinite(returns))
    assert not torch.equal(before, actor.weight)
    envs.close()


def test_learning_environments_pass_the_checker() -> None:
    """stable-baselines3's checker accepts the wrapped environments."""
    checker = pytest.importorskip(
        "stable_baselines3.common.env_checker", reason="stable-baselines3 is not there"
    )
    for env in (make(True), make(True, actions="discrete")):
        checker.check_env(env, warn=True)


@pytest.mark.parametrize("instance", [TOY, "fleet-v0/dev/ou-s-001"])
def test_batched_vec_env_is_the_dummy_one(instance: str) -> None:
    """Observations, rewards, ends, last observations and masks are those of SB3's own, over the end of an episode."""
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not there")
    from sb3_contrib.common.maskable.utils import get_action_masks
    from stable_baselines3.common.vec_env import DummyVecEnv

    from fleetgym.envs.sb3 import BatchedVecEnv

    batch = gymnasium.make_vec("FleetAlloc-v0", num_envs=3, instance=instance, autoreset_mode="SameStep")
    vec_envs = BatchedVecEnv(batch), DummyVecEnv([functools.partial(make, False, instance)] * 3)
    seen = []
    for vec_env in vec_envs:
        vec_env.seed(5)
        seen.append(vec_env.reset())
    windows, ends = batch.instances[0].num_windows, 0
    rng = np.random.default_rng(0)
    for _ in range(windows + 5):
        assert all(np.array_equal(seen[0][key], seen[1][key]) for key in seen[1])
        masks = [get_action_masks(vec_env) for vec_env in vec_envs]
        assert np.array_equal(*masks)
        actions = rng.integers(batch.single_action_space.nvec, size=(3, batch.single_action_space.nvec.size))
        (seen[0], *mine), (seen[1], *theirs) = (vec_env.step(actions) for vec_env in vec_envs)
        assert np.array_equal(mine[0], theirs[0])
        assert np.array_equal(mine[1], theirs[1])
        for a, b in zip(mine[2], theirs[2], strict=True):
            assert a["cost"] == b["cost"]
            assert ("terminal_observation" in a) == ("terminal_observation" in b)
            for key, value in b.get("terminal_observation", {}).items():
                assert np.array_equal(a["terminal_observation"][key], value)
                ends += 1
    assert ends > 0
    for vec_env in vec_envs:
        vec_env.close()


def test_maskable_ppo_on_the_batched_environment() -> None:
    """MaskablePPO trains on it, with statistics of episodes; another autoreset mode is refused."""
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not there")
    from stable_baselines3.common.vec_env import VecMonitor

    from fleetgym.envs.sb3 import BatchedVecEnv
    from fleetgym.files.errors import FleetgymError

    envs = gymnasium.make_vec("FleetAlloc-v0", num_envs=8, instance=TOY, autoreset_mode="SameStep")
    model = contrib.MaskablePPO("MultiInputPolicy", VecMonitor(BatchedVecEnv(envs)), **SMALL)
    model.learn(256)
    assert len(model.ep_info_buffer) > 0
    with pytest.raises(FleetgymError, match="SameStep"):
        BatchedVecEnv(gymnasium.make_vec("FleetAlloc-v0", num_envs=2, instance=TOY))
    envs.close()


def test_batched_vec_env_takes_options_and_tells_instances() -> None:
    """Options reach the next reset only, as SB3's own environments have it; instances are each environment's own."""
    pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not there")
    from stable_baselines3.common.vec_env import DummyVecEnv

    from fleetgym.envs.sb3 import BatchedVecEnv

    batch = gymnasium.make_vec("FleetAlloc-v0", num_envs=2, instance=TOY, autoreset_mode="SameStep")
    ours, theirs = BatchedVecEnv(batch), DummyVecEnv([make] * 2)
    given = load_scenarios(TOY)[0]
    choices = ({"scenario": 0}, None, [{"scenario": given}] * 2, None)
    for options in choices:
        for vec_env in (ours, theirs):
            vec_env.seed(3)
            vec_env.set_options(options)
        for _ in range(2):  # the second time without seeds and options
            mine, other = ours.reset(), theirs.reset()
            assert all(np.array_equal(mine[key], other[key]) for key in mine)
            for _ in range(3):
                action = np.zeros((2, ours.action_space.nvec.size), dtype=int)
                a, b = ours.step(action), theirs.step(action)
                assert np.array_equal(a[1], b[1])
                assert all(np.array_equal(a[0][key], b[0][key]) for key in a[0])
    ours.set_options([{"scenario": 0}, {}])
    with pytest.raises(FleetgymError, match="set_options"):
        ours.reset()
    names = ["fleet-v0/dev/drop-s-001", "fleet-v0/dev/drop-s-002"]
    mixed = BatchedVecEnv(
        gymnasium.make_vec("FleetAlloc-v0", num_envs=3, instance=names, autoreset_mode="SameStep")
    )
    assert [one.id for one in mixed.get_attr("instance")] == ["drop-s-001", "drop-s-002", "drop-s-001"]
    assert [one.id for one in mixed.get_attr("instance", [1])] == ["drop-s-002"]
    assert mixed.get_attr("render_mode") == [None, None, None]
    for name in ("get_state", "set_state", "reset", "render"):
        with pytest.raises(FleetgymError, match=f"no {name} of their own"):
            mixed.env_method(name)


@pytest.mark.parametrize("kind", ["batched", "single"])
@pytest.mark.parametrize("normalized", [False, True])
def test_a_saved_policy_is_scored_as_it_was_trained(kind: str, normalized: bool, tmp_path: Path) -> None:
    """It knows instances, wrappers and statistics; a file that does not say so is refused."""
    sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not there")
    from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

    from fleetgym.envs.sb3 import BatchedVecEnv, load_policy, save_policy

    if kind == "batched":
        batch = gymnasium.make_vec("FleetAlloc-v0", num_envs=2, instance=TOY, autoreset_mode="SameStep")
        envs = BatchedVecEnv(for_learning(batch))
    else:
        envs = DummyVecEnv([functools.partial(make, True)])
    if normalized:
        envs = VecNormalize(envs)
    model = sb3.PPO("MlpPolicy", envs, **SMALL)
    model.learn(64)
    path = save_policy(model, tmp_path / "mine")
    agent = load_policy(path)
    assert TOY in agent.trained_on
    assert (agent.statistics is not None) == normalized
    plain, single = FleetAllocEnv(TOY), for_learning(FleetAllocEnv(TOY))
    observation, info = plain.reset(options={"scenario": 0})
    seen, _ = single.reset(options={"scenario": 0})
    agent.reset(View(plain.instance), seed=0)
    for _ in range(5):
        shown = envs.normalize_obs(seen) if normalized else seen
        seen, _, _, _, told = single.step(model.predict(shown, deterministic=True)[0])
        observation, _, _, _, info = plain.step(agent.act(observation, info))
        assert info["cost"] == told["cost"]
    model.save(tmp_path / "plain.zip")
    with pytest.raises(FleetgymError, match="does not say how it was trained"):
        load_policy(tmp_path / "plain.zip")
    with zipfile.ZipFile(path) as archive:
        record = json.loads(archive.read("fleetgym.json"))
    assert record["is_normalized"] == normalized
    record.update(is_normalized=True)
    record.pop("mean", None)
    with zipfile.ZipFile(tmp_path / "plain.zip", "a") as archive:
        archive.writestr("fleetgym.json", json.dumps(record))
    with pytest.raises(FleetgymError, match="statistics are missing"):
        load_policy(tmp_path / "plain.zip")
    with pytest.raises(FleetgymError, match="not trained behind for_learning"):
        save_policy(sb3.PPO("MultiInputPolicy", make(), **SMALL), tmp_path / "raw")
