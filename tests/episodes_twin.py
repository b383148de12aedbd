"""Play episodes of random actions in the environment and in the reference evaluator, and compare every window."""

from __future__ import annotations

from collections.abc import Iterator

import gymnasium
import numpy as np

import fleetgym
from fleetgym import reference
from fleetgym.model.instance import Instance
from fleetgym.model.scenario import Scenario
from fleetgym.model.window import COST_TERMS

RELATIVE = 1e-9


def random_actions(instance: Instance, windows: int, seed: int) -> Iterator[np.ndarray]:
    """Yield targets that now change a little, now altogether, now not at all."""
    rng = np.random.default_rng(seed)
    space = fleetgym.ActionSpace(instance)
    action = space.from_fleet(instance.nominal_fleet)
    for _ in range(windows):
        redraw = rng.random(action.size) < rng.choice([0.0, 0.05, 0.3, 1.0], p=[0.4, 0.3, 0.2, 0.1])
        off = rng.random(action.size) < 0.3
        action = np.where(redraw, np.where(off, 0, rng.integers(0, space.nvec)), action)
        yield action


def assert_equal_windows(fast: dict, slow: dict, where: str) -> None:
    """Compare the cost terms, shares and fleets of one window."""
    scale = max(1.0, abs(slow["cost"]))
    for term in (*COST_TERMS, "cost"):
        assert abs(fast[term] - slow[term]) <= RELATIVE * scale, f"{where}: {term} {fast[term]} {slow[term]}"
    for share in ("unserved_share", "miss_share"):
        np.testing.assert_allclose(fast[share], slow[share], atol=1e-8, err_msg=where)
    for counts in ("granted", "denied", "lost", "held", "running", "starting", "draining"):
        np.testing.assert_array_equal(fast[counts], slow[counts], err_msg=f"{where}: {counts}")
    assert fast["forced_outage"] == slow["forced_outage"], where


def compare_episode(instance: str | Instance, scenario: Scenario, windows: int, seed: int) -> None:
    """Play `windows` windows on both sides."""
    env = gymnasium.make("FleetAlloc-v0", instance=instance).unwrapped
    env.reset(seed=seed, options={"scenario": scenario})
    evaluator = reference.ReferenceEpisode(env.instance, scenario)
    for t, action in enumerate(random_actions(env.instance, windows, seed)):
        _, reward, _, _, info = env.step(action)
        slow = evaluator.step(reference.action_to_target(env.instance, action))
        assert_equal_windows(info, slow, f"{env.instance.id} window {t}")
        assert reward == -info["cost"]
        assert abs(sum(info[term] for term in COST_TERMS) - info["cost"]) <= 1e-9 * max(1.0, info["cost"])
