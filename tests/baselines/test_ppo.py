"""The learned agent: its network, its weights and what it achieves; none of it needs PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fleetgym
from fleetgym.agents.margins import FEATURES
from fleetgym.baselines.ppo.agent import WEIGHTS, PPOAgent
from fleetgym.baselines.ppo.network import SHAPES, load_weights, workload_scores
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.wrappers import for_learning
from fleetgym.files.errors import FleetgymError

NUM_FEATURES = len(FEATURES)


def random_weights(hidden: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    """Return weights of the right shapes."""
    rng = np.random.default_rng(seed)
    sizes = {"F": NUM_FEATURES, "H": hidden, "D": 2 * hidden, "S": 2}
    return {name: rng.normal(size=tuple(sizes[x] for x in letters)) for name, letters in SHAPES.items()}


def test_the_network_does_not_know_where_a_workload_stands() -> None:
    """Workloads in another order get the same numbers in that order."""
    weights, rows = random_weights(), np.random.default_rng(1).normal(size=(6, NUM_FEATURES))
    order = np.array([3, 1, 5, 0, 2, 4])
    assert workload_scores(weights, rows[order]) == pytest.approx(workload_scores(weights, rows)[order])


# -- weights


def test_weights_that_ship_are_small() -> None:
    """They are there, fit the features, and take less than 100 kB."""
    load_weights(WEIGHTS, NUM_FEATURES, 2)
    assert WEIGHTS.stat().st_size < 100_000


def test_bad_weights_are_named(tmp_path: Path) -> None:
    """A missing file, another file, a missing array, another shape and a NaN are told apart from weights."""
    path = tmp_path / "weights.npz"
    with pytest.raises(FleetgymError, match="No such file"):
        PPOAgent(path)
    path.write_text("nothing")
    with pytest.raises(FleetgymError, match="not a whole zip archive"):
        PPOAgent(path)
    good = random_weights()
    np.savez(path, **good)
    PPOAgent(path)
    np.savez(path, **{name: value for name, value in good.items() if name != "shift"})
    with pytest.raises(FleetgymError, match="shift"):
        PPOAgent(path)
    np.savez(path, **{**good, "actor.2.bias": np.zeros(9)})
    with pytest.raises(FleetgymError, match=r"actor\.2\.bias"):
        PPOAgent(path)
    np.savez(path, **{**good, "embed.bias": np.full(5, np.nan)})
    with pytest.raises(FleetgymError, match=r"embed\.bias"):
        PPOAgent(path)


# -- the agent


def play(agent: object, instance: str, windows: int = 10**6) -> tuple[float, list[list[int]]]:
    """Return dollars and actions on stored scenario 0."""
    env = FleetAllocEnv(instance)
    observation, info = env.reset(options={"scenario": 0})
    view, usd, actions, done = fleetgym.View(env.instance), 0.0, [], False
    view.update(info)
    agent.reset(view, seed=0)
    while not done and len(actions) < windows:
        action = agent.act(observation, info)
        actions.append(action.tolist())
        observation, reward, done, _, info = env.step(action)
        view.update(info)
        usd -= reward
    return usd, actions


def test_agent_acts_as_it_was_trained() -> None:
    """The agent plays what its network plays in the learning environment, to the bit."""
    agent, instance = fleetgym.make_agent("ppo"), "fleet-v0/dev/drop-s-001"
    usd, _ = play(agent, instance, 60)
    env, total = for_learning(FleetAllocEnv(instance)), 0.0
    seen, _ = env.reset(options={"scenario": 0})
    for _ in range(60):
        seen, _, _, _, info = env.step(workload_scores(agent.weights, seen))
        total += info["cost"]
    assert usd == total


@pytest.mark.parametrize("instance", ["fleet-v0/dev/trace-m-001", "fleet-v0/dev/grw-s-001"])
def test_agent_is_deterministic(instance: str) -> None:
    """Two runs are the same, also where slots are exclusive."""
    assert play(fleetgym.make_agent("ppo"), instance, 40) == play(fleetgym.make_agent("ppo"), instance, 40)


def test_agent_learned_something() -> None:
    """On four stored days together it beats the rule that it started from, and holding the fleet."""
    days = [f"fleet-v0/dev/{name}" for name in ("ou-s-001", "drop-s-001", "trace-m-001", "warp-s-001")]
    learned, rule, held = (
        sum(np.log(play(fleetgym.make_agent(name), day)[0]) for day in days) / len(days)
        for name in ("ppo", "margin", "hold")
    )
    assert learned < rule
    assert learned < held - 0.2
