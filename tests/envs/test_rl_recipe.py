"""The recipe that the pages print ends cheaper than the rule that it starts from, on days that it has not seen."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from fleetgym.envs.wrappers import for_learning

pytestmark = [pytest.mark.slow, pytest.mark.rl]

INSTANCE, DAYS = "fleet-v0/dev/ou-s-001", 200
#: Fresh days are drawn from seeds that no learner uses.
FIRST_DAY = 5_000_000_000


def fresh_usd(policy: Callable[[np.ndarray], Any]) -> np.ndarray:
    """Return what a policy pays on fresh days, played side by side."""
    task = {"instance": INSTANCE, "num_envs": DAYS, "autoreset_mode": "Disabled"}
    envs = for_learning(gymnasium.make_vec("fleetgym:FleetAlloc-v0", **task))
    seen, _ = envs.reset(seed=[FIRST_DAY + day for day in range(DAYS)])
    over = False
    while not over:
        seen, _, terminated, _, infos = envs.step(policy(seen))
        over = bool(terminated.all())
    return infos["day_usd"]


def test_the_recipe_pays(tmp_path: Path) -> None:
    """The 95 % interval of the paired difference to `margin` lies below zero."""
    sb3 = pytest.importorskip("stable_baselines3", reason="stable-baselines3 is not there")
    from fleetgym.envs.sb3 import MINUTE, SavePolicy, make_envs, recipe

    model = sb3.PPO(env=make_envs(INSTANCE), seed=0, **recipe())
    model.learn(MINUTE, SavePolicy(tmp_path / "mine.zip"))
    learned = fresh_usd(lambda seen: model.predict(seen, deterministic=True)[0])
    rule = fresh_usd(lambda seen: np.zeros((DAYS, *model.action_space.shape)))
    ratio = np.log(learned / rule)
    assert ratio.mean() + 1.97 * ratio.std(ddof=1) / DAYS**0.5 < 0.0
