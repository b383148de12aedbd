"""Run rounds of PPO on generated instances; write checkpoint, weights and learning curve.

Proximal policy optimisation as in Schulman et al. (2017), with the clipped ratio taken workload by workload. So a
workload's action is credited with the advantage of the whole fleet, and one network learns from instances of any number
of workloads. The program is `fleetgym.baselines.ppo.train`.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from fleetgym import FleetgymError, Instance
from fleetgym.learning import FEATURES, LearningVectorEnv, for_learning, generate

from .policy import WorkloadPolicy

#: Seeds of training instances begin here; those of the standard sets are far below.
FIRST_SEED = 100_000

#: Of PPO: windows between updates, minibatches of an update, passes over them, and the rest as in the paper.
WINDOWS, MINIBATCHES, PASSES = 48, 8, 4
GAMMA, LAMBDA, CLIP, VALUE, ENTROPY, MOST_GRADIENT = 0.97, 0.95, 0.2, 0.5, 0.0005, 0.5

#: Either way, of a reward: what a drop costs in its window would drown the rest.
LARGEST_REWARD = 3.0


def training_instances(families: Sequence[str], count: int, first: int = 0) -> list[Instance]:
    """Return generated instances, the families in turn; ``"trace-m"`` names a family and a size.

    Examples
    --------
    >>> [one.id for one in training_instances(["ou-s"], 2)]
    ['ou-s-100000', 'ou-s-100001']
    """
    named = [name.rpartition("-") for name in families]
    for name, (family, _, _) in zip(families, named, strict=True):
        if not family:
            raise FleetgymError(f"expected a family and a size, such as ou-s, got {name!r}")
    return [
        generate(named[k % len(named)][0], named[k % len(named)][2], FIRST_SEED + first + k // len(named))
        for k in range(count)
    ]


@dataclasses.dataclass
class Rollout:
    """What one batch of episodes brought: first axis windows, second axis episodes."""

    observation: torch.Tensor
    action: torch.Tensor
    log_prob: torch.Tensor
    advantage: torch.Tensor
    worth: torch.Tensor  # advantage and value

    def rows(self) -> Rollout:
        """Return the same with one axis for windows and episodes."""
        return Rollout(*(getattr(self, field.name).flatten(0, 1) for field in dataclasses.fields(self)))

    def pick(self, rows: torch.Tensor) -> Rollout:
        """Return some rows."""
        return Rollout(*(getattr(self, field.name)[rows] for field in dataclasses.fields(self)))


class Player:
    """One batch of episodes of one instance that goes on from rollout to rollout."""

    def __init__(self, instance: Instance, episodes: int, seed: int):
        envs = gymnasium.make_vec(
            "fleetgym:FleetAlloc-v0",
            num_envs=episodes,
            instance=instance,
            autoreset_mode="SameStep",
            num_threads=1,
        )
        self.envs: LearningVectorEnv = for_learning(envs, reference="margin")
        self.seen = torch.as_tensor(self.envs.reset(seed=seed)[0])

    @torch.no_grad()
    def play(self, policy: WorkloadPolicy, generator: torch.Generator) -> tuple[Rollout, float]:
        """Play `WINDOWS` windows; return them and the mean reward of a window."""
        seen, acted, log_prob, value, reward, ended = [], [], [], [], [], []
        for _ in range(WINDOWS):
            means = policy.means(self.seen)
            noise = torch.randn(means.shape, generator=generator)
            action = means + policy.log_deviation.exp() * noise
            seen.append(self.seen)
            acted.append(action)
            log_prob.append(policy.log_prob(means, action))
            value.append(policy.values(self.seen))
            found, rewards, terminated, _, _ = self.envs.step(action.numpy())
            reward.append(np.clip(rewards, -LARGEST_REWARD, LARGEST_REWARD))
            ended.append(terminated)
            self.seen = torch.as_tensor(found)
        advantage = torch.zeros(WINDOWS, len(self.seen))
        following, running = policy.values(self.seen), torch.zeros(len(self.seen))
        for t in reversed(range(WINDOWS)):
            goes_on = torch.as_tensor(1.0 - ended[t], dtype=torch.float32)
            gained = torch.as_tensor(reward[t], dtype=torch.float32) + GAMMA * goes_on * following - value[t]
            running = gained + GAMMA * LAMBDA * goes_on * running
            advantage[t], following = running, value[t]
        stacked = torch.stack(seen), torch.stack(acted), torch.stack(log_prob)
        return Rollout(*stacked, advantage, advantage + torch.stack(value)), float(np.mean(reward))


def update(
    policy: WorkloadPolicy,
    optimizer: torch.optim.Optimizer,
    rollouts: Sequence[Rollout],
    generator: torch.Generator,
) -> None:
    """Improve a policy by what the batches brought; they may have different numbers of workloads."""
    rollouts = [rollout.rows() for rollout in rollouts]
    spreads = [rollout.advantage.std() + 1e-8 for rollout in rollouts]
    for _ in range(PASSES):
        orders = [torch.randperm(len(r.worth), generator=generator).chunk(MINIBATCHES) for r in rollouts]
        for parts in zip(*orders, strict=True):
            losses = [
                _loss(policy, rollout.pick(rows), spread)
                for rollout, rows, spread in zip(rollouts, parts, spreads, strict=True)
            ]
            optimizer.zero_grad()
            torch.stack(losses).mean().backward()
            torch.nn.utils.clip_grad_norm_(policy.parameters(), MOST_GRADIENT)
            optimizer.step()


def _loss(policy: WorkloadPolicy, rollout: Rollout, spread: torch.Tensor) -> torch.Tensor:
    ratio = (policy.log_prob(policy.means(rollout.observation), rollout.action) - rollout.log_prob).exp()
    advantage = ((rollout.advantage - rollout.advantage.mean()) / spread)[:, None]
    gain = torch.min(ratio * advantage, ratio.clamp(1.0 - CLIP, 1.0 + CLIP) * advantage).mean()
    error = ((policy.values(rollout.observation) - rollout.worth) / spread).square().mean()
    return -gain + VALUE * error - ENTROPY * policy.log_deviation.sum()


def set_feature_scale(policy: WorkloadPolicy, players: Sequence[Player], windows: int = 48) -> None:
    """Measure mean and spread of the features once; from then on they are constants of the network."""
    rows = []
    for player in players:
        for _ in range(windows):
            rows.append(player.seen.reshape(-1, len(FEATURES)))
            action = np.zeros((*player.seen.shape[:2], 2))
            player.seen = torch.as_tensor(player.envs.step(action)[0])
    flat = torch.cat(rows)
    policy.shift.copy_(flat.mean(dim=0))
    policy.scale.copy_(1.0 / flat.std(dim=0).clamp(min=0.1))


def train(call: argparse.Namespace) -> None:
    """Train one round and write checkpoint, weights and curve into the folder.

    Raises
    ------
    FleetgymError
        For families and sizes that do not exist.
    """
    torch.set_num_threads(1)
    folder = Path(call.folder)
    checkpoint = folder / "checkpoint.pt"
    before: dict[str, Any] = {"steps": 0, "cpu_s": 0.0, "rounds": 0}
    saved = torch.load(checkpoint, weights_only=True) if checkpoint.exists() else None
    if saved is not None:
        before = saved["progress"]
        print(f"{folder}: goes on from a checkpoint after {before['steps']:,} windows", flush=True)
    start_s, seed = time.process_time(), call.seed + before["rounds"]
    per_family = -(-call.instances // len(call.families))
    instances = training_instances(call.families, call.instances, before["rounds"] * per_family)
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    policy = WorkloadPolicy(len(FEATURES), 2, call.hidden)
    optimizer = torch.optim.Adam(policy.parameters(), lr=call.learning_rate, eps=1e-5)
    players = [Player(one, call.episodes, 1000 * seed + 100 * k) for k, one in enumerate(instances)]
    if saved is None:
        set_feature_scale(policy, players)
    else:
        policy.load_state_dict(saved["policy"])
        optimizer.load_state_dict(saved["optimizer"])
        for group in optimizer.param_groups:
            group["lr"] = call.learning_rate
    steps = before["steps"]
    for _ in range(call.updates):
        rollouts, rewards = zip(*(player.play(policy, generator) for player in players), strict=True)
        update(policy, optimizer, rollouts, generator)
        steps += WINDOWS * call.episodes * len(players)
        line = {
            "steps": steps,
            "reward": round(float(np.mean(rewards)), 5),
            "deviation": [round(x, 3) for x in policy.log_deviation.exp().tolist()],
            "cpu_s": round(before["cpu_s"] + time.process_time() - start_s, 1),
            "run": "+".join(call.families),
        }
        with (folder / "curve.jsonl").open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
    cpu_s = before["cpu_s"] + time.process_time() - start_s
    progress = {"steps": steps, "cpu_s": cpu_s, "rounds": before["rounds"] + 1}
    state = {"policy": policy.state_dict(), "optimizer": optimizer.state_dict(), "progress": progress}
    torch.save(state, checkpoint.with_suffix(".new"))
    checkpoint.with_suffix(".new").replace(checkpoint)
    np.savez(folder / "weights.npz", **policy.arrays())  # type: ignore[arg-type]
    print(f"{folder}: {steps:,} windows, {cpu_s:.0f} CPU seconds", flush=True)
