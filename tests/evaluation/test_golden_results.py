"""What the quick reference agents did and paid before the package was rebuilt: results may not change by a rename.

``tests/golden/results_v0.json`` holds four days of nine agents, recorded from the results file of an earlier version.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from places import TESTS

from fleetgym.evaluation.jobs import Job, run_job

RECORDED = json.loads((TESTS / "golden" / "results_v0.json").read_text())


def episodes() -> Iterator[Any]:
    """Yield the recorded episodes; those of `descent` on larger instances take seconds."""
    for episode in RECORDED:
        agent, instance = episode["agent"], episode["instance"]
        marks = [pytest.mark.slow] if agent.startswith("descent") and "-m-" in instance else []
        yield pytest.param(episode, id=f"{agent} on {instance}", marks=marks)


@pytest.mark.parametrize("recorded", episodes())
def test_an_episode_is_as_recorded(recorded: dict[str, Any]) -> None:
    """Every action is the recorded one, and every cost term, up to how processors round sums."""
    played = run_job(Job(recorded["agent"], recorded["instance"], recorded["scenario"], 0), isolate="never")
    actions = json.dumps(played.actions, separators=(",", ":"))
    assert hashlib.sha256(actions.encode()).hexdigest() == recorded["actions_sha256"]
    for term, usd in recorded["costs"].items():
        assert getattr(played.costs, term) == pytest.approx(usd, rel=1e-9, abs=1e-9), term
    assert played.cost_usd == pytest.approx(recorded["cost_usd"], rel=1e-12)
    assert (played.lost, played.denied) == (recorded["lost"], recorded["denied"])
