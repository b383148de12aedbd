"""`cem`: it plays its weights, learns the same again, gets better, and refuses what are no weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from changed_files import refused_flips
from test_ppo import play

import fleetgym
from fleetgym.agents.margins import FEATURES
from fleetgym.baselines import cem
from fleetgym.files.errors import FleetgymError

OU = "fleet-v0/dev/ou-s-001"


def test_zero_weights_are_margin(tmp_path: Path) -> None:
    """The law starts at the rule: weights of zero play as `margin` does."""
    np.savez(tmp_path / "zero.npz", weights=np.zeros((2, len(cem.USED) + 1)))
    agent = cem.CEM(tmp_path / "zero.npz")
    assert play(agent, OU, 60) == play(fleetgym.make_agent("margin"), OU, 60)


def test_actions_are_weighted_sums() -> None:
    """Against plain sums, for one set of weights and for a set per environment."""
    rng = np.random.default_rng(0)
    features, weights = rng.normal(size=(3, 4, len(FEATURES))), rng.normal(size=(3, 2, len(cem.USED) + 1))
    several = cem.margin_actions(weights, features)
    for n in range(3):
        one = cem.margin_actions(weights[0], features)
        for i in range(4):
            for k in range(2):
                used = [features[n, i, FEATURES.index(name)] for name in cem.USED]
                for row, found in ((weights[n], several), (weights[0], one)):
                    expected = sum(w * x for w, x in zip(row[k], used, strict=False)) + row[k][-1]
                    assert found[n, i, k] == pytest.approx(expected)


def test_learning_is_reproducible(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same seed gives the same weights, another one others; progress is counted from the rule."""
    monkeypatch.setattr(cem, "DRAWS", 12)
    monkeypatch.setattr(cem, "DAYS", 2)
    told = []
    first = cem.train("fleet-v0/toy/drop", 3, 1, lambda generation, percent: told.append(percent))
    assert np.array_equal(first, cem.train("fleet-v0/toy/drop", 3, 1))
    assert not np.array_equal(first, cem.train("fleet-v0/toy/drop", 3, 2))
    assert told[0] == pytest.approx(0.0, abs=1e-9)
    assert len(told) == 3


def test_what_is_refused(tmp_path: Path) -> None:
    """Files that hold no weights."""
    path = tmp_path / "weights.npz"
    with pytest.raises(FleetgymError, match=r"weights\.npz"):
        cem.CEM(path)
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(FleetgymError, match=r"of shape \(2, 10\), got \(3,\)"):
        cem.CEM(path)


def test_no_flipped_bit_of_weights_is_unseen(tmp_path: Path) -> None:
    """A damaged file is refused, or its weights are as before: the bit was in a date or in a name's case."""
    path, rng = tmp_path / "weights.npz", np.random.default_rng(47)
    np.savez_compressed(path, weights=rng.normal(size=(2, len(cem.USED) + 1)))
    assert refused_flips(path, lambda: cem.load_weights(path), seed=47) > 200
