"""The learned agent: its features, its targets, its network and what it achieves; none of it needs PyTorch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fleetgym
from fleetgym.baselines.ppo.agent import WEIGHTS, PPOAgent
from fleetgym.baselines.ppo.environment import make_env
from fleetgym.baselines.ppo.features import FLEET_FEATURES, NUM_FEATURES, SLOT_FEATURES, TARGETS, SlotFeatures
from fleetgym.baselines.ppo.kernels import fill
from fleetgym.baselines.ppo.network import SHAPES, load_weights, slot_scores
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.files.errors import FleetgymError, UnknownNameError

COUNTED = [
    "fleet-v0/dev/ou-s-001",
    "fleet-v0/dev/drop-s-002",
    "fleet-v0/dev/trace-m-001",
    "fleet-v0/toy/regions",
]
EXCLUSIVE = "fleet-v0/dev/grw-s-001"


def random_weights(hidden: int = 5, seed: int = 0) -> dict[str, np.ndarray]:
    """Return weights of the right shapes."""
    rng = np.random.default_rng(seed)
    sizes = {"F": NUM_FEATURES, "H": hidden, "D": 2 * hidden, "S": len(TARGETS)}
    return {name: rng.normal(size=tuple(sizes[x] for x in letters)) for name, letters in SHAPES.items()}


# -- the merit order


def slow_fill(left: list, priority: list, order: list, need: list, room: list, use: list, gpus: list) -> list:
    """Serve share by share, as the text says, in plain Python."""
    used = [0.0] * len(room)
    for i in priority:
        for c in order[i]:
            if c < 0 or left[i] <= 1e-9:
                break
            limits = [room[c]] + [gpus[g] / use[g][c] for g in range(len(gpus)) if use[g][c] > 0]
            most = min(limits)
            if most > 0.0:
                share = left[i] if need[i][c] <= 1e-9 else min(left[i], most / need[i][c])
                left[i] -= share
                used[c] += share * need[i][c]
                room[c] -= share * need[i][c]
                for g in range(len(gpus)):
                    gpus[g] -= share * need[i][c] * use[g][c]
    return used


@pytest.mark.parametrize("seed", range(40))
def test_fill_is_the_merit_order(seed: int) -> None:
    """The kernel equals plain Python, exceeds no limit, and serves the shares that it says."""
    rng = np.random.default_rng(seed)
    workloads, columns, pools = rng.integers(1, 5), rng.integers(1, 7), rng.integers(1, 4)
    need = rng.uniform(0.0, 4.0, (workloads, columns)) * (rng.random((workloads, columns)) < 0.9)
    order = np.argsort(rng.random((workloads, columns)), axis=1)
    order[rng.random(order.shape) < 0.2] = -1
    use = rng.integers(0, 3, (pools, columns))
    room, gpus = rng.integers(0, 5, columns).astype(float), rng.integers(0, 9, pools).astype(float)
    gpus[rng.random(pools) < 0.2] = np.inf
    left, priority = np.ones(workloads), rng.permutation(workloads)
    call = (left, priority, order, need, room, use, gpus)
    expected = slow_fill(*(part.tolist() for part in call))
    before = room.copy(), gpus.copy()
    used = fill(*call)
    assert used == pytest.approx(expected)
    assert np.all((left >= -1e-9) & (left <= 1.0))
    assert np.all(used <= before[0] + 1e-9)
    assert np.all(use @ used <= before[1] + 1e-9)


# -- features and targets


def test_features_are_named() -> None:
    """There is one name per column."""
    assert len(set(SLOT_FEATURES + FLEET_FEATURES)) == NUM_FEATURES


@pytest.mark.parametrize("instance", COUNTED)
def test_features_are_finite_and_targets_valid(instance: str) -> None:
    """Over a day of random choices: numbers in bounds; staying allowed; allowed targets differ and fit the mask."""
    env = make_env(instance)
    observation, info = env.reset(seed=1)
    inner, rng = env.unwrapped, np.random.default_rng(0)
    done = False
    while not done:
        assert env.observation_space.contains(observation)
        features = env._features
        targets, allowed = features.targets, features.allowed
        held = (info["running"] + info["starting"].sum(axis=1))[features.configuration]
        assert np.array_equal(info["action_mask"], allowed.ravel())
        assert allowed[:, 0].all()
        assert np.array_equal(targets[:, 0], held)
        assert np.all((targets >= 0) & (targets < inner.actions.nvec[:, None]))
        mask = inner.action_masks()[inner.actions.offsets[:, None] + targets]
        assert np.all(mask[allowed] | (targets <= held[:, None])[allowed])
        for row, choice in zip(targets, allowed, strict=True):
            assert len(set(row[choice])) == choice.sum()
        action = (rng.random(allowed.shape) * allowed).argmax(axis=1)
        observation, reward, done, _, info = env.step(action)
        assert np.isfinite(reward)


def test_features_do_not_depend_on_the_order_of_slots() -> None:
    """A slot's row follows it when slots change places: nothing depends on where a slot stands."""
    instance = fleetgym.load_instance("fleet-v0/dev/ou-s-001")
    turned = instance.replace(slots=instance.slots[::-1])
    rows = []
    for each in (instance, turned):
        env = FleetAllocEnv(each)
        _, info = env.reset(options={"scenario": fleetgym.load_scenarios("fleet-v0/dev/ou-s-001")[0]})
        view = fleetgym.View(each)
        view.update(info)
        rows.append(SlotFeatures(view).observe(info))
    assert np.array_equal(rows[0], rows[1][::-1])
    weights = random_weights()
    assert slot_scores(weights, rows[0]) == pytest.approx(slot_scores(weights, rows[1])[::-1])


# -- weights


def test_weights_that_ship_are_small() -> None:
    """They are there, fit the features, and take less than 100 kB."""
    load_weights(WEIGHTS, NUM_FEATURES, len(TARGETS))
    assert WEIGHTS.stat().st_size < 100_000


def test_bad_weights_are_named(tmp_path: Path) -> None:
    """A missing file, another file, a missing array, another shape and a NaN are told apart from weights."""
    path = tmp_path / "weights.npz"
    with pytest.raises(FleetgymError, match="no weights"):
        PPOAgent(path)
    path.write_text("nothing")
    with pytest.raises(FleetgymError, match="no weights"):
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


def test_unknown_target_is_named() -> None:
    """A rule that does not exist is refused."""
    with pytest.raises(UnknownNameError, match="ideal"):
        PPOAgent(always="idael")


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
    """The agent sees the training environment's features, and its choices lead to the same fleets."""
    agent, env = fleetgym.make_agent("ppo"), make_env("fleet-v0/dev/drop-s-001")
    _, expected = play(agent, "fleet-v0/dev/drop-s-001", 60)
    observation, _ = env.reset(options={"scenario": 0})
    for action in expected:
        scores = slot_scores(agent.weights, observation)
        choice = np.where(env._features.allowed, scores, -np.inf).argmax(axis=1)
        assert env._features.targets[np.arange(choice.size), choice].tolist() == action
        observation, _, _, _, _ = env.step(choice)


def test_agent_is_deterministic() -> None:
    """Two runs are the same."""
    instance = "fleet-v0/dev/trace-m-001"
    assert play(fleetgym.make_agent("ppo"), instance, 40) == play(fleetgym.make_agent("ppo"), instance, 40)


def test_exclusive_slots_are_left_alone() -> None:
    """Where options are no numbers of replicas, the agent is `hold`."""
    assert play(fleetgym.make_agent("ppo"), EXCLUSIVE, 30) == play(fleetgym.make_agent("hold"), EXCLUSIVE, 30)


def test_agent_learned_something() -> None:
    """On four days together it beats holding the fleet, and the rule that it started from: the ideal number."""
    days = [f"fleet-v0/dev/{name}" for name in ("ou-s-001", "drop-s-001", "ou-m-001", "drop-m-001")]
    agents = (
        fleetgym.make_agent("ppo"),
        fleetgym.make_agent("ppo(always='ideal')"),
        fleetgym.make_agent("hold"),
    )
    learned, rule, held = (sum(np.log(play(agent, day)[0]) for day in days) / len(days) for agent in agents)
    assert learned < rule - 0.02
    assert learned < held - 0.2


@pytest.mark.parametrize("instance", [EXCLUSIVE, "fleet-v0/dev/fastllm-4-4-5-001"])
def test_training_needs_numbers_of_replicas(instance: str) -> None:
    """An environment with exclusive groups is refused before anything is played."""
    with pytest.raises(FleetgymError, match="are exclusive groups; expected numbers of replicas"):
        make_env(instance)
