"""Training the learned agent: it can be resumed, gives the same weights again, and NumPy computes what PyTorch does."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fleetgym.agents.margins import FEATURES
from fleetgym.baselines.ppo.agent import PPOAgent
from fleetgym.baselines.ppo.network import workload_scores
from fleetgym.baselines.ppo.plot import draw, read_curve
from fleetgym.baselines.ppo.train import main, parser

pytestmark = pytest.mark.rl
pytest.importorskip("torch", reason="PyTorch is not there")


def run(folder: Path, *more: str) -> None:
    """Train a little."""
    from fleetgym.baselines.ppo.training import train

    few = "--instances 2 --episodes 2 --updates 1 --families ou-s drop-s"
    train(parser().parse_args(["--folder", str(folder), *few.split(), *more]))


def test_training_is_reproducible_and_resumes(tmp_path: Path) -> None:
    """One seed gives one set of weights; a second call goes on from the first, on other instances and shapes."""
    run(tmp_path / "a")
    run(tmp_path / "b")
    first, second = (PPOAgent(tmp_path / name / "weights.npz").weights for name in "ab")
    assert all(np.array_equal(first[name], second[name]) for name in first)
    run(tmp_path / "a", "--families", "drop-s", "ou-m")
    later = PPOAgent(tmp_path / "a" / "weights.npz").weights
    assert not np.array_equal(first["embed.weight"], later["embed.weight"])
    steps, reward, runs = read_curve(tmp_path / "a" / "curve.jsonl")
    assert steps.tolist() == [192.0, 384.0]
    assert np.all(np.isfinite(reward))
    assert runs == ["ou-s+drop-s", "drop-s+ou-m"]
    draw(tmp_path / "a" / "curve.jsonl", tmp_path / "curve.png")
    assert (tmp_path / "curve.png").stat().st_size > 5000


def test_numpy_computes_what_pytorch_does() -> None:
    """The mean action of the trained network is that of the agent's, and it starts at the rule."""
    import torch

    from fleetgym.baselines.ppo.policy import WorkloadPolicy

    torch.manual_seed(3)
    policy = WorkloadPolicy(len(FEATURES), 2, 7)
    observation = torch.randn(3, 4, len(FEATURES))
    assert policy.means(observation).abs().max() < 0.02
    policy.shift.copy_(torch.randn(len(FEATURES)))
    policy.scale.copy_(torch.rand(len(FEATURES)))
    with torch.no_grad():
        means = policy.means(observation).numpy()
    weights = {name: value.astype(float) for name, value in policy.arrays().items()}
    for k in range(3):
        assert means[k] == pytest.approx(workload_scores(weights, observation[k].numpy()), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (["--instances", "0"], "expected a whole number"),
        (["--updates", "0"], "expected a whole number"),
        (["--families", "oo-s"], "oo"),
        (["--families", "ou"], "expected a family and a size"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    wrong: list[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No instances, no updates, and families that there are not end in an error before anything is written."""
    with pytest.raises(SystemExit) as caught:
        main(["--folder", str(tmp_path), *wrong])
    assert caught.value.code not in (None, 0)
    assert told in f"{capsys.readouterr().err}{caught.value.code}"
    assert not list(tmp_path.iterdir())


def test_the_curve_is_json(tmp_path: Path) -> None:
    """Each update writes one line of numbers."""
    run(tmp_path)
    (line,) = (tmp_path / "curve.jsonl").read_text().splitlines()
    assert json.loads(line).keys() == {"steps", "reward", "deviation", "cpu_s", "run"}
