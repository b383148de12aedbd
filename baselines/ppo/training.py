"""One round of training with MaskablePPO: generated instances in; a checkpoint, weights and a learning curve out.

The program is `fleetgym.baselines.ppo.train`.
"""

from __future__ import annotations

import argparse
import functools
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.vec_env import DummyVecEnv

from fleetgym import Instance
from fleetgym.agents.arguments import whole_at_least
from fleetgym.families.generate import generate

from .environment import make_env
from .features import NUM_FEATURES
from .policy import SlotPolicy

#: Seeds of training instances begin here; those of the standard set are far below.
FIRST_SEED = 100_000

SETTINGS: dict[str, Any] = {
    "n_steps": 96,
    "batch_size": 384,
    "n_epochs": 6,
    "gamma": 0.95,
    "gae_lambda": 0.9,
    "ent_coef": 0.003,
    "vf_coef": 0.5,
    "max_grad_norm": 0.5,
    "clip_range": 0.2,
}


def training_instances(families: Sequence[str], size: str, count: int, first: int = 0) -> list[Instance]:
    """Return generated instances, the families in turn."""
    return [
        generate(families[k % len(families)], size, FIRST_SEED + first + k // len(families))
        for k in range(count)
    ]


class Curve(BaseCallback):
    """Writes a line per update: steps so far, mean scaled reward of a window, CPU seconds."""

    def __init__(self, path: Path, steps_before: int, cpu_s_before: float, label: str):
        super().__init__()
        self.path, self.steps_before, self.cpu_s_before, self.label = path, steps_before, cpu_s_before, label
        self._start_s = time.process_time()
        self._rewards: list[float] = []
        self._moved: list[float] = []

    def cpu_s(self) -> float:
        """CPU seconds of training so far, those of earlier runs included."""
        return self.cpu_s_before + time.process_time() - self._start_s

    def _on_step(self) -> bool:
        self._rewards.append(float(np.mean(self.locals["rewards"])))
        self._moved.append(float(np.mean(self.locals["actions"] != 0)))
        return True

    def _on_rollout_end(self) -> None:
        line = {
            "steps": self.steps_before + self.num_timesteps,
            "reward": round(float(np.mean(self._rewards)), 5),
            "moved": round(float(np.mean(self._moved)), 5),
            "cpu_s": round(self.cpu_s(), 1),
            "run": self.label,
        }
        self._rewards, self._moved = [], []
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")


def new_model(envs: DummyVecEnv, learning_rate: float, seed: int, hidden: int) -> MaskablePPO:
    """Return MaskablePPO with the policy of this package."""
    return MaskablePPO(
        SlotPolicy,
        envs,
        learning_rate=learning_rate,
        policy_kwargs={"hidden": hidden},
        seed=seed,
        device="cpu",
        **SETTINGS,
    )


def set_feature_scale(model: MaskablePPO, envs: DummyVecEnv, windows: int = 48) -> None:
    """Measure mean and spread of the features once; from then on they are constants of the network."""
    rows: list[np.ndarray] = [np.asarray(envs.reset())]
    for _ in range(windows):
        masks = get_action_masks(envs)
        rows.append(np.asarray(envs.step(model.predict(rows[-1], action_masks=masks)[0])[0]))
    flat = np.concatenate(rows).reshape(-1, NUM_FEATURES)
    network: Any = model.policy.mlp_extractor
    network.shift.copy_(torch.as_tensor(flat.mean(axis=0)))
    network.scale.copy_(torch.as_tensor(1.0 / np.maximum(0.1, flat.std(axis=0))))


def train(call: argparse.Namespace) -> None:
    """Train one round and write checkpoint, weights and curve into the folder.

    Raises
    ------
    FleetgymError
        For numbers below 1, and for instances that the policy cannot play (see `SlotTargets`).
    """
    whole_at_least(1, instances=call.instances, steps=call.steps, hidden=call.hidden)
    torch.set_num_threads(1)
    folder = Path(call.folder)
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint.pt"
    before: dict[str, Any] = {"steps": 0, "cpu_s": 0.0, "runs": 0}
    saved = torch.load(checkpoint, weights_only=True) if checkpoint.exists() else None
    if saved is not None:
        before = saved["progress"]
        print(f"{folder}: goes on from a checkpoint after {before['steps']:,} steps")
    start_s = time.process_time()
    instances = training_instances(
        call.families, call.size, call.instances, first=before["runs"] * call.instances
    )
    envs = DummyVecEnv([functools.partial(make_env, instance) for instance in instances])
    envs.seed(call.seed + before["runs"])
    model = new_model(envs, call.learning_rate, call.seed + before["runs"], call.hidden)
    if saved is None:
        set_feature_scale(model, envs)
    else:
        model.policy.load_state_dict(saved["policy"])
        model.policy.optimizer.load_state_dict(saved["optimizer"])
    ready_s = time.process_time() - start_s
    label = f"{'+'.join(call.families)}-{call.size}"
    curve = Curve(folder / "curve.jsonl", before["steps"], before["cpu_s"] + ready_s, label)
    model.set_logger(Logger(None, []))  # the default one makes a folder per run, with nothing in it
    model.learn(call.steps, callback=curve)
    progress = {
        "steps": before["steps"] + model.num_timesteps,
        "cpu_s": curve.cpu_s(),
        "runs": before["runs"] + 1,
    }
    state = {"policy": model.policy.state_dict(), "optimizer": model.policy.optimizer.state_dict()}
    torch.save({**state, "progress": progress}, checkpoint.with_suffix(".new"))
    checkpoint.with_suffix(".new").replace(checkpoint)
    network: Any = model.policy.mlp_extractor
    np.savez(folder / "weights.npz", **network.arrays())
    print(f"{folder}: {progress['steps']:,} steps, {progress['cpu_s']:.0f} CPU seconds")
