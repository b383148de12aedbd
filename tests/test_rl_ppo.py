"""Training the learned agent: it can be resumed, gives the same weights again, and NumPy computes what PyTorch does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fleetgym.baselines.ppo.agent import PPOAgent
from fleetgym.baselines.ppo.environment import make_env
from fleetgym.baselines.ppo.features import TARGETS
from fleetgym.baselines.ppo.network import slot_scores
from fleetgym.baselines.ppo.plot import draw, read_curve
from fleetgym.baselines.ppo.train import main, parser

pytestmark = pytest.mark.rl
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not there")


def run(folder: Path, *more: str) -> None:
    """Train a little."""
    from fleetgym.baselines.ppo.training import train

    train(parser().parse_args(["--folder", str(folder), "--instances", "2", "--steps", "192", *more]))


def test_training_is_reproducible_and_resumes(tmp_path: Path) -> None:
    """One seed gives one set of weights; a second call goes on from the first, on new instances."""
    run(tmp_path / "a")
    run(tmp_path / "b")
    weights = [(tmp_path / name / "weights.npz").read_bytes() for name in "ab"]
    assert PPOAgent(tmp_path / "a" / "weights.npz").weights.keys()
    for name, value in PPOAgent(tmp_path / "a" / "weights.npz").weights.items():
        assert np.array_equal(value, PPOAgent(tmp_path / "b" / "weights.npz").weights[name]), name
    run(tmp_path / "a", "--families", "drop", "warp")
    assert (tmp_path / "a" / "weights.npz").read_bytes() != weights[0]
    steps, reward, runs = read_curve(tmp_path / "a" / "curve.jsonl")
    assert steps.tolist() == [192.0, 384.0]
    assert np.all(np.isfinite(reward))
    assert runs == ["ou+drop-s", "drop+warp-s"]
    draw(tmp_path / "a" / "curve.jsonl", tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_one_policy_fits_every_shape(tmp_path: Path) -> None:
    """A checkpoint of a small shape trains on, on a larger one."""
    run(tmp_path)
    run(tmp_path, "--size", "m", "--families", "ou", "--instances", "1", "--steps", "96")
    lines = [json.loads(line) for line in (tmp_path / "curve.jsonl").read_text().splitlines()]
    assert [line["run"] for line in lines] == ["ou+drop-s", "ou-m"]


def test_numpy_computes_what_pytorch_does() -> None:
    """Scores, masks, probabilities and entropies agree between the two networks and with sb3-contrib's own."""
    import torch
    from sb3_contrib.common.maskable.distributions import MaskableMultiCategoricalDistribution

    from fleetgym.baselines.ppo.policy import SlotNetwork, SlotSteps

    torch.manual_seed(3)
    env = make_env("fleet-v0/dev/drop-s-001")
    observation, info = env.reset(seed=0)
    slots, features = observation.shape
    network = SlotNetwork(slots, features, len(TARGETS), 7)
    network.shift.copy_(torch.randn(features))
    network.scale.copy_(torch.rand(features))
    with torch.no_grad():
        logits = network.forward_actor(torch.as_tensor(observation[None]).flatten(1))
    scores = slot_scores({k: v.astype(float) for k, v in network.arrays().items()}, observation)
    assert logits.numpy().reshape(scores.shape) == pytest.approx(scores, rel=1e-4, abs=1e-4)

    ours = SlotSteps(slots, len(TARGETS)).proba_distribution(logits)
    theirs = MaskableMultiCategoricalDistribution([len(TARGETS)] * slots).proba_distribution(logits)
    for distribution in (ours, theirs):
        distribution.apply_masking(info["action_mask"][None])
    assert torch.equal(ours.mode(), theirs.mode())
    action = ours.sample()
    assert ours.log_prob(action).numpy() == pytest.approx(theirs.log_prob(action).numpy(), rel=1e-5)
    assert slots * ours.entropy().numpy() == pytest.approx(theirs.entropy().numpy(), rel=1e-4)


@pytest.mark.parametrize("wrong", [["--instances", "0"], ["--steps", "0"], ["--families", "grw"]])
def test_what_cannot_be_trained_is_refused(
    wrong: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No instances, no steps, and families of exclusive groups end in an error before anything is written."""
    with pytest.raises(SystemExit) as caught:
        main(["--folder", str(tmp_path), *wrong])
    assert caught.value.code not in (None, 0)
    told = f"{capsys.readouterr().err}{caught.value.code}"
    assert "expected a whole number" in told or "are exclusive groups" in told
    assert not list(tmp_path.iterdir())
