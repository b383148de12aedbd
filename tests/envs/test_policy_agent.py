"""A policy that was trained behind wrappers plays as an agent what it plays in the wrapped environment."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation, NormalizeObservation

import fleetgym
from fleetgym.cli import main
from fleetgym.cli.check_agent import check_agent
from fleetgym.envs.fleet_alloc import FleetAllocEnv
from fleetgym.envs.policy_agent import Policy, PolicyAgent, Statistics
from fleetgym.envs.wrappers import for_learning
from fleetgym.envs.wrappers.layers import layers
from fleetgym.evaluation.isolation.preflight import fit_of
from fleetgym.files.errors import FleetgymError

INSTANCE = "fleet-v0/dev/ou-s-001"


def busy_policy(space: gymnasium.Space) -> Policy:
    """Return a policy of allowed actions that follow from everything that is seen, to the bit."""

    def policy(seen: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        rng = np.random.default_rng(np.frombuffer(np.ascontiguousarray(seen).tobytes(), dtype=np.uint8))
        if isinstance(space, gymnasium.spaces.Box):
            return rng.uniform(space.low, space.high).astype(np.float32)
        assert mask is not None
        if isinstance(space, gymnasium.spaces.Discrete):
            return rng.choice(np.flatnonzero(mask))
        slots = np.split(mask, np.cumsum(space.nvec)[:-1])
        return np.array([rng.choice(np.flatnonzero(allowed)) for allowed in slots])

    return policy


@pytest.mark.parametrize(
    "wrap",
    [
        for_learning,
        functools.partial(for_learning, actions="discrete", reference="margin"),
        FlattenObservation,
    ],
    ids=["for_learning", "other-arguments", "own-actions"],
)
def test_a_policy_plays_as_it_was_trained(wrap: Any) -> None:
    """It sees as an agent what the wrapped environment shows, and every window costs the same."""
    plain, wrapped = FleetAllocEnv(INSTANCE), wrap(FleetAllocEnv(INSTANCE))
    policy = busy_policy(wrapped.action_space)
    agent, view = PolicyAgent(policy, wrap), fleetgym.View(plain.instance)
    for scenario in (0, 1):  # the second episode begins afresh
        seen, told = wrapped.reset(options={"scenario": scenario})
        observation, info = plain.reset(options={"scenario": scenario})
        agent.reset(view, seed=0)
        for _ in range(40):
            seen, _, _, _, told = wrapped.step(policy(seen, told.get("action_mask")))
            observation, _, _, _, info = plain.step(agent.act(observation, info))
            assert info["cost"] == told["cost"]
            np.testing.assert_array_equal(info["running"], told["running"])


class _Flip(gymnasium.ActionWrapper):
    """Lets the other end of each slot's options through."""

    def action(self, action: Any) -> np.ndarray:
        return self.env.action_space.nvec - 1 - np.asarray(action)


class _FlipInStep(gymnasium.Wrapper):
    """The same, where no agent can know it before the step."""

    def step(self, action: Any) -> Any:
        return self.env.step(self.env.action_space.nvec - 1 - np.asarray(action))


def test_wrappers_may_change_actions_where_that_can_be_known() -> None:
    """An `ActionWrapper` plays what it plays in training; one that changes actions in `step` is refused."""
    task = "fleet-v0/toy/two-pools"
    costs = []
    for wrap in (lambda env: env, _Flip, _FlipInStep):
        plain, agent = FleetAllocEnv(task), PolicyAgent(lambda seen, mask: np.zeros(2, dtype=int), wrap)
        observation, info = plain.reset(options={"scenario": 0})
        agent.reset(fleetgym.View(plain.instance), seed=0)
        ended = False
        if wrap is _FlipInStep:
            plain.step(agent.act(observation, info))
            with pytest.raises(FleetgymError, match="must be a gymnasium.ActionWrapper"):
                agent.act(observation, info)
            break
        costs.append(0.0)
        while not ended:
            observation, _, ended, _, info = plain.step(agent.act(observation, info))
            costs[-1] += info["cost"]
    assert costs == [69.0, 40.0]


class _Trained:
    """A model with the interface of stable-baselines3's, which remembers how often it was asked."""

    def __init__(self, instance: str = INSTANCE):
        env = for_learning(FleetAllocEnv(instance))
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.told: list = []

    def predict(self, seen: np.ndarray, state: Any, episode_start: np.ndarray, deterministic: bool) -> tuple:
        asked = 0 if episode_start[0] else state
        self.told.append((asked, float(seen.sum())))
        return np.full(self.action_space.shape, np.tanh(seen.mean())), asked + 1


def test_a_model_plays_what_it_was_trained_for() -> None:
    """Its memory begins with the episode; other shapes are refused before anything is played, and both are named."""
    model = _Trained()
    agent, plain = PolicyAgent(model, trained_on=[INSTANCE]), FleetAllocEnv(INSTANCE)
    for _ in range(2):
        model.told.clear()
        observation, info = plain.reset(options={"scenario": 0})
        agent.reset(fleetgym.View(plain.instance), seed=0)
        for _ in range(3):
            observation, _, _, _, info = plain.step(agent.act(observation, info))
        assert [asked for asked, _ in model.told] == [0, 1, 2]
    assert agent.misfit(plain.instance) is None
    other = fleetgym.load_instance("fleet-v0/dev/trace-m-001")
    says = r"observations \(4, 20\) and actions \(4, 2\); trace-m-001 has observations \(6, 20\) and actions \(6, 2\)"
    with pytest.raises(FleetgymError, match=says):
        agent.reset(fleetgym.View(other), seed=0)
    assert "trace-m-001" in str(agent.misfit(other))


def test_observations_are_normalised_as_in_training() -> None:
    """Statistics are applied as `VecNormalize` applies them; what has none is refused."""
    model, plain = _Trained(), FleetAllocEnv(INSTANCE)
    raw = for_learning(plain).reset(options={"scenario": 0})[0]
    statistics = Statistics(np.full(raw.shape, 0.5), np.full(raw.shape, 4.0), 1e-8, 0.3)
    agent = PolicyAgent(model, normalize=statistics)
    agent.reset(fleetgym.View(plain.instance), seed=0)
    agent.act(*plain.reset(options={"scenario": 0}))
    expected = np.clip((raw - 0.5) / np.sqrt(4.0 + 1e-8), -0.3, 0.3)
    assert model.told[-1][1] == pytest.approx(float(expected.sum()), rel=1e-5)
    with pytest.raises(FleetgymError, match="expected a VecNormalize"):
        PolicyAgent(model, normalize=3)


@pytest.mark.slow
def test_compare_leaves_out_what_does_not_fit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A policy is compared where it fits, and the rest is told; `check-agent` plays what it was made for."""
    path = tmp_path / "mine.py"
    path.write_text(
        "import numpy as np\n"
        "from fleetgym.envs.policy_agent import PolicyAgent\n"
        "from fleetgym.envs.fleet_alloc import FleetAllocEnv\n"
        "from fleetgym.envs.wrappers import for_learning\n\n\n"
        "class Model:\n"
        "    env = for_learning(FleetAllocEnv('fleet-v0/toy/drop'))\n"
        "    observation_space, action_space = env.observation_space, env.action_space\n\n"
        "    def predict(self, seen, **more):\n"
        "        return np.zeros(self.action_space.shape), None\n\n\n"
        "def agent():\n"
        "    return PolicyAgent(Model(), trained_on=['fleet-v0/toy/drop'])\n"
    )
    name, suite, out = f"{path}:agent", ["fleet-v0/toy/two-pools", INSTANCE], tmp_path / "out.jsonl"
    assert set(fit_of(name, suite).misfits) == {INSTANCE}
    assert main(["compare", name, "margin", "--suite", *suite, "--out", str(out)]) == 0
    told = capsys.readouterr().err
    assert f"left out: {name} does not play 1 of 2 instances, such as {INSTANCE}" in told
    assert f"{name} was not trained on 1 of 2 instances, such as {suite[0]}" in told
    played = fleetgym.read_results(out)
    assert {episode.instance for episode in played.episodes} == {suite[0]}
    costs = {agent: [e.cost_usd for e in played.episodes if e.agent == agent] for agent in played.agents}
    assert costs[name] == costs["margin"]
    checks = check_agent(name, INSTANCE)
    assert all(check.passed for check in checks), checks
    assert any("fleet-v0/toy/drop" in str(check) for check in checks)


def test_a_policy_must_be_callable() -> None:
    """An object that is neither a callable nor a model is refused."""
    with pytest.raises(FleetgymError, match="expected a callable"):
        PolicyAgent(object())  # type: ignore[arg-type]


class _Sticky(gymnasium.ActionWrapper):
    """Repeats the last action now and then, and lets no slot change by more than one option at once."""

    def __init__(self, env: gymnasium.Env):
        super().__init__(env)
        self.rng, self.last, self.asked = np.random.default_rng(0), None, 0

    def action(self, action: Any) -> np.ndarray:
        self.asked += 1
        action = np.asarray(action)
        if self.last is not None:
            kept = self.rng.random() < 0.3
            action = self.last if kept else np.clip(action, self.last - 1, self.last + 1)
        self.last = action
        return action


@pytest.mark.parametrize(
    "wrap", [lambda env: _Sticky(env), lambda env: _Flip(_Sticky(FlattenObservation(env)))]
)
def test_wrappers_with_a_memory_of_actions_play_as_in_training(wrap: Any) -> None:
    """They are asked once per window, so that their memory and their random numbers are those of training."""
    plain, wrapped = FleetAllocEnv(INSTANCE), wrap(FleetAllocEnv(INSTANCE))

    def policy(seen: Any, mask: np.ndarray | None) -> np.ndarray:
        demand = seen["demand"] if isinstance(seen, dict) else seen
        return np.full(plain.action_space.nvec.size, int(abs(float(demand.sum())) * 1e4) % 4)

    seen, told = wrapped.reset(options={"scenario": 0})
    observation, info = plain.reset(options={"scenario": 0})
    agent = PolicyAgent(policy, wrap)
    agent.reset(fleetgym.View(plain.instance), seed=0)
    for _ in range(40):
        seen, _, _, _, told = wrapped.step(policy(seen, told["action_mask"]))
        observation, _, _, _, info = plain.step(agent.act(observation, info))
        assert info["cost"] == told["cost"]
    sticky = next(layer for layer in layers(agent._env) if isinstance(layer, _Sticky))
    assert sticky.asked == 40


def test_running_statistics_are_those_of_training() -> None:
    """Statistics that begin anew in every episode are refused; fixed ones show what they showed."""
    view = fleetgym.View(FleetAllocEnv("fleet-v0/toy/two-pools").instance)

    def fresh(env: gymnasium.Env) -> gymnasium.Env:
        return NormalizeObservation(FlattenObservation(env))

    trained = fresh(FleetAllocEnv("fleet-v0/toy/two-pools"))
    trained.reset(seed=0)
    for _ in range(5):
        trained.step(np.array([1, 0]))
    trained.update_running_mean = False

    def fixed(env: gymnasium.Env) -> gymnasium.Env:
        env = fresh(env)
        env.obs_rms, env.update_running_mean = trained.obs_rms, False
        return env

    shown = []

    def policy(seen: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        shown.append(seen)
        return np.array([1, 0])

    with pytest.raises(FleetgymError, match="update_running_mean = False"):
        PolicyAgent(policy, fresh).reset(view, seed=0)
    agent, plain = PolicyAgent(policy, fixed), FleetAllocEnv("fleet-v0/toy/two-pools")
    for _ in range(2):
        shown.clear()
        agent.reset(view, seed=0)
        agent.act(*plain.reset(options={"scenario": 0}))
        np.testing.assert_array_equal(shown[0], trained.reset(options={"scenario": 0})[0])
