"""From a training to a policy that plays: files that load anywhere, callbacks, and policies for every instance."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import fleetgym
from fleetgym import View
from fleetgym.cli.check_agent import _is_boxed
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.wrappers import for_learning
from fleetgym.files.errors import FleetgymError

pytestmark = pytest.mark.rl
sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not there")
torch = pytest.importorskip("torch", reason="PyTorch is not there")

TOY, OU, TRACE = "fleet-v0/toy/drop", "fleet-v0/dev/ou-s-001", "fleet-v0/dev/trace-m-001"
AGENT = 'from fleetgym.envs.sb3 import load_policy\n\n\ndef agent():\n    return load_policy("mine.zip")\n'
QUICK = {"n_steps": 16, "batch_size": 16, "n_epochs": 1, "seed": 0}


def train(path: Path, instance: object = TOY, policy: object = "MlpPolicy") -> object:
    """Train a little, and save the policy."""
    from fleetgym.envs.sb3 import SavePolicy, make_envs, recipe

    model = sb3.PPO(env=make_envs(instance, num_envs=4), **recipe(policy) | QUICK)
    return model.learn(1200, SavePolicy(path, verbose=0))


def test_a_policy_plays_without_instances_and_from_any_folder(tmp_path: Path) -> None:
    """It is found beside the agent's file, where no manifest is; and it plays a window in the box."""
    train(tmp_path / "mine.zip")
    (tmp_path / "agent.py").write_text(AGENT)
    code = (
        f"import fleetgym; print(fleetgym.make_agent({str(tmp_path / 'agent.py')!r} + ':agent').trained_on)"
    )
    call = {"cwd": "/", "env": {**os.environ, "FLEETGYM_INSTANCES": str(tmp_path)}}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, **call)
    assert TOY in done.stdout
    try:
        from fleetgym.evaluation.isolation.sandbox import check_box

        check_box()
    except FleetgymError as error:
        pytest.skip(str(error))
    check = _is_boxed(f"{tmp_path / 'agent.py'}:agent", TOY)
    assert check.passed, check


def test_callbacks_of_stable_baselines3_save_what_loads(
    tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """`SavePolicy` saves at events and at the end, logs the day, and says what comes next; other files say how."""
    from stable_baselines3.common.callbacks import EvalCallback, EveryNTimesteps

    from fleetgym.envs.sb3 import SavePolicy, load_policy, make_envs, recipe

    evaluation = EvalCallback(
        make_envs(TOY, num_envs=1),
        callback_on_new_best=SavePolicy(tmp_path / "best.zip"),
        best_model_save_path=str(tmp_path),
        eval_freq=100,
        n_eval_episodes=1,
        verbose=0,
    )
    latest = EveryNTimesteps(500, SavePolicy(tmp_path / "latest.zip"))
    model = sb3.PPO(env=make_envs(TOY, num_envs=4), **recipe() | QUICK)
    model.learn(1200, [evaluation, latest, SavePolicy(tmp_path / "last.zip")])
    for name in ("best.zip", "latest.zip", "last.zip"):
        assert TOY in load_policy(tmp_path / name).trained_on
    printed = capsys.readouterr().out
    assert "% against margin" in printed
    assert "next: fleetgym check-agent last.py:agent --official" in printed
    assert "For a row on a suite, train recipe(WorkloadPolicy)" in printed
    assert torch.get_num_threads() == 1  # more would wait for each other on a busy machine
    assert {"day_usd", "day_percent", "day_miss_share"} <= model.ep_info_buffer[0].keys()
    with pytest.raises(FleetgymError, match=r"load it where its environments are.*SavePolicy"):
        load_policy(tmp_path / "best_model.zip")


def learning_env(instance: str = TOY) -> gymnasium.Env:
    """Return an environment; can be called in another process."""
    return for_learning(gymnasium.make("fleetgym:FleetAlloc-v0", instance=instance))


@pytest.mark.parametrize("wrapper", ["RescaleAction", "TransformObservation", "FrameStack", "Normalize"])
def test_what_a_file_does_not_hold_is_refused_before_training(wrapper: str, tmp_path: Path) -> None:
    """Wrappers that change what the policy sees or does, of one environment or of several."""
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack, VecNormalize

    from fleetgym.envs.sb3 import SavePolicy, make_envs, recipe
    from fleetgym.envs.workload_policy import WorkloadPolicy

    one, policy, named = learning_env(), "MlpPolicy", wrapper
    if wrapper == "RescaleAction":
        envs = gymnasium.wrappers.RescaleAction(one, np.float32(-2), np.float32(2))
    elif wrapper == "TransformObservation":
        envs = gymnasium.wrappers.TransformObservation(one, lambda seen: 0 * seen, None)
    elif wrapper == "FrameStack":
        envs = VecFrameStack(DummyVecEnv([lambda: one]), 2)
    else:
        envs, policy, named = VecNormalize(make_envs([TOY, OU])), WorkloadPolicy, "norm_obs=False"
    model = sb3.PPO(env=envs, **recipe(policy) | QUICK)
    with pytest.raises(FleetgymError, match=named):
        model.learn(16, SavePolicy(tmp_path / "mine.zip"))
    assert model.num_timesteps == 0


def test_what_changes_neither_is_saved(tmp_path: Path) -> None:
    """Statistics, ends and rewards of wrappers, and environments in other processes."""
    from gymnasium.wrappers import RecordEpisodeStatistics, TimeLimit, TransformReward
    from stable_baselines3.common.vec_env import SubprocVecEnv, VecMonitor, VecNormalize

    from fleetgym.envs.sb3 import load_policy, save_policy

    env = TransformReward(TimeLimit(RecordEpisodeStatistics(learning_env()), 9), lambda reward: 2 * reward)
    others = SubprocVecEnv([learning_env] * 2, start_method="spawn")
    for envs in (env, VecMonitor(VecNormalize(others))):
        model = sb3.PPO("MlpPolicy", envs, device="cpu", **QUICK)
        assert TOY in load_policy(save_policy(model, tmp_path / "mine.zip")).trained_on
    others.close()


def test_a_policy_of_workloads_plays_every_instance(tmp_path: Path) -> None:
    """It learns from padded instances, plays others, and can start from the weights of the agent `ppo`."""
    from fleetgym.baselines.ppo.agent import WEIGHTS
    from fleetgym.baselines.ppo.network import load_weights, workload_scores
    from fleetgym.envs.sb3 import load_policy, make_envs, recipe, save_policy
    from fleetgym.envs.workload_policy import CRITIC, CRITIC_NAMES, WorkloadPolicy

    model = train(tmp_path / "mine.zip", [TOY, OU], WorkloadPolicy)
    assert model.observation_space.shape == (4, 20)
    agent = load_policy(tmp_path / "mine.zip")
    assert {TOY, OU} <= {*agent.trained_on}
    assert agent.misfit(fleetgym.load_instance(TRACE)) is None
    started = sb3.PPO(env=make_envs([TOY, OU]), **recipe(WorkloadPolicy))
    started.policy.start_from(WEIGHTS, CRITIC)
    with np.load(CRITIC) as archive:
        for name, theirs in CRITIC_NAMES.items():
            assert np.array_equal(started.policy.state_dict()[name].numpy(), archive[theirs])
    for files in ([tmp_path / "mine.zip"], [WEIGHTS, WEIGHTS]):
        with pytest.raises(FleetgymError, match="no weights"):
            started.policy.start_from(*files)
    agent = load_policy(save_policy(started, tmp_path / "every"))
    seen = np.random.default_rng(0).normal(size=(6, 20)).astype(np.float32)
    expected = np.clip(workload_scores(load_weights(WEIGHTS, 20, 2), seen), -1.0, 1.0)
    assert agent.policy(seen, None) == pytest.approx(expected, abs=1e-6)
    env = FleetAllocEnv(TRACE)
    agent.reset(View(env.instance), seed=0)
    env.step(agent.act(*env.reset(options={"scenario": 0})))


@pytest.mark.parametrize(("how", "why"), [({"actions": "discrete"}, "two margins"), ({"flat": True}, "flat")])
def test_a_policy_of_workloads_needs_workloads(how: dict, why: str) -> None:
    """Other actions and observations of `for_learning` are refused with what to use."""
    from fleetgym.envs.sb3 import make_envs, recipe
    from fleetgym.envs.workload_policy import WorkloadPolicy

    with pytest.raises(FleetgymError, match=why):
        sb3.PPO(env=make_envs(TOY, 2, **how), **recipe(WorkloadPolicy))


def test_padding_changes_nothing(tmp_path: Path) -> None:
    """Rows of zeros leave means, values and likelihoods as they are."""
    from fleetgym.envs.sb3 import make_envs, recipe
    from fleetgym.envs.workload_policy import WorkloadPolicy

    small, wide = (sb3.PPO(env=make_envs(one), **recipe(WorkloadPolicy)).policy for one in (TOY, OU))
    wide.load_state_dict(small.state_dict())
    with torch.no_grad():
        wide.log_std.fill_(-0.7)
        small.log_std.fill_(-0.7)
    seen, action = torch.randn(5, 1, 20), torch.randn(5, 1, 2)
    padded = torch.cat((seen, torch.zeros(5, 3, 20)), dim=1), torch.cat((action, torch.zeros(5, 3, 2)), dim=1)
    (value, likely, _), (same_value, padded_likely, _) = (
        small.evaluate_actions(seen, action.flatten(1)),
        wide.evaluate_actions(padded[0], padded[1].flatten(1)),
    )
    assert torch.allclose(value, same_value, atol=1e-6)
    silent = torch.distributions.Normal(0.0, 1.0).log_prob(torch.zeros(6)).sum()
    assert torch.allclose(likely, padded_likely - silent, atol=1e-5)


def test_masks_of_replicas_are_none_of_margins() -> None:
    """sb3-contrib's `ActionMasker` finds the masks of what it wraps, and errors say what to do."""
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not there")
    from sb3_contrib.common.wrappers import ActionMasker

    env = for_learning(gymnasium.make("fleetgym:FleetAlloc-v0", instance=TOY), actions="discrete")
    settings = {**QUICK, "device": "cpu"}
    contrib.MaskablePPO("MlpPolicy", ActionMasker(env, "action_masks"), **settings).learn(16)
    with pytest.raises(FleetgymError, match="ask the wrapped environment"):
        ActionMasker(env, lambda one: one.unwrapped.action_masks()).action_masks()
