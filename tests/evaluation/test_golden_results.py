"""What the quick reference agents did and paid before the package was rebuilt: results may not change by a rename.

``tests/golden/results_v0.json`` holds four days of nine agents, recorded from the results file of an earlier version.
"""

from __future__ import annotations

import hashlib
import json

import pytest
from places import TESTS

from fleetgym.evaluation.jobs import Job, run_job

RECORDED = json.loads((TESTS / "golden" / "results_v0.json").read_text())


@pytest.mark.parametrize("agent", dict.fromkeys(episode["agent"] for episode in RECORDED))
def test_episodes_are_as_recorded(agent: str) -> None:
    """Every action is the recorded one, and every cost term, up to how processors round sums."""
    for recorded in (episode for episode in RECORDED if episode["agent"] == agent):
        played = run_job(Job(agent, recorded["instance"], recorded["scenario"], 0), isolate="never")
        actions = json.dumps(played.actions, separators=(",", ":"))
        where = f"{agent} on {recorded['instance']}"
        assert hashlib.sha256(actions.encode()).hexdigest() == recorded["actions_sha256"], where
        for term, usd in recorded["costs"].items():
            assert getattr(played.costs, term) == pytest.approx(usd, rel=1e-9, abs=1e-9), (where, term)
        assert played.cost_usd == pytest.approx(recorded["cost_usd"], rel=1e-12)
        assert (played.lost, played.denied) == (recorded["lost"], recorded["denied"])
