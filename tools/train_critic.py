"""Train a critic for the agent `ppo`, so that a training can go on from it; the actor stays as it is.

    python -m tools.train_critic fleetgym/data/ppo_critic.npz

The days are those of `fleetgym.baselines.ppo.train`: instances that it generates, with seeds from 100,000 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fleetgym.baselines.ppo.agent import WEIGHTS
from fleetgym.families.generate import generate
from fleetgym.files.quantities import COUNT
from fleetgym.runtime.programs import of, program, run_program

FAMILIES = (("ou", "s"), ("drop", "s"), ("trace", "m"), ("budget", "s"), ("tail", "s"), ("multi", "s"))
FIRST_SEED = 100_000


def train(windows: int, num_envs: int, each: int, path: Path) -> None:
    """Write a critic that was trained for some windows, on `each` instances of every family."""
    import torch
    from stable_baselines3 import PPO

    from fleetgym.envs.sb3 import make_envs, recipe
    from fleetgym.envs.workload_policy import WorkloadPolicy, critic_of

    torch.set_num_threads(1)
    instances = [generate(*kind, FIRST_SEED + k) for k in range(each) for kind in FAMILIES]
    model = PPO(env=make_envs(instances, num_envs), seed=0, **recipe(WorkloadPolicy))
    model.policy.start_from(WEIGHTS)
    critic = set(critic_of(model.policy, parameters=True))
    for name, weights in model.policy.named_parameters():
        weights.requires_grad_(name in critic)
    model.learn(windows)
    np.savez(path, **critic_of(model.policy))


def smoke(folder: Path) -> None:
    """Train for a few windows."""
    main([str(folder / "critic.npz"), "--windows=1", "--envs=6", "--each=1"])


def main(argv: Sequence[str] | None = None) -> None:
    """Train it."""
    parser = program(__doc__, writes="The file.", takes="Three CPU minutes.", smoke=smoke)
    parser.add_argument("file", type=Path, help="to write")
    parser.add_argument("--windows", type=of(COUNT), default=900_000, help="default: %(default)s")
    parser.add_argument("--envs", type=of(COUNT), default=48, help="side by side (default: %(default)s)")
    parser.add_argument(
        "--each", type=of(COUNT), default=2, help="instances of a family (default: %(default)s)"
    )
    call = parser.parse_args(argv)
    train(call.windows, call.envs, call.each, call.file)


if __name__ == "__main__":
    run_program(main)
