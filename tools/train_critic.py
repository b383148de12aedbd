"""Train a critic for the agent `ppo`, whose weights are an actor's, so that a training can go on from both.

    python -m tools.train_critic

The actor stays as it is. It plays instances that `fleetgym.baselines.ppo.train` generates: seeds from 100,000 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym.baselines.ppo.agent import WEIGHTS
from fleetgym.baselines.ppo.train import parser as training
from fleetgym.cli import run_program
from fleetgym.cli.words import of
from fleetgym.families.generate import generate
from fleetgym.files.quantities import COUNT
from fleetgym.runtime.programs import program

FIRST_SEED = 100_000
#: Where the critic lies.
FILE = Path(__file__).resolve().parents[1] / "fleetgym" / "data" / "ppo_critic.npz"


def train(path: Path, windows: int, num_envs: int, seeds: int) -> None:
    """Write a critic that has seen some windows, on `seeds` instances of each family of the training."""
    import torch
    from stable_baselines3 import PPO

    from fleetgym.envs.sb3 import make_envs, recipe
    from fleetgym.envs.workload_policy import CRITIC_NAMES, WorkloadPolicy

    torch.set_num_threads(1)
    families = [name.rpartition("-") for name in training().get_default("families")]
    instances = [generate(family, size, FIRST_SEED + k) for k in range(seeds) for family, _, size in families]
    envs = make_envs(instances, num_envs)
    model = PPO(env=envs, seed=0, learning_rate=1e-3, **recipe(WorkloadPolicy))
    model.policy.start_from(WEIGHTS)
    for name, weights in model.policy.named_parameters():
        weights.requires_grad_(name in CRITIC_NAMES)
    model.learn(windows)
    state = model.policy.state_dict()
    np.savez(path, **{theirs: state[name].numpy() for name, theirs in CRITIC_NAMES.items()})


def smoke(folder: Path) -> None:
    """Train for a window."""
    main([f"--out={folder / 'critic.npz'}", "--windows=1", "--envs=6", "--seeds=1"])


def main(argv: Sequence[str] | None = None) -> None:
    """Train it."""
    parser = program(__doc__, writes="The file of --out.", takes="Three CPU minutes.", smoke=smoke)
    parser.add_argument("--out", type=Path, default=FILE, help="default: the one that ships")
    parser.add_argument("--windows", type=of(COUNT), default=600_000, help="default: %(default)s")
    parser.add_argument("--envs", type=of(COUNT), default=48, help="side by side (default: %(default)s)")
    parser.add_argument(
        "--seeds", type=of(COUNT), default=2, help="instances of a family (default: %(default)s)"
    )
    call = parser.parse_args(argv)
    try:
        train(call.out, call.windows, call.envs, call.seeds)
    except ImportError as error:
        raise SystemExit(f"error: {error}; training needs pip install 'fleetgym[rl]'") from None


if __name__ == "__main__":
    run_program(main)
