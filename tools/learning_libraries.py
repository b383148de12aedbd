"""Learn on one instance for a CPU minute with each library of reinforcement learning, and judge what came out.

    python -m tools.learning_libraries --json results/libraries.json                  # goes on where it stopped
    python -m tools.learning_libraries --json results/libraries.json --learners DQN

Each function below is what a user would write, with the library's defaults but for the size of its batches. It learns
on days drawn from the instance's own processes, with rewards against `margin`. All policies, without noise, play the
same fresh days as `hold` and `margin`. A library that is not installed is left out, and said so.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from fleetgym.cli.process import run_program
from fleetgym.cli.words import of
from fleetgym.envs.wrappers import for_learning
from fleetgym.files.documents import read_json, write_json
from fleetgym.files.errors import FleetgymError
from fleetgym.files.quantities import COUNT, LIMIT_S
from fleetgym.runtime.programs import program
from fleetgym.scoring.statistics import FamilyMean
from tools.fresh_days import cell
from tools.learning_minute import Policy, agent_usd, fresh_usd

INSTANCE = "fleet-v1/dev/ou-s-101"

#: Tells whether the time is over.
Over = Callable[[], bool]


def batch(instance: str, count: int = 32, **how: Any) -> Any:
    """Return environments side by side, as learners get them."""
    task = {"instance": instance, "num_envs": count, "autoreset_mode": "SameStep"}
    return for_learning(gymnasium.make_vec("fleetgym:FleetAlloc-v0", **task), reference="margin", **how)


def single(instance: str) -> gymnasium.Env[Any, Any]:
    """Return one environment whose observations and actions are vectors."""
    env = for_learning(gymnasium.make("fleetgym:FleetAlloc-v0", instance=instance), reference="margin")
    flat = spaces.flatten_space(env.action_space)
    return gymnasium.wrappers.TransformAction(
        gymnasium.wrappers.FlattenObservation(env),
        lambda action: np.clip(action, -1, 1).reshape(env.action_space.shape),
        flat,
    )


def stopping(over: Over) -> Any:
    """Return a callback that ends the training of stable-baselines3."""
    from stable_baselines3.common.callbacks import BaseCallback

    class Stop(BaseCallback):
        def _on_step(self) -> bool:
            return not over()

    return Stop()


def sb3_ppo(instance: str, over: Over) -> tuple[Policy, int]:
    """Learn with stable-baselines3."""
    from stable_baselines3 import PPO

    from fleetgym.envs.sb3 import BatchedVecEnv

    envs = BatchedVecEnv(batch(instance))
    how = {"n_steps": 96, "batch_size": 512, "gamma": 0.97, "policy_kwargs": {"log_std_init": -1.2}}
    model = PPO("MlpPolicy", envs, seed=0, device="cpu", **how)
    model.learn(10**9, callback=stopping(over))
    return lambda seen: model.predict(seen, deterministic=True)[0], model.num_timesteps


def sb3_recurrent_ppo(instance: str, over: Over) -> tuple[Policy, int]:
    """Learn with sb3-contrib, with a memory."""
    from sb3_contrib import RecurrentPPO

    from fleetgym.envs.sb3 import BatchedVecEnv

    envs = BatchedVecEnv(batch(instance))
    how = {"n_steps": 96, "batch_size": 512, "gamma": 0.97, "policy_kwargs": {"log_std_init": -1.2}}
    model = RecurrentPPO("MlpLstmPolicy", envs, seed=0, device="cpu", **how)
    model.learn(10**9, callback=stopping(over))
    memory: list[Any] = [None]

    def policy(seen: np.ndarray) -> np.ndarray:
        action, memory[0] = model.predict(seen, memory[0], deterministic=True)
        return action

    return policy, model.num_timesteps


def sb3_maskable_ppo(instance: str, over: Over) -> tuple[Policy, int]:
    """Learn with sb3-contrib: discrete actions, of which a mask rules some out."""
    from sb3_contrib import MaskablePPO

    from fleetgym.envs.sb3 import BatchedVecEnv

    envs = BatchedVecEnv(batch(instance, actions="discrete"))
    model = MaskablePPO("MlpPolicy", envs, n_steps=96, batch_size=512, gamma=0.97, seed=0, device="cpu")
    model.learn(10**9, callback=stopping(over))
    return lambda seen: model.predict(seen, deterministic=True)[0], model.num_timesteps


def sb3_dqn(instance: str, over: Over) -> tuple[Policy, int]:
    """Learn the values of discrete actions with stable-baselines3."""
    from stable_baselines3 import DQN

    from fleetgym.envs.sb3 import BatchedVecEnv

    envs = BatchedVecEnv(batch(instance, actions="discrete"))
    model = DQN("MlpPolicy", envs, gamma=0.9, buffer_size=200_000, seed=0, device="cpu")
    model.learn(10**9, callback=stopping(over))
    return lambda seen: model.predict(seen, deterministic=True)[0], model.num_timesteps


def rllib_ppo(instance: str, over: Over) -> tuple[Policy, int]:
    """Learn with RLlib in this process."""
    import torch
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.tune.registry import register_env

    register_env("fleet", lambda _: single(instance))
    config = PPOConfig().environment("fleet").debugging(seed=0, log_level="ERROR")
    config = config.env_runners(num_env_runners=0, num_envs_per_env_runner=8, create_env_on_local_worker=True)
    learner = config.training(train_batch_size=2304, minibatch_size=512, gamma=0.97).build_algo()
    windows = 0
    while not over():
        windows = int(learner.train()["num_env_steps_sampled_lifetime"])
    module = learner.get_module()

    def policy(seen: np.ndarray) -> np.ndarray:
        rows = torch.as_tensor(seen.reshape(len(seen), -1), dtype=torch.float32)
        law = module.forward_inference({"obs": rows})["action_dist_inputs"]
        return law.detach().numpy()[:, : law.shape[1] // 2].reshape(*seen.shape[:2], 2).clip(-1, 1)

    return policy, windows


def torchrl_ppo(instance: str, over: Over) -> tuple[Policy, int]:
    """Learn with TorchRL."""
    import torch
    from tensordict.nn import NormalParamExtractor, TensorDictModule
    from torchrl.collectors import Collector
    from torchrl.envs import GymWrapper, SerialEnv
    from torchrl.modules import MLP, ProbabilisticActor, TanhNormal, ValueOperator
    from torchrl.objectives import ClipPPOLoss
    from torchrl.objectives.value import GAE

    torch.manual_seed(0)
    envs = SerialEnv(8, lambda: GymWrapper(single(instance)))
    width, size = envs.observation_spec["observation"].shape[-1], envs.action_spec.shape[-1]
    net = torch.nn.Sequential(MLP(width, 2 * size, num_cells=[64, 64]), NormalParamExtractor(scale_lb=0.1))
    actor = ProbabilisticActor(
        TensorDictModule(net, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )
    critic = ValueOperator(MLP(width, 1, num_cells=[64, 64]), ["observation"])
    loss, judge = ClipPPOLoss(actor, critic), GAE(gamma=0.97, lmbda=0.95, value_network=critic)
    optimizer, windows = torch.optim.Adam(loss.parameters(), 3e-4), 0
    for data in Collector(envs, actor, frames_per_batch=2304, total_frames=-1):
        if over():
            break
        windows += data.numel()
        judge(data)
        for _ in range(4):
            for rows in data.reshape(-1)[torch.randperm(data.numel())].split(512):
                losses = loss(rows)
                optimizer.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]).backward()
                optimizer.step()

    def policy(seen: np.ndarray) -> np.ndarray:
        rows = torch.as_tensor(seen.reshape(len(seen), -1), dtype=torch.float32)
        return torch.tanh(net(rows)[0]).detach().numpy().reshape(*seen.shape[:2], 2)

    return policy, windows


def tianshou_ppo(instance: str, over: Over) -> tuple[Policy, int]:
    """Learn with Tianshou."""
    import torch
    from tianshou.algorithm import PPO
    from tianshou.algorithm.modelfree.reinforce import ProbabilisticActorPolicy
    from tianshou.algorithm.optim import AdamOptimizerFactory
    from tianshou.data import Collector, VectorReplayBuffer
    from tianshou.env import DummyVectorEnv
    from tianshou.trainer import OnPolicyTrainerParams
    from tianshou.utils.net.common import Net
    from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
    from torch.distributions import Independent, Normal

    torch.manual_seed(0)
    env, envs = single(instance), DummyVectorEnv([lambda: single(instance)] * 8)
    nets = [Net(state_shape=env.observation_space.shape, hidden_sizes=(64, 64)) for _ in range(2)]
    actor = ContinuousActorProbabilistic(preprocess_net=nets[0], action_shape=env.action_space.shape)
    torch.nn.init.constant_(actor.sigma_param, -1.2)
    choice = ProbabilisticActorPolicy(
        actor=actor, dist_fn=lambda law: Independent(Normal(*law), 1), action_space=env.action_space
    )
    critic, optim = ContinuousCritic(preprocess_net=nets[1]), AdamOptimizerFactory(lr=3e-4)
    learner = PPO(policy=choice, critic=critic, optim=optim, gamma=0.97)
    collector = Collector(learner, envs, VectorReplayBuffer(2304, 8), exploration_noise=True)
    collector.reset()
    how = {"max_epochs": 1, "epoch_num_steps": 2304, "batch_size": 512, "update_step_num_repetitions": 4}
    how |= {"training_collector": collector, "collection_step_num_env_steps": 2304}
    windows = 0
    while not over():
        learner.run_training(OnPolicyTrainerParams(**how, verbose=False, show_progress=False))
        windows += 2304

    def policy(seen: np.ndarray) -> np.ndarray:
        law, _ = actor(torch.as_tensor(seen.reshape(len(seen), -1), dtype=torch.float32))
        return law[0].detach().numpy().reshape(*seen.shape[:2], 2).clip(-1, 1)

    return policy, windows


def cleanrl_ppo(instance: str, over: Over) -> tuple[Policy, int]:
    """Learn by a loop of one's own over the batch, in CleanRL's style."""
    import torch
    from torch.distributions import Normal

    torch.manual_seed(0)
    envs, count = batch(instance), 32
    seen, _ = envs.reset(seed=0)
    shape = envs.single_action_space.shape
    actor, critic = (
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(seen[0].size, 64), torch.nn.Tanh(), last)
        for last in (torch.nn.Linear(64, int(np.prod(shape))), torch.nn.Linear(64, 1))
    )
    spread = torch.nn.Parameter(torch.full((int(np.prod(shape)),), -1.2))
    optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters(), spread], 3e-4)
    windows = 0
    while not over():
        rows = []
        for _ in range(96):
            state = torch.as_tensor(seen)
            with torch.no_grad():
                law, value = Normal(actor(state), spread.exp()), critic(state)[:, 0]
            action = law.sample()
            seen, reward, terminated, truncated, _ = envs.step(
                action.clip(-1, 1).reshape(count, *shape).numpy()
            )
            end, reward = torch.as_tensor(terminated | truncated), torch.as_tensor(reward).float()
            rows.append((state, action, law.log_prob(action).sum(1), value, reward, end))
        windows += 96 * count
        with torch.no_grad():
            later, running = critic(torch.as_tensor(seen))[:, 0], torch.zeros(count)
        advantages = []
        for _, _, _, value, reward, end in reversed(rows):
            goes_on = 0.97 * (~end).float()
            running = reward + goes_on * later - value + 0.95 * goes_on * running
            advantages.append(running)
            later = value
        states, actions, old, values = (torch.cat([row[k] for row in rows]) for k in range(4))
        gains = torch.cat(advantages[::-1])
        for part in itertools.chain(*(torch.randperm(len(gains)).split(512) for _ in range(10))):
            ratio = (
                Normal(actor(states[part]), spread.exp()).log_prob(actions[part]).sum(1) - old[part]
            ).exp()
            gain = (gains[part] - gains[part].mean()) / (gains[part].std() + 1e-8)
            error = critic(states[part])[:, 0] - (gains[part] + values[part])
            loss = 0.5 * (error**2).mean() - torch.min(ratio * gain, ratio.clip(0.8, 1.2) * gain).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    def policy(seen: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return actor(torch.as_tensor(seen)).numpy().reshape(len(seen), *shape).clip(-1, 1)

    return policy, windows


#: Name, what must be installed, actions, function.
LEARNERS: dict[str, tuple[str, str, Callable[[str, Over], tuple[Policy, int]]]] = {
    "PPO of stable-baselines3": ("stable_baselines3", "margins", sb3_ppo),
    "RecurrentPPO of sb3-contrib": ("sb3_contrib", "margins", sb3_recurrent_ppo),
    "MaskablePPO of sb3-contrib": ("sb3_contrib", "discrete", sb3_maskable_ppo),
    "DQN of stable-baselines3": ("stable_baselines3", "discrete", sb3_dqn),
    "a loop in CleanRL's style": ("torch", "margins", cleanrl_ppo),
    "PPO of RLlib": ("ray", "margins", rllib_ppo),
    "PPO of TorchRL": ("torchrl", "margins", torchrl_ppo),
    "PPO of Tianshou": ("tianshou", "margins", tianshou_ppo),
}


def lines_of(learner: Callable[..., Any]) -> int:
    """Return how many lines a user writes: without the signature, the docstring and empty lines."""
    lines = [line.strip() for line in inspect.getsource(learner).splitlines()]
    return sum(bool(line) and not line.startswith(('"""', "def " + learner.__name__)) for line in lines)


def learn(name: str, instance: str, cpu_s: float, days: int) -> dict[str, Any]:
    """Let a learner learn for so many CPU seconds, and play what it learned."""
    _, actions, learner = LEARNERS[name]
    begin = time.process_time()
    policy, windows = learner(instance, lambda: time.process_time() - begin >= cpu_s)
    taken = time.process_time() - begin
    return {
        "cpu_s": round(taken, 1),
        "windows": windows,
        "fresh": fresh_usd(instance, policy, days, actions=actions),
    }


def table(found: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the lines of the Markdown table."""

    def against(name: str, other: str) -> str:
        ratio = np.log(found[name]["fresh"]) - np.log(found[other]["fresh"])
        return cell(FamilyMean.of({(name, str(day)): float(value) for day, value in enumerate(ratio)}))

    lines = [
        "| learner | actions | lines | CPU s | windows | against `hold`, % | against `margin`, % |",
        "|---|---|---:|---:|---:|---:|---:|",
        f"| none: `margin` itself | – | – | – | 0 | {against('margin', 'hold')} | 0 |",
    ]
    for name, (package, actions, learner) in LEARNERS.items():
        cells = [name, actions, str(lines_of(learner))]
        if name in found:
            row = found[name]
            cells += [
                f"{row['cpu_s']:.0f}",
                f"{row['windows']:,}",
                against(name, "hold"),
                against(name, "margin"),
            ]
        else:
            installed = importlib.util.find_spec(package) is not None
            cells += ["not played" if installed else f"{package} is not installed", "", "", ""]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def smoke(folder: Path) -> int:
    """Play the yardsticks on a toy; learners where their libraries are there."""
    call = ["--instance", "fleet-v0/toy/two-pools", "--json", str(folder / "costs.json")]
    return main([*call, "--days", "2", "--cpu-s", "0.1", "--learners", "none"])


def main(argv: Sequence[str] | None = None) -> int:
    """Run the tool."""
    parser = program(
        __doc__,
        writes="The file of --json.",
        takes="A CPU minute a learner.",
        smoke=smoke,
    )
    parser.add_argument("--json", type=Path, required=True, help="keep all costs here, and go on from them")
    parser.add_argument("--instance", default=INSTANCE, metavar="ID", help="default: %(default)s")
    parser.add_argument("--learners", nargs="+", default=list(LEARNERS), choices=[*LEARNERS, "none"])
    parser.add_argument(
        "--cpu-s", type=of(LIMIT_S), default=60.0, help="of each learner (default: %(default)s)"
    )
    parser.add_argument("--days", type=of(COUNT), default=200, help="fresh ones (default: %(default)s)")
    call = parser.parse_args(argv)
    found: dict[str, dict[str, Any]] = read_json(call.json) if call.json.is_file() else {}
    try:
        for name in ("hold", "margin"):
            if name not in found:
                found[name] = agent_usd(call.instance, name, call.days)
                write_json(call.json, found)
        for name in call.learners:
            if name in found or name == "none" or importlib.util.find_spec(LEARNERS[name][0]) is None:
                continue
            found[name] = learn(name, call.instance, call.cpu_s, call.days)
            write_json(call.json, found)
        print("\n".join(table(found)))
    except FleetgymError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    run_program(main)
