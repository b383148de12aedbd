"""The tool of fresh days: its table against numbers made by hand, and costs that are kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tools import fresh_days


def test_a_column_is_a_family_or_an_instance() -> None:
    """Means of families weigh the same; instances of a family, or days of an instance, are the sample."""
    usd = {
        "ou-s-1": {"rule": np.array([10.0, 20.0]), "mine": np.array([11.0, 22.0])},
        "ou-s-2": {"rule": np.array([10.0, 20.0]), "mine": np.array([11.0, 22.0])},
        "drop-s-1": {"rule": np.array([5.0, 5.0]), "mine": np.array([5.0, 5.0])},
    }
    head, _, row = fresh_days.table(usd, ["mine"], "rule", by_family=True)
    assert head == "| percent against `rule` | ou-s | drop-s | mean |"
    assert row == "| `mine` | 10.00 [10.00, 10.00] | 0.00 | 4.88 |"
    stored = {"fleet-v0/toy/two-pools": usd["ou-s-1"]}
    lines = fresh_days.table(stored, ["mine"], "rule", by_family=False)
    assert lines[0] == "| percent against `rule` | two-pools |"
    assert lines[2] == "| `mine` | 10.00 [10.00, 10.00] |"


def test_kept_costs_are_not_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second call reads the file, and asks only for what is lacking; other days are played anew."""
    played: list[list[str]] = []

    def costs(name: str, agents: list[str], days: int, seed: int, workers: int) -> dict[str, object]:
        played.append(list(agents))
        found = {agent: np.full(days, 2.0) for agent in [*agents, "empty"]}
        return {"hash": fresh_days.instance_of(name).content_hash, **found}

    monkeypatch.setattr(fresh_days, "instance_costs", costs)
    name, kept = "fleet-v0/toy/two-pools", tmp_path / "costs.json"
    fresh_days.costs_usd(name, ["hold"], 2, kept)
    found = fresh_days.costs_usd(name, ["hold", "margin"], 2, kept)
    assert found["hold"].tolist() == [2.0, 2.0]
    assert played == [["hold"], ["margin"]]
    fresh_days.costs_usd(name, ["hold"], 3, kept)
    assert played[2:] == [["hold"]]
